//! Cache mode `writeback`: writes are acknowledged in memory and go to the members as whole
//! stripes. Flushed data is never lost, and failed write-outs are reported.

use std::cell::Cell;
use std::future::Future;
use std::rc::Rc;
use std::task::{Context, Waker};
use std::time::Duration;

use array::{Array, CacheMode};
use io::{Clock, Completion, Disk, Done, ExtentKind, Op, Work};
use layout::{Layout, Level, MemberId, Mode};
use metadata::create::NewArray;

use crate::world::{Fault, World, pattern};

/// An array of 16 KiB chunks with spans of about 64 KiB.
fn started(level: Level, members: usize, edit: impl Fn(&mut World)) -> (World, Array) {
    let mut world = World::new(members, 8 << 20);
    world.host.cache = CacheMode::Writeback;
    edit(&mut world);
    let chunk = if level == Level::Raid1 { 0 } else { 16 << 10 };
    let layout = Layout::default_for(level, members);
    let checksums = Some(false);
    world.create(&NewArray { zeroed: true, checksums, ..NewArray::new("tank", layout, chunk) });
    let array = world.start();
    (world, array)
}

fn raid5() -> (World, Array) {
    started(Level::Raid5, 5, |_| {})
}

/// The contents after a power failure now: only those of the members.
fn after_a_cut(world: &World, len: usize) -> Vec<u8> {
    let array = world.start();
    world.read(&array, 0, len).expect("the members are there")
}

fn flush(world: &World, array: &Array) -> io::Result<()> {
    world.run(array, array.submit(Op::flush())).result
}

/// A write that is answered at once, before the array has run.
fn at_once(world: &World, array: &Array, offset: u64, bytes: &[u8]) {
    let write = Op::write(offset, world.pool.copy_of(bytes).freeze());
    let done = array.submit(write).take_ready().expect("acknowledged in memory");
    done.result.expect("there is space");
}

fn written_bytes(array: &Array) -> u64 {
    let status = array.status();
    status.slots.iter().filter_map(|slot| slot.member.as_ref()).map(|m| m.written_bytes).sum()
}

fn read_bytes(array: &Array) -> u64 {
    let status = array.status();
    status.slots.iter().filter_map(|slot| slot.member.as_ref()).map(|m| m.read_bytes).sum()
}

#[test]
fn acknowledged_writes_are_read_whole_and_in_part() {
    let (world, array) = raid5();
    assert!(array.limits().volatile, "a flush is needed");
    at_once(&world, &array, 4096, &[1; 8192]);
    at_once(&world, &array, 8192, &[2; 1024]);
    let before = read_bytes(&array);
    let held = [[1; 4096].as_slice(), &[2; 1024], &[1; 3072]].concat();
    assert_eq!(world.read(&array, 4096, 8192).expect("the read succeeds"), held);
    assert_eq!(read_bytes(&array), before, "held data is not read from members");
    let around = [[0; 4096].as_slice(), &held, &[0; 4096]].concat();
    assert_eq!(world.read(&array, 0, 16384).expect("the read succeeds"), around);
    assert!(read_bytes(&array) > before);
    assert_eq!(after_a_cut(&world, 16384), [0; 16384], "nothing is on the members");
}

#[test]
fn chunk_by_chunk_becomes_a_full_stripe_that_reads_nothing() {
    let (world, array) = raid5();
    let stripe = array.geometry().stripe_bytes();
    assert_eq!(stripe, 64 << 10);
    for chunk in 0..4 {
        assert_eq!(written_bytes(&array), 0);
        at_once(&world, &array, chunk * (16 << 10), &pattern(chunk << 14, 16 << 10, 1));
    }
    let start = world.clock.now();
    world.until(&array, |status| status.cached_bytes == 0);
    assert!(world.clock.now() - start < Duration::from_millis(100), "a full stripe is not kept");
    assert_eq!(read_bytes(&array), 0);
    let log = 4096;
    assert_eq!(written_bytes(&array), 5 * (16 << 10) + log);
    assert_eq!(after_a_cut(&world, 64 << 10), pattern(0, 64 << 10, 1));
}

#[test]
fn a_flush_makes_everything_before_it_durable() {
    let (world, array) = started(Level::Raid6, 5, |world| world.host.shards = 3);
    let bytes = pattern(0, 200 << 10, 2);
    for at in (0..200).step_by(8).rev() {
        let from = at << 10;
        at_once(&world, &array, from as u64, &bytes[from..from + (8 << 10)]);
    }
    let before: u64 = world.disks.iter().map(|disk| disk.flushes.get()).sum();
    flush(&world, &array).expect("the data is durable");
    assert_eq!(array.status().cached_bytes, 0);
    let after: u64 = world.disks.iter().map(|disk| disk.flushes.get()).sum();
    assert!(after - before >= 5, "each member is flushed");
    assert_eq!(after_a_cut(&world, 200 << 10), bytes);
}

#[test]
fn flushes_do_not_wait_for_the_workers_that_they_hold() {
    let (world, array) = started(Level::Raid5, 3, |world| world.host.bounds.units = 2);
    let mut flushes = Vec::new();
    for round in 0..32 {
        at_once(&world, &array, round * 4096, &[round as u8; 4096]);
        flushes.push(array.submit(Op::flush()));
    }
    for flush in flushes {
        world.run(&array, flush).result.expect("the flush succeeds");
    }
    assert_eq!(array.status().cached_bytes, 0);
}

#[test]
fn fua_is_durable_and_in_its_place_among_the_others() {
    let (world, array) = raid5();
    at_once(&world, &array, 0, &[1; 12288]);
    let bytes = world.pool.copy_of(&[2; 4096]).freeze();
    let fua = array.submit(Op { fua: true, ..Op::write(4096, bytes) });
    at_once(&world, &array, 6144, &[3; 4096]);
    let want = [[1; 4096].as_slice(), &[2; 2048], &[3; 4096], &[1; 2048]].concat();
    world.run(&array, fua).result.expect("written");
    assert_eq!(world.read(&array, 0, 12288).expect("the read succeeds"), want);
    let cut = after_a_cut(&world, 12288);
    assert_eq!(
        cut,
        [[1; 4096], [2; 4096], [1; 4096]].concat(),
        "data before the FUA write is present"
    );
    flush(&world, &array).expect("the data is durable");
    assert_eq!(after_a_cut(&world, 12288), want);
}

#[test]
fn zeros_and_discards_replace_earlier_cached_writes() {
    for discard in [false, true] {
        let (world, array) = raid5();
        assert!(array.limits().discard_zeroes);
        at_once(&world, &array, 0, &[1; 100 << 10]);
        let len = 70 << 10;
        let work = match discard {
            true => Work::Discard { len },
            false => Work::Zero { len, unmap: true, fast: false },
        };
        let zero = array.submit(Op::new(8192, work));
        at_once(&world, &array, 16384, &[2; 4096]);
        world.run(&array, zero).result.expect("it is zeroed");
        let zeros = [0; 70 << 10];
        let mut want = [[1; 8192].as_slice(), &zeros, &[1; 22 << 10]].concat();
        want[16384..20480].fill(2);
        assert_eq!(world.read(&array, 0, 100 << 10).expect("the read succeeds"), want);
        flush(&world, &array).expect("the data is durable");
        assert_eq!(after_a_cut(&world, 100 << 10), want);
    }
}

#[test]
fn cached_bytes_count_as_stored() {
    let (world, array) = started(Level::Raid0, 2, |_| {});
    let ask = || {
        let op = Op::new(0, Work::Extents { len: 32768, found: Vec::new() });
        match world.run(&array, array.submit(op)).work {
            Work::Extents { found, .. } => found,
            _ => unreachable!("the request was for extents"),
        }
    };
    let kinds = |found: Vec<io::Extent>| -> Vec<(u64, bool)> {
        found.iter().map(|extent| (extent.len, extent.kind == ExtentKind::Data)).collect()
    };
    assert_eq!(kinds(ask()), [(32768, false)]);
    at_once(&world, &array, 8192, &[1; 4096]);
    assert_eq!(kinds(ask()), [(8192, false), (4096, true), (20480, false)]);
}

#[test]
fn memory_is_bounded_and_writers_wait_for_it() {
    let (world, array) = started(Level::Raid5, 3, |world| {
        world.host.bounds.cache_bytes = 64 << 10;
        world.host.bounds.cache_linger = Duration::from_secs(3600);
    });
    // Every second sector of memory, so that no stripe is ever filled.
    let write = |at: u64| Op::write(at * 8192, world.pool.copy_of(&[at as u8; 4096]).freeze());
    let mut writes: Vec<Completion<Done>> = (0..64).map(|at| array.submit(write(at))).collect();
    let answered = writes.iter_mut().filter_map(Completion::take_ready).count();
    assert_eq!(answered, 16, "the rest waits");
    assert_eq!(array.status().cached_bytes, 64 << 10);
    let most = Cell::new(0);
    let mut watch = Box::pin(async {
        for write in writes.drain(answered..) {
            write.await.result.expect("its turn comes");
        }
    });
    world.run(
        &array,
        std::future::poll_fn(|cx| {
            most.set(array.status().cached_bytes.max(most.get()));
            watch.as_mut().poll(cx)
        }),
    );
    assert_eq!(most.get(), 64 << 10);
    flush(&world, &array).expect("the data is durable");
    assert_eq!(array.status().cached_bytes, 0);
    let cut = after_a_cut(&world, 64 * 8192);
    let right = |(at, part): (usize, &[u8])| part[..4096] == [at as u8; 4096];
    assert!(cut.chunks(8192).enumerate().all(right));
}

#[test]
fn more_than_half_of_the_memory_is_written_out_the_oldest_first() {
    let (world, array) = started(Level::Raid5, 3, |world| {
        world.host.bounds.cache_bytes = 64 << 10;
        world.host.bounds.cache_linger = Duration::from_secs(3600);
    });
    let far = 1 << 20;
    at_once(&world, &array, far, &[1; 4096]);
    for at in 0..8 {
        at_once(&world, &array, at * (64 << 10), &[2; 4096]);
    }
    world.until(&array, |status| status.cached_bytes == 32 << 10);
    let cut = after_a_cut(&world, far as usize + 4096);
    assert_eq!(cut[far as usize..], [1; 4096], "the first is the first to go");
    assert_eq!(cut[..4096], [0; 4096]);
}

#[test]
fn a_change_does_not_overtake_a_write_that_waits_for_room() {
    let (world, array) = started(Level::Raid5, 3, |world| {
        world.host.bounds.cache_bytes = 8 << 10;
    });
    at_once(&world, &array, 0, &[1; 8192]);
    let first = array.submit(Op::write(4096, world.pool.copy_of(&[2; 8192]).freeze()));
    let zero = Work::Zero { len: 4096, unmap: false, fast: false };
    let second = array.submit(Op::new(8192, zero));
    world.run(&array, second).result.expect("it is zeroed");
    world.run(&array, first).result.expect("its turn came");
    let want = [[1; 4096], [2; 4096], [0; 4096]].concat();
    assert_eq!(world.read(&array, 0, 12288).expect("the read succeeds"), want);
}

#[test]
fn unflushed_writes_are_written_out_in_time() {
    let (world, array) = raid5();
    at_once(&world, &array, 0, &[1; 4096]);
    let start = world.clock.now();
    world.until(&array, |status| status.cached_bytes == 0);
    let took = world.clock.now() - start;
    let linger = world.host.bounds.cache_linger;
    assert!(took >= linger && took < 2 * linger, "{took:?}");
    assert_eq!(after_a_cut(&world, 4096), [1; 4096]);
}

#[test]
fn stopping_writes_out_and_so_does_read_only() {
    let (world, array) = raid5();
    at_once(&world, &array, 0, &[1; 4096]);
    world.run(&array, array.set_read_only(true)).expect("the command is possible");
    assert_eq!(after_a_cut(&world, 4096), [1; 4096]);
    assert!(world.write(&array, 0, &[9; 4096]).is_err(), "refused, and not held");
    assert_eq!(world.read(&array, 0, 4096).expect("the read succeeds"), [1; 4096]);
    world.run(&array, array.set_read_only(false)).expect("and back");
    at_once(&world, &array, 4096, &[2; 4096]);
    world.run(&array, array.stop()).expect("the array stops");
    let array = world.start();
    assert!(array.status().clean);
    let both = [[1; 4096], [2; 4096]].concat();
    assert_eq!(world.read(&array, 0, 8192).expect("the read succeeds"), both);
}

#[test]
fn a_member_may_fail_while_it_is_written_out_to() {
    let (world, array) = raid5();
    let bytes = pattern(0, 200 << 10, 3);
    at_once(&world, &array, 0, &bytes);
    world.disks[1].break_with(Fault::WriteError);
    flush(&world, &array).expect("the level tolerates the loss");
    assert_eq!(array.status().redundancy_left, 0);
    assert_eq!(world.read(&array, 0, 200 << 10).expect("the read succeeds"), bytes);
    world.run(&array, array.stop()).expect("the array stops");
    let degraded = metadata::assemble::Options { degraded: true, ..Default::default() };
    let assembly = world.assemble([0, 2, 3, 4], &degraded).expect("the array assembles");
    let array = Array::start(assembly, &world.host);
    assert_eq!(world.read(&array, 0, 200 << 10).expect("the read succeeds"), bytes);
}

#[test]
fn bytes_of_a_failed_write_out_are_readable_and_the_error_stays() {
    let (world, array) = started(Level::Raid0, 2, |_| {});
    at_once(&world, &array, 0, &[1; 4096]);
    world.disks[0].break_with(Fault::WriteError);
    flush(&world, &array).expect_err("it is not durable");
    world.disks[0].faults.borrow_mut().clear();
    flush(&world, &array).expect_err("the data never becomes durable");
    let bytes = world.pool.copy_of(&[2; 4096]).freeze();
    let fua = Op { fua: true, ..Op::write(16384, bytes) };
    world.run(&array, array.submit(fua)).result.expect_err("this is not allowed either");
    assert_eq!(world.read(&array, 0, 8192).expect("the read succeeds")[..4096], [1; 4096]);
    let direct = array.submit(Op::write(1024, world.pool.copy_of(&[3; 1024]).freeze()));
    world.run(&array, direct).result.expect("the member accepts the write");
    let want = [[1; 1024], [3; 1024], [1; 1024], [1; 1024]].concat();
    assert_eq!(world.read(&array, 0, 4096).expect("the read succeeds"), want);
    assert_eq!(after_a_cut(&world, 4096)[1024..2048], [3; 1024], "it went past the cache");
    world.run(&array, array.stop()).expect_err("bytes are lost");
}

#[test]
fn a_failed_array_keeps_cached_writes_and_accepts_no_more() {
    let (world, array) = raid5();
    at_once(&world, &array, 0, &pattern(0, 64 << 10, 4));
    world.disks[0].break_with(Fault::Gone);
    world.disks[1].break_with(Fault::Gone);
    let bytes = world.pool.take_zeroed(64 << 10).freeze();
    let direct = array.submit(Op { fua: true, ..Op::write(2 << 20, bytes) });
    world.run(&array, direct).result.expect_err("RAID 5 does not tolerate two losses");
    assert_eq!(array.status().mode, Mode::Broken);
    // The caller is not at fault.
    let error = flush(&world, &array).expect_err("the held data has no space");
    assert!(matches!(error.kind(), io::ErrorKind::Medium { .. }), "{error}");
    world.write(&array, 1 << 20, &[1; 4096]).expect_err("the engine's own error");
    let held = world.read(&array, 0, 64 << 10).expect("held in memory");
    assert_eq!(held, pattern(0, 64 << 10, 4));
}

#[test]
fn a_rebuild_goes_on_beside_it() {
    let (world, array) = raid5();
    let bytes = pattern(0, 1 << 20, 5);
    world.run(&array, array.fail(MemberId(2))).expect("the level tolerates one loss");
    let spare = crate::world::FaultyDisk::new(8 << 20);
    let added = array.add(Rc::clone(&spare) as Rc<dyn Disk>, "spare");
    world.run(&array, added).expect("the disk is large enough");
    for at in (0..1 << 20).step_by(4096) {
        world.write(&array, at as u64, &bytes[at..at + 4096]).expect("degraded");
    }
    world.until(&array, |status| status.job.is_none() && status.redundancy_left == 1);
    flush(&world, &array).expect("the data is durable");
    world.run(&array, array.fail(MemberId(0))).expect("the level tolerates another loss now");
    assert_eq!(world.read(&array, 0, 1 << 20).expect("the read succeeds"), bytes);
}

/// Polls nothing: for callers that only watch the completion.
#[test]
fn an_acknowledgement_needs_no_turn_of_the_array() {
    let (world, array) = raid5();
    let mut cx = Context::from_waker(Waker::noop());
    let mut write = array.submit(Op::write(0, world.pool.take_zeroed(200 << 10).freeze()));
    assert!(std::pin::Pin::new(&mut write).poll(&mut cx).is_ready());
}
