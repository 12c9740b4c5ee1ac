//! Regions that a crash has left dirty, without a log for their blocks and entries: unwritten
//! blocks are as safe there as elsewhere.

use array::Array;
use layout::private::Consistency;
use layout::{Layout, Level};
use metadata::create::NewArray;

use super::{BLOCK, CHUNK, LEN, checksummed, contents, corrupt, is_sound, map_of, pause};
use crate::world::{World, pattern};

/// Every level that works without a log, with this many members.
const LEVELS: [(Level, usize); 8] = [
    (Level::Raid1, 2),
    (Level::Raid1, 3),
    (Level::Raid10, 4),
    (Level::Raid10, 3),
    (Level::Raid4, 4),
    (Level::Raid5, 4),
    (Level::Raid6, 5),
    (Level::Raid35, 3),
];

const POLICIES: [Consistency; 2] = [Consistency::Bitmap, Consistency::Resync];

/// A full array with checksums and without a log, clean; then a block is written, and it dies.
fn dirty(level: Level, members: usize, policy: Consistency) -> World {
    let world = World::new(members, 8 << 20);
    let chunk = if level == Level::Raid1 { 0 } else { CHUNK };
    let layout = Layout::default_for(level, members);
    let (checksums, consistency) = (Some(true), Some(policy));
    let new =
        NewArray { zeroed: true, checksums, consistency, ..NewArray::new("t", layout, chunk) };
    world.create(&new);
    let array = world.start();
    world.write(&array, 0, &pattern(0, LEN, 1)).expect("the array is healthy");
    world.flush(&array);
    pause(&world, &array);
    assert!(array.status().clean);
    write_and_die(&world, array);
    world
}

/// The block that was being written when the array died.
const HOT: u64 = 40 * BLOCK;

fn write_and_die(world: &World, array: Array) {
    world.write(&array, HOT, &pattern(HOT, BLOCK as usize, 2)).expect("the array is healthy");
    world.flush(&array);
    assert!(!array.status().clean);
    drop(array);
}

fn expected() -> Vec<u8> {
    let mut right = pattern(0, LEN, 1);
    right[HOT as usize..(HOT + BLOCK) as usize].copy_from_slice(&pattern(HOT, BLOCK as usize, 2));
    right
}

#[test]
fn rot_in_a_dirty_region_never_wins_over_a_match() {
    for (policy, (level, members)) in POLICIES.into_iter().flat_map(|p| LEVELS.map(|l| (p, l))) {
        let what = format!("{level} of {members}, {policy:?}");
        let world = dirty(level, members, policy);
        let before: Vec<Vec<u8>> = world.disks.iter().map(|disk| contents(disk)).collect();
        for slot in 0..members {
            for (disk, bytes) in world.disks.iter().zip(&before) {
                disk.disk.poke(0, bytes);
            }
            let start = map_of(&world.disks[slot]).data.start;
            (0..4).for_each(|block| corrupt(&world.disks[slot], start + block * BLOCK + 77));
            let array = world.start();
            let array = match slot % 2 {
                0 => array,
                // Ranges that were not compared are torn at the next start, too.
                _ => {
                    drop(array);
                    world.start()
                }
            };
            for part in 0..LEN as u64 / BLOCK {
                let (at, len) = (part * BLOCK + 512, 1024);
                let found = world.read(&array, at, len).expect("the read succeeds");
                let right = &expected()[at as usize..][..len];
                assert!(found == right, "{what}, rot in {slot}, at {at}");
            }
            world.until(&array, checksummed);
            let found = world.read(&array, 0, LEN).expect("the read succeeds");
            assert!(found == expected(), "{what}, rot in {slot}");
            if !is_sound(&world, &array) {
                assert!(is_sound(&world, &array), "{what}: repaired by the first check");
            }
            world.run(&array, array.stop()).expect("the array is healthy");
            let data = map_of(&world.disks[slot]).data.start;
            let mut now = vec![0; 4 * BLOCK as usize];
            world.disks[slot].disk.peek(data, &mut now);
            let then = &before[slot][data as usize..][..now.len()];
            assert!(now == then, "{what}: slot {slot} holds what it held");
        }
    }
}

#[test]
fn rot_is_not_synced_over_the_good_copies_before_anybody_reads() {
    for (level, members) in LEVELS {
        let world = dirty(level, members, Consistency::Bitmap);
        let start = map_of(&world.disks[0]).data.start;
        (0..4).for_each(|block| corrupt(&world.disks[0], start + block * BLOCK + 77));
        let array = world.start();
        world.until(&array, checksummed);
        let found = world.read(&array, 0, LEN).expect("the read succeeds");
        assert!(found == expected(), "{level} of {members}");
        assert!(is_sound(&world, &array), "{level} of {members}");
    }
}

/// A write to a part of a block, or beside it in its row, does not spread the rot.
#[test]
fn a_write_in_a_dirty_region_takes_no_rot_with_it() {
    for (level, members) in LEVELS {
        for (at, len) in [(512, 512), (BLOCK, BLOCK as usize), (CHUNK, BLOCK as usize)] {
            let world = dirty(level, members, Consistency::Bitmap);
            let mut right = expected();
            corrupt(&world.disks[0], map_of(&world.disks[0]).data.start + 1033);
            corrupt(&world.disks[1], map_of(&world.disks[1]).data.start + BLOCK + 1033);
            let array = world.start();
            world.write(&array, at, &pattern(at, len, 3)).expect("the array is healthy");
            right[at as usize..][..len].copy_from_slice(&pattern(at, len, 3));
            let found = world.read(&array, 0, LEN).expect("the read succeeds");
            assert!(found == right, "{level} of {members}, at {at}");
            world.until(&array, checksummed);
            let found = world.read(&array, 0, LEN).expect("the read succeeds");
            assert!(found == right, "{level} of {members}, at {at}, synced");
        }
    }
}

/// A new member gets the matching copy, not the first one.
#[test]
fn a_rebuild_of_a_dirty_region_takes_the_copy_that_fits() {
    let world = dirty(Level::Raid1, 3, Consistency::Bitmap);
    let start = map_of(&world.disks[0]).data.start;
    corrupt(&world.disks[0], start + 77);
    let array = world.start();
    let id = array.status().slots[2].member.as_ref().expect("the slot has a member").id;
    world.run(&array, array.fail(id)).expect("two copies are left");
    let spare = crate::world::FaultyDisk::new(8 << 20);
    world
        .run(&array, array.add(std::rc::Rc::clone(&spare) as _, "spare"))
        .expect("the disk is large enough");
    world.until(&array, checksummed);
    let mut copied = vec![0; BLOCK as usize];
    spare.disk.peek(map_of(&spare).data.start, &mut copied);
    assert!(copied == pattern(0, BLOCK as usize, 1));
    assert!(is_sound(&world, &array));
}

/// Two copies match their entries and differ: the one with more writes is valid, since the other
/// may have lost one that was durable.
#[test]
fn of_two_copies_that_fit_the_newer_one_counts() {
    for behind in 0..2 {
        let world = dirty(Level::Raid1, 2, Consistency::Bitmap);
        let disk = &world.disks[behind];
        let (data, table) = {
            let map = map_of(disk);
            (
                map.data.start,
                map.private_parts().expect("the member has a private area").checksums.start,
            )
        };
        let old = [data, table].map(|at| {
            let mut bytes = vec![0; BLOCK as usize];
            disk.disk.peek(at, &mut bytes);
            (at, bytes)
        });
        let array = world.start();
        world.until(&array, checksummed);
        world.write(&array, 0, &pattern(0, BLOCK as usize, 2)).expect("the array is healthy");
        world.flush(&array);
        pause(&world, &array);
        write_and_die(&world, array);
        old.iter().for_each(|(at, bytes)| {
            disk.disk.poke(*at, &bytes[..if *at == table { 8 } else { 4096 }])
        });
        let array = world.start();
        let found = world.read(&array, 0, BLOCK as usize).expect("the array is healthy");
        assert!(found == pattern(0, BLOCK as usize, 2), "slot {behind} is behind");
        world.until(&array, checksummed);
        assert!(is_sound(&world, &array));
    }
}

/// More is lost than redundancy can recover: mismatching blocks are read as they are, and stay so.
#[test]
fn a_possible_torn_write_stays_as_it_is() {
    for (level, members) in [(Level::Raid5, 4), (Level::Raid1, 2)] {
        let world = dirty(level, members, Consistency::Bitmap);
        world.disks.iter().for_each(|disk| corrupt(disk, map_of(disk).data.start + 77));
        let array = world.start();
        let found = world.read(&array, 0, LEN).expect("a crash can leave this state");
        drop(array);
        let array = world.start();
        let again = world.read(&array, 0, LEN).expect("a crash can leave this state");
        assert!(found == again, "{level}: read once, read again");
        world.until(&array, checksummed);
        let again = world.read(&array, 0, LEN).expect("a crash can leave this state");
        assert!(found == again, "{level}: synced");
    }
}
