//! The properties of a run: drawn from its seed, printed before it starts.
//!
//! Each run has only some of the features and faults (swarm testing: Groce et al., ISSTA 2012): a
//! feature that is always on hides the behaviour without it.

pub mod display;

use std::time::Duration;

use array::CacheMode;
use io::{Limits, ZeroSupport};
use layout::md::Version;
use layout::private::{Consistency, journal};
use layout::{Layout, Level};
use metadata::Bounds;

use crate::disk::Build;
use crate::keep::Keep;
use crate::medium::Fill;
use random::Rng;

/// The properties of an array.
#[derive(Clone, Debug)]
pub struct Shape {
    /// Level and parameters.
    pub layout: Layout,
    /// 0 on RAID 1.
    pub chunk_bytes: u64,
    /// How many slots.
    pub members: usize,
    /// Where superblocks lie.
    pub version: Version,
    /// Bytes that a bit of the write-intent bitmap stands for; `None` without a bitmap.
    pub bitmap_chunk: Option<u32>,
    /// How it stands against the write hole, on levels with parity.
    pub consistency: Consistency,
    /// Checksums are kept.
    pub checksums: bool,
    /// The journal is on a device of this size; 0: on the members.
    pub journal_bytes: u64,
    /// Shards.
    pub shards: usize,
    /// Parity is compared on each read.
    pub check_reads: bool,
    /// When writes are acknowledged.
    pub cache: CacheMode,
    /// The engine's limits.
    pub bounds: Bounds,
    /// Bytes of a region: small, so that each shard has some.
    pub region_bytes: u64,
}

/// The engine's promise for a crash together with a member loss, on levels with parity.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Promise {
    /// The member's blocks in rows being written may be errors, and a dirty and degraded array may
    /// be refused. No more may be required of a nested array.
    Unverified,
    /// The write hole is closed: the array starts, and only blocks that were being written when it
    /// died may be lost. With md's partial parity log these may hold anything.
    Closed,
}

impl Shape {
    /// The engine's promise for such an array.
    pub fn promise(&self) -> Promise {
        if self.consistency.closes_hole() { Promise::Closed } else { Promise::Unverified }
    }
}

/// Dangers, each as often as its weight says; 0 where the run has none of it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Dangers {
    /// A member is failed by command.
    pub command: u64,
    /// A member is gone.
    pub gone: u64,
    /// Every write to a member fails.
    pub write_error: u64,
    /// A member does not answer.
    pub hang: u64,
    /// A member is slow for a while, or hangs for less than the deadline.
    pub slow: u64,
    /// Sectors of a member cannot be read.
    pub unreadable: u64,
    /// A spare is added.
    pub spare: u64,
    /// A member that was lost comes back.
    pub readd: u64,
    /// A member is replaced while it is in service.
    pub replace: u64,
    /// A scrub is started, or stopped.
    pub scrub: u64,
    /// The array, or its host, stops.
    pub stops: Stops,
    /// A member's store is full.
    pub full: u64,
    /// Superblocks of a member cannot be written.
    pub superblock_error: u64,
    /// A flush fails.
    pub flush_error: u64,
    /// Several members are lost at once.
    pub twice: u64,
    /// Several members are away for a while.
    pub burst: u64,
    /// Bytes rot where a checksum or another copy detects it.
    pub rot: u64,
    /// A write is lost or goes astray, and a scrub looks for it.
    pub stray: u64,
    /// The losses exceed the level's tolerance.
    pub ruin: u64,
    /// Two halves go on apart.
    pub split: u64,
    /// Another engine runs the array after a crash.
    pub foreign: u64,
    /// Members are harmed although a crash has left parity unverified.
    pub unverified: u64,
    /// Something happens to the journal device.
    pub journal: u64,
    /// The store of several members runs out of space.
    pub store: u64,
}

/// Ways to stop, with their weights among the [`Dangers`].
#[derive(Clone, Copy, Debug, Default)]
pub struct Stops {
    /// The array is stopped and assembled again.
    pub restart: u64,
    /// The process dies and the array is assembled again.
    pub kill: u64,
    /// The power of the host is cut.
    pub cut: u64,
    /// The power of one member is cut.
    pub alone: u64,
}

/// Everything that is decided before a run.
#[derive(Clone, Debug)]
pub struct Options {
    /// The seed that all of it comes from.
    pub seed: u64,
    /// The options that were fixed.
    pub wish: Wish,
    /// The array.
    pub outer: Shape,
    /// The properties of its members, if these are arrays.
    pub inner: Option<Shape>,
    /// Bytes of data that each disk has room for, about.
    pub data_bytes: Vec<u64>,
    /// The properties of a disk; its size comes from `data_bytes`.
    pub build: Build,
    /// Disks that hold noise all hold the same.
    pub alike: bool,
    /// Requests in flight.
    pub clients: usize,
    /// Requests of each client.
    pub requests: usize,
    /// Kinds of requests: weights of read, write, zero, discard, flush, extents.
    pub mix: [u64; 6],
    /// Sectors of the longest request.
    pub request_sectors: u64,
    /// Requests to one small part of the array, of a hundred.
    pub hot_percent: u64,
    /// The possible incidents.
    pub dangers: Dangers,
    /// How often something happens.
    pub incidents: usize,
    /// Nothing but crashes happens while there were more faults than this, as a share of the run.
    pub faults_most: u64,
    /// The frequency of lying flushes.
    pub lies: usize,
    /// How often the host dies, whatever else happens.
    pub crashes: usize,
    /// A sector being written at a power cut may hold neither old nor new bytes.
    pub garbage: bool,
    /// The removed parts, to shorten a failure.
    pub keep: Keep,
}

/// The options fixed by the command line; the others are drawn.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wish {
    /// Only this level.
    pub level: Option<Level>,
    /// The number of shards.
    pub shards: Option<usize>,
    /// Only this cache mode.
    pub cache: Option<CacheMode>,
    /// How long a life.
    pub size: Size,
    /// Arrays keep checksums, where they can.
    pub checksums: bool,
    /// Arrays with parity have a journal device.
    pub journal: bool,
    /// Repeated losses beyond the level's tolerance.
    pub ruins: bool,
    /// Members share a store that runs out of space, again and again.
    pub stores: bool,
}

/// How much happens in a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Size {
    /// From next to nothing to a lot, on anything from one disk to arrays of arrays.
    #[default]
    Drawn,
    /// The runs of the speed measurement: 3 to 8 members, 200 to 2,000 requests of up to 32 KiB, at
    /// least 5 crashes, and at least 30 faults, including these crashes. Six of 900 seeds had fewer
    /// faults, 7 at least: their arrays copy all the time and tolerate no loss meanwhile.
    Standard,
    /// As much as a run can hold: every danger, many requests, many crashes.
    Full,
}

impl Options {
    /// The options of a seed.
    pub fn draw(seed: u64, wish: Wish) -> Options {
        let mut rng = Rng::stream(seed, "options", 0);
        let (mut outer, mut inner) = draw_shapes(&mut rng, wish);
        let mut cache = Rng::stream(seed, "cache", 0);
        for shape in std::iter::once(&mut outer).chain(&mut inner) {
            draw_cache(&mut cache, shape, wish.cache);
        }
        draw_job(seed, &mut outer, inner.as_mut());
        if inner.is_none() {
            draw_ppl(&mut Rng::stream(seed, "ppl", 0), &mut outer);
        }
        let mut checksums = Rng::stream(seed, "sums", 0);
        let shapes = std::iter::once(&mut outer).chain(&mut inner);
        shapes.filter(|_| wish.checksums).for_each(|shape| draw_checksums(&mut checksums, shape));
        let mut journal = Rng::stream(seed, "journal", 0);
        let journaled = wish.journal && draw_journal(&mut journal, &mut outer, inner.is_some());
        let disks = outer.members * inner.as_ref().map_or(1, |inner| inner.members);
        let usual = rng.within(4, 12) * (64 << 10);
        let unequal = rng.percent(30);
        let data_bytes = (0..disks)
            .map(|_| if unequal { usual + rng.below(4) * (32 << 10) } else { usual })
            .collect();
        let build = draw_build(&mut rng, seed);
        let mut mix = [40, 40, 0, 0, 0, 0];
        for (weight, usual) in mix.iter_mut().zip([40, 50, 6, 6, 5, 5]) {
            *weight = if *weight > 0 { usual } else { usual * rng.below(2) };
        }
        let mut sly = Rng::stream(seed, "sly", 0);
        let mut options = Options {
            seed,
            wish,
            outer,
            inner,
            data_bytes,
            build,
            alike: rng.percent(30),
            clients: rng.within(16, 24) as usize,
            requests: rng.within(6, 30) as usize,
            mix,
            request_sectors: 512,
            hot_percent: rng.pick(&[0, 20, 60]),
            dangers: draw_dangers(&mut rng, wish.size == Size::Full),
            incidents: rng.within(0, 40) as usize,
            faults_most: u64::MAX,
            lies: usize::from(sly.percent(25)),
            crashes: 0,
            garbage: sly.percent(30),
            keep: Keep::default(),
        };
        if wish.ruins {
            options.dangers.ruin = 12;
        }
        options.dangers.journal = if journaled { journal.pick(&[0, 6, 20]) } else { 0 };
        options.share_store();
        options.widen();
        match wish.size {
            Size::Drawn => options,
            Size::Standard => options.standard(),
            Size::Full => options.filled(),
        }
    }

    /// Sparse members on one store, from a stream of their own.
    fn share_store(&mut self) {
        if self.wish.stores {
            self.build.fill = Fill::Zeros;
            // One member without space stands for its whole store.
            self.dangers.full = 0;
            self.dangers.store = Rng::stream(self.seed, "store", 0).pick(&[10, 40]);
        }
    }

    /// Wide arrays have as many members as the limits are near to, from a stream of their own: the
    /// rest of a seed does not depend on it.
    fn widen(&mut self) {
        if self.outer.members < WIDE || self.inner.is_some() {
            return;
        }
        let mut rng = Rng::stream(self.seed, "wide", 0);
        self.outer.members = rng.pick(&WIDE_MEMBERS);
        if self.outer.consistency == Consistency::Ppl {
            self.outer.members = WIDE;
        }
        if self.outer.consistency == Consistency::Journal && self.outer.version == Version::V1_0 {
            self.outer.members = self.outer.members.min(JOURNALED_MEMBERS);
        }
        let drawn = self.data_bytes.clone();
        self.data_bytes = drawn.into_iter().cycle().take(self.outer.members).collect();
    }

    /// Everything that happens in a run, by number.
    pub fn incidents_total(&self) -> usize {
        self.incidents + self.lies + self.crashes
    }

    /// Enough for the cost of a seed.
    fn standard(mut self) -> Options {
        let mut rng = Rng::stream(self.seed, "standard", 0);
        let requests = (200.0 * 10f64.powf(rng.below(1000) as f64 / 1000.0)) as usize;
        self.requests = requests.div_ceil(self.clients);
        self.request_sectors = 64;
        (self.incidents, self.faults_most) = (400, STANDARD_FAULTS);
        self.crashes = 5;
        let dangers = &mut self.dangers;
        (dangers.stops.kill, dangers.stops.cut) = (0, 0);
        // An array tolerates that many faults only if it heals in between, again and again.
        (dangers.gone, dangers.unreadable) = (8, 8);
        (dangers.spare, dangers.readd) = (4, 6);
        // Slow operations prevent that: persistently slow members most of all.
        dangers.slow = 0;
        dangers.replace = dangers.replace.min(1);
        dangers.scrub = dangers.scrub.min(1);
        if matches!(self.outer.layout.level(), Level::Linear | Level::Raid0) {
            // Here any loss exceeds the level's tolerance.
            dangers.ruin = 10;
        }
        self
    }

    /// As much as a run can hold.
    fn filled(mut self) -> Options {
        let mut rng = Rng::stream(self.seed, "full", 0);
        let requests = rng.within(200, 2000) as usize;
        self.requests = requests.div_ceil(self.clients);
        self.incidents = rng.within(100, 150) as usize;
        self.crashes = rng.within(5, 8) as usize;
        (self.lies, self.garbage) = (1, true);
        self
    }
}

/// A standard run: this many faults, and no others. The last ones may come too late.
const STANDARD_FAULTS: u64 = 34;

const LEVELS: [(u64, Level); 8] = [
    (3, Level::Linear),
    (4, Level::Raid0),
    (14, Level::Raid1),
    (18, Level::Raid10),
    (6, Level::Raid4),
    (20, Level::Raid5),
    (22, Level::Raid6),
    (8, Level::Raid35),
];

/// The array of the clients, and the properties of its members if these are arrays.
fn draw_shapes(rng: &mut Rng, wish: Wish) -> (Shape, Option<Shape>) {
    let level = wish.level.unwrap_or_else(|| rng.weighted(&LEVELS));
    let sized = wish.size != Size::Drawn;
    let nested = rng.percent(8) && !sized;
    let mut outer = draw_shape(rng, level, if nested { 4 } else { 9 });
    if !nested && outer.members > 4 && rng.percent(2) {
        outer = widened(outer);
    }
    while sized && !(3..=8).contains(&outer.members) {
        outer = draw_shape(rng, level, 8);
    }
    let inner = nested.then(|| {
        let level = rng.weighted(&LEVELS);
        let mut inner = draw_shape(rng, level, 4);
        inner.bounds.deadline = Duration::from_millis(rng.within(40, 80));
        inner
    });
    if let Some(inner) = &inner {
        // A member that is an array must have time to lose members of its own, and to rebuild them
        // under load. An outer array that gives up a member before its copies are in sync may
        // return other bytes where nothing was written.
        outer.bounds.deadline = 120 * inner.bounds.deadline;
    }
    if let Some(shards) = wish.shards {
        outer.shards = shards;
    }
    (outer, inner)
}

fn draw_shape(rng: &mut Rng, level: Level, members_max: u64) -> Shape {
    let least = Shape::least_members(level) as u64;
    let members = match level {
        Level::Raid35 => 1 + (1 << rng.within(1, if members_max < 9 { 2 } else { 3 })),
        _ => rng.within(least, members_max.max(least)),
    };
    let members = members as usize;
    let layouts: Vec<Layout> = Layout::all(level, members).collect();
    let layout = rng.pick(&layouts);
    let chunk = 4096 << rng.below(3);
    let chunk_bytes = match layout {
        Layout::Raid1 => 0,
        Layout::Raid35 { order } => (chunk >> order).max(512),
        _ => chunk,
    };
    let bitmap = rng.percent(70);
    Shape {
        layout,
        chunk_bytes,
        members,
        version: rng.weighted(&[(8, Version::V1_2), (1, Version::V1_1), (1, Version::V1_0)]),
        bitmap_chunk: bitmap.then_some(4096 << rng.below(6)),
        consistency: Consistency::Intent,
        checksums: false,
        journal_bytes: 0,
        shards: if rng.percent(60) { 1 } else { 3 },
        check_reads: rng.percent(15),
        cache: CacheMode::None,
        bounds: draw_bounds(rng),
        region_bytes: rng.pick(&[32 << 10, 64 << 10, 64 << 20]),
    }
}

/// From this many members on an array is wide. Linux supports PPL for no more.
const WIDE: usize = 64;
/// Members of wide arrays: on both sides of 64 data slots, and the most that there can be.
const WIDE_MEMBERS: [usize; 7] = [WIDE, 65, 66, 67, 70, 100, layout::MAX_SLOTS];
/// The most members with policy journal on small disks with superblock 1.0: their log of 1 MiB has
/// room for a write to so many slots. Other superblocks round the log up.
const JOURNALED_MEMBERS: usize = 120;

/// The same shape with many members.
fn widened(mut shape: Shape) -> Shape {
    if matches!(shape.layout, Layout::Raid5(_) | Layout::Raid6(_) | Layout::Raid4) {
        shape.members = WIDE;
        shape.chunk_bytes = 4096;
    }
    shape
}

fn draw_bounds(rng: &mut Rng) -> Bounds {
    let tight = rng.percent(30);
    Bounds {
        units: if tight { rng.within(1, 4) } else { rng.within(8, 64) } as usize,
        unit_bytes: rng.pick(&[8 << 10, 32 << 10, 1 << 20]),
        scratch_bytes: if tight { 64 << 10 } else { 4 << 20 },
        keep_bytes: 1 << 20,
        member_op_bytes: rng.pick(&[4 << 10, 64 << 10, 1 << 20]),
        deadline: Duration::from_millis(rng.within(60, 300)),
        region_linger: Duration::from_millis(rng.within(2, 40)),
        clean_delay: Duration::from_millis(rng.within(1, 10)),
        job_units: rng.within(1, 4) as usize,
        // To be failed for errors that were repaired is nothing that the budget could foresee.
        read_errors: u32::MAX,
        checkpoint_bytes: rng.pick(&[16 << 10, 128 << 10, 256 << 20]),
        ..Bounds::default()
    }
}

/// Cache and read-ahead, from a stream of its own: the rest of a seed does not depend on it.
fn draw_cache(rng: &mut Rng, shape: &mut Shape, wish: Option<CacheMode>) {
    let (none, sync, writeback) = (CacheMode::None, CacheMode::Sync, CacheMode::Writeback);
    let drawn = rng.weighted(&[(5, none), (1, sync), (4, writeback)]);
    shape.cache = wish.unwrap_or(drawn);
    shape.bounds.cache_bytes = rng.pick(&[8 << 10, 64 << 10, 64 << 20]);
    shape.bounds.ahead_bytes = rng.pick(&[0, 8 << 10, 64 << 10, 4 << 20]);
    shape.bounds.ahead_streams = rng.pick(&[1, 8]);
    shape.bounds.cache_linger = Duration::from_micros(rng.pick(&[100, 3000, 1_000_000]));
    shape.bounds.ahead_rotating_bytes = rng.pick(&[0, 8 << 10, 64 << 10, 16 << 20]);
    // Runs of members are read ahead if they are longer.
    shape.bounds.ahead_member_bytes = rng.pick(&[8 << 10, 3 << 20]);
}

/// The intent log, and when reads are done again.
fn draw_job(seed: u64, outer: &mut Shape, inner: Option<&mut Shape>) {
    let mut log = Rng::stream(seed, "log", 0);
    let mut hedges = Rng::stream(seed, "hedges", 0);
    for shape in std::iter::once(outer).chain(inner) {
        draw_log(&mut log, shape);
        draw_hedges(&mut hedges, &mut shape.bounds);
    }
}

/// The intent log, from a stream of its own: small, so that it goes round.
fn draw_log(rng: &mut Rng, shape: &mut Shape) {
    let (intent, journal) = (Consistency::Intent, Consistency::Journal);
    let (bitmap, resync) = (Consistency::Bitmap, Consistency::Resync);
    shape.consistency = rng.weighted(&[(14, intent), (4, journal), (1, bitmap), (1, resync)]);
    if shape.consistency == bitmap && shape.bitmap_chunk.is_none() {
        shape.consistency = resync;
    }
    shape.bounds.log_bytes = rng.pick(&[160 << 10, 256 << 10, 512 << 10]);
    if shape.members > 16 {
        shape.bounds.log_bytes = 64 << 20;
    }
}

/// Checksums, from a stream of their own; often with less memory than they need.
fn draw_checksums(rng: &mut Rng, shape: &mut Shape) {
    let plain = matches!(shape.layout.level(), Level::Linear | Level::Raid0);
    let whole = shape.chunk_bytes.is_multiple_of(4096) && shape.consistency != Consistency::Ppl;
    shape.checksums = rng.percent(90) && !plain && whole;
    shape.bounds.checksums_bytes = rng.pick(&[4096, 16 << 10, 64 << 20]);
}

/// A journal device, from a stream of its own; often so small that the log is smaller than it could
/// be on the members. True if there is one.
fn draw_journal(rng: &mut Rng, shape: &mut Shape, nested: bool) -> bool {
    let parity =
        matches!(shape.layout.level(), Level::Raid4 | Level::Raid5 | Level::Raid6 | Level::Raid35);
    if !parity || nested || shape.consistency == Consistency::Ppl {
        return false;
    }
    shape.consistency = Consistency::Journal;
    let small = shape.members <= 16 && rng.percent(50);
    shape.journal_bytes = journal::LEAST_BYTES + if small { 0 } else { 3 << 20 };
    true
}

/// md's partial parity log, from its own stream. Its possible garbage would also affect an outer
/// array, which cannot detect it.
fn draw_ppl(rng: &mut Rng, shape: &mut Shape) {
    if matches!(shape.layout, Layout::Raid5(_)) && rng.percent(25) {
        shape.consistency = Consistency::Ppl;
        shape.shards = 1;
        shape.bounds.log_bytes = rng.pick(&[16 << 10, 160 << 10, 264 << 10, 1 << 20]);
    }
}

/// When reads are done again, from a stream of its own.
fn draw_hedges(rng: &mut Rng, bounds: &mut Bounds) {
    bounds.hedge_floor = Duration::from_micros(rng.pick(&[20, 500, 2000]));
    bounds.slow_report = bounds.hedge_floor * 50;
    bounds.hedge_percent = rng.pick(&[0, 5, 100]);
    bounds.hedges = rng.pick(&[1, 64]);
}

fn draw_build(rng: &mut Rng, seed: u64) -> Build {
    let discard = rng.percent(60);
    let zero = if rng.percent(50) { ZeroSupport::Fast } else { ZeroSupport::Written };
    let limits = Limits {
        volatile: rng.percent(50),
        zero,
        discard,
        discard_zeroes: discard && rng.percent(70),
        // From a stream of its own: the rest of a seed does not depend on it.
        rotational: Rng::stream(seed, "rotational", 0).percent(50),
        ..Limits::plain(0)
    };
    let fill = if rng.percent(70) { Fill::Zeros } else { Fill::Noise(rng.bits()) };
    Build { limits, fill, latency_us: rng.pick(&[20, 100, 500]) }
}

fn draw_dangers(rng: &mut Rng, all: bool) -> Dangers {
    let mut some = |weight: u64| weight * rng.below(2).max(u64::from(all));
    Dangers {
        command: some(6),
        gone: some(8),
        write_error: some(5),
        hang: some(5),
        slow: some(3),
        unreadable: some(8),
        spare: some(10),
        readd: some(8),
        replace: some(5),
        scrub: some(4),
        stops: Stops { restart: some(4), kill: some(4), cut: some(8), alone: some(5) },
        full: some(3),
        superblock_error: some(3),
        flush_error: some(4),
        twice: some(4),
        burst: some(3),
        rot: some(4),
        stray: some(3),
        ruin: some(1),
        split: some(2),
        unverified: some(1),
        foreign: some(2),
        journal: 0,
        store: 0,
    }
}
