//! A new array: first a plan that can be shown, then the bytes.
//!
//! Owns the order in which a new member is written. Superblocks come last, after everything else is
//! durable. Until the first of them is written there is no array.
//!
//! ```text
//!   plan ─▶ check for old contents ─▶ bitmap, empty bad-block log, empty private area ─▶ flush
//!                                     header of the journal device                        │
//!                                                                        superblocks, FUA ◀─╯
//! ```
//!
//! Nothing outside the byte map is touched, except the signatures of old contents if the user
//! allowed that.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

use io::{Boxed, Clock, Disk};
use layout::md::superblock::{CLEAN, RAID35_LEVEL};
use layout::md::{
    BadBlocks, Bitmap, ByteMap, Features, Magic, Name, Role, SECTOR, Superblock, Timestamp, Uuid,
    Version,
};
use layout::private::bad::BadList;
use layout::private::{Consistency, HEADERS_BYTES, Tag};
use layout::{Family, Layout, Level, sync};

use crate::assemble::{Candidate, journal, probe};
use crate::bitmap::{Bits, Pages};
use crate::bounds::Bounds;
use crate::commit::journal_device::Journal;
use crate::commit::member_io::{MemberIo, Writer, all};
use crate::commit::private::{Private, Zones};
use crate::commit::record::{Record, copy_pages};
use crate::commit::{Facts, Format};
use crate::error::{Error, Result};

mod plan;

use plan::check_log;
pub use plan::{Plan, plan};

/// The event count of a new array's superblocks. With 0, a kernel of 6.19 or later would take the
/// array for new and stamp a block size on it that older kernels refuse.
pub(crate) const FIRST_EVENT: u64 = 1;

/// The bytes of a member per bit of the bitmap.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum BitmapChunk {
    /// 64 MiB, or more where that does not fit: the same as mdadm.
    #[default]
    Fitting,
    /// This many bytes: a power of two, at least 4 KiB.
    Bytes(u32),
}

/// A new array. Sizes in bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewArray {
    /// Its name, `name` or `host:name`: at most 32 bytes.
    pub name: String,
    /// Level and parameters.
    pub layout: Layout,
    /// Bytes of a chunk; 0 for RAID 1. RAID 3.5: of a fragment, the block / 2^order.
    pub chunk_bytes: u64,
    /// The place of the superblocks.
    pub version: Version,
    /// The write-intent bitmap; `None` for none. Linear and RAID 0 never have one. Arrays with md's
    /// partial parity log always have such bits, in the private area.
    pub bitmap: Option<BitmapChunk>,
    /// The number of spares; they are the last disks.
    pub spares: usize,
    /// Every disk is known to hold only zeros: no initial resync is needed.
    pub zeroed: bool,
    /// Use at most this many bytes of each member; `None` for all. Not for linear and RAID 0.
    pub size_bytes: Option<u64>,
    /// The crash-consistency policy, at levels with parity; `None` for the intent log.
    pub consistency: Option<Consistency>,
    /// Keep checksums of all blocks; `None`: where the level can have them.
    pub checksums: Option<bool>,
    /// The contents of the disks may be overwritten.
    pub overwrite: bool,
    /// A disk that does not answer within this time has failed.
    pub deadline: Duration,
}

impl NewArray {
    /// An array with the usual choices: superblock 1.2, a bitmap, no spare, contents unknown.
    pub fn new(name: impl Into<String>, layout: Layout, chunk_bytes: u64) -> NewArray {
        NewArray {
            name: name.into(),
            layout,
            chunk_bytes,
            version: Version::V1_2,
            bitmap: Some(BitmapChunk::Fitting),
            spares: 0,
            zeroed: false,
            size_bytes: None,
            consistency: None,
            checksums: None,
            overwrite: false,
            deadline: Bounds::default().deadline,
        }
    }
}

/// Creates an array on these disks, spares last.
///
/// # Errors
/// Refused: everything that [`plan()`] refuses; a disk that is read-only, or that has contents
/// (named in the error) while `overwrite` is not set. Otherwise a disk failed: then there is no
/// array, and no disk has a superblock.
pub fn create<'a>(
    new: &'a NewArray,
    members: Vec<Candidate>,
    clock: &'a Rc<dyn Clock>,
    random: &'a dyn Fn(&mut [u8]),
) -> Boxed<'a, Result<Facts>> {
    Box::pin(async move { create_with_journal(new, (members, None), clock, random).await })
}

/// Like [`create`], with a journal device beside the members.
///
/// # Errors
/// Those of [`create`]. Refused as well: a journal device with another policy, or one that is too
/// small.
pub fn create_with_journal<'a>(
    new: &'a NewArray,
    (members, journal): (Vec<Candidate>, Option<Candidate>),
    clock: &'a Rc<dyn Clock>,
    random: &'a dyn Fn(&mut [u8]),
) -> Boxed<'a, Result<Facts>> {
    Box::pin(async move {
        let slots = members.len().saturating_sub(new.spares);
        let permit =
            |device: &Candidate| check_journal(new, (&device.name, device.disk.limits()), slots);
        let log = journal.as_ref().map(permit).transpose()?;
        let limits: Vec<_> = members.iter().map(|m| (m.name.clone(), m.disk.limits())).collect();
        let plan = plan(new, &limits)?;
        let reach = MemberIo::within(Rc::clone(clock), new.deadline);
        let mut all_disks = members.clone();
        all_disks.extend(journal.clone());
        let mut old = look_first(&reach, new, &all_disks).await?;
        let on_journal = old.split_off(members.len()).pop().unwrap_or_default();
        let (records, bits) = draw_up(new, &plan, members, &**clock, random)?;
        let mut private = private(new, &plan, random);

        if let Some((device, log)) = journal.zip(log) {
            wipe(&reach, (&device.name, &device.disk), &on_journal)
                .await
                .map_err(|why| Error::refused(NOT_WRITTEN).because(why))?;
            let journal = Journal::new(device.name, device.disk, log, uuid(random));
            let set = &records[0].superblock;
            private.journal = Some(journal.note());
            journal
                .write_first(&reach, (set.set_uuid, set.set_name))
                .await
                .map_err(|why| Error::refused(NOT_WRITTEN).because(why))?;
        }
        assert_eq!(records.len(), old.len(), "each disk loses what was there");
        let work = records.iter().zip(&old).map(|(record, old)| async {
            write_structures(&reach, (record, old), bits.as_ref(), &private, new.zeroed)
                .await
                .map_err(|why| failed(record, why))
        });
        all(work).await.into_iter().collect::<Result<()>>()?;
        let work = records.iter().map(|record| async {
            let written = record.write_superblock(&reach, &record.superblock).await;
            written.map_err(|why| failed(record, why))
        });
        if let Some(why) = all(work).await.into_iter().find_map(Result::err) {
            undo(&reach, &records).await;
            return Err(why);
        }
        let superblock = &records[0].superblock;
        let header = bits.as_ref().map(Bits::header);
        let format = Format::of(superblock);
        Ok(Facts::of(superblock, format, &plan.geometry, header, &private))
    })
}

const NOT_WRITTEN: &str = "the journal device could not be written; there is no array";

/// Checks whether a disk of this name can be the journal device of a new array of so many slots.
/// Returns the place of the log on it, in bytes.
///
/// # Errors
/// Refused: another policy, or a disk that is read-only or too small.
pub fn check_journal(
    new: &NewArray,
    (name, limits): (&str, io::Limits),
    slots: usize,
) -> Result<Range<u64>> {
    if new.consistency != Some(Consistency::Journal) {
        return Err(Error::refused(format!(
            "{name}: a journal device is for consistency policy journal"
        )));
    }
    let log = journal::fit(name, limits)?;
    check_log(name, log.end - log.start, slots)?;
    Ok(log)
}

fn uuid(random: &dyn Fn(&mut [u8])) -> Uuid {
    let mut bytes = [0; 16];
    random(&mut bytes);
    Uuid(bytes)
}

fn failed(record: &Record, why: io::Error) -> Error {
    let late = match why.kind() {
        io::ErrorKind::Timeout => "; late writes may still land: wipe it before you use it",
        _ => "",
    };
    let message = format!("{} could not be written; there is no array{late}", record.name);
    Error::refused(message).because(why)
}

/// The byte ranges that [`create`] writes on a member with this map, apart from the signatures that
/// it wipes. Some ranges are larger than needed.
pub fn writes(new: &NewArray, plan: &Plan, map: &ByteMap) -> Vec<Range<u64>> {
    let part = zeroed_part(map, new.zeroed && plan.checksums);
    let md = [&map.bitmap, &map.bad_blocks, &map.ppl].into_iter().flatten().cloned();
    std::iter::once(map.superblock.clone()).chain(md).chain(part).collect()
}

/// The ranges that [`create_with_journal`] writes on the journal device, apart from the signatures
/// that it wipes.
pub fn writes_on_journal() -> Vec<Range<u64>> {
    let copy = |at: u64| at..at + layout::private::journal::HEADER_BYTES;
    layout::private::journal::COPIES.map(copy).into()
}

/// The signatures to wipe on each disk. Refuses if there are any and they must be kept.
async fn look_first(
    reach: &MemberIo,
    new: &NewArray,
    members: &[Candidate],
) -> Result<Vec<Vec<layout::md::Signature>>> {
    for (index, member) in members.iter().enumerate() {
        let same = |other: &&Candidate| Rc::ptr_eq(&other.disk, &member.disk);
        if let Some(other) = members[..index].iter().find(same) {
            let names = (&other.name, &member.name);
            return Err(Error::refused(format!("{} and {} are one disk", names.0, names.1)));
        }
    }
    let looks = members.iter().map(|member| async {
        probe::signatures(reach, &*member.disk)
            .await
            .map_err(|why| Error::refused(format!("{} cannot be read", member.name)).because(why))
    });
    let found = all(looks).await.into_iter().collect::<Result<Vec<_>>>()?;
    let mut full = members.iter().zip(&found).filter(|(_, found)| !found.is_empty()).peekable();
    if full.peek().is_none() || new.overwrite {
        return Ok(found);
    }
    let each = full.map(|(member, found)| {
        format!("{} holds {} (byte {})", member.name, found[0].name, found[0].offset)
    });
    let each: Vec<String> = each.collect();
    Err(Error::refused(format!(
        "{}: nothing was written. To discard that content, allow it to be overwritten",
        each.join("; ")
    )))
}

/// The contents of the private headers: used at levels with parity, and where checksums are kept.
fn private(new: &NewArray, plan: &Plan, random: &dyn Fn(&mut [u8])) -> Private {
    let parity = plan.geometry.family() == Family::Parity;
    let usual = match (parity, plan.bitmap_chunk) {
        (true, _) => Consistency::Intent,
        (false, Some(_)) => Consistency::Bitmap,
        (false, None) => Consistency::Resync,
    };
    let consistency = new.consistency.filter(|_| parity).unwrap_or(usual);
    Private {
        consistency,
        next_consistency: consistency,
        history_id: uuid(random),
        kept: parity || plan.checksums,
        kept_before: parity || plan.checksums,
        log: Zones::default(),
        next_log: Zones::default(),
        log_bound: None,
        unverified: false,
        // Synced ranges have checksums.
        checksums_from: plan.checksums.then_some(if new.zeroed { u64::MAX } else { 0 }),
        checksums_torn: false,
        journal: None,
        next_journal: None,
        begun: false,
    }
}

/// Everything to be written, for each member.
fn draw_up(
    new: &NewArray,
    plan: &Plan,
    members: Vec<Candidate>,
    clock: &dyn Clock,
    random: &dyn Fn(&mut [u8]),
) -> Result<(Vec<Record>, Option<Bits>)> {
    let uuid = || uuid(random);
    let array = array_superblock(new, plan, uuid(), clock.unix_micros(), random)?;
    let bits = plan.bitmap_chunk.map(|chunk| {
        let sectors = sync::sync_bytes(&plan.geometry) / SECTOR;
        let header = Bitmap {
            events: FIRST_EVENT,
            events_cleared: FIRST_EVENT,
            ..Bitmap::new(array.set_uuid, sectors, chunk)
        };
        Bits::new(header, !new.zeroed)
    });
    let records = members.into_iter().zip(&plan.maps).enumerate().map(|(number, (member, map))| {
        let mut superblock = array.clone();
        superblock.device.number = number as u32;
        superblock.device.uuid = uuid();
        map.describe(&mut superblock);
        Record {
            name: member.name,
            disk: member.disk,
            map: map.clone(),
            superblock,
            bad: BadBlocks::default(),
            bad_changed: false,
            behind: Pages::NONE,
            session: 0,
            next_session: 0,
            since: None,
            stale_ppl: false,
            flush_failed: Rc::default(),
        }
    });
    Ok((records.collect(), bits))
}

/// The superblock fields common to all members.
fn array_superblock(
    new: &NewArray,
    plan: &Plan,
    set_uuid: Uuid,
    unix_micros: u64,
    random: &dyn Fn(&mut [u8]),
) -> Result<Superblock> {
    let long =
        || Error::refused(format!("the name {:?} has more than 32 bytes, or NULs", new.name));
    let set_name = Name::new(&new.name).ok_or_else(long)?;
    let level = new.layout.level();
    let (magic, level_number) = match level.md_number() {
        Some(number) => (Magic::Md, number),
        None => (Magic::Parapet, RAID35_LEVEL),
    };
    let mut features = Features::NONE;
    if new.consistency == Some(Consistency::Ppl) {
        features = features.with(Features::MULTIPLE_PPLS);
    } else if plan.bitmap_chunk.is_some() {
        features = features.with(Features::BITMAP);
    }
    if level == Level::Raid0 {
        features = features.with(Features::RAID0_LAYOUT);
    }
    let mut roles = Superblock::role_table(plan.maps.len())
        .ok_or_else(|| Error::refused("more disks than a superblock has room for"))?;
    for (slot, role) in roles.iter_mut().take(plan.geometry.slots()).enumerate() {
        *role = Role::Slot(slot as u16);
    }
    let seconds = (unix_micros / 1_000_000) & ((1 << 40) - 1);
    let mut tag = [0; 4];
    random(&mut tag);
    let needs_sync = !new.zeroed && plan.geometry.family() != Family::Plain;
    Ok(Superblock {
        magic,
        features,
        set_uuid,
        set_name,
        // No microseconds: a kernel takes them for seconds, and `mdadm --detail` then rejects every
        // member's superblock and shows no UUID.
        ctime: Timestamp::new(seconds, 0),
        level: level_number,
        layout: new.layout.to_md(),
        size: plan.used_bytes / SECTOR,
        chunk_sectors: (new.chunk_bytes / SECTOR) as u32,
        raid_disks: plan.geometry.slots() as u32,
        utime: Tag::new(u32::from_le_bytes(tag)).stamp(seconds),
        events: FIRST_EVENT,
        resync_offset: if needs_sync { 0 } else { CLEAN },
        roles,
        ..Superblock::default()
    })
}

/// Writes everything but the superblock, durably.
async fn write_structures(
    reach: &MemberIo,
    (record, old): (&Record, &[layout::md::Signature]),
    bits: Option<&Bits>,
    private: &Private,
    zeroed: bool,
) -> io::Result<()> {
    wipe(reach, (&record.name, &record.disk), old).await?;
    record.write_bad_blocks(reach).await?;
    // No flush between them: old units are of another array, and have another signature.
    record.void_ppl(reach).await?;
    record.write_empty_ppl(reach, &record.superblock.set_uuid).await?;
    let table = zeroed && private.checksums_from.is_some();
    // All writes here and above must lie within `writes`.
    zero_private(&record.writer(reach), &record.map, table).await?;
    if let Some(bits) = bits {
        // The bits may lie in the private area.
        record.write_pages(reach, &copy_pages(bits, Pages::ALL)).await?;
    }
    if private.kept {
        let slot = match record.superblock.own_role() {
            Role::Slot(slot) => Some(slot),
            _ => None,
        };
        let none = BadList::default();
        record.write_header(reach, private, &record.superblock, slot, none).await?;
    }
    record.writer(reach).flush().await
}

/// Zeros the parts of the private area that must be zero.
async fn zero_private(writer: &Writer<'_>, map: &ByteMap, table_counts: bool) -> io::Result<()> {
    let Some(part) = zeroed_part(map, table_counts) else { return Ok(()) };
    match writer.zero(part.clone(), true).await {
        Ok(()) => Ok(()),
        Err(why) if why.kind() == io::ErrorKind::Timeout => Err(why),
        Err(_) => writer.zero(part, false).await,
    }
}

/// The initially zero part of a new member's private area. The checksum table is large, so it is
/// zeroed only if it is valid from the start because nothing needs a resync. Otherwise it is never
/// read.
fn zeroed_part(map: &ByteMap, table_counts: bool) -> Option<Range<u64>> {
    let area = map.private.clone()?;
    let table = map.private_parts().map_or(area.end, |parts| parts.checksums.start);
    let headers_end = (area.start + HEADERS_BYTES).min(area.end);
    let end = if table_counts { area.end } else { table.max(headers_end) };
    Some(area.start..end)
}

/// Overwrites old signatures with zeros.
async fn wipe(
    reach: &MemberIo,
    (name, disk): (&str, &Rc<dyn Disk>),
    old: &[layout::md::Signature],
) -> io::Result<()> {
    let block = u64::from(disk.limits().logical_block);
    let mut blocks: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
    for signature in old {
        for byte in signature.wipe() {
            let start = byte / block * block;
            let bytes = match blocks.entry(start) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(new) => new.insert(reach.read(&**disk, start..start + block).await?),
            };
            bytes[(byte - start) as usize] = 0;
        }
    }
    for (start, bytes) in blocks {
        reach.of(name, disk).write(start, &bytes, false).await?;
    }
    Ok(())
}

/// Removes superblocks after one could not be written, where the disks still work.
async fn undo(reach: &MemberIo, records: &[Record]) {
    let work = records.iter().map(|record| async {
        let bytes = vec![0; 4096];
        let start = record.map.superblock.start;
        // The disk has already reported its error.
        record.writer(reach).write(start, &bytes, true).await.ok()
    });
    all(work).await;
}
