//! Assembly: finds an array's members among disks, judges them, and finds the ranges to resync.
//!
//! Owns the decision whether an array may be started, and from which members. Writes nothing: the
//! keeper's first commit makes the decision durable.
//!
//! ```text
//!   candidates ──probe──▶ probes ──judge──▶ standings ──assign──▶ configuration
//!      (disks)          (superblocks)     (freshest, stale)      (slots, replacements, spares)
//!                 │                 │                     │
//!                 ▼                 ▼                     ▼
//!          no member, damaged  split brain         too few, dirty and degraded    refused or noted
//! ```
//!
//! A problem with a disk that is not needed becomes a [`Note`]. A problem that prevents the start
//! is an error with a hint.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use io::broken::{Broken, broken};
use io::{Boxed, Clock, Disk};
use layout::md::superblock::Role;
use layout::md::{Name, Uuid};
use layout::private::Consistency;
use layout::private::journal::JournalNote;
use layout::{Configuration, Family, Geometry, Level, MemberId, Raid0Layout, RangeSet};
use log::expected::Expected;
use log::solve::TornRow;

use crate::bounds::Bounds;
use crate::commit::journal_device::Journal;
use crate::commit::member_io::{MemberIo, all};
use crate::commit::private::{Private, Zones};
use crate::commit::record::Record;
use crate::commit::{Facts, Format, MetadataWriter, Opened, Random};
use crate::error::{Error, Result};

pub(crate) mod dirty;
pub(crate) mod group;
pub(crate) mod intents;
pub mod journal;
mod logs;
mod note;
mod policy;
mod ppl;
pub(crate) mod probe;
pub(crate) mod roles;
pub(crate) mod rolled_back;
pub(crate) mod shape;
pub(crate) mod slots;

pub use note::{Cause, Note};
pub use slots::READ_ONLY_AS_ASKED;

use group::Members;
use journal::{Found, Journals};
use probe::{MemberProbe, Reject};

/// A disk that may be a member.
#[derive(Clone)]
pub struct Candidate {
    /// The disk.
    pub disk: Rc<dyn Disk>,
    /// Path or address, for people.
    pub name: String,
}

impl Candidate {
    /// A disk and its name.
    pub fn new(disk: Rc<dyn Disk>, name: impl Into<String>) -> Candidate {
        Candidate { disk, name: name.into() }
    }
}

/// The array to assemble, and the accepted risks.
#[derive(Clone, Debug)]
pub struct Options {
    /// Only members of this array; others are ignored.
    pub uuid: Option<Uuid>,
    /// Only members of an array of this name (with or without the host); others are ignored.
    pub name: Option<String>,
    /// Start with fewer members than the array had when it was last used, if the level allows.
    pub degraded: bool,
    /// Start RAID 4, 5, 6 or 3.5 with a member missing although it was not shut down cleanly: data
    /// of the missing member may come out wrong.
    pub force_dirty_degraded: bool,
    /// Write nothing at all.
    pub read_only: bool,
    /// The crash-consistency policy from now on; `None`: unchanged.
    pub consistency: Option<Consistency>,
    /// Whether to keep checksums of all blocks from now on; `None`: unchanged.
    pub checksums: Option<bool>,
    /// The name of the candidate that becomes the array's journal device, if that is not its
    /// present one.
    pub journal: Option<String>,
    /// The layout of a RAID 0 whose superblock does not record it.
    pub raid0_layout: Option<Raid0Layout>,
    /// A member that does not answer within this time counts as missing.
    pub deadline: Duration,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            uuid: None,
            name: None,
            degraded: false,
            force_dirty_degraded: false,
            read_only: false,
            consistency: None,
            checksums: None,
            journal: None,
            raid0_layout: None,
            deadline: Bounds::default().deadline,
        }
    }
}

/// A member of an assembled array: it has a slot, or is a spare, or the journal device
/// ([`MemberId::JOURNAL`]).
#[derive(Clone)]
pub struct Joined {
    /// Its number in the array.
    pub id: MemberId,
    /// Path or address.
    pub name: String,
    /// The disk.
    pub disk: Rc<dyn Disk>,
    /// The start of its data, in bytes.
    pub data_offset: u64,
    /// Its bad blocks, in bytes from the start of its data.
    pub bad: RangeSet,
}

/// An array, ready to be started.
pub struct Assembly {
    /// The superblocks and the bitmap of its members.
    pub metadata: MetadataWriter,
    /// The mapping from array bytes to members.
    pub geometry: Geometry,
    /// The assignment of members to slots at the first epoch.
    pub configuration: Configuration,
    /// The state after the last session.
    pub recovered: Recovered,
    /// Every member that takes part, with the journal device last.
    pub members: Vec<Joined>,
    /// Notes for the user.
    pub notes: Vec<Note>,
    /// The reason if the array is read-only.
    pub read_only_reason: Option<String>,
}

/// The state after the last session, by the members and the intent log: ranges that are out of
/// sync, torn, lost or unverified.
pub struct Recovered {
    /// Array ranges in which parity or copies may disagree.
    pub unsynced: RangeSet,
    /// Unsynced ranges may have torn parity. The intent log cannot replay them, and the
    /// administrator has not accepted that.
    pub unverified: bool,
    /// The intent log lists all rows that may be torn.
    pub resolved: bool,
    /// Lost array ranges, apart from the members' bad blocks: errors until they are written.
    pub bad: RangeSet,
    /// Rows for replay at the start of the array.
    pub torn_rows: Vec<TornRow>,
    /// After a crash, with a member missing or an unreadable log: absent members and unreadable
    /// logs must be recorded as stale before any data is read. They may hold other records.
    pub record_first: bool,
    /// Checksums of blocks, from the intent log.
    pub expected: Expected,
    /// Array ranges without valid checksums; `None` if none are kept.
    pub unchecksummed: Option<RangeSet>,
    /// Of these, ranges where a crash may have separated blocks from their checksums.
    pub torn: RangeSet,
    /// The array was shut down cleanly: no write was in flight, whether or not all is in sync.
    pub clean: bool,
}

impl Assembly {
    /// The facts that never change while the array runs.
    pub fn facts(&self) -> &Facts {
        self.metadata.facts()
    }

    /// The most shards that the array can run with; `None` for any number. Each has a zone of its
    /// own in the intent log.
    pub fn most_shards(&self) -> Option<u64> {
        self.metadata.zones_possible()
    }

    /// The event count of the freshest superblock.
    pub fn events(&self) -> u64 {
        self.metadata.events()
    }
}

/// Assembles the array that these disks are members of. Writes nothing.
///
/// # Errors
/// The reason why it cannot be started, with disks, fields and numbers, and a hint. `Refused` where
/// an option can allow it, `DataLost` where more is missing than redundancy can recover.
pub fn assemble<'a>(
    candidates: Vec<Candidate>,
    options: &'a Options,
    clock: Rc<dyn Clock>,
    random: Random,
) -> Boxed<'a, Result<Assembly>> {
    Box::pin(assembled(candidates, options, clock, random))
}

async fn assembled(
    candidates: Vec<Candidate>,
    options: &Options,
    clock: Rc<dyn Clock>,
    random: Random,
) -> Result<Assembly> {
    let reach = MemberIo::within(Rc::clone(&clock), options.deadline);
    let (mut members, journals) = gather(&reach, candidates, options).await?;
    let geometry = shape::of_array(&members, options)?;
    let loaded_logs = load_logs(&reach, &mut members, &geometry, &journals, options).await?;
    let LoadedLogs { mut assigned, mut loaded, intents } = loaded_logs;
    let dirty = loaded.unsynced.clone();
    loaded.permit(&members, &mut assigned, &geometry, options, &intents)?;
    let shortened = dirty::Loaded::shorten_copies(&dirty, &mut assigned, &geometry);
    let consistency = options.consistency.unwrap_or(intents.consistency);
    policy::permit((intents.consistency, consistency), &intents)?;
    let found = policy::align(&mut loaded, (&members, &assigned))?;
    let slot_order = (&members, &mut assigned);
    policy::adopt(&mut loaded, slot_order, &geometry, (&intents, consistency), options)?;
    let (latest, format) = (members.latest().superblock.clone(), members.latest().format);
    let header = loaded.bits.as_ref().map(crate::bitmap::Bits::header);
    // A checkpoint does not count as clean: the next write must be recorded before it happens.
    let clean = latest.resync_offset != 0;
    let resolved = intents.can_resolve() && assigned.read_only_reason.is_none();
    let unverified = !resolved && is_suspect(&loaded, &geometry, options);
    let crashed = (!latest.is_clean()).then_some((&dirty, resolved));
    let (unchecksummed, torn) =
        policy::checksums(&loaded, &mut assigned, &geometry, (&intents, options), crashed)?;
    let read_only = assigned.read_only_reason.as_deref();
    let adopted = journal::adopt(journals, &intents, (consistency, read_only), &random)?;
    assigned.configuration.journal = adopted.device.as_ref().map(|_| MemberId::JOURNAL);
    let private = private(&intents, (consistency, resolved), &unchecksummed, adopted.note, &random);
    let record_first = leaves_out(&members, &assigned, (&loaded, shortened), &geometry);
    let notes = [members.notes, assigned.notes, loaded.notes, adopted.notes].concat();
    let members = joined(&loaded.records, adopted.device.as_ref());
    let opened = Opened {
        facts: Facts::of(&latest, format, &geometry, header, &private),
        geometry: geometry.clone(),
        records: intents.with_sessions(loaded.records),
        found,
        bits: loaded.bits,
        private,
        journal: adopted.device,
        bad: intents.bad.clone(),
        sealed: assigned.read_only_reason.clone(),
        configuration: assigned.configuration.clone(),
        latest,
    };
    Ok(Assembly {
        metadata: MetadataWriter::new(opened, clock, random, reach),
        geometry,
        configuration: assigned.configuration,
        recovered: Recovered {
            unsynced: loaded.unsynced,
            unverified,
            resolved,
            torn_rows: to_replay(&intents, &assigned.read_only_reason),
            bad: intents.bad,
            record_first,
            expected: if unchecksummed.is_some() { intents.expected } else { Expected::default() },
            unchecksummed,
            torn,
            clean,
        },
        members,
        notes,
        read_only_reason: assigned.read_only_reason,
    })
}

/// The rows to replay: none if the array is read-only.
fn to_replay(intents: &intents::Intents, read_only_reason: &Option<String>) -> Vec<TornRow> {
    let torn_rows = intents.torn_rows.clone().ok().filter(|_| read_only_reason.is_none());
    torn_rows.unwrap_or_default()
}

/// The assignment of members to slots, and the contents of their metadata.
struct LoadedLogs {
    assigned: slots::Assigned,
    loaded: dirty::Loaded,
    intents: intents::Intents,
}

/// Loads the members' bitmaps and logs. After a crash of a degraded array, a member with an
/// unreadable log is left out as if it were lost, if the level can work without it. The logs of the
/// others suffice for the rest.
async fn load_logs(
    reach: &MemberIo,
    members: &mut Members,
    geometry: &Geometry,
    journals: &Journals,
    options: &Options,
) -> Result<LoadedLogs> {
    loop {
        let assigned = slots::assignment(members, geometry, options)?;
        let loaded = dirty::load(reach, members, &assigned, geometry).await;
        let intents = intents::load(reach, members, &assigned, geometry, journals).await;
        let unreadable_log = intents.unreadable_log.filter(|&id| {
            let configuration = &assigned.configuration;
            let mut in_sync = configuration.in_sync();
            let degraded = in_sync != geometry.all_slots();
            if let Some((slot, false)) = configuration.slot_of(id) {
                in_sync.remove(slot);
            }
            degraded
                && !loaded.unsynced.is_empty()
                && assigned.read_only_reason.is_none()
                && geometry.survives(geometry.all_slots().difference(in_sync))
        });
        match (unreadable_log, &intents.torn_rows) {
            (Some(id), Err(why)) if members.leave_out(id, why) => {}
            _ => return Ok(LoadedLogs { assigned, loaded, intents }),
        }
    }
}

/// True if unsynced ranges may hold torn writes that no log has resolved. The administrator may
/// accept the parity as it is, but differing copies stay different. A new array has valid parity
/// wherever it was written.
fn is_suspect(loaded: &dirty::Loaded, geometry: &Geometry, options: &Options) -> bool {
    let trusted = options.force_dirty_degraded
        && (geometry.family() == Family::Parity || broken(Broken::ForcedCopies));
    !loaded.unsynced.is_empty() && !is_new(loaded) && !trusted
}

/// True if the array was never used.
fn is_new(loaded: &dirty::Loaded) -> bool {
    loaded.notes.iter().any(|note| matches!(note, Note::Unsynced { cause: Cause::New, .. }))
}

/// True if an array starts after a crash without one of its members, without a readable log, or
/// without part of a copy that claims to be complete. Such a copy may be alone the next time.
/// Arrays without redundancy count as crashed, because they record no writes.
fn leaves_out(
    members: &Members,
    assigned: &slots::Assigned,
    (loaded, shortened): (&dirty::Loaded, bool),
    geometry: &Geometry,
) -> bool {
    if assigned.read_only_reason.is_some() || broken(Broken::AbsentUnrecorded) {
        return false;
    }
    let unread =
        !is_new(loaded) && loaded.notes.iter().any(|note| matches!(note, Note::LogUnusable { .. }));
    let plain = geometry.family() == Family::Plain && !broken(Broken::PlainAbsentUnrecorded);
    let shortened = shortened && !broken(Broken::ShortCopyUnrecorded);
    let crashed = !members.latest().superblock.is_clean() || plain;
    crashed && (unread || shortened || slots::is_one_away(members))
}

/// The members of the selected array, and possible journal devices.
async fn gather(
    reach: &MemberIo,
    candidates: Vec<Candidate>,
    options: &Options,
) -> Result<(Members, Journals)> {
    let wanted = journal::look_at_wanted(reach, &candidates, options.journal.as_ref()).await?;
    let (probes, found, rejects) = look_at_all(reach, candidates, options).await;
    let chosen = group::choose(probes, rejects, options)?;
    let mut members = group::join(chosen)?;
    rolled_back::leave_out(reach, &mut members, options).await;
    let mut journals = Journals { found, wanted };
    let first = &members.latest().superblock;
    journals.choose((first.set_uuid, first.set_name), options)?;
    Ok((members, journals))
}

/// The contents of the private headers: unchanged until replay has ended, then the new policy.
fn private(
    intents: &intents::Intents,
    (next_consistency, resolved): (Consistency, bool),
    unchecksummed: &Option<RangeSet>,
    next_journal: Option<JournalNote>,
    random: &Random,
) -> Private {
    let mut history_id = intents.history_id;
    if !intents.kept {
        // The array has no history identity yet.
        random(&mut history_id.0);
    }
    Private {
        consistency: intents.consistency,
        next_consistency,
        history_id,
        kept: intents.kept || unchecksummed.is_some(),
        kept_before: intents.kept,
        log: intents.zones,
        next_log: Zones::default(),
        log_bound: intents.log_bound,
        unverified: !resolved,
        checksums_from: unchecksummed
            .as_ref()
            .map(|unchecksummed| unchecksummed.next(0).map_or(u64::MAX, |range| range.start)),
        checksums_torn: intents.checksums_torn,
        journal: intents.journal,
        next_journal,
        begun: false,
    }
}

/// Every member and the journal device, in the engine's form.
fn joined(records: &BTreeMap<MemberId, Record>, journal: Option<&Journal>) -> Vec<Joined> {
    let joined = |(&id, record): (&MemberId, &Record)| Joined {
        id,
        name: record.name.clone(),
        disk: Rc::clone(&record.disk),
        data_offset: record.map.data.start,
        bad: record.bad_ranges(),
    };
    let journal = journal.map(|journal| Joined {
        id: MemberId::JOURNAL,
        name: journal.name.clone(),
        disk: Rc::clone(&journal.disk),
        data_offset: 0,
        bad: RangeSet::new(),
    });
    records.iter().map(joined).chain(journal).collect()
}

/// Probes every disk: members, journal devices, and the others with the reason.
///
/// A member may still cache unflushed writes of an earlier process. From now on they are read,
/// replay computes parity from them, and clients rely on them after a flush. So they are flushed
/// first, or a power failure would undo them. Not on a read-only array.
async fn look_at_all(
    reach: &MemberIo,
    candidates: Vec<Candidate>,
    options: &Options,
) -> (Vec<MemberProbe>, Vec<Found>, Vec<(String, Reject)>) {
    let looks = candidates.into_iter().map(|candidate| async move {
        let look = async {
            let looked = look_at(reach, &candidate, options.uuid).await?;
            if !options.read_only && !broken(Broken::StartUnflushed) {
                reach
                    .of(&candidate.name, &candidate.disk)
                    .flush()
                    .await
                    .map_err(Reject::Unflushable)?;
            }
            Ok(looked)
        };
        look.await.map_err(|reject| (candidate.name.clone(), reject))
    });
    let (mut probes, mut journals, mut rejects) = (Vec::new(), Vec::new(), Vec::new());
    for look in all(looks).await {
        match look {
            Ok(Looked::Member(probe)) => probes.push(*probe),
            Ok(Looked::Journal(found)) => journals.push(*found),
            // The disk that becomes the journal needs no header yet.
            Err((name, Reject::Stranger(_))) if options.journal.as_ref() == Some(&name) => {}
            Err(reject) => rejects.push(reject),
        }
    }
    (probes, journals, rejects)
}

/// The kind of a disk.
enum Looked {
    Member(Box<MemberProbe>),
    Journal(Box<Found>),
}

/// Probes a disk: a member, or a journal device.
async fn look_at(
    reach: &MemberIo,
    candidate: &Candidate,
    wanted: Option<Uuid>,
) -> std::result::Result<Looked, Reject> {
    let stranger = match probe::look(reach, &candidate.disk, &candidate.name, wanted).await {
        Ok(probe) => return Ok(Looked::Member(Box::new(probe))),
        Err(Reject::Stranger(names)) => names,
        Err(other) => return Err(other),
    };
    let journal = journal::look(reach, candidate).await.map_err(Reject::Unreadable)?;
    let journal = journal.map(|found| Looked::Journal(Box::new(found)));
    journal.ok_or(Reject::Stranger(stranger))
}

/// The result of a scan.
#[derive(Default)]
pub struct Survey {
    /// Arrays, by identity.
    pub arrays: BTreeMap<Uuid, Group>,
    /// Disks that are unreadable or have an invalid superblock, with the reason.
    pub damaged: Vec<(Candidate, String)>,
    /// Disks that are no members, and why.
    pub others: Vec<(Candidate, String)>,
}

/// The members of one array that a scan found.
pub struct Group {
    /// The array's name, without the host.
    pub name: String,
    /// The array's name as the superblock has it: with the host in front, if it has one.
    pub full_name: String,
    /// Its level, if it is a known one.
    pub level: Option<Level>,
    /// How many slots it has.
    pub slots: u32,
    /// The format of its superblocks.
    pub format: Format,
    /// Its members, stale ones too, and its journal devices.
    pub candidates: Vec<Candidate>,
    /// The role of each candidate, by its own superblock.
    pub roles: Vec<Role>,
}

/// Groups disks by the array they are members of. Writes nothing. A disk that does not answer
/// within [`Bounds::deadline`] is no member.
pub fn survey<'a>(candidates: Vec<Candidate>, clock: &'a Rc<dyn Clock>) -> Boxed<'a, Survey> {
    Box::pin(async move {
        let reach = &MemberIo::within(Rc::clone(clock), Bounds::default().deadline);
        let looks = candidates.into_iter().map(|candidate| async move {
            let look = look_at(reach, &candidate, None).await;
            (candidate, look)
        });
        let (mut survey, mut journals) = (Survey::default(), Vec::new());
        for (candidate, look) in all(looks).await {
            match look {
                Ok(Looked::Journal(found)) => journals.push((candidate, found)),
                Err(reject) => {
                    let stranger = matches!(reject, Reject::Stranger(_));
                    let list = if stranger { &mut survey.others } else { &mut survey.damaged };
                    list.push((candidate, reject.to_string()));
                }
                Ok(Looked::Member(probe)) => {
                    let MemberProbe { superblock, format, .. } = *probe;
                    let group = survey.arrays.entry(superblock.set_uuid).or_insert_with(|| Group {
                        name: superblock.set_name.short(),
                        full_name: superblock.set_name.to_string(),
                        level: shape::level(&superblock),
                        slots: superblock.raid_disks,
                        format,
                        candidates: Vec::new(),
                        roles: Vec::new(),
                    });
                    group.candidates.push(candidate);
                    group.roles.push(superblock.own_role());
                }
            }
        }
        for (candidate, found) in journals {
            let header = found.header();
            match survey.arrays.get_mut(&header.set_uuid) {
                Some(group) => {
                    group.candidates.push(candidate);
                    group.roles.push(Role::Journal);
                }
                None => {
                    let what =
                        format!("the journal device of {} ({})", header.set_name, header.set_uuid);
                    survey.others.push((candidate, what));
                }
            }
        }
        survey
    })
}

/// True if this is the name of the array, with or without the host.
fn is_called(found: &Name, wanted: &str) -> bool {
    found.short() == wanted || found.to_string() == wanted
}

/// `a, b and c`.
fn list<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let names: Vec<&str> = names.into_iter().collect();
    match names.split_last() {
        None => String::new(),
        Some((last, [])) => (*last).to_string(),
        Some((last, rest)) => format!("{} and {last}", rest.join(", ")),
    }
}

/// The error message about missing members, with the problem of each unusable disk.
fn with_reasons(mut message: String, notes: &[Note]) -> String {
    let reasons = notes.iter().filter(|note| note.is_loss());
    for note in reasons {
        message.push_str("; ");
        message.push_str(&note.to_string());
    }
    message
}

fn refuse<T>(message: impl Into<String>) -> Result<T> {
    Err(Error::refused(message))
}

#[cfg(test)]
mod tests;
