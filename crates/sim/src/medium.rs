//! The bytes of a simulated disk: their current content, and the possible content after a power
//! cut.
//!
//! ```text
//!    durable ──▶ version ──▶ version ──▶ … ──▶ newest      of each 512-byte sector
//!       ▲           (writes since the last flush)
//!       └── a flush moves this up to where it was submitted
//! ```
//!
//! After a power cut each sector independently holds the durable version or a later one: a disk
//! promises no order among unflushed writes, and only sectors are atomic. Owns no faults: damage is
//! applied above the medium, in `disk.rs`, so that it can be lifted.

use crate::cut::{Cut, Kept};
use crate::mark::Part;

mod image;

use image::{Image, Spare, pages};

/// The unit that is never torn.
pub const SECTOR: u64 = 512;
const PAGE: u64 = 4096;

/// The initial content of a disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fill {
    /// Zeros, and it says so.
    Zeros,
    /// Remains of its last owner: noise grown from this number.
    Noise(u64),
}

/// A change that a power cut may take back.
struct Version {
    offset: u64,
    len: u64,
    /// The place of its bytes in the store; `None`: zeros.
    kept: Option<usize>,
    /// It went through the cache: no older version may survive it.
    durable: bool,
}

/// The content of a write.
pub enum Change<'a> {
    /// Puts these bytes.
    Bytes(&'a [u8]),
    /// Writes this many zeros.
    Zeros(u64),
}

/// The bytes of one disk.
pub struct Medium {
    newest: Image,
    /// Without a volatile cache there is only the newest.
    durable: Option<Image>,
    since: Vec<Version>,
    /// The bytes of these versions; let go of when there is none.
    kept: Vec<u8>,
    /// Pages with bytes that are read still, and that no flush will make durable any more.
    doomed: Vec<usize>,
    spare: Spare,
}

impl Version {
    /// The surviving runs of bytes of this write.
    fn survive(&self, kept: Kept, cut: &mut Cut, mut add_run: impl FnMut(u64, u64)) {
        let (start, len) = (self.offset, self.len);
        match kept {
            Kept::Nothing => {}
            Kept::All => add_run(start, len),
            Kept::First(sectors) => add_run(start, sectors * SECTOR),
            Kept::Last(sectors) => add_run(start + len - sectors * SECTOR, sectors * SECTOR),
            Kept::Mixed => {
                for (_, within, done) in pages(start, len) {
                    let (at, end) = (start + done as u64, start + (done + within.len()) as u64);
                    match cut.page() {
                        Some(true) => add_run(at, end - at),
                        Some(false) => {}
                        None => (at..end)
                            .step_by(SECTOR as usize)
                            .filter(|_| cut.sector())
                            .for_each(|sector| add_run(sector, SECTOR)),
                    }
                }
            }
        }
    }

    /// Puts a part of this write into an image.
    fn apply(&self, image: &mut Image, (at, len): (u64, u64), kept: &[u8], spare: &mut Spare) {
        match self.kept {
            Some(_) => image.write(at, &kept[self.place(at)..][..len as usize], spare),
            None => image.zero(at, len, spare),
        }
    }

    /// Where the bytes from this offset on are kept; only of a write that is not zeros.
    fn place(&self, at: u64) -> usize {
        self.kept.unwrap_or_default() + (at - self.offset) as usize
    }
}

impl Medium {
    /// `bytes` of `fill`; with a cache that a power cut empties if `volatile`.
    pub fn new(fill: Fill, bytes: u64, volatile: bool) -> Medium {
        let newest = Image::new(fill, bytes);
        let durable = volatile.then(|| newest.clone());
        let (since, kept, doomed) = (Vec::new(), Vec::new(), Vec::new());
        Medium { newest, durable, since, kept, doomed, spare: Spare::default() }
    }

    /// The content of a read.
    pub fn read(&mut self, offset: u64, into: &mut [u8]) {
        self.newest.read(offset, into, &mut self.spare);
    }

    /// Writes; past the cache if `fua`.
    pub fn write(&mut self, offset: u64, bytes: &[u8], fua: bool) {
        self.newest.write(offset, bytes, &mut self.spare);
        self.remember(offset, Change::Bytes(bytes), fua);
    }

    /// Zeroes, and gives whole pages back.
    pub fn zero(&mut self, offset: u64, len: u64, fua: bool) {
        self.newest.zero(offset, len, &mut self.spare);
        self.remember(offset, Change::Zeros(len), fua);
    }

    fn remember(&mut self, offset: u64, change: Change, durable: bool) {
        if self.durable.is_some() {
            self.add(offset, change, durable);
        }
    }

    fn add(&mut self, offset: u64, change: Change, durable: bool) {
        if self.since.is_empty() {
            self.kept.clear();
        }
        let (len, kept) = match change {
            Change::Bytes(bytes) => {
                let place = self.kept.len();
                self.kept.extend_from_slice(bytes);
                (bytes.len() as u64, Some(place))
            }
            Change::Zeros(len) => (len, None),
        };
        self.since.push(Version { offset, len, kept, durable });
    }

    /// The number of versions since the last flush: a flush submitted now will cover them.
    pub fn versions(&self) -> usize {
        self.since.len()
    }

    /// The first `count` versions are durable from here on. Returns how many it took off the list.
    pub fn flush(&mut self, count: usize) -> usize {
        let Some(durable) = &mut self.durable else { return 0 };
        let count = count.min(self.since.len());
        let all = count == self.since.len();
        for version in self.since.drain(..count) {
            for (page, within, done) in pages(version.offset, version.len) {
                // With every version durable a page is as it is read, except for lost versions.
                if all && !self.doomed.contains(&page) {
                    durable.share(page, &self.newest, &mut self.spare);
                } else {
                    let part = (version.offset + done as u64, within.len() as u64);
                    version.apply(durable, part, &self.kept, &mut self.spare);
                }
            }
        }
        count
    }

    /// A flush fails: some of its versions become durable, and some never will, though reads still
    /// return them (as on Linux: the pages stay, and count as clean).
    pub fn fail_flush(&mut self, cut: &mut Cut) {
        let Some(durable) = &mut self.durable else { return };
        for version in self.since.drain(..) {
            let kept = if version.durable { Kept::All } else { Kept::Mixed };
            let mut survivors = Vec::new();
            version.survive(kept, cut, |at, len| survivors.push((at, len)));
            for part in survivors {
                version.apply(durable, part, &self.kept, &mut self.spare);
            }
            self.doomed.extend(pages(version.offset, version.len).map(|(page, ..)| page));
        }
    }

    /// The versions lost by a failed flush become durable after all.
    pub fn keep_unflushed(&mut self) {
        let Some(durable) = &mut self.durable else { return };
        for page in self.doomed.drain(..) {
            durable.share(page, &self.newest, &mut self.spare);
        }
    }

    /// A write in flight when its host dies: the crash may choose it.
    pub fn leave(&mut self, offset: u64, change: Change) {
        self.add(offset, change, false);
    }

    /// The writes that a crash chooses from, in order, and whether they bypassed the cache.
    pub fn pending(&self) -> impl Iterator<Item = (std::ops::Range<u64>, bool)> + '_ {
        let range = |version: &Version| version.offset..version.offset + version.len;
        self.since.iter().map(move |version| (range(version), version.durable))
    }

    /// The host dies. With a power cut each sector keeps its durable version, or any later one;
    /// without, the cache's content before the last `under_way` writes remains.
    pub fn crash(
        &mut self,
        power: bool,
        under_way: usize,
        cut: &mut Cut,
        part: impl Fn(u64) -> Part,
    ) {
        let resolved = self.since.len() - under_way;
        let from = if power || self.durable.is_none() { 0 } else { resolved };
        let count = self.since.len() - from;
        let chosen: Vec<Version> = self.since.drain(from..).collect();
        let mut survivors = Vec::new();
        for (index, version) in chosen.iter().enumerate() {
            let kept = match version.durable {
                true => Kept::All,
                false => cut.keep(index, count, version.len / SECTOR, part(version.offset)),
            };
            version.survive(kept, cut, |at, len| survivors.push((index, at, len)));
        }
        if power && let Some(durable) = &mut self.durable {
            for &(index, at, len) in &survivors {
                chosen[index].apply(durable, (at, len), &self.kept, &mut self.spare);
            }
            for page in self.doomed.drain(..) {
                self.newest.share(page, durable, &mut self.spare);
            }
            for version in &chosen {
                for (page, ..) in pages(version.offset, version.len) {
                    self.newest.share(page, durable, &mut self.spare);
                }
            }
            return;
        }
        for (index, at, len) in survivors {
            chosen[index].apply(&mut self.newest, (at, len), &self.kept, &mut self.spare);
            if self.durable.is_some() {
                let kept = chosen[index].kept.map(|_| chosen[index].place(at));
                self.since.push(Version { offset: at, len, kept, durable: false });
            }
        }
    }

    /// How many pages that are holes this range touches.
    pub fn holes(&self, offset: u64, len: u64) -> u64 {
        let holes = pages(offset, len).filter(|(page, ..)| self.newest.is_hole(*page));
        holes.count() as u64
    }

    /// The runs of a range that are stored (true) or are holes (false).
    pub fn runs(&self, offset: u64, len: u64) -> Vec<(u64, bool)> {
        let mut runs: Vec<(u64, bool)> = Vec::new();
        for (page, within, _) in pages(offset, len) {
            let stored = !self.newest.is_hole(page);
            match runs.last_mut() {
                Some(last) if last.1 == stored => last.0 += within.len() as u64,
                _ => runs.push((within.len() as u64, stored)),
            }
        }
        runs
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cut::Mode;
    use random::Rng;

    fn cut(medium: &mut Medium, seed: u64) {
        let mut cut = Cut::new(Mode::Subset, false, Rng::stream(seed, "cut", 0));
        medium.crash(true, 0, &mut cut, |_| Part::Data);
    }

    fn sector(medium: &mut Medium, at: u64) -> u8 {
        let mut bytes = [0; SECTOR as usize];
        medium.read(at, &mut bytes);
        assert!(bytes.iter().all(|&byte| byte == bytes[0]), "a torn sector");
        bytes[0]
    }

    /// Every version since the last flush survives some cut, and none from before it.
    #[test]
    fn a_cut_leaves_any_version_since_the_last_flush() {
        let mut seen = std::collections::BTreeSet::new();
        for seed in 0..100 {
            let mut medium = Medium::new(Fill::Zeros, 8192, true);
            medium.write(0, &[1; 1024], false);
            medium.flush(medium.versions());
            medium.write(0, &[2; 1024], false);
            let covered = medium.versions();
            medium.write(0, &[3; 512], false);
            assert_eq!(sector(&mut medium, 0), 3);
            cut(&mut medium, seed);
            seen.insert((sector(&mut medium, 0), sector(&mut medium, 512)));
            assert_eq!(covered, 1);
        }
        let all = [(1, 1), (1, 2), (2, 1), (2, 2), (3, 1), (3, 2)];
        assert_eq!(seen.into_iter().collect::<Vec<_>>(), all);
    }

    #[test]
    fn writes_past_the_cache_survive() {
        for seed in 0..50 {
            let mut medium = Medium::new(Fill::Zeros, 4096, true);
            medium.write(0, &[1; 512], false);
            medium.write(0, &[2; 512], true);
            medium.write(0, &[3; 512], false);
            cut(&mut medium, seed);
            assert!(matches!(sector(&mut medium, 0), 2 | 3));
        }
    }

    #[test]
    fn a_flush_covers_earlier_writes_only() {
        let mut medium = Medium::new(Fill::Zeros, 4096, true);
        medium.write(0, &[1; 512], false);
        let covered = medium.versions();
        medium.write(512, &[2; 512], false);
        assert_eq!(medium.flush(covered), 1);
        let mut lost = 0;
        for seed in 0..50 {
            let mut copy = Medium::new(Fill::Zeros, 4096, true);
            copy.write(0, &[1; 512], true);
            copy.write(512, &[2; 512], false);
            cut(&mut copy, seed);
            assert_eq!(sector(&mut copy, 0), 1);
            lost += u32::from(sector(&mut copy, 512) == 0);
        }
        assert!((10..40).contains(&lost));
        assert_eq!(medium.versions(), 1);
    }

    #[test]
    fn noise_is_there_until_it_is_zeroed() {
        let mut medium = Medium::new(Fill::Noise(7), 8192, false);
        let (mut a, mut b) = ([0; 4096], [0; 4096]);
        medium.read(0, &mut a);
        medium.read(4096, &mut b);
        assert_ne!(a, b);
        medium.zero(0, 4096, false);
        medium.read(0, &mut a);
        assert_eq!(a, [0; 4096]);
        assert_eq!(medium.runs(0, 8192), [(4096, false), (4096, true)]);
        medium.write(512, &[1; 512], false);
        assert_eq!(sector(&mut medium, 0), 0);
    }
}
