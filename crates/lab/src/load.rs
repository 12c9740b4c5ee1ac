//! Loads: workers that each keep a number of requests in flight, for a time, and what they saw.
//!
//! Closed: a worker sends the next request when one is answered. The figures are those of requests
//! answered within the window; what comes before fills caches.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

use io::{Disk, Done, Op, Time};

use crate::world::{Core, World};

/// The addresses of a worker, in order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pattern {
    /// One after the other from `start`, again from there after `bytes`.
    Sequential {
        /// First byte.
        start: u64,
        /// Size of the zone in bytes.
        bytes: u64,
    },
    /// Uniform over the first bytes of the disk, aligned to the size of a request.
    Random {
        /// Size of the zone in bytes.
        bytes: u64,
    },
}

/// A worker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Worker {
    /// Where it reads or writes.
    pub pattern: Pattern,
    /// It writes.
    pub writes: bool,
    /// Size of a request in bytes.
    pub bytes: u64,
    /// Requests in flight; ≥ 1.
    pub depth: usize,
}

/// A load: its workers start together.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Load {
    /// The workers.
    pub workers: Vec<Worker>,
    /// Time before the window.
    pub warm_up: Duration,
    /// The window.
    pub window: Duration,
    /// The seed of random addresses.
    pub seed: u64,
}

/// What a load has seen within its window.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// Latencies of the requests, ascending, in nanoseconds.
    pub latencies: Vec<u64>,
    /// Bytes of the requests.
    pub bytes: u64,
    /// Bytes of each worker's requests.
    pub worker_bytes: Vec<u64>,
    /// The window.
    pub window: Duration,
}

impl Seen {
    /// Requests in a second.
    pub fn requests_per_second(&self) -> f64 {
        self.latencies.len() as f64 / self.window.as_secs_f64()
    }

    /// KiB in a second.
    pub fn kib_per_second(&self) -> f64 {
        self.bytes as f64 / 1024.0 / self.window.as_secs_f64()
    }

    /// The latency that this share (0 to 1) of the requests does not exceed; zero without any.
    pub fn percentile(&self, share: f64) -> Duration {
        let rank = (self.latencies.len() as f64 * share).ceil() as usize;
        let found = self.latencies.get(rank.saturating_sub(1).min(self.latencies.len()));
        Duration::from_nanos(found.copied().unwrap_or(0))
    }
}

struct Tally {
    from: Time,
    until: Time,
    seen: RefCell<Seen>,
}

/// Runs the load on a disk, its workers on `core`.
pub async fn run(world: &World, core: Core, disk: &Rc<dyn Disk>, load: &Load) -> Seen {
    let clock = world.dyn_clock();
    let from = clock.now() + load.warm_up;
    let until = from + load.window;
    let count = load.workers.len();
    let seen = Seen { window: load.window, worker_bytes: vec![0; count], ..Seen::default() };
    let tally = Rc::new(Tally { from, until, seen: RefCell::new(seen) });
    let signal = Rc::new(io::Signal::new());
    let left = Rc::new(std::cell::Cell::new(count));
    for (number, worker) in load.workers.iter().enumerate() {
        let addresses = Addresses::new(worker, load.seed ^ ((number as u64) << 32));
        let (world, disk, tally) = (world.clone(), Rc::clone(disk), Rc::clone(&tally));
        let (signal, left, worker) = (Rc::clone(&signal), Rc::clone(&left), *worker);
        let inner = world.clone();
        world.spawn(core, async move {
            work(&inner, &disk, worker, addresses, (number, &tally)).await;
            left.set(left.get() - 1);
            if left.get() == 0 {
                signal.raise();
            }
        });
    }
    while left.get() > 0 {
        signal.wait().await;
    }
    let mut seen = tally.seen.take();
    seen.latencies.sort_unstable();
    seen
}

/// Sends a worker's requests until its zone ends: a file that is written or read once.
pub async fn once(world: &World, disk: &Rc<dyn Disk>, worker: Worker) {
    let Pattern::Sequential { bytes, .. } = worker.pattern else { return };
    let mut addresses = Addresses::new(&worker, 0);
    let mut flight = VecDeque::new();
    for _ in 0..bytes / worker.bytes {
        flight.push_back(disk.submit(request(world, &worker, addresses.next())));
        if flight.len() == worker.depth
            && let Some(answer) = flight.pop_front()
        {
            answered(&answer.await);
        }
    }
    for answer in flight {
        answered(&answer.await);
    }
}

fn request(world: &World, worker: &Worker, at: u64) -> Op {
    let mut buf = world.pool().take(worker.bytes as usize);
    if !worker.writes {
        return Op::read(at, buf);
    }
    buf.fill(0);
    Op::write(at, buf.freeze())
}

fn answered(done: &Done) {
    assert!(done.result.is_ok(), "a modelled disk does not fail unasked: {:?}", done.result);
}

/// Keeps `depth` requests in flight until the window has ended. Answers are taken in the order of
/// the requests, as a stream's reader does.
async fn work(
    world: &World,
    disk: &Rc<dyn Disk>,
    worker: Worker,
    mut addresses: Addresses,
    (number, tally): (usize, &Tally),
) {
    let clock = world.dyn_clock();
    let mut flight = VecDeque::new();
    loop {
        while flight.len() < worker.depth && clock.now() < tally.until {
            let op = request(world, &worker, addresses.next());
            flight.push_back((clock.now(), disk.submit(op)));
        }
        let Some((sent, answer)) = flight.pop_front() else { return };
        answered(&answer.await);
        let now = clock.now();
        if now > tally.from && now <= tally.until {
            let mut seen = tally.seen.borrow_mut();
            seen.latencies.push(now.0 - sent.0);
            seen.bytes += worker.bytes;
            seen.worker_bytes[number] += worker.bytes;
        }
    }
}

/// The addresses of a worker.
struct Addresses {
    pattern: Pattern,
    step: u64,
    at: u64,
    random: u64,
}

impl Addresses {
    fn new(worker: &Worker, seed: u64) -> Addresses {
        Addresses { pattern: worker.pattern, step: worker.bytes, at: 0, random: seed }
    }

    fn next(&mut self) -> u64 {
        match self.pattern {
            Pattern::Sequential { start, bytes } => {
                if self.at + self.step > bytes {
                    self.at = 0;
                }
                let at = start + self.at;
                self.at += self.step;
                at
            }
            Pattern::Random { bytes } => {
                random::next(&mut self.random) % (bytes / self.step) * self.step
            }
        }
    }
}
