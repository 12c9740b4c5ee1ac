//! The space of a log zone: the live batches, and the place of the next one.
//!
//! Pure: numbers in, numbers out. A batch passes through these states. Its space is reused only
//! after the last:
//!
//! ```text
//!   reserved ─▶ written ─▶ landed ─────────▶ retired ─────────▶ recorded
//!   by units    durable    its units have    a flush of all     a later durable batch marks older
//!                          written rows      members since      ones as released: its tail
//!
//! Where blocks have checksums, these are written to the members before that flush.
//! ```
//!
//! The last step is necessary because a batch written over an old one may be torn by a crash. A
//! reader of the zone must not take the remains of the old one for a missing batch.
//!
//! Invariant: reservations, and batches that are not recorded, together take at most half of the
//! zone. So a batch never needs the space of a live one, although batches never wrap at the end of
//! the zone.

use std::collections::VecDeque;

use io::broken::{Broken, broken};
use layout::private::log::BATCH_ALIGNMENT;

/// A batch that is not recorded as released.
#[derive(Debug)]
struct Live {
    start: u64,
    bytes: u64,
    /// Units that have not written all their rows.
    users: u32,
    /// The number of flushes, and of checksum writes, that had begun when its last unit had written
    /// its rows.
    rows_written: Option<(u64, u64)>,
    /// Its rows are durable.
    durable: bool,
    /// The number of flushes that had begun when the checksums of its blocks were on the members.
    checksummed: Option<u64>,
    /// It needs no flush.
    resolved: bool,
    retired: bool,
}

/// See the module.
#[derive(Debug)]
pub struct Ring {
    zone_bytes: u64,
    /// The place of the next batch, if it fits before the end.
    head: u64,
    /// Its sequence number.
    next: u64,
    /// The live batches, oldest first.
    live: VecDeque<Live>,
    /// Bytes of reservations and of batches that are not recorded.
    used: u64,
    /// Of these, bytes of batches that are retired together with all older ones.
    retired: u64,
    /// Of these, bytes that the batch in flight records as released.
    recording: u64,
    /// The newest batch that is on all its members.
    durable: u64,
    /// Flushes that have begun.
    flushes: u64,
    /// Blocks have checksums, which must be durable too.
    checksums: bool,
    /// Checksum writes that have begun.
    writings: u64,
}

/// The place and contents of a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Placed {
    /// Its start, in bytes from the start of the zone.
    pub start: u64,
    /// Its number.
    pub sequence: u64,
    /// The number of the oldest live batch.
    pub tail: u64,
    /// All batches up to this number are durable.
    pub durable: u64,
}

impl Ring {
    /// An empty ring of this size, in bytes; `checksums`: the array keeps checksums.
    pub fn new(zone_bytes: u64, checksums: bool) -> Ring {
        Ring {
            zone_bytes,
            head: 0,
            next: 1,
            live: VecDeque::new(),
            used: 0,
            retired: 0,
            recording: 0,
            durable: 0,
            flushes: 0,
            checksums,
            writings: 0,
        }
    }

    /// The most that units may have reserved, batches included: half of the zone, minus the space
    /// for an empty batch.
    pub fn capacity(&self) -> u64 {
        (self.zone_bytes / 2).saturating_sub(2 * BATCH_ALIGNMENT)
    }

    /// The most that one unit can reserve: an empty batch that records all others takes space
    /// itself.
    pub fn most(&self) -> u64 {
        self.capacity().saturating_sub(BATCH_ALIGNMENT)
    }

    /// Reserves `bytes` for a unit. False if there is no room.
    pub fn reserve(&mut self, bytes: u64) -> bool {
        let fits = self.used + bytes <= self.capacity();
        self.used += if fits { bytes } else { 0 };
        fits
    }

    /// Returns unused reserved bytes of a unit.
    pub fn give_back(&mut self, bytes: u64) {
        assert!(bytes <= self.used, "more space is given back than was reserved");
        self.used -= bytes;
    }

    /// True if half of the space is used.
    pub fn is_filling(&self) -> bool {
        self.used > self.capacity() / 2
    }

    /// True if an empty batch would release more space than it takes.
    pub fn has_retired(&self) -> bool {
        self.retired > self.recording + BATCH_ALIGNMENT
    }

    /// True if a flush would make something durable.
    pub fn has_volatile(&self) -> bool {
        self.live.iter().any(|batch| batch.rows_written.is_some() && !batch.durable)
    }

    /// True if a batch may be retired by a flush.
    pub fn has_landed(&self) -> bool {
        self.live.iter().any(|batch| batch.rows_written.is_some() && !batch.retired)
    }

    /// Places the next batch of `bytes` bytes for `users` units, which had reserved `reserved`
    /// bytes.
    ///
    /// # Panics
    /// If there is no room after all.
    pub fn place(&mut self, bytes: u64, reserved: u64, users: u32) -> Placed {
        assert!(bytes.is_multiple_of(BATCH_ALIGNMENT) && bytes > 0);
        let start = if self.head + bytes <= self.zone_bytes { self.head } else { 0 };
        let oldest = self.live.front();
        let apart = |live: &Live| start + bytes <= live.start || live.start + live.bytes <= start;
        assert!(start + bytes <= self.zone_bytes, "a batch of {bytes} bytes fits no zone");
        assert!(oldest.is_none_or(apart), "a batch would overwrite one that matters");
        assert!(reserved <= self.used, "a batch without a reservation");
        assert_eq!(self.recording, 0, "the batch before is not written yet");
        self.used = self.used - reserved + bytes;
        assert!(self.used <= self.zone_bytes / 2, "a batch is larger than its units have reserved");
        let (sequence, tail) = (self.next, self.next - self.live.len() as u64);
        let empty = users == 0;
        let rows_written = empty.then_some((self.flushes, self.writings));
        let (durable, checksummed, resolved, retired) = (empty, None, empty, empty);
        self.live.push_back(Live {
            start,
            bytes,
            users,
            rows_written,
            durable,
            checksummed,
            resolved,
            retired,
        });
        self.head = start + bytes;
        self.next += 1;
        self.recording = self.retired;
        Placed { start, sequence, tail, durable: self.durable }
    }

    /// The last placed batch is durable on all its remaining members.
    pub fn written(&mut self) {
        self.durable = self.next - 1;
        assert!(
            self.recording <= self.retired && self.retired <= self.used,
            "lost count: {self:?}"
        );
        self.used -= self.recording;
        self.retired -= self.recording;
        self.recording = 0;
        self.pop();
    }

    /// A member failed to write the last placed batch: no row in it will be written.
    pub fn abandon(&mut self, sequence: u64) {
        let batch = self.batch(sequence).expect("the item was placed last");
        (batch.users, batch.durable, batch.retired) = (0, true, true);
    }

    /// A unit of this batch has written all its rows. They are durable unless a member has a
    /// volatile cache.
    pub fn rows_written(&mut self, sequence: u64, volatile: bool) {
        let (now, checksums) = ((self.flushes, self.writings), self.checksums);
        let batch = self.batch(sequence).expect("a batch is kept while it has users");
        assert!(batch.users > 0, "a unit has written its rows twice");
        batch.users -= 1;
        batch.resolved = !volatile;
        if batch.users == 0 {
            batch.rows_written = Some(now);
            batch.durable = !volatile || broken(Broken::LogRecycledUnflushed);
            batch.retired = batch.durable && (!checksums || broken(Broken::LogRecycledUnsummed));
            self.pop();
        }
    }

    /// The checksums of all landed batches are about to be written; returns the number of this
    /// write.
    pub fn checksums_begin(&mut self) -> u64 {
        self.writings += 1;
        self.writings - 1
    }

    /// This checksum write has succeeded.
    pub fn checksums_written(&mut self, number: u64) {
        let flushes = self.flushes;
        assert!(number < self.writings, "an end of a checksum write that was not started");
        for batch in &mut self.live {
            if batch.checksummed.is_none()
                && batch.rows_written.is_some_and(|(_, rows_written)| rows_written <= number)
            {
                batch.checksummed = Some(flushes);
                batch.retired |= batch.resolved;
            }
        }
        self.pop();
    }

    /// A flush of all members begins; returns its number.
    pub fn flush_begins(&mut self) -> u64 {
        self.flushes += 1;
        self.flushes - 1
    }

    /// A flush has succeeded: batches that had landed before it began are durable.
    pub fn flushed(&mut self, number: u64) {
        let checksums = self.checksums && !broken(Broken::LogRecycledUnsummed);
        assert!(number < self.flushes, "an end of a flush that was not started");
        for batch in &mut self.live {
            batch.durable |=
                batch.rows_written.is_some_and(|(rows_written, _)| rows_written <= number);
            let checksummed =
                !checksums || batch.checksummed.is_some_and(|checksummed| checksummed <= number);
            batch.retired |= batch.durable && checksummed;
        }
        self.pop();
    }

    /// True if the rows of this batch may not be durable yet.
    pub fn is_live(&self, sequence: u64) -> bool {
        assert!(sequence < self.next, "batch {sequence} was never placed");
        let age = self.next - sequence;
        let index = (self.live.len() as u64).checked_sub(age);
        index.is_some_and(|index| !self.live[index as usize].durable)
    }

    fn batch(&mut self, sequence: u64) -> Option<&mut Live> {
        assert!(sequence < self.next, "batch {sequence} was never placed");
        let age = self.next - sequence;
        let index = (self.live.len() as u64).checked_sub(age)?;
        self.live.get_mut(index as usize)
    }

    /// Removes batches that are retired together with all older ones, except one in flight.
    fn pop(&mut self) {
        let done = |batch: &Live, sequence: u64| batch.retired && sequence <= self.durable;
        let mut sequence = self.next - self.live.len() as u64;
        while self.live.front().is_some_and(|batch| done(batch, sequence)) {
            let batch = self.live.pop_front().expect("an entry was just checked");
            match broken(Broken::LogRecycledUnrecorded) {
                true => self.used -= batch.bytes,
                false => self.retired += batch.bytes,
            }
            sequence += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: u64 = 1024;

    /// Writes a batch of one unit; returns its place.
    fn write(ring: &mut Ring, bytes: u64) -> Placed {
        assert!(ring.reserve(bytes));
        let placed = ring.place(bytes, bytes, 1);
        ring.written();
        placed
    }

    /// Writes an empty batch, which only records released space.
    fn record(ring: &mut Ring) -> Placed {
        let placed = ring.place(4 * KIB, 0, 0);
        ring.written();
        placed
    }

    #[test]
    fn space_comes_back_when_rows_are_durable_and_a_batch_says_so() {
        let mut ring = Ring::new(64 * KIB, false);
        assert_eq!(ring.capacity(), 24 * KIB);
        let first = write(&mut ring, 12 * KIB);
        assert_eq!((first.start, first.sequence, first.tail), (0, 1, 1));
        assert_eq!(write(&mut ring, 8 * KIB).start, 12 * KIB);
        assert!(!ring.reserve(8 * KIB), "4 KiB are left");
        ring.rows_written(1, true);
        let number = ring.flush_begins();
        ring.rows_written(2, true);
        ring.flushed(number);
        assert!(!ring.is_live(1) && ring.is_live(2), "the second landed after the flush began");
        assert!(!ring.reserve(8 * KIB), "retired, but not recorded");
        assert!(ring.has_retired());
        let empty = ring.place(4 * KIB, 0, 0);
        assert_eq!((empty.start, empty.tail, empty.durable), (20 * KIB, 2, 2));
        assert!(!ring.reserve(8 * KIB), "the record is not durable");
        ring.written();
        assert!(ring.reserve(8 * KIB));
    }

    #[test]
    fn there_is_always_room_for_the_most() {
        let mut ring = Ring::new(64 * KIB, false);
        let placed = write(&mut ring, 12 * KIB);
        ring.rows_written(placed.sequence, false);
        assert!(!ring.reserve(ring.most()) && ring.has_retired());
        record(&mut ring);
        assert!(!ring.has_retired(), "another empty batch would make no more room");
        assert!(ring.reserve(ring.most()));
    }

    #[test]
    fn a_batch_is_not_cut_at_the_end_of_the_zone() {
        let mut ring = Ring::new(64 * KIB, false);
        let mut places = Vec::new();
        for _ in 0..5 {
            let placed = write(&mut ring, 20 * KIB);
            places.push(placed.start / KIB);
            ring.rows_written(placed.sequence, false);
            record(&mut ring);
        }
        assert_eq!(places, [0, 24, 0, 24, 0]);
    }

    #[test]
    fn a_batch_that_failed_does_not_matter() {
        let mut ring = Ring::new(64 * KIB, false);
        assert!(ring.reserve(24 * KIB));
        let placed = ring.place(24 * KIB, 24 * KIB, 1);
        ring.abandon(placed.sequence);
        ring.written();
        assert!(!ring.is_live(placed.sequence));
        assert_eq!(record(&mut ring).tail, 2);
        assert!(ring.reserve(20 * KIB));
    }

    #[test]
    fn reserved_space_never_overlaps_live_batches() {
        let mut ring = Ring::new(64 * KIB, false);
        let mut state = 7_u64;
        let mut open = VecDeque::new();
        for _ in 0..10_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let bytes = (1 + (state >> 33) % 3) * 4 * KIB;
            if ring.reserve(bytes) {
                // `place` asserts that nothing is overwritten.
                open.push_back(ring.place(bytes, bytes, 1).sequence);
                ring.written();
            } else if let Some(sequence) = open.pop_front() {
                ring.rows_written(sequence, state >> 60 != 0);
                let number = ring.flush_begins();
                ring.flushed(number);
            } else {
                assert!(ring.has_retired());
                record(&mut ring);
            }
        }
    }
}
