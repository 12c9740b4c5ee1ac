//! The read cache of a disk: runs of sectors, and the head that reads on.
//!
//! After a miss the head reads on until the run is as long as the cache allows. A later sequential
//! read finds its sectors, or catches the head. The run slides along: its oldest sectors make room.
//!
//! ```text
//!   run   ────┬───────────────┬───────────┄┄┄┄┄┄┄┄┄┄┐
//!           from      read by the host   head ──▶  limit
//! ```

use super::super::Nanos;
use super::super::geometry::Geometry;

/// The read cache of a disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReadCacheSpec {
    /// How many runs it holds; 0 for no cache.
    pub runs: usize,
    /// Sectors of a run, at most.
    pub sectors: u64,
    /// The head reads on for so many sectors after a read; 0 for never.
    pub ahead: u64,
}

#[derive(Clone, Copy, Debug)]
struct Run {
    from: u64,
    to: u64,
    used: u64,
}

/// The head reads on.
#[derive(Clone, Copy, Debug)]
struct Ahead {
    run: usize,
    /// At `since` the head was at the start of `from`.
    from: u64,
    since: Nanos,
    limit: u64,
}

/// Runs of sectors that need no mechanics.
#[derive(Clone, Debug)]
pub(super) struct ReadCache {
    spec: ReadCacheSpec,
    runs: Vec<Run>,
    uses: u64,
    ahead: Option<Ahead>,
}

impl ReadCache {
    pub(super) fn new(spec: ReadCacheSpec) -> ReadCache {
        ReadCache { spec, runs: Vec::with_capacity(spec.runs), uses: 0, ahead: None }
    }

    /// How far the head reads on.
    pub(super) fn reads_ahead(&self) -> u64 {
        self.spec.ahead
    }

    /// Brings the run of the read-ahead up to `now`.
    pub(super) fn catch_up(&mut self, geometry: &Geometry, now: Nanos) {
        let Some(ahead) = &self.ahead else { return };
        let most = ahead.limit - ahead.from;
        let passed = geometry.passed(ahead.from, now.saturating_sub(ahead.since), most);
        let run = &mut self.runs[ahead.run];
        run.to = run.to.max(ahead.from + passed);
        run.from = run.from.max(run.to.saturating_sub(self.spec.sectors));
    }

    /// True if all these sectors are here; the run counts as used.
    pub(super) fn hit(&mut self, sector: u64, end: u64) -> bool {
        let found = self.runs.iter().position(|run| run.from <= sector && end <= run.to);
        let Some(index) = found else { return false };
        self.uses += 1;
        self.runs[index].used = self.uses;
        true
    }

    /// The host has read up to `end` by a hit: the read-ahead goes on from there, and starts again
    /// if it had reached its limit.
    pub(super) fn extend(&mut self, geometry: &Geometry, end: u64, now: Nanos) {
        let Some(ahead) = &mut self.ahead else { return };
        let run = &self.runs[ahead.run];
        let limit = (end + self.spec.ahead).min(geometry.sectors());
        if !(run.from < end && end <= run.to) || limit <= ahead.limit {
            return;
        }
        if run.to == ahead.limit {
            let revolution = geometry.revolution();
            let angle = geometry.locate(run.to).angle;
            let wait = (angle + revolution - now % revolution) % revolution;
            (ahead.from, ahead.since) = (run.to, now + wait);
        }
        ahead.limit = limit;
    }

    /// When the read-ahead has passed `end`, if it passes these sectors.
    pub(super) fn reaches(
        &self,
        geometry: &Geometry,
        sector: u64,
        end: u64,
        now: Nanos,
    ) -> Option<Nanos> {
        let ahead = self.ahead.as_ref()?;
        let run = &self.runs[ahead.run];
        let most = ahead.limit - ahead.from;
        let moving = geometry.passed(ahead.from, now.saturating_sub(ahead.since), most) < most;
        let passes = run.from <= sector && sector < ahead.limit && end > ahead.from;
        (moving && passes).then(|| ahead.since + geometry.pass(ahead.from, end - ahead.from))
    }

    /// The head has read `sector..end`; it is at `end`.
    pub(super) fn add(&mut self, sector: u64, end: u64) {
        if self.spec.runs == 0 {
            return;
        }
        self.uses += 1;
        let continued = self.runs.iter().position(|run| run.from <= sector && sector <= run.to);
        let index = continued.unwrap_or_else(|| self.vacant(sector));
        let run = &mut self.runs[index];
        (run.to, run.used) = (run.to.max(end), self.uses);
        run.from = run.from.max(run.to.saturating_sub(self.spec.sectors));
        self.ahead = None;
    }

    /// The head, at `end` of the newest run, reads on from `now`.
    pub(super) fn read_on(&mut self, geometry: &Geometry, end: u64, now: Nanos) {
        let limit = (end + self.spec.ahead).min(geometry.sectors());
        let newest = self.runs.iter().position(|run| run.used == self.uses);
        let Some(run) = newest.filter(|_| limit > end) else { return };
        self.ahead = Some(Ahead { run, from: end, since: now, limit });
    }

    /// The sector under the head that reads on, or has read on to its limit.
    pub(super) fn head(&mut self, geometry: &Geometry, now: Nanos) -> Option<u64> {
        self.catch_up(geometry, now);
        let ahead = self.ahead.as_ref()?;
        Some(self.runs[ahead.run].to.clamp(ahead.from, ahead.limit))
    }

    /// Stops the read-ahead.
    pub(super) fn stop(&mut self, geometry: &Geometry, now: Nanos) {
        self.catch_up(geometry, now);
        self.ahead = None;
    }

    /// Until when the read-ahead moves, or has moved.
    pub(super) fn moves_until(&self, geometry: &Geometry) -> Option<Nanos> {
        let ahead = self.ahead.as_ref()?;
        Some(ahead.since + geometry.pass(ahead.from, ahead.limit - ahead.from))
    }

    /// These sectors were written: the runs do not hold them any more.
    pub(super) fn forget(&mut self, sector: u64, end: u64) {
        for (index, run) in self.runs.iter_mut().enumerate() {
            if run.from < end && sector < run.to {
                self.ahead = self.ahead.take().filter(|ahead| ahead.run != index);
                match sector > run.from {
                    true => run.to = sector,
                    false => run.from = end.min(run.to),
                }
            }
        }
    }

    fn vacant(&mut self, sector: u64) -> usize {
        let run = Run { from: sector, to: sector, used: 0 };
        if self.runs.len() < self.spec.runs {
            self.runs.push(run);
            return self.runs.len() - 1;
        }
        let oldest = (0..self.runs.len()).min_by_key(|&index| self.runs[index].used);
        let oldest = oldest.expect("a cache with runs");
        self.runs[oldest] = run;
        oldest
    }
}
