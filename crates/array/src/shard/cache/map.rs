//! The contents of a cache: a map of bytes, independent of members, workers and waiting.
//!
//! ```text
//!            span 0          span 1          span 2          (whole stripes, a unit or one stripe)
//!  open     ▐███·████▌                      ▐██······▌       newest: writes come in here
//!  leaving            ▐████████▌ number 7   ▐█████···▌ 9     frozen: being written out
//!  leaving                                  ▐███·····▌ 8
//!  members  ═══════════════════════════════════════════════════════════════════════════
//! ```
//!
//! Bytes gather in the open *block* of their span; newer ones trim older ones. A block is *frozen*
//! before it is written out: it gets a number and does not change again. Later writes to its span
//! open a new block. A reader sees the members, over them the frozen blocks in order of their
//! numbers, and over these the open one.
//!
//! Invariants: blocks of a span are written out in the order of their numbers. A written block
//! leaves the map. A block that could not be written is *stuck*: it stays readable until newer
//! bytes have reached the members. The memory of a write is released with its last piece.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::rc::Rc;

use io::{Permit, Pool, SharedBuf, Time};

/// Memory for bytes of this length: the size of an [`io::Pool`] buffer for them.
pub(crate) fn memory_of(len: u64) -> u64 {
    Pool::block_bytes(len as usize) as u64
}

/// Consecutive bytes of one write.
#[derive(Clone)]
pub(crate) struct Piece {
    pub(crate) start: u64,
    pub(crate) bytes: SharedBuf,
    memory: Rc<Permit>,
}

impl Piece {
    /// `memory` is the permit for the whole buffer behind `bytes`.
    pub(crate) fn new(start: u64, bytes: SharedBuf, memory: Rc<Permit>) -> Piece {
        Piece { start, bytes, memory }
    }

    fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    pub(crate) fn end(&self) -> u64 {
        self.start + self.len()
    }

    /// The part of the piece in a range that overlaps it.
    pub(crate) fn within(&self, range: &Range<u64>) -> Piece {
        let (start, end) = (self.start.max(range.start), self.end().min(range.end));
        assert!(start <= end, "a piece that is not within {range:?}");
        let bytes = self.bytes.slice((start - self.start) as usize..(end - self.start) as usize);
        Piece { start, bytes, memory: Rc::clone(&self.memory) }
    }
}

/// Pieces of one span: sorted, without overlap.
struct Block {
    end: u64,
    pieces: Vec<Piece>,
    /// Bytes of all pieces.
    len: u64,
    /// Approximate memory of the pieces: trimmed pieces count less than their buffers may hold.
    memory: u64,
    since: Time,
    /// Its place among the open blocks, by age.
    age: u64,
}

impl Block {
    /// Removes a range and puts `new` there.
    fn replace(&mut self, range: Range<u64>, new: Option<Piece>) {
        let first = self.pieces.partition_point(|piece| piece.end() <= range.start);
        let last = self.pieces.partition_point(|piece| piece.start < range.end);
        let (mut head, mut tail) = (None, None);
        if first < last {
            let (left, right) = (&self.pieces[first], &self.pieces[last - 1]);
            head = (left.start < range.start).then(|| left.within(&(0..range.start)));
            tail = (range.end < right.end()).then(|| right.within(&(range.end..u64::MAX)));
        }
        let came = [head, new, tail];
        for piece in &self.pieces[first..last] {
            self.len -= piece.len();
            self.memory -= memory_of(piece.len());
        }
        for piece in came.iter().flatten() {
            self.len += piece.len();
            self.memory += memory_of(piece.len());
        }
        self.pieces.splice(first..last, came.into_iter().flatten());
    }

    /// The pieces that overlap a range.
    fn overlapping(&self, range: &Range<u64>) -> &[Piece] {
        let first = self.pieces.partition_point(|piece| piece.end() <= range.start);
        let last = self.pieces.partition_point(|piece| piece.start < range.end);
        &self.pieces[first..last.max(first)]
    }
}

/// A block that is being written out, or is stuck.
struct Frozen {
    block: Block,
    stuck: bool,
}

/// Names a frozen block.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Leaving {
    span: u64,
    number: u64,
}

/// See the module.
#[derive(Default)]
pub(crate) struct Held {
    /// By the first byte of their span.
    open: BTreeMap<u64, Block>,
    /// The open blocks' spans, by age.
    ages: BTreeMap<u64, u64>,
    open_memory: u64,
    leaving: BTreeMap<Leaving, Frozen>,
    /// Numbers of blocks that are leaving and not stuck.
    under_way: BTreeSet<u64>,
    next: u64,
}

impl Held {
    /// Adds a piece to its span. True if the span is now full.
    pub(crate) fn put(&mut self, span: Range<u64>, piece: Piece, now: Time) -> bool {
        let within = span.start <= piece.start && piece.end() <= span.end;
        assert!(within, "a held write goes out with the block that it lies in");
        let age = self.next;
        let block = self.open.entry(span.start).or_insert_with(|| {
            self.ages.insert(age, span.start);
            Block { end: span.end, pieces: Vec::new(), len: 0, memory: 0, since: now, age }
        });
        if block.age == age {
            self.next += 1;
        }
        let before = block.memory;
        block.replace(piece.start..piece.end(), Some(piece));
        self.open_memory = self.open_memory + block.memory - before;
        block.len == span.end - span.start
    }

    /// Freezes the open block of a span. Returns its name, and the range from its first to its last
    /// byte.
    pub(crate) fn freeze(&mut self, span: u64) -> Option<(Leaving, Range<u64>)> {
        let block = self.open.remove(&span)?;
        self.ages.remove(&block.age);
        assert!(block.memory <= self.open_memory, "memory of held writes is miscounted");
        self.open_memory -= block.memory;
        let leaving = Leaving { span, number: self.next };
        self.next += 1;
        self.under_way.insert(leaving.number);
        let (first, last) = (&block.pieces[0], &block.pieces[block.pieces.len() - 1]);
        let range = first.start..last.end();
        self.leaving.insert(leaving, Frozen { block, stuck: false });
        Some((leaving, range))
    }

    /// The oldest open block: its span, and the time since when it has been open.
    pub(crate) fn oldest(&self) -> Option<(u64, Time)> {
        let (_, span) = self.ages.first_key_value()?;
        Some((*span, self.open[span].since))
    }

    /// The span of an open block that holds bytes of this range.
    pub(crate) fn open_within(&self, range: &Range<u64>) -> Option<u64> {
        self.open_blocks(range)
            .find(|(_, block)| !block.overlapping(range).is_empty())
            .map(|(span, _)| span)
    }

    fn open_blocks(&self, range: &Range<u64>) -> impl Iterator<Item = (u64, &Block)> {
        let start = range.start;
        let before = self.open.range(..range.end).rev();
        before.take_while(move |(_, block)| block.end > start).map(|(&span, block)| (span, block))
    }

    /// Approximate memory of the open blocks.
    pub(crate) fn open_memory(&self) -> u64 {
        self.open_memory
    }

    /// The next run of a frozen block, from its `first` piece on: the range, and the bytes in
    /// `into`.
    pub(crate) fn run(
        &self,
        leaving: Leaving,
        first: usize,
        into: &mut Vec<SharedBuf>,
    ) -> Option<Range<u64>> {
        let pieces = &self.leaving.get(&leaving)?.block.pieces[first..];
        let start = pieces.first()?.start;
        let mut end = start;
        for piece in pieces {
            if piece.start != end {
                break;
            }
            into.push(piece.bytes.clone());
            end = piece.end();
        }
        Some(start..end)
    }

    /// A frozen block has reached the members.
    pub(crate) fn left(&mut self, leaving: Leaving) {
        self.under_way.remove(&leaving.number);
        let Some(frozen) = self.leaving.remove(&leaving) else { return };
        for piece in &frozen.block.pieces {
            self.overtaken(&(piece.start..piece.end()));
        }
    }

    /// Marks a frozen block as stuck.
    pub(crate) fn stick(&mut self, leaving: Leaving) {
        self.under_way.remove(&leaving.number);
        if let Some(frozen) = self.leaving.get_mut(&leaving) {
            frozen.stuck = true;
        }
    }

    /// Drops bytes of stuck blocks in this range: newer ones have reached the members directly.
    pub(crate) fn overtaken(&mut self, range: &Range<u64>) {
        if self.leaving.len() == self.under_way.len() {
            return;
        }
        let ahead = Leaving { span: range.end, number: 0 };
        let mut empty = Vec::new();
        for (&name, frozen) in self.leaving.range_mut(..ahead).rev() {
            if frozen.stuck && frozen.block.end > range.start {
                frozen.block.replace(range.clone(), None);
                if frozen.block.pieces.is_empty() {
                    empty.push(name);
                }
            }
        }
        empty.iter().for_each(|name| drop(self.leaving.remove(name)));
    }

    /// The number of the next frozen block; blocks in flight have lower ones.
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// True if a block with a lower number is in flight.
    pub(crate) fn is_leaving_before(&self, number: u64) -> bool {
        self.under_way.first().is_some_and(|&first| first < number)
    }

    /// True if any block is in flight.
    pub(crate) fn is_leaving(&self) -> bool {
        !self.under_way.is_empty()
    }

    /// True if nothing is held.
    pub(crate) fn is_empty(&self) -> bool {
        self.open.is_empty() && self.leaving.is_empty()
    }

    /// Appends the held pieces of a range, cut to it. Later pieces lie over earlier ones.
    pub(crate) fn look(&self, range: &Range<u64>, into: &mut Vec<Piece>) {
        let ahead = Leaving { span: range.end, number: 0 };
        let first = into.len();
        let before = self.leaving.range(..ahead).rev();
        // Spans do not overlap: the first that ends before the range ends the search.
        for (_, frozen) in before.take_while(|(_, frozen)| frozen.block.end > range.start) {
            into.extend(frozen.block.overlapping(range).iter().map(|piece| piece.within(range)));
        }
        // The loop met them from the newest to the oldest of each span.
        into[first..].reverse();
        for (_, block) in self.open_blocks(range) {
            into.extend(block.overlapping(range).iter().map(|piece| piece.within(range)));
        }
    }
}

/// True if the pieces leave no gap in the range. `order` is room to sort in.
pub(crate) fn cover(pieces: &[Piece], range: &Range<u64>, order: &mut Vec<(u64, u64)>) -> bool {
    let held: u64 = pieces.iter().map(Piece::len).sum();
    if held < range.end - range.start {
        return false;
    }
    order.clear();
    order.extend(pieces.iter().map(|piece| (piece.start, piece.end())));
    order.sort_unstable();
    let mut at = range.start;
    for &(start, end) in &*order {
        if start > at {
            return false;
        }
        at = at.max(end);
    }
    at >= range.end
}

#[cfg(test)]
mod tests;
