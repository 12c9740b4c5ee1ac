//! Crash-consistency policies: the protection of an array against the *write hole*.
//!
//! A crash during a write leaves parity that matches neither the old data nor the new. If a member
//! is lost with it, unwritten blocks are recovered from that parity, and wrong.

/// Crash-consistency policy of an array of a level with parity.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Consistency {
    /// No protection: a crash makes the whole array resync.
    Resync,
    /// The write-intent bitmap limits the resync to dirty regions.
    Bitmap,
    /// Bitmap, and an intent log from which each torn row is replayed, also on a degraded array.
    Intent,
    /// md's partial parity log, on RAID 5 only. Linux replays it too.
    Ppl,
    /// As `Intent`, and the log holds the new data, too.
    Journal,
}

impl Consistency {
    /// All of them.
    pub const ALL: [Consistency; 5] = [
        Consistency::Resync,
        Consistency::Bitmap,
        Consistency::Intent,
        Consistency::Ppl,
        Consistency::Journal,
    ];

    /// Its name, as users write it.
    pub const fn name(self) -> &'static str {
        match self {
            Consistency::Resync => "resync",
            Consistency::Bitmap => "bitmap",
            Consistency::Intent => "intent",
            Consistency::Ppl => "ppl",
            Consistency::Journal => "journal",
        }
    }

    /// The policy of this name.
    pub fn named(name: &str) -> Option<Consistency> {
        Consistency::ALL.into_iter().find(|policy| policy.name() == name)
    }

    /// True if partial parities are logged, in the private area or in md's log: then a crash
    /// together with a member loss changes no unwritten block.
    pub const fn closes_hole(self) -> bool {
        self.has_log() || matches!(self, Consistency::Ppl)
    }

    /// True if partial parities are logged in the private area.
    pub const fn has_log(self) -> bool {
        matches!(self, Consistency::Intent | Consistency::Journal)
    }

    /// True if the array has md's write-intent bitmap by this policy.
    pub const fn has_bitmap(self) -> bool {
        matches!(self, Consistency::Bitmap | Consistency::Intent | Consistency::Journal)
    }

    /// Its number in the header.
    pub(super) const fn number(self) -> u64 {
        match self {
            Consistency::Resync => 1,
            Consistency::Bitmap => 2,
            Consistency::Intent => 3,
            Consistency::Ppl => 4,
            Consistency::Journal => 5,
        }
    }
}
