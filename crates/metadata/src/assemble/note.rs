//! Notes for the user about an assembled array.

use std::fmt;

use layout::Slot;

/// One note.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Note {
    /// A disk is not a usable member and was left out.
    Unusable {
        /// The disk.
        name: String,
        /// Why.
        why: String,
    },
    /// A stale member was left out.
    Stale {
        /// The disk.
        name: String,
        /// Its event count.
        events: u64,
        /// The freshest superblock's.
        latest_events: u64,
        /// The disk with that.
        latest: String,
        /// The reason why the member is stale.
        why: String,
    },
    /// A slot has no member.
    Missing {
        /// The slot.
        slot: Slot,
    },
    /// A member is a spare.
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
        /// The array offset up to which it is recovered.
        below: u64,
    },
    /// A member was a replacement in progress.
    Replacing {
        /// The disk.
        name: String,
        /// The slot that it is to take.
        slot: Slot,
        /// The array offset up to which it is copied.
        below: u64,
    },
    /// A remark about a member, without effect for now.
    Remark {
        /// The disk.
        name: String,
        /// The remark.
        text: String,
    },
    /// Parity or copies may disagree.
    Unsynced {
        /// Bytes that must be synced.
        bytes: u64,
        /// The cause.
        cause: Cause,
    },
    /// The log is not on the journal device.
    Journal {
        /// The reason, and the place of the log.
        text: String,
    },
    /// The intent log is not trusted.
    LogUnusable {
        /// Why.
        why: String,
    },
    /// Checksums were kept until now, and are dropped.
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
    /// It was not shut down in order.
    Crash,
}

impl Note {
    /// True for a member that is unusable or stale.
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
