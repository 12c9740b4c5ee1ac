//! What a run records within its window.

use std::cell::{Cell, RefCell};

use io::Time;

use super::histogram::Histogram;
use super::outcome::{Direction, Second, Side};

/// Nanoseconds of a bin of the time line.
const BIN_NS: u64 = 1_000_000_000;
/// Bins at most; a longer window has only these.
const BINS_MAX: usize = 100_000;

/// Records answers. All tasks of a run share it.
#[derive(Default)]
pub(super) struct Recorder {
    /// Start and end of the window; the end is open for a trace.
    window: Cell<(Time, Time)>,
    tallies: RefCell<Tallies>,
    /// The last answer within the window.
    last: Cell<Time>,
    errors: Cell<u64>,
    first_error: RefCell<Option<String>>,
}

#[derive(Default)]
struct Tallies {
    sides: [Tally; 4],
    bins: Vec<Bin>,
}

#[derive(Default)]
struct Bin {
    requests: u64,
    bytes: u64,
    latencies: Histogram,
}

#[derive(Default)]
struct Tally {
    bytes: u64,
    min: Option<u64>,
    max: u64,
    sum: f64,
    squares: f64,
    latencies: Histogram,
}

impl Recorder {
    pub(super) fn open(&self, from: Time, until: Time) {
        self.window.set((from, until));
        self.last.set(from);
    }

    /// The last answer within the window.
    pub(super) fn last(&self) -> Time {
        self.last.get()
    }

    pub(super) fn answer(&self, direction: Direction, (sent, now): (Time, Time), bytes: u64) {
        let (from, until) = self.window.get();
        if now <= from || now > until {
            return;
        }
        self.last.set(now);
        let mut tallies = self.tallies.borrow_mut();
        let latency = now.0 - sent.0;
        tallies.sides[direction as usize].add(latency, bytes);
        let bin = ((now.0 - from.0) / BIN_NS) as usize;
        if direction == Direction::Sync || bin >= BINS_MAX {
            return;
        }
        if tallies.bins.len() <= bin {
            tallies.bins.resize_with(bin + 1, Bin::default);
        }
        let bin = &mut tallies.bins[bin];
        bin.requests += 1;
        bin.bytes += bytes;
        bin.latencies.add(latency);
    }

    /// A request failed.
    pub(super) fn error(&self, error: &io::Error) {
        self.errors.set(self.errors.get() + 1);
        self.first_error.borrow_mut().get_or_insert_with(|| error.to_string());
    }

    /// Failed requests, and the first error.
    pub(super) fn errors(&self) -> (u64, Option<String>) {
        (self.errors.get(), self.first_error.borrow().clone())
    }

    /// Reads, writes, trims and syncs of a window of this length.
    pub(super) fn sides(&self, span_s: f64) -> [Side; 4] {
        std::mem::take(&mut self.tallies.borrow_mut().sides).map(|tally| tally.side(span_s))
    }

    /// The time line. A last bin that the window ends within is left out.
    pub(super) fn seconds(&self, span_s: f64) -> Vec<Second> {
        let mut bins = std::mem::take(&mut self.tallies.borrow_mut().bins);
        let whole = ((span_s * 1e9) as u64 / BIN_NS) as usize;
        bins.resize_with(whole.min(BINS_MAX), Bin::default);
        let second = |bin: Bin| Second {
            requests: bin.requests,
            bytes: bin.bytes,
            p50_ns: bin.latencies.percentile(0.5),
            p99_ns: bin.latencies.percentile(0.99),
        };
        bins.into_iter().map(second).collect()
    }
}

impl Tally {
    fn add(&mut self, latency: u64, bytes: u64) {
        self.bytes += bytes;
        self.min = Some(self.min.map_or(latency, |min| min.min(latency)));
        self.max = self.max.max(latency);
        self.sum += latency as f64;
        self.squares += (latency as f64).powi(2);
        self.latencies.add(latency);
    }

    fn side(self, span_s: f64) -> Side {
        let requests = self.latencies.len();
        let count = requests.max(1) as f64;
        let mean = self.sum / count;
        Side {
            requests,
            bytes: self.bytes,
            requests_per_s: requests as f64 / span_s,
            bytes_per_s: self.bytes as f64 / span_s,
            min_ns: self.min.unwrap_or(0),
            max_ns: self.max,
            mean_ns: mean,
            stddev_ns: (self.squares / count - mean * mean).max(0.0).sqrt(),
            latencies: self.latencies,
        }
    }
}
