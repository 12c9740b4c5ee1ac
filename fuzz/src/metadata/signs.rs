//! Signatures of other formats, anywhere on a disk.
//!
//! Promise checked: a wiped signature is not found again, and wiping changes nothing beyond the
//! disk.

use layout::md::probe;

use crate::choice::Choices;
use crate::{Target, Trail, as_it_is};

/// The probe for foreign signatures.
pub const FOREIGN: Target = Target {
    name: "foreign",
    what: "signatures of other formats: found, wiped, not found again",
    body: foreign,
    seeds,
    mend: as_it_is,
    words: &[],
    memory_bytes: 4 << 20,
    most_bytes: 512,
};

/// Sizes of disks, including very small ones.
const SIZES: [u64; 8] =
    [0, 512, 65 << 10, 1 << 20, (1 << 20) + 512, 64 << 20, 1 << 40, u64::MAX - 511];

/// A disk of zeros with a few bytes in it.
struct Sparse {
    bytes: u64,
    written: Vec<(u64, Vec<u8>)>,
}

impl Sparse {
    fn write(&mut self, offset: u64, bytes: &[u8]) {
        if offset.checked_add(bytes.len() as u64).is_some_and(|end| end <= self.bytes) {
            self.written.push((offset, bytes.to_vec()));
        }
    }

    fn read(&self, offset: u64, length: usize) -> Option<Vec<u8>> {
        let end = offset.checked_add(length as u64).filter(|&end| end <= self.bytes)?;
        let mut found = vec![0; length];
        for (start, bytes) in &self.written {
            let stop = start + bytes.len() as u64;
            let (from, to) = ((*start).max(offset), stop.min(end));
            if from < to {
                let part = &bytes[(from - start) as usize..(to - start) as usize];
                found[(from - offset) as usize..(to - offset) as usize].copy_from_slice(part);
            }
        }
        Some(found)
    }

    fn signatures(&self) -> Vec<layout::md::Signature> {
        probe(|offset, length| self.read(offset, length), self.bytes)
    }
}

/// A size; then pairs of a probe and where its magic goes (or any bytes, anywhere).
fn foreign(bytes: &[u8]) -> Trail {
    let mut trail = Trail::new();
    let mut choices = Choices::new(bytes);
    let mut disk = Sparse { bytes: choices.pick(&SIZES), written: Vec::new() };
    for _ in 0..16 {
        if choices.is_over() {
            break;
        }
        let probes = layout::md::foreign::PROBES;
        let sign = probes[choices.below(probes.len())];
        let offset = match choices.below(4) {
            0 => choices.word() % disk.bytes.max(1),
            _ => sign.place.offset(disk.bytes).unwrap_or(0),
        };
        disk.write(offset, sign.bytes);
        if choices.flag() {
            let extra = [choices.byte(), choices.byte()];
            disk.write(offset.saturating_add(u64::from(choices.byte())), &extra);
        }
    }
    for part in layout::md::partitions(|offset, length| disk.read(offset, length), disk.bytes) {
        let range = part.range;
        assert!(range.start < range.end && range.end <= disk.bytes, "{range:?}");
    }
    let found = disk.signatures();
    for signature in &found {
        trail.note(signature.name);
        let wipe = signature.wipe();
        assert!(wipe.start < wipe.end && wipe.end <= disk.bytes, "{signature:?}");
    }
    for signature in &found {
        let wipe = signature.wipe();
        disk.write(wipe.start, &vec![0; (wipe.end - wipe.start) as usize]);
    }
    let left = disk.signatures();
    assert!(left.iter().all(|sign| !found.contains(sign)), "wiped and found again: {left:?}");
    trail
}

fn seeds() -> Vec<Vec<u8>> {
    let all = layout::md::foreign::PROBES.len() as u8;
    (0..all).step_by(7).map(|sign| vec![5, sign, 1, 0, sign + 1, 1, 0]).collect()
}
