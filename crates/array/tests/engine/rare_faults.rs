//! Faults that are rarer than a failed disk, and members that are released.

use std::rc::Rc;
use std::time::Duration;

use array::Array;
use array::status::{EventKind, SlotState};
use io::{Clock, Disk, Op};
use layout::{Layout, Level, MemberId, Slot, Stripe};
use metadata::assemble::{Options, survey};
use metadata::create::{NewArray, create};
use metadata::examine::examine;

use crate::world::{Fault, FaultyDisk, World, holder, map_of, pattern};

const CHUNK: u64 = 16 << 10;

fn world(level: Level, members: usize, spares: usize) -> World {
    let world = World::new(members + spares, 6 << 20);
    let layout = Layout::default_for(level, members);
    let chunk = if level == Level::Raid1 { 0 } else { CHUNK };
    world.create(&NewArray { zeroed: true, spares, ..NewArray::new("tank", layout, chunk) });
    world
}

#[test]
fn a_member_that_fails_one_flush_is_lost_before_the_flush_is_answered() {
    for (level, members) in [(Level::Raid1, 2), (Level::Raid5, 4), (Level::Raid6, 5)] {
        let world = world(level, members, 0);
        let array = world.start();
        let bytes = pattern(0, 256 << 10, 1);
        world.write(&array, 0, &bytes).expect("the array is healthy");
        // It accepts writes but loses them: only the flush reports that.
        world.disks[1].break_with(Fault::FlushError);
        world.flush(&array);
        assert_eq!(array.status().slots[1].state, SlotState::Missing, "{level}");
        let events = array.log().since(0);
        let fail =
            events.iter().find(|event| event.kind == EventKind::Fail).expect("the event is logged");
        assert_eq!(fail.member.as_deref(), Some("disk1"));
        // The loss is recorded: the member's contents are not trusted, also after a crash.
        world.until(&array, |status| status.clean);
        drop(array);
        world.disks[1].faults.borrow_mut().clear();
        let array = world.start();
        assert_eq!(array.status().slots[1].state, SlotState::Missing, "{level}: it is stale");
        assert_eq!(world.read(&array, 0, bytes.len()).expect("degraded"), bytes);
    }
}

#[test]
fn without_redundancy_a_flush_that_fails_is_an_error_and_no_lie() {
    let world = world(Level::Raid0, 3, 0);
    let array = world.start();
    world.write(&array, 0, &pattern(0, 256 << 10, 2)).expect("the array is healthy");
    world.disks[1].break_with(Fault::FlushError);
    assert!(world.run(&array, array.submit(Op::flush())).result.is_err());
    assert!(world.run(&array, array.submit(Op::flush())).result.is_err(), "nor the second time");
}

#[test]
fn a_loss_in_an_array_that_was_started_read_only_costs_no_other_member() {
    for level in [Level::Raid1, Level::Raid6] {
        let world = world(level, 5, 0);
        let array = world.start();
        let bytes = pattern(0, 1 << 20, 3);
        world.write(&array, 0, &bytes).expect("the array is healthy");
        world.run(&array, array.stop()).expect("clean");
        let options = Options { read_only: true, ..Options::default() };
        let assembly = world.assemble(0..5, &options).expect("all members are present");
        let array = Array::start(assembly, &world.host);
        let writes = || world.disks.iter().map(|disk| disk.writes.get()).collect::<Vec<_>>();
        let before = writes();
        world.disks[1].break_with(Fault::Gone);
        for at in (0..1 << 20).step_by(64 << 10) {
            let read = world.read(&array, at, 64 << 10).expect("one loss");
            assert_eq!(read, bytes[at as usize..][..64 << 10], "{level}");
        }
        let sound = array.status().slots.iter().filter(|s| s.state == SlotState::InSync).count();
        assert!(sound >= 4, "{level}: only the one that failed is out");
        world.run(&array, array.fail(MemberId(2))).expect("no longer read");
        assert_eq!(world.read(&array, 0, 64 << 10).expect("degraded"), bytes[..64 << 10]);
        world.run(&array, array.set_read_only(false)).expect_err("not ours to write");
        let new = FaultyDisk::new(6 << 20);
        world.run(&array, array.add(new, "new")).expect_err("not ours to change");
        world.run(&array, array.stop()).expect("no bit to set");
        assert_eq!(writes(), before, "{level}: not a byte was written");
    }
}

#[test]
fn the_disk_of_a_member_that_is_removed_or_refused_is_let_go() {
    for shards in [1, 3] {
        let mut world = world(Level::Raid6, 5, 1);
        world.host.shards = shards;
        let array = world.start();
        let bytes = pattern(0, 1 << 20, 4);
        world.write(&array, 0, &bytes).expect("the array is healthy");
        let (spare, one) = (array.status().spares[0].id, MemberId(1));
        let handles = |disk: &Rc<FaultyDisk>| Rc::strong_count(disk) - 1;
        world.run(&array, array.remove(spare)).expect("a spare can be removed");
        world.until(&array, |_| handles(&world.disks[5]) == 0);
        world.run(&array, array.fail(one)).expect("the level tolerates one loss");
        assert!(handles(&world.disks[1]) > 0, "it may come back");
        world.run(&array, array.remove(one)).expect("the member failed before");
        world.until(&array, |_| handles(&world.disks[1]) == 0);
        assert_eq!(world.read(&array, 0, bytes.len()).expect("degraded"), bytes);
        // Twice as itself: a released member may return at once.
        world
            .run(&array, array.readd(world.disks[1].clone(), "disk1"))
            .expect("the disk is a former member");
        world.until(&array, |status| status.redundancy_left == 2 && status.job.is_none());
        world.run(&array, array.fail(one)).expect("the level tolerates one loss");
        world.run(&array, array.remove(one)).expect("the member failed before");
        world
            .run(&array, array.readd(world.disks[1].clone(), "disk1"))
            .expect("the disk is a former member");
        world.until(&array, |status| status.redundancy_left == 2 && status.job.is_none());
        // A failed array admits no member, and keeps no disk open.
        (0..3).for_each(|index| world.disks[index].break_with(Fault::Gone));
        world.write(&array, 0, &bytes).expect_err("the level does not tolerate three losses");
        let new = FaultyDisk::new(6 << 20);
        world.run(&array, array.add(new.clone(), "new")).expect_err("the array has failed");
        world.until(&array, |_| handles(&new) == 0);
    }
}

#[test]
fn a_hung_disk_does_not_block_create_or_examine() {
    let world = World::new(3, 6 << 20);
    let clock = Rc::clone(&world.clock) as Rc<dyn Clock>;
    let layout = Layout::default_for(Level::Raid5, 3);
    let deadline = Duration::from_secs(7);
    let new = NewArray { zeroed: true, deadline, ..NewArray::new("tank", layout, 16 << 10) };
    let make = || world.wait(create(&new, world.candidates(0..3), &clock, &crate::world::random));
    let begun = clock.now();
    // It hangs from the start, and before the first write.
    world.disks[2].break_with(Fault::Hung);
    let error = make().expect_err("the member does not answer").to_string();
    assert!(error.contains("disk2") && error.contains("7 s"), "{error}");
    let wrote: u64 = world.disks.iter().map(|disk| disk.writes.get()).sum();
    assert_eq!(wrote, 0, "nothing was written to the others");
    world.disks[2].release();
    world.disks[2].break_with(Fault::HungWrites);
    let error = make().expect_err("the member does not answer").to_string();
    assert!(error.contains("disk2") && error.contains("may still land"), "{error}");
    assert!(clock.now() - begun < Duration::from_secs(60), "in time");
    world
        .wait(examine(&*world.disks[0], &clock))
        .map(|found| {
            assert!(found.superblocks.is_empty(), "there is no array");
        })
        .expect("the block is readable");
    // Nor does it block a search for arrays.
    world.disks[2].break_with(Fault::Hung);
    world.wait(examine(&*world.disks[2], &clock)).expect_err("the member does not answer");
    let survey = world.wait(survey(world.candidates(0..3), &clock));
    let hung = survey.damaged.iter().find(|(candidate, _)| candidate.name == "disk2");
    assert!(
        hung.expect("the array has a name").1.contains("no answer"),
        "{:?}",
        hung.map(|h| &h.1)
    );
}

#[test]
fn unflushed_writes_of_the_previous_process_are_durable_before_a_read() {
    let world = World::new(3, 6 << 20);
    let new = NewArray::new("tank", Layout::default_for(Level::Raid5, 3), 16 << 10);
    world.create(&NewArray { zeroed: true, ..new });
    let array = world.start();
    world.write(&array, 0, &pattern(0, 1 << 20, 5)).expect("the array is healthy");
    // The process dies here; its writes may be in the disks' caches.
    drop(array);
    world.disks.iter().for_each(|disk| disk.flushes.set(0));
    let options = Options { read_only: true, ..Options::default() };
    drop(world.assemble(0..3, &options).expect("the disk can be examined"));
    assert!(world.disks.iter().all(|disk| disk.flushes.get() == 0), "nothing is written");
    drop(world.start());
    assert!(world.disks.iter().all(|disk| disk.flushes.get() == 1), "each is flushed");
    // A disk that cannot make its writes durable is no member.
    world.disks[1].break_with(Fault::FlushError);
    let error =
        world.assemble(0..3, &Options::default()).map(drop).expect_err("one member is missing");
    assert!(error.to_string().contains("disk1 was left out: cannot be flushed"), "{error}");
}

#[test]
fn a_write_that_was_under_way_when_a_flush_was_sent_is_covered_by_the_next_one() {
    let world = world(Level::Raid1, 2, 0);
    let array = world.start();
    world.write(&array, 0, &[1; 4096]).expect("the array is healthy");
    let flush = || world.flush(&array);
    flush();
    // So slow that the flush is sent, and ends, while the write is in flight.
    let slow = |delay| world.disks.iter().for_each(|disk| disk.delay.set(delay));
    slow(Duration::from_millis(500));
    let write = array.submit(Op::write(0, world.pool.copy_of(&[2; 4096]).freeze()));
    world.run(&array, world.clock.sleep_until(world.clock.now() + Duration::from_millis(1)));
    slow(Duration::ZERO);
    flush();
    world.run(&array, write).result.expect("the array is healthy");
    let flushes = || world.disks.iter().map(|disk| disk.flushes.get()).collect::<Vec<_>>();
    let before = flushes();
    flush();
    let now = flushes();
    assert!(before.iter().zip(&now).all(|(before, now)| now > before), "{before:?}, {now:?}");
}

/// A bad block must not cost the other blocks of its row.
#[test]
fn a_bad_block_of_parity_costs_no_other_block_of_a_degraded_row() {
    let world = world(Level::Raid4, 4, 0);
    let array = world.start();
    let bytes = pattern(0, 48 << 10, 3);
    world.write(&array, 0, &bytes).expect("the array is healthy");
    world.flush(&array);
    let mut first = vec![0; 16 << 10];
    let at = (0..(6 << 20)).step_by(4096).find(|&at| {
        world.disks[0].disk.peek(at, &mut first);
        first == bytes[..16 << 10]
    });
    // The same bytes of another member: parity.
    let at = at.expect("the first chunk is on disk 0") + 4096;
    world.disks[3].break_with(Fault::Unreadable { offset: at, len: 512 });
    world.disks[2].break_with(Fault::Gone);
    for salt in [4, 5] {
        // Parity is lost in a part of these bytes: it is discarded there.
        let new = pattern(16 << 10, 5120, salt);
        world.write(&array, 16 << 10, &new).expect("the write succeeds");
        assert_eq!(world.read(&array, 16 << 10, 5120).expect("the read succeeds"), new);
        let kept = world.read(&array, 32 << 10, 4096).expect("the parity was read");
        assert_eq!(kept, bytes[32 << 10..36 << 10], "unwritten blocks");
        world.read(&array, 36 << 10, 4096).expect_err("two blocks of the row are lost");
    }
}

/// An array of parity with or without checksums, and a row that has lost one more data block than
/// its parity can recover. Returns the content, and the members with the row's data in order.
fn lost_beyond_level(
    level: Level,
    members: usize,
    checksums: bool,
) -> (World, Array, Vec<u8>, Vec<usize>) {
    let world = World::new(members, 6 << 20);
    let layout = Layout::default_for(level, members);
    let checksums = Some(checksums);
    world.create(&NewArray { zeroed: true, checksums, ..NewArray::new("tank", layout, CHUNK) });
    let array = world.start();
    let content = pattern(0, 256 << 10, 1);
    world.write(&array, 0, &content).expect("the array is healthy");
    world.run(&array, array.stop()).expect("clean");
    let array = world.start();
    let map = array.geometry().stripe(layout::Stripe(0));
    let data: Vec<usize> = (0..map.data_count()).map(|index| map.data(index).index()).collect();
    for &member in &data[..=array.geometry().redundancy()] {
        let offset = world.data_offset();
        world.disks[member].break_with(Fault::Unreadable { offset, len: 4096 });
    }
    (world, array, content, data)
}

/// No client writes a stripe of several MiB at once to clear a lost block of 4 KiB.
#[test]
fn in_a_row_that_has_lost_too_much_each_block_can_be_written_anew() {
    for (level, members) in [(Level::Raid5, 4), (Level::Raid4, 4), (Level::Raid6, 6)] {
        for checksums in [false, true] {
            let (world, mut array, mut content, data) =
                lost_beyond_level(level, members, checksums);
            let lost = array.geometry().redundancy() + 1;
            let each = (0..lost).map(|block| block * CHUNK as usize);
            for at in each.clone() {
                assert!(world.read(&array, at as u64, 4096).is_err(), "{level}: it is lost");
            }
            for (written, at) in each.enumerate() {
                let new = pattern(at as u64, 4096, 2);
                world.write(&array, at as u64, &new).expect("the write succeeds");
                content[at..at + 4096].copy_from_slice(&new);
                world.run(&array, array.stop()).expect("clean");
                array = world.start();
                for block in 0..data.len() {
                    let at = block * CHUNK as usize;
                    let read = world.read(&array, at as u64, 4096);
                    assert_eq!(read.is_ok(), !(written + 1..lost).contains(&block), "{level}");
                    assert!(read.is_err() || read.is_ok_and(|r| r == content[at..at + 4096]));
                }
            }
            world
                .run(&array, array.fail(MemberId(data[0] as u32)))
                .expect("the level tolerates one loss");
            let read = world.read(&array, 0, content.len()).expect("parity is valid again");
            assert!(read == content, "{level}");
        }
    }
}

/// Such a row's parity matches a block that no longer exists. If the power fails before that is
/// recorded, nothing may be computed from it.
#[test]
fn a_power_loss_before_parity_is_discarded_makes_no_garbage() {
    let (world, array, content, data) = lost_beyond_level(Level::Raid5, 4, false);
    let parity = (0..4).find(|member| !data.contains(member)).expect("three of four hold data");
    // Everything else to be recorded before a write is on record already: only the list is not.
    world.write(&array, 128 << 10, &content[128 << 10..132 << 10]).expect("the array is healthy");
    let list =
        map_of(&world.disks[parity]).bad_blocks.expect("the member has a bad-block log").start;
    world.disks[parity].break_with(Fault::HungAt(list));
    drop(world.begin(&array, 0, &pattern(0, 4096, 2)));
    world.cut(array);
    let offset = world.data_offset();
    world.disks[data[1]].break_with(Fault::Unreadable { offset, len: 4096 });
    let array = world.start();
    for block in 0..3 {
        let at = block * CHUNK as usize;
        if let Ok(read) = world.read(&array, at as u64, 4096) {
            assert!(read == content[at..at + 4096] || block == 0, "block {block} is invented");
        }
    }
}

/// Parity that was copied before it was discarded is discarded in the copy too, which takes its
/// slot.
#[test]
fn a_copy_of_discarded_parity_makes_no_garbage() {
    let (mut world, array, content, data) = lost_beyond_level(Level::Raid5, 4, false);
    let parity = (0..4).find(|member| !data.contains(member)).expect("three of four hold data");
    world.run(&array, array.stop()).expect("clean");
    (world.host.bounds.checkpoint_bytes, world.host.bounds.unit_bytes) = (64 << 10, 128 << 10);
    let array = world.start();
    let copy = FaultyDisk::new(6 << 20);
    world.disks.push(Rc::clone(&copy));
    let added = array.add(Rc::clone(&copy) as _, "copy");
    let spare = world.run(&array, added).expect("the disk is large enough");
    *copy.clock.borrow_mut() = Some(Rc::clone(&world.clock));
    copy.delay.set(Duration::from_millis(10));
    world
        .run(&array, array.replace(Slot::new(parity), spare))
        .expect("a spare, and a slot in sync");
    let done = |status: &array::Status| status.job.as_ref().map_or(0, |job| job.done_bytes);
    world.until(&array, |status| done(status) >= content.len() as u64);
    assert!(array.status().slots[parity].replacement.is_some(), "it is still being filled");
    world.write(&array, 0, &pattern(0, 4096, 2)).expect("the write succeeds");
    let takes = |status: &array::Status| status.slots[parity].member.as_ref().map(|m| m.id);
    world.until(&array, |status| takes(status) == Some(spare));
    assert!(world.read(&array, CHUNK, 4096).is_err(), "lost data is fabricated");
    assert!(world.read(&array, 0, 4096).expect("the block was rewritten") == pattern(0, 4096, 2));
}

/// Parity lost in a part of a block is discarded for the whole block when data is written without
/// it. That is recorded first: after a crash a missing block would be computed from the old parity.
#[test]
fn a_power_loss_while_data_is_written_without_parity_makes_no_garbage() {
    let world = World::new(4, 6 << 20);
    let layout = Layout::default_for(Level::Raid4, 4);
    // Checksums would extend the write to whole blocks.
    let checksums = Some(false);
    world.create(&NewArray { zeroed: true, checksums, ..NewArray::new("tank", layout, CHUNK) });
    let array = world.start();
    let content = pattern(0, 256 << 10, 1);
    world.write(&array, 0, &content).expect("the array is healthy");
    world.flush(&array);
    let offset = world.data_offset() + 4096;
    world.disks[2].break_with(Fault::Gone);
    world.disks[3].break_with(Fault::Unreadable { offset, len: 512 });
    let block = CHUNK + 4096;
    world.write(&array, block, &pattern(block, 512, 2)).expect("the write succeeds");
    world.until(&array, |status| status.clean);
    // Everything else to be recorded before a write is on record already: only the list is not.
    world.write(&array, 192 << 10, &content[192 << 10..196 << 10]).expect("degraded");
    world.disks[3].break_with(Fault::HungWrites);
    drop(world.begin(&array, block, &pattern(block, 4096, 3)));
    world.cut(array);
    world.disks[3].faults.borrow_mut().clear();
    let array = world.start_without(&[2]);
    let missing = 2 * CHUNK + 4096;
    for at in (missing..missing + 4096).step_by(512) {
        if let Ok(read) = world.read(&array, at, 512) {
            assert!(read == content[at as usize..][..512], "{at} is invented");
        }
    }
}

/// A crash tears a write to a block with a bad part. The readable rest of the block stays, so
/// parity must match it.
#[test]
fn the_rest_of_a_torn_block_with_a_bad_part_agrees_with_parity() {
    let mut world = World::new(5, 6 << 20);
    let layout = Layout::default_for(Level::Raid5, 4);
    let checksums = Some(false);
    let new = NewArray { zeroed: true, checksums, ..NewArray::new("tank", layout, CHUNK) };
    let spare = world.disks.pop().expect("five");
    world.create(&new);
    let array = world.start();
    let content = pattern(0, 256 << 10, 1);
    world.write(&array, 0, &content).expect("the array is healthy");
    world.flush(&array);
    // The first block comes out of a rebuild as bad; a write clears a part of it.
    let (offset, [first, second]) = (world.data_offset(), [0, 1].map(|i| holder(&array, i)));
    world.disks[second].break_with(Fault::Unreadable { offset, len: 512 });
    world.disks[first].break_with(Fault::Gone);
    world.read(&array, CHUNK, 512).expect_err("two are lost");
    world.run(&array, array.add(Rc::clone(&spare) as _, "spare")).expect("the disk takes the slot");
    world.until(&array, |status| status.redundancy_left == 1 && status.job.is_none());
    world.disks[first] = spare;
    world.disks[second].faults.borrow_mut().clear();
    world.write(&array, 1536, &pattern(1536, 2560, 2)).expect("the write succeeds");
    world.until(&array, |status| status.clean);
    // The next write reaches parity, but not the block.
    world.disks[first].break_with(Fault::HungFrom(offset));
    drop(world.begin(&array, 0, &pattern(0, 4096, 3)));
    world.crash(array);
    world.disks[first].faults.borrow_mut().clear();
    let array = world.start();
    array.set_speed(1, 1);
    world.disks[second].break_with(Fault::Gone);
    let beside = CHUNK + 1536;
    let read = world.read(&array, beside, 2560).expect("one member is lost");
    assert!(read == content[beside as usize..][..2560], "it was not written");
}

/// Two adjacent writes go out as one. One of them is to a row that has lost too much to accept a
/// part: the other one must succeed.
#[test]
fn a_write_that_cannot_be_done_costs_none_that_was_merged_with_it() {
    let mut world = World::new(4, 6 << 20);
    (world.host.bounds.units, world.host.bounds.unit_bytes) = (1, 256 << 10);
    let layout = Layout::default_for(Level::Raid5, 4);
    let checksums = Some(false);
    world.create(&NewArray { zeroed: true, checksums, ..NewArray::new("tank", layout, CHUNK) });
    let array = world.start();
    let stripe = 3 * CHUNK;
    world.write(&array, 0, &pattern(0, 4 * stripe as usize, 1)).expect("the array is healthy");
    let map = array.geometry().stripe(Stripe(1));
    let [missing, unreadable] = [0, 1].map(|index| map.data(index).index());
    let offset = world.data_offset() + CHUNK;
    world.run(&array, array.fail(MemberId(missing as u32))).expect("the level tolerates one loss");
    world.disks[unreadable].break_with(Fault::Unreadable { offset, len: CHUNK });
    let write =
        |at: u64| array.submit(Op::write(at, world.pool.copy_of(&pattern(at, 4096, 2)).freeze()));
    // The only worker is busy when the others arrive.
    let (first, fine, lost) = (write(3 * stripe), write(stripe - 4096), write(stripe));
    assert!(world.run(&array, first).result.is_ok());
    assert!(world.run(&array, lost).result.is_err(), "the rest of the block is undetermined");
    world.run(&array, fine).result.expect("the row lacks one member only");
    let found = world.read(&array, stripe - 4096, 4096).expect("no data of it is lost");
    assert!(found == pattern(stripe - 4096, 4096, 2));
}
