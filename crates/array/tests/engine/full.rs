//! Members whose stores run out of space: writes fail, reads go on, and nothing is lost.

use array::status::{EventKind, SlotState};
use io::{Disk, ErrorKind, Op};
use layout::{Layout, Level, Mode};
use metadata::create::NewArray;

use crate::world::{Fault, World, map_of, pattern, whole};

const CHUNK: u64 = 16 << 10;
const OLD: usize = 512 << 10;

/// An array on disks of one store, or of stores that nobody knows, with `OLD` bytes, flushed.
fn world(level: Level, members: usize, checksums: bool, store: u64) -> World {
    let world = World::new(members, 6 << 20);
    world.disks.iter().for_each(|disk| disk.store.set(store));
    let layout = Layout::default_for(level, members);
    let chunk = if level == Level::Raid1 { 0 } else { CHUNK };
    world.create(&NewArray {
        zeroed: true,
        checksums: Some(checksums),
        ..NewArray::new("tank", layout, chunk)
    });
    world
}

/// The member offset from which on nothing of the first `OLD` bytes lies.
fn beyond(world: &World, disk: usize) -> u64 {
    map_of(&world.disks[disk]).data.start + OLD as u64
}

#[test]
fn where_all_members_run_out_of_space_writes_fail_and_reads_go_on() {
    for (level, members) in
        [(Level::Raid1, 2), (Level::Raid5, 3), (Level::Raid6, 5), (Level::Raid10, 4)]
    {
        for (checksums, store, len) in
            [(false, 7, 4096), (true, 7, 1 << 20), (false, 0, 1 << 20), (true, 0, 4096)]
        {
            let what = format!("{level} checksums {checksums} store {store} {len}");
            let world = world(level, members, checksums, store);
            let array = world.start();
            let old = pattern(0, OLD, 1);
            world.write(&array, 0, &old).expect("the write succeeds");
            world.flush(&array);
            for (number, disk) in world.disks.iter().enumerate() {
                disk.break_with(Fault::FullFrom(beyond(&world, number)));
            }
            let end = array.geometry().capacity() - (1 << 20);
            let error = world.write(&array, end, &pattern(end, len, 2)).expect_err("full");
            assert_eq!(error.kind(), ErrorKind::NoSpace, "{what}: {error}");
            let again = world.write(&array, 0, &pattern(0, 4096, 3)).expect_err("still full");
            assert_eq!(again.kind(), ErrorKind::NoSpace, "{what}: {again}");
            let zero = io::Work::Zero { len: 1 << 20, unmap: false, fast: false };
            let zeroed = world.run(&array, array.submit(Op::new(end, zero))).result;
            assert_eq!(zeroed.expect_err("full").kind(), ErrorKind::NoSpace, "{what}");
            let status = array.status();
            assert_eq!(status.mode, Mode::Full, "{what}");
            assert!(status.slots.iter().all(|slot| slot.state == SlotState::InSync), "{what}");
            assert_eq!(world.read(&array, 0, OLD).expect("reads succeed"), old, "{what}");
            world.read(&array, end, len).expect("old, new, or a mixture");
            world.flush(&array);
            let events = array.log().since(0);
            let is_full_event = |event: &&array::status::Event| event.kind == EventKind::Full;
            assert_eq!(events.iter().filter(is_full_event).count(), 1, "{what}: logged once");
            assert!(!events.iter().any(|event| event.kind == EventKind::Fail), "{what}");
            world.run(&array, array.stop()).expect("the worker has nothing to write");
            drop(array);
            // A start without space serves reads, however far it comes. Where nobody knows that
            // the members share a store, a resync may cost the first one that it writes to.
            if store != 0 {
                let array = world.start();
                assert_eq!(world.read(&array, 0, OLD).expect("reads succeed"), old, "{what}");
                let _ = world.write(&array, end, &pattern(end, len, 4));
                assert_eq!(world.read(&array, 0, OLD).expect("reads succeed"), old, "{what}");
                drop(array);
            }
            // With space it is whole again.
            world.disks.iter().for_each(|disk| disk.faults.borrow_mut().clear());
            let array = world.start();
            world.until(&array, whole);
            assert_eq!(world.read(&array, 0, OLD).expect("the array is healthy"), old, "{what}");
            world.write(&array, end, &pattern(end, len, 5)).expect("the write succeeds");
            assert_eq!(
                world.read(&array, end, len).expect("the array is healthy"),
                pattern(end, len, 5)
            );
        }
    }
}

#[test]
fn one_member_without_space_is_lost_where_the_others_have_some() {
    for (level, members) in [(Level::Raid1, 2), (Level::Raid5, 3), (Level::Raid6, 5)] {
        let world = world(level, members, false, 0);
        world.disks[1].store.set(7);
        let array = world.start();
        world.disks[1].break_with(Fault::FullFrom(0));
        let bytes = pattern(0, OLD, 1);
        world.write(&array, 0, &bytes).expect("the others have space");
        let status = array.status();
        assert_eq!((status.mode, status.slots[1].state), (Mode::ReadWrite, SlotState::Missing));
        assert_eq!(world.read(&array, 0, OLD).expect("degraded"), bytes);
    }
}

/// The first to notice is not given up while those that share its store would be next.
#[test]
fn a_member_is_kept_if_its_store_is_that_of_too_many_others() {
    let world = world(Level::Raid5, 3, false, 7);
    let array = world.start();
    let old = pattern(0, OLD, 1);
    world.write(&array, 0, &old).expect("the write succeeds");
    world.disks[1].break_with(Fault::FullFrom(beyond(&world, 1)));
    let end = array.geometry().capacity() - (1 << 20);
    let error = world.write(&array, end, &pattern(end, 1 << 20, 2)).expect_err("full");
    assert_eq!((error.kind(), array.status().mode), (ErrorKind::NoSpace, Mode::Full));
    assert!(array.status().slots.iter().all(|slot| slot.state == SlotState::InSync));
}

/// A write that was left in the middle of a row: nothing of that row is computed.
#[test]
fn what_an_unfinished_write_has_torn_is_an_error_and_no_garbage() {
    // Without checksums nothing else would show that the block is wrong.
    for (log, checksums) in [(true, false), (false, false), (true, true), (false, true)] {
        let world = World::new(3, 6 << 20);
        let layout = Layout::default_for(Level::Raid5, 3);
        let checksums = Some(checksums);
        let new = NewArray::new("tank", layout, CHUNK);
        let mut new = NewArray { zeroed: true, checksums, ..new };
        if !log {
            new.consistency = Some(layout::private::Consistency::Bitmap);
        }
        world.create(&new);
        let array = world.start();
        let old = pattern(0, 2 * CHUNK as usize, 1);
        world.write(&array, 0, &old).expect("the write succeeds");
        world.flush(&array);
        let map = array.geometry().stripe(layout::Stripe(0));
        let (first, second, parity) = (map.data(0).index(), map.data(1).index(), map.p().index());
        world.disks[first].break_with(Fault::Gone);
        let start = map_of(&world.disks[second]).data.start;
        world.read(&array, 0, 4096).expect("from parity");
        // The data lands, and parity does not.
        world.disks[parity].break_with(Fault::FullFrom(start));
        let offset = CHUNK + 4096;
        world.write(&array, offset, &pattern(offset, 4096, 2)).expect_err("full");
        assert_eq!(array.status().mode, Mode::Full);
        let beside = world.read(&array, 8192, 4096).expect("another row of the stripe");
        assert_eq!(beside, old[8192..][..4096]);
        match world.read(&array, 4096, 4096) {
            Ok(bytes) => assert_eq!(bytes, old[4096..][..4096], "log {log}"),
            Err(error) => assert!(error.is_medium(), "{error}"),
        }
    }
}
