//! The space for batches, and its reuse: a ring of many batches in our own log, one batch at a time
//! in md's.

use layout::Slot;

use super::ring::Ring;
use super::round::Round;
use crate::LogSetup;

/// See the module.
pub enum Space {
    /// A zone of our own log.
    Ring(Ring),
    /// md's partial parity log.
    Round(Box<Round>),
}

impl Space {
    /// The space of an empty log.
    pub fn new(setup: LogSetup) -> Space {
        match setup {
            LogSetup::Zone { zone_bytes, checksums, .. } => {
                Space::Ring(Ring::new(zone_bytes, checksums))
            }
            LogSetup::Ppl { pp_bytes, .. } => Space::Round(Box::new(Round::new(pp_bytes))),
        }
    }

    /// The most space that a unit can need: of the ring, or of a member in a round.
    pub fn most(&self) -> u64 {
        match self {
            Space::Ring(ring) => ring.most(),
            Space::Round(round) => round.most(),
        }
    }

    /// The most whole stripes that may be logged together: in md's log all their parity may be on
    /// one member.
    pub fn most_stripes(&self) -> u64 {
        match self {
            Space::Ring(_) => u64::MAX,
            Space::Round(round) => round.most_entries(),
        }
    }

    /// Reserves room for a unit: `bytes` of a ring, or rows given by slot and partial parity.
    /// Returns the reservation for [`Space::give_back`] or [`Space::hand_over`].
    pub fn reserve(&mut self, bytes: u64, rows: impl Iterator<Item = (Slot, u64)>) -> Option<u64> {
        match self {
            Space::Ring(ring) => ring.reserve(bytes).then_some(bytes),
            Space::Round(round) => round.join(rows),
        }
    }

    /// Ends a reservation without records.
    pub fn give_back(&mut self, reserved: u64) {
        match self {
            Space::Ring(ring) => ring.give_back(reserved),
            Space::Round(round) if reserved > 0 => round.leave(reserved),
            Space::Round(_) => {}
        }
    }

    /// True if a unit with this reservation is too late for the batch.
    pub fn is_late(&self, reserved: u64) -> bool {
        matches!(self, Space::Round(round) if round.is_late(reserved))
    }

    /// A unit hands over its records; returns its reserved bytes of a ring.
    pub fn hand_over(&mut self, reserved: u64) -> u64 {
        match self {
            Space::Ring(_) => reserved,
            Space::Round(round) => {
                round.hand_over();
                0
            }
        }
    }

    /// A unit of this batch has written all its rows, some perhaps `volatile`.
    pub fn rows_written(&mut self, batch: u64, volatile: bool) {
        match self {
            Space::Ring(ring) => ring.rows_written(batch, volatile),
            Space::Round(round) => round.rows_written(volatile),
        }
    }

    /// A unit of the last batch has left torn rows.
    pub fn tear(&mut self) {
        if let Space::Round(round) = self {
            round.tear();
        }
    }

    /// True if nothing can be logged any more.
    pub fn is_torn(&self) -> bool {
        matches!(self, Space::Round(round) if round.is_torn())
    }

    /// True if a flush should make room in advance.
    pub fn is_filling(&self) -> bool {
        matches!(self, Space::Ring(ring) if ring.is_filling())
    }

    /// True if a flush would make room or make rows durable.
    pub fn has_landed(&self) -> bool {
        match self {
            Space::Ring(ring) => ring.has_landed(),
            Space::Round(round) => round.has_landed(),
        }
    }

    /// True if a flush would make rows durable.
    pub fn has_volatile(&self) -> bool {
        match self {
            Space::Ring(ring) => ring.has_volatile(),
            Space::Round(round) => round.has_landed(),
        }
    }

    /// See [`Ring::checksums_begin`]. md's log has no checksums.
    pub fn checksums_begin(&mut self) -> u64 {
        match self {
            Space::Ring(ring) => ring.checksums_begin(),
            Space::Round(_) => 0,
        }
    }

    /// See [`Ring::checksums_written`].
    pub fn checksums_written(&mut self, number: u64) {
        if let Space::Ring(ring) = self {
            ring.checksums_written(number);
        }
    }

    /// See [`Ring::flush_begins`].
    pub fn flush_begins(&mut self) -> u64 {
        match self {
            Space::Ring(ring) => ring.flush_begins(),
            Space::Round(round) => round.flush_begins(),
        }
    }

    /// See [`Ring::flushed`].
    pub fn flushed(&mut self, number: u64) {
        match self {
            Space::Ring(ring) => ring.flushed(number),
            Space::Round(round) => round.flushed(number),
        }
    }

    /// The last placed batch has been written. With `failed` a member failed it, and no row in it
    /// will be written.
    pub fn written(&mut self, sequence: u64, failed: bool) {
        match self {
            Space::Ring(ring) => {
                if failed {
                    ring.abandon(sequence);
                }
                ring.written();
            }
            Space::Round(round) if failed => round.abandon(),
            Space::Round(_) => {}
        }
    }

    /// True if rows of this batch may not be durable, so that later writes to them must wait.
    pub fn is_live(&self, sequence: u64) -> bool {
        matches!(self, Space::Ring(ring) if ring.is_live(sequence))
    }
}
