//! One array on a bench: brought to the start of a phase, run through it while an operation fails,
//! and compared with its remaining obligations.

use std::rc::Rc;

use array::Array;
use array::status::{SlotState, Status};
use io::{Disk, Op, Work};
use layout::{Family, Geometry, Layout, Level, Mode, Slot, SlotSet};
use metadata::assemble::{Options, assemble};
use metadata::create::{BitmapChunk, NewArray, create};

use super::Images;
use super::phase::Phase;
use crate::medium::SECTOR;
use crate::stand::content::{ERROR, Origin, Patterns, name};
use crate::stand::{Fault, Running, Stand};

/// Size of a disk: the space that `create` reserves, and some data.
const DISK_BYTES: u64 = (3 << 20) + (192 << 10);
const CHUNK: u64 = 4096;
const STRIPES: u64 = 6;

/// How a run ended.
#[derive(Default)]
pub(super) struct End {
    /// The phase's own work was refused or failed, and why.
    pub(super) failed: Option<String>,
    /// The violations.
    pub(super) wrong: Option<String>,
}

type Outcome<T> = Result<T, String>;

/// See the module's description.
pub(super) struct Rig {
    stand: Stand,
    pool: io::Pool,
    phase: Phase,
    new: NewArray,
    geometry: Geometry,
    patterns: Patterns,
    members: usize,
    /// The disks before the phase.
    images: Images,
    /// For each sector, the bits of the writes that it may hold before the phase.
    before: Vec<u8>,
    /// The same, now.
    now: Vec<u8>,
}

/// The writes of a phase: offset and length in halves of a chunk.
const WRITES: [(u64, u64); 5] = [(0, 1), (3, 2), (0, 14), (9, 9), (1, 1)];

impl Rig {
    /// Brings a new array to where the phase begins.
    ///
    /// # Errors
    /// If that does not work, with nothing failing.
    pub(super) fn new(layout: Layout, members: usize, phase: Phase) -> Outcome<Rig> {
        let spares = phase.spares();
        let chunk_bytes = match layout {
            Layout::Raid1 => 0,
            Layout::Raid35 { order } => CHUNK >> order,
            _ => CHUNK,
        };
        let size_bytes = match layout.level() {
            Level::Raid1 => None,
            _ => Some(STRIPES * chunk_bytes),
        };
        let new = NewArray {
            bitmap: Some(BitmapChunk::Bytes(CHUNK as u32)),
            zeroed: true,
            overwrite: true,
            size_bytes,
            spares,
            ..NewArray::new("sweep", layout, chunk_bytes)
        };
        let stand = Stand::new(members + spares, DISK_BYTES);
        let shape = layout::geometry::Shape {
            layout,
            chunk_bytes,
            members: vec![size_bytes.unwrap_or(64 << 10); members],
        };
        let geometry = Geometry::new(shape).map_err(|error| error.to_string())?;
        let patterns = Patterns::new(geometry.capacity());
        let sectors = (geometry.capacity() / SECTOR) as usize;
        let (images, before) =
            (stand.trays.iter().map(|_| Rc::default()).collect(), vec![1; sectors]);
        let pool = io::Pool::new(1 << 20);
        let now = before.clone();
        let mut rig =
            Rig { stand, pool, phase, new, geometry, patterns, members, images, before, now };
        if phase != Phase::Create {
            rig.prepare()?;
        }
        rig.images = rig.stand.trays.iter().map(|tray| Rc::new(tray.image())).collect();
        rig.before.clone_from(&rig.now);
        Ok(rig)
    }

    fn prepare(&mut self) -> Outcome<()> {
        self.create()?;
        let running = self.start(SlotSet::default())?;
        self.put(&running, 0, 0, self.geometry.capacity())?;
        match self.phase {
            Phase::Degraded => self.fail(&running)?,
            Phase::Recovery => return self.crash(&running),
            _ => {}
        }
        self.stop(&running)
    }

    /// The power is cut while a write has landed on the first of its members only.
    fn crash(&mut self, running: &Running) -> Outcome<()> {
        let data = DISK_BYTES - (64 << 10)..DISK_BYTES;
        let peek = |stand: &Stand, disk: usize| {
            let mut bytes = vec![0; (data.end - data.start) as usize];
            stand.trays[disk].peek(data.start, &mut bytes);
            bytes
        };
        let old: Vec<Vec<u8>> = (0..self.members).map(|disk| peek(&self.stand, disk)).collect();
        self.write(running, 1, self.geometry.stripe_bytes(), CHUNK / 2)?;
        let touched = (0..self.members).filter(|&disk| peek(&self.stand, disk) != old[disk]);
        for disk in touched.skip(1).collect::<Vec<_>>() {
            self.stand.trays[disk].poke(data.start, &old[disk]);
        }
        self.now.iter_mut().for_each(|set| *set |= 1);
        Ok(())
    }

    // ---- verbs
    // -----------------------------------------------------------------------------------

    fn create(&self) -> Outcome<()> {
        let (clock, random) = (self.stand.clock(), self.stand.random());
        let candidates = self.stand.candidates(SlotSet::default());
        let work = create(&self.new, candidates, &clock, &*random);
        let made = self.stand.run(None, work).map_err(|_| "HANG: create".to_string())?;
        made.map(drop).map_err(|error| format!("create: {error}"))
    }

    fn start(&self, lost: SlotSet) -> Outcome<Running> {
        let host = self.stand.host();
        let options =
            Options { degraded: true, deadline: host.bounds.deadline, ..Options::default() };
        let (clock, random) = (self.stand.clock(), self.stand.random());
        let work = assemble(self.stand.candidates(lost), &options, clock, random);
        let hang = |_| "HANG: assemble".to_string();
        let assembly = self.stand.run(None, work).map_err(hang)?;
        let assembly = assembly.map_err(|error| format!("assemble: {error}"))?;
        Ok(Running::new(Array::start(assembly, &host)))
    }

    fn submit(&self, running: &Running, op: Op) -> Outcome<io::Done> {
        let answer = running.array.submit(op);
        self.stand.run(Some(running), answer).map_err(|_| "HANG: no answer comes".to_string())
    }

    /// Writes; the array may return an error, and the possible content is recorded.
    fn write(&mut self, running: &Running, origin: Origin, at: u64, len: u64) -> Outcome<()> {
        let at = at.min(self.geometry.capacity() - SECTOR);
        let len = len.min(self.geometry.capacity() - at);
        let buf = self.pool.copy_of(self.patterns.bytes(origin, at, len)).freeze();
        let done = self.submit(running, Op::write(at, buf))?;
        let sectors = (at / SECTOR) as usize..((at + len) / SECTOR) as usize;
        for set in &mut self.now[sectors] {
            *set = if done.result.is_ok() { 1 << origin } else { *set | 1 << origin };
        }
        done.result.map_err(|error| format!("write {at}+{len}: {error}"))
    }

    fn flush(&self, running: &Running) -> Outcome<()> {
        let done = self.submit(running, Op::flush())?;
        done.result.map_err(|error| format!("flush: {error}"))
    }

    fn put(&mut self, running: &Running, origin: Origin, at: u64, len: u64) -> Outcome<()> {
        self.write(running, origin, at, len)?;
        self.flush(running)
    }

    fn stop(&self, running: &Running) -> Outcome<()> {
        let stopped = self.stand.run(Some(running), running.array.stop());
        let stopped = stopped.map_err(|_| "HANG: stop".to_string())?;
        stopped.map_err(|error| format!("stop: {error}"))
    }

    /// The member in slot 1 is taken out by command.
    fn fail(&self, running: &Running) -> Outcome<()> {
        let Some(member) = running.array.status().slots[1].member.clone() else { return Ok(()) };
        let failed = self.stand.run(Some(running), running.array.fail(member.id));
        let failed = failed.map_err(|_| "HANG: fail".to_string())?;
        failed.map_err(|error| format!("fail: {error}"))
    }

    /// Waits until this holds; false if it does not within a virtual minute.
    fn wait(&self, running: &Running, done: impl Fn(&Status) -> bool) -> Outcome<bool> {
        let work = async {
            for _ in 0..6000 {
                if done(&running.array.status()) {
                    return true;
                }
                self.stand.pause(10_000).await;
            }
            false
        };
        self.stand.run(Some(running), work).map_err(|_| "HANG: waiting".to_string())
    }

    // ---- a run
    // -----------------------------------------------------------------------------------

    /// Leads the array through the phase while an operation fails. Gives how many there were.
    pub(super) fn play(&mut self, fault: Option<Fault>) -> (End, u64) {
        self.stand.rewind();
        for (tray, image) in self.stand.trays.iter().zip(&self.images) {
            tray.load(image);
        }
        self.now.clone_from(&self.before);
        let mut end = End::default();
        let (running, count) = match self.lead(fault, &mut end) {
            Ok(found) => found,
            Err(fault) => {
                end.wrong = Some(fault);
                return (end, 0);
            }
        };
        let site = self.stand.fault_hit().map(|(_, site)| site).unwrap_or_default();
        let wrong = self.judge(fault, running, &mut end);
        end.wrong = wrong.err().map(|wrong| format!("({site}) {wrong}"));
        (end, count)
    }

    /// The phase itself. An honest failure goes into `end`; an error of this is a violation.
    fn lead(&mut self, fault: Option<Fault>, end: &mut End) -> Outcome<(Option<Running>, u64)> {
        let early = matches!(self.phase, Phase::Create | Phase::Assemble | Phase::Recovery);
        let running = if early { None } else { Some(self.start(SlotSet::default())?) };
        if self.phase == Phase::Takeover {
            self.stand.trays[1].set_gone(true);
        }
        let first = self.stand.ops();
        self.stand.set_fault(fault.map(|fault| Fault { op: first + fault.op, ..fault }));
        let running = match running {
            None if self.phase == Phase::Create => self.create().map(|()| None),
            None => self.start(SlotSet::default()).map(Some),
            running => Ok(running),
        };
        let worked = match &running {
            Ok(Some(running)) => {
                let worked = self.work(running);
                let rested = self.rest(running);
                worked.and(rested)
            }
            Ok(None) => Ok(()),
            Err(fault) => Err(fault.clone()),
        };
        let count = self.stand.ops() - first;
        match worked {
            Err(fault) if fault.starts_with("HANG") => Err(fault),
            worked => {
                end.failed = worked.err();
                Ok((running.ok().flatten(), count))
            }
        }
    }

    /// An action on a running array.
    fn work(&mut self, running: &Running) -> Outcome<()> {
        match self.phase {
            Phase::Write | Phase::Degraded | Phase::Stop => {
                let mut all = Ok(());
                for (origin, (at, len)) in (1..).zip(WRITES) {
                    all = all.and(self.write(running, origin, at * CHUNK / 2, len * CHUNK / 2));
                    if origin % 2 == 0 {
                        all = all.and(self.flush(running));
                    }
                }
                if self.phase == Phase::Stop {
                    return all.and(self.stop(running));
                }
                let capacity = self.geometry.capacity();
                let read = Op::read(0, self.pool.take(capacity as usize));
                let read = self.submit(running, read)?;
                all.and(read.result.map_err(|error| format!("read: {error}")))
            }
            Phase::Rebuild => self.fail(running),
            Phase::Takeover => self.put(running, 1, 0, 2 * CHUNK),
            Phase::Replace => {
                let status = running.array.status();
                let Some(spare) = status.spares.first() else { return Ok(()) };
                let replaced = running.array.replace(Slot::new(1), spare.id);
                let replaced = self.stand.run(Some(running), replaced);
                let replaced = replaced.map_err(|_| "HANG: replace".to_string())?;
                self.write(running, 1, CHUNK, CHUNK)?;
                replaced.map_err(|error| format!("replace: {error}"))
            }
            Phase::Scrub => {
                running.array.scrub(true).map_err(|error| format!("scrub: {error}"))?;
                self.write(running, 1, CHUNK, CHUNK)
            }
            Phase::Assemble | Phase::Recovery => self.put(running, 2, 0, CHUNK),
            Phase::Create => Ok(()),
        }
    }

    /// Lets background work end.
    fn rest(&self, running: &Running) -> Outcome<()> {
        if self.phase == Phase::Stop {
            return Ok(());
        }
        let mut last = None;
        for _ in 0..200 {
            let status = running.array.status();
            let state = (status.job.is_some(), status.epoch, status.unsynced_bytes, status.clean);
            if !state.0 && last == Some(state) {
                return Ok(());
            }
            last = Some(state);
            self.wait(running, |status| status.job.is_none())?;
            let nap = self.stand.pause(30_000);
            self.stand.run(Some(running), nap).map_err(|_| "HANG: resting".to_string())?;
        }
        Err("HANG: background work never ends".into())
    }

    // ---- judgement
    // -------------------------------------------------------------------------------

    /// Does the level tolerate the loss of the failed disk, with those already lost?
    fn survives(&self, fault: Option<Fault>) -> bool {
        let Some((struck, _)) = self.stand.fault_hit().filter(|_| fault.is_some()) else {
            return true;
        };
        let mut lost = SlotSet::default();
        if self.phase.lost() > 0 {
            lost.insert(Slot::new(1));
        }
        let suspect = self.phase == Phase::Recovery && self.geometry.family() == Family::Parity;
        if struck >= self.members {
            return true;
        }
        lost.insert(Slot::new(struck));
        self.geometry.survives(lost) && !suspect
    }

    /// Compares the remaining data with its expected content.
    fn judge(
        &mut self,
        fault: Option<Fault>,
        running: Option<Running>,
        end: &mut End,
    ) -> Outcome<()> {
        let survives = self.survives(fault);
        let struck = self.stand.fault_hit();
        if let (Some(failed), true) = (&end.failed, survives) {
            self.check_error(failed)?;
        }
        if let Some(running) = running.filter(|_| self.phase != Phase::Stop) {
            let status = running.array.status();
            if survives && status.mode == Mode::Broken {
                return Err("the array is broken, and need not be".into());
            }
            self.only_struck(&status, struck.as_ref().map(|(disk, _)| *disk))?;
            self.read(&running, survives).map_err(|fault| format!("running: {fault}"))?;
            match self.stop(&running) {
                Err(fault) if fault.starts_with("HANG") || survives => return Err(fault),
                _ => {}
            }
        }
        self.again(fault, struck.map(|(disk, _)| disk), survives)
    }

    /// Is this failure of the phase's work an honest one, though the level has not lost too much?
    fn check_error(&self, failed: &str) -> Outcome<()> {
        match self.phase {
            Phase::Create | Phase::Assemble => {
                let named =
                    self.stand.trays.iter().any(|t| failed.contains(&format!("disk{}", t.number)));
                match named {
                    true => Ok(()),
                    false => Err(format!("the error does not say which disk: {failed}")),
                }
            }
            // A command on a failed or failing disk may be refused.
            Phase::Replace | Phase::Rebuild | Phase::Scrub => Ok(()),
            _ => Err(format!("within redundancy: {failed}")),
        }
    }

    /// Only lost members and the failed one are missing.
    fn only_struck(&self, status: &Status, struck: Option<usize>) -> Outcome<()> {
        for slot in status.slots.iter().filter(|slot| slot.state == SlotState::Missing) {
            let index = slot.slot.index();
            let known = self.phase.lost() > 0 && index == 1;
            // A spare that has taken the slot, and was struck then.
            let taken = self.phase.spares() > 0 && struck.is_some_and(|disk| disk >= self.members);
            if !known && Some(index) != struck && !taken {
                return Err(format!("slot {index} is missing, and nothing was wrong with it"));
            }
        }
        Ok(())
    }

    /// Reads everything: possible content, or an error beyond tolerance.
    fn read(&self, running: &Running, survives: bool) -> Outcome<()> {
        let mut origins: Vec<Origin> = Vec::with_capacity(self.now.len());
        for at in (0..self.geometry.capacity()).step_by(CHUNK as usize) {
            let len = CHUNK.min(self.geometry.capacity() - at);
            let done = self.submit(running, Op::read(at, self.pool.take(len as usize)))?;
            match (done.result, done.work) {
                (Ok(()), Work::Read(bufs)) => {
                    bufs.iter().for_each(|buf| self.patterns.recognize(at, buf, &mut origins));
                }
                (Err(error), _) if survives => return Err(format!("read {at}+{len}: {error}")),
                _ => origins.extend(std::iter::repeat_n(ERROR, (len / SECTOR) as usize)),
            }
        }
        for (sector, (&origin, &set)) in origins.iter().zip(&self.now).enumerate() {
            let right = origin == ERROR || origin < 8 && set >> origin & 1 == 1;
            if !right {
                return Err(format!(
                    "sector {sector} holds {}, allowed are the writes {set:#b}",
                    name(origin)
                ));
            }
        }
        Ok(())
    }

    /// The fault is over, or its disk is discarded: the array is assembled, recovers, and reads.
    fn again(
        &mut self,
        fault: Option<Fault>,
        struck: Option<usize>,
        survives: bool,
    ) -> Outcome<()> {
        self.stand.set_fault(None);
        if self.phase == Phase::Create {
            // Whatever the state now: the next attempt succeeds.
            self.create().map_err(|fault| format!("again: {fault}"))?;
            let running = self.start(SlotSet::default())?;
            self.put(&running, 0, 0, self.geometry.capacity())?;
            self.read(&running, true)?;
            return self.stop(&running);
        }
        let mut lost = SlotSet::default();
        if fault.is_some_and(|fault| fault.for_ever) {
            lost = struck.map_or(lost, |disk| lost.with(Slot::new(disk)));
        }
        if self.phase.lost() > 0 {
            // It is stale, and alone would not know.
            lost.insert(Slot::new(1));
        }
        let running = match self.start(lost) {
            Ok(running) => running,
            Err(_) if !survives => return Ok(()),
            Err(fault) => return Err(format!("again: {fault}")),
        };
        self.rest(&running).map_err(|fault| format!("again: {fault}"))?;
        self.read(&running, survives).map_err(|fault| format!("again: {fault}"))?;
        match self.stop(&running) {
            Err(fault) if survives => Err(format!("again: {fault}")),
            _ => Ok(()),
        }
    }
}
