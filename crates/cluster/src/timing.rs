//! The intervals of the protocol. No data depends on them: they decide when to suspect a peer.
//!
//! ```text
//!   local clock    ├──┼──┼──┼────── host stands still ──────┼──┼──┼──▶
//!   run clock      ├──┼──┼──┼─────┼──┼──┼──▶
//! ```
//!
//! A host that stands still hears nobody. When it goes on, it must not take that for the silence of
//! its peers: they may have stood still with it, or their messages may be waiting in its sockets.
//! So silence is measured on a clock that stands still, too.
//!
//! Owns the defaults and the run clock. The simulator shrinks them.

use crate::broken::{Broken, broken};
use crate::ids::Ms;

/// Intervals, in milliseconds: of a run clock where they measure silence.
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
    /// A drain that was not answered for this long leads to an eviction, as does a request to a
    /// member that the coordinator reaches. Longer than `member_ms`.
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

/// A clock that counts only the time in which its owner ran, in milliseconds. The owner reads it at
/// every tick and every message; of a longer gap it counts a third of the shortest interval of
/// silence. That is several ticks, so a busy host is hardly slower to notice silence.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RunClock {
    most_ms: Ms,
    local_ms: Ms,
    ran_ms: Ms,
}

impl RunClock {
    /// A clock that shows the local time, which is `now`.
    pub fn start(timing: Timing, now: Ms) -> RunClock {
        let most_ms = timing.member_ms.min(timing.takeover_ms) / 3;
        RunClock { most_ms, local_ms: now, ran_ms: now }
    }

    /// The local time when it was last read.
    pub fn local_ms(&self) -> Ms {
        self.local_ms
    }

    /// Reads it; the local clock shows `now`.
    pub fn read(&mut self, now: Ms) -> Ms {
        let gap_ms = now.saturating_sub(self.local_ms);
        let counted_ms =
            if broken(Broken::PauseCounts) { gap_ms } else { gap_ms.min(self.most_ms) };
        self.local_ms = now;
        self.ran_ms += counted_ms;
        self.ran_ms
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_gap_counts_in_part() {
        let most_ms = Timing::DEFAULT.takeover_ms / 3;
        for (gap_ms, counted_ms) in [
            (0, 0),
            (most_ms - 1, most_ms - 1),
            (most_ms, most_ms),
            (most_ms + 1, most_ms),
            (60_000, most_ms),
        ] {
            let mut clock = RunClock::start(Timing::DEFAULT, 7);
            assert_eq!(clock.read(7 + gap_ms), 7 + counted_ms);
            assert_eq!(clock.read(7 + gap_ms + 5), 7 + counted_ms + 5);
        }
        // A local clock that goes back, which none should.
        let mut clock = RunClock::start(Timing::DEFAULT, 100);
        assert_eq!((clock.read(50), clock.read(60)), (100, 110));
    }
}
