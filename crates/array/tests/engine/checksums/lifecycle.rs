//! Checksums during the life of an array: created, filled, dropped, run by another program.

use std::rc::Rc;
use std::time::Duration;

use array::status::SlotState;
use array::{Array, CacheMode};
use io::{Clock, Disk};
use layout::md::{Superblock, Timestamp};
use layout::{Layout, Level, MemberId, Slot, Stripe};
use metadata::assemble::Options;
use metadata::create::NewArray;

use super::{
    BLOCK, CHUNK, LEN, LEVELS, SUPERBLOCK, checksummed, contents, corrupt, filled, is_sound,
    map_of, pause, world,
};
use crate::world::{Fault, FaultyDisk, World, pattern};

/// The state after another program's session: no tag in the time.
fn run_by_another(disk: &FaultyDisk) {
    let mut bytes = vec![0; 4096];
    disk.disk.peek(SUPERBLOCK, &mut bytes);
    let mut superblock = Superblock::parse(&bytes, SUPERBLOCK / 512).expect("ours");
    superblock.utime = Timestamp::new(superblock.utime.seconds() + 9, 0);
    disk.disk.poke(SUPERBLOCK, &superblock.print());
}

#[test]
fn blocks_written_by_another_program_are_read_and_checksummed_again() {
    for (level, members) in [(Level::Raid1, 2), (Level::Raid5, 4)] {
        let (world, array) = filled(level, members);
        let map = (level == Level::Raid5).then(|| array.geometry().stripe(Stripe(0)));
        world.run(&array, array.stop()).expect("the array is healthy");
        // A byte of data and its parity, or of both copies, as md would have written them.
        let changed = match map {
            Some(map) => [map.data(0), map.p()],
            None => [Slot(0), Slot(1)],
        };
        for slot in changed {
            let disk = &world.disks[slot.index()];
            corrupt(disk, map_of(disk).data.start);
        }
        world.disks.iter().for_each(|disk| run_by_another(disk));
        let array = world.start();
        let mut right = pattern(0, LEN, 1);
        right[0] ^= 0x40;
        assert!(array.status().unsummed_bytes > Some(0));
        assert!(world.read(&array, 0, LEN).expect("the read succeeds") == right, "{level}");
        world.until(&array, checksummed);
        corrupt(&world.disks[changed[0].index()], map_of(&world.disks[0]).data.start + 7);
        for _ in 0..members {
            assert!(
                world.read(&array, 0, LEN).expect("the block was repaired") == right,
                "{level}"
            );
        }
    }
}

/// Rows that cannot be compared have checksums too. Two members of RAID 5 have lost a block of a
/// row, and a third one rots there after all checksums were renewed.
#[test]
fn the_rest_of_a_row_beyond_redundancy_is_checksummed() {
    let (world, array) = filled(Level::Raid5, 4);
    let map = array.geometry().stripe(Stripe(0));
    world.run(&array, array.stop()).expect("the array is healthy");
    for lost in [map.data(0), map.p()] {
        let disk = &world.disks[lost.index()];
        let offset = map_of(disk).data.start + BLOCK;
        disk.break_with(Fault::Unreadable { offset, len: BLOCK });
    }
    world.disks.iter().for_each(|disk| run_by_another(disk));
    let array = world.start();
    world.until(&array, checksummed);
    let disk = &world.disks[map.data(1).index()];
    let at = CHUNK + BLOCK;
    let found = world.read(&array, at, BLOCK as usize).expect("the read succeeds");
    assert!(found == pattern(at, BLOCK as usize, 1));
    for block in 0..3 {
        corrupt(disk, map_of(disk).data.start + block * BLOCK + 7);
    }
    world.read(&array, at, BLOCK as usize).expect_err("the block is corrupt and unrecoverable");
    for at in [CHUNK, CHUNK + 2 * BLOCK, 2 * CHUNK + BLOCK] {
        let found = world.read(&array, at, BLOCK as usize).expect("correct or repaired");
        assert!(found == pattern(at, BLOCK as usize, 1), "{at}");
    }
}

#[test]
fn a_new_array_is_checksummed_as_it_is_synced_and_a_spare_as_it_is_filled() {
    for (level, members) in LEVELS {
        let mut world = world(level, members, false);
        let array = world.start();
        world.write(&array, 0, &pattern(0, LEN, 1)).expect("the array is healthy");
        world.until(&array, checksummed);
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
        world.disks[1] = spare;
        pause(&world, &array);
        let start = map_of(&world.disks[1]).data.start;
        corrupt(&world.disks[1], start + 3);
        for _ in 0..members {
            let found = world.read(&array, 0, LEN).expect("the block was repaired");
            assert!(found == pattern(0, LEN, 1), "{level}");
        }
        let _ = is_sound(&world, &array);
        assert!(is_sound(&world, &array), "{level}");
    }
}

#[test]
fn they_are_given_up_and_taken_up_by_the_user_s_word() {
    let (world, array) = filled(Level::Raid6, 5);
    world.run(&array, array.stop()).expect("the array is healthy");
    let start = |checksums| {
        let assembly = world.assemble(0..5, &Options { checksums, ..Options::default() });
        Array::start(assembly.expect("all members are present"), &world.host)
    };
    let array = start(Some(false));
    assert_eq!(array.status().unsummed_bytes, None);
    world.write(&array, 0, &pattern(0, 8192, 2)).expect("the array is healthy");
    world.run(&array, array.stop()).expect("the array is healthy");
    let array = start(Some(true));
    let mut right = pattern(0, LEN, 1);
    right[..8192].copy_from_slice(&pattern(0, 8192, 2));
    assert!(world.read(&array, 0, LEN).expect("the array is healthy") == right);
    world.until(&array, checksummed);
    world.run(&array, array.stop()).expect("the array is healthy");
    let array = start(None);
    assert_eq!(array.status().unsummed_bytes, Some(0));
    corrupt(&world.disks[0], map_of(&world.disks[0]).data.start + 1);
    assert!(world.read(&array, 0, LEN).expect("the block was repaired") == right);
}

#[test]
fn writes_of_parts_of_blocks_keep_the_rest() {
    for (level, members) in LEVELS {
        let (world, array) = filled(level, members);
        let mut right = pattern(0, LEN, 1);
        for (offset, len) in [(512, 512), (3584, 1024), (8192 + 512, 8192), (CHUNK - 512, 1024)] {
            let bytes = pattern(offset, len, 3);
            world.write(&array, offset, &bytes).expect("the array is healthy");
            right[offset as usize..offset as usize + len].copy_from_slice(&bytes);
            let found = world.read(&array, offset, len).expect("the array is healthy");
            assert!(found == bytes, "{level} {offset}");
        }
        assert!(world.read(&array, 0, LEN).expect("the array is healthy") == right, "{level}");
        assert!(is_sound(&world, &array), "{level}");
    }
}

/// A write-out fails because its row has lost too much. Other data, written and flushed before, has
/// its checksums after the array has stopped.
#[test]
fn a_stop_with_something_stuck_in_the_cache_writes_the_checksums_of_the_rest() {
    for (level, members) in [(Level::Raid4, 4), (Level::Raid5, 4)] {
        let mut world = world(level, members, true);
        world.host.cache = CacheMode::Writeback;
        let array = world.start();
        world.write(&array, 0, &pattern(0, LEN, 1)).expect("the array is healthy");
        let map = array.geometry().stripe(Stripe(0));
        let [missing, unreadable] = [0, 1].map(|index| map.data(index).index());
        world
            .run(&array, array.fail(MemberId(missing as u32)))
            .expect("the level tolerates one loss");
        let len = 4 * BLOCK as usize;
        let at = 6 * CHUNK;
        world.write(&array, at, &pattern(at, len, 2)).expect("degraded");
        world.flush(&array);
        let offset = map_of(&world.disks[unreadable]).data.start;
        world.disks[unreadable].break_with(Fault::Unreadable { offset, len: BLOCK });
        world.write(&array, 0, &pattern(0, BLOCK as usize, 2)).expect("the write succeeds");
        world.run(&array, array.stop()).expect_err("the block cannot be written out");
        let array = world.start_without(&[missing]);
        for at in (at..at + len as u64).step_by(BLOCK as usize) {
            let found = world.read(&array, at, BLOCK as usize).expect("the data was flushed");
            assert!(found == pattern(at, BLOCK as usize, 2), "{level}");
        }
    }
}

/// Its pages are waiting to be written when it leaves.
#[test]
fn a_member_that_is_removed_gets_no_page_of_its_table_any_more() {
    let mut world = World::new(4, 16 << 20);
    world.host.bounds.units = 1;
    let layout = Layout::default_for(Level::Raid5, 4);
    let checksums = Some(true);
    world.create(&NewArray { zeroed: true, checksums, ..NewArray::new("tank", layout, CHUNK) });
    let array = world.start();
    // Each in pages of its own, on all members.
    let places = (0..30 << 20).step_by(6 << 20);
    for at in places.clone() {
        world.write(&array, at, &pattern(at, 3 * CHUNK as usize, 1)).expect("the array is healthy");
    }
    world.disks.iter().for_each(|disk| disk.delay.set(Duration::from_millis(50)));
    world.run(&array, world.clock.sleep_until(world.clock.now() + Duration::from_millis(300)));
    world.run(&array, array.fail(MemberId(3))).expect("the level tolerates one loss");
    world.run(&array, array.remove(MemberId(3))).expect("the member has failed");
    let gone = contents(&world.disks[3]);
    pause(&world, &array);
    assert!(contents(&world.disks[3]) == gone, "another program may use the disk");
    assert!(array.status().clean);
    for at in places {
        let right = pattern(at, 3 * CHUNK as usize, 1);
        assert!(world.read(&array, at, right.len()).expect("one member is lost") == right);
    }
}

/// A member fails and returns while its earlier checksums are still being written, after those of
/// the others: they are not valid for it any more.
#[test]
fn checksums_of_a_member_that_came_back_are_not_those_from_before() {
    let mut world = World::new(2, 48 << 20);
    let new = NewArray::new("tank", Layout::default_for(Level::Raid1, 2), 0);
    world.create(&NewArray { zeroed: true, checksums: Some(true), ..new });
    world.host.bounds.units = 1;
    let array = world.start();
    let (pages, covers) = (20, 2 << 20);
    for page in 0..pages {
        world.write(&array, page * covers, &pattern(page, 4096, 1)).expect("the array is healthy");
    }
    let (slow, back) = (&world.disks[0], &world.disks[1]);
    slow.delay.set(Duration::from_millis(100));
    // The regions are released.
    let writes = slow.writes.get();
    while slow.writes.get() < writes + 4 {
        let until = world.clock.now() + Duration::from_millis(10);
        world.run(&array, world.clock.sleep_until(until));
    }
    world.run(&array, array.fail(MemberId(1))).expect("the level tolerates one loss");
    let disk = Rc::clone(back) as Rc<dyn Disk>;
    world.run(&array, array.readd(disk, "back")).expect("the bitmap covers the missed writes");
    slow.delay.set(Duration::ZERO);
    world.until(&array, |status| status.slots[1].state == SlotState::InSync);
    for page in 0..pages {
        world.write(&array, page * covers, &pattern(page, 4096, 2)).expect("the write succeeds");
    }
    world.until(&array, |status| status.clean);
    assert!(is_sound(&world, &array));
    world.run(&array, array.stop()).expect("the array is healthy");
    let array = world.start_without(&[0]);
    for page in 0..pages {
        let found = world.read(&array, page * covers, 4096).expect("the member has all data");
        assert!(found == pattern(page, 4096, 2));
    }
}

/// Checksums are computed where there were none, and a member that has them all fails the flush for
/// them. It returns by the bitmap, which covers writes but not checksums.
#[test]
fn a_member_that_comes_back_has_the_checksums_that_were_made_meanwhile() {
    for (level, members) in [(Level::Raid1, 2), (Level::Raid5, 4)] {
        let world = World::new(members, 8 << 20);
        let layout = Layout::default_for(level, members);
        let chunk = if level == Level::Raid1 { 0 } else { CHUNK };
        let new = NewArray { zeroed: true, ..NewArray::new("tank", layout, chunk) };
        world.create(&NewArray { checksums: Some(false), ..new });
        world.disks.iter().for_each(|disk| disk.volatile.set(true));
        let array = world.start();
        world.write(&array, 0, &pattern(0, LEN, 1)).expect("the array is healthy");
        world.run(&array, array.stop()).expect("the array is healthy");
        let options = Options { checksums: Some(true), ..Options::default() };
        let assembly = world.assemble(0..members, &options).expect("the members have space");
        let array = Array::start(assembly, &world.host);
        let fails = &world.disks[1];
        fails.flush_fails_in.set(Some(0));
        world.until(&array, |status| status.slots[1].state == SlotState::Missing);
        let disk = Rc::clone(fails) as Rc<dyn Disk>;
        world.run(&array, array.readd(disk, "back")).expect("the bitmap covers the missed writes");
        world.until(&array, |s| checksummed(s) && s.slots[1].state == SlotState::InSync);
        world.run(&array, array.fail(MemberId(0))).expect("the level tolerates one loss");
        let found = world.read(&array, 0, LEN).expect("the member works");
        assert!(found == pattern(0, LEN, 1), "{level}");
    }
}

/// A page is in flight to a member that is failed and returns before the deadline: the page would
/// land on newer ones.
#[test]
fn a_page_that_is_on_its_way_keeps_a_member_from_coming_back() {
    let (world, array) = filled(Level::Raid1, 2);
    let back = &world.disks[1];
    back.break_with(Fault::HungAt(
        map_of(back).private_parts().expect("the member has a private area").checksums.start,
    ));
    while back.is_holding() == 0 {
        let until = world.clock.now() + Duration::from_millis(100);
        world.run(&array, world.clock.sleep_until(until));
    }
    back.faults.borrow_mut().clear();
    world.run(&array, array.fail(MemberId(1))).expect("the level tolerates one loss");
    let disk = Rc::clone(back) as Rc<dyn Disk>;
    let early = world.run(&array, array.readd(Rc::clone(&disk), "disk1"));
    if early.is_ok() {
        world.until(&array, |status| status.slots[1].state == SlotState::InSync);
        world.write(&array, 0, &pattern(0, LEN, 2)).expect("the write succeeds");
        pause(&world, &array);
    }
    back.release();
    if early.is_err() {
        pause(&world, &array);
        world.run(&array, array.readd(disk, "disk1")).expect("no operation is in flight");
        world.until(&array, |status| status.slots[1].state == SlotState::InSync);
        world.write(&array, 0, &pattern(0, LEN, 2)).expect("the write succeeds");
    }
    world.run(&array, array.stop()).expect("the array is healthy");
    let array = world.start_without(&[0]);
    let found = world.read(&array, 0, LEN).expect("blocks and checksums are the newest");
    assert!(found == pattern(0, LEN, 2));
    assert!(
        early.expect_err("the write may still take effect").to_string().contains("may still land")
    );
}
