//! Reads the members' private areas: the crash-consistency policy, and the rows that a crash may
//! have torn.
//!
//! Owns the reading of headers, and the decision whether the log is trusted. Every member with a
//! slot must have a header that matches its superblock, and a log without a gap ([`logs`]).
//! Otherwise another program has run the array, or something is damaged, and only md's rules apply.
//! Never writes.

use std::collections::BTreeMap;
use std::ops::Range;

use io::broken::{Broken, broken};
use layout::md::superblock::Role;
use layout::md::{Features, Superblock, Uuid};
use layout::private::journal::{JournalNote, JournalUse};
use layout::private::{self, Consistency, HEADER_BYTES, LogShape, PrivateHeader};
use layout::{Configuration, Family, Geometry, MemberId, RangeSet, Slot};
use log::expected::Expected;
use log::reader::{Holders, Untrusted};
use log::solve::TornRow;

use crate::assemble::group::Members;
use crate::assemble::journal::Journals;
use crate::assemble::logs::Log;
use crate::assemble::probe::MemberProbe;
use crate::assemble::slots::Assigned;
use crate::assemble::{logs, ppl};
use crate::commit::member_io::{MemberIo, all};
use crate::commit::private::Zones;
use crate::commit::record;

/// The contents of the private areas.
pub(crate) struct Intents {
    /// The crash-consistency policy that the user chose.
    pub(crate) consistency: Consistency,
    /// The history identity that the members share; all zeros without one.
    pub(crate) history_id: Uuid,
    /// The members have headers, which must be maintained.
    pub(crate) kept: bool,
    /// Rows that may be torn, or the reason why the log is not trusted.
    pub(crate) torn_rows: Result<Vec<TornRow>, String>,
    /// The member that makes the log untrusted: the others' logs may be trusted without it.
    pub(crate) unreadable_log: Option<MemberId>,
    /// The checksums of blocks in the log.
    pub(crate) expected: Expected,
    /// The start of the range without valid checksums, if the array keeps any; 0 if another program
    /// has run it.
    pub(crate) checksums_from: Option<u64>,
    /// See [`layout::private::PrivateHeader::checksums_torn`].
    pub(crate) checksums_torn: bool,
    /// Some ranges were unverified before this session, and no log can verify them.
    pub(crate) unverified: bool,
    /// Lost array ranges, apart from the members' bad blocks.
    pub(crate) bad: RangeSet,
    /// The array's journal device, by the members' headers.
    pub(crate) journal: Option<JournalNote>,
    /// The zones of the logs that were read, and the shape of each member's log. Headers keep these
    /// values until the logs are replayed.
    pub(crate) zones: Zones,
    shapes: BTreeMap<MemberId, LogShape>,
    /// See [`Private::log_bound`](crate::commit::private::Private::log_bound).
    pub(crate) log_bound: Option<u64>,
}

impl Intents {
    /// True if the log can repair every write that was interrupted by the crash.
    pub(super) fn can_resolve(&self) -> bool {
        self.torn_rows.is_ok() && !self.unverified
    }

    /// Adds the session of its log to each record, and the epoch in which the member joined that
    /// session.
    pub(super) fn with_sessions(
        &self,
        mut records: BTreeMap<MemberId, record::Record>,
    ) -> BTreeMap<MemberId, record::Record> {
        for (id, record) in &mut records {
            let Some(shape) = self.shapes.get(id) else { continue };
            record.session = shape.session;
            record.since = Some(shape.since).filter(|_| !broken(Broken::SinceForgotten));
        }
        records
    }
}

/// Reads headers, and after a crash also the log.
pub(super) async fn load(
    reach: &MemberIo,
    members: &Members,
    assigned: &Assigned,
    geometry: &Geometry,
    journals: &Journals,
) -> Intents {
    let reads = members.counted();
    let reads = reads.map(|(_, found, _)| async move { (found, read_header(reach, found).await) });
    let headers: Vec<_> = all(reads).await;
    let latest = in_force(&headers);
    let superblock = &members.latest().superblock;
    let policy = latest.map(|header| header.consistency);
    let configuration = &assigned.configuration;
    let mut intents = Intents {
        consistency: by_features(superblock.features, policy),
        history_id: latest.map_or(Uuid([0; 16]), |header| header.history_id),
        kept: latest.is_some(),
        torn_rows: Err("it has no intent log".to_string()),
        unreadable_log: None,
        expected: Expected::default(),
        checksums_from: latest.and_then(|header| header.checksums_from),
        checksums_torn: latest.is_some_and(|header| header.checksums_torn),
        unverified: false,
        journal: latest.and_then(|header| header.journal),
        bad: headers.iter().flat_map(|(_, header)| header.bad.iter().cloned()).collect(),
        zones: Zones::default(),
        shapes: BTreeMap::new(),
        log_bound: log_bound(latest, configuration, geometry),
    };
    if !all_valid(&headers, configuration) && !broken(Broken::ForeignChecksums) {
        (intents.checksums_from, intents.checksums_torn) =
            (intents.checksums_from.map(|_| 0), false);
    }
    let wanted = geometry.family() == Family::Parity && intents.consistency.closes_hole();
    if !wanted || superblock.is_clean() {
        return intents;
    }
    if intents.consistency == Consistency::Ppl {
        intents.unverified = never_in_sync(&headers, assigned, superblock);
        intents.torn_rows = ppl::load(reach, members, assigned, geometry).await;
        return intents;
    }
    let Some(mut logs) = logs_of(&headers, configuration, &mut intents) else { return intents };
    // A session begins with a commit, before anything is logged and after the previous one was
    // replayed. A member that missed that commit has no records of the session.
    let newest = logs.iter().max_by_key(|(_, _, header)| header.events);
    if newest.is_none_or(|(_, _, header)| header.log.session == 0) {
        intents.torn_rows = Err("nothing was logged yet".to_string());
        return intents;
    }
    let run = newest.map_or(0, |(_, _, header)| header.log.run);
    logs.retain(|(_, _, header)| header.log.run == run);
    let shape = logs.first().map_or(LogShape::default(), |(_, _, header)| header.log);
    intents.zones = Zones { count: shape.zones, bytes: shape.zone_bytes, run, form: shape.form };
    let since = logs.iter().map(|(_, slot, header)| (*slot, header.log.since)).collect();
    let holders = Holders { configuration, since };
    let read = match logs_to_read(logs, journals) {
        Ok(logs) => logs::read(reach, &logs, &holders, geometry).await,
        Err(why) => Err(why.into()),
    };
    match read {
        Ok((torn_rows, expected)) => {
            (intents.torn_rows, intents.expected) = (Ok(torn_rows), expected)
        }
        Err(Untrusted { why, of }) => (intents.torn_rows, intents.unreadable_log) = (Err(why), of),
    }
    intents
}

/// See [`Private::log_bound`](crate::commit::private::Private::log_bound).
fn log_bound(
    latest: Option<&PrivateHeader>,
    configuration: &Configuration,
    geometry: &Geometry,
) -> Option<u64> {
    let last = latest.map(|header| u64::from(header.log.zones) * header.log.zone_bytes);
    let whole = configuration.assigned().count() == geometry.slots();
    last.filter(|&bytes| bytes > 0 && !whole)
}

/// The header in force: it must match its superblock, because another one may belong to a commit
/// that never completed.
fn in_force<'a>(headers: &'a [(&MemberProbe, Header)]) -> Option<&'a PrivateHeader> {
    let valid = headers.iter().filter_map(|(_, header)| header.valid.as_ref());
    let latest = headers.iter().filter_map(|(_, header)| header.latest.as_ref());
    let newest = valid.max_by_key(|header| header.events);
    newest.or_else(|| latest.max_by_key(|header| header.events))
}

/// The logs of members in the last session: on these members, or on the journal device.
///
/// # Errors
/// The reason why the device has no such log.
fn logs_to_read<'a>(
    members: Vec<(&'a MemberProbe, Slot, &PrivateHeader)>,
    journals: &'a Journals,
) -> Result<Vec<Log<'a>>, String> {
    let first = members.first().map(|(_, _, header)| (header.journal, header.log));
    let Some((Some(note @ JournalNote { used: JournalUse::Logging, .. }), shape)) = first else {
        return Ok(members.into_iter().map(Log::of_member).collect());
    };
    match journals.log_of(&note, &shape) {
        Ok((found, log)) => Ok(vec![Log::of_device((&found.name, &*found.disk), log, shape)]),
        Err(_) if broken(Broken::AbsentJournalIgnored) => Ok(Vec::new()),
        Err(why) => Err(why),
    }
}

/// The members with logs to read; `None`, with the reason in `intents`, if a required one is
/// invalid.
fn logs_of<'a>(
    headers: &'a [(&'a MemberProbe, Header)],
    configuration: &Configuration,
    intents: &mut Intents,
) -> Option<Vec<(&'a MemberProbe, Slot, &'a PrivateHeader)>> {
    let mut logs = Vec::new();
    for (found, header) in headers {
        let id = MemberId(found.superblock.device.number);
        let Some((slot, _)) = configuration.slot_of(id) else { continue };
        if !matches!(found.superblock.own_role(), Role::Slot(_)) {
            // A spare until a commit that it has missed: its contents are not valid yet.
            continue;
        }
        let foreign = header.latest.as_ref().filter(|_| broken(Broken::ForeignLog));
        let Some(valid) = header.valid.as_ref().or(foreign) else {
            let name = &found.name;
            intents.torn_rows = Err(format!("the private area of {name} {}", header.trouble()));
            // A program that runs an array writes to all its members. If the freshest one is ours,
            // only this one is damaged.
            let damaged = header.error.is_some() || is_ours(headers);
            intents.unreadable_log = damaged.then_some(id);
            return None;
        };
        intents.unverified |= valid.unverified;
        intents.shapes.insert(id, valid.log);
        logs.push((*found, slot, valid));
    }
    Some(logs)
}

/// True if Parapet wrote the freshest superblock: it has a matching header.
fn is_ours(headers: &[(&MemberProbe, Header)]) -> bool {
    let freshest = headers.iter().map(|(found, _)| found.superblock.events).max();
    let mut valid = headers.iter().filter(|(_, header)| header.valid.is_some());
    valid.any(|(found, _)| Some(found.superblock.events) == freshest)
}

/// True if every member with a slot has a header that matches its superblock. A spare that missed
/// the commit with its slot has none yet. An unreadable header is ignored, because the others hold
/// the same values.
fn all_valid(headers: &[(&MemberProbe, Header)], configuration: &Configuration) -> bool {
    let sits = |found: &MemberProbe| {
        let id = MemberId(found.superblock.device.number);
        configuration.slot_of(id).is_some() && matches!(found.superblock.own_role(), Role::Slot(_))
    };
    let readable = headers.iter().filter(|(found, header)| sits(found) && header.error.is_none());
    let mut valid = readable.map(|(_, header)| header.valid.is_some()).peekable();
    valid.peek().is_some() && valid.all(|valid| valid)
}

/// True if ranges were unverified before the session of md's log, which cannot verify them.
fn never_in_sync(
    headers: &[(&MemberProbe, Header)],
    assigned: &Assigned,
    superblock: &Superblock,
) -> bool {
    let sits = |found: &MemberProbe| {
        let id = MemberId(found.superblock.device.number);
        assigned.configuration.slot_of(id).is_some()
    };
    // After a kernel's session, a checkpoint shows that some range was never in sync.
    headers.iter().filter(|(found, _)| sits(found)).any(|(_, header)| {
        let valid = header.valid.as_ref();
        valid.map_or(superblock.resync_offset != 0, |header| header.unverified)
    })
}

/// The header of a member.
struct Header {
    latest: Option<PrivateHeader>,
    valid: Option<PrivateHeader>,
    /// Its list of bad blocks.
    bad: Vec<Range<u64>>,
    /// The error of reading it.
    error: Option<io::Error>,
}

impl Header {
    fn trouble(&self) -> String {
        match (&self.error, &self.latest) {
            (Some(error), _) => format!("cannot be read: {error}"),
            (None, Some(_)) => {
                "does not match its superblock: another system has run the array since".to_string()
            }
            (None, None) => "has no header: it was overwritten, or never written".to_string(),
        }
    }
}

async fn read_header(reach: &MemberIo, found: &MemberProbe) -> Header {
    let none = Header { latest: None, valid: None, bad: Vec::new(), error: None };
    let Some(bounds) = found.map.private.clone() else { return none };
    match read_copies(reach, found, bounds.start).await {
        Err(error) => Header { error: Some(error), ..none },
        Ok((copies, unread)) => {
            let valid = private::valid(&copies, &found.superblock, &bounds, parity::crc32c);
            let bad = match &valid {
                Some(header) if header.bad.count > 0 && !broken(Broken::LostListUnread) => {
                    read_bad(reach, found, header).await
                }
                _ => Ok(Vec::new()),
            };
            let latest = private::latest(&copies, &found.superblock.set_uuid, parity::crc32c);
            match bad {
                // The unreadable copy may be the valid one.
                Ok(bad) => {
                    let error = unread.filter(|_| valid.is_none());
                    Header { latest, valid, bad, error }
                }
                Err(error) => Header { latest, valid: None, bad: Vec::new(), error: Some(error) },
            }
        }
    }
}

/// Both copies of a header, one after the other; a copy lost to a bad sector is left out.
///
/// # Errors
/// If neither can be read, or after an error other than a bad sector.
async fn read_copies(
    reach: &MemberIo,
    found: &MemberProbe,
    start: u64,
) -> io::Result<(Vec<u8>, Option<io::Error>)> {
    let (mut copies, mut unread) = (Vec::new(), None);
    for at in [start, start + HEADER_BYTES] {
        match reach.read(&*found.disk, at..at + HEADER_BYTES).await {
            Ok(copy) => copies.extend(copy),
            Err(why) => {
                let lost = why.is_medium();
                if !lost || unread.is_some() {
                    return Err(why);
                }
                copies.resize(copies.len() + HEADER_BYTES as usize, 0);
                unread = Some(why);
            }
        }
    }
    Ok((copies, unread))
}

/// The array's bad blocks, by one member's list.
async fn read_bad(
    reach: &MemberIo,
    found: &MemberProbe,
    header: &PrivateHeader,
) -> io::Result<Vec<Range<u64>>> {
    let damaged = || io::Error::refused("its list of bad blocks is damaged");
    let place = header.bad_list().ok_or_else(damaged)?;
    let bytes = reach.read(&*found.disk, place).await?;
    private::bad::parse(&bytes, header.bad, parity::crc32c).ok_or_else(damaged)
}

/// The policy by the superblock's features, or by a header where the features leave it open.
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
