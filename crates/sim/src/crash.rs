//! The host dies and comes back, again and again.
//!
//! ```text
//!   load ──▶ die ──▶ look ──▶ come back ──▶ load        the process is killed, or the power is cut
//!             ▲                   │
//!             └── again, soon ────┘                     during assembly, replay, resync
//! ```
//!
//! Owns the loss of cached data in a crash (`cut.rs`), the members present at the restart, and the
//! possible losses of a refused assembly. Between crash and assembly the members are inspected:
//! everything out of sync must be marked (`covered.rs`).

use std::rc::Rc;

use array::status::SlotState;
use array::{CacheMode, JobKind};
use io::Disk;
use layout::private::Consistency;
use layout::{Family, Slot, SlotSet};
use metadata::ErrorKind;

use crate::cut::{Cut, Mode};
use crate::disk::{Pending, SimDisk};
use crate::incident::Director;
use crate::mark::{self, Health, Part};
use crate::node::{Consent, Node};
use crate::options::Promise;
use crate::oracle::Caches;
use crate::parts::Parts;
use crate::workload::chain;
use crate::{covered, logged, ppl};
use random::Rng;

/// A crash, drawn before the run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Crash {
    /// The power is cut; otherwise only the process dies.
    pub power: bool,
    /// The surviving data.
    pub mode: Mode,
    /// Of a hundred faulty members, this many are healthy at the restart; the others are excluded.
    pub mended_percent: u64,
    /// So soon after it has come back, in microseconds, it dies again; 0: it does not.
    pub again: [u64; 2],
    /// Where the choices of the crash itself come from.
    pub chance: u64,
}

impl Crash {
    /// One of them; with power cuts only if wanted, and otherwise only without.
    pub fn draw(rng: &mut Rng, power: bool) -> Crash {
        let mut again = [0; 2];
        if rng.percent(60) {
            // Assembly takes some thousand microseconds, recovery some ten thousand.
            again[0] = rng.skewed(60_000);
            again[1] = if rng.percent(30) { rng.skewed(20_000) } else { 0 };
        }
        Crash {
            power,
            mode: Mode::draw(rng),
            mended_percent: rng.pick(&[0, 60, 100]),
            again,
            chance: rng.bits(),
        }
    }
}

impl Director {
    /// The host dies, perhaps more than once, and comes back.
    pub async fn crash(self: &Rc<Self>, crash: Crash) {
        self.crash_with(crash, || ()).await;
    }

    /// The same; this is done to the members while the host is down for the first time.
    pub async fn crash_with(self: &Rc<Self>, crash: Crash, meanwhile: impl FnOnce()) {
        if !self.may_crash() {
            return;
        }
        let mut rng = Rng::stream(crash.chance, "crash", 0);
        self.die(crash, &mut rng);
        meanwhile();
        for again in crash.again.into_iter().filter(|&again| again > 0) {
            let director = Rc::clone(self);
            let back = async move { director.restart_host(crash).await };
            let world = &self.stage.world;
            let task = world.executor.spawn("coming back", back);
            world.pause(again).await;
            let assembled = world.executor.has_ended(task);
            world.executor.abort(task);
            self.mark(if assembled { mark::AGAIN_RECOVERING } else { mark::AGAIN_ASSEMBLING });
            // A process that was killed has left its caches to the next one: now they may be lost.
            let power = crash.power || rng.percent(50);
            self.die(Crash { mode: Mode::draw(&mut rng), power, ..crash }, &mut rng);
        }
        self.restart_host(crash).await;
        self.tell_recovery();
    }

    /// An array of arrays can take the loss of a member, but not the guesses of one.
    fn may_crash(&self) -> bool {
        if self.nodes.len() == 1 {
            return true;
        }
        let unverified = |node: &Rc<Node>| {
            node.geometry().family() == Family::Parity && node.promise() == Promise::Unverified
        };
        self.nodes[1..].iter().all(|node| !unverified(node) || node.endangered().is_empty())
    }

    /// Everything stops at once.
    fn die(&self, crash: Crash, rng: &mut Rng) {
        let (stage, world) = (&self.stage, &self.stage.world);
        self.note(|| format!("CRASH power cut {}, {:?}", crash.power, crash.mode));
        let health = self.note_state(crash);
        stage.deaths.set(stage.deaths.get() + 1);
        stage.stuck.set(false);
        stage.oracle.borrow_mut().crash(self.caches(crash.power));
        let cut = stage.oracle.borrow().is_cut();
        for node in &self.nodes {
            node.kill(cut);
        }
        stage.stirred.raise();
        let disks = world.disks();
        let (unlucky, mut torn) = (rng.below(disks.len() as u64), Vec::new());
        for (number, disk) in disks.iter().enumerate() {
            let assignment = self.nodes.iter().find_map(|node| node.slot_of(disk));
            let parts = Parts::of(disk, assignment);
            let some = crash.mode == Mode::SomeSuperblocks;
            let unlucky = if some { rng.percent(50) } else { number as u64 == unlucky };
            let mut cut = Cut::new(crash.mode, unlucky, Rng::stream(rng.bits(), "cut", 0));
            let pending = disk.crash(crash.power, &mut cut, &parts);
            self.note_pending(&pending, health);
            torn.extend(pending.into_iter().map(|pending| (Rc::clone(disk), pending)));
        }
        if crash.power && self.garbage {
            self.write_garbage(torn, rng);
        }
        if crash.mode == Mode::Shorn {
            self.mark(mark::F5);
        }
        self.look();
    }

    /// Sets marks for obstacles.
    fn note_pending(&self, pending: &[Pending], health: Health) {
        let mut busy: Vec<Part> = Vec::new();
        for Pending { part, .. } in pending {
            if !busy.contains(part) {
                busy.push(*part);
            }
        }
        if busy.contains(&Part::Superblock) {
            self.mark(mark::F11);
        }
        let in_flight = busy.into_iter().filter_map(|part| mark::in_flight_mark(part, health));
        in_flight.for_each(|name| self.mark(name));
    }

    /// The loss of cached data, by the owner of the cache.
    pub(crate) fn caches(&self, power: bool) -> Caches {
        let volatile = self.build.limits.volatile;
        let held = self.nodes.iter().any(|node| node.shape.cache == CacheMode::Writeback);
        let drained = self.stage.world.disks().iter().any(|disk| disk.was_drained());
        match (power, volatile) {
            (true, _) => Caches::Emptied,
            (false, false) if held => Caches::Emptied,
            (false, true) if held || drained => Caches::Mixed,
            (false, _) => Caches::Kept,
        }
    }

    /// Sets marks for interrupted operations.
    fn note_state(&self, crash: Crash) -> Health {
        self.mark(if crash.power { mark::CUT } else { mark::KILLED });
        self.mark(crash.mode.mark());
        self.stage.world.trace.fault();
        if self.nodes.len() > 1 {
            self.mark(mark::CRASHED_NESTED);
        }
        if self.stage.under_way.get() > 0 {
            self.mark(mark::CRASHED_BUSY);
        }
        let mut health = Health::Whole;
        for node in self.nodes.iter().filter(|node| node.running().is_some()) {
            let harmed = self.stage.lied.get() || node.forced.get() || node.has_lost_blocks();
            node.may_miss.set(node.bears_loss() && !harmed && self.nodes.len() == 1);
            let status = node.status();
            let missing = status.slots.iter().any(|slot| slot.state == SlotState::Missing);
            let filling =
                status.slots.iter().any(|slot| matches!(slot.state, SlotState::Rebuilding { .. }));
            if filling {
                health = Health::Rebuilding;
            } else if missing && health == Health::Whole {
                health = Health::Degraded;
            }
            if missing {
                self.mark(mark::CRASHED_DEGRADED);
            }
            if status.clean && self.stage.under_way.get() == 0 {
                self.mark(mark::CRASHED_IDLE);
            }
            if status.unsynced_bytes > 0 {
                self.mark(mark::CRASHED_UNSYNCED);
            }
            match status.job.map(|job| job.kind) {
                Some(JobKind::Rebuild(_)) => self.mark(mark::CRASHED_REBUILDING),
                Some(JobKind::Replace(_)) => self.mark(mark::CRASHED_REPLACING),
                Some(JobKind::Resync) => self.mark(mark::CRASHED_RESYNCING),
                Some(_) => self.mark(mark::CRASHED_SCRUBBING),
                None => {}
            }
        }
        health
    }

    /// Whatever is out of step must be marked.
    fn look(&self) {
        // Listed bad blocks have arbitrary content; so have blocks of a lying flush.
        let anything = !self.stage.doubted.borrow().is_empty() || self.stage.lied.get();
        for node in &self.nodes {
            let Some(geometry) = node.last_geometry() else { continue };
            let disks = node.sim_disks();
            if disks.len() < node.members.borrow().len() {
                continue;
            }
            // The record's statement about its log is independent of the blocks.
            node.check_recorded_parity(&disks);
            if anything {
                continue;
            }
            if node.shape.promise() == Promise::Closed && geometry.family() == Family::Parity {
                let raw = disks.iter().filter_map(covered::read);
                if raw.into_iter().any(|raw| ppl::has_wrapped(&raw)) {
                    self.mark(mark::PPL_WRAPPED);
                }
                let usage = disks.iter().map(logged::usage);
                for logged::Usage { wrapped, tail_only } in usage {
                    wrapped.then(|| self.mark(mark::LOG_WRAPPED));
                    tail_only.then(|| self.mark(mark::LOG_TAIL_ONLY));
                }
                node.hold_to_record();
            }
            if let Err(fault) = node.covered(&geometry, &disks) {
                panic!("{}: after the crash, from behind: {fault}", node.name);
            }
        }
    }

    /// The host restarts: arrays are assembled from the present members.
    async fn restart_host(&self, crash: Crash) {
        self.stage.world.disks().iter().for_each(|disk| disk.forget_drain());
        // Clients let go of the array.
        self.stage.world.pause(1).await;
        self.repair_members(crash);
        for node in self.nodes.iter().rev() {
            self.assemble(node).await;
        }
        self.note_exposure();
    }

    /// A member is missing, or this one of the outermost array is about to be: of arrays with a
    /// log, blocks that were being written may be lost.
    pub(crate) fn expose(&self, next: Option<Slot>) {
        let mut oracle = self.stage.oracle.borrow_mut();
        if self.nodes.iter().any(|node| node.shape.promise() == Promise::Closed) {
            oracle.expose();
        }
        let node = &self.nodes[0];
        if node.shape.consistency == Consistency::Ppl
            && let Some(geometry) = node.last_geometry()
        {
            // The present members are not always known: any slot is possible, but not a row beside
            // it.
            let slots = node.running().map_or(geometry.all_slots(), |_| node.endangered());
            let slots = next.map_or(slots, |next| slots.with(next));
            oracle.guess_torn(|offset| {
                let (stripe, index, _) = geometry.stripe_of(offset);
                slots.contains(geometry.stripe(stripe).data(index))
            });
        }
    }

    /// With a missing member, blocks being written there at the crash may be lost.
    pub(crate) fn note_exposure(&self) {
        let whole = |node: &Rc<Node>| node.running().is_some() && node.endangered().is_empty();
        if !self.nodes.iter().all(whole) {
            self.expose(None);
        }
    }

    /// A faulty member is healthy again, or stays out; an excluded one may return.
    fn repair_members(&self, crash: Crash) {
        let mut rng = Rng::stream(crash.chance, "mend", 0);
        let mut unplug = Rng::stream(crash.chance, "unplug", 0);
        let unplugged_percent = if unplug.percent(20) { unplug.within(10, 40) } else { 0 };
        for node in &self.nodes {
            let (back, away) = node.away.take().into_iter().partition(|_| rng.percent(30));
            node.away.replace(away);
            back.into_iter().for_each(|disk| self.return_disk(node, disk));
            let slots = covered::slots(&node.sim_disks());
            let assignment = |disk: &Rc<SimDisk>| {
                let held = slots.iter().find(|(_, raw)| Rc::ptr_eq(&raw.disk, disk));
                held.map(|(&slot, _)| Slot::new(slot))
            };
            let mut here: SlotSet = slots.keys().map(|&slot| Slot::new(slot)).collect();
            let spares = |slot: Option<Slot>, here: SlotSet| {
                node.last_geometry().is_none_or(|geometry| {
                    slot.is_none() || geometry.survives(geometry.all_slots().difference(here))
                })
            };
            let (faulty, well): (Vec<_>, Vec<_>) =
                node.sim_disks().into_iter().partition(|disk| disk.has_fault());
            for disk in &faulty {
                let slot = assignment(disk);
                let without = slot.map_or(here, |slot| here.without(slot));
                // Where too many are sick, some must be well again.
                if rng.percent(crash.mended_percent) || !spares(slot, without) {
                    self.note(|| format!("    {} is well again", disk.name));
                    disk.clear_faults();
                } else {
                    here = without;
                    self.leave_out(node, disk, mark::LEFT_OUT);
                }
            }
            // A member that was faulty just now may lack data that the others have.
            here = faulty.iter().filter_map(assignment).fold(here, SlotSet::without);
            for disk in well.iter().filter(|_| node.may_miss.get()) {
                let slot = assignment(disk);
                let without = slot.map_or(here, |slot| here.without(slot));
                if unplug.percent(unplugged_percent) && spares(slot, without) {
                    here = without;
                    self.leave_out(node, disk, mark::UNPLUGGED);
                }
            }
            self.check_journal(node, crash.mended_percent);
        }
    }

    /// A member is not there when the array is assembled.
    fn leave_out(&self, node: &Node, disk: &Rc<SimDisk>, mark: &'static str) {
        self.note(|| format!("    {} is left out", disk.name));
        self.mark(mark);
        node.members.borrow_mut().remove(&disk.name);
        node.absent.borrow_mut().push(disk.name.clone());
        node.away.borrow_mut().push(Rc::clone(disk));
    }

    /// An excluded member is present again.
    pub(crate) fn return_disk(&self, node: &Node, disk: Rc<SimDisk>) {
        self.note(|| format!("    {} is back", disk.name));
        self.mark(mark::BACK);
        disk.clear_faults();
        node.members.borrow_mut().insert(disk.name.clone(), disk);
    }

    /// Assembles one array again, without its broken disks.
    pub(crate) async fn again(&self, node: &Rc<Node>) {
        // Lost disks stay out: broken disks are not present at a start.
        let present =
            |name: &str| self.stage.world.disk_named(name).is_none_or(|disk| !disk.has_fault());
        node.members.borrow_mut().retain(|name, _| present(name));
        self.check_journal(node, 50);
        self.assemble(node).await;
        self.mark(mark::ASSEMBLED);
    }

    /// Assembles one array, by the way out that a refusal names if need be.
    pub(crate) async fn assemble(&self, node: &Rc<Node>) {
        let outer = node.name == self.stage.node.name;
        let mut started = node.assemble(Consent::Degraded).await;
        if started.as_ref().is_err_and(|refusal| refusal.to_string().contains("two histories")) {
            // Of members that were excluded one after the other, the last and the first may each
            // have excluded the other. The administrator knows the later side.
            self.mark(mark::SIDES);
            node.leave_out_lost();
            started = node.assemble(Consent::Degraded).await;
        }
        let refusal = match started {
            Ok(_) => return self.offer(node, outer),
            Err(refusal) => refusal,
        };
        if refusal.to_string().contains("the intent log is not used") {
            node.note_lost_log(&refusal.to_string());
        }
        let way_out = refusal.to_string().contains("--force-dirty-degraded");
        let known = node.promise() == Promise::Unverified && refusal.kind() == ErrorKind::Refused;
        assert!(way_out && known, "{}: not assembled again: {}", node.name, chain(&refusal));
        self.note(|| format!("    {refusal}"));
        self.mark(mark::REFUSED);
        if !outer {
            // Its content is a guess: the outer array continues without it.
            self.stage.node.members.borrow_mut().remove(&node.name);
            return;
        }
        match node.assemble(Consent::Guesses).await {
            Ok(started) => {
                self.mark(mark::FORCED);
                let mut oracle = self.stage.oracle.borrow_mut();
                started.guessed.iter().for_each(|range| oracle.guess(range.clone()));
                // Listed bad blocks are as lost as a missing member's blocks.
                self.stage.doubted.borrow().iter().for_each(|range| oracle.guess(range));
                node.forced.set(true);
            }
            Err(error) => panic!("{}: the way out leads nowhere: {}", node.name, chain(&error)),
        }
    }

    /// An array that is a member of another one is a new disk to it.
    fn offer(&self, node: &Rc<Node>, outer: bool) {
        if !outer {
            let mut members = self.stage.node.members.borrow_mut();
            if let Some(member) = members.get_mut(&node.name) {
                *member = Rc::new(node.array()) as Rc<dyn Disk>;
            }
        }
    }

    /// Sets marks for the work after a crash.
    fn tell_recovery(&self) {
        for node in self.nodes.iter().filter(|node| node.running().is_some()) {
            let status = node.status();
            let some = |wanted: fn(&SlotState) -> bool| {
                status.slots.iter().any(|slot| wanted(&slot.state))
            };
            let idle = node.is_whole();
            self.mark(if status.unsynced_bytes > 0 { mark::RESYNCED } else { mark::UNHURT });
            if some(|state| matches!(state, SlotState::Rebuilding { below } if *below > 0)) {
                self.mark(mark::REBUILD_RESUMED);
            }
            if some(|state| matches!(state, SlotState::Replacing { below } if *below > 0)) {
                self.mark(mark::REPLACE_RESUMED);
            }
            if !idle && node.lost().iter().any(|name| self.stage.world.disk_named(name).is_some()) {
                self.mark(mark::STALE_REFUSED);
            }
        }
    }
}
