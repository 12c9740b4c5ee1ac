//! The append area of a member: batches of the grant log since the last header.
//!
//! ```text
//!   header 7 ──▶ entry 8 ──▶ entry 9 ──▶ entry 12 ──▶ (entry 5, older than the header: the end)
//!     ▲                                      │
//!     └──── does not fit: header 13 ◀────────┘        the area starts again
//! ```
//!
//! A batch costs one small durable write, however many marks are set. A header is a checkpoint: it
//! contains everything, so whatever lies in the area is older than it. Headers and entries are
//! numbered together; a start follows the numbers upwards and ends at the first entry that is torn
//! or old. It then writes a header, so nothing is ever appended behind a torn entry.
//!
//! Invariant: an entry is overwritten only after a header that contains it is durable.

use crate::broken::{Broken, broken};
use crate::member::Header;
use crate::record::{Position, Record};
use crate::wire::{self, Frame, Malformed, Wire};

/// Entries start at multiples of this many bytes: a multiple of every logical block.
pub const UNIT_BYTES: usize = 4096;

/// Batches of the grant log, as one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// The number of the header that would contain it.
    pub generation: u64,
    /// The position of the log after it.
    pub at: Position,
    /// What it changes.
    pub records: Vec<Record>,
}

wire::structures! { Entry { generation, at, records } }

impl Frame for Entry {
    const KIND: u16 = 12;
}

impl Entry {
    /// Brings a header up to date.
    pub(crate) fn apply(&self, header: &mut Header) {
        header.generation = self.generation;
        header.log.apply(self.at, &self.records);
    }
}

/// Bytes of the area that an entry of this length takes.
pub(crate) fn taken(length: usize) -> usize {
    length.next_multiple_of(UNIT_BYTES)
}

/// Brings the newest header up to date with the entries that continue it.
pub fn replay(header: &mut Header, area: &[u8]) {
    let mut from = 0;
    while let Some(rest) = area.get(from..)
        && let Ok((entry, length)) = wire::decode::<Entry>(rest)
    {
        let newer = entry.generation > header.generation && entry.at > header.log.at;
        if newer {
            entry.apply(header);
        } else if broken(Broken::OldEntriesReplayed) {
            entry.records.iter().for_each(|&record| header.log.change(record));
        } else {
            return;
        }
        from += taken(length);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::ids::{Region, Term};
    use crate::record::Mark;

    fn entry(generation: u64, set: bool, region: u32) -> Vec<u8> {
        let at = Position { term: Term(1), seq: generation };
        let records = vec![Record { set, mark: Mark::Unsync(Region(region)) }];
        let mut bytes = wire::encode(&Entry { generation, at, records });
        bytes.resize(taken(bytes.len()), 0);
        bytes
    }

    fn replayed(area: &[u8]) -> (u64, Vec<u32>) {
        let mut header = Header { generation: 7, ..Header::default() };
        header.log.at = Position { term: Term(1), seq: 7 };
        header.log.marks = BTreeSet::from([Mark::Unsync(Region(0))]);
        replay(&mut header, area);
        let regions = crate::record::unsync(&header.log.marks).map(|region| region.0);
        (header.generation, regions.collect())
    }

    #[test]
    fn a_start_follows_entries_up_to_the_first_torn_or_old_one() {
        let area = [entry(8, true, 1), entry(10, false, 0), entry(11, true, 2)].concat();
        assert_eq!(replayed(&area), (11, vec![1, 2]));
        for cut in [1, 40, UNIT_BYTES] {
            let kept = UNIT_BYTES + cut;
            let mut torn = area[..kept].to_vec();
            torn.resize(area.len(), 0);
            let expected = if cut < UNIT_BYTES { (8, vec![0, 1]) } else { (10, vec![1]) };
            assert_eq!(replayed(&torn), expected, "{cut}");
        }
        let old = [entry(8, true, 1), entry(5, true, 3), entry(9, true, 4)].concat();
        assert_eq!(replayed(&old), (8, vec![0, 1]));
        assert_eq!(replayed(&[]), (7, vec![0]));
    }
}
