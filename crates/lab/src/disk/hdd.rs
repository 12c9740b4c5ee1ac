//! A hard disk: one arm, a queue, a read cache and a write cache.
//!
//! The time of one access (Ruemmler & Wilkes, IEEE Computer 3/1994):
//!
//! ```text
//!   command ─▶ seek, head switch, settle ─▶ rotation ─▶ sectors pass ─▶ last sector on the bus
//!   overhead   seek curve                   by angle    skews included
//! ```
//!
//! The bus works while sectors pass, except for the last one; a slower bus decides instead. The
//! overhead of a command that waits in the queue passes while the heads serve others. Caches
//! answer beside the mechanics.
//!
//! Priorities: the queue first; destaging while nothing is queued. From the high-water mark on, for
//! a flush, or while a write waits for room, both compete by the time they need.

mod arm;
mod observe;
mod queue;
mod read_cache;
mod write_cache;

use std::collections::VecDeque;

use random::mix;

use super::agenda::Agenda;
use super::geometry::{Geometry, Place};
use super::seek::SeekCurve;
use super::{Answer, Kind, Model, Nanos, Request};
use arm::{Arm, Way};
pub use observe::{Activity, Observer, Span};
pub use queue::QueueSpec;
use queue::{Queue, Waiting};
use read_cache::ReadCache;
pub use read_cache::ReadCacheSpec;
pub use write_cache::WriteCacheSpec;
use write_cache::{Chunk, WriteCache};

/// The order in which requests or dirty extents are served.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    /// Oldest first.
    Arrival,
    /// C-LOOK: upwards by address, then from the lowest again.
    Elevator,
    /// SPTF: shortest seek and rotation first.
    Shortest,
}

/// Time of the controller for a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Overhead {
    /// A read that the cache answers.
    pub read_hit: Nanos,
    /// A read that needs the heads.
    pub read_miss: Nanos,
    /// A write.
    pub write: Nanos,
    /// A flush, besides the destaging.
    pub flush: Nanos,
}

/// A quirk of some disks: writes lose revolutions. Part of an experiment's personality, never of a
/// catalogued disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lost {
    /// Probability that a chunk loses a revolution, in millionths.
    pub per_million: u32,
    /// Sectors of a chunk.
    pub chunk: u64,
    /// Disks of the same seed lose the same revolutions: the two copies of a mirror, for example.
    pub seed: u64,
}

/// A hard disk's parameters.
#[derive(Clone, Debug)]
pub struct Spec {
    /// Where sectors are.
    pub geometry: Geometry,
    /// Seek times of reads.
    pub read_seek: SeekCurve,
    /// Seek times of writes, which settle longer.
    pub write_seek: SeekCurve,
    /// Time from one head to another, at least.
    pub head_switch: Nanos,
    /// Time for commands.
    pub overhead: Overhead,
    /// Time of a sector on the disk's own bus.
    pub bus_sector: Nanos,
    /// Order of the queue.
    pub queue: QueueSpec,
    /// The read cache.
    pub read_cache: ReadCacheSpec,
    /// The write cache; `None` while it is off.
    pub write_cache: Option<WriteCacheSpec>,
    /// The quirk.
    pub lost: Option<Lost>,
}

/// What the heads are busy with.
#[derive(Clone, Copy, Debug)]
enum Job {
    Read { sector: u64, end: u64 },
    Write,
    Destage { sector: u64, sectors: u64 },
}

/// A hard disk. See the module's description.
pub struct Hdd {
    arm: Arm,
    overhead: Overhead,
    bus_sector: Nanos,
    queue_spec: QueueSpec,
    lost: Option<Lost>,
    queue: Queue,
    read_cache: ReadCache,
    write_cache: Option<WriteCache>,
    /// Writes that wait for room in the cache.
    throttled: VecDeque<Request>,
    /// A flush waits for the cache to empty.
    flush: Option<u64>,
    /// Commands that came after the flush.
    held: VecDeque<Request>,
    busy: Option<(Nanos, Job)>,
    /// The end of the last read of the heads, unless they have written since.
    read_until: Option<u64>,
    /// The controller and the bus serve cache hits and accept writes one after the other.
    bus_free: Nanos,
    replies: Agenda<u64>,
    answers: Vec<Answer>,
    now: Nanos,
    observer: Option<Observer>,
    observed: Nanos,
}

impl Hdd {
    /// An idle disk, heads at the outermost cylinder.
    pub fn new(spec: Spec) -> Hdd {
        let Spec { geometry, read_seek, write_seek, head_switch, .. } = spec;
        let at = geometry.locate(0);
        Hdd {
            arm: Arm { geometry, read_seek, write_seek, head_switch, at, sector: 0 },
            overhead: spec.overhead,
            bus_sector: spec.bus_sector,
            queue_spec: spec.queue,
            lost: spec.lost,
            queue: Queue::default(),
            read_cache: ReadCache::new(spec.read_cache),
            write_cache: spec.write_cache.map(WriteCache::new),
            throttled: VecDeque::new(),
            flush: None,
            held: VecDeque::new(),
            busy: None,
            read_until: None,
            bus_free: 0,
            replies: Agenda::new(),
            answers: Vec::new(),
            now: 0,
            observer: None,
            observed: 0,
        }
    }

    /// Reports from now on what the heads do.
    pub fn observe(&mut self, observer: Observer) {
        self.observed = self.now;
        self.observer = Some(observer);
    }

    fn take_request(&mut self, now: Nanos, request: Request) {
        if self.flush.is_some() {
            return self.held.push_back(request);
        }
        match request.kind {
            Kind::Read => self.take_read(now, request),
            Kind::Write => self.take_write(now, request),
            Kind::Flush => self.take_flush(now, request.tag),
        }
    }

    fn take_read(&mut self, now: Nanos, request: Request) {
        let (sector, end) = (request.sector, request.end());
        self.read_cache.catch_up(&self.arm.geometry, now);
        let dirty = self.write_cache.as_ref().is_some_and(|cache| cache.holds(sector, end));
        if dirty || self.being_written(sector, end) {
            return self.reply_from_bus(now, self.overhead.read_hit, &request);
        }
        if self.read_cache.hit(sector, end) {
            self.read_cache.extend(&self.arm.geometry, end, now);
            return self.reply_from_bus(now, self.overhead.read_hit, &request);
        }
        self.enqueue(now, request, self.overhead.read_miss);
    }

    fn being_written(&self, first: u64, end: u64) -> bool {
        matches!(self.busy, Some((_, Job::Destage { sector, sectors }))
            if sector <= first && end <= sector + sectors)
    }

    fn take_write(&mut self, now: Nanos, request: Request) {
        self.read_cache.catch_up(&self.arm.geometry, now);
        self.read_cache.forget(request.sector, request.end());
        let sectors = u64::from(request.sectors);
        let cached = self.write_cache.as_ref();
        if request.durable || cached.is_none_or(|cache| cache.spec.sectors < sectors) {
            return self.enqueue(now, request, self.overhead.write);
        }
        if !self.throttled.is_empty() || cached.is_some_and(|cache| !cache.has_room(sectors)) {
            return self.throttled.push_back(request);
        }
        self.accept(now, &request);
    }

    /// Takes a write into the cache, which has room.
    fn accept(&mut self, now: Nanos, request: &Request) {
        self.reply_from_bus(now, self.overhead.write, request);
        if let Some(cache) = &mut self.write_cache {
            cache.add(&self.arm.geometry, request.sector, request.end(), self.bus_free);
        }
    }

    fn take_flush(&mut self, now: Nanos, tag: u64) {
        match self.write_cache.as_ref().is_some_and(|cache| cache.used() > 0) {
            true => self.flush = Some(tag),
            false => self.replies.add(now + self.overhead.flush, tag),
        }
    }

    fn reply_from_bus(&mut self, now: Nanos, overhead: Nanos, request: &Request) {
        let transfer = u64::from(request.sectors) * self.bus_sector;
        self.bus_free = self.bus_free.max(now) + overhead + transfer;
        self.replies.add(self.bus_free, request.tag);
    }

    fn enqueue(&mut self, now: Nanos, request: Request, overhead: Nanos) {
        let place = self.arm.geometry.locate(request.sector);
        self.queue.push(Waiting { request, place, arrived: now, ready: now + overhead });
    }

    /// Gives idle heads something to do.
    fn dispatch(&mut self, now: Nanos) {
        if self.busy.is_some() || (self.queue.is_empty() && self.is_clean()) {
            return;
        }
        if let Some(sector) = self.read_cache.head(&self.arm.geometry, now) {
            self.arm.put(sector);
        }
        let (geometry, cache) = (&self.arm.geometry, &self.read_cache);
        let ahead = |request: &Request| match request.kind {
            Kind::Read => cache.reaches(geometry, request.sector, request.end(), now),
            _ => None,
        };
        let window = self.read_until.map(|end| end..end + cache.reads_ahead() + 1);
        let stream =
            window.and_then(|window| self.queue.stream(&self.queue_spec, &self.arm, now, window));
        let queued = stream.or_else(|| self.queue.choose(&self.queue_spec, &self.arm, now, ahead));
        let dirty = match &self.write_cache {
            Some(cache) if queued.is_none() || self.is_pressed(cache) => {
                cache.choose(&self.arm, now)
            }
            _ => None,
        };
        match (queued, dirty) {
            (Some((index, cost)), dirty) if dirty.is_none_or(|(_, other)| cost <= other) => {
                self.serve(now, index, stream.and(self.read_until));
            }
            (_, Some((sector, _))) => self.destage(now, sector),
            _ => {}
        }
    }

    fn is_clean(&self) -> bool {
        self.write_cache.as_ref().is_none_or(WriteCache::is_clean)
    }

    /// Must the cache be emptied now?
    fn is_pressed(&self, cache: &WriteCache) -> bool {
        cache.used() >= cache.spec.high_water || self.flush.is_some() || !self.throttled.is_empty()
    }

    /// The heads serve this request of the queue; it continues a stream that ended at `stream`.
    fn serve(&mut self, now: Nanos, index: usize, stream: Option<u64>) {
        let Waiting { request, place, ready, .. } = self.queue.take(index);
        let start = now.max(ready);
        let (sector, end, sectors) = (request.sector, request.end(), u64::from(request.sectors));
        if request.kind == Kind::Write {
            let until = self.write(now, start, &place, sector, sectors);
            self.replies.add(until, request.tag);
            self.busy = Some((until, Job::Write));
            return;
        }
        let way = self.arm.way(&place, false, start);
        let pass = self.arm.geometry.pass(sector, sectors);
        let ahead = self.read_cache.reaches(&self.arm.geometry, sector, end, now);
        let bus = sectors * self.bus_sector;
        let (until, sent) = match ahead {
            // The head that reads on gets there first; its sectors wait in the cache.
            Some(until) if until <= start + way.time() + pass => {
                self.watch(until, Activity::Transfer, place.cylinder);
                (until, start + bus)
            }
            _ => {
                self.watch_idle(now);
                self.read_cache.stop(&self.arm.geometry, now);
                let until = self.watch_access(start, way, pass, place.cylinder);
                (until, until - pass + bus)
            }
        };
        self.replies.add(sent.max(until + self.bus_sector), request.tag);
        // A gap that passed under the heads is in the cache too.
        let passed = |from: &u64| {
            let gap = sector.saturating_sub(*from);
            until >= now + self.arm.geometry.pass(*from, gap + sectors)
        };
        let from = stream.filter(passed).unwrap_or(sector).min(sector);
        self.busy = Some((until, Job::Read { sector: from, end }));
        self.read_until = Some(end);
        self.arm.put(end - 1);
    }

    /// The heads write a dirty extent, or its beginning.
    fn destage(&mut self, now: Nanos, sector: u64) {
        let Some(cache) = &mut self.write_cache else { return };
        let Chunk { sectors, place, ready } = cache.take(&self.arm.geometry, sector, now);
        let until = self.write(now, now.max(ready), &place, sector, sectors);
        self.busy = Some((until, Job::Destage { sector, sectors }));
    }

    /// The heads write; gives the end.
    fn write(
        &mut self,
        now: Nanos,
        start: Nanos,
        place: &Place,
        sector: u64,
        sectors: u64,
    ) -> Nanos {
        self.watch_idle(now);
        self.read_cache.stop(&self.arm.geometry, now);
        self.read_until = None;
        let way = self.arm.way(place, true, start);
        let pass = self.arm.geometry.pass(sector, sectors);
        let mut until = self.watch_access(start, way, pass, place.cylinder);
        let lost = self.lost.map_or(0, |quirk| quirk.revolutions(sector, sectors));
        if lost > 0 {
            until += lost * self.arm.geometry.revolution();
            self.watch(until, Activity::LostRevolution, place.cylinder);
        }
        self.arm.put(sector + sectors - 1);
        until
    }

    /// The heads have finished their job.
    fn finish(&mut self, now: Nanos, job: Job) {
        self.busy = None;
        match job {
            Job::Read { sector, end } => {
                self.read_cache.add(sector, end);
                self.answer_hits(now);
            }
            Job::Write => {}
            Job::Destage { sectors, .. } => self.destaged(now, sectors),
        }
        self.dispatch(now);
        if let (Job::Read { end, .. }, None) = (job, self.busy) {
            self.read_cache.read_on(&self.arm.geometry, end, now);
        }
    }

    /// Reads that wait for sectors that are in the cache by now need no mechanics.
    fn answer_hits(&mut self, now: Nanos) {
        let cache = &mut self.read_cache;
        let hits = self.queue.extract(|request| {
            request.kind == Kind::Read && cache.hit(request.sector, request.end())
        });
        for request in hits {
            self.reply_from_bus(now, self.overhead.read_hit, &request);
        }
    }

    /// Sectors have left the cache: others get their room, or the flush is done.
    fn destaged(&mut self, now: Nanos, sectors: u64) {
        let Some(cache) = &mut self.write_cache else { return };
        cache.free(sectors);
        while let Some(&request) = self.throttled.front() {
            let room = |cache: &WriteCache| cache.has_room(u64::from(request.sectors));
            if !self.write_cache.as_ref().is_some_and(room) {
                return;
            }
            self.throttled.pop_front();
            self.accept(now, &request);
        }
        if self.write_cache.as_ref().is_some_and(|cache| cache.used() > 0) {
            return;
        }
        if let Some(tag) = self.flush.take() {
            self.replies.add(now + self.overhead.flush, tag);
            while self.flush.is_none()
                && let Some(request) = self.held.pop_front()
            {
                self.take_request(now, request);
            }
        }
    }

    /// Lets everything happen that is due by `now`.
    fn run(&mut self, now: Nanos) {
        loop {
            let reply = self.replies.next().unwrap_or(Nanos::MAX);
            match self.busy {
                Some((until, job)) if until <= now.min(reply) => self.finish(until, job),
                _ => match self.replies.take(now) {
                    Some((at, tag)) => self.answers.push(Answer { tag, at }),
                    None => break,
                },
            }
        }
        self.now = self.now.max(now);
    }

    fn watch_idle(&mut self, now: Nanos) {
        if self.observer.is_none() {
            return;
        }
        let cylinder = self.arm.at.cylinder;
        if let Some(until) = self.read_cache.moves_until(&self.arm.geometry) {
            self.watch(until.min(now), Activity::ReadAhead, cylinder);
        }
        self.watch(now, Activity::Idle, cylinder);
    }

    /// The heads go to a place and `pass` its sectors; gives the end.
    fn watch_access(&mut self, start: Nanos, way: Way, pass: Nanos, cylinder: u32) -> Nanos {
        let there = start + way.time();
        self.watch(start, Activity::Command, self.arm.at.cylinder);
        self.watch(start + way.seek, Activity::Seek, cylinder);
        self.watch(there, Activity::Rotate, cylinder);
        self.watch(there + pass, Activity::Transfer, cylinder);
        there + pass
    }

    /// Reports what the heads did until now, and on which cylinder they are at its end.
    fn watch(&mut self, until: Nanos, activity: Activity, cylinder: u32) {
        let from = self.observed;
        if let Some(observer) = &mut self.observer
            && until > from
        {
            self.observed = until;
            observer(Span { from, until, activity, cylinder });
        }
    }
}

impl Lost {
    /// How many revolutions a write of these sectors loses. A chunk counts with its first sector.
    fn revolutions(&self, sector: u64, sectors: u64) -> u64 {
        let chunks = sector.div_ceil(self.chunk)..(sector + sectors).div_ceil(self.chunk);
        let loses = |chunk: u64| mix(self.seed ^ mix(chunk)) % 1_000_000;
        chunks.filter(|&chunk| loses(chunk) < u64::from(self.per_million)).count() as u64
    }
}

impl Model for Hdd {
    fn submit(&mut self, now: Nanos, request: Request) {
        assert!(request.end() <= self.sectors(), "{request:?} reaches beyond the disk");
        self.run(now);
        self.take_request(now, request);
        self.dispatch(now);
    }

    fn next_event(&self) -> Option<Nanos> {
        let busy = self.busy.map(|(until, _)| until);
        let answered = self.answers.first().map(|answer| answer.at);
        [answered, busy, self.replies.next()].into_iter().flatten().min()
    }

    fn advance(&mut self, now: Nanos, answers: &mut Vec<Answer>) {
        self.run(now);
        answers.append(&mut self.answers);
    }

    fn sectors(&self) -> u64 {
        self.arm.geometry.sectors()
    }
}
