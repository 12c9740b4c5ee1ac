//! Readers whose requests arrive a little out of order: behind several links, or from several
//! threads.
//!
//! ```text
//!   sent       0  1  2  3  4  5  6  7      by two links in turn
//!   arrives    0  2  4  1  6  3  5  7
//!   end        1  3  5  5  7  7  7  8      of the stream
//!   missed        1  1  3  3  5            passed, and not asked for yet
//!                    3     5
//! ```
//!
//! A read belongs to a stream if it begins not far after its end, or if it asks for what was
//! missed. What was never asked for is forgotten when the stream is far beyond it. A reader that
//! leaves out as much as it reads is no stream.

use std::ops::Range;

use layout::RangeSet;

/// How far from the end of a stream its requests are: more than the 768 KiB that a client with two
/// links of 48 frames of 8 KiB has in flight.
const NEAR: u64 = 1 << 20;

/// What a stream has passed and may still read.
#[derive(Default)]
pub(super) struct Missed(RangeSet);

impl Missed {
    /// True if a stream that ends here may read this range next.
    pub(super) fn admit(&self, end: u64, range: &Range<u64>) -> bool {
        match range.start.checked_sub(end) {
            Some(gap) => gap <= NEAR,
            None => self.0.covers(range),
        }
    }

    /// The stream reads a range. Returns where it ends now.
    pub(super) fn pass(&mut self, end: u64, range: Range<u64>) -> u64 {
        let upto = end.max(range.end);
        if range.start > end {
            self.0.insert(end..range.start);
        } else if !self.0.is_empty() {
            self.0.remove(range);
        }
        if !self.0.is_empty() {
            self.0.remove(0..upto.saturating_sub(NEAR));
        }
        upto
    }

    /// True if some of this range may still be read.
    pub(super) fn overlaps(&self, range: Range<u64>) -> bool {
        !self.0.is_empty() && self.0.overlaps(range)
    }

    /// True if a stream that has read so many bytes reads more than it leaves out.
    pub(super) fn are_few(&self, read: u64) -> bool {
        self.0.is_empty() || 2 * self.0.bytes() < read.min(NEAR)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads blocks in this order; returns what is missed at the end, and how many reads did not
    /// belong to the stream.
    fn read(blocks: impl IntoIterator<Item = u64>) -> (Missed, u64, usize) {
        let (mut missed, mut end, mut strangers) = (Missed::default(), 0, 0);
        for block in blocks {
            let range = block * 8192..(block + 1) * 8192;
            if missed.admit(end, &range) {
                end = missed.pass(end, range);
            } else {
                strangers += 1;
            }
        }
        (missed, end, strangers)
    }

    #[test]
    fn requests_by_two_links_are_one_stream() {
        // The second link is so many requests behind.
        for behind in [0, 1, 7, 40] {
            let second = (0..200).map(|it| (it + behind, 2 * it + 1));
            let mut order: Vec<_> = (0..200).map(|it| (it, 2 * it)).chain(second).collect();
            order.sort_by_key(|&(when, _)| when);
            let (missed, end, strangers) = read(order.into_iter().map(|(_, block)| block));
            assert_eq!((end, strangers), (400 * 8192, 0), "{behind} behind");
            assert!(missed.0.is_empty());
        }
    }

    #[test]
    fn the_edges_of_near() {
        let missed = Missed::default();
        assert!(missed.admit(10, &(10..11)) && missed.admit(10, &(10 + NEAR..11 + NEAR)));
        assert!(!missed.admit(10, &(11 + NEAR..12 + NEAR)) && !missed.admit(10, &(9..10)));
        let (mut missed, gap) = (Missed::default(), 4096..8192);
        let end = missed.pass(4096, 8192..12_288);
        assert!(missed.admit(end, &gap) && missed.overlaps(8191..9000));
        assert!(!missed.admit(end, &(0..8192)), "it was read");
        // The gap begins as far from the end as can be, then one byte further.
        let last = 4096 + NEAR;
        missed.pass(end, last - 1..last);
        assert!(missed.admit(last, &gap));
        missed.pass(last, last..last + 1);
        assert!(!missed.admit(last + 1, &gap), "forgotten");
    }

    #[test]
    fn a_reader_that_leaves_out_half_is_no_stream() {
        let (missed, end, strangers) = read((0..400).map(|it| 3 * it));
        assert_eq!((end, strangers), ((3 * 399 + 1) * 8192, 0));
        assert!(!missed.are_few(400 * 8192));
        let (missed, ..) = read([0, 1, 2, 3, 5, 6, 7, 8]);
        assert!(missed.are_few(8 * 8192) && !missed.are_few(2 * 8192));
    }
}
