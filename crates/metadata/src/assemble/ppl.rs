//! Reads the members' partial parity logs in md's form: the rows that a crash may have torn.
//!
//! Owns the reading of such logs, ours or a kernel's; `log::ppl` parses them. Never writes.

use layout::md::ppl;
use layout::{Geometry, MemberId, Slot};
use log::solve::TornRow;

use crate::assemble::group::Members;
use crate::assemble::probe::MemberProbe;
use crate::assemble::slots::Assigned;
use crate::commit::member_io::{MemberIo, all};

/// Reads the log of each slot's member.
///
/// # Errors
/// The reason why the logs are not trusted: one is unreadable, or has impossible entries.
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
        // A replacement's log equals that of its slot's member.
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
    let bytes = reach.load(&*found.disk, room.start..end).await;
    let bytes = bytes.map_err(|why| format!("cannot be read: {why}"))?;
    let signature = ppl::signature(&found.superblock.set_uuid, parity::crc32c);
    log::ppl::torn_rows(&bytes, signature, slot, geometry)
}
