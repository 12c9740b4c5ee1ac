//! A journal device, as the program shows it.

use layout::private::journal::{self, JournalUse};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::LogView;
use crate::page::Page;

/// The journal device of an array.
#[derive(Clone, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Journal {
    /// Its identity.
    pub(crate) uuid: String,
    /// Its path, or what it was last called.
    pub(crate) name: String,
    /// Whether the log lies there.
    pub(crate) state: JournalState,
    /// Bytes written to it since the array was started.
    pub(crate) written_bytes: u64,
}

/// The journal device of an array, as one of its members says.
#[derive(Clone, Serialize, Deserialize, JsonSchema)]
pub(crate) struct JournalNote {
    /// Its identity.
    pub(crate) uuid: String,
    /// What it was last called.
    pub(crate) name: String,
    /// Whether the log lies there.
    pub(crate) state: JournalState,
}

impl From<journal::JournalNote> for JournalNote {
    fn from(note: journal::JournalNote) -> JournalNote {
        let (uuid, name) = (note.uuid.to_string(), note.name.to_string());
        JournalNote { uuid, name, state: note.used.into() }
    }
}

impl JournalNote {
    pub(super) fn sentence(&self) -> String {
        format!("{} ({}), {}", self.name, self.uuid, self.state.words())
    }
}

/// What a journal device is to its array.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum JournalState {
    /// The log lies there.
    Logging,
    /// It is, or will be, logged on the members: the device was not here when it was started.
    Away,
    /// It failed: the log lies on the members, and the device is not used again by itself.
    GivenUp,
}

impl From<JournalUse> for JournalState {
    fn from(used: JournalUse) -> JournalState {
        match used {
            JournalUse::Logging => JournalState::Logging,
            JournalUse::Away => JournalState::Away,
            JournalUse::GivenUp => JournalState::GivenUp,
        }
    }
}

impl JournalState {
    fn words(self) -> &'static str {
        match self {
            JournalState::Logging => "in use",
            JournalState::Away => "not used: the log lies on the members",
            JournalState::GivenUp => "given up: the log lies on the members",
        }
    }
}

impl Journal {
    pub(super) fn sentence(&self) -> String {
        format!("{} ({}), {}", self.name, self.uuid, self.state.words())
    }
}

/// A disk that says it is a journal device.
#[derive(Clone, Serialize, Deserialize, JsonSchema)]
pub(crate) struct JournalView {
    /// Its identity.
    pub(crate) uuid: String,
    /// The array.
    pub(crate) array_uuid: String,
    /// Its name when the device was last used.
    pub(crate) array_name: String,
    /// Room for the log.
    pub(crate) log_bytes: u64,
    /// What lies in it; null if nothing was ever logged. Whether any of it matters is known to the
    /// members only.
    pub(crate) log: Option<LogView>,
}

impl JournalView {
    pub(super) fn text(&self, page: &mut Page) {
        page.field("journal of", format!("{} ({})", self.array_name, self.array_uuid));
        page.field("device", &self.uuid);
        page.field("room", page.size(self.log_bytes));
        if let Some(log) = &self.log {
            page.field("log", log.sentence(page));
        }
    }
}
