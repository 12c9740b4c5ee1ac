//! Probes one disk: finds its superblock and the array that this names.
//!
//! Owns the search for superblocks and the choice among several on one disk. Never compares disks.
//!
//! A disk may have more than one valid superblock. An array whose data begins at byte 0 of its
//! members (1.0) may itself be a member of another array. That array's superblock then lies in the
//! data of the first member. The superblock whose data contains the others is the disk's own.

use std::fmt;
use std::ops::Range;
use std::rc::Rc;

use io::Disk;
use io::broken::{Broken, broken};
use layout::md::superblock::{RESERVED_BYTES, Role};
use layout::md::{
    BadBlocks, ByteMap, Fault, Features, FoundBadBlocks, ParseError, SECTOR, Superblock,
    Superblock090, Uuid, Version, foreign, position, super090,
};
use layout::private::Tag;

use crate::bitmap::Pages;
use crate::commit::Format;
use crate::commit::member_io::{Loaded, MemberIo};
use crate::commit::record::Record;

/// A disk with a valid superblock.
#[derive(Clone)]
pub(crate) struct MemberProbe {
    pub(crate) name: String,
    pub(crate) disk: Rc<dyn Disk>,
    pub(crate) format: Format,
    pub(crate) superblock: Superblock,
    pub(crate) map: ByteMap,
    pub(crate) bad: FoundBadBlocks,
}

impl MemberProbe {
    /// The record for the metadata writer.
    pub(crate) fn into_record(self) -> Record {
        let MemberProbe { name, disk, superblock, map, bad, .. } = self;
        let ours = keeps_list(&superblock);
        Record {
            name,
            disk,
            map,
            superblock,
            bad: bad.blocks,
            // Other programs leave old entries there.
            bad_changed: !ours,
            behind: Pages::ALL,
            session: 0,
            next_session: 0,
            since: None,
            stale_ppl: false,
            flush_failed: Rc::default(),
        }
    }
}

/// A superblock found on a disk, or the remains of one.
#[derive(Clone, Debug)]
pub(crate) struct Trace {
    pub(crate) format: Format,
    /// Bytes from the start of the disk.
    pub(crate) offset: u64,
    pub(crate) superblock: Result<Superblock, ParseError>,
    /// The bytes of that place.
    pub(crate) bytes: Vec<u8>,
}

/// The reason why a disk is not a usable member.
#[derive(Clone, Debug)]
pub(crate) enum Reject {
    /// The disk cannot be read.
    Unreadable(io::Error),
    /// Its cached writes cannot be made durable.
    Unflushable(io::Error),
    /// No superblock; the names of other signatures.
    Stranger(Vec<&'static str>),
    /// An invalid superblock.
    Damaged { format: Format, offset: u64, error: ParseError },
    /// The bad-block list is invalid.
    BadBlocks { offset: u64, error: ParseError },
    /// The disk ends before the data does.
    Short { disk_bytes: u64, needed_bytes: u64 },
}

impl fmt::Display for Reject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reject::Unreadable(why) => write!(f, "cannot be read: {why}"),
            Reject::Unflushable(why) => write!(f, "cannot be flushed: {why}"),
            Reject::Stranger(names) if names.is_empty() => f.write_str("no superblock found"),
            Reject::Stranger(names) if names.contains(&"isw_raid_member") => {
                firmware(f, "an Intel firmware RAID (IMSM)")
            }
            Reject::Stranger(names) if names.contains(&"ddf_raid_member") => {
                firmware(f, "a DDF firmware RAID")
            }
            Reject::Stranger(names) => {
                write!(f, "no superblock found, but {}", names.join(", "))
            }
            Reject::Damaged { format, offset, error } => {
                write!(f, "the {format} superblock at byte {offset} is damaged: {error}")
            }
            Reject::BadBlocks { offset, error } => {
                write!(f, "the bad-block log at byte {offset} is damaged: {error}")
            }
            Reject::Short { disk_bytes, needed_bytes } => write!(
                f,
                "it has {disk_bytes} bytes, but by its superblock its data ends at byte \
                 {needed_bytes}: it was cut short, or copied to a smaller disk"
            ),
        }
    }
}

fn firmware(f: &mut fmt::Formatter<'_>, what: &str) -> fmt::Result {
    write!(f, "a member of {what}, which is not supported; let Linux run it, and copy the data")
}

/// Finds the member on a disk. With `wanted`, a superblock of that array is preferred.
///
/// # Errors
/// The reason why there is none.
pub(crate) async fn look(
    reach: &MemberIo,
    disk: &Rc<dyn Disk>,
    name: &str,
    wanted: Option<Uuid>,
) -> Result<MemberProbe, Reject> {
    let Traces { found, unread } = traces(reach, &**disk).await.map_err(Reject::Unreadable)?;
    let disk_bytes = disk.limits().bytes;
    let (mut members, mut rejects) = (Vec::new(), Vec::new());
    for Trace { format, offset, superblock, .. } in found {
        let damaged = |error| Reject::Damaged { format, offset, error };
        let mapped = superblock.map_err(damaged).and_then(|superblock| {
            let needed_bytes = (superblock.data_offset + superblock.data_size) * SECTOR;
            if needed_bytes > disk_bytes {
                return Err(Reject::Short { disk_bytes, needed_bytes });
            }
            let map = ByteMap::of(&superblock, disk_bytes).map_err(damaged)?;
            Ok((format, superblock, map))
        });
        match mapped {
            Ok(member) => members.push(member),
            Err(reject) => rejects.push(reject),
        }
    }
    let best = choose(members, wanted);
    // Superblocks inside the data of the chosen one are not the disk's, nor is an unreadable place
    // there needed.
    let inside = |place: &Range<u64>, data: &Range<u64>| {
        place.start >= data.start && place.end <= data.end && !broken(Broken::AnySectorNeeded)
    };
    let needed =
        |place: &Range<u64>| best.as_ref().is_none_or(|(_, _, map)| !inside(place, &map.data));
    if let Some((_, why)) = unread.into_iter().find(|(place, _)| needed(place)) {
        return Err(Reject::Unreadable(why));
    }
    if let Some((format, superblock, map)) = best {
        let bad = bad_blocks(reach, &**disk, &superblock, &map).await?;
        let (name, disk) = (name.to_string(), Rc::clone(disk));
        return Ok(MemberProbe { name, disk, format, superblock, map, bad });
    }
    match rejects.into_iter().next() {
        Some(reject) => Err(reject),
        None => {
            let found = signatures(reach, &**disk).await.map_err(Reject::Unreadable)?;
            let mut names: Vec<_> = found.iter().map(|signature| signature.name).collect();
            names.dedup();
            Err(Reject::Stranger(names))
        }
    }
}

/// The superblocks at the places of a disk where they may lie.
pub(crate) struct Traces {
    /// Everything that begins like one, valid or not.
    pub(crate) found: Vec<Trace>,
    /// Bad sectors at such places.
    pub(crate) unread: Vec<(Range<u64>, io::Error)>,
}

impl Traces {
    /// The bytes of a read; nothing if a bad sector is in the way, which is noted.
    fn readable(
        &mut self,
        place: Range<u64>,
        read: io::Result<Vec<u8>>,
    ) -> io::Result<Option<Vec<u8>>> {
        match read {
            Err(why) if why.is_medium() => {
                self.unread.push((place, why));
                Ok(None)
            }
            read => read.map(Some),
        }
    }
}

/// Reads all places of a disk where superblocks may lie.
///
/// # Errors
/// The disk's, except bad sectors.
pub(crate) async fn traces(reach: &MemberIo, disk: &dyn Disk) -> io::Result<Traces> {
    let disk_bytes = disk.limits().bytes;
    let mut traces = Traces { found: Vec::new(), unread: Vec::new() };
    for version in Version::ALL {
        let Some(offset) = position(version, disk_bytes) else { continue };
        let end = (offset + RESERVED_BYTES).min(disk_bytes);
        let read = reach.read(disk, offset..end).await;
        let Some(bytes) = traces.readable(offset..end, read)? else { continue };
        let superblock = Superblock::parse(&bytes, offset / SECTOR);
        if superblock.as_ref().is_err_and(|error| error.fault == Fault::Magic) {
            continue;
        }
        let parapet = bytes.starts_with(b"Pp35");
        let format = if parapet { Format::Parapet(version) } else { Format::Md(version) };
        // A 0.90 superblock has the same magic, and may lie at the place of a 1.x one.
        let older = superblock.as_ref().is_err_and(|error| error.field == "major_version");
        if !(older && Superblock090::parse(&bytes).is_ok()) {
            traces.found.push(Trace { format, offset, superblock, bytes });
        }
    }
    if let Some(offset) = super090::position(disk_bytes) {
        let place = offset..offset + super090::BYTES as u64;
        let read = reach.read(disk, place.clone()).await;
        let Some(bytes) = traces.readable(place, read)? else { return Ok(traces) };
        let read = Superblock090::parse(&bytes);
        let superblock = read.and_then(|superblock| superblock.as_version_1(disk_bytes));
        let other =
            |error: &ParseError| error.fault == Fault::Magic || error.field == "major_version";
        if !superblock.as_ref().is_err_and(other) {
            traces.found.push(Trace { format: Format::Md090, offset, superblock, bytes });
        }
    }
    Ok(traces)
}

type Mapped = (Format, Superblock, ByteMap);

/// Chooses the disk's own superblock among several valid ones: that of the wanted array, else the
/// one whose data contains the others, else the youngest.
fn choose(mut members: Vec<Mapped>, wanted: Option<Uuid>) -> Option<Mapped> {
    if let Some(uuid) = wanted
        && let Some(index) = members.iter().position(|(_, found, _)| found.set_uuid == uuid)
    {
        return Some(members.swap_remove(index));
    }
    let inside = |inner: &Mapped, outer: &Mapped| {
        let (place, data) = (&inner.2.superblock, &outer.2.data);
        place.start < data.end && data.start < place.end
    };
    let best = (0..members.len()).max_by_key(|&index| {
        let (this, mut others) = (&members[index], members.iter().enumerate());
        let contains = others.all(|(other, member)| {
            other == index || (inside(member, this) && !inside(this, member))
        });
        (contains, this.1.ctime.seconds())
    });
    best.map(|index| members.swap_remove(index))
}

/// The place of a member's bad-block list, if it has one. A list on a member of ours is valid at
/// once, without a superblock with that feature, because a crash may come before that is written.
pub(crate) fn bad_block_log(superblock: &Superblock, map: &ByteMap) -> Option<Range<u64>> {
    let ours = keeps_list(superblock) && !broken(Broken::FirstListUnread);
    let listed = superblock.features.contains(Features::BAD_BLOCKS) || ours;
    map.bad_blocks.clone().filter(|_| listed)
}

/// True if Parapet wrote the list on this member: the commit that assigned its slot did, or a later
/// one.
fn keeps_list(superblock: &Superblock) -> bool {
    Tag::of(superblock.utime).is_some() && matches!(superblock.own_role(), Role::Slot(_))
}

/// The bytes of a bad-block list; nothing if a bad sector has cost a list that no superblock
/// mentions.
///
/// # Errors
/// The disk's.
pub(crate) fn list_bytes(
    read: io::Result<Vec<u8>>,
    superblock: &Superblock,
) -> io::Result<Option<Vec<u8>>> {
    match read {
        Err(why) if why.is_medium() && !superblock.features.contains(Features::BAD_BLOCKS) => {
            Ok(None)
        }
        read => read.map(Some),
    }
}

/// The bad-block list of a member. If it is unreadable the member is unusable, because its bad
/// blocks would count as good.
async fn bad_blocks(
    reach: &MemberIo,
    disk: &dyn Disk,
    superblock: &Superblock,
    map: &ByteMap,
) -> Result<FoundBadBlocks, Reject> {
    let none = || FoundBadBlocks { blocks: BadBlocks::default(), refused: Vec::new() };
    let Some(log) = bad_block_log(superblock, map) else { return Ok(none()) };
    let offset = log.start;
    let read = list_bytes(reach.read(disk, log).await, superblock).map_err(Reject::Unreadable)?;
    let Some(bytes) = read else { return Ok(none()) };
    BadBlocks::parse(&bytes, superblock.bblog.shift)
        .map_err(|error| Reject::BadBlocks { offset, error })
}

/// Other signatures on a disk. The prober requests bytes as it goes: missing bytes are read and it
/// is called again, until it requests no more.
pub(crate) async fn signatures(
    reach: &MemberIo,
    disk: &dyn Disk,
) -> io::Result<Vec<foreign::Signature>> {
    let disk_bytes = disk.limits().bytes;
    let mut known: Vec<(Range<u64>, Loaded)> = Vec::new();
    loop {
        let mut wanted: Vec<Range<u64>> = Vec::new();
        let found = foreign::probe(
            |offset, length| {
                let range = offset..offset + length as u64;
                let read = known.iter().find(|(at, _)| *at == range);
                if read.is_none() && !wanted.contains(&range) {
                    wanted.push(range);
                }
                read.map(|(_, bytes)| &**bytes)
            },
            disk_bytes,
        );
        if wanted.is_empty() {
            return Ok(found);
        }
        for range in wanted {
            let bytes = reach.load(disk, range.clone()).await?;
            known.push((range, bytes));
        }
    }
}
