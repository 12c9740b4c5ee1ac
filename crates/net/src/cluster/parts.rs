//! A range of bytes, cut into what the machine of a client reads and writes at once.
//!
//! ```text
//!   regions   |                               |
//!   stripes   |       |       |       |       |       |
//!   blocks    |. .|. .|. .|. .|. .|. .|. .|. .|. .|. .|
//!   range          ▓▓▓ ▓▓▓ ▓▓▓▓▓▓▓ ▓▓▓▓▓▓▓ ▓▓▓ ▓▓
//!   writes         a   b   c       d       e   f         a and f are patches
//!   reads         ──────── ─────── ─────── ───────       each of whole blocks
//! ```
//!
//! Here two stripes are a run. A part that is longer than a stripe ends with its run, and none goes
//! beyond its region.

use std::ops::Range;

/// Whole blocks of one stripe, whole stripes, or a part of one block.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Part {
    /// The first block.
    pub(super) block: u64,
    /// The byte of it with which the part begins.
    pub(super) first: usize,
    /// The bytes of the range.
    pub(super) bytes: Range<usize>,
}

/// Where parts end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Grid {
    /// Bytes of a block.
    pub(super) block: u64,
    /// Blocks of a stripe, of a run and of a region.
    pub(super) stripe: u64,
    pub(super) run: u64,
    pub(super) region: u64,
}

impl Part {
    /// True if the rest of the block stays.
    pub(super) fn is_patch(&self, block_bytes: usize) -> bool {
        self.bytes.len() < block_bytes
    }
}

fn next(at: u64, unit: u64) -> u64 {
    (at / unit + 1) * unit
}

impl Grid {
    /// The block with which a run ends that has this one.
    fn end(&self, block: u64) -> u64 {
        next(block, self.run).min(next(block, self.region))
    }

    /// Blocks that hold these bytes, as first blocks and numbers.
    pub(super) fn reads(self, offset: u64, len: u64) -> impl Iterator<Item = (u64, u64)> {
        let (mut at, end) = (offset / self.block, (offset + len).div_ceil(self.block));
        std::iter::from_fn(move || {
            let (first, edge) = (at, end.min(self.end(at)));
            at = edge;
            (first < edge).then_some((first, edge - first))
        })
    }

    /// The parts of so many bytes at this offset, in order.
    pub(super) fn writes(self, offset: u64, len: u64) -> impl Iterator<Item = Part> {
        let end = offset + len;
        let mut at = offset;
        std::iter::from_fn(move || {
            let (block, first) = (at / self.block, at % self.block);
            let edge = if first > 0 || end - at < self.block {
                end.min((block + 1) * self.block)
            } else {
                self.block * self.whole(block, end / self.block)
            };
            let bytes = (at - offset) as usize..(edge - offset) as usize;
            at = edge;
            (!bytes.is_empty()).then_some(Part { block, first: first as usize, bytes })
        })
    }

    /// The end of a part of whole blocks: whole stripes if it begins with one and has one.
    fn whole(&self, block: u64, end: u64) -> u64 {
        let stripes = end.min(self.end(block)) / self.stripe * self.stripe;
        if block.is_multiple_of(self.stripe) && block < stripes {
            stripes
        } else {
            end.min(next(block, self.stripe))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Blocks of 8 bytes, stripes of 2, runs of 4, regions of 10.
    const GRID: Grid = Grid { block: 8, stripe: 2, run: 4, region: 10 };

    fn cut(offset: u64, len: u64) -> Vec<(u64, usize, Range<usize>)> {
        let parts = GRID.writes(offset, len);
        parts.map(|part| (part.block, part.first, part.bytes)).collect()
    }

    #[test]
    fn whole_blocks_end_with_their_stripe_or_run_and_edges_are_patches() {
        assert_eq!(cut(4, 30), [(0, 4, 0..4), (1, 0, 4..12), (2, 0, 12..28), (4, 0, 28..30)]);
        assert_eq!(cut(8, 16), [(1, 0, 0..8), (2, 0, 8..16)]);
        assert_eq!(cut(6, 4), [(0, 6, 0..2), (1, 0, 2..4)]);
        assert_eq!(cut(9, 3), [(1, 1, 0..3)]);
        assert_eq!(cut(9, 0), []);
        let long = [(1, 0, 0..8), (2, 0, 8..24), (4, 0, 24..56), (8, 0, 56..72), (10, 0, 72..88)];
        assert_eq!(cut(8, 88), long);
        assert_eq!(GRID.reads(8, 88).collect::<Vec<_>>(), [(1, 3), (4, 4), (8, 2), (10, 2)]);
        assert_eq!(GRID.reads(9, 3).collect::<Vec<_>>(), [(1, 1)]);
        assert_eq!(GRID.reads(8, 0).count(), 0);
    }

    /// Every range of some stripes: each byte once, in order, and no part is larger than it may be.
    #[test]
    fn parts_cover_their_range() {
        let grid = Grid { block: 8, stripe: 3, run: 6, region: 15 };
        for (offset, len) in (0..160).flat_map(|offset| (0..160).map(move |len| (offset, len))) {
            let mut at = 0;
            for part in grid.writes(offset, len) {
                let begin = part.block * 8 + part.first as u64;
                let length = part.bytes.len() as u64;
                assert_eq!((part.bytes.start, begin), (at, offset + at as u64));
                let stripes = (part.block % 3, length % 24) == (0, 0);
                let unit = if part.is_patch(8) {
                    8
                } else if stripes {
                    48
                } else {
                    24
                };
                let last = begin + length - 1;
                assert_eq!(begin / unit, last / unit, "{offset} {len}: {part:?}");
                assert_eq!(begin / 120, last / 120, "{offset} {len}: {part:?}");
                assert!(part.is_patch(8) || (part.first, length % 8) == (0, 0), "{part:?}");
                at = part.bytes.end;
            }
            assert_eq!(at as u64, len);
            let mut next = offset / 8;
            for (block, count) in grid.reads(offset, len) {
                assert!(block == next && count > 0, "{offset} {len}");
                next += count;
                assert_eq!((block / 6, block / 15), ((next - 1) / 6, (next - 1) / 15));
            }
            assert!(len == 0 || next == (offset + len).div_ceil(8), "{offset} {len}");
        }
    }
}
