//! Joining members: a new disk as a spare, or a former member that returns to its slot.
//!
//! Owns the checks before a disk is admitted. Never writes a superblock: the next commit does, so
//! that a crash before it leaves the disk foreign.
//!
//! The bitmap alone can bring a former member up to date only if every write that it missed has
//! left its bit set:
//!
//! ```text
//!   events    … cleared ──── member's last ──── now      bits were last cleared before it left,
//!               ╰── no bit was cleared since ──╯         so the set bits cover what it missed
//! ```

use std::rc::Rc;

use io::Disk;
use io::broken::{Broken, broken};
use layout::md::superblock::{Device, MAX_DEVICES, Role};
use layout::md::{BadBlocks, Bitmap, ByteMap, Features, SECTOR, Superblock, TooSmall, Uuid};
use layout::{Family, MemberId, RangeSet, Slot, private};

use crate::assemble::probe::MemberProbe;
use crate::assemble::{probe, roles, rolled_back};
use crate::bitmap::{Bits, Pages};
use crate::commit::MetadataWriter;
use crate::commit::record::Record;
use crate::error::{Error, Result};

/// The block size for superblock and structures; larger blocks of a disk are refused.
pub const MOST_BLOCK_BYTES: u32 = 4096;

/// A disk that was admitted as a spare.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Admitted {
    /// Its number in the array.
    pub id: MemberId,
    /// The start of its data, in bytes.
    pub data_offset: u64,
}

/// A former member that may return to its slot.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Readmitted {
    /// Its number in the array.
    pub id: MemberId,
    /// The start of its data, in bytes.
    pub data_offset: u64,
    /// The slot it held.
    pub slot: Slot,
    /// The array ranges that it may have missed so far; see `MetadataWriter::dirty_ranges`.
    pub ranges: RangeSet,
    /// Its checksums are not valid from this array offset on.
    pub checksums_from: u64,
    /// Its bad blocks, in bytes from the start of its data.
    pub bad: RangeSet,
}

impl MetadataWriter {
    /// Admits a disk as a spare: finds room for all structures and assigns a number. Existing
    /// contents are not checked; the caller has asked the user. The next commit makes it a member.
    ///
    /// # Errors
    /// Refused: too small, blocks too large, read-only, or a member already. Nothing was written.
    pub async fn admit(&self, disk: Rc<dyn Disk>, name: &str) -> Result<Admitted> {
        self.check_disk(&disk, name)?;
        self.free_number(name)?;
        let mut record = self.new_record(&disk, name)?;
        self.prepare_member(&disk, name, &record.map).await?;
        // Others may have joined during the write.
        let id = self.free_number(name)?;
        record.superblock.device.number = id.0;
        let data_offset = record.map.data.start;
        let mut state = self.state.borrow_mut();
        if let Some(role) = state.roles.get_mut(id.0 as usize) {
            *role = Role::Spare;
        }
        state.records.insert(id, record);
        Ok(Admitted { id, data_offset })
    }

    /// Records that the user removes a member that may be a spare. The next commit writes that;
    /// otherwise a crash would make it a spare again, even if it is in other use by then.
    pub fn leaves(&self, id: MemberId) {
        if !broken(Broken::RemovalUnrecorded) {
            self.state.borrow_mut().leaving.insert(id);
        }
    }

    /// The record of a new member: laid out like one of the others, or like a member of a new
    /// array.
    ///
    /// # Errors
    /// Refused if no layout on the disk has room for data, log and checksums.
    fn new_record(&self, disk: &Rc<dyn Disk>, name: &str) -> Result<Record> {
        let member_bytes = disk.limits().bytes;
        let superblock = self.new_superblock();
        let needed = match superblock.size {
            0 => self.geometry.chunk_bytes().max(MOST_BLOCK_BYTES.into()),
            size => size * SECTOR,
        };
        let session = self.session();
        let draw = |map: ByteMap| {
            let mut superblock = superblock.clone();
            map.describe(&mut superblock);
            Record {
                name: name.to_string(),
                disk: Rc::clone(disk),
                map,
                superblock,
                bad: BadBlocks::default(),
                bad_changed: false,
                behind: Pages::ALL,
                session,
                next_session: session,
                since: None,
                stale_ppl: true,
                flush_failed: Rc::default(),
            }
        };
        let (maps, small) = self.places(member_bytes, needed);
        let records: Vec<Record> = maps.into_iter().map(draw).collect();
        if records.is_empty() {
            let small = small.expect("no candidate fits, so one gave a reason");
            return Err(Error::refused(format!("{name}: {small}; use a larger disk")));
        }
        let no_room = |what: &str| {
            let bytes = needed >> 10;
            Err(Error::refused(format!(
                "{name} has no room for the array's {what} beside {bytes} KiB of data; use a \
                 larger disk"
            )))
        };
        let logs = || records.iter().filter(|record| self.has_room_for_log(record));
        match logs().find(|record| self.has_room_for_checksums(record)) {
            Some(record) => Ok(record.clone()),
            None if logs().next().is_none() => no_room("intent log"),
            None => no_room("checksums"),
        }
    }

    /// The possible layouts of a new member of this size: those of the others, then that of a new
    /// array. Also the reason why it is too small for the layout of one of the others.
    fn places(&self, member_bytes: u64, needed: u64) -> (Vec<ByteMap>, Option<TooSmall>) {
        let state = self.state.borrow();
        let plain = self.geometry.family() == Family::Plain;
        let (mut maps, mut small): (Vec<ByteMap>, Option<TooSmall>) = (Vec::new(), None);
        for template in state.records.values().map(|record| &record.map) {
            match template.for_joining_member(member_bytes, needed) {
                // Without redundancy each member has its own size, and only data.
                Ok(map) if plain => maps.push(map),
                Ok(map) => maps.push(map.capped(template.data_bytes().max(needed))),
                Err(why) => {
                    let least = |small: &TooSmall| small.least_bytes;
                    small = small.into_iter().chain([why]).min_by_key(least);
                }
            }
        }
        let version = state.records.values().next().expect("an array has members").map.version;
        let room = |map: &ByteMap| map.bitmap.as_ref().map_or(0, |range| range.end - range.start);
        let least_room = state.records.values().map(|record| room(&record.map)).min();
        // The layout of a new array is equally good for members of other sizes.
        let own = ByteMap::for_new_member(member_bytes, self.geometry.chunk_bytes(), version);
        maps.extend(
            own.ok()
                .filter(|map| map.data_bytes() >= needed && room(map) >= least_room.unwrap_or(0)),
        );
        if plain {
            // A template may have been cut to the size of the smaller member that it replaced.
            maps.sort_by_key(|map| std::cmp::Reverse(map.data_bytes()));
        }
        let small_map = maps.iter().find(|map| map.data_bytes() < needed);
        assert_eq!(small_map, None, "a new member has less room than the {needed} bytes in use");
        (maps, small)
    }

    /// The superblock fields that apply to a new member too, with a new identity.
    fn new_superblock(&self) -> Superblock {
        let mut device_uuid = [0; 16];
        (self.random)(&mut device_uuid);
        let state = self.state.borrow();
        let any = state.records.values().next().expect("an array has members");
        Superblock {
            device: Device {
                uuid: Uuid(device_uuid),
                corrected_reads: 0,
                flags: 0,
                ..any.superblock.device
            },
            features: any.own_features(any.superblock.features).without(Features::BAD_BLOCKS),
            recovery_offset: 0,
            ..any.superblock.clone()
        }
    }

    /// Checks that apply to every joining disk.
    fn check_disk(&self, disk: &Rc<dyn Disk>, name: &str) -> Result<()> {
        let limits = disk.limits();
        let refuse = |what: String| Err(Error::refused(what));
        let state = self.state.borrow();
        let mut held = state.records.iter().filter(|(id, _)| !state.is_gone(**id));
        if let Some((_, same)) = held.find(|(_, record)| Rc::ptr_eq(&record.disk, disk)) {
            return refuse(format!("{name} is a member already, as {}", same.name));
        }
        if limits.read_only {
            return refuse(format!("{name} is read-only; a member must be writable"));
        }
        let block = |disk: &Rc<dyn Disk>| disk.limits().logical_block;
        let most = state.records.values().map(|r| block(&r.disk)).max().unwrap_or(512);
        if limits.logical_block > most {
            return refuse(format!(
                "{name} is written in blocks of {} bytes, the array in blocks of {most}; use a \
                 disk with blocks of {most} bytes, or stop the array and assemble it with it",
                limits.logical_block
            ));
        }
        if let Some(why) = self.sealed() {
            return refuse(format!("nothing is written to this array's members: {why}"));
        }
        Ok(())
    }

    /// Erases old structures where Parapet would read them: writes an empty bad-block log, and
    /// removes the header of the private area.
    async fn prepare_member(&self, disk: &Rc<dyn Disk>, name: &str, map: &ByteMap) -> Result<()> {
        let failed = |why| Error::refused(format!("{name} cannot be written")).because(why);
        let writer = self.reach.of(name, disk);
        if let Some(area) = &map.private {
            let headers = area.start..area.start + private::HEADERS_BYTES;
            writer.zero(headers, false).await.map_err(failed)?;
        }
        if let Some(log) = &map.bad_blocks {
            let empty = vec![0xff; (log.end - log.start) as usize];
            writer.write(log.start, &empty, false).await.map_err(failed)?;
        }
        Ok(())
    }

    /// The lowest free number at or above the slots, as md assigns them. Numbers of failed members
    /// come last, because these may still return.
    fn free_number(&self, name: &str) -> Result<MemberId> {
        let state = self.state.borrow();
        let room = |record: &Record| record.map.superblock.end - record.map.superblock.start;
        let room = state.records.values().map(room).min().unwrap_or(0);
        let fits = |number: &u32| {
            let table = Superblock::role_table(*number as usize + 1).unwrap_or_default();
            *number < self.geometry.slots() as u32 || 256 + 2 * table.len() as u64 <= room
        };
        let numbers = || (self.geometry.slots() as u32..MAX_DEVICES as u32).take_while(fits);
        let role = |number: u32| state.roles.get(number as usize).copied().unwrap_or(Role::Spare);
        let free = |number: &u32| {
            let known = state.records.contains_key(&MemberId(*number));
            !known && role(*number) == Role::Spare
        };
        let gone = |number: &u32| role(*number) == Role::Faulty;
        let number = numbers().find(free).or_else(|| numbers().find(gone));
        number.map(MemberId).ok_or_else(|| {
            Error::refused(format!("{name}: the superblock has no room for one more member"))
        })
    }

    /// Readmits a former member if the bitmap alone can bring it up to date. The next commit that
    /// assigns its slot makes it a member again.
    ///
    /// # Errors
    /// Refused, with the reason: only a full rebuild is possible then (`admit` it as a new member).
    /// Nothing was written.
    pub async fn readmit(&self, disk: Rc<dyn Disk>, name: &str) -> Result<Readmitted> {
        self.check_disk(&disk, name)?;
        let found = probe::look(&self.reach, &disk, name, Some(self.facts.uuid)).await;
        let found = found.map_err(|why| Error::refused(format!("{name}: {why}")))?;
        let slot = self.may_return(&found)?;
        if rolled_back::is_hollow(&self.reach, &found, self.private.get().kept_before).await {
            return Err(Error::refused(format!(
                "{name}: it has the superblock of event {}, and not the private area that this \
                 event wrote: the rest of its contents counts as lost; it must be rebuilt in full",
                found.superblock.events
            )));
        }
        let checksums_from = self.checksums_of(&found).await;
        let session = self.session();
        let record =
            Record { session, next_session: session, stale_ppl: true, ..found.into_record() };
        if !self.has_room_for_log(&record) {
            return Err(Error::refused(format!("{name} has no room for the array's intent log")));
        }
        if !self.has_room_for_checksums(&record) {
            return Err(Error::refused(format!("{name} has no room for the array's checksums")));
        }
        let id = MemberId(record.superblock.device.number);
        let data_offset = record.map.data.start;
        let bad = record.bad_ranges();
        self.state.borrow_mut().records.insert(id, record);
        let ranges = self.dirty_ranges();
        Ok(Readmitted { id, data_offset, slot, ranges, checksums_from, bad })
    }

    /// The array offset below which a member's checksums were valid when it left, by its own
    /// record. No bit covers later or undurable changes of them.
    async fn checksums_of(&self, found: &MemberProbe) -> u64 {
        if self.private.get().checksums_from.is_none() || broken(Broken::ReaddChecksumsTrusted) {
            return u64::MAX;
        }
        let Some(bounds) = found.map.private.clone() else { return 0 };
        let headers = bounds.start..bounds.start + private::HEADERS_BYTES;
        let Ok(copies) = self.reach.read(&*found.disk, headers).await else { return 0 };
        let own = private::valid(&copies, &found.superblock, &bounds, parity::crc32c);
        own.and_then(|header| header.checksums_from).unwrap_or(0)
    }

    /// Invalidates the bitmap for re-adding members. A lost member has lost bytes that it once
    /// held, which no bit covers. From the next commit on the bits count as cleared, so that no
    /// present or former member can return by them. `events_cleared` makes that hold after a
    /// restart, too.
    pub fn void_bits(&self) {
        self.void_bits.set(!broken(Broken::CutReadded));
    }

    /// Gives the bitmap the number of the commit that writes it.
    pub(super) fn number(&self, bits: &mut Bits, events: u64) {
        let void = self.void_bits.replace(false);
        bits.edit_header(|header| {
            header.events = events;
            if void {
                header.events_cleared = events;
            }
        });
    }

    /// The slot that a member may return to if only the regions with set bits are copied.
    fn may_return(&self, found: &MemberProbe) -> Result<Slot> {
        let (theirs, name) = (&found.superblock, &found.name);
        let full = "it must be rebuilt in full";
        let refuse = |what: String| Err(Error::refused(format!("{name}: {what}; {full}")));
        let state = self.state.borrow();
        let any = state.records.values().next().expect("an array has members");
        let ours = &any.superblock;
        if theirs.set_uuid != self.facts.uuid {
            return refuse(format!("it belongs to another array ({})", theirs.set_uuid));
        }
        if let Some(what) = roles::difference(ours, theirs) {
            return refuse(format!("the array has changed its shape since it left: {what}"));
        }
        if ours.features.consistency() != theirs.features.consistency() {
            return refuse("the array had another consistency policy when it left".to_string());
        }
        let Role::Slot(slot) = theirs.own_role() else {
            return refuse("it had no slot when it left".to_string());
        };
        let partial = [Features::RECOVERY_OFFSET, Features::RECOVERY_BITMAP, Features::REPLACEMENT];
        if partial.into_iter().any(|feature| theirs.features.contains(feature)) {
            return refuse("it was not rebuilt to the end when it left".to_string());
        }
        let id = MemberId(theirs.device.number);
        if let Some(other) = state.records.get(&id).filter(|_| !state.is_gone(id)) {
            return refuse(format!("its number {} is {}'s now", id.0, other.name));
        }
        let holder = state
            .records
            .iter()
            .find(|(other, _)| state.roles.get(other.0 as usize) == Some(&Role::Slot(slot)));
        if let Some((_, holder)) = holder {
            return refuse(format!("its slot {slot} is held by {}", holder.name));
        }
        let header = state.bits.as_ref().map(crate::bitmap::Bits::header);
        let Some(&Bitmap { events_cleared, .. }) = header else {
            return refuse("without a bitmap its missed writes are unknown".to_string());
        };
        let events = theirs.events;
        if events < events_cleared && !broken(Broken::ReaddAfterClear) {
            return refuse(format!(
                "it left at event {events}, and the bitmap only tells what changed since event \
                 {events_cleared}"
            ));
        }
        if self.ran_without_others(theirs) {
            return refuse(format!(
                "it went on without this array's members (event {events}, here {}), and has a \
                 history of its own",
                self.events.get()
            ));
        }
        Ok(Slot::new(usize::from(slot)))
    }

    /// True if a disk with this superblock was a member of this array and holds nothing that the
    /// array lacks: it may become a new member without a question.
    pub fn is_former_member(&self, theirs: &Superblock) -> bool {
        let is_member = theirs.own_role() != Role::Journal;
        theirs.set_uuid == self.facts.uuid && is_member && !self.ran_without_others(theirs)
    }

    /// True if this member of the array was used without the members that are in service now.
    fn ran_without_others(&self, theirs: &Superblock) -> bool {
        let state = self.state.borrow();
        let holds_slot =
            |id: &&MemberId| matches!(state.roles.get(id.0 as usize), Some(Role::Slot(_)));
        let mut active = state.records.keys().filter(holds_slot).peekable();
        let alone = active.peek().is_some() && active.all(|id| roles::excludes(theirs, id.0));
        theirs.events > self.events.get() || alone
    }
}
