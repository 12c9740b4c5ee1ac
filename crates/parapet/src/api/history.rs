//! What has happened to an array: `parapet events`.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::Report;
use crate::page::{Page, Style};

/// How much an event matters.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub(crate) enum Severity {
    /// As ordered or expected.
    Info,
    /// Redundancy is reduced, or a member needs a look.
    Warning,
    /// A member or data is lost.
    Error,
}

/// An event of an array.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct HistoryEntry {
    /// Its number in the history of the array, from 1; numbers survive restarts.
    pub(crate) number: u64,
    /// When it happened.
    pub(crate) time: Timestamp,
    /// mdadm's word where it has one, such as `Fail`.
    pub(crate) event: String,
    /// How much it matters.
    pub(crate) severity: Severity,
    /// The member that it is about.
    pub(crate) member: Option<String>,
    /// What happened, and why.
    pub(crate) message: String,
}

/// The history of an array, the oldest event first.
#[derive(Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct History {
    /// Name of the array.
    pub(crate) name: String,
    /// UUID of the array.
    pub(crate) uuid: String,
    /// Its latest events.
    pub(crate) events: Vec<HistoryEntry>,
}

impl Report for History {
    const SCHEMA: &'static str = "parapet/history/1";

    fn text(&self, page: &mut Page) {
        let rows = self.events.iter().map(HistoryEntry::row).collect::<Vec<_>>();
        page.table(&rows);
    }
}

impl HistoryEntry {
    fn row(&self) -> (Style, Vec<String>) {
        let style = match self.severity {
            Severity::Info => Style::Plain,
            Severity::Warning => Style::Warning,
            Severity::Error => Style::Bad,
        };
        let time = self.time.strftime("%Y-%m-%d %H:%M:%SZ").to_string();
        (style, vec![time, self.event.clone(), self.message.clone()])
    }
}
