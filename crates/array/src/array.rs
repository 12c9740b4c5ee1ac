//! An array: a disk made of members.
//!
//! The public face of the engine. Offers the verbs of the array's life and owns all its tasks on
//! its thread: the host only drives [`Array::run`]. Requests go to the [`Front`]; each further
//! thread has a front of its own.

use std::cell::Cell;
use std::future::Future;
use std::rc::Rc;

use io::broken::{Broken, broken};
use io::{Boxed, Clock, Completion, Disk, Done, Limits, Mailbox, Op, TaskSet, ZeroSupport};
use layout::md::Superblock;
use layout::private::checksums::Seed;
use layout::{Family, Geometry, MemberId, Mode, RangeSet, Slot};
use metadata::assemble::{Assembly, Joined};
use metadata::{Bounds, Decisions, Error, ErrorKind, Local, Result};
use parity::Kernel;

use crate::keeper::{Command, Keeper, Start};
use crate::member::Introduction;
use crate::rows::checksum;
use crate::rows::checksum::ChecksumSetup;
use crate::rows::flush::CacheMode;
use crate::shard::bitmap::Intent;
use crate::shard::message::{Message, Post, ToShard};
use crate::shard::requests::Load;
use crate::shard::submit::{Blueprint, Front};
use crate::status::{EventLog, MemberStatus, Status};

mod scrub;
mod snapshot;

/// The environment that the host provides for an array.
#[derive(Clone)]
pub struct Host {
    /// Time.
    pub clock: Rc<dyn Clock>,
    /// The parity kernel.
    pub kernel: Kernel,
    /// Limits.
    pub bounds: Bounds,
    /// Shards, on all threads.
    pub shards: usize,
    /// When writes are acknowledged.
    pub cache: CacheMode,
    /// Compare parity on every read.
    pub check_reads: bool,
    /// Makes write intents durable, if not the members' bitmap.
    pub intent: Option<Rc<dyn Intent>>,
    /// Decides about the configuration, if not the members' superblocks.
    pub decisions: Option<Rc<dyn Decisions>>,
    /// Compute parity; off only to measure its cost, because writes are then not protected.
    pub parity: bool,
}

impl Host {
    /// One shard, the best kernel, the usual limits.
    pub fn new(clock: Rc<dyn Clock>) -> Host {
        let kernel = parity::best();
        let bounds = Bounds::default();
        Host {
            clock,
            kernel,
            bounds,
            shards: 1,
            cache: CacheMode::None,
            check_reads: false,
            intent: None,
            decisions: None,
            parity: true,
        }
    }
}

/// A running array. Cheap to clone.
#[derive(Clone)]
pub struct Array {
    inner: Rc<Inner>,
}

struct Inner {
    blueprint: Blueprint,
    geometry: Rc<Geometry>,
    /// The fronts on this thread; the first one is the array's own.
    fronts: Vec<Front>,
    keeper: Rc<Keeper>,
    tasks: Rc<TaskSet>,
    clock: Rc<dyn Clock>,
    stopped: Cell<bool>,
}

/// A disk that has been admitted but is not a member yet.
pub struct Newcomer {
    introduction: Introduction,
    /// Its former slot and the ranges that it missed, if it was a member before.
    back: Option<(Slot, RangeSet)>,
}

impl Newcomer {
    /// The facts that every front needs about it.
    pub fn introduction(&self) -> &Introduction {
        &self.introduction
    }
}

impl Array {
    /// Starts an assembled array with all its shards on this thread. Nothing is written before it
    /// is needed: for the first write, a rebuild or a resync.
    pub fn start(assembly: Assembly, host: &Host) -> Array {
        let mailboxes = io::mailbox::local(host.shards);
        let mailboxes: Vec<Rc<dyn Mailbox<Message>>> =
            mailboxes.into_iter().map(|mailbox| Rc::new(mailbox) as _).collect();
        Array::start_with(assembly, host, mailboxes)
    }

    /// Starts an array whose shards communicate through mailboxes. The mailboxes given belong to
    /// the shards on this thread, in order, the first one with address 0. Other threads start their
    /// shards by [`Front::join`], with this array's [`Array::blueprint`].
    ///
    /// # Panics
    /// If no mailbox is given, if there are more mailboxes than the host has shards, or if the host
    /// has more shards than [`Assembly::most_shards`].
    pub fn start_with(
        assembly: Assembly,
        host: &Host,
        mailboxes: Vec<Rc<dyn Mailbox<Message>>>,
    ) -> Array {
        assert!(!broken(Broken::Canary), "the canary: no array starts");
        let here = 1..=host.shards;
        assert!(here.contains(&mailboxes.len()), "a mailbox for each shard of this thread");
        let assembly = fitted(assembly, host);
        let blueprint = blueprint(&assembly, host);
        let Assembly { metadata, geometry, configuration, recovered, members, .. } = assembly;
        let tasks = Rc::new(TaskSet::new());
        let fronts: Vec<Front> = mailboxes
            .into_iter()
            .map(|mailbox| {
                let disks = members.iter().map(|joined| Rc::clone(&joined.disk)).collect();
                let (clock, intent) = (Rc::clone(&host.clock), host.intent.clone());
                let post = Rc::new(Post::new(mailbox, host.shards));
                Front::new(&blueprint, disks, clock, intent, post, Rc::clone(&tasks))
            })
            .collect();
        let geometry = Rc::new(geometry);
        let metadata = Rc::new(metadata);
        let local = || Rc::new(Local(Rc::clone(&metadata))) as Rc<dyn Decisions>;
        let known = blueprint.members.iter().map(|known| (known.id, known.clone()));
        let keeper = Keeper::new(Start {
            decisions: host.decisions.clone().unwrap_or_else(local),
            geometry: Rc::clone(&geometry),
            metadata,
            bounds: host.bounds,
            parity: host.parity,
            clock: Rc::clone(&host.clock),
            home: Rc::clone(fronts[0].shard()),
            loads: blueprint.loads.clone(),
            configuration,
            known: known.collect(),
            recovered,
        });
        for (index, front) in fronts.iter().enumerate() {
            let keeper = Rc::clone(&keeper);
            let handler: Rc<dyn Fn(_)> = Rc::new(move |message| keeper.handle(message));
            front.start((index == 0).then_some(handler));
        }
        keeper.start(&tasks);
        let (clock, stopped) = (Rc::clone(&host.clock), Cell::new(false));
        let inner = Inner { blueprint, geometry, fronts, keeper, tasks, clock, stopped };
        Array { inner: Rc::new(inner) }
    }

    /// Drives the array's tasks; the host spawns this future. Completes when the array has stopped.
    pub fn run(&self) -> impl Future<Output = ()> + 'static {
        let inner = Rc::clone(&self.inner);
        std::future::poll_fn(move |cx| {
            let poll = inner.tasks.poll(cx);
            if inner.stopped.get() { std::task::Poll::Ready(()) } else { poll }
        })
    }

    /// The data that another thread needs to make its front.
    pub fn blueprint(&self) -> &Blueprint {
        &self.inner.blueprint
    }

    /// The fronts on this thread, one for each shard here.
    pub fn fronts(&self) -> &[Front] {
        &self.inner.fronts
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.inner.blueprint.name
    }

    /// The mapping from array bytes to members.
    pub fn geometry(&self) -> &Geometry {
        &self.inner.geometry
    }

    /// The events since it was started.
    pub fn log(&self) -> &EventLog {
        &self.inner.keeper.log
    }

    // ---- life ----------------------------------------------------------------------------------

    /// Removes a member as if it had failed.
    ///
    /// # Errors
    /// Refused if data would be lost, for example because parity is not in sync, or if the member
    /// has no slot.
    pub fn fail(&self, id: MemberId) -> Boxed<'_, Result<()>> {
        Box::pin(async move { self.inner.keeper.command(Command::Fail(id)).await })
    }

    /// Removes a member whose data is gone, if the level can work without it. Data that parity
    /// cannot recover returns errors from then on; the member itself would return wrong data.
    ///
    /// # Errors
    /// Refused if the array would fail without it, or if the member has no slot.
    pub fn lose(&self, id: MemberId) -> Boxed<'_, Result<()>> {
        Box::pin(async move { self.inner.keeper.command(Command::Lose(id)).await })
    }

    /// Like [`Array::lose`], for a member whose data was truncated while in use. None of its
    /// contents is valid any more. It cannot be re-added by the bitmap and must be rebuilt in full.
    ///
    /// # Errors
    /// As [`Array::lose`].
    pub fn lose_truncated(&self, id: MemberId) -> Boxed<'_, Result<()>> {
        Box::pin(async move { self.inner.keeper.command(Command::LoseTruncated(id)).await })
    }

    /// Adds a disk as a spare; an empty slot takes it at once. For an array whose shards are all
    /// on this thread.
    ///
    /// # Errors
    /// Refused if the disk is too small or a member already.
    pub fn add<'a>(&'a self, disk: Rc<dyn Disk>, name: &'a str) -> Boxed<'a, Result<MemberId>> {
        Box::pin(async move {
            let newcomer = self.admit(disk, name).await?;
            self.add_prepared(newcomer).await
        })
    }

    /// Brings a member back to its slot, copying only what has changed since it left. For an array
    /// whose shards are all on this thread.
    ///
    /// # Errors
    /// Refused if the disk does not belong to an empty slot, or too much has happened since: then
    /// [`Array::add`] it as a new one.
    pub fn readd<'a>(&'a self, disk: Rc<dyn Disk>, name: &'a str) -> Boxed<'a, Result<MemberId>> {
        Box::pin(async move {
            let newcomer = self.readmit(disk, name).await?;
            self.add_prepared(newcomer).await
        })
    }

    /// The first half of [`Array::add`]: admits the disk. Before the second half, each front on
    /// another thread must call [`Front::introduce`]. A newcomer that is not enlisted must be
    /// removed.
    ///
    /// # Errors
    /// As [`Array::add`].
    pub fn admit<'a>(&'a self, disk: Rc<dyn Disk>, name: &'a str) -> Boxed<'a, Result<Newcomer>> {
        Box::pin(async move {
            self.inner.drained(name, None).await?;
            let admitted = self.inner.keeper.metadata.admit(Rc::clone(&disk), name).await?;
            let (id, offset) = (admitted.id, admitted.data_offset);
            Ok(self.introduce((id, name, offset, RangeSet::new()), &disk, None))
        })
    }

    /// The first half of [`Array::readd`], as [`Array::admit`].
    ///
    /// # Errors
    /// As [`Array::readd`].
    pub fn readmit<'a>(&'a self, disk: Rc<dyn Disk>, name: &'a str) -> Boxed<'a, Result<Newcomer>> {
        Box::pin(async move {
            self.inner.drained(name, None).await?;
            let back = self.inner.keeper.metadata.readmit(Rc::clone(&disk), name).await?;
            if let Err(refusal) = self.inner.drained(name, Some(back.id)).await {
                self.inner.keeper.metadata.expel(back.id);
                return Err(refusal);
            }
            let known = (back.id, name, back.data_offset, back.bad);
            // Nothing is checksummed while its slot is empty: ranges without checksums now may get
            // them later.
            let unchecksummed = self.inner.keeper.checksummed_above(back.checksums_from);
            let ranges = back.ranges.iter().chain(unchecksummed.iter()).collect();
            Ok(self.introduce(known, &disk, Some((back.slot, ranges))))
        })
    }

    /// True if a disk with this superblock was a member of this array and holds nothing that the
    /// array lacks.
    pub fn is_former_member(&self, theirs: &Superblock) -> bool {
        self.inner.keeper.metadata.is_former_member(theirs)
    }

    fn introduce(
        &self,
        (id, name, offset, bad): (MemberId, &str, u64, RangeSet),
        disk: &Rc<dyn Disk>,
        back: Option<(Slot, RangeSet)>,
    ) -> Newcomer {
        let keeper = &self.inner.keeper;
        let data = offset..offset + keeper.metadata.data_bytes(id);
        let introduction = Introduction::new(id, name, data, bad, keeper.shards())
            .with_places(keeper.metadata.log_place(id), keeper.metadata.table_place(id));
        keeper.introduce(introduction.clone());
        for front in &self.inner.fronts {
            front.introduce(&introduction, Rc::clone(disk));
        }
        Newcomer { introduction, back }
    }

    /// The second half of [`Array::add`] and [`Array::readd`]: the disk becomes a member.
    ///
    /// # Errors
    /// As there.
    pub fn add_prepared(&self, newcomer: Newcomer) -> Boxed<'_, Result<MemberId>> {
        Box::pin(async move {
            let id = newcomer.introduction.id;
            let command = match newcomer.back {
                None => Command::AddSpare(id),
                Some((slot, ranges)) => Command::Readd(id, slot, ranges),
            };
            self.inner.keeper.command(command).await?;
            Ok(id)
        })
    }

    /// Forgets a spare, or a member that has failed.
    ///
    /// # Errors
    /// Refused while the member holds a slot.
    pub fn remove(&self, id: MemberId) -> Boxed<'_, Result<()>> {
        Box::pin(async move { self.inner.keeper.command(Command::Remove(id)).await })
    }

    /// Copies a slot to a spare while its member stays in service. Then the spare takes the slot.
    ///
    /// # Errors
    /// Refused if the slot is not whole, or `with` is no spare.
    pub fn replace(&self, slot: Slot, with: MemberId) -> Boxed<'_, Result<()>> {
        Box::pin(async move { self.inner.keeper.command(Command::Replace(slot, with)).await })
    }

    /// Limits the speed of background work, in bytes of a member per second: at most `max`, and at
    /// least `min` while clients are active. Takes effect at once.
    pub fn set_speed(&self, min: u64, max: u64) {
        self.inner.keeper.jobs.throttle.set(min, max, self.inner.clock.now());
    }

    /// The speed limits: see [`Array::set_speed`].
    pub fn speed(&self) -> (u64, u64) {
        (self.inner.keeper.jobs.throttle.min.get(), self.inner.keeper.jobs.throttle.max.get())
    }

    /// Refuses writes, or accepts them again.
    ///
    /// # Errors
    /// Refused if the array has failed, or if cached writes cannot be written out.
    pub fn set_read_only(&self, read_only: bool) -> Boxed<'_, Result<()>> {
        Box::pin(async move {
            let inner = &self.inner;
            if !read_only {
                return inner.keeper.command(Command::SetMode(Mode::ReadWrite)).await;
            }
            // Acknowledged writes must reach the members before these become read-only.
            let shard = inner.fronts[0].shard();
            shard.shut_caches(true);
            let result = match self.write_back().await {
                Ok(()) => inner.keeper.command(Command::SetMode(Mode::ReadOnly)).await,
                failure => failure,
            };
            shard.shut_caches(false);
            result
        })
    }

    /// Writes out cached data and checksums, and flushes. Does nothing if the array has neither.
    async fn write_back(&self) -> Result<()> {
        let holds = self.inner.blueprint.cache == CacheMode::Writeback;
        let writable = self.inner.keeper.configuration().mode == Mode::ReadWrite;
        if !holds && (self.inner.blueprint.checksums.is_none() || !writable) {
            return Ok(());
        }
        let done = self.inner.fronts[0].flush(io::Class::Foreground).await;
        done.result.map_err(|error| {
            let what = "cached writes could not be written to the members";
            Error::new(ErrorKind::DataLost, what).because(error)
        })
    }

    /// Stops the array: refuses new requests, completes those in flight, flushes, marks the members
    /// clean.
    ///
    /// # Errors
    /// If the members could not be marked clean, or cached writes could not be written out. The
    /// array is stopped all the same.
    pub fn stop(&self) -> Boxed<'_, Result<()>> {
        Box::pin(async move {
            let inner = &self.inner;
            inner.keeper.quiesce().await;
            let written = self.write_back().await;
            inner.keeper.forget_holders();
            let result = written.and(inner.keeper.stop().await);
            let post = &inner.fronts[0].shard().engine.post;
            post.to_all(|| ToShard::End);
            post.flush();
            inner.stopped.set(true);
            result
        })
    }

    // ---- status --------------------------------------------------------------------------------

    /// A member by its number, even a lost one, while the array runs.
    pub fn member(&self, id: MemberId) -> Option<MemberStatus> {
        self.inner.keeper.known(id).map(|_| self.inner.member_status(id))
    }

    /// Array ranges whose parity or copies may disagree.
    pub fn unsynced(&self) -> RangeSet {
        self.inner.keeper.unsynced()
    }

    /// The current state of the array.
    pub fn status(&self) -> Status {
        let (inner, keeper) = (&self.inner, &self.inner.keeper);
        let now = keeper.configuration();
        let facts = keeper.metadata.facts();
        let slots = now.slots.iter().enumerate();
        Status {
            name: inner.blueprint.name.clone(),
            uuid: facts.uuid.0,
            layout: inner.geometry.layout(),
            chunk_bytes: inner.geometry.chunk_bytes(),
            capacity_bytes: inner.geometry.capacity(),
            mode: now.mode,
            clean: keeper.is_clean(),
            epoch: now.epoch.0,
            events: keeper.metadata.events(),
            redundancy_left: inner.redundancy_left(now.in_sync()),
            bad_bytes: keeper.metadata.bad_array_bytes(),
            unsynced_bytes: keeper.unsynced_bytes(),
            unsummed_bytes: facts.checksums.then(|| keeper.unsummed_bytes()),
            verifying: keeper.is_verifying(),
            consistency: facts.consistency,
            journal: inner.journal_status(&now),
            replay: keeper.crash.replay.get(),
            parity: keeper.computes_parity(),
            slots: slots
                .map(|(slot, assignment)| inner.slot_status(Slot::new(slot), assignment))
                .collect(),
            spares: now.spares.iter().map(|&id| inner.member_status(id)).collect(),
            job: inner.job_status(),
            last_scrub: keeper.jobs.last_scrub.borrow().clone(),
            last_part: keeper.jobs.last_part.borrow().clone(),
            cached_bytes: keeper.cached_bytes(),
            log_conflicts: keeper.log_conflicts(),
            requests_in_flight: keeper.requests(),
        }
    }
}

/// Adapts the assembly to the options of this host.
fn fitted(mut assembly: Assembly, host: &Host) -> Assembly {
    if !host.parity {
        // Without parity nothing is logged.
        assembly.configuration.journal = None;
    }
    if assembly.recovered.unchecksummed.is_some() {
        let bytes = checksum::region_bytes(&assembly.geometry);
        assembly.geometry = assembly.geometry.with_region_bytes(bytes);
    }
    assembly
}

/// The settings for every shard.
fn blueprint(assembly: &Assembly, host: &Host) -> Blueprint {
    let (facts, geometry) = (assembly.facts(), &assembly.geometry);
    let mode = assembly.configuration.mode;
    let limits = limits(geometry, &assembly.members, mode, host.cache);
    let known = |joined: &Joined| {
        let bad = joined.bad.clone();
        let data_bytes = assembly.metadata.data_bytes(joined.id);
        let data = joined.data_offset..joined.data_offset + data_bytes;
        Introduction::new(joined.id, &joined.name, data, bad, host.shards).with_places(
            assembly.metadata.log_place(joined.id),
            assembly.metadata.table_place(joined.id),
        )
    };
    let most_bytes = host.bounds.log_bytes;
    // Without parity nothing is logged, and no log of this session is trusted.
    let log = host.parity.then(|| assembly.metadata.open_log(host.shards, most_bytes)).flatten();
    if assembly.recovered.torn_rows.is_empty() {
        assembly.metadata.begin_session();
    }
    Blueprint {
        name: facts.name.clone(),
        geometry: geometry.clone(),
        bounds: host.bounds,
        kernel: host.kernel,
        bitmap_bytes: facts.bitmap_bytes.unwrap_or(geometry.region_bytes()),
        limits,
        cache: host.cache,
        check_reads: host.check_reads,
        parity: host.parity,
        unverified: assembly.recovered.unverified,
        log,
        settling: assembly.recovered.record_first || !assembly.recovered.torn_rows.is_empty(),
        bad: assembly.recovered.bad.clone(),
        configuration: assembly.configuration.clone(),
        unsynced: assembly.recovered.unsynced.clone(),
        checksums: assembly.recovered.unchecksummed.clone().map(|unchecksummed| {
            let seed = Seed::new(&facts.uuid, parity::crc32c);
            ChecksumSetup { seed, unchecksummed, torn: assembly.recovered.torn.clone() }
        }),
        members: assembly.members.iter().map(known).collect(),
        loads: (0..host.shards).map(|_| Load::default()).collect(),
    }
}

/// The limits of the array, from those of its members.
fn limits(geometry: &Geometry, members: &[Joined], mode: Mode, cache: CacheMode) -> Limits {
    let data = || members.iter().filter(|joined| joined.id != MemberId::JOURNAL);
    let each = || data().map(|joined| joined.disk.limits());
    let chunk = geometry.chunk_bytes().clamp(4096, 1 << 20) as u32;
    let discard_zeroes = each().all(|limits| limits.discard && limits.discard_zeroes);
    let redundant = geometry.family() != Family::Plain;
    Limits {
        bytes: geometry.capacity(),
        logical_block: each().map(|limits| limits.logical_block).max().unwrap_or(512),
        physical_block: each().map(|limits| limits.physical_block).max().unwrap_or(4096),
        atomic_write: each().map(|limits| limits.atomic_write).min().unwrap_or(512),
        optimal: if chunk.is_power_of_two() { chunk } else { 4096 },
        // A partial stripe needs new parity, so zeros there cost as much as any write.
        zero: match geometry.family() {
            Family::Parity => ZeroSupport::Written,
            _ => each().map(|limits| limits.zero).min().unwrap_or(ZeroSupport::Written),
        },
        discard: each().all(|limits| limits.discard) && (discard_zeroes || !redundant),
        discard_zeroes,
        rotational: each().any(|limits| limits.rotational),
        read_only: mode != Mode::ReadWrite || each().any(|limits| limits.read_only),
        volatile: match cache {
            CacheMode::None => each().any(|limits| limits.volatile),
            CacheMode::Sync => false,
            CacheMode::Writeback => true,
        },
        boot_id: 0,
        epoch: 0,
        store: 0,
    }
}

impl Disk for Array {
    fn submit(&self, op: Op) -> Completion<Done> {
        self.inner.fronts[0].submit(op)
    }

    fn limits(&self) -> Limits {
        self.inner.blueprint.limits
    }
}
