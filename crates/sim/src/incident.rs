//! What goes wrong, and what the people in charge do: drawn before the run, decided at its moment.
//!
//! An incident names its victim by numbers, not by names: whoever sits there when it comes. What
//! the level could not survive is not done (see the budget in `node.rs`), or, where a person may
//! ask for it, must be refused.

use std::rc::Rc;

use array::status::SlotState;
use io::Disk;
use layout::Slot;

use crate::disk::{Build, SimDisk};
use crate::node::Node;
use crate::options::{Dangers, Options};
use crate::rng::Rng;
use crate::workload::{Stage, chain};

/// Something that happens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum What {
    /// A member is failed by command.
    Command,
    /// A member is gone.
    Gone,
    /// Every write to a member fails.
    WriteError,
    /// A member does not answer, for so many milliseconds; 0: for ever.
    Hang(u64),
    /// A member takes so many times as long.
    Slow(u64),
    /// So many sectors of a member cannot be read, from this part (of 1,000) on; for ever if stuck.
    Unreadable {
        /// Where.
        part: u64,
        /// How many.
        sectors: u64,
        /// Writing does not mend them.
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
    /// The array is stopped, with requests under way or without, and assembled again.
    Restart(bool),
    /// The process dies and the array is assembled again.
    Kill,
}

/// Something that happens, when, and to whom.
#[derive(Clone, Copy, Debug)]
pub struct Incident {
    /// After so many answers to requests, of a thousand of all.
    pub after: u64,
    /// Then so many microseconds later.
    pub pause: u64,
    /// Which array, of those there are.
    pub node: u64,
    /// Which slot, of those there are.
    pub slot: u64,
    /// What.
    pub what: What,
}

/// The incidents of a run, in their order.
pub fn draw(options: &Options) -> Vec<Incident> {
    let Dangers { command, gone, write_error, hang, slow, unreadable, .. } = options.dangers;
    let Dangers { spare, readd, replace, scrub, restart, kill, .. } = options.dangers;
    let weights = [
        (command, 0),
        (gone, 1),
        (write_error, 2),
        (hang, 3),
        (slow, 4),
        (unreadable, 5),
        (spare, 6),
        (readd, 7),
        (replace, 8),
        (scrub, 9),
        (restart, 10),
        (kill, 11),
    ];
    if weights.iter().all(|&(weight, _)| weight == 0) {
        return Vec::new();
    }
    let mut incidents: Vec<Incident> = (0..options.incidents)
        .map(|number| {
            let mut rng = Rng::stream(options.seed, "incident", number as u64);
            let what = match rng.weighted(&weights) {
                0 => What::Command,
                1 => What::Gone,
                2 => What::WriteError,
                3 => What::Hang(if rng.percent(50) { 0 } else { rng.within(1, 900) }),
                4 => What::Slow(rng.within(2, 20)),
                5 => What::Unreadable {
                    part: rng.below(1000),
                    sectors: rng.skewed(64),
                    stuck: rng.percent(20),
                },
                6 => What::Spare,
                7 => What::Readd,
                8 => What::Replace,
                9 => What::Scrub(rng.percent(50)),
                10 => What::Restart(rng.percent(50)),
                _ => What::Kill,
            };
            Incident {
                after: rng.below(1000),
                pause: rng.skewed(20_000),
                node: rng.bits(),
                slot: rng.bits(),
                what,
            }
        })
        .collect();
    incidents.sort_by_key(|incident| incident.after);
    incidents
}

/// Who makes incidents happen.
pub struct Director {
    /// Where the clients are.
    pub stage: Rc<Stage>,
    /// All arrays; the clients' is the first.
    pub nodes: Vec<Rc<Node>>,
    /// What a new disk is like: large enough for any slot.
    pub build: Build,
    /// Requests of the whole run.
    pub requests: u64,
}

impl Director {
    /// Makes all incidents happen, one after the other.
    pub async fn direct(self: Rc<Self>, incidents: Vec<Incident>) {
        for incident in incidents {
            let due = self.requests * incident.after / 1000;
            while self.stage.answered.get() < due {
                self.stage.stirred.wait().await;
            }
            self.stage.world.pause(incident.pause).await;
            self.happen(incident).await;
        }
    }

    fn tell(&self, text: impl FnOnce() -> String) {
        self.stage.world.tell(text);
    }

    fn mark(&self, name: &'static str) {
        self.stage.world.trace.mark(name);
    }

    /// Makes one incident happen, if it may.
    pub async fn happen(&self, incident: Incident) {
        let node = &self.nodes[(incident.node % self.nodes.len() as u64) as usize];
        let slot = Slot::new((incident.slot % node.shape.members as u64) as usize);
        match incident.what {
            What::Command => self.command(node, slot).await,
            What::Spare => self.spare(node).await,
            What::Readd => self.readd(node, incident.slot).await,
            What::Replace => self.replace(node, slot).await,
            What::Scrub(repair) => self.scrub(node, repair),
            What::Restart(under_load) => self.restart(under_load).await,
            What::Kill => self.kill().await,
            harm => self.harm(node, slot, harm),
        }
    }

    /// Harms the disk in a slot, if the level survives it.
    fn harm(&self, node: &Node, slot: Slot, harm: What) {
        let Some(disk) = node.disk_in(slot) else { return };
        if let What::Slow(factor) = harm {
            // Slow is not dead: the slowest answer still comes well before the deadline.
            let deadline = node.shape.bounds.deadline.as_micros() as u64;
            let factor = factor.min(deadline / (64 * self.build.latency_us)).max(1);
            self.tell(|| {
                format!("INCIDENT {}: {} is {factor} times as slow", node.name, disk.name)
            });
            return disk.set_slow(factor);
        }
        if !node.can_lose(slot) {
            return;
        }
        self.tell(|| format!("INCIDENT {}: slot {slot}, {}: {harm:?}", node.name, disk.name));
        if node.status().job.is_some() {
            self.mark("harm during background work");
        }
        if !node.unwell().is_empty() {
            self.mark("harm while degraded");
        }
        match harm {
            What::Gone => disk.set_gone(true),
            What::WriteError => disk.set_write_error(true),
            What::Hang(millis) => self.hang(&disk, millis),
            What::Unreadable { part, sectors, stuck } => {
                let bytes = disk.limits().bytes;
                let used = node.geometry().member_bytes(slot);
                // Only where data is: a superblock that cannot be read is another story.
                let start = bytes.saturating_sub(used) + used * part / 1000;
                let len = (sectors * 512).min(bytes.saturating_sub(start));
                disk.set_unreadable(start, len, stuck);
            }
            _ => unreachable!("no harm to a disk"),
        }
    }

    fn hang(&self, disk: &Rc<SimDisk>, millis: u64) {
        disk.set_hung(true);
        if millis > 0 {
            let (disk, world) = (Rc::clone(disk), self.stage.world.clone());
            let again = async move {
                world.pause(millis * 1000).await;
                disk.set_hung(false);
            };
            self.stage.world.executor.spawn("end of a hang", again);
        }
    }

    async fn command(&self, node: &Node, slot: Slot) {
        let status = node.status();
        let Some(member) = &status.slots[slot.index()].member else { return };
        let known = node.unwell().with(slot);
        let survives = node.geometry().survives(known);
        if survives && !node.can_lose(slot) {
            // The engine does not know yet what else is about to fail: it would obey.
            return;
        }
        self.tell(|| format!("INCIDENT {}: fail slot {slot}, {}", node.name, member.name));
        let result = node.array().fail(member.id).await;
        self.tell(|| format!("    {result:?}"));
        match result {
            // What was missing before may have become whole just before the command's turn.
            Ok(()) => {
                let broken = node.status().mode == array::Mode::Broken;
                assert!(!broken, "{}: failing slot {slot} was not refused", node.name);
            }
            Err(error) if survives => {
                let still = node.status().slots[slot.index()].member.clone();
                let same = still.is_some_and(|still| still.id == member.id);
                let fine = node.geometry().survives(node.unwell().with(slot));
                assert!(!(same && fine), "{}: refused without need: {error}", node.name);
            }
            Err(_) => self.mark("a command was refused that would lose data"),
        }
    }

    async fn spare(&self, node: &Node) {
        if self.nodes.len() > 1 && node.name == self.stage.node.name {
            // Its spares would be arrays: those that were lost come back instead.
            return;
        }
        let disk = self.stage.world.disk(self.build);
        let name = disk.name.clone();
        self.tell(|| format!("INCIDENT {}: {name} is added", node.name));
        let degraded = !node.unwell().is_empty();
        let result = node.add(disk, &name).await;
        self.tell(|| format!("    {result:?}"));
        match result {
            Ok(_) if degraded => self.mark("a spare was added to a degraded array"),
            Ok(_) => self.mark("a spare was added"),
            Err(error) => self.excuse(node, &error, "adding a spare"),
        }
    }

    /// A command was refused: is there a reason?
    fn excuse(&self, node: &Node, error: &array::Error, what: &str) {
        let plain = node.geometry().redundancy() == 0;
        assert!(plain, "{}: {what} was refused: {}", node.name, chain(error));
    }

    /// A disk that was lost is repaired and comes back, by bitmap if it may, otherwise as a new
    /// one.
    pub async fn readd(&self, node: &Node, choice: u64) {
        let lost = node.lost();
        if lost.is_empty() {
            return;
        }
        let name = lost[(choice % lost.len() as u64) as usize].clone();
        let disk = node.members.borrow()[&name].clone();
        self.tell(|| format!("INCIDENT {}: {name} comes back", node.name));
        if let Some(sim) = self.stage.world.disk_named(&name) {
            sim.heal();
            // Whoever opens a disk anew has closed it before: nothing of the old days is under way.
            while sim.in_flight() > 0 {
                self.stage.world.pause(1000).await;
            }
        }
        if let Some(id) = node.id_of(&name) {
            let removed = node.array().remove(id).await;
            self.tell(|| format!("    removed: {removed:?}"));
        }
        let result = node.array().readd(Rc::clone(&disk), &name).await;
        self.tell(|| format!("    re-added: {result:?}"));
        if result.is_ok() {
            self.mark("a member came back by bitmap");
            return;
        }
        let result = node.add(disk, &name).await;
        self.tell(|| format!("    added: {result:?}"));
        match result {
            Ok(_) => self.mark("a lost member came back as a spare"),
            Err(error) => self.excuse(node, &error, "adding a lost member"),
        }
    }

    async fn replace(&self, node: &Node, slot: Slot) {
        let status = node.status();
        let Some(spare) = status.spares.first() else { return };
        self.tell(|| format!("INCIDENT {}: replace slot {slot} by {}", node.name, spare.name));
        let result = node.array().replace(slot, spare.id).await;
        self.tell(|| format!("    {result:?}"));
        match result {
            Ok(()) => self.mark("a replacement began"),
            Err(_) => {
                let whole = status.slots[slot.index()].state == SlotState::InSync;
                let spare_left = node.status().spares.iter().any(|s| s.id == spare.id);
                let still = node.status().slots[slot.index()].state == SlotState::InSync;
                assert!(!(whole && spare_left && still), "{}: refused without need", node.name);
            }
        }
    }

    fn scrub(&self, node: &Node, repair: bool) {
        let result = node.array().scrub(repair);
        self.tell(|| format!("INCIDENT {}: scrub, repair {repair}: {result:?}", node.name));
    }

    /// Stops the clients' array and assembles it again.
    async fn restart(&self, under_load: bool) {
        let (stage, node) = (&self.stage, &self.stage.node);
        if node.status().job.is_some() {
            self.mark("stopped during background work");
        }
        if !under_load {
            stage.paused.set(true);
            while stage.under_way.get() > 0 {
                stage.stirred.wait().await;
            }
        }
        self.tell(|| format!("INCIDENT restart, under load: {under_load}"));
        node.stop().await.expect("an array stops");
        stage.oracle.borrow_mut().keep_all();
        self.again(node).await;
        stage.paused.set(false);
        stage.stirred.raise();
    }

    /// The process dies, if the array is whole: what it was doing can then be put right. Where
    /// parity or a copy is missing that takes the log of a later day.
    async fn kill(&self) {
        let (stage, node) = (&self.stage, &self.stage.node);
        let whole =
            |node: &Rc<Node>| node.endangered().is_empty() && node.status().unsynced_bytes == 0;
        if self.nodes.len() > 1 || !whole(node) {
            return;
        }
        self.tell(|| "INCIDENT the process dies".into());
        self.mark("killed");
        if stage.under_way.get() > 0 {
            self.mark("killed with requests under way");
        }
        stage.deaths.set(stage.deaths.get() + 1);
        stage.oracle.borrow_mut().crash();
        node.kill();
        stage.stirred.raise();
        // The clients let go of the array.
        stage.world.pause(1).await;
        self.again(node).await;
        if node.status().unsynced_bytes > 0 {
            self.mark("resync after a kill");
        }
    }

    async fn again(&self, node: &Rc<Node>) {
        // Disks that were lost stay out: nobody brings a broken disk back to a start.
        let present =
            |name: &str| self.stage.world.disk_named(name).is_none_or(|disk| !disk.is_sick());
        node.members.borrow_mut().retain(|name, _| present(name));
        if let Err(error) = node.assemble().await {
            panic!("{}: not assembled again: {}", node.name, chain(&error));
        }
        self.mark("assembled again");
    }
}
