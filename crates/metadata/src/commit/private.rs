//! The headers of the members' private areas, and the session of the intent log.
//!
//! Owns the decision when a header is written: before each superblock, and durable together with
//! the other structures. So a superblock of ours always has a matching one (`layout::private` has
//! the rule).

use std::ops::Range;

use io::broken::{Broken, broken};
use layout::md::{Superblock, Timestamp, Uuid};
use layout::private::bad::{self, BadList};
use layout::private::journal::JournalNote;
use layout::private::log::{BATCH_ALIGNMENT, Form};
use layout::private::{Consistency, HEADER_BYTES, LogShape, PrivateHeader};
use layout::{Configuration, MemberId};
use log::{LogPlace, LogSetup, least_zone};

use crate::commit::member_io::{MemberIo, all};
use crate::commit::record::Record;
use crate::commit::{Failures, MetadataWriter};

/// The zones of a log. md's log has none, only a size.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Zones {
    pub(crate) count: u32,
    pub(crate) bytes: u64,
    /// See [`LogShape::run`].
    pub(crate) run: u64,
    /// The form of the batches.
    pub(crate) form: Form,
}

/// The header contents common to all members.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Private {
    /// The crash-consistency policy in the headers.
    pub(crate) consistency: Consistency,
    /// The policy from the beginning of the session on.
    pub(crate) next_consistency: Consistency,
    /// Differs between the halves of a split brain.
    pub(crate) history_id: Uuid,
    /// The members have headers.
    pub(crate) kept: bool,
    /// They had headers when the session began. A former member without a header is rebuilt in full
    /// then, also one that left before there were headers.
    pub(crate) kept_before: bool,
    /// The zones of each log in the headers; 0 zones without a log.
    pub(crate) log: Zones,
    /// The zones from the beginning of the session on.
    pub(crate) next_log: Zones,
    /// The most bytes of each log if a slot was empty at the start: those of the last session. An
    /// absent member may have less room for a log than the present ones, and could not return
    /// beside a larger log.
    pub(crate) log_bound: Option<u64>,
    /// Some parity may be torn by a crash.
    pub(crate) unverified: bool,
    /// See [`PrivateHeader::checksums_from`].
    pub(crate) checksums_from: Option<u64>,
    /// See [`PrivateHeader::checksums_torn`].
    pub(crate) checksums_torn: bool,
    /// The journal device in the headers. From the beginning of the session on, the configuration
    /// decides whether it has the log.
    pub(crate) journal: Option<JournalNote>,
    /// Its entry from then on.
    pub(crate) next_journal: Option<JournalNote>,
    /// The session has begun.
    pub(crate) begun: bool,
}

impl MetadataWriter {
    /// Opens the intent log for a session, with this many zones of at most `most_bytes` each. The
    /// session begins with [`MetadataWriter::begin_session`]; the next commit invalidates the
    /// previous log. `None` if the array has no log.
    ///
    /// # Panics
    /// If there is no room for so many zones: see `MetadataWriter::zones_possible`.
    pub fn open_log(&self, zones: usize, most_bytes: u64) -> Option<LogSetup> {
        let mut private = self.private.get();
        if !private.next_consistency.closes_hole() || self.sealed.is_some() {
            return None;
        }
        if private.next_consistency == Consistency::Ppl {
            assert_eq!(zones, 1, "md's log is written by one shard");
            let next_log = Zones { bytes: self.ppl_bytes(most_bytes), ..Zones::default() };
            self.private.set(Private { kept: true, next_log, ..private });
            return Some(self.ppl_setup());
        }
        let share = self.log_bytes()? / zones as u64;
        let zone_bytes = share.min(most_bytes) / BATCH_ALIGNMENT * BATCH_ALIGNMENT;
        assert!(zone_bytes >= self.least_zone(), "no room for {zones} zones");
        let form = Form::of(self.geometry.data_count());
        let (count, run) = (zones as u32, self.session());
        private.next_log = Zones { count, bytes: zone_bytes, run, form };
        self.journal.as_ref().inspect(|journal| journal.session.set(self.session()));
        private.kept = true;
        self.private.set(private);
        let mut state = self.state.borrow_mut();
        state.records.values_mut().for_each(|record| record.next_session = self.session());
        drop(state);
        if broken(Broken::RecordBeforeResolved) {
            self.begin_session();
        }
        let data = private.next_consistency == Consistency::Journal;
        let checksums = private.checksums_from.is_some();
        Some(LogSetup::Zone { zone_bytes, data, checksums, device: self.journal.is_some() })
    }

    /// Begins the session: the previous log is replayed.
    pub fn begin_session(&self) {
        let private = self.private.get();
        let (log, consistency) = (private.next_log, private.next_consistency);
        let log = if consistency.has_log() { log } else { Zones::default() };
        let journal = private.next_journal;
        self.private.set(Private { log, consistency, journal, begun: true, ..private });
        let mut state = self.state.borrow_mut();
        for record in state.records.values_mut() {
            record.session = record.next_session;
            record.since = None;
            if consistency == Consistency::Ppl {
                record.begin_ppl();
            }
        }
    }

    /// The most shards that may log; `None` if the array has no log.
    pub(crate) fn zones_possible(&self) -> Option<u64> {
        if self.keeps_ppl() && self.sealed.is_none() {
            // Only the last batch in a member's log is used.
            return Some(1);
        }
        let logs = self.private.get().next_consistency.has_log() && self.sealed.is_none();
        let bytes = self.log_bytes().filter(|_| logs)?;
        Some(bytes / self.least_zone())
    }

    fn least_zone(&self) -> u64 {
        let journal = self.private.get().next_consistency == Consistency::Journal;
        least_zone(self.geometry.slots(), journal)
    }

    /// The size available for the log on every member, and on the journal device; `None` if it is
    /// too small for a zone. After the loss of the device, the members have the same zones.
    fn log_bytes(&self) -> Option<u64> {
        let state = self.state.borrow();
        let each = state.records.values().map(|record| record.map.log_bytes());
        let device = self.journal.as_ref().map(|journal| journal.log.end - journal.log.start);
        let bound = self.private.get().log_bound;
        each.chain(device).chain(bound).min().filter(|&bytes| bytes >= self.least_zone())
    }

    /// Records, from the next commit on, whether some parity is unsynced and not covered by the
    /// log.
    pub fn set_unverified(&self, unverified: bool) {
        self.private.set(Private { unverified, ..self.private.get() });
    }

    /// Records, from the next commit on, that the checksums are valid below this array offset;
    /// `u64::MAX`: all of them. Those above it are torn from their blocks by a crash if `torn`,
    /// else meaningless. No effect if the array keeps none.
    pub fn set_checksums_from(&self, offset: u64, torn: bool) {
        let private = self.private.get();
        let checksums_from = private.checksums_from.map(|_| offset);
        self.private.set(Private { checksums_from, checksums_torn: torn, ..private });
    }

    /// The start of a member's checksum table, if the array keeps checksums.
    pub fn table_place(&self, id: MemberId) -> Option<u64> {
        self.private.get().checksums_from?;
        let state = self.state.borrow();
        Some(state.records.get(&id)?.map.private_parts()?.checksums.start)
    }

    /// True if a member with this record has room for the array's checksums, if there are any.
    pub(super) fn has_room_for_checksums(&self, record: &Record) -> bool {
        self.private.get().checksums_from.is_none() || record.has_table()
    }

    /// Adds an array range to the bad list, or removes it, from the next commit on. False if the
    /// list has no room for it.
    pub fn set_bad(&self, range: Range<u64>, lost: bool) -> bool {
        let end = self.geometry.capacity();
        assert!(range.start < range.end && range.end <= end, "{range:?} beyond the array ({end})");
        let mut state = self.state.borrow_mut();
        let mut next = state.bad.clone();
        if lost {
            next.insert(range)
        } else {
            next.remove(range)
        }
        let fits = next.count() <= bad::MOST_RANGES;
        if fits {
            state.bad = next;
        }
        fits
    }

    /// The number of array bytes on the bad list.
    pub fn bad_array_bytes(&self) -> u64 {
        self.state.borrow().bad.bytes()
    }

    /// Bytes that a member's disk has for the array's data; 0 on a journal device.
    pub fn data_bytes(&self, id: MemberId) -> u64 {
        self.state.borrow().records.get(&id).map_or(0, |record| record.map.data_bytes())
    }

    /// The place of a member's log, if the array has one.
    pub fn log_place(&self, id: MemberId) -> Option<LogPlace> {
        if id == MemberId::JOURNAL {
            return self.journal_place();
        }
        let state = self.state.borrow();
        let record = state.records.get(&id)?;
        if self.keeps_ppl() {
            let bytes = self.private.get().next_log.bytes;
            return record.ppl_place().map(|place| LogPlace { bytes, ..place });
        }
        let log = record.map.private_parts().filter(|_| self.private.get().next_log.count > 0)?.log;
        let bytes = log.end - log.start;
        Some(LogPlace { offset: log.start, bytes, session: record.next_session })
    }

    /// True if a member with this record has room for the log of this session.
    pub(super) fn has_room_for_log(&self, record: &Record) -> bool {
        if self.keeps_ppl() {
            let least = self.private.get().next_log.bytes;
            return record.ppl_place().is_some_and(|place| place.bytes >= least);
        }
        let Zones { count, bytes, .. } = self.private.get().next_log;
        let parts = record.map.private_parts();
        let room = parts.map_or(0, |parts| parts.log.end - parts.log.start);
        room >= u64::from(count) * bytes
    }

    /// A session number that no log has yet.
    pub(super) fn session(&self) -> u64 {
        let mut bytes = [0; 8];
        (self.random)(&mut bytes);
        if broken(Broken::SessionReused) { 1 } else { u64::from_le_bytes(bytes).max(1) }
    }

    /// Writes the headers for superblocks with `events` and `utime`.
    pub(super) async fn write_headers(
        &self,
        members: Vec<(MemberId, Record)>,
        configuration: &Configuration,
        events: u64,
        utime: Timestamp,
    ) -> Failures {
        let private = self.private_of(configuration);
        if !private.kept {
            return Failures::new();
        }
        let bad = self.state.borrow().bad.clone();
        let printed = bad::print(bad.iter(), parity::crc32c);
        let (list, found) = &printed.unwrap_or_default();
        let assigned = |mut member: (MemberId, Record)| {
            let epoch = configuration.epoch.0 as u32;
            if configuration.slot_of(member.0).is_some() && member.1.since.is_none() {
                member.1.since = Some(epoch);
                let mut state = self.state.borrow_mut();
                state.records.get_mut(&member.0).into_iter().for_each(|r| r.since = Some(epoch));
            }
            member
        };
        let writes = members.into_iter().map(assigned).map(|(id, record)| async move {
            let slot = configuration.slot_of(id).map(|(slot, _)| slot.0.into());
            let superblock = Superblock { events, utime, ..record.superblock.clone() };
            let written = record.write_header(&self.reach, &private, &superblock, slot, *found);
            let written = match written.await {
                Ok(()) if found.count > 0 => record.write_bad_list(&self.reach, events, list).await,
                other => other,
            };
            written.map_err(|why| (id, why)).err()
        });
        all(writes).await.into_iter().flatten().collect()
    }
}

impl Record {
    /// True if there is room for the checksum table of all its data.
    pub(crate) fn has_table(&self) -> bool {
        self.map.private_parts().is_some_and(|parts| !parts.checksums.is_empty())
    }

    /// Writes the header for `superblock`. No effect without a private area.
    pub(crate) async fn write_header(
        &self,
        reach: &MemberIo,
        private: &Private,
        superblock: &Superblock,
        slot: Option<u16>,
        bad: BadList,
    ) -> io::Result<()> {
        let parts = self.map.private.clone().zip(self.map.private_parts());
        let Some((bounds, parts)) = parts else { return Ok(()) };
        let log = LogShape {
            session: self.session,
            zones: private.log.count,
            zone_bytes: private.log.bytes,
            run: private.log.run,
            since: self.since.unwrap_or(u32::MAX),
            form: private.log.form,
        };
        let zones = u64::from(log.zones) * log.zone_bytes;
        assert!(zones <= parts.log.end - parts.log.start, "zones beyond the end of the log");
        let at = bounds.start + PrivateHeader::copy(superblock.events) * HEADER_BYTES;
        assert!(at + HEADER_BYTES <= parts.log.start, "a header that overwrites the log");
        let (last, events) = (self.superblock.events, superblock.events);
        assert!(events >= last, "the header of event {events} would replace one in force ({last})");
        let header = PrivateHeader {
            set_uuid: superblock.set_uuid,
            device_uuid: superblock.device.uuid,
            history_id: private.history_id,
            events: superblock.events,
            utime: superblock.utime,
            slot,
            bounds,
            parts,
            log,
            consistency: private.consistency,
            unverified: private.unverified,
            bad,
            checksums_from: private.checksums_from,
            checksums_torn: private.checksums_torn,
            journal: private.journal,
        };
        self.writer(reach).write(at, &header.print(parity::crc32c), false).await
    }

    /// Writes the list of the array's bad blocks for the header with `events`.
    async fn write_bad_list(&self, reach: &MemberIo, events: u64, list: &[u8]) -> io::Result<()> {
        let Some(parts) = self.map.private_parts() else { return Ok(()) };
        assert!(list.len() as u64 <= bad::LIST_BYTES, "a list that overwrites the other copy");
        let at = parts.history.start + PrivateHeader::copy(events) * bad::COPY_BYTES;
        let end = at + list.len() as u64;
        assert!(end <= parts.history.end, "a list up to {end} would overwrite the checksums");
        self.writer(reach).write(at, list, false).await
    }
}
