//! What the members' private areas say: how the array stands against the write hole, and which rows
//! a crash may have cut.
//!
//! Owns the reading of headers and logs, and the decision whether a log can be believed: every
//! member that holds a slot must have a header that goes with its superblock, and a log without a
//! gap. Otherwise somebody else has run the array, or something is damaged, and md's rules are all
//! there is. Never writes.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;

use io::Disk;
use layout::md::superblock::Role;
use layout::md::{Features, Superblock, Uuid};
use layout::plan::Roles;
use layout::private::journal::{JournalNote, JournalUse};
use layout::private::log::{BATCH_ALIGNMENT, Batch, Entry, Record, Syndrome};
use layout::private::{self, Consistency, HEADERS_BYTES, LogShape, PrivateHeader};
use layout::{Family, Geometry, Slot, Stripe};

use super::journal::Journals;
use super::ppl;
use super::seats::Seated;
use super::sighting::Sighting;
use super::together::Members;
use super::told::Told;
use crate::broken::{Broken, broken};
use crate::ledger::private::Zones;
use crate::ledger::reach::{Loaded, Reach, all};
use crate::ledger::record;
use crate::log::solve::{Cut, Partial};
use crate::member::MemberId;
use crate::ranges::RangeSet;
use crate::view::Configuration;

/// What the private areas say.
pub(crate) struct Intents {
    /// How the array stands against the write hole, by the user's choice.
    pub(crate) consistency: Consistency,
    /// The history that its members share; all zeros if they tell none.
    pub(crate) history_id: Uuid,
    /// Its members have headers, which must be kept up.
    pub(crate) kept: bool,
    /// Rows that may be cut, if the log can be believed; else why not.
    pub(crate) cuts: Result<Vec<Cut>, String>,
    /// What the log says of the sums of blocks.
    pub(crate) told: Told,
    /// Where the checksums cease to count, if the array keeps any; 0 if somebody else has run it.
    pub(crate) sums_from: Option<u64>,
    /// Before this session there was doubt already that a log cannot remove.
    pub(crate) doubt: bool,
    /// Array ranges that are lost though no member's block is bad.
    pub(crate) bad: RangeSet,
    /// The array's journal device, as the members' headers say.
    pub(crate) journal: Option<JournalNote>,
    /// How the logs are divided that were looked at, and which session each member's is of.
    pub(crate) zones: Zones,
    sessions: BTreeMap<MemberId, u64>,
}

impl Intents {
    /// The records, each with the session of its log.
    pub(super) fn with_sessions(
        &self,
        mut records: BTreeMap<MemberId, record::Record>,
    ) -> BTreeMap<MemberId, record::Record> {
        for (id, record) in &mut records {
            record.session = self.sessions.get(id).copied().unwrap_or(0);
        }
        records
    }
}

/// The zones of one member's log, or of the journal device's.
struct MemberLog {
    /// `None`: the journal device, which has all that there is.
    slot: Option<Slot>,
    name: String,
    session: u64,
    bytes: Loaded,
}

/// Reads headers, and the log if the array was not shut down in order.
pub(super) async fn load(
    reach: &Reach,
    members: &Members,
    seated: &Seated,
    geometry: &Geometry,
    journals: &Journals,
) -> Intents {
    let reads = members.counted();
    let reads = reads.map(|(_, found, _)| async move { (found, read_header(reach, found).await) });
    let headers: Vec<_> = all(reads).await;
    // What goes with a superblock is in force; what does not may be a change that never was.
    let valid = headers.iter().filter_map(|(_, header)| header.valid.as_ref());
    let latest = headers.iter().filter_map(|(_, header)| header.latest.as_ref());
    let newest = valid.max_by_key(|header| header.events);
    let latest = newest.or_else(|| latest.max_by_key(|header| header.events));
    let superblock = &members.latest().superblock;
    let policy = latest.map(|header| header.consistency);
    let mut intents = Intents {
        consistency: by_features(superblock.features, policy),
        history_id: latest.map_or(Uuid([0; 16]), |header| header.history_id),
        kept: latest.is_some(),
        cuts: Err("it has no intent log".to_string()),
        told: Told::default(),
        sums_from: latest.and_then(|header| header.sums_from),
        doubt: false,
        journal: latest.and_then(|header| header.journal),
        bad: headers.iter().flat_map(|(_, header)| header.bad.iter().cloned()).collect(),
        zones: Zones::default(),
        sessions: BTreeMap::new(),
    };
    let configuration = &seated.configuration;
    if !all_valid(&headers, configuration) && !broken(Broken::ForeignSums) {
        intents.sums_from = intents.sums_from.map(|_| 0);
    }
    let wanted = geometry.family() == Family::Parity && intents.consistency.closes_hole();
    if !wanted || superblock.is_clean() {
        return intents;
    }
    if intents.consistency == Consistency::Ppl {
        intents.doubt = never_in_sync(&headers, seated, superblock);
        intents.cuts = ppl::load(reach, members, seated, geometry).await;
        return intents;
    }
    let Some(mut logs) = logs_of(&headers, configuration, &mut intents) else { return intents };
    // A session begins with a commit, before anything is logged and after all of the one before is
    // settled. Who missed that commit has nothing to tell.
    let newest = logs.iter().max_by_key(|(_, _, header)| header.events);
    if newest.is_none_or(|(_, _, header)| header.log.session == 0) {
        intents.cuts = Err("nothing was logged yet".to_string());
        return intents;
    }
    let run = newest.map_or(0, |(_, _, header)| header.log.run);
    logs.retain(|(_, _, header)| header.log.run == run);
    let shape = logs.first().map_or(LogShape::default(), |(_, _, header)| header.log);
    intents.zones = Zones { count: shape.zones, bytes: shape.zone_bytes, run };
    let read = match logs_to_read(logs, journals) {
        Ok(logs) => read_logs(reach, logs, configuration, geometry).await,
        Err(why) => Err(why),
    };
    match read {
        Ok((cuts, told)) => (intents.cuts, intents.told) = (Ok(cuts), told),
        Err(why) => intents.cuts = Err(why),
    }
    intents
}

/// A log to be read.
struct Log<'a> {
    found: (&'a str, &'a dyn Disk),
    /// Bytes from the start of the disk.
    log: Range<u64>,
    slot: Option<Slot>,
    shape: LogShape,
}

impl<'a> Log<'a> {
    fn of_member((found, slot, header): (&'a Sighting, Slot, &PrivateHeader)) -> Log<'a> {
        let (name, disk) = (&found.name[..], &*found.disk);
        let log = header.parts.log.clone();
        Log { found: (name, disk), log, slot: Some(slot), shape: header.log }
    }

    /// The number that its batches carry.
    fn session(&self) -> u64 {
        if self.slot.is_some() { self.shape.session } else { self.shape.run }
    }
}

/// Where the log lies of members that have the last session: on these, or on the journal device.
///
/// # Errors
/// Why the device has none.
fn logs_to_read<'a>(
    members: Vec<(&'a Sighting, Slot, &PrivateHeader)>,
    journals: &'a Journals,
) -> Result<Vec<Log<'a>>, String> {
    let first = members.first().map(|(_, _, header)| (header.journal, header.log));
    let Some((Some(note @ JournalNote { used: JournalUse::Logging, .. }), shape)) = first else {
        return Ok(members.into_iter().map(Log::of_member).collect());
    };
    match journals.log_of(&note, shape.run) {
        Ok((found, log)) => {
            Ok(vec![Log { found: (&found.name, &*found.disk), log, slot: None, shape }])
        }
        Err(_) if broken(Broken::AbsentJournalIgnored) => Ok(Vec::new()),
        Err(why) => Err(why),
    }
}

/// The members whose logs are to be read; `None`, and why, if one that must count does not.
fn logs_of<'a>(
    headers: &'a [(&'a Sighting, Header)],
    configuration: &Configuration,
    intents: &mut Intents,
) -> Option<Vec<(&'a Sighting, Slot, &'a PrivateHeader)>> {
    let mut logs = Vec::new();
    for (found, header) in headers {
        let id = MemberId(found.superblock.dev_number);
        let Some((slot, _)) = configuration.seat_of(id) else { continue };
        if !matches!(found.superblock.own_role(), Role::Slot(_)) {
            // It was a spare until a commit that it has missed: nothing of it counts yet.
            continue;
        }
        let foreign = header.latest.as_ref().filter(|_| broken(Broken::ForeignLog));
        let Some(valid) = header.valid.as_ref().or(foreign) else {
            let name = &found.name;
            intents.cuts = Err(format!("the private area of {name} {}", header.trouble()));
            return None;
        };
        intents.doubt |= valid.doubt;
        intents.sessions.insert(id, valid.log.session);
        logs.push((*found, slot, valid));
    }
    Some(logs)
}

/// Every member that has a seat has a header that goes with its superblock.
fn all_valid(headers: &[(&Sighting, Header)], configuration: &Configuration) -> bool {
    headers.iter().all(|(found, header)| {
        let id = MemberId(found.superblock.dev_number);
        header.valid.is_some() || configuration.seat_of(id).is_none()
    })
}

/// There was doubt before the session that md's log is of, which it cannot remove.
fn never_in_sync(
    headers: &[(&Sighting, Header)],
    seated: &Seated,
    superblock: &Superblock,
) -> bool {
    let sits = |found: &Sighting| {
        let id = MemberId(found.superblock.dev_number);
        seated.configuration.seat_of(id).is_some()
    };
    // Where a kernel ran it, a checkpoint says that something was never in sync.
    headers.iter().filter(|(found, _)| sits(found)).any(|(_, header)| {
        let valid = header.valid.as_ref();
        valid.map_or(superblock.resync_offset != 0, |header| header.doubt)
    })
}

/// The header of a member.
struct Header {
    latest: Option<PrivateHeader>,
    valid: Option<PrivateHeader>,
    /// The list of bad blocks that goes with it.
    bad: Vec<Range<u64>>,
    /// Reading it failed.
    error: Option<io::Error>,
}

impl Header {
    fn trouble(&self) -> String {
        match (&self.error, &self.latest) {
            (Some(error), _) => format!("cannot be read: {error}"),
            (None, Some(_)) => {
                "does not go with its superblock, which somebody else has written: another system \
                 has run the array since"
                    .to_string()
            }
            (None, None) => "has no header: it was overwritten, or never written".to_string(),
        }
    }
}

async fn read_header(reach: &Reach, found: &Sighting) -> Header {
    let none = Header { latest: None, valid: None, bad: Vec::new(), error: None };
    let Some(bounds) = found.map.private.clone() else { return none };
    let copies = reach.read(&*found.disk, bounds.start..bounds.start + HEADERS_BYTES).await;
    match copies {
        Err(error) => Header { error: Some(error), ..none },
        Ok(copies) => {
            let valid = private::valid(&copies, &found.superblock, &bounds, parity::crc32c);
            let bad = match &valid {
                Some(header) if header.bad.count > 0 && !broken(Broken::LostListUnread) => {
                    read_bad(reach, found, header).await
                }
                _ => Ok(Vec::new()),
            };
            let latest = private::latest(&copies, &found.superblock.set_uuid, parity::crc32c);
            match bad {
                Ok(bad) => Header { latest, valid, bad, error: None },
                Err(error) => Header { latest, valid: None, bad: Vec::new(), error: Some(error) },
            }
        }
    }
}

/// The array's bad blocks, as a member lists them.
async fn read_bad(
    reach: &Reach,
    found: &Sighting,
    header: &PrivateHeader,
) -> io::Result<Vec<Range<u64>>> {
    let damaged = || io::Error::refused("its list of bad blocks is damaged");
    let place = header.bad_list().ok_or_else(damaged)?;
    let bytes = reach.read(&*found.disk, place).await?;
    private::bad::parse(&bytes, header.bad, parity::crc32c).ok_or_else(damaged)
}

/// What the superblock's features mean, and, as far as they leave it open, what a header says.
fn by_features(features: Features, header: Option<Consistency>) -> Consistency {
    let header = header.filter(|&policy| policy != Consistency::Ppl);
    if features.intersects(Features::ANY_PPL) {
        Consistency::Ppl
    } else if let Some(policy) = header {
        policy
    } else if features.contains(Features::BITMAP) {
        Consistency::Bitmap
    } else {
        Consistency::Resync
    }
}

/// Reads every log and puts together what they say.
async fn read_logs(
    reach: &Reach,
    logs: Vec<Log<'_>>,
    configuration: &Configuration,
    geometry: &Geometry,
) -> Result<(Vec<Cut>, Told), String> {
    let shape = logs.first().map_or(LogShape::default(), |log| log.shape);
    let zone = |log: &Log<'_>| (log.shape.zones, log.shape.zone_bytes);
    if logs.iter().any(|log| zone(log) != (shape.zones, shape.zone_bytes)) {
        return Err("its members' logs are divided differently".to_string());
    }
    let (mut cuts, mut told) = (Vec::new(), Told::default());
    for zone in 0..shape.zones {
        let reads = logs.iter().map(|log| async move {
            let (name, disk) = log.found;
            let start = log.log.start + u64::from(zone) * shape.zone_bytes;
            let bytes = reach.load(disk, start..start + shape.zone_bytes).await;
            let bytes = bytes.map_err(|why| format!("the log of {name}: {why}"))?;
            let (slot, session, name) = (log.slot, log.session(), name.to_string());
            Ok::<_, String>(MemberLog { slot, name, session, bytes })
        });
        let logs = all(reads).await.into_iter().collect::<Result<Vec<_>, _>>()?;
        let (found, says) = zone_cuts(&logs, zone, configuration, geometry)?;
        cuts.extend(found);
        told.absorb(says);
    }
    Ok((cuts, told))
}

/// Where a batch has its sum.
const CRC: Range<usize> = 60..64;

/// A batch, and where it begins in its member's zone.
pub(crate) type Found = (Batch, usize);

/// The batches of a session that can be read in the bytes of a zone, by sequence number.
pub(crate) fn scan(zone_bytes: &[u8], session: u64, zone: u32) -> BTreeMap<u64, Found> {
    let mut found = BTreeMap::new();
    let mut at = 0;
    while at < zone_bytes.len() {
        let bytes = &zone_bytes[at..];
        let used = Batch::bytes_of(bytes, session);
        let batch = used.and_then(|_| Batch::parse(&believed(bytes, used), parity::crc32c).ok());
        let step = match batch.filter(|batch| batch.header.zone == zone) {
            None => BATCH_ALIGNMENT,
            Some(batch) => {
                let step = batch.bytes.next_multiple_of(BATCH_ALIGNMENT);
                found.insert(batch.header.sequence, (batch, at));
                step
            }
        };
        at += step as usize;
    }
    found
}

/// The batches of a zone from `tail` on, of those that were `found` on one member.
///
/// # Errors
/// If one that must be there is not.
fn batches(
    log: &MemberLog,
    mut found: BTreeMap<u64, Found>,
    tail: u64,
) -> Result<BTreeMap<u64, Found>, String> {
    let Some((_, (newest, _))) = found.last_key_value() else { return Ok(found) };
    let newest = newest.header;
    found.retain(|&sequence, _| sequence >= tail);
    let mut at = newest;
    while at.previous >= tail && at.previous > 0 {
        match found.get(&at.previous) {
            Some((batch, _)) => at = batch.header,
            None if at.previous > newest.durable => break,
            None => return Err(format!("the log of {} is damaged", log.name)),
        }
    }
    Ok(found)
}

/// What each member has of a zone, as far as it matters, and where that begins. Whoever tells of
/// the latest tail is right for all: another one may have got nothing since but what a crash tore,
/// over a batch that does not matter any more.
fn each_batches(logs: &[MemberLog], zone: u32) -> Result<(u64, Vec<BTreeMap<u64, Found>>), String> {
    let found: Vec<_> = logs.iter().map(|log| scan(&log.bytes, log.session, zone)).collect();
    let tail_of = |found: &BTreeMap<u64, Found>| {
        found.last_key_value().map_or(0, |(_, (newest, _))| newest.header.tail)
    };
    let latest = found.iter().map(tail_of).max().unwrap_or(0);
    let each = logs.iter().zip(found).map(|(log, found)| {
        let tail = if broken(Broken::OwnTailOnly) { tail_of(&found) } else { latest };
        batches(log, found, tail)
    });
    Ok((latest, each.collect::<Result<_, _>>()?))
}

/// Bytes of a batch, as they are to be checked.
fn believed(bytes: &[u8], used: Option<u64>) -> Cow<'_, [u8]> {
    match used.map(|used| used as usize).filter(|_| broken(Broken::LogUnchecked)) {
        Some(used) if (CRC.end..=bytes.len()).contains(&used) => {
            let mut bytes = bytes.to_vec();
            bytes[CRC].fill(0);
            let crc = parity::crc32c(0, &bytes[..used]);
            bytes[CRC].copy_from_slice(&crc.to_le_bytes());
            Cow::Owned(bytes)
        }
        _ => Cow::Borrowed(bytes),
    }
}

/// One row of one batch, from each parity member that has it.
#[derive(Default)]
struct Both<'a> {
    p: Option<(&'a MemberLog, usize, &'a Entry)>,
    q: Option<(&'a MemberLog, usize, &'a Entry)>,
    /// How many members have it.
    members: usize,
}

/// The newest word on every row that a zone tells of.
fn zone_cuts(
    logs: &[MemberLog],
    zone: u32,
    configuration: &Configuration,
    geometry: &Geometry,
) -> Result<(Vec<Cut>, Told), String> {
    let (tail, each) = each_batches(logs, zone)?;
    let each: Vec<_> = logs.iter().zip(each).collect();
    let mut sequences: Vec<u64> =
        each.iter().flat_map(|(_, found)| found.keys().copied()).collect();
    sequences.sort_unstable();
    sequences.dedup();
    let mut covered: BTreeMap<u64, RangeSet> = BTreeMap::new();
    let (mut cuts, mut told) = (Vec::new(), Told::default());
    for sequence in sequences.into_iter().rev().take_while(|&sequence| sequence >= tail) {
        let mut rows: BTreeMap<(u64, u64), Both<'_>> = BTreeMap::new();
        for (log, found) in &each {
            let Some((batch, at)) = found.get(&sequence) else { continue };
            for entry in &batch.entries {
                check(&entry.record, geometry)?;
                told.add(entry, geometry);
                let both = rows.entry((entry.record.stripe, entry.record.start)).or_default();
                both.members += 1;
                match entry.record.syndrome {
                    Syndrome::P => both.p = Some((log, *at, entry)),
                    Syndrome::Q => both.q = Some((log, *at, entry)),
                }
            }
        }
        for both in rows.values().filter(|both| is_complete(both, logs, configuration, geometry)) {
            add_cuts(both, &mut covered, &mut cuts);
        }
    }
    Ok((cuts, told))
}

/// The record lies within the array.
fn check(record: &Record, geometry: &Geometry) -> Result<(), String> {
    let stripes = record.stripe.checked_add(record.stripes.into());
    let inside = stripes.is_some_and(|end| end <= geometry.stripes())
        && record.start + record.len <= geometry.chunk_bytes()
        && usize::from(record.first) + usize::from(record.count) <= geometry.data_count();
    let what = || format!("the log tells of stripe {}, which is not there", record.stripe);
    inside.then_some(()).ok_or_else(what)
}

/// True unless a member that must have the record too does not: then the batch never was durable,
/// and nothing was written under it.
fn is_complete(
    both: &Both<'_>,
    logs: &[MemberLog],
    configuration: &Configuration,
    geometry: &Geometry,
) -> bool {
    if logs.iter().any(|log| log.slot.is_none()) {
        // A batch is one write.
        return true;
    }
    let (_, _, entry) = both.p.or(both.q).expect("a row comes from a record");
    let record = &entry.record;
    if record.zeros {
        let in_sync = configuration.in_sync();
        let must = logs.iter().filter(|log| log.slot.is_some_and(|slot| in_sync.contains(slot)));
        return both.members >= must.count();
    }
    let paired = record.paired && !broken(Broken::PairUnchecked);
    if !paired || (both.p.is_some() && both.q.is_some()) {
        return true;
    }
    let roles = Roles::of(&geometry.stripe(Stripe(record.stripe)), geometry.slots());
    let other = if both.p.is_some() { roles.q } else { Some(roles.p) };
    let end = (record.stripe + 1) * geometry.stripe_bytes();
    !other.is_some_and(|slot| is_readable(configuration, slot, end))
}

/// True if the member of a slot holds all below this array offset.
pub(crate) fn is_readable(configuration: &Configuration, slot: Slot, end: u64) -> bool {
    let seat = &configuration.seats[slot.index()];
    seat.member.is_some() && seat.recovered.is_none_or(|below| end <= below)
}

/// Adds what no newer record has of a row.
fn add_cuts(both: &Both<'_>, covered: &mut BTreeMap<u64, RangeSet>, cuts: &mut Vec<Cut>) {
    let (log, at, entry) = both.p.or(both.q).expect("a row comes from a record");
    let record = entry.record;
    for stripe in record.stripe..record.stripe + u64::from(record.stripes) {
        let known = covered.entry(stripe).or_default();
        let mut open: RangeSet = std::iter::once(record.start..record.start + record.len).collect();
        known.iter().for_each(|range| open.remove(range));
        known.insert(record.start..record.start + record.len);
        for Range { start, end } in open.iter() {
            let within = (start - record.start) as usize..(end - record.start) as usize;
            let partial = |from: Option<(&MemberLog, usize, &Entry)>| {
                let (log, at, entry) = from?;
                if !entry.record.partial {
                    return Some(Partial::Zero);
                }
                let from = at + entry.syndrome.start;
                let bytes = &log.bytes[from + within.start..from + within.end];
                Some(Partial::Bytes(bytes.to_vec()))
            };
            let indices = (0..64).filter(|index| record.logged >> index & 1 == 1);
            let logged = indices.enumerate().map(|(place, index)| {
                let from = at + entry.data.start + place * record.len as usize;
                (index, log.bytes[from + within.start..from + within.end].to_vec())
            });
            cuts.push(Cut {
                record,
                stripe,
                start,
                len: end - start,
                checks: entry.checks.clone(),
                p: partial(both.p),
                q: partial(both.q),
                logged: logged.collect(),
            });
        }
    }
}
