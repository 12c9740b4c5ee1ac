//! Read-ahead: a sequential reader at depth 1 hardly waits, writes are never hidden, and other
//! readers pay nothing.

use std::future::Future;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use array::status::EventKind;
use array::{Array, CacheMode};
use io::{Clock, Disk, Op};
use layout::{Layout, Level};
use metadata::create::NewArray;

use crate::world::{Fault, World, pattern};

const BYTES: u64 = 4 << 20;
const CHUNK: u64 = 16 << 10;
const LATENCY: Duration = Duration::from_millis(1);

/// An array with a pattern, on disks that take a millisecond for every operation.
fn started(level: Level, members: usize, edit: impl Fn(&mut World)) -> (World, Array) {
    let mut world = World::new(members, 8 << 20);
    world.host.bounds.ahead_bytes = 512 << 10;
    edit(&mut world);
    let chunk = if level == Level::Raid1 { 0 } else { CHUNK };
    let layout = Layout::default_for(level, members);
    world.create(&NewArray {
        zeroed: true,
        checksums: Some(false),
        ..NewArray::new("tank", layout, chunk)
    });
    let array = world.start();
    for at in (0..BYTES).step_by(1 << 20) {
        world.write(&array, at, &pattern(at, 1 << 20, 1)).expect("the array is healthy");
    }
    world.run(&array, array.stop()).expect("the array stops");
    let array = world.start();
    set_latency(&world, LATENCY);
    (world, array)
}

fn set_latency(world: &World, latency: Duration) {
    world.disks.iter().for_each(|disk| disk.delay.set(latency));
}

fn read_bytes(array: &Array) -> u64 {
    let status = array.status();
    status.slots.iter().filter_map(|slot| slot.member.as_ref()).map(|m| m.read_bytes).sum()
}

/// Reads on from an offset, one chunk after the other; returns the virtual time that took.
fn stream(world: &World, array: &Array, from: u64, chunks: u64) -> Duration {
    let start = world.clock.now();
    for at in (0..chunks).map(|number| from + number * CHUNK) {
        let bytes = world.read(array, at, CHUNK as usize).expect("the array is healthy");
        assert!(bytes == pattern(at, CHUNK as usize, 1), "wrong bytes at {at}");
    }
    world.clock.now() - start
}

#[test]
fn a_sequential_reader_hardly_waits() {
    for (level, members) in
        [(Level::Raid0, 4), (Level::Raid1, 2), (Level::Raid5, 5), (Level::Raid10, 4)]
    {
        let chunks = 128;
        let (world, array) = started(level, members, |world| world.host.bounds.ahead_bytes = 0);
        assert_eq!(stream(&world, &array, 0, chunks), LATENCY * chunks as u32, "{level}: without");
        let (world, array) = started(level, members, |_| {});
        let took = stream(&world, &array, 0, chunks);
        assert!(took < LATENCY * 20, "{level}: {took:?}");
        let most = chunks * CHUNK + world.host.bounds.ahead_bytes;
        assert!(read_bytes(&array) <= most, "{level}: nothing is read twice");
    }
}

/// Members refuse parts of a block, and a member that refuses a read counts as one that failed.
#[test]
fn readahead_of_any_size_is_of_whole_blocks() {
    let errors = |array: &Array| {
        let status = array.status();
        let members = status.slots.iter().filter_map(|slot| slot.member.as_ref());
        members.map(|member| member.read_errors).sum::<u64>()
    };
    let (world, array) = started(Level::Raid5, 5, |world| world.host.bounds.ahead_bytes = 500_000);
    assert!(stream(&world, &array, 0, 128) < LATENCY * 20);
    assert_eq!(errors(&array), 0);
}

#[test]
fn several_readers_each_have_a_stream_and_another_size_is_no_matter() {
    let (world, array) = started(Level::Raid5, 5, |_| {});
    let start = world.clock.now();
    for round in 0..64 {
        for reader in 0..4 {
            let at = reader * (1 << 20) + round * 4096;
            let bytes = world.read(&array, at, 4096).expect("the array is healthy");
            assert!(bytes == pattern(at, 4096, 1));
        }
    }
    let took = world.clock.now() - start;
    assert!(took < LATENCY * 64, "{took:?} for 256 reads");
}

#[test]
fn random_deep_and_instant_readers_get_no_readahead() {
    let (world, array) = started(Level::Raid5, 5, |_| {});
    for round in 0..64 {
        let at = round * 37 % 64 * (64 << 10);
        world.read(&array, at, 4096).expect("the array is healthy");
    }
    assert_eq!(read_bytes(&array), 64 * 4096, "random");
    let deep = |array: &Array| {
        let read = |at: u64| array.submit(Op::read(at * CHUNK, world.pool.take(CHUNK as usize)));
        let mut under_way: std::collections::VecDeque<_> = (0..2).map(read).collect();
        for at in 2..64 {
            let first = under_way.pop_front().expect("two operations are in flight");
            world.run(array, first).result.expect("the array is healthy");
            under_way.push_back(read(at));
        }
        under_way.into_iter().for_each(|read| drop(world.run(array, read)));
    };
    deep(&array);
    assert_eq!(read_bytes(&array), 64 * 4096 + 64 * CHUNK, "deep");
    set_latency(&world, Duration::ZERO);
    let before = read_bytes(&array);
    stream(&world, &array, 0, 64);
    assert_eq!(read_bytes(&array) - before, 64 * CHUNK, "members that answer at once");
}

/// Disks with heads need read-ahead for a reader with several requests in flight, too. What it
/// copies is not read from them again, and none of it is stale.
#[test]
fn where_members_rotate_deep_readers_hardly_wait() {
    for (level, members) in [(Level::Raid0, 4), (Level::Raid5, 5), (Level::Raid10, 4)] {
        let (world, array) = started(level, members, |world| {
            world.host.bounds.ahead_rotating_bytes = 512 << 10;
            world.disks.iter().for_each(|disk| disk.rotational.set(true));
        });
        let read = |at: u64| array.submit(Op::read(at * CHUNK, world.pool.take(CHUNK as usize)));
        let (start, chunks) = (world.clock.now(), 128);
        let mut under_way: std::collections::VecDeque<_> = (0..2).map(read).collect();
        for at in 0..chunks {
            let first = under_way.pop_front().expect("two operations are in flight");
            let bytes = world.run(&array, first).into_buf();
            assert!(bytes[..] == pattern(at * CHUNK, CHUNK as usize, 1), "{level}: {at}");
            under_way.push_back(read(at + 2));
        }
        let took = world.clock.now() - start;
        assert!(took < LATENCY * 20, "{level}: {took:?}");
        let most = (chunks + 2) * CHUNK + world.host.bounds.ahead_rotating_bytes;
        assert!(read_bytes(&array) <= most, "{level}: something is read twice");
        world.write(&array, (chunks + 4) * CHUNK, &[7; 4096]).expect("the array is healthy");
        under_way.into_iter().for_each(|read| drop(world.run(&array, read)));
        let bytes = world.read(&array, (chunks + 4) * CHUNK, 4096).expect("the array is healthy");
        assert!(bytes.iter().all(|&byte| byte == 7), "{level}: stale");
    }
}

/// Requests that come by two links in turn, one of them a little behind, are one stream.
#[test]
fn where_members_rotate_a_reader_with_two_links_hardly_waits() {
    for (level, members) in [(Level::Raid0, 4), (Level::Raid5, 5), (Level::Raid10, 4)] {
        let (world, array) = started(level, members, |world| {
            world.host.bounds.ahead_rotating_bytes = 512 << 10;
            world.disks.iter().for_each(|disk| disk.rotational.set(true));
        });
        let (frame, frames, depth) = (4096, 512_u64, 16);
        let mut order: Vec<u64> = (0..frames).collect();
        order.sort_by_key(|frame| frame + frame % 2 * 9);
        let read = |at: u64| array.submit(Op::read(at * frame, world.pool.take(frame as usize)));
        let start = world.clock.now();
        let mut under_way: std::collections::VecDeque<(u64, io::Completion<io::Done>)> =
            std::collections::VecDeque::new();
        for next in order.iter().map(Some).chain([None; 16]) {
            if under_way.len() == depth || next.is_none() {
                let (at, first) = under_way.pop_front().expect("requests are in flight");
                let bytes = world.run(&array, first).into_buf();
                assert!(bytes[..] == pattern(at * frame, frame as usize, 1), "{level}: {at}");
            }
            under_way.extend(next.map(|&at| (at, read(at))));
        }
        let took = world.clock.now() - start;
        assert!(took < LATENCY * 20, "{level}: {took:?}");
        let most = frames * frame + world.host.bounds.ahead_rotating_bytes;
        assert!(read_bytes(&array) <= most, "{level}: something is read twice");
    }
}

/// One disk answers late. The reader goes on with the others, and what it waits for stays.
#[test]
fn where_members_rotate_pieces_that_come_late_are_not_read_twice() {
    let (world, array) = started(Level::Raid0, 5, |world| {
        world.host.bounds.ahead_rotating_bytes = 512 << 10;
        // Pieces of one disk each.
        world.host.bounds.unit_bytes = 4096;
        world.disks.iter().for_each(|disk| disk.rotational.set(true));
    });
    world.disks[0].delay.set(LATENCY * 40);
    let (block, blocks, depth) = (4096, 768_u64, 24);
    let read = |at: u64| (at, array.submit(Op::read(at * block, world.pool.take(block as usize))));
    let (mut next, mut under_way) = (depth, (0..depth).map(read).collect::<Vec<_>>());
    while !under_way.is_empty() {
        let any = std::future::poll_fn(|cx| {
            let ready = under_way.iter_mut().enumerate().find_map(|(place, (_, read))| {
                match Pin::new(read).poll(cx) {
                    Poll::Ready(done) => Some((place, done)),
                    Poll::Pending => None,
                }
            });
            ready.map_or(Poll::Pending, Poll::Ready)
        });
        let (place, done) = world.run(&array, any);
        let (at, _) = under_way.swap_remove(place);
        assert!(done.into_buf()[..] == pattern(at * block, block as usize, 1), "{at}");
        if next < blocks {
            under_way.push(read(next));
            next += 1;
        }
    }
    let most = blocks * block + world.host.bounds.ahead_rotating_bytes;
    let read = read_bytes(&array);
    assert!(read <= most, "{read} bytes of {most}: something is read twice");
}

/// The blocks of a missing member are recovered ahead too, from what is read for the stream anyway.
#[test]
fn without_a_member_a_sequential_reader_hardly_waits() {
    for (level, members, rotational) in
        [(Level::Raid5, 5, false), (Level::Raid5, 5, true), (Level::Raid6, 6, true)]
    {
        let (world, array) = started(level, members, |world| {
            world.host.bounds.ahead_rotating_bytes = 1 << 20;
            // Pieces smaller than a stripe would read rows twice.
            world.host.bounds.unit_bytes = if rotational { 8 << 10 } else { 64 << 10 };
            world.disks.iter().for_each(|disk| disk.rotational.set(rotational));
        });
        let first = array.status().slots[0].member.as_ref().expect("the array is healthy").id;
        world.run(&array, array.fail(first)).expect("the level tolerates one loss");
        let (before, chunks) = (read_bytes(&array), 128);
        let took = stream(&world, &array, 0, chunks);
        assert!(took < LATENCY * 30, "{level}: {took:?}");
        let most = chunks * CHUNK + (512 << 10) + 16 * CHUNK;
        let read = read_bytes(&array) - before;
        assert!(read <= most, "{level}: {read} bytes: rows are read twice");
    }
}

/// Where members rotate, streams share the memory. It returns from those that have ended.
#[test]
fn where_members_rotate_streams_that_ended_give_their_memory_back() {
    let (world, array) = started(Level::Raid5, 5, |world| {
        world.host.bounds.ahead_bytes = 64 << 10;
        world.host.bounds.ahead_rotating_bytes = 512 << 10;
        world.disks.iter().for_each(|disk| disk.rotational.set(true));
    });
    let reader = |number: u64| {
        let start = world.clock.now();
        for at in (0..40).map(|chunk| number * (2 << 20) + chunk * CHUNK) {
            world.read(&array, at, CHUNK as usize).expect("the array is healthy");
        }
        world.clock.now() - start
    };
    let took: Vec<Duration> = (0..2).map(reader).collect();
    assert!(took.iter().all(|&took| took < LATENCY * 10), "{took:?}");
    for number in 2..5 {
        reader(number);
    }
    world.sleep(&array, Duration::from_secs(2));
    let last = reader(5);
    assert!(last < LATENCY * 10, "{last:?}, and others have ended");
}

/// Two readers get runs of members, up to the end of the array, and nothing is read twice.
#[test]
fn two_streams_share_rotating_members_with_parity() {
    for (level, members) in [(Level::Raid5, 5), (Level::Raid6, 6)] {
        let (world, array) = started(level, members, |world| {
            world.host.bounds.ahead_bytes = 1 << 20;
            world.host.bounds.ahead_rotating_bytes = 2 << 20;
            world.host.bounds.ahead_member_bytes = 4 * CHUNK;
            world.disks.iter().for_each(|disk| disk.rotational.set(true));
        });
        let (chunks, capacity) = (128, array.geometry().capacity());
        let starts = [0, (capacity / CHUNK - chunks) * CHUNK];
        let start = world.clock.now();
        for number in 0..chunks {
            let at = starts[0] + number * CHUNK;
            let first = world.read(&array, at, CHUNK as usize).expect("the array is healthy");
            assert!(first == pattern(at, CHUNK as usize, 1), "{level}: wrong bytes at {at}");
            let at = starts[1] + number * CHUNK;
            let second = world.read(&array, at, CHUNK as usize).expect("the array is healthy");
            assert!(second.iter().all(|&byte| byte == 0), "{level}: wrong bytes at {at}");
        }
        let took = world.clock.now() - start;
        assert!(took < LATENCY * 100, "{level}: {took:?} for {} reads", 2 * chunks);
        let most = 2 * chunks * CHUNK + (2 << 20);
        assert!(read_bytes(&array) <= most, "{level}: something is read twice");
    }
}

#[test]
fn writes_are_never_hidden() {
    for cache in [CacheMode::None, CacheMode::Writeback] {
        let (world, array) = started(Level::Raid5, 5, |world| world.host.cache = cache);
        let read = |at: u64| world.read(&array, at, CHUNK as usize).expect("the array is healthy");
        stream(&world, &array, 0, 8);
        world.write(&array, 8 * CHUNK, &[7; 4096]).expect("the array is healthy");
        let mut want = pattern(8 * CHUNK, CHUNK as usize, 1);
        want[..4096].fill(7);
        assert_eq!(read(8 * CHUNK), want);
        stream(&world, &array, 9 * CHUNK, 1);
        let zero = io::Work::Zero { len: 4096, unmap: false, fast: false };
        let zero = Op::new(10 * CHUNK + 4096, zero);
        world.run(&array, array.submit(zero)).result.expect("the array is healthy");
        let mut want = pattern(10 * CHUNK, CHUNK as usize, 1);
        want[4096..8192].fill(0);
        assert_eq!(read(10 * CHUNK), want);
        // Another read goes out in between, too.
        stream(&world, &array, 11 * CHUNK, 4);
        world.write(&array, 15 * CHUNK, &[8; 4096]).expect("the array is healthy");
        world.flush(&array);
        let bytes = world.read(&array, 15 * CHUNK, CHUNK as usize).expect("the array is healthy");
        assert_eq!(bytes[..4096], [8; 4096]);
    }
}

#[test]
fn readahead_in_flight_is_dropped_if_it_was_overwritten_meanwhile() {
    for cache in [CacheMode::None, CacheMode::Writeback] {
        let (world, array) = started(Level::Raid0, 2, |world| world.host.cache = cache);
        // The third read triggers read-ahead of the next chunk. That takes long, and returns the
        // present bytes.
        world.disks[1].delay.set(LATENCY);
        stream(&world, &array, 0, 2);
        world.disks[1].delay.set(100 * LATENCY);
        stream(&world, &array, 2 * CHUNK, 1);
        assert!(read_bytes(&array) > 3 * CHUNK, "it is on its way");
        world.disks[1].delay.set(LATENCY);
        let start = world.clock.now();
        world.write(&array, 3 * CHUNK, &[7; 512]).expect("the array is healthy");
        world.flush(&array);
        let bytes = world.read(&array, 3 * CHUNK, CHUNK as usize).expect("the array is healthy");
        assert_eq!(bytes[..512], [7; 512]);
        assert!(world.clock.now() - start < 50 * LATENCY, "no wait");
    }
}

/// The offset of these bytes on a disk.
fn find(world: &World, disk: usize, bytes: &[u8]) -> Option<u64> {
    let mut whole = vec![0; 8 << 20];
    world.disks[disk].disk.peek(0, &mut whole);
    (0..whole.len() - bytes.len())
        .step_by(4096)
        .find(|&at| whole[at..].starts_with(bytes))
        .map(|at| at as u64)
}

#[test]
fn a_failed_readahead_is_left_to_the_real_read() {
    let (world, array) = started(Level::Raid5, 5, |_| {});
    let repaired = |array: &Array| {
        array.log().since(0).iter().filter(|event| event.kind == EventKind::Repaired).count()
    };
    let next = pattern(5 * CHUNK, CHUNK as usize, 1);
    let (disk, offset) = (0..5)
        .find_map(|disk| find(&world, disk, &next).map(|at| (disk, at)))
        .expect("the block is on a disk");
    world.disks[disk].break_with(Fault::Unreadable { offset, len: 512 });
    stream(&world, &array, 0, 4);
    world.run(&array, world.clock.sleep_until(world.clock.now() + 10 * LATENCY));
    assert_eq!(repaired(&array), 0, "read-ahead repairs nothing");
    stream(&world, &array, 4 * CHUNK, 2);
    assert_eq!(repaired(&array), 1);
    // Nor does it report a member.
    world.disks[3].break_with(Fault::Gone);
    stream(&world, &array, 6 * CHUNK, 60);
    assert_eq!(array.status().redundancy_left, 0, "the real read has found out");
}
