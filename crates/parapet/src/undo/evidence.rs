//! Identifies a disk before copies of its blocks are restored to it.
//!
//! A path can lead to another disk after a replacement or a swap of cables. So two things are
//! recorded: the kernel's identification of the disk, and checksums of untouched pages. Never
//! writes. Invariant: a disk that does not match the record is another disk, whatever its path.

use std::collections::BTreeSet;
use std::ops::Range;

use io::Pool;
use serde::{Deserialize, Serialize};

use super::{OverwriteTarget, name, read};
use crate::disks::{self, Opened};
use crate::failure::Result;

const PAGE: u64 = 4096;
/// Number of sampled pages, spread evenly over the disk.
const SPREAD: u64 = 64;

/// The record of a disk.
#[derive(Serialize, Deserialize)]
pub(crate) struct Evidence {
    /// Its path.
    pub(crate) disk: String,
    pub(crate) bytes: u64,
    /// The kernel's identification; `None` if there is none.
    pub(crate) identity: Option<String>,
    /// The ranges overwritten with zeros.
    pub(crate) overwritten: Vec<Range<u64>>,
    samples: Vec<Sample>,
}

/// An untouched page.
#[derive(Serialize, Deserialize, PartialEq, Eq)]
struct Sample {
    offset: u64,
    crc32c: u32,
}

impl Evidence {
    /// Records a disk before a write to it.
    ///
    /// # Errors
    /// If it cannot be read.
    pub(super) async fn gather(target: &OverwriteTarget<'_>) -> Result<Evidence> {
        let (opened, overwritten) = (target.opened, target.written.clone());
        let mut samples = Vec::new();
        for offset in places(opened.bytes(), &target.landmarks, &overwritten) {
            samples.push(Sample { offset, crc32c: sum(opened, offset).await? });
        }
        let identity = disks::stable_identity(&opened.path);
        Ok(Evidence { disk: name(opened), bytes: opened.bytes(), identity, overwritten, samples })
    }

    /// Returns whether this disk matches the record.
    ///
    /// # Errors
    /// If it cannot be read.
    pub(crate) async fn is_on(&self, opened: &Opened) -> Result<bool> {
        if opened.bytes() != self.bytes {
            return Ok(false);
        }
        for sample in &self.samples {
            // A manifest is an editable file, so its values may be invalid.
            let fits = sample.offset.is_multiple_of(PAGE)
                && sample.offset.checked_add(PAGE).is_some_and(|end| end <= self.bytes);
            if !fits || sum(opened, sample.offset).await? != sample.crc32c {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Returns whether the record distinguishes the disk from a blank one and from these.
    pub(crate) fn is_unlike<'a>(&self, others: impl IntoIterator<Item = &'a Evidence>) -> bool {
        let blank = parity::crc32c(0, &[0; PAGE as usize]);
        let own: Vec<&Sample> = self.samples.iter().filter(|s| s.crc32c != blank).collect();
        let differs = |other: &Evidence, own: &Sample| {
            let same_place = |sample: &&Sample| sample.offset == own.offset;
            other.samples.iter().find(same_place).is_some_and(|found| found != own)
        };
        let unlike = |other: &Evidence| {
            other.bytes != self.bytes || own.iter().any(|sample| differs(other, sample))
        };
        !own.is_empty() && others.into_iter().all(unlike)
    }
}

async fn sum(opened: &Opened, offset: u64) -> Result<u32> {
    Ok(parity::crc32c(0, &read(opened, offset, Pool::new(0).take(PAGE as usize)).await?))
}

/// Returns the pages to sample: evenly over the disk, and from each landmark on at growing
/// distances. Skips the overwritten ranges.
fn places(disk_bytes: u64, landmarks: &[u64], overwritten: &[Range<u64>]) -> BTreeSet<u64> {
    let spread = (0..SPREAD).map(|step| disk_bytes / SPREAD * step);
    let behind = landmarks.iter().flat_map(|&landmark| {
        let steps = (0..u64::BITS).map_while(|step| PAGE.checked_shl(step).filter(|&by| by > 0));
        std::iter::once(0).chain(steps).filter_map(move |by| landmark.checked_add(by))
    });
    let pages = spread.chain(behind).map(|offset| offset / PAGE * PAGE);
    let free = |&page: &u64| {
        page.checked_add(PAGE).is_some_and(|end| {
            end <= disk_bytes && overwritten.iter().all(|r| r.end <= page || end <= r.start)
        })
    };
    pages.filter(free).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn evidence(samples: &[(u64, u32)]) -> Evidence {
        let sample = |&(offset, crc32c): &(u64, u32)| Sample { offset, crc32c };
        let samples = samples.iter().map(sample).collect();
        Evidence { disk: "x".into(), bytes: 1, identity: None, overwritten: Vec::new(), samples }
    }

    #[test]
    fn pages_lie_within_the_disk_and_beside_what_is_overwritten() {
        let overwritten = [4096..8192, 12288..16384];
        let pages = places(16 << 20, &[2 << 20], &overwritten);
        assert!(pages.contains(&0) && !pages.contains(&4096), "{pages:?}");
        for page in [2 << 20, (2 << 20) + 4096, (2 << 20) + 8192, 15 << 20] {
            assert!(pages.contains(&page), "{page}");
        }
        assert!(pages.iter().all(|page| page + PAGE <= 16 << 20));
        assert!(places(1000, &[0, u64::MAX], &[]).is_empty());
    }

    #[test]
    fn nothing_but_zeros_and_what_others_have_too_tells_nobody_apart() {
        let blank = parity::crc32c(0, &[0; PAGE as usize]);
        assert!(!evidence(&[(0, blank)]).is_unlike([]));
        assert!(evidence(&[(0, blank), (8192, 5)]).is_unlike([]));
        let one = evidence(&[(0, 7), (8192, 5)]);
        assert!(one.is_unlike([&evidence(&[(0, 7), (8192, 6)])]));
        assert!(!one.is_unlike([&evidence(&[(0, 7), (8192, 5), (4096, 1)])]));
        assert!(!evidence(&[(0, blank), (8192, 5)]).is_unlike([&evidence(&[(0, 1), (8192, 5)])]));
    }
}
