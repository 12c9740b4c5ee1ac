//! Bad-block lists: a listed block costs no other block, is repaired where possible, and leaves the
//! list permanently once it is written.

use std::rc::Rc;
use std::time::Duration;

use array::status::SlotState;
use array::{Array, Status};
use io::{Disk, Op};
use layout::private::Consistency;
use layout::{Layout, Level, MemberId, Slot, Stripe};
use metadata::create::NewArray;

use crate::world::{Fault, FaultyDisk, World, map_of, pattern};

const CHUNK: u64 = 16 << 10;
const BLOCK: usize = 4096;
const MEMBER_BYTES: u64 = 6 << 20;

/// The members with the first stripe's data in order, and the member with its P.
fn slots_of(array: &Array) -> (Vec<usize>, usize) {
    let map = array.geometry().stripe(Stripe(0));
    ((0..map.data_count()).map(|index| map.data(index).index()).collect(), map.p().index())
}

fn new_array(level: Level, members: usize) -> NewArray {
    let layout = Layout::default_for(level, members);
    let checksums = Some(false);
    NewArray { zeroed: true, checksums, ..NewArray::new("tank", layout, CHUNK) }
}

/// An array with durable content.
fn filled(world: &World, new: &NewArray) -> (Array, Vec<u8>) {
    world.create(new);
    let array = world.start();
    let content = pattern(0, 256 << 10, 1);
    world.write(&array, 0, &content).expect("the array is healthy");
    world.flush(&array);
    (array, content)
}

/// A rebuild puts another disk in the place of a member.
fn rebuild(world: &mut World, array: &Array, member: usize) {
    let spare = FaultyDisk::new(MEMBER_BYTES);
    world.run(array, array.fail(MemberId(member as u32))).expect("the level tolerates one loss");
    world.run(array, array.add(Rc::clone(&spare) as _, "spare")).expect("the disk is large enough");
    world.until(array, |s| s.slots[member].state == SlotState::InSync && s.job.is_none());
    world.disks[member] = spare;
    world.until(array, |status| status.clean);
}

fn make_whole(world: &World) {
    world.disks.iter().for_each(|disk| disk.faults.borrow_mut().clear());
}

fn done(status: &Status) -> u64 {
    status.job.as_ref().map_or(0, |job| job.done_bytes)
}

/// A row is as high as a chunk. Its first block is listed. A crash without a log interrupts a write
/// `away` bytes from that: parity is old there, and must not be trusted once everything counts as
/// synced.
fn is_compared_beside_a_listed_block(level: Level, members: usize, away: u64, repair: bool) {
    let mut world = World::new(members, MEMBER_BYTES);
    let consistency = Some(Consistency::Bitmap);
    let (array, content) = filled(&world, &NewArray { consistency, ..new_array(level, members) });
    let (data, parity) = slots_of(&array);
    let offset = world.data_offset();
    for &member in &data[1..=array.geometry().redundancy()] {
        world.disks[member].break_with(Fault::Unreadable { offset, len: BLOCK as u64 });
    }
    rebuild(&mut world, &array, data[0]);
    make_whole(&world);
    world.write(&array, 192 << 10, &content[192 << 10..196 << 10]).expect("the array is healthy");
    world.disks[parity].break_with(Fault::HungFrom(offset));
    drop(world.begin(&array, 2 * CHUNK + away, &pattern(2 * CHUNK + away, BLOCK, 3)));
    world.crash(array);
    make_whole(&world);
    let array = world.start();
    for _ in 0..2 {
        if let Ok(read) = world.read(&array, 0, BLOCK) {
            assert!(read == content[..BLOCK], "{level}: what is listed is invented");
        }
        world.until(&array, |status| status.clean && status.job.is_none());
    }
    if repair {
        array.scrub(true).expect("the scrub starts");
        world.until(&array, |status| status.last_scrub.is_some() && status.job.is_none());
    }
    world.run(&array, array.fail(MemberId(data[1] as u32))).expect("the member is in sync");
    let at = CHUNK + away;
    match world.read(&array, at, BLOCK) {
        Ok(read) => assert!(read == content[at as usize..][..BLOCK], "{level}: it is invented"),
        Err(error) => assert!(away == 0, "{level}: only what is listed is lost: {error}"),
    }
}

#[test]
fn a_resync_compares_the_neighbours_of_a_listed_block() {
    for (level, members) in [(Level::Raid5, 4), (Level::Raid4, 4), (Level::Raid6, 6)] {
        for repair in [false, true] {
            is_compared_beside_a_listed_block(level, members, 2 * BLOCK as u64, repair);
        }
    }
}

#[test]
fn parity_that_a_resync_could_not_make_is_not_trusted() {
    for (level, members) in [(Level::Raid5, 4), (Level::Raid4, 4), (Level::Raid6, 6)] {
        is_compared_beside_a_listed_block(level, members, 0, false);
    }
}

/// In a row as high as a chunk, another block of the same member is wrong beside a listed one.
#[test]
fn a_repair_corrects_listed_blocks_and_their_neighbours() {
    for (level, members) in [(Level::Raid5, 4), (Level::Raid6, 6)] {
        let mut world = World::new(members, MEMBER_BYTES);
        let (array, content) = filled(&world, &new_array(level, members));
        let (data, _) = slots_of(&array);
        let (offset, most) = (world.data_offset(), array.geometry().redundancy());
        for &member in &data[1..=most] {
            world.disks[member].break_with(Fault::Unreadable { offset, len: BLOCK as u64 });
        }
        rebuild(&mut world, &array, data[0]);
        make_whole(&world);
        if level == Level::Raid6 {
            world.disks[data[0]].disk.poke(offset + 2 * BLOCK as u64, &[1; BLOCK]);
        }
        array.scrub(true).expect("the scrub starts");
        world.until(&array, |status| status.last_scrub.is_some() && status.job.is_none());
        let report = array.status().last_scrub.expect("just made").report;
        assert_eq!(report.repaired_bytes, most as u64 * BLOCK as u64, "{level}");
        assert_eq!(report.mismatches, most as u64 - 1, "{level}");
        for &member in &data[1..=most] {
            world
                .run(&array, array.fail(MemberId(member as u32)))
                .expect("the level tolerates these losses");
        }
        let read = world.read(&array, 0, CHUNK as usize).expect("it was repaired");
        assert!(read == content[..CHUNK as usize], "{level}");
    }
}

/// Two slots are rebuilt together, and one was further along: its recovered contents are used.
#[test]
fn a_rebuild_of_two_uses_the_recovered_part_of_one() {
    let mut world = World::new(6, MEMBER_BYTES);
    (world.host.bounds.checkpoint_bytes, world.host.bounds.unit_bytes) = (64 << 10, 128 << 10);
    let (array, content) = filled(&world, &new_array(Level::Raid6, 6));
    let (data, _) = slots_of(&array);
    let offset = world.data_offset();
    let [one, two] = [0, 1].map(|_| FaultyDisk::new(MEMBER_BYTES));
    *one.clock.borrow_mut() = Some(Rc::clone(&world.clock));
    world.disks.extend([Rc::clone(&one), Rc::clone(&two)]);
    one.delay.set(Duration::from_millis(10));
    world.run(&array, array.fail(MemberId(data[0] as u32))).expect("the level tolerates one loss");
    world.run(&array, array.add(Rc::clone(&one) as _, "one")).expect("the disk is large enough");
    world.until(&array, |status| done(status) >= 512 << 10);
    assert!(array.status().slots[data[0]].state != SlotState::InSync);
    world.disks[data[2]].break_with(Fault::Unreadable { offset, len: BLOCK as u64 });
    world
        .run(&array, array.fail(MemberId(data[1] as u32)))
        .expect("the level tolerates two losses");
    world.run(&array, array.add(Rc::clone(&two) as _, "two")).expect("the disk is large enough");
    world.run(&array, array.stop()).expect("clean");
    one.delay.set(Duration::ZERO);
    let array = world.start();
    let whole = |status: &Status| status.slots.iter().all(|slot| slot.state == SlotState::InSync);
    world.until(&array, |status| whole(status) && status.job.is_none());
    assert!(
        world.read(&array, 0, content.len()).expect("at most two members were lost") == content
    );
}

/// A RAID 5 with the first block of two data members listed.
fn two_listed(checksums: bool) -> (World, Array, Vec<usize>) {
    let mut world = World::new(4, MEMBER_BYTES);
    let checksums = Some(checksums);
    let (array, _) = filled(&world, &NewArray { checksums, ..new_array(Level::Raid5, 4) });
    let (data, _) = slots_of(&array);
    let offset = world.data_offset();
    world.disks[data[1]].break_with(Fault::Unreadable { offset, len: BLOCK as u64 });
    rebuild(&mut world, &array, data[0]);
    rebuild(&mut world, &array, data[1]);
    for block in [0, CHUNK] {
        world.read(&array, block, BLOCK).expect_err("both are lost");
    }
    (world, array, data)
}

#[test]
fn zeroed_blocks_leave_the_list() {
    for checksums in [false, true] {
        let (world, array, _) = two_listed(checksums);
        let zero = Op::new(0, io::Work::Zero { len: 3 * CHUNK, unmap: false, fast: false });
        world.run(&array, array.submit(zero)).result.expect("zeroed");
        world.crash(array);
        let array = world.start();
        assert!(world.read(&array, 0, 3 * CHUNK as usize).is_ok_and(|b| b.iter().all(|b| *b == 0)));
    }
}

fn is_there_after_a_crash(world: &World, array: Array, first: &[u8]) {
    world.flush(&array);
    world.crash(array);
    let array = world.start();
    assert!(world.read(&array, 0, first.len()).expect("the read succeeds") == first);
}

#[test]
fn rewritten_and_flushed_blocks_survive_a_crash() {
    for checksums in [false, true] {
        let (world, array, _) = two_listed(checksums);
        let new = pattern(0, BLOCK, 7);
        world.write(&array, 0, &new).expect("the write succeeds");
        is_there_after_a_crash(&world, array, &new);
    }
}

/// The list on a member is valid at once, without a superblock with that feature.
#[test]
fn a_list_gets_shorter_only_after_the_rewrite_is_durable() {
    let (world, array, data) = two_listed(false);
    world.run(&array, array.stop()).expect("clean");
    world.disks.iter().for_each(|disk| disk.volatile.set(true));
    let array = world.start();
    let new = pattern(0, BLOCK, 7);
    let disk = &world.disks[data[0]];
    *disk.clock.borrow_mut() = Some(Rc::clone(&world.clock));
    let list = map_of(disk).bad_blocks.clone().expect("the member has a bad-block log");
    let listed = || {
        let mut bytes = vec![0; (list.end - list.start) as usize];
        disk.disk.peek(list.start, &mut bytes);
        bytes
    };
    let before = listed();
    disk.delay.set(Duration::from_millis(10));
    drop(world.begin(&array, 0, &new));
    world.until(&array, |_| listed() != before);
    // Of the cached writes, only the list has reached the medium.
    disk.keep(list.clone());
    disk.delay.set(Duration::ZERO);
    world.cut(array);
    let array = world.start();
    assert!(world.read(&array, 0, BLOCK).is_ok_and(|read| read == new), "it is not there");
}

/// Whole stripes zeroed after a crash are right, like written ones.
#[test]
fn stripes_zeroed_before_the_resync_reaches_them_are_verified() {
    let world = World::new(4, MEMBER_BYTES);
    let consistency = Some(Consistency::Bitmap);
    let (array, _) = filled(&world, &NewArray { consistency, ..new_array(Level::Raid5, 4) });
    world.crash(array);
    let array = world.start();
    array.set_speed(1, 1);
    let (data, _) = slots_of(&array);
    let (at, len) = (300 * CHUNK, 3 * CHUNK);
    let zero = Op::new(at, io::Work::Zero { len, unmap: false, fast: false });
    world.run(&array, array.submit(zero)).result.expect("zeroed");
    world.flush(&array);
    assert!(array.status().unsynced_bytes > 0);
    world.disks[data[0]].break_with(Fault::Gone);
    let read = world.read(&array, at, len as usize).expect("durable");
    assert!(read.iter().all(|byte| *byte == 0));
}

/// A RAID 0 whose first member is being copied.
fn copied(delay: Duration) -> (World, Array, Vec<u8>, Rc<FaultyDisk>) {
    let mut world = World::new(3, MEMBER_BYTES);
    (world.host.bounds.checkpoint_bytes, world.host.bounds.unit_bytes) = (64 << 20, 128 << 10);
    world.create(&NewArray { checksums: None, ..new_array(Level::Raid0, 3) });
    let array = world.start();
    let content = pattern(0, 4 << 20, 1);
    world.write(&array, 0, &content).expect("the array is healthy");
    world.flush(&array);
    let copy = FaultyDisk::new(MEMBER_BYTES);
    *copy.clock.borrow_mut() = Some(Rc::clone(&world.clock));
    world.disks.push(Rc::clone(&copy));
    let spare = world
        .run(&array, array.add(Rc::clone(&copy) as _, "copy"))
        .expect("the disk is large enough");
    copy.delay.set(delay);
    world.run(&array, array.replace(Slot::new(0), spare)).expect("a spare, and a slot in sync");
    (world, array, content, copy)
}

/// Without redundancy, data lost by a copy cannot be recovered.
#[test]
fn a_copy_that_has_failed_a_flush_does_not_take_the_slot() {
    let (world, array, content, copy) = copied(Duration::from_millis(10));
    copy.flush_fails_in.set(Some(0));
    world.until(&array, |status| done(status) >= 2 << 20);
    assert!(array.status().slots[0].replacement.is_some(), "it is still being filled");
    world.write(&array, 0, &content[..BLOCK]).expect("the array is healthy");
    world.flush(&array);
    assert!(copy.flush_fails_in.get().is_none(), "it has failed");
    world.until(&array, |status| status.job.is_none() && status.slots[0].replacement.is_none());
    let read = world.read(&array, 0, content.len()).expect("the read succeeds");
    assert!(read == content, "the copy has lost a part");
}

#[test]
fn a_copy_that_has_missed_a_write_does_not_take_the_slot() {
    let (world, array, _, copy) = copied(Duration::from_millis(100));
    world.until(&array, |status| done(status) >= 1 << 20);
    copy.break_with(Fault::WriteError);
    let new = pattern(0, BLOCK, 9);
    world.write(&array, 0, &new).expect("the member accepts the write");
    copy.faults.borrow_mut().clear();
    world.until(&array, |status| status.job.is_none() && status.slots[0].replacement.is_none());
    assert!(
        world.read(&array, 0, BLOCK).expect("the read succeeds") == new,
        "data already read has changed"
    );
}

/// Where neither parity nor another block is left, only the log has the checksums.
#[test]
fn a_write_beside_a_listed_block_matches_its_checksum_after_a_crash() {
    let (world, array, _) = two_listed(true);
    world.write(&array, 0, &pattern(0, BLOCK, 7)).expect("the write succeeds");
    world.until(&array, |status| status.clean);
    let new = pattern(0, BLOCK, 9);
    world.write(&array, 0, &new).expect("the write succeeds");
    // Older records of the row are superseded.
    world.write(&array, 192 << 10, &new).expect("the array is healthy");
    is_there_after_a_crash(&world, array, &new);
}

/// A block and parity of its row are unreadable while another block is written. The log has an
/// older write to the row, which matches older contents.
#[test]
fn unreadable_blocks_are_not_recovered_from_an_older_record() {
    for (level, members) in [(Level::Raid5, 4), (Level::Raid4, 4), (Level::Raid6, 6)] {
        for checksums in [false, true] {
            let world = World::new(members, MEMBER_BYTES);
            let checksums = Some(checksums);
            let new = NewArray { checksums, ..new_array(level, members) };
            let (array, content) = filled(&world, &new);
            let map = array.geometry().stripe(Stripe(0));
            world.write(&array, 2 * CHUNK, &pattern(0, BLOCK, 5)).expect("the array is healthy");
            world.flush(&array);
            let offset = world.data_offset();
            let unreadable = Fault::Unreadable { offset, len: BLOCK as u64 };
            let one = map.data(1).index();
            let bad = [one, map.p().index()].into_iter().chain(map.q().map(|q| q.index()));
            bad.for_each(|member| world.disks[member].break_with(unreadable));
            let new = pattern(0, BLOCK, 7);
            world.write(&array, 0, &new).expect("the write succeeds");
            world.flush(&array);
            world.crash(array);
            world.disks[one].break_with(unreadable);
            let array = world.start();
            assert!(world.read(&array, 0, BLOCK).expect("the read succeeds") == new, "{level}");
            let read = world.read(&array, CHUNK, BLOCK);
            let held = |read: Vec<u8>| read == content[CHUNK as usize..][..BLOCK];
            assert!(read.is_ok_and(held) || world.read(&array, CHUNK, BLOCK).is_err(), "{level}");
        }
    }
}

/// A member written together with the listed one is lost meanwhile: nothing is sent again.
#[test]
fn a_rewritten_listed_block_is_good_though_another_member_is_lost() {
    for (level, members) in [(Level::Raid5, 4), (Level::Raid4, 4), (Level::Raid1, 2)] {
        for checksums in [false, true] {
            let mut world = World::new(members, MEMBER_BYTES);
            let layout = Layout::default_for(level, members);
            let checksums = Some(checksums);
            let chunk = if level == Level::Raid1 { 0 } else { CHUNK };
            let new = NewArray { zeroed: true, checksums, ..NewArray::new("tank", layout, chunk) };
            let (array, _) = filled(&world, &new);
            let (listed, source, other) = match level {
                Level::Raid1 => (0, 1, 1),
                _ => {
                    let (data, parity) = slots_of(&array);
                    (data[0], data[1], parity)
                }
            };
            let offset = world.data_offset();
            world.disks[source].break_with(Fault::Unreadable { offset, len: BLOCK as u64 });
            rebuild(&mut world, &array, listed);
            make_whole(&world);
            world.disks[other].break_with(Fault::WriteErrorAt(offset));
            let new = pattern(0, BLOCK, 7);
            world.write(&array, 0, &new).expect("the write succeeds");
            let read = world.read(&array, 0, BLOCK);
            assert!(read.expect("it was acknowledged") == new, "{level}");
            world.flush(&array);
            world.crash(array);
            let array = world.start_without(&[other]);
            assert!(world.read(&array, 0, BLOCK).expect("the read succeeds") == new, "{level}");
        }
    }
}

/// Members with one unreadable block each, all in different rows: nothing is lost, even by one
/// large read.
#[test]
fn blocks_that_cannot_be_read_cost_no_other_ones_of_their_chunks() {
    for (level, members) in [(Level::Raid5, 4), (Level::Raid4, 4), (Level::Raid6, 6)] {
        for checksums in [false, true] {
            let world = World::new(members, MEMBER_BYTES);
            let checksums = Some(checksums);
            let new = NewArray { checksums, ..new_array(level, members) };
            let (array, content) = filled(&world, &new);
            let (data, _) = slots_of(&array);
            for (block, &member) in data[..=array.geometry().redundancy()].iter().enumerate() {
                let (offset, len) = (world.data_offset() + (block * BLOCK) as u64, BLOCK as u64);
                world.disks[member].break_with(Fault::Unreadable { offset, len });
            }
            let read = world.read(&array, 0, CHUNK as usize).expect("no data is lost");
            assert!(read == content[..CHUNK as usize], "{level}");
        }
    }
}

/// The first entry of a bad-block list, and a crash in the middle of its commit.
#[test]
fn the_first_bad_block_of_a_member_is_not_forgotten_with_its_superblock() {
    let mut world = World::new(3, 8 << 20);
    world.host.bounds.job_units = 1;
    let chunk = 16 << 10;
    let layout = Layout::default_for(Level::Raid5, 3);
    world.create(&NewArray {
        zeroed: true,
        checksums: Some(false),
        consistency: Some(Consistency::Bitmap),
        ..NewArray::new("tank", layout, chunk)
    });
    let array = world.start();
    let stripe_bytes = array.geometry().stripe_bytes();
    let stripe = array.geometry().stripes() - 2;
    let (at, len) = (stripe * stripe_bytes, stripe_bytes as usize);
    world.write(&array, at, &pattern(at, len, 1)).expect("the array is healthy");
    world.flush(&array);
    let map = array.geometry().stripe(Stripe(stripe));
    let (p, d1) = (map.p().index(), map.data(1).index());
    let from = map_of(&world.disks[p]).data.start;
    world.disks[p].break_with(Fault::HungFrom(from));
    drop(world.begin(&array, at, &pattern(at, 4096, 2)));
    assert!(world.disks[p].is_holding() > 0);
    world.crash(array);

    let offset = map_of(&world.disks[d1]).data.start + map.member_offset();
    let unreadable = Fault::Unreadable { offset, len: 4096 };
    world.disks[d1].break_with(unreadable);
    let array = world.start();
    array.set_speed(1, 1);
    world.write(&array, 0, &pattern(0, 4096, 3)).expect("the array is healthy");
    world.until(&array, |status| status.clean);
    assert!(array.status().unsynced_bytes > 0);
    world
        .read(&array, at + chunk, 4096)
        .expect_err("parity is unverified and the block is unreadable");
    // The resync reaches the row; the commit after it reaches all members but one.
    world.disks[p].break_with(Fault::HungAt(4096));
    array.set_speed(u64::MAX, u64::MAX);
    world.sleep(&array, Duration::from_secs(5));
    assert!(world.disks[p].is_holding() > 0, "its superblock");
    world.read(&array, at + chunk, 4096).expect_err("the old content cannot be determined");
    world.crash(array);
    world.disks[d1].break_with(unreadable);
    let array = world.start();
    let found = world.read(&array, at + chunk, 4096);
    if let Ok(found) = found {
        assert!(found == pattern(at + chunk, 4096, 1), "garbage is delivered");
    }
}

/// A member is lost before the resync after a crash has ended, and a spare takes over: unverified
/// rows return errors. No survivor may be given up for that.
#[test]
fn lists_that_are_full_cost_no_survivor() {
    let mut world = World::new(4, 96 << 20);
    world.host.bounds.unit_bytes = 1 << 20;
    let chunk = 4 << 10;
    let layout = Layout::default_for(Level::Raid5, 3);
    world.create(&NewArray {
        zeroed: true,
        spares: 1,
        checksums: Some(false),
        consistency: Some(Consistency::Bitmap),
        ..NewArray::new("tank", layout, chunk)
    });
    let array = world.start();
    let stripe = array.geometry().stripes() / 4;
    let (at, len) = (stripe * array.geometry().stripe_bytes(), 8192);
    let good = array.limits().bytes - (1 << 20);
    world.write(&array, good, &pattern(good, 4096, 1)).expect("the array is healthy");
    world.flush(&array);
    let map = array.geometry().stripe(Stripe(stripe));
    let p = map.p().index();
    world.disks[p].break_with(Fault::HungFrom(map_of(&world.disks[p]).data.start));
    drop(world.begin(&array, at, &pattern(at, len, 2)));
    world.crash(array);
    let array = world.start();
    array.set_speed(1, 1);
    world.sleep(&array, Duration::from_secs(1));
    world.disks[0].break_with(Fault::Gone);
    let _ = world.read(&array, good, 65536);
    world.sleep(&array, Duration::from_secs(1));
    array.set_speed(u64::MAX, u64::MAX);
    world.sleep(&array, Duration::from_secs(100));
    assert_eq!(array.status().mode, layout::Mode::ReadWrite);
    world.write(&array, good, &pattern(good, 4096, 3)).expect("one of three members is lost");
}

/// The list of a whole member is full when its parity is discarded, while another member is
/// rebuilt. Old parity must not be trusted after the next start, whatever that costs.
#[test]
fn parity_given_up_on_a_full_list_is_not_trusted_later() {
    let mut world = World::new(5, 16 << 20);
    world.host.bounds.job_units = 1;
    let consistency = Some(Consistency::Bitmap);
    world.create(&NewArray { consistency, ..new_array(Level::Raid6, 5) });
    let array = world.start();
    let stripe_bytes = array.geometry().stripe_bytes();
    let stripe = array.geometry().stripes() - 2;
    let at = stripe * stripe_bytes;
    world.write(&array, at, &pattern(at, stripe_bytes as usize, 1)).expect("the array is healthy");
    world.flush(&array);
    let map = array.geometry().stripe(Stripe(stripe));
    let (p, q) = (map.p().index(), map.q().expect("level 6").index());
    let (x, y) = (map.data(0).index(), map.data(1).index());
    world.run(&array, array.stop()).expect("the array stops");
    let disk = map_of(&world.disks[p]);
    let mut list = layout::md::BadBlocks::default();
    (0..512).for_each(|entry| {
        let start = disk.data.start / 512 + 2 * entry;
        list.add(start..start + 1);
    });
    let bytes = list.print(0, 8).expect("512 bytes fit");
    world.disks[p]
        .disk
        .poke(disk.bad_blocks.clone().expect("the member has a bad-block log").start, &bytes);

    let array = world.start();
    array.set_speed(1, 1);
    let spare = FaultyDisk::new(16 << 20);
    *spare.clock.borrow_mut() = Some(Rc::clone(&world.clock));
    world.run(&array, array.fail(MemberId(q as u32))).expect("the level tolerates one loss");
    world
        .run(&array, array.add(Rc::clone(&spare) as _, "spare"))
        .expect("the disk is large enough");
    world.sleep(&array, Duration::from_secs(1));
    assert!(array.status().job.is_some(), "it is being filled");
    for disk in [x, p] {
        let offset = map_of(&world.disks[disk]).data.start + map.member_offset();
        world.disks[disk].break_with(Fault::Unreadable { offset, len: 4096 });
    }
    let written = pattern(at + CHUNK, BLOCK, 2);
    world.write(&array, at + CHUNK, &written).expect("lost blocks of this row stay lost");
    world.flush(&array);
    world.sleep(&array, Duration::from_secs(1));
    world.run(&array, array.stop()).expect("the array stops");
    make_whole(&world);
    world.disks[q] = spare;
    let array = world.start();
    array.set_speed(1, 1);
    world.disks[y].break_with(Fault::Gone);
    let found = world.read(&array, at + CHUNK, BLOCK);
    if let Ok(found) = found {
        assert!(found != pattern(at + CHUNK, BLOCK, 1), "the data before the last write");
        assert!(found == written, "garbage is delivered");
    }
}
