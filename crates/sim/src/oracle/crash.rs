//! The effect of a crash on the values that reads may return.
//!
//! - An array with volatile caches, its own or its members', is *forgetful*. If they are lost, a
//!   sector may hold any value that was current since the last answered flush began. So superseded
//!   values are kept until a later one is durable.
//! - A block that was being written, or was not durable, when its host died, may be *lost* if a
//!   member was missing at the restart: its sectors return errors. It is not lost any more after a
//!   read or write, unless a crash removes that write.
//! - If unverified parity had to be trusted (the override of a refused assembly), a sector may hold
//!   *anything*; the first read fixes it, once the array is complete again.

use super::{Candidate, Held, Lost, OPEN, Oracle, Request, Under};
use crate::medium::SECTOR;
use crate::pattern::Value;

/// The candidates of sectors at some moment.
pub struct Past(Vec<(u64, Held)>);

/// The state of caches after a host died.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Caches {
    /// All acknowledged data is still there; a later power cut may lose it.
    Kept,
    /// Data that was not durable may be lost; the rest is durable.
    Emptied,
    /// The engine's cache is lost; the members' caches are not, and may yet be lost.
    Mixed,
}

impl Oracle {
    /// The host of the array died: requests in flight get no answer.
    pub fn crash(&mut self, caches: Caches) {
        let now = self.tick();
        for under in std::mem::take(&mut self.writes).into_values() {
            self.leave(&under, now);
        }
        self.reads.clear();
        if caches != Caches::Kept {
            let flushed = self.flushed;
            let taken = |lost: &Lost| lost.fleeting && lost.until >= flushed;
            self.lost.values_mut().filter(|lost| taken(lost)).for_each(|lost| *lost = Lost::NOW);
        }
        self.lost.retain(|_, lost| lost.until == OPEN || lost.fleeting);
        if caches == Caches::Emptied {
            self.stable = now;
        }
        self.died = now;
        let mut cut = None;
        for (sector, candidates) in self.sectors.iter_mut().enumerate() {
            if candidates.len() < 2 {
                continue;
            }
            if caches != Caches::Kept {
                let flushed = self.flushed;
                candidates.retain(|c| !c.is_superseded(flushed) || c.superseded == OPEN);
                candidates.iter_mut().for_each(|candidate| candidate.superseded = OPEN);
            }
            let open = candidates.iter().filter(|candidate| candidate.superseded == OPEN);
            let newest = open.clone().map(|candidate| candidate.write).max();
            let first = sector as u64 / self.block * self.block;
            if cut != Some(first) && open.count() > 1 && newest > Some(self.resolved) {
                self.torn.extend(first..first + self.block);
                cut = Some(first);
            }
        }
    }

    /// A member is missing, or has just been lost: torn, unreplayed blocks may be lost with it.
    pub fn expose(&mut self) {
        self.lost.extend(self.torn.iter().map(|&sector| (sector, Lost::NOW)));
    }

    /// As [`Oracle::expose`], where torn blocks may become garbage: those bytes, by offset, of a
    /// lost member.
    pub fn guess_torn(&mut self, lost: impl Fn(u64) -> bool) {
        let now = self.tick();
        let torn: Vec<u64> = self.torn.iter().copied().collect();
        for sector in torn.into_iter().filter(|sector| lost(sector * SECTOR)) {
            let (value, superseded) = (Held::Unknown, OPEN);
            let any = Candidate { value, ended: now, superseded, buried: false, write: now };
            self.at(sector).push(any);
        }
    }

    /// The array has come back so far that whatever the crash has cut is put right, or lost.
    pub fn put_right(&mut self) {
        self.torn.clear();
        self.resolved = self.died;
    }

    /// According to reports, a torn row is not replayed yet.
    pub fn is_cut(&self) -> bool {
        !self.torn.is_empty()
    }

    /// May this read be an error, since a crash has cut one of its sectors, which was not known
    /// again when it began?
    pub fn may_be_lost(&self, read: Request) -> bool {
        let Under { sector, count, begun } = self.reads[&read];
        self.lost.range(sector..sector + count).any(|(_, lost)| lost.until > begun)
    }

    /// May this sector be an error now?
    pub fn is_lost(&self, sector: u64) -> bool {
        self.lost.get(&sector).is_some_and(|lost| lost.until == OPEN)
    }

    /// The sectors that may be an error now.
    pub fn lost(&self) -> impl Iterator<Item = u64> + '_ {
        self.lost.keys().copied().filter(|&sector| self.is_lost(sector))
    }

    /// This was read in a sector: it stays so, unless it was written since a crash emptied caches,
    /// and the next one takes that back.
    pub(super) fn found(&mut self, sector: u64, seen: Value) {
        if self.lost.get(&sector).is_none_or(|lost| lost.until != OPEN) {
            return;
        }
        let young = |c: &Candidate| c.value == Held::Known(seen) && c.ended > self.stable;
        let fleeting = self.forgetful && self.of(sector).iter().any(young);
        self.lost.insert(sector, Lost { until: self.now, fleeting });
    }

    /// These sectors have been rewritten; unless `durable`, a crash may undo that.
    pub(super) fn made_good(&mut self, sector: u64, count: u64, durable: bool) {
        for (_, lost) in self.lost.range_mut(sector..sector + count) {
            let fleeting = !durable && (lost.until == OPEN || lost.fleeting);
            *lost = Lost { until: self.now.min(lost.until), fleeting };
        }
    }

    /// These bytes had to be computed from parity that a crash may have cut.
    pub fn guess(&mut self, range: std::ops::Range<u64>) {
        let now = self.tick();
        self.loose = true;
        for at in range.start / SECTOR..range.end.div_ceil(SECTOR) {
            let (value, superseded) = (Held::Unknown, OPEN);
            let any = Candidate { value, ended: now, superseded, buried: false, write: now };
            self.at(at).push(any);
        }
    }

    /// Was this sector being written when the host died, or was it not durable?
    pub fn is_open(&self, sector: u64) -> bool {
        let candidates = self.of(sector).iter();
        let open = candidates.filter(|candidate| candidate.superseded == OPEN);
        open.clone().count() > 1 && open.map(|c| c.write).max() > Some(self.resolved)
    }

    /// The power was cut while this sector was being written, and left garbage: this value, or, of
    /// something that is computed from it, any.
    pub fn write_garbage(&mut self, sector: u64, value: Option<Value>) {
        let now = self.tick();
        let value = value.map_or(Held::Unknown, Held::Known);
        let new = Candidate { value, ended: now, superseded: OPEN, buried: false, write: now };
        self.at(sector).push(new);
    }

    /// The current candidates of these sectors, for [`Oracle::allow_older`]. Where they may be
    /// errors, any content is possible below.
    pub fn past(&self, sectors: impl Iterator<Item = u64>) -> Past {
        let open = |sector: u64| {
            let candidates = self.of(sector).iter();
            let open = candidates.filter(|candidate| candidate.superseded == OPEN);
            let below = self.lost.contains_key(&sector).then_some((sector, Held::Unknown));
            open.map(move |held| (sector, held.value)).chain(below).collect::<Vec<_>>()
        };
        Past(sectors.flat_map(open).collect())
    }

    /// Sectors may hold old values again although later ones were flushed: their member has lied.
    pub fn allow_older(&mut self, past: &Past) {
        let now = self.tick();
        for &(sector, value) in &past.0 {
            let old = Candidate { value, ended: now, superseded: OPEN, buried: false, write: now };
            self.at(sector).push(old);
        }
    }
}
