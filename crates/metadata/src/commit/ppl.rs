//! The members' partial parity logs in md's form: their places, and their initialization.
//!
//! A log is emptied before a session writes to it, and before its member gets a slot. All of it is
//! zeroed, or old units could be taken for newer ones.

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
        let stale = self.records(assigned, failures).into_iter();
        let stale = stale.filter(|(_, record)| record.stale_ppl && self.keeps_ppl());
        let writes = stale.map(|(id, record)| async move {
            (id, record.write_empty_ppl(&self.reach, &self.facts.uuid).await)
        });
        let mut failed = Failures::new();
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

    /// Empties the member's partial parity log.
    pub(crate) async fn write_empty_ppl(
        &self,
        reach: &MemberIo,
        set_uuid: &Uuid,
    ) -> io::Result<()> {
        let Some(place) = self.ppl_place() else { return Ok(()) };
        let writer = self.writer(reach);
        writer.zero(place.offset..place.offset + place.bytes, false).await?;
        let signature = ppl::signature(set_uuid, parity::crc32c);
        let empty = PplHeader { signature, generation: 0, entries: Vec::new() };
        writer.write(place.offset, &empty.print(parity::crc32c), false).await
    }
}
