//! Parapet's private area: bytes that md leaves unused between its own structures and the data.
//!
//! Owns the header of the area, its division, and the rule for trusting it. Its log ([`log`]), its
//! checksum table ([`checksums`]) and the optional journal device ([`journal`]) have modules of
//! their own.
//!
//! ```text
//!   bounds.start                                                              bounds.end
//!   | header | header | intent log | region bits | history | checksums |
//!     4 KiB    4 KiB    the rest     as a bitmap   64 KiB    8 B per 4 KiB of data, or none
//! ```
//!
//! For mdadm and the kernel this space is free, and they may use it. So the area is trusted only if
//! **Parapet** wrote the member's superblock last. Three things bind a header to a superblock:
//!
//! 1. the array, the member and the bounds, which are computed from the superblock each time;
//! 2. the event count;
//! 3. `utime` with all its 64 bits. We put a random [`Tag`] where md has microseconds; the kernel
//!    and mdadm write zeros there. The event count alone proves nothing: a kernel's session can end
//!    on its initial number.
//!
//! Where md writes no superblock there is nothing to be seen: a kernel runs and writes a linear or
//! RAID 0 array without touching one. There a header never counts.
//!
//! A superblock is never written before its header: the header for event count `e` goes into copy
//! `e mod 2` and is flushed, then the superblock is written. A crash between the two leaves the old
//! superblock with the old header, in the other copy. [`valid`] takes whichever copy matches.
//!
//! Invariant: [`PrivateHeader::print`] reproduces the bytes that [`PrivateHeader::parse`] accepted.

use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

use bad::BadList;
use frame::Frame;
use journal::{DeviceName, JournalNote, JournalUse};

use crate::md::bitmap;
use crate::md::field::{Fault, ParseError, fields};
use crate::md::{Crc32c, Superblock, Timestamp, Uuid};

pub mod bad;
pub mod checksums;
mod consistency;
pub mod export;
mod frame;
pub mod journal;
pub mod log;

pub use consistency::Consistency;

fields! { 384;
    MAGIC            "magic"            0   8
    VERSION          "version"          8   4
    CRC              "crc32c"           12  4
    SET_UUID         "set_uuid"         16  16
    DEVICE_UUID      "device_uuid"      32  16
    HISTORY_ID       "history_id"       48  16
    EVENTS           "events"           64  8
    UTIME            "utime"            72  8
    SLOT             "slot"             80  4
    PAD0             "pad0"             84  4
    START            "start"            88  8
    END              "end"              96  8
    LOG_START        "log_start"        104 8
    LOG_END          "log_end"          112 8
    REGIONS_START    "regions_start"    120 8
    REGIONS_END      "regions_end"      128 8
    HISTORY_START    "history_start"    136 8
    HISTORY_END      "history_end"      144 8
    CHECKSUMS_START  "checksums_start"  152 8
    CHECKSUMS_END    "checksums_end"    160 8
    LOG_SESSION      "log_session"      168 8
    LOG_ZONE_BYTES   "log_zone_bytes"   176 8
    LOG_ZONES        "log_zones"        184 4
    CONSISTENCY      "consistency"      188 4
    FLAGS            "flags"            192 4
    BAD_COUNT        "bad_count"        196 4
    BAD_CRC          "bad_crc"          200 4
    LOG_RUN          "log_run"          204 8
    LOG_SINCE        "log_since"        212 4
    CHECKSUMS_FROM        "checksums_from"        216 8
    JOURNAL_UUID     "journal_uuid"     224 16
    JOURNAL_NAME     "journal_name"     240 128
    PAD2             "pad2"             368 16
}

/// Bytes of one copy of the header.
pub const HEADER_BYTES: u64 = 4096;
/// Bytes of both copies, at the start of the area.
pub const HEADERS_BYTES: u64 = 2 * HEADER_BYTES;
/// Bytes for two copies of the array's list of bad blocks, and of the state of its export.
pub const HISTORY_BYTES: u64 = 64 << 10;
/// The least an intent log needs.
pub const LEAST_LOG_BYTES: u64 = 256 << 10;
/// The least that a new member has for it.
pub const NEW_LOG_BYTES: u64 = 1 << 20;
/// A new member of at least sixteen times this has at least this for it: a log that fills up has
/// all changed pages of the checksum table written, and the writes of that moment wait for them.
pub const AMPLE_LOG_BYTES: u64 = 16 << 20;
/// The most an intent log gets on a new member, without rounding.
pub const MOST_LOG_BYTES: u64 = 64 << 20;
/// All parts of the area begin and end on a multiple of this.
pub const ALIGNMENT: u64 = 4096;
/// Bytes of data that one entry of the checksum table stands for.
pub const CHECKSUM_BLOCK_BYTES: u64 = 4096;
/// Bytes of an entry of the checksum table.
pub const CHECKSUM_ENTRY_BYTES: u64 = 8;

const STRUCTURE: &str = "private area";
const FRAME: Frame = Frame {
    structure: STRUCTURE,
    magic: u64::from_le_bytes(*b"Pprivate"),
    version: 1,
    fields: at::FIELDS,
};
/// The levels at which the kernel never updates a superblock: linear and RAID 0.
const UNWITNESSED: [i32; 2] = [-1, 0];
/// Bit of `flags`: see [`PrivateHeader::unverified`].
const FLAG_UNVERIFIED: u64 = 1;
/// Bit of `flags`: see [`PrivateHeader::checksums_from`].
const FLAG_CHECKSUMS: u64 = 2;
/// Bit of `flags`: the log lies on the journal device.
const FLAG_JOURNAL: u64 = 4;
/// Bit of `flags`: the journal device was abandoned.
const FLAG_GIVEN_UP: u64 = 8;
/// Bit of `flags`: see [`PrivateHeader::checksums_torn`].
const FLAG_CHECKSUMS_TORN: u64 = 16;
/// Bit of `flags`: batches of the log have the wide form. Programs that read only the narrow form
/// refuse the header, and so do not mistake such a log for an empty one.
const FLAG_WIDE: u64 = 32;
const FLAGS: u64 = FLAG_UNVERIFIED
    | FLAG_CHECKSUMS
    | FLAG_JOURNAL
    | FLAG_GIVEN_UP
    | FLAG_CHECKSUMS_TORN
    | FLAG_WIDE;
/// `slot` of a member that has none: a spare.
const NO_SLOT: u32 = u32::MAX;

/// The random number in the microseconds of `utime` that marks a superblock as ours: 1 to 999,999.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tag(u32);

impl Tag {
    /// A tag made of 32 random bits.
    pub const fn new(random: u32) -> Tag {
        Tag(1 + random % 999_999)
    }

    /// The `utime` of a superblock of ours.
    ///
    /// # Panics
    /// If `seconds` needs more than 40 bits.
    pub const fn stamp(self, seconds: u64) -> Timestamp {
        Timestamp::new(seconds, self.0)
    }

    /// The tag in a `utime`; `None` if someone else wrote it.
    pub const fn of(utime: Timestamp) -> Option<Tag> {
        match utime.micros() {
            0 => None,
            micros => Some(Tag(micros)),
        }
    }
}

/// How the area is divided. All ranges are bytes from the start of the member.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Parts {
    /// Where intents (and partial parities, and data) are logged.
    pub log: Range<u64>,
    /// One bit per region, for arrays that cannot have md's bitmap.
    pub regions: Range<u64>,
    /// The array's bad blocks ([`bad`]).
    pub history: Range<u64>,
    /// A checksum for each 4 KiB of the member's data; empty if there is no room for it.
    pub checksums: Range<u64>,
}

impl Parts {
    /// Divides `bounds` for a member with `data_bytes` of data. The checksum table is omitted
    /// first; `None` if the other parts do not fit either.
    pub fn of(bounds: Range<u64>, data_bytes: u64) -> Option<Parts> {
        let area = bounds.end.checked_sub(bounds.start)?;
        let fixed = HEADERS_BYTES + bitmap::space(data_bytes) + HISTORY_BYTES;
        let spare = area.checked_sub(fixed + LEAST_LOG_BYTES)?;
        let table = checksum_bytes(data_bytes);
        let checksums = bounds.end - if table <= spare { table } else { 0 }..bounds.end;
        let history = checksums.start - HISTORY_BYTES..checksums.start;
        let regions = history.start - bitmap::space(data_bytes)..history.start;
        let log = bounds.start + HEADERS_BYTES..regions.start;
        assert!(log.end - log.start >= LEAST_LOG_BYTES, "parts of the private area overlap");
        Some(Parts { log, regions, history, checksums })
    }

    fn in_order(&self) -> [&Range<u64>; 4] {
        [&self.log, &self.regions, &self.history, &self.checksums]
    }
}

/// The area a new member of `member_bytes` should have at least, all parts included.
pub const fn wanted_bytes(member_bytes: u64) -> u64 {
    let log = new_log_bytes(member_bytes);
    HEADERS_BYTES + log + bitmap::space(member_bytes) + HISTORY_BYTES + checksum_bytes(member_bytes)
}

/// Bytes of the intent log of a new member: a 16th of a small one, a 256th of a large one.
const fn new_log_bytes(member_bytes: u64) -> u64 {
    let small = at_most(member_bytes / 16, AMPLE_LOG_BYTES);
    let large = at_most(member_bytes / 256, MOST_LOG_BYTES);
    at_least(at_least(small, large), NEW_LOG_BYTES) & !(ALIGNMENT - 1)
}

const fn at_most(value: u64, limit: u64) -> u64 {
    if value > limit { limit } else { value }
}

const fn at_least(value: u64, limit: u64) -> u64 {
    if value < limit { limit } else { value }
}

/// Bytes of a checksum table for `data_bytes` of data, in whole blocks.
pub const fn checksum_bytes(data_bytes: u64) -> u64 {
    let entries = data_bytes.div_ceil(CHECKSUM_BLOCK_BYTES);
    (entries * CHECKSUM_ENTRY_BYTES).next_multiple_of(ALIGNMENT)
}

/// The intent log of a member, as its header describes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LogShape {
    /// A random number that everything logged since the array was started carries; other members
    /// have others. 0: nothing is logged.
    pub session: u64,
    /// The log has this many adjacent zones, each written by one shard of the engine.
    pub zones: u32,
    /// Bytes of a zone.
    pub zone_bytes: u64,
    /// A random number that all members have in common since the array was started. Of a log on a
    /// journal device it is the session.
    pub run: u64,
    /// The number of membership changes before this member got its slot: its log has no older
    /// record. Smaller than any record's number if it had a slot from the start.
    pub since: u32,
    /// The form of its batches.
    pub form: log::Form,
}

/// The header of a private area.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PrivateHeader {
    /// The array.
    pub set_uuid: Uuid,
    /// The member.
    pub device_uuid: Uuid,
    /// Two halves of an array that were run apart have different histories.
    pub history_id: Uuid,
    /// The superblock's event count.
    pub events: u64,
    /// The superblock's `utime`, tag included.
    pub utime: Timestamp,
    /// The member's slot; `None` for a spare.
    pub slot: Option<u16>,
    /// The area, in bytes from the start of the member.
    pub bounds: Range<u64>,
    /// The parts of the area.
    pub parts: Parts,
    /// The content of the intent log, if any.
    pub log: LogShape,
    /// The policy against the write hole. The user's choice: it applies even if the rest of a
    /// header is not valid.
    pub consistency: Consistency,
    /// Some parity was never in sync, or a crash tore it and replay could not resolve it, and it
    /// has not been resynced since. The log has no record of this.
    pub unverified: bool,
    /// The list of the array's bad blocks that goes with this copy of the header.
    pub bad: BadList,
    /// The array keeps checksums ([`checksums`]), and from this array offset on they mean nothing
    /// yet; `u64::MAX`: all of them count. `None`: it keeps none.
    pub checksums_from: Option<u64>,
    /// From `checksums_from` on a crash may have separated blocks from their entries. A block that
    /// fits its entry is right there; of any other block the entry proves nothing.
    pub checksums_torn: bool,
    /// The array's journal device, if it has one.
    pub journal: Option<JournalNote>,
}

/// Why a header that parses does not count for a superblock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mismatch {
    /// It belongs to another array.
    Array,
    /// It belongs to another member.
    Member,
    /// The superblock has no tag of ours: md wrote it.
    Untagged,
    /// The superblock has another event count or time: it was written after the header, or before.
    Superseded,
    /// A level whose superblocks md leaves alone while it writes data (linear, RAID 0).
    Unwitnessed,
    /// The area is elsewhere now: the data, or one of md's structures, has moved.
    Moved,
}

impl PrivateHeader {
    /// The copy (0 or 1) that a header for `events` goes into.
    pub const fn copy(events: u64) -> u64 {
        events % 2
    }

    /// Reads a header from the start of `bytes`.
    ///
    /// # Errors
    /// The first field that is wrong; [`Fault::Magic`] if there is no header here.
    pub fn parse(bytes: &[u8], crc32c: Crc32c) -> Result<PrivateHeader, ParseError> {
        let bytes = FRAME.open(bytes, crc32c)?;
        let header = PrivateHeader {
            set_uuid: Uuid(at::SET_UUID.array(bytes)),
            device_uuid: Uuid(at::DEVICE_UUID.array(bytes)),
            history_id: Uuid(at::HISTORY_ID.array(bytes)),
            events: at::EVENTS.get(bytes),
            utime: Timestamp(at::UTIME.get(bytes)),
            slot: read_slot(at::SLOT.get_u32(bytes))?,
            bounds: at::START.get(bytes)..at::END.get(bytes),
            parts: Parts {
                log: at::LOG_START.get(bytes)..at::LOG_END.get(bytes),
                regions: at::REGIONS_START.get(bytes)..at::REGIONS_END.get(bytes),
                history: at::HISTORY_START.get(bytes)..at::HISTORY_END.get(bytes),
                checksums: at::CHECKSUMS_START.get(bytes)..at::CHECKSUMS_END.get(bytes),
            },
            log: LogShape {
                session: at::LOG_SESSION.get(bytes),
                zones: at::LOG_ZONES.get_u32(bytes),
                zone_bytes: at::LOG_ZONE_BYTES.get(bytes),
                run: at::LOG_RUN.get(bytes),
                since: at::LOG_SINCE.get_u32(bytes),
                form: match at::FLAGS.get(bytes) & FLAG_WIDE {
                    0 => log::Form::Narrow,
                    _ => log::Form::Wide,
                },
            },
            consistency: read_consistency(at::CONSISTENCY.get(bytes))?,
            unverified: at::FLAGS.get(bytes) & FLAG_UNVERIFIED != 0,
            bad: BadList { count: at::BAD_COUNT.get_u32(bytes), crc: at::BAD_CRC.get_u32(bytes) },
            checksums_from: read_checksums(bytes)?,
            checksums_torn: at::FLAGS.get(bytes) & FLAG_CHECKSUMS_TORN != 0,
            journal: read_journal(bytes)?,
        };
        let flags = at::FLAGS.get(bytes);
        if flags & !FLAGS != 0 {
            return Err(at::FLAGS.wrong(STRUCTURE, flags, Fault::Refused("has unknown bits")));
        }
        header.check_parts()?;
        header.check_log()?;
        Ok(header)
    }

    /// The parts follow the headers and one another, inside the bounds, in whole blocks.
    fn check_parts(&self) -> Result<(), ParseError> {
        let fields = [
            (at::LOG_START, at::LOG_END),
            (at::REGIONS_START, at::REGIONS_END),
            (at::HISTORY_START, at::HISTORY_END),
            (at::CHECKSUMS_START, at::CHECKSUMS_END),
        ];
        let mut least = self.bounds.start.saturating_add(HEADERS_BYTES);
        for (part, (start, end)) in self.parts.in_order().into_iter().zip(fields) {
            for (field, value) in [(start, part.start), (end, part.end)] {
                if value < least {
                    return Err(field.wrong(STRUCTURE, value, Fault::Below { least }));
                }
                if value > self.bounds.end {
                    let fault = Fault::Above { most: self.bounds.end };
                    return Err(field.wrong(STRUCTURE, value, fault));
                }
                if !value.is_multiple_of(ALIGNMENT) {
                    let fault = Fault::Refused("must be a multiple of 4096");
                    return Err(field.wrong(STRUCTURE, value, fault));
                }
                least = value;
            }
        }
        Ok(())
    }

    /// The zones of the log lie within it, in whole blocks.
    fn check_log(&self) -> Result<(), ParseError> {
        let LogShape { zones, zone_bytes, .. } = self.log;
        if !zone_bytes.is_multiple_of(ALIGNMENT) {
            let fault = Fault::Refused("must be a multiple of 4096");
            return Err(at::LOG_ZONE_BYTES.wrong(STRUCTURE, zone_bytes, fault));
        }
        let most = self.parts.log.end - self.parts.log.start;
        match zone_bytes.checked_mul(zones.into()) {
            Some(bytes) if bytes <= most && (zones == 0 || bytes > 0) => Ok(()),
            _ => Err(at::LOG_ZONES.wrong(STRUCTURE, zones.into(), Fault::Above { most })),
        }
    }

    /// The header's 4096 bytes.
    pub fn print(&self, crc32c: Crc32c) -> Vec<u8> {
        let mut bytes = vec![0; HEADER_BYTES as usize];
        at::SET_UUID.put_bytes(&mut bytes, &self.set_uuid.0);
        at::DEVICE_UUID.put_bytes(&mut bytes, &self.device_uuid.0);
        at::HISTORY_ID.put_bytes(&mut bytes, &self.history_id.0);
        at::EVENTS.put(&mut bytes, self.events);
        at::UTIME.put(&mut bytes, self.utime.0);
        at::SLOT.put(&mut bytes, u64::from(self.slot.map_or(NO_SLOT, u32::from)));
        for (start, end, range) in [
            (at::START, at::END, &self.bounds),
            (at::LOG_START, at::LOG_END, &self.parts.log),
            (at::REGIONS_START, at::REGIONS_END, &self.parts.regions),
            (at::HISTORY_START, at::HISTORY_END, &self.parts.history),
            (at::CHECKSUMS_START, at::CHECKSUMS_END, &self.parts.checksums),
        ] {
            start.put(&mut bytes, range.start);
            end.put(&mut bytes, range.end);
        }
        at::LOG_SESSION.put(&mut bytes, self.log.session);
        at::LOG_ZONES.put(&mut bytes, self.log.zones.into());
        at::LOG_ZONE_BYTES.put(&mut bytes, self.log.zone_bytes);
        at::LOG_RUN.put(&mut bytes, self.log.run);
        at::LOG_SINCE.put(&mut bytes, self.log.since.into());
        at::CONSISTENCY.put(&mut bytes, self.consistency.number());
        at::FLAGS.put(&mut bytes, self.flags());
        if let Some(journal) = &self.journal {
            at::JOURNAL_UUID.put_bytes(&mut bytes, &journal.uuid.0);
            at::JOURNAL_NAME.put_bytes(&mut bytes, &journal.name.0);
        }
        at::CHECKSUMS_FROM.put(&mut bytes, self.checksums_from.unwrap_or(0));
        at::BAD_COUNT.put(&mut bytes, self.bad.count.into());
        at::BAD_CRC.put(&mut bytes, self.bad.crc.into());
        FRAME.close(&mut bytes, crc32c);
        bytes
    }

    fn flags(&self) -> u64 {
        let flag = |is: bool, flag| if is { flag } else { 0 };
        let used = self.journal.map(|journal| journal.used);
        flag(self.unverified, FLAG_UNVERIFIED)
            | flag(self.checksums_from.is_some(), FLAG_CHECKSUMS)
            | flag(self.checksums_from.is_some() && self.checksums_torn, FLAG_CHECKSUMS_TORN)
            | flag(used == Some(JournalUse::Logging), FLAG_JOURNAL)
            | flag(used == Some(JournalUse::GivenUp), FLAG_GIVEN_UP)
            | flag(self.log.form == log::Form::Wide, FLAG_WIDE)
    }

    /// Where the list of bad blocks lies that goes with this header: bytes from the start of the
    /// member. `None` if it would be longer than there is room for.
    pub fn bad_list(&self) -> Option<Range<u64>> {
        let room = bad::COPY_BYTES;
        let start = self.parts.history.start + PrivateHeader::copy(self.events) * room;
        let bytes = bad::bytes_of(self.bad);
        (bytes <= room && start + room <= self.parts.history.end).then(|| start..start + bytes)
    }

    /// Is this the header of `superblock`, whose private area has these `bounds`?
    ///
    /// # Errors
    /// The first difference. Then log and region bits must be ignored, and checksums are unverified
    /// until they are recomputed.
    pub fn matches(&self, superblock: &Superblock, bounds: &Range<u64>) -> Result<(), Mismatch> {
        if self.set_uuid != superblock.set_uuid {
            Err(Mismatch::Array)
        } else if self.device_uuid != superblock.device.uuid {
            Err(Mismatch::Member)
        } else if Tag::of(superblock.utime).is_none() {
            Err(Mismatch::Untagged)
        } else if (self.events, self.utime) != (superblock.events, superblock.utime) {
            Err(Mismatch::Superseded)
        } else if UNWITNESSED.contains(&superblock.level) {
            Err(Mismatch::Unwitnessed)
        } else if self.bounds != *bounds {
            Err(Mismatch::Moved)
        } else {
            Ok(())
        }
    }
}

/// The newer header of the two `copies`, valid or not: the user's choices in it apply in either
/// case.
pub fn latest(copies: &[u8], set_uuid: &Uuid, crc32c: Crc32c) -> Option<PrivateHeader> {
    let headers = copies.chunks(HEADER_BYTES as usize).take(2);
    let parsed = headers.filter_map(|copy| PrivateHeader::parse(copy, crc32c).ok());
    parsed.filter(|header| header.set_uuid == *set_uuid).max_by_key(|header| header.events)
}

/// The header that counts for `superblock` among the two `copies` (both as read from the disk, one
/// after the other), if there is one.
pub fn valid(
    copies: &[u8],
    superblock: &Superblock,
    bounds: &Range<u64>,
    crc32c: Crc32c,
) -> Option<PrivateHeader> {
    let headers = copies.chunks(HEADER_BYTES as usize).take(2);
    let parsed = headers.filter_map(|copy| PrivateHeader::parse(copy, crc32c).ok());
    parsed.into_iter().find(|header| header.matches(superblock, bounds).is_ok())
}

fn read_slot(number: u32) -> Result<Option<u16>, ParseError> {
    match u16::try_from(number) {
        Ok(slot) => Ok(Some(slot)),
        Err(_) if number == NO_SLOT => Ok(None),
        Err(_) => {
            let fault = Fault::Above { most: u64::from(u16::MAX) };
            Err(at::SLOT.wrong(STRUCTURE, u64::from(number), fault))
        }
    }
}

fn read_checksums(bytes: &[u8]) -> Result<Option<u64>, ParseError> {
    let (from, flags) = (at::CHECKSUMS_FROM.get(bytes), at::FLAGS.get(bytes));
    if flags & (FLAG_CHECKSUMS | FLAG_CHECKSUMS_TORN) == FLAG_CHECKSUMS_TORN {
        return Err(at::FLAGS.wrong(STRUCTURE, flags, Fault::Refused("of an array without sums")));
    }
    match flags & FLAG_CHECKSUMS {
        0 if from != 0 => Err(at::CHECKSUMS_FROM.wrong(
            STRUCTURE,
            from,
            Fault::Refused("of an array without sums"),
        )),
        0 => Ok(None),
        _ => Ok(Some(from)),
    }
}

/// The journal device. Without a UUID there is none, and its other fields are empty.
fn read_journal(bytes: &[u8]) -> Result<Option<JournalNote>, ParseError> {
    let (uuid, name) = (Uuid(at::JOURNAL_UUID.array(bytes)), at::JOURNAL_NAME.array(bytes));
    let flags = at::FLAGS.get(bytes) & (FLAG_JOURNAL | FLAG_GIVEN_UP);
    let wrong = |why| Err(at::FLAGS.wrong(STRUCTURE, flags, Fault::Refused(why)));
    let used = match flags {
        0 => JournalUse::Away,
        FLAG_JOURNAL => JournalUse::Logging,
        FLAG_GIVEN_UP => JournalUse::GivenUp,
        _ => return wrong("an abandoned journal device has no log"),
    };
    if uuid != Uuid([0; 16]) {
        return Ok(Some(JournalNote { uuid, name: DeviceName(name), used }));
    }
    if used != JournalUse::Away || name != [0; 128] {
        return wrong("of an array without a journal device");
    }
    Ok(None)
}

fn read_consistency(number: u64) -> Result<Consistency, ParseError> {
    let known = Consistency::ALL.into_iter().find(|policy| policy.number() == number);
    known.ok_or_else(|| at::CONSISTENCY.wrong(STRUCTURE, number, Fault::Refused("is unknown")))
}

#[cfg(test)]
#[path = "private/tests.rs"]
mod tests;
