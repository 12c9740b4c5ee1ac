//! A range of bytes, cut into what the machine of a client writes at once.
//!
//! ```text
//!   stripes   |               |               |
//!   blocks    |. . . .|. . . .|. . . .|. . . .|. . . .|
//!   range         ▓▓▓▓ ▓▓▓▓▓▓▓ ▓▓▓▓▓▓▓ ▓▓▓▓▓▓▓ ▓▓
//!   parts         a    b       c               d         a and d are patches
//! ```

use std::ops::Range;

/// Whole blocks of one stripe, or a part of one block.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Part {
    /// The first block.
    pub(super) block: u64,
    /// The byte of it with which the part begins.
    pub(super) first: usize,
    /// The bytes of the range.
    pub(super) bytes: Range<usize>,
}

impl Part {
    /// True if the rest of the block stays.
    pub(super) fn is_patch(&self, block_bytes: usize) -> bool {
        self.bytes.len() < block_bytes
    }
}

/// The parts of so many bytes at this offset, in order. `width`: blocks of a stripe.
pub(super) fn parts(
    offset: u64,
    len: u64,
    block_bytes: u64,
    width: u64,
) -> impl Iterator<Item = Part> {
    let end = offset + len;
    let mut at = offset;
    std::iter::from_fn(move || {
        let (block, first) = (at / block_bytes, at % block_bytes);
        let edge = if first > 0 || end - at < block_bytes {
            end.min((block + 1) * block_bytes)
        } else {
            (end - end % block_bytes).min((block / width + 1) * width * block_bytes)
        };
        let bytes = (at - offset) as usize..(edge - offset) as usize;
        at = edge;
        (!bytes.is_empty()).then_some(Part { block, first: first as usize, bytes })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(offset: u64, len: u64) -> Vec<(u64, usize, Range<usize>)> {
        let parts = parts(offset, len, 8, 2);
        parts.map(|part| (part.block, part.first, part.bytes)).collect()
    }

    #[test]
    fn whole_blocks_end_with_their_stripe_and_edges_are_patches() {
        assert_eq!(cut(4, 30), [(0, 4, 0..4), (1, 0, 4..12), (2, 0, 12..28), (4, 0, 28..30)]);
        assert_eq!(cut(8, 16), [(1, 0, 0..8), (2, 0, 8..16)]);
        assert_eq!(cut(6, 4), [(0, 6, 0..2), (1, 0, 2..4)]);
        assert_eq!(cut(9, 3), [(1, 1, 0..3)]);
        assert_eq!(cut(9, 0), []);
    }

    /// Every range of some stripes: each byte once, in order, and no part is larger than it may be.
    #[test]
    fn parts_cover_their_range() {
        for (offset, len) in (0..40).flat_map(|offset| (0..40).map(move |len| (offset, len))) {
            let mut at = 0;
            for part in parts(offset, len, 8, 3) {
                let begin = part.block * 8 + part.first as u64;
                let length = part.bytes.len() as u64;
                assert_eq!((part.bytes.start, begin), (at, offset + at as u64));
                let (last, unit) = (begin + length - 1, if part.is_patch(8) { 8 } else { 24 });
                assert_eq!(begin / unit, last / unit, "{offset} {len}: {part:?}");
                assert!(part.is_patch(8) || (part.first, length % 8) == (0, 0), "{part:?}");
                at = part.bytes.end;
            }
            assert_eq!(at as u64, len);
        }
    }
}
