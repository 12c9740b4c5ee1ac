//! The cost of degraded reads, rebuild and scrub, and the latency of clients during the last two.

use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use array::Array;
use array::status::EventKind;
use io::Disk;
use os::Executor;

use crate::ROUNDS;
use crate::client::{Client, Load};
use crate::matrix::rate;
use crate::medium::{Folder, Medium};
use crate::row::Row;
use crate::stage::{RAID5, RAID5_WIDE, RAID6, RAID10, Shape};

const DEGRADED_BYTES: u64 = 128 << 20;
/// Bytes of data on each member for rebuilds and scrubs.
const MEMBER_BYTES: u64 = 192 << 20;

/// Reads of a healthy array and of the same array with a missing member, alternately.
pub(crate) async fn degraded(medium: Medium, on: &Executor) {
    let folder = Folder::new(medium);
    let loads = [Load::read(1 << 20, 8), Load::read(16 << 10, 16).random()];
    for shape in [RAID5, RAID6, RAID10] {
        let mut setup = setup(shape, DEGRADED_BYTES, &folder, on).await;
        let mut figures = loads.map(|load| (Client::new(load), Vec::new(), Vec::new()));
        for _ in 0..ROUNDS {
            for (load, (client, _, whole)) in loads.into_iter().zip(&mut figures) {
                whole.push(rate(client, &setup.array, load).await);
            }
            setup.lose().await;
            for (load, (client, ours, _)) in loads.into_iter().zip(&mut figures) {
                ours.push(rate(client, &setup.array, load).await);
            }
            let from = setup.array.log().count();
            setup.refill().await;
            event(&setup.array, EventKind::SpareActive, from).await;
        }
        for (load, (_, ours, whole)) in loads.into_iter().zip(&figures) {
            let name = format!("{}: {} degraded, {}", medium.name(), shape.name, load.name());
            let row = Row::new(name, if load.in_bytes() { "MB/s" } else { "k/s" });
            let least = if load.in_bytes() { 0.7 } else { 0.5 };
            row.ours(ours).peer("healthy", whole).target(Some(least)).print();
        }
        setup.array.stop().await.expect("the members work");
    }
}

fn first_member(array: &Array) -> layout::MemberId {
    let status = array.status();
    status.slots[0].member.as_ref().expect("slot 0 has a member").id
}

/// Waits for the next event of this kind, after the first `from` events.
async fn event(array: &Array, kind: EventKind, mut from: u64) {
    loop {
        array.log().wait(from).await;
        let found = array.log().since(from);
        if found.iter().any(|event| event.kind == kind) {
            return;
        }
        from = array.log().count();
    }
}

/// An array, and a free disk.
struct Setup {
    array: Array,
    shape: Shape,
    spare: Rc<dyn Disk>,
    members: Vec<Rc<dyn Disk>>,
}

/// Creates an array and writes all its data.
async fn setup(shape: Shape, data_bytes: u64, folder: &Folder, on: &Executor) -> Setup {
    let members = shape.members(data_bytes, folder, on).await;
    let spare = folder.disk(shape.member_bytes(data_bytes), on).await;
    let array = shape.start(&members, on).await;
    let mut client = Client::new(Load::write(1 << 20, 8));
    let writes = Cell::new(0);
    let capacity = array.geometry().capacity() >> 20;
    // Each poll may start several requests, so this writes at least the capacity.
    let go = |_| writes.replace(writes.get() + 1) < capacity;
    client.run(&array, go).await;
    Setup { array, shape, spare, members }
}

impl Setup {
    /// Bytes of a member that hold data or redundancy.
    fn used_bytes(&self) -> f64 {
        (self.array.geometry().capacity() / self.shape.data) as f64
    }

    /// Removes the member of slot 0.
    async fn lose(&mut self) {
        let lost = first_member(&self.array);
        self.array.fail(lost).await.expect("the level tolerates the loss");
        self.array.remove(lost).await.expect("the member has failed");
        std::mem::swap(&mut self.members[0], &mut self.spare);
    }

    /// Adds the free disk in place of the lost member.
    async fn refill(&mut self) {
        self.array.add(Rc::clone(&self.members[0]), "new").await.expect("the disk is large enough");
    }

    async fn rebuilt(&mut self) -> f64 {
        self.lose().await;
        let (from, begun) = (self.array.log().count(), Instant::now());
        self.refill().await;
        event(&self.array, EventKind::SpareActive, from).await;
        self.used_bytes() / begun.elapsed().as_secs_f64() / 1e6
    }

    async fn scrubbed(&self) -> f64 {
        let (from, begun) = (self.array.log().count(), Instant::now());
        self.array.scrub(false).expect("an idle, healthy array");
        event(&self.array, EventKind::JobFinished, from).await;
        let result = self.array.status().last_scrub.expect("a scrub has just ended");
        assert!(result.complete && result.report.findings.is_empty(), "{result:?}");
        self.used_bytes() * self.members.len() as f64 / begun.elapsed().as_secs_f64() / 1e6
    }

    /// A client's p99 in µs while background work runs, for at most `duration`.
    async fn client_p99(&self, client: &mut Client, duration: Duration) -> f64 {
        let busy = |array: &Array| array.status().job.is_some();
        let polls = Cell::new(0_u32);
        let goes_on = |elapsed: Duration| {
            polls.set(polls.get().wrapping_add(1));
            elapsed < duration && (!polls.get().is_multiple_of(256) || busy(&self.array))
        };
        client.run(&self.array, goes_on).await.p99_us()
    }
}

/// Rebuild of RAID 5 5+1, scrub of RAID 5 and 6, and the latency of a client meanwhile.
pub(crate) async fn background(medium: Medium, on: &Executor) {
    let folder = Folder::new(medium);
    let mut five = setup(RAID5_WIDE, MEMBER_BYTES * RAID5_WIDE.data, &folder, on).await;
    rebuild(medium, &mut five).await;
    scrub(medium, &five).await;
    foreground(medium, &mut five).await;
    five.array.stop().await.expect("the members work");
    drop(five);
    let six = setup(RAID6, MEMBER_BYTES * RAID6.data, &folder, on).await;
    scrub(medium, &six).await;
    six.array.stop().await.expect("the members work");
}

async fn rebuild(medium: Medium, setup: &mut Setup) {
    let load = Load::read(1 << 20, 8);
    let mut client = Client::new(load);
    let (mut ours, mut share) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        // The free disk gives the read rate of a survivor without other load.
        let raw = client.run_for(&*setup.spare, Duration::from_millis(100)).await.rate(load);
        share.push(raw / (setup.members.len() - 1) as f64);
        ours.push(setup.rebuilt().await);
    }
    let name = format!("{}: {} rebuild", medium.name(), setup.shape.name);
    let least = (medium == Medium::Disk).then_some(0.85);
    let row = Row::new(&*name, "MB/s of member").ours(&ours);
    row.peer("raw read / (n - 1)", &share).target(least).print();
    if medium == Medium::Tmpfs {
        let row = Row::new(format!("{name}, beside 0.8 GB/s"), "MB/s of member").ours(&ours);
        row.fixed("wanted", 800.0).target(Some(1.0)).print();
    }
}

async fn scrub(medium: Medium, setup: &Setup) {
    let load = Load::read(1 << 20, 8);
    let mut client = Client::new(load);
    let (mut ours, mut raw) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let spare = &*setup.spare;
        raw.push(client.run_for(spare, Duration::from_millis(100)).await.rate(load));
        ours.push(setup.scrubbed().await);
    }
    let name = format!("{}: {} scrub", medium.name(), setup.shape.name);
    let unit = "MB/s of members";
    Row::new(&*name, unit).ours(&ours).peer("raw read", &raw).print();
    // btrfs on loop devices, measured on another machine: its MB/s over those of a raw file.
    let six = setup.shape.level == layout::Level::Raid6;
    let share = match (medium, six) {
        (Medium::Disk, false) => 585.0 / 1200.0,
        (Medium::Disk, true) => 290.0 / 1200.0,
        (_, false) => 2000.0 / 8280.0,
        (_, true) => 1300.0 / 8280.0,
    };
    let scaled: Vec<f64> = raw.iter().map(|raw| raw * share).collect();
    let row = Row::new(format!("{name}, beside btrfs"), unit).ours(&ours);
    row.peer("btrfs (quoted, scaled)", &scaled).target(Some(2.0)).print();
}

/// The p99 of 16 KiB random requests at depth 4 at rest, during a rebuild and during a scrub.
async fn foreground(medium: Medium, setup: &mut Setup) {
    for load in [Load::read(16 << 10, 4).random(), Load::write(16 << 10, 4).random()] {
        let mut client = Client::new(load);
        let (mut rest, mut rebuild, mut scrub) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            client.run_for(&setup.array, Duration::from_millis(20)).await;
            let quiet = client.run_for(&setup.array, Duration::from_millis(100)).await;
            rest.push({ quiet }.p99_us());
            let from = setup.array.log().count();
            setup.lose().await;
            setup.refill().await;
            event(&setup.array, EventKind::RebuildStarted, from).await;
            rebuild.push(setup.client_p99(&mut client, Duration::from_millis(300)).await);
            event(&setup.array, EventKind::SpareActive, from).await;
            let from = setup.array.log().count();
            setup.array.scrub(false).expect("an idle, healthy array");
            scrub.push(setup.client_p99(&mut client, Duration::from_millis(300)).await);
            event(&setup.array, EventKind::JobFinished, from).await;
        }
        let (medium, shape) = (medium.name(), setup.shape.name);
        for (job, ours) in [("rebuild", rebuild), ("scrub", scrub)] {
            let name = format!("{medium}: {shape} p99 during {job}, {}", load.name());
            Row::new(name, "µs").less_is_better().ours(&ours).peer("at rest", &rest).print();
        }
    }
}
