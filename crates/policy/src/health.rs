//! Disk health: what to do about a disk, from its SMART data and the errors that arrays saw.
//!
//! ```text
//!    smartctl --json ─▶ reading ─┐
//!                                ├─▶ ladder: ok → watch → suspect → replace → fail
//!    errors of its members ──────┘      └─▶ plan: at most one replacement in an array
//! ```
//!
//! SMART is a hint: 36 % of failed disks showed no SMART error at all (Google, 2007). So the errors
//! that arrays see count beside it, and growth counts more than totals.

use serde::{Deserialize, Serialize};

use crate::period::Period;

mod days;
mod ladder;
mod plan;
mod reading;

pub use days::{Change, Day, Days, MOST_DAYS};
pub use ladder::{Counter, Disk, Level, Own, Verdict};
pub use plan::{Plan, PlannedMember, Standing, Wait};
pub use reading::{Answer, Attribute, Reading, SelfTest, SpareBlocks, read};

/// The section `[health]`.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// What to do about a disk that should be replaced.
    pub policy: Policy,
    /// Time between two SMART readings of a disk. A disk that sleeps is not woken up.
    pub poll: Period,
    /// Name or path of the program smartctl.
    pub smartctl: String,
    /// Watch a disk that is warmer than this, in degrees Celsius. NVMe disks have limits of their
    /// own.
    pub temperature_limit_celsius: i64,
    /// Replace a disk after so many failed reads.
    pub read_errors: u64,
    /// Errors count until so much time has passed without a new one.
    pub memory: Period,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            policy: Policy::ReplaceIfSpare,
            poll: Period::seconds(90 * 60),
            smartctl: "smartctl".into(),
            temperature_limit_celsius: 60,
            read_errors: 10,
            // After a first scan error, failure is 39 times as likely for 60 days (Google, 2007).
            memory: Period::days(60),
        }
    }
}

/// What to do about a disk that should be replaced.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Policy {
    /// Report it.
    Alert,
    /// Report it, and copy it to a spare if the array has one.
    #[default]
    ReplaceIfSpare,
    /// Read no SMART data.
    Off,
}

impl Policy {
    /// Every policy with its word.
    pub const ALL: [(Policy, &'static str); 3] = [
        (Policy::Alert, "alert"),
        (Policy::ReplaceIfSpare, "replace-if-spare"),
        (Policy::Off, "off"),
    ];
}

impl std::str::FromStr for Policy {
    type Err = String;

    fn from_str(text: &str) -> Result<Policy, String> {
        let known = Policy::ALL.iter().find(|(_, word)| *word == text);
        let words = Policy::ALL.map(|(_, word)| word).join(", ");
        known.map(|(policy, _)| *policy).ok_or_else(|| format!("{text:?} is none of: {words}"))
    }
}

#[cfg(test)]
mod tests;
