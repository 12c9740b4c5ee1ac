//! A failed flush loses every write of its member since the last flush. Whichever part of the
//! engine sends it, and whatever the next flush returns: these writes must never count as durable,
//! and no bit of the write-intent bitmap may be cleared for them.
//!
//! The disks here behave like operating systems: the writes are lost, the error is reported once,
//! and the next flush succeeds.

use std::rc::Rc;
use std::time::Duration;

use array::status::SlotState;
use array::{Array, CacheMode};
use io::{Disk, Op};
use layout::{Layout, Level, MemberId, Mode};
use metadata::assemble::Options;
use metadata::create::{BitmapChunk, NewArray};

use crate::world::{Fault, FaultyDisk, World, pattern, whole};

const LEVELS: [(Level, usize); 4] =
    [(Level::Raid1, 2), (Level::Raid5, 4), (Level::Raid6, 5), (Level::Raid10, 4)];

fn world(level: Level, members: usize, spares: usize) -> World {
    let mut world = World::new(members + spares, 6 << 20);
    let layout = Layout::default_for(level, members);
    let chunk = if level == Level::Raid1 { 0 } else { 16 << 10 };
    let bitmap = (level != Level::Raid0).then_some(BitmapChunk::Bytes(64 << 10));
    let checksums = Some(false);
    let new = NewArray {
        zeroed: true,
        spares,
        bitmap,
        checksums,
        ..NewArray::new("tank", layout, chunk)
    };
    world.create(&new);
    world.host.bounds.checkpoint_bytes = 256 << 10;
    world
}

/// Writes, flushes, and gives every part of the engine a reason to flush. The returned content was
/// flushed, or the array is marked clean.
fn live(world: &World, array: &Array) -> Vec<u8> {
    let mut content = vec![0; 1 << 20];
    let mut write = |at: usize, len: usize, salt: u8| {
        let bytes = pattern(at as u64, len, salt);
        world.write(array, at as u64, &bytes).expect("the level tolerates one loss");
        content[at..at + len].copy_from_slice(&bytes);
    };
    let flush = || world.flush(array);
    let linger = world.host.bounds.region_linger;
    write(0, 512 << 10, 1);
    flush();
    write(64 << 10, 256 << 10, 2);
    // The regions are released, and their bits cleared.
    world.sleep(array, 3 * linger);
    write(8 << 10, 4096, 3);
    // The array is marked clean.
    world.until(array, |status| status.clean);
    write(600 << 10, 64 << 10, 4);
    write(12 << 10, 512, 5);
    flush();
    // While one region waits for its release, another is flushed.
    write(300 << 10, 8192, 6);
    world.sleep(array, linger);
    write(0, 4096, 7);
    flush();
    world.sleep(array, 2 * linger);
    write(700 << 10, 4096, 8);
    content
}

/// One flush of a disk fails: in the n-th run the n-th.
#[test]
fn whichever_flush_fails_nothing_that_was_flushed_is_lost_and_no_bit_with_it() {
    let mut runs = 0;
    for (level, members) in LEVELS {
        for cache in [CacheMode::None, CacheMode::Sync, CacheMode::Writeback] {
            for crash in [false, true] {
                for (victim, nth) in (0..2).flat_map(|victim| (0..40).map(move |n| (victim, n))) {
                    let mut world = world(level, members, 0);
                    world.host.cache = cache;
                    let array = world.start();
                    let disk = Rc::clone(&world.disks[victim]);
                    disk.flush_fails_in.set(Some(nth));
                    let content = live(&world, &array);
                    if crash {
                        let flushed = world.run(&array, array.submit(Op::flush()));
                        flushed.result.expect("the level tolerates one loss");
                        world.until(&array, |status| status.clean);
                    } else {
                        world.run(&array, array.stop()).expect("the level tolerates one loss");
                    }
                    drop(array);
                    let failed = disk.flush_fails_in.take().is_none();
                    let what = format!("{level}, {cache:?}, crash {crash}, disk{victim}, {nth}");
                    readd_after_failed_flush(&world, victim, failed, &content, &what);
                    runs += 1;
                    if !failed {
                        break;
                    }
                }
            }
        }
    }
    println!("{runs} flushes failed");
    assert!(runs > 200, "{runs}");
}

/// The member returns with its contents and gets the missing ones; then one of the others is lost.
fn readd_after_failed_flush(
    world: &World,
    victim: usize,
    failed: bool,
    content: &[u8],
    what: &str,
) {
    let array = world.start();
    let missing = array.status().slots[victim].state == SlotState::Missing;
    assert_eq!(missing, failed, "{what}: a member that failed a flush is lost, and no other");
    if failed {
        let disk = Rc::clone(&world.disks[victim]) as Rc<dyn Disk>;
        world.run(&array, array.readd(disk, "back")).expect("the bitmap covers the missed writes");
    }
    world.until(&array, whole);
    array.scrub(false).expect("the scrub starts");
    world.until(&array, |status| status.last_scrub.is_some() && status.job.is_none());
    let scrub = array.status().last_scrub.expect("a scrub has ended");
    assert_eq!(scrub.report.mismatches, 0, "{what}: {:?}", scrub.report.findings);
    world
        .run(&array, array.fail(MemberId(1 - victim as u32)))
        .expect("the level tolerates one loss");
    let read = world.read(&array, 0, content.len()).expect("degraded");
    let wrong = read.iter().zip(content).position(|(a, b)| a != b);
    assert_eq!(wrong, None, "{what}: stale bytes at that offset");
}

#[test]
fn a_spare_whose_flush_fails_at_a_checkpoint_is_not_taken_for_rebuilt() {
    for (level, members) in LEVELS {
        for nth in 0..40 {
            let world = world(level, members, 2);
            let array = world.start();
            let content = pattern(0, 1 << 20, 1);
            world.write(&array, 0, &content).expect("the array is healthy");
            let spare = Rc::clone(&world.disks[members]);
            spare.flush_fails_in.set(Some(nth));
            world.run(&array, array.fail(MemberId(0))).expect("the level tolerates one loss");
            world.until(&array, |status| status.spares.len() < 2 && whole(status));
            world.write(&array, 0, &content[..4096]).expect("the write succeeds");
            world.flush(&array);
            world.until(&array, whole);
            let failed = spare.flush_fails_in.take().is_none();
            assert_eq!(array.status().spares.is_empty(), failed, "{level}, {nth}");
            world.run(&array, array.fail(MemberId(1))).expect("the level tolerates one loss");
            assert!(world.read(&array, 0, 1 << 20).expect("degraded") == content, "{level}, {nth}");
            if !failed {
                assert!(nth > 2, "{level}: {nth}");
                break;
            }
        }
    }
}

#[test]
fn two_members_that_fail_a_flush_at_once_are_borne_by_raid6_and_break_raid5_and_mirrors() {
    for (level, members, borne) in
        [(Level::Raid6, 5, true), (Level::Raid5, 4, false), (Level::Raid1, 2, false)]
    {
        let world = world(level, members, 0);
        let array = world.start();
        let bytes = pattern(0, 256 << 10, 1);
        world.write(&array, 0, &bytes).expect("the array is healthy");
        world.flush(&array);
        let newer = pattern(0, 256 << 10, 2);
        (0..2).for_each(|disk| world.disks[disk].flush_fails_in.set(Some(0)));
        world.write(&array, 0, &newer).expect("taken");
        let flushed = world.run(&array, array.submit(Op::flush())).result;
        assert_eq!(flushed.is_ok(), borne, "{level}");
        if borne {
            assert_eq!(world.read(&array, 0, newer.len()).expect("two losses"), newer);
            continue;
        }
        assert_eq!(array.status().mode, Mode::Broken, "{level}");
        // The disks would report success now, which would be false.
        for _ in 0..2 {
            let flushed = world.run(&array, array.submit(Op::flush()));
            flushed.result.expect_err("written data may be lost");
        }
        world.sleep(&array, 5 * world.host.bounds.region_linger);
        let _ = world.run(&array, array.stop());
        // The next start finds the state after a crash: interrupted ranges are synced.
        let array = world.start();
        assert!(!array.status().clean && array.status().unsynced_bytes > 0, "{level}");
        world.until(&array, |status| status.unsynced_bytes == 0 && whole(status));
        array.scrub(false).expect("the scrub starts");
        world.until(&array, |status| status.last_scrub.is_some());
        assert_eq!(
            array.status().last_scrub.expect("a scrub has ended").report.mismatches,
            0,
            "{level}"
        );
    }
}

#[test]
fn the_last_copy_that_fails_a_flush_is_never_flushed_again() {
    let world = world(Level::Raid1, 2, 0);
    let array = world.start();
    world.run(&array, array.fail(MemberId(0))).expect("the level tolerates one loss");
    world.disks[1].flush_fails_in.set(Some(1_000));
    world.write(&array, 0, &[1; 4096]).expect("degraded");
    world.disks[1].flush_fails_in.set(Some(0));
    for _ in 0..3 {
        let flushed = world.run(&array, array.submit(Op::flush()));
        flushed.result.expect_err("no other member has the data");
    }
    assert_eq!(array.status().mode, Mode::Broken);
    assert!(world.write(&array, 0, &[2; 512]).is_err(), "nothing is written any more");
}

#[test]
fn without_redundancy_a_flush_that_failed_once_has_failed_for_good() {
    let world = world(Level::Raid0, 3, 0);
    let array = world.start();
    world.write(&array, 0, &pattern(0, 256 << 10, 1)).expect("the array is healthy");
    world.disks[1].flush_fails_in.set(Some(0));
    for _ in 0..3 {
        let flushed = world.run(&array, array.submit(Op::flush()));
        flushed.result.expect_err("some data may be lost");
    }
    world.read(&array, 0, 64 << 10).expect("present data is read");
}

#[test]
fn a_flush_that_hangs_is_one_that_failed() {
    for (level, members) in LEVELS {
        let world = world(level, members, 0);
        let array = world.start();
        let bytes = pattern(0, 256 << 10, 1);
        world.write(&array, 0, &bytes).expect("the array is healthy");
        world.disks[1].break_with(Fault::HungWrites);
        world.flush(&array);
        assert_eq!(array.status().slots[1].state, SlotState::Missing, "{level}");
        assert_eq!(world.read(&array, 0, bytes.len()).expect("degraded"), bytes);
    }
}

/// A failing flush loses the writes of all shards and reports late. Another flush would succeed at
/// once: it must not be sent.
fn no_flush_succeeds_meanwhile(shards: usize, clean_delay: Duration) {
    let mut world = world(Level::Raid5, 4, 0);
    world.host.shards = shards;
    world.host.bounds.clean_delay = clean_delay;
    let options = Options::default();
    let mut assembly = world.assemble(0..4, &options).expect("all members are present");
    assembly.geometry = assembly.geometry.with_region_bytes(192 << 10);
    let array = Array::start(assembly, &world.host);
    let mut content = pattern(0, 768 << 10, 1);
    world.write(&array, 0, &content).expect("the array is healthy");
    world.flush(&array);
    let linger = world.host.bounds.region_linger;
    world.sleep(&array, 4 * linger);
    // Regions of two shards, if there are two. The array is marked dirty.
    world.write(&array, 0, &content[..512]).expect("the array is healthy");
    let disk = &world.disks[1];
    disk.flush_fails_in.set(Some(0));
    disk.flush_fails_after.set(5 * linger);
    let flushes = disk.flushes.get();
    for at in [0, 192 << 10] {
        let newer = pattern(at as u64, 128 << 10, 2);
        world.write(&array, at as u64, &newer).expect("the array is healthy");
        content[at..at + newer.len()].copy_from_slice(&newer);
        world.sleep(&array, linger / 16);
    }
    while disk.flushes.get() == flushes {
        world.sleep(&array, Duration::from_millis(1));
    }
    assert_eq!(disk.flush_fails_in.get(), None, "the flush failed undetected");
    world.sleep(&array, 3 * linger);
    assert_eq!(disk.flushes.get(), flushes + 1, "a second flush would report success");
    assert_eq!(array.status().slots[1].state, SlotState::InSync, "the failure is not detected yet");
    world.until(&array, |status| status.slots[1].state == SlotState::Missing);
    assert_eq!(disk.flushes.get(), flushes + 1, "the earlier write is absent");
    let back = Rc::clone(disk) as Rc<dyn Disk>;
    world.run(&array, array.readd(back, "disk1")).expect("the bitmap covers the missed writes");
    world.until(&array, whole);
    world.run(&array, array.fail(MemberId(0))).expect("the level tolerates one loss");
    let read = world.read(&array, 0, content.len()).expect("degraded");
    let wrong = read.iter().zip(&content).position(|(a, b)| a != b);
    assert_eq!(wrong, None, "{shards} shards: stale bytes at that offset");
}

#[test]
fn while_the_keepers_flush_fails_no_shards_flush_succeeds() {
    // The keeper flushes to mark the array clean, the shard to release its regions.
    no_flush_succeeds_meanwhile(1, Duration::from_secs(1));
}

#[test]
fn while_one_shards_flush_fails_no_other_flush_succeeds() {
    no_flush_succeeds_meanwhile(2, Duration::from_secs(3600));
}

/// An array of disks without caches promises that completed writes are durable. It keeps that
/// promise after a member with a cache has joined.
#[test]
fn a_member_with_a_cache_that_joins_does_not_break_the_promise_of_those_without() {
    for (level, members) in [(Level::Raid1, 2), (Level::Raid5, 3)] {
        let mut world = World::new(members, 6 << 20);
        let layout = Layout::default_for(level, members);
        let chunk = if level == Level::Raid1 { 0 } else { 16 << 10 };
        let checksums = Some(false);
        world.create(&NewArray { zeroed: true, checksums, ..NewArray::new("t", layout, chunk) });
        let array = world.start();
        world.write(&array, 0, &pattern(0, 64 << 10, 1)).expect("the array is healthy");
        assert!(!array.limits().volatile);
        let spare = FaultyDisk::new(6 << 20);
        spare.volatile.set(true);
        world.run(&array, array.fail(MemberId(0))).expect("the level tolerates one loss");
        world
            .run(&array, array.add(Rc::clone(&spare) as _, "spare"))
            .expect("the disk is large enough");
        world.until(&array, |s| s.slots[0].state == SlotState::InSync && s.job.is_none());
        world.disks[0] = spare;
        let new = pattern(0, 64 << 10, 2);
        world.write(&array, 0, &new).expect("the array is healthy");
        let zero = Op::new(64 << 10, io::Work::Zero { len: 64 << 10, unmap: false, fast: false });
        world.run(&array, array.submit(zero)).result.expect("the array is healthy");
        world.cut(array);
        let array = world.start();
        assert!(world.read(&array, 0, 64 << 10).expect("the read succeeds") == new, "{level}");
        let zeros = world.read(&array, 64 << 10, 64 << 10).expect("the read succeeds");
        assert!(zeros.iter().all(|byte| *byte == 0), "{level}");
    }
}
