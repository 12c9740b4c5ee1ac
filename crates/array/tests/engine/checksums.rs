//! Checksums: a member's block is returned as written, or repaired, or an error.
#![allow(unreachable_pub, missing_docs, reason = "shared by the files of this test")]

use std::time::Duration;

use array::{Array, Status};
use io::{Clock, Disk};
use layout::{Layout, Level};
use metadata::create::NewArray;

pub(crate) use crate::world::map_of;
use crate::world::{FaultyDisk, World, pattern};

mod crash;
mod disputed;
mod generations;
mod lifecycle;
mod pages;
mod rot;
mod torn;
mod unread;

pub(crate) const CHUNK: u64 = 16 << 10;
pub(crate) const SUPERBLOCK: u64 = 4096;
pub(crate) const BLOCK: u64 = 4096;
pub(crate) const LEN: usize = 768 << 10;

/// Every level that can have checksums, with this many members.
pub(crate) const LEVELS: [(Level, usize); 6] = [
    (Level::Raid1, 3),
    (Level::Raid10, 4),
    (Level::Raid4, 4),
    (Level::Raid5, 4),
    (Level::Raid6, 5),
    (Level::Raid35, 3),
];

pub(crate) fn world(level: Level, members: usize, zeroed: bool) -> World {
    let world = World::new(members, 8 << 20);
    let chunk = if level == Level::Raid1 { 0 } else { CHUNK };
    let layout = Layout::default_for(level, members);
    let checksums = Some(true);
    world.create(&NewArray { zeroed, checksums, ..NewArray::new("tank", layout, chunk) });
    world
}

/// An array full of a durable pattern, with all checksums written.
pub(crate) fn filled(level: Level, members: usize) -> (World, Array) {
    let world = world(level, members, true);
    let array = world.start();
    world.write(&array, 0, &pattern(0, LEN, 1)).expect("the array is healthy");
    world.flush(&array);
    (world, array)
}

/// Changes a byte of a disk.
pub(crate) fn corrupt(disk: &FaultyDisk, at: u64) {
    let mut byte = [0];
    disk.disk.peek(at, &mut byte);
    disk.disk.poke(at, &[byte[0] ^ 0x40]);
}

pub(crate) fn data_byte(disk: &FaultyDisk, at: u64) -> u8 {
    let mut byte = [0];
    disk.disk.peek(map_of(disk).data.start + at, &mut byte);
    byte[0]
}

pub(crate) fn pause(world: &World, array: &Array) {
    let until = world.clock.now() + Duration::from_secs(60);
    world.run(array, world.clock.sleep_until(until));
}

pub(crate) fn checksummed(status: &Status) -> bool {
    status.unsummed_bytes == Some(0) && status.unsynced_bytes == 0 && status.job.is_none()
}

/// True if a check finds nothing.
pub(crate) fn is_sound(world: &World, array: &Array) -> bool {
    array.scrub(false).expect("the scrub starts");
    // The previous scrub has left a result too.
    pause(world, array);
    world.until(array, |status| status.last_scrub.is_some() && status.job.is_none());
    let report = array.status().last_scrub.expect("a scrub has ended").report;
    report.mismatches == 0 && report.lost_bytes == 0
}

pub(crate) fn contents(disk: &FaultyDisk) -> Vec<u8> {
    let mut bytes = vec![0; disk.limits().bytes as usize];
    disk.disk.peek(0, &mut bytes);
    bytes
}
