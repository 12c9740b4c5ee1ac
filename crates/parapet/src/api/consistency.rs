//! Crash-consistency policies, by the names that users write and read.

use layout::private;
use metadata::create::NewArray;
use serde::{Deserialize, Serialize};

/// Crash-consistency policy: the protection against the write hole. A crash during a write
/// leaves parity or copies that agree neither with the old data nor with the new.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, clap::ValueEnum)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub(crate) enum Consistency {
    /// Resync the whole array after a crash
    Resync,
    /// Resync only regions marked in the write-intent bitmap
    Bitmap,
    /// As bitmap; an intent log closes the write hole, also when degraded (RAID 4/5/6/3.5)
    Intent,
    /// md's partial parity log, which Linux replays too (RAID 5)
    Ppl,
    /// As intent; new data is logged too, so interrupted blocks never become unreadable
    Journal,
}

impl Consistency {
    /// Returns its name, as users write it.
    pub(crate) fn word(self) -> &'static str {
        private::Consistency::from(self).name()
    }

    /// Describes its effect on the array, in a few words.
    pub(crate) fn sentence(self) -> &'static str {
        match self {
            Consistency::Resync => "resync: after a crash all is synced",
            Consistency::Bitmap => "bitmap: after a crash, dirty regions are resynced",
            Consistency::Intent => "intent: the write hole is closed by a log",
            Consistency::Ppl => "ppl: the write hole is closed by md's partial parity log",
            Consistency::Journal => "journal: the write hole is closed by a log with the data",
        }
    }
}

impl From<private::Consistency> for Consistency {
    fn from(policy: private::Consistency) -> Consistency {
        match policy {
            private::Consistency::Resync => Consistency::Resync,
            private::Consistency::Bitmap => Consistency::Bitmap,
            private::Consistency::Intent => Consistency::Intent,
            private::Consistency::Ppl => Consistency::Ppl,
            private::Consistency::Journal => Consistency::Journal,
        }
    }
}

impl From<Consistency> for private::Consistency {
    fn from(policy: Consistency) -> private::Consistency {
        match policy {
            Consistency::Resync => private::Consistency::Resync,
            Consistency::Bitmap => private::Consistency::Bitmap,
            Consistency::Intent => private::Consistency::Intent,
            Consistency::Ppl => private::Consistency::Ppl,
            Consistency::Journal => private::Consistency::Journal,
        }
    }
}

/// Returns the policy for a new array; none for a level without redundancy.
pub(crate) fn of_new(new: &NewArray, redundancy: usize) -> Option<Consistency> {
    let policy = new.consistency.map(Consistency::from);
    policy.filter(|_| redundancy > 0)
}
