//! Faults and administrators' commands: drawn before the run, applied at their moment.
//!
//! An incident names its victim by number, not by name: the disk that is there at that moment. A
//! fault beyond the level's tolerance is skipped (see the budget in `node.rs`); a command beyond it
//! must be refused.

use std::rc::Rc;

use array::status::SlotState;
use io::Disk;
use layout::{Family, Slot, SlotSet};

use crate::crash::Crash;
use crate::cut::{Cut, Mode};
use crate::disk::{Build, SimDisk, WriteFault};
use crate::keep::Choice;
use crate::mark::{self, Part};
use crate::node::Node;
use crate::options::{Dangers, Options};
use crate::parts::Parts;
use crate::silent;
use crate::workload::{Stage, chain};
use random::Rng;

/// Something that happens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum What {
    /// A member is failed by command.
    Command,
    /// A member is gone.
    Gone,
    /// Every write to a member fails.
    WriteError,
    /// A member does not answer, for this many milliseconds; 0: for ever.
    Hang(u64),
    /// A member takes this many times as long.
    Slow(u64),
    /// This many sectors of a member are unreadable, from this part (of 1,000) on; for ever if
    /// stuck.
    Unreadable {
        /// Where.
        part: u64,
        /// How many.
        sectors: u64,
        /// A write does not repair them.
        stuck: bool,
    },
    /// A spare is added.
    Spare,
    /// A member that was lost comes back.
    Readd,
    /// A member is replaced while it is in service.
    Replace,
    /// A scrub is started, with repair or without.
    Scrub(bool),
    /// The array is stopped, with or without requests in flight, and assembled again.
    Restart(bool),
    /// The host dies and comes back.
    Crash(Crash),
    /// A member loses its power and its unflushed data: lost from then on.
    Alone(Mode),
    /// The store under a member is full.
    Full,
    /// A member's superblock cannot be written.
    SuperblockError,
    /// A member's next flush fails.
    FlushError,
    /// This member and the next one are lost at once.
    Twice,
    /// This member and others are absent for this many milliseconds.
    Burst(u64),
    /// Bytes rot.
    Rot(silent::Rot, u64),
    /// A write is lost (true), or lands elsewhere, and a scrub looks for it.
    Stray(bool, u64),
    /// The losses exceed the level's tolerance.
    Ruin(u64),
    /// Two halves go on apart.
    Split(u64),
    /// The host dies, and another engine runs the array.
    Foreign(u64),
    /// A member's flushes lie.
    Lie(u64),
    /// Something happens to the journal device.
    Journal(u64),
    /// The store of several members runs out of space.
    Store(u64),
}

/// An event, its time, and its victim.
#[derive(Clone, Copy, Debug)]
pub struct Incident {
    /// After this many answers to requests, of a thousand of all.
    pub after: u64,
    /// Then this many microseconds later.
    pub pause: u64,
    /// Which array, of those there are.
    pub node: u64,
    /// Which slot, of those there are.
    pub slot: u64,
    /// The event.
    pub what: What,
}

/// The incidents of a run, in their order.
pub fn draw(options: &Options) -> Vec<Incident> {
    let weights = weights(&options.dangers);
    let some = weights.iter().any(|&(weight, _)| weight > 0);
    let (common, lies) = (options.incidents, options.incidents + options.lies);
    let kept = (0..options.incidents_total())
        .filter(|&number| options.keep.keeps(Choice::Incident(number)))
        .filter(|&number| some || number >= common);
    let mut incidents: Vec<Incident> = kept
        .map(|number| {
            let mut rng = Rng::stream(options.seed, "incident", number as u64);
            let what = match number {
                _ if number < common => rng.weighted(&weights)(&mut rng),
                _ if number < lies => What::Lie(rng.bits()),
                _ => {
                    let power = rng.percent(70);
                    What::Crash(Crash::draw(&mut rng, power))
                }
            };
            let mut after = rng.below(1000);
            if number >= lies {
                // Crashes that must be are spread over the run.
                after = (1000 * (number - lies + 1) / (options.crashes + 1)) as u64;
            }
            Incident { after, pause: rng.skewed(20_000), node: rng.bits(), slot: rng.bits(), what }
        })
        .collect();
    incidents.sort_by_key(|incident| incident.after);
    incidents
}

/// Draws the incidents.
type Draw = fn(&mut Rng) -> What;

/// The possible incidents, and their frequency.
fn weights(dangers: &Dangers) -> [(u64, Draw); 26] {
    [
        (dangers.command, |_| What::Command),
        (dangers.gone, |_| What::Gone),
        (dangers.write_error, |_| What::WriteError),
        (dangers.hang, |rng| What::Hang(if rng.percent(50) { 0 } else { rng.within(1, 900) })),
        (dangers.slow, |rng| What::Slow(rng.pick(&[2, 5, 20, 100]))),
        (dangers.unreadable, |rng| What::Unreadable {
            part: rng.below(1000),
            sectors: rng.skewed(64),
            stuck: rng.percent(20),
        }),
        (dangers.spare, |_| What::Spare),
        (dangers.readd, |_| What::Readd),
        (dangers.replace, |_| What::Replace),
        (dangers.scrub, |rng| What::Scrub(rng.percent(50))),
        (dangers.stops.restart, |rng| What::Restart(rng.percent(50))),
        (dangers.stops.kill, |rng| What::Crash(Crash::draw(rng, false))),
        (dangers.stops.cut, |rng| What::Crash(Crash::draw(rng, true))),
        (dangers.stops.alone, |rng| What::Alone(Mode::draw(rng))),
        (dangers.full, |_| What::Full),
        (dangers.superblock_error, |_| What::SuperblockError),
        (dangers.flush_error, |_| What::FlushError),
        (dangers.twice, |_| What::Twice),
        (dangers.burst, |rng| What::Burst(rng.within(1, 400))),
        (dangers.rot, |rng| What::Rot(rng.pick(&silent::ROTS), rng.bits())),
        (dangers.stray, |rng| What::Stray(rng.percent(50), rng.bits())),
        (dangers.ruin, |rng| What::Ruin(rng.bits())),
        (dangers.split, |rng| What::Split(rng.bits())),
        (dangers.foreign, |rng| What::Foreign(rng.bits())),
        (dangers.journal, |rng| What::Journal(rng.bits())),
        (dangers.store, |rng| What::Store(rng.bits())),
    ]
}

/// Applies the incidents.
pub struct Director {
    /// Where the clients are.
    pub stage: Rc<Stage>,
    /// All arrays; the clients' is the first.
    pub nodes: Vec<Rc<Node>>,
    /// The properties of a new disk: large enough for any slot.
    pub build: Build,
    /// Requests of the whole run.
    pub requests: u64,
    /// Members are harmed although a crash has left parity unverified.
    pub has_unverified: bool,
    /// A power cut leaves garbage in a sector.
    pub garbage: bool,
    /// A rebuild meets losses beyond tolerance in most cases.
    pub ruins: bool,
    /// While there were more faults than this, as a share of the run, nothing but crashes happens.
    pub faults_most: u64,
}

impl Director {
    /// Makes all incidents happen, one after the other.
    pub async fn direct(self: Rc<Self>, incidents: Vec<Incident>) {
        for incident in incidents {
            let due = self.requests * incident.after / 1000;
            while self.stage.answered.get() < due {
                self.stage.stirred.wait().await;
            }
            let enough = self.faults_most.saturating_mul(incident.after) / 1000;
            let must = matches!(incident.what, What::Crash(_));
            if !must && self.stage.world.trace.faults() > enough {
                continue;
            }
            self.stage.world.pause(incident.pause).await;
            self.happen(incident).await;
        }
    }

    pub(crate) fn note(&self, text: impl FnOnce() -> String) {
        self.stage.world.note(text);
    }

    pub(crate) fn mark(&self, name: &'static str) {
        self.stage.world.trace.mark(name);
    }

    /// Makes one incident happen, if it may.
    pub async fn happen(self: &Rc<Self>, incident: Incident) {
        let node = &self.nodes[(incident.node % self.nodes.len() as u64) as usize];
        let slot = Slot::new((incident.slot % node.shape.members as u64) as usize);
        match incident.what {
            What::Command => self.command(node, slot).await,
            What::Spare => self.spare(node).await,
            What::Readd => self.readd(node, incident.slot).await,
            What::Replace => self.replace(node, slot).await,
            What::Scrub(repair) => self.scrub(node, repair),
            What::Restart(under_load) => self.restart(under_load).await,
            What::Crash(crash) => self.crash(crash).await,
            What::Twice => self.several(node, slot, 2, 0),
            What::Burst(millis) => self.several(node, slot, 3, millis),
            What::Rot(rot, chance) => self.rot(node, slot, rot, chance).await,
            What::Stray(lost, chance) => self.stray(slot, lost, chance).await,
            What::Ruin(chance) => self.ruin(chance).await,
            What::Split(chance) => self.split(chance).await,
            What::Foreign(chance) => self.foreign(chance).await,
            What::Lie(chance) => self.lying_flush(slot, chance).await,
            What::Journal(chance) => self.fault_journal(node, chance),
            What::Store(chance) => self.fill_up(chance).await,
            kind => self.fail_member(node, slot, kind),
        }
    }

    /// Harms the disk in a slot, if the level survives it.
    fn fail_member(&self, node: &Rc<Node>, slot: Slot, kind: What) {
        let Some(disk) = node.disk_in(slot) else { return };
        if let What::Slow(factor) = kind {
            return self.slow(node, &disk, factor);
        }
        if !self.may_harm(node, slot) {
            return;
        }
        self.note(|| format!("INCIDENT {}: slot {slot}, {}: {kind:?}", node.name, disk.name));
        self.note_fault(node, slot, kind);
        self.stage.world.trace.fault();
        self.expose(Rc::ptr_eq(node, &self.nodes[0]).then_some(slot));
        match kind {
            What::Gone => {
                self.mark(mark::GONE);
                disk.set_gone(true);
            }
            What::WriteError => {
                self.mark(mark::F2);
                disk.set_write_fault(Some(WriteFault::All));
            }
            What::Full => {
                self.mark(mark::F15);
                disk.set_write_fault(Some(WriteFault::NoSpace));
            }
            What::SuperblockError => {
                let Some(range) = Parts::of(&disk, None).range(Part::Superblock) else { return };
                self.mark(mark::F2_SUPERBLOCK);
                disk.set_write_fault(Some(WriteFault::Within(range.start, range.end)));
            }
            What::FlushError => {
                self.mark(mark::F20);
                disk.set_flush_fault();
            }
            What::Alone(mode) => {
                let mut cut = Cut::new(mode, true, Rng::stream(disk.number, "alone", 0));
                if disk.lose_power(&mut cut) {
                    self.mark(mark::F10_ALONE);
                }
            }
            What::Hang(millis) => {
                self.mark(if millis > 0 { mark::F3_SHORT } else { mark::F3 });
                self.hang(node, &disk, millis);
            }
            What::Unreadable { part, sectors, stuck } => {
                self.mark(if stuck { mark::F1_STUCK } else { mark::F1 });
                let bytes = disk.limits().bytes;
                let used = node.geometry().member_bytes(slot);
                // Only where data is: a superblock that cannot be read is another story.
                let start = bytes.saturating_sub(used) + used * part / 1000;
                let len = (sectors * 512).min(bytes.saturating_sub(start));
                disk.set_unreadable(start, len, stuck);
            }
            _ => unreachable!("not a fault of a disk"),
        }
    }

    /// May the budget be spent on this slot?
    fn may_harm(&self, node: &Rc<Node>, slot: Slot) -> bool {
        node.can_lose(slot) && (node.bears_loss() || self.may_be_unverified(node))
    }

    /// May a member be harmed before parity is in sync after a crash? Its blocks there may then be
    /// errors until they are rewritten.
    fn may_be_unverified(&self, node: &Rc<Node>) -> bool {
        let unverified = node.unverified();
        let parity = node.geometry().family() == Family::Parity;
        if !self.has_unverified || self.nodes.len() > 1 || !parity || unverified.is_empty() {
            return false;
        }
        let (mut doubted, stripe) =
            (self.stage.doubted.borrow_mut(), node.geometry().stripe_bytes());
        // With one such loss each write has a place. With a second one, cached writes may have
        // none, as later ones (`Stage::is_unsure`).
        if !doubted.is_empty() && node.status().cached_bytes > 0 {
            self.stage.stuck.set(true);
        }
        let capacity = node.geometry().capacity();
        for range in unverified.iter() {
            let end = range.end.next_multiple_of(stripe).min(capacity);
            doubted.insert(range.start / stripe * stripe..end);
        }
        true
    }

    /// Sets marks for operations in flight while a member is harmed.
    fn note_fault(&self, node: &Node, slot: Slot, kind: What) {
        let status = node.status();
        if let Some(job) = &status.job {
            self.mark(mark::HARM_BUSY);
            let rebuild = matches!(job.kind, array::JobKind::Rebuild(_));
            match kind {
                What::Unreadable { .. } if rebuild => self.mark(mark::HARM_REBUILD_READ),
                What::Scrub(_) => {}
                _ if rebuild => self.mark(mark::F13),
                _ => {}
            }
        }
        if !node.unwell().is_empty() {
            self.mark(mark::HARM_DEGRADED);
        }
        if status.unsynced_bytes > 0 {
            self.mark(mark::HARM_UNSYNCED);
        }
        if matches!(status.slots[slot.index()].state, SlotState::Rebuilding { .. }) {
            self.mark(mark::HARM_SPARE);
        }
    }

    /// Slow is not dead.
    fn slow(&self, node: &Node, disk: &SimDisk, wanted: u64) {
        let factor = wanted.min(node.slowest(self.build.latency_us));
        self.note(|| format!("INCIDENT {}: {} is {factor} times as slow", node.name, disk.name));
        self.mark(if factor >= 100 { mark::F4_HUNDRED } else { mark::F4 });
        disk.set_slow(factor);
    }

    /// As many members as the level tolerates, this one and its successors, are lost at once: for
    /// this many milliseconds, or for good.
    fn several(&self, node: &Rc<Node>, first: Slot, most: usize, millis: u64) {
        let slots = node.shape.members;
        let mut harmed = 0;
        for step in 0..slots {
            let slot = Slot::new((first.index() + step) % slots);
            let Some(disk) = node.disk_in(slot) else { continue };
            if harmed == most || disk.has_fault() || !self.may_harm(node, slot) {
                continue;
            }
            self.note(|| format!("INCIDENT {}: slot {slot}, {}: gone", node.name, disk.name));
            disk.set_gone(true);
            self.stage.world.trace.fault();
            self.expose(None);
            harmed += 1;
            if millis > 0 {
                let world = self.stage.world.clone();
                let shaky = 2 * node.shape.bounds.deadline.as_micros() as u64;
                let back = async move {
                    world.pause(millis * 1000).await;
                    disk.set_gone(false);
                    disk.set_shaky(shaky);
                };
                self.stage.world.executor.spawn("end of a burst", back);
            }
        }
        match (harmed, millis) {
            (0 | 1, _) => {}
            (_, 0) => self.mark(mark::TWO_AT_ONCE),
            _ => self.mark(mark::BURST),
        }
    }

    fn hang(&self, node: &Node, disk: &Rc<SimDisk>, millis: u64) {
        disk.set_hung(true);
        if millis > 0 {
            let (disk, world) = (Rc::clone(disk), self.stage.world.clone());
            // That it missed its deadline may be known, and not yet on record.
            let shaky = 2 * node.shape.bounds.deadline.as_micros() as u64;
            let again = async move {
                world.pause(millis * 1000).await;
                disk.set_hung(false);
                disk.set_shaky(shaky);
            };
            self.stage.world.executor.spawn("end of a hang", again);
        }
    }

    async fn command(&self, node: &Node, slot: Slot) {
        let status = node.status();
        let Some(member) = &status.slots[slot.index()].member else { return };
        let known = node.unwell().with(slot);
        let survives = node.geometry().survives(known);
        let bears = match survives {
            true => node.can_lose(slot) && node.bears_loss(),
            // A rebuild may be through before the command's turn.
            false => {
                let geometry = node.geometry();
                let empty = status.slots.iter().filter(|slot| slot.member.is_none());
                let then = empty.map(|slot| slot.slot).collect::<SlotSet>().with(slot);
                !geometry.survives(then) || geometry.survives(node.faulty_slots().union(then))
            }
        };
        if !bears {
            // The engine cannot foresee the next fault: it would obey.
            return;
        }
        self.note(|| format!("INCIDENT {}: fail slot {slot}, {}", node.name, member.name));
        let result = node.array().fail(member.id).await;
        self.note(|| format!("    {result:?}"));
        match result {
            // A missing slot may have been filled just before the command's turn.
            Ok(()) => {
                let broken = node.status().mode == layout::Mode::Broken;
                assert!(!broken, "{}: failing slot {slot} was not refused", node.name);
            }
            Err(error) if survives => {
                let still = node.status().slots[slot.index()].member.clone();
                let same = still.is_some_and(|still| still.id == member.id);
                let fine = node.geometry().survives(node.unwell().with(slot));
                assert!(!(same && fine), "{}: refused without need: {error}", node.name);
            }
            Err(_) => self.mark(mark::COMMAND_REFUSED),
        }
    }

    async fn spare(&self, node: &Node) {
        if self.nodes.len() > 1 && node.name == self.stage.node.name {
            // Its spares would be arrays: lost ones return instead.
            return;
        }
        let disk = self.stage.world.disk(self.build);
        let name = disk.name.clone();
        self.note(|| format!("INCIDENT {}: {name} is added", node.name));
        let degraded = !node.unwell().is_empty();
        let result = node.add(disk, &name).await;
        self.note(|| format!("    {result:?}"));
        match result {
            Ok(_) if degraded => self.mark(mark::SPARE_NEEDED),
            Ok(_) => self.mark(mark::SPARE),
            Err(error) => self.check_error(node, &error, "adding a spare"),
        }
    }

    /// A command was refused: is there a reason?
    fn check_error(&self, node: &Node, error: &metadata::Error, what: &str) {
        let plain = node.geometry().redundancy() == 0;
        assert!(plain, "{}: {what} was refused: {}", node.name, chain(error));
    }

    /// A disk that was lost is repaired and comes back, by bitmap if it may, otherwise as a new
    /// one.
    pub async fn readd(&self, node: &Node, choice: u64) {
        if choice.is_multiple_of(2) {
            // Only now somebody reconnects it.
            node.away.take().into_iter().for_each(|disk| self.return_disk(node, disk));
        }
        let lost = node.lost();
        if lost.is_empty() {
            return;
        }
        let name = lost[(choice % lost.len() as u64) as usize].clone();
        let disk = node.members.borrow()[&name].clone();
        self.note(|| format!("INCIDENT {}: {name} comes back", node.name));
        if let Some(sim) = self.stage.world.disk_named(&name) {
            sim.plug();
            sim.clear_faults();
            // Reopening a disk closes the old handle first: no old operation is in flight. With the
            // same handle the engine must ensure that.
            while choice.is_multiple_of(3) && sim.in_flight() > 0 {
                self.stage.world.pause(1000).await;
            }
        }
        if let Some(id) = node.id_of(&name) {
            let removed = node.array().remove(id).await;
            self.note(|| format!("    removed: {removed:?}"));
        }
        let result = node.array().readd(Rc::clone(&disk), &name).await;
        self.note(|| format!("    re-added: {result:?}"));
        if result.is_ok() {
            self.mark(mark::READDED);
            return;
        }
        let result = node.add(disk, &name).await;
        self.note(|| format!("    added: {result:?}"));
        match result {
            Ok(_) => self.mark(mark::RETURNED),
            Err(error) => self.check_error(node, &error, "adding a lost member"),
        }
    }

    async fn replace(&self, node: &Node, slot: Slot) {
        let status = node.status();
        let Some(spare) = status.spares.first() else { return };
        self.note(|| format!("INCIDENT {}: replace slot {slot} by {}", node.name, spare.name));
        let result = node.array().replace(slot, spare.id).await;
        self.note(|| format!("    {result:?}"));
        match result {
            Ok(()) => self.mark(mark::REPLACING),
            Err(_) => {
                let bytes = |name: &str| {
                    self.stage.world.disk_named(name).map_or(0, |disk| disk.limits().bytes)
                };
                // Without redundancy each member has a size of its own.
                let member = status.slots[slot.index()].member.as_ref();
                let small = member.is_some_and(|member| bytes(&member.name) > bytes(&spare.name));
                let whole = status.slots[slot.index()].state == SlotState::InSync;
                let spare_left = node.status().spares.iter().any(|s| s.id == spare.id);
                let still = node.status().slots[slot.index()].state == SlotState::InSync;
                assert!(
                    small || !(whole && spare_left && still),
                    "{}: refused without need",
                    node.name
                );
            }
        }
    }

    fn scrub(&self, node: &Node, repair: bool) {
        let result = node.array().scrub(repair);
        self.note(|| format!("INCIDENT {}: scrub, repair {repair}: {result:?}", node.name));
    }

    /// Stops the clients' array and assembles it again.
    pub(crate) async fn restart(&self, under_load: bool) {
        let (stage, node) = (&self.stage, &self.stage.node);
        if node.status().job.is_some() {
            self.mark(mark::STOPPED_BUSY);
        }
        if !under_load {
            stage.paused.set(true);
            while stage.under_way.get() > 0 {
                stage.stirred.wait().await;
            }
        }
        self.note(|| format!("INCIDENT restart, under load: {under_load}"));
        let stopped = node.stop().await;
        match stopped {
            Ok(()) => stage.oracle.borrow_mut().keep_all(),
            Err(error) => {
                assert!(stage.stuck.get(), "an array does not stop: {}", chain(&error));
                // Data that cannot be written out is lost.
                stage.deaths.set(stage.deaths.get() + 1);
                stage.oracle.borrow_mut().crash(self.caches(false));
            }
        }
        stage.stuck.set(false);
        self.again(node).await;
        stage.paused.set(false);
        stage.stirred.raise();
    }

    /// Unnoticed members without power are removed. True if there are any.
    pub async fn give_up_dead(&self, node: &Node) -> bool {
        let status = node.status();
        let dead =
            |name: &str| self.stage.world.disk_named(name).filter(|disk| disk.is_unplugged());
        for spare in &status.spares {
            if let Some(disk) = dead(&spare.name) {
                disk.plug();
                disk.clear_faults();
            }
        }
        let mut found = false;
        let assigned =
            status.slots.iter().flat_map(|slot| slot.member.iter().chain(&slot.replacement));
        for member in assigned.filter(|member| dead(&member.name).is_some()) {
            found = true;
            let result = node.array().fail(member.id).await;
            self.note(|| format!("{}: {} is dead: {result:?}", node.name, member.name));
        }
        found
    }
}
