//! md's partial parity log, read from behind: which rows it tells of, and how it has been used.
//!
//! As [`crate::logged`], by a few lines of its own, as `docs/format.md` has it.
//!
//! ```text
//!   unit     4096: 0xff … sum of the array's UUID, generation, entries │ partial parity of each
//!   log      unit │ unit │ …       the last that is sound, and not older than the one before
//! ```

use std::collections::BTreeMap;
use std::ops::Range;

use layout::Geometry;

use crate::covered::{Raw, long, word};
use crate::medium::SECTOR;

const HEAD: usize = 4096;

/// A unit: where it begins, its generation, and what follows it.
struct Unit {
    at: usize,
    generation: u64,
    end: usize,
}

fn unit(log: &[u8], at: usize, mark: u32) -> Option<Unit> {
    let head = log.get(at..at + HEAD)?;
    let sum =
        parity::crc32c(parity::crc32c(parity::crc32c(0, &head[..532]), &[0; 4]), &head[536..]);
    let entries = word(head, 528) as usize;
    let sound = word(head, 512) == mark && word(head, 532) == sum && entries <= 148;
    let size = |entry: usize| word(head, 536 + 24 * entry + 8) as usize;
    sound.then(|| Unit {
        at,
        generation: long(head, 520),
        end: at + HEAD + (0..entries).map(size).sum::<usize>(),
    })
}

/// The bytes of a member's log, and its newest unit.
fn read(member: &Raw) -> Option<(Vec<u8>, Unit)> {
    let (place, bytes) = member.ppl()?;
    let mut log = vec![0; bytes as usize];
    member.disk.peek(place, &mut log);
    let mark = parity::crc32c(0, &member.set_uuid);
    let mut newest: Option<Unit> = None;
    let mut at = 0;
    while let Some(next) = unit(&log, at, mark) {
        if newest.as_ref().is_some_and(|newest| newest.generation > next.generation) {
            break;
        }
        at = next.end;
        newest = Some(next);
    }
    newest.map(|unit| (log, unit))
}

/// True if the log of this member has gone round.
pub fn has_wrapped(member: &Raw) -> bool {
    // Before it goes round, generation 1 is at the start.
    let first = |log: &[u8]| long(log, 520);
    read(member).is_some_and(|(log, _)| first(&log) > 1)
}

/// The rows that these members' newest units tell of: by stripe, ranges of the chunk.
pub fn rows<'a>(
    geometry: &Geometry,
    members: impl Iterator<Item = &'a Raw>,
) -> BTreeMap<u64, Vec<Range<u64>>> {
    let mut rows: BTreeMap<u64, Vec<Range<u64>>> = BTreeMap::new();
    let (chunk, data) = (geometry.chunk_bytes(), geometry.stripe_bytes());
    for (log, unit) in members.filter_map(read) {
        let mut at = unit.at + HEAD;
        for entry in 0..word(&log[unit.at..], 528) as usize {
            let entry = &log[unit.at + 536 + 24 * entry..];
            let (offset, size) = (long(entry, 0) * SECTOR, u64::from(word(entry, 12)));
            let pp = word(entry, 8) as usize;
            let Some(partial) = log.get(at..at + pp) else { break };
            at += pp;
            if parity::crc32c(0, partial) != word(entry, 20) {
                continue;
            }
            let len = if pp > 0 { pp as u64 } else { size / (data / chunk) };
            let start = offset % chunk;
            rows.entry(offset / data).or_default().push(start..start + len);
        }
    }
    rows
}
