//! The result of a resync is durable before its bits in the write-intent bitmap are cleared.

use std::time::Duration;

use array::Array;
use io::Disk;
use layout::private::Consistency;
use layout::{Layout, Level};
use metadata::assemble::Options;
use metadata::create::{BitmapChunk, NewArray};

use crate::world::{Fault, World, map_of, pattern};

const REGION: u32 = 64 << 10;
const REGIONS: u64 = 12;

fn world(level: Level, members: usize) -> World {
    let mut world = World::new(members, 8 << 20);
    let layout = Layout::default_for(level, members);
    let (chunk, consistency) = match level {
        Level::Raid1 => (0, None),
        _ => (16 << 10, Some(Consistency::Bitmap)),
    };
    let new = NewArray {
        zeroed: true,
        checksums: Some(false),
        bitmap: Some(BitmapChunk::Bytes(REGION)),
        consistency,
        ..NewArray::new("tank", layout, chunk)
    };
    world.create(&new);
    world.disks.iter().for_each(|disk| disk.volatile.set(true));
    world.host.bounds.job_units = 1;
    world
}

/// A client releases a region just when the resync after a crash covers it: the flush for the
/// region began before the resync wrote there.
#[test]
fn a_bit_is_not_cleared_for_unflushed_writes_of_a_resync() {
    for (level, members) in [(Level::Raid1, 2), (Level::Raid5, 3)] {
        let world = world(level, members);
        let array = world.start();
        let region = u64::from(REGION) * (members as u64 - 1);
        let cut = region * (REGIONS - 2);
        for at in 0..REGIONS {
            world
                .write(&array, at * region, &pattern(at, region as usize, 1))
                .expect("the array is healthy");
        }
        world.flush(&array);
        let last = members - 1;
        world.disks.iter().skip(1).for_each(|disk| disk.break_with(Fault::HungWrites));
        drop(world.begin(&array, cut, &[7; 4096]));
        assert!(world.disks[last].is_holding() > 0, "{level}: cut");
        world.crash(array);

        let array = world.start();
        assert!(array.status().unsynced_bytes >= REGIONS * region, "{level}");
        array.set_speed(1, 1);
        world.write(&array, cut + region / 2, &[8; 4096]).expect("the array is healthy");
        world.sleep(&array, Duration::from_secs(1));
        let flushes = world.disks[last].flushes.get();
        world.disks.iter().for_each(|disk| disk.flush_delay.set(Duration::from_millis(500)));
        while world.disks[last].flushes.get() == flushes {
            world.sleep(&array, Duration::from_millis(1));
        }
        // The flush is in flight.
        array.set_speed(1000 * region, 1000 * region);
        while array.status().unsynced_bytes > region {
            world.sleep(&array, Duration::from_micros(100));
        }
        array.set_speed(1, 1);
        assert!(array.status().unsynced_bytes > 0, "{level}: it is not at the end");
        world.sleep(&array, Duration::from_secs(1));
        world.cut(array);
        world.disks.iter().for_each(|disk| disk.flush_delay.set(Duration::ZERO));

        let array = world.start();
        world.until(&array, |status| status.unsynced_bytes == 0 && status.job.is_none());
        array.scrub(false).expect("no other task runs");
        world.until(&array, |status| status.last_scrub.is_some());
        let report = array.status().last_scrub.expect("a scrub has ended").report;
        assert_eq!(report.mismatches, 0, "{level}: {:?}", report.findings);
    }
}

/// The user passes --force-dirty-degraded for a mirror without a missing member.
#[test]
fn data_read_from_a_mirror_after_a_crash_stays_even_if_forced() {
    for force in [false, true] {
        let world = World::new(2, 8 << 20);
        let layout = Layout::default_for(Level::Raid1, 2);
        world.create(&NewArray {
            zeroed: true,
            checksums: Some(false),
            ..NewArray::new("tank", layout, 0)
        });
        let array = world.start();
        let at = array.limits().bytes - (64 << 10);
        world.write(&array, at, &pattern(at, 4096, 1)).expect("the array is healthy");
        world.flush(&array);
        world.disks[1].break_with(Fault::HungFrom(map_of(&world.disks[1]).data.start));
        drop(world.begin(&array, at, &pattern(at, 4096, 2)));
        world.crash(array);
        let options = Options { force_dirty_degraded: force, ..Options::default() };
        let assembly = world.assemble(0..2, &options).expect("all members are present");
        let array = Array::start(assembly, &world.host);
        array.set_speed(1, 1);
        let first = world.read(&array, at, 4096).expect("the read succeeds");
        world.disks[0].break_with(Fault::Gone);
        let second = world.read(&array, at, 4096).expect("the read succeeds");
        assert!(first == second, "force {force}: what was read has changed");
    }
}

/// A new mirror that was never synced, and a bad sector.
#[test]
fn unwritten_blocks_stay_beside_a_bad_sector() {
    let world = World::new(2, 8 << 20);
    world.disks[0].disk.poke(0, &vec![0xaa; 8 << 20]);
    world.disks[1].disk.poke(0, &vec![0xbb; 8 << 20]);
    let layout = Layout::default_for(Level::Raid1, 2);
    world.create(&NewArray {
        zeroed: false,
        checksums: Some(false),
        ..NewArray::new("tank", layout, 0)
    });
    let array = world.start();
    array.set_speed(1, 1);
    let at = array.limits().bytes - (64 << 10);
    let offset = map_of(&world.disks[0]).data.start + at + 1024;
    world.disks[0].break_with(Fault::Unreadable { offset, len: 512 });
    let first = world.read(&array, at, 512).expect("the read succeeds");
    world.sleep(&array, Duration::from_millis(1));
    array.set_speed(u64::MAX, u64::MAX);
    world.until(&array, |status| status.unsynced_bytes == 0);
    let second = world.read(&array, at, 512).expect("the read succeeds");
    assert!(first == second, "an unwritten block has changed");
}
