//! Answer times of members, compared with those of their peers.
//!
//! Owns the measurement: small histograms of one member's answer times towards one shard,
//! separately for reads and writes and for small and large operations. Compares them with the other
//! members. Never reads a clock, never decides where to read.
//!
//! ```text
//!   answers ─▶ histogram ─▶ p50, p99 ─┐ of the peers: the median of each
//!                                     ▼
//!              patience = 3 × p99     a read that takes longer is hedged from the others
//!              limit   = 10 × p50     an answer that takes longer is a bad mark
//!              12 bad marks of 16, from 3 bursts, while most members are good: the member is slow
//!              2 bad marks of 16      it is no longer slow
//!              bad marks for minutes, of milliseconds: it is reported to the administrator
//! ```
//!
//! A stall of the server's own thread makes many answers late at once, on all members. So a verdict
//! needs evidence from several bursts. A new burst begins with an operation sent after the previous
//! one was detected. A verdict also needs a majority of members with good answers since. If at
//! least half of the members are bad together, the cause is outside the members, and their marks
//! are dropped. Of two members one may be slow.
//!
//! Only answers that were waited for are evaluated: answers without a wait take no time. The limit
//! comes from the peers' median, not from their worst, so one slow member does not excuse another.
//! Marks, not the histogram, decide which member is slow, because they turn over within 16 answers.
//!
//! Recording an answer costs some ten instructions and allocates nothing. Histograms lose half
//! their weight each [`WINDOW`] answers.

use std::cell::Cell;
use std::time::Duration;

use io::Time;
use io::broken::{Broken, broken};

/// Four buckets for each doubling, from a microsecond to some 17 seconds.
const BUCKETS: usize = 96;
/// The first bucket holds times below about 2 to this power of nanoseconds.
const FIRST: u32 = 10;
/// Answers of full weight.
const WINDOW: u32 = 512;
/// The number of answers needed for a median.
const ENOUGH: u32 = 16;
/// Operations up to this size are small: the transfer does not dominate their time.
pub(crate) const SMALL_BYTES: u64 = 64 << 10;
/// A read is late after this multiple of the peers' p99.
const HEDGE_FACTOR: u64 = 3;
/// An answer is a bad mark from this multiple of the peers' median on.
const SLOW: u64 = 10;
/// Faster answers are never bad marks, however fast the peers are.
const SLOW_FLOOR: Duration = Duration::from_micros(500);
/// A member is not reported as slow if its late answers take less: flash, and disks that rotate.
const REPORT_FLOOR: [Duration; 2] = [Duration::from_millis(2), Duration::from_millis(30)];
/// This many bad marks of the last 16 make a member slow; this many or fewer end it.
const MARKS: (u32, u32) = (12, 2);
/// Bad marks must come from this many bursts.
const BURSTS: u32 = 3;
/// A member with more bad marks of the last 16 is no evidence against another.
const GOOD_BITS: u32 = 4;

/// The kind of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Read,
    Write,
}

/// One member's answer times towards one shard.
#[derive(Default)]
pub(crate) struct LatencyStats {
    reads: Side,
    writes: Side,
    /// A read that no request waits for is in flight, to test whether the member is still slow.
    pub(crate) probing: Cell<bool>,
    /// The time when the last one was sent.
    pub(crate) probed: Cell<Time>,
    /// The last report said that it is slow.
    reported: Cell<bool>,
}

/// A change that an administrator should know.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Report {
    /// Operations of this kind are slow.
    Slow(Kind),
    Over,
}

/// One kind of operation.
#[derive(Default)]
struct Side {
    small: Gauge,
    large: Gauge,
    /// The last 16 answers, the latest lowest: a bit is set for a bad mark.
    marks: Cell<u16>,
    slow: Cell<bool>,
    /// The bursts of these bad marks; the times when the first and the last were detected.
    bursts: Cell<u32>,
    first: Cell<Time>,
    last: Cell<Time>,
    /// The time when the latest operation with a good answer was sent.
    good: Cell<Time>,
    /// The time of such answers, a running mean, and the peers' usual time then, in nanoseconds.
    late: Cell<u64>,
    peers: Cell<u64>,
}

/// One kind and size of operation.
struct Gauge {
    histogram: Histogram,
    /// Nanoseconds, as of the last assessment. `None` without enough answers.
    usual: Cell<Option<u64>>,
    slowest: Cell<Option<u64>>,
    /// From the peers, in nanoseconds; `u64::MAX` without enough answers from them.
    limit: Cell<u64>,
    /// The peers' median behind the limit.
    peers: Cell<u64>,
    hedge_after: Cell<u64>,
}

struct Histogram {
    buckets: [Cell<u16>; BUCKETS],
    total: Cell<u32>,
}

/// Answer times of a kind of operations: the median, and the slowest hundredth.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Latency {
    /// Half take less.
    pub p50: Duration,
    /// All but a hundredth take less.
    pub p99: Duration,
}

fn bucket_of(nanos: u64) -> usize {
    let nanos = nanos.max(1 << FIRST);
    let octave = nanos.ilog2();
    let quarter = (nanos >> (octave - 2)) & 3;
    ((octave - FIRST) as usize * 4 + quarter as usize).min(BUCKETS - 1)
}

/// The nanoseconds just above a bucket.
fn top_of(bucket: usize) -> u64 {
    (5 + bucket as u64 % 4) << (bucket as u32 / 4 + FIRST - 2)
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram { buckets: [const { Cell::new(0) }; BUCKETS], total: Cell::new(0) }
    }
}

impl Histogram {
    fn add(&self, nanos: u64) {
        let bucket = &self.buckets[bucket_of(nanos)];
        bucket.set(bucket.get() + 1);
        self.total.set(self.total.get() + 1);
        if self.total.get() >= WINDOW {
            self.buckets.iter().for_each(|bucket| bucket.set(bucket.get() / 2));
            self.total.set(self.buckets.iter().map(|bucket| u32::from(bucket.get())).sum());
        }
    }

    /// The time within which all but `rest` of a hundred answers came, to a quarter.
    fn quantile(&self, rest: u32) -> Option<u64> {
        let total = self.total.get();
        if total < ENOUGH {
            return None;
        }
        let mut above = total - total * rest / 100;
        let found = self.buckets.iter().position(|bucket| {
            above = above.saturating_sub(u32::from(bucket.get()));
            above == 0
        });
        found.map(top_of)
    }
}

impl Default for Gauge {
    fn default() -> Gauge {
        Gauge {
            histogram: Histogram::default(),
            usual: Cell::new(None),
            slowest: Cell::new(None),
            limit: Cell::new(u64::MAX),
            peers: Cell::new(0),
            hedge_after: Cell::new(u64::MAX),
        }
    }
}

impl Side {
    fn gauge(&self, bytes: u64) -> &Gauge {
        if bytes <= SMALL_BYTES { &self.small } else { &self.large }
    }

    /// True if it may be slow, subject to the comparison with the others.
    fn add(&self, bytes: u64, since: Time, now: Time) -> bool {
        let nanos = u64::try_from((now - since).as_nanos()).unwrap_or(u64::MAX);
        let gauge = self.gauge(bytes);
        gauge.histogram.add(nanos);
        let is_bad = nanos >= gauge.limit.get();
        let marks = self.marks.get() << 1 | u16::from(is_bad);
        self.marks.set(marks);
        if !is_bad {
            self.good.set(self.good.get().max(since));
            if marks.count_ones() <= MARKS.1 {
                self.slow.set(false);
                self.bursts.set(0);
            }
            return false;
        }
        let mean = match self.bursts.get() {
            0 => nanos,
            _ => self.late.get() - self.late.get() / 8 + nanos / 8,
        };
        self.late.set(mean);
        self.peers.set(gauge.peers.get());
        if self.bursts.get() == 0 || since >= self.last.get() {
            self.bursts.set(self.bursts.get().saturating_add(1));
            self.last.set(now);
            if self.bursts.get() == 1 {
                self.first.set(now);
            }
        }
        self.may_be_slow()
    }

    /// True if only the comparison with the others is left.
    fn may_be_slow(&self) -> bool {
        !self.slow.get() && self.is_bad() && self.bursts.get() >= BURSTS
    }

    /// True if most of its recent answers were bad.
    fn is_bad(&self) -> bool {
        self.slow.get() || self.marks.get().count_ones() >= MARKS.0
    }

    fn forget_bits(&self) {
        self.marks.set(0);
        self.bursts.set(0);
    }

    fn latency(&self) -> Option<Latency> {
        let gauges = [&self.small, &self.large];
        let gauge = gauges.into_iter().find(|gauge| gauge.usual.get().is_some())?;
        let nanos = |cell: &Cell<Option<u64>>| Duration::from_nanos(cell.get().unwrap_or(0));
        Some(Latency { p50: nanos(&gauge.usual), p99: nanos(&gauge.slowest) })
    }
}

impl LatencyStats {
    /// True if enough of its answers were waited for to compare it.
    fn has_history(&self, kind: Kind) -> bool {
        let side = self.side(kind);
        side.small.usual.get().or(side.large.usual.get()).is_some()
    }

    fn side(&self, kind: Kind) -> &Side {
        match kind {
            Kind::Read => &self.reads,
            Kind::Write => &self.writes,
        }
    }

    /// Records an answer, or a late operation. True if the member may have become slow by this:
    /// then [`judge`] must compare it with the others.
    pub(crate) fn add(&self, kind: Kind, bytes: u64, since: Time, now: Time) -> bool {
        self.side(kind).add(bytes, since, now)
    }

    /// True if its reads persistently take far longer than its peers'.
    pub(crate) fn is_slow(&self) -> bool {
        self.reads.slow.get()
    }

    /// As [`LatencyStats::is_slow`], for a kind of operation.
    pub(crate) fn is_slow_at(&self, kind: Kind) -> bool {
        self.side(kind).slow.get()
    }

    /// What an administrator should know now and did not know before. A member is reported as slow
    /// if for `time` its answers have been far slower than its peers', and take milliseconds.
    pub(crate) fn report(&self, time: Duration, rotational: bool) -> Option<Report> {
        let at_once = broken(Broken::SlowReportedAtOnce);
        let floor = REPORT_FLOOR[usize::from(rotational)];
        let (time, floor) = if at_once { Default::default() } else { (time, floor) };
        let mut slow = [Kind::Read, Kind::Write].into_iter().filter(|&kind| self.is_slow_at(kind));
        if self.reported.get() {
            let is_over = slow.next().is_none();
            self.reported.set(!is_over);
            return is_over.then_some(Report::Over);
        }
        let for_long = |kind: &Kind| {
            let side = self.side(*kind);
            let is_late = Duration::from_nanos(side.late.get()) >= floor;
            is_late && side.last.get() - side.first.get() >= time
        };
        let found = slow.find(for_long).map(Report::Slow);
        self.reported.set(found.is_some());
        found
    }

    /// The time after which the peers would have answered a read, in nanoseconds; `u64::MAX`
    /// without enough answers from them.
    pub(crate) fn hedge_after(&self, bytes: u64) -> u64 {
        self.reads.gauge(bytes).hedge_after.get()
    }

    /// Its answer times by the last assessment, for small operations if there were any.
    pub(crate) fn latency(&self, kind: Kind) -> Option<Latency> {
        self.side(kind).latency()
    }

    /// The time of answers that were far slower than the peers', and the peers' usual time then.
    pub(crate) fn late(&self, kind: Kind) -> (Duration, Duration) {
        let side = self.side(kind);
        (Duration::from_nanos(side.late.get()), Duration::from_nanos(side.peers.get()))
    }
}

/// A member among its peers.
pub(crate) struct Peer<'a> {
    pub(crate) latency_stats: &'a LatencyStats,
    /// It had so many requests that any delay by it would have been detected.
    pub(crate) is_known: bool,
}

/// Compares the members of an array and sets their limits. A read's patience lies between `floor`
/// and `most`. `room` is memory for sorting.
pub(crate) fn assess(peers: &[Peer<'_>], floor: Duration, most: Duration, room: &mut Vec<u64>) {
    let all = |latency_stats: &'_ LatencyStats, each: &mut dyn FnMut(&Gauge)| {
        for side in [&latency_stats.reads, &latency_stats.writes] {
            each(&side.small);
            each(&side.large);
        }
    };
    for peer in peers {
        all(peer.latency_stats, &mut |gauge| {
            gauge.usual.set(gauge.histogram.quantile(50));
            gauge.slowest.set(gauge.histogram.quantile(1));
        });
    }
    let (floor, most) = (floor.as_nanos() as u64, most.as_nanos() as u64);
    for (index, peer) in peers.iter().enumerate() {
        let others = || peers.iter().enumerate().filter(move |&(other, _)| other != index);
        let mut median = |pick: fn(&LatencyStats) -> &Gauge,
                          of: fn(&Gauge) -> &Cell<Option<u64>>| {
            room.clear();
            room.extend(others().filter_map(|(_, other)| of(pick(other.latency_stats)).get()));
            room.sort_unstable();
            room.get(room.len() / 2).copied()
        };
        // No request had to wait for them, or they had none.
        let known = others().next().is_some() && others().all(|(_, other)| other.is_known);
        let never = known.then_some(0);
        for [first, second] in PICKS {
            for (own, else_) in [(first, second), (second, first)] {
                let usual = median(own, |g| &g.usual).or_else(|| median(else_, |g| &g.usual));
                let slowest = median(own, |g| &g.slowest).or_else(|| median(else_, |g| &g.slowest));
                let gauge = own(peer.latency_stats);
                let limit = usual.or(never).map(|usual| (SLOW * usual).max(nanos(SLOW_FLOOR)));
                gauge.limit.set(limit.unwrap_or(u64::MAX));
                gauge.peers.set(usual.unwrap_or(0));
                let hedge_after =
                    slowest.or(never).map(|p99| (HEDGE_FACTOR * p99).max(floor).min(most));
                gauge.hedge_after.set(hedge_after.unwrap_or(u64::MAX));
            }
        }
    }
}

/// Decides which members are slow: only a minority can be.
pub(crate) fn judge(peers: &[Peer<'_>]) {
    for kind in [Kind::Read, Kind::Write] {
        let sides = || peers.iter().map(|peer| peer.latency_stats.side(kind));
        let bad = sides().filter(|side| side.is_bad()).count();
        let has_history = |peer: &Peer<'_>| peer.latency_stats.has_history(kind);
        let known = peers.iter().filter(|&peer| peer.is_known || has_history(peer));
        let members = known.count().max(bad);
        for side in sides().filter(|side| side.may_be_slow()) {
            let is_good = |peer: &&Peer<'_>| {
                let other = peer.latency_stats.side(kind);
                let answers = other.good.get() >= side.first.get();
                // Members without any wait have no history.
                let at_once = peer.is_known && !has_history(peer);
                other.marks.get().count_ones() <= GOOD_BITS && (answers || at_once)
            };
            let good = peers.iter().filter(is_good).count();
            side.slow.set(2 * good > members || (members, good) == (2, 1));
        }
        if 2 * bad >= members && members > 2 || bad > 1 && members == 2 {
            sides().filter(|side| !side.slow.get()).for_each(Side::forget_bits);
        }
    }
}

fn nanos(span: Duration) -> u64 {
    span.as_nanos() as u64
}

type Pick = fn(&LatencyStats) -> &Gauge;

/// The gauges of a member: small and large, of reads and of writes.
const PICKS: [[Pick; 2]; 2] =
    [[|p| &p.reads.small, |p| &p.reads.large], [|p| &p.writes.small, |p| &p.writes.large]];

#[cfg(test)]
mod tests;
