//! A member's private area, for people: its validity with the reason, and the contents of the
//! intent log.
//!
//! Reads only, and only one member. The torn rows can only be determined from all members together
//! (`assemble::intents`).

use std::fmt;
use std::ops::Range;

use io::Disk;
use layout::md::{ParseError, Superblock};
use layout::private::journal::{COPIES, JournalHeader, JournalUse};
use layout::private::{self, HEADER_BYTES, HEADERS_BYTES, LogShape, Mismatch, PrivateHeader};
use log::reader::scan;

use crate::commit::member_io::MemberIo;

/// The private area of a member.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FoundPrivate {
    /// The header that matches the superblock, or the reason why there is none.
    pub header: Result<PrivateHeader, NoHeader>,
    /// The header written last, valid or not.
    pub latest: Option<PrivateHeader>,
    /// The log of the valid header's session; `None` if nothing can have been logged.
    pub log: Option<FoundLog>,
}

/// The reason why a private area is not valid.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NoHeader {
    /// Neither copy is readable: the first error in either.
    Unreadable(ParseError),
    /// The header written last does not match the superblock.
    Mismatch(Mismatch),
}

impl fmt::Display for NoHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NoHeader::Unreadable(error) => return error.fmt(f),
            NoHeader::Mismatch(Mismatch::Array) => "it belongs to another array",
            NoHeader::Mismatch(Mismatch::Member) => "it belongs to another member",
            NoHeader::Mismatch(Mismatch::Untagged) => {
                "another system has written the superblock since, and has run the array"
            }
            NoHeader::Mismatch(Mismatch::Superseded) => {
                "it belongs to an older or newer superblock"
            }
            NoHeader::Mismatch(Mismatch::Unwitnessed) => {
                "at this level another system may have run the array without a trace"
            }
            NoHeader::Mismatch(Mismatch::Moved) => "the data, or one of md's structures, has moved",
        })
    }
}

/// A journal device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FoundJournal {
    /// The header of its last session.
    pub header: JournalHeader,
    /// The places of its headers, valid or not: bytes from the start of the disk.
    pub places: Vec<u64>,
    /// The log of that session; `None` if nothing can have been logged. The members determine
    /// whether it is still needed.
    pub log: Option<FoundLog>,
}

/// Looks for a journal device. Of two sessions it reports the one that logged last; the other is an
/// older one, or a start without writes.
pub(super) async fn look_at_journal(
    reach: &MemberIo,
    disk: &dyn Disk,
) -> io::Result<Option<FoundJournal>> {
    let mut found: Option<FoundJournal> = None;
    let mut places = Vec::new();
    for at in COPIES {
        if at + HEADER_BYTES > disk.limits().bytes {
            break;
        }
        let bytes = reach.read(disk, at..at + HEADER_BYTES).await?;
        let Ok(header) = JournalHeader::parse(&bytes, parity::crc32c) else { continue };
        places.push(at);
        let mut log = None;
        if header.session != 0 {
            let (zones, zone_bytes) = (header.zones, header.zone_bytes);
            let session = header.session;
            let shape = LogShape { session, zones, zone_bytes, ..LogShape::default() };
            log = Some(read_log(reach, disk, (header.log.start, shape), false).await?);
        }
        let batches = |log: &Option<FoundLog>| log.map_or(0, |log| log.batches + 1);
        if found.as_ref().is_none_or(|known| batches(&known.log) < batches(&log)) {
            found = Some(FoundJournal { header, places: Vec::new(), log });
        }
    }
    Ok(found.map(|found| FoundJournal { places, ..found }))
}

/// The contents of a member's intent log.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FoundLog {
    /// Readable batches, old ones included.
    pub batches: u64,
    /// Records in the live batches: rows that may be torn. 0 if the superblock is marked clean.
    pub records: u64,
    /// The reason why a zone is unreadable, if one is (the first one's). Its batches are not
    /// counted above.
    pub damage: Option<ParseError>,
}

/// Examines the private area of a member, which has these `bounds`.
pub(super) async fn look(
    reach: &MemberIo,
    disk: &dyn Disk,
    superblock: &Superblock,
    bounds: &Range<u64>,
) -> io::Result<FoundPrivate> {
    let copies = reach.read(disk, bounds.start..bounds.start + HEADERS_BYTES).await?;
    let latest = private::latest(&copies, &superblock.set_uuid, parity::crc32c);
    let header = private::valid(&copies, superblock, bounds, parity::crc32c)
        .ok_or_else(|| why_not(&copies, superblock, bounds));
    let mut log = None;
    let elsewhere = |header: &PrivateHeader| {
        header.journal.is_some_and(|journal| journal.used == JournalUse::Logging)
    };
    if let Ok(header) = &header
        && header.log.session != 0
        && !elsewhere(header)
    {
        let place = (header.parts.log.start, header.log);
        log = Some(read_log(reach, disk, place, superblock.is_clean()).await?);
    }
    Ok(FoundPrivate { header, latest, log })
}

/// The reason why neither copy is valid.
fn why_not(copies: &[u8], superblock: &Superblock, bounds: &Range<u64>) -> NoHeader {
    let mut latest: Option<PrivateHeader> = None;
    let mut fault = None;
    for copy in copies.chunks(HEADER_BYTES as usize).take(2) {
        match PrivateHeader::parse(copy, parity::crc32c) {
            Ok(header) if latest.as_ref().is_none_or(|known| known.events < header.events) => {
                latest = Some(header);
            }
            Ok(_) => {}
            Err(error) => fault = fault.or(Some(error)),
        }
    }
    let mismatch = latest.and_then(|header| header.matches(superblock, bounds).err());
    match (mismatch, fault) {
        (Some(mismatch), _) => NoHeader::Mismatch(mismatch),
        (None, Some(error)) => NoHeader::Unreadable(error),
        (None, None) => NoHeader::Mismatch(Mismatch::Superseded),
    }
}

async fn read_log(
    reach: &MemberIo,
    disk: &dyn Disk,
    (start, shape): (u64, LogShape),
    clean: bool,
) -> io::Result<FoundLog> {
    let mut found = FoundLog::default();
    for zone in 0..shape.zones {
        let start = start + u64::from(zone) * shape.zone_bytes;
        let bytes = reach.read(disk, start..start + shape.zone_bytes).await?;
        let batches = match scan(&bytes, shape.session, zone) {
            Ok(batches) => batches,
            Err(error) => {
                found.damage = found.damage.or(Some(error));
                continue;
            }
        };
        found.batches += batches.len() as u64;
        let tail = batches.last_key_value().map_or(0, |(_, (newest, _))| newest.header.tail);
        let live = batches.range(tail..).filter(|_| !clean);
        found.records += live.map(|(_, (batch, _))| batch.entries.len() as u64).sum::<u64>();
    }
    Ok(found)
}
