//! The possible content of each sector: every write that a read may return.
//!
//! A write *w* is *superseded* once another write of the same sector began after *w* had ended, and
//! ended itself: then reads no longer see *w*. A power cut may restore *w* until it is *buried*:
//! the other write had FUA, or ended before the start of a flush that has ended. A write in flight
//! at a cut has happened or not, sector by sector; the first read afterwards fixes it.
//!
//! If a member was not in sync at the crash, a block with an uncertain sector may be *lost*: an
//! error until it is written, or is read successfully. A request that began before may still get
//! the error; and a power cut that removes the write restores the error. With md's partial parity
//! log, which cannot record lost blocks, such a block may be garbage instead.
//!
//! Independent of the simulator's oracle on purpose: neither judges with the other's mistakes.

use crate::medium::SECTOR;
use parapet_torture::random::mix;
use std::collections::{BTreeMap, BTreeSet};

const OPEN: u64 = u64::MAX;

/// A write that a sector may hold.
#[derive(Clone, Copy)]
struct Candidate {
    /// Its number: the moment it began. 0: as the array was made.
    write: u64,
    zeros: bool,
    ended: u64,
    superseded: u64,
    buried: bool,
}

impl Candidate {
    /// Does this match the value read?
    fn is(&self, sight: Sight) -> bool {
        match sight {
            Sight::Zeros => self.zeros,
            Sight::Written(write) => !self.zeros && self.write == write,
            _ => false,
        }
    }
}

/// Sectors, and when the request about them began.
#[derive(Clone, Copy)]
struct Under {
    sector: u64,
    count: u64,
    zeros: bool,
}

/// The content of a sector.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Sight {
    Zeros,
    /// A write's bytes for this sector.
    Written(u64),
    /// A write's bytes for another sector.
    Astray {
        write: u64,
        sector: u64,
    },
    Garbage,
}

/// See the module.
pub(crate) struct Oracle {
    sectors: BTreeMap<u64, Vec<Candidate>>,
    now: u64,
    writes: BTreeMap<u64, Under>,
    reads: BTreeSet<u64>,
    crashed: u64,
    /// Sectors that may be lost, or were.
    lost: BTreeMap<u64, Lost>,
    /// When the last flush that was answered began.
    flushed: u64,
    /// Lost blocks may be garbage instead.
    guesses: bool,
}

/// A sector that may be an error.
#[derive(Clone, Copy)]
struct Lost {
    /// Until when.
    until: u64,
    /// It ended with a write that a power cut may take.
    fleeting: bool,
}

const LOST: Lost = Lost { until: OPEN, fleeting: false };

/// Sectors of a block, which is lost as a whole.
const BLOCK_SECTORS: u64 = 8;

const FIRST: Candidate =
    Candidate { write: 0, zeros: true, ended: 0, superseded: OPEN, buried: false };

impl Oracle {
    /// Of an array that holds nothing but zeros.
    pub(crate) fn new() -> Oracle {
        let (sectors, writes, reads) = (BTreeMap::new(), BTreeMap::new(), BTreeSet::new());
        let (lost, guesses) = (BTreeMap::new(), false);
        Oracle { sectors, now: 0, writes, reads, crashed: 0, lost, flushed: 0, guesses }
    }

    /// Of one with md's partial parity log.
    pub(crate) fn let_guess(&mut self) {
        self.guesses = true;
    }

    fn tick(&mut self) -> u64 {
        self.now += 1;
        self.now
    }

    /// A write begins: its number.
    pub(crate) fn write(&mut self, offset: u64, len: u64, zeros: bool) -> u64 {
        let write = self.tick();
        let new = Candidate { write, zeros, ended: OPEN, superseded: OPEN, buried: false };
        let (sector, count) = (offset / SECTOR, len / SECTOR);
        for at in sector..sector + count {
            self.sectors.entry(at).or_insert_with(|| vec![FIRST]).push(new);
        }
        self.writes.insert(write, Under { sector, count, zeros });
        write
    }

    /// A write was acknowledged; `durable` if it was asked to be.
    pub(crate) fn acknowledge(&mut self, write: u64, durable: bool) {
        let now = self.tick();
        let oldest = self.oldest_read();
        let Under { sector, count, .. } = self.writes[&write];
        for (_, lost) in self.lost.range_mut(sector..sector + count) {
            let fleeting = !durable && (lost.until == OPEN || lost.fleeting);
            *lost = Lost { until: lost.until.min(now), fleeting };
        }
        for candidates in self.end(write) {
            for candidate in candidates.iter_mut() {
                if candidate.write == write {
                    candidate.ended = now;
                } else if candidate.ended < write {
                    candidate.superseded = candidate.superseded.min(now);
                    candidate.buried |= durable;
                }
            }
            forget(candidates, oldest);
        }
    }

    /// A write was answered with an error: it has happened, in part, or not.
    pub(crate) fn fail(&mut self, write: u64) {
        let now = self.tick();
        for candidates in self.end(write) {
            candidates.iter_mut().filter(|c| c.write == write).for_each(|c| c.ended = now);
        }
    }

    fn end(&mut self, write: u64) -> impl Iterator<Item = &mut Vec<Candidate>> {
        let under = self.writes.remove(&write).expect("a write ends once");
        let sectors = under.sector..under.sector + under.count;
        self.sectors.range_mut(sectors).map(|(_, candidates)| candidates)
    }

    /// A flush begins: the moment to name when it is answered.
    pub(crate) fn flush(&mut self) -> u64 {
        self.tick()
    }

    /// A flush that began then was answered.
    pub(crate) fn flushed(&mut self, begun: u64) {
        let oldest = self.oldest_read();
        self.flushed = self.flushed.max(begun);
        for candidates in self.sectors.values_mut() {
            for candidate in candidates.iter_mut() {
                candidate.buried |= candidate.superseded < begun;
            }
            forget(candidates, oldest);
        }
    }

    /// The server died. `forgetful` if acknowledged, unflushed data may be lost with it.
    pub(crate) fn crash(&mut self, forgetful: bool) {
        for write in self.writes.keys().copied().collect::<Vec<_>>() {
            self.fail(write);
        }
        self.reads.clear();
        self.crashed = self.tick();
        let flushed = self.flushed;
        let taken = |lost: &Lost| forgetful && lost.fleeting && lost.until >= flushed;
        self.lost.values_mut().filter(|lost| taken(lost)).for_each(|lost| *lost = LOST);
        self.lost.retain(|_, lost| lost.until == OPEN || lost.fleeting);
        for candidate in self.sectors.values_mut().flatten().filter(|c| forgetful && !c.buried) {
            candidate.superseded = OPEN;
        }
    }

    /// When the server died, a member was missing, or not in sync.
    pub(crate) fn expose(&mut self) {
        for (sector, candidates) in &self.sectors {
            if candidates.iter().filter(|candidate| candidate.superseded == OPEN).count() > 1 {
                let block = sector / BLOCK_SECTORS * BLOCK_SECTORS;
                self.lost.extend((block..block + BLOCK_SECTORS).map(|at| (at, LOST)));
            }
        }
    }

    /// May something of the blocks be lost in which these bytes are, to a request that began then?
    /// Part of a block is written by reading the rest of it.
    pub(crate) fn may_be_lost(&self, begun: u64, (offset, len): (u64, u64)) -> bool {
        let block = BLOCK_SECTORS * SECTOR;
        let blocks = offset / block..(offset + len).div_ceil(block);
        let sectors = blocks.start * BLOCK_SECTORS..blocks.end * BLOCK_SECTORS;
        self.lost.range(sectors).any(|(_, lost)| lost.until > begun)
    }

    /// The target of a write in flight: offset and length.
    pub(crate) fn place(&self, write: u64) -> (u64, u64) {
        let under = &self.writes[&write];
        (under.sector * SECTOR, under.count * SECTOR)
    }

    /// The server was stopped cleanly: all acknowledged data is durable.
    pub(crate) fn stopped(&mut self) {
        let now = self.flush();
        self.flushed(now);
    }

    /// A read begins.
    pub(crate) fn read(&mut self) -> u64 {
        let begun = self.tick();
        self.reads.insert(begun);
        begun
    }

    /// A read ended without bytes.
    pub(crate) fn unread(&mut self, begun: u64) {
        self.reads.remove(&begun);
    }

    /// A read that began then has returned these bytes.
    ///
    /// # Errors
    /// The first sector whose value is not allowed.
    pub(crate) fn check(&mut self, begun: u64, offset: u64, bytes: &[u8]) -> Result<(), String> {
        let now = self.tick();
        self.reads.remove(&begun);
        for (index, bytes) in bytes.chunks_exact(SECTOR as usize).enumerate() {
            let sector = offset / SECTOR + index as u64;
            let sight = look(bytes, sector);
            let mut untouched = [FIRST];
            let candidates =
                self.sectors.get_mut(&sector).map_or(&mut untouched[..], Vec::as_mut_slice);
            let open = self.lost.get(&sector).is_some_and(|lost| lost.until == OPEN);
            if self.guesses && open && !candidates.iter().any(|candidate| candidate.is(sight)) {
                continue;
            }
            if let Some(lost) = self.lost.get_mut(&sector).filter(|lost| lost.until == OPEN) {
                let young =
                    |c: &Candidate| Sight::Written(c.write) == sight && c.ended > self.crashed;
                *lost = Lost { until: now, fleeting: candidates.iter().any(young) };
            }
            wait_until_idle(candidates, sight, begun, now, self.crashed).map_err(|allowed| {
                let at = sector * SECTOR;
                format!("offset {at} (sector {sector}) reads as {sight:?}; allowed: {allowed}")
            })?;
        }
        Ok(())
    }

    /// The start of the oldest read in flight.
    fn oldest_read(&self) -> u64 {
        self.reads.first().copied().unwrap_or(self.now)
    }

    /// Ranges of the array that were written, with a margin around each: offset and length.
    pub(crate) fn written(&self, margin: u64, end: u64) -> Vec<(u64, u64)> {
        let mut runs: Vec<(u64, u64)> = Vec::new();
        for sector in self.sectors.keys() {
            let start = (sector * SECTOR).saturating_sub(margin) / margin * margin;
            let stop = (sector * SECTOR + 2 * margin).min(end) / margin * margin;
            match runs.last_mut() {
                Some(run) if start <= run.1 => run.1 = run.1.max(stop),
                _ => runs.push((start, stop)),
            }
        }
        runs.into_iter().map(|(start, stop)| (start, stop - start)).collect()
    }

    /// The bytes of a write in flight.
    pub(crate) fn fill(&self, write: u64) -> Vec<u8> {
        let under = &self.writes[&write];
        if under.zeros {
            return Vec::new();
        }
        (under.sector..under.sector + under.count).flat_map(|at| bytes(write, at)).collect()
    }
}

/// The content that a write gives a sector: its number, the sector, and bytes derived from both.
fn bytes(write: u64, sector: u64) -> [u8; SECTOR as usize] {
    let mut bytes = [0; SECTOR as usize];
    let seed = mix(write ^ mix(sector));
    for (index, word) in bytes.chunks_exact_mut(8).enumerate() {
        let value = match index {
            0 => write,
            1 => sector,
            _ => seed.wrapping_mul(2 * index as u64 + 1),
        };
        word.copy_from_slice(&value.to_le_bytes());
    }
    bytes
}

fn look(seen: &[u8], sector: u64) -> Sight {
    if seen.iter().all(|byte| *byte == 0) {
        return Sight::Zeros;
    }
    let word = |at: usize| u64::from_le_bytes(seen[at..at + 8].try_into().expect("eight bytes"));
    let (write, home) = (word(0), word(8));
    match (bytes(write, home) == seen, home == sector) {
        (false, _) => Sight::Garbage,
        (true, true) => Sight::Written(write),
        (true, false) => Sight::Astray { write, sector: home },
    }
}

/// Drops candidates that no read in flight, and none after a cut, can see.
fn forget(candidates: &mut Vec<Candidate>, oldest_read: u64) {
    candidates.retain(|candidate| candidate.superseded >= oldest_read || !candidate.buried);
}

/// Records the values of a read from `begun` to `now`, or returns the allowed ones.
fn wait_until_idle(
    candidates: &mut [Candidate],
    sight: Sight,
    begun: u64,
    now: u64,
    crashed: u64,
) -> Result<(), String> {
    let possible = |candidate: &&Candidate| candidate.superseded >= begun;
    let is_it = |candidate: &&Candidate| candidate.is(sight);
    let found = candidates.iter().filter(possible).filter(is_it).max_by_key(|c| c.ended);
    let Some(&Candidate { write, ended, .. }) = found else {
        let name = |candidate: &Candidate| match (candidate.zeros, candidate.write) {
            (true, 0) => String::from("zeros"),
            (true, write) => format!("zeros of write {write}"),
            (false, write) => format!("write {write}"),
        };
        let allowed: Vec<String> = candidates.iter().filter(possible).map(name).collect();
        return Err(allowed.join(", or "));
    };
    if ended < begun {
        for other in candidates.iter_mut().filter(|c| c.write != write && c.ended < begun) {
            other.superseded = other.superseded.min(now);
            // Both were there when the server started: which one it is does not change any more.
            other.buried |= ended.max(other.ended) <= crashed;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sees(oracle: &mut Oracle, bytes: &[u8]) -> bool {
        let read = oracle.read();
        oracle.check(read, 0, bytes).is_ok()
    }

    fn put(oracle: &mut Oracle) -> (u64, Vec<u8>) {
        let write = oracle.write(0, SECTOR, false);
        (write, oracle.fill(write))
    }

    #[test]
    fn flushed_data_stays_and_unflushed_may_be_lost() {
        let mut oracle = Oracle::new();
        let (a, in_a) = put(&mut oracle);
        oracle.acknowledge(a, false);
        let flush = oracle.flush();
        let (b, in_b) = put(&mut oracle);
        oracle.acknowledge(b, false);
        assert!(!sees(&mut oracle, &in_a), "b is there");
        oracle.flushed(flush);
        oracle.crash(true);
        assert!(!sees(&mut oracle, &[0; 512]), "a was flushed");
        assert!(sees(&mut oracle, &in_a));
        assert!(!sees(&mut oracle, &in_b), "the first read decides");
        oracle.crash(true);
        assert!(!sees(&mut oracle, &in_b), "for ever");
    }

    #[test]
    fn a_server_that_dies_alone_takes_nothing_with_it() {
        let mut oracle = Oracle::new();
        let (a, in_a) = put(&mut oracle);
        oracle.acknowledge(a, false);
        let (_, in_b) = put(&mut oracle);
        oracle.crash(false);
        assert!(!sees(&mut oracle, &[0; 512]));
        assert!(sees(&mut oracle, &in_a) && !sees(&mut oracle, &in_b));
        let (c, in_c) = put(&mut oracle);
        oracle.acknowledge(c, true);
        oracle.crash(true);
        assert!(sees(&mut oracle, &in_c));
    }

    #[test]
    fn only_interrupted_writes_may_be_lost_and_not_for_ever() {
        let mut oracle = Oracle::new();
        let (a, in_a) = put(&mut oracle);
        oracle.acknowledge(a, true);
        oracle.crash(true);
        oracle.expose();
        let may_be_lost =
            |oracle: &Oracle, offset, len| oracle.may_be_lost(oracle.now, (offset, len));
        assert!(!may_be_lost(&oracle, 0, 1 << 20), "all of it was durable");
        put(&mut oracle);
        oracle.crash(true);
        oracle.expose();
        let before = oracle.read();
        assert!(may_be_lost(&oracle, 0, SECTOR) && may_be_lost(&oracle, 7 * SECTOR, 1 << 20));
        assert!(!may_be_lost(&oracle, 8 * SECTOR, 1 << 20), "the next block");
        assert!(sees(&mut oracle, &in_a));
        assert!(may_be_lost(&oracle, 0, SECTOR), "one of eight was read");
        let b = oracle.write(SECTOR, 7 * SECTOR, false);
        oracle.acknowledge(b, false);
        assert!(!may_be_lost(&oracle, 0, 1 << 20), "and the rest was written");
        assert!(oracle.may_be_lost(before, (0, SECTOR)), "but not when this read began");
        oracle.crash(true);
        assert!(may_be_lost(&oracle, SECTOR, SECTOR), "the write is gone");
        let again = oracle.write(SECTOR, 7 * SECTOR, false);
        oracle.acknowledge(again, true);
        oracle.crash(true);
        assert!(!may_be_lost(&oracle, 0, 1 << 20), "it was durable");
    }

    #[test]
    fn with_mds_log_an_interrupted_write_beside_a_missing_member_may_be_a_guess() {
        let garbage = vec![0xa5; SECTOR as usize];
        for guesses in [false, true] {
            let mut oracle = Oracle::new();
            if guesses {
                oracle.let_guess();
            }
            put(&mut oracle);
            oracle.crash(true);
            let begun = oracle.read();
            assert!(oracle.check(begun, 0, &garbage).is_err(), "no member was missing");
            oracle.expose();
            let begun = oracle.read();
            assert_eq!(oracle.check(begun, 0, &garbage).is_ok(), guesses);
            let begun = oracle.read();
            assert!(oracle.check(begun, 1 << 20, &garbage).is_err(), "never written");
        }
    }

    #[test]
    fn misplaced_bytes_and_missing_bytes_are_distinguished() {
        let astray = Sight::Astray { write: 7, sector: 2 };
        assert_eq!(look(&bytes(7, 2), 3), astray);
        assert_eq!(look(&[1; 512], 3), Sight::Garbage);
        let mut torn = bytes(7, 3);
        torn[511] ^= 1;
        assert_eq!(look(&torn, 3), Sight::Garbage);
    }
}
