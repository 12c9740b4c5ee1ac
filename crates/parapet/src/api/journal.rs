//! A journal device, as the program shows it.

use layout::private::journal::{self, JournalUse};
use serde::{Deserialize, Serialize};

use super::LogView;
use crate::page::Page;

/// The journal device of an array.
#[derive(Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Journal {
    /// Its UUID.
    pub(crate) uuid: String,
    /// Its path, or its last known name.
    pub(crate) name: String,
    /// State of the log on it.
    pub(crate) state: JournalState,
    /// Bytes written to it since the array was started.
    pub(crate) written_bytes: u64,
}

/// The journal device of an array, as the metadata of one of its members records it.
#[derive(Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct JournalNote {
    /// Its UUID.
    pub(crate) uuid: String,
    /// Its last known name.
    pub(crate) name: String,
    /// State of the log on it.
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

/// State of a journal device.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub(crate) enum JournalState {
    /// The log is on the device.
    Logging,
    /// The log is, or will be, on the members: the device was missing at the start of the array.
    Away,
    /// The device failed and the log is on the members; the array does not use the device again by
    /// itself.
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

/// A disk with the superblock of a journal device.
#[derive(Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct JournalView {
    /// Its UUID.
    pub(crate) uuid: String,
    /// UUID of the array.
    pub(crate) array_uuid: String,
    /// Name of the array when the device was last used.
    pub(crate) array_name: String,
    /// Size of the log.
    pub(crate) log_bytes: u64,
    /// Content of the log; null if nothing was ever logged. Only the members record whether a
    /// replay needs it.
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
