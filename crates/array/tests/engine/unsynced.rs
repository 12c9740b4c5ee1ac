//! Arrays whose parity or copies may disagree: their promises and refusals.

use std::time::Duration;

use array::Array;
use array::status::SlotState;
use io::{Clock, Disk, Op};
use layout::private::Consistency;
use layout::{Layout, Level, MemberId};
use metadata::assemble::{Cause, Note, Options};
use metadata::create::NewArray;

use crate::world::{Fault, World, holder, pattern};

const MEMBER_BYTES: u64 = 6 << 20;

/// An array on disks with old contents.
fn world(level: Level, members: usize) -> World {
    let world = World::new(members, MEMBER_BYTES);
    for (index, disk) in world.disks.iter().enumerate() {
        disk.disk.poke(0, &pattern(0, MEMBER_BYTES as usize, 1 + index as u8));
    }
    let chunk = if level == Level::Raid1 { 0 } else { 16 << 10 };
    let layout = Layout::default_for(level, members);
    world.create(&NewArray { ..NewArray::new("tank", layout, chunk) });
    world
}

fn synced(status: &array::Status) -> bool {
    status.unsynced_bytes == 0 && status.job.is_none()
}

#[test]
fn unsynced_parity_is_no_redundancy_and_no_member_may_be_failed() {
    for (level, members, left) in [(Level::Raid5, 4, 1), (Level::Raid6, 5, 2), (Level::Raid1, 2, 1)]
    {
        let world = world(level, members);
        let array = world.start();
        array.set_speed(1 << 20, 1 << 20);
        world.write(&array, 0, &[1; 4096]).expect("the array is usable at once");
        let status = array.status();
        assert!(status.unsynced_bytes > 0);
        if level == Level::Raid1 {
            // Acknowledged writes are on both.
            assert_eq!(status.redundancy_left, 1);
            continue;
        }
        assert_eq!(status.redundancy_left, 0, "{level}");
        let refused =
            world.run(&array, array.fail(MemberId(1))).expect_err("the operation would lose data");
        assert!(refused.to_string().contains("not in sync yet"), "{refused}");
        world.until(&array, synced);
        assert_eq!(array.status().redundancy_left, left, "{level}");
        world.run(&array, array.fail(MemberId(1))).expect("the level tolerates one loss again");

        // An unrequested loss is accepted at any time, and written blocks have their parity.
        let world = self::world(level, members);
        let array = world.start();
        array.set_speed(1, 1);
        let bytes = pattern(4 << 20, 1 << 18, 9);
        world.write(&array, 4 << 20, &bytes).expect("the array is usable at once");
        world.run(&array, array.lose(MemberId(1))).expect("the bytes are lost");
        assert_eq!(world.read(&array, 4 << 20, 1 << 18).expect("from parity"), bytes);
    }
}

#[test]
fn an_array_that_was_never_started_or_stopped_in_the_middle_of_its_first_sync_is_told_as_such() {
    let world = world(Level::Raid5, 4);
    let assemble = |which: std::ops::Range<usize>| {
        world.assemble(which, &Options { degraded: true, ..Options::default() })
    };
    let assert_note = |note: fn(&Note) -> bool| {
        let assembly = assemble(0..4).expect("complete: no force is needed");
        assert!(assembly.notes.iter().any(note), "{:?}", assembly.notes);
    };
    assert_note(|note| matches!(note, Note::Unsynced { cause: Cause::New, .. }));
    let refused = assemble(0..3).err().expect("degraded").to_string();
    assert!(refused.contains("never been in sync"), "{refused}");

    // Started, and killed before any write: still new. Not after a write.
    drop(world.start());
    assert_note(|note| matches!(note, Note::Unsynced { cause: Cause::New, .. }));
    let array = world.start();
    array.set_speed(1, 1);
    world.write(&array, 4 << 20, &[1; 512]).expect("the array is usable at once");
    drop(array);
    assert_note(|note| matches!(note, Note::Unsynced { cause: Cause::Crash, .. }));

    let array = world.start();
    array.set_speed(1 << 20, 1 << 20);
    world.until(&array, |status| status.job.as_ref().is_some_and(|job| job.done_bytes > 1 << 20));
    world.run(&array, array.stop()).expect("stopped in order");
    assert_note(|note| {
        let Note::Unsynced { bytes, cause } = note else { return false };
        *cause == Cause::Unfinished && *bytes < 15 << 20
    });
    let refused = assemble(0..3).err().expect("degraded").to_string();
    assert!(refused.contains("stopped before it was in sync"), "{refused}");

    let array = world.start();
    let before = array.limits().bytes - array.status().unsynced_bytes;
    assert!(before > 0, "it continues at its last position");
    world.until(&array, synced);
    world.run(&array, array.stop()).expect("clean");
    assert!(assemble(0..3).expect("in sync now").recovered.unsynced.is_empty());
}

#[test]
fn an_array_without_parity_promises_nothing() {
    let mut world = World::new(4, MEMBER_BYTES);
    let layout = Layout::default_for(Level::Raid5, 4);
    world.create(&NewArray { zeroed: true, ..NewArray::new("tank", layout, 16 << 10) });
    world.host.parity = false;
    let array = world.start();
    let status = array.status();
    assert_eq!((status.redundancy_left, status.parity), (0, false));
    let refused =
        world.run(&array, array.fail(MemberId(1))).expect_err("the operation would lose data");
    assert!(refused.to_string().contains("without parity"), "{refused}");
}

const CHUNK: u64 = 16 << 10;

/// Reads chunk by chunk: each is as written, or an error. Returns the number of errors.
fn errors(world: &World, array: &Array, expected: &[u8]) -> usize {
    let chunk = |(index, chunk): (usize, &[u8])| {
        let read = world.read(array, index as u64 * CHUNK, chunk.len());
        assert!(read.as_ref().is_ok_and(|read| read == chunk) || read.is_err(), "chunk {index}");
        read.is_err()
    };
    expected.chunks(CHUNK as usize).enumerate().map(chunk).filter(|&error| error).count()
}

#[test]
fn suspect_data_of_a_lost_member_is_an_error_and_no_garbage() {
    for (level, members) in [(Level::Raid5, 4), (Level::Raid6, 5)] {
        let world = World::new(members, MEMBER_BYTES);
        let layout = Layout::default_for(level, members);
        let consistency = Some(Consistency::Bitmap);
        let new = NewArray { zeroed: true, consistency, ..NewArray::new("tank", layout, CHUNK) };
        world.create(&new);
        let array = world.start();
        let mut bytes = pattern(0, array.limits().bytes as usize, 3);
        for (index, part) in bytes.chunks(1 << 19).enumerate() {
            world.write(&array, (index as u64) << 19, part).expect("the array is healthy");
        }
        // The process dies; in some rows parity is wrong.
        drop(array);
        let from = world.assemble(0..members, &Options::default()).expect("complete").members[0]
            .data_offset;
        let geometry = world.assemble(0..members, &Options::default()).expect("complete").geometry;
        for stripe in (40..80).step_by(3) {
            let map = geometry.stripe(layout::Stripe(stripe));
            for slot in [Some(map.p()), map.q()].into_iter().flatten() {
                world.disks[slot.index()].disk.poke(from + stripe * CHUNK, &[0xbd; 8192]);
            }
        }
        let array = world.start();
        array.set_speed(1, 1);
        // Blocks written before the loss have their parity.
        let stripe = geometry.stripe_bytes();
        for index in 0..3 {
            let at = (64 * stripe + index * CHUNK) as usize;
            bytes[at..at + CHUNK as usize].fill(0x42);
            world
                .write(&array, at as u64, &bytes[at..at + CHUNK as usize])
                .expect("the write succeeds");
        }
        world.disks[1].break_with(Fault::Gone);
        let lost = errors(&world, &array, &bytes);
        assert!(lost > 20, "{level}: {lost}");
        let assert_note =
            array.log().since(0).into_iter().any(|event| event.text.contains("in sync"));
        assert!(assert_note, "{level}: the event is logged");
        let read = world.read(&array, 64 * stripe, 3 * CHUNK as usize);
        assert!(read.expect("written since").iter().all(|&byte| byte == 0x42));
        // A write to other blocks of a row leaves the lost block as it was: unverified.
        for index in 0..geometry.stripe_bytes() / CHUNK {
            let at = (70 * stripe + index * CHUNK) as usize;
            let done = world.write(&array, at as u64, &[0x43; 512]);
            done.expect("there is space for it");
            bytes[at..at + 512].fill(0x43);
        }
        errors(&world, &array, &bytes);
        // Neither a rebuild nor a restart verifies it.
        array.set_speed(0, u64::MAX);
        let spare = crate::world::FaultyDisk::new(MEMBER_BYTES);
        world.run(&array, array.add(spare.clone(), "spare")).expect("the disk is large enough");
        let whole = |status: &array::Status| status.redundancy_left > 0 && status.job.is_none();
        world.until(&array, whole);
        assert!(errors(&world, &array, &bytes) > 20, "{level}");
        // Blocks that are written again are readable.
        for (index, part) in bytes.chunks(1 << 19).enumerate() {
            world.write(&array, (index as u64) << 19, part).expect("whole stripes");
        }
        assert_eq!(errors(&world, &array, &bytes), 0, "{level}");
    }
}

/// A checkpoint marks the end of the synced part. It must be gone from the superblocks before
/// anything below it is written again.
#[test]
fn a_crash_after_an_unfinished_sync_forgets_the_checkpoint() {
    let world = world(Level::Raid5, 4);
    let array = world.start();
    array.set_speed(1 << 20, 1 << 20);
    world.until(&array, |status| status.job.as_ref().is_some_and(|job| job.done_bytes > 1 << 20));
    world.run(&array, array.stop()).expect("stopped in order");

    let array = world.start();
    array.set_speed(1, 1);
    assert!(
        array.limits().bytes > array.status().unsynced_bytes,
        "it continues at its last position"
    );
    world.write(&array, 0, &[1; 512]).expect("below the checkpoint");
    drop(array);
    let assembly = world.assemble(0..4, &Options::default()).expect("complete");
    assert!(assembly.recovered.unsynced.overlaps(0..512), "{:?}", assembly.recovered.unsynced);
}

/// After a crash a mirror returns the same data whichever member is lost next, even before the
/// resync gets there: copies are resolved before the first answer.
#[test]
fn copies_that_a_crash_left_different_are_made_alike_before_they_are_read() {
    // Far from the start of the resync.
    const AT: u64 = 4 << 20;
    for (level, members) in [(Level::Raid1, 3), (Level::Raid10, 4)] {
        let world = World::new(members, 16 << 20);
        let layout = Layout::default_for(level, members);
        let chunk = if level == Level::Raid1 { 0 } else { CHUNK };
        world.create(&NewArray { zeroed: true, ..NewArray::new("tank", layout, chunk) });
        let array = world.start();
        world
            .write(&array, AT + 16384, &[1; 4096])
            .expect("the array is healthy and the shard awake");
        // The other members miss it before the crash.
        world.disks[1..].iter().for_each(|disk| disk.break_with(Fault::HungWrites));
        let write = array.submit(Op::write(AT, world.pool.copy_of(&[7; 8192]).freeze()));
        let until = world.clock.now() + Duration::from_millis(3);
        world.run(&array, world.clock.sleep_until(until));
        drop((write, array));
        world.disks.iter().for_each(|disk| disk.faults.borrow_mut().clear());

        let array = world.start();
        array.set_speed(1, 1);
        let before = world.read(&array, AT, 8192).expect("there are copies");
        world.disks[0].break_with(Fault::Gone);
        let after = world.read(&array, AT, 8192).expect("the other members");
        assert!(before == after, "{level}: {} then {}", before[0], after[0]);
    }
}

/// Data that was read once stays the same when the next member is lost: copies are resolved even
/// without the missing ones.
#[test]
fn copies_are_made_alike_though_a_member_is_missing() {
    for (level, members) in [(Level::Raid1, 3), (Level::Raid10, 4)] {
        let world = world(level, members);
        // On RAID 10 slots 0 and 1 hold the copies of the first chunk.
        let present = if level == Level::Raid1 { vec![0, 2] } else { vec![0, 1, 3] };
        let options = Options { degraded: true, ..Options::default() };
        let assembly = world.assemble(present, &options).expect("one copy suffices");
        let array = Array::start(assembly, &world.host);
        let before = world.read(&array, 0, 16 << 10).expect("there is a copy");
        world.until(&array, synced);
        world.disks[0].break_with(Fault::Gone);
        assert_eq!(world.read(&array, 0, 16 << 10).expect("the other copy"), before, "{level}");
    }
}

/// One syndrome is unreadable and is restored; the other one does not match the data.
#[test]
fn a_resync_that_restores_a_syndrome_compares_the_other_one() {
    for (unreadable, other) in [(4, 3), (3, 4)] {
        let world = World::new(5, MEMBER_BYTES);
        for (index, disk) in world.disks.iter().enumerate() {
            disk.disk.poke(0, &pattern(0, MEMBER_BYTES as usize, 1 + index as u8));
        }
        let layout = Layout::default_for(Level::Raid6, 5);
        let checksums = Some(false);
        world.create(&NewArray { checksums, ..NewArray::new("tank", layout, 16 << 10) });
        let offset = world.data_offset();
        let array = world.start();
        let holders: Vec<usize> = (0..5).map(|index| holder(&array, index)).collect();
        world.disks[holders[unreadable]].break_with(Fault::Unreadable { offset, len: 4096 });
        world.until(&array, synced);
        let data = world.read(&array, 0, 4096).expect("the read succeeds");
        assert!(holders[other] != holders[0]);
        world.disks[holders[0]].break_with(Fault::Gone);
        world.disks[holders[unreadable]].break_with(Fault::Gone);
        let found = world.read(&array, 0, 4096).expect("the level tolerates two losses");
        assert!(found == data, "what syndrome {other} says");
    }
}

/// The range that the resync was working on when a copy was lost is compared all the same.
#[test]
fn a_resync_that_loses_a_copy_makes_the_others_alike() {
    let world = world(Level::Raid1, 3);
    let array = world.start();
    array.set_speed(1 << 20, 1 << 20);
    world.until(&array, |status| status.job.as_ref().is_some_and(|job| job.done_bytes > 1 << 20));
    world.disks[0].break_with(Fault::Gone);
    array.set_speed(0, u64::MAX);
    let lost = |status: &array::Status| status.slots[0].state == SlotState::Missing;
    world.until(&array, |status| lost(status) && synced(status));
    let len = array.limits().bytes as usize;
    let read = world.read(&array, 0, len).expect("two copies are left");
    world.disks[1].break_with(Fault::Gone);
    let other = world.read(&array, 0, len).expect("one copy is left");
    let differs = read.iter().zip(&other).position(|(one, two)| one != two);
    assert_eq!(differs, None, "the copies differ from there on");
}

/// On a read-only array copies cannot be resolved. Each block is read from the first copy, even if
/// that is unreadable or listed next to it.
#[test]
fn data_read_once_stays_while_the_array_is_read_only() {
    for checksums in [false, true] {
        let world = World::new(2, 8 << 20);
        let checksums = Some(checksums);
        let new = NewArray { zeroed: true, checksums, ..NewArray::new("tank", Layout::Raid1, 0) };
        world.create(&new);
        let array = world.start();
        world.write(&array, 0, &pattern(0, 64 << 10, 1)).expect("the array is healthy");
        world.flush(&array);
        let offset = world.data_offset();
        world.disks[1].break_with(Fault::HungFrom(offset));
        drop(world.begin(&array, 8192, &pattern(8192, 4096, 2)));
        assert!(world.disks[1].is_holding() > 0);
        world.crash(array);
        let options = Options { read_only: true, ..Options::default() };
        let assembly = world.assemble(0..2, &options).expect("both are present");
        let array = Array::start(assembly, &world.host);
        let first = world.read(&array, 8192, 4096).expect("both are readable");
        world.disks[0].break_with(Fault::Unreadable { offset, len: 4096 });
        let all = world.read(&array, 0, 64 << 10).expect("one block is readable on every member");
        assert!(all[8192..12288] == first, "it was read otherwise before");
    }
}
