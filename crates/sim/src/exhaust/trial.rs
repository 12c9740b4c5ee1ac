//! One state, one set of lost members: the array is assembled, recovers, is read, loses another
//! member, is read again, written, stopped, and looked at from behind.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

use array::Array;
use io::{Buf, Disk, Op, Pool, Work};
use layout::md::superblock::{Superblock, position};
use layout::md::{Bitmap, ByteMap, SECTOR as MD_SECTOR, Version};
use layout::private::Consistency;
use layout::{Family, Geometry, Owner, Slot, SlotSet};
use metadata::assemble::{Options, assemble};
use metadata::create::{BitmapChunk, NewArray, create};

use super::Promise;
use super::allowed::{Allowed, Step};
use super::cases::{CHUNK, Care, Case, Workload};
use super::crash::State;
use crate::medium::SECTOR;
use crate::report;
use crate::stand::content::{ERROR, LAST, Origin, Patterns, name};
use crate::stand::{Event, Image, Running, Stand};

/// The write that comes after recovery.
const AFTER: Origin = LAST;

/// Size of a member: the space that `create` reserves, and some data.
const MEMBER_BYTES: u64 = (3 << 20) + (192 << 10);

/// A case, ready to be tried: an array was made, filled and stopped.
pub(super) struct Bench {
    pub(super) case: Case,
    pub(super) geometry: Geometry,
    pub(super) images: Vec<Rc<Image>>,
    pub(super) map: ByteMap,
    stand: Stand,
    pool: Pool,
    patterns: Patterns,
    /// Trials up to now.
    pub(super) trials: u64,
}

/// How a trial went.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    /// All is as it should be.
    Held,
    /// It was not started, as today's promise has it.
    Refused,
    /// Something is wrong.
    Violated(String),
}

type Outcome<T> = Result<T, String>;

impl Bench {
    /// Makes the array of a case.
    ///
    /// # Errors
    /// If that does not work.
    pub(super) fn new(case: Case, consistency: Consistency) -> Outcome<Bench> {
        let stand = Stand::new(case.members, MEMBER_BYTES);
        let new = NewArray {
            bitmap: Some(BitmapChunk::Bytes(CHUNK as u32)),
            zeroed: true,
            consistency: Some(consistency),
            size_bytes: case.size_bytes(),
            ..NewArray::new("exhaust", case.layout, case.chunk_bytes())
        };
        let (clock, random) = (stand.clock(), stand.random());
        let work = create(&new, stand.candidates(SlotSet::default()), &clock, &*random);
        let made = stand.run(None, work).map_err(|_| "create hangs".to_string())?;
        made.map_err(|error| format!("create: {error}"))?;
        let map = ByteMap::for_new_member(MEMBER_BYTES, case.chunk_bytes(), Version::V1_2);
        let map = map.map_err(|small| small.to_string())?;
        let pool = Pool::new(1 << 20);
        let mut bench = Bench {
            case,
            geometry: Geometry::new(layout::geometry::Shape {
                layout: case.layout,
                chunk_bytes: case.chunk_bytes(),
                members: vec![map.data_bytes(); case.members],
            })
            .map_err(|error| error.to_string())?,
            images: Vec::new(),
            map,
            stand,
            pool,
            patterns: Patterns::new(0),
            trials: 0,
        };
        let running = bench.start(SlotSet::default()).map_err(|error| error.to_string())?;
        bench.geometry = running.array.geometry().clone();
        bench.patterns = Patterns::new(bench.geometry.capacity());
        bench.put(&running, 0, 0, bench.geometry.capacity())?;
        bench.stop(&running)?;
        let trays = &bench.stand.trays;
        bench.images = trays.iter().map(|tray| Rc::new(tray.image())).collect();
        Ok(bench)
    }

    /// Assembles and starts the array without the lost members.
    fn start(&self, lost: SlotSet) -> metadata::Result<Running> {
        let options = Options {
            degraded: true,
            deadline: self.stand.host().bounds.deadline,
            ..Options::default()
        };
        let (clock, random) = (self.stand.clock(), self.stand.random());
        let work = assemble(self.stand.candidates(lost), &options, clock, random);
        let hang = |_| metadata::Error::new(metadata::ErrorKind::Bug, "assemble hangs".to_string());
        let assembly = self.stand.run(None, work).map_err(hang)??;
        Ok(Running::new(Array::start(assembly, &self.stand.host())))
    }

    fn submit(&self, running: &Running, op: Op) -> Outcome<io::Done> {
        let answer = running.array.submit(op);
        self.stand.run(Some(running), answer).map_err(|_| "no answer ever comes".to_string())
    }

    fn put(&self, running: &Running, origin: Origin, offset: u64, len: u64) -> Outcome<()> {
        let done = self.submit(running, self.write(origin, offset, len))?;
        done.result.map_err(|error| format!("write {offset}+{len}: {error}"))?;
        let done = self.submit(running, Op::flush())?;
        done.result.map_err(|error| format!("flush: {error}"))
    }

    fn write(&self, origin: Origin, offset: u64, len: u64) -> Op {
        let bytes = self.patterns.bytes(origin, offset, len);
        Op::write(offset, self.pool.copy_of(bytes).freeze())
    }

    fn stop(&self, running: &Running) -> Outcome<()> {
        let stopped = self.stand.run(Some(running), running.array.stop());
        let stopped = stopped.map_err(|_| "stop hangs".to_string())?;
        stopped.map_err(|error| format!("stop: {error}"))
    }

    /// Runs a workload, then waits until the array rests and stops it; gives the log of it all.
    pub(super) fn record(&mut self, workload: &Workload) -> Outcome<Vec<Event>> {
        self.stand.rewind();
        self.load(&self.images);
        let running = self.start(SlotSet::default()).map_err(|error| error.to_string())?;
        self.stand.record(true);
        let stand = &self.stand;
        let work = async {
            let mut at = 0;
            while at < workload.len() {
                let mut batch = Vec::new();
                loop {
                    let origin = at as Origin + 1;
                    let write = workload[at];
                    stand.note(Step::Sent(origin).to_note());
                    let mut op = self.write(origin, write.offset, write.len);
                    op.fua = write.care == Care::Fua;
                    batch.push((origin, write.care, running.array.submit(op)));
                    at += 1;
                    if workload.get(at).is_none_or(|next| !next.together) {
                        break;
                    }
                }
                for (origin, care, answer) in batch {
                    answer.await.result.map_err(|error| format!("healthy: {error}"))?;
                    stand.note(Step::Acknowledged(origin).to_note());
                    if care == Care::Flush {
                        stand.note(Step::Flushing(origin).to_note());
                        let flush = running.array.submit(Op::flush()).await;
                        flush.result.map_err(|error| format!("healthy: {error}"))?;
                        stand.note(Step::Flushed(origin).to_note());
                    }
                }
            }
            stand.pause(40_000).await;
            running.array.stop().await.map_err(|error| format!("stop: {error}"))
        };
        let driven = stand.run(Some(&running), work);
        stand.record(false);
        driven.map_err(|_| "a healthy array hangs".to_string())??;
        Ok(stand.take_log())
    }

    fn load(&self, images: &[Rc<Image>]) {
        for (tray, image) in self.stand.trays.iter().zip(images) {
            tray.load(image);
        }
    }

    /// Tries one state without the lost members.
    pub(super) fn attempt(
        &mut self,
        state: &State<'_>,
        lost: SlotSet,
        allowed: &Allowed,
        promise: Promise,
    ) -> Verdict {
        self.trials += 1;
        self.stand.rewind();
        self.load(state.durable);
        for unit in &state.landed {
            unit.apply(|disk, at, bytes| self.stand.trays[disk].poke(at, bytes));
        }
        let mut verdict = Verdict::Held;
        let run = || {
            verdict = self.live(lost, allowed, promise).unwrap_or_else(Verdict::Violated);
        };
        match report::caught(|| catch_unwind(AssertUnwindSafe(run))) {
            Some(panic) => Verdict::Violated(panic),
            None => verdict,
        }
    }

    fn live(&self, lost: SlotSet, allowed: &Allowed, promise: Promise) -> Outcome<Verdict> {
        let parity = self.geometry.family() == Family::Parity;
        let running = match self.start(lost) {
            Ok(running) => running,
            Err(error) => {
                let honest = error.kind() == metadata::ErrorKind::Refused
                    && parity
                    && !lost.is_empty()
                    && promise == Promise::Unverified;
                return match honest {
                    true => Ok(Verdict::Refused),
                    false => Err(format!("not assembled: {error}")),
                };
            }
        };
        // An error in place of the last write: only with both a lost member and a cut.
        let excused = |sector: usize| parity && !lost.is_empty() && allowed.is_open(sector);
        let mut first = self.read(&running)?;
        for (sector, &origin) in first.iter().enumerate() {
            if !(allowed.permits(sector, origin) || origin == ERROR && excused(sector)) {
                let set = allowed.sectors[sector];
                return Err(format!(
                    "sector {sector} holds {}, allowed are the writes {set:#b}",
                    name(origin)
                ));
            }
        }
        let synced = self.recover(&running, lost)?;
        self.same(&running, (&mut first, allowed), "after recovery")?;
        self.walk(&first, lost, None).map_err(|fault| format!("after recovery: {fault}"))?;
        let spare = self.another(lost);
        if let Some(slot) = spare {
            self.stand.trays[slot.index()].set_gone(true);
            let when = format!("after the loss of slot {slot} too");
            self.same(&running, (&mut first, allowed), &when)?;
        }
        let lost = spare.map_or(lost, |slot| lost.with(slot));
        let stripe = self.geometry.stripe_bytes();
        for (offset, len) in [(stripe / 2, stripe), (SECTOR, SECTOR)] {
            self.put(&running, AFTER, offset, len).map_err(|error| format!("later: {error}"))?;
            let sectors = (offset / SECTOR) as usize..((offset + len) / SECTOR) as usize;
            first[sectors].fill(AFTER);
        }
        self.same(&running, (&mut first, allowed), "after another write")?;
        self.stop(&running)?;
        self.walk(&first, lost, Some(synced)).map_err(|fault| format!("at rest: {fault}"))?;
        Ok(Verdict::Held)
    }

    /// Another member that may be lost; every third time none is, so that whole arrays rest too.
    fn another(&self, lost: SlotSet) -> Option<Slot> {
        if self.trials.is_multiple_of(3) {
            return None;
        }
        let left = self.geometry.all_slots().difference(lost);
        let fit = |slot: &Slot| self.geometry.survives(lost.with(*slot));
        let fitting: Vec<Slot> = left.iter().filter(fit).collect();
        let turn = self.trials as usize % fitting.len().max(1);
        fitting.get(turn).copied()
    }

    /// The write that each sector of the array holds.
    fn read(&self, running: &Running) -> Outcome<Vec<Origin>> {
        let capacity = self.geometry.capacity();
        let done = self.submit(running, Op::read(0, self.pool.take(capacity as usize)))?;
        let mut origins = Vec::with_capacity((capacity / SECTOR) as usize);
        if done.result.is_ok() {
            self.patterns.recognize(0, &single(done.work)?, &mut origins);
            return Ok(origins);
        }
        for at in (0..capacity).step_by(SECTOR as usize) {
            let done = self.submit(running, Op::read(at, self.pool.take(SECTOR as usize)))?;
            match done.result {
                Ok(()) => self.patterns.recognize(at, &single(done.work)?, &mut origins),
                Err(_) => origins.push(ERROR),
            }
        }
        Ok(origins)
    }

    /// Reads again: nothing may have changed (I4); an error may have become something allowed.
    fn same(
        &self,
        running: &Running,
        (known, allowed): (&mut [Origin], &Allowed),
        when: &str,
    ) -> Outcome<()> {
        let again = self.read(running)?;
        for (sector, (&now, before)) in again.iter().zip(known).enumerate() {
            if *before == ERROR && allowed.permits(sector, now) {
                *before = now;
            }
            if now != *before {
                return Err(format!(
                    "{when}: sector {sector} holds {}, it was {}",
                    name(now),
                    name(*before)
                ));
            }
        }
        Ok(())
    }

    /// Waits until the resync ends; with missing members, until no work is left, because their
    /// blocks cannot be resynced. Returns whether all is in sync.
    fn recover(&self, running: &Running, lost: SlotSet) -> Outcome<bool> {
        let recovered = async {
            let mut idle = 0;
            for _ in 0..20_000 {
                let status = running.array.status();
                let synced = status.unsynced_bytes == 0 || (!lost.is_empty() && idle >= 3);
                if status.job.is_none() && synced {
                    return Ok(status.unsynced_bytes == 0);
                }
                idle = if status.job.is_none() { idle + 1 } else { 0 };
                self.stand.pause(1000).await;
            }
            Err("recovery never ends".to_string())
        };
        let driven = self.stand.run(Some(running), recovered);
        driven.map_err(|_| "recovery hangs".to_string())?
    }

    /// Looks at the members from behind: every byte of data, copy and parity is where it should be;
    /// at rest, superblocks agree, and say clean if everything was synced.
    fn walk(&self, content: &[Origin], lost: SlotSet, at_rest: Option<bool>) -> Outcome<()> {
        if content.contains(&ERROR) {
            return Ok(());
        }
        let array = self.patterns.whole(content);
        let mut events = None;
        for tray in self.stand.trays.iter().filter(|t| !lost.contains(Slot::new(t.number))) {
            let slot = Slot::new(tray.number);
            let mut data = vec![0; self.geometry.member_bytes(slot) as usize];
            tray.peek(self.map.data.start, &mut data);
            self.compare(slot, &data, &array)?;
            let Some(synced) = at_rest else { continue };
            let at = position(Version::V1_2, MEMBER_BYTES).unwrap_or_default();
            let mut raw = vec![0; 4096];
            tray.peek(at, &mut raw);
            let superblock = Superblock::parse(&raw, at / MD_SECTOR);
            let superblock = superblock.map_err(|fault| format!("slot {slot}: {fault}"))?;
            if synced && !superblock.is_clean() {
                return Err(format!("slot {slot}: stopped, and not clean"));
            }
            if *events.get_or_insert(superblock.events) != superblock.events {
                return Err(format!("slot {slot}: another event count than the others"));
            }
            let Some(bitmap) = self.map.bitmap.clone().filter(|_| {
                lost.is_empty() && superblock.features.contains(layout::md::Features::BITMAP)
            }) else {
                continue;
            };
            let mut page = vec![0; 4096];
            tray.peek(bitmap.start, &mut page);
            Bitmap::parse(&page).map_err(|fault| format!("slot {slot}: {fault}"))?;
            if page[256..].iter().any(|&bits| bits != 0) {
                return Err(format!("slot {slot}: bits of its bitmap are set"));
            }
        }
        Ok(())
    }

    /// Compares a member's data with the array's content, computed naively.
    fn compare(&self, slot: Slot, data: &[u8], array: &[u8]) -> Outcome<()> {
        let mut at = 0;
        while at < data.len() {
            let owner = self.geometry.owner(slot, at as u64);
            let len = (owner.bytes() as usize).min(data.len() - at);
            let own = &data[at..at + len];
            let (stripe, q) = match owner {
                Owner::Unused { .. } => {
                    at += len;
                    continue;
                }
                Owner::Data { array_offset, .. } => {
                    let start = array_offset as usize;
                    if own != &array[start..start + len] {
                        return Err(format!("slot {slot}, {at} of its data: {owner:?} differs"));
                    }
                    at += len;
                    continue;
                }
                Owner::P { stripe, .. } => (stripe, false),
                Owner::Q { stripe, .. } => (stripe, true),
            };
            let map = self.geometry.stripe(stripe);
            let (chunk, within) = (self.geometry.chunk_bytes(), at as u64 - map.member_offset());
            let mut checksum = own.to_vec();
            for index in 0..map.data_count() {
                let start = stripe.0 * self.geometry.stripe_bytes() + index as u64 * chunk + within;
                let exponent = if q { map.exponent(index) } else { 0 };
                for (checksum, &byte) in checksum.iter_mut().zip(&array[start as usize..]) {
                    *checksum ^= (0..exponent).fold(byte, |byte, _| double(byte));
                }
            }
            if checksum.iter().any(|&byte| byte != 0) {
                return Err(format!("slot {slot}, {at} of its data: {owner:?} disagrees"));
            }
            at += len;
        }
        Ok(())
    }
}

/// Multiplies by g = 2 in md's field.
fn double(byte: u8) -> u8 {
    (byte << 1) ^ if byte & 0x80 != 0 { 0x1d } else { 0 }
}

fn single(work: Work) -> Outcome<Buf> {
    match work {
        Work::Read(mut bufs) if bufs.len() == 1 => Ok(bufs.remove(0)),
        _ => Err("a read came back as something else".into()),
    }
}
