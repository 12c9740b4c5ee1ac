//! The intervals of the protocol. No data depends on them: they decide when to suspect a peer.
//!
//! Owns the defaults. The simulator shrinks them.

use crate::ids::Ms;

/// Intervals, in milliseconds of the local clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Timing {
    /// Between two calls of `tick`.
    pub tick_ms: Ms,
    /// A member that was not heard for this long becomes MISSING.
    pub member_ms: Ms,
    /// A client whose lease was not renewed for this long is evicted.
    pub lease_ms: Ms,
    /// A client stops by itself this long before its lease ends, for the drift of clocks.
    pub margin_ms: Ms,
    /// A drain that was not answered for this long leads to an eviction.
    pub drain_ms: Ms,
    /// A candidate that heard no coordinator for this long takes over.
    pub takeover_ms: Ms,
    /// A request to the decision store without an answer for this long has an unknown outcome.
    pub store_ms: Ms,
    /// A grant is released this long after the last write.
    pub idle_ms: Ms,
}

impl Timing {
    /// Intervals of a real cluster.
    pub const DEFAULT: Timing = Timing {
        tick_ms: 200,
        member_ms: 3000,
        lease_ms: 9000,
        margin_ms: 900,
        drain_ms: 9000,
        takeover_ms: 2500,
        store_ms: 2000,
        idle_ms: 1000,
    };
}
