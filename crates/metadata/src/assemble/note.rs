//! Remarks for the user about an assembled array.

use std::fmt;

use layout::Slot;

/// One thing to know.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Note {
    /// A disk is not a usable member and was excluded.
    Unusable {
        /// The disk.
        name: String,
        /// Why.
        why: String,
    },
    /// A stale member was excluded.
    Stale {
        /// The disk.
        name: String,
        /// Its event count.
        events: u64,
        /// The freshest superblock's.
        latest_events: u64,
        /// Its owner.
        latest: String,
        /// Why that means that it is stale.
        why: String,
    },
    /// A slot has no member.
    Missing {
        /// The slot.
        slot: Slot,
    },
    /// A member waits for a slot.
    Spare {
        /// The disk.
        name: String,
    },
    /// A member was being rebuilt.
    Rebuilding {
        /// The disk.
        name: String,
        /// Its slot.
        slot: Slot,
        /// The array offset up to which it can be relied on.
        below: u64,
    },
    /// A member was being made a copy of another.
    Replacing {
        /// The disk.
        name: String,
        /// The slot that it shall take.
        slot: Slot,
        /// The array offset up to which it is a copy.
        below: u64,
    },
    /// Something about a member that changes nothing now.
    Remark {
        /// The disk.
        name: String,
        /// The feature.
        text: String,
    },
    /// Parity or copies may disagree.
    Unsynced {
        /// Bytes that must be synced.
        bytes: u64,
        /// How that came about.
        cause: Cause,
    },
    /// The log is not on the journal device.
    Journal {
        /// Why, and where it is.
        text: String,
    },
    /// The intent log says nothing that could be relied on.
    LogUnusable {
        /// Why.
        why: String,
    },
    /// Checksums existed and were dropped.
    ChecksumsDropped {
        /// Why.
        why: String,
    },
}

/// Why an array is not in sync.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cause {
    /// It was never used since it was created.
    New,
    /// It was stopped while it was being synced.
    Unfinished,
    /// It was not stopped cleanly.
    Crash,
}

impl Note {
    /// True if a member that could have been there is not.
    pub(crate) fn is_loss(&self) -> bool {
        matches!(self, Note::Unusable { .. } | Note::Stale { .. })
    }
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Note::Unusable { name, why } => write!(f, "{name} was left out: {why}"),
            Note::Stale { name, events, latest_events, latest, why } => write!(
                f,
                "{name} is stale and was left out: {why} (event {events}, {latest} is at \
                 {latest_events})"
            ),
            Note::Missing { slot } => write!(f, "slot {slot} has no member"),
            Note::Spare { name } => write!(f, "{name} is a spare"),
            Note::Rebuilding { name, slot, below } => {
                write!(f, "{name} (slot {slot}) is rebuilt up to array offset {below}")
            }
            Note::Replacing { name, slot, below } => {
                write!(f, "{name} is a copy of slot {slot} up to array offset {below}")
            }
            Note::Remark { name, text } => write!(f, "{name}: {text}"),
            Note::Unsynced { bytes, cause } => {
                let cause = match cause {
                    Cause::New => "is new",
                    Cause::Unfinished => "was stopped while it was being synced",
                    Cause::Crash => "was not stopped cleanly",
                };
                write!(f, "the array {cause}: {bytes} bytes out of sync")
            }
            Note::Journal { text } => f.write_str(text),
            Note::LogUnusable { why } => write!(
                f,
                "the intent log is not used: {why}. Dirty regions are resynced instead, \
                 which needs all members"
            ),
            Note::ChecksumsDropped { why } => write!(
                f,
                "checksums were switched off: {why}. Replace it, and assemble the array with \
                 --checksums on"
            ),
        }
    }
}
