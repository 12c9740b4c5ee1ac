//! A client that keeps a number of requests in flight, and times each of them. It reuses its
//! buffers and lists and allocates nothing during a measurement: the result is the disk's time.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;
use std::time::{Duration, Instant};

use io::{Completion, Disk, Done, Op, Pool, Work};

/// The load of a client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Load {
    pub(crate) write: bool,
    pub(crate) bytes: usize,
    pub(crate) depth: usize,
    pub(crate) random: bool,
}

impl Load {
    pub(crate) const fn write(bytes: usize, depth: usize) -> Load {
        Load { write: true, bytes, depth, random: false }
    }

    pub(crate) const fn read(bytes: usize, depth: usize) -> Load {
        Load { write: false, bytes, depth, random: false }
    }

    pub(crate) const fn random(self) -> Load {
        Load { random: true, ..self }
    }

    /// True if its rate is reported in bytes; rates of random requests are reported in requests.
    pub(crate) fn in_bytes(&self) -> bool {
        !self.random
    }

    pub(crate) fn name(&self) -> String {
        let (way, kind) = if self.random { ("random ", "") } else { ("sequential ", "") };
        let what = if self.write { "write" } else { "read" };
        format!("{way}{kind}{what} {} KiB, depth {}", self.bytes >> 10, self.depth)
    }
}

/// The results of a measurement.
pub(crate) struct Measured {
    pub(crate) requests: u64,
    pub(crate) seconds: f64,
    latencies: Vec<u32>,
}

impl Measured {
    /// MB/s of sequential loads, thousands of requests per second of random ones.
    pub(crate) fn rate(&self, load: Load) -> f64 {
        let requests = self.requests as f64 / self.seconds;
        if load.in_bytes() { requests * load.bytes as f64 / 1e6 } else { requests / 1e3 }
    }

    /// 99th percentile of the latencies, in µs.
    pub(crate) fn p99_us(&mut self) -> f64 {
        self.latencies.sort_unstable();
        let index = self.latencies.len() * 99 / 100;
        self.latencies.get(index).map_or(0.0, |&nanos| f64::from(nanos) / 1e3)
    }
}

/// A client with a fixed load.
pub(crate) struct Client {
    load: Load,
    idle: Vec<Option<Work>>,
    busy: Vec<Option<(Instant, Completion<Done>)>>,
    latencies: Vec<u32>,
    next: u64,
    random: u64,
}

/// Maximum number of recorded latencies; a measurement has fewer requests.
const LATENCIES_MAX: usize = 1 << 20;

impl Client {
    pub(crate) fn new(load: Load) -> Client {
        let pool = Pool::new(0);
        let work = |index: usize| {
            let mut buf = pool.take(load.bytes);
            buf.iter_mut().enumerate().for_each(|(at, byte)| *byte = (at * 31 + index) as u8);
            match load.write {
                true => Some(Work::Write(vec![buf.freeze()])),
                false => Some(Work::Read(vec![buf])),
            }
        };
        Client {
            load,
            idle: (0..load.depth).map(work).collect(),
            busy: (0..load.depth).map(|_| None).collect(),
            latencies: Vec::with_capacity(LATENCIES_MAX),
            next: 0,
            random: 0x9e37_79b9_7f4a_7c15,
        }
    }

    fn offset(&mut self, disk_bytes: u64) -> u64 {
        let blocks = disk_bytes / self.load.bytes as u64;
        let block = if self.load.random {
            self.random ^= self.random << 13;
            self.random ^= self.random >> 7;
            self.random ^= self.random << 17;
            self.random % blocks
        } else {
            self.next += 1;
            (self.next - 1) % blocks
        };
        block * self.load.bytes as u64
    }

    /// Loads the disk while `goes_on` returns true, then waits for the requests in flight. Calls
    /// `goes_on` after each poll of these requests.
    pub(crate) async fn run(
        &mut self,
        disk: &dyn Disk,
        mut goes_on: impl FnMut(Duration) -> bool,
    ) -> Measured {
        let disk_bytes = disk.limits().bytes;
        let (started, mut requests, mut going) = (Instant::now(), 0, true);
        self.latencies.clear();
        poll_fn(|cx| {
            let mut moved = false;
            for place in 0..self.load.depth {
                if let Some((begun, completion)) = &mut self.busy[place]
                    && let Poll::Ready(done) = Pin::new(completion).poll(cx)
                {
                    done.result.expect("the disk works");
                    if self.latencies.len() < LATENCIES_MAX {
                        self.latencies.push(begun.elapsed().as_nanos() as u32);
                    }
                    requests += 1;
                    self.idle[place] = Some(done.work);
                    self.busy[place] = None;
                    moved = true;
                }
                if going && let Some(work) = self.idle[place].take() {
                    let offset = self.offset(disk_bytes);
                    let begun = Instant::now();
                    self.busy[place] = Some((begun, disk.submit(Op::new(offset, work))));
                    moved = true;
                }
            }
            going = going && goes_on(started.elapsed());
            if self.busy.iter().all(Option::is_none) && !going {
                return Poll::Ready(());
            }
            if moved {
                // Lets the array's own tasks run, as in a server.
                cx.waker().wake_by_ref();
            }
            Poll::Pending
        })
        .await;
        let seconds = started.elapsed().as_secs_f64();
        let latencies = std::mem::take(&mut self.latencies);
        self.latencies = Vec::with_capacity(LATENCIES_MAX);
        Measured { requests, seconds, latencies }
    }

    /// Loads the disk for `duration`.
    pub(crate) async fn run_for(&mut self, disk: &dyn Disk, duration: Duration) -> Measured {
        self.run(disk, |elapsed| elapsed < duration).await
    }
}
