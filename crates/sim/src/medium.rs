//! The bytes of a simulated disk: what a read gives now, what a power cut would leave.
//!
//! ```text
//!    durable ──▶ version ──▶ version ──▶ … ──▶ newest      of each 512-byte sector
//!       ▲           (writes since the last flush)
//!       └── a flush moves this up to where it was submitted
//! ```
//!
//! After a power cut a sector holds the durable version or any later one, each sector for itself: a
//! disk promises no order among what it has not flushed, and no more than a sector is ever whole.
//! Owns no faults: damage lies over the medium, in `disk.rs`, so that it can be lifted.

use crate::rng::{Rng, mix};

/// The unit that is never torn.
pub const SECTOR: u64 = 512;
const PAGE: u64 = 4096;

/// What a disk holds before anything was written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fill {
    /// Zeros, and it says so.
    Zeros,
    /// What its last owner left: noise grown from this number.
    Noise(u64),
}

#[derive(Clone)]
enum Page {
    /// As the fill says.
    Untouched,
    /// Given back: zeros.
    Hole,
    Bytes(Box<[u8; PAGE as usize]>),
}

/// Sparse bytes.
#[derive(Clone)]
struct Image {
    fill: Fill,
    pages: Vec<Page>,
}

/// A change that a power cut may take back.
struct Version {
    offset: u64,
    change: Change,
    /// It went through the cache: no older version may survive it.
    durable: bool,
}

enum Change {
    Bytes(Box<[u8]>),
    Zeros(u64),
}

/// The bytes of one disk.
pub struct Medium {
    newest: Image,
    /// Without a volatile cache there is only the newest.
    durable: Option<Image>,
    since: Vec<Version>,
}

/// The pages that a range touches: page number, range within the page, bytes done before it.
fn pages(offset: u64, len: u64) -> impl Iterator<Item = (usize, std::ops::Range<usize>, usize)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        (done < len).then(|| {
            let at = offset + done;
            let part = (PAGE - at % PAGE).min(len - done);
            let start = (at % PAGE) as usize;
            let item = ((at / PAGE) as usize, start..start + part as usize, done as usize);
            done += part;
            item
        })
    })
}

fn filled(fill: Fill, page: usize) -> Box<[u8; PAGE as usize]> {
    let mut bytes = Box::new([0; PAGE as usize]);
    if let Fill::Noise(seed) = fill {
        let mut word = mix(seed ^ page as u64);
        for eight in bytes.chunks_exact_mut(8) {
            word = mix(word);
            eight.copy_from_slice(&word.to_le_bytes());
        }
    }
    bytes
}

impl Image {
    fn new(fill: Fill, bytes: u64) -> Image {
        Image { fill, pages: vec![Page::Untouched; bytes.div_ceil(PAGE) as usize] }
    }

    fn read(&self, offset: u64, into: &mut [u8]) {
        for (page, within, done) in pages(offset, into.len() as u64) {
            let part = &mut into[done..done + within.len()];
            match (&self.pages[page], self.fill) {
                (Page::Bytes(bytes), _) => part.copy_from_slice(&bytes[within]),
                (Page::Untouched, Fill::Noise(_)) => {
                    part.copy_from_slice(&filled(self.fill, page)[within]);
                }
                _ => part.fill(0),
            }
        }
    }

    fn page_mut(&mut self, page: usize) -> &mut [u8; PAGE as usize] {
        let slot = &mut self.pages[page];
        if !matches!(slot, Page::Bytes(_)) {
            let fill = if matches!(slot, Page::Hole) { Fill::Zeros } else { self.fill };
            *slot = Page::Bytes(filled(fill, page));
        }
        match slot {
            Page::Bytes(bytes) => bytes,
            Page::Untouched | Page::Hole => unreachable!("made just before"),
        }
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) {
        for (page, within, done) in pages(offset, bytes.len() as u64) {
            let part = &bytes[done..done + within.len()];
            self.page_mut(page)[within].copy_from_slice(part);
        }
    }

    fn zero(&mut self, offset: u64, len: u64) {
        for (page, within, _) in pages(offset, len) {
            if within.len() as u64 == PAGE {
                self.pages[page] = Page::Hole;
            } else {
                self.page_mut(page)[within].fill(0);
            }
        }
    }

    fn apply(&mut self, version: &Version) {
        match &version.change {
            Change::Bytes(bytes) => self.write(version.offset, bytes),
            Change::Zeros(len) => self.zero(version.offset, *len),
        }
    }

    fn is_hole(&self, page: usize) -> bool {
        match self.pages[page] {
            Page::Untouched => self.fill == Fill::Zeros,
            Page::Hole => true,
            Page::Bytes(_) => false,
        }
    }
}

impl Version {
    fn len(&self) -> u64 {
        match &self.change {
            Change::Bytes(bytes) => bytes.len() as u64,
            Change::Zeros(len) => *len,
        }
    }

    fn sector(&self, at: u64, into: &mut [u8]) {
        match &self.change {
            Change::Bytes(bytes) => {
                let start = (at - self.offset) as usize;
                into.copy_from_slice(&bytes[start..start + SECTOR as usize]);
            }
            Change::Zeros(_) => into.fill(0),
        }
    }
}

impl Medium {
    /// `bytes` of `fill`; with a cache that a power cut empties if `volatile`.
    pub fn new(fill: Fill, bytes: u64, volatile: bool) -> Medium {
        let newest = Image::new(fill, bytes);
        let durable = volatile.then(|| newest.clone());
        Medium { newest, durable, since: Vec::new() }
    }

    /// What a read gives.
    pub fn read(&self, offset: u64, into: &mut [u8]) {
        self.newest.read(offset, into);
    }

    /// Writes; past the cache if `fua`.
    pub fn write(&mut self, offset: u64, bytes: &[u8], fua: bool) {
        self.newest.write(offset, bytes);
        self.remember(offset, fua, || Change::Bytes(bytes.into()));
    }

    /// Zeroes, and gives whole pages back.
    pub fn zero(&mut self, offset: u64, len: u64, fua: bool) {
        self.newest.zero(offset, len);
        self.remember(offset, fua, || Change::Zeros(len));
    }

    fn remember(&mut self, offset: u64, durable: bool, change: impl FnOnce() -> Change) {
        if self.durable.is_some() {
            self.since.push(Version { offset, change: change(), durable });
        }
    }

    /// How many versions there are since the last flush: what a flush submitted now will cover.
    pub fn versions(&self) -> usize {
        self.since.len()
    }

    /// The first `count` versions are durable from here on. Returns how many it took off the list.
    pub fn flush(&mut self, count: usize) -> usize {
        let Some(durable) = &mut self.durable else { return 0 };
        let count = count.min(self.since.len());
        for version in self.since.drain(..count) {
            durable.apply(&version);
        }
        count
    }

    /// The power is cut: of every sector the durable version survives, or any later one.
    pub fn cut(&mut self, rng: &mut Rng) {
        let Some(mut durable) = self.durable.take() else { return };
        let mut sectors: Vec<u64> = Vec::new();
        for version in &self.since {
            let end = version.offset + version.len();
            sectors.extend((version.offset..end).step_by(SECTOR as usize));
        }
        sectors.sort_unstable();
        sectors.dedup();
        let mut bytes = [0; SECTOR as usize];
        for at in sectors {
            let covers =
                |version: &&Version| version.offset <= at && at < version.offset + version.len();
            let mut versions: Vec<&Version> = self.since.iter().filter(covers).collect();
            let floor = versions.iter().rposition(|version| version.durable);
            let kept = versions.split_off(floor.unwrap_or(0));
            let choices = kept.len() as u64 + u64::from(floor.is_none());
            let choice = rng.below(choices) as usize;
            if let Some(version) = kept.get(choice) {
                version.sector(at, &mut bytes);
                durable.write(at, &bytes);
            }
        }
        self.since.clear();
        self.newest = durable.clone();
        self.durable = Some(durable);
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

    fn sector(medium: &Medium, at: u64) -> u8 {
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
            assert_eq!(sector(&medium, 0), 3);
            medium.cut(&mut Rng::stream(seed, "cut", 0));
            seen.insert((sector(&medium, 0), sector(&medium, 512)));
            assert_eq!(covered, 1);
        }
        let all = [(1, 1), (1, 2), (2, 1), (2, 2), (3, 1), (3, 2)];
        assert_eq!(seen.into_iter().collect::<Vec<_>>(), all);
    }

    #[test]
    fn what_went_past_the_cache_survives() {
        for seed in 0..50 {
            let mut medium = Medium::new(Fill::Zeros, 4096, true);
            medium.write(0, &[1; 512], false);
            medium.write(0, &[2; 512], true);
            medium.write(0, &[3; 512], false);
            medium.cut(&mut Rng::stream(seed, "cut", 0));
            assert!(matches!(sector(&medium, 0), 2 | 3));
        }
    }

    #[test]
    fn a_flush_covers_what_came_before_it_only() {
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
            copy.cut(&mut Rng::stream(seed, "cut", 0));
            assert_eq!(sector(&copy, 0), 1);
            lost += u32::from(sector(&copy, 512) == 0);
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
        assert_eq!(sector(&medium, 0), 0);
    }
}
