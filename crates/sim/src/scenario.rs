//! One run: an array is created, used under faults, healed, and compared with the oracle.
//!
//! ```text
//!   make ── load, incidents ── heal ── scrub, read all ── stop ── look ── assemble, read all
//!           │                  │
//!           safety: no wrong   liveness: once faults stop, the array
//!           byte, no needless  heals by itself and with
//!           error              new disks
//! ```

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

use array::CacheMode;
use array::status::SlotState;
use io::{Clock, Disk, Op, Work};
use layout::Family;
use layout::md::ByteMap;

use crate::check;
use crate::disk::{Build, SimDisk};
use crate::incident::{self, Director};
use crate::mark;
use crate::medium::{Fill, SECTOR};
use crate::node::{Consent, Node};
use crate::options::{Options, Shape, Wish};
use crate::oracle::Oracle;
use crate::trace::{Detail, Trace};
use crate::workload::{self, Kind, Request, Stage, chain};
use crate::world::World;
use random::{Rng, mix};

/// How a run ended.
pub struct Ending {
    /// The violation, if any.
    pub failure: Option<String>,
    /// The history.
    pub trace: Trace,
    /// Virtual time at the end, in nanoseconds.
    pub nanos: u64,
}

/// Space on each disk before its data: the part that `create` reserves, and some.
pub const RESERVED: u64 = 4 << 20;

/// Virtual time within which an array must be whole once faults have stopped.
const HEAL_MICROS: u64 = 600_000_000;

/// Runs one seed.
pub fn run(seed: u64, wish: Wish, telling: Detail) -> Ending {
    run_with(Options::draw(seed, wish), telling)
}

/// Runs these options.
pub fn run_with(options: Options, telling: Detail) -> Ending {
    let world = World::new(options.seed, Trace::new(telling));
    let run = || {
        let main = live(world.clone(), options.clone());
        world.run(main).unwrap_or_else(|stall| panic!("{stall}\n{}", in_flight(&world)));
    };
    let failure = crate::report::caught(|| catch_unwind(AssertUnwindSafe(run)));
    let nanos = world.clock.now().0;
    // Tasks and disks hold each other: take them apart.
    let apart = catch_unwind(AssertUnwindSafe(|| world.executor.abort_all()));
    let failure = failure.or_else(|| apart.is_err().then(|| "panic while ending".into()));
    Ending { failure, trace: world.trace.clone(), nanos }
}

/// Operations in flight on the disks: printed when a run hangs.
fn in_flight(world: &World) -> String {
    let busy = world.disks().into_iter().filter(|disk| disk.in_flight() > 0);
    let busy = busy.map(|disk| format!("{} has {} under way", disk.name, disk.in_flight()));
    busy.collect::<Vec<_>>().join("; ")
}

/// The life of one run.
async fn live(world: World, options: Options) {
    let nodes = make(&world, &options).await;
    let outer = Rc::clone(&nodes[0]);
    let (capacity, stripe) = (outer.geometry().capacity(), outer.geometry().stripe_bytes());
    let zeros = options.build.fill == Fill::Zeros;
    let mut oracle = Oracle::new(capacity, zeros);
    oracle.set_chunk(outer.shape.chunk_bytes);
    let held = |shape: &Shape| shape.cache == CacheMode::Writeback;
    let held = held(&options.outer) || options.inner.as_ref().is_some_and(held);
    oracle.set_forgetful(held || options.build.limits.volatile);
    let stage = Stage::new(&world, &outer, oracle);
    stage.held.set(held);
    load(&stage, &nodes, &options, capacity, stripe).await;
    heal(&stage, &nodes, &options).await;
    let content = converged(&stage, &nodes).await;
    rest(&stage, &nodes, &content).await;
}

/// Makes disks, arrays of disks, and the clients' array of either.
pub async fn make(world: &World, options: &Options) -> Vec<Rc<Node>> {
    let mut sizes = options.data_bytes.iter();
    let mut stores = Stores::draw(options);
    let mut disks = |count: usize, extra: u64| -> Vec<(String, Rc<dyn Disk>)> {
        (0..count)
            .map(|_| {
                let data = sizes.next().expect("a size for each disk");
                let mut build = sized(options.build, data + extra, lowest(options));
                if let (Fill::Noise(noise), false) = (build.fill, options.alike) {
                    build.fill = Fill::Noise(mix(noise ^ data ^ world.disks().len() as u64));
                }
                let disk = stores.make(world, build);
                (disk.name.clone(), disk as Rc<dyn Disk>)
            })
            .collect()
    };
    let zeroed = options.build.fill == Fill::Zeros;
    let outer = Node::new(world, "outer", options.outer.clone());
    let mut nodes = vec![Rc::clone(&outer)];
    let members = match &options.inner {
        None => disks(options.outer.members, 0),
        Some(shape) => {
            let mut members = Vec::new();
            for number in 0..options.outer.members {
                let inner = Node::new(world, format!("inner{number}"), shape.clone());
                let disks = disks(shape.members, RESERVED + (1 << 20));
                if let Err(error) = inner.create(disks, zeroed).await {
                    panic!("{}: not created: {}", inner.name, chain(&error));
                }
                members.push((inner.name.clone(), Rc::new(inner.array()) as Rc<dyn Disk>));
                nodes.push(inner);
            }
            members
        }
    };
    if options.outer.journal_bytes > 0 {
        let mut build = Build { fill: Fill::Zeros, ..options.build };
        build.limits.bytes = options.outer.journal_bytes;
        *outer.journal.disk.borrow_mut() = Some(world.disk(build));
        outer.journal.there.set(true);
    }
    if let Err(error) = outer.create(members, zeroed).await {
        panic!("outer: not created: {}", chain(&error));
    }
    nodes
}

/// Which disks are files on the store of the run.
struct Stores {
    rng: Rng,
    /// Of a hundred disks.
    percent: u64,
    /// They say so.
    known: bool,
}

impl Stores {
    fn draw(options: &Options) -> Stores {
        let mut rng = Rng::stream(options.seed, "stores", 0);
        let percent = if options.wish.stores { rng.pick(&[100, 100, 60]) } else { 0 };
        let known = rng.percent(70);
        Stores { rng, percent, known }
    }

    fn make(&mut self, world: &World, mut build: Build) -> Rc<SimDisk> {
        if !self.rng.percent(self.percent) {
            return world.disk(build);
        }
        build.limits.store = u64::from(self.known);
        world.file(build)
    }
}

/// The properties of arrays made of disks.
fn lowest(options: &Options) -> &Shape {
    options.inner.as_ref().unwrap_or(&options.outer)
}

/// This disk with room for this much data.
fn sized(build: Build, data_bytes: u64, shape: &Shape) -> Build {
    let generous = RESERVED + data_bytes;
    let map = ByteMap::for_new_member(generous, shape.chunk_bytes, shape.version);
    let room = map.expect("far more than is needed").data_bytes();
    let mut build = build;
    build.limits.bytes = generous - (room - data_bytes) / 4096 * 4096;
    build
}

/// Clients at work, incidents in between.
async fn load(
    stage: &Rc<Stage>,
    nodes: &[Rc<Node>],
    options: &Options,
    capacity: u64,
    stripe: u64,
) {
    let world = &stage.world;
    let most = options.data_bytes.iter().max().copied().unwrap_or(0);
    let extra = if nodes.len() > 1 { RESERVED + (1 << 20) } else { 0 };
    let build = sized(options.build, most + extra, lowest(options));
    let drawn: Vec<Vec<workload::Request>> = (0..options.clients)
        .map(|number| workload::draw(options, number as u64, capacity, stripe))
        .collect();
    // Incidents come after a share of these: of the remaining ones, in a shortened run.
    let requests = drawn.iter().map(Vec::len).sum::<usize>() as u64;
    let has_unverified = options.dangers.unverified > 0;
    let (stage_of, nodes) = (Rc::clone(stage), nodes.to_vec());
    let garbage = options.garbage;
    let faults_most = options.faults_most;
    let ruins = options.wish.ruins;
    let director = Director {
        stage: stage_of,
        nodes,
        build,
        requests,
        has_unverified,
        garbage,
        ruins,
        faults_most,
    };
    let director = Rc::new(director);
    let mut tasks: Vec<_> = (0..options.clients)
        .zip(drawn)
        .map(|(number, requests)| {
            let client = Rc::clone(stage).client(number, requests);
            world.executor.spawn(format!("client {number}"), client)
        })
        .collect();
    let incidents = incident::draw(options);
    tasks.push(world.executor.spawn("director", director.direct(incidents)));
    while !tasks.iter().all(|&task| world.executor.has_ended(task)) {
        world.pause(1000).await;
        assert!(world.clock.now().0 < 2 * HEAL_MICROS * 1000, "the load never ends");
    }
}

/// Faults stop; people bring disks; the array must become whole.
pub async fn heal(stage: &Rc<Stage>, nodes: &[Rc<Node>], options: &Options) {
    let world = &stage.world;
    world.note(|| "HEAL".into());
    let until = world.clock.now().0 + HEAL_MICROS * 1000;
    world.disks().iter().for_each(|disk| disk.clear_faults());
    // The last fault is noticed by then.
    let deadlines = nodes.iter().map(|node| node.shape.bounds.deadline.as_micros() as u64);
    world.pause(2 * deadlines.max().unwrap_or(0)).await;
    let most = options.data_bytes.iter().max().copied().unwrap_or(0);
    let extra = if nodes.len() > 1 { RESERVED + (1 << 20) } else { 0 };
    let build = sized(options.build, most + extra, lowest(options));
    let director = Director {
        stage: Rc::clone(stage),
        nodes: nodes.to_vec(),
        build,
        requests: 0,
        has_unverified: options.dangers.unverified > 0,
        garbage: options.garbage,
        ruins: false,
        faults_most: 0,
    };
    if stage.stuck.get() {
        director.restart(false).await;
    }
    for node in nodes.iter().rev() {
        let mut choice = 0;
        while director.give_up_dead(node).await || !node.is_whole() {
            let status = node.status();
            let missing = status.slots.iter().any(|slot| slot.state == SlotState::Missing);
            if missing && status.spares.is_empty() {
                if !node.lost().is_empty() {
                    director.readd(node, choice).await;
                    choice += 1;
                } else {
                    let disk = world.disk(build);
                    let name = disk.name.clone();
                    node.add(disk, &name).await.expect("a new disk becomes a spare");
                }
            }
            world.pause(2000).await;
            let now = world.clock.now().0;
            assert!(now < until, "{} does not become whole: {:#?}", node.name, node.status());
        }
    }
    stage.oracle.borrow_mut().tighten();
    resolve_unverified(stage).await;
}

/// A block that a crash and a loss have made an error stays one until it is rewritten.
async fn resolve_unverified(stage: &Rc<Stage>) {
    let lost: Vec<u64> = stage.oracle.borrow().lost().collect();
    let geometry = stage.node.geometry();
    if geometry.family() == Family::Parity {
        // A row with a lost block has no parity either: later losses are errors, too.
        let stripe = geometry.stripe_bytes();
        let mut doubted = stage.doubted.borrow_mut();
        for start in lost.iter().map(|sector| sector * SECTOR / stripe * stripe) {
            doubted.insert(start..(start + stripe).min(geometry.capacity()));
        }
    }
    for sector in lost {
        let request = |kind| Request { kind, sector, count: 1, fua: true, pause: 0 };
        stage.perform((95, 0), request(Kind::Read(1))).await;
        if stage.oracle.borrow().is_lost(sector) {
            stage.world.trace.mark(mark::SETTLED_LOST);
            stage.perform((95, 1), request(Kind::Write(1))).await;
        }
    }
    let doubted = stage.doubted.take();
    let step = 256 << 10;
    for range in doubted.iter() {
        let capacity = stage.node.geometry().capacity();
        let mut at = range.start;
        while at < range.end.min(capacity) {
            let stripe = stage.node.geometry().stripe_bytes();
            let len = step.max(stripe) / stripe * stripe;
            let len = len.min(range.end.min(capacity) - at);
            let (sector, count) = (at / SECTOR, len / SECTOR);
            let kind = Kind::Write(1);
            let write = Request { kind, sector, count, fua: false, pause: 0 };
            stage.perform((96, 0), write).await;
            at += len;
        }
    }
    if !doubted.is_empty() {
        let flush = Request { kind: Kind::Flush, sector: 0, count: 1, fua: false, pause: 0 };
        stage.perform((96, 1), flush).await;
    }
}

/// A complete array has no mismatch, and its content is right. Returns the content.
pub async fn converged(stage: &Rc<Stage>, nodes: &[Rc<Node>]) -> Vec<u8> {
    let world = &stage.world;
    for node in nodes {
        if node.geometry().redundancy() == 0 {
            continue;
        }
        let asked = world.clock.unix_micros();
        node.array().scrub(false).expect("a healthy array can be scrubbed");
        let scrub = loop {
            world.pause(2000).await;
            let last = node.status().last_scrub;
            if let Some(scrub) = last.filter(|scrub| scrub.unix_micros > asked) {
                break scrub;
            }
        };
        assert!(scrub.complete, "{}: the scrub was not stopped", node.name);
        let report = &scrub.report;
        assert!(
            report.findings.is_empty() && report.lost.is_empty(),
            "{}: the scrub of a healed array finds {:?}, lost {:?}",
            node.name,
            report.findings,
            report.lost
        );
    }
    let mut content = Vec::with_capacity(stage.node.geometry().capacity() as usize);
    read_all(stage, |part| content.extend_from_slice(part)).await;
    content
}

/// Reads the whole array against the oracle, and gives it away part by part.
async fn read_all(stage: &Rc<Stage>, mut take: impl FnMut(&[u8])) {
    let array = stage.node.array();
    let (capacity, step) = (array.geometry().capacity(), 128 << 10);
    for at in (0..capacity).step_by(step) {
        let len = (step as u64).min(capacity - at);
        let read = stage.oracle.borrow_mut().read(at, len);
        let done = array.submit(Op::read(at, stage.world.pool.take(len as usize))).await;
        if let Err(error) = &done.result {
            panic!("reading all, {len} bytes at {at}: {}", chain(error));
        }
        let Work::Read(bufs) = done.work else {
            panic!("a read completed with another kind of work")
        };
        let checked = stage.oracle.borrow_mut().check(read, [&*bufs[0]]);
        if let Err(violation) = checked {
            panic!("reading all: {violation}");
        }
        take(&bufs[0]);
    }
}

/// The array stops, is looked at from behind, and starts again from its disks.
pub async fn rest(stage: &Rc<Stage>, nodes: &[Rc<Node>], content: &[u8]) {
    let outer = &nodes[0];
    let geometry = outer.geometry();
    let assigned = outer.assigned();
    if let Err(error) = outer.stop().await {
        panic!("a complete array does not stop: {}", chain(&error));
    }
    if nodes.len() == 1 {
        let disks: Vec<_> =
            outer.sim_disks().into_iter().filter(|disk| assigned.contains(&disk.name)).collect();
        if let Err(fault) = check::at_rest(&geometry, &disks, content) {
            panic!("at rest: {fault}");
        }
    }
    if let Err(error) = outer.assemble(Consent::Degraded).await {
        panic!("a complete array does not assemble again: {}", chain(&error));
    }
    let status = outer.status();
    assert!(outer.unwell().is_empty(), "assembled again, and not whole: {status:#?}");
    assert_eq!(status.unsynced_bytes, 0, "assembled again after a stop, and to be synced");
    let mut rest = content;
    let held_against = |part: &[u8]| {
        let (first, after) = rest.split_at(part.len());
        assert!(part == first, "reads differ after another assembly");
        rest = after;
    };
    read_all(stage, held_against).await;
    for node in nodes {
        if let Err(error) = node.stop().await {
            panic!("{}: does not stop: {}", node.name, chain(&error));
        }
    }
}
