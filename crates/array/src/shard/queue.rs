//! Units of work, and the queue in which they wait for a worker of a shard.
//!
//! Owns the order of the units, the joining of writes that continue each other, and the decision to
//! hold a write until its continuation arrives. Never carries a unit out.
//!
//! A unit lies within one region, so one shard does all of it.
//!
//! # Held writes
//!
//! A stream whose requests end inside stripes would write these stripes in two parts. That costs
//! reads, and with an intent log a flush of all members between the parts (`log::touched`). So the
//! last part is held, while other units pass it. Most clients keep a number of requests in flight:
//! they send the continuation when an earlier write is answered.
//!
//! ```text
//!   in flight      A B C       B C           C
//!   held              d ┐        d ┐           d
//!   arrives             └ answer A └ e: d + e go out together
//! ```
//!
//! So the write is held until all writes taken before it are answered, and then for a short while.
//! It waits no longer than for these, as in any queue. A write waits only briefly if no other
//! request is in flight, since its own first part brings nothing, or if the stream is new: two
//! adjacent writes may be chance, and one of them may hang.

use std::collections::VecDeque;
use std::ops::Range;

use io::{Buf, Class, Extent, SharedBuf};

use crate::rows::job::RangeJob;
use crate::shard::cache::WriteOut;
use crate::shard::requests::Origin;

/// A piece of work for one shard.
pub(crate) struct Unit {
    /// First byte, in array space.
    pub(crate) offset: u64,
    pub(crate) len: u64,
    pub(crate) action: Action,
    pub(crate) fua: bool,
    pub(crate) class: Class,
    /// The requests to answer when the unit is done: several if writes were merged.
    pub(crate) from: Origin,
    pub(crate) merged: Vec<Merged>,
}

/// A write that was merged into a unit, up to the next one or the unit's end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Merged {
    pub(crate) from: Origin,
    /// Its first byte, in array space.
    offset: u64,
    /// The first of its buffers among the unit's.
    buf: usize,
}

/// What a unit does.
pub(crate) enum Action {
    /// Fill these buffers.
    Read(Vec<Buf>),
    /// Write these.
    Write(Vec<SharedBuf>),
    /// Zero the range.
    Zero { unmap: bool },
    /// Forget the range.
    Discard,
    /// Report the allocation status.
    Extents(Vec<Extent>),
    /// Make everything durable that was written through this shard. Write-outs with lower numbers
    /// come first.
    Flush { after: u64 },
    /// Read this piece ahead.
    ReadAhead(u64),
    /// Write out a frozen block of the cache.
    WriteOut(WriteOut),
    /// Rebuild, resync, scrub.
    RangeJob(RangeJob),
}

/// The units that wait for a worker of a shard, in order of arrival.
#[derive(Default)]
pub(crate) struct Queue {
    units: VecDeque<Unit>,
    /// End of the last write taken from the queue.
    last_end: u64,
    /// The write stream that ended there had more than one write in flight, and no wait for it has
    /// failed since.
    deep: bool,
    /// It was so before the last write that went on with it, too.
    known: bool,
    /// Failed waits since the last successful one.
    vain: u32,
    /// The number of writes not to wait for, because of these failures.
    skips: u32,
    /// Number of writes held so far.
    holds: u64,
    /// The write that is or was held for its continuation: first byte and length.
    held: Option<(u64, u64)>,
    /// The first unit is a held write.
    holding: bool,
    /// Writes that may bring the continuation of the held one when they are answered.
    awaited: u32,
    /// Writes that are being carried out.
    under_way: u32,
    /// The first request of the last write taken from the queue.
    last_from: Option<(usize, u32)>,
    /// Empty lists for merged writes, kept for reuse.
    lists: Vec<Vec<Merged>>,
}

/// After failed waits, the queue skips at most two to the power of this many chances to wait.
const MOST_VAIN: u32 = 7;

/// A write of this many bytes may be held even as the only request in flight: the socket stops a
/// client that has more to send until the write has been carried out.
const PROBE_BYTES: u64 = 256 << 10;

/// How far behind a write the queue searches for its continuation.
const MERGE_WINDOW: usize = 64;

impl Queue {
    pub(crate) fn push(&mut self, unit: Unit) {
        // The awaited continuation has arrived.
        let goes_on = |held: &Unit| held.offset + held.len == unit.offset;
        self.holding &= !self.units.front().is_some_and(goes_on);
        self.units.push_back(unit);
    }

    /// True if a write is held.
    pub(crate) fn is_holding(&self) -> bool {
        self.holding
    }

    /// The oldest unit. A write is joined with the writes in the queue that continue it, up to the
    /// next multiple of `limit` in array space. A write never overtakes a unit that overlaps it.
    /// Other units pass a held write, unless they overlap it or flush: these release it.
    pub(crate) fn pop(&mut self, limit: u64) -> Option<Unit> {
        if self.holding {
            let (held, next) = (self.units.front()?, self.units.get(1)?);
            let flushes = matches!(next.action, Action::Flush { .. });
            self.holding = !flushes && !next.overlaps(held.offset, held.offset + held.len);
        }
        let first = usize::from(self.holding);
        let mut unit = self.units.remove(first)?;
        if !matches!(unit.action, Action::Write(_)) {
            return Some(unit);
        }
        let border = (unit.offset / limit + 1) * limit;
        let mut at = first;
        while at < self.units.len().min(MERGE_WINDOW) && unit.offset + unit.len < border {
            if self.continues(&unit, at, border) {
                let next = self.units.remove(at).expect("the index was just checked");
                if unit.merged.capacity() == 0 {
                    unit.merged = self.lists.pop().unwrap_or_default();
                }
                unit.append(next);
            } else {
                at += 1;
            }
        }
        Some(unit)
    }

    /// True if the unit is a write that ends short of a multiple of `border`, and the rest of its
    /// stream is worth waiting for. `alone` means that it is the only request in flight.
    pub(crate) fn may_go_on(&mut self, unit: &Unit, border: u64, alone: bool) -> bool {
        let goes_on = unit.offset == self.last_end && !self.holding;
        if !matches!(unit.action, Action::Write(_)) || !goes_on {
            return false;
        }
        self.known = self.deep;
        self.deep |= !alone || unit.len >= PROBE_BYTES;
        let short = !(unit.offset + unit.len).is_multiple_of(border);
        // A unit that was held once must not be released halfway.
        let goes_on = self.held.is_some_and(|(offset, _)| offset == unit.offset);
        if !short && goes_on && unit.offset.is_multiple_of(border) {
            // Only a whole stripe makes the wait worthwhile.
            self.vain = 0;
        }
        if !short || !self.deep || self.held == Some((unit.offset, unit.len)) {
            return false;
        }
        if self.skips > 0 && !goes_on {
            self.skips -= 1;
            return false;
        }
        true
    }

    /// Puts a unit back at the front and holds it.
    pub(crate) fn hold(&mut self, unit: Unit) {
        self.held = Some((unit.offset, unit.len));
        self.holds += 1;
        self.holding = true;
        // The first part of the same request brings nothing when it is answered.
        let own = u32::from(self.last_from == Some(unit.request()));
        self.awaited = if self.known { self.under_way.saturating_sub(own) } else { 0 };
        self.units.push_front(unit);
    }

    /// Records that a unit is being carried out.
    pub(crate) fn taken(&mut self, unit: &Unit) {
        if !matches!(unit.action, Action::Write(_)) {
            return;
        }
        self.under_way += 1;
        // A write that passes a held one is not of its stream.
        if !self.holding {
            self.deep &= unit.offset == self.last_end;
            self.last_end = unit.offset + unit.len;
            self.last_from = Some(unit.request());
            self.held = None;
        }
    }

    /// Records that a write has been answered. True if a held write now waits for none any more.
    pub(crate) fn answered(&mut self) -> bool {
        self.under_way -= 1;
        let last = self.holding && self.awaited == 1;
        self.awaited = self.awaited.saturating_sub(1);
        last
    }

    /// While a write is held that waits for no answer any more: the number of writes held before
    /// it, and its length.
    pub(crate) fn held(&self) -> Option<(u64, u64)> {
        let (_, len) = self.held.filter(|_| self.holding && self.awaited == 0)?;
        Some((self.holds, len))
    }

    /// Releases the held write after a failed wait.
    pub(crate) fn release(&mut self) {
        self.holding = false;
        self.deep = false;
        self.vain = (self.vain + 1).min(MOST_VAIN);
        self.skips = 1 << self.vain;
    }

    /// Keeps the list of a merged unit for reuse.
    pub(crate) fn keep(&mut self, list: Vec<Merged>) {
        self.lists.push(list);
    }

    fn continues(&self, unit: &Unit, at: usize, border: u64) -> bool {
        let next = &self.units[at];
        let end = next.offset + next.len;
        matches!(next.action, Action::Write(_))
            && next.offset == unit.offset + unit.len
            && next.fua == unit.fua
            && next.class == unit.class
            && end <= border
            && !self.units.range(..at).any(|skipped| skipped.bars(next.offset, end))
    }
}

impl Unit {
    /// A unit of the shard's own: no request waits for its result.
    pub(crate) fn unasked(shard: usize, range: Range<u64>, action: Action) -> Unit {
        Unit {
            offset: range.start,
            len: range.end - range.start,
            action,
            fua: false,
            class: Class::Foreground,
            from: Origin { shard, request: u32::MAX, part: 0 },
            merged: Vec::new(),
        }
    }

    /// The (first) request that waits for this unit.
    fn request(&self) -> (usize, u32) {
        (self.from.shard, self.from.request)
    }

    fn overlaps(&self, start: u64, end: u64) -> bool {
        self.offset < end && start < self.offset + self.len
    }

    /// True if a write to this range must not overtake this unit.
    fn bars(&self, start: u64, end: u64) -> bool {
        matches!(self.action, Action::Flush { .. } | Action::RangeJob(_))
            || self.overlaps(start, end)
    }

    fn append(&mut self, next: Unit) {
        let (Action::Write(bytes), Action::Write(more)) = (&mut self.action, next.action) else {
            unreachable!("only writes are merged")
        };
        let (first, end) = (bytes.len(), self.offset + self.len);
        assert_eq!(next.offset, end, "merged writes are adjacent, or the second lands elsewhere");
        bytes.extend(more);
        self.len += next.len;
        self.merged.push(Merged { from: next.from, offset: next.offset, buf: first });
        let moved = |merged: Merged| Merged { buf: first + merged.buf, ..merged };
        self.merged.extend(next.merged.into_iter().map(moved));
    }

    /// Splits the merged writes off again; the unit keeps only its own write.
    pub(crate) fn take_apart(&mut self) -> Vec<Unit> {
        let mut units = Vec::new();
        let Action::Write(bytes) = &mut self.action else { return units };
        while let Some(Merged { from, offset, buf }) = self.merged.pop() {
            let end = self.offset + self.len;
            assert!(
                self.offset < offset && offset < end,
                "a write at {offset} was never merged into {}..{end}",
                self.offset
            );
            let len = end - offset;
            let (action, merged) = (Action::Write(bytes.split_off(buf)), Vec::new());
            self.len -= len;
            units.push(Unit {
                offset,
                len,
                action,
                fua: self.fua,
                class: self.class,
                from,
                merged,
            });
        }
        units
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use io::Pool;

    fn write(pool: &Pool, number: u32, offset: u64, len: u64) -> Unit {
        Unit {
            offset,
            len,
            action: Action::Write(vec![pool.take(len as usize).freeze()]),
            fua: false,
            class: Class::Foreground,
            from: Origin { shard: 0, request: number, part: 0 },
            merged: Vec::new(),
        }
    }

    fn popped(queue: &mut Queue) -> Vec<(u64, u64, usize)> {
        let each = std::iter::from_fn(|| queue.pop(64));
        each.map(|unit| (unit.offset, unit.len, unit.merged.len())).collect()
    }

    #[test]
    fn writes_that_continue_each_other_become_one_up_to_the_border() {
        let (pool, mut queue) = (Pool::new(0), Queue::default());
        for (number, offset) in [0, 100, 16, 116, 32, 48, 64].into_iter().enumerate() {
            queue.push(write(&pool, number as u32, offset, 16));
        }
        assert_eq!(popped(&mut queue), [(0, 64, 3), (100, 16, 0), (116, 16, 0), (64, 16, 0)]);
    }

    #[test]
    fn merged_writes_are_split_again() {
        let (pool, mut queue) = (Pool::new(0), Queue::default());
        for (number, (offset, len)) in [(0, 16), (16, 8), (24, 32)].into_iter().enumerate() {
            queue.push(write(&pool, number as u32, offset, len));
        }
        let mut unit = queue.pop(64).expect("three were pushed");
        let mut each = unit.take_apart();
        each.push(unit);
        for (unit, expected) in each.iter().zip([(2, 24, 32), (1, 16, 8), (0, 0, 16)]) {
            let Action::Write(bytes) = &unit.action else { unreachable!("the unit was a write") };
            let bytes: u64 = bytes.iter().map(|buf| buf.len() as u64).sum();
            assert_eq!((unit.from.request, unit.offset, unit.len), expected);
            assert!(bytes == unit.len && unit.merged.is_empty());
        }
    }

    #[test]
    fn overlapping_writes_keep_their_order() {
        let (pool, mut queue) = (Pool::new(0), Queue::default());
        queue.push(write(&pool, 0, 0, 4));
        queue.push(write(&pool, 1, 2, 4));
        queue.push(write(&pool, 2, 4, 4));
        assert_eq!(popped(&mut queue), [(0, 4, 0), (2, 4, 0), (4, 4, 0)]);
    }

    #[test]
    fn the_end_of_a_deep_stream_waits_for_its_continuation() {
        let (pool, mut queue) = (Pool::new(0), Queue::default());
        let take = |queue: &mut Queue, alone| {
            let unit = queue.pop(64)?;
            if queue.may_go_on(&unit, 32, alone) {
                queue.hold(unit);
                return None;
            }
            queue.taken(&unit);
            Some((unit.offset, unit.len))
        };
        let put = |queue: &mut Queue, offset, len| queue.push(write(&pool, 0, offset, len));
        put(&mut queue, 64, 32);
        assert_eq!(take(&mut queue, false), Some((64, 32)), "a whole stripe");
        put(&mut queue, 96, 8);
        assert_eq!(take(&mut queue, false), None, "a part of one");
        put(&mut queue, 3000, 16);
        assert_eq!(take(&mut queue, false), Some((3000, 16)), "another write passes it");
        put(&mut queue, 104, 8);
        assert_eq!(take(&mut queue, true), None, "the continuation, and more may come");
        put(&mut queue, 112, 16);
        assert_eq!(take(&mut queue, true), Some((96, 32)));
        put(&mut queue, 2000, 16);
        assert_eq!(take(&mut queue, true), Some((2000, 16)), "no stream");
        put(&mut queue, 2016, 16);
        assert_eq!(take(&mut queue, true), Some((2016, 16)), "one at a time");
        put(&mut queue, 2032, 8);
        assert_eq!(take(&mut queue, false), None);
        assert!(queue.held().is_some(), "a new stream waits for no answer");
        queue.release();
        assert_eq!(take(&mut queue, true), Some((2032, 8)), "nothing has come");
        put(&mut queue, 2040, 4);
        assert_eq!(take(&mut queue, true), Some((2040, 4)), "no second wait");
    }

    #[test]
    fn a_held_write_waits_for_the_answers_that_may_bring_its_continuation() {
        let (pool, mut queue) = (Pool::new(0), Queue::default());
        let take = |queue: &mut Queue, number, offset, len| {
            queue.push(write(&pool, number, offset, len));
            let unit = queue.pop(64)?;
            match queue.may_go_on(&unit, 64, false) {
                true => queue.hold(unit),
                false => queue.taken(&unit),
            }
            queue.is_holding().then_some(())
        };
        assert!(take(&mut queue, 0, 0, 64).is_none());
        assert!(take(&mut queue, 1, 64, 64).is_none());
        assert!(take(&mut queue, 1, 128, 32).is_some());
        assert!(queue.held().is_none(), "the answer to request 0 may bring more");
        assert!(queue.answered() && queue.held().is_some(), "that to request 1 cannot");
        assert!(!queue.answered());
        assert!(take(&mut queue, 2, 160, 64).is_none(), "it has come");
    }

    #[test]
    fn what_overlaps_a_held_write_or_flushes_releases_it() {
        let pool = Pool::new(0);
        let flush = || Unit::unasked(0, 0..0, Action::Flush { after: 0 });
        for next in [write(&pool, 7, 8, 64), flush()] {
            let mut queue = Queue::default();
            queue.push(write(&pool, 0, 0, 32));
            let unit = queue.pop(64).expect("the queue is open");
            assert!(queue.may_go_on(&unit, 64, false));
            queue.hold(unit);
            assert!(queue.pop(64).is_none());
            queue.push(next);
            let unit = queue.pop(64).expect("released");
            assert_eq!((unit.offset, unit.len, queue.is_holding()), (0, 32, false));
            assert!(!queue.may_go_on(&unit, 64, false), "not held again");
            queue.taken(&unit);
            assert!(queue.pop(64).is_some(), "and the other one after it");
        }
    }

    #[test]
    fn after_waits_in_vain_fewer_writes_are_held() {
        // A client whose writes in flight never exceed half a stripe of 64.
        const DEPTH: u64 = 32;
        let (pool, mut queue) = (Pool::new(0), Queue::default());
        let (mut sent, mut written, mut waits) = (0, 0, 0);
        while written < 8192 {
            let sends = sent < written + DEPTH;
            if sends {
                queue.push(write(&pool, 0, sent, 8));
                sent += 8;
            } else if queue.held().is_some() {
                waits += 1;
                queue.release();
            }
            if let Some(unit) = queue.pop(64) {
                if queue.may_go_on(&unit, 64, false) {
                    queue.hold(unit);
                    continue;
                }
                queue.taken(&unit);
                queue.answered();
                written = unit.offset + unit.len;
            }
        }
        assert!((2..30).contains(&waits), "{waits} waits in 128 stripes");
    }

    #[test]
    fn a_large_write_is_held_though_it_is_alone() {
        let (pool, mut queue) = (Pool::new(0), Queue::default());
        let (half, stripe) = (PROBE_BYTES, 2 * PROBE_BYTES);
        for number in 0..8 {
            let at = u64::from(number) * stripe;
            queue.push(write(&pool, number, at, half));
            let unit = queue.pop(stripe).expect("the queue is open");
            assert!(queue.may_go_on(&unit, stripe, true), "{number}");
            queue.hold(unit);
            queue.push(write(&pool, number, at + half, half));
            let unit = queue.pop(stripe).expect("the awaited write has arrived");
            assert_eq!((unit.offset, unit.len), (at, stripe));
            assert!(!queue.may_go_on(&unit, stripe, true));
            queue.taken(&unit);
        }
    }
}
