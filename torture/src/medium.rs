//! The durable content of a disk, and its volatile cache.
//!
//! ```text
//!   versions ▲   w7            w9              each write stays apart, sector by sector,
//!            │   w3      w5    w8              until a flush (or FUA) that covers it
//!   durable ─┴───○───────○─────○────────▶ sector
//! ```
//!
//! A read returns the newest version. A flush makes writes durable that were *completed* before its
//! submission; writes in flight are not covered. At a power cut each sector keeps its durable bytes
//! or any later version. The choice varies, because disks differ: in order, at random, torn within
//! one write, all or nothing.

use parapet_torture::random::Random;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

pub(crate) const SECTOR: u64 = 512;
const PAGE: u64 = 4096;

/// A disk's bytes. Memory is taken only for pages that hold something.
pub(crate) struct Medium {
    bytes: u64,
    durable: BTreeMap<u64, Box<[u8; PAGE as usize]>>,
    cached: BTreeMap<u64, Vec<Version>>,
    begun: u64,
    completed: u64,
}

/// A write that is not durable, or not as a whole.
pub(crate) struct Write {
    number: u64,
    sectors: Range<u64>,
    /// Zeros, if none.
    bytes: Vec<u8>,
    /// When it was answered, counted in answers; 0 before.
    completed: AtomicU64,
}

/// A sector of a write.
type Version = Arc<Write>;

/// The effect of a power cut.
#[derive(Clone, Copy, Default)]
pub(crate) struct Loss {
    /// Sectors that had later versions than the durable one.
    pub(crate) at_stake: u64,
    /// Those of them that did not keep the newest.
    pub(crate) lost: u64,
}

impl Write {
    fn of_sector(&self, sector: u64) -> Option<&[u8]> {
        let at = ((sector - self.sectors.start) * SECTOR) as usize;
        self.bytes.get(at..at + SECTOR as usize)
    }
}

impl Medium {
    /// A disk of zeros.
    pub(crate) fn new(bytes: u64) -> Medium {
        let (durable, cached) = (BTreeMap::new(), BTreeMap::new());
        Medium { bytes, durable, cached, begun: 0, completed: 0 }
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// False if the range is not made of this disk's sectors.
    pub(crate) fn has(&self, offset: u64, len: u64) -> bool {
        let end = offset.checked_add(len);
        (offset | len).is_multiple_of(SECTOR) && end.is_some_and(|end| end <= self.bytes)
    }

    /// The newest bytes of a range that the disk [has](Medium::has).
    pub(crate) fn read(&self, offset: u64, len: u64) -> Vec<u8> {
        let mut bytes = vec![0; len as usize];
        for (index, room) in bytes.chunks_exact_mut(SECTOR as usize).enumerate() {
            let sector = offset / SECTOR + index as u64;
            match self.cached.get(&sector).and_then(|versions| versions.last()) {
                Some(newest) => room.copy_from_slice(newest.of_sector(sector).unwrap_or(&ZEROS)),
                None => self.copy_durable(sector, room),
            }
        }
        bytes
    }

    fn copy_durable(&self, sector: u64, room: &mut [u8]) {
        let (page, at) = place(sector);
        if let Some(page) = self.durable.get(&page) {
            room.copy_from_slice(&page[at..at + SECTOR as usize]);
        }
    }

    /// A write has arrived; no bytes are `len` zeros. The range is within the disk.
    pub(crate) fn write(&mut self, offset: u64, len: u64, bytes: Vec<u8>) -> Arc<Write> {
        self.begun += 1;
        let sectors = offset / SECTOR..(offset + len) / SECTOR;
        let completed = AtomicU64::new(0);
        let write = Arc::new(Write { number: self.begun, sectors, bytes, completed });
        for sector in write.sectors.clone() {
            self.cached.entry(sector).or_default().push(Arc::clone(&write));
        }
        write
    }

    /// The write is answered.
    pub(crate) fn complete(&mut self, write: &Arc<Write>, fua: bool) {
        self.completed += 1;
        write.completed.store(self.completed, Ordering::Relaxed);
        for sector in write.sectors.clone().filter(|_| fua) {
            self.harden(sector, |version| version.number == write.number);
        }
    }

    /// A flush is submitted: returns the moment for [`Medium::flush`].
    pub(crate) fn moment(&self) -> u64 {
        self.completed
    }

    /// Writes completed by that moment are durable.
    pub(crate) fn flush(&mut self, moment: u64) {
        let sectors: Vec<u64> = self.cached.keys().copied().collect();
        for sector in sectors {
            let covers = |version: &Write| {
                let completed = version.completed.load(Ordering::Relaxed);
                completed > 0 && completed <= moment
            };
            self.harden(sector, covers);
        }
    }

    /// The version `chosen` of the sector becomes durable, and earlier ones are gone.
    fn harden(&mut self, sector: u64, chosen: impl Fn(&Write) -> bool) {
        let Some(versions) = self.cached.get_mut(&sector) else { return };
        let Some(newest) = versions.iter().rposition(|version| chosen(version)) else { return };
        let version = versions.drain(..=newest).next_back().expect("the newest is among them");
        if versions.is_empty() {
            self.cached.remove(&sector);
        }
        self.wait_until_idle(sector, version.of_sector(sector).unwrap_or(&ZEROS));
    }

    fn wait_until_idle(&mut self, sector: u64, bytes: &[u8]) {
        let (page, at) = place(sector);
        let page = self.durable.entry(page).or_insert_with(|| Box::new([0; PAGE as usize]));
        page[at..at + SECTOR as usize].copy_from_slice(bytes);
    }

    /// The power is cut: of each sector one version stays, and is durable.
    pub(crate) fn cut(&mut self, random: &mut Random) -> Loss {
        let mood = random.below(6);
        let latest = random.within(0..self.begun + 1);
        let salt = random.draw();
        let mut loss = Loss::default();
        for (sector, versions) in std::mem::take(&mut self.cached) {
            let lands = |version: &Write| match mood {
                // A disk that works in order, and one that tears each write somewhere.
                0 => version.number <= latest,
                1 | 2 => {
                    let len = version.sectors.end - version.sectors.start;
                    let kept = Random::new(salt, version.number).within(0..2 * len + 1);
                    // Half of the writes land in whole.
                    kept > len || sector - version.sectors.start < kept
                }
                3 => false,
                4 => Random::new(salt, sector ^ version.number << 40).percent(50),
                _ => Random::new(salt, version.number).percent(50),
            };
            let survivor = versions.iter().rev().find(|version| lands(version));
            let newest = versions.last().map(|version| version.number);
            loss.at_stake += 1;
            loss.lost += u64::from(survivor.map(|version| version.number) != newest);
            if let Some(version) = survivor {
                self.wait_until_idle(sector, version.of_sector(sector).unwrap_or(&ZEROS));
            }
        }
        loss
    }
}

const ZEROS: [u8; SECTOR as usize] = [0; SECTOR as usize];

/// The page of a sector, and the offset in it.
fn place(sector: u64) -> (u64, usize) {
    let at = sector * SECTOR;
    (at / PAGE, (at % PAGE) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(medium: &mut Medium, value: u8) -> Arc<Write> {
        medium.write(0, SECTOR, vec![value; SECTOR as usize])
    }

    fn first(medium: &Medium) -> u8 {
        medium.read(0, SECTOR)[0]
    }

    /// The possible content of the first sector after a cut.
    fn survivors(make: impl Fn() -> Medium) -> Vec<u8> {
        let mut seen: Vec<u8> = (0..400)
            .map(|seed| {
                let mut medium = make();
                medium.cut(&mut Random::new(seed, 0));
                first(&medium)
            })
            .collect();
        seen.sort_unstable();
        seen.dedup();
        seen
    }

    #[test]
    fn unflushed_sectors_hold_any_version_after_a_cut() {
        let make = || {
            let mut medium = Medium::new(1 << 16);
            let writes = [1, 2, 3].map(|value| put(&mut medium, value));
            medium.complete(&writes[0], false);
            let moment = medium.moment();
            medium.complete(&writes[1], false);
            medium.flush(moment);
            assert_eq!(first(&medium), 3);
            medium
        };
        assert_eq!(survivors(make), [1, 2, 3], "the first was completed before the flush");
    }

    #[test]
    fn a_flush_covers_completed_writes_only() {
        let make = || {
            let mut medium = Medium::new(1 << 16);
            let write = put(&mut medium, 1);
            let moment = medium.moment();
            medium.complete(&write, false);
            medium.flush(moment);
            medium
        };
        assert_eq!(survivors(make), [0, 1]);
    }

    #[test]
    fn fua_is_durable_and_supersedes_earlier_writes() {
        let make = || {
            let mut medium = Medium::new(1 << 16);
            put(&mut medium, 1);
            let write = put(&mut medium, 2);
            medium.complete(&write, true);
            medium
        };
        assert_eq!(survivors(make), [2]);
    }
}
