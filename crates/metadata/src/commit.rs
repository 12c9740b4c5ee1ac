//! The superblocks and the bitmap of all members of one array, as last written.
//!
//! Owns every byte that describes the array on its members, and the order in which these bytes are
//! written. Decides nothing: the keeper decides the assignment and the progress, the metadata
//! writer makes them durable.
//!
//! # A commit
//!
//! ```text
//!   events + 1
//!   bitmap header, stale bitmap pages, bad-block log,
//!   md's partial parity log if it must be emptied (`ppl`)  each assigned member, in parallel
//!   header of the journal device, once in a session        that device
//!   header of the private area                             each assigned member
//!   flush                                                  each assigned member
//!   superblock, FUA                                        each assigned member and each spare
//! ```
//!
//! Everything that a superblock claims about a member is durable before the first superblock is
//! written. If a member fails before that, no superblock is written and the keeper gets the
//! failure. Otherwise a superblock would list the member as active and the array as clean, despite
//! the failed flush. A member whose superblock cannot be written is one event behind the others, as
//! after a crash in the middle. The freshest superblock's role table then decides
//! (`assemble/roles.rs`). The next commit first brings such a member up to date (`catch_up`).
//!
//! Each superblock's `utime` carries a random tag where md has microseconds (`layout::private`), so
//! two commits with the same event count can be told apart.
//!
//! Invariant: `events` only grows. For the bits see `bitmap_pages`.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::rc::Rc;

use io::Clock;
use io::broken::{Broken, broken};
use layout::md::superblock::{CLEAN, Device, EVENTS_MOST};
use layout::md::{Bitmap, Features, Magic, Role, SECTOR, Superblock, Timestamp, Uuid, Version};
use layout::private::{Consistency, Tag};
use layout::{Configuration, Family, Geometry, Layout, MemberId, RangeSet, sync};

use crate::assemble::slots;
use crate::bitmap::{Bits, Pages};
use crate::commit::async_mutex::AsyncMutex;
use crate::commit::catch_up::Behind;
use crate::commit::journal_device::Journal;
use crate::commit::member_io::{MemberIo, all};
use crate::commit::private::Private;
use crate::commit::record::Record;

pub(crate) mod add_member;
pub mod async_mutex;
mod bad_blocks;
pub(crate) mod bitmap_pages;
pub(crate) mod catch_up;
mod data;
pub mod flush;
pub mod journal_device;
pub mod member_io;
pub(crate) mod orphans;
pub(crate) mod ppl;
pub(crate) mod private;
pub mod record;

pub use add_member::MOST_BLOCK_BYTES;
pub use add_member::{Admitted, Readmitted};

/// Fills bytes with random ones, from the host's generator or the simulator's seed.
pub type Random = Rc<dyn Fn(&mut [u8])>;

/// Members that could not be written, and their errors.
pub type Failures = Vec<(MemberId, io::Error)>;

/// The superblock format of an array.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// Linux md's version 1 superblock.
    Md(Version),
    /// Linux md's version 0.90 superblock: only read.
    Md090,
    /// The same layout as version 1 under Parapet's magic: RAID 3.5.
    Parapet(Version),
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Format::Md(version) => write!(f, "md {version}"),
            Format::Md090 => f.write_str("md 0.90"),
            Format::Parapet(version) => write!(f, "parapet {version}"),
        }
    }
}

impl Format {
    /// The format of a version 1 superblock.
    pub fn of(superblock: &Superblock) -> Format {
        match superblock.magic {
            Magic::Md => Format::Md(superblock.version()),
            Magic::Parapet => Format::Parapet(superblock.version()),
        }
    }
}

/// The facts that never change while an array runs. Sizes in bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Facts {
    /// The array's identity.
    pub uuid: Uuid,
    /// Its name, without the host in front.
    pub name: String,
    /// Level and parameters.
    pub layout: Layout,
    /// Bytes of a chunk; 0 where the level has none.
    pub chunk_bytes: u64,
    /// The number of slots.
    pub slots: usize,
    /// Bytes of the array.
    pub capacity: u64,
    /// Bytes of sync space per bit of the bitmap; `None` without a bitmap.
    pub bitmap_bytes: Option<u64>,
    /// The superblock format.
    pub format: Format,
    /// When it was created: seconds since 1970, UTC.
    pub created_s: u64,
    /// The crash-consistency policy, for levels with parity.
    pub consistency: Consistency,
    /// Whether it keeps checksums of its blocks.
    pub checksums: bool,
}

impl Facts {
    /// The facts in a superblock, and in the bitmap that goes with it.
    pub(crate) fn of(
        superblock: &Superblock,
        format: Format,
        geometry: &Geometry,
        bitmap: Option<&Bitmap>,
        private: &private::Private,
    ) -> Facts {
        Facts {
            uuid: superblock.set_uuid,
            name: superblock.set_name.short(),
            layout: geometry.layout(),
            chunk_bytes: geometry.chunk_bytes(),
            slots: geometry.slots(),
            capacity: geometry.capacity(),
            bitmap_bytes: bitmap.map(|header| u64::from(header.chunk_bytes)),
            format,
            created_s: superblock.ctime.seconds(),
            consistency: private.next_consistency,
            checksums: private.checksums_from.is_some(),
        }
    }
}

/// The state that the keeper wants to make durable.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Decision {
    /// The assignment of members to slots.
    pub configuration: Configuration,
    /// No write is in flight.
    pub clean: bool,
    /// The array offset of the first unsynced range; `None` if all is in sync.
    pub resync_from: Option<u64>,
}

/// The metadata of one array. One keeper uses it, through a shared reference.
pub struct MetadataWriter {
    facts: Facts,
    geometry: Geometry,
    state: RefCell<State>,
    clock: Rc<dyn Clock>,
    random: Random,
    reach: MemberIo,
    /// One commit at a time.
    committing: AsyncMutex,
    /// One write of bitmap pages at a time.
    marking: AsyncMutex,
    /// One flush of members at a time.
    flushing: AsyncMutex,
    events: Cell<u64>,
    private: Cell<Private>,
    /// The journal device of this session, while it works.
    journal: Option<Journal>,
    /// Members that missed the last commit before this start.
    behind: RefCell<Option<Behind>>,
    /// From the next commit on, the bitmap no longer covers the writes that former members missed.
    void_bits: Cell<bool>,
    /// The reason if nothing may ever be written to the members: commits do nothing then.
    sealed: Option<String>,
}

/// The mutable state.
struct State {
    records: BTreeMap<MemberId, Record>,
    /// The role of each device number in the last commit.
    roles: Vec<Role>,
    /// Members that the next commit removes.
    leaving: BTreeSet<MemberId>,
    bits: Option<Bits>,
    /// Regions whose bits are about to be cleared, unless they are set again meanwhile.
    doomed: BTreeSet<u64>,
    /// Lost array ranges, apart from the members' bad blocks.
    bad: RangeSet,
}

impl State {
    /// True if the member once had a slot and the last commit went on without it.
    fn is_gone(&self, id: MemberId) -> bool {
        self.roles.get(id.0 as usize) == Some(&Role::Faulty)
    }
}

/// The result of assembly for the metadata writer.
pub(crate) struct Opened {
    pub(crate) facts: Facts,
    pub(crate) geometry: Geometry,
    pub(crate) records: BTreeMap<MemberId, Record>,
    /// The members' superblocks as found.
    pub(crate) found: BTreeMap<MemberId, Superblock>,
    pub(crate) bits: Option<Bits>,
    pub(crate) private: Private,
    pub(crate) journal: Option<Journal>,
    pub(crate) bad: RangeSet,
    /// The reason if nothing may be written to the members.
    pub(crate) sealed: Option<String>,
    /// The assignment of members to slots.
    pub(crate) configuration: Configuration,
    /// The freshest superblock.
    pub(crate) latest: Superblock,
}

/// The error of an operation on an expelled member.
fn expelled_error() -> io::Error {
    io::Error::new(io::ErrorKind::Gone, "a member that was removed")
}

impl MetadataWriter {
    pub(crate) fn new(
        opened: Opened,
        clock: Rc<dyn Clock>,
        random: Random,
        reach: MemberIo,
    ) -> MetadataWriter {
        let behind = Behind::of(&opened);
        slots::assert_fit(&opened.configuration, &opened.records, &opened.geometry);
        let Opened { facts, geometry, records, bits, private, journal, .. } = opened;
        let Opened { bad, sealed, latest, .. } = opened;
        let (events, roles) = (latest.events, latest.roles);
        let (leaving, doomed) = (BTreeSet::new(), BTreeSet::new());
        MetadataWriter {
            facts,
            geometry,
            state: RefCell::new(State { records, roles, leaving, bits, doomed, bad }),
            clock,
            random,
            reach,
            committing: AsyncMutex::default(),
            marking: AsyncMutex::default(),
            flushing: AsyncMutex::default(),
            events: Cell::new(events),
            private: Cell::new(private),
            journal,
            behind: RefCell::new(behind),
            void_bits: Cell::new(false),
            sealed,
        }
    }

    /// The reason if nothing may be written to the members.
    pub fn sealed(&self) -> Option<&str> {
        self.sealed.as_deref()
    }

    /// The facts that never change.
    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    /// The event count: the number of metadata changes.
    pub fn events(&self) -> u64 {
        self.events.get()
    }

    /// Makes a decision durable on every assigned member and every spare. In an array that was
    /// started read-only, the decision holds until the array is stopped and is not written.
    ///
    /// # Errors
    /// The members that could not be written. If only superblocks failed, the others have theirs.
    pub(crate) async fn commit(&self, decision: &Decision) -> Result<(), Failures> {
        if self.sealed.is_some() {
            return Ok(());
        }
        let _turn = self.committing.take().await;
        let configuration = &decision.configuration;
        configuration.assert_consistent();
        let (have, slots) = (configuration.slots.len(), self.geometry.slots());
        assert_eq!(have, slots, "the role tables would leave out slots");
        let assigned: Vec<MemberId> = configuration.assigned().map(|(_, id)| id).collect();
        self.none_late(assigned.iter().chain(&configuration.spares))?;
        self.catch_up(configuration).await?;
        let events = self.events.get() + 1;
        assert!(events <= EVENTS_MOST, "no member would be found again with event {events}");
        self.events.set(events);
        let mut failures = self.expelled(&assigned);
        failures.extend(self.prepare(&assigned, events).await);
        failures.extend(self.begin_journal(configuration).await);
        let utime = self.stamp();
        let alive = self.records(&assigned, &failures);
        if !broken(Broken::HeaderUnwritten) {
            failures.extend(self.write_headers(alive, configuration, events, utime).await);
        }
        let alive =
            self.records(&assigned, &failures).into_iter().map(|(id, _)| id).collect::<Vec<_>>();
        if !broken(Broken::CommitUnflushed) {
            failures.extend(self.flush(&alive).await);
        }

        if !failures.is_empty() && !broken(Broken::CommitWithoutFailed) {
            // No superblock has this number yet, so the next attempt uses it again. The headers
            // that match the current superblocks stay in place.
            self.events.set(events - 1);
            return Err(failures);
        }

        let now = self.events.get();
        assert_eq!(now, events, "two commits at once: events {events} and {now}");
        let superblocks = self.draw_up(decision, events, utime);
        let mut everyone = assigned;
        everyone.extend(&configuration.spares);
        let writes = self.records(&everyone, &failures).into_iter();
        let writes = writes.map(|(id, record)| {
            let superblock = &superblocks[&id];
            async move {
                let written = record.write_superblock(&self.reach, superblock).await;
                written.map_err(|why| (id, why)).err()
            }
        });
        failures.extend(all(writes).await.into_iter().flatten());
        self.adopt(superblocks, &failures);
        if failures.is_empty() { Ok(()) } else { Err(failures) }
    }

    /// The record of a member.
    pub fn record(&self, id: MemberId) -> Option<Record> {
        self.state.borrow().records.get(&id).cloned()
    }

    /// Reads and writes members.
    pub(crate) fn reach(&self) -> &MemberIo {
        &self.reach
    }

    /// Assigned members that were expelled: nothing can be made durable on them.
    fn expelled(&self, assigned: &[MemberId]) -> Failures {
        let state = self.state.borrow();
        let unknown = assigned.iter().filter(|id| !state.records.contains_key(id));
        unknown.map(|&id| (id, expelled_error())).collect()
    }

    /// Writes everything that must be on the members before the superblocks with `events`.
    async fn prepare(&self, assigned: &[MemberId], events: u64) -> Failures {
        {
            let mut state = self.state.borrow_mut();
            let State { records, bits, .. } = &mut *state;
            if let Some(bits) = bits {
                self.number(bits, events);
                records.values_mut().for_each(|r| r.behind = r.behind.union(Pages::HEADER));
            }
        }
        let mut failures = self.write_bitmap(assigned).await;
        failures.extend(self.empty_ppl(assigned, &failures).await);
        let mut changed = self.records(assigned, &failures);
        changed.retain(|(_, record)| record.bad_changed);
        // A list is valid at once, so rewritten blocks must be durable before it no longer lists
        // them.
        if !changed.is_empty() && !broken(Broken::ListBeforeData) {
            let ids: Vec<MemberId> = changed.iter().map(|(id, _)| *id).collect();
            failures.extend(self.flush(&ids).await);
            changed.retain(|(id, _)| !failures.iter().any(|(failed, _)| failed == id));
        }
        let writes = changed.into_iter().map(|(id, record)| async move {
            (id, record.bad.clone(), record.write_bad_blocks(&self.reach).await)
        });
        for (id, written, result) in all(writes).await {
            match result {
                Err(why) => failures.push((id, why)),
                Ok(()) => {
                    let mut state = self.state.borrow_mut();
                    if let Some(record) = state.records.get_mut(&id) {
                        record.bad_changed = record.bad != written;
                    }
                }
            }
        }
        failures
    }

    /// The records of these members without those that failed.
    fn records(&self, ids: &[MemberId], failures: &Failures) -> Vec<(MemberId, Record)> {
        let state = self.state.borrow();
        let alive = ids.iter().filter(|id| !failures.iter().any(|(failed, _)| failed == *id));
        alive.filter_map(|id| Some((*id, state.records.get(id)?.clone()))).collect()
    }

    /// The superblock of each member for the decision.
    fn draw_up(
        &self,
        decision: &Decision,
        events: u64,
        utime: Timestamp,
    ) -> BTreeMap<MemberId, Superblock> {
        let configuration = &decision.configuration;
        let roles = self.role_table(configuration);
        let resync_offset = self.resync_offset(decision);
        let state = self.state.borrow();
        let draw = |(&id, record): (&MemberId, &Record)| {
            let superblock = Superblock {
                roles: roles.clone(),
                events,
                utime,
                resync_offset,
                ..self.draw_own(configuration, id, record)
            };
            (id, superblock)
        };
        state.records.iter().map(draw).collect()
    }

    /// The superblock of a member, with only the fields about that member changed.
    fn draw_own(&self, configuration: &Configuration, id: MemberId, record: &Record) -> Superblock {
        let mut features = record.own_features(record.superblock.features);
        let mut recovery_offset = 0;
        if let Some((recovered, replacement)) = self.progress(configuration, id) {
            if let Some(sectors) = recovered {
                features = features.with(Features::RECOVERY_OFFSET);
                recovery_offset = sectors;
            }
            if replacement {
                features = features.with(Features::REPLACEMENT);
            }
        }
        // Levels without redundancy count in array space.
        let most = match self.geometry.family() {
            Family::Plain => self.geometry.capacity() / SECTOR,
            Family::Mirror | Family::Parity => record.superblock.data_size,
        };
        assert!(recovery_offset <= most, "recovered beyond the end of the member");
        Superblock { features, recovery_offset, ..record.superblock.clone() }
    }

    /// The recovered sectors of an assigned member (`None`: all); true if it is a replacement.
    fn progress(&self, configuration: &Configuration, id: MemberId) -> Option<(Option<u64>, bool)> {
        let (slot, replacement) = configuration.slot_of(id)?;
        let assignment = &configuration.slots[slot.index()];
        let recovered = match assignment.replacement {
            Some((_, copied)) if replacement => {
                Some(copied).filter(|&at| at < self.geometry.capacity())
            }
            _ => assignment.recovered,
        };
        let sectors = |offset: u64| sync::recovery_offset(&self.geometry, offset) / SECTOR;
        let offset = |offset: u64| sectors(offset.min(self.geometry.capacity()));
        Some((recovered.map(offset), replacement))
    }

    /// md's `resync_offset`: 0 while writes are in flight, else the end of the synced part.
    fn resync_offset(&self, decision: &Decision) -> u64 {
        if self.geometry.family() == Family::Plain {
            return CLEAN;
        }
        if !decision.clean {
            return 0;
        }
        let from = decision.resync_from.filter(|&from| from < self.geometry.capacity());
        from.map_or(CLEAN, |from| sync::sync_range(&self.geometry, from..from + 1).start / SECTOR)
    }

    /// The current time, with a tag that no other commit has.
    fn stamp(&self) -> Timestamp {
        let mut bytes = [0; 4];
        (self.random)(&mut bytes);
        let seconds = self.clock.unix_micros() / 1_000_000;
        Tag::new(u32::from_le_bytes(bytes)).stamp(seconds & ((1 << 40) - 1))
    }

    /// The role of each device number. A number that once had a slot and has none now is faulty
    /// until it is reused, so that a former member can detect that the array went on without it.
    fn role_table(&self, configuration: &Configuration) -> Vec<Role> {
        let state = self.state.borrow();
        let mut roles = state.roles.clone();
        let top = state.records.keys().map(|id| id.0 as usize + 1).max().unwrap_or(0);
        if top > roles.len() {
            roles = Superblock::role_table(top).expect("admission bounds the numbers");
            roles[..state.roles.len()].copy_from_slice(&state.roles);
        }
        let known =
            |(_, id): (_, MemberId)| id == MemberId::JOURNAL || (id.0 as usize) < roles.len();
        assert!(configuration.assigned().all(known), "a member that no superblock would name");
        for (number, role) in roles.iter_mut().enumerate() {
            let id = MemberId(number as u32);
            *role = match (configuration.slot_of(id), *role) {
                (Some((slot, _)), _) => Role::Slot(slot.0.into()),
                (None, _) if configuration.spares.contains(&id) => Role::Spare,
                (None, Role::Slot(_)) => Role::Faulty,
                (None, _) if state.leaving.contains(&id) => Role::Faulty,
                (None, role) => role,
            };
        }
        roles
    }

    /// Stores the written superblocks.
    fn adopt(&self, mut written: BTreeMap<MemberId, Superblock>, failures: &Failures) {
        let mut state = self.state.borrow_mut();
        if let Some(superblock) = written.values().next() {
            state.roles.clone_from(&superblock.roles);
        }
        for (id, record) in &mut state.records {
            if !failures.iter().any(|(failed, _)| failed == id)
                && let Some(superblock) = written.remove(id)
            {
                let (before, now) = (record.superblock.events, superblock.events);
                assert!(now > before, "{}: event {before} is followed by {now}", record.name);
                // Read errors may have been repaired meanwhile.
                let corrected_reads = record.superblock.device.corrected_reads;
                let device = Device { corrected_reads, ..superblock.device };
                record.superblock = Superblock { device, ..superblock };
            }
        }
    }

    /// Gives a spare the exact size of the member that it will replace. On linear and RAID 0 the
    /// sizes of the members determine the place of every byte.
    ///
    /// # Errors
    /// Refused if the spare has less room.
    pub fn fit(&self, spare: MemberId, like: MemberId) -> crate::Result<()> {
        let mut state = self.state.borrow_mut();
        let Some(wanted) = state.records.get(&like).map(|old| old.superblock.data_size) else {
            return Ok(());
        };
        let Some(record) = state.records.get_mut(&spare) else { return Ok(()) };
        if record.superblock.data_size < wanted {
            let what = format!(
                "{} has room for {} bytes, {} are needed to take this member's place",
                record.name,
                record.superblock.data_size * SECTOR,
                wanted * SECTOR
            );
            return Err(crate::Error::refused(what));
        }
        let end = record.map.data.start + wanted * SECTOR;
        let room = record.map.data.end;
        assert!(end <= room, "the data of {} up to {end} is beyond its room {room}", record.name);
        record.superblock.data_size = wanted;
        record.map.data.end = end;
        Ok(())
    }

    /// Removes a member. Its own superblock stays as it is: stale, as with md. The next commit
    /// marks its number faulty, so that it does not return automatically, not even as a spare.
    pub fn expel(&self, id: MemberId) {
        let mut state = self.state.borrow_mut();
        let known = state.records.remove(&id).is_some();
        state.leaving.remove(&id);
        if let Some(role) = state.roles.get_mut(id.0 as usize)
            && known
        {
            *role = Role::Faulty;
        }
    }

    /// Adds to the count of sectors that were rewritten after a read error, at the next commit.
    pub fn add_corrected(&self, id: MemberId, sectors: u64) {
        let mut state = self.state.borrow_mut();
        if let Some(record) = state.records.get_mut(&id) {
            let sectors = u32::try_from(sectors).unwrap_or(u32::MAX);
            let count = &mut record.superblock.device.corrected_reads;
            *count = count.saturating_add(sectors);
        }
    }
}

#[cfg(test)]
mod tests;
