//! md's partial parity log, parsed independently: its rows, and its correct use.
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

/// A unit: its generation, where it ends in the log, and its bytes.
struct Unit {
    generation: u64,
    end: u64,
    bytes: Vec<u8>,
}

/// The unit at this place of a member's log; so far its head alone.
fn unit(member: &Raw, at: u64, mark: u32) -> Option<Unit> {
    let (place, log_bytes) = member.ppl()?;
    if at + HEAD as u64 > log_bytes {
        return None;
    }
    let mut head = vec![0; HEAD];
    member.disk.peek(place + at, &mut head);
    let checksum =
        parity::crc32c(parity::crc32c(parity::crc32c(0, &head[..532]), &[0; 4]), &head[536..]);
    let entries = word(&head, 528) as usize;
    let sound = word(&head, 512) == mark && word(&head, 532) == checksum && entries <= 148;
    let sizes = (0..entries).map(|entry| u64::from(word(&head, 536 + 24 * entry + 8)));
    let end = sound.then(|| at + HEAD as u64 + sizes.sum::<u64>())?;
    Some(Unit { generation: long(&head, 520), end, bytes: head })
}

/// The generation of the first unit of a member's log, and the newest one, with all its bytes.
fn read(member: &Raw) -> Option<(u64, Unit)> {
    let (place, log_bytes) = member.ppl()?;
    let mark = parity::crc32c(0, &member.set_uuid);
    let mut newest = unit(member, 0, mark)?;
    let (first, mut at) = (newest.generation, 0);
    while let Some(next) = unit(member, newest.end, mark) {
        if newest.generation > next.generation {
            break;
        }
        at = newest.end;
        newest = next;
    }
    newest.bytes.resize((newest.end.min(log_bytes) - at) as usize, 0);
    member.disk.peek(place + at, &mut newest.bytes);
    Some((first, newest))
}

/// True if the log of this member has gone round.
pub fn has_wrapped(member: &Raw) -> bool {
    // Before it goes round, generation 1 is at the start.
    read(member).is_some_and(|(first, _)| first > 1)
}

/// The rows in these members' newest units: by stripe, ranges of the chunk.
pub fn rows<'a>(
    geometry: &Geometry,
    members: impl Iterator<Item = &'a Raw>,
) -> BTreeMap<u64, Vec<Range<u64>>> {
    let mut rows: BTreeMap<u64, Vec<Range<u64>>> = BTreeMap::new();
    let (chunk, data) = (geometry.chunk_bytes(), geometry.stripe_bytes());
    for (_, Unit { bytes, .. }) in members.filter_map(read) {
        let mut at = HEAD;
        for entry in 0..word(&bytes, 528) as usize {
            let entry = &bytes[536 + 24 * entry..];
            let (offset, size) = (long(entry, 0) * SECTOR, u64::from(word(entry, 12)));
            let pp = word(entry, 8) as usize;
            let Some(partial) = bytes.get(at..at + pp) else { break };
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
