//! The space in which md counts synchronization: offsets of a member where every member holds a
//! share of each stripe (parity levels and RAID 1), array offsets on RAID 10.
//!
//! Resync offsets and the bits of the write-intent bitmap are in sync space; the engine itself
//! thinks in array space.

use core::ops::Range;

use crate::{Family, Geometry, Layout};

/// Bytes of sync space.
pub fn sync_bytes(geometry: &Geometry) -> u64 {
    match geometry.family() {
        Family::Parity => geometry.stripes() * geometry.chunk_bytes(),
        Family::Mirror | Family::Plain => geometry.capacity(),
    }
}

/// Each member's bytes for this many bytes of the array, parity and copies included; on linear
/// arrays, those of the one member concerned.
pub fn member_share(geometry: &Geometry, array_bytes: u64) -> u64 {
    let part = |of: u64, whole: u64| {
        (u128::from(array_bytes) * u128::from(of) / u128::from(whole.max(1))) as u64
    };
    match (geometry.family(), geometry.layout()) {
        (Family::Parity, _) => part(geometry.chunk_bytes(), geometry.stripe_bytes()),
        (_, Layout::Linear) => array_bytes,
        _ => part(geometry.places(0).count() as u64, geometry.slots() as u64),
    }
}

/// The sync range that covers an array range.
pub fn sync_range(geometry: &Geometry, array: Range<u64>) -> Range<u64> {
    assert!(array.start < array.end, "an empty range has no place: {array:?}");
    assert!(array.end <= geometry.capacity(), "no bit covers {array:?}, beyond the array");
    if geometry.family() != Family::Parity {
        return array;
    }
    let chunk = geometry.chunk_bytes();
    let (first, index, start) = geometry.stripe_of(array.start);
    let (last, last_index, end) = geometry.stripe_of(array.end - 1);
    if first == last && index == last_index {
        return first.0 * chunk + start..first.0 * chunk + end + 1;
    }
    first.0 * chunk..(last.0 + 1) * chunk
}

/// The array range that covers a sync range, cut to the array.
pub fn array_range(geometry: &Geometry, sync: Range<u64>) -> Range<u64> {
    let end = geometry.capacity();
    if geometry.family() != Family::Parity {
        return sync.start.min(end)..sync.end.min(end);
    }
    let (chunk, stripe) = (geometry.chunk_bytes(), geometry.stripe_bytes());
    let first = (sync.start / chunk).saturating_mul(stripe).min(end);
    first..sync.end.div_ceil(chunk).saturating_mul(stripe).min(end)
}

/// Converts a recovery offset in array space to md's `recovery_offset`: the slot is in sync
/// everywhere below it.
pub fn recovery_offset(geometry: &Geometry, array_offset: u64) -> u64 {
    let offset = member_offset(geometry, array_offset);
    let claimed = recovered_below(geometry, offset);
    assert!(claimed <= array_offset, "recovered below {array_offset}, recorded as {claimed}");
    offset
}

fn member_offset(geometry: &Geometry, array_offset: u64) -> u64 {
    match geometry.family() {
        Family::Parity => array_offset / geometry.stripe_bytes() * geometry.chunk_bytes(),
        Family::Mirror | Family::Plain => match geometry.layout() {
            Layout::Raid1 => array_offset,
            // Copies of one stretch of the array lie far apart: only none or all can be said.
            Layout::Raid10 { far, .. } if far > 1 => 0,
            _ => {
                let stripe = geometry.stripe_bytes();
                let places = geometry.places(0).count() as u64;
                array_offset / stripe * (stripe * places / geometry.slots() as u64)
            }
        },
    }
}

/// The inverse of [`recovery_offset`]: up to which array offset a slot with this `recovery_offset`
/// can be relied on.
pub fn recovered_below(geometry: &Geometry, recovery_offset: u64) -> u64 {
    let end = geometry.capacity();
    let offset = match geometry.family() {
        Family::Parity => {
            let stripes = recovery_offset / geometry.chunk_bytes();
            stripes.saturating_mul(geometry.stripe_bytes())
        }
        Family::Mirror | Family::Plain => match geometry.layout() {
            Layout::Raid1 => recovery_offset,
            Layout::Raid10 { far, .. } if far > 1 => 0,
            _ => {
                let stripe = geometry.stripe_bytes();
                let places = geometry.places(0).count() as u64;
                let share = stripe * places / geometry.slots() as u64;
                (recovery_offset / share).saturating_mul(stripe)
            }
        },
    };
    offset.min(end)
}
