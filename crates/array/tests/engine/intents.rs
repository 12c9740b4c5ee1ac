//! The intent log: an interrupted write leaves every block that it did not touch as it was, even
//! with members missing. The log is trusted only if no other program has run the array since.

use std::rc::Rc;
use std::time::Duration;

use array::Array;
use array::status::SlotState;
use io::{Clock, Disk, Op};
use layout::md::{Superblock, Timestamp};
use layout::private::Consistency;
use layout::{Layout, Level, MemberId, Stripe};
use metadata::assemble::{Note, Options};
use metadata::create::NewArray;

use crate::world::{Fault, FaultyDisk, World, holder, map_of, pattern};

const CHUNK: u64 = 16 << 10;
const SUPERBLOCK: u64 = 4096;
const BITMAP: u64 = 8192;

/// A RAID 5 of 4 or RAID 6 of 5 with three data chunks in a stripe, at slots 0 to 2 of stripe 0 for
/// RAID 5. It is full of a durable pattern and marked dirty.
fn filled(level: Level, consistency: Option<Consistency>) -> (World, Array) {
    filled_with(level, |new| new.consistency = consistency)
}

fn filled_with(level: Level, change: impl Fn(&mut NewArray)) -> (World, Array) {
    let members = if level == Level::Raid6 { 5 } else { 4 };
    let world = World::new(members, 8 << 20);
    let layout = Layout::default_for(level, members);
    let mut new = NewArray { zeroed: true, ..NewArray::new("tank", layout, CHUNK) };
    change(&mut new);
    world.create(&new);
    let array = world.start();
    world.write(&array, 0, &pattern(0, 512 << 10, 1)).expect("the array is healthy");
    world.flush(&array);
    (world, array)
}

/// Records stay in the log while an older one is live. So the record of a flushed stripe is still
/// there, and a newer one covers a part of a checked block.
#[test]
fn durable_data_stays_though_a_newer_record_has_a_part_of_its_block() {
    for (level, missing) in [(Level::Raid5, vec![1]), (Level::Raid6, vec![1, 2])] {
        let (world, array) = filled_with(level, |new| new.checksums = Some(false));
        let other = world.data_offset() + 4 * CHUNK;
        let held = &world.disks[array.geometry().stripe(layout::Stripe(4)).data(0).index()];
        held.break_with(Fault::HungAt(other));
        let write = world.begin(&array, 4 * 3 * CHUNK, &pattern(0, 512, 2));
        assert_eq!(held.is_holding(), 1, "its batch keeps all that come after it");
        let stripe = pattern(0, 3 * CHUNK as usize, 3);
        world.write(&array, 0, &stripe).expect("the array is healthy");
        world.flush(&array);
        world.write(&array, 0, &pattern(0, 2048, 4)).expect("the array is healthy");
        let missing: Vec<usize> = missing.iter().map(|&index| holder(&array, index)).collect();
        drop(write);
        world.crash(array);
        let array = world.start_without(&missing);
        for index in [1, 2] {
            let at = (index * CHUNK) as usize;
            let found =
                world.read(&array, at as u64, CHUNK as usize).expect("the data was flushed");
            assert!(found == stripe[at..at + CHUNK as usize], "{level} {index}");
        }
    }
}

#[test]
fn blocks_beside_a_torn_write_survive_the_loss_of_their_member() {
    for (level, missing) in [(Level::Raid5, vec![1]), (Level::Raid6, vec![1, 2])] {
        for hung in [0, 3] {
            let (world, array) = filled(level, None);
            // The data arrives and parity does not, or vice versa.
            let held = &world.disks[holder(&array, hung)];
            held.break_with(Fault::HungFrom(world.data_offset()));
            let write = world.begin(&array, 512, &pattern(512, 8192, 2));
            assert_eq!(held.is_holding(), 1);
            let missing: Vec<usize> = missing.iter().map(|&index| holder(&array, index)).collect();
            drop(write);
            world.crash(array);
            let array = world.start_without(&missing);
            for index in [1, 2] {
                let at = index * CHUNK;
                let found =
                    world.read(&array, at, CHUNK as usize).expect("the block was not written");
                assert!(found == pattern(at, CHUNK as usize, 1), "{level} {index} {hung}");
            }
            let found = world.read(&array, 512, 8192).expect("the read succeeds");
            let salt = if hung == 0 { 1 } else { 2 };
            assert!(found == pattern(512, 8192, salt), "{level} {hung}");
        }
    }
}

#[test]
fn without_the_log_such_an_array_is_not_started() {
    let (world, array) = filled(Level::Raid5, Some(Consistency::Bitmap));
    world.disks[holder(&array, 0)].break_with(Fault::HungWrites);
    let write = world.begin(&array, 512, &pattern(512, 8192, 2));
    let missing = holder(&array, 1);
    drop(write);
    world.crash(array);
    let refused =
        world.assemble_without(&[missing]).err().expect("the array assembles").to_string();
    assert!(refused.contains("--force-dirty-degraded"), "{refused}");
}

#[test]
fn a_log_of_before_somebody_else_ran_the_array_is_ignored() {
    for events_too in [false, true] {
        let (world, array) = filled(Level::Raid5, None);
        world.disks[holder(&array, 0)].break_with(Fault::HungWrites);
        let write = world.begin(&array, 512, &pattern(512, 8192, 2));
        let missing = holder(&array, 1);
        drop(write);
        world.crash(array);
        assert!(world.assemble_without(&[missing]).is_ok(), "the log is good");
        // The state after a kernel's session that ended in a crash: no microseconds, and perhaps
        // the same event count.
        for disk in &world.disks {
            let mut bytes = vec![0; 4096];
            disk.disk.peek(SUPERBLOCK, &mut bytes);
            let mut superblock = Superblock::parse(&bytes, SUPERBLOCK / 512).expect("ours");
            superblock.utime = Timestamp::new(superblock.utime.seconds() + 9, 0);
            superblock.events += if events_too { 2 } else { 0 };
            disk.disk.poke(SUPERBLOCK, &superblock.print());
        }
        let refused = world.assemble_without(&[missing]).err().expect("md's rule holds");
        assert!(refused.to_string().contains("--force-dirty-degraded"), "{refused}");
        let whole = world.assemble_without(&[]).expect("all members are present");
        let unusable = |note: &Note| match note {
            Note::LogUnusable { why } => why.contains("another system"),
            _ => false,
        };
        assert!(whole.notes.iter().any(unusable), "{:?}", whole.notes);
        assert!(whole.recovered.unsynced.overlaps(0..CHUNK), "all marked regions are synced");
    }
}

#[test]
fn no_data_is_written_before_the_log_is_durable_and_a_failed_log_costs_its_member() {
    let (world, array) = filled(Level::Raid5, None);
    let (data, parity) = (holder(&array, 0), holder(&array, 3));
    world.disks[parity].break_with(Fault::HungWrites);
    let before = world.disks[data].writes.get();
    let write = world.begin(&array, 512, &pattern(512, 4096, 2));
    assert_eq!(world.disks[data].writes.get(), before, "the log hangs, so the data waits");
    assert!(world.disks[parity].is_holding() > 0);
    let done = world.run(&array, write);
    done.result.expect("the member that could not log is lost; the level does without");
    assert!(array.status().slots[parity].member.is_none());
    assert_eq!(world.read(&array, 512, 4096).expect("the read succeeds"), pattern(512, 4096, 2));

    let (world, array) = filled(Level::Raid5, None);
    world.disks[parity].break_with(Fault::WriteError);
    world.write(&array, 512, &pattern(512, 4096, 2)).expect("as in the case above");
    assert!(array.status().slots[parity].member.is_none());
    world.crash(array);
    let array = world.start_without(&[parity]);
    assert_eq!(world.read(&array, 512, 4096).expect("the read succeeds"), pattern(512, 4096, 2));
}

#[test]
fn a_row_is_replayed_with_a_block_that_was_unreadable_just_then() {
    let (world, array) = filled(Level::Raid5, None);
    let (first, second) = (holder(&array, 0), holder(&array, 1));
    // Two blocks of a row: the second one keeps its old contents.
    world.disks[second].break_with(Fault::HungFrom(world.data_offset()));
    // In stripe 8, which has the members of stripe 0.
    let at = 8 * 3 * CHUNK + 4096;
    let both = pattern(at, CHUNK as usize + 4096, 2);
    drop(world.begin(&array, at, &both));
    world.crash(array);
    let assembly = world.assemble(0..4, &Options::default()).expect("all members are present");
    world.disks[second].break_with(Fault::Hung);
    let array = Array::start(assembly, &world.host);
    // The comparison in the background must not matter.
    array.set_speed(1, 1);
    let until = world.clock.now() + world.host.bounds.deadline / 2;
    world.run(&array, world.clock.sleep_until(until));
    assert!(world.disks[second].is_holding() > 0, "it is asked for what it holds");
    world.disks[second].faults.borrow_mut().clear();
    let found = world.read(&array, at, 4096).expect("the member was never lost");
    assert!(found == both[..4096]);
    // The rows agree now, so any one member may be lost.
    world.disks[first].break_with(Fault::Gone);
    let found = world.read(&array, at, 4096).expect("one loss");
    assert!(found == both[..4096], "the result depends on a block outside parity");
}

/// A replayed row is whole. A read of it returns the same data again, even if the power fails
/// before any write, together with a member.
#[test]
fn replayed_data_stays_though_its_member_is_lost_in_the_next_crash() {
    for (level, lost) in [(Level::Raid5, vec![1]), (Level::Raid6, vec![0, 1])] {
        let (world, array) = filled(level, None);
        for &index in &lost {
            world.disks[holder(&array, index)].break_with(Fault::HungFrom(world.data_offset()));
        }
        // A write to all of a row that does not reach the members to be lost.
        drop(world.begin(&array, 0, &pattern(0, 3 * CHUNK as usize, 2)));
        world.crash(array);
        world.disks.iter().for_each(|disk| disk.faults.borrow_mut().clear());
        let array = world.start();
        let read = world.read(&array, 0, 3 * CHUNK as usize).expect("all members are present");
        let lost: Vec<usize> = lost.iter().map(|&index| holder(&array, index)).collect();
        world.cut(array);
        let array = world.start_without(&lost);
        let again = world.read(&array, 0, 3 * CHUNK as usize).expect("the read succeeds");
        assert!(again == read, "{level}");
    }
}

/// Between the failure and its record the member may write the next batch.
#[test]
fn a_log_is_good_though_its_member_failed_to_take_one_batch_of_it() {
    let (world, array) = filled(Level::Raid5, None);
    let (data, parity) = (holder(&array, 0), holder(&array, 3));
    world.disks[parity].break_with(Fault::HungWrites);
    let first = world.begin(&array, 512, &pattern(512, 4096, 2));
    let second = world.begin(&array, 8192, &pattern(8192, 4096, 2));
    assert_eq!(world.disks[parity].is_holding(), 1, "the second batch gathers meanwhile");
    world.disks[parity].faults.borrow_mut().clear();
    // The loss of the member is not recorded.
    world.disks[data].break_with(Fault::HungAt(BITMAP));
    world.run(&array, second).result.expect("the write succeeds");
    drop(first);
    let missing = holder(&array, 1);
    world.crash(array);
    let array = world.start_without(&[missing]);
    assert_eq!(world.read(&array, 8192, 4096).expect("acknowledged"), pattern(8192, 4096, 2));
    let found = world.read(&array, CHUNK, CHUNK as usize).expect("the block was not written");
    assert!(found == pattern(CHUNK, CHUNK as usize, 1));
}

#[test]
fn a_torn_and_lost_block_is_an_error_until_it_is_written() {
    let (world, array) = filled(Level::Raid5, None);
    let (second, parity) = (holder(&array, 1), holder(&array, 3));
    // Two blocks of a row: the second one and parity keep their old contents, though both are
    // logged.
    for member in [second, parity] {
        world.disks[member].break_with(Fault::HungFrom(world.data_offset()));
    }
    let row = |index: u64| index * CHUNK + 4096;
    // Parity must not yield the new second block by chance.
    let mut both = pattern(row(0), (CHUNK + 4096) as usize, 2);
    both[(CHUNK - 4096) as usize..].fill(0x77);
    let write = world.begin(&array, row(0), &both);
    drop(write);
    world.crash(array);
    let check = |array: &Array| {
        let error = world
            .read(array, row(1), 512)
            .expect_err("neither old nor new content can be determined");
        assert!(matches!(error.kind(), io::ErrorKind::Medium { .. }), "{error}");
        for (at, salt) in [(0, 1), (row(0), 2), (CHUNK + 8192, 1), (row(2), 1)] {
            let found = world.read(array, at, 4096).expect("only that block is lost");
            assert_eq!(found, pattern(at, 4096, salt), "{at}");
        }
    };
    let array = world.start_without(&[second]);
    check(&array);
    world.write(&array, 0, &pattern(0, 4096, 1)).expect("all other blocks of the row are valid");
    world.write(&array, row(2), &pattern(row(2), 4096, 1)).expect("also within the row");
    world.crash(array);
    let array = world.start_without(&[second]);
    check(&array);
    world.run(&array, array.stop()).expect("the array stops");
    let array = world.start_without(&[second]);
    check(&array);
    world.write(&array, row(1), &pattern(row(1), 4096, 3)).expect("a write repairs it");
    assert_eq!(world.read(&array, row(1), 4096).expect("mended"), pattern(row(1), 4096, 3));
    world.crash(array);
    let array = world.start_without(&[second]);
    assert_eq!(world.read(&array, row(1), 4096).expect("mended"), pattern(row(1), 4096, 3));
    world.run(&array, array.stop()).expect("the array stops");
    let array = world.start_without(&[second]);
    assert_eq!(
        world.read(&array, row(1), 4096).expect("the read succeeds"),
        pattern(row(1), 4096, 3)
    );
}

#[test]
fn a_row_written_twice_before_a_flush_is_made_durable_in_between() {
    let (world, array) = filled(Level::Raid5, None);
    world.crash(array);
    world.disks.iter().for_each(|disk| disk.volatile.set(true));
    let array = world.start_without(&[]);
    world.flush(&array);
    world.until(&array, |status| status.unsynced_bytes == 0);
    world.write(&array, 64 << 10, &pattern(64 << 10, 4096, 2)).expect("the shard is awake");
    let flushes = || world.disks.iter().map(|disk| disk.flushes.get()).sum::<u64>();
    let before = flushes();
    world.write(&array, 0, &pattern(0, 4096, 2)).expect("the array is healthy");
    world.write(&array, 0, &pattern(0, 4096, 3)).expect("the same block again");
    world.write(&array, 8192, &pattern(8192, 4096, 2)).expect("another row");
    assert_eq!(flushes(), before, "a record depends on undurable data");
    world.write(&array, CHUNK, &pattern(CHUNK, 4096, 2)).expect("another block of the first row");
    assert!(flushes() > before, "its syndrome holds the first one");
}

#[test]
fn the_log_wraps_around_and_holds_the_newest_records() {
    let (mut world, array) = filled(Level::Raid6, None);
    world.crash(array);
    world.host.bounds.log_bytes = 128 << 10;
    let array = world.start_without(&[]);
    for round in 0..200_u64 {
        let at = round * 7 % 60 * 8192 + 512 * (round % 5);
        world.write(&array, at, &pattern(at, 1024, round as u8)).expect("the array is healthy");
    }
    let mut expected = pattern(0, 512 << 10, 1);
    for round in 0..200_u64 {
        let at = (round * 7 % 60 * 8192 + 512 * (round % 5)) as usize;
        expected[at..at + 1024].copy_from_slice(&pattern(at as u64, 1024, round as u8));
    }
    world.crash(array);
    let array = world.start_without(&[0, 3]);
    for at in (0..512 << 10).step_by(16 << 10) {
        let found = world
            .read(&array, at as u64, 16 << 10)
            .expect("the array starts with two missing members");
        assert!(found == expected[at..at + (16 << 10)], "at {at}");
    }
}

/// A batch goes to the log of P's member and to that of Q's. If the power fails when only one has
/// it, its rows were not written: that half must not count as a torn row.
#[test]
fn a_batch_that_reached_one_of_two_logs_costs_no_block() {
    for late in [3, 4] {
        let (world, array) = filled(Level::Raid6, None);
        let held = &world.disks[holder(&array, late)];
        held.break_with(Fault::HungWrites);
        let write = world.begin(&array, 512, &pattern(512, 8192, 2));
        assert_eq!(held.is_holding(), 1, "the other half of the batch");
        let missing = [holder(&array, 1), holder(&array, 2)];
        drop(write);
        world.crash(array);
        let array = world.start_without(&missing);
        for at in (0..512 << 10).step_by(CHUNK as usize) {
            let found = world
                .read(&array, at, CHUNK as usize)
                .expect("the array starts with two missing members");
            assert!(found == pattern(at, CHUNK as usize, 1), "nothing was written at {at}");
        }
    }
}

/// The same with an older record of the row, and another power failure before its replay has ended,
/// but after absent members were recorded as stale. No member counts as a later one.
#[test]
fn a_batch_that_reached_one_of_two_logs_costs_no_block_after_a_second_crash() {
    for late in [3, 4] {
        let (world, array) = filled_with(Level::Raid6, |new| new.checksums = Some(false));
        world.run(&array, array.stop()).expect("the array stops");
        world.disks.iter().for_each(|disk| disk.volatile.set(true));
        let (array, data) = (world.start(), world.data_offset());
        world.write(&array, 512, &pattern(512, 8192, 2)).expect("the array is healthy");
        let held = &world.disks[holder(&array, late)];
        held.break_with(Fault::HungWrites);
        let write = world.begin(&array, 512, &pattern(512, 8192, 3));
        assert_eq!(held.is_holding(), 1, "the other half of the batch");
        // Of the row, only the data is on its disk.
        world.disks[holder(&array, 0)].keep(data..data + CHUNK);
        let missing = [holder(&array, 1), holder(&array, 2)];
        drop(write);
        world.cut(array);
        world.disks.iter().for_each(|disk| disk.break_with(Fault::HungFrom(data)));
        let array = world.start_without(&missing);
        let soon = world.clock.now() + Duration::from_millis(5);
        world.run(&array, world.clock.sleep_until(soon));
        assert!(world.disks.iter().any(|disk| disk.is_holding() > 0), "a row is made right");
        world.cut(array);

        let array = world.start_without(&missing);
        for at in (CHUNK..512 << 10).step_by(CHUNK as usize) {
            let found = world
                .read(&array, at, CHUNK as usize)
                .expect("the array starts with two missing members");
            assert!(found == pattern(at, CHUNK as usize, 1), "nothing was written at {at}");
        }
    }
}

/// A member is missing, and the log of another is unreadable or overwritten: that one counts as
/// lost, and the logs of the others suffice. If the level cannot work without it, its records are
/// unknown.
#[test]
fn a_log_that_cannot_be_read_is_that_of_a_lost_member() {
    let unread = [(Level::Raid6, 3), (Level::Raid6, 4), (Level::Raid5, 3)];
    let cases = unread.into_iter().flat_map(|(level, of)| [(level, of, false), (level, of, true)]);
    for (level, unread, overwritten) in cases {
        let (world, array) = filled(level, None);
        let held = &world.disks[holder(&array, 0)];
        held.break_with(Fault::HungFrom(world.data_offset()));
        let write = world.begin(&array, 512, &pattern(512, 8192, 2));
        assert_eq!(held.is_holding(), 1, "it is logged, and cut");
        let (missing, unread) = (holder(&array, 1), holder(&array, unread));
        drop(write);
        world.crash(array);
        let map = map_of(&world.disks[unread]);
        let log = map.private_parts().expect("the member has a private area").log;
        if overwritten {
            let header = map.private.expect("the member has a private area").start;
            world.disks[unread].disk.poke(header, &[0x77; 8192]);
        } else {
            let unreadable = Fault::Unreadable { offset: log.start + 4096, len: 512 };
            world.disks[unread].break_with(unreadable);
        }
        let assembly = world.assemble_without(&[missing]);
        if level == Level::Raid5 {
            let refused = assembly.err().expect("the assembly is refused").to_string();
            let why = if overwritten { "was overwritten" } else { "cannot be read" };
            assert!(refused.contains(why), "{refused}");
            continue;
        }
        let assembly = assembly.expect("the array starts with two missing members");
        let name = format!("disk{unread}");
        let part = if overwritten { "private area" } else { "log" };
        let says = |note: &Note| match note {
            Note::Unusable { name: whose, why } => whose.contains(&name) && why.contains(part),
            _ => false,
        };
        assert!(assembly.notes.iter().any(says), "{:?}", assembly.notes);
        let array = Array::start(assembly, &world.host);
        for index in [1, 2] {
            let at = index * CHUNK;
            let found = world.read(&array, at, CHUNK as usize).expect("the block was not written");
            assert!(found == pattern(at, CHUNK as usize, 1), "{index}");
        }
        assert!(array.status().slots[unread].member.is_none());
    }
}

/// A record from the time when Q's member was missing has one syndrome. It stays in the log until a
/// newer batch marks it as released. The loss of two members after Q's rebuild costs nothing.
#[test]
fn a_record_from_before_its_q_was_made_costs_no_block() {
    let (mut world, array) = filled(Level::Raid6, None);
    world.crash(array);
    // The array must not become clean and release its records between two steps.
    let bounds = &mut world.host.bounds;
    (bounds.region_linger, bounds.clean_delay) =
        (Duration::from_secs(900), Duration::from_secs(900));
    let array = world.start();
    let missing = holder(&array, 4);
    world.disks[missing].break_with(Fault::Gone);
    // One block: its record has no checks either.
    world
        .write(&array, 512, &pattern(512, 4096, 2))
        .expect("the array starts with one missing member");
    let new = FaultyDisk::new(8 << 20);
    world.run(&array, array.add(Rc::clone(&new) as _, "new")).expect("the disk takes the slot");
    world.until(&array, |status| status.redundancy_left == 2 && status.job.is_none());
    let lost = [1, 2].map(|index| holder(&array, index));
    world.crash(array);
    world.disks[missing] = new;
    let array = world.start_without(&lost);
    let found = world
        .read(&array, 0, 3 * CHUNK as usize)
        .expect("the array starts with two missing members");
    let mut wanted = pattern(0, 3 * CHUNK as usize, 1);
    wanted[512..512 + 4096].copy_from_slice(&pattern(512, 4096, 2));
    assert!(found == wanted);
}

/// A RAID 5 whose log wraps around after 256 KiB, with units as long as a chunk.
fn with_small_log(chunk: u64) -> (World, Array) {
    let (mut world, array) = filled_with(Level::Raid5, |new| {
        (new.chunk_bytes, new.checksums) = (chunk, Some(false));
    });
    world.crash(array);
    (world.host.bounds.log_bytes, world.host.bounds.unit_bytes) = (256 << 10, chunk);
    let array = world.start_without(&[]);
    (world, array)
}

/// The log wraps around: a large batch is written over released ones. The power fails in the middle
/// of that and destroys them. The remaining batches show that they were released, wherever the
/// large one lies.
#[test]
fn a_batch_that_is_torn_over_old_ones_leaves_a_log_that_is_whole() {
    const LARGE: u64 = 128 << 10;
    const LEN: usize = 44 << 10;
    for before in 0..16 {
        let (world, array) = with_small_log(LARGE);
        for _ in 0..before {
            world.write(&array, 0, &pattern(0, 8 << 10, 1)).expect("the array is healthy");
        }
        // All of these have their parity on one member, which logs them.
        let [first, second, third, fourth] = [1, 2, 3, 4].map(|number| number * 4 * 3 * LARGE);
        let [data, other, parity] = [0, 1, 3].map(|index| holder(&array, index));
        world.disks[data].break_with(Fault::HungFrom(world.data_offset()));
        let old = [first, second].map(|at| world.begin(&array, at, &pattern(at, LEN, 2)));
        assert_eq!(world.disks[data].is_holding(), 2, "both are logged, and matter");
        world.disks[data].release();
        for write in old {
            world.run(&array, write).result.expect("the write succeeds");
        }
        world.disks[parity].break_with(Fault::HungAbove(64 << 10));
        let new = world.pool.copy_of(&pattern(third, LEN, 2)).freeze();
        let new = array.submit(Op::write(third, new));
        let newer = world.begin(&array, fourth, &pattern(fourth, LEN, 2));
        assert_eq!(world.disks[parity].is_holding(), 1, "one batch has both");
        world.disks[parity].tear();
        drop((new, newer));
        world.crash(array);
        let array = world.assemble_without(&[other]);
        let array = array.unwrap_or_else(|why| panic!("after {before} batches: {why}"));
        let array = Array::start(array, &world.host);
        let zeros = || vec![0; LEN];
        let all = [(0, pattern(0, 512 << 10, 1)), (first, pattern(first, LEN, 2))];
        let rest = [(second, pattern(second, LEN, 2)), (third, zeros()), (fourth, zeros())];
        for (at, there) in all.into_iter().chain(rest) {
            let found = world
                .read(&array, at, there.len())
                .expect("the array starts with one missing member");
            assert!(found == there, "after {before} batches: at {at}");
        }
    }
}

/// The same, but the batch that marks the old one as released is in another member's log. The
/// remaining batches on this member do not show it.
#[test]
fn a_batch_released_in_any_log_is_released() {
    const LARGE: u64 = 128 << 10;
    const LEN: usize = 12 << 10;
    for between in 1..20 {
        let (world, array) = with_small_log(LARGE);
        let [first, second, third] = [1, 2, 3].map(|number| number * 4 * 3 * LARGE);
        let [data, other, parity] = [0, 1, 3].map(|index| holder(&array, index));
        // The first write logs something other than zeros.
        let beside = first + LARGE;
        world.write(&array, beside, &pattern(beside, LEN, 4)).expect("the array is healthy");
        world.disks[data].break_with(Fault::HungFrom(world.data_offset()));
        let old = [first, second].map(|at| world.begin(&array, at, &pattern(at, LEN, 2)));
        assert_eq!(world.disks[data].is_holding(), 2, "both are logged, and matter");
        world.disks[data].release();
        for write in old {
            world.run(&array, write).result.expect("the write succeeds");
        }
        for _ in 0..between {
            let at = 3 * LARGE;
            world.write(&array, at, &pattern(at, LEN, 3)).expect("logged by another member");
        }
        world.disks[parity].break_with(Fault::HungAbove(8 << 10));
        let new = world.begin(&array, third, &pattern(third, LEN, 2));
        assert_eq!(world.disks[parity].is_holding(), 1, "its batch");
        world.disks[parity].tear();
        drop(new);
        world.crash(array);
        let array = world.assemble_without(&[other]);
        let array = array.unwrap_or_else(|why| panic!("after {between} batches: {why}"));
        let array = Array::start(array, &world.host);
        for (at, salt) in [(first, 2), (second, 2), (3 * LARGE, 3), (beside, 4)] {
            let found =
                world.read(&array, at, LEN).expect("the array starts with one missing member");
            assert!(found == pattern(at, LEN, salt), "after {between} batches: at {at}");
        }
    }
}

/// The log has a write of a stripe, and then its zeroing; a member that joined later has neither
/// record. That does not prove that a crash tore a record.
#[test]
fn a_later_member_need_not_have_earlier_records() {
    for policy in [Consistency::Intent, Consistency::Journal] {
        for level in [Level::Raid5, Level::Raid6] {
            let (mut world, array) = filled(level, Some(policy));
            let geometry = array.geometry().clone();
            let map = geometry.stripe(Stripe(0));
            let stripe = geometry.stripe_bytes();
            world.write(&array, 0, &pattern(0, 4096, 9)).expect("the array is healthy");
            let zero = Op::new(0, io::Work::Zero { len: stripe, unmap: false, fast: false });
            world.run(&array, array.submit(zero)).result.expect("zeroed");
            let gone = map.data(1).index();
            let spare = FaultyDisk::new(8 << 20);
            world
                .run(&array, array.fail(MemberId(gone as u32)))
                .expect("the level tolerates one loss");
            world
                .run(&array, array.add(Rc::clone(&spare) as _, "spare"))
                .expect("the disk is large enough");
            world.until(&array, |status| status.slots[gone].state == SlotState::InSync);
            world.disks[gone] = spare;
            world.crash(array);
            let array = world.start_without(&[map.data(0).index()]);
            let read = world.read(&array, 0, stripe as usize).expect("the read succeeds");
            assert!(read.iter().all(|byte| *byte == 0), "{level} {policy:?}: it was zeroed last");
        }
    }
}

/// A member is lost during a write while the array becomes read-only: the write ends, and its
/// record is released.
#[test]
fn a_write_under_way_is_finished_though_the_array_takes_no_more() {
    for checksums in [false, true] {
        let world = World::new(4, 6 << 20);
        let layout = Layout::default_for(Level::Raid5, 4);
        let checksums = Some(checksums);
        world.create(&NewArray { zeroed: true, checksums, ..NewArray::new("t", layout, CHUNK) });
        let array = world.start();
        world.write(&array, 0, &pattern(0, 256 << 10, 1)).expect("the array is healthy");
        let (member, offset) = (holder(&array, 0), world.data_offset());
        world.disks[member].break_with(Fault::HungFrom(offset));
        let new = pattern(0, 8192, 2);
        let write = world.begin(&array, 0, &new);
        assert_eq!(world.disks[member].is_holding(), 1);
        world.run(&array, array.set_read_only(true)).expect("the queue accepts no more");
        world.run(&array, write).result.expect("the write succeeds");
        assert!(world.read(&array, 0, 8192).expect("one member is lost") == new);
        world.run(&array, array.set_read_only(false)).expect("the disk accepts writes again");
        for at in (0..256 << 10).step_by(4096).cycle().take(512) {
            world.write(&array, at, &pattern(at, 4096, 3)).expect("one member is lost");
        }
    }
}

/// A write of a whole chunk was interrupted, and members have one unreadable block each, in
/// different rows: unwritten blocks keep their contents.
#[test]
fn blocks_that_cannot_be_read_cost_no_other_ones_of_a_row_that_was_cut() {
    for level in [Level::Raid5, Level::Raid6] {
        for (checksums, rot) in [(false, false), (true, false), (true, true)] {
            let (world, array) = filled_with(level, |new| new.checksums = Some(checksums));
            let (offset, len) = (world.data_offset(), 4096);
            let held = &world.disks[holder(&array, 2)];
            held.break_with(Fault::HungFrom(offset));
            let map = array.geometry().stripe(Stripe(0));
            let parity = map.q().map(|_| map.p().index());
            let bad = [0, 1].map(|index| holder(&array, index)).into_iter().chain(parity);
            let bad: Vec<usize> = bad.collect();
            drop(world.begin(&array, 2 * CHUNK, &pattern(2 * CHUNK, CHUNK as usize, 2)));
            assert_eq!(held.is_holding(), 1);
            world.crash(array);
            for (block, &member) in bad.iter().enumerate() {
                let (disk, offset) = (&world.disks[member], offset + block as u64 * len);
                match rot {
                    true => disk.disk.poke(offset, &[7; 4096]),
                    false => disk.break_with(Fault::Unreadable { offset, len }),
                }
            }
            let array = world.start();
            for at in [0, CHUNK] {
                let found =
                    world.read(&array, at, CHUNK as usize).expect("the block was not written");
                assert!(found == pattern(at, CHUNK as usize, 1), "{level} {checksums} {rot}");
            }
        }
    }
}

/// A crash costs more blocks than the array can list, on a member that is unreadable just then. The
/// filler written in their place is never returned as data.
#[test]
fn data_lost_in_a_crash_is_never_read_however_much_it_is() {
    let mut world = World::new(4, 24 << 20);
    (world.host.bounds.units, world.host.bounds.unit_bytes) = (64, 1 << 20);
    world.host.bounds.scratch_bytes = 256 << 20;
    let (layout, block) = (Layout::default_for(Level::Raid5, 4), 4096);
    let new = NewArray::new("tank", layout, block);
    world.create(&NewArray { zeroed: true, checksums: Some(false), ..new });
    let array = world.start();
    let (offset, len) = (world.data_offset(), 3600 * 3 * block);
    for disk in [0, 2, 3] {
        world.disks[disk].break_with(Fault::HungFrom(offset));
    }
    drop(world.begin(&array, 0, &pattern(0, len as usize, 2)));
    world.crash(array);
    for row in 0..3600 {
        world.disks[0].break_with(Fault::Unreadable { offset: offset + row * block, len: block });
    }
    let array = world.start();
    let mut lost = 0;
    for at in (0..len).step_by(block as usize) {
        match world.read(&array, at, block as usize) {
            Err(_) => lost += 1,
            Ok(found) => {
                let new = found == pattern(at, block as usize, 2);
                assert!(new || found == [0; 4096], "at {at}: neither old nor new");
            }
        }
    }
    let listed = array.status().bad_bytes / block;
    assert!(listed > 1500 && lost > listed, "{lost} blocks, {listed} of them in the list");
}

/// Two writes lie in one 4 KiB block of one member. The older one is slow, and the newer one is
/// flushed before it lands. A third write, beside the older one in its row, is logged though that
/// is not durable.
#[test]
fn a_newer_batch_that_is_durable_does_not_hide_an_older_one_that_is_not() {
    for level in [Level::Raid5, Level::Raid6] {
        let (world, array) = filled_with(level, |new| new.checksums = Some(false));
        world.run(&array, array.stop()).expect("the array is healthy");
        world.disks.iter().for_each(|disk| disk.volatile.set(true));
        let array = world.start();
        let data = world.data_offset();
        let missing = holder(&array, 2);
        let both: Vec<usize> = match level {
            Level::Raid6 => vec![missing, holder(&array, 4)],
            _ => vec![missing],
        };
        let first = &world.disks[holder(&array, 0)];
        let mut old = vec![0; 512];
        first.disk.peek(data, &mut old);

        // A: in flight to its member.
        first.break_with(Fault::HungAt(data));
        let slow = world.begin(&array, 0, &pattern(0, 512, 2));
        assert_eq!(first.is_holding(), 1);
        // B: the next sector of the same block. It lands, and is flushed.
        world.write(&array, 512, &pattern(512, 512, 2)).expect("no process holds it");
        world.flush(&array);
        // A lands now: it is in the cache of its member.
        first.release();
        world.run(&array, slow).result.expect("the write succeeds");
        let flushes = first.flushes.get();
        // C: beside A in its row.
        world.write(&array, CHUNK, &pattern(CHUNK, 512, 2)).expect("the array is healthy");
        let durable = first.flushes.get() > flushes;

        // The power fails, and a member with it. A is lost unless it was flushed.
        world.crash(array);
        if !durable {
            first.disk.poke(data, &old);
        }
        let array = world.start_without(&both);
        let at = 2 * CHUNK;
        let found = world.read(&array, at, CHUNK as usize).expect("the read succeeds");
        assert!(found == pattern(at, CHUNK as usize, 1), "{level}: an unwritten block");
    }
}

/// The log is full and a write waits for room: empty batches go out to record released space. One
/// of them is in flight when its member is failed: it may land over a newer one.
#[test]
fn a_batch_that_is_on_its_way_keeps_a_member_from_coming_back() {
    let mut world = World::new(4, 8 << 20);
    world.host.bounds.log_bytes = 128 << 10;
    let layout = Layout::default_for(Level::Raid5, 4);
    let checksums = Some(false);
    world.create(&NewArray { zeroed: true, checksums, ..NewArray::new("tank", layout, CHUNK) });
    world.disks.iter().for_each(|disk| disk.volatile.set(true));
    let array = world.start();
    world.write(&array, 0, &pattern(0, 512 << 10, 1)).expect("the array is healthy");
    world.flush(&array);
    // It holds neither the data that is written now nor its parity: it gets only empty batches.
    let slot = holder(&array, 2);
    let back = &world.disks[slot];
    let log = map_of(back).private_parts().expect("the member has a private area").log;
    back.break_with(Fault::HungFrom(log.start));
    let flushes = |millis| {
        let delay = Duration::from_millis(millis);
        world.disks.iter().for_each(|disk| disk.flush_delay.set(delay));
    };
    flushes(20);
    let mut sent = Vec::new();
    for _ in 0..50 {
        if back.is_holding() > 0 {
            break;
        }
        for at in (0..CHUNK).step_by(1024) {
            let bytes = world.pool.copy_of(&pattern(at, 512, 2)).freeze();
            sent.push(array.submit(Op::write(at, bytes)));
        }
        world.sleep(&array, Duration::from_millis(5));
    }
    flushes(0);
    let held = back.held_at();
    assert!(matches!(held[..], [(at, 4096)] if log.contains(&at)), "a batch of nothing: {held:?}");
    world.run(&array, array.fail(MemberId(slot as u32))).expect("the level tolerates one loss");
    back.faults.borrow_mut().clear();
    let disk = Rc::clone(back) as Rc<dyn Disk>;
    let early = world.run(&array, array.readd(disk, &format!("disk{slot}")));
    let refused = early.expect_err("the batch may still land").to_string();
    assert!(refused.contains("may still land"), "{refused}");
}
