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

use crate::cut::{Cut, Kept};
use crate::mark::Part;
use crate::rng::mix;

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

/// What a write does.
pub enum Change {
    /// Puts these bytes.
    Bytes(Box<[u8]>),
    /// Puts so many zeros.
    Zeros(u64),
}

/// The bytes of one disk.
pub struct Medium {
    newest: Image,
    /// Without a volatile cache there is only the newest.
    durable: Option<Image>,
    since: Vec<Version>,
    /// Pages with bytes that are read still, and that no flush will make durable any more.
    doomed: Vec<usize>,
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
    fill.copy(page, 0, &mut *bytes);
    bytes
}

impl Fill {
    /// The bytes of a page from `start` on, as they are before anything was written. Each word of
    /// noise is grown by itself, so that part of a page costs only that part.
    fn copy(self, page: usize, start: usize, into: &mut [u8]) {
        let Fill::Noise(seed) = self else { return into.fill(0) };
        debug_assert!((start | into.len()).is_multiple_of(8), "sectors");
        let first = mix(seed ^ page as u64).wrapping_add(start as u64 / 8);
        for (at, eight) in into.chunks_exact_mut(8).enumerate() {
            eight.copy_from_slice(&mix(first.wrapping_add(at as u64)).to_le_bytes());
        }
    }
}

impl Image {
    fn new(fill: Fill, bytes: u64) -> Image {
        Image { fill, pages: vec![Page::Untouched; bytes.div_ceil(PAGE) as usize] }
    }

    fn read(&self, offset: u64, into: &mut [u8]) {
        for (page, within, done) in pages(offset, into.len() as u64) {
            let part = &mut into[done..done + within.len()];
            match &self.pages[page] {
                Page::Bytes(bytes) => part.copy_from_slice(&bytes[within]),
                Page::Untouched => self.fill.copy(page, within.start, part),
                Page::Hole => part.fill(0),
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

    /// Tells the runs of bytes of this write that survive.
    fn survive(&self, kept: Kept, cut: &mut Cut, mut tell: impl FnMut(u64, u64)) {
        let (start, len) = (self.offset, self.len());
        match kept {
            Kept::Nothing => {}
            Kept::All => tell(start, len),
            Kept::First(sectors) => tell(start, sectors * SECTOR),
            Kept::Last(sectors) => tell(start + len - sectors * SECTOR, sectors * SECTOR),
            Kept::Mixed => {
                for (_, within, done) in pages(start, len) {
                    let (at, end) = (start + done as u64, start + (done + within.len()) as u64);
                    match cut.page() {
                        Some(true) => tell(at, end - at),
                        Some(false) => {}
                        None => (at..end)
                            .step_by(SECTOR as usize)
                            .filter(|_| cut.sector())
                            .for_each(|sector| tell(sector, SECTOR)),
                    }
                }
            }
        }
    }

    /// Puts a part of this write into an image.
    fn apply_part(&self, image: &mut Image, at: u64, len: u64) {
        match &self.change {
            Change::Bytes(bytes) => {
                let start = (at - self.offset) as usize;
                image.write(at, &bytes[start..start + len as usize]);
            }
            Change::Zeros(_) => image.zero(at, len),
        }
    }

    fn part(&self, at: u64, len: u64) -> Change {
        match &self.change {
            Change::Bytes(bytes) => {
                let start = (at - self.offset) as usize;
                Change::Bytes(bytes[start..start + len as usize].into())
            }
            Change::Zeros(_) => Change::Zeros(len),
        }
    }
}

impl Medium {
    /// `bytes` of `fill`; with a cache that a power cut empties if `volatile`.
    pub fn new(fill: Fill, bytes: u64, volatile: bool) -> Medium {
        let newest = Image::new(fill, bytes);
        let durable = volatile.then(|| newest.clone());
        Medium { newest, durable, since: Vec::new(), doomed: Vec::new() }
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

    /// A flush fails: of what it should have made durable some is, and some never will be, though
    /// it is read as before (as Linux does it: the pages stay, and count as clean).
    pub fn fail_flush(&mut self, cut: &mut Cut) {
        let Some(durable) = &mut self.durable else { return };
        for version in self.since.drain(..) {
            let kept = if version.durable { Kept::All } else { Kept::Mixed };
            let mut survivors = Vec::new();
            version.survive(kept, cut, |at, len| survivors.push((at, len)));
            survivors.into_iter().for_each(|(at, len)| version.apply_part(durable, at, len));
            self.doomed.extend(pages(version.offset, version.len()).map(|(page, ..)| page));
        }
    }

    /// What a failed flush has lost is made durable after all.
    pub fn redeem(&mut self) {
        let Some(durable) = &mut self.durable else { return };
        for page in self.doomed.drain(..) {
            durable.pages[page] = self.newest.pages[page].clone();
        }
    }

    /// A write that is under way when its host dies: it is among those that the crash chooses from.
    pub fn leave(&mut self, offset: u64, bytes: Change) {
        self.since.push(Version { offset, change: bytes, durable: false });
    }

    /// The writes that a crash chooses from, in order, and whether they went past the cache.
    pub fn pending(&self) -> impl Iterator<Item = (std::ops::Range<u64>, bool)> + '_ {
        let range = |version: &Version| version.offset..version.offset + version.len();
        self.since.iter().map(move |version| (range(version), version.durable))
    }

    /// The host dies. If the power is cut, of every sector the durable version survives, or any
    /// later one; if not, what was in the cache before the last `under_way` writes stays there.
    pub fn crash(
        &mut self,
        power: bool,
        under_way: usize,
        cut: &mut Cut,
        part: impl Fn(u64) -> Part,
    ) {
        let settled = self.since.len() - under_way;
        let from = if power || self.durable.is_none() { 0 } else { settled };
        let count = self.since.len() - from;
        let chosen: Vec<Version> = self.since.drain(from..).collect();
        let mut survivors = Vec::new();
        for (index, version) in chosen.iter().enumerate() {
            let kept = match version.durable {
                true => Kept::All,
                false => cut.keep(index, count, version.len() / SECTOR, part(version.offset)),
            };
            version.survive(kept, cut, |at, len| survivors.push((index, at, len)));
        }
        if power && let Some(durable) = &mut self.durable {
            for &(index, at, len) in &survivors {
                chosen[index].apply_part(durable, at, len);
            }
            for page in self.doomed.drain(..) {
                self.newest.pages[page] = durable.pages[page].clone();
            }
            for version in &chosen {
                for (page, ..) in pages(version.offset, version.len()) {
                    self.newest.pages[page] = durable.pages[page].clone();
                }
            }
            return;
        }
        for &(index, at, len) in &survivors {
            chosen[index].apply_part(&mut self.newest, at, len);
            if self.durable.is_some() {
                let (change, durable) = (chosen[index].part(at, len), false);
                self.since.push(Version { offset: at, change, durable });
            }
        }
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
    use crate::rng::Rng;

    fn cut(medium: &mut Medium, seed: u64) {
        let mut cut = Cut::new(Mode::Subset, false, Rng::stream(seed, "cut", 0));
        medium.crash(true, 0, &mut cut, |_| Part::Data);
    }

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
            cut(&mut medium, seed);
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
            cut(&mut medium, seed);
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
            cut(&mut copy, seed);
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
