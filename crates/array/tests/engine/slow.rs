//! One member that is slow, or hangs, does not stall the readers of an array.
//!
//! On the virtual clock: a member's answer takes 100 to 200 µs, one in fifty four times as long. A
//! slow member takes a hundred times as long. `--nocapture` prints the figures.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use array::Array;
use array::status::{EventKind, SlotState};
use io::{Clock, Disk, Op, TaskSet};
use layout::{Layout, Level, MemberId};
use metadata::create::NewArray;

use crate::world::{Fault, World, pattern};

const MEMBER_BYTES: u64 = 6 << 20;
const USUAL: Duration = Duration::from_micros(100);

/// An array of this level, filled with a pattern, whose members are slow from then on. A slow one
/// is reported at once.
fn world(level: Level, members: usize) -> (World, Array) {
    world_that_reports(level, members, Duration::ZERO)
}

/// The same; a slow member is reported after this time.
fn world_that_reports(level: Level, members: usize, after: Duration) -> (World, Array) {
    let mut world = World::new(members, MEMBER_BYTES);
    world.host.bounds.slow_report = after;
    let layout = Layout::default_for(level, members);
    let chunk = if level == Level::Raid1 { 0 } else { 16 << 10 };
    world.create(&NewArray { zeroed: true, ..NewArray::new("tank", layout, chunk) });
    let array = world.start();
    let bytes = array.limits().bytes;
    for at in (0..bytes).step_by(256 << 10) {
        let len = (bytes - at).min(256 << 10) as usize;
        world.write(&array, at, &pattern(at, len, 1)).expect("the array is healthy");
    }
    world.until(&array, |status| status.clean);
    world.disks.iter().for_each(|disk| pace(disk, 1));
    (world, array)
}

/// Slows the disk by a factor.
fn pace(disk: &crate::world::FaultyDisk, factor: u32) {
    disk.delay.set(factor * USUAL);
    disk.jitter.set(factor * USUAL);
}

/// The times of reads.
struct Times(Vec<Duration>);

impl Times {
    fn part(&self, of_thousand: usize) -> Duration {
        self.0[(self.0.len() - 1) * of_thousand / 1000]
    }
}

/// The load by readers.
#[derive(Clone, Copy)]
struct Load {
    readers: usize,
    reads: usize,
    len: usize,
    /// One of this many requests is a write; 0: none.
    writes: usize,
}

const RANDOM: Load = Load { readers: 8, reads: 2500, len: 4096, writes: 0 };

/// Readers at random offsets, with one request each at a time; every byte is checked.
fn load(world: &World, array: &Array, load: Load) -> Times {
    let times = Rc::new(RefCell::new(Vec::new()));
    let tasks = TaskSet::new();
    for reader in 0..load.readers {
        let (array, times) = (array.clone(), Rc::clone(&times));
        let (clock, pool) = (Rc::clone(&world.clock), world.pool.clone());
        tasks.spawn(async move {
            let mut dice = reader as u64 + 1;
            for round in 0..load.reads {
                dice = dice.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                let blocks = (array.limits().bytes - load.len as u64) / 4096;
                let at = (dice >> 33) % blocks * 4096;
                let expected = pattern(at, load.len, 1);
                if load.writes > 0 && round % load.writes == 0 {
                    let bytes = pool.copy_of(&expected).freeze();
                    array.submit(Op::write(at, bytes)).await.result.expect("no member is lost");
                    continue;
                }
                let since = clock.now();
                let done = array.submit(Op::read(at, pool.take(load.len))).await;
                times.borrow_mut().push(clock.now() - since);
                done.result.as_ref().expect("no data is lost");
                assert!(done.into_buf()[..] == expected[..], "at {at}");
            }
        });
    }
    world.run(array, tasks.run());
    let mut times = times.take();
    times.sort_unstable();
    Times(times)
}

const LEVELS: [(Level, usize); 4] =
    [(Level::Raid1, 2), (Level::Raid10, 4), (Level::Raid5, 5), (Level::Raid6, 6)];

#[test]
fn one_member_at_a_hundred_times_the_latency_costs_at_most_twice_the_p99() {
    for (level, members) in LEVELS {
        for (what, requests) in
            [("4 KiB", RANDOM), ("128 KiB", Load { len: 128 << 10, reads: 1000, ..RANDOM })]
        {
            let (world, array) = self::world(level, members);
            let healthy = load(&world, &array, requests);
            let (world, array) = self::world(level, members);
            pace(&world.disks[1], 100);
            let slow = load(&world, &array, requests);
            println!(
                "{level} of {members}, {what}: healthy p50 {:?} p99 {:?}, one slow p50 {:?} p99 \
                 {:?} p99.9 {:?} most {:?}",
                healthy.part(500),
                healthy.part(990),
                slow.part(500),
                slow.part(990),
                slow.part(999),
                slow.part(1000)
            );
            assert!(slow.part(990) <= 2 * healthy.part(990), "{level}, {what}");
            // Status, events and the member's own figures report it.
            let slots = array.status().slots;
            let member = slots[1].member.as_ref().expect("the member stays in service");
            assert!(member.slow && slots[1].state == SlotState::InSync, "{level}: {member:?}");
            assert!(member.reads.expect("it was measured").p50 > 50 * USUAL, "{level}");
            assert!(!slots[0].member.as_ref().expect("as in the case above").slow, "{level}");
            let events = array.log().since(0);
            let events = events.iter().filter(|event| event.kind == EventKind::Slow);
            assert_eq!(
                events.map(|event| event.member.as_deref()).collect::<Vec<_>>(),
                [Some("disk1")]
            );
        }
    }
}

/// A few cache hits of the peers, or a burst, are no reason for an alarm: a user who obeyed it
/// would replace a good disk.
#[test]
fn a_slow_member_is_avoided_at_once_and_reported_after_minutes_of_milliseconds() {
    let after = Duration::from_secs(2);
    for (factor, reported) in [(100, true), (10, false)] {
        let (world, array) = world_that_reports(Level::Raid5, 5, after);
        world.disks.iter().for_each(|disk| disk.delay.set(USUAL / 2));
        world.disks.iter().for_each(|disk| disk.jitter.set(USUAL / 2));
        world.disks[1].delay.set(factor * USUAL);
        let since = world.clock.now();
        let is_slow = || array.status().slots[1].member.as_ref().is_some_and(|m| m.slow);
        let mut is_avoided = false;
        while world.clock.now() - since < after {
            assert!(!is_slow(), "{factor}: reported after {:?}", world.clock.now() - since);
            let before = world.disks[1].reads.get();
            load(&world, &array, RANDOM);
            is_avoided |= world.disks[1].reads.get() - before < 500;
        }
        assert!(is_avoided, "{factor}");
        load(&world, &array, RANDOM);
        load(&world, &array, RANDOM);
        assert_eq!(is_slow(), reported, "{factor}");
    }
}

#[test]
fn where_there_are_writes_too_reads_still_go_past_the_slow_member() {
    for (level, members) in LEVELS {
        let requests = Load { writes: 10, ..RANDOM };
        let (world, array) = self::world(level, members);
        let healthy = load(&world, &array, requests);
        let (world, array) = self::world(level, members);
        pace(&world.disks[1], 100);
        let slow = load(&world, &array, requests);
        println!(
            "{level} of {members}, a tenth writes: healthy p99 {:?}, one slow p99 {:?} p99.9 {:?}",
            healthy.part(990),
            slow.part(990),
            slow.part(999)
        );
        // If the row is being written, the read waits for that write's slow member.
        assert!(slow.part(950) <= 2 * healthy.part(950), "{level}");
    }
}

#[test]
fn a_member_that_is_quick_again_is_read_again() {
    for (level, members) in LEVELS {
        let (world, array) = self::world(level, members);
        pace(&world.disks[1], 100);
        load(&world, &array, RANDOM);
        let is_slow = || array.status().slots[1].member.as_ref().is_some_and(|m| m.slow);
        assert!(is_slow(), "{level}");
        let before = world.disks[1].reads.get();
        load(&world, &array, RANDOM);
        let probes = world.disks[1].reads.get() - before;
        assert!((1..200).contains(&probes), "{level}: {probes} probes");
        pace(&world.disks[1], 1);
        let mut rounds = 0;
        while is_slow() {
            load(&world, &array, RANDOM);
            rounds += 1;
            assert!(rounds < 20, "{level}: it is never read again");
        }
        let events = array.log().since(0);
        assert!(events.iter().any(|event| event.kind == EventKind::SlowOver), "{level}");
        let before = world.disks[1].reads.get();
        load(&world, &array, RANDOM);
        assert!(world.disks[1].reads.get() - before > 1000, "{level}: it does its share");
    }
}

#[test]
fn a_hang_shorter_than_the_deadline_costs_reads_no_more_than_the_hedge() {
    for (level, members) in LEVELS {
        let (world, array) = self::world(level, members);
        let healthy = load(&world, &array, RANDOM);
        world.disks[1].break_with(Fault::Hung);
        let hung = load(&world, &array, RANDOM);
        // Three times the peers' p99, with a precision of a quarter; then another member's time.
        let most = (healthy.part(990) * 3).mul_f64(1.25) + 10 * USUAL;
        println!("{level}: hung p99 {:?} most {:?}", hung.part(990), hung.part(1000));
        assert!(hung.part(1000) <= most, "{level}: {:?}", hung.part(1000));
        assert!(world.disks[1].is_holding() > 0);
        world.disks[1].release();
        let after = load(&world, &array, RANDOM);
        assert!(after.part(1000) <= most, "{level}: {:?}", after.part(1000));
        assert_eq!(array.status().slots[1].state, SlotState::InSync, "{level}");
    }
}

#[test]
fn a_hung_member_is_lost_by_its_deadline_even_if_no_request_waits() {
    for (level, members) in LEVELS {
        let (world, array) = self::world(level, members);
        load(&world, &array, RANDOM);
        world.disks[1].break_with(Fault::Hung);
        let since = world.clock.now();
        load(&world, &array, Load { reads: 100, ..RANDOM });
        assert_eq!(array.status().slots[1].state, SlotState::InSync, "{level}: not yet");
        world.until(&array, |status| status.slots[1].state == SlotState::Missing);
        let deadline = world.host.bounds.deadline;
        let took = world.clock.now() - since;
        assert!(took >= deadline && took <= 2 * deadline, "{level}: {took:?}");
        load(&world, &array, RANDOM);
    }
}

#[test]
fn members_that_are_all_slow_are_not_made_busier() {
    for (level, members) in LEVELS {
        let (world, array) = self::world(level, members);
        load(&world, &array, RANDOM);
        // All of them, from one moment to the next, with far larger variation than before.
        world.disks.iter().for_each(|disk| pace(disk, 300));
        let reads = || world.disks.iter().map(|disk| disk.reads.get()).sum::<u64>();
        let before = reads();
        load(&world, &array, RANDOM);
        let sent = (RANDOM.readers * RANDOM.reads) as u64;
        let more = reads() - before - sent;
        // A hedged read is one read on a mirror, and one of each other slot on a level with parity.
        let bounds = &world.host.bounds;
        let most = u64::from(bounds.hedges) + sent * u64::from(bounds.hedge_percent) / 100;
        let each =
            if matches!(level, Level::Raid5 | Level::Raid6) { members as u64 - 1 } else { 1 };
        assert!(more <= each * most, "{level}: {more} reads more than {sent}");
        assert!(array.status().slots.iter().all(|s| s.member.as_ref().is_some_and(|m| !m.slow)));
    }
}

#[test]
fn where_parity_or_copies_may_disagree_a_slow_member_is_waited_for() {
    for (level, members) in [(Level::Raid5, 4), (Level::Raid6, 5), (Level::Raid1, 2)] {
        let world = World::new(members, MEMBER_BYTES);
        let layout = Layout::default_for(level, members);
        let chunk = if level == Level::Raid1 { 0 } else { 16 << 10 };
        // Its members hold noise: nothing agrees until it is synced.
        for (number, disk) in world.disks.iter().enumerate() {
            disk.disk.poke(0, &pattern(number as u64, MEMBER_BYTES as usize, 9));
        }
        world.create(&NewArray { overwrite: true, ..NewArray::new("tank", layout, chunk) });
        let array = world.start();
        array.set_speed(1, 1);
        world.disks.iter().for_each(|disk| pace(disk, 1));
        let bytes = array.limits().bytes;
        assert!(array.status().unsynced_bytes > bytes / 2, "{level}");
        let read = |at: u64| world.read(&array, at, 4096).expect("no data is lost");
        let places: Vec<u64> = (0..200).map(|i| (bytes / 2 + i * 7 * 4096) % bytes).collect();
        let first: Vec<_> = places.iter().map(|&at| read(at)).collect();
        for slow in 0..members {
            world.disks.iter().for_each(|disk| pace(disk, 1));
            pace(&world.disks[slow], 1000);
            let again: Vec<_> = places.iter().map(|&at| read(at)).collect();
            assert!(first == again, "{level}: what was read once stays so");
        }
    }
}

#[test]
fn the_late_answer_of_a_member_that_left_is_not_trusted() {
    // A read hangs; meanwhile the member leaves, and its disk is overwritten.
    for (level, members) in [(Level::Raid1, 2), (Level::Raid5, 4)] {
        let (world, array) = self::world(level, members);
        load(&world, &array, RANDOM);
        world.disks[1].break_with(Fault::Hung);
        let len = 256 << 10;
        let answer = array.submit(Op::read(0, world.pool.take(len)));
        let got = Rc::new(Cell::new(false));
        let client = {
            let got = Rc::clone(&got);
            async move {
                let done = answer.await;
                got.set(true);
                done
            }
        };
        world
            .run(&array, array.fail(MemberId(1)))
            .expect("a member that does not answer can be failed");
        world.disks[1].disk.poke(0, &vec![0xee; MEMBER_BYTES as usize]);
        world.disks[1].release();
        let done = world.run(&array, client);
        done.result.as_ref().expect("one loss");
        assert!(got.get() && done.into_buf()[..] == pattern(0, len, 1)[..], "{level}");
    }
}

#[test]
fn a_write_that_missed_its_deadline_may_land_when_it_likes() {
    // With the region's bit set before, so that data hangs; and without, so that the bit does.
    for (marked, (level, members)) in [false, true].into_iter().flat_map(|marked| {
        [(Level::Raid1, 2), (Level::Raid5, 4), (Level::Raid6, 5)].map(|level| (marked, level))
    }) {
        let (world, array) = self::world(level, members);
        world.disks.iter().for_each(|disk| {
            disk.delay.set(Duration::ZERO);
            disk.jitter.set(Duration::ZERO);
        });
        if marked {
            world.write(&array, 0, &[1; 512]).expect("the array is healthy");
        }
        world.disks[1].break_with(Fault::HungWrites);
        let late = pattern(0, 256 << 10, 5);
        world.write(&array, 0, &late).expect("the other members have the data");
        assert_eq!(array.status().slots[1].state, SlotState::Missing, "{level}");
        // Newer bytes, which it misses.
        let newer = pattern(0, 256 << 10, 6);
        world.write(&array, 0, &newer).expect("degraded");
        // While its writes are in flight it must not return.
        let stuck = world.disks[1].is_holding();
        assert!(stuck > 0);
        let disk = Rc::clone(&world.disks[1]);
        disk.faults.borrow_mut().clear();
        let error = world
            .run(&array, array.readd(disk.clone(), "disk1"))
            .expect_err("the write may still take effect");
        assert!(error.to_string().contains("may still land"), "{error}");
        let error =
            world.run(&array, array.add(disk.clone(), "disk1")).expect_err("as in the case above");
        assert!(error.to_string().contains("may still land"), "{error}");
        world.disks[1].release();
        world.run(&array, array.readd(disk, "disk1")).expect("the member has answered");
        world.until(&array, |status| {
            status.slots.iter().all(|slot| slot.state == SlotState::InSync) && status.job.is_none()
        });
        world.disks[0].break_with(Fault::Gone);
        assert_eq!(world.read(&array, 0, newer.len()).expect("one loss"), newer, "{level}");
    }
}

#[test]
fn a_member_with_a_late_write_gets_no_newer_record() {
    for (level, members) in [(Level::Raid1, 3), (Level::Raid5, 4), (Level::Raid6, 5)] {
        let (world, array) = self::world(level, members);
        world.until(&array, |status| status.clean);
        world.disks[1].break_with(Fault::HungWrites);
        // The first write needs a commit, and so does a membership change that arrives while the
        // first one waits for the member.
        let bytes = pattern(0, 4096, 5);
        let write = world.begin(&array, 0, &bytes);
        assert!(world.disks[1].is_holding() > 0, "{level}: the record hangs");
        let before = world.disks[1].writes.get();
        let disk = crate::world::FaultyDisk::new(MEMBER_BYTES);
        let change = array.add(disk, "new");
        // From here on it would answer; its held writes still land later.
        world.disks[1].faults.borrow_mut().clear();
        world.run(&array, change).expect("one loss");
        world.run(&array, write).result.expect("one loss");
        assert_eq!(world.disks[1].writes.get(), before, "{level}: it was overtaken");
        assert_ne!(array.status().slots[1].member.as_ref().map(|m| m.id), Some(MemberId(1)));
    }
}

/// A file that was truncated and restored can be opened again only when the old handle is closed.
#[test]
fn hedged_reads_do_not_keep_a_removed_disk_open() {
    for level in [Level::Raid1, Level::Raid6] {
        let (world, array) = world(level, 5);
        assert!(array.status().unsummed_bytes.is_some(), "it keeps checksums");
        pace(&world.disks[0], 100);
        load(&world, &array, Load { reads: 200, ..RANDOM });
        for member in 0..2 {
            world
                .run(&array, array.fail(MemberId(member)))
                .expect("the level tolerates two losses");
            world.run(&array, array.remove(MemberId(member))).expect("the member failed before");
        }
        let until = world.clock.now() + Duration::from_secs(1);
        world.run(&array, world.clock.sleep_until(until));
        for disk in &world.disks[..2] {
            assert_eq!(Rc::strong_count(disk), 1, "{level}: only the test has it");
        }
    }
}
