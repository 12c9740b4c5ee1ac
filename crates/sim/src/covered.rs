//! Everything that a crash left out of sync is marked: checked on the members before an assembly.
//!
//! ```text
//!   in sync     P = Σ data, all copies equal           no work
//!   out of sync under a set bit of the bitmap, or      a resync corrects it
//!               above the checkpoint of one
//!   out of sync anywhere else                          a bug: no resync will ever reach it
//! ```
//!
//! With the intent log, under a bit *and* in a live record of the log: blocks of a lost member must
//! be recovered correctly, too.
//!
//! Reads superblocks and bitmaps by itself, with md's offsets and nothing of the engine or of
//! `layout`'s parsers: if both were wrong in the same way, this would not agree with either.

use std::cell::LazyCell;
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

use layout::{Family, Geometry, Layout, Slot, Stripe};

use crate::disk::SimDisk;
use crate::logged;
use crate::medium::SECTOR;
use crate::options::Promise;
use crate::ppl;

/// A member, as md's documents say that it lies on a disk.
pub struct Raw {
    /// The disk.
    pub disk: Rc<SimDisk>,
    /// Its superblock's first byte.
    start: u64,
    data_offset: u64,
    bitmap_start: Option<u64>,
    /// Where its partial parity log lies, and how many bytes it has.
    ppl: Option<(u64, u64)>,
    /// Of the array.
    pub set_uuid: [u8; 16],
    features: u32,
    /// Its number in the role table.
    pub number: u32,
    /// How many changes it has seen.
    pub events: u64,
    /// When its superblock was written: seconds, and above 40 bits of them microseconds.
    pub utime: u64,
    /// Of the member.
    pub device_uuid: [u8; 16],
    /// From which sector on it is not in sync; all ones: it is.
    pub resync_sector: u64,
    roles: Vec<u16>,
    /// Its superblock says that the array has this many members.
    pub raid_disks: u32,
}

const RECOVERY_OFFSET: u32 = 2;
const REPLACEMENT: u32 = 16;
/// A partial parity log, of either form.
const ANY_PPL: u32 = 1024 | 2048;

pub(crate) fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

pub(crate) fn long(bytes: &[u8], at: usize) -> u64 {
    u64::from(word(bytes, at)) | u64::from(word(bytes, at + 4)) << 32
}

/// The superblock's checksum: its words, the checksum itself taken as 0, folded once.
fn checksum(bytes: &[u8]) -> u32 {
    let words = (0..bytes.len() / 4).filter(|&at| at != 216 / 4);
    let total: u64 = words.map(|at| u64::from(word(bytes, 4 * at))).sum();
    (total as u32).wrapping_add((total >> 32) as u32)
}

/// Reads a member; `None` if there is no valid superblock in any of md's three places, or nothing
/// else.
pub fn read(disk: &Rc<SimDisk>) -> Option<Raw> {
    labelled(disk).filter(|raw| !disk.is_label(raw.events))
}

fn labelled(disk: &Rc<SimDisk>) -> Option<Raw> {
    let sectors = io::Disk::limits(&**disk).bytes / SECTOR;
    // The one at the end first: a member of an array of arrays may show another one in its data.
    let places = [(sectors - 16) / 8 * 8, 8, 0];
    places.into_iter().find_map(|sector| {
        let mut magic = [0; 4];
        disk.peek(sector * SECTOR, &mut magic);
        if word(&magic, 0) != 0xa92b_4efc && &magic != b"Pp35" {
            return None;
        }
        let mut bytes = [0; 4096];
        disk.peek(sector * SECTOR, &mut bytes);
        let most = word(&bytes, 220) as usize;
        if word(&bytes, 4) != 1 || most > 1920 || long(&bytes, 144) != sector {
            return None;
        }
        let roles =
            (0..most).map(|at| u16::from_le_bytes([bytes[256 + 2 * at], bytes[257 + 2 * at]]));
        let roles = roles.collect();
        if checksum(&bytes[..256 + 2 * most]) != word(&bytes, 216) {
            return None;
        }
        let features = word(&bytes, 8);
        let offset = i64::from(word(&bytes, 96) as i32);
        let bitmap = (features & 1 != 0).then_some(((sector as i64 + offset) as u64) * SECTOR);
        let place = word(&bytes, 96);
        let ppl = (features & ANY_PPL != 0).then(|| {
            let start = sector as i64 + i64::from(place as u16 as i16);
            (start as u64 * SECTOR, u64::from(place >> 16) * SECTOR)
        });
        Some(Raw {
            disk: Rc::clone(disk),
            start: sector * SECTOR,
            data_offset: long(&bytes, 128) * SECTOR,
            bitmap_start: bitmap,
            ppl,
            set_uuid: std::array::from_fn(|at| bytes[16 + at]),
            features,
            number: word(&bytes, 160),
            events: long(&bytes, 200),
            utime: long(&bytes, 192),
            device_uuid: std::array::from_fn(|at| bytes[168 + at]),
            resync_sector: long(&bytes, 208),
            roles,
            raid_disks: word(&bytes, 92),
        })
    })
}

impl Raw {
    /// The role that this member's table gives to a number: below 0xfffd it is a slot.
    pub fn role(&self, number: u32) -> u16 {
        self.roles.get(number as usize).copied().unwrap_or(0xffff)
    }

    /// Where its partial parity log lies on its disk, and how many bytes it has.
    pub fn ppl(&self) -> Option<(u64, u64)> {
        self.ppl
    }

    /// Where its data begins on its disk.
    pub fn data_offset(&self) -> u64 {
        self.data_offset
    }

    /// Writes its superblock, and its bitmap's header, as another engine would: without
    /// microseconds.
    pub fn rewrite(&self, events: u64, resync_sector: u64) {
        let mut bytes = vec![0; 4096];
        self.disk.peek(self.start, &mut bytes);
        let seconds = (self.utime & ((1 << 40) - 1)) + 1;
        bytes[192..200].copy_from_slice(&seconds.to_le_bytes());
        bytes[200..208].copy_from_slice(&events.to_le_bytes());
        bytes[208..216].copy_from_slice(&resync_sector.to_le_bytes());
        let most = word(&bytes, 220) as usize;
        let checksum = checksum(&bytes[..256 + 2 * most]);
        bytes[216..220].copy_from_slice(&checksum.to_le_bytes());
        self.disk.poke(self.start, &bytes);
        if let Some(bitmap) = self.bitmap_start {
            self.disk.poke_bytes(bitmap + 24, &events.to_le_bytes());
        }
    }

    /// Sets the bits of its bitmap for a range of sync space, as another engine does before it
    /// writes there.
    pub fn set_bits(&self, range: &Range<u64>) {
        self.change_bits(|bytes, chunk| {
            for bit in range.start / chunk..range.end.div_ceil(chunk) {
                bytes[(bit / 8) as usize] |= 1 << (bit % 8);
            }
        });
    }

    /// Clears all bits of its bitmap, like another engine that stops cleanly at this event.
    pub fn clear_bits(&self, events: u64) {
        self.change_bits(|bytes, _| bytes.fill(0));
        if let Some(start) = self.bitmap_start {
            self.disk.poke_bytes(start + 32, &events.to_le_bytes());
        }
    }

    fn change_bits(&self, change: impl Fn(&mut [u8], u64)) {
        let Some(Bits { start, chunk, mut bytes }) = self.bits() else { return };
        change(&mut bytes, chunk);
        self.disk.poke_bytes(start, &bytes);
    }

    /// The bits of its bitmap that are set, as ranges of sync space; `None` if it cannot be relied
    /// on.
    fn dirty(&self) -> Option<Vec<Range<u64>>> {
        let Bits { chunk, bytes, .. } = self.bits()?;
        let bits = 8 * bytes.len() as u64;
        let set = (0..bits).filter(|bit| bytes[(bit / 8) as usize] >> (bit % 8) & 1 != 0);
        Some(set.map(|bit| bit * chunk..(bit + 1) * chunk).collect())
    }

    /// Its bitmap, if it can be relied on.
    fn bits(&self) -> Option<Bits> {
        let start = self.bitmap_start?;
        let mut header = [0; 256];
        self.disk.peek(start, &mut header);
        let (events, size) = (long(&header, 24), long(&header, 40) * SECTOR);
        let (state, chunk) = (word(&header, 48), u64::from(word(&header, 52)));
        let sound = &header[..4] == b"bitm" && chunk > 0 && events >= self.events && state & 6 == 0;
        if !sound {
            return None;
        }
        let bits = size.div_ceil(chunk);
        let mut bytes = vec![0; bits.div_ceil(8) as usize];
        self.disk.peek(start + 256, &mut bytes);
        Some(Bits { start: start + 256, chunk, bytes })
    }
}

/// The bits of a bitmap.
struct Bits {
    /// Their first byte on the disk.
    start: u64,
    /// Bytes that one bit stands for.
    chunk: u64,
    bytes: Vec<u8>,
}

/// True if the members say that nothing was being written.
pub fn is_quiet(slots: &BTreeMap<usize, Raw>) -> bool {
    let quiet = |raw: &Raw| {
        raw.resync_sector == u64::MAX && raw.dirty().is_none_or(|marked| marked.is_empty())
    };
    slots.values().all(quiet)
}

/// The valid members, by slot: those that the freshest superblock lists as in sync.
pub fn slots(disks: &[Rc<SimDisk>]) -> BTreeMap<usize, Raw> {
    let members: Vec<Raw> = disks.iter().filter_map(read).collect();
    let given_up = |member: &Raw| {
        let newer = members.iter().filter(|other| other.events >= member.events);
        newer.filter(|other| other.role(member.number) >= 0xfffd).count()
    };
    let Some(freshest) = members.iter().max_by_key(|m| (m.events, std::cmp::Reverse(given_up(m))))
    else {
        return BTreeMap::new();
    };
    let (events, roles) = (freshest.events, freshest.roles.clone());
    let mut slots = BTreeMap::new();
    for member in members {
        let role = roles.get(member.number as usize).copied().unwrap_or(0xffff);
        let own = member.role(member.number);
        let whole = member.features & (RECOVERY_OFFSET | REPLACEMENT) == 0;
        let counts = role < 0xfffd && own == role && whole && events - member.events <= 1;
        if counts {
            slots.insert(usize::from(role), member);
        }
    }
    slots
}

/// Compares the members of a crashed array with their dirty marks.
///
/// # Errors
/// The first place that is out of step and not marked.
pub fn covered(
    geometry: &Geometry,
    disks: &[Rc<SimDisk>],
    promise: Promise,
    journal: Option<&Rc<SimDisk>>,
) -> Result<(), String> {
    let slots = slots(disks);
    let Some(freshest) = slots.values().max_by_key(|member| member.events) else { return Ok(()) };
    let from = freshest.resync_sector.saturating_mul(SECTOR);
    let copies: Vec<_> = slots.values().filter_map(Raw::dirty).collect();
    let marked = |at: u64, len: u64| {
        if freshest.resync_sector == u64::MAX || at + len <= from {
            return false;
        }
        let bitmap = freshest.features & 1 != 0 && !copies.is_empty();
        !bitmap || copies.iter().flatten().any(|range| range.start < at + len && at < range.end)
    };
    match geometry.family() {
        Family::Plain => Ok(()),
        Family::Parity if slots.len() < geometry.slots() => Ok(()),
        Family::Parity => {
            let closed = promise == Promise::Closed;
            let ppl = freshest.ppl.is_some();
            let log = closed.then(|| {
                LazyCell::new(|| match ppl {
                    true => ppl::rows(geometry, slots.values()),
                    false => logged::rows(slots.values(), journal),
                })
            });
            let logged = |stripe: u64, sector: Range<u64>| {
                let rows = log.as_ref().map(|rows| rows.get(&stripe));
                let holds = |row: &Range<u64>| row.start <= sector.start && sector.end <= row.end;
                rows.is_none_or(|rows| rows.is_some_and(|rows| rows.iter().any(holds)))
            };
            parity(geometry, &slots, closed, marked, logged)
        }
        Family::Mirror => mirrors(geometry, &slots, marked),
    }
}

/// Recomputes the parity of a stripe from its data.
pub fn encode(geometry: &Geometry, slots: &BTreeMap<usize, Raw>, stripe: u64) {
    let len = geometry.chunk_bytes() as usize;
    let (mut bytes, mut p, mut q) = (vec![0_u8; len], vec![0_u8; len], vec![0_u8; len]);
    let map = geometry.stripe(Stripe(stripe));
    let place = |slot: Slot| {
        let raw = &slots[&slot.index()];
        (&raw.disk, raw.data_offset + map.member_offset())
    };
    for index in 0..map.data_count() {
        let (disk, at) = place(map.data(index));
        disk.peek(at, &mut bytes);
        p.iter_mut().zip(&bytes).for_each(|(checksum, byte)| *checksum ^= byte);
        if map.q().is_some() {
            let power = (0..map.exponent(index)).fold(1, |power, _| check_double(power));
            let table = product(power);
            q.iter_mut()
                .zip(&bytes)
                .for_each(|(checksum, byte)| *checksum ^= table[*byte as usize]);
        }
    }
    for (slot, checksum) in std::iter::once((map.p(), &p)).chain(map.q().map(|slot| (slot, &q))) {
        let (disk, at) = place(slot);
        disk.peek(at, &mut bytes);
        if bytes != *checksum {
            disk.poke(at, checksum);
        }
    }
}

fn parity(
    geometry: &Geometry,
    slots: &BTreeMap<usize, Raw>,
    closed: bool,
    marked: impl Fn(u64, u64) -> bool,
    logged: impl Fn(u64, Range<u64>) -> bool,
) -> Result<(), String> {
    let chunk = geometry.chunk_bytes();
    let len = chunk as usize;
    let (mut bytes, mut p, mut q) = (vec![0_u8; len], vec![0_u8; len], vec![0_u8; len]);
    let mut tables = BTreeMap::new();
    for stripe in 0..geometry.stripes() {
        let marked = marked(stripe * chunk, chunk);
        if marked && !closed {
            continue;
        }
        let map = geometry.stripe(Stripe(stripe));
        let read = |slot: Slot, into: &mut [u8]| {
            let member = &slots[&slot.index()];
            member.disk.peek(member.data_offset + map.member_offset(), into);
        };
        p.fill(0);
        q.fill(0);
        for index in 0..map.data_count() {
            read(map.data(index), &mut bytes);
            if bytes.iter().fold(0, |any, byte| any | byte) == 0 {
                continue;
            }
            p.iter_mut().zip(&bytes).for_each(|(checksum, byte)| *checksum ^= byte);
            if map.q().is_some() {
                let table = tables.entry(map.exponent(index)).or_insert_with_key(|&exponent| {
                    product((0..exponent).fold(1, |power, _| check_double(power)))
                });
                q.iter_mut()
                    .zip(&bytes)
                    .for_each(|(checksum, byte)| *checksum ^= table[*byte as usize]);
            }
        }
        read(map.p(), &mut bytes);
        let wrong = |checksum: &[u8], bytes: &[u8]| {
            if checksum == bytes {
                return None;
            }
            (0..len).step_by(SECTOR as usize).find(|&at| {
                let end = (at + SECTOR as usize).min(len);
                let logged = || logged(stripe, at as u64..end as u64);
                checksum[at..end] != bytes[at..end] && !(marked && logged())
            })
        };
        if let Some(at) = wrong(&p, &bytes) {
            return Err(format!("stripe {stripe}: P is out of step at {at} and not marked"));
        }
        if let Some(slot) = map.q() {
            read(slot, &mut bytes);
            if let Some(at) = wrong(&q, &bytes) {
                return Err(format!("stripe {stripe}: Q is out of step at {at} and not marked"));
            }
        }
    }
    Ok(())
}

fn check_double(byte: u8) -> u8 {
    (byte << 1) ^ if byte & 0x80 != 0 { 0x1d } else { 0 }
}

/// The products of a factor with each byte, in GF(2⁸).
fn product(factor: u8) -> [u8; 256] {
    let mut table = [0; 256];
    for (byte, slot) in (0..=255_u8).zip(&mut table) {
        let (mut rest, mut power) = (byte, factor);
        while rest > 0 {
            if rest & 1 != 0 {
                *slot ^= power;
            }
            (rest, power) = (rest >> 1, check_double(power));
        }
    }
    table
}

fn mirrors(
    geometry: &Geometry,
    slots: &BTreeMap<usize, Raw>,
    marked: impl Fn(u64, u64) -> bool,
) -> Result<(), String> {
    // RAID 1 has stretches as long as the array.
    let most = if geometry.layout() == Layout::Raid1 { 64 << 10 } else { u64::MAX };
    let (mut first, mut other) = (Vec::new(), Vec::new());
    let mut at = 0;
    while at < geometry.capacity() {
        let places = geometry.places(at);
        let len = places.len.min(geometry.capacity() - at).min(most);
        let (start, end) = (at, at + len);
        at = end;
        let mut copies = places.copies().filter_map(|place| {
            let member = slots.get(&place.slot.index())?;
            Some((place, member))
        });
        let Some((place, member)) = copies.next() else { continue };
        first.resize(len as usize, 0);
        other.resize(len as usize, 0);
        member.disk.peek(member.data_offset + place.member_offset, &mut first);
        for (place, member) in copies {
            member.disk.peek(member.data_offset + place.member_offset, &mut other);
            if first == other {
                continue;
            }
            for sector in (0..len).step_by(SECTOR as usize) {
                let range = sector as usize..(sector + SECTOR) as usize;
                if first[range.clone()] != other[range] && !marked(start + sector, SECTOR) {
                    let (slot, offset) = (place.slot, start + sector);
                    return Err(format!(
                        "the copy of {offset} in slot {slot} is out of step and not marked"
                    ));
                }
            }
        }
    }
    Ok(())
}
