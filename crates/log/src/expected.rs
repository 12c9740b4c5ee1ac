//! The checksums that a block may have after a crash, by the intent log: the old and the new ones.
//!
//! Gathers them from the records of a log. `keeper/replay_checksums.rs` compares them with the
//! blocks.

use std::collections::BTreeMap;

use layout::private::CHECKSUM_BLOCK_BYTES;
use layout::private::checksums::{ChecksumEntry, blocks};
use layout::private::log::Entry;
use layout::{Geometry, Slot, Stripe};

/// The possible contents of the blocks that were being written.
#[derive(Clone, Default, Debug)]
pub struct Expected(BTreeMap<(Slot, u64), Vec<Claim>>);

/// Possible contents of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Claim {
    /// The bytes that were being written, by their CRC.
    New(u32),
    /// The old entry in the table.
    Old(ChecksumEntry),
    /// Unknown contents: zeros or the bytes before them, or a partly written block.
    Any,
}

impl Expected {
    /// Adds the contents of a record.
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

    /// Adds everything from another part of the log.
    pub fn absorb(&mut self, other: Expected) {
        for (key, claims) in other.0 {
            self.0.entry(key).or_default().extend(claims);
        }
    }

    /// The possible contents of a slot's block besides the table's entry.
    pub fn of(&self, slot: Slot, block: u64) -> &[Claim] {
        self.0.get(&(slot, block)).map_or(&[], Vec::as_slice)
    }

    /// Every block with a record in the log, slot by slot.
    pub fn each(&self) -> impl Iterator<Item = (Slot, u64)> + '_ {
        self.0.keys().copied()
    }
}
