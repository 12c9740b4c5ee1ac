//! The journal device among the disks of an array: its array, the validity of its log, and its use
//! from now on.
//!
//! Owns the rules for a device that is missing, old, of another array, or new to this one. Never
//! writes: the first commit of the session does (`crate::commit::journal_device`).

use std::ops::Range;
use std::rc::Rc;

use io::broken::{Broken, broken};
use io::{Disk, Limits};
use layout::md::{Name, Uuid};
use layout::private::journal::{
    self, COPIES, HEADER_BYTES, JournalHeader, JournalNote, JournalUse,
};
use layout::private::{Consistency, LogShape};

use crate::assemble::intents::Intents;
use crate::assemble::{Candidate, Note, Options, probe, refuse};
use crate::commit::journal_device::Journal;
use crate::commit::member_io::MemberIo;
use crate::commit::{MOST_BLOCK_BYTES, Random};
use crate::error::{Error, Result};

/// A disk with the header of a journal device.
#[derive(Clone)]
pub(crate) struct Found {
    pub(crate) name: String,
    pub(crate) disk: Rc<dyn Disk>,
    /// Its two copies of the header; `None` where damaged.
    pub(crate) headers: [Option<JournalHeader>; 2],
}

impl Found {
    /// One of its headers. Either has the same identity: when a device becomes another array's
    /// journal, the other copy is erased.
    pub(crate) fn header(&self) -> &JournalHeader {
        let [first, second] = &self.headers;
        first.as_ref().or(second.as_ref()).expect("a found member has a superblock")
    }

    /// The index of the copy for this session.
    fn copy_of(&self, session: u64) -> Option<usize> {
        let of = |header: &Option<JournalHeader>| {
            header.as_ref().is_some_and(|header| {
                header.session == session || broken(Broken::StaleJournalTrusted)
            })
        };
        self.headers.iter().position(of)
    }
}

/// The journal device on a disk; `None` if it is none.
pub(crate) async fn look(
    reach: &MemberIo,
    Candidate { disk, name }: &Candidate,
) -> io::Result<Option<Found>> {
    let mut headers = [None, None];
    for (header, at) in headers.iter_mut().zip(COPIES) {
        if at + HEADER_BYTES > disk.limits().bytes {
            return Ok(None);
        }
        let bytes = reach.read(&**disk, at..at + HEADER_BYTES).await?;
        *header = JournalHeader::parse(&bytes, parity::crc32c).ok();
    }
    let any = headers.iter().any(Option::is_some);
    Ok(any.then(|| Found { name: name.clone(), disk: Rc::clone(disk), headers }))
}

/// The journal devices among the candidates.
#[derive(Default)]
pub(super) struct Journals {
    pub(super) found: Vec<Found>,
    /// The disk that is to become the journal, and its signatures.
    pub(super) wanted: Option<(Candidate, Vec<layout::md::Signature>)>,
}

impl Journals {
    /// Ignores those of other arrays if the user named the array; otherwise refuses them.
    pub(super) fn choose(&mut self, set: (Uuid, Name), options: &Options) -> Result<()> {
        let named = options.uuid.is_some() || options.name.is_some();
        let ours =
            |found: &Found| found.header().set_uuid == set.0 || broken(Broken::ForeignJournalTaken);
        let other = self.found.iter().find(|found| !ours(found));
        if let Some(other) = other.filter(|_| !named) {
            let header = other.header();
            return refuse(format!(
                "{} is the journal device of another array, {} ({}), not of {} ({}): leave it out, \
                 or say which array is meant, by uuid",
                other.name, header.set_name, header.set_uuid, set.1, set.0
            ));
        }
        self.found.retain(ours);
        Ok(())
    }

    /// The log of the session in the members' headers, on the device that they name.
    ///
    /// # Errors
    /// The reason why there is none.
    pub(super) fn log_of(
        &self,
        note: &JournalNote,
        shape: &LogShape,
    ) -> std::result::Result<(&Found, Range<u64>), String> {
        let here: Vec<&Found> = self.found.iter().filter(|found| is_it(found, note)).collect();
        let of = here.iter().filter_map(|found| Some((*found, found.copy_of(shape.run)?)));
        let of: Vec<(&Found, usize)> = of.collect();
        match (&here[..], &of[..]) {
            (_, [(found, copy)]) => {
                let header = found.headers[*copy].as_ref().expect("this copy has the session");
                let log = header.log.clone();
                let zones = shape.zone_bytes.checked_mul(shape.zones.into());
                let end = zones.and_then(|bytes| log.start.checked_add(bytes));
                let room = log.end.min(found.disk.limits().bytes);
                if end.is_none_or(|end| end > room) && !broken(Broken::JournalUnbounded) {
                    return Err(format!(
                        "its log would not end within its journal device {}: the header of that \
                         is damaged",
                        found.name
                    ));
                }
                Ok((found, log))
            }
            (_, [(one, _), (other, _), ..]) => Err(format!(
                "its log lies on its journal device, and {} and {} are copies of that: leave one \
                 out",
                one.name, other.name
            )),
            ([found, ..], []) => Err(format!(
                "its log lies on its journal device {} (last called {}), and {} is an old copy of \
                 that: it does not know the last session",
                note.uuid, note.name, found.name
            )),
            ([], []) => Err(format!(
                "its log lies on its journal device {} (last called {}), which is not here: add it",
                note.uuid, note.name
            )),
        }
    }
}

fn is_it(found: &Found, note: &JournalNote) -> bool {
    found.header().device_uuid == note.uuid
}

/// The journal device from this session on.
pub(super) struct Adopted {
    /// The device for the log.
    pub(super) device: Option<Journal>,
    /// The entry for it in the members' headers, while these have the log.
    pub(super) note: Option<JournalNote>,
    pub(super) notes: Vec<Note>,
}

/// Decides about the journal device, by policy, by the members' headers and by the user's options.
///
/// # Errors
/// Refused: a device that the user asked for and that cannot be used.
pub(super) fn adopt(
    journals: Journals,
    intents: &Intents,
    (consistency, read_only): (Consistency, Option<&str>),
    random: &Random,
) -> Result<Adopted> {
    let said = intents.journal;
    let none = |note, notes| Ok(Adopted { device: None, note, notes });
    if let Some((wanted, _)) = &journals.wanted {
        if let Some(why) = read_only {
            return refuse(format!("{} cannot become the journal: {why}", wanted.name));
        }
        if consistency != Consistency::Journal {
            return refuse(format!(
                "{} cannot become the journal: the array's consistency policy is {}; say \
                 --consistency journal too",
                wanted.name,
                consistency.name()
            ));
        }
    }
    if read_only.is_some() {
        return none(said, Vec::new());
    }
    if consistency != Consistency::Journal {
        return none(None, Vec::new());
    }
    if journals.wanted.is_some() {
        return take_wanted(journals, said, intents.zones.run, random);
    }
    let Some(note) = said else { return none(None, Vec::new()) };
    let call = format!("journal device {} (last called {})", note.uuid, note.name);
    let on_members = "the members have the log";
    if note.used == JournalUse::GivenUp {
        let text = format!("the {call} was abandoned; {on_members}");
        return none(Some(note), vec![Note::Journal { text }]);
    }
    let away = JournalNote { used: JournalUse::Away, ..note };
    // Of several copies, the one with the last session; without that session all are equal.
    let run = intents.zones.run;
    let mut here: Vec<Found> = journals.found.into_iter().filter(|f| is_it(f, &note)).collect();
    here.sort_by_key(|found| found.copy_of(run).is_none());
    let Some(found) = here.into_iter().next() else {
        let text = format!("the {call} is not here, and {on_members}");
        return none(Some(away), vec![Note::Journal { text }]);
    };
    match device(found, note.uuid, run) {
        Ok(device) => {
            let note = Some(device.note());
            Ok(Adopted { device: Some(device), note, notes: Vec::new() })
        }
        Err(why) => none(Some(away), vec![Note::Journal { text: format!("{why}; {on_members}") }]),
    }
}

/// The device that the user asked for, new to the array or not.
fn take_wanted(
    journals: Journals,
    said: Option<JournalNote>,
    run: u64,
    random: &Random,
) -> Result<Adopted> {
    let (Candidate { disk, name }, signatures) = journals.wanted.expect("the caller checked it");
    let own = journals.found.into_iter().find(|found| found.name == name);
    let taken = match (own, said) {
        (Some(own), Some(note)) if is_it(&own, &note) => device(own, note.uuid, run)?,
        (own, _) => {
            let foreign = signatures.iter().find(|_| own.is_none());
            if let Some(signature) = foreign {
                return refuse(format!(
                    "{name} cannot become the journal: it holds {} (byte {}); wipe that first",
                    signature.name, signature.offset
                ));
            }
            let mut uuid = [0; 16];
            random(&mut uuid);
            fit(&name, disk.limits()).map(|log| Journal::new(name, disk, log, Uuid(uuid)))?
        }
    };
    let note = Some(taken.note());
    Ok(Adopted { device: Some(taken), note, notes: Vec::new() })
}

/// The device for the next session; `run` is the last session, if the device took part in it.
fn device(found: Found, uuid: Uuid, run: u64) -> Result<Journal> {
    let log = fit(&found.name, found.disk.limits())?;
    let last = found.copy_of(run).unwrap_or(1);
    let Found { name, disk, .. } = found;
    Ok(Journal { copy: 1 - last, fresh: false, ..Journal::new(name, disk, log, uuid) })
}

/// The place of the log on a future journal device.
///
/// # Errors
/// Refused if the disk cannot be one.
pub fn fit(name: &str, limits: Limits) -> Result<Range<u64>> {
    if limits.read_only {
        return refuse(format!("{name} cannot be the journal: it is read-only"));
    }
    if limits.logical_block > MOST_BLOCK_BYTES {
        return refuse(format!(
            "{name} cannot be the journal: it is written in blocks of {} bytes; at most \
             {MOST_BLOCK_BYTES} are possible",
            limits.logical_block
        ));
    }
    journal::log_of(limits.bytes).ok_or_else(|| {
        Error::refused(format!(
            "{name} is too small for a journal: it has {} bytes, {} are needed",
            limits.bytes,
            journal::LEAST_BYTES
        ))
    })
}

/// The signatures on the disk that is to become the journal.
pub(super) async fn look_at_wanted(
    reach: &MemberIo,
    candidates: &[Candidate],
    wanted: Option<&String>,
) -> Result<Option<(Candidate, Vec<layout::md::Signature>)>> {
    let Some(wanted) = wanted else { return Ok(None) };
    let Some(candidate) = candidates.iter().find(|candidate| candidate.name == *wanted) else {
        return refuse(format!("{wanted} is to become the journal, and is not among the disks"));
    };
    let found = probe::signatures(reach, &*candidate.disk).await;
    let found =
        found.map_err(|why| Error::refused(format!("{wanted} cannot be read")).because(why))?;
    Ok(Some((candidate.clone(), found)))
}
