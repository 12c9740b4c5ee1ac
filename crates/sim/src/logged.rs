//! The intent log, parsed independently: its rows, and its correct use.
//!
//! Parses `layout`'s output with its own code, after `docs/format.md`: if both had the same fault,
//! the engine would disagree with this. Only the start of the private area comes from `layout`.
//!
//! ```text
//!   header   magic … events, utime … session, zones     counts if it goes with the superblock
//!   zone     batch │ batch │ …                          live from the newest one's tail on
//! ```

use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

use crate::covered::{Raw, long, word};
use crate::disk::SimDisk;
use crate::mark::Part;
use crate::medium::SECTOR;
use crate::parts::Parts;

/// Batches begin at multiples of this.
const STEP: u64 = 4096;
/// Where the log begins on a journal device.
const JOURNAL_LOG: u64 = 12288;
/// Bytes of a list of lost blocks.
const LIST: u64 = 32 << 10;

/// The log of one member, as its header describes it.
#[derive(Clone, Copy)]
struct Place {
    start: u64,
    session: u64,
    zones: u64,
    zone_bytes: u64,
    /// There may be more out of sync than it records.
    unverified: bool,
    /// The log is not here but on the journal device, with this session.
    elsewhere: Option<u64>,
}

/// A batch in a zone.
struct Batch {
    at: u64,
    sequence: u64,
    tail: u64,
    bytes: u64,
    records: usize,
    /// Bytes of each record: the wide form, of arrays with more than 64 data slots, has more.
    record_bytes: usize,
}

/// How a log has been used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Usage {
    /// It has gone round.
    pub wrapped: bool,
    /// A batch has no records.
    pub tail_only: bool,
}

fn peek(disk: &SimDisk, at: u64, len: u64) -> Vec<u8> {
    let mut bytes = vec![0; len as usize];
    disk.peek(at, &mut bytes);
    bytes
}

impl Place {
    /// The log that counts for this member; `None` if there is none, or its header does not go
    /// with its superblock.
    fn of(raw: &Raw) -> Option<Place> {
        header_of(raw).map(|(header, _)| Place {
            start: long(&header, 104),
            session: long(&header, 168),
            zones: u64::from(word(&header, 184)),
            zone_bytes: long(&header, 176),
            unverified: word(&header, 192) & 1 != 0,
            elsewhere: (word(&header, 192) & 4 != 0).then(|| long(&header, 204)),
        })
    }

    /// The log on the journal device, as the newest of these say.
    fn on_journal(logs: &[(&Raw, Place)]) -> Option<Place> {
        let (_, newest) = logs.iter().max_by_key(|(raw, _)| raw.events)?;
        let session = newest.elsewhere?;
        Some(Place { start: JOURNAL_LOG, session, ..*newest })
    }

    /// Array ranges that are lost, as the header that counts for this member lists them.
    fn lost(raw: &Raw) -> Vec<Range<u64>> {
        let Some((header, copy)) = header_of(raw) else { return Vec::new() };
        let bytes = peek(&raw.disk, long(&header, 136) + copy * LIST, LIST);
        let listed = bytes.chunks(16).take(word(&header, 196) as usize);
        listed.map(|range| long(range, 0)..long(range, 0) + long(range, 8)).collect()
    }

    /// The batches of a zone with its session's number.
    fn batches(&self, disk: &SimDisk, zone: u64) -> Vec<Batch> {
        // Nothing was logged yet.
        let zone_bytes = if self.session == 0 { 0 } else { self.zone_bytes };
        let (mut found, mut at) = (Vec::new(), 0);
        let mut head = [0; 64];
        while at < zone_bytes {
            disk.peek(self.start + zone * self.zone_bytes + at, &mut head);
            let bytes = u64::from(word(&head, 48));
            let record_bytes = match &head[..8] {
                b"Pintents" => Some(40),
                b"Pintent2" => Some(48),
                _ => None,
            };
            if let Some(record_bytes) = record_bytes
                && long(&head, 8) == self.session
                && u64::from(word(&head, 56)) == zone
                && (64..=self.zone_bytes - at).contains(&bytes)
            {
                let (sequence, tail) = (long(&head, 16), long(&head, 24));
                let records = word(&head, 52) as usize;
                found.push(Batch { at, sequence, tail, bytes, records, record_bytes });
            }
            at += STEP;
        }
        found
    }

    /// All bytes of a batch, if its checksum is right.
    fn whole(&self, disk: &SimDisk, zone: u64, batch: &Batch) -> Option<Vec<u8>> {
        let bytes = peek(disk, self.start + zone * self.zone_bytes + batch.at, batch.bytes);
        let before = parity::crc32c(0, &bytes[..60]);
        let checksum = parity::crc32c(parity::crc32c(before, &[0; 4]), &bytes[64..]);
        (checksum == word(&bytes, 60)).then_some(bytes)
    }
}

/// The header that goes with this member's superblock, and which of its copies it is.
fn header_of(raw: &Raw) -> Option<(Vec<u8>, u64)> {
    let area = Parts::of(&raw.disk, None).range(Part::Private)?;
    let headers = peek(&raw.disk, area.start, 2 * STEP);
    let counts = |header: &&[u8]| {
        &header[..8] == b"Pprivate"
            && long(header, 64) == raw.events
            && long(header, 72) == raw.utime
            && raw.utime >> 40 != 0
            && header[32..48] == raw.device_uuid
            && (long(header, 88), long(header, 96)) == (area.start, area.end)
    };
    let at = headers.chunks(STEP as usize).position(|header| counts(&header))?;
    Some((headers[at * STEP as usize..][..STEP as usize].to_vec(), at as u64))
}

/// The members' lists of lost blocks, as array ranges: an engine that ignores the list reads the
/// filler there.
pub fn lost<'a>(members: impl Iterator<Item = &'a Raw>) -> Vec<Range<u64>> {
    members.flat_map(Place::lost).collect()
}

/// How the log on this disk has been used.
pub fn usage(disk: &Rc<SimDisk>) -> Usage {
    let mut usage = Usage::default();
    let Some(place) = crate::covered::read(disk).as_ref().and_then(Place::of) else {
        return usage;
    };
    for zone in 0..place.zones {
        let batches = place.batches(disk, zone);
        usage.wrapped |= batches.windows(2).any(|two| two[0].sequence > two[1].sequence);
        usage.tail_only |= batches.iter().any(|batch| batch.records == 0);
    }
    usage
}

/// True if the headers of all members match their superblocks and say that their logs cover all
/// rows that a crash may have torn. A member that missed the last superblock may have no log yet.
pub fn logs_cover_crash(slots: &BTreeMap<usize, Raw>) -> bool {
    let last = slots.values().map(|raw| raw.events).max();
    let vouches = |raw: &Raw| {
        Place::of(raw).is_some_and(|place| {
            !place.unverified && (place.session != 0 || Some(raw.events) != last)
        })
    };
    last.is_some() && slots.values().all(vouches)
}

/// The session of the journal device that the newest of these members names, if the log lies there.
pub fn journal_session(slots: &BTreeMap<usize, Raw>) -> Option<u64> {
    let logs: Vec<(&Raw, Place)> =
        slots.values().filter_map(|raw| Some((raw, Place::of(raw)?))).collect();
    Place::on_journal(&logs).map(|place| place.session)
}

/// The rows in live records of these members, or of their journal device: by stripe, ranges of the
/// chunk.
pub fn rows<'a>(
    members: impl Iterator<Item = &'a Raw>,
    journal: Option<&Rc<SimDisk>>,
) -> BTreeMap<u64, Vec<Range<u64>>> {
    let members: Vec<(&Raw, Place)> =
        members.filter_map(|raw| Some((raw, Place::of(raw)?))).collect();
    let logs: Vec<(&Rc<SimDisk>, Place)> = match (Place::on_journal(&members), journal) {
        (Some(place), Some(disk)) => vec![(disk, place)],
        (Some(_), None) => Vec::new(),
        (None, _) => members.into_iter().map(|(raw, place)| (&raw.disk, place)).collect(),
    };
    let mut rows: BTreeMap<u64, Vec<Range<u64>>> = BTreeMap::new();
    let zones = logs.iter().map(|(_, place)| place.zones).max().unwrap_or(0);
    for zone in 0..zones {
        let mut found = Vec::new();
        for (disk, place) in logs.iter().filter(|(_, place)| zone < place.zones) {
            for batch in place.batches(disk, zone) {
                let whole = place.whole(disk, zone, &batch);
                found.extend(whole.map(|bytes| (batch, bytes)));
            }
        }
        let newest = found.iter().map(|(batch, _)| batch).max_by_key(|batch| batch.sequence);
        let tail = newest.map_or(0, |batch| batch.tail);
        for (batch, bytes) in found.iter().filter(|(batch, _)| batch.sequence >= tail) {
            for index in 0..batch.records {
                let record = &bytes[64 + batch.record_bytes * index..];
                let (stripe, stripes) = (long(record, 0), u64::from(word(record, 8)));
                let start = u64::from(word(record, 12)) * SECTOR;
                let len = u64::from(word(record, 16)) * SECTOR;
                for stripe in stripe..stripe + stripes {
                    rows.entry(stripe).or_default().push(start..start + len);
                }
            }
        }
    }
    rows
}
