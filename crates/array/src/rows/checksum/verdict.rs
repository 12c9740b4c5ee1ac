//! Verdicts: pure tables that decide which block, entry or copy is wrong. Never reads anything.
//!
//! In a row with parity, for a block that does not match its entry in the checksum table:
//!
//! ```text
//!   redundancy yields      suspect                    the block   its entry   repair
//!   ─────────────────────  ─────────────────────────  ──────────  ──────────  ───────────────────
//!   bytes that match       any                        is wrong    is right    the block
//!   the block's own bytes  any                        is right    is wrong    the entry
//!   other bytes            only parity: all data      is wrong    is wrong    both: they follow
//!                          matches                                            from the data
//!   other bytes            the only stale block: its  is wrong    is wrong    both: it lost writes
//!                          entry is older                                     with their entries
//!   other bytes            any other                  ?           ?           none: reads fail
//! ```
//!
//! Among copies of a block (mirrors), the first matching line applies:
//!
//! ```text
//!   agreed on before   contents of the copies                 valid copy               the others
//!   ─────────────────  ─────────────────────────────────────  ───────────────────────  ──────────
//!   no                 anything                               the first                not wrong
//!   yes                more than half of at least 3 alike     the majority             are wrong
//!   yes                generations differ, the newest alike   the newest               are wrong
//!   yes                anything else                          the first, by a guess    not judged
//! ```

use io::broken::{Broken, broken};

/// A larger distance between copies' generations means that they were reset, not that writes were
/// lost.
const APART_MAX: u32 = 1 << 16;

/// The bytes that the rest of a row yields for a mismatching block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Recovered {
    FitsEntry,
    EqualsBlock,
    Neither,
}

/// The suspicion about the mismatching slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Suspect {
    /// All mismatching blocks of the row are parity.
    Parity,
    /// Its generation is behind all others of the row, and it is the only mismatch.
    Behind,
    Other,
}

/// The writes that make a block and its entry agree.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Repair {
    Block,
    Entry,
    Both,
    /// Nothing: the block must not be read.
    Neither,
}

pub(super) fn repair(recovered: Recovered, suspect: Suspect) -> Repair {
    match (recovered, suspect) {
        (Recovered::FitsEntry, _) => Repair::Block,
        (Recovered::EqualsBlock, _) => Repair::Entry,
        (Recovered::Neither, Suspect::Parity | Suspect::Behind) => Repair::Both,
        (Recovered::Neither, Suspect::Other) => Repair::Neither,
    }
}

/// The valid copy, by number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Choice {
    pub(crate) source: usize,
    /// Copies that differ from it are wrong. If false, the choice is a guess, or no copy is wrong.
    pub(crate) named: bool,
}

/// Chooses among readable copies. Copies with equal bytes have the same number in `alike`. `None`
/// if there are none.
pub(crate) fn choose(
    alike: &[usize],
    resolved: bool,
    generations: impl FnOnce() -> Vec<Option<u32>>,
) -> Option<Choice> {
    alike.first()?;
    let same = |copy: usize| alike.iter().filter(|&&other| other == alike[copy]).count();
    let majority = || (0..alike.len()).find(|&at| alike.len() > 2 && 2 * same(at) > alike.len());
    let newest = || {
        let newest = newest_copies(&generations())?;
        let source = *newest.first()?;
        newest.iter().all(|&copy| alike[copy] == alike[source]).then_some(source)
    };
    let named = if resolved { majority().or_else(newest) } else { None };
    Some(Choice { source: named.unwrap_or(0), named: named.is_some() })
}

/// The valid copy of a possibly torn block, by number: of the copies that `fit` their entries the
/// newest, else the first of them. `None` if none fits.
pub(super) fn choose_fitting(
    fit: &[bool],
    generation: impl Fn(usize) -> Option<u32>,
) -> Option<usize> {
    let those: Vec<usize> = (0..fit.len()).filter(|&copy| fit[copy]).collect();
    let each: Vec<Option<u32>> = those.iter().map(|&copy| generation(copy)).collect();
    let first = newest_copies(&each).and_then(|newest| newest.first().copied()).unwrap_or(0);
    those.get(first).copied()
}

/// The newest of the known generations.
pub(super) fn newest(each: impl Iterator<Item = Option<u32>>) -> Option<u32> {
    let is_newer = |a: u32, b: u32| (a.wrapping_sub(b) as i32) > 0;
    each.flatten().reduce(|a, b| if is_newer(b, a) { b } else { a })
}

/// The copies, by number, that have lost no writes. `None` unless all generations are known and
/// some are behind the others.
pub(crate) fn newest_copies(each: &[Option<u32>]) -> Option<Vec<usize>> {
    let known: Option<Vec<u32>> = each.iter().copied().collect();
    let known = known?;
    let newest = newest(known.iter().copied().map(Some))?;
    let close = known.iter().all(|generation| newest.wrapping_sub(*generation) <= APART_MAX);
    let those: Vec<usize> = (0..known.len()).filter(|&copy| known[copy] == newest).collect();
    let distinct = close && those.len() < known.len() && !broken(Broken::GenerationsUnasked);
    distinct.then_some(those)
}

#[cfg(test)]
mod tests;
