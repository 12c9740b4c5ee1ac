//! Replay of checksums: corrects the table for blocks that were being written when the array
//! crashed.
//!
//! ```text
//!   the table's entry ─┐
//!   the log: new crc  ─┼─▶ which of them does the block match? ─▶ that becomes the entry
//!   the log: old entry ┘                  └─ none ─▶ the block is wrong: recovered as if lost
//! ```
//!
//! The table on the members may be older or newer than the blocks, because it is written
//! independently of them. The log can correct it for every block whose write may not have been
//! durable together with its entry.
//!
//! Owns the members' tables during replay, before any shard uses them.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use io::broken::{Broken, broken};
use layout::private::checksums::{ChecksumEntry, blocks, parity_generation, place};
use layout::{Configuration, MemberId, RangeSet, Slot};
use log::expected::{Claim, Expected};
use metadata::commit::Failures;

use crate::keeper::Keeper;
use crate::keeper::replay::RowRepair;
use crate::rows::checksum::{BLOCK, ChecksumTable};

/// Pages of the members' tables as read.
#[derive(Default)]
pub(super) struct Tables {
    pages: RefCell<BTreeMap<(MemberId, u64), Vec<u8>>>,
    /// Members that failed to read, though they may hold the pages: they are lost.
    failures: RefCell<Failures>,
}

impl Keeper {
    /// Bytes of the array without valid checksums.
    pub(crate) fn unsummed_bytes(&self) -> u64 {
        self.sync.unchecksummed.borrow().bytes()
    }

    /// True if a crash is the only reason for invalid checksums.
    pub(super) fn are_checksums_torn(&self) -> bool {
        let unchecksummed = self.sync.unchecksummed.borrow();
        !unchecksummed.is_empty()
            && unchecksummed.iter().all(|range| self.crash.torn.covers(&range))
    }

    /// Array ranges from this offset on with valid checksums.
    pub(crate) fn checksummed_above(&self, offset: u64) -> RangeSet {
        let end = self.geometry.capacity();
        let mut checksummed = RangeSet::from(offset.min(end)..end);
        self.sync.unchecksummed.borrow().iter().for_each(|range| checksummed.remove(range));
        checksummed
    }
}

impl Keeper {
    /// Reads the pages with the entries of a part of a member. The entries of an unreadable page
    /// are unknown.
    async fn read_tables(&self, tables: &Tables, id: MemberId, range: Range<u64>) {
        let (first, last) = (place(range.start / BLOCK).0, place((range.end - 1) / BLOCK).0);
        for number in first..=last {
            if tables.pages.borrow().contains_key(&(id, number)) {
                continue;
            }
            let page = self.metadata.read_table(id, number).await;
            let page = page.unwrap_or_else(|why| {
                tables.could_not_read(id, why);
                ChecksumEntry::unknown_page()
            });
            tables.pages.borrow_mut().entry((id, number)).or_insert(page);
        }
    }

    /// True if some block read from a slot matches neither its entry nor the log.
    pub(super) async fn is_wrong(
        &self,
        (tables, expected): (&Tables, &Expected),
        configuration: &Configuration,
        slot: Slot,
        at: u64,
        bytes: &[u8],
    ) -> bool {
        let Some(checksums) = &self.home.engine.checksums else { return false };
        let Some(id) = configuration.slots[slot.index()].member else { return false };
        self.read_tables(tables, id, at..at + bytes.len() as u64).await;
        // The member is lost for the failed table read. Its unverified blocks must not enter any
        // computation.
        let late = tables.failures.borrow().iter().any(|(failed, _)| *failed == id);
        if late && !broken(Broken::LateTableTrusted) {
            return true;
        }
        blocks(at..at + bytes.len() as u64).any(|(block, range)| {
            let part = (range.start - at) as usize..(range.end - at) as usize;
            let (whole, crc) = (part.len() as u64 == BLOCK, parity::crc32c(0, &bytes[part]));
            let entry = tables.entry(id, block);
            // A block without a checksum cannot be shown to be wrong.
            let says = entry.is_known() || broken(Broken::UnsummedWrong);
            let fits = !says || checksums.fits(entry, (slot, block), crc);
            whole && !fits && !claimed(checksums, expected, (slot, block), crc)
        })
    }

    /// Updates the tables to match the members' contents, for repaired rows and for blocks in the
    /// log.
    pub(super) async fn resolve_checksums(
        &self,
        configuration: &Configuration,
        (tables, expected): (&Tables, &Expected),
        repaired: &[RowRepair],
    ) -> Failures {
        let Some(checksums) = &self.home.engine.checksums else { return Failures::new() };
        let mut known: BTreeMap<(Slot, u64), u32> = BTreeMap::new();
        for row in repaired {
            for (slot, bytes) in row.known() {
                for (block, range) in blocks(row.at..row.at + bytes.len() as u64) {
                    let part = (range.start - row.at) as usize..(range.end - row.at) as usize;
                    known.insert((*slot, block), parity::crc32c(0, &bytes[part]));
                }
            }
        }
        let mut todo: Vec<(Slot, u64)> = known.keys().copied().chain(expected.each()).collect();
        todo.sort_unstable();
        todo.dedup();
        let mut changed: BTreeSet<(MemberId, u64)> = BTreeSet::new();
        for (slot, block) in todo {
            let assignment = &configuration.slots[slot.index()];
            for id in assignment.member.into_iter().chain(assignment.replacement.map(|(id, _)| id))
            {
                self.read_tables(tables, id, block * BLOCK..(block + 1) * BLOCK).await;
                let own = known.get(&(slot, block)).copied();
                let crc = match own {
                    Some(crc) => crc,
                    None => {
                        match self.metadata.read_data(id, block * BLOCK..(block + 1) * BLOCK).await
                        {
                            Ok(bytes) => parity::crc32c(0, &bytes),
                            // The unread block may not match the entry, in either direction.
                            Err(why) => {
                                tables.could_not_read(id, why);
                                if tables.entry(id, block).is_known() {
                                    tables.put(id, block, ChecksumEntry::UNKNOWN);
                                    changed.insert((id, place(block).0));
                                }
                                continue;
                            }
                        }
                    }
                };
                let entry = tables.entry(id, block);
                // A block that was being written may be old in some sectors and new in others. If
                // redundancy could not recover it, it stays as it is, and its row's parity matches
                // it.
                if !checksums.fits(entry, (slot, block), crc) {
                    tables.put(id, block, entry.next(checksums.checksum(slot, block, crc), 1));
                    changed.insert((id, place(block).0));
                }
            }
        }
        for row in repaired {
            self.align_tables(configuration, tables, row, &mut changed).await;
        }
        let mut failures = tables.failures.take();
        changed.retain(|(id, _)| !failures.iter().any(|(failed, _)| failed == id));
        for (id, number) in changed {
            let page = tables.pages.borrow()[&(id, number)].clone();
            if let Err(why) = self.metadata.write_table(id, number, &page).await {
                failures.push((id, why));
            }
        }
        failures
    }
}

impl Keeper {
    /// Sets the parity generations of a repaired row to match its data.
    async fn align_tables(
        &self,
        configuration: &Configuration,
        tables: &Tables,
        row: &RowRepair,
        changed: &mut BTreeSet<(MemberId, u64)>,
    ) {
        let len = row.known().map(|(_, bytes)| bytes.len() as u64).max().unwrap_or(0);
        let range = row.at..row.at + len;
        let all = (0..self.geometry.slots()).map(Slot::new);
        let assignment = |slot: Slot| configuration.slots[slot.index()].member;
        for id in all.filter_map(assignment).filter(|_| len > 0) {
            self.read_tables(tables, id, range.clone()).await;
        }
        let Some(checksums) = self.home.engine.checksums.as_ref().filter(|_| len > 0) else {
            return;
        };
        let parity = || std::iter::once(row.map.p()).chain(row.map.q());
        for (block, _) in blocks(range) {
            let generation = |index: usize| {
                let entry = tables.entry(assignment(row.map.data(index))?, block);
                entry.is_known().then_some(entry.generation)
            };
            let data: Option<Vec<u32>> = (0..row.map.data_count()).map(generation).collect();
            let Some(due) = data.map(|data| parity_generation(data.into_iter())) else { continue };
            for (slot, id) in parity().filter_map(|slot| Some((slot, assignment(slot)?))) {
                let entry = tables.entry(id, block);
                let aged = entry.aged(due, checksums.checksum_of_zeros(slot, block));
                if entry.is_known() && aged != entry {
                    tables.put(id, block, aged);
                    changed.insert((id, place(block).0));
                }
            }
        }
    }
}

impl Tables {
    /// A bad sector is a proven loss. After any other error the disk may still hold the entries, so
    /// they must not be overwritten unread.
    fn could_not_read(&self, id: MemberId, why: io::Error) {
        let lost = why.is_medium();
        if !lost && !broken(Broken::UnreadForgotten) {
            self.failures.borrow_mut().push((id, why));
        }
    }

    fn entry(&self, id: MemberId, block: u64) -> ChecksumEntry {
        let (number, index) = place(block);
        self.pages
            .borrow()
            .get(&(id, number))
            .map_or(ChecksumEntry::UNKNOWN, |page| ChecksumEntry::get(page, index))
    }

    fn put(&self, id: MemberId, block: u64, checksum: ChecksumEntry) {
        let (number, index) = place(block);
        let mut pages = self.pages.borrow_mut();
        checksum.put(pages.get_mut(&(id, number)).expect("read before"), index);
    }
}

/// True if the log allows bytes with this CRC in a block.
fn claimed(
    checksums: &ChecksumTable,
    expected: &Expected,
    (slot, block): (Slot, u64),
    crc: u32,
) -> bool {
    expected.of(slot, block).iter().any(|claim| match *claim {
        Claim::New(new) => new == crc,
        Claim::Old(old) => !old.is_known() || checksums.fits(old, (slot, block), crc),
        Claim::Any => true,
    }) && !broken(Broken::ClaimsIgnored)
}
