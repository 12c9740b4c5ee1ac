//! Writes that were done, so that a late copy of one does not undo a later write.
//!
//! ```text
//!   client    W1 tag 1 ──────────(delayed)─────────────────────▶ ✗ late: must not be done again
//!             W1 tag 2 ──▶ done      W2 tag 3 ──▶ done
//! ```
//!
//! The protocol does not tell a late copy from a new request. Two rules do, each only for a write
//! whose sectors and data are exactly those of a remembered one:
//!
//! - *Same client, same tag*: a copy that the wire made, or of a client that repeats with the same
//!   tag (iPXE, Windows). Its answer may have been lost, so it is answered again.
//! - *Same client, and its tag is older than its newest*: Linux and Plan 9 count their requests in
//!   the upper half of the tag, and a port's frames keep their order, so this one was overtaken.
//!   Tags of Linux have bit 31 clear; those of its user-space tools, which are random, have it set.
//!
//! A write that was overtaken and *not* done before is done: it may be the only copy. What is older
//! than [`MAX_WRITES`] writes of a LUN is forgotten.

use std::collections::{BTreeMap, VecDeque};

use io::Mac;

/// How many writes of a LUN are remembered.
pub(super) const MAX_WRITES: usize = 4096;
/// How many clients of a LUN have their newest tag remembered.
pub(super) const MAX_CLIENTS: usize = 256;

/// The bit that tells random tags from counted ones.
const RANDOM: u32 = 1 << 31;
/// The counter of a tag: its upper half, without that bit.
const COUNT_MASK: u32 = 0x7fff;
/// Counters wrap: one that is behind by less than this is older, not newer.
const HALF: u32 = 0x4000;

/// A write by what it does: sectors and data.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Content {
    pub(super) first: u64,
    pub(super) sectors: u8,
    pub(super) print: u64,
}

#[derive(Default)]
pub(super) struct History {
    writes: BTreeMap<(Mac, u32), Content>,
    order: VecDeque<(Mac, u32)>,
    newest: BTreeMap<Mac, u32>,
}

impl History {
    /// Takes note of a request's tag. True if it was overtaken.
    pub(super) fn overtaken(&mut self, client: Mac, tag: u32) -> bool {
        if tag & RANDOM != 0 {
            return false;
        }
        let count = tag >> 16;
        let Some(newest) = self.newest.get_mut(&client) else {
            if self.newest.len() == MAX_CLIENTS {
                // Forgetting only means that the client's late frames are not recognized for once.
                self.newest.pop_first();
            }
            self.newest.insert(client, count);
            return false;
        };
        let behind = newest.wrapping_sub(count) & COUNT_MASK;
        if behind == 0 || behind >= HALF {
            *newest = count;
            return false;
        }
        true
    }

    /// True if this write was done and must not be done again.
    pub(super) fn is_repeated(
        &self,
        client: Mac,
        tag: u32,
        overtaken: bool,
        content: Content,
    ) -> bool {
        if self.writes.get(&(client, tag)) == Some(&content) {
            return true;
        }
        overtaken && self.writes.values().any(|it| *it == content)
    }

    /// Remembers a write that was done.
    pub(super) fn record(&mut self, client: Mac, tag: u32, content: Content) {
        if self.writes.insert((client, tag), content).is_some() {
            return;
        }
        self.order.push_back((client, tag));
        if self.order.len() > MAX_WRITES
            && let Some(oldest) = self.order.pop_front()
        {
            self.writes.remove(&oldest);
        }
    }
}

/// A number that tells data apart: two that differ have the same one with a chance of 2⁻⁶⁴. Not
/// against an adversary, who could write what he likes anyway.
pub(super) fn fingerprint(bytes: &[u8]) -> u64 {
    const KEYS: [u64; 4] = [
        0x9e37_79b9_7f4a_7c15,
        0xc2b2_ae3d_27d4_eb4f,
        0x1656_67b1_9e37_79f9,
        0x85eb_ca77_c2b2_ae63,
    ];
    let fold = |a: u64, b: u64| {
        let product = u128::from(a) * u128::from(b);
        product as u64 ^ (product >> 64) as u64
    };
    let word = |bytes: &[u8]| {
        let mut word = [0; 8];
        word[..bytes.len()].copy_from_slice(bytes);
        u64::from_le_bytes(word)
    };
    // Two lanes of 16 bytes, so that the multiplications overlap.
    let mut lanes = [KEYS[0], KEYS[1]];
    let mut chunks = bytes.chunks_exact(32);
    for chunk in &mut chunks {
        for (lane, half) in lanes.iter_mut().zip(chunk.chunks_exact(16)) {
            *lane = fold(word(&half[..8]) ^ *lane, word(&half[8..]) ^ KEYS[2]);
        }
    }
    for rest in chunks.remainder().chunks(8) {
        lanes[0] = fold(word(rest) ^ lanes[0], KEYS[3]);
    }
    fold(lanes[0] ^ bytes.len() as u64, lanes[1] ^ KEYS[3])
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Mac = Mac([2, 0, 0, 0, 0, 0xa]);
    const B: Mac = Mac([2, 0, 0, 0, 0, 0xb]);

    fn tag(count: u32) -> u32 {
        (count & COUNT_MASK) << 16 | 7
    }

    fn content(print: u64) -> Content {
        Content { first: 8, sectors: 2, print }
    }

    #[test]
    fn a_client_that_counts_is_overtaken_by_itself_only() {
        let mut history = History::default();
        assert!(!history.overtaken(A, tag(5)));
        assert!(!history.overtaken(A, tag(7)));
        assert!(history.overtaken(A, tag(6)));
        assert!(!history.overtaken(A, tag(7)), "the same tick again");
        assert!(!history.overtaken(B, tag(1)), "another client");
        assert!(!history.overtaken(A, tag(0) | RANDOM), "a random tag");
        for (newest, count, behind) in
            [(0x7fff, 0, false), (0, 0x7fff, true), (0x4000, 1, true), (0x4000, 0, false)]
        {
            let mut history = History::default();
            history.overtaken(A, tag(newest));
            assert_eq!(history.overtaken(A, tag(count)), behind, "{count:#x} after {newest:#x}");
        }
    }

    #[test]
    fn a_late_copy_is_recognized_and_an_old_value_written_anew_is_not() {
        let mut history = History::default();
        history.record(A, tag(2), content(1));
        history.record(A, tag(3), content(2));
        assert!(history.is_repeated(A, tag(2), false, content(1)), "the same frame again");
        assert!(!history.is_repeated(A, tag(2), false, content(3)), "other data, the same tag");
        assert!(history.is_repeated(A, tag(1), true, content(1)), "the first copy, overtaken");
        assert!(!history.is_repeated(A, tag(4), false, content(1)), "the old value, a new write");
        assert!(!history.is_repeated(A, tag(1), true, content(4)), "overtaken, and never done");
    }

    #[test]
    fn memory_is_bounded() {
        for (count, kept) in [(MAX_WRITES - 1, true), (MAX_WRITES, true), (MAX_WRITES + 1, false)] {
            let mut history = History::default();
            for number in 0..count as u32 {
                history.record(A, number, content(number.into()));
            }
            assert_eq!(history.is_repeated(A, 0, false, content(0)), kept, "{count}");
            assert!(history.writes.len() <= MAX_WRITES && history.order.len() <= MAX_WRITES);
        }
        let mut history = History::default();
        for number in 0..=MAX_CLIENTS {
            let [.., high, low] = number.to_be_bytes();
            history.overtaken(Mac([2, 0, 0, 0, high, low]), tag(5));
            assert!(history.newest.len() <= MAX_CLIENTS);
        }
    }

    #[test]
    fn fingerprints_of_different_data_differ() {
        let mut seen = std::collections::BTreeSet::new();
        let data: Vec<u8> = (0..1024_u32).map(|it| (it * 7 / 4) as u8).collect();
        for len in 0..data.len() {
            assert!(seen.insert(fingerprint(&data[..len])), "{len} bytes");
        }
        for bit in 0..data.len() * 8 {
            let mut data = data.clone();
            data[bit / 8] ^= 1 << (bit % 8);
            assert!(seen.insert(fingerprint(&data)), "bit {bit}");
        }
        assert!(seen.insert(fingerprint(&[0; 64])) && seen.insert(fingerprint(&[0; 96])));
    }
}
