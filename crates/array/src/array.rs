//! An array: a disk made of members.
//!
//! The public face of the engine. Takes requests apart into units for the shards, offers the verbs
//! of the array's life, and owns all its tasks: the host drives [`Array::run`] and nothing else.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::future::Future;
use std::rc::Rc;
use std::time::Duration;

use io::{Buf, Clock, Completion, Disk, Done, Limits, Mailbox, Op, TaskSet, Work, ZeroSupport};
use layout::{Family, Geometry, Slot};
use parity::Kernel;

use crate::assemble::{Assembly, Joined};
use crate::bounds::Bounds;
use crate::decisions::{Decisions, Local};
use crate::durable::CacheMode;
use crate::error::{Error, Result};
use crate::keeper::{Command, Keeper, Start};
use crate::marks::Intent;
use crate::member::{Member, MemberId};
use crate::message::Message;
use crate::shard::{Setup, Shard};
use crate::status::{EventLog, Status};
use crate::unit::{Action, Origin, Unit};
use crate::upkeep::Task;
use crate::view::Mode;

mod snapshot;

/// What the host gives an array.
#[derive(Clone)]
pub struct Host {
    /// Time.
    pub clock: Rc<dyn Clock>,
    /// The parity kernel.
    pub kernel: Kernel,
    /// Limits.
    pub bounds: Bounds,
    /// Shards; all on this thread.
    pub shards: usize,
    /// When writes are acknowledged.
    pub cache: CacheMode,
    /// Compare parity on every read.
    pub check_reads: bool,
    /// Who makes write intents durable, if it is not the members' bitmap.
    pub intent: Option<Rc<dyn Intent>>,
    /// Who decides about the configuration, if it is not the members' superblocks.
    pub decisions: Option<Rc<dyn Decisions>>,
    /// Compute parity; off only to measure what it costs: what is written is then not protected.
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
    name: String,
    geometry: Rc<Geometry>,
    shards: Vec<Rc<Shard>>,
    keeper: Rc<Keeper>,
    tasks: TaskSet,
    clock: Rc<dyn Clock>,
    limits: Limits,
    stopping: Cell<bool>,
    stopped: Cell<bool>,
}

impl Array {
    /// Starts an array from what was assembled. Nothing is written until something must be: the
    /// first write, a rebuild, a resync.
    pub fn start(assembly: Assembly, host: &Host) -> Array {
        let mailboxes = io::mailbox::local(host.shards);
        let mailboxes: Vec<Rc<dyn Mailbox<Message>>> =
            mailboxes.into_iter().map(|mailbox| Rc::new(mailbox) as _).collect();
        Array::start_with(assembly, host, mailboxes)
    }

    /// Starts an array whose shards speak through these mailboxes, one for each.
    ///
    /// # Panics
    /// If there is not one mailbox for each shard of the host.
    pub fn start_with(
        assembly: Assembly,
        host: &Host,
        mailboxes: Vec<Rc<dyn Mailbox<Message>>>,
    ) -> Array {
        assert_eq!(mailboxes.len(), host.shards, "one mailbox for each shard");
        let Assembly { ledger, geometry, configuration, unsynced, members, clean, .. } = assembly;
        let geometry = Rc::new(geometry);
        let name = ledger.facts().name.clone();
        let mark_bytes = ledger.facts().mark_bytes.unwrap_or(geometry.region_bytes());
        let mut limits = limits(&geometry, &members, configuration.mode);
        limits.volatile &= host.cache == CacheMode::None;
        let setup = || Setup {
            discard_zeroes: limits.discard_zeroes,
            name: name.clone(),
            geometry: Rc::clone(&geometry),
            bounds: host.bounds,
            kernel: host.kernel,
            clock: Rc::clone(&host.clock),
            mark_bytes,
            cache: host.cache,
            check_reads: host.check_reads,
            parity: host.parity,
        };
        let shards: Vec<Rc<Shard>> = mailboxes
            .iter()
            .map(|mailbox| {
                let handles = members.iter().map(|joined| (joined.id, handle(joined))).collect();
                let unsynced = unsynced.clone();
                let mailbox = Rc::clone(mailbox);
                let intent = host.intent.clone();
                Shard::new(host.shards, setup(), mailbox, intent, &configuration, handles, unsynced)
            })
            .collect();
        let names = members.iter().map(|joined| (joined.id, joined.name.clone()));
        let ledger = Rc::new(ledger);
        let local = || Rc::new(Local(Rc::clone(&ledger))) as Rc<dyn Decisions>;
        let keeper = Keeper::new(Start {
            decisions: host.decisions.clone().unwrap_or_else(local),
            geometry: Rc::clone(&geometry),
            ledger,
            bounds: host.bounds,
            parity: host.parity,
            clock: Rc::clone(&host.clock),
            mailbox: Rc::clone(&mailboxes[0]),
            shards: shards.clone(),
            configuration,
            names: names.collect::<BTreeMap<_, _>>(),
            unsynced,
            clean,
        });
        let tasks = TaskSet::new();
        for (index, shard) in shards.iter().enumerate() {
            let keeper = Rc::clone(&keeper);
            let handler: Rc<dyn Fn(_)> = Rc::new(move |message| keeper.handle(message));
            shard.start(&tasks, (index == 0).then_some(handler));
        }
        keeper.start(&tasks);
        let clock = Rc::clone(&host.clock);
        let (stopping, stopped) = (Cell::new(false), Cell::new(false));
        let inner =
            Inner { name, geometry, shards, keeper, tasks, clock, limits, stopping, stopped };
        Array { inner: Rc::new(inner) }
    }

    /// Drives the array's tasks: to be spawned by the host. Completes when the array has stopped.
    pub fn run(&self) -> impl Future<Output = ()> + 'static {
        let inner = Rc::clone(&self.inner);
        std::future::poll_fn(move |cx| {
            let poll = inner.tasks.poll(cx);
            if inner.stopped.get() { std::task::Poll::Ready(()) } else { poll }
        })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// Where its bytes live.
    pub fn geometry(&self) -> &Geometry {
        &self.inner.geometry
    }

    /// What has happened since it was started.
    pub fn log(&self) -> &EventLog {
        &self.inner.keeper.log
    }

    // ---- requests ------------------------------------------------------------------------------

    fn submit_op(&self, op: Op) -> Completion<Done> {
        let inner = &self.inner;
        if let Some(fault) = self.refusal(&op) {
            let error = io::Error::refused(format!("array {}: {fault}", inner.name));
            return Completion::ready(Done::failed(op.work, error));
        }
        if op.work.is_empty() && !matches!(op.work, Work::Flush) {
            return Completion::ready(Done::ok(op.work));
        }
        match op.work {
            Work::Flush => self.submit_flush(op),
            Work::Read(bufs) => self.submit_read(op.offset, op.class, bufs),
            _ => self.submit_ranges(op),
        }
    }

    fn refusal(&self, op: &Op) -> Option<&'static str> {
        if self.inner.stopping.get() {
            return Some("the array is being stopped");
        }
        if let Work::Zero { len, fast: true, .. } = op.work
            && !self.inner.shards[0].zeroes_fast(op.offset, len)
        {
            return Some("these bytes cannot be zeroed faster than by writing zeros");
        }
        self.limits().check(op)
    }

    fn submit_flush(&self, op: Op) -> Completion<Done> {
        let shard = &self.inner.shards[0];
        let (request, completion) = shard.requests.begin(0, Work::Flush, shard.count as u32);
        for to in 0..shard.count {
            let from = Origin { shard: shard.index, request, part: to as u32 };
            let action = Action::Flush;
            let merged = Vec::new();
            let unit =
                Unit { offset: 0, len: 0, action, fua: false, class: op.class, from, merged };
            shard.dispatch(to, unit);
        }
        completion
    }

    fn submit_read(&self, offset: u64, class: io::Class, bufs: Vec<Buf>) -> Completion<Done> {
        let shard = &self.inner.shards[0];
        let len: u64 = bufs.iter().map(|buf| buf.len() as u64).sum();
        let cuts = self.cuts(offset, len);
        let units = cuts.clone().count() as u32;
        let (request, completion) = shard.requests.begin(offset, Work::Read(Vec::new()), units);
        shard.requests.shape(request, bufs.iter().map(|buf| buf.len() as u32), units);
        let unit = |part, offset, len, bufs| Unit {
            offset,
            len,
            action: Action::Read(bufs),
            fua: false,
            class,
            from: Origin { shard: shard.index, request, part },
            merged: Vec::new(),
        };
        if units == 1 {
            shard.dispatch(shard.owner(offset), unit(0, offset, len, bufs));
            return completion;
        }
        let (mut bufs, mut rest) = (bufs, None);
        let mut whole = bufs.drain(..);
        for (part, (at, len)) in cuts.enumerate() {
            let (mut own, mut left) = (shard.requests.list(), len as usize);
            while left > 0 {
                let mut buf: Buf =
                    rest.take().or_else(|| whole.next()).expect("buffers cover the read");
                if buf.len() > left {
                    rest = Some(buf.split_off(left));
                }
                left -= buf.len();
                own.push(buf);
            }
            shard.dispatch(shard.owner(at), unit(part as u32, at, len, own));
        }
        drop(whole);
        shard.requests.keep(bufs);
        completion
    }

    /// Writes and everything else that has a range.
    fn submit_ranges(&self, op: Op) -> Completion<Done> {
        let shard = &self.inner.shards[0];
        let len = op.work.len();
        // Block status may say less than it was asked: one unit is enough.
        let status = matches!(op.work, Work::Extents { .. });
        let cuts = self.cuts(op.offset, len).take(if status { 1 } else { usize::MAX });
        let units = cuts.clone().count() as u32;
        let (offset, fua, class) = (op.offset, op.fua, op.class);
        let (request, completion) = shard.requests.begin(offset, op.work, units);
        for (part, (at, len)) in cuts.enumerate() {
            let from = Origin { shard: shard.index, request, part: part as u32 };
            let action = shard.requests.action(request, offset, (at, len), || shard.list());
            let merged = Vec::new();
            let unit = Unit { offset: at, len, action, fua, class, from, merged };
            shard.dispatch(shard.owner(at), unit);
        }
        completion
    }

    /// Cuts a range at unit and region borders.
    fn cuts(&self, offset: u64, len: u64) -> impl Iterator<Item = (u64, u64)> + Clone {
        let step = self.inner.shards[0].unit_border();
        let region = self.inner.geometry.region_bytes();
        let (mut at, end) = (offset, offset + len);
        std::iter::from_fn(move || {
            if at >= end {
                return None;
            }
            let border = ((at / step + 1) * step).min((at / region + 1) * region).min(end);
            let cut = (at, border - at);
            at = border;
            Some(cut)
        })
    }

    // ---- life ----------------------------------------------------------------------------------

    /// Takes a member out, as if it had failed.
    ///
    /// # Errors
    /// Refused where data would be lost, or the member is in no slot.
    pub async fn fail(&self, id: MemberId) -> Result<()> {
        self.inner.keeper.command(Command::Fail(id)).await
    }

    /// Adds a disk as a spare; an empty slot takes it at once.
    ///
    /// # Errors
    /// Refused if the disk is too small or a member already.
    pub async fn add(&self, disk: Rc<dyn Disk>, name: &str) -> Result<MemberId> {
        let id = self.admit(disk, name).await?;
        self.inner.keeper.command(Command::AddSpare(id)).await?;
        Ok(id)
    }

    async fn admit(&self, disk: Rc<dyn Disk>, name: &str) -> Result<MemberId> {
        let keeper = &self.inner.keeper;
        let admitted = keeper.ledger.admit(Rc::clone(&disk), name).await?;
        let (id, offset) = (admitted.id, admitted.data_offset);
        keeper.introduce(id, name, || Member::new(id, name.into(), Rc::clone(&disk), offset));
        Ok(id)
    }

    /// Brings a member back to its slot, copying only what has changed since it left.
    ///
    /// # Errors
    /// Refused if the disk does not belong to an empty slot, or too much has happened since: then
    /// [`Array::add`] it as a new one.
    pub async fn readd(&self, disk: Rc<dyn Disk>, name: &str) -> Result<MemberId> {
        let keeper = &self.inner.keeper;
        let back = keeper.ledger.readmit(Rc::clone(&disk), name).await?;
        let (id, offset) = (back.id, back.data_offset);
        keeper.introduce(id, name, || {
            let member = Member::new(id, name.into(), Rc::clone(&disk), offset);
            *member.bad.borrow_mut() = back.bad.clone();
            member
        });
        keeper.command(Command::Readd(id, back.slot, back.ranges)).await?;
        Ok(id)
    }

    /// Forgets a spare, or a member that has failed.
    ///
    /// # Errors
    /// Refused while the member holds a slot.
    pub async fn remove(&self, id: MemberId) -> Result<()> {
        self.inner.keeper.command(Command::Remove(id)).await
    }

    /// Copies a slot to a spare while its member stays in service; then the spare takes the slot.
    ///
    /// # Errors
    /// Refused if the slot is not whole, or `with` is no spare.
    pub async fn replace(&self, slot: Slot, with: MemberId) -> Result<()> {
        self.inner.keeper.command(Command::Replace(slot, with)).await
    }

    /// Starts to compare all data with its redundancy, and to repair what disagrees if `repair`.
    ///
    /// # Errors
    /// Refused if a scrub is under way, or the level has no redundancy.
    pub fn scrub(&self, repair: bool) -> Result<()> {
        let keeper = &self.inner.keeper;
        if self.inner.geometry.family() == Family::Plain {
            return Err(Error::refused("the level has no redundancy: there is nothing to compare"));
        }
        if keeper.configuration().in_sync() != self.inner.geometry.all_slots() {
            let what = "the array is degraded: a scrub would have nothing to compare with";
            return Err(Error::refused(what));
        }
        let busy = keeper.job.borrow().as_ref().map(|job| crate::keeper::describe(job.kind));
        if let Some(job) = busy {
            return Err(Error::refused(format!("a {job} is under way; wait for it, or stop it")));
        }
        *keeper.scrub.borrow_mut() = Some(if repair { Task::Repair } else { Task::Check });
        keeper.stirred.raise();
        Ok(())
    }

    /// Stops the scrub under way.
    ///
    /// # Errors
    /// Refused if there is none.
    pub fn stop_scrub(&self) -> Result<()> {
        let stopped = self.inner.keeper.cancel_scrub();
        if stopped { Ok(()) } else { Err(Error::refused("no scrub is under way")) }
    }

    /// Limits the speed of background work, in bytes of a member per second: at most `max`, and
    /// `min` while clients are at work. Takes effect at once.
    pub fn set_speed(&self, min: u64, max: u64) {
        self.inner.keeper.pace.set(min, max, self.inner.clock.now());
    }

    /// The speed limits: see [`Array::set_speed`].
    pub fn speed(&self) -> (u64, u64) {
        (self.inner.keeper.pace.min.get(), self.inner.keeper.pace.max.get())
    }

    /// Refuses writes, or takes them again.
    ///
    /// # Errors
    /// Refused if the array is broken.
    pub async fn set_read_only(&self, read_only: bool) -> Result<()> {
        let mode = if read_only { Mode::ReadOnly } else { Mode::ReadWrite };
        self.inner.keeper.command(Command::SetMode(mode)).await
    }

    /// Stops: refuses new requests, lets those under way end, flushes, marks the members clean.
    ///
    /// # Errors
    /// If the members could not be marked clean; the array is stopped all the same.
    pub async fn stop(&self) -> Result<()> {
        let inner = &self.inner;
        inner.stopping.set(true);
        while inner.shards.iter().any(|shard| shard.requests.in_flight() > 0) {
            let clock = &inner.clock;
            clock.sleep_until(clock.now() + Duration::from_millis(1)).await;
        }
        inner.keeper.forget_holders();
        let result = inner.keeper.stop().await;
        inner.shards.iter().for_each(|shard| shard.stop());
        inner.stopped.set(true);
        result
    }

    // ---- status --------------------------------------------------------------------------------

    /// How the array is, at this moment.
    pub fn status(&self) -> Status {
        let (inner, keeper) = (&self.inner, &self.inner.keeper);
        let now = keeper.configuration();
        let facts = keeper.ledger.facts();
        let slots = now.seats.iter().enumerate();
        Status {
            name: inner.name.clone(),
            uuid: facts.uuid.0,
            layout: inner.geometry.layout(),
            chunk_bytes: inner.geometry.chunk_bytes(),
            capacity_bytes: inner.geometry.capacity(),
            mode: now.mode,
            clean: keeper.is_clean(),
            epoch: now.epoch.0,
            events: keeper.ledger.events(),
            redundancy_left: inner.redundancy_left(now.in_sync()),
            unsynced_bytes: keeper.unsynced_bytes(),
            slots: slots.map(|(slot, seat)| inner.slot_status(Slot::new(slot), seat)).collect(),
            spares: now.spares.iter().map(|&id| inner.member_status(id)).collect(),
            job: inner.job_status(),
            last_scrub: keeper.last_scrub.borrow().clone(),
            requests_in_flight: inner.shards.iter().map(|shard| shard.requests.in_flight()).sum(),
        }
    }
}

fn handle(joined: &Joined) -> Rc<Member> {
    let disk = Rc::clone(&joined.disk);
    let member = Member::new(joined.id, joined.name.clone(), disk, joined.data_offset);
    *member.bad.borrow_mut() = joined.bad.clone();
    Rc::new(member)
}

/// What the array can do, from what its members can.
fn limits(geometry: &Geometry, members: &[Joined], mode: Mode) -> Limits {
    let each = || members.iter().map(|joined| joined.disk.limits());
    let chunk = geometry.chunk_bytes().clamp(4096, 1 << 20) as u32;
    let discard_zeroes = each().all(|limits| limits.discard && limits.discard_zeroes);
    let redundant = geometry.family() != Family::Plain;
    Limits {
        bytes: geometry.capacity(),
        logical_block: each().map(|limits| limits.logical_block).max().unwrap_or(512),
        physical_block: each().map(|limits| limits.physical_block).max().unwrap_or(4096),
        atomic_write: each().map(|limits| limits.atomic_write).min().unwrap_or(512),
        optimal: if chunk.is_power_of_two() { chunk } else { 4096 },
        // Parity of a part of a stripe must be computed: there zeros cost what any write costs.
        zero: match geometry.family() {
            Family::Parity => ZeroSupport::Written,
            _ => each().map(|limits| limits.zero).min().unwrap_or(ZeroSupport::Written),
        },
        discard: each().all(|limits| limits.discard) && (discard_zeroes || !redundant),
        discard_zeroes,
        rotational: each().any(|limits| limits.rotational),
        read_only: mode != Mode::ReadWrite || each().any(|limits| limits.read_only),
        volatile: each().any(|limits| limits.volatile),
        boot_id: 0,
        epoch: 0,
    }
}

impl Disk for Array {
    fn submit(&self, op: Op) -> Completion<Done> {
        self.submit_op(op)
    }

    fn limits(&self) -> Limits {
        self.inner.limits
    }
}
