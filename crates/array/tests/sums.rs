//! Checksums: whatever a member gives back is what it was given, or is made good, or is an error.

mod world;

use std::rc::Rc;
use std::time::Duration;

use array::assemble::Options;
use array::create::NewArray;
use array::status::SlotState;
use array::{Array, Status};
use io::{Clock, Disk, Op};
use layout::md::{ByteMap, Superblock, Timestamp};
use layout::{Layout, Level, Slot, Stripe};
use world::{Fault, FaultyDisk, World, pattern};

const CHUNK: u64 = 16 << 10;
const SUPERBLOCK: u64 = 4096;
const BLOCK: u64 = 4096;
const LEN: usize = 768 << 10;

/// Every level that can have checksums, with this many members.
const LEVELS: [(Level, usize); 6] = [
    (Level::Raid1, 3),
    (Level::Raid10, 4),
    (Level::Raid4, 4),
    (Level::Raid5, 4),
    (Level::Raid6, 5),
    (Level::Raid35, 3),
];

fn world(level: Level, members: usize, zeroed: bool) -> World {
    let world = World::new(members, 8 << 20);
    let chunk = if level == Level::Raid1 { 0 } else { CHUNK };
    let layout = Layout::default_for(level, members);
    let checksums = Some(true);
    world.create(&NewArray { zeroed, checksums, ..NewArray::new("tank", layout, chunk) });
    world
}

/// An array full of a pattern that is durable, and put away.
fn filled(level: Level, members: usize) -> (World, Array) {
    let world = world(level, members, true);
    let array = world.start();
    world.write(&array, 0, &pattern(0, LEN, 1)).expect("healthy");
    world.run(&array, array.submit(Op::flush())).result.expect("healthy");
    (world, array)
}

fn map_of(disk: &FaultyDisk) -> ByteMap {
    let mut bytes = vec![0; 4096];
    disk.disk.peek(SUPERBLOCK, &mut bytes);
    let superblock = Superblock::parse(&bytes, SUPERBLOCK / 512).expect("a member");
    ByteMap::of(&superblock, disk.limits().bytes).expect("ours")
}

/// Changes a byte of a disk.
fn spoil(disk: &FaultyDisk, at: u64) {
    let mut byte = [0];
    disk.disk.peek(at, &mut byte);
    disk.disk.poke(at, &[byte[0] ^ 0x40]);
}

fn data_byte(disk: &FaultyDisk, at: u64) -> u8 {
    let mut byte = [0];
    disk.disk.peek(map_of(disk).data.start + at, &mut byte);
    byte[0]
}

fn pause(world: &World, array: &Array) {
    let until = world.clock.now() + Duration::from_secs(60);
    world.run(array, world.clock.sleep_until(until));
}

fn summed(status: &Status) -> bool {
    status.unsummed_bytes == Some(0) && status.unsynced_bytes == 0 && status.job.is_none()
}

/// A check finds nothing.
fn is_sound(world: &World, array: &Array) -> bool {
    array.scrub(false).expect("nothing else is under way");
    // The one before has left a result too.
    pause(world, array);
    world.until(array, |status| status.last_scrub.is_some() && status.job.is_none());
    let report = array.status().last_scrub.expect("just waited for").report;
    report.mismatches == 0 && report.lost_bytes == 0
}

#[test]
fn rot_on_any_member_is_never_read_and_is_made_good() {
    for (level, members) in LEVELS {
        for slot in 0..members {
            let (world, array) = filled(level, members);
            let disk = &world.disks[slot];
            let start = map_of(disk).data.start;
            let places = [100, 5 * BLOCK, CHUNK + 4095, 3 * CHUNK + 77];
            let before: Vec<u8> = places.iter().map(|&at| data_byte(disk, at)).collect();
            places.iter().for_each(|&at| spoil(disk, start + at));
            // Mirrors may read another copy.
            for _ in 0..members {
                let found = world.read(&array, 0, LEN).expect("redundancy has it");
                assert!(found == pattern(0, LEN, 1), "{level} slot {slot}");
            }
            world.run(&array, array.stop()).expect("healthy");
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
        world.run(&array, array.stop()).expect("healthy");
        let table = map_of(&world.disks[0]).private_parts().expect("room").checksums.start;
        for entry in [0, 1, 9, 20] {
            spoil(&world.disks[0], table + entry * 8);
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
    spoil(&world.disks[rotten], map_of(&world.disks[rotten]).data.start + BLOCK + 5);
    let id = array.status().slots[gone.index()].member.as_ref().expect("whole").id;
    world.run(&array, array.fail(id)).expect("one may go");
    assert!(world.read(&array, BLOCK, BLOCK as usize).is_err(), "it is known to be wrong");
    // What the missing member had there cannot be computed without it either.
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
    let id = array.status().slots[gone].member.as_ref().expect("whole").id;
    world.run(&array, array.fail(id)).expect("one may go");
    let spare = FaultyDisk::new(8 << 20);
    world.run(&array, array.add(Rc::clone(&spare) as _, "spare")).expect("large enough");
    world.until(&array, |status| status.slots[gone].state == SlotState::InSync);
    world.disks[gone] = spare;
    world.read(&array, CHUNK, 512).expect_err("nobody can say what it was");
    // Across two blocks, neither of them whole.
    let (at, len) = (CHUNK + 1024, 2 * BLOCK as usize - 2048);
    let bytes = pattern(at, len, 3);
    world.write(&array, at, &bytes).expect("what is written is known");
    assert!(world.read(&array, at, len).expect("just written") == bytes);
    world.read(&array, CHUNK, 512).expect_err("still");
}

#[test]
fn a_write_beside_rot_does_not_fold_it_into_parity() {
    for (level, members) in [(Level::Raid4, 4), (Level::Raid5, 6), (Level::Raid6, 8)] {
        for index in 0..2 {
            let (world, array) = filled(level, members);
            let map = array.geometry().stripe(Stripe(0));
            let rotten = map.data(index);
            let disk = &world.disks[rotten.index()];
            spoil(disk, map_of(disk).data.start + 9);
            // A read-modify-write of the block itself, or of another of its row.
            world.write(&array, 0, &pattern(0, BLOCK as usize, 2)).expect("healthy");
            let id = array.status().slots[map.data(2).index()].member.as_ref().expect("whole").id;
            world.run(&array, array.fail(id)).expect("one may go");
            let mut right = pattern(0, LEN, 1);
            right[..BLOCK as usize].copy_from_slice(&pattern(0, BLOCK as usize, 2));
            // The rot is beyond RAID 5 now, if the write did not cover it.
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
        world.write(&array, 0, &pattern(0, BLOCK as usize, 2)).expect("healthy");
        world.run(&array, array.stop()).expect("healthy");
        // The disk has it elsewhere, and here what it had.
        let mut new = vec![0; BLOCK as usize];
        disk.disk.peek(start, &mut new);
        disk.disk.poke(start, &old);
        disk.disk.poke(start + 3 * BLOCK, &new);
        let array = world.start();
        let mut right = pattern(0, LEN, 1);
        right[..BLOCK as usize].copy_from_slice(&pattern(0, BLOCK as usize, 2));
        for _ in 0..members {
            assert!(world.read(&array, 0, LEN).expect("redundancy has it") == right, "{level}");
        }
        let _ = is_sound(&world, &array);
        assert!(is_sound(&world, &array), "{level}");
    }
}

#[test]
fn a_block_that_lands_elsewhere_with_its_entry_does_not_fit_there() {
    for (level, members) in LEVELS {
        let (world, array) = filled(level, members);
        world.run(&array, array.stop()).expect("healthy");
        let disk = &world.disks[0];
        let map = map_of(disk);
        let table = map.private_parts().expect("room").checksums.start;
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
            // Block and entry contradict redundancy, each other, and their place: never believed.
            let right = pattern(0, LEN, 1);
            assert!(found.is_err() || found.is_ok_and(|found| found == right), "{level}");
        }
    }
}

#[test]
fn what_was_cut_by_a_crash_is_old_or_new_and_has_its_sum() {
    for (level, members) in LEVELS {
        for hung in 0..members {
            let (world, array) = filled(level, members);
            let (offset, len) = (2 * BLOCK, 3 * CHUNK as usize);
            world.disks[hung].break_with(Fault::HungFrom(map_of(&world.disks[hung]).data.start));
            let bytes = world.pool.copy_of(&pattern(offset, len, 2)).freeze();
            let write = array.submit(Op::write(offset, bytes));
            let until = world.clock.now() + Duration::from_millis(5);
            world.run(&array, world.clock.sleep_until(until));
            drop((write, array));
            world.disks.iter().for_each(|disk| disk.faults.borrow_mut().clear());
            let array = world.start();
            let found = world.read(&array, 0, LEN).expect("all members are there");
            for (number, block) in found.chunks(BLOCK as usize).enumerate() {
                let at = number as u64 * BLOCK;
                let of = |salt| pattern(at, BLOCK as usize, salt);
                let touched = (offset..offset + len as u64).contains(&at);
                assert!(block == of(1) || (touched && block == of(2)), "{level} {hung} {at}");
            }
            world.until(&array, summed);
            // From here on it is checked like any other.
            for slot in 0..members {
                spoil(&world.disks[slot], map_of(&world.disks[slot]).data.start + 2 * BLOCK + 1);
                let again = world.read(&array, 0, LEN).expect("redundancy has it");
                assert!(again == found, "{level} {hung} rot in {slot}");
                let _ = is_sound(&world, &array);
            }
            assert!(is_sound(&world, &array), "{level} {hung}");
        }
    }
}

/// As if somebody else had run the array since: no tag in the time.
fn run_by_another(disk: &FaultyDisk) {
    let mut bytes = vec![0; 4096];
    disk.disk.peek(SUPERBLOCK, &mut bytes);
    let mut superblock = Superblock::parse(&bytes, SUPERBLOCK / 512).expect("ours");
    superblock.utime = Timestamp::new(superblock.utime.seconds() + 9, 0);
    disk.disk.poke(SUPERBLOCK, &superblock.print());
}

#[test]
fn what_somebody_else_has_written_is_read_and_summed_anew() {
    for (level, members) in [(Level::Raid1, 2), (Level::Raid5, 4)] {
        let (world, array) = filled(level, members);
        let map = (level == Level::Raid5).then(|| array.geometry().stripe(Stripe(0)));
        world.run(&array, array.stop()).expect("healthy");
        // A byte of data and its parity, or both its copies, as md would have written them.
        let changed = match map {
            Some(map) => [map.data(0), map.p()],
            None => [Slot(0), Slot(1)],
        };
        for slot in changed {
            let disk = &world.disks[slot.index()];
            spoil(disk, map_of(disk).data.start);
        }
        world.disks.iter().for_each(|disk| run_by_another(disk));
        let array = world.start();
        let mut right = pattern(0, LEN, 1);
        right[0] ^= 0x40;
        assert!(array.status().unsummed_bytes > Some(0));
        assert!(world.read(&array, 0, LEN).expect("as it is") == right, "{level}");
        world.until(&array, summed);
        spoil(&world.disks[changed[0].index()], map_of(&world.disks[0]).data.start + 7);
        for _ in 0..members {
            assert!(world.read(&array, 0, LEN).expect("made good") == right, "{level}");
        }
    }
}

#[test]
fn a_new_array_is_summed_as_it_is_synced_and_a_spare_as_it_is_filled() {
    for (level, members) in LEVELS {
        let mut world = world(level, members, false);
        let array = world.start();
        world.write(&array, 0, &pattern(0, LEN, 1)).expect("healthy");
        world.until(&array, summed);
        let id = array.status().slots[1].member.as_ref().expect("whole").id;
        world.run(&array, array.fail(id)).expect("one may go");
        let spare = FaultyDisk::new(8 << 20);
        spare.disk.poke(1 << 20, &vec![0xee; 6 << 20]);
        world.run(&array, array.add(Rc::clone(&spare) as _, "spare")).expect("large enough");
        world.until(&array, |status| {
            status.slots.iter().all(|slot| slot.state == SlotState::InSync)
        });
        world.disks[1] = spare;
        pause(&world, &array);
        let start = map_of(&world.disks[1]).data.start;
        spoil(&world.disks[1], start + 3);
        for _ in 0..members {
            let found = world.read(&array, 0, LEN).expect("made good");
            assert!(found == pattern(0, LEN, 1), "{level}");
        }
        let _ = is_sound(&world, &array);
        assert!(is_sound(&world, &array), "{level}");
    }
}

#[test]
fn they_are_given_up_and_taken_up_by_the_user_s_word() {
    let (world, array) = filled(Level::Raid6, 5);
    world.run(&array, array.stop()).expect("healthy");
    let start = |checksums| {
        let assembly = world.assemble(0..5, &Options { checksums, ..Options::default() });
        Array::start(assembly.expect("all are there"), &world.host)
    };
    let array = start(Some(false));
    assert_eq!(array.status().unsummed_bytes, None);
    world.write(&array, 0, &pattern(0, 8192, 2)).expect("healthy");
    world.run(&array, array.stop()).expect("healthy");
    let array = start(Some(true));
    let mut right = pattern(0, LEN, 1);
    right[..8192].copy_from_slice(&pattern(0, 8192, 2));
    assert!(world.read(&array, 0, LEN).expect("healthy") == right);
    world.until(&array, summed);
    world.run(&array, array.stop()).expect("healthy");
    let array = start(None);
    assert_eq!(array.status().unsummed_bytes, Some(0));
    spoil(&world.disks[0], map_of(&world.disks[0]).data.start + 1);
    assert!(world.read(&array, 0, LEN).expect("made good") == right);
}

#[test]
fn writes_of_parts_of_blocks_keep_the_rest() {
    for (level, members) in LEVELS {
        let (world, array) = filled(level, members);
        let mut right = pattern(0, LEN, 1);
        for (offset, len) in [(512, 512), (3584, 1024), (8192 + 512, 8192), (CHUNK - 512, 1024)] {
            let bytes = pattern(offset, len, 3);
            world.write(&array, offset, &bytes).expect("healthy");
            right[offset as usize..offset as usize + len].copy_from_slice(&bytes);
            let found = world.read(&array, offset, len).expect("healthy");
            assert!(found == bytes, "{level} {offset}");
        }
        assert!(world.read(&array, 0, LEN).expect("healthy") == right, "{level}");
        assert!(is_sound(&world, &array), "{level}");
    }
}

/// The array as it starts after its process has died, without this member.
fn start_without(world: &World, absent: usize) -> Array {
    let there = (0..world.disks.len()).filter(|&disk| disk != absent);
    let options = Options { degraded: true, ..Options::default() };
    Array::start(world.assemble(there, &options).expect("one may be missing"), &world.host)
}

/// Nothing that was written is an error, whoever is missing after the process has died: where
/// nobody can make good what does not fit, a sum that is behind its block costs the block.
fn is_all_there_whoever_is_missing(world: &World, right: &[u8], what: &str) {
    let before: Vec<Vec<u8>> = world.disks.iter().map(|disk| contents(disk)).collect();
    for absent in 0..world.disks.len() {
        let array = start_without(world, absent);
        let found = world.read(&array, 0, right.len());
        assert!(found.is_ok_and(|found| found == right), "{what} without {absent}");
        drop(array);
        for (disk, bytes) in world.disks.iter().zip(&before) {
            disk.disk.poke(0, bytes);
        }
    }
}

fn contents(disk: &FaultyDisk) -> Vec<u8> {
    let mut bytes = vec![0; disk.limits().bytes as usize];
    disk.disk.peek(0, &mut bytes);
    bytes
}

#[test]
fn what_is_rebuilt_has_its_sums_once_it_counts() {
    for (level, members) in LEVELS {
        let (mut world, array) = filled(level, members);
        pause(&world, &array);
        let id = array.status().slots[1].member.as_ref().expect("whole").id;
        world.run(&array, array.fail(id)).expect("one may go");
        let spare = FaultyDisk::new(8 << 20);
        spare.disk.poke(1 << 20, &vec![0xee; 6 << 20]);
        world.run(&array, array.add(Rc::clone(&spare) as _, "spare")).expect("large enough");
        world.until(&array, |status| {
            status.slots.iter().all(|slot| slot.state == SlotState::InSync)
        });
        drop(array);
        world.disks[1] = spare;
        is_all_there_whoever_is_missing(&world, &pattern(0, LEN, 1), &format!("{level}"));
    }
}

#[test]
fn who_is_clean_has_all_sums() {
    for (level, members) in LEVELS {
        let (world, array) = filled(level, members);
        world.write(&array, 0, &pattern(0, 2 * CHUNK as usize, 2)).expect("healthy");
        assert!(!array.status().clean);
        world.until(&array, |status| status.clean);
        drop(array);
        let mut right = pattern(0, LEN, 1);
        right[..2 * CHUNK as usize].copy_from_slice(&pattern(0, 2 * CHUNK as usize, 2));
        is_all_there_whoever_is_missing(&world, &right, &format!("{level}"));
    }
}

/// A block is written, and the array dies before the block or its entry is durable; beside it in
/// its row another one has rotted. If what was being written is held to be wrong as well, that is
/// more than redundancy bears, and rot is believed.
fn rot_beside_a_cut_write(table_is_ahead: bool) {
    for (level, members) in [(Level::Raid4, 4), (Level::Raid5, 4), (Level::Raid6, 5)] {
        let mut world = World::new(members, 8 << 20);
        world.disks.iter().for_each(|disk| disk.volatile.set(true));
        if table_is_ahead {
            // Pages go out at once.
            world.host.bounds.sums_bytes = 4096;
        }
        let layout = Layout::default_for(level, members);
        let checksums = Some(true);
        world.create(&NewArray { zeroed: true, checksums, ..NewArray::new("tank", layout, CHUNK) });
        let array = world.start();
        world.write(&array, 0, &pattern(0, LEN, 1)).expect("healthy");
        pause(&world, &array);
        let map = array.geometry().stripe(Stripe(0));
        let redundancy = array.geometry().redundancy();
        let place = |index: usize| {
            let disk = &world.disks[map.data(index).index()];
            (disk, map_of(disk))
        };
        let (disk, bytes) = place(0);
        let (data, table) =
            (bytes.data.start, bytes.private_parts().expect("room").checksums.start);
        let [old, entry] = [data, table].map(|at| {
            let mut bytes = vec![0; BLOCK as usize];
            disk.disk.peek(at, &mut bytes);
            bytes
        });
        world.write(&array, 0, &pattern(0, BLOCK as usize, 2)).expect("healthy");
        let until = world.clock.now() + Duration::from_millis(1);
        world.run(&array, world.clock.sleep_until(until));
        assert!(!array.status().clean);
        drop(array);
        let mut now = vec![0; BLOCK as usize];
        disk.disk.peek(table, &mut now);
        assert_eq!(now[..8] != entry[..8], table_is_ahead, "{level}");
        if table_is_ahead {
            disk.disk.poke(data, &old);
        }
        for index in 1..=redundancy {
            let (disk, bytes) = place(index);
            spoil(disk, bytes.data.start + 9);
        }
        let array = world.start();
        let found = world.read(&array, 0, LEN).expect("all are there");
        let block = BLOCK as usize;
        let salts = [1, 2].map(|salt| pattern(0, block, salt));
        assert!(salts.iter().any(|right| found[..block] == right[..]), "{level}: old or new");
        assert!(found[block..] == pattern(0, LEN, 1)[block..], "{level}: nobody wrote it");
    }
}

#[test]
fn what_was_being_written_is_not_wrong_by_its_old_entry() {
    rot_beside_a_cut_write(false);
}

#[test]
fn what_was_being_written_is_not_wrong_by_its_new_entry() {
    rot_beside_a_cut_write(true);
}

/// What a member has of the array: its data, and its table.
fn data_and_table(disk: &FaultyDisk) -> [(u64, Vec<u8>); 2] {
    let map = map_of(disk);
    let table = map.private_parts().expect("room").checksums.start;
    [(map.data.start, 1 << 20), (table, BLOCK as usize)].map(|(at, len)| {
        let mut bytes = vec![0; len];
        disk.disk.peek(at, &mut bytes);
        (at, bytes)
    })
}

/// What happens to an array before a member loses writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Before {
    Nothing,
    Rebuilt,
    Crashed,
}

/// A member loses the last writes to some blocks together with their entries: each fits the other.
/// A repair finds who it was, and gets back what was written.
fn loses_block_and_entry(level: Level, members: usize, slot: usize, before: Before) {
    let (mut world, mut array) = filled(level, members);
    let mut right = pattern(0, LEN, 1);
    let mut write = |world: &World, array: &Array, offset: u64, len: usize, salt: u8| {
        let bytes = pattern(offset, len, salt);
        world.write(array, offset, &bytes).expect("healthy");
        right[offset as usize..offset as usize + len].copy_from_slice(&bytes);
    };
    for salt in 2..7 {
        write(&world, &array, 0, BLOCK as usize, salt);
        write(&world, &array, CHUNK, 2 * BLOCK as usize, salt);
    }
    match before {
        Before::Nothing => {}
        Before::Rebuilt => {
            pause(&world, &array);
            let id = array.status().slots[1].member.as_ref().expect("whole").id;
            world.run(&array, array.fail(id)).expect("one may go");
            write(&world, &array, 0, BLOCK as usize, 7);
            let spare = FaultyDisk::new(8 << 20);
            spare.disk.poke(1 << 20, &vec![0xee; 6 << 20]);
            world.run(&array, array.add(Rc::clone(&spare) as _, "spare")).expect("large enough");
            world.until(&array, summed);
            world.until(&array, |s| s.slots.iter().all(|slot| slot.state == SlotState::InSync));
            world.disks[1] = spare;
        }
        Before::Crashed => {
            drop(array);
            array = world.start();
            world.until(&array, summed);
        }
    }
    pause(&world, &array);
    let old = data_and_table(&world.disks[slot]);
    for salt in 10..13 {
        write(&world, &array, 0, BLOCK as usize, salt);
    }
    write(&world, &array, CHUNK + 3 * BLOCK, BLOCK as usize, 20);
    write(&world, &array, 3 * CHUNK, 8 * CHUNK as usize, 21);
    world.run(&array, array.stop()).expect("healthy");
    old.iter().for_each(|(at, bytes)| world.disks[slot].disk.poke(*at, bytes));
    let array = world.start();
    array.scrub(true).expect("nothing else is under way");
    world.until(&array, |status| status.last_scrub.is_some() && status.job.is_none());
    let report = array.status().last_scrub.expect("just waited for").report;
    let what = format!("{level} slot {slot} {before:?}");
    assert_eq!((report.guessed_bytes, report.lost_bytes), (0, 0), "{what}");
    let named = report.findings.iter().all(|found| found.culprit == Some(Slot::new(slot)));
    assert!(named && report.mismatches > 0, "{what}: {:?}", report.findings);
    for _ in 0..members {
        assert!(world.read(&array, 0, LEN).expect("repaired") == right, "{what}");
    }
    assert!(is_sound(&world, &array), "{what}");
}

#[test]
fn who_has_lost_block_and_entry_is_told_by_generations() {
    for (level, members) in LEVELS {
        for slot in 0..members {
            loses_block_and_entry(level, members, slot, Before::Nothing);
        }
    }
}

#[test]
fn generations_go_together_after_a_rebuild_and_a_crash() {
    for (level, members) in LEVELS {
        for slot in 0..members {
            loses_block_and_entry(level, members, slot, Before::Rebuilt);
            loses_block_and_entry(level, members, slot, Before::Crashed);
        }
    }
}

#[test]
fn a_torn_block_whose_entry_was_lost_is_what_its_row_says() {
    for (level, members) in LEVELS {
        for slot in 0..members {
            let (world, array) = filled(level, members);
            let old = data_and_table(&world.disks[slot]);
            pause(&world, &array);
            let table_before = data_and_table(&world.disks[slot]);
            let mut right = pattern(0, LEN, 2);
            right[LEN - CHUNK as usize..].copy_from_slice(&pattern(
                LEN as u64 - CHUNK,
                CHUNK as usize,
                1,
            ));
            world.write(&array, 0, &right).expect("healthy");
            world.run(&array, array.stop()).expect("healthy");
            let disk = &world.disks[slot].disk;
            // Of each block the first half is old.
            let (start, bytes) = &old[0];
            for at in (0..192 << 10).step_by(BLOCK as usize) {
                disk.poke(start + at as u64, &bytes[at..at + 2048]);
            }
            disk.poke(table_before[1].0, &table_before[1].1);
            let array = world.start();
            for _ in 0..members {
                let found = world.read(&array, 0, LEN).expect("the row has it");
                assert!(found == right, "{level} slot {slot}");
            }
            let _ = is_sound(&world, &array);
            assert!(is_sound(&world, &array), "{level} slot {slot}");
        }
    }
}

#[test]
fn where_nothing_may_be_written_rot_is_worked_around() {
    for (level, members) in LEVELS {
        let (world, array) = filled(level, members);
        world.run(&array, array.stop()).expect("healthy");
        let disk = &world.disks[0];
        let map = map_of(disk);
        let table = map.private_parts().expect("room").checksums.start;
        [map.data.start + 5, table + 8].into_iter().for_each(|at| spoil(disk, at));
        let before = contents(disk);
        let options = Options { read_only: true, ..Options::default() };
        let assembly = world.assemble(0..members, &options).expect("all are there");
        let array = Array::start(assembly, &world.host);
        for _ in 0..members {
            let found = world.read(&array, 0, LEN);
            assert!(found.is_ok_and(|found| found == pattern(0, LEN, 1)), "{level}");
        }
        pause(&world, &array);
        world.run(&array, array.stop()).expect("healthy");
        assert!(contents(disk) == before, "{level}: nothing is written");
    }
}
