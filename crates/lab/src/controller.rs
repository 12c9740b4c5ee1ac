//! The write-back cache of a controller, with a battery, in front of a disk.
//!
//! ```text
//!   write ─▶ room? ─▶ answered ┄┄ dirty extents ┄┄ order ┄┄ up to `depth` at the disk
//!              └─ no: waits until a destage ends
//! ```
//!
//! In a steady state its rate is the rate of destaging, and that depends on the order far more than
//! on the size of the cache. A flush costs nothing: the battery keeps what is dirty.

use std::collections::VecDeque;

use crate::disk::agenda::Agenda;
use crate::disk::extents::{Age, Extents};
use crate::disk::{Answer, Kind, Model, Nanos, Request};

/// The order in which a controller destages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Destage {
    /// Longest unwritten first.
    Lru,
    /// C-LOOK: upwards by address, then from the lowest again.
    Elevator,
    /// As they came; the disk orders what it has. With a deep queue that is shortest positioning
    /// time first.
    Disk,
}

/// The parameters of the cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CacheSpec {
    /// Size in sectors.
    pub sectors: u64,
    /// The order of destaging.
    pub order: Destage,
    /// Destages that the disk has at a time.
    pub depth: usize,
    /// A destage has at most so many sectors.
    pub most: u32,
    /// From a write to its answer, if there is room.
    pub acknowledge: Nanos,
}

/// What a request to the disk is for.
#[derive(Clone, Copy, Debug)]
enum Purpose {
    Host(u64),
    Destage(u32),
}

/// A disk behind the cache of a controller.
pub struct Cached<M> {
    disk: M,
    spec: CacheSpec,
    dirty: Extents<()>,
    /// Sectors on their way to the disk.
    leaving: u64,
    destages: usize,
    /// Where the sweep is.
    at: u64,
    throttled: VecDeque<Request>,
    purposes: Vec<Purpose>,
    vacant: Vec<u64>,
    replies: Agenda<u64>,
    from_disk: Vec<Answer>,
    answers: Vec<Answer>,
}

impl<M: Model> Cached<M> {
    /// An empty cache in front of a disk.
    ///
    /// # Panics
    /// If the cache holds less than a destage, or never destages.
    pub fn new(disk: M, spec: CacheSpec) -> Cached<M> {
        assert!(spec.sectors >= u64::from(spec.most) && spec.most > 0, "the cache is too small");
        assert!(spec.depth > 0, "the cache never destages");
        Cached {
            disk,
            spec,
            dirty: Extents::new(),
            leaving: 0,
            destages: 0,
            at: 0,
            throttled: VecDeque::new(),
            purposes: Vec::new(),
            vacant: Vec::new(),
            replies: Agenda::new(),
            from_disk: Vec::new(),
            answers: Vec::new(),
        }
    }

    /// Dirty sectors, and those on their way to the disk.
    pub fn used(&self) -> u64 {
        self.dirty.sectors() + self.leaving
    }

    fn take(&mut self, now: Nanos, request: Request) {
        match request.kind {
            Kind::Flush => self.replies.add(now + self.spec.acknowledge, request.tag),
            Kind::Read if self.dirty.holds(request.sector, request.end()) => {
                self.replies.add(now + self.spec.acknowledge, request.tag);
            }
            Kind::Write if u64::from(request.sectors) <= self.spec.sectors => {
                self.throttled.push_back(request);
                self.admit(now);
            }
            _ => self.pass_on(now, Purpose::Host(request.tag), request),
        }
    }

    /// Takes waiting writes while there is room, and destages.
    fn admit(&mut self, now: Nanos) {
        while let Some(&request) = self.throttled.front() {
            if self.used() + u64::from(request.sectors) > self.spec.sectors {
                break;
            }
            self.throttled.pop_front();
            self.dirty.add(request.sector, request.end(), Age::Newest, |_| ());
            self.replies.add(now + self.spec.acknowledge, request.tag);
        }
        while self.destages < self.spec.depth {
            let next = match self.spec.order {
                Destage::Lru | Destage::Disk => self.dirty.oldest(),
                Destage::Elevator => self.dirty.sweep(self.at),
            };
            let Some((sector, _)) = next else { break };
            let taken = self.dirty.take(sector, u64::from(self.spec.most), |_| ());
            self.at = sector + taken.sectors;
            self.leaving += taken.sectors;
            self.destages += 1;
            let sectors = taken.sectors as u32;
            self.pass_on(now, Purpose::Destage(sectors), Request::write(0, sector, sectors));
        }
    }

    fn pass_on(&mut self, now: Nanos, purpose: Purpose, request: Request) {
        let tag = self.vacant.pop().unwrap_or(self.purposes.len() as u64);
        match self.purposes.get_mut(tag as usize) {
            Some(place) => *place = purpose,
            None => self.purposes.push(purpose),
        }
        self.disk.submit(now, Request { tag, ..request });
    }

    /// Lets everything happen that is due by `now`, in order of time.
    fn run(&mut self, now: Nanos) {
        loop {
            let reply = self.replies.next().unwrap_or(Nanos::MAX);
            match self.disk.next_event() {
                Some(at) if at <= now.min(reply) => self.let_disk(at),
                _ => match self.replies.take(now) {
                    Some((at, tag)) => self.answers.push(Answer { tag, at }),
                    None => return,
                },
            }
        }
    }

    fn let_disk(&mut self, at: Nanos) {
        let mut answers = std::mem::take(&mut self.from_disk);
        self.disk.advance(at, &mut answers);
        for answer in answers.drain(..) {
            self.vacant.push(answer.tag);
            match self.purposes[answer.tag as usize] {
                Purpose::Host(tag) => self.answers.push(Answer { tag, ..answer }),
                Purpose::Destage(sectors) => {
                    self.leaving -= u64::from(sectors);
                    self.destages -= 1;
                    self.admit(answer.at);
                }
            }
        }
        self.from_disk = answers;
    }
}

impl<M: Model> Model for Cached<M> {
    fn submit(&mut self, now: Nanos, request: Request) {
        assert!(request.end() <= self.sectors(), "{request:?} reaches beyond the disk");
        self.run(now);
        self.take(now, request);
    }

    fn next_event(&self) -> Option<Nanos> {
        let answered = self.answers.first().map(|answer| answer.at);
        [answered, self.replies.next(), self.disk.next_event()].into_iter().flatten().min()
    }

    fn advance(&mut self, now: Nanos, answers: &mut Vec<Answer>) {
        self.run(now);
        answers.append(&mut self.answers);
    }

    fn sectors(&self) -> u64 {
        self.disk.sectors()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes a microsecond for each request, one after the other, and remembers them.
    #[derive(Default)]
    struct Recorder {
        seen: Vec<u64>,
        pending: VecDeque<(u64, Nanos)>,
    }

    impl Model for Recorder {
        fn submit(&mut self, now: Nanos, request: Request) {
            self.seen.push(request.sector);
            let last = self.pending.back().map_or(now, |&(_, at)| at);
            self.pending.push_back((request.tag, last + 1000));
        }

        fn next_event(&self) -> Option<Nanos> {
            self.pending.front().map(|&(_, at)| at)
        }

        fn advance(&mut self, now: Nanos, answers: &mut Vec<Answer>) {
            while let Some(&(tag, at)) = self.pending.front().filter(|&&(_, at)| at <= now) {
                self.pending.pop_front();
                answers.push(Answer { tag, at });
            }
        }

        fn sectors(&self) -> u64 {
            1 << 20
        }
    }

    /// The sectors in the order of their destages: the first write leaves at once.
    fn destaged(order: Destage, writes: &[u64]) -> Vec<u64> {
        let spec = CacheSpec { sectors: 4096, order, depth: 1, most: 64, acknowledge: 100 };
        let mut cached = Cached::new(Recorder::default(), spec);
        for (tag, &sector) in writes.iter().enumerate() {
            cached.submit(tag as u64, Request::write(tag as u64, sector, 8));
        }
        let mut answers = Vec::new();
        cached.advance(1_000_000, &mut answers);
        assert_eq!((answers.len(), cached.used()), (writes.len(), 0));
        cached.disk.seen
    }

    #[test]
    fn each_order_destages_in_its_own() {
        let writes = [500, 900, 300, 700, 100, 900];
        assert_eq!(destaged(Destage::Lru, &writes), [500, 300, 700, 100, 900]);
        assert_eq!(destaged(Destage::Elevator, &writes), [500, 700, 900, 100, 300]);
    }

    #[test]
    fn a_full_cache_makes_writes_wait_and_long_extents_leave_in_pieces() {
        let spec = CacheSpec {
            sectors: 128,
            order: Destage::Elevator,
            depth: 1,
            most: 64,
            acknowledge: 100,
        };
        let mut cached = Cached::new(Recorder::default(), spec);
        for tag in 0..4 {
            cached.submit(0, Request::write(tag, tag * 64, 64));
        }
        assert_eq!(cached.used(), 128);
        let mut answers = Vec::new();
        cached.advance(1_000_000, &mut answers);
        let times: Vec<Nanos> = answers.iter().map(|answer| answer.at).collect();
        assert_eq!(times, [100, 100, 1100, 2100], "a destage makes room for the next write");
        assert_eq!(cached.disk.seen, [0, 64, 128, 192]);
    }
}
