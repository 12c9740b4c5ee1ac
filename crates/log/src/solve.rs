//! Solves a torn row: computes its repaired contents from the log and the members.
//!
//! Pure: bytes in, bytes out. Blocks of lost slots are computed one after the other:
//!
//! ```text
//!   lost, not written   from p′ and q′, the syndromes of exactly these blocks: always right
//!   lost, written       from the log, if it has the data; else from P and Q on the members if
//!                       - the result is the new data, or
//!                       - no other block of the row was written (then it is the old block or the
//!                         new one, by sectors), or
//!                       - a newer record has a part of the block (then this write was durable
//!                         before: `touched.rs`), or
//!                       - P and Q agree, or
//!                       - it comes from md's log, which has no checks: then it may be anything
//! ```
//!
//! A block that none of this determines is lost: it was being written, and never acknowledged as
//! durable.

use std::ops::Range;

use io::broken::{Broken, broken};
use layout::plan::Erasure;
use layout::private::log::{CHECK_BYTES, Record};
use layout::{Slot, StripeMap};
use parity::Kernel;

use crate::compute;

/// The partial syndrome of a row.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Partial {
    /// All data of the row was written.
    Zero,
    /// Its bytes, as many as the torn row has.
    Bytes(Vec<u8>),
}

/// A row, or part of one, that a crash may have torn.
#[derive(Clone, Debug)]
pub struct TornRow {
    /// The record of the interrupted write.
    pub record: Record,
    /// The stripe.
    pub stripe: u64,
    /// First byte, from the start of the chunk; newer records cover the rest of the record.
    pub start: u64,
    /// Bytes on one member.
    pub len: u64,
    /// Checks of the whole record: index by index, block by block.
    pub checks: Vec<u32>,
    /// From P's member.
    pub p: Option<Partial>,
    /// From Q's member.
    pub q: Option<Partial>,
    /// New data that was logged, by data index.
    pub logged: Vec<(usize, Vec<u8>)>,
}

impl TornRow {
    /// True if data was written without its discarded parity and is not in the log: no repair is
    /// needed, and none is possible.
    pub fn is_past_parity(&self, map: &StripeMap) -> bool {
        let record = &self.record;
        let whole = record.partial || usize::from(record.count) == map.data_count();
        !whole && self.logged.is_empty()
    }

    /// The pieces of the torn row that have separate checks.
    pub fn pieces(&self) -> impl Iterator<Item = TornRow> {
        let part = |partial: &Option<Partial>, at: &Range<usize>| match partial {
            Some(Partial::Bytes(bytes)) => Some(Partial::Bytes(bytes[at.clone()].to_vec())),
            other => other.clone(),
        };
        blocks(self).map(move |at| TornRow {
            record: self.record,
            stripe: self.stripe,
            start: self.start + at.start as u64,
            len: at.len() as u64,
            checks: self.checks.clone(),
            p: part(&self.p, &at),
            q: part(&self.q, &at),
            logged: self.logged.iter().map(|(i, new)| (*i, new[at.clone()].to_vec())).collect(),
        })
    }
}

/// The contents of a torn row on the members.
#[derive(Clone)]
pub struct Held {
    /// Each data index; `None` where it is lost.
    pub data: Vec<Option<Vec<u8>>>,
    /// The bytes to write to P.
    pub p: Option<Vec<u8>>,
    /// The bytes to write to Q.
    pub q: Option<Vec<u8>>,
}

/// Finds all lost data of a torn row and puts it into `held`. Returns the ranges (from the start of
/// the row) in which written blocks stay lost, with their data indices. `held` has arbitrary bytes
/// there; all other data is right.
pub fn solve(
    kernel: Kernel,
    map: &StripeMap,
    torn_row: &TornRow,
    held: &mut Held,
) -> Vec<(Range<u64>, Vec<usize>)> {
    assert_eq!(held.data.len(), map.data_count(), "one place for each data slot");
    for (index, new) in &torn_row.logged {
        held.data[*index] = Some(new.clone());
    }
    let lost: Vec<usize> = (0..held.data.len()).filter(|&i| held.data[i].is_none()).collect();
    if lost.is_empty() {
        return Vec::new();
    }
    let len = torn_row.len as usize;
    let mut found: Vec<Vec<u8>> = lost.iter().map(|_| vec![0; len]).collect();
    let mut unsolved = Vec::new();
    for block in blocks(torn_row) {
        let puzzle = Puzzle { kernel, map, torn_row, held, lost: &lost, block: block.clone() };
        let missing = puzzle.solve(&mut found);
        if !missing.is_empty() {
            unsolved.push((block.start as u64..block.end as u64, missing));
        }
    }
    for (&index, bytes) in lost.iter().zip(found) {
        held.data[index] = Some(bytes);
    }
    unsolved
}

/// The pieces with separate checks, as ranges from the start of the row.
fn blocks(torn_row: &TornRow) -> impl Iterator<Item = Range<usize>> + use<> {
    let (start, end) = (torn_row.start, torn_row.start + torn_row.len);
    let mut at = start;
    std::iter::from_fn(move || {
        let next = ((at / CHECK_BYTES + 1) * CHECK_BYTES).min(end);
        let block = (at - start) as usize..(next - start) as usize;
        (at < end).then(|| at = next)?;
        Some(block)
    })
}

struct Puzzle<'a> {
    kernel: Kernel,
    map: &'a StripeMap,
    torn_row: &'a TornRow,
    held: &'a Held,
    lost: &'a [usize],
    block: Range<usize>,
}

impl Puzzle<'_> {
    fn is_written(&self, index: usize) -> bool {
        let first = usize::from(self.torn_row.record.first);
        let count = usize::from(self.torn_row.record.count);
        (first..first + count).contains(&index)
    }

    /// The bytes of a data index in this block, recovered or held.
    fn have<'f>(&'f self, index: usize, found: &'f [Vec<u8>]) -> &'f [u8] {
        let own = self.held.data[index].as_ref();
        let at =
            || self.lost.iter().position(|&lost| lost == index).expect("the block is lost or held");
        &own.unwrap_or_else(|| &found[at()])[self.block.clone()]
    }

    /// Solves the block; returns the data indices that stay lost.
    fn solve(&self, found: &mut [Vec<u8>]) -> Vec<usize> {
        let (written, kept): (Vec<usize>, Vec<usize>) =
            self.lost.iter().partition(|&&index| self.is_written(index));
        if !self.recover_kept(&kept, found) {
            return self.lost.to_vec();
        }
        if self.recover_written(&written, found) { Vec::new() } else { written }
    }

    /// Recovers lost blocks that were not written, from the partial syndromes over the unwritten
    /// blocks.
    fn recover_kept(&self, lost: &[usize], found: &mut [Vec<u8>]) -> bool {
        let bytes = |partial: &Option<Partial>| match partial {
            Some(Partial::Bytes(bytes)) => Some(bytes[self.block.clone()].to_vec()),
            _ => None,
        };
        let (p, q) = (bytes(&self.torn_row.p), bytes(&self.torn_row.q));
        let all = (0..self.held.data.len()).filter(|&index| !self.is_written(index));
        self.recover(lost, all.collect(), p.as_deref(), q.as_deref(), found)
    }

    /// Recovers lost blocks that were being written, from parity where that is trusted.
    fn recover_written(&self, lost: &[usize], found: &mut [Vec<u8>]) -> bool {
        if lost.is_empty() {
            return true;
        }
        let part = |bytes: &Option<Vec<u8>>| bytes.as_ref().map(|b| b[self.block.clone()].to_vec());
        let (p, q) = (part(&self.held.p), part(&self.held.q));
        let all: Vec<usize> = (0..self.held.data.len()).collect();
        // Without checks parity is trusted, as md does.
        let record = &self.torn_row.record;
        let unchecked = record.count == 1 || !(record.checked || record.zeros);
        let durable = self.number().is_none() && !broken(Broken::OldRecordDistrusted);
        let trusted = unchecked || durable;
        if lost.len() == 2 {
            return self.recover(lost, all, p.as_deref(), q.as_deref(), found)
                && (durable || lost.iter().all(|&index| self.is_new(index, found)));
        }
        let mut solutions: Vec<Vec<u8>> = Vec::new();
        for (p, q) in [(p.as_deref(), None), (None, q.as_deref())] {
            if (p, q) == (None, None) || !self.recover(lost, all.clone(), p, q, found) {
                continue;
            }
            let bytes = self.have(lost[0], found).to_vec();
            // If P and Q agree, the block was either not torn or completely written.
            if self.is_new(lost[0], found) || solutions.contains(&bytes) {
                return true;
            }
            solutions.push(bytes);
        }
        if let Some(bytes) = solutions.first().filter(|_| trusted) {
            let at = self.lost.iter().position(|&index| index == lost[0]).expect("one of them");
            found[at][self.block.clone()].copy_from_slice(bytes);
            return true;
        }
        false
    }

    /// Computes `lost` (at most as many as there are syndromes) from `all` other indices.
    fn recover(
        &self,
        lost: &[usize],
        all: Vec<usize>,
        p: Option<&[u8]>,
        q: Option<&[u8]>,
        found: &mut [Vec<u8>],
    ) -> bool {
        let slot = |index: usize| self.map.data(index);
        let erasure = match (lost, p, q) {
            ([], _, _) => return true,
            ([x], Some(_), _) => Erasure::FromP(slot(*x)),
            ([x], None, Some(_)) => Erasure::FromQ(slot(*x)),
            ([x, y], Some(_), Some(_)) => Erasure::FromPq(slot(*x), slot(*y)),
            _ => return false,
        };
        let len = self.block.len();
        let (mut x, mut y) = (vec![0; len], vec![0; if lost.len() == 2 { len } else { 0 }]);
        // Other indices count as zeros.
        let zeros = vec![0; len];
        let have = |wanted: Slot| {
            if wanted == self.map.p() {
                return p.unwrap_or(&zeros);
            }
            if Some(wanted) == self.map.q() {
                return q.unwrap_or(&zeros);
            }
            let index = all.iter().find(|&&index| slot(index) == wanted);
            index.map_or(&zeros[..], |&index| self.have(index, found))
        };
        compute::recover(self.kernel, self.map, erasure, have, &mut x, &mut y);
        for (&index, bytes) in lost.iter().zip([x, y]) {
            let at = self.lost.iter().position(|&lost| lost == index).expect("one of them");
            found[at][self.block.clone()].copy_from_slice(&bytes);
        }
        true
    }

    /// The number of this block in the record; `None` if a newer record covers a part of it.
    fn number(&self) -> Option<usize> {
        let record = &self.torn_row.record;
        assert!(record.start <= self.torn_row.start, "a piece lies in its record");
        let start = self.torn_row.start + self.block.start as u64 - record.start;
        let range = start..start + self.block.len() as u64;
        record.blocks().position(|block| block == range)
    }

    /// True if the block of a written index holds the new data.
    fn is_new(&self, index: usize, found: &[Vec<u8>]) -> bool {
        let (torn_row, bytes) = (self.torn_row, self.have(index, found));
        if torn_row.record.zeros {
            return self.kernel.is_zero(bytes);
        }
        let Some(number) = self.number() else { return false };
        let each = torn_row.record.blocks().count();
        let check = (index - usize::from(torn_row.record.first)) * each + number;
        torn_row.checks.get(check) == Some(&parity::crc32c(0, bytes))
    }
}

#[cfg(test)]
mod tests;
