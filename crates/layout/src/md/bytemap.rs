//! The owner of every byte of a member.
//!
//! Owns the decision for a new member, where everything is reserved at once, and its recovery from
//! the superblock of a member that is found, ours or anyone's. Never reads anything: a map is made
//! from numbers alone, so it is the same each time.
//!
//! ```text
//! 1.1, 1.2  |superblock|bitmap|bad blocks|PPL|  private  |        data          |
//!           0 (1.1) or 4096                              data_offset, 1 MiB-aligned
//!
//! 1.0       |        data          |  private  |PPL|bitmap|bad blocks|superblock|
//!           0                                                        8 to 12 KiB from the end
//! ```
//!
//! At 1.0 everything is behind the data, in reverse order, because 1.0 exists for members whose
//! data begins at byte 0 (a kernel would allow another `data_offset`, see `docs/format.md`). md's
//! own structures are next to the superblock in mdadm's order. Each has its space whether it is
//! used or not: Parapet or mdadm can add a bitmap or a partial parity log later without moving
//! anything.
//!
//! Invariants: the ranges of a map lie within the member and do not overlap;
//! [`ByteMap::describe`] then [`ByteMap::of`] gives the same map.

use alloc::vec;
use alloc::vec::Vec;
use core::fmt;
use core::ops::Range;

use super::feature::Features;
use super::field::{Fault, Field, ParseError};
use super::superblock::{PplPlace, RESERVED_BYTES, Superblock, Version, at, position};
use super::{SECTOR, bitmap};
use crate::geometry::Amount;
use crate::private::{self, Parts};

/// `data_offset` of a new member is a multiple of this (0 at 1.0).
pub const DATA_ALIGNMENT: u64 = 1 << 20;
/// Room for md's bad-block log.
pub const BAD_BLOCKS_BYTES: u64 = 8 * SECTOR;
/// Room for md's partial parity log, as mdadm sets it.
pub const PPL_BYTES: u64 = 1 << 20;
/// Boundaries that md does not fix are multiples of this.
const BLOCK: u64 = 4096;
/// A new member has room for a chunk, and for this much.
const LEAST_DATA_BYTES: u64 = 64 << 10;

const STRUCTURE: &str = "superblock";

/// The places of everything on a member. All ranges are bytes from its start.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ByteMap {
    /// Where the superblock lies, and so on which side of the data everything else.
    pub version: Version,
    /// The member's size.
    pub member_bytes: u64,
    /// The superblock and the room it may grow into.
    pub superblock: Range<u64>,
    /// Where the bitmap is, or could be put.
    pub bitmap: Option<Range<u64>>,
    /// The bad-block log.
    pub bad_blocks: Option<Range<u64>>,
    /// Where md's partial parity log is, or could be put.
    pub ppl: Option<Range<u64>>,
    /// Parapet's own area: `None` where md's structures and the data leave no room.
    pub private: Option<Range<u64>>,
    /// The data.
    pub data: Range<u64>,
}

/// A member lacks space for its metadata.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TooSmall {
    /// The member's size.
    pub member_bytes: u64,
    /// The minimum size.
    pub least_bytes: u64,
}

impl fmt::Display for TooSmall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TooSmall { member_bytes, least_bytes } = self;
        let (own, least) = (Amount(*member_bytes), Amount(*least_bytes));
        write!(f, "a member of {own} is too small: at least {least} are needed")
    }
}

impl core::error::Error for TooSmall {}

impl ByteMap {
    /// The map of a new member of `member_bytes` in an array with chunks of `chunk_bytes` (0 where
    /// the level has none). The same for every level, since an array may change its level.
    ///
    /// # Errors
    /// If no room is left for one chunk (or 64 KiB) of data.
    pub fn for_new_member(
        member_bytes: u64,
        chunk_bytes: u64,
        version: Version,
    ) -> Result<ByteMap, TooSmall> {
        let least_data = chunk_bytes.max(LEAST_DATA_BYTES);
        let least_bytes = least_member(least_data, version);
        let too_small = TooSmall { member_bytes, least_bytes };
        let start = position(version, member_bytes).ok_or(too_small)?;
        let map = match version {
            Version::V1_0 => ByteMap::before(start, member_bytes),
            _ => ByteMap::behind(start, member_bytes, version),
        };
        let map = map.filter(|map| map.data_bytes() >= least_data).ok_or(too_small)?;
        map.assert_apart();
        Ok(map)
    }

    /// Checks the map of a new member: all within the member, and no two things in one place.
    fn assert_apart(&self) {
        let ByteMap { bitmap, bad_blocks, ppl, private, .. } = self;
        let mut all = vec![&self.superblock, &self.data];
        all.extend([bitmap, bad_blocks, ppl, private].into_iter().flatten());
        all.sort_by_key(|range| range.start);
        let mut end = 0;
        for range in all {
            assert!(end <= range.start && range.start < range.end, "{range:?} overlaps: {self:?}");
            end = range.end;
        }
        assert!(end <= self.member_bytes, "{end} is beyond the member: {self:?}");
    }

    /// 1.1 and 1.2: everything between a superblock at `start` and the data.
    fn behind(start: u64, member_bytes: u64, version: Version) -> Option<ByteMap> {
        let data_offset = reserved(member_bytes, version);
        let superblock = start..start + RESERVED_BYTES;
        let bitmap = superblock.end..superblock.end + bitmap::space(member_bytes);
        let bad_blocks = bitmap.end..bitmap.end + BAD_BLOCKS_BYTES;
        let ppl = bad_blocks.end..bad_blocks.end + PPL_BYTES;
        let private = ppl.end..data_offset;
        let data = data_offset..floor(member_bytes, BLOCK);
        (data.start < data.end).then_some(ByteMap {
            version,
            member_bytes,
            superblock,
            bitmap: Some(bitmap),
            bad_blocks: Some(bad_blocks),
            ppl: Some(ppl),
            private: Some(private),
            data,
        })
    }

    /// 1.0: everything between the data and a superblock at `start`.
    fn before(start: u64, member_bytes: u64) -> Option<ByteMap> {
        let superblock = start..start + RESERVED_BYTES;
        let bad_blocks = start.checked_sub(BAD_BLOCKS_BYTES)?..start;
        let space = bitmap::space(member_bytes);
        let bitmap = bad_blocks.start.checked_sub(space)?..bad_blocks.start;
        let ppl = bitmap.start.checked_sub(PPL_BYTES)?..bitmap.start;
        let private = private::wanted_bytes(member_bytes);
        let data = 0..floor(ppl.start.checked_sub(private)?, BLOCK);
        Some(ByteMap {
            version: Version::V1_0,
            member_bytes,
            superblock,
            bitmap: Some(bitmap),
            bad_blocks: Some(bad_blocks),
            private: Some(data.end..ppl.start),
            ppl: Some(ppl),
            data,
        })
    }

    /// The map for another member of `member_bytes` that joins an array whose members look like
    /// this one and need `data_bytes` of data. It keeps the same offsets, so a member at least as
    /// large as the others always fits.
    ///
    /// # Errors
    /// If it does not hold `data_bytes`.
    pub fn for_joining_member(
        &self,
        member_bytes: u64,
        data_bytes: u64,
    ) -> Result<ByteMap, TooSmall> {
        let margin = match self.version {
            Version::V1_0 => self.superblock.start - self.data.end + 3 * RESERVED_BYTES,
            _ => 0,
        };
        let least_bytes = (self.data.start + data_bytes + margin).next_multiple_of(BLOCK);
        let too_small = TooSmall { member_bytes, least_bytes };
        let start = position(self.version, member_bytes).ok_or(too_small)?;
        let map = match self.version {
            Version::V1_0 => self.shifted(start, member_bytes).ok_or(too_small)?,
            _ => {
                let data = self.data.start..floor(member_bytes, BLOCK);
                ByteMap { member_bytes, data, ..self.clone() }
            }
        };
        let fits = map.data.start < map.data.end && map.data_bytes() >= data_bytes;
        fits.then_some(map).ok_or(too_small)
    }

    /// The same map with at most `data_bytes` of data. Bytes removed from the data stay unused
    /// behind it, or go to the private area if that is behind it (1.0). So a large disk has the
    /// same space for log and checksums as a member of the array's own size: the checksum table
    /// grows with the data.
    #[must_use]
    pub fn capped(mut self, data_bytes: u64) -> ByteMap {
        let end = self.data.start.saturating_add(data_bytes).next_multiple_of(BLOCK);
        if end < self.data.end {
            self.data.end = end;
            if let (Version::V1_0, Some(private)) = (self.version, &mut self.private) {
                private.start = end;
            }
        }
        self
    }

    /// 1.0: the same map with its superblock, and all that lies behind the data, at `start`.
    fn shifted(&self, start: u64, member_bytes: u64) -> Option<ByteMap> {
        let from = self.superblock.start;
        let place = |byte: u64| (byte + start).checked_sub(from);
        let shift = |range: &Range<u64>| Some(place(range.start)?..place(range.end)?);
        let behind = |range: &Option<Range<u64>>| range.as_ref().and_then(shift);
        Some(ByteMap {
            version: self.version,
            member_bytes,
            superblock: shift(&self.superblock)?,
            bitmap: behind(&self.bitmap),
            bad_blocks: behind(&self.bad_blocks),
            ppl: behind(&self.ppl),
            private: behind(&self.private),
            data: self.data.start..place(self.data.end)?,
        })
    }

    /// The room for data, in bytes.
    pub const fn data_bytes(&self) -> u64 {
        self.data.end - self.data.start
    }

    /// How the private area is divided, if there is one.
    pub fn private_parts(&self) -> Option<Parts> {
        Parts::of(self.private.clone()?, self.data_bytes())
    }

    /// The room for the intent log, in bytes; 0 without a private area.
    pub fn log_bytes(&self) -> u64 {
        self.private_parts().map_or(0, |parts| parts.log.end - parts.log.start)
    }

    /// The bitmap's place for a superblock: sectors from it.
    pub fn bitmap_offset(&self) -> Option<i32> {
        self.bitmap.as_ref().map(|range| self.offset(range))
    }

    /// The partial parity log's place for a superblock.
    pub fn ppl_place(&self) -> Option<PplPlace> {
        let range = self.ppl.as_ref()?;
        let offset = i16::try_from(self.offset(range)).ok()?;
        let size = u16::try_from((range.end - range.start) / SECTOR).ok()?;
        Some(PplPlace { offset, size })
    }

    /// Sectors from the superblock to the start of `range`.
    fn offset(&self, range: &Range<u64>) -> i32 {
        let sector = |byte: u64| (byte / SECTOR) as i64;
        let distance = sector(range.start) - sector(self.superblock.start);
        i32::try_from(distance).expect("md's structures lie within 2 MiB of the superblock")
    }

    /// Writes the map into a superblock: where it lies, where the data and the bad-block log are,
    /// and, as its features ask, where the bitmap or the partial parity log is.
    pub fn describe(&self, superblock: &mut Superblock) {
        superblock.super_offset = self.superblock.start / SECTOR;
        superblock.data_offset = self.data.start / SECTOR;
        superblock.data_size = self.data_bytes() / SECTOR;
        superblock.bblog.shift = 0;
        let bad_blocks = self.bad_blocks.as_ref();
        superblock.bblog.offset = bad_blocks.map_or(0, |range| self.offset(range));
        let bytes = bad_blocks.map_or(0, |range| range.end - range.start);
        superblock.bblog.sectors = (bytes / SECTOR) as u16;
        superblock.bitmap_offset = 0;
        if superblock.features.contains(Features::BITMAP) {
            superblock.bitmap_offset = self.bitmap_offset().unwrap_or(0);
        } else if superblock.features.intersects(Features::ANY_PPL)
            && let Some(place) = self.ppl_place()
        {
            superblock.set_ppl(place);
        }
    }

    /// The map of a member as its superblock describes it. Space that the superblock does not
    /// record (for an unused bitmap or partial parity log) is put where [`ByteMap::for_new_member`]
    /// would have put it, if it fits.
    ///
    /// No private area is found while a reshape moves the data.
    ///
    /// # Errors
    /// If something lies beyond the member's end, or two things lie in the same place.
    pub fn of(superblock: &Superblock, member_bytes: u64) -> Result<ByteMap, ParseError> {
        let start = superblock.super_offset * SECTOR;
        let own = start..start + superblock.printed_bytes();
        if own.end > member_bytes {
            let fault = Fault::Conflict("beyond the end of the member");
            return Err(at::SUPER_OFFSET.wrong(STRUCTURE, superblock.super_offset, fault));
        }
        let data_start = superblock.data_offset * SECTOR;
        let data = data_start..data_start + superblock.data_size * SECTOR;
        if data.end > member_bytes {
            let most = member_bytes.saturating_sub(data.start) / SECTOR;
            let fault = Fault::Above { most };
            return Err(at::DATA_SIZE.wrong(STRUCTURE, superblock.data_size, fault));
        }
        let structures = Structures::of(superblock, member_bytes, &own, &data)?;
        let Structures { bitmap, bad_blocks, ppl } = structures;
        let others = [&bitmap, &bad_blocks, &ppl].into_iter().flatten().chain([&data]);
        let next = others.map(|range| range.start).filter(|&at| at >= own.end).min();
        let room = (start + RESERVED_BYTES).min(next.unwrap_or(member_bytes)).min(member_bytes);
        let mut map = ByteMap {
            version: superblock.version(),
            member_bytes,
            superblock: start..room,
            bitmap,
            bad_blocks,
            ppl,
            private: None,
            data,
        };
        if !superblock.features.contains(Features::NEW_OFFSET) {
            map.infer();
        }
        Ok(map)
    }

    /// Finds space for missing parts: bitmap, then partial parity log, then the private area.
    fn infer(&mut self) {
        let zone = Zone::of(self);
        let known = [&self.bitmap, &self.bad_blocks, &self.ppl];
        let mut taken: Vec<_> = known.into_iter().flatten().filter_map(|r| zone.depth(r)).collect();
        taken.sort_by_key(|range| range.start);
        let mut next = taken.iter().map(|range| range.end).max().unwrap_or(0);
        // If only the data follows, as much as a bitmap in use has: then the following parts stay
        // in place.
        let least = bitmap::space(self.member_bytes);
        let room = match zone.mirrored {
            true => least,
            false => bitmap::MOST_SPACE_BYTES.min(zone.depth.saturating_sub(next)).max(least),
        };
        let mut claim = |bytes: u64| {
            let end = next.checked_add(bytes).filter(|&end| end <= zone.depth)?;
            let range = next..end;
            next = end;
            Some(zone.place(&range))
        };
        if self.bitmap.is_none() {
            let hole = hole(&taken).map(|hole| zone.place(&hole));
            self.bitmap = hole.or_else(|| claim(room));
        }
        if self.ppl.is_none() {
            self.ppl = claim(PPL_BYTES);
        }
        let rest = zone.place(&(next..zone.depth));
        let rest = rest.start.next_multiple_of(BLOCK)..floor(rest.end, BLOCK);
        let usable = Parts::of(rest.clone(), self.data_bytes()).is_some();
        self.private = usable.then_some(rest);
    }
}

/// Bytes of a new member that are not data.
const fn reserved(member_bytes: u64, version: Version) -> u64 {
    let structures = bitmap::space(member_bytes) + BAD_BLOCKS_BYTES + PPL_BYTES;
    let all = structures + private::wanted_bytes(member_bytes);
    match version {
        Version::V1_0 => 3 * RESERVED_BYTES + all, // it ends at most 12 KiB behind its superblock
        Version::V1_1 => (RESERVED_BYTES + all).next_multiple_of(DATA_ALIGNMENT),
        Version::V1_2 => (2 * RESERVED_BYTES + all).next_multiple_of(DATA_ALIGNMENT),
    }
}

/// The size of the smallest member with `data_bytes` of data. The reserved space grows with the
/// member, so the answer is approached from below.
fn least_member(data_bytes: u64, version: Version) -> u64 {
    let mut least = 0;
    loop {
        let next = (reserved(least, version) + data_bytes).next_multiple_of(BLOCK);
        if next <= least {
            return least;
        }
        least = next;
    }
}

/// The first gap between the superblock and a structure, or between two structures.
fn hole(taken: &[Range<u64>]) -> Option<Range<u64>> {
    let mut end = 0;
    for range in taken {
        if range.start > end {
            return Some(end..range.start);
        }
        end = range.end;
    }
    None
}

/// The bytes between superblock and data, measured by their distance from the superblock, so that
/// 1.0 needs no arithmetic of its own.
struct Zone {
    /// The edge of the superblock that faces the data.
    origin: u64,
    /// The distance from there to the data.
    depth: u64,
    /// True if the data lies before the superblock.
    mirrored: bool,
}

impl Zone {
    fn of(map: &ByteMap) -> Zone {
        match map.version {
            Version::V1_0 => {
                let origin = map.superblock.start;
                Zone { origin, depth: origin.saturating_sub(map.data.end), mirrored: true }
            }
            _ => {
                let origin = map.superblock.end;
                Zone { origin, depth: map.data.start.saturating_sub(origin), mirrored: false }
            }
        }
    }

    /// A range of member bytes as distances; `None` if it lies outside the zone.
    fn depth(&self, range: &Range<u64>) -> Option<Range<u64>> {
        let depths = match self.mirrored {
            true if range.start < self.origin => {
                self.origin.saturating_sub(range.end)..self.origin - range.start
            }
            false if range.end > self.origin => {
                range.start.saturating_sub(self.origin)..range.end - self.origin
            }
            _ => return None,
        };
        (depths.end <= self.depth).then_some(depths)
    }

    /// The reverse.
    fn place(&self, depths: &Range<u64>) -> Range<u64> {
        match self.mirrored {
            true => self.origin - depths.end..self.origin - depths.start,
            false => self.origin + depths.start..self.origin + depths.end,
        }
    }
}

/// md's structures according to the superblock.
#[derive(Default)]
struct Structures {
    bitmap: Option<Range<u64>>,
    bad_blocks: Option<Range<u64>>,
    ppl: Option<Range<u64>>,
}

impl Structures {
    fn of(
        superblock: &Superblock,
        member_bytes: u64,
        own: &Range<u64>,
        data: &Range<u64>,
    ) -> Result<Structures, ParseError> {
        let mut found = Structures::default();
        let mut taken: Vec<Range<u64>> = [own.clone(), data.clone()].into();
        let place = |field, offset: i32, bytes: u64, taken: &mut Vec<Range<u64>>| {
            if bytes == 0 {
                return Err(misplaced(field, offset, "without any room"));
            }
            let start = own.start.checked_add_signed(i64::from(offset) * SECTOR as i64);
            let Some(start) = start else {
                return Err(misplaced(field, offset, "before the start of the member"));
            };
            let range = start..start.saturating_add(bytes);
            if range.end > member_bytes {
                return Err(misplaced(field, offset, "beyond the end of the member"));
            }
            if taken.iter().any(|other| range.start < other.end && other.start < range.end) {
                return Err(misplaced(field, offset, "where something else lies"));
            }
            taken.push(range.clone());
            Ok(range)
        };
        if superblock.bblog.offset != 0 && superblock.bblog.sectors != 0 {
            let bytes = u64::from(superblock.bblog.sectors) * SECTOR;
            let offset = superblock.bblog.offset;
            found.bad_blocks = Some(place(at::BBLOG_OFFSET, offset, bytes, &mut taken)?);
        }
        if let Some(PplPlace { offset, size }) = superblock.ppl() {
            let bytes = u64::from(size) * SECTOR;
            found.ppl = Some(place(at::BITMAP_OFFSET, i32::from(offset), bytes, &mut taken)?);
        }
        if superblock.features.contains(Features::BITMAP) {
            let offset = superblock.bitmap_offset;
            let header = place(at::BITMAP_OFFSET, offset, bitmap::HEADER_BYTES, &mut taken)?;
            taken.pop();
            let after = taken.iter().map(|other| other.start).filter(|&at| at > header.start);
            let mut end = after.min().unwrap_or(member_bytes);
            if !superblock.features.contains(Features::CLUSTERED) {
                end = end.min(header.start + bitmap::MOST_SPACE_BYTES);
            }
            found.bitmap = Some(header.start..end);
        }
        Ok(found)
    }
}

fn misplaced(field: Field, offset: i32, why: &'static str) -> ParseError {
    field.wrong(STRUCTURE, u64::from(offset as u32), Fault::Conflict(why))
}

const fn floor(bytes: u64, multiple: u64) -> u64 {
    bytes - bytes % multiple
}
