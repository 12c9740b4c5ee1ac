//! Checksums after the process has died: blocks being written are old or new, and valid data is
//! there, whichever member is missing.

use std::rc::Rc;
use std::time::Duration;

use array::Array;
use array::status::SlotState;
use io::{Clock, Disk, Op};
use layout::{Layout, Level, MemberId, Stripe};
use metadata::assemble::Options;
use metadata::create::NewArray;

use super::{
    BLOCK, CHUNK, LEN, LEVELS, SUPERBLOCK, checksummed, contents, corrupt, filled, is_sound,
    map_of, pause,
};
use crate::world::{Fault, FaultyDisk, World, pattern};

#[test]
fn a_block_torn_by_a_crash_is_old_or_new_and_has_its_checksum() {
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
            let found = world.read(&array, 0, LEN).expect("all members are present");
            for (number, block) in found.chunks(BLOCK as usize).enumerate() {
                let at = number as u64 * BLOCK;
                let of = |salt| pattern(at, BLOCK as usize, salt);
                let touched = (offset..offset + len as u64).contains(&at);
                assert!(block == of(1) || (touched && block == of(2)), "{level} {hung} {at}");
            }
            world.until(&array, checksummed);
            // From here on it is verified like any other.
            for slot in 0..members {
                corrupt(&world.disks[slot], map_of(&world.disks[slot]).data.start + 2 * BLOCK + 1);
                let again = world.read(&array, 0, LEN).expect("the read succeeds");
                assert!(again == found, "{level} {hung} rot in {slot}");
                let _ = is_sound(&world, &array);
            }
            assert!(is_sound(&world, &array), "{level} {hung}");
        }
    }
}

/// The array as it starts after its process has died, without this member.
fn start_without(world: &World, absent: usize) -> Array {
    let there = (0..world.disks.len()).filter(|&disk| disk != absent);
    let options = Options { degraded: true, ..Options::default() };
    Array::start(
        world.assemble(there, &options).expect("the array starts with one missing member"),
        &world.host,
    )
}

/// After the process has died, no written block is an error, whichever member is missing. Without
/// redundancy, a checksum older than its block would cost the block.
fn is_complete_whichever_member_is_missing(world: &World, right: &[u8], what: &str) {
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

#[test]
fn rebuilt_blocks_have_checksums_once_they_are_in_sync() {
    for (level, members) in LEVELS {
        let (mut world, array) = filled(level, members);
        pause(&world, &array);
        let id = array.status().slots[1].member.as_ref().expect("the slot has a member").id;
        world.run(&array, array.fail(id)).expect("the level tolerates one loss");
        let spare = FaultyDisk::new(8 << 20);
        spare.disk.poke(1 << 20, &vec![0xee; 6 << 20]);
        world
            .run(&array, array.add(Rc::clone(&spare) as _, "spare"))
            .expect("the disk is large enough");
        world.until(&array, |status| {
            status.slots.iter().all(|slot| slot.state == SlotState::InSync)
        });
        drop(array);
        world.disks[1] = spare;
        is_complete_whichever_member_is_missing(&world, &pattern(0, LEN, 1), &format!("{level}"));
    }
}

#[test]
fn a_clean_member_has_all_checksums() {
    for (level, members) in LEVELS {
        let (world, array) = filled(level, members);
        world.write(&array, 0, &pattern(0, 2 * CHUNK as usize, 2)).expect("the array is healthy");
        assert!(!array.status().clean);
        world.until(&array, |status| status.clean);
        drop(array);
        let mut right = pattern(0, LEN, 1);
        right[..2 * CHUNK as usize].copy_from_slice(&pattern(0, 2 * CHUNK as usize, 2));
        is_complete_whichever_member_is_missing(&world, &right, &format!("{level}"));
    }
}

/// A filled array with checksums, on all disks of a world with its own bounds.
fn filled_on(world: &World, level: Level, members: usize) -> Array {
    let layout = Layout::default_for(level, members);
    let checksums = Some(true);
    world.create(&NewArray { zeroed: true, checksums, ..NewArray::new("tank", layout, CHUNK) });
    let array = world.start();
    world.write(&array, 0, &pattern(0, LEN, 1)).expect("the array is healthy");
    pause(world, &array);
    array
}

/// A block is written, and the array dies before the block or its entry is durable. Another block
/// of its row has rotted. If the block being written counted as wrong too, that would exceed
/// redundancy, and the rot would be trusted.
fn rot_beside_a_cut_write(table_is_ahead: bool) {
    for (level, members) in [(Level::Raid4, 4), (Level::Raid5, 4), (Level::Raid6, 5)] {
        let mut world = World::new(members, 8 << 20);
        world.disks.iter().for_each(|disk| disk.volatile.set(true));
        if table_is_ahead {
            // Pages are written at once.
            world.host.bounds.checksums_bytes = 4096;
        }
        let array = filled_on(&world, level, members);
        let map = array.geometry().stripe(Stripe(0));
        let redundancy = array.geometry().redundancy();
        let place = |index: usize| {
            let disk = &world.disks[map.data(index).index()];
            (disk, map_of(disk))
        };
        let (disk, bytes) = place(0);
        let (data, table) = (
            bytes.data.start,
            bytes.private_parts().expect("the member has a private area").checksums.start,
        );
        let [old, entry] = [data, table].map(|at| {
            let mut bytes = vec![0; BLOCK as usize];
            disk.disk.peek(at, &mut bytes);
            bytes
        });
        world.write(&array, 0, &pattern(0, BLOCK as usize, 2)).expect("the array is healthy");
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
            corrupt(disk, bytes.data.start + 9);
        }
        let array = world.start();
        let found = world.read(&array, 0, LEN).expect("all members are present");
        let block = BLOCK as usize;
        let salts = [1, 2].map(|salt| pattern(0, block, salt));
        assert!(salts.iter().any(|right| found[..block] == right[..]), "{level}: old or new");
        assert!(found[block..] == pattern(0, LEN, 1)[block..], "{level}: an unwritten block");
    }
}

#[test]
fn an_interrupted_write_is_not_wrong_by_its_old_entry() {
    rot_beside_a_cut_write(false);
}

#[test]
fn an_interrupted_write_is_not_wrong_by_its_new_entry() {
    rot_beside_a_cut_write(true);
}

/// A member fails to write a page of its table, and all die before that is recorded. The page's
/// entries are in the log, even after many more writes. The row was not compared when the next
/// member is lost.
#[test]
fn the_log_keeps_the_checksums_that_a_member_failed_to_take() {
    for (level, members) in [(Level::Raid4, 4), (Level::Raid5, 4)] {
        let mut world = World::new(members, 8 << 20);
        world.host.bounds.log_bytes = 128 << 10;
        // Checksums are written for several reasons.
        world.host.bounds.region_linger = Duration::from_millis(8);
        let array = filled_on(&world, level, members);
        let at = LEN as u64 - 3 * CHUNK;
        let map = array.geometry().stripe(Stripe(at / (3 * CHUNK)));
        let [failing, missing] = [0, 1].map(|index| map.data(index).index());
        world.write(&array, at, &pattern(at, BLOCK as usize, 2)).expect("the array is healthy");
        world.flush(&array);
        let table = map_of(&world.disks[failing])
            .private_parts()
            .expect("the member has a private area")
            .checksums
            .start;
        world.disks[failing].break_with(Fault::WriteErrorAt(table));
        world.disks.iter().for_each(|disk| disk.break_with(Fault::HungAt(SUPERBLOCK)));
        for at in (0..24).map(|block| 4 * block * BLOCK) {
            drop(world.begin(&array, at, &pattern(at, BLOCK as usize, 2)));
        }
        world.crash(array);
        let assembly = world.assemble_without(&[]).expect("all members are present");
        world.disks.iter().for_each(|disk| disk.delay.set(Duration::from_millis(1)));
        world.host.bounds.job_units = 1;
        let array = Array::start(assembly, &world.host);
        world
            .run(&array, array.fail(MemberId(missing as u32)))
            .expect("the level tolerates one loss");
        let found = world.read(&array, at, BLOCK as usize).expect("the data was flushed");
        assert!(found == pattern(at, BLOCK as usize, 2), "{level}");
    }
}
