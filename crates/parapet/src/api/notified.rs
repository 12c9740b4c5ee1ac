//! Alerts: the document of a webhook, and the outcome of a test.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{Report, Severity};
use crate::page::{Page, Style};

/// What a webhook is sent.
#[derive(Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Notified {
    /// Name of the machine.
    pub(crate) host: String,
    /// Name of the array.
    pub(crate) array: String,
    /// UUID of the array.
    pub(crate) uuid: String,
    /// mdadm's word where it has one, such as `Fail`.
    pub(crate) event: String,
    /// How much it matters.
    pub(crate) severity: Severity,
    /// The member that it is about.
    pub(crate) member: Option<String>,
    /// What happened, and why.
    pub(crate) message: String,
    /// When it happened.
    pub(crate) time: Timestamp,
    /// Number of events that this message stands for: repeats within an hour share one.
    pub(crate) count: u64,
    /// In a reminder, since when the problem lasts; otherwise null.
    pub(crate) since: Option<Timestamp>,
    /// Number of earlier events that were not delivered.
    pub(crate) lost: u64,
}

impl Report for Notified {
    const SCHEMA: &'static str = "parapet/notify/1";

    fn text(&self, page: &mut Page) {
        page.field(&self.event, &self.message);
    }
}

/// The outcome of `parapet notify test`.
#[derive(Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct NotifyTest {
    /// Names of the channels that took the test message.
    pub(crate) delivered: Vec<String>,
}

impl Report for NotifyTest {
    const SCHEMA: &'static str = "parapet/notify-test/1";

    fn text(&self, page: &mut Page) {
        for channel in &self.delivered {
            page.styled(Style::Plain, format!("{channel}: the test message was delivered"));
        }
    }
}
