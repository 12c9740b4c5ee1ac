//! The keeper: decides about the membership of an array.
//!
//! ```text
//!   shards ──lost──▶ losses ─┐
//!   user ──fail, add, …──────┤                close barrier · wait until still
//!   jobs ──rebuilt, …────────┴──▶ change ──▶  decide · make durable · open barrier, new epoch
//!
//!   shards ──mark──▶ superblocks dirty, bits set, durable ──marked──▶ shards
//! ```
//!
//! Owns the configuration, the epoch, the dirty mark, the bits of the write-intent bitmap and the
//! background jobs. Never touches data.
//!
//! Invariants:
//! - The membership changes only while every shard is still. No unit is in flight then, so none can
//!   mix epochs.
//! - A loss is durable on every survivor before the barrier opens, and so before any affected
//!   request is acknowledged. A loss beyond the level's redundancy is not recorded: the array
//!   accepts no more writes, and its members stay as they are for a repair of the cause.
//! - A region's bit is durable before a shard may write there. It is cleared only after every shard
//!   has flushed, and only while the array is whole.

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
use crate::shard::requests::Load;
use crate::status::{EventKind, EventLog, FULL_LIST};

pub(crate) mod bitmap;
mod changes;
mod events;
mod flush;
mod full;
mod jobs;
pub(crate) mod replay;
pub(crate) mod replay_checksums;
mod state;
pub(crate) mod throttle;

pub(crate) use jobs::{Job, ScrubRange, describe};
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
    /// The array computes parity.
    parity: bool,
    clock: Rc<dyn Clock>,
    /// The shard on the keeper's thread: it sends the keeper's mail, and dispatches its background
    /// work to the owners of the regions.
    home: Rc<Shard>,
    /// The load of each shard.
    loads: Arc<[Load]>,
    /// The configuration that every shard has or is about to get.
    configuration: RefCell<Configuration>,
    /// All members since the start.
    known: RefCell<BTreeMap<MemberId, Introduction>>,
    pub(crate) sync: SyncState,
    pub(crate) crash: CrashState,
    pub(crate) record: RecordState,
    /// Read errors of each member, and the start of the count.
    read_errors: RefCell<BTreeMap<MemberId, (Time, u32)>>,
    pub(crate) inbox: Inbox,
    /// Members that are being removed and still have a slot.
    losing: RefCell<Vec<MemberId>>,
    pub(crate) regions: Regions,
    /// Raised at every message and every change.
    pub(crate) changed: Signal,
    answers: Completions<Result<()>>,
    /// Number of times a member was assigned to a slot for rebuilding. The result of an earlier
    /// walk must not be applied to a later member.
    assignments: Cell<u64>,
    /// A membership change is in progress: losses, commands and jobs take turns.
    changing: Cell<bool>,
    stopping: Cell<bool>,
}

/// A change requested by the user.
pub(crate) enum Command {
    /// Remove this member as if it had failed.
    Fail(MemberId),
    /// Remove this member although its data is gone, even if other blocks depend on that data.
    Lose(MemberId),
    /// Remove this member; the data that it held is lost for good.
    LoseTruncated(MemberId),
    /// A spare that the metadata writer has admitted.
    AddSpare(MemberId),
    /// A former member returned to its slot; only these ranges differ.
    Readd(MemberId, Slot, RangeSet),
    /// Forget a spare or a failed member.
    Remove(MemberId),
    /// Copy the slot to this spare, then assign the slot to it.
    Replace(Slot, MemberId),
    /// Refuse or accept writes.
    SetMode(Mode),
}

/// The initial state of a keeper.
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
            changed: Signal::new(),
            answers: Completions::new(),
            assignments: Cell::new(0),
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
                quiesced_shards: RefCell::default(),
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
                // A commit would begin a new session of the log before the old one is replayed.
                deciding: match settling && !broken(Broken::RecordBeforeResolved) {
                    true => AsyncMutex::taken(),
                    false => AsyncMutex::default(),
                },
            },
            jobs: Jobs::default(),
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
                keeper.replay(torn_rows).await;
            }
            keeper.run_changes().await;
        });
        let keeper = Rc::clone(self);
        tasks.spawn(async move { keeper.run_bits().await });
        let keeper = Rc::clone(self);
        tasks.spawn(async move { keeper.run_flushes().await });
        let keeper = Rc::clone(self);
        tasks.spawn(async move { keeper.run_clearing().await });
        let keeper = Rc::clone(self);
        tasks.spawn(async move { keeper.run_jobs().await });
    }

    /// Queues a message. The tasks act on it later, because messages arrive during other work.
    pub(crate) fn handle(&self, message: ToKeeper) {
        match message {
            ToKeeper::Lost { member, why } => self.inbox.lost.borrow_mut().push_back((member, why)),
            ToKeeper::Still { shard } => {
                self.inbox.quiesced_shards.borrow_mut().insert(shard);
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
                let range = self.stripes_at(member, offset..offset.saturating_add(bytes));
                self.note_at(EventKind::Repaired, Some(member), range, text);
            }
        }
        self.changed.raise();
    }

    /// Records a block that could not be recovered; the next commit writes the member's bad-block
    /// list.
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
            // Ranges that the bitmap lists as unverified stay listed. If another member is being
            // filled from this one, the array gives up that other member.
            let mut lost = self.configuration.borrow().filled_beside(member);
            let filling = filling || broken(Broken::FullListUnrecorded);
            if !filling || lost.is_empty() || broken(Broken::FullListCostsAll) {
                lost = vec![member];
            }
            self.inbox.lost.borrow_mut().extend(lost.into_iter().map(|id| (id, full.clone())));
        }
    }

    /// Counts a read error. After too many, a spare replaces the member while it stays in service.
    /// The member is not failed: each of its errors was repaired, and it may still be needed. As in
    /// md, the count halves every hour.
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
        let whole = Keeper::not_in_sync(&configuration).is_empty();
        if let Some(&spare) = configuration.spares.first().filter(|_| whole) {
            *count = 0;
            // The command is checked when its turn comes; the answer is not needed.
            drop(self.command(Command::Replace(slot, spare)));
        }
    }

    /// The current configuration.
    pub(crate) fn configuration(&self) -> Configuration {
        self.configuration.borrow().clone()
    }

    /// Array ranges whose parity or copies may disagree.
    pub(crate) fn unsynced(&self) -> RangeSet {
        self.sync.unsynced.borrow().clone()
    }

    /// Their bytes.
    pub(crate) fn unsynced_bytes(&self) -> u64 {
        self.sync.unsynced.borrow().bytes()
    }

    /// False if the level has parity but the array does not compute it, or it may be wrong
    /// somewhere.
    pub(crate) fn has_parity(&self) -> bool {
        // After a replay unsynced parity is right, and is only compared again.
        let synced = self.crash.resolved || self.sync.unsynced.borrow().is_empty();
        self.geometry.family() != Family::Parity || (self.parity && synced)
    }

    /// True if unsynced ranges are only compared, because the intent log listed all interrupted
    /// writes.
    pub(crate) fn is_verifying(&self) -> bool {
        let parity = self.geometry.family() == Family::Parity && self.parity;
        parity && self.crash.resolved && !self.sync.unsynced.borrow().is_empty()
    }

    /// True if the array computes parity, if its level has any.
    pub(crate) fn computes_parity(&self) -> bool {
        self.parity
    }

    /// True if the superblocks are marked clean.
    pub(crate) fn is_clean(&self) -> bool {
        self.record.clean.get()
    }

    /// The name of a member, even of a lost one.
    pub(crate) fn name_of(&self, id: MemberId) -> String {
        self.known
            .borrow()
            .get(&id)
            .map_or_else(|| format!("member {}", id.0), |known| known.name.clone())
    }

    /// A member, even a lost one.
    pub(crate) fn known(&self, id: MemberId) -> Option<Introduction> {
        self.known.borrow().get(&id).cloned()
    }

    /// Bytes acknowledged but not yet on the members, on all threads.
    pub(crate) fn cached_bytes(&self) -> u64 {
        self.loads.iter().map(|load| load.cached_bytes.get()).sum()
    }

    /// Units that waited for a flush before they could be logged, on all threads.
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

    /// Records a new member.
    pub(crate) fn introduce(&self, member: Introduction) {
        self.known.borrow_mut().insert(member.id, member);
    }

    /// The number of shards on all threads.
    pub(crate) fn shards(&self) -> usize {
        self.loads.len()
    }

    /// Client requests in flight on all threads.
    pub(crate) fn requests(&self) -> usize {
        self.loads.iter().map(|load| load.requests.get() as usize).sum()
    }

    /// Queues a command; its result comes once the change is durable.
    pub(crate) fn command(&self, command: Command) -> Completion<Result<()>> {
        let (ticket, completion) = self.answers.start();
        self.inbox.commands.borrow_mut().push_back((command, ticket));
        self.changed.raise();
        completion
    }

    /// The durable record of this configuration. Below the first unsynced range everything is
    /// synced; above it, the bitmap lists the unsynced regions.
    fn decision(&self, configuration: Configuration) -> Decision {
        // A replay leaves nothing unverified: the ranges still to be compared are right.
        if self.record.clean.get() || Keeper::not_in_sync(&configuration).is_empty() {
            // All interrupted rows have been written again, and are durable once this is on record.
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

    /// Waits for the turn to write the superblocks. The holder must read the configuration only
    /// after that, because it may have changed during the wait.
    async fn take_turn(&self) -> Held<'_> {
        self.record.deciding.take().await
    }

    /// Commits the current state without a change of membership: clean, dirty, checkpoints. Members
    /// that cannot be written are reported as lost, and the commit is repeated without them.
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
                    self.changed.raise();
                }
            }
            self.after(epoch).await;
        }
    }

    /// True if a member with a slot has been reported as lost and is about to be removed. If it
    /// failed to take a superblock, one more commit would leave no header that matches its
    /// superblock. After a crash its log would then not be trusted.
    fn loses_one(&self, configuration: &Configuration) -> bool {
        let (lost, losing) = (self.inbox.lost.borrow(), self.losing.borrow());
        let mut each = lost.iter().map(|(id, _)| id).chain(&*losing);
        each.any(|id| configuration.slot_of(*id).is_some())
    }

    /// Reports losses detected by the keeper itself.
    fn report(&self, failed: Vec<(MemberId, io::Error)>) {
        self.inbox.lost.borrow_mut().extend(failed);
        self.changed.raise();
    }

    /// Completes when the configuration is newer than `epoch`.
    async fn after(&self, epoch: Epoch) {
        while self.configuration.borrow().epoch <= epoch {
            self.changed.wait().await;
        }
    }

    /// Slots that are not in sync.
    fn not_in_sync(configuration: &Configuration) -> SlotSet {
        SlotSet::first(configuration.slots.len()).difference(configuration.in_sync())
    }

    /// Completes when all shards refuse requests and no request is in flight.
    pub(crate) async fn quiesce(&self) {
        self.home.engine.post.to_all(|| ToShard::Quiesce);
        while self.inbox.quiesced.borrow().len() < self.shards() {
            self.changed.wait().await;
        }
    }

    /// Ends background work, clears the bits, and marks the members clean. The shards must have no
    /// request left.
    pub(crate) async fn stop(&self) -> Result<()> {
        self.stopping.set(true);
        self.changed.raise();
        while self.jobs.job.borrow().is_some() {
            self.changed.wait().await;
        }
        if self.configuration.borrow().mode != Mode::ReadWrite {
            return Ok(());
        }
        // Data written without parity stays dirty, so that the next start resyncs it.
        let redundant = self.geometry.family() != Family::Plain && self.parity;
        if redundant {
            self.record.clean.set(true);
        }
        // The commit flushes every member before it marks it clean.
        self.record().await?;
        if redundant {
            self.clear_all_bits().await;
        }
        Ok(())
    }

    /// True once the keeper's tasks must end.
    fn is_stopping(&self) -> bool {
        self.stopping.get()
    }

    fn publish(&self, next: Configuration) {
        let epoch = self.configuration.borrow().epoch;
        assert!(next.epoch > epoch, "writes of epoch {epoch:?} would count as new");
        assert_eq!(next.slots.len(), self.geometry.slots(), "one assignment for each slot");
        next.assert_consistent();
        *self.configuration.borrow_mut() = next.clone();
        let next = Arc::new(next);
        self.home.engine.post.to_all(|| ToShard::Open(Arc::clone(&next)));
        self.changed.raise();
    }
}
