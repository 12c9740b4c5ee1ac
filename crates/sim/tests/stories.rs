//! Named disasters: the events are scripted, their interleaving is not.
//!
//! Each story runs under several seeds, on the same parts as `cargo sim`: real create and assemble
//! bytes, an oracle, and in the end an array that must be whole, clean and right.

use std::future::Future;
use std::rc::Rc;
use std::time::Duration;

use array::CacheMode;
use array::status::SlotState;
use io::{Completion, Disk, Done, Op, ZeroSupport};
use layout::private::Consistency;
use layout::{Layout, Level, Mode, Slot, Stripe};
use sim::disk::SimDisk;
use sim::medium::{Fill, SECTOR};
use sim::node::{Consent, Node};
use sim::options::{Dangers, Options, Wish};
use sim::oracle::{Caches, Oracle, Put, Request as Asked};
use sim::scenario;
use sim::trace::{Detail, Trace};
use sim::workload::{Kind, Outcome, Request, Stage};
use sim::world::World;

/// An array, and its users.
#[derive(Clone)]
struct Play {
    world: World,
    options: Options,
    nodes: Vec<Rc<Node>>,
    stage: Rc<Stage>,
}

/// An ordinary array of this level: 8 KiB chunks, quick disks that start as zeros.
fn ordinary(seed: u64, layout: Layout, members: usize) -> Options {
    let cache = Some(CacheMode::None);
    let wish = Wish { level: Some(Level::Raid5), shards: Some(1), cache, ..Wish::default() };
    let mut options = Options::draw(seed, wish);
    options.inner = None;
    let shape = &mut options.outer;
    (shape.layout, shape.members) = (layout, members);
    shape.version = layout::md::Version::V1_2;
    shape.consistency = Consistency::Intent;
    shape.chunk_bytes = if layout == Layout::Raid1 { 0 } else { 8192 };
    (shape.bitmap_chunk, shape.check_reads, shape.region_bytes) = (Some(16 << 10), false, 64 << 10);
    shape.bounds = metadata::Bounds {
        deadline: Duration::from_millis(50),
        clean_delay: Duration::from_millis(2),
        region_linger: Duration::from_millis(5),
        unit_bytes: 64 << 10,
        checkpoint_bytes: 16 << 10,
        job_units: 1,
        ..metadata::Bounds::default()
    };
    options.data_bytes = vec![256 << 10; members];
    options.build.fill = Fill::Zeros;
    options.build.latency_us = 50;
    options.build.limits.zero = ZeroSupport::Fast;
    options.dangers = Dangers::default();
    (options.lies, options.garbage) = (0, false);
    options
}

/// Plays a story under some seeds; ends with an array that must be whole and right.
fn play<F>(options: impl Fn(u64) -> Options, script: impl Fn(Play) -> F)
where
    F: Future<Output = ()> + 'static,
{
    for seed in 0..8 {
        let world = World::new(seed, Trace::new(Detail::Nothing));
        let options = options(seed);
        let (stage_world, drawn) = (world.clone(), options.clone());
        let made = world.run(async move {
            let nodes = scenario::make(&stage_world, &drawn).await;
            let capacity = nodes[0].geometry().capacity();
            let stage = Stage::new(&stage_world, &nodes[0], Oracle::new(capacity, true));
            (nodes, stage)
        });
        let (nodes, stage) = made.expect("an array is made");
        let play = Play { world: world.clone(), options, nodes, stage };
        let script = script(play.clone());
        let outcome = world.run(async move {
            script.await;
            scenario::heal(&play.stage, &play.nodes, &play.options).await;
            let content = scenario::converged(&play.stage, &play.nodes).await;
            scenario::rest(&play.stage, &play.nodes, &content).await;
        });
        if let Err(stall) = outcome {
            panic!("seed {seed}: {stall}");
        }
        world.executor.abort_all();
    }
}

impl Play {
    fn node(&self) -> &Rc<Node> {
        &self.nodes[0]
    }

    fn disk(&self, slot: usize) -> Rc<SimDisk> {
        self.node().disk_in(Slot::new(slot)).expect("a simulated disk holds the slot")
    }

    fn capacity(&self) -> u64 {
        self.node().geometry().capacity()
    }

    async fn perform(&self, kind: Kind, offset: u64, len: u64) {
        let (sector, count) = (offset / SECTOR, len / SECTOR);
        let request = Request { kind, sector, count, fua: false, pause: 0 };
        assert_eq!(self.stage.perform((0, 0), request).await, Outcome::Answered);
    }

    async fn write(&self, offset: u64, len: u64) {
        self.perform(Kind::Write(1), offset, len).await;
    }

    async fn read(&self, offset: u64, len: u64) {
        self.perform(Kind::Read(1), offset, len).await;
    }

    async fn fill(&self) {
        let step = 32 << 10;
        for at in (0..self.capacity()).step_by(step as usize) {
            self.write(at, step.min(self.capacity() - at)).await;
        }
    }

    /// Sends a write and does not wait.
    fn send(&self, offset: u64, len: u64) -> (Asked, Completion<Done>) {
        let asked = self.stage.oracle.borrow_mut().write(offset, len, Put::Pattern);
        let mut bytes = self.world.pool.take(len as usize);
        self.stage.oracle.borrow().fill(asked, &mut bytes);
        (asked, self.node().array().submit(Op::write(offset, bytes.freeze())))
    }

    async fn await_write(&self, (asked, completion): (Asked, Completion<Done>)) {
        completion.await.result.expect("within the budget of the level");
        self.stage.oracle.borrow_mut().acknowledge(asked, false);
    }

    async fn spare(&self) -> layout::MemberId {
        let most = *self.options.data_bytes.iter().max().expect("there are disks");
        let mut build = self.options.build;
        build.limits.bytes = scenario::RESERVED + most;
        let disk = self.world.disk(build);
        let name = disk.name.clone();
        self.node().add(disk, &name).await.expect("a disk that is large enough")
    }

    async fn until(&self, what: &str, holds: impl Fn() -> bool) {
        for _ in 0..100_000 {
            if holds() {
                return;
            }
            self.world.pause(100).await;
        }
        panic!("never: {what}: {:#?}", self.node().status());
    }

    fn state(&self, slot: usize) -> SlotState {
        self.node().status().slots[slot].state
    }
}

fn raid5(seed: u64) -> Options {
    ordinary(seed, Layout::default_for(Level::Raid5, 5), 5)
}

fn raid6(seed: u64) -> Options {
    ordinary(seed, Layout::default_for(Level::Raid6, 6), 6)
}

#[test]
fn two_members_of_a_raid6_vanish_under_writes() {
    play(raid6, |play| async move {
        play.fill().await;
        let sent: Vec<_> = (0..24).map(|at| play.send(at * 20_480, 16 << 10)).collect();
        play.world.pause(60).await;
        play.disk(1).set_gone(true);
        play.disk(4).set_gone(true);
        for one in sent {
            play.await_write(one).await;
        }
        assert_eq!(play.state(1), SlotState::Missing);
        assert_eq!(play.state(4), SlotState::Missing);
        play.read(0, play.capacity()).await;
    });
}

#[test]
fn the_spare_fails_during_its_rebuild() {
    play(raid5, |play| async move {
        play.fill().await;
        play.disk(2).set_gone(true);
        play.write(0, 64 << 10).await;
        play.spare().await;
        let begun =
            |play: &Play| matches!(play.state(2), SlotState::Rebuilding { below } if below > 0);
        play.until("rebuild", || begun(&play)).await;
        play.disk(2).set_write_error(true);
        play.until("the spare is out", || play.state(2) == SlotState::Missing).await;
        play.read(0, play.capacity()).await;
        play.spare().await;
        play.until("whole", || play.state(2) == SlotState::InSync).await;
    });
}

#[test]
fn a_hung_member_is_lost_and_its_writes_land_late() {
    play(raid5, |play| async move {
        play.fill().await;
        let hung = play.disk(0);
        hung.set_hung(true);
        let sent: Vec<_> = (0..8).map(|at| play.send(at * 32_768, 32 << 10)).collect();
        for one in sent {
            play.await_write(one).await;
        }
        assert_eq!(play.state(0), SlotState::Missing);
        assert!(hung.in_flight() > 0, "its operations are still under way");
        play.spare().await;
        play.until("whole", || play.state(0) == SlotState::InSync).await;
        play.write(0, 64 << 10).await;
        let answered = hung.counts().answered;
        hung.set_hung(false);
        play.until("late answers", || hung.in_flight() == 0).await;
        assert!(hung.counts().answered > answered);
        play.read(0, play.capacity()).await;
    });
}

#[test]
fn writes_to_different_rows_of_one_stripe_run_in_parallel() {
    play(
        |seed| ordinary(seed, Layout::default_for(Level::Raid5, 9), 9),
        |play| async move {
            play.fill().await;
            // Left-symmetric, stripe 0: chunk 0 is on slot 0, chunk 1 on slot 1, parity on slot 8.
            // Written just before, the stripe is marked: marks go to every member.
            play.write(0, 512).await;
            play.disk(0).set_hung(true);
            let first = play.send(0, 512);
            let other_row = play.send(8192 + 4096, 512);
            let same_row = play.send(8192, 512);
            play.await_write(other_row).await;
            assert_eq!(play.state(0), SlotState::InSync, "the first still waits for its member");
            let mut same_row = same_row;
            assert!(same_row.1.take_ready().is_none(), "one row, one after the other");
            play.disk(0).set_hung(false);
            play.await_write(first).await;
            play.await_write(same_row).await;
            assert_eq!(play.state(0), SlotState::InSync);
        },
    );
}

#[test]
fn overlapping_writes_land_in_order_of_arrival() {
    for layout in [Layout::default_for(Level::Raid6, 6), Layout::Raid1] {
        play(
            |seed| ordinary(seed, layout, 6),
            |play| async move {
                let sent: Vec<_> = (0..12).map(|at| play.send(at * 512, 24 << 10)).collect();
                let last = sent.last().expect("twelve").0;
                for one in sent {
                    play.await_write(one).await;
                }
                let mut expected = vec![0; 24 << 10];
                play.stage.oracle.borrow().fill_again(last, 11, &mut expected);
                let buf = play.world.pool.take(24 << 10);
                let done = play.node().array().submit(Op::read(11 * 512, buf)).await;
                assert!(done.into_buf()[..] == expected[..], "the last write wins");
            },
        );
    }
}

#[test]
fn a_read_error_is_repaired_in_place() {
    play(raid6, |play| async move {
        play.fill().await;
        let disk = play.disk(3);
        let start = disk.limits().bytes - play.node().geometry().member_bytes(Slot::new(3));
        disk.set_unreadable(start + (16 << 10), 24 << 10, false);
        play.read(0, play.capacity()).await;
        assert!(disk.unreadable() < 48, "data is rewritten when it is read");
        play.node().array().scrub(true).expect("the scrub starts");
        play.until("repaired", || disk.unreadable() == 0).await;
        assert_eq!(play.state(3), SlotState::InSync, "and not failed for it");
        let repaired = |play: &Play| {
            play.node().status().slots[3].member.as_ref().map_or(0, |member| member.repaired_bytes)
        };
        play.until("counted", || repaired(&play) >= 24 << 10).await;
    });
}

#[test]
fn the_source_of_a_replacement_dies_half_way() {
    play(raid5, |play| async move {
        play.fill().await;
        let spare = play.spare().await;
        play.node()
            .array()
            .replace(Slot::new(1), spare)
            .await
            .expect("a spare, and a slot in sync");
        let copying =
            |play: &Play| matches!(play.state(1), SlotState::Replacing { below } if below > 0);
        play.until("copying", || copying(&play)).await;
        play.disk(1).set_gone(true);
        play.write(0, 64 << 10).await;
        let taken = |play: &Play| {
            matches!(play.state(1), SlotState::Rebuilding { below } if below > 0)
                || play.state(1) == SlotState::InSync
        };
        play.until("the copy goes on as a rebuild", || taken(&play)).await;
        play.until("whole", || play.state(1) == SlotState::InSync).await;
    });
}

#[test]
fn a_rebuild_goes_on_after_a_stop() {
    play(raid5, |play| async move {
        play.fill().await;
        play.disk(1).set_gone(true);
        play.write(0, 64 << 10).await;
        play.spare().await;
        let half = play.capacity() / 3;
        let begun =
            |play: &Play| matches!(play.state(1), SlotState::Rebuilding { below } if below > half);
        play.until("a third is rebuilt", || begun(&play)).await;
        play.node().stop().await.expect("stops");
        play.node().assemble(Consent::Degraded).await.expect("assembles");
        let SlotState::Rebuilding { below } = play.state(1) else { panic!("rebuilt already") };
        assert!(below >= half, "it goes on where it was, not from the start: {below} of {half}");
        play.until("whole", || play.state(1) == SlotState::InSync).await;
    });
}

#[test]
fn a_raid50_loses_one_member_in_each_half() {
    let nested = |seed| {
        let mut options = ordinary(seed, Layout::default_for(Level::Raid0, 2), 2);
        let mut inner = ordinary(seed, Layout::default_for(Level::Raid5, 4), 4).outer;
        inner.bounds.deadline = Duration::from_millis(20);
        options.outer.bounds.deadline = Duration::from_millis(1000);
        options.inner = Some(inner);
        options.data_bytes = vec![256 << 10; 8];
        options
    };
    play(nested, |play| async move {
        play.fill().await;
        let sent: Vec<_> = (0..8).map(|at| play.send(at * 65_536, 60 << 10)).collect();
        play.world.pause(50).await;
        for half in &play.nodes[1..] {
            half.disk_in(Slot::new(2)).expect("a disk").set_gone(true);
        }
        for one in sent {
            play.await_write(one).await;
        }
        play.read(0, play.capacity()).await;
        assert_eq!(play.state(0), SlotState::InSync, "above nothing is noticed");
        for half in &play.nodes[1..] {
            assert_eq!(half.unwell().count(), 1);
        }
    });
}

#[test]
fn more_is_lost_than_a_raid5_can_bear() {
    play(raid5, |play| async move {
        play.fill().await;
        play.world.pause(100_000).await;
        play.stage.overloaded.set(true);
        let (a, b) = (play.disk(0), play.disk(1));
        a.set_gone(true);
        b.set_gone(true);
        play.read(0, 64 << 10).await;
        play.until("broken", || play.node().status().mode == Mode::Broken).await;
        play.write(128 << 10, 4096).await;
        // The cause is repaired: nothing that was acknowledged is missing.
        let _ = play.node().stop().await;
        a.set_gone(false);
        b.set_gone(false);
        play.stage.overloaded.set(false);
        play.node().assemble(Consent::Degraded).await.expect("its members are unchanged");
        play.read(0, play.capacity()).await;
    });
}

/// Random readers, one read at a time each; their latencies, sorted, in microseconds.
async fn waits(play: &Play, readers: u64, reads: u64) -> Vec<u64> {
    use io::Clock;
    let clock = Rc::clone(&play.world.clock);
    let waits = Rc::new(std::cell::RefCell::new(Vec::new()));
    let left = Rc::new(std::cell::Cell::new(readers));
    for reader in 0..readers {
        let (play, clock) = (play.clone(), Rc::clone(&clock));
        let (waits, left) = (Rc::clone(&waits), Rc::clone(&left));
        play.world.executor.clone().spawn("reader", async move {
            let mut dice = reader;
            for _ in 0..reads {
                dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let at = (dice >> 33) % (play.capacity() / 4096) * 4096;
                let since = clock.now();
                play.read(at, 4096).await;
                waits.borrow_mut().push((clock.now() - since).as_micros() as u64);
            }
            left.set(left.get() - 1);
        });
    }
    play.until("read", || left.get() == 0).await;
    let mut waits = waits.take();
    waits.sort_unstable();
    waits
}

#[test]
fn a_member_at_a_hundred_times_the_latency_does_not_stall_readers() {
    let mirror = |seed| ordinary(seed, Layout::Raid1, 2);
    let raid10 = |seed| ordinary(seed, Layout::default_for(Level::Raid10, 4), 4);
    let all: [fn(u64) -> Options; 4] = [mirror, raid10, raid5, raid6];
    for options in all {
        let patient = move |seed| {
            let mut options = options(seed);
            options.outer.bounds.deadline = Duration::from_secs(10);
            options.outer.bounds.slow_report = Duration::ZERO;
            options.build.limits.rotational = false;
            options
        };
        play(patient, |play| async move {
            play.fill().await;
            play.until("clean", || play.node().status().clean).await;
            let healthy = waits(&play, 4, 1000).await;
            play.disk(1).set_slow(100);
            let slow = waits(&play, 4, 1000).await;
            let p99 = |waits: &[u64]| waits[waits.len() * 99 / 100];
            let level = play.node().geometry().layout();
            println!("{level:?}: healthy p99 {} us, one slow {}", p99(&healthy), p99(&slow));
            assert!(p99(&slow) <= 2 * p99(&healthy), "{} and {}", p99(&slow), p99(&healthy));
            assert!(
                play.node().status().slots[1]
                    .member
                    .as_ref()
                    .expect("the member stays in service")
                    .slow
            );
            play.write(0, 64 << 10).await;
            assert_eq!(play.state(1), SlotState::InSync);
        });
    }
}

/// A member's image is put back to the state of before the session, after a kill: it is one event
/// behind, as a member is that a crash has left so, and holds nothing of the session.
#[test]
fn a_member_put_back_to_before_the_session_is_left_out() {
    let mirror = |seed| ordinary(seed, Layout::Raid1, 2);
    let all: [fn(u64) -> Options; 3] = [mirror, raid5, raid6];
    for options in all {
        let patient = move |seed| {
            let mut options = options(seed);
            options.outer.bounds.clean_delay = Duration::from_secs(100);
            options
        };
        play(patient, |play| async move {
            play.fill().await;
            let disk = play.disk(1);
            play.node().stop().await.expect("stops");
            let mut old = vec![0; disk.limits().bytes as usize];
            disk.peek(0, &mut old);
            play.node().assemble(Consent::Degraded).await.expect("assembles");
            play.fill().await;
            play.perform(Kind::Flush, 0, SECTOR).await;
            play.node().kill(false);
            disk.poke(0, &old);
            play.node().assemble(Consent::Degraded).await.expect("the other members suffice");
            assert_eq!(play.state(1), SlotState::Missing, "it has missed the session");
            play.read(0, play.capacity()).await;
        });
    }
}

/// A power cut keeps the parity of a write and loses its data, and another member is lost with it.
/// The written block has one of the last data indices: where the log holds its data, only the mask
/// of a wide record names it.
#[test]
fn the_log_replays_a_torn_row_of_any_width() {
    let (intent, journal) = (Consistency::Intent, Consistency::Journal);
    let widths = [
        (Level::Raid5, 65, intent),
        (Level::Raid5, 66, intent),
        (Level::Raid6, 67, intent),
        (Level::Raid6, 128, intent),
        (Level::Raid5, 65, journal),
        (Level::Raid5, 66, journal),
        (Level::Raid6, 128, journal),
    ];
    for (level, members, consistency) in widths {
        let wide = move |seed| {
            let mut options = ordinary(seed, Layout::default_for(level, members), members);
            options.outer.consistency = consistency;
            options.build.limits.volatile = true;
            options.data_bytes = vec![64 << 10; members];
            options
        };
        play(wide, |play| async move {
            play.fill().await;
            play.perform(Kind::Flush, 0, SECTOR).await;
            let geometry = play.node().geometry();
            let (map, index) = (geometry.stripe(Stripe(0)), geometry.data_count() - 1);
            let disk = play.disk(map.data(index).index());
            let start = disk.limits().bytes - geometry.member_bytes(map.data(index));
            let mut old = vec![0; 4096];
            disk.peek(start, &mut old);
            // Nothing is flushed after this: its record stays in the log.
            let (_, written) = play.send(index as u64 * geometry.chunk_bytes(), 4096);
            written.await.result.expect("all members are well");
            let lost = play.disk(map.data(3).index());
            play.node().kill(false);
            play.stage.oracle.borrow_mut().crash(Caches::Kept);
            disk.poke(start, &old);
            lost.set_gone(true);
            play.node().assemble(Consent::Degraded).await.expect("the log replays the row");
            play.read(0, play.capacity()).await;
        });
    }
}
