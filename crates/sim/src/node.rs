//! An array in the world: its members, its life, and its possible losses.
//!
//! A node acts like a host with one array: it creates it from disks, starts it, stops it, and
//! assembles it from the present disks. Also here is the *damage budget*: a member may be harmed
//! only if the level tolerates its loss together with all other faulty members. So in every run
//! except overloaded ones an error to a client is a bug.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

use array::status::{EventKind, MemberStatus, SlotState, Status};
use array::{Array, Host};
use io::{Clock, Disk};
use layout::{Family, Geometry, MemberId, RangeSet, Slot, SlotSet};
use metadata::assemble::{Assembly, Candidate, Note, Options as AssembleOptions, assemble};
use metadata::create::{BitmapChunk, NewArray, create_with_journal};

use crate::disk::SimDisk;
use crate::executor::TaskId;
use crate::journal::Journal;
use crate::options::{Promise, Shape};
use crate::world::World;
use crate::{check, covered, logged, mark};

/// One array of the world.
pub struct Node {
    /// Its properties.
    pub shape: Shape,
    /// Its name.
    pub name: String,
    world: World,
    array: RefCell<Option<Array>>,
    /// The tasks that drive the array and that listen to its log.
    tasks: Cell<Option<(TaskId, TaskId)>>,
    /// Every disk that was ever a member and still exists, by name.
    pub members: RefCell<BTreeMap<String, Rc<dyn Disk>>>,
    /// Disks excluded at an assembly, which may be present at the next one.
    pub away: RefCell<Vec<Rc<SimDisk>>>,
    /// When the host died, the array could do without any member that its level can do without.
    pub may_miss: Cell<bool>,
    /// The members and spares at the last inspection.
    last_assigned: RefCell<Vec<String>>,
    /// Disks ever excluded at a start.
    pub absent: RefCell<Vec<String>>,
    /// The number of each member in the running array, including lost ones.
    ids: RefCell<BTreeMap<String, MemberId>>,
    /// Raised when an array has started.
    pub started: io::Signal,
    /// How many arrays were started here.
    pub lives: Cell<u64>,
    /// Where the bytes of the last array that ran here lived.
    last_geometry: RefCell<Option<Geometry>>,
    /// Ranges out of sync at the start, in array space, because of a crash.
    unverified: RefCell<RangeSet>,
    /// Unverified parity was trusted: no further loss is tolerated before the array is complete.
    pub forced: Cell<bool>,
    /// Parity was in sync once since all of it was known: with a log it is never unverified again.
    proven: Cell<bool>,
    /// Another engine has bypassed the log, and some members have no new record of ours yet.
    spoiled: Cell<bool>,
    /// The running array has reported a replay.
    resolved: Cell<bool>,
    /// The last one died before it did.
    settle_cut: Cell<bool>,
    /// Its journal device.
    pub journal: Journal,
}

/// The allowed losses of an assembly.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Consent {
    /// Members may be missing.
    Degraded,
    /// Also where lost blocks can only be guessed.
    Guesses,
}

/// The losses of an assembly.
pub struct Started {
    /// Array ranges that were held by missing members, and not in sync: guesses.
    pub guessed: Vec<Range<u64>>,
}

impl Node {
    /// A node without an array.
    pub fn new(world: &World, name: impl Into<String>, shape: Shape) -> Rc<Node> {
        Rc::new(Node {
            shape,
            name: name.into(),
            world: world.clone(),
            array: RefCell::default(),
            tasks: Cell::default(),
            away: RefCell::default(),
            may_miss: Cell::new(false),
            members: RefCell::default(),
            last_assigned: RefCell::default(),
            absent: RefCell::default(),
            ids: RefCell::default(),
            started: io::Signal::new(),
            lives: Cell::new(0),
            last_geometry: RefCell::default(),
            unverified: RefCell::default(),
            forced: Cell::new(false),
            proven: Cell::new(false),
            spoiled: Cell::new(false),
            resolved: Cell::new(false),
            settle_cut: Cell::new(false),
            journal: Journal::default(),
        })
    }

    /// The requested number of shards, if the intent log has room for them.
    fn host(&self, most_shards: Option<u64>) -> Host {
        let clock: Rc<dyn Clock> = Rc::clone(&self.world.clock) as _;
        let mut host = Host::new(clock);
        host.bounds = self.shape.bounds;
        let most = most_shards.map_or(usize::MAX, |most| most as usize);
        host.shards = self.shape.shards.min(most);
        host.check_reads = self.shape.check_reads;
        host.cache = self.shape.cache;
        host
    }

    fn random(&self) -> metadata::commit::Random {
        let rng = RefCell::new(self.world.rng(&self.name, self.lives.get()));
        Rc::new(move |bytes: &mut [u8]| {
            bytes.iter_mut().for_each(|byte| *byte = rng.borrow_mut().bits() as u8);
        })
    }

    fn candidates(&self) -> Vec<Candidate> {
        let members = self.members.borrow();
        let journal = self.journal.present();
        let journal = journal.map(|disk| Candidate::new(Rc::clone(&disk) as _, &disk.name));
        let members = members.iter().map(|(name, disk)| Candidate::new(Rc::clone(disk), name));
        members.chain(journal).collect()
    }

    /// Makes a new array of these disks and starts it.
    ///
    /// # Errors
    /// As the engine says.
    pub async fn create(
        self: &Rc<Self>,
        disks: Vec<(String, Rc<dyn Disk>)>,
        zeroed: bool,
    ) -> metadata::Result<()> {
        let candidates: Vec<Candidate> =
            disks.iter().map(|(name, disk)| Candidate::new(Rc::clone(disk), name)).collect();
        self.members.borrow_mut().extend(disks);
        let clock: Rc<dyn Clock> = Rc::clone(&self.world.clock) as _;
        let shape = &self.shape;
        let chunk = shape.bitmap_chunk.map(BitmapChunk::Bytes);
        let new = NewArray {
            version: shape.version,
            bitmap: chunk,
            spares: candidates.len() - shape.members,
            consistency: Some(shape.consistency),
            checksums: Some(shape.checksums),
            zeroed,
            // Noise may look like anything.
            overwrite: true,
            ..NewArray::new(&self.name, shape.layout, shape.chunk_bytes)
        };
        let journal = self.journal.present();
        let journal = journal.map(|disk| Candidate::new(Rc::clone(&disk) as _, &disk.name));
        let disks = (candidates, journal);
        let facts = create_with_journal(&new, disks, &clock, &*self.random()).await?;
        self.world.note(|| format!("{}: created, {} bytes", self.name, facts.capacity));
        self.assemble(Consent::Degraded).await.map(drop)
    }

    /// Assembles the array from all the disks there are, in any order, and starts it.
    ///
    /// # Errors
    /// As the engine says.
    pub async fn assemble(self: &Rc<Self>, consent: Consent) -> metadata::Result<Started> {
        let mut candidates = self.candidates();
        self.world.rng("order of candidates", self.lives.get()).shuffle(&mut candidates);
        let options = AssembleOptions {
            degraded: true,
            force_dirty_degraded: consent == Consent::Guesses,
            deadline: self.shape.bounds.deadline,
            journal: self
                .journal
                .present()
                .filter(|_| self.journal.wanted.get())
                .map(|disk| disk.name.clone()),
            ..AssembleOptions::default()
        };
        let clock: Rc<dyn Clock> = Rc::clone(&self.world.clock) as _;
        let mut assembly = assemble(candidates, &options, clock, self.random()).await?;
        for note in &assembly.notes {
            self.world.note(|| format!("{}: assembling: {note}", self.name));
            self.mark_note(note, &assembly);
        }
        let layout = assembly.geometry.layout();
        assert_eq!(
            layout, self.shape.layout,
            "{}: another layout than it was made with",
            self.name
        );
        assembly.geometry = assembly.geometry.with_region_bytes(self.shape.region_bytes);
        let guessed = match consent {
            Consent::Degraded => Vec::new(),
            Consent::Guesses => guesses(&assembly),
        };
        *self.unverified.borrow_mut() = if assembly.recovered.unverified {
            assembly.recovered.unsynced.clone()
        } else {
            RangeSet::new()
        };
        self.start(assembly);
        Ok(Started { guessed })
    }

    /// Sets marks for replayed rows.
    fn note_settled(&self) {
        self.resolved.set(true);
        self.world.trace.mark(mark::SETTLED);
        if self.running().is_some() && !self.unwell().is_empty() {
            self.world.trace.mark(mark::SETTLED_DEGRADED);
        }
        if self.settle_cut.replace(false) {
            self.world.trace.mark(mark::SETTLE_CUT);
        }
    }

    /// Sets marks for stale members reported by an assembly.
    fn mark_note(&self, note: &Note, assembly: &Assembly) {
        match note {
            Note::Stale { events, latest_events, .. } => {
                self.world.trace.mark(mark::STALE_REFUSED);
                if latest_events - events <= 1 {
                    self.world.trace.mark(mark::STALE_BY_ONE);
                }
            }
            Note::Unsynced { .. } => {
                let behind = self.sim_disks().iter().filter_map(covered::read).any(|raw| {
                    raw.events + 1 == assembly.events() && raw.role(raw.number) < 0xfffd
                });
                if behind {
                    self.world.trace.mark(mark::BEHIND_ACCEPTED);
                }
            }
            Note::LogUnusable { why } => {
                self.world.trace.mark(mark::LOG_UNUSABLE);
                self.note_lost_log(why);
                assert!(!self.proven.get(), "{}: the log is not trusted: {why}", self.name);
            }
            _ => {}
        }
    }

    fn start(self: &Rc<Self>, assembly: Assembly) {
        *self.last_geometry.borrow_mut() = Some(assembly.geometry.clone());
        self.forced.set(false);
        self.resolved.set(false);
        self.journal.lost.set(false);
        self.journal.wanted.set(false);
        let host = self.host(assembly.most_shards());
        let array = Array::start(assembly, &host);
        self.ids.borrow_mut().clear();
        self.lives.set(self.lives.get() + 1);
        let name = format!("array {}", self.name);
        let run = self.world.executor.spawn(name, array.run());
        let log = tell_log(Rc::clone(self), array.clone());
        let log = self.world.executor.spawn(format!("log of {}", self.name), log);
        self.tasks.set(Some((run, log)));
        *self.array.borrow_mut() = Some(array);
        // The query also updates the list of members.
        self.status();
        self.world.note(|| format!("{}: started", self.name));
        self.started.raise();
    }

    /// Of two that ran here apart, the one with these members is kept.
    pub fn choose(&self, assigned: Vec<String>) {
        *self.last_assigned.borrow_mut() = assigned;
    }

    /// Excludes disks without a role in the last array that ran here, or in the chosen one; not
    /// those merely absent at a start, and still members on record.
    pub fn leave_out_lost(&self) {
        let (last, absent) = (self.last_assigned.borrow(), self.absent.borrow());
        let mut disks = self.sim_disks();
        disks.retain(|disk| last.contains(&disk.name) || absent.contains(&disk.name));
        let slots = covered::slots(&disks);
        let on_record = |name: &String| slots.values().any(|raw| raw.disk.name == *name);
        self.members.borrow_mut().retain(|name, _| last.contains(name) || on_record(name));
    }

    /// The running array.
    ///
    /// # Panics
    /// If none is running.
    pub fn array(&self) -> Array {
        self.running().expect("the array runs")
    }

    /// The running array, if there is one.
    pub fn running(&self) -> Option<Array> {
        self.array.borrow().clone()
    }

    /// How the running array is.
    pub fn status(&self) -> Status {
        let status = self.array().status();
        let mut ids = self.ids.borrow_mut();
        *self.last_assigned.borrow_mut() =
            all_members(&status).map(|member| member.name.clone()).collect();
        for member in all_members(&status) {
            ids.insert(member.name.clone(), member.id);
        }
        if status.log_conflicts > 0 {
            self.world.trace.mark(mark::LOG_CONFLICT);
        }
        // As far as it is on record.
        let synced = status.unsynced_bytes == 0 && status.job.is_none();
        if synced && status.clean && !self.proven.get() {
            match self.spoiled.get() {
                true => self.hold_to_record(),
                false => self.proven.set(true),
            }
        }
        status
    }

    /// The number of a member, including lost ones.
    pub fn id_of(&self, name: &str) -> Option<MemberId> {
        self.ids.borrow().get(name).copied()
    }

    /// Takes in a disk as a spare.
    ///
    /// # Errors
    /// As the engine says.
    pub async fn add(&self, disk: Rc<dyn Disk>, name: &str) -> metadata::Result<MemberId> {
        let id = self.array().add(Rc::clone(&disk), name).await?;
        self.members.borrow_mut().insert(name.to_string(), disk);
        self.ids.borrow_mut().insert(name.to_string(), id);
        Ok(id)
    }

    /// Stops the array cleanly.
    ///
    /// # Errors
    /// As the engine says.
    pub async fn stop(&self) -> metadata::Result<()> {
        let array = self.array.take().expect("the array runs");
        self.world.note(|| format!("{}: stopping", self.name));
        let result = array.stop().await;
        drop(array);
        // Give its tasks a moment to see it.
        self.world.pause(1).await;
        let (run, log) = self.tasks.take().expect("a running array has tasks");
        self.world.executor.abort(log);
        assert!(self.world.executor.has_ended(run), "run() did not end after stop()");
        self.sim_disks().iter().for_each(|disk| disk.drop_outstanding());
        result
    }

    /// The process dies: the array is gone, whatever it was doing. Its disks may lose operations in
    /// flight. `cut`: rows torn by the last crash are not replayed yet.
    pub fn kill(&self, cut: bool) {
        self.settle_cut.set(cut && self.running().is_some() && !self.resolved.get());
        self.array.take();
        if let Some((run, log)) = self.tasks.take() {
            self.world.executor.abort(run);
            self.world.executor.abort(log);
        }
    }

    /// Where the bytes live, also while no array runs; `None` before the first has.
    pub fn last_geometry(&self) -> Option<Geometry> {
        self.last_geometry.borrow().clone()
    }

    /// The slot that a disk holds by its own account, if it is a member here.
    pub fn slot_of(&self, disk: &Rc<SimDisk>) -> Option<(Geometry, Slot)> {
        if !self.members.borrow().contains_key(&disk.name) {
            return None;
        }
        let geometry = self.last_geometry()?;
        let slot = check::member(disk).ok()?.slot()?;
        (slot.index() < geometry.slots()).then_some((geometry, slot))
    }

    /// Array ranges that a crash has left unverified, and that may not be in sync yet.
    pub fn unverified(&self) -> RangeSet {
        let synced = self.running().is_none_or(|array| array.status().unsynced_bytes == 0);
        if synced { RangeSet::new() } else { self.unverified.borrow().clone() }
    }

    /// The running array has made rows right from its log.
    pub fn has_settled(&self) -> bool {
        self.resolved.get()
    }

    /// The simulated disks among the members.
    pub fn sim_disks(&self) -> Vec<Rc<SimDisk>> {
        let members = self.members.borrow();
        members.keys().filter_map(|name| self.world.disk_named(name)).collect()
    }

    /// The simulated disk in a slot.
    pub fn disk_in(&self, slot: Slot) -> Option<Rc<SimDisk>> {
        let status = self.status();
        let member = status.slots[slot.index()].member.as_ref()?;
        self.world.disk_named(&member.name)
    }

    /// Where the bytes live.
    pub fn geometry(&self) -> Geometry {
        self.array().geometry().clone()
    }

    /// Slots that the engine knows not to be whole.
    pub fn unwell(&self) -> SlotSet {
        let status = self.status();
        let unwell = status
            .slots
            .iter()
            .filter(|slot| !matches!(slot.state, SlotState::InSync | SlotState::Replacing { .. }));
        unwell.map(|slot| slot.slot).collect()
    }

    /// Slots out of sync, or whose disk may yet fail.
    pub fn endangered(&self) -> SlotSet {
        self.faulty_slots().union(self.unwell())
    }

    /// Slots whose disk may yet fail.
    pub fn faulty_slots(&self) -> SlotSet {
        let status = self.status();
        let faulty = status.slots.iter().filter(|slot| {
            let member = slot.member.as_ref().and_then(|m| self.world.disk_named(&m.name));
            member.is_some_and(|disk| disk.has_fault() || disk.may_have_fault())
        });
        faulty.map(|slot| slot.slot).collect()
    }

    /// With this factor of slowness a disk still answers well before the deadline.
    pub fn slowest(&self, latency_us: u64) -> u64 {
        (self.shape.bounds.deadline.as_micros() as u64 / (64 * latency_us)).max(1)
    }

    /// May this slot be harmed without loss of data, except for unverified blocks after a crash?
    pub fn can_lose(&self, slot: Slot) -> bool {
        let geometry = self.geometry();
        !self.forced.get() && geometry.survives(self.endangered().with(slot))
    }

    /// Nothing waits to be synced.
    pub fn is_synced(&self) -> bool {
        self.status().unsynced_bytes == 0
    }

    /// The promise for a crash together with a member loss. Closed only after parity was in sync
    /// for the first time.
    pub fn promise(&self) -> Promise {
        if self.proven.get() { self.shape.promise() } else { Promise::Unverified }
    }

    /// If the array's own records say that the log covers all rows that a crash may have torn, the
    /// check requires that.
    pub fn hold_to_record(&self) {
        let slots = covered::slots(&self.sim_disks());
        if logged::logs_cover_crash(&slots) && self.journal.has_session(&slots) {
            self.spoiled.set(false);
            self.proven.set(true);
        }
    }

    /// After the loss of the journal device together with a member, the array's own records say
    /// that parity is unverified.
    pub fn check_recorded_parity(&self, disks: &[Rc<SimDisk>]) {
        if self.journal.harmed.get() && !logged::logs_cover_crash(&covered::slots(disks)) {
            self.corrupt_log();
        }
    }

    /// Compares the members of the crashed array with their dirty marks.
    ///
    /// # Errors
    /// The first place that is out of step and not marked.
    pub fn covered(&self, geometry: &Geometry, disks: &[Rc<SimDisk>]) -> Result<(), String> {
        let journal = self.journal.disk.borrow().clone();
        covered::covered(geometry, disks, self.promise(), journal.as_ref())
    }

    /// The log was damaged or bypassed without the array's knowledge: parity is unverified until it
    /// is in sync again, and this is recorded on every member.
    pub fn corrupt_log(&self) {
        self.proven.set(false);
        self.spoiled.set(true);
    }

    /// Of a member that is an array, a crash may lose the block of the log that was being written.
    /// `why` is the reason why the log is not used.
    pub(crate) fn note_lost_log(&self, why: &str) {
        if self.sim_disks().is_empty() && why.contains("I/O error") {
            self.corrupt_log();
        }
    }

    /// May a member be lost now without harm to anything that a crash has not cut just now?
    pub fn bears_loss(&self) -> bool {
        let parity = self.geometry().family() == Family::Parity;
        self.is_synced() || parity && self.promise() == Promise::Closed
    }

    /// Some blocks are an error until they are written, though all members may be there.
    pub fn has_lost_blocks(&self) -> bool {
        let status = self.status();
        status.bad_bytes > 0 || all_members(&status).any(|member| member.bad_bytes > 0)
    }

    /// True if every slot is in sync and no work is left.
    pub fn is_whole(&self) -> bool {
        let status = self.status();
        let whole = |slot: &array::status::SlotStatus| slot.state == SlotState::InSync;
        status.slots.iter().all(whole) && status.job.is_none() && status.unsynced_bytes == 0
    }

    /// Does a list of bad blocks name any?
    pub fn lists_bad(&self) -> bool {
        all_members(&self.status()).any(|member| member.bad_bytes > 0)
    }

    /// Members that hold a slot, are a replacement, or wait.
    pub fn assigned(&self) -> Vec<String> {
        all_members(&self.status()).map(|member| member.name.clone()).collect()
    }

    /// Members that the array has lost and that may come back.
    pub fn lost(&self) -> Vec<String> {
        let assigned = self.assigned();
        let members = self.members.borrow();
        members.keys().filter(|name| !assigned.contains(name)).cloned().collect()
    }
}

/// The array ranges of members that are not whole, as far as they are not in sync.
fn guesses(assembly: &Assembly) -> Vec<Range<u64>> {
    let geometry = &assembly.geometry;
    if geometry.family() != Family::Parity {
        return Vec::new();
    }
    let (whole, chunk) = (assembly.configuration.in_sync(), geometry.chunk_bytes());
    let mut guessed = Vec::new();
    for range in assembly.recovered.unsynced.iter() {
        let mut at = range.start / chunk * chunk;
        while at < range.end {
            let (stripe, index, _) = geometry.stripe_of(at);
            if !whole.contains(geometry.stripe(stripe).data(index)) {
                guessed.push(at.max(range.start)..(at + chunk).min(range.end));
            }
            at += chunk;
        }
    }
    guessed
}

fn all_members(status: &Status) -> impl Iterator<Item = &MemberStatus> {
    let assigned = status.slots.iter().flat_map(|slot| slot.member.iter().chain(&slot.replacement));
    assigned.chain(&status.spares)
}

/// Prints the events of an array as they happen.
async fn tell_log(node: Rc<Node>, events: Array) {
    let world = &node.world;
    let mut seen = 0;
    loop {
        events.log().wait(seen).await;
        for event in events.log().since(seen) {
            seen += 1;
            let kind = event.kind as u64;
            world.trace.event(&[0xe7e47, kind, seen]);
            if event.kind == EventKind::Replayed {
                node.note_settled();
            }
            if event.kind == EventKind::JournalLost {
                node.journal.lost.set(true);
                world.trace.mark(mark::JOURNAL_LOST);
            }
            world.note(|| {
                let member = event.member.as_deref().unwrap_or("");
                format!("  {}: {:?} {member}: {}", events.name(), event.kind, event.text)
            });
        }
    }
}
