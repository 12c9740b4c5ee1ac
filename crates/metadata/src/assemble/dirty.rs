//! The ranges to resync, and the decision whether a dirty array may be started.
//!
//! Owns the reading of bitmaps. Their copies are merged: a bit set in any copy counts, since a
//! needless bit only costs time.

use std::collections::BTreeMap;

use io::broken::{Broken, broken};
use layout::md::{Bitmap, Fault, Features, SECTOR, bitmap};
use layout::private::{self, HEADERS_BYTES, Tag};
use layout::sync::{array_range, sync_bytes};
use layout::{Family, Geometry, MemberId, Mode, RangeSet};

use crate::assemble::group::Members;
use crate::assemble::intents::Intents;
use crate::assemble::note::Cause;
use crate::assemble::probe::MemberProbe;
use crate::assemble::slots::Assigned;
use crate::assemble::{Note, Options, refuse};
use crate::bitmap::{Bits, Pages};
use crate::commit::Format;
use crate::commit::member_io::{MemberIo, all};
use crate::commit::record::{Record, bitmap_range};
use crate::create::FIRST_EVENT;
use crate::error::Result;

/// Features of arrays with a bitmap or a substitute for it.
const HAVE_BITMAP: Features = Features(Features::BITMAP.0 | Features::ANY_PPL.0);

/// The members' records and bits, and the unsynced ranges.
pub(super) struct Loaded {
    pub(super) records: BTreeMap<MemberId, Record>,
    pub(super) bits: Option<Bits>,
    pub(super) unsynced: RangeSet,
    pub(super) notes: Vec<Note>,
    /// The array's bitmap is of an unsupported kind.
    foreign_bitmap: Option<&'static str>,
}

/// A member's copy of the bitmap.
enum Copy {
    Good(Bits),
    /// Not usable, with the reason.
    Bad(String),
    /// A known but unsupported kind.
    Foreign(&'static str),
}

/// Reads the bitmaps.
pub(super) async fn load(
    reach: &MemberIo,
    members: &Members,
    assigned: &Assigned,
    geometry: &Geometry,
) -> Loaded {
    let reads = members
        .counted()
        .map(|(_, found, _)| async move { (found, read_bitmap(reach, found, geometry).await) });
    let mut loaded = Loaded {
        records: BTreeMap::new(),
        bits: None,
        unsynced: RangeSet::new(),
        notes: Vec::new(),
        foreign_bitmap: None,
    };
    let mut copies = Vec::new();
    for (found, copy) in all(reads).await {
        let id = MemberId(found.superblock.device.number);
        let mut remark = |text: String| {
            loaded.notes.push(Note::Remark { name: found.name.clone(), text });
        };
        // A page of zeros has 512 of them.
        match &found.bad.refused[..] {
            [] => {}
            [error] => remark(error.to_string()),
            [error, rest @ ..] => remark(format!("{error}; {} more like it", rest.len())),
        }
        let in_sync = assigned.configuration.slot_of(id).is_some_and(|(slot, replacement)| {
            !replacement && assigned.configuration.slots[slot.index()].recovered.is_none()
        });
        match copy {
            // The bitmap of a spare or a member in rebuild is not maintained, or not yet.
            Some(Copy::Good(bits)) if in_sync => copies.push((id, bits)),
            Some(Copy::Bad(why)) if in_sync => remark(format!("its bitmap is not used: {why}")),
            Some(Copy::Foreign(why)) => loaded.foreign_bitmap = Some(why),
            _ => {}
        }
        loaded.records.insert(id, found.clone().into_record());
    }
    loaded.merge(copies, members, geometry);
    loaded.find_unsynced(members, geometry);
    loaded
}

/// Reads a member's bitmap or its substitute; `None` if the array has none that Parapet supports.
async fn read_bitmap(reach: &MemberIo, found: &MemberProbe, geometry: &Geometry) -> Option<Copy> {
    let superblock = &found.superblock;
    if !superblock.features.intersects(HAVE_BITMAP) || found.format == Format::Md090 {
        return None;
    }
    let range = bitmap_range(&found.map, superblock.features)?;
    if superblock.features.intersects(Features::ANY_PPL) && !is_ours(reach, found).await {
        let why = "it does not match the superblock, which another system has written";
        return Some(Copy::Bad(why.to_string()));
    }
    let bytes = match reach.read(&*found.disk, range).await {
        Ok(bytes) => bytes,
        Err(why) => return Some(Copy::Bad(why.to_string())),
    };
    let bits = match Bits::parse(&bytes) {
        Ok(Some(bits)) => bits,
        Ok(None) => return Some(Copy::Bad("it is larger than its room".to_string())),
        Err(error) => {
            return Some(match error.fault {
                Fault::Refused(why) if error.field == "version" => Copy::Foreign(why),
                _ => Copy::Bad(error.to_string()),
            });
        }
    };
    let header = bits.header();
    let covered = header.sync_sectors * SECTOR;
    let bad = if header.uuid != superblock.set_uuid {
        format!("it belongs to another array ({})", header.uuid)
    } else if header.events < superblock.events {
        format!("it is of event {}, the superblock of {}", header.events, superblock.events)
    } else if covered < sync_bytes(geometry) {
        format!("it covers {covered} bytes of {}", sync_bytes(geometry))
    } else if header.state & (bitmap::STALE | bitmap::WRITE_ERROR) != 0 {
        "it is marked as out of date".to_string()
    } else {
        return Some(Copy::Good(bits));
    };
    Some(Copy::Bad(bad))
}

/// True if the private area of this member is valid.
async fn is_ours(reach: &MemberIo, found: &MemberProbe) -> bool {
    let Some(bounds) = found.map.private.clone() else { return false };
    let copies = reach.read(&*found.disk, bounds.start..bounds.start + HEADERS_BYTES).await;
    let valid =
        |copies: Vec<u8>| private::valid(&copies, &found.superblock, &bounds, parity::crc32c);
    copies.ok().and_then(valid).is_some()
}

impl Loaded {
    /// Merges all copies into one bitmap. Without a good copy it is a new one with every bit set.
    fn merge(&mut self, copies: Vec<(MemberId, Bits)>, members: &Members, geometry: &Geometry) {
        let superblock = &members.latest().superblock;
        let wanted = superblock.features.intersects(HAVE_BITMAP)
            && members.latest().format != Format::Md090
            && self.foreign_bitmap.is_none()
            && geometry.family() != Family::Plain;
        if !wanted {
            return;
        }
        // The freshest member's header; copies with another chunk size are ignored.
        let freshest = copies.iter().max_by_key(|(_, bits)| bits.header().events);
        let Some((_, freshest)) = freshest else {
            self.bits = new_bitmap(&self.records, members, geometry);
            return;
        };
        let mut merged = freshest.clone();
        let alike = |bits: &Bits| bits.header().chunk_bytes == freshest.header().chunk_bytes;
        copies.iter().filter(|(_, bits)| alike(bits)).for_each(|(_, bits)| merged.merge(bits));
        let cleared = copies.iter().map(|(_, bits)| bits.header().events_cleared).max();
        merged.edit_header(|header| {
            header.events_cleared = cleared.unwrap_or(0).max(header.events_cleared);
        });
        for (id, bits) in &copies {
            if let Some(record) = self.records.get_mut(id)
                && *bits == merged
            {
                record.behind = Pages::NONE;
            }
        }
        self.bits = Some(merged);
    }

    /// Finds the ranges to resync, from the superblock and the bitmap.
    fn find_unsynced(&mut self, members: &Members, geometry: &Geometry) {
        let superblock = &members.latest().superblock;
        if superblock.is_clean() || geometry.family() == Family::Plain {
            return;
        }
        let end = sync_bytes(geometry);
        let from = superblock.resync_offset.saturating_mul(SECTOR).min(end);
        let to_array = |sync: std::ops::Range<u64>| array_range(geometry, sync);
        self.unsynced = match &self.bits {
            None => std::iter::once(to_array(from..end)).collect(),
            Some(bits) => {
                let dirty = bits.dirty().into_iter().map(|region| bits.sync_range(region));
                let dirty = dirty.map(|range| range.start.max(from)..range.end.min(end));
                dirty.filter(|range| range.start < range.end).map(to_array).collect()
            }
        };
        // Only our own first superblock is known to be older than every write.
        let ours = Tag::of(superblock.utime).is_some();
        let cause = match (superblock.events, superblock.resync_offset) {
            (..=FIRST_EVENT, _) if ours => Cause::New,
            // While writes are in flight, md and Parapet write 0.
            (_, 0) => Cause::Crash,
            _ => Cause::Unfinished,
        };
        self.notes.push(Note::Unsynced { bytes: self.unsynced.bytes(), cause });
    }

    /// Shortens copies after a crash to the part before the first dirty range, because a torn write
    /// may have reached a member but not its replacement. Otherwise data read from the member would
    /// change when the replacement takes its slot. Without redundancy neither writes nor a crash
    /// are recorded, so nothing of the copy is trusted.
    ///
    /// `dirty` covers all interrupted writes, even those that the log can replay: the log has no
    /// records of rows with lost parity. True if a copy was shortened.
    pub(super) fn shorten_copies(
        dirty: &RangeSet,
        assigned: &mut Assigned,
        geometry: &Geometry,
    ) -> bool {
        let first = match geometry.family() {
            Family::Plain => Some(0),
            _ => dirty.next(0).map(|range| range.start),
        };
        let Some(first) = first.filter(|_| !broken(Broken::CopyTrustedAfterCrash)) else {
            return false;
        };
        let mut shortened = false;
        for assignment in &mut assigned.configuration.slots {
            if let Some((_, copied)) = &mut assignment.replacement {
                shortened |= first < *copied;
                *copied = first.min(*copied);
            }
        }
        shortened
    }

    /// Refuses an array that would return wrong data. Makes it read-only if its bitmap is
    /// unsupported.
    pub(super) fn permit(
        &mut self,
        members: &Members,
        assigned: &mut Assigned,
        geometry: &Geometry,
        options: &Options,
        intents: &Intents,
    ) -> Result<()> {
        let degraded = assigned.configuration.in_sync() != geometry.all_slots();
        if let Some(why) = self.foreign_bitmap {
            if degraded {
                return refuse(format!(
                    "{why}, and a member is missing: only that bitmap knows which parts of the \
                     array can be relied on; let Linux assemble it"
                ));
            }
            assigned.configuration.mode = Mode::ReadOnly;
            let reason = || format!("{why}; let Linux run it, or copy the data to a new array");
            assigned.read_only_reason.get_or_insert_with(reason);
        }
        let parity = geometry.family() == Family::Parity;
        if parity && !self.unsynced.is_empty() && intents.consistency.closes_hole() {
            match &intents.torn_rows {
                // A read-only array replays nothing.
                Ok(_) if assigned.read_only_reason.is_some() => {}
                // The log covers all unsynced ranges, and a degraded array cannot compare.
                Ok(_) if degraded && !intents.unverified => self.unsynced = RangeSet::new(),
                Ok(_) => {}
                Err(why) => self.notes.push(Note::LogUnusable { why: why.clone() }),
            }
        }
        let suspect = degraded && parity && !self.unsynced.is_empty();
        if suspect && !options.force_dirty_degraded {
            let lost = geometry.all_slots().difference(assigned.configuration.in_sync());
            let slots: Vec<String> = lost.iter().map(|slot| slot.to_string()).collect();
            let cause = self.notes.iter().find_map(|note| match note {
                Note::Unsynced { cause, .. } => Some(*cause),
                _ => None,
            });
            let why = match cause {
                Some(Cause::New) => "the array has never been in sync",
                Some(Cause::Unfinished) => "the array was stopped before it was in sync",
                _ => "the array crashed during writes",
            };
            let unusable = self.notes.iter().find(|note| matches!(note, Note::LogUnusable { .. }));
            let unusable = unusable.map_or(String::new(), |note| format!("; {note}"));
            return refuse(super::with_reasons(
                format!(
                    "{why}, and a member is missing (slots {}): its blocks in \
                     {} bytes of the array may be wrong. Attach the member, or accept that \
                     (--force-dirty-degraded){unusable}",
                    slots.join(", "),
                    self.unsynced.bytes()
                ),
                &members.notes,
            ));
        }
        Ok(())
    }
}

/// A bitmap with every bit set, to replace a lost one.
pub(super) fn new_bitmap(
    records: &BTreeMap<MemberId, Record>,
    members: &Members,
    geometry: &Geometry,
) -> Option<Bits> {
    let room = |record: &Record| bitmap_range(&record.map, record.superblock.features);
    let room = records.values().map(|record| room(record).map_or(0, |at| at.end - at.start));
    let room = room.min()?;
    let sectors = sync_bytes(geometry) / SECTOR;
    let chunk = bitmap::chunk_for(sectors, room)?;
    let superblock = &members.latest().superblock;
    let header = Bitmap {
        events: superblock.events,
        events_cleared: superblock.events,
        ..Bitmap::new(superblock.set_uuid, sectors, chunk)
    };
    Some(Bits::new(header, true))
}
