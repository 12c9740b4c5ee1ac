//! Rot, lost and stray writes, damaged tables.

use std::rc::Rc;
use std::time::Duration;

use array::Array;
use array::status::SlotState;
use layout::{Level, MemberId, Stripe};
use metadata::assemble::Options;

use super::{
    BLOCK, CHUNK, LEN, LEVELS, contents, corrupt, data_byte, filled, is_sound, map_of, pause,
};
use crate::world::{Fault, FaultyDisk, pattern};

#[test]
fn rot_on_any_member_is_never_read_and_is_made_good() {
    for (level, members) in LEVELS {
        for slot in 0..members {
            let (world, array) = filled(level, members);
            let disk = &world.disks[slot];
            let start = map_of(disk).data.start;
            let places = [100, 5 * BLOCK, CHUNK + 4095, 3 * CHUNK + 77];
            let before: Vec<u8> = places.iter().map(|&at| data_byte(disk, at)).collect();
            places.iter().for_each(|&at| corrupt(disk, start + at));
            // Mirrors may read another copy.
            for _ in 0..members {
                let found = world.read(&array, 0, LEN).expect("the read succeeds");
                assert!(found == pattern(0, LEN, 1), "{level} slot {slot}");
            }
            world.run(&array, array.stop()).expect("the array is healthy");
            let array = world.start();
            if !is_sound(&world, &array) {
                assert!(is_sound(&world, &array), "{level}: repaired by the first check");
            }
            let after: Vec<u8> = places.iter().map(|&at| data_byte(disk, at)).collect();
            assert_eq!(before, after, "{level} slot {slot}");
            assert!(array.status().slots.iter().all(|slot| slot.state == SlotState::InSync));
        }
    }
}

#[test]
fn a_damaged_table_costs_nothing_but_its_repair() {
    for (level, members) in LEVELS {
        let (world, array) = filled(level, members);
        world.run(&array, array.stop()).expect("the array is healthy");
        let table = map_of(&world.disks[0])
            .private_parts()
            .expect("the member has a private area")
            .checksums
            .start;
        for entry in [0, 1, 9, 20] {
            corrupt(&world.disks[0], table + entry * 8);
        }
        let array = world.start();
        for _ in 0..members {
            let found = world.read(&array, 0, LEN).expect("the data is sound");
            assert!(found == pattern(0, LEN, 1), "{level}");
        }
        let _ = is_sound(&world, &array);
        assert!(is_sound(&world, &array), "{level}");
    }
}

#[test]
fn beyond_redundancy_the_block_is_an_error_and_nothing_else_is() {
    let (world, array) = filled(Level::Raid5, 4);
    let map = array.geometry().stripe(Stripe(0));
    let (rotten, gone) = (map.data(0).index(), map.data(1));
    corrupt(&world.disks[rotten], map_of(&world.disks[rotten]).data.start + BLOCK + 5);
    let id = array.status().slots[gone.index()].member.as_ref().expect("the slot has a member").id;
    world.run(&array, array.fail(id)).expect("the level tolerates one loss");
    assert!(world.read(&array, BLOCK, BLOCK as usize).is_err(), "it is known to be wrong");
    // The missing member's block cannot be recovered without it either.
    assert!(world.read(&array, CHUNK + BLOCK, BLOCK as usize).is_err());
    for at in [0, 2 * BLOCK, CHUNK, CHUNK + 2 * BLOCK, 2 * CHUNK + BLOCK] {
        let found = world.read(&array, at, BLOCK as usize).expect("not touched by it");
        assert!(found == pattern(at, BLOCK as usize, 1), "{at}");
    }
    world.write(&array, BLOCK, &pattern(BLOCK, BLOCK as usize, 2)).expect_err("a row of two lost");
}

#[test]
fn parts_of_blocks_that_are_lost_can_be_written() {
    let (mut world, array) = filled(Level::Raid5, 4);
    let map = array.geometry().stripe(Stripe(0));
    let (torn, gone) = (map.p().index(), map.data(1).index());
    let offset = map_of(&world.disks[torn]).data.start;
    world.disks[torn].break_with(Fault::Unreadable { offset, len: 2 * BLOCK });
    let id = array.status().slots[gone].member.as_ref().expect("the slot has a member").id;
    world.run(&array, array.fail(id)).expect("the level tolerates one loss");
    let spare = FaultyDisk::new(8 << 20);
    world
        .run(&array, array.add(Rc::clone(&spare) as _, "spare"))
        .expect("the disk is large enough");
    world.until(&array, |status| status.slots[gone].state == SlotState::InSync);
    world.disks[gone] = spare;
    world.read(&array, CHUNK, 512).expect_err("the old content cannot be determined");
    // Across two blocks, both partly covered.
    let (at, len) = (CHUNK + 1024, 2 * BLOCK as usize - 2048);
    let bytes = pattern(at, len, 3);
    world.write(&array, at, &bytes).expect("written data is known");
    assert!(world.read(&array, at, len).expect("just written") == bytes);
    world.read(&array, CHUNK, 512).expect_err("still");
}

/// More has rotted than redundancy can recover. A write to a part of the block makes no other part
/// readable, neither now nor later.
#[test]
fn a_write_of_a_part_of_a_lost_block_leaves_the_rest_lost() {
    for (level, members) in [(Level::Raid1, 2)].into_iter().chain(LEVELS) {
        for (rotten, first) in [(members, 0), (members, 3), (members, 6)] {
            let (world, array) = filled(level, members);
            let start = |slot: usize| map_of(&world.disks[slot]).data.start;
            let rot = |slot: usize| corrupt(&world.disks[slot], start(slot) + 2222);
            (0..rotten).for_each(rot);
            let block = BLOCK as usize;
            world.read(&array, 0, block).expect_err("the losses exceed the level's tolerance");
            let (at, len) = (first * 512, 1024);
            let written = world.write(&array, at, &pattern(at, len, 3)).is_ok();
            let is_right = |array: &Array, what: &str| {
                for sector in 0..8 {
                    let found = world.read(array, sector * 512, 512);
                    let new = written && (at..at + len as u64).contains(&(sector * 512));
                    assert_eq!(found.is_ok(), new, "{level} {first}: {what}, sector {sector}");
                    let right = pattern(sector * 512, 512, 3);
                    assert!(found.is_err() || found.is_ok_and(|f| f == right), "{level} {what}");
                }
                world.read(array, 0, block).expect_err("some data is lost");
            };
            is_right(&array, "at once");
            assert!(written || level != Level::Raid1, "the rest of the array is whole");
            let _ = is_sound(&world, &array);
            is_right(&array, "after a scrub");
            world.run(&array, array.stop()).expect("the array is healthy");
            let array = world.start();
            is_right(&array, "at the next start");
            drop(array);
            let array = world.start();
            is_right(&array, "after a crash");
            let stripe = array.geometry().stripe_bytes().max(BLOCK) as usize;
            world.write(&array, 0, &pattern(0, stripe, 4)).expect("all blocks of the row");
            let found = world.read(&array, 0, stripe).expect("the block was rewritten");
            assert!(found == pattern(0, stripe, 4), "{level}");
            assert!(is_sound(&world, &array), "{level}");
        }
    }
}

/// A lost block can be written. Its rot does not enter parity, so no other block changes when its
/// member fails.
#[test]
fn a_write_of_a_part_of_a_lost_block_keeps_its_row_right() {
    for (level, members) in [(Level::Raid4, 4), (Level::Raid5, 4), (Level::Raid5, 6)] {
        let (world, array) = filled(level, members);
        let map = array.geometry().stripe(Stripe(0));
        for slot in [map.data(0), map.p()] {
            let disk = &world.disks[slot.index()];
            corrupt(disk, map_of(disk).data.start + 2222);
        }
        world.read(&array, 0, 512).expect_err("the losses exceed the level's tolerance");
        world.write(&array, 0, &pattern(0, 512, 3)).expect("the rest of the row is right");
        assert!(world.read(&array, 0, 512).expect("written") == pattern(0, 512, 3), "{level}");
        world.read(&array, 512, 512).expect_err("the old content cannot be determined");
        let id = array.status().slots[map.data(1).index()]
            .member
            .as_ref()
            .expect("the slot has a member")
            .id;
        world.run(&array, array.fail(id)).expect("the level tolerates one loss");
        let found = world.read(&array, BLOCK, LEN - BLOCK as usize).expect("parity has it");
        assert!(found == pattern(0, LEN, 1)[BLOCK as usize..], "{level}");
    }
}

#[test]
fn a_write_beside_rot_does_not_fold_it_into_parity() {
    for (level, members) in [(Level::Raid4, 4), (Level::Raid5, 6), (Level::Raid6, 8)] {
        for index in 0..2 {
            let (world, array) = filled(level, members);
            let map = array.geometry().stripe(Stripe(0));
            let rotten = map.data(index);
            let disk = &world.disks[rotten.index()];
            corrupt(disk, map_of(disk).data.start + 9);
            // A read-modify-write of the block itself, or of another of its row.
            world.write(&array, 0, &pattern(0, BLOCK as usize, 2)).expect("the array is healthy");
            let id = array.status().slots[map.data(2).index()]
                .member
                .as_ref()
                .expect("the slot has a member")
                .id;
            world.run(&array, array.fail(id)).expect("the level tolerates one loss");
            let mut right = pattern(0, LEN, 1);
            right[..BLOCK as usize].copy_from_slice(&pattern(0, BLOCK as usize, 2));
            // The rot exceeds RAID 5 now, unless the write covered it.
            let from = if index == 1 && level != Level::Raid6 { 3 * CHUNK } else { 0 };
            let found = world.read(&array, from, LEN - from as usize).expect("parity is right");
            assert!(found == right[from as usize..], "{level} {index}");
        }
    }
}

#[test]
fn a_write_that_is_lost_or_lands_elsewhere_is_noticed() {
    for (level, members) in LEVELS {
        let (world, array) = filled(level, members);
        let holder = match level {
            Level::Raid1 | Level::Raid10 => array.geometry().places(0).copy(0).slot,
            _ => array.geometry().stripe(Stripe(0)).data(0),
        };
        let disk = &world.disks[holder.index()];
        let start = map_of(disk).data.start;
        let mut old = vec![0; BLOCK as usize];
        disk.disk.peek(start, &mut old);
        world.write(&array, 0, &pattern(0, BLOCK as usize, 2)).expect("the array is healthy");
        world.run(&array, array.stop()).expect("the array is healthy");
        // The disk wrote it elsewhere, and still has the old contents here.
        let mut new = vec![0; BLOCK as usize];
        disk.disk.peek(start, &mut new);
        disk.disk.poke(start, &old);
        disk.disk.poke(start + 3 * BLOCK, &new);
        let array = world.start();
        let mut right = pattern(0, LEN, 1);
        right[..BLOCK as usize].copy_from_slice(&pattern(0, BLOCK as usize, 2));
        for _ in 0..members {
            assert!(world.read(&array, 0, LEN).expect("the read succeeds") == right, "{level}");
        }
        let _ = is_sound(&world, &array);
        assert!(is_sound(&world, &array), "{level}");
    }
}

#[test]
fn a_block_that_lands_elsewhere_with_its_entry_does_not_fit_there() {
    for (level, members) in LEVELS {
        let (world, array) = filled(level, members);
        world.run(&array, array.stop()).expect("the array is healthy");
        let disk = &world.disks[0];
        let map = map_of(disk);
        let table = map.private_parts().expect("the member has a private area").checksums.start;
        let copy = |from: u64, to: u64, len: usize| {
            let mut bytes = vec![0; len];
            disk.disk.peek(from, &mut bytes);
            disk.disk.poke(to, &bytes);
        };
        copy(map.data.start + 2 * BLOCK, map.data.start, BLOCK as usize);
        copy(table + 2 * 8, table, 8);
        let array = world.start();
        for _ in 0..members {
            let found = world.read(&array, 0, LEN);
            // Block and entry contradict redundancy, each other, or their place: never trusted.
            let right = pattern(0, LEN, 1);
            assert!(found.is_err() || found.is_ok_and(|found| found == right), "{level}");
        }
    }
}

#[test]
fn where_nothing_may_be_written_rot_is_worked_around() {
    for (level, members) in LEVELS {
        let (world, array) = filled(level, members);
        world.run(&array, array.stop()).expect("the array is healthy");
        let disk = &world.disks[0];
        let map = map_of(disk);
        let table = map.private_parts().expect("the member has a private area").checksums.start;
        [map.data.start + 5, table + 8].into_iter().for_each(|at| corrupt(disk, at));
        let before = contents(disk);
        let options = Options { read_only: true, ..Options::default() };
        let assembly = world.assemble(0..members, &options).expect("all members are present");
        let array = Array::start(assembly, &world.host);
        for _ in 0..members {
            let found = world.read(&array, 0, LEN);
            assert!(found.is_ok_and(|found| found == pattern(0, LEN, 1)), "{level}");
        }
        pause(&world, &array);
        world.run(&array, array.stop()).expect("the array is healthy");
        assert!(contents(disk) == before, "{level}: nothing is written");
    }
}

/// A scrub finds a block of Q with a checksum mismatch. While it reads the row again another member
/// is lost. Q must not be computed without that member's block.
#[test]
fn parity_is_not_made_of_a_read_that_failed() {
    for at in 1..10 {
        let (mut world, array) = filled(Level::Raid6, 5);
        let map = array.geometry().stripe(Stripe(0));
        let [gone, next] = [0, 1].map(|index| map.data(index).index());
        let q = &world.disks[map.q().expect("RAID 6").index()];
        corrupt(q, map_of(q).data.start + 9);
        pause(&world, &array);
        drop(array);
        world.host.bounds.job_units = 1;
        let assembly = world.assemble_without(&[]).expect("all members are present");
        world.disks.iter().for_each(|disk| disk.delay.set(Duration::from_millis(10)));
        let array = Array::start(assembly, &world.host);
        let reads = world.disks[gone].reads.get();
        array.scrub(true).expect("the scrub starts");
        world.until(&array, |_| world.disks[gone].reads.get() >= reads + at);
        world.disks[gone].break_with(Fault::Gone);
        world.until(&array, |status| status.slots[gone].state == SlotState::Missing);
        world.until(&array, |status| status.job.is_none());
        world
            .run(&array, array.fail(MemberId(next as u32)))
            .expect("the level tolerates two losses");
        let found =
            world.read(&array, 0, 2 * CHUNK as usize).expect("the level tolerates two losses");
        assert!(found == pattern(0, 2 * CHUNK as usize, 1), "gone after {at} reads");
    }
}

/// A check repairs the same blocks as a read, and reports it: a repair afterwards finds nothing.
#[test]
fn a_check_repairs_checksum_errors_and_counts_them() {
    for (level, members) in LEVELS {
        let (world, array) = filled(level, members);
        let disk = &world.disks[1];
        let start = map_of(disk).data.start;
        [100, 5 * BLOCK].iter().for_each(|&at| corrupt(disk, start + at));
        array.scrub(false).expect("no other task runs");
        world.until(&array, |status| status.last_scrub.is_some());
        let status = array.status();
        let report = &status.last_scrub.as_ref().expect("a scrub has ended").report;
        let counts = (report.mismatches, report.repaired, report.repaired_bytes);
        assert_eq!(counts, (2, 2, 2 * BLOCK), "{level}");
        let errors = status.slots.iter().filter_map(|slot| slot.member.as_ref());
        let errors: Vec<u64> = errors.map(|member| member.checksum_errors).collect();
        let expected: Vec<u64> = (0..members).map(|slot| if slot == 1 { 2 } else { 0 }).collect();
        assert_eq!(errors, expected, "{level}");
        assert!(is_sound(&world, &array), "{level}: nothing is left to repair");
    }
}
