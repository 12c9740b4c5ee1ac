//! The controller of R3 as a foreign box, in closed form.
//!
//! A reader waits a fixed turn-around for each request, whatever the array. A disk that serves
//! several streams reads a fixed amount of each before it seeks to the next. Mirrors give each of
//! two readers a half of their disks; with more readers the balancer loses track, and every disk
//! serves every stream. Writes are answered by the cache, at most two at a time, and leave it in
//! runs that are shorter the more writers share it.

use super::super::rack::{Level, Shape};

/// Bytes of a request: not stated, 64 KiB is taken.
const REQUEST: f64 = 65_536.0;
/// From a request to its answer, for a sequential reader, in seconds.
pub(super) const TURN_AROUND_S: f64 = 0.41e-3;
/// From a write to its answer, while the cache has room, in seconds.
pub(super) const ANSWER_S: f64 = 0.2e-3;
/// Writes that are being answered at a time.
pub(super) const ANSWERS: usize = 2;
/// What a disk reads of one stream before it seeks to another, in bytes.
pub(super) const UNIT: f64 = 1.5 * 1024.0 * 1024.0;
/// The cache, which all disks and writers share.
const CACHE: f64 = 512.0 * 1024.0 * 1024.0;
/// Rate of a Cheetah 15K.5 in its outer zone, bytes in a second.
const DISK: f64 = 125e6;
/// Its average seek and half a revolution, in seconds.
const REPOSITION_S: f64 = 5.5e-3;

/// The share of a disk's rate that is left if it seeks after so many bytes.
fn left(bytes: f64) -> f64 {
    bytes / (bytes + REPOSITION_S * DISK)
}

/// Disks that carry the data of one stream.
pub(super) fn width(shape: Shape) -> f64 {
    let disks = shape.disks as f64;
    match shape.level {
        Level::Single | Level::Raid1 => 1.0,
        Level::Raid0 => disks,
        Level::Raid5 => disks - 1.0,
        Level::Raid6 | Level::Raid50 => disks - 2.0,
        Level::Raid10 => disks / 2.0,
    }
}

/// MB/s of so many readers at this depth.
pub(super) fn reads(shape: Shape, readers: usize, depth: usize) -> f64 {
    let asked = (readers * depth) as f64 * REQUEST / TURN_AROUND_S;
    let mirrored = matches!(shape.level, Level::Raid1 | Level::Raid10);
    let disks = match (mirrored, readers) {
        (_, 1) => width(shape),
        (true, 2) => 2.0 * width(shape),
        (true, _) => 2.0 * width(shape) * left(UNIT),
        (false, _) => width(shape) * left(UNIT),
    };
    asked.min(disks * DISK) / 1e6
}

/// MB/s of so many writers at depth 1. A lost disk costs nothing: it gets no writes.
pub(super) fn writes(shape: Shape, writers: usize) -> f64 {
    let asked = writers.min(ANSWERS) as f64 * REQUEST / ANSWER_S;
    let run = CACHE / (shape.disks * writers) as f64;
    let share = if writers > 1 { left(run) } else { 1.0 };
    asked.min(width(shape) * DISK) * share / 1e6
}
