//! The bad-block log of a member: sectors it is known to have lost.
//!
//! Owns the list and its form on disk. Never decides that a block is bad: the kernel records
//! failures there, Parapet only what a rebuild could not recover.
//!
//! An entry is a little-endian `u64`: `sector << 10 | length`. Both count units of 2^`bblog_shift`
//! sectors, the sector is counted from the start of the *member* (not of its data), and all ones
//! mark an entry as unused. The kernel does not sort them.
//!
//! Invariant: in memory the ranges are sorted, not empty, and do not touch.
//!
//! Source: `include/uapi/linux/raid/md_p.h`, `super_1_load` and `md_update_sb` in Linux 6.1.

use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

use super::SECTOR;
use super::field::{Fault, ParseError};

/// The most entries a log can have: 8 sectors of them.
pub const MOST_ENTRIES: usize = 512;
/// The most units the kernel puts into one entry, though the field has room for 1023.
const MOST_UNITS: u64 = 512;
const LENGTH_BITS: u32 = 10;
/// A larger unit than this would be larger than any member.
const MOST_SHIFT: u8 = 40;
/// No member has more sectors (see the superblock's rules).
const MOST_SECTORS: u64 = 1 << 53;
const UNUSED: u64 = u64::MAX;
const STRUCTURE: &str = "bad-block log";

/// The bad sectors of a member, counted from its start.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct BadBlocks {
    ranges: Vec<Range<u64>>,
}

/// A log as it was found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FoundBadBlocks {
    /// The valid entries.
    pub blocks: BadBlocks,
    /// Invalid entries that were skipped: of length zero (newer kernels refuse such a member
    /// altogether), or beyond any member. To be reported.
    pub refused: Vec<ParseError>,
}

/// More entries than the log has room for. A rebuild that would need them must stop.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogFull {
    /// Entries needed.
    pub needed: usize,
    /// Entries there is room for.
    pub room: usize,
}

impl core::fmt::Display for LogFull {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let LogFull { needed, room } = self;
        write!(f, "the bad-block log is full: {needed} entries needed, room for {room}")
    }
}

impl core::error::Error for LogFull {}

impl BadBlocks {
    /// Reads a log: all of `bytes` up to the first unused entry. `shift` is the superblock's
    /// `bblog_shift`.
    ///
    /// # Errors
    /// If the log is longer than 8 sectors, not made of whole entries, or the shift absurd. Single
    /// bad entries are not errors: see [`FoundBadBlocks::refused`].
    pub fn parse(bytes: &[u8], shift: u8) -> Result<FoundBadBlocks, ParseError> {
        let length = bytes.len() as u64;
        if shift > MOST_SHIFT {
            let fault = Fault::Above { most: u64::from(MOST_SHIFT) };
            return Err(wrong("bblog_shift", 0, u64::from(shift), fault));
        }
        if bytes.len() > 8 * MOST_ENTRIES {
            let fault = Fault::Above { most: 8 * MOST_ENTRIES as u64 };
            return Err(wrong("length", 0, length, fault));
        }
        let (entries, []) = bytes.as_chunks::<8>() else {
            let need = length.next_multiple_of(8);
            return Err(wrong("entry", length / 8 * 8, need, Fault::Truncated { have: length }));
        };
        let mut found = FoundBadBlocks { blocks: BadBlocks::default(), refused: Vec::new() };
        let entries = entries.iter().map(|entry| u64::from_le_bytes(*entry));
        for (index, entry) in entries.take_while(|&entry| entry != UNUSED).enumerate() {
            match read_entry(entry, shift) {
                Ok(range) => found.blocks.add(range),
                Err(why) => {
                    let fault = Fault::Refused(why);
                    found.refused.push(wrong("entry", 8 * index as u64, entry, fault));
                }
            }
        }
        Ok(found)
    }

    /// The log as `sectors` sectors on disk, rounded outwards to units of 2^`shift` sectors.
    ///
    /// # Errors
    /// If it does not fit.
    ///
    /// # Panics
    /// If `sectors` or `shift` is more than [`BadBlocks::parse`] accepts.
    pub fn print(&self, shift: u8, sectors: u16) -> Result<Vec<u8>, LogFull> {
        assert!(shift <= MOST_SHIFT, "a unit larger than any member");
        let room = usize::from(sectors) * SECTOR as usize / 8;
        assert!(room <= MOST_ENTRIES, "a log longer than md's");
        let mut units = BadBlocks::default();
        for range in &self.ranges {
            units.add(range.start >> shift..((range.end - 1) >> shift) + 1);
        }
        let needed =
            units.ranges.iter().map(|range| (range.end - range.start).div_ceil(MOST_UNITS));
        let needed = needed.sum::<u64>() as usize;
        if needed > room {
            return Err(LogFull { needed, room });
        }
        let mut bytes = vec![0xff; 8 * room];
        let entries = units.ranges.into_iter().flat_map(|range| {
            let starts = range.clone().step_by(MOST_UNITS as usize);
            starts.map(move |start| (start, MOST_UNITS.min(range.end - start)))
        });
        for (place, (start, length)) in bytes.chunks_exact_mut(8).zip(entries) {
            place.copy_from_slice(&(start << LENGTH_BITS | length).to_le_bytes());
        }
        Ok(bytes)
    }

    /// True if no block is bad: then the superblock's feature bit is clear.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// All bad ranges, in sectors of the member, ascending.
    pub fn ranges(&self) -> &[Range<u64>] {
        &self.ranges
    }

    /// The bad parts of `sectors`, ascending.
    pub fn within(&self, sectors: Range<u64>) -> impl Iterator<Item = Range<u64>> + '_ {
        let first = self.ranges.partition_point(|range| range.end <= sectors.start);
        let touched = self.ranges[first..].iter().take_while({
            let end = sectors.end;
            move |range| range.start < end
        });
        touched.map(move |range| range.start.max(sectors.start)..range.end.min(sectors.end))
    }

    /// True if one of `sectors` is bad.
    pub fn touch(&self, sectors: Range<u64>) -> bool {
        !sectors.is_empty() && self.within(sectors).next().is_some()
    }

    /// Records `sectors` as bad.
    pub fn add(&mut self, sectors: Range<u64>) {
        if sectors.is_empty() {
            return;
        }
        let first = self.ranges.partition_point(|range| range.end < sectors.start);
        let last = self.ranges.partition_point(|range| range.start <= sectors.end);
        let mut merged = sectors;
        if let [head, ..] = &self.ranges[first..last] {
            merged.start = merged.start.min(head.start);
        }
        if let [.., tail] = &self.ranges[first..last] {
            merged.end = merged.end.max(tail.end);
        }
        self.ranges.splice(first..last, [merged]);
    }

    /// Records `sectors` as good again, since they have been rewritten.
    pub fn remove(&mut self, sectors: Range<u64>) {
        if sectors.is_empty() {
            return;
        }
        let first = self.ranges.partition_point(|range| range.end <= sectors.start);
        let last = self.ranges.partition_point(|range| range.start < sectors.end).max(first);
        let head = self.ranges[first..last].first().map(|range| range.start..sectors.start);
        let tail = self.ranges[first..last].last().map(|range| sectors.end..range.end);
        let rest = [head, tail].into_iter().flatten().filter(|range| !range.is_empty());
        self.ranges.splice(first..last, rest.collect::<Vec<_>>());
    }
}

fn read_entry(entry: u64, shift: u8) -> Result<Range<u64>, &'static str> {
    let length = entry & ((1 << LENGTH_BITS) - 1);
    let start = entry >> LENGTH_BITS;
    if length == 0 {
        return Err("a bad block of length zero");
    }
    if start + length > MOST_SECTORS >> shift {
        return Err("a bad block beyond any member");
    }
    Ok(start << shift..(start + length) << shift)
}

const fn wrong(field: &'static str, offset: u64, value: u64, fault: Fault) -> ParseError {
    ParseError { structure: STRUCTURE, field, offset, value, fault }
}

#[cfg(test)]
#[path = "badblocks/tests.rs"]
mod tests;
