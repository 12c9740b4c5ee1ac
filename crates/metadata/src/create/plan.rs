//! The plan of a new array: all that is determined before anything is written.

use io::Limits;
use layout::geometry::Shape;
use layout::md::bitmap::{self, HEADER_BYTES};
use layout::md::{ByteMap, Features, SECTOR, Version};
use layout::private::{Consistency, checksums};
use layout::sync::sync_bytes;
use layout::{Family, Geometry, Layout, Level, Slot};

use crate::commit::MOST_BLOCK_BYTES;
use crate::commit::record::bitmap_range;
use crate::create::{BitmapChunk, NewArray};
use crate::error::{Error, Result};

/// RAID 1 uses whole blocks of this size, as mdadm does.
const MIRROR_UNIT_BYTES: u64 = 64 << 10;
/// The largest data offset that mdadm chooses by itself.
const MDADM_MOST_OFFSET_BYTES: u64 = 264_192 * SECTOR;
/// The smallest chunk of the bitmap.
const LEAST_BITMAP_CHUNK: u32 = 4096;

/// The default for checksums of new arrays: on where possible, except on RAID 10, which they limit
/// to one shard.
fn checksums_by_default(new: &NewArray) -> bool {
    new.consistency != Some(Consistency::Ppl) && new.layout.level() != Level::Raid10
}

/// A new array, before it is written. Sizes in bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Plan {
    /// The byte map of each disk, in the order given; spares last.
    pub maps: Vec<ByteMap>,
    /// The mapping from array bytes to members.
    pub geometry: Geometry,
    /// Bytes of the array.
    pub capacity: u64,
    /// The number of arbitrary members that may be lost.
    pub redundancy: usize,
    /// Bytes used of each member's data; 0 for linear and RAID 0, which use all of each.
    pub used_bytes: u64,
    /// Bytes for data that are not used, on each disk.
    pub unused_bytes: Vec<u64>,
    /// Bytes of sync space per bit of the bitmap, or of its substitute.
    pub bitmap_chunk: Option<u32>,
    /// Whether checksums of all blocks will be kept.
    pub checksums: bool,
    /// Warnings for the user before the confirmation.
    pub warnings: Vec<String>,
}

/// Plans a new array on disks with these names and limits, spares last.
///
/// # Errors
/// The contradiction, with the disk's name and both numbers.
pub fn plan(new: &NewArray, disks: &[(String, Limits)]) -> Result<Plan> {
    let slots = disks.len().checked_sub(new.spares).filter(|&slots| slots > 0);
    let slots = slots.ok_or_else(|| {
        Error::refused(format!("{} spares of {} disks leave no member", new.spares, disks.len()))
    })?;
    let level = new.layout.level();
    let whole = matches!(level, Level::Linear | Level::Raid0);
    check(new, disks, whole)?;
    let maps = disks.iter().map(|(name, limits)| {
        ByteMap::for_new_member(limits.bytes, new.chunk_bytes, new.version)
            .map_err(|small| Error::refused(format!("{name}: {small}")))
    });
    let maps = maps.collect::<Result<Vec<ByteMap>>>()?;
    let used_bytes = if whole { 0 } else { used(new, &maps[..slots])? };
    let members = match whole {
        true => maps[..slots].iter().map(ByteMap::data_bytes).collect(),
        false => vec![used_bytes; slots],
    };
    let shape = Shape { layout: new.layout, chunk_bytes: new.chunk_bytes, members };
    let geometry = Geometry::new(shape).map_err(|error| Error::refused(error.to_string()))?;
    let ppl = new.consistency == Some(Consistency::Ppl);
    if let Some(why) = crate::commit::ppl::unfit(&geometry).filter(|_| ppl) {
        return Err(Error::refused(why));
    }
    for ((name, _), map) in disks.iter().zip(&maps).skip(slots) {
        if map.data_bytes() < used_bytes {
            return Err(Error::refused(format!(
                "{name} cannot be a spare: it has {} bytes for data, {used_bytes} are used of each \
                 member",
                map.data_bytes()
            )));
        }
    }
    for (index, map) in maps.iter().take(slots).enumerate() {
        let (have, needed) = (map.data_bytes(), geometry.member_bytes(Slot::new(index)));
        assert!(needed <= have, "slot {index} uses {needed} bytes of a member with {have}");
    }
    check_logs(new, &geometry, disks.iter().map(|(name, _)| &**name).zip(&maps))?;
    let bitmap_chunk = match new.bitmap.or(ppl.then_some(BitmapChunk::Fitting)) {
        Some(choice) if geometry.family() != Family::Plain => {
            let features = if ppl { Features::MULTIPLE_PPLS } else { Features::BITMAP };
            let rooms = maps.iter().map(|map| bitmap_range(map, features));
            let rooms = rooms.map(|room| room.map_or(0, |at| at.end - at.start));
            Some(bitmap_chunk(choice, &geometry, rooms.min().unwrap_or(0))?)
        }
        _ => None,
    };
    let unused = maps.iter().enumerate().map(|(index, map)| match whole {
        true if index < slots => map.data_bytes() - geometry.member_bytes(Slot::new(index)),
        true => map.data_bytes(),
        false => map.data_bytes() - used_bytes,
    });
    let unused_bytes: Vec<u64> = unused.collect();
    let checksums = checksums(new, &geometry, &maps)?;
    let warnings = warnings(new, disks, &maps, &unused_bytes);
    Ok(Plan {
        capacity: geometry.capacity(),
        redundancy: geometry.redundancy(),
        geometry,
        maps,
        used_bytes,
        unused_bytes,
        bitmap_chunk,
        checksums,
        warnings,
    })
}

/// Whether checksums are kept, by option or by default.
fn checksums(new: &NewArray, geometry: &Geometry, maps: &[ByteMap]) -> Result<bool> {
    let room = |map: &ByteMap| map.private_parts().is_some_and(|parts| !parts.checksums.is_empty());
    let (possible, room) = (checksums::possible(geometry), maps.iter().all(room));
    match new.checksums {
        Some(true) if !possible => Err(Error::refused(
            "checksums are for levels with redundancy, and chunks (RAID 3.5: fragments) of whole \
             4096 bytes",
        )),
        Some(true) if new.consistency == Some(Consistency::Ppl) => {
            Err(Error::refused(checksums::NOT_WITH_PPL))
        }
        Some(true) if !room => {
            Err(Error::refused("a disk is too small: its table of checksums has no room"))
        }
        wanted => Ok(wanted.unwrap_or(checksums_by_default(new)) && possible && room),
    }
}

/// Checks each disk and the request by itself.
fn check(new: &NewArray, disks: &[(String, Limits)], whole: bool) -> Result<()> {
    let refuse = |what: String| Err(Error::refused(what));
    if whole && new.size_bytes.is_some() {
        return refuse(format!(
            "{} uses each member whole: leave the size out",
            new.layout.level()
        ));
    }
    if whole && new.spares > 0 {
        return refuse(format!("{} has no use for a spare", new.layout.level()));
    }
    for (name, limits) in disks {
        let block = limits.logical_block;
        if limits.read_only {
            return refuse(format!("{name} is read-only"));
        }
        if block > MOST_BLOCK_BYTES {
            return refuse(format!(
                "{name} is written in blocks of {block} bytes; at most {MOST_BLOCK_BYTES} are \
                 possible"
            ));
        }
        if new.chunk_bytes != 0 && !new.chunk_bytes.is_multiple_of(block.into()) {
            return refuse(format!(
                "{name} is written in blocks of {block} bytes, which a chunk of {} bytes is not \
                 made of; choose a larger chunk (RAID 3.5: a larger block)",
                new.chunk_bytes
            ));
        }
    }
    Ok(())
}

/// Refuses policy journal if a disk has no room for its log.
fn check_logs<'a>(
    new: &NewArray,
    geometry: &Geometry,
    mut disks: impl Iterator<Item = (&'a str, &'a ByteMap)>,
) -> Result<()> {
    let journal = new.consistency == Some(Consistency::Journal);
    if !journal || geometry.family() != Family::Parity {
        return Ok(());
    }
    disks.try_for_each(|(name, map)| check_log(name, map.log_bytes(), geometry.slots()))
}

/// Refuses policy journal if the log of this disk would be too small: it must hold the data of a
/// write to all slots. The log of another policy fits into every new member.
pub(super) fn check_log(name: &str, log_bytes: u64, slots: usize) -> Result<()> {
    let least = log::least_zone(slots, true);
    if log_bytes < least {
        return Err(Error::refused(format!(
            "{name} is too small for consistency policy journal: it has {log_bytes} bytes for the \
             log, {least} are needed for {slots} members; choose larger disks, or policy intent"
        )));
    }
    Ok(())
}

/// Bytes used of each member: the size of the smallest one, in whole chunks.
fn used(new: &NewArray, maps: &[ByteMap]) -> Result<u64> {
    let least = maps.iter().map(ByteMap::data_bytes).min().unwrap_or(0);
    let wanted = new.size_bytes.unwrap_or(least);
    if wanted > least {
        return Err(Error::refused(format!(
            "{wanted} bytes of each member are asked for; the smallest has {least}"
        )));
    }
    let unit = match new.layout {
        Layout::Raid1 => MIRROR_UNIT_BYTES,
        _ => new.chunk_bytes.max(SECTOR),
    };
    match wanted - wanted % unit {
        0 => Err(Error::refused(format!("{wanted} bytes of each member are less than {unit}"))),
        used => Ok(used),
    }
}

fn bitmap_chunk(choice: BitmapChunk, geometry: &Geometry, room: u64) -> Result<u32> {
    let room = room.min(bitmap::MOST_SPACE_BYTES);
    let sync_bytes = sync_bytes(geometry);
    let fitting = || bitmap::chunk_for(sync_bytes / SECTOR, room);
    let too_large = || Error::refused(format!("no bitmap fits into {room} bytes"));
    match choice {
        BitmapChunk::Fitting => fitting().ok_or_else(too_large),
        BitmapChunk::Bytes(chunk) => {
            if !chunk.is_power_of_two() || chunk < LEAST_BITMAP_CHUNK {
                return Err(Error::refused(format!(
                    "a bitmap chunk of {chunk} bytes: a power of two is needed, at least \
                     {LEAST_BITMAP_CHUNK}"
                )));
            }
            let bits = sync_bytes.div_ceil(chunk.into());
            if HEADER_BYTES + bits.div_ceil(8) > room {
                return Err(Error::refused(format!(
                    "a bitmap with chunks of {chunk} bytes has {bits} bits, too many for its \
                     {room} bytes; choose larger chunks"
                )));
            }
            Ok(chunk)
        }
    }
}

fn warnings(
    new: &NewArray,
    disks: &[(String, Limits)],
    maps: &[ByteMap],
    unused: &[u64],
) -> Vec<String> {
    let mut warnings = Vec::new();
    let most = maps.iter().map(|map| map.data.start).max().unwrap_or(0);
    if most > MDADM_MOST_OFFSET_BYTES && new.version != Version::V1_0 {
        warnings.push(format!(
            "data begins at byte {most} of a member, further in than mdadm would put it: a disk \
             that is added with mdadm must be larger than the others, or be given --data-offset"
        ));
    }
    for (((name, _), map), &unused) in disks.iter().zip(maps).zip(unused) {
        if unused > map.data_bytes() / 10 {
            let mebibytes = unused >> 20;
            let why = "the smallest disk limits the members";
            warnings.push(format!("{name}: {mebibytes} MiB stay unused ({why})"));
        }
    }
    let physical = disks.iter().map(|(_, limits)| u64::from(limits.physical_block)).max();
    if let Some(physical) = physical
        && new.chunk_bytes != 0
        && !new.chunk_bytes.is_multiple_of(physical)
    {
        warnings.push(format!(
            "the disks write in units of {physical} bytes; with chunks of {} bytes they must read \
             first",
            new.chunk_bytes
        ));
    }
    warnings
}
