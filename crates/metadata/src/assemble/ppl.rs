//! What the members' partial parity logs say, as md writes them: which rows a crash may have cut.
//!
//! Owns the reading of such logs, ours or a kernel's. Of each only the newest batch counts, and of
//! that only what has a right checksum: the rest was never finished, so nothing was written under
//! it. A log without a batch was torn in the middle of one, and tells nothing for the same reason.
//! Never writes.

use io::broken::{Broken, broken};
use layout::md::ppl::{self, HEADER_BYTES, PplEntry};
use layout::private::log::{Record, Syndrome};
use layout::{Geometry, MemberId, Slot, Stripe};
use log::solve::{Partial, TornRow};

use crate::assemble::group::Members;
use crate::assemble::probe::MemberProbe;
use crate::assemble::slots::Assigned;
use crate::commit::member_io::{MemberIo, all};

/// Reads the log of each slot's member.
///
/// # Errors
/// Why the logs cannot be trusted: one cannot be read, or tells what cannot be.
pub(super) async fn load(
    reach: &MemberIo,
    members: &Members,
    assigned: &Assigned,
    geometry: &Geometry,
) -> Result<Vec<TornRow>, String> {
    let configuration = &assigned.configuration;
    let logs = members.counted().filter_map(|(_, found, _)| {
        let id = MemberId(found.superblock.device.number);
        let (slot, replacement) = configuration.slot_of(id)?;
        // A replacement's log says what the log of its slot's member says.
        (!replacement).then_some((found, slot))
    });
    let reads = logs.map(|(found, slot)| async move {
        let torn_rows = read(reach, found, slot, geometry).await;
        torn_rows.map_err(|why| format!("the partial parity log of {} {why}", found.name))
    });
    let torn_rows = all(reads).await.into_iter().collect::<Result<Vec<_>, String>>()?;
    Ok(torn_rows.into_iter().flatten().collect())
}

async fn read(
    reach: &MemberIo,
    found: &MemberProbe,
    slot: Slot,
    geometry: &Geometry,
) -> Result<Vec<TornRow>, String> {
    let room = found.map.ppl.clone().filter(|_| found.superblock.ppl().is_some());
    let room = room.ok_or_else(|| "is not there".to_string())?;
    let end = room.start + ppl::usable_bytes(room.end - room.start);
    let log = reach.load(&*found.disk, room.start..end).await;
    let log = log.map_err(|why| format!("cannot be read: {why}"))?;
    let signature = ppl::signature(&found.superblock.set_uuid, parity::crc32c);
    let newest = ppl::newest(&log, signature, parity::crc32c);
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

/// The row that an entry on the member of `slot` tells of.
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
        return Err(format!("tells of {bytes} bytes at sector {sector}, which is no row of it"));
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
