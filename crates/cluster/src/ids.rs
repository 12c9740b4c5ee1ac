//! Names and numbers of the cluster, each a type of its own.
//!
//! Owns no rules but the form of a boot: comparing two numbers of one type is all that the others
//! can do.

use crate::broken::{Broken, broken};

/// Declares a number that cannot be mistaken for another.
macro_rules! numbers {
    ($($(#[doc = $what:literal])+ $name:ident: $inner:ty;)+) => {
        $(
            $(#[doc = $what])+
            #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
            pub struct $name(pub $inner);
        )+
    };
}

numbers! {
    /// The array's UUID.
    ArrayId: u128;
    /// A host that uses the array.
    ClientId: u32;
    /// Start number of a client; a client returns from an eviction only with a higher one.
    Incarnation: u32;
    /// A member's slot in the array.
    MemberId: u16;
    /// A member's disk: a random number of its format, not 0.
    DiskId: u32;
    /// A start of a member's server: its disk in the high half, the count of starts in the low one.
    /// Equal boots mean the same disk, and that its volatile cache was not lost.
    BootId: u64;
    /// A process that may coordinate.
    CandidateId: u16;
    /// Number of a coordinator's reign; each takeover increments it.
    Term: u64;
    /// Number of the membership; each change increments it.
    Epoch: u64;
    /// A run of blocks; the unit of grants and resync.
    Region: u32;
    /// A member request of one client incarnation or one coordinator term.
    OpId: u64;
    /// A client's number of one grant, from its request to its release.
    GrantId: u64;
    /// A request of the layer above the client.
    RequestId: u64;
}

impl Incarnation {
    /// The greatest one that a client may have: a fence names the next one.
    pub const LAST: Incarnation = Incarnation(u32::MAX - 1);

    /// The least one that a fence of this one lets in. None can follow the greatest number, which
    /// no client may have; logs of 0.1.0 may name it.
    #[must_use]
    pub const fn next(self) -> Incarnation {
        Incarnation(self.0.saturating_add(1))
    }
}

impl BootId {
    /// Of a disk that was formatted, and never served.
    pub const fn unserved(disk: DiskId) -> BootId {
        BootId((disk.0 as u64) << 32)
    }

    /// The first start of a disk.
    pub const fn first(disk: DiskId) -> BootId {
        BootId(BootId::unserved(disk).0 | 1)
    }

    /// The next start of the same disk.
    #[must_use]
    pub const fn next(self) -> BootId {
        let count = (self.0 as u32).wrapping_add(1);
        BootId(BootId::unserved(self.disk()).0 | count as u64)
    }

    /// The disk.
    pub const fn disk(self) -> DiskId {
        DiskId((self.0 >> 32) as u32)
    }

    /// True if both are starts of one disk.
    pub fn is_of(self, disk: DiskId) -> bool {
        self.disk() == disk || broken(Broken::ReplacedReturns)
    }
}

/// Monotonic milliseconds of the host's own clock. Drift costs liveness, never data.
pub type Ms = u64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_is_of_its_disk() {
        let disk = DiskId(u32::MAX - 1);
        let first = BootId::first(disk);
        assert_eq!((BootId::unserved(disk).next(), first.disk()), (first, disk));
        assert!(first.next() > first && first.next().is_of(disk) && !first.is_of(DiskId(0)));
        // Of a damaged header.
        assert_eq!(BootId(first.0 | u64::from(u32::MAX)).next(), BootId::unserved(disk));
    }
}
