//! The values that a read may return.
//!
//! The array is a register per 512-byte sector. The oracle keeps for each sector the *candidates*:
//! the values that it may hold, each with the time in which its write took effect.
//!
//! ```text
//!   write A  ├────────┤                         A and B overlap: either may be last
//!   write B       ├───────┤
//!   write C                    ├──┤             begins after A and B ended: they are superseded
//!   read           ├─────┤  may see A, B, or the content before A
//!   read                         ├───┤          may see A, B or C
//!   read                              ├─┤       must see C
//! ```
//!
//! - An acknowledged write supersedes every candidate that had ended before it began.
//! - A write that failed, or was in flight when its host died, is a candidate and supersedes
//!   nothing.
//! - A read that sees a value whose write had ended fixes it: candidates that could only have come
//!   before are superseded. So a value that recovery returned once stays (I4 of the fault model).
//!
//! `oracle/crash.rs` covers crashes.
//!
//! Time here is a counter of calls: every begin and end is a moment of its own.

use std::collections::{BTreeMap, BTreeSet};

use crate::medium::SECTOR;
use crate::pattern::Value;

mod crash;

pub use crash::{Caches, Past};

/// For ever, or not yet.
const OPEN: u64 = u64::MAX;

#[derive(Clone, Copy, Debug)]
struct Candidate {
    value: Held,
    /// The end of its effect; [`OPEN`] while it is in flight.
    ended: u64,
    /// When it was superseded; [`OPEN`] while it may still be there.
    superseded: u64,
    /// Something that came after it is durable: it never comes back.
    buried: bool,
    /// The write it belongs to, named by when it began.
    write: u64,
}

impl Candidate {
    /// The value found by a read that ended now, where any value is possible since then.
    fn read(value: Value, (since, now): (u64, u64)) -> Candidate {
        let value = Held::Known(value);
        Candidate { value, ended: since, superseded: OPEN, buried: false, write: now }
    }

    /// Known, with this value.
    fn is_just(&self, value: Value) -> bool {
        self.superseded == OPEN && self.value == Held::Known(value)
    }

    /// It never comes back.
    fn is_superseded(&self, flushed: u64) -> bool {
        self.buried || self.superseded < flushed
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Held {
    Known(Value),
    /// Arbitrary, but stable: the first read fixes it.
    Unknown,
    /// The same, of a discard without a promise: the old content may still be in a cache, so that
    /// the value read is only as durable as a write of the read's age.
    Discarded,
}

impl Held {
    fn is_anything(self) -> bool {
        matches!(self, Held::Unknown | Held::Discarded)
    }
}

/// A request in flight.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Request(u64);

#[derive(Debug)]
struct Under {
    sector: u64,
    count: u64,
    begun: u64,
}

/// The content that a write gives its sectors.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Put {
    /// The pattern of the write.
    Pattern,
    /// Zeros.
    Zeros,
    /// Anything: a discard without a promise.
    Anything,
}

/// A sector with a forbidden value.
#[derive(Debug)]
pub struct Violation {
    /// The sector, in array space.
    pub sector: u64,
    /// The value read.
    pub seen: Value,
    /// The allowed values.
    pub allowed: Vec<String>,
}

impl std::fmt::Display for Violation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (sector, seen) = (self.sector, self.seen);
        let at = sector * SECTOR;
        let allowed = self.allowed.join(", or ");
        write!(f, "sector {sector} (offset {at}) reads as {seen}; it should be {allowed}")
    }
}

/// The oracle of one array.
pub struct Oracle {
    /// The candidates of each sector; empty for an untouched sector, which has `first`.
    sectors: Vec<Vec<Candidate>>,
    first: Candidate,
    now: u64,
    writes: BTreeMap<Request, Under>,
    reads: BTreeMap<Request, Under>,
    /// Acknowledged, unflushed data may be lost in a crash.
    forgetful: bool,
    /// Effects that ended by then are on the members, safe from any crash: the caches were emptied
    /// then.
    stable: u64,
    /// Values superseded before are final: the last answered flush began then.
    flushed: u64,
    /// Sectors with arbitrary content are not fixed yet.
    loose: bool,
    /// Sectors of a block: a crash's losses are known by block.
    block: u64,
    /// Sectors of blocks that were cut by a crash, until the array has said that they are right.
    torn: BTreeSet<u64>,
    /// Of these, sectors that may be an error, or were.
    lost: BTreeMap<u64, Lost>,
    /// When the host died last.
    died: u64,
    /// Earlier writes have been corrected since.
    resolved: u64,
}

/// A sector that may be an error.
#[derive(Clone, Copy, Debug)]
struct Lost {
    /// Until when: [`OPEN`] until it is known again.
    until: u64,
    /// It is known by a write that a crash may take back.
    fleeting: bool,
}

impl Lost {
    const NOW: Lost = Lost { until: OPEN, fleeting: false };
}

/// A written sector usually has this many candidates.
const USUAL: usize = 4;

/// A crash's losses are known by blocks of 4 KiB of a chunk.
const BLOCK_BYTES: u64 = 4096;

impl Oracle {
    /// An array of `bytes` that holds zeros, or unknown content.
    pub fn new(bytes: u64, zeros: bool) -> Oracle {
        let value = if zeros { Held::Known(Value::ZERO) } else { Held::Unknown };
        let first = Candidate { value, ended: 0, superseded: OPEN, buried: false, write: 0 };
        let sectors = vec![Vec::new(); (bytes / SECTOR) as usize];
        let (writes, reads) = (BTreeMap::new(), BTreeMap::new());
        Oracle {
            sectors,
            first,
            now: 1,
            writes,
            reads,
            forgetful: false,
            stable: 0,
            flushed: 0,
            loose: false,
            block: BLOCK_BYTES / SECTOR,
            torn: BTreeSet::new(),
            lost: BTreeMap::new(),
            died: 0,
            resolved: 0,
        }
    }

    /// Says how long the chunks of the array are; 0 if it has none.
    pub fn set_chunk(&mut self, chunk_bytes: u64) {
        let most = if chunk_bytes == 0 { BLOCK_BYTES } else { chunk_bytes };
        self.block = most.min(BLOCK_BYTES) / SECTOR;
    }

    /// Sets whether a crash may lose acknowledged, unflushed data.
    pub fn set_forgetful(&mut self, forgetful: bool) {
        self.forgetful = forgetful;
    }

    /// The candidates of a sector.
    fn of(&self, sector: u64) -> &[Candidate] {
        let candidates = &self.sectors[sector as usize];
        if candidates.is_empty() { std::slice::from_ref(&self.first) } else { candidates }
    }

    /// The candidates of a sector, mutable.
    fn at(&mut self, sector: u64) -> &mut Vec<Candidate> {
        let candidates = &mut self.sectors[sector as usize];
        if candidates.is_empty() {
            candidates.reserve(USUAL);
            candidates.push(self.first);
        }
        candidates
    }

    fn tick(&mut self) -> u64 {
        self.now += 1;
        self.now
    }

    /// A write begins. Its request's number is the write's number in [`Value::of`].
    pub fn write(&mut self, offset: u64, len: u64, put: Put) -> Request {
        let begun = self.tick();
        let request = Request(begun);
        let (sector, count) = (offset / SECTOR, len / SECTOR);
        for at in sector..sector + count {
            let value = match put {
                Put::Pattern => Held::Known(Value::of(begun, at)),
                Put::Zeros => Held::Known(Value::ZERO),
                Put::Anything => Held::Discarded,
            };
            let new =
                Candidate { value, ended: OPEN, superseded: OPEN, buried: false, write: begun };
            self.at(at).push(new);
        }
        self.writes.insert(request, Under { sector, count, begun });
        request
    }

    /// The bytes of a write.
    pub fn fill(&self, request: Request, bytes: &mut [u8]) {
        self.fill_again(request, self.writes[&request].sector, bytes);
    }

    /// The bytes of a write that began at this sector, also after it has ended.
    pub fn fill_again(&self, request: Request, first: u64, bytes: &mut [u8]) {
        for (at, sector) in bytes.chunks_exact_mut(SECTOR as usize).enumerate() {
            Value::of(request.0, first + at as u64).fill(sector);
        }
    }

    /// A write was acknowledged; `durable` if it was asked to be.
    pub fn acknowledge(&mut self, request: Request, durable: bool) {
        let now = self.tick();
        let under = self.writes.remove(&request).expect("a write ends once");
        let (oldest, durable) = (self.oldest_read(), durable || !self.forgetful);
        self.made_good(under.sector, under.count, durable);
        for at in under.sector..under.sector + under.count {
            let flushed = self.flushed;
            let candidates = self.at(at);
            for candidate in candidates.iter_mut() {
                if candidate.write == under.begun && candidate.ended == OPEN {
                    candidate.ended = now;
                } else if candidate.ended < under.begun {
                    candidate.superseded = candidate.superseded.min(now);
                    candidate.buried |= durable;
                }
            }
            if candidates.len() > 1 {
                forget(candidates, oldest, flushed);
            }
        }
    }

    /// A write failed: it has happened, in whole, in part or not at all.
    pub fn fail(&mut self, request: Request) {
        let now = self.tick();
        let under = self.writes.remove(&request).expect("a write ends once");
        self.leave(&under, now);
    }

    fn leave(&mut self, under: &Under, now: u64) {
        for at in under.sector..under.sector + under.count {
            for candidate in self.at(at) {
                if candidate.write == under.begun && candidate.ended == OPEN {
                    candidate.ended = now;
                }
            }
        }
    }

    /// A write was refused: it has not happened, and never will.
    pub fn refuse(&mut self, request: Request) {
        let under = self.writes.remove(&request).expect("a write ends once");
        for at in under.sector..under.sector + under.count {
            let candidates = self.at(at);
            candidates.retain(|candidate| candidate.write != under.begun);
            assert!(!candidates.is_empty(), "something was there before");
        }
    }

    /// The array is complete and in sync: from now on the first read of a sector with arbitrary
    /// content fixes it.
    pub fn tighten(&mut self) {
        self.loose = false;
    }

    /// A flush begins: the moment to name when it is answered.
    pub fn flush(&mut self) -> u64 {
        self.tick()
    }

    /// A flush that began then was answered: data acknowledged before is durable.
    pub fn flushed(&mut self, begun: u64) {
        self.flushed = self.flushed.max(begun);
    }

    /// The array was stopped cleanly: all acknowledged data is durable.
    pub fn keep_all(&mut self) {
        let now = self.flush();
        self.flushed(now);
        self.put_right();
    }

    /// A read begins.
    pub fn read(&mut self, offset: u64, len: u64) -> Request {
        let begun = self.tick();
        let request = Request(begun);
        let under = Under { sector: offset / SECTOR, count: len / SECTOR, begun };
        self.reads.insert(request, under);
        request
    }

    /// A read has returned these bytes, one after the other: of whole sectors each.
    ///
    /// # Errors
    /// The first sector whose value is not allowed.
    pub fn check<'a>(
        &mut self,
        request: Request,
        parts: impl IntoIterator<Item = &'a [u8]>,
    ) -> Result<(), Violation> {
        let sectors = parts.into_iter().flat_map(|bytes| bytes.chunks(SECTOR as usize));
        self.check_values(request, sectors.map(Value::read))
    }

    /// A read has reported these bytes as zeros.
    ///
    /// # Errors
    /// As [`Oracle::check`].
    pub fn check_zeros(&mut self, request: Request, from: u64, len: u64) -> Result<(), Violation> {
        let under = self.reads.get_mut(&request).expect("a read ends once");
        (under.sector, under.count) = (from / SECTOR, len / SECTOR);
        self.check_values(request, (0..len / SECTOR).map(|_| Value::ZERO))
    }

    fn check_values(
        &mut self,
        request: Request,
        values: impl Iterator<Item = Value>,
    ) -> Result<(), Violation> {
        let now = self.tick();
        let under = self.reads.remove(&request).expect("a read ends once");
        let kept = if self.forgetful { self.stable } else { OPEN };
        let (oldest, flushed) = (self.oldest_read(), self.flushed);
        let (mut sectors, loose) = (under.sector..under.sector + under.count, self.loose);
        for seen in values {
            let sector = sectors.next().expect("no more comes back than was asked for");
            self.found(sector, seen);
            if matches!(self.of(sector), [one] if one.is_just(seen)) {
                continue;
            }
            let candidates = self.at(sector);
            if let Err(allowed) = fix_read_value(candidates, seen, (under.begun, now), kept, loose)
            {
                return Err(Violation { sector, seen, allowed });
            }
            forget(candidates, oldest, flushed);
        }
        assert!(sectors.is_empty(), "all requested data is returned");
        Ok(())
    }

    /// A read ended without bytes.
    pub fn drop_read(&mut self, request: Request) {
        self.reads.remove(&request);
    }

    /// The start of the oldest read in flight: later endings must be kept.
    fn oldest_read(&self) -> u64 {
        self.reads.first_key_value().map_or(self.now, |(_, under)| under.begun)
    }
}

/// Drops candidates that no read in flight, and none after a crash, can see.
fn forget(candidates: &mut Vec<Candidate>, oldest_read: u64, flushed: u64) {
    candidates.retain(|c| c.superseded >= oldest_read || !c.is_superseded(flushed));
    assert!(!candidates.is_empty(), "something is there");
}

/// A read from `begun` to `now` saw a value. Effects that ended up to `kept` are on the members.
fn fix_read_value(
    candidates: &mut Vec<Candidate>,
    seen: Value,
    (begun, now): (u64, u64),
    kept: u64,
    loose: bool,
) -> Result<(), Vec<String>> {
    let possible = |candidate: &Candidate| candidate.superseded >= begun;
    if loose && candidates.iter().any(|c| possible(c) && c.value.is_anything()) {
        return Ok(());
    }
    let known = |candidate: &&mut Candidate| candidate.value == Held::Known(seen);
    let found = candidates.iter_mut().filter(|c| possible(c)).filter(known).max_by_key(|c| c.ended);
    let (ended, write) = match found {
        Some(candidate) => (candidate.ended, candidate.write),
        None => {
            // Of some that overlap, any may have left it: it is no older than the last one is.
            let unknown = candidates.iter_mut().filter(|c| possible(c) && c.value.is_anything());
            let Some(candidate) = unknown.max_by_key(|c| c.ended) else {
                let describe = |candidate: &Candidate| match candidate.value {
                    Held::Known(value) => value.to_string(),
                    Held::Unknown | Held::Discarded => "anything".into(),
                };
                return Err(candidates.iter().filter(|c| possible(c)).map(describe).collect());
            };
            let (ended, write) = (candidate.ended, candidate.write);
            if ended >= begun {
                (ended, write)
            } else {
                // A value superseded since the read began stays so under any name.
                let Candidate { superseded, buried, .. } = *candidate;
                // Reads that began before may still have seen something else.
                candidate.superseded = candidate.superseded.min(now);
                candidate.buried |= candidate.value == Held::Unknown || ended <= kept;
                let found = Candidate::read(seen, (ended, now));
                candidates.push(Candidate { superseded, buried, ..found });
                (ended, now)
            }
        }
    };
    if ended < begun {
        for other in candidates.iter_mut().filter(|c| c.write != write && c.ended < begun) {
            other.superseded = other.superseded.min(now);
            other.buried |= ended.max(other.ended) <= kept;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
