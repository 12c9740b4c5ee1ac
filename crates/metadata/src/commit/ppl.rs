//! The members' partial parity logs in md's form: their places, and their initialization.
//!
//! A log is emptied before a session writes to it, and before its member gets a slot. All of it is
//! zeroed, or old units could be taken for newer ones:
//!
//! ```text
//!   | unit 7 | unit 8 | unit 9 |      the rows of 7 and 8 have changed since
//!   | 0      | unit 8 | unit 9 |      durable first: a log without a start is empty
//!   | 0      | 0 ……………………………… |      in any order; then a flush
//!   | header | 0 ……………………………… |      no unit follows the empty one
//! ```
//!
//! A power cut could otherwise zero unit 9 and keep 7 and 8. The newest is then 8, and its replay
//! would compute wrong parity.

use layout::md::ppl::{self, MOST_SLOTS, PplHeader};
use layout::md::{Features, Uuid};
use layout::private::Consistency;
use layout::{Geometry, Level, MemberId};
use log::{LogPlace, LogSetup};

use crate::commit::member_io::{MemberIo, all};
use crate::commit::record::Record;
use crate::commit::{Failures, MetadataWriter};

/// The reason if an array of this shape cannot have md's partial parity log.
pub(crate) fn unfit(geometry: &Geometry) -> Option<String> {
    let (level, slots) = (geometry.layout().level(), geometry.slots());
    if level != Level::Raid5 {
        return Some(format!("{level} cannot have md's partial parity log: it is for RAID 5 only"));
    }
    let many = slots > MOST_SLOTS;
    many.then(|| format!("md's partial parity log is for at most {MOST_SLOTS} slots, not {slots}"))
}

impl MetadataWriter {
    /// True if the array's policy is md's partial parity log, from the beginning of the session on.
    pub(super) fn keeps_ppl(&self) -> bool {
        self.private.get().next_consistency == Consistency::Ppl
    }

    /// The log settings for the shard.
    pub(super) fn ppl_setup(&self) -> LogSetup {
        let signature = ppl::signature(&self.facts.uuid, parity::crc32c);
        let bytes = self.private.get().next_log.bytes;
        LogSetup::Ppl { pp_bytes: ppl::unit_pp_bytes(bytes), signature }
    }

    /// The size used of each log: the size of the smallest one, and at most this much.
    pub(super) fn ppl_bytes(&self, most: u64) -> u64 {
        let state = self.state.borrow();
        let places = state.records.values().filter_map(Record::ppl_place);
        let least = places.map(|place| place.bytes).min().unwrap_or(0);
        ppl::usable_bytes(least.min(most)).max(2 * ppl::HEADER_BYTES)
    }

    /// Empties the stale logs of these members.
    pub(super) async fn empty_ppl(&self, assigned: &[MemberId], failures: &Failures) -> Failures {
        let mut stale = self.records(assigned, failures);
        stale.retain(|(_, record)| record.stale_ppl && self.keeps_ppl());
        if stale.is_empty() {
            return Failures::new();
        }
        let error = |(id, written): (MemberId, io::Result<()>)| Some((id, written.err()?));
        let voids =
            stale.iter().map(|(id, record)| async { (*id, record.void_ppl(&self.reach).await) });
        let mut failed: Failures = all(voids).await.into_iter().filter_map(error).collect();
        stale.retain(|(id, _)| !failed.iter().any(|(other, _)| other == id));
        let ids: Vec<MemberId> = stale.iter().map(|(id, _)| *id).collect();
        failed.extend(self.flush(&ids).await);
        stale.retain(|(id, _)| !failed.iter().any(|(other, _)| other == id));
        let writes = stale.iter().map(|(id, record)| async {
            (*id, record.write_empty_ppl(&self.reach, &self.facts.uuid).await)
        });
        for (id, result) in all(writes).await {
            match result {
                Err(why) => failed.push((id, why)),
                Ok(()) => {
                    if let Some(record) = self.state.borrow_mut().records.get_mut(&id) {
                        record.stale_ppl = false;
                    }
                }
            }
        }
        failed
    }
}

impl Record {
    /// The place of the member's partial parity log, if it has one.
    pub(crate) fn ppl_place(&self) -> Option<LogPlace> {
        let has_one = self.superblock.features.intersects(Features::ANY_PPL);
        let room = self.map.ppl.as_ref().filter(|_| has_one)?;
        let bytes = ppl::usable_bytes(room.end - room.start);
        Some(LogPlace { offset: room.start, bytes, session: 0 })
    }

    /// Begins a session: the old contents of the log are released. It is used as a ring if it has
    /// room for one.
    pub(super) fn begin_ppl(&mut self) {
        let Some(place) = self.ppl_place() else { return };
        let ring = place.bytes >= ppl::MULTIPLE_BYTES;
        let form = if ring { Features::MULTIPLE_PPLS } else { Features::PPL };
        let others = self.superblock.features.without(Features::ANY_PPL);
        self.superblock.features = others.with(form);
        self.stale_ppl = true;
    }

    /// Zeros the member's partial parity log: first, durably, its start.
    pub(crate) async fn void_ppl(&self, reach: &MemberIo) -> io::Result<()> {
        let Some(place) = self.ppl_place() else { return Ok(()) };
        let writer = self.writer(reach);
        writer.write(place.offset, &[0; ppl::HEADER_BYTES as usize], true).await?;
        writer.zero(place.offset + ppl::HEADER_BYTES..place.offset + place.bytes, false).await
    }

    /// Writes an empty unit to the start of a log whose zeros are durable.
    pub(crate) async fn write_empty_ppl(
        &self,
        reach: &MemberIo,
        set_uuid: &Uuid,
    ) -> io::Result<()> {
        let Some(place) = self.ppl_place() else { return Ok(()) };
        let signature = ppl::signature(set_uuid, parity::crc32c);
        let empty = PplHeader { signature, generation: 0, entries: Vec::new() };
        self.writer(reach).write(place.offset, &empty.print(parity::crc32c), false).await
    }
}
