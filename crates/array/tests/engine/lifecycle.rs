//! The life of an array, from create to stop, on disks that fail.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use array::status::{EventKind, SlotState};
use array::{Array, CacheMode, Intent, JobKind, Message};
use io::{Clock, Disk, ErrorKind, Mailbox, Op, Time};
use layout::md::Superblock;
use layout::private::Consistency;
use layout::{Epoch, Layout, Level, MemberId, Mode, Raid6Layout};
use metadata::assemble::Options;
use metadata::create::NewArray;
use metadata::{Decisions, Undecided, Verdict};

use crate::world::{Fault, World, pattern, whole};

const MEMBER_BYTES: u64 = 6 << 20;

fn new_array(level: Level, members: usize, spares: usize) -> NewArray {
    let chunk = match level {
        Level::Raid1 | Level::Linear => 0,
        Level::Raid35 => 1024,
        _ => 16 << 10,
    };
    let layout = Layout::default_for(level, members);
    let checksums = Some(false);
    NewArray { zeroed: true, spares, checksums, ..NewArray::new("tank", layout, chunk) }
}

fn world(level: Level, members: usize, spares: usize) -> World {
    let world = World::new(members + spares, MEMBER_BYTES);
    world.create(&new_array(level, members, spares));
    world
}

#[test]
fn writes_survive_a_restart_on_every_level() {
    for (level, members) in [
        (Level::Linear, 3),
        (Level::Raid0, 3),
        (Level::Raid1, 3),
        (Level::Raid4, 4),
        (Level::Raid5, 4),
        (Level::Raid6, 5),
        (Level::Raid10, 5),
        (Level::Raid35, 5),
    ] {
        let world = world(level, members, 0);
        let array = world.start();
        let bytes = pattern(3584, 300_000 / 512 * 512, 1);
        world.write(&array, 3584, &bytes).expect("the array is healthy");
        world.run(&array, array.stop()).expect("clean");
        let array = world.start();
        assert!(array.status().clean, "{level}: stopped in order");
        assert_eq!(
            world.read(&array, 3584, bytes.len()).expect("the array is healthy"),
            bytes,
            "{level}"
        );
    }
}

#[test]
fn a_spare_takes_over_by_itself_and_the_array_is_whole_again() {
    for (level, members) in
        [(Level::Raid1, 2), (Level::Raid5, 4), (Level::Raid6, 5), (Level::Raid10, 4)]
    {
        let world = world(level, members, 1);
        let array = world.start();
        let bytes = pattern(0, 1 << 20, 2);
        world.write(&array, 0, &bytes).expect("the array is healthy");
        world.disks[1].break_with(Fault::Gone);
        let more = pattern(1 << 20, 1 << 20, 3);
        world.write(&array, 1 << 20, &more).expect("the level tolerates one loss");
        world.until(&array, whole);
        assert!(array.status().spares.is_empty(), "{level}: the spare is in use");
        world.disks[0].break_with(Fault::Gone);
        assert_eq!(world.read(&array, 0, 1 << 20).expect("the spare holds its share"), bytes);
        assert_eq!(
            world.read(&array, 1 << 20, 1 << 20).expect("as in the case above"),
            more,
            "{level}"
        );
    }
}

#[test]
fn a_read_error_is_repaired_in_place_and_the_member_stays() {
    for level in [Level::Raid1, Level::Raid5, Level::Raid6] {
        let world = world(level, 4, 0);
        let array = world.start();
        let bytes = pattern(0, 256 << 10, 4);
        world.write(&array, 0, &bytes).expect("the array is healthy");
        world.disks[0].break_with(Fault::Unreadable { offset: 5 << 20, len: 512 });
        world.disks[1].break_with(Fault::Unreadable { offset: (5 << 20) + (64 << 10), len: 512 });
        let all = array.limits().bytes as usize;
        for at in (0..all).step_by(1 << 20) {
            world.read(&array, at as u64, (1 << 20).min(all - at)).expect("repaired");
        }
        assert_eq!(world.read(&array, 0, bytes.len()).expect("as written"), bytes);
        assert!(whole(&array.status()), "{level}: no member was lost");
        let events = array.log().since(0);
        let logged = events.iter().any(|event| {
            event.kind == EventKind::Repaired && event.text.contains(" of its disk rewritten")
        });
        assert!(logged, "{level}: {events:?}");
        // Blocks that no client reads (parity, another copy) are checked and repaired by a scrub.
        array.scrub(true).expect("no other task runs");
        world.until(&array, |status| status.last_scrub.is_some());
        for disk in &world.disks[..2] {
            assert!(disk.faults.borrow().is_empty(), "{level}: bad sectors were rewritten");
        }
        let members = array.status().slots.into_iter().filter_map(|slot| slot.member);
        assert!(members.map(|member| member.repaired_bytes).sum::<u64>() > 0);
    }
}

#[test]
fn beyond_redundancy_remaining_data_is_readable_and_nothing_is_written() {
    let world = world(Level::Raid5, 4, 0);
    let array = world.start();
    let bytes = pattern(0, 256 << 10, 5);
    world.write(&array, 0, &bytes).expect("the array is healthy");
    world.disks[1].break_with(Fault::Gone);
    world.disks[2].break_with(Fault::Gone);
    assert!(world.write(&array, 0, &bytes).is_err());
    assert_eq!(array.status().mode, Mode::Broken);
    let results: Vec<_> = (0..12).map(|c| world.read(&array, c << 14, 16 << 10)).collect();
    for (chunk, result) in results.iter().enumerate() {
        match result {
            Ok(read) => assert_eq!(read[..], bytes[chunk << 14..(chunk + 1) << 14]),
            Err(error) => assert!(matches!(error.kind(), ErrorKind::Medium { .. })),
        }
    }
    assert!(results.iter().any(|result| result.is_ok()));
    assert!(results.iter().any(|result| result.is_err()));
}

#[test]
fn a_member_that_does_not_answer_is_lost_by_its_deadline() {
    let world = world(Level::Raid6, 5, 0);
    let array = world.start();
    world.disks[2].break_with(Fault::Hung);
    let bytes = pattern(0, 512 << 10, 6);
    world.write(&array, 0, &bytes).expect("survived");
    assert_eq!(array.status().slots[2].state, SlotState::Missing);
    assert!(world.disks[2].is_holding() > 0);
    // The held writes land late, when no read goes there any more.
    world.disks[2].release();
    assert_eq!(world.read(&array, 0, bytes.len()).expect("degraded"), bytes);
}

#[test]
fn different_rows_of_one_stripe_are_written_at_once_and_the_same_row_one_after_the_other() {
    let world = world(Level::Raid5, 4, 0);
    let array = world.start();
    // The array is dirty and the region's bit set: no superblock is written below.
    world.write(&array, 0, &pattern(0, 512, 0)).expect("the array is healthy");
    world.disks.iter().for_each(|disk| disk.break_with(Fault::Hung));
    let chunk = 16u64 << 10;
    let write = |offset: u64| {
        let bytes = pattern(offset, 512, 7);
        array.submit(Op::write(offset, world.pool.copy_of(&bytes).freeze()))
    };
    let held = |before: usize| {
        world.run(&array, async {
            io::Clock::sleep_until(&*world.clock, io::Clock::now(&*world.clock)).await
        });
        world.disks.iter().map(|disk| disk.is_holding()).sum::<usize>() - before
    };
    let a = write(0);
    let reads_a = held(0);
    assert!(reads_a > 0, "the first write reads the old bytes of its row");
    let b = write(chunk + 512);
    let reads_b = held(reads_a);
    assert!(reads_b > 0, "another row of the stripe is read at the same time");
    let c = write(chunk);
    assert_eq!(held(reads_a + reads_b), 0, "the same row waits, though its data is elsewhere");
    world.disks.iter().for_each(|disk| disk.release());
    for answer in [a, b, c] {
        world.run(&array, answer).result.expect("all done");
    }
}

#[test]
fn replace_copies_while_the_old_member_serves() {
    let world = world(Level::Raid6, 5, 1);
    let array = world.start();
    let bytes = pattern(0, 1 << 20, 8);
    world.write(&array, 0, &bytes).expect("the array is healthy");
    let spare = array.status().spares[0].id;
    let offset = 3 << 20;
    world.disks[0].break_with(Fault::Unreadable { offset, len: 4096 });
    world.run(&array, array.replace(layout::Slot(0), spare)).expect("a spare, and a slot in sync");
    world.until(&array, |status| whole(status) && status.slots[0].replacement.is_none());
    let status = array.status();
    assert_eq!(status.slots[0].member.as_ref().map(|member| member.id), Some(spare));
    world.disks[1].break_with(Fault::Gone);
    world.disks[2].break_with(Fault::Gone);
    assert_eq!(world.read(&array, 0, 1 << 20).expect("two losses"), bytes);
}

#[test]
fn data_read_after_a_crash_stays_when_a_copy_takes_the_slot() {
    // Without the last member the interrupted row has no parity, and is not logged.
    for (level, members, gone) in [
        (Level::Raid0, 3, None),
        (Level::Raid1, 2, None),
        (Level::Raid5, 4, None),
        (Level::Raid5, 4, Some(3)),
    ] {
        let mut world = world(level, members, 0);
        world.host.bounds.checkpoint_bytes = 256 << 10;
        let array = world.start();
        world.write(&array, 0, &pattern(0, 2 << 20, 1)).expect("the array is healthy");
        let copy = crate::world::FaultyDisk::new(MEMBER_BYTES);
        world.disks.push(copy.clone());
        let spare =
            world.run(&array, array.add(copy.clone(), "copy")).expect("the disk is large enough");
        *copy.clock.borrow_mut() = Some(Rc::clone(&world.clock));
        copy.delay.set(Duration::from_millis(10));
        world
            .run(&array, array.replace(layout::Slot(0), spare))
            .expect("a spare, and a slot in sync");
        // The next write goes to a range that was copied, by a checkpoint.
        let done = |status: &array::Status| status.job.as_ref().map_or(0, |job| job.done_bytes);
        world.until(&array, |status| done(status) >= 1 << 20);
        if let Some(gone) = gone {
            world.run(&array, array.fail(MemberId(gone))).expect("the level tolerates one loss");
        }
        // It reaches the member, but not its replacement.
        copy.break_with(Fault::HungWrites);
        let write = world.begin(&array, 0, &pattern(0, 4096, 2));
        drop(write);
        world.crash(array);
        copy.delay.set(Duration::ZERO);
        let array = world.start();
        let read = world.read(&array, 0, 4096).expect("slot 0 has a member");
        let takes = |status: &array::Status| status.slots[0].member.as_ref().map(|m| m.id);
        let taken = |status: &array::Status| status.job.is_none() && takes(status) == Some(spare);
        world.until(&array, taken);
        assert!(
            world.read(&array, 0, 4096).expect("the read succeeds") == read,
            "{level}: it has changed"
        );
    }
}

/// The log has no record of a row without parity, and its bit stays set.
#[test]
fn a_copy_is_valid_only_up_to_a_write_torn_without_parity() {
    let mut world = world(Level::Raid5, 4, 1);
    world.host.bounds.checkpoint_bytes = 64 << 10;
    world.host.bounds.unit_bytes = 128 << 10;
    let array = world.start();
    world.write(&array, 0, &pattern(0, 2 << 20, 1)).expect("the array is healthy");
    let (copy, spare) = (&world.disks[4], array.status().spares[0].id);
    copy.delay.set(Duration::from_millis(20));
    world.run(&array, array.replace(layout::Slot(0), spare)).expect("a spare, and a slot in sync");
    let done = |status: &array::Status| status.job.as_ref().map_or(0, |job| job.done_bytes);
    world.until(&array, |status| done(status) >= 1 << 20);
    // Parity of the first stripe is lost.
    world.disks[3].break_with(Fault::Gone);
    world.write(&array, 8192, &pattern(8192, 4096, 2)).expect("one loss");
    assert_eq!(array.status().slots[3].state, SlotState::Missing);
    let later = done(&array.status()) + (512 << 10);
    world.until(&array, |status| done(status) >= later);
    assert!(array.status().job.is_some(), "it is not whole yet");
    copy.break_with(Fault::HungWrites);
    let write = world.begin(&array, 0, &pattern(0, 4096, 2));
    drop(write);
    world.crash(array);
    copy.delay.set(Duration::ZERO);
    let there = [0, 1, 2, 4];
    let options = Options { degraded: true, ..Options::default() };
    let assembly =
        world.assemble(there, &options).expect("the array starts with one missing member");
    let array = Array::start(assembly, &world.host);
    let read = world.read(&array, 0, 4096).expect("the read succeeds");
    let takes = |status: &array::Status| status.slots[0].member.as_ref().map(|m| m.id);
    world.until(&array, |status| takes(status) == Some(spare));
    assert!(world.read(&array, 0, 4096).expect("copied") == read, "it has changed");
}

/// A power failure could leave garbage of it, and other blocks of its row may be lost by then.
#[test]
fn replay_writes_unwritten_blocks_only_to_the_replacement() {
    let world = world(Level::Raid5, 4, 1);
    let data = world.data_offset();
    let array = world.start();
    world.write(&array, 0, &pattern(0, 2 << 20, 1)).expect("the array is healthy");
    let (copy, spare) = (&world.disks[4], array.status().spares[0].id);
    copy.delay.set(Duration::from_millis(20));
    world.run(&array, array.replace(layout::Slot(0), spare)).expect("a spare, and a slot in sync");
    let map = array.geometry().stripe(layout::Stripe(0));
    assert_eq!(map.data(0), layout::Slot(0), "the first block is the one that is copied");
    let chunk = array.geometry().chunk_bytes();
    world.disks[map.data(1).index()].break_with(Fault::HungFrom(data));
    drop(world.begin(&array, chunk, &pattern(chunk, 4096, 2)));
    world.crash(array);
    copy.delay.set(Duration::ZERO);
    let assembly = world.assemble(0..5, &Options::default()).expect("all members are present");
    world.disks[0].break_with(Fault::HungAt(data));
    let array = Array::start(assembly, &world.host);
    assert!(world.read(&array, 0, 4096).expect("the read succeeds") == pattern(0, 4096, 1));
    assert_eq!(world.disks[0].is_holding(), 0, "it has been written");
    assert!(array.status().replay.is_some(), "rows were made right");
}

/// A crash lets any of the superblocks of a commit be the only one that was written.
#[test]
fn a_crash_while_a_copy_takes_the_slot_leaves_the_array_one_of_the_two() {
    let superblock = 4096;
    for (level, members, slow) in [(Level::Raid0, 3, 3), (Level::Raid0, 3, 1), (Level::Raid5, 4, 4)]
    {
        let mut world = world(level, members, 0);
        let array = world.start();
        let bytes = pattern(0, 2 << 20, 1);
        world.write(&array, 0, &bytes).expect("the array is healthy");
        world.disks.push(crate::world::FaultyDisk::new(MEMBER_BYTES));
        let copy = world.disks[members].clone();
        let spare = world.run(&array, array.add(copy, "copy")).expect("the disk is large enough");
        world
            .run(&array, array.replace(layout::Slot(0), spare))
            .expect("a spare, and a slot in sync");
        world.disks[slow].break_with(Fault::HungAt(superblock));
        let until = world.clock.now() + Duration::from_secs(5);
        world.run(&array, world.clock.sleep_until(until));
        assert!(world.disks[slow].is_holding() > 0, "it got as far as the superblocks");
        world.crash(array);
        // With parity, one more member may be lost.
        let there = (0..=members).filter(|&disk| level == Level::Raid0 || disk != 2);
        let options = Options { degraded: true, ..Options::default() };
        let assembly = world.assemble(there, &options).expect("the array assembles");
        let array = Array::start(assembly, &world.host);
        assert!(world.read(&array, 0, 2 << 20).expect("the read succeeds") == bytes, "{level}");
    }
}

#[test]
fn a_member_that_returns_gets_only_changed_ranges() {
    let world = world(Level::Raid5, 4, 0);
    let array = world.start();
    let bytes = pattern(0, 2 << 20, 9);
    world.write(&array, 0, &bytes).expect("the array is healthy");
    world.until(&array, |status| status.clean);
    world.run(&array, array.fail(MemberId(1))).expect("the level tolerates one loss");
    let change = pattern(64 << 10, 64 << 10, 10);
    world.write(&array, 64 << 10, &change).expect("degraded");
    world.run(&array, array.remove(MemberId(1))).expect("the member failed before");
    world
        .run(&array, array.readd(world.disks[1].clone(), "disk1"))
        .expect("the disk is a former member");
    world.until(&array, whole);
    world.disks[0].break_with(Fault::Gone);
    let mut expected = bytes;
    expected[64 << 10..128 << 10].copy_from_slice(&change);
    assert_eq!(world.read(&array, 0, 2 << 20).expect("from the returned member"), expected);
}

#[test]
fn scrub_identifies_the_wrong_member_and_repairs_it() {
    let layout = Layout::Raid6(Raid6Layout::LeftSymmetric);
    let world = World::new(6, MEMBER_BYTES);
    world.create(&NewArray { zeroed: true, ..NewArray::new("tank", layout, 16 << 10) });
    let array = world.start();
    let bytes = pattern(0, 1 << 20, 11);
    world.write(&array, 0, &bytes).expect("the array is healthy");
    let offset = MEMBER_BYTES - (2 << 20);
    let data = find(&world, 3, &bytes[..4096]).or_else(|| find(&world, 0, &bytes[..4096]));
    let (disk, at) = data.unwrap_or((3, offset));
    world.disks[disk].disk.poke(at, &[0xff; 512]);
    array.scrub(false).expect("no other task runs");
    world.until(&array, |status| status.last_scrub.is_some());
    let scrub = array.status().last_scrub.expect("a scrub has ended");
    assert_eq!(scrub.report.findings.len(), 1, "{scrub:?}");
    assert_eq!(scrub.report.findings[0].culprit.map(|slot| slot.index()), Some(disk));
    array.scrub(true).expect("no other task runs");
    world.until(&array, |status| status.last_scrub.as_ref().is_some_and(|scrub| scrub.repair));
    assert_eq!(world.read(&array, 0, 1 << 20).expect("repaired"), bytes);
    array.scrub(false).expect("no other task runs");
    world.until(&array, |status| status.last_scrub.as_ref().is_some_and(|scrub| !scrub.repair));
    assert!(array.status().last_scrub.expect("a scrub has ended").report.findings.is_empty());
}

#[test]
fn in_cache_mode_sync_a_write_is_answered_after_a_flush_that_others_share() {
    let mut world = world(Level::Raid5, 4, 0);
    world.host.cache = CacheMode::Sync;
    let array = world.start();
    world.write(&array, 0, &[1; 512]).expect("the array is healthy");
    let flushes = || world.disks.iter().map(|disk| disk.flushes.get()).sum::<u64>();
    let before = flushes();
    world.write(&array, 0, &[2; 512]).expect("the array is healthy");
    assert!(flushes() > before, "acknowledged data is durable");
    // Answers to writes wait for flushes; those that end meanwhile share the next one.
    let answers: Vec<_> = (0..16u64)
        .map(|i| array.submit(Op::write(i << 17, world.pool.copy_of(&[3; 512]).freeze())))
        .collect();
    let before = flushes();
    for answer in answers {
        world.run(&array, answer).result.expect("the array is healthy");
    }
    let each = 16 * world.disks.len() as u64;
    assert!((1..each).contains(&(flushes() - before)), "{} flushes", flushes() - before);
}

#[test]
fn a_flush_does_not_cover_a_write_that_ends_after_it_was_sent() {
    let world = world(Level::Raid5, 4, 0);
    let array = world.start();
    world.write(&array, 0, &[1; 512]).expect("the array is healthy");
    world.flush(&array);
    world.disks.iter().for_each(|disk| disk.delay.set(std::time::Duration::from_millis(1)));
    // A whole stripe: nothing is read first, so the flush is sent while the writes are in flight.
    let stripe = vec![2; array.geometry().stripe_bytes() as usize];
    let write = array.submit(Op::write(0, world.pool.copy_of(&stripe).freeze()));
    let early = array.submit(Op::flush());
    world.run(&array, write).result.expect("the array is healthy");
    world.run(&array, early).result.expect("the array is healthy");
    let flushes = || world.disks.iter().map(|disk| disk.flushes.get()).collect::<Vec<_>>();
    let before = flushes();
    world.flush(&array);
    let flushed = flushes().iter().zip(&before).filter(|(now, before)| now > before).count();
    assert_eq!(flushed, 4, "every member was written since the first flush was sent");
}

#[test]
fn a_block_that_a_rebuild_could_not_recover_is_an_error_until_it_is_written() {
    let world = world(Level::Raid5, 4, 1);
    let array = world.start();
    let bytes = pattern(0, 1 << 20, 12);
    world.write(&array, 0, &bytes).expect("the array is healthy");
    let (_, at) = find(&world, 0, &bytes[..4096]).expect("the first chunk is on disk 0");
    world.disks[0].break_with(Fault::Unreadable { offset: at, len: 512 });
    world.disks[3].break_with(Fault::Gone);
    world.until(&array, |status| status.spares.is_empty() && whole(status));
    let lost = world.read(&array, 0, 4096).expect_err("two blocks of the row are lost");
    assert!(matches!(lost.kind(), ErrorKind::Medium { .. }), "{lost}");
    world.read(&array, 0, 4096).expect_err("the error is logged once per second");
    // It is reported, and the status has the lost bytes.
    let logged = |kind: EventKind| {
        let events = array.log().since(0).into_iter().filter(move |event| event.kind == kind);
        events.map(|event| event.text).collect::<Vec<_>>()
    };
    let bad = |status: &array::Status| {
        let members = status.slots.iter().filter_map(|slot| slot.member.as_ref());
        members.map(|member| member.bad_bytes).sum::<u64>()
    };
    world.until(&array, |_| !logged(EventKind::ClientError).is_empty());
    assert_eq!(logged(EventKind::ClientError).len(), 1);
    let text = &logged(EventKind::ClientError)[0];
    assert!(text.contains("a read of 4096 bytes at array offset 0"), "{text}");
    assert_eq!(bad(&array.status()), 4096);
    let text = &logged(EventKind::BadBlock)[0];
    assert!(text.contains(&format!("4096 bytes at offset {at} of its disk")), "{text}");
    let rest = world.read(&array, 1 << 17, 1 << 19).expect("all other blocks were rebuilt");
    assert_eq!(rest, bytes[1 << 17..(1 << 17) + (1 << 19)]);
    // Whole stripes written again are good, on every member, also after a restart.
    world.write(&array, 0, &bytes).expect("the plan reads nothing");
    assert_eq!(world.read(&array, 0, 1 << 20).expect("the block was rewritten"), bytes);
    assert_eq!(bad(&array.status()), 0);
    world.run(&array, array.stop()).expect("clean");
    let array = world.start();
    world.disks[1].break_with(Fault::Gone);
    assert_eq!(world.read(&array, 0, 1 << 20).expect("degraded"), bytes);
}

/// Mail that is delivered some turns late.
struct SlowMail {
    mail: io::mailbox::LocalMailbox<Message>,
    held: RefCell<Vec<Message>>,
    turns: Cell<u32>,
}

impl Mailbox<Message> for SlowMail {
    fn address(&self) -> usize {
        self.mail.address()
    }

    fn send(&self, to: usize, batch: &mut Vec<Message>) {
        self.mail.send(to, batch);
    }

    fn poll_receive(&self, cx: &mut Context<'_>, into: &mut Vec<Message>) -> Poll<()> {
        let mut held = self.held.borrow_mut();
        if held.is_empty() {
            std::task::ready!(self.mail.poll_receive(cx, &mut held));
            self.turns.set(20);
        }
        if self.turns.get() > 0 {
            self.turns.set(self.turns.get() - 1);
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        into.append(&mut held);
        Poll::Ready(())
    }
}

/// A checkpoint of a rebuild must not cover a lost block before the bad-block list has it.
#[test]
fn a_checkpoint_does_not_precede_the_list_of_lost_blocks() {
    // With a bitmap, its header would be written first.
    let mut world = World::new(5, MEMBER_BYTES);
    let consistency = Some(Consistency::Resync);
    world.create(&NewArray { consistency, bitmap: None, ..new_array(Level::Raid5, 4, 1) });
    let (stripe, lost) = (3 * (16 << 10), 5);
    world.host.bounds.unit_bytes = stripe;
    world.host.bounds.job_units = 1;
    world.host.bounds.checkpoint_bytes = 1;
    let assembly = world.assemble(0..5, &Options::default()).expect("the array assembles");
    let [mail] = <[_; 1]>::try_from(io::mailbox::local(1)).unwrap_or_else(|_| panic!("one"));
    let mail = SlowMail { mail, held: RefCell::default(), turns: Cell::new(0) };
    let array = Array::start_with(assembly, &world.host, vec![Rc::new(mail)]);
    let bytes = pattern(0, 1 << 20, 12);
    world.write(&array, 0, &bytes).expect("the array is healthy");
    let at = lost * (16 << 10);
    // The last block of its unit.
    let offset = world.data_offset() + at + (12 << 10);
    world.disks[0].break_with(Fault::Unreadable { offset, len: 512 });
    world.disks.iter().for_each(|disk| disk.delay.set(Duration::from_millis(1)));
    world.disks[3].break_with(Fault::Gone);
    let recovered = || {
        let mut superblock = vec![0; 4096];
        world.disks[4].disk.peek(4096, &mut superblock);
        Superblock::parse(&superblock, 8).expect("a member").recovery_offset * 512
    };
    world.until(&array, |_| recovered() > at);
    world.crash(array);
    world.disks.iter().for_each(|disk| disk.delay.set(Duration::ZERO));
    let options = Options { degraded: true, ..Options::default() };
    let assembly = world.assemble([0, 1, 2, 4], &options).expect("half of it is rebuilt");
    let array = Array::start(assembly, &world.host);
    let member = array.status().slots[3].member.clone().expect("the spare");
    assert_eq!(member.bad_bytes, 4096);
    let (at, len) = (lost * stripe, stripe as usize);
    let read = world.read(&array, at, len).expect("the read succeeds");
    assert!(read == bytes[at as usize..][..len], "nothing else has been lost");
}

/// The same on a mirror: the new member's old contents there are never read; everything else is
/// whole.
#[test]
fn blocks_unreadable_on_the_last_copy_are_errors_on_the_new_member() {
    let world = world(Level::Raid1, 2, 1);
    let array = world.start();
    let bytes = pattern(0, 1 << 18, 12);
    world.write(&array, 0, &bytes).expect("the array is healthy");
    let (_, at) = find(&world, 0, &bytes[8192..12288]).expect("all data is on disk 0");
    world.disks[0].break_with(Fault::Unreadable { offset: at, len: 512 });
    world.disks[1].break_with(Fault::Gone);
    world.until(&array, |status| status.spares.is_empty() && whole(status));
    let lost = world.read(&array, 8192, 4096).expect_err("its only copy could not be read");
    assert!(matches!(lost.kind(), ErrorKind::Medium { .. }), "{lost}");
    world.disks[0].break_with(Fault::Gone);
    world.read(&array, 8192, 4096).expect_err("the new member has no checksum for the block");
    assert_eq!(world.read(&array, 0, 8192).expect("was copied"), bytes[..8192]);
    assert_eq!(world.read(&array, 12288, 65536).expect("was copied"), bytes[12288..][..65536]);
}

#[test]
fn a_member_with_too_many_read_errors_is_replaced_by_a_spare() {
    let mut world = world(Level::Raid6, 5, 1);
    world.host.bounds.read_errors = 3;
    let array = world.start();
    world.write(&array, 0, &pattern(0, 1 << 20, 13)).expect("the array is healthy");
    let spare = array.status().spares[0].id;
    for round in 0..8u64 {
        let offset = (4 << 20) + (round << 14);
        world.disks[2].break_with(Fault::Unreadable { offset, len: 512 });
    }
    for at in (0..array.limits().bytes).step_by(1 << 19) {
        let len = (array.limits().bytes - at).min(1 << 19) as usize;
        world.read(&array, at, len).expect("every error is repaired");
    }
    let member = |status: &array::Status| status.slots[2].member.as_ref().map(|m| m.id);
    world.until(&array, |status| whole(status) && member(status) == Some(spare));
}

#[test]
fn writes_without_parity_are_synced_at_the_next_start() {
    let mut world = world(Level::Raid5, 4, 0);
    world.host.parity = false;
    let array = world.start();
    let bytes = pattern(0, 1 << 20, 14);
    world.write(&array, 0, &bytes).expect("the array is healthy");
    world.disks[3].break_with(Fault::Gone);
    world.write(&array, 0, &bytes).expect_err("some data has no space any more");
    let chunks = (0..12u64).map(|c| world.write(&array, c << 14, &bytes[..512]).is_err());
    assert!(chunks.filter(|&refused| refused).count() == 3, "a write without space is refused");
    world.run(&array, array.stop()).expect("stopped");

    let mut world = self::world(Level::Raid5, 4, 0);
    world.host.parity = false;
    let array = world.start();
    world.write(&array, 0, &bytes).expect("the array is healthy");
    world.run(&array, array.stop()).expect("stopped, not clean");
    world.host.parity = true;
    let array = world.start();
    assert!(array.status().unsynced_bytes > 0, "parity is known to be missing");
    world.until(&array, |status| status.unsynced_bytes == 0 && whole(status));
    world.disks[0].break_with(Fault::Gone);
    assert_eq!(world.read(&array, 0, 1 << 20).expect("from parity"), bytes);
}

/// Refuses everything after the first few decisions, as a store does where another host was faster.
struct Rival(std::cell::Cell<u32>);

impl Decisions for Rival {
    fn decide<'a>(&'a self, _: Epoch, _: &'a metadata::commit::Decision) -> Verdict<'a> {
        self.0.set(self.0.get() + 1);
        let verdict = if self.0.get() > 1 { Err(Undecided::Overtaken) } else { Ok(()) };
        Box::pin(std::future::ready(verdict))
    }
}

#[test]
fn an_overtaken_array_writes_no_more() {
    let mut world = world(Level::Raid5, 4, 0);
    world.host.decisions = Some(Rc::new(Rival(std::cell::Cell::new(0))));
    let array = world.start();
    world.write(&array, 0, &[1; 512]).expect("the first decision is ours");
    let refused = world.run(&array, array.fail(MemberId(1)));
    assert!(refused.is_ok(), "the member is out, and so are we");
    assert_eq!(array.status().mode, Mode::Broken);
    let written = world.disks.iter().map(|disk| disk.writes.get()).sum::<u64>();
    assert!(world.write(&array, 0, &[2; 512]).is_err());
    assert_eq!(world.disks.iter().map(|disk| disk.writes.get()).sum::<u64>(), written);
}

/// Grants no bit.
struct Never;

impl Intent for Never {
    fn acquire(&self, _: std::ops::RangeInclusive<u64>) -> io::Completion<bool> {
        io::Completion::ready(false)
    }

    fn release(&self, _: Vec<u64>) {}

    fn quiet(&self) {}
}

#[test]
fn nothing_is_written_where_the_intent_is_not_durable() {
    let mut world = world(Level::Raid6, 5, 0);
    world.host.intent = Some(Rc::new(Never));
    let array = world.start();
    let written = world.disks.iter().map(|disk| disk.writes.get()).sum::<u64>();
    assert!(world.write(&array, 0, &[2; 512]).is_err());
    assert_eq!(world.disks.iter().map(|disk| disk.writes.get()).sum::<u64>(), written);
    assert_eq!(world.read(&array, 0, 512).expect("a read needs no bitmap bit"), [0; 512]);
}

/// The place of these bytes on a disk.
fn find(world: &World, disk: usize, bytes: &[u8]) -> Option<(usize, u64)> {
    let mut block = vec![0; bytes.len()];
    (0..MEMBER_BYTES - bytes.len() as u64).step_by(4096).find_map(|at| {
        world.disks[disk].disk.peek(at, &mut block);
        (block == bytes).then_some((disk, at))
    })
}

#[test]
fn commands_in_the_wrong_state_are_refused_and_change_nothing() {
    let world = world(Level::Raid5, 4, 0);
    let array = world.start();
    world.run(&array, array.fail(MemberId(0))).expect("the level tolerates one loss");
    let again = world.run(&array, array.fail(MemberId(0))).expect_err("the member is lost");
    assert!(again.to_string().contains("failed already"), "{again}");
    let second = world.run(&array, array.fail(MemberId(1))).expect_err("would lose data");
    assert!(second.to_string().contains("would lose data"), "{second}");
    let used = world.run(&array, array.remove(MemberId(1))).expect_err("in use");
    assert!(used.to_string().contains("fail it first"), "{used}");
    assert!(array.stop_scrub().is_err());
    assert_eq!(array.status().redundancy_left, 0);
    assert_eq!(array.status().job.map(|job| job.kind), None::<JobKind>);
}

#[test]
fn a_walk_for_one_member_does_not_count_for_the_next_in_its_slot() {
    let world = world(Level::Raid1, 2, 0);
    let array = world.start();
    world.write(&array, 0, &pattern(0, 1 << 19, 1)).expect("the array is healthy");
    world.run(&array, array.stop()).expect("clean");
    let array = world.start();
    world.run(&array, array.fail(MemberId(0))).expect("the level tolerates one loss");
    // The old member, which will return, misses this.
    world.write(&array, 0, &[7; 4096]).expect("degraded");
    // The walk for a spare passes this range, and then stays there for long.
    array.set_speed(1024, 1024);
    let spare = crate::world::FaultyDisk::new(MEMBER_BYTES) as Rc<dyn Disk>;
    let spare = world.run(&array, array.add(spare, "spare")).expect("the disk is large enough");
    world.until(&array, |status| status.job.as_ref().is_some_and(|job| job.done_bytes > 0));
    world.run(&array, array.fail(spare)).expect("the cache holds little data");
    let old = Rc::clone(&world.disks[0]) as Rc<dyn Disk>;
    world.run(&array, array.remove(MemberId(0))).expect("the member has failed");
    world.run(&array, array.readd(old, "disk0")).expect("the bitmap covers the missed writes");
    array.set_speed(0, u64::MAX);
    world.until(&array, whole);
    world.run(&array, array.fail(MemberId(1))).expect("the other copy is complete");
    assert_eq!(world.read(&array, 0, 4096).expect("one member is left"), [7; 4096]);
}

/// A flush covers writes completed before it was sent. Writes in flight at that time need another
/// one.
#[test]
fn a_write_under_way_at_one_flush_is_covered_by_the_next() {
    let world = World::new(2, 8 << 20);
    world.create(&NewArray { zeroed: true, ..NewArray::new("tank", Layout::Linear, 4096) });
    let array = world.start();
    world.write(&array, 0, &[1; 4096]).expect("a healthy array");
    let millis =
        |count: u64| world.clock.sleep_until(Time(world.clock.now().0 + count * 1_000_000));
    world.disks.iter().for_each(|disk| disk.delay.set(Duration::from_millis(2)));
    let write = array.submit(Op::write(0, world.pool.copy_of(&[2; 4096]).freeze()));
    world.run(&array, millis(1));
    let early = array.submit(Op::flush());
    assert!(world.run(&array, write).result.is_ok() && world.run(&array, early).result.is_ok());
    let before = world.disks[0].flushes.get();
    world.flush(&array);
    assert_eq!(world.disks[0].flushes.get(), before + 1, "the write is not durable yet");
}

/// A minimum speed of 0, and a client with a single request.
#[test]
fn a_job_goes_on_when_clients_are_gone() {
    for min in [1 << 20, 0] {
        let mut world = World::new(2, 64 << 20);
        world.host.bounds.unit_bytes = 1 << 20;
        let layout = Layout::default_for(Level::Raid1, 2);
        world.create(&NewArray {
            zeroed: true,
            checksums: Some(false),
            ..NewArray::new("tank", layout, 0)
        });
        let array = world.start();
        array.set_speed(min, u64::MAX);
        // One client reads once, slowly, then ends.
        world.disks.iter().for_each(|disk| disk.delay.set(Duration::from_millis(500)));
        let read = array.submit(Op::read(0, world.pool.take(4096)));
        world.sleep(&array, Duration::from_micros(1));
        world.disks.iter().for_each(|disk| disk.delay.set(Duration::from_millis(1)));
        array.scrub(false).expect("nothing else");
        world.run(&array, read).result.expect("the array is healthy");
        world.sleep(&array, Duration::from_secs(3600));
        assert!(
            array.status().last_scrub.is_some(),
            "min {min}: an hour after the last client it still stands"
        );
    }
}

/// A disk that was away missed the writes that the bitmap covers, and returns by it. A truncated
/// one lacks more: it must be rebuilt in full, after a restart too.
#[test]
fn a_member_that_has_lost_bytes_does_not_come_back_by_the_bitmap() {
    let raid5 = Layout::default_for(Level::Raid5, 3);
    for (layout, chunk, count) in [(Layout::Raid1, 0, 3), (raid5, 16 << 10, 3)] {
        for (cut, by_engine) in [(false, true), (true, true), (true, false)] {
            let world = World::new(count, 16 << 20);
            world.create(&NewArray { zeroed: true, ..NewArray::new("tank", layout, chunk) });
            let mut array = world.start();
            world.write(&array, 0, &pattern(0, 128 << 10, 1)).expect("the array is healthy");
            world.flush(&array);
            world.disks[1].break_with(if cut { Fault::Cut } else { Fault::Gone });
            if by_engine {
                world.write(&array, 0, &pattern(0, 4096, 1)).expect("the level tolerates one loss");
            } else {
                world
                    .run(&array, array.lose_truncated(MemberId(1)))
                    .expect("the level tolerates one loss");
            }
            world.until(&array, |status| status.slots[1].state == SlotState::Missing);
            world.disks[1].faults.borrow_mut().clear();
            let back = || Rc::clone(&world.disks[1]) as Rc<dyn Disk>;
            if !cut {
                world
                    .run(&array, array.readd(back(), "back"))
                    .expect("the bitmap covers the changes");
                continue;
            }
            let data = world.disks[1].limits().bytes / 2;
            world.disks[1].disk.poke(data, &vec![0; data as usize]);
            for restart in [false, true] {
                if restart {
                    world.run(&array, array.stop()).expect("the array stops");
                    array = world.start();
                    assert_eq!(array.status().slots[1].state, SlotState::Missing);
                }
                let refusal = world.run(&array, array.readd(back(), "back"));
                let refusal = refusal.expect_err("bytes of it are lost").to_string();
                assert!(refusal.contains("rebuilt in full"), "{refusal}");
            }
            world.run(&array, array.add(back(), "new")).expect("the disk is large enough");
            world.until(&array, crate::world::whole);
            world.run(&array, array.fail(MemberId(0))).expect("the level tolerates one loss");
            let found = world.read(&array, 0, 128 << 10).expect("degraded");
            assert!(found == pattern(0, 128 << 10, 1), "{layout:?}");
        }
    }
}
