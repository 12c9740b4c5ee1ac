//! Replay of a torn row: computes its content from the log and the members.
//!
//! Pure: bytes in, bytes out. Blocks of lost slots are computed one after the other:
//!
//! ```text
//!   lost and not written    from p′ and q′, the syndromes of exactly these blocks: always right
//!   lost and written        from the log, if it has the data; else from P and Q on the members, if
//!                           one of these holds:
//!                           - the result is the block to be written;
//!                           - nothing else was written in the row: the old block or the new one,
//!                             by sectors;
//!                           - a newer record has a part of the block: this one was durable before
//!                             (`touched.rs`);
//!                           - P and Q agree;
//!                           - the record is md's, which has no check: the result may be garbage
//! ```
//!
//! Any other block is lost: it was being written, and never acknowledged as durable.

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
    /// Its bytes, as many as the cut has.
    Bytes(Vec<u8>),
}

/// A row, or the part of one, that a crash may have cut.
#[derive(Clone, Debug)]
pub struct TornRow {
    /// The planned write.
    pub record: Record,
    /// The stripe.
    pub stripe: u64,
    /// First byte, from the start of the chunk; newer records have the bytes beside it.
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
    /// True if data was written with discarded parity, and is not in the log: replay has nothing to
    /// do, and no means to do it.
    pub fn is_past_parity(&self, map: &StripeMap) -> bool {
        let record = &self.record;
        let whole = record.partial || usize::from(record.count) == map.data_count();
        !whole && self.logged.is_empty()
    }

    /// The cut piece by piece, as they are checked.
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

/// The members' content of a torn row.
#[derive(Clone)]
pub struct Held {
    /// Each data index; `None` where it is lost.
    pub data: Vec<Option<Vec<u8>>>,
    /// The bytes to write to P.
    pub p: Option<Vec<u8>>,
    /// The bytes to write to Q.
    pub q: Option<Vec<u8>>,
}

/// Recovers all lost data of a torn row into `held`. Returns the ranges (from the start of the torn
/// row) in which written blocks stay lost, and their data indices. `held` is meaningless there, and
/// right everywhere else.
pub fn solve(
    kernel: Kernel,
    map: &StripeMap,
    torn_row: &TornRow,
    held: &mut Held,
) -> Vec<(Range<u64>, Vec<usize>)> {
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

/// The pieces of a cut that are checked one by one, from its start.
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

    /// The bytes of a data index in this block, found or held.
    fn have<'f>(&'f self, index: usize, found: &'f [Vec<u8>]) -> &'f [u8] {
        let own = self.held.data[index].as_ref();
        let at = || self.lost.iter().position(|&lost| lost == index).expect("it is lost or held");
        &own.unwrap_or_else(|| &found[at()])[self.block.clone()]
    }

    /// Solves the block; gives the data indices that stay lost.
    fn solve(&self, found: &mut [Vec<u8>]) -> Vec<usize> {
        let (written, kept): (Vec<usize>, Vec<usize>) =
            self.lost.iter().partition(|&&index| self.is_written(index));
        if !self.recover_kept(&kept, found) {
            return self.lost.to_vec();
        }
        if self.recover_written(&written, found) { Vec::new() } else { written }
    }

    /// Lost unwritten blocks: from the partial syndromes, which cover exactly these.
    fn recover_kept(&self, lost: &[usize], found: &mut [Vec<u8>]) -> bool {
        let bytes = |partial: &Option<Partial>| match partial {
            Some(Partial::Bytes(bytes)) => Some(bytes[self.block.clone()].to_vec()),
            _ => None,
        };
        let (p, q) = (bytes(&self.torn_row.p), bytes(&self.torn_row.q));
        let all = (0..self.held.data.len()).filter(|&index| !self.is_written(index));
        self.recover(lost, all.collect(), p.as_deref(), q.as_deref(), found)
    }

    /// Lost blocks that were being written: from parity, as far as it can be trusted.
    fn recover_written(&self, lost: &[usize], found: &mut [Vec<u8>]) -> bool {
        if lost.is_empty() {
            return true;
        }
        let part = |bytes: &Option<Vec<u8>>| bytes.as_ref().map(|b| b[self.block.clone()].to_vec());
        let (p, q) = (part(&self.held.p), part(&self.held.q));
        let all: Vec<usize> = (0..self.held.data.len()).collect();
        // Where nothing can be checked, parity is trusted as md does.
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
            // If P and Q agree, the row was either not torn or written completely.
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
        // Absent blocks count as zeros.
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

    /// Which of the record's blocks this is; `None` if a newer record has a part of that.
    fn number(&self) -> Option<usize> {
        let record = &self.torn_row.record;
        let start = self.torn_row.start + self.block.start as u64 - record.start;
        let range = start..start + self.block.len() as u64;
        record.blocks().position(|block| block == range)
    }

    /// True if the block of a written index matches the planned write.
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
