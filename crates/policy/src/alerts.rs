//! Alerts: whom to tell of which event, when to repeat it, and when to try again.
//!
//! ```text
//!             ┌─ Outbox of a channel ─────────────────────────────────────┐
//!   Event ──▶ │ least, events ──▶ repeats held back ──▶ bounded queue ──▶ │ ──▶ Notice, sent by
//!             │                   reminders ─────────────▲  ▲ back-off    │     the caller
//!             └───────────────────────────────────────────┴──┴────────────┘
//! ```
//!
//! Sends nothing and has no clock: the time comes in as a parameter. Loses no message silently:
//! the next one that arrives has the number of those that did not.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

mod channel;
mod outbox;

pub use channel::{Channel, Encryption, Heartbeat, Kind, Mail, Secret, Web};
pub use outbox::{Failing, Kept, MOST_WAITING, Notice, Outbox, TOO_OLD};

/// How much an event matters.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// As ordered or expected.
    Info,
    /// Redundancy is reduced, or a member needs a look.
    Warning,
    /// A member or data is lost.
    Error,
}

/// An event of an array.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Event {
    /// Name of the array.
    pub array: String,
    /// UUID of the array.
    pub uuid: String,
    /// mdadm's word where it has one, such as `Fail`.
    pub word: String,
    /// How much it matters.
    pub severity: Severity,
    /// The member that it is about.
    pub member: Option<String>,
    /// What happened, and why.
    pub message: String,
    /// When it happened.
    pub time: Timestamp,
}
