//! The bytes of a modelled disk: only pages that are not all zeros take memory.
//!
//! Loads of the lab write zeros. XOR, P and Q of zeros are zeros, so the members of any array hold
//! nothing but superblocks, bitmaps, logs and checksums, however large they are.

use std::collections::BTreeMap;
use std::ops::Range;

use io::{Extent, ExtentKind};

const PAGE: u64 = 4096;

type Page = Box<[u8; PAGE as usize]>;

/// Sparse bytes.
#[derive(Default)]
pub(super) struct Store {
    pages: BTreeMap<u64, Page>,
}

impl Store {
    /// How many bytes take memory.
    pub(super) fn stored(&self) -> u64 {
        self.pages.len() as u64 * PAGE
    }

    pub(super) fn read(&self, offset: u64, into: &mut [u8]) {
        into.fill(0);
        let end = offset + into.len() as u64;
        for (&page, bytes) in self.pages.range(offset / PAGE..end.div_ceil(PAGE)) {
            let (from, to) = ((page * PAGE).max(offset), ((page + 1) * PAGE).min(end));
            let within = (from % PAGE) as usize..;
            let target = &mut into[(from - offset) as usize..(to - offset) as usize];
            target.copy_from_slice(&bytes[within][..target.len()]);
        }
    }

    pub(super) fn write(&mut self, offset: u64, bytes: &[u8]) {
        for (page, within, done) in pages(offset, bytes.len() as u64) {
            let part = &bytes[done..done + within.len()];
            let zeros = is_zero(part);
            if zeros && within.len() as u64 == PAGE {
                self.pages.remove(&page);
                continue;
            }
            if !zeros {
                let new = || Box::new([0; PAGE as usize]);
                self.pages.entry(page).or_insert_with(new)[within].copy_from_slice(part);
            } else if let Some(known) = self.pages.get_mut(&page) {
                known[within].fill(0);
                if is_zero(&known[..]) {
                    self.pages.remove(&page);
                }
            }
        }
    }

    pub(super) fn zero(&mut self, offset: u64, len: u64) {
        let touched = offset / PAGE..(offset + len).div_ceil(PAGE);
        let known: Vec<u64> = self.pages.range(touched).map(|(&page, _)| page).collect();
        for page in known {
            let from = offset.saturating_sub(page * PAGE) as usize;
            let to = (offset + len - page * PAGE).min(PAGE) as usize;
            let bytes = self.pages.get_mut(&page).expect("listed just now");
            bytes[from..to].fill(0);
            if is_zero(&bytes[..]) {
                self.pages.remove(&page);
            }
        }
    }

    /// Runs of stored pages and of holes.
    pub(super) fn extents(&self, offset: u64, len: u64, found: &mut Vec<Extent>) {
        found.clear();
        let (mut at, end) = (offset, offset + len);
        let mut push = |len: u64, kind| match found.last_mut() {
            _ if len == 0 => {}
            Some(Extent { len: last, kind: same }) if *same == kind => *last += len,
            _ => found.push(Extent { len, kind }),
        };
        for &page in self.pages.range(offset / PAGE..end.div_ceil(PAGE)).map(|(page, _)| page) {
            let (from, to) = ((page * PAGE).max(offset), ((page + 1) * PAGE).min(end));
            push(from - at, ExtentKind::Hole);
            push(to - from, ExtentKind::Data);
            at = to;
        }
        push(end - at, ExtentKind::Hole);
    }
}

fn is_zero(bytes: &[u8]) -> bool {
    let (words, rest) = bytes.as_chunks::<8>();
    words.iter().all(|word| *word == [0; 8]) && rest.iter().all(|byte| *byte == 0)
}

/// The pages that a range touches: page number, range within the page, bytes done before it.
fn pages(offset: u64, len: u64) -> impl Iterator<Item = (u64, Range<usize>, usize)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        (done < len).then(|| {
            let at = offset + done;
            let part = (PAGE - at % PAGE).min(len - done);
            let start = (at % PAGE) as usize;
            let item = (at / PAGE, start..start + part as usize, done as usize);
            done += part;
            item
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_back_and_zeros_take_no_memory() {
        let mut store = Store::default();
        let mut truth = vec![0u8; 64 << 10];
        let mut rng = sim::rng::Rng::stream(1, "store", 0);
        for _ in 0..2000 {
            let offset = rng.below(100) * 512;
            let len = (rng.below(25) + 1) * 512;
            let range = offset as usize..(offset + len) as usize;
            let fill = if rng.percent(50) { 0 } else { rng.bits() as u8 };
            truth[range.clone()].fill(fill);
            match (fill, rng.percent(50)) {
                (0, true) => store.zero(offset, len),
                _ => store.write(offset, &truth[range]),
            }
            let mut seen = vec![0xa5; truth.len()];
            store.read(0, &mut seen);
            assert!(seen == truth);
            let kept = truth.chunks(4096).filter(|page| !is_zero(page)).count();
            assert_eq!(store.stored(), kept as u64 * 4096);
            let mut found = Vec::new();
            store.extents(512, 60 << 10, &mut found);
            assert_eq!(found.iter().map(|extent| extent.len).sum::<u64>(), 60 << 10);
        }
    }
}
