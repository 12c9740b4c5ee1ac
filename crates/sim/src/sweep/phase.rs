//! The phases of an array's life that are swept.

/// The activity during which an operation fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    /// The array is made.
    Create,
    /// It is assembled and started.
    Assemble,
    /// It is written, flushed and read, in pieces of every size.
    Write,
    /// The same without a member.
    Degraded,
    /// A new member is filled.
    Rebuild,
    /// A member is replaced in service.
    Replace,
    /// A scrub that may repair walks over it while it is written.
    Scrub,
    /// A member is lost, and a spare takes over.
    Takeover,
    /// The array comes back from a power cut under load.
    Recovery,
    /// It is stopped after writes.
    Stop,
}

/// Every phase.
pub fn all() -> [Phase; 10] {
    use Phase::{
        Assemble, Create, Degraded, Rebuild, Recovery, Replace, Scrub, Stop, Takeover, Write,
    };
    [Create, Assemble, Write, Degraded, Rebuild, Replace, Scrub, Takeover, Recovery, Stop]
}

impl Phase {
    /// Spares that the array has beside its members.
    pub(super) fn spares(self) -> usize {
        usize::from(matches!(self, Phase::Rebuild | Phase::Replace | Phase::Takeover))
    }

    /// Slots that are lost already.
    pub(super) fn lost(self) -> usize {
        usize::from(matches!(self, Phase::Degraded | Phase::Rebuild | Phase::Takeover))
    }
}
