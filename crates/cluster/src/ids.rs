//! Names and numbers of the cluster, each a type of its own.
//!
//! Owns no rules: comparing two numbers of one type is all that they can do.

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
    /// Start number of a member's server; a new one means that its volatile cache was lost.
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

/// Monotonic milliseconds of the host's own clock. Drift costs liveness, never data.
pub type Ms = u64;
