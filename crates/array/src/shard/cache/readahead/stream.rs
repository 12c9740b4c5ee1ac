//! A sequential reader, and what is read ahead of it.
//!
//! ```text
//!   passed       end of what it has sent              upto
//!   ─────────────┤                                    │
//!      ├ piece ┤ ├──── piece ────┤├──── piece ────┤   a read takes a part, or waits for it
//!      due: a read waits for it, or missed it
//! ```

use std::ops::Range;

use io::{Buf, Permit, Time};

use super::order::Missed;
use crate::shard::queue::Unit;

/// Reads in a row, each sent after the previous answer, that make a stream.
pub(super) const IN_A_ROW: u32 = 2;

/// A sequential reader.
pub(super) struct Stream {
    /// The last read: its units' request, the first byte of the last unit, its length, its end.
    pub(super) request: (usize, u32),
    pub(super) unit: u64,
    pub(super) len: u64,
    pub(super) end: u64,
    pub(super) answered: bool,
    /// What it has passed and may still read: where members rotate.
    pub(super) missed: Missed,
    /// The members did not answer at once.
    pub(super) waited: bool,
    pub(super) in_a_row: u32,
    /// The read count when it was last seen, and the time where members rotate.
    pub(super) seen: u64,
    pub(super) since: Time,
    /// Size of its next read-ahead.
    pub(super) window: u64,
    /// Everything before it is read ahead, or was.
    pub(super) upto: u64,
    /// Half rows that were due in runs of members.
    pub(super) half_rows: u64,
    /// Bytes read lately.
    pub(super) lately: u64,
    /// By offset.
    pub(super) pieces: Vec<Piece>,
}

pub(super) struct Piece {
    pub(super) number: u64,
    pub(super) start: u64,
    pub(super) end: u64,
    /// Bytes that no read has got.
    pub(super) left: u64,
    pub(super) state: State,
    pub(super) _memory: Permit,
}

impl Piece {
    /// True if a stream that has passed it will still read some of it.
    pub(super) fn is_due(&self, missed: &Missed, awaited: &[Range<u64>]) -> bool {
        missed.overlaps(self.start..self.end)
            || awaited.iter().any(|range| range.start < self.end && self.start < range.end)
    }
}

pub(super) enum State {
    Queued,
    Begun,
    There(Buf),
}

impl Stream {
    /// Starts a possible stream with its first read.
    pub(super) fn new(unit: &Unit, (seen, since): (u64, Time)) -> Stream {
        Stream {
            request: (unit.from.shard, unit.from.request),
            unit: unit.offset,
            len: unit.len,
            end: unit.offset + unit.len,
            answered: false,
            missed: Missed::default(),
            waited: false,
            in_a_row: 0,
            seen,
            since,
            window: 0,
            upto: 0,
            half_rows: 0,
            lately: 0,
            pieces: Vec::new(),
        }
    }

    /// Adds a unit that begins at the stream's end, or near it.
    pub(super) fn add_unit(
        &mut self,
        unit: &Unit,
        (seen, since): (u64, Time),
        rotational: bool,
        awaited: &[Range<u64>],
    ) {
        let request = (unit.from.shard, unit.from.request);
        let same = self.request == request && unit.from.part > 0;
        if same {
            self.len += unit.len;
        } else {
            self.len = unit.len;
            // Sent before the last answer: the reader has several requests in flight.
            let counts = self.answered || rotational;
            self.in_a_row = if counts { self.in_a_row + 1 } else { 0 };
            self.waited |= rotational;
            if self.in_a_row == 0 {
                self.drop_pieces();
            }
        }
        self.end = self.missed.pass(self.end, unit.offset..unit.offset + unit.len);
        // The reader has passed these pieces; but earlier requests in flight may still need them.
        let kept = if self.answered { 0 } else { self.window };
        let missed = &self.missed;
        let needed =
            |piece: &Piece| piece.end + kept > unit.offset || piece.is_due(missed, awaited);
        self.pieces.retain(needed);
        (self.request, self.unit, self.seen, self.since) = (request, unit.offset, seen, since);
        self.answered = false;
    }

    pub(super) fn drop_pieces(&mut self) {
        (self.window, self.upto, self.half_rows) = (0, 0, 0);
        self.pieces.clear();
    }

    /// It is known to be a stream, and its reads are shorter than `most`.
    pub(super) fn needs_ahead(&self, most: u64) -> bool {
        let in_order = self.missed.are_few(self.lately);
        self.in_a_row >= IN_A_ROW && self.waited && self.len < most && in_order
    }

    /// What is not read ahead of a range, up to the next piece.
    pub(super) fn gap(&self, range: Range<u64>) -> Range<u64> {
        let (mut start, mut end) = (range.start, range.end);
        for piece in &self.pieces {
            if piece.start > start {
                end = end.min(piece.start);
                break;
            }
            start = start.max(piece.end);
        }
        start..end
    }

    /// The range to read ahead now, with windows of at most `most` bytes. It ends at a multiple of
    /// `step` once the window is as large.
    pub(super) fn wanted(&mut self, most: u64, step: u64) -> Option<Range<u64>> {
        if !self.needs_ahead(most) {
            return None;
        }
        self.upto = self.upto.max(self.end);
        self.window = self.window.max(2 * self.len).min(most);
        if self.upto - self.end > self.window / 2 {
            return None;
        }
        let end = self.end + self.window;
        let range = self.upto..if self.window < step { end } else { end / step * step };
        self.window = (2 * self.window).min(most);
        Some(range)
    }
}
