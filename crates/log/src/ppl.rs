//! Batches in the form of md's partial parity log (`layout::md::ppl`), which Linux replays.
//!
//! md's log holds less than ours: no checks and no new data. A row is logged as its range and the
//! partial parity of its unwritten blocks. Each member's log is a ring of its own.
//!
//! Only the newest batch of each log is used, and only entries in it with a matching checksum. The
//! other entries were never completely written, so none of their rows was written either. A log
//! without a batch was torn while it was written, and is empty for the same reason.

use io::broken::{Broken, broken};
use layout::md::ppl::{self, HEADER_BYTES, MULTIPLE_BYTES, PplEntry, PplHeader, PplRow};
use layout::private::log::{Record, Syndrome};
use layout::{Geometry, Slot, Stripe};

use crate::LogPlace;
use crate::batch::Lane;
use crate::solve::{Partial, TornRow};

/// A lane as one write: its header, its place from the start of the member's log, and the end of
/// the write. The previous batch ended at `next`.
pub fn unit(
    lane: &Lane,
    (signature, generation): (u32, u64),
    geometry: &Geometry,
    slot: Slot,
    (log, next): (LogPlace, u64),
) -> (PplHeader, u64, u64) {
    let shape = (geometry.chunk_bytes(), geometry.data_count() as u64);
    let mut payload = lane.payload.iter();
    let entry = |record: &Record| {
        let pp = payload.by_ref().take(usize::from(record.partial)).next();
        let row = PplRow {
            stripe: record.stripe,
            start: record.start,
            len: record.len,
            first: record.first.into(),
            count: record.count.into(),
        };
        let pp = pp.map_or(&[][..], |part| &part[..]);
        PplEntry::of_row(&row, shape, slot.index() as u32, pp, parity::crc32c)
    };
    let entries = lane.records.iter().map(entry).collect();
    let header = PplHeader { signature, generation, entries };
    let bytes = HEADER_BYTES + header.pp_bytes();
    let at = place(log, next, bytes);
    (header, at, at + bytes)
}

/// The place of a batch of this size in a member's log, if the previous one ended at `next`.
fn place(log: LogPlace, next: u64, bytes: u64) -> u64 {
    // Linux 6.1 searches for headers up to the last 4096 bytes. If it gets there without finding
    // the end of the units, it reads the partial parities of the newest at the wrong place.
    let fits = next + bytes + HEADER_BYTES < log.bytes;
    if fits && log.bytes >= MULTIPLE_BYTES { next } else { 0 }
}

/// The rows that a crash may have torn, by the log of the member of `slot`.
///
/// # Errors
/// The reason why the log is not trusted: it is damaged, or has impossible entries.
pub fn torn_rows(
    log: &[u8],
    signature: u32,
    slot: Slot,
    geometry: &Geometry,
) -> Result<Vec<TornRow>, String> {
    let newest = ppl::newest(log, signature, parity::crc32c);
    let newest = newest.map_err(|error| format!("is damaged: {error}"))?;
    let Some((header, start)) = newest else { return Ok(Vec::new()) };
    let mut at = start + HEADER_BYTES as usize;
    let mut torn_rows = Vec::new();
    for entry in &header.entries {
        let end = at + entry.pp_bytes as usize;
        let partial = log.get(at..end).unwrap_or_default();
        let whole = partial.len() == entry.pp_bytes as usize
            && (parity::crc32c(0, partial) == entry.checksum || broken(Broken::LogUnchecked));
        if whole {
            torn_rows.push(torn_row(entry, partial, slot, geometry)?);
        }
        at = end;
    }
    Ok(torn_rows)
}

/// The row of an entry in the log of the member of `slot`.
fn torn_row(
    entry: &PplEntry,
    partial: &[u8],
    slot: Slot,
    geometry: &Geometry,
) -> Result<TornRow, String> {
    let row = entry.row((geometry.chunk_bytes(), geometry.data_count() as u64));
    let row = row.filter(|row| row.stripe < geometry.stripes());
    let row = row.filter(|row| geometry.stripe(Stripe(row.stripe)).p() == slot);
    let row = row.filter(|_| entry.parity_disk as usize == slot.index());
    let Some(row) = row else {
        let (sector, bytes) = (entry.data_sector, entry.data_bytes);
        return Err(format!("has {bytes} bytes at sector {sector}, which is no row"));
    };
    let record = Record {
        stripe: row.stripe,
        stripes: 1,
        start: row.start,
        len: row.len,
        first: row.first as u16,
        count: row.count as u16,
        syndrome: Syndrome::P,
        paired: false,
        partial: entry.pp_bytes > 0,
        checked: false,
        checksummed: false,
        logged: 0,
        zeros: false,
        epoch: 0,
    };
    let partial = match record.partial {
        true => Partial::Bytes(partial.to_vec()),
        false => Partial::Zero,
    };
    Ok(TornRow {
        record,
        stripe: row.stripe,
        start: row.start,
        len: row.len,
        checks: Vec::new(),
        p: Some(partial),
        q: None,
        logged: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_follow_each_other_and_wrap_at_the_end() {
        let log = LogPlace { offset: 0, bytes: 1 << 20, session: 1 };
        let end = log.bytes;
        assert_eq!(place(log, 0, 8192), 0);
        assert_eq!(place(log, 8192, 4096), 8192);
        assert_eq!(place(log, end - 16384, 8192), end - 16384);
        assert_eq!(place(log, end - 16384, 12288), 0, "Linux would not find its way");
        assert_eq!(place(log, end - 4096, 4096), 0);
        let small = LogPlace { bytes: MULTIPLE_BYTES - 4096, ..log };
        assert_eq!(place(small, 8192, 4096), 0, "no ring");
    }
}
