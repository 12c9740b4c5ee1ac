//! The keeper: the one who decides about the membership of an array.
//!
//! ```text
//!   shards ──lost──▶ losses ─┐
//!   user ──fail, add, …──────┤                close gate · wait until still
//!   jobs ──rebuilt, …────────┴──▶ change ──▶  decide · make durable · open gate with the new epoch
//!
//!   shards ──mark──▶ superblocks dirty, bits set, durable ──marked──▶ shards
//! ```
//!
//! Owns the configuration, the epoch, the dirty mark, the bits of the write-intent bitmap and the
//! background jobs. Never touches data.
//!
//! Invariants:
//! - The membership changes only while every shard is still (no unit moves, so none can mix
//!   epochs).
//! - A loss is durable on every survivor before the gate opens, so before anything that it affects
//!   is acknowledged. A loss that the level cannot bear is not recorded: the array stops being
//!   written instead, and its members stay as they were for whoever repairs the cause.
//! - A region's bit is durable before a shard may write there, and cleared only when every shard
//!   has flushed and the array is whole.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use io::broken::{Broken, broken};
use io::{Clock, Completion, Completions, Signal, TaskSet, Time};
use layout::{Configuration, Epoch, Family, Geometry, MemberId, Mode, RangeSet, Slot, SlotSet};
use metadata::assemble::Recovered;
use metadata::commit::async_mutex::{AsyncMutex, Held};
use metadata::commit::{Decision, MetadataWriter};
use metadata::{Bounds, Decisions, Error, ErrorKind, Result, Undecided};

use crate::member::Introduction;
use crate::shard::Shard;
use crate::shard::message::{ToKeeper, ToShard};
use crate::shard::queue::Load;
use crate::status::{Event, EventKind, EventLog, FULL_LIST};

pub(crate) mod bitmap;
mod changes;
mod flush;
mod full;
mod jobs;
pub(crate) mod replay;
pub(crate) mod replay_checksums;
mod state;
pub(crate) mod throttle;

pub(crate) use jobs::{Job, describe};
pub use jobs::{JobKind, ScrubResult};
use state::{CrashState, Inbox, Jobs, RecordState, Regions, SyncState};
pub(crate) use throttle::Throttle;

const HOUR: Duration = Duration::from_secs(3600);

/// See the module's description.
pub(crate) struct Keeper {
    pub(crate) geometry: Rc<Geometry>,
    pub(crate) metadata: Rc<MetadataWriter>,
    decisions: Rc<dyn Decisions>,
    pub(crate) log: EventLog,
    pub(crate) jobs: Jobs,
    bounds: Bounds,
    /// Parity is computed.
    parity: bool,
    clock: Rc<dyn Clock>,
    /// The shard of the keeper's thread: it posts the keeper's mail, and sends its background work
    /// to whoever owns the regions.
    home: Rc<Shard>,
    /// How much each shard has to do.
    loads: Arc<[Load]>,
    /// The configuration that every shard has, or is being told.
    configuration: RefCell<Configuration>,
    /// All members there were since the start.
    known: RefCell<BTreeMap<MemberId, Introduction>>,
    pub(crate) sync: SyncState,
    pub(crate) crash: CrashState,
    pub(crate) record: RecordState,
    /// Read errors of each member, and since when they are counted.
    read_errors: RefCell<BTreeMap<MemberId, (Time, u32)>>,
    pub(crate) inbox: Inbox,
    /// Members that are being taken out, and still have a slot.
    losing: RefCell<Vec<MemberId>>,
    pub(crate) regions: Regions,
    /// Raised at every arrival and every change.
    pub(crate) stirred: Signal,
    answers: Completions<Result<()>>,
    /// How often a member was given a slot to be filled: a walk that began before must not speak
    /// for whoever sits there now.
    seatings: Cell<u64>,
    /// The membership is being changed: losses, commands and jobs take turns.
    changing: Cell<bool>,
    stopping: Cell<bool>,
}

/// A change that the user asks for.
pub(crate) enum Command {
    /// Take this member out, as if it had failed.
    Fail(MemberId),
    /// Take this member out: its bytes are gone, whoever needs them.
    Lose(MemberId),
    /// Take it out: bytes that it held are lost for good.
    LoseTruncated(MemberId),
    /// A spare that the metadata writer has admitted.
    AddSpare(MemberId),
    /// A member that came back to its slot; only these ranges differ.
    Readd(MemberId, Slot, RangeSet),
    /// Forget a spare or a failed member.
    Remove(MemberId),
    /// Copy the slot to this spare, then let it take the slot.
    Replace(Slot, MemberId),
    /// Refuse or accept writes.
    SetMode(Mode),
}

/// What a keeper starts from.
pub(crate) struct Start {
    pub(crate) geometry: Rc<Geometry>,
    pub(crate) metadata: Rc<MetadataWriter>,
    pub(crate) decisions: Rc<dyn Decisions>,
    pub(crate) bounds: Bounds,
    pub(crate) parity: bool,
    pub(crate) clock: Rc<dyn Clock>,
    pub(crate) home: Rc<Shard>,
    pub(crate) loads: Arc<[Load]>,
    pub(crate) configuration: Configuration,
    pub(crate) known: BTreeMap<MemberId, Introduction>,
    pub(crate) recovered: Recovered,
}

impl Keeper {
    pub(crate) fn new(start: Start) -> Rc<Keeper> {
        let recovered = start.recovered;
        let settling = recovered.record_first || !recovered.torn_rows.is_empty();
        Rc::new(Keeper {
            geometry: start.geometry,
            metadata: start.metadata,
            decisions: start.decisions,
            log: EventLog::default(),
            bounds: start.bounds,
            parity: start.parity,
            clock: start.clock,
            home: start.home,
            loads: start.loads,
            configuration: RefCell::new(start.configuration),
            known: RefCell::new(start.known),
            read_errors: RefCell::default(),
            losing: RefCell::default(),
            stirred: Signal::new(),
            answers: Completions::new(),
            seatings: Cell::new(0),
            changing: Cell::new(settling),
            stopping: Cell::new(false),
            sync: SyncState {
                unsynced: RefCell::new(recovered.unsynced),
                undurable: RefCell::default(),
                unchecksummed: RefCell::new(recovered.unchecksummed.unwrap_or_default()),
                partial: RefCell::default(),
            },
            inbox: Inbox {
                lost: RefCell::default(),
                marking: RefCell::default(),
                flushing: RefCell::default(),
                still: RefCell::default(),
                quiesced: RefCell::default(),
                commands: RefCell::default(),
            },
            regions: Regions {
                clearing: RefCell::default(),
                holders: RefCell::default(),
                awake: RefCell::default(),
            },
            record: RecordState {
                unlogged: Cell::new(false),
                clean: Cell::new(recovered.clean),
                unrecorded: Cell::new(true),
                overtaken: Cell::new(false),
                // A record would begin a new session of the log before the old one is resolved.
                deciding: match settling && !broken(Broken::RecordBeforeResolved) {
                    true => AsyncMutex::taken(),
                    false => AsyncMutex::default(),
                },
            },
            jobs: Jobs {
                throttle: Throttle::default(),
                job: RefCell::default(),
                scrub: RefCell::default(),
                last_scrub: RefCell::default(),
            },
            crash: CrashState {
                torn: recovered.torn,
                unverified: recovered.unverified,
                resolved: recovered.resolved,
                replay: Cell::new(None),
                torn_rows: RefCell::new(recovered.torn_rows),
                record_first: recovered.record_first,
                expected: RefCell::new(recovered.expected),
            },
        })
    }

    /// Starts the keeper's tasks.
    pub(crate) fn start(self: &Rc<Self>, tasks: &TaskSet) {
        let keeper = Rc::clone(self);
        tasks.spawn(async move {
            let torn_rows = keeper.crash.torn_rows.take();
            if keeper.crash.record_first || !torn_rows.is_empty() {
                keeper.settle(torn_rows).await;
            }
            keeper.mind_changes().await;
        });
        let keeper = Rc::clone(self);
        tasks.spawn(async move { keeper.mind_bits().await });
        let keeper = Rc::clone(self);
        tasks.spawn(async move { keeper.mind_flushes().await });
        let keeper = Rc::clone(self);
        tasks.spawn(async move { keeper.mind_clearing().await });
        let keeper = Rc::clone(self);
        tasks.spawn(async move { keeper.mind_jobs().await });
    }

    /// Takes in a message. Acts later: messages arrive in the middle of other things.
    pub(crate) fn handle(&self, message: ToKeeper) {
        match message {
            ToKeeper::Lost { member, why } => self.inbox.lost.borrow_mut().push_back((member, why)),
            ToKeeper::Still { shard } => {
                self.inbox.still.borrow_mut().insert(shard);
            }
            ToKeeper::Quiesced { shard } => {
                self.inbox.quiesced.borrow_mut().insert(shard);
            }
            ToKeeper::Mark { shard, ticket, first, last } => {
                let asked = bitmap::Asked::Mark { shard, ticket, regions: first..=last };
                self.inbox.marking.borrow_mut().push_back(asked);
            }
            ToKeeper::Unmark { shard, regions } => {
                let asked = bitmap::Asked::Unmark { shard, regions };
                self.inbox.marking.borrow_mut().push_back(asked);
            }
            ToKeeper::Flush { shard, ticket, slots } => {
                self.inbox.flushing.borrow_mut().push(flush::Asked { shard, ticket, slots });
            }
            ToKeeper::Quiet { shard } => {
                self.inbox
                    .marking
                    .borrow_mut()
                    .push_back(bitmap::Asked::Quiet { shard: Some(shard) });
            }
            ToKeeper::Bad { member, start, len, filling } => {
                self.record_bad(member, (start, len), filling);
            }
            ToKeeper::Mended { offset, len } => {
                self.metadata.set_bad(offset..offset + len, false);
            }
            ToKeeper::GivenUp { offset, len } => self.give_up_rest(offset..offset + len),
            ToKeeper::Record { shard, ticket } => {
                self.inbox.marking.borrow_mut().push_back(bitmap::Asked::Record { shard, ticket });
            }
            ToKeeper::Good { member, start, len } => {
                self.metadata.clear_bad_block(member, start..start + len);
            }
            ToKeeper::Throttle { member, slow, text } => {
                let kind = if slow { EventKind::Slow } else { EventKind::SlowOver };
                self.note(kind, Some(member), text);
            }
            ToKeeper::Refused { text } => self.note(EventKind::ClientError, None, text),
            ToKeeper::Repaired { member, offset, bytes } => {
                self.metadata.add_corrected(member, bytes / 512);
                self.count_read_error(member);
                let text = format!("{bytes} bytes at offset {offset} of its disk rewritten");
                self.note(EventKind::Repaired, Some(member), text);
            }
        }
        self.stirred.raise();
    }

    /// A block could not be recovered: the member's bad-block list says so from the next commit on.
    fn record_bad(&self, member: MemberId, (start, len): (u64, u64), filling: bool) {
        let disk = self.known(member).map_or(0, |known| known.data_offset) + start;
        let text = format!(
            "{len} bytes at offset {disk} of its disk ({start} of its data) could not be \
             recovered: an error until they are written"
        );
        self.note(EventKind::BadBlock, Some(member), text);
        if self.metadata.add_bad_block(member, start..start + len).is_err() {
            let kind = io::ErrorKind::Medium { offset: start, len };
            let full = io::Error::new(kind, FULL_LIST);
            // What the bitmap knows to be unverified stays so. One that is whole is worth more than
            // one that is being filled from it.
            let mut lost = self.configuration.borrow().filled_beside(member);
            let filling = filling || broken(Broken::FullListUnrecorded);
            if !filling || lost.is_empty() || broken(Broken::FullListCostsAll) {
                lost = vec![member];
            }
            self.inbox.lost.borrow_mut().extend(lost.into_iter().map(|id| (id, full.clone())));
        }
    }

    /// A member with too many read errors is replaced by a spare, if there is one, while it stays
    /// in service; it is not failed: each of its errors was made good, and it may be needed. The
    /// count halves every hour, as md's does.
    fn count_read_error(&self, member: MemberId) {
        let now = self.clock.now();
        let mut errors = self.read_errors.borrow_mut();
        let (since, count) = errors.entry(member).or_insert((now, 0));
        while now - *since >= HOUR {
            *since = *since + HOUR;
            *count /= 2;
        }
        *count += 1;
        if *count <= self.bounds.read_errors {
            return;
        }
        let configuration = self.configuration.borrow();
        let Some((slot, false)) = configuration.slot_of(member) else { return };
        let whole = Keeper::unwell(&configuration).is_empty();
        if let Some(&spare) = configuration.spares.first().filter(|_| whole) {
            *count = 0;
            // Whether it can be done is decided when its turn comes; nobody waits for the answer.
            drop(self.command(Command::Replace(slot, spare)));
        }
    }

    /// The configuration of now.
    pub(crate) fn configuration(&self) -> Configuration {
        self.configuration.borrow().clone()
    }

    /// Array ranges whose parity or copies may disagree.
    pub(crate) fn unsynced_bytes(&self) -> u64 {
        self.sync.unsynced.borrow().bytes()
    }

    /// False if the level has parity, and it is not computed or may be wrong somewhere.
    pub(crate) fn has_parity(&self) -> bool {
        // What is only compared after the log was replayed is right.
        let synced = self.crash.resolved || self.sync.unsynced.borrow().is_empty();
        self.geometry.family() != Family::Parity || (self.parity && synced)
    }

    /// What is not in sync is only compared: the intent log has told of all that was cut.
    pub(crate) fn is_verifying(&self) -> bool {
        let parity = self.geometry.family() == Family::Parity && self.parity;
        parity && self.crash.resolved && !self.sync.unsynced.borrow().is_empty()
    }

    /// Parity is computed, if the level has any.
    pub(crate) fn computes_parity(&self) -> bool {
        self.parity
    }

    /// What the superblocks say.
    pub(crate) fn is_clean(&self) -> bool {
        self.record.clean.get()
    }

    /// The name of a member, also of one that is gone.
    pub(crate) fn name_of(&self, id: MemberId) -> String {
        self.known
            .borrow()
            .get(&id)
            .map_or_else(|| format!("member {}", id.0), |known| known.name.clone())
    }

    /// A member, also one that is gone.
    pub(crate) fn known(&self, id: MemberId) -> Option<Introduction> {
        self.known.borrow().get(&id).cloned()
    }

    /// Bytes that are acknowledged and not on the members, on all threads.
    pub(crate) fn cached_bytes(&self) -> u64 {
        self.loads.iter().map(|load| load.cached_bytes.get()).sum()
    }

    /// Units that had to wait for a flush before they could be logged, on all threads.
    pub(crate) fn log_conflicts(&self) -> u64 {
        self.loads.iter().map(|load| load.log_conflicts.get()).sum()
    }

    /// Writes to a disk of this name, or to this member, that missed their deadline and may still
    /// land.
    pub(crate) fn late_writes(&self, name: &str, id: Option<MemberId>) -> u64 {
        let known = self.known.borrow();
        let those = known.values().filter(|known| known.name == name || Some(known.id) == id);
        let data = those.flat_map(|known| known.counters.iter()).map(|c| c.late_writes.get());
        data.sum::<u64>() + self.metadata.late_writes(name) as u64
    }

    /// Remembers a new member.
    pub(crate) fn introduce(&self, member: Introduction) {
        self.known.borrow_mut().insert(member.id, member);
    }

    /// How many shards the array has, on all threads.
    pub(crate) fn shards(&self) -> usize {
        self.loads.len()
    }

    /// Requests of clients under way, on all threads.
    pub(crate) fn requests(&self) -> usize {
        self.loads.iter().map(|load| load.requests.get() as usize).sum()
    }

    /// Asks for a change; the answer comes when it is durable.
    pub(crate) fn command(&self, command: Command) -> Completion<Result<()>> {
        let (ticket, completion) = self.answers.start();
        self.inbox.commands.borrow_mut().push_back((command, ticket));
        self.stirred.raise();
        completion
    }

    fn note(&self, kind: EventKind, member: Option<MemberId>, text: impl Into<String>) {
        let assignment = member.and_then(|id| self.configuration.borrow().slot_of(id));
        let slot = assignment.map(|(slot, _)| slot);
        let member = member.map(|id| self.name_of(id));
        let unix_micros = self.clock.unix_micros();
        self.log.push(Event { unix_micros, kind, member, slot, text: text.into() });
    }

    /// What is to be durable if this is the configuration. Below the first range that is not synced
    /// everything is; above it, the bitmap knows.
    fn decision(&self, configuration: Configuration) -> Decision {
        // What is compared after the log was replayed was right before: nothing is unverified.
        if self.record.clean.get() || Keeper::unwell(&configuration).is_empty() {
            // Whatever was cut was written again, and is durable when this is on record.
            self.record.unlogged.set(false);
        }
        let unresolved = !self.crash.resolved && !self.sync.unsynced.borrow().is_empty();
        self.metadata.set_unverified(unresolved || self.record.unlogged.get());
        self.metadata.set_checksums_from(
            self.sync.unchecksummed.borrow().next(0).map_or(u64::MAX, |range| range.start),
            self.are_checksums_torn(),
        );
        let resync_from = self.sync.unsynced.borrow().next(0).map(|range| range.start);
        Decision { configuration, clean: self.record.clean.get(), resync_from }
    }

    /// Waits for the turn to decide what the superblocks say. Whoever has it looks at the
    /// configuration only then: what was so before may not be so any more.
    async fn take_turn(&self) -> Held<'_> {
        self.record.deciding.take().await
    }

    /// Records what is so now, without a change of membership: clean, dirty, checkpoints. Members
    /// that cannot be written are reported as lost, and the record is made again without them.
    pub(crate) async fn record(&self) -> Result<()> {
        loop {
            let turn = self.take_turn().await;
            let configuration = self.configuration();
            if configuration.mode.is_final() {
                return Err(Error::new(ErrorKind::ReadOnly, "the array takes no writes"));
            }
            let epoch = configuration.epoch;
            if self.loses_one(&configuration) {
                drop(turn);
                self.after(epoch).await;
                continue;
            }
            let synced = self.sync.undurable.borrow().clone();
            let result = self.decisions.decide(epoch, &self.decision(configuration)).await;
            drop(turn);
            match result {
                Ok(()) => {
                    let mut undurable = self.sync.undurable.borrow_mut();
                    synced.iter().for_each(|range| undurable.remove(range));
                    return Ok(());
                }
                Err(Undecided::Members(failed)) => self.report(failed),
                Err(Undecided::Overtaken) => {
                    self.record.overtaken.set(true);
                    self.stirred.raise();
                }
            }
            self.after(epoch).await;
        }
    }

    /// A member with a slot is reported as lost, and the next change takes it out. Perhaps because
    /// it failed to take a superblock: with the header of one more commit it would have none that
    /// goes with the superblock it has, and after a crash its log would not be trusted.
    fn loses_one(&self, configuration: &Configuration) -> bool {
        let (lost, losing) = (self.inbox.lost.borrow(), self.losing.borrow());
        let mut each = lost.iter().map(|(id, _)| id).chain(&*losing);
        each.any(|id| configuration.slot_of(*id).is_some())
    }

    /// Reports losses that the keeper itself has noticed.
    fn report(&self, failed: Vec<(MemberId, io::Error)>) {
        self.inbox.lost.borrow_mut().extend(failed);
        self.stirred.raise();
    }

    /// Completes when the configuration is newer than `epoch`.
    async fn after(&self, epoch: Epoch) {
        while self.configuration.borrow().epoch <= epoch {
            self.stirred.wait().await;
        }
    }

    /// Slots that do not hold all that they should.
    fn unwell(configuration: &Configuration) -> SlotSet {
        SlotSet::first(configuration.slots.len()).difference(configuration.in_sync())
    }

    /// Completes when no shard takes requests any more, and none is under way.
    pub(crate) async fn quiesce(&self) {
        self.home.engine.post.to_all(|| ToShard::Quiesce);
        while self.inbox.quiesced.borrow().len() < self.shards() {
            self.stirred.wait().await;
        }
    }

    /// Ends background work and the marks, and makes the members clean. The shards must have no
    /// request any more.
    pub(crate) async fn stop(&self) -> Result<()> {
        self.stopping.set(true);
        self.stirred.raise();
        while self.jobs.job.borrow().is_some() {
            self.stirred.wait().await;
        }
        if self.configuration.borrow().mode != Mode::ReadWrite {
            return Ok(());
        }
        // What was written without parity is synced when the array is started next.
        let redundant = self.geometry.family() != Family::Plain && self.parity;
        if redundant {
            self.record.clean.set(true);
        }
        // The commit flushes every member before it says that they are clean.
        self.record().await?;
        if redundant {
            self.clear_all_bits().await;
        }
        Ok(())
    }

    /// True once the keeper is to end.
    fn is_stopping(&self) -> bool {
        self.stopping.get()
    }

    fn publish(&self, next: Configuration) {
        *self.configuration.borrow_mut() = next.clone();
        let next = Arc::new(next);
        self.home.engine.post.to_all(|| ToShard::Open(Arc::clone(&next)));
        self.stirred.raise();
    }
}
