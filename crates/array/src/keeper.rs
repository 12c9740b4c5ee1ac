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
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use io::broken::{Broken, broken};
use io::{Clock, Completion, Completions, Signal, TaskSet, Time};
use layout::{Configuration, Epoch, Family, Geometry, MemberId, Mode, RangeSet, Slot, SlotSet};
use log::solve::TornRow;
use log::told::Told;
use metadata::commit::async_mutex::{AsyncMutex, Held};
use metadata::commit::{Decision, Ledger};
use metadata::{Bounds, Decisions, Error, ErrorKind, Result, Undecided};

use crate::member::Introduction;
use crate::shard::Shard;
use crate::shard::message::{ToKeeper, ToShard};
use crate::shard::queue::Load;
use crate::status::{Event, EventKind, EventLog, FULL_LIST, Replay};

pub(crate) mod bitmap;
mod changes;
mod flush;
mod jobs;
pub(crate) mod replay;
pub(crate) mod replay_checksums;
pub(crate) mod throttle;

pub(crate) use jobs::{Job, describe};
pub use jobs::{JobKind, ScrubResult};
pub(crate) use throttle::Throttle;

const HOUR: Duration = Duration::from_secs(3600);

/// See the module's description.
pub(crate) struct Keeper {
    pub(crate) geometry: Rc<Geometry>,
    pub(crate) ledger: Rc<Ledger>,
    decisions: Rc<dyn Decisions>,
    pub(crate) log: EventLog,
    pub(crate) pace: Throttle,
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
    /// Array ranges whose parity or copies may disagree.
    unsynced: RefCell<RangeSet>,
    /// Array ranges that were synced since the last record, which was the last flush of all.
    undurable: RefCell<RangeSet>,
    /// Array ranges whose checksums mean nothing yet; empty without checksums.
    unsummed: RefCell<RangeSet>,
    /// Where a crash may have separated blocks from their checksums.
    torn: RangeSet,
    /// A crash may have cut writes there.
    doubt: bool,
    /// The intent log has told of all that a crash may have cut.
    settled: bool,
    /// Journal device and member were lost in one moment: rows may be cut that no log tells of.
    unlogged: Cell<bool>,
    /// No write is under way: what the superblocks say.
    clean: Cell<bool>,
    /// Nothing was recorded since the start: the superblocks may say that nothing was ever written,
    /// may count members in that are not here, and do not go with what is logged now.
    unrecorded: Cell<bool>,
    /// What was made right from the intent log.
    pub(crate) replay: Cell<Option<Replay>>,
    /// Rows to be made right before anything else.
    cuts: RefCell<Vec<TornRow>>,
    /// Before that, who is left out is put on record.
    record_first: bool,
    /// What blocks may hold by the intent log, where checksums are kept.
    told: RefCell<Told>,
    /// Read errors of each member, and since when they are counted.
    read_errors: RefCell<BTreeMap<MemberId, (Time, u32)>>,
    /// What arrived and was not acted upon.
    lost: RefCell<VecDeque<(MemberId, io::Error)>>,
    /// Members that are being taken out, and still have a seat.
    losing: RefCell<Vec<MemberId>>,
    marking: RefCell<VecDeque<bitmap::Asked>>,
    /// Shards that wait for the next flush.
    flushing: RefCell<Vec<flush::Asked>>,
    /// Regions whose bits may be cleared.
    clearing: RefCell<Vec<u64>>,
    /// Who holds a region's mark.
    holders: RefCell<BTreeMap<u64, BTreeSet<usize>>>,
    awake: RefCell<BTreeSet<usize>>,
    /// Shards that have come to a stand since the gates were closed.
    still: RefCell<BTreeSet<usize>>,
    /// Shards that take no request any more, and have none.
    quiesced: RefCell<BTreeSet<usize>>,
    /// Raised at every arrival and every change.
    pub(crate) stirred: Signal,
    commands: RefCell<VecDeque<(Command, io::Ticket)>>,
    answers: Completions<Result<()>>,
    /// How often a member was given a slot to be filled: a walk that began before must not speak
    /// for whoever sits there now.
    seatings: Cell<u64>,
    /// The membership is being changed: losses, commands and jobs take turns.
    changing: Cell<bool>,
    /// Somebody else has decided about this array: it is not ours to write any more.
    overtaken: Cell<bool>,
    /// Somebody is deciding what the superblocks say.
    deciding: AsyncMutex,
    pub(crate) job: RefCell<Option<Job>>,
    /// For members that came back: the only ranges that must be copied.
    partial: RefCell<BTreeMap<MemberId, RangeSet>>,
    pub(crate) scrub: RefCell<Option<crate::rows::job::Task>>,
    pub(crate) last_scrub: RefCell<Option<ScrubResult>>,
    stopping: Cell<bool>,
}

/// A change that the user asks for.
pub(crate) enum Command {
    /// Take this member out, as if it had failed.
    Fail(MemberId),
    /// Take this member out: its bytes are gone, whoever needs them.
    Lose(MemberId),
    /// Take it out: bytes that it held are lost for good.
    LoseCut(MemberId),
    /// A spare that the ledger has admitted.
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
    pub(crate) ledger: Rc<Ledger>,
    pub(crate) decisions: Rc<dyn Decisions>,
    pub(crate) bounds: Bounds,
    pub(crate) parity: bool,
    pub(crate) clock: Rc<dyn Clock>,
    pub(crate) home: Rc<Shard>,
    pub(crate) loads: Arc<[Load]>,
    pub(crate) configuration: Configuration,
    pub(crate) known: BTreeMap<MemberId, Introduction>,
    pub(crate) unsynced: RangeSet,
    pub(crate) doubt: bool,
    pub(crate) settled: bool,
    pub(crate) clean: bool,
    pub(crate) cuts: Vec<TornRow>,
    pub(crate) record_first: bool,
    pub(crate) told: Told,
    pub(crate) unsummed: RangeSet,
    pub(crate) torn: RangeSet,
}

impl Keeper {
    pub(crate) fn new(start: Start) -> Rc<Keeper> {
        let settling = start.record_first || !start.cuts.is_empty();
        Rc::new(Keeper {
            geometry: start.geometry,
            ledger: start.ledger,
            decisions: start.decisions,
            log: EventLog::default(),
            pace: Throttle::default(),
            bounds: start.bounds,
            parity: start.parity,
            clock: start.clock,
            home: start.home,
            loads: start.loads,
            configuration: RefCell::new(start.configuration),
            known: RefCell::new(start.known),
            unsynced: RefCell::new(start.unsynced),
            undurable: RefCell::default(),
            unsummed: RefCell::new(start.unsummed),
            torn: start.torn,
            doubt: start.doubt,
            settled: start.settled,
            unlogged: Cell::new(false),
            clean: Cell::new(start.clean),
            unrecorded: Cell::new(true),
            replay: Cell::new(None),
            cuts: RefCell::new(start.cuts),
            record_first: start.record_first,
            told: RefCell::new(start.told),
            read_errors: RefCell::default(),
            lost: RefCell::default(),
            losing: RefCell::default(),
            marking: RefCell::default(),
            flushing: RefCell::default(),
            clearing: RefCell::default(),
            holders: RefCell::default(),
            awake: RefCell::default(),
            still: RefCell::default(),
            quiesced: RefCell::default(),
            stirred: Signal::new(),
            commands: RefCell::default(),
            answers: Completions::new(),
            seatings: Cell::new(0),
            changing: Cell::new(settling),
            overtaken: Cell::new(false),
            // A record would begin a new session of the log before the old one is settled.
            deciding: match settling && !broken(Broken::RecordBeforeSettled) {
                true => AsyncMutex::taken(),
                false => AsyncMutex::default(),
            },
            job: RefCell::default(),
            partial: RefCell::default(),
            scrub: RefCell::default(),
            last_scrub: RefCell::default(),
            stopping: Cell::new(false),
        })
    }

    /// Starts the keeper's tasks.
    pub(crate) fn start(self: &Rc<Self>, tasks: &TaskSet) {
        let keeper = Rc::clone(self);
        tasks.spawn(async move {
            let cuts = keeper.cuts.take();
            if keeper.record_first || !cuts.is_empty() {
                keeper.settle(cuts).await;
            }
            keeper.mind_changes().await;
        });
        let keeper = Rc::clone(self);
        tasks.spawn(async move { keeper.mind_marks().await });
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
            ToKeeper::Lost { member, why } => self.lost.borrow_mut().push_back((member, why)),
            ToKeeper::Still { shard } => {
                self.still.borrow_mut().insert(shard);
            }
            ToKeeper::Quiesced { shard } => {
                self.quiesced.borrow_mut().insert(shard);
            }
            ToKeeper::Mark { shard, ticket, first, last } => {
                let asked = bitmap::Asked::Mark { shard, ticket, regions: first..=last };
                self.marking.borrow_mut().push_back(asked);
            }
            ToKeeper::Unmark { shard, regions } => {
                let asked = bitmap::Asked::Unmark { shard, regions };
                self.marking.borrow_mut().push_back(asked);
            }
            ToKeeper::Flush { shard, ticket, slots } => {
                self.flushing.borrow_mut().push(flush::Asked { shard, ticket, slots });
            }
            ToKeeper::Quiet { shard } => {
                self.marking.borrow_mut().push_back(bitmap::Asked::Quiet { shard: Some(shard) });
            }
            ToKeeper::Bad { member, start, len, filling } => {
                self.record_bad(member, (start, len), filling);
            }
            ToKeeper::Mended { offset, len } => {
                self.ledger.set_bad(offset..offset + len, false);
            }
            ToKeeper::GivenUp { offset, len } => self.give_up_rest(offset..offset + len),
            ToKeeper::Record { shard, ticket } => {
                self.marking.borrow_mut().push_back(bitmap::Asked::Record { shard, ticket });
            }
            ToKeeper::Good { member, start, len } => {
                self.ledger.clear_bad_block(member, start..start + len);
            }
            ToKeeper::Throttle { member, slow, text } => {
                let kind = if slow { EventKind::Slow } else { EventKind::SlowOver };
                self.note(kind, Some(member), text);
            }
            ToKeeper::Refused { text } => self.note(EventKind::ClientError, None, text),
            ToKeeper::Repaired { member, offset, bytes } => {
                self.ledger.add_corrected(member, bytes / 512);
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
        if self.ledger.add_bad_block(member, start..start + len).is_err() {
            let kind = io::ErrorKind::Medium { offset: start, len };
            let full = io::Error::new(kind, FULL_LIST);
            // What the bitmap knows to be in doubt stays so. One that is whole is worth more than
            // one that is being filled from it.
            let mut lost = self.configuration.borrow().filled_beside(member);
            let filling = filling || broken(Broken::FullListUnrecorded);
            if !filling || lost.is_empty() || broken(Broken::FullListCostsAll) {
                lost = vec![member];
            }
            self.lost.borrow_mut().extend(lost.into_iter().map(|id| (id, full.clone())));
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
        let Some((slot, false)) = configuration.seat_of(member) else { return };
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
        self.unsynced.borrow().bytes()
    }

    /// False if the level has parity, and it is not computed or may be wrong somewhere.
    pub(crate) fn has_parity(&self) -> bool {
        // What is only compared after the log was replayed is right.
        let synced = self.settled || self.unsynced.borrow().is_empty();
        self.geometry.family() != Family::Parity || (self.parity && synced)
    }

    /// What is not in sync is only compared: the intent log has told of all that was cut.
    pub(crate) fn is_verifying(&self) -> bool {
        let parity = self.geometry.family() == Family::Parity && self.parity;
        parity && self.settled && !self.unsynced.borrow().is_empty()
    }

    /// Parity is computed, if the level has any.
    pub(crate) fn computes_parity(&self) -> bool {
        self.parity
    }

    /// What the superblocks say.
    pub(crate) fn is_clean(&self) -> bool {
        self.clean.get()
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
        data.sum::<u64>() + self.ledger.late_writes(name) as u64
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
        self.commands.borrow_mut().push_back((command, ticket));
        self.stirred.raise();
        completion
    }

    fn note(&self, kind: EventKind, member: Option<MemberId>, text: impl Into<String>) {
        let seat = member.and_then(|id| self.configuration.borrow().seat_of(id));
        let slot = seat.map(|(slot, _)| slot);
        let member = member.map(|id| self.name_of(id));
        let unix_micros = self.clock.unix_micros();
        self.log.push(Event { unix_micros, kind, member, slot, text: text.into() });
    }

    /// What is to be durable if this is the configuration. Below the first range that is not synced
    /// everything is; above it, the bitmap knows.
    fn decision(&self, configuration: Configuration) -> Decision {
        // What is compared after the log was replayed was right before: nothing is in doubt.
        if self.clean.get() || Keeper::unwell(&configuration).is_empty() {
            // Whatever was cut was written again, and is durable when this is on record.
            self.unlogged.set(false);
        }
        let unsettled = !self.settled && !self.unsynced.borrow().is_empty();
        self.ledger.set_doubt(unsettled || self.unlogged.get());
        self.ledger.set_sums_from(
            self.unsummed.borrow().next(0).map_or(u64::MAX, |range| range.start),
            self.are_sums_torn(),
        );
        let resync_from = self.unsynced.borrow().next(0).map(|range| range.start);
        Decision { configuration, clean: self.clean.get(), resync_from }
    }

    /// Waits for the turn to decide what the superblocks say. Whoever has it looks at the
    /// configuration only then: what was so before may not be so any more.
    async fn take_turn(&self) -> Held<'_> {
        self.deciding.take().await
    }

    /// Records what is so now, without a change of membership: clean, dirty, checkpoints. Members
    /// that cannot be written are reported as lost, and the record is made again without them.
    pub(crate) async fn record(&self) -> Result<()> {
        loop {
            let turn = self.take_turn().await;
            let configuration = self.configuration();
            if configuration.mode == Mode::Broken {
                return Err(Error::new(ErrorKind::ReadOnly, "the array takes no writes"));
            }
            let epoch = configuration.epoch;
            if self.loses_one(&configuration) {
                drop(turn);
                self.after(epoch).await;
                continue;
            }
            let synced = self.undurable.borrow().clone();
            let result = self.decisions.decide(epoch, &self.decision(configuration)).await;
            drop(turn);
            match result {
                Ok(()) => {
                    let mut undurable = self.undurable.borrow_mut();
                    synced.iter().for_each(|range| undurable.remove(range));
                    return Ok(());
                }
                Err(Undecided::Members(failed)) => self.report(failed),
                Err(Undecided::Overtaken) => {
                    self.overtaken.set(true);
                    self.stirred.raise();
                }
            }
            self.after(epoch).await;
        }
    }

    /// A member with a seat is reported as lost, and the next change takes it out. Perhaps because
    /// it failed to take a superblock: with the header of one more commit it would have none that
    /// goes with the superblock it has, and after a crash its log would not be believed.
    fn loses_one(&self, configuration: &Configuration) -> bool {
        let (lost, losing) = (self.lost.borrow(), self.losing.borrow());
        let mut each = lost.iter().map(|(id, _)| id).chain(&*losing);
        each.any(|id| configuration.seat_of(*id).is_some())
    }

    /// Reports losses that the keeper itself has noticed.
    fn report(&self, failed: Vec<(MemberId, io::Error)>) {
        self.lost.borrow_mut().extend(failed);
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
        SlotSet::first(configuration.seats.len()).difference(configuration.in_sync())
    }

    /// Completes when no shard takes requests any more, and none is under way.
    pub(crate) async fn quiesce(&self) {
        self.home.engine.post.to_all(|| ToShard::Quiesce);
        while self.quiesced.borrow().len() < self.shards() {
            self.stirred.wait().await;
        }
    }

    /// Ends background work and the marks, and makes the members clean. The shards must have no
    /// request any more.
    pub(crate) async fn stop(&self) -> Result<()> {
        self.stopping.set(true);
        self.stirred.raise();
        while self.job.borrow().is_some() {
            self.stirred.wait().await;
        }
        if self.configuration.borrow().mode != Mode::ReadWrite {
            return Ok(());
        }
        // What was written without parity is synced when the array is started next.
        let redundant = self.geometry.family() != Family::Plain && self.parity;
        if redundant {
            self.clean.set(true);
        }
        // The commit flushes every member before it says that they are clean.
        self.record().await?;
        if redundant {
            self.clear_all_marks().await;
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
