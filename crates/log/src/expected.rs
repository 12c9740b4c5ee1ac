//! What blocks may hold after a crash, by the intent log: old checksums and new.
//!
//! Owns the gathering of that from the records of a log. Whether a block holds any of it, and what
//! follows, is for `keeper/replay_checksums.rs`.

use std::collections::BTreeMap;

use layout::private::CHECKSUM_BLOCK_BYTES;
use layout::private::checksums::{ChecksumEntry, blocks};
use layout::private::log::Entry;
use layout::{Geometry, Slot, Stripe};

/// What the log has for the blocks of data that were being written.
#[derive(Clone, Default, Debug)]
pub struct Expected(BTreeMap<(Slot, u64), Vec<Claim>>);

/// What a block may hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Claim {
    /// Bytes with this CRC, that were being written.
    New(u32),
    /// What the table had.
    Old(ChecksumEntry),
    /// The log does not say what: zeros or what was there before them, or a part of a block.
    Any,
}

impl Expected {
    /// Takes in what a record says.
    pub fn add(&mut self, entry: &Entry, geometry: &Geometry) {
        let record = &entry.record;
        if record.zeros {
            for stripe in record.stripe..record.stripe + u64::from(record.stripes) {
                let map = geometry.stripe(Stripe(stripe));
                let at = map.member_offset() + record.start;
                for slot in geometry.all_slots().iter() {
                    for (block, _) in blocks(at..at + record.len) {
                        self.0.entry((slot, block)).or_default().push(Claim::Any);
                    }
                }
            }
        }
        if !record.checksummed {
            return;
        }
        let map = geometry.stripe(Stripe(record.stripe));
        let at = map.member_offset() + record.start;
        let mut words = entry.checks.iter().zip(&entry.olds);
        for index in 0..usize::from(record.count) {
            let slot = map.data(usize::from(record.first) + index);
            for (block, range) in blocks(at..at + record.len) {
                let Some((&new, &old)) = words.next() else { return };
                let whole = range.end - range.start == CHECKSUM_BLOCK_BYTES;
                let claims =
                    if whole { [Claim::New(new), Claim::Old(old)] } else { [Claim::Any; 2] };
                self.0.entry((slot, block)).or_default().extend(claims);
            }
        }
    }

    /// Takes in all that another part of the log says.
    pub fn absorb(&mut self, other: Expected) {
        for (key, claims) in other.0 {
            self.0.entry(key).or_default().extend(claims);
        }
    }

    /// What a block of a slot may hold besides what the table has.
    pub fn of(&self, slot: Slot, block: u64) -> &[Claim] {
        self.0.get(&(slot, block)).map_or(&[], Vec::as_slice)
    }

    /// Every block that the log tells of, slot by slot.
    pub fn each(&self) -> impl Iterator<Item = (Slot, u64)> + '_ {
        self.0.keys().copied()
    }
}
