//! Parts of physical sectors, as a disk: fragments that are smaller than the sectors below.
//!
//! A fragment of level 3.5 has 512 bytes to 2 KiB, a physical sector mostly 4 KiB. A write of one
//! fragment rewrites the sector, and a power cut may destroy it: with it the fragments of other
//! blocks, *bystanders*, which nobody was writing. So parts of sectors wait in memory until they
//! are a whole one, or until a flush; then the journal makes a copy of the sector first.
//!
//! ```text
//!   sectors      |. . . .|. . . .|. . . .|. . . .|
//!   writes           a       b b b b   c            all stay in memory; b has filled a sector
//!
//!   b            ─────────────────────────────────▶ in place at once: bystanders it has none
//!   flush        read what a and c lack ─▶ journal: both sectors ─▶ flush ─▶ in place ─▶ flush
//!                                                                 │
//!                                          cut before here: old   │   cut after: written again
//! ```
//!
//! The protocol permits that bytes wait: a write is durable after a flush only, and a start of the
//! server is a new boot, for which nothing counts that was not flushed. A torn *whole* sector has
//! fragments only that were being written; there the disk decides, as for any other user.
//!
//! **Order.** A sector has at most one write in place at a time. What is written to it meanwhile
//! waits. A read takes from memory what is there when it begins, newest first, and the rest from
//! the disk: what left memory before is complete there. So bystanders that were read to complete a
//! sector cannot change before it is written.
//!
//! **The journal has one entry**, and a start writes it in place again, however often. That is
//! right only as long as its sectors hold nothing newer. So it is
//!
//! - replaced by the next one after its sectors are durable in place. A cut in between leaves one
//!   of both, or a torn one, which means nothing: the old one is not needed any more, and no sector
//!   of the new one has been touched;
//! - cleared, durably, before one of its sectors is written as a whole, past the journal.
//!
//! Hence it needs no number: there is no older entry to confuse it with.
//!
//! **Memory** has as many sectors as an entry. When half of it is taken, rounds as those of a flush
//! make room; when all is, writes wait.
//!
//! Invariants: a flush covers all writes that were complete when it was submitted. After a failed
//! write or flush nothing succeeds any more: the outcome is unknown.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

use io::broken::{Broken, broken};
use io::{
    Boxed, Buf, Completion, Completions, Disk, Done, Error, Extent, ExtentKind, Limits, Op, Part,
    Pool, Result, SharedBuf, Signal, Turn, Work, ZeroSupport,
};

use super::Spawn;
use super::journal::{Journal, Whole};
use crate::bytewise::Bytewise;

/// The unit that this disk offers.
const UNIT: u64 = 512;
/// Most bytes of a physical sector: a mask has 128 bits.
const MOST_SECTOR: u32 = 128 * UNIT as u32;
/// Bytes that are zeroed at once.
const ZERO_BYTES: u64 = 1 << 20;

/// Units of a sector, from bit 0.
type Mask = u128;

/// Bytes of a physical sector that are written together, so far as this disk cares.
fn sector_bytes(limits: &Limits) -> u32 {
    limits.physical_block.min(MOST_SECTOR)
}

/// A member's data, for pieces of this length: the part of its disk that is for them, if they fill
/// its sectors; else with the journal between. Replays the journal first. Tasks go to `spawn`.
///
/// # Errors
/// `Refused` if the journal is damaged; else the disk's.
pub fn open(
    (journal, data): (Part, Part),
    piece_bytes: u32,
    spawn: Spawn,
) -> Boxed<'static, Result<Rc<dyn Disk>>> {
    Box::pin(async move {
        let data = Rc::new(data);
        // The disk may have reported other sectors before.
        let journal = Journal::open(journal, Rc::clone(&data)).await?;
        if piece_bytes.is_multiple_of(sector_bytes(&data.limits())) {
            return Ok(data as Rc<dyn Disk>);
        }
        Ok(Rc::new(Sectors(Rc::new(Inner::new(journal, data, spawn)))))
    })
}

/// A disk with blocks of 512 bytes, whatever is below.
struct Sectors(Rc<Inner>);

struct Inner {
    data: Rc<Part>,
    journal: Journal,
    reads: Bytewise,
    sector: u64,
    /// Most sectors in memory.
    most: usize,
    pool: Pool,
    spawn: Spawn,
    held: RefCell<BTreeMap<u64, Held>>,
    /// Increments with each flush that is submitted or begins.
    time: Cell<u64>,
    /// The last flush that is complete covers all that were submitted up to then.
    flushed: Cell<u64>,
    /// The turn at the journal, and what all wait for: turns, writes in place, faults.
    taken: Cell<bool>,
    changed: Signal,
    fault: RefCell<Option<Error>>,
    /// True while a task makes room.
    drains: Cell<bool>,
    answers: Completions<Done>,
}

/// Bytes of one sector that may not be on the disk yet.
#[derive(Default)]
struct Held {
    /// Waits.
    newest: Option<Bytes<Buf>>,
    /// Is being written.
    leaving: Option<Bytes<SharedBuf>>,
}

struct Bytes<B> {
    /// A whole sector.
    buf: B,
    /// What of it is there.
    mask: Mask,
    /// When the first of it came.
    since: u64,
}

/// The bits of these units.
fn bits(units: Range<u64>) -> Mask {
    let below = |count: u64| 1u128.checked_shl(count as u32).map_or(Mask::MAX, |bit| bit - 1);
    below(units.end) & !below(units.start)
}

/// The runs of units in a mask, as bytes.
fn runs(mut mask: Mask) -> impl Iterator<Item = Range<usize>> {
    std::iter::from_fn(move || {
        let start = u64::from(mask.trailing_zeros());
        let count = u64::from((mask.checked_shr(start as u32)?).trailing_ones());
        mask &= !bits(start..start + count);
        Some((start * UNIT) as usize..((start + count) * UNIT) as usize)
    })
}

/// Copies bytes to this place of a list of buffers, as far as they reach into it.
fn scatter(bufs: &mut [Buf], mut at: usize, mut bytes: &[u8]) {
    for buf in bufs {
        let from = at.min(buf.len());
        let len = bytes.len().min(buf.len() - from);
        buf[from..from + len].copy_from_slice(&bytes[..len]);
        (at, bytes) = (at - from, &bytes[len..]);
    }
}

impl<B: std::ops::Deref<Target = [u8]>> Bytes<B> {
    fn copy_to(&self, target: &mut [u8]) {
        runs(self.mask).for_each(|run| target[run.clone()].copy_from_slice(&self.buf[run]));
    }
}

impl Disk for Sectors {
    fn submit(&self, op: Op) -> Completion<Done> {
        let inner = &self.0;
        if let Some(fault) = self.limits().check(&op) {
            let error = Error::refused(format!("a member's data, offset {}: {fault}", op.offset));
            return Completion::ready(Done::failed(op.work, error));
        }
        let is_read = matches!(op.work, Work::Read(_));
        if is_read && inner.has_none(&op) && inner.data.limits().check(&op).is_none() {
            return inner.data.submit(op);
        }
        let time = match op.work {
            Work::Flush => inner.tick(),
            _ => 0,
        };
        let (ticket, answer) = inner.answers.start();
        let inner = Rc::clone(inner);
        (self.0.spawn)(Box::pin(async move {
            let done = inner.run(op, time).await;
            inner.answers.finish(ticket, done);
        }));
        answer
    }

    fn limits(&self) -> Limits {
        Limits {
            logical_block: UNIT as u32,
            atomic_write: UNIT as u32,
            zero: ZeroSupport::Written,
            discard: false,
            discard_zeroes: false,
            volatile: true,
            ..self.0.data.limits()
        }
    }
}

impl Inner {
    fn new(journal: Journal, data: Rc<Part>, spawn: Spawn) -> Inner {
        let sector = u64::from(sector_bytes(&data.limits()));
        let most = journal.most(sector).max(1);
        let pool = Pool::new(most * sector as usize);
        let reads = Bytewise::new(Rc::clone(&data) as Rc<dyn Disk>, pool.clone());
        Inner {
            data,
            journal,
            reads,
            sector,
            most,
            pool,
            spawn,
            held: RefCell::default(),
            time: Cell::new(1),
            flushed: Cell::new(0),
            taken: Cell::new(false),
            changed: Signal::new(),
            fault: RefCell::default(),
            drains: Cell::new(false),
            answers: Completions::new(),
        }
    }

    async fn run(self: &Rc<Self>, mut op: Op, time: u64) -> Done {
        let result = match &mut op.work {
            Work::Read(_) => return self.read(op).await,
            Work::Write(bufs) => self.write(op.offset, bufs).await,
            Work::Zero { fast: true, .. } => {
                return Done::failed(op.work, Error::refused("zeros are written"));
            }
            Work::Zero { len, .. } => self.zero(op.offset, *len).await,
            Work::Discard { .. } => Ok(()),
            Work::Extents { len, found } => {
                found.clear();
                let kind = ExtentKind::Data;
                found.extend((*len > 0).then_some(Extent { len: *len, kind }));
                Ok(())
            }
            Work::Flush => self.flush(time).await,
        };
        let result = match result {
            Ok(()) if op.fua => self.flush(self.tick()).await,
            result => result,
        };
        Done { work: op.work, result }
    }

    fn tick(&self) -> u64 {
        self.time.replace(self.time.get() + 1)
    }

    /// Sectors that the range touches.
    fn touched(&self, offset: u64, len: u64) -> Range<u64> {
        offset / self.sector..(offset + len).div_ceil(self.sector)
    }

    /// Bytes of a sector: the last one may be cut off.
    fn length(&self, sector: u64) -> u64 {
        self.sector.min(self.data.limits().bytes - sector * self.sector)
    }

    fn is_whole(&self, sector: u64, mask: Mask) -> bool {
        mask == bits(0..self.length(sector) / UNIT)
    }

    fn check(&self) -> Result<()> {
        self.fault.borrow().clone().map_or(Ok(()), Err)
    }

    /// Keeps a failure, for all that follows.
    fn note(&self, result: Result<()>) -> Result<()> {
        if let Err(error) = &result {
            self.fault.borrow_mut().get_or_insert_with(|| error.clone());
        }
        self.changed.raise();
        result
    }

    /// True if nothing of the range is in memory.
    fn has_none(&self, op: &Op) -> bool {
        self.held.borrow().range(self.touched(op.offset, op.work.len())).next().is_none()
    }

    async fn read(&self, op: Op) -> Done {
        let offset = op.offset;
        let touched = self.touched(offset, op.work.len());
        // Of this moment: what leaves memory from now on may be on the disk, or not.
        let mut found = Vec::new();
        for (&sector, held) in self.held.borrow().range(touched) {
            let mut bytes = vec![0; self.sector as usize];
            let (leaving, newest) = (held.leaving.as_ref(), held.newest.as_ref());
            leaving.inspect(|it| it.copy_to(&mut bytes));
            newest.inspect(|it| it.copy_to(&mut bytes));
            let mask = leaving.map_or(0, |it| it.mask) | newest.map_or(0, |it| it.mask);
            found.push((sector * self.sector, mask, bytes));
        }
        let mut done = self.reads.submit(op).await;
        if let (Work::Read(bufs), Ok(())) = (&mut done.work, &done.result) {
            for (at, mask, bytes) in found {
                for run in runs(mask) {
                    let at = at + run.start as u64;
                    // A sector may begin before the range.
                    let skipped = offset.saturating_sub(at).min(run.len() as u64) as usize;
                    let bytes = &bytes[run][skipped..];
                    scatter(bufs, (at + skipped as u64).saturating_sub(offset) as usize, bytes);
                }
            }
        }
        done
    }

    async fn zero(self: &Rc<Self>, mut offset: u64, len: u64) -> Result<()> {
        let end = offset + len;
        while offset < end {
            let len = ZERO_BYTES.min(end - offset);
            self.write(offset, &[self.pool.take_zeroed(len as usize).freeze()]).await?;
            offset += len;
        }
        Ok(())
    }

    async fn write(self: &Rc<Self>, offset: u64, bufs: &[SharedBuf]) -> Result<()> {
        if self.held.borrow().len() >= self.most / 2 && !self.drains.replace(true) {
            let inner = Rc::clone(self);
            (self.spawn)(Box::pin(async move {
                // A failure is kept for the next request.
                drop(inner.make_room(inner.most / 2).await);
                inner.drains.set(false);
            }));
        }
        self.make_room(self.most).await?;
        let len: u64 = bufs.iter().map(|buf| buf.len() as u64).sum();
        self.hold(offset, bufs);
        self.write_whole(self.touched(offset, len)).await
    }

    /// Puts bytes into memory.
    fn hold(&self, mut at: u64, bufs: &[SharedBuf]) {
        let mut held = self.held.borrow_mut();
        for mut bytes in bufs.iter().map(|buf| &**buf) {
            while !bytes.is_empty() {
                let (sector, within) = (at / self.sector, at % self.sector);
                let len = bytes.len().min((self.sector - within) as usize);
                let newest = held.entry(sector).or_default().newest.get_or_insert_with(|| {
                    let buf = self.pool.take(self.length(sector) as usize);
                    Bytes { buf, mask: 0, since: self.time.get() }
                });
                newest.buf[within as usize..][..len].copy_from_slice(&bytes[..len]);
                // A buffer may end within a unit; the next one goes on there.
                newest.mask |= bits(within / UNIT..(within + len as u64).div_ceil(UNIT));
                (at, bytes) = (at + len as u64, &bytes[len..]);
            }
        }
    }

    /// Writes sectors of this range that are whole.
    async fn write_whole(&self, range: Range<u64>) -> Result<()> {
        loop {
            self.check()?;
            let mut waits = false;
            let mut ready = Vec::new();
            for (&sector, held) in self.held.borrow().range(range.clone()) {
                let whole = |bytes: &Bytes<Buf>| self.is_whole(sector, bytes.mask);
                if held.newest.as_ref().is_some_and(whole) {
                    waits |= held.leaving.is_some();
                    ready.extend(held.leaving.is_none().then_some(sector));
                }
            }
            if ready.iter().any(|sector| self.journal.has(sector * self.sector)) {
                match Turn::take(&self.taken, &self.changed) {
                    Some(_turn) => self.note(self.journal.clear().await)?,
                    None => self.changed.wait().await,
                }
            } else if !ready.is_empty() {
                let sectors = self.take(&ready);
                self.note(self.journal.write(&sectors).await)?;
                self.forget(&ready);
            } else if waits {
                self.changed.wait().await;
            } else {
                return Ok(());
            }
        }
    }

    /// Sectors of which something waits that came until then, and nothing is being written.
    fn ready(&self, until: u64) -> Vec<u64> {
        let held = self.held.borrow();
        let old = |held: &Held| held.newest.as_ref().is_some_and(|bytes| bytes.since <= until);
        let ready = held.iter().filter(|(_, held)| held.leaving.is_none() && old(held));
        ready.map(|(&sector, _)| sector).take(self.most).collect()
    }

    /// True if something is in memory that came until then.
    fn has_old(&self, until: u64) -> bool {
        let since = |held: &Held| {
            let leaving = held.leaving.as_ref().map_or(u64::MAX, |bytes| bytes.since);
            held.newest.as_ref().map_or(leaving, |bytes| bytes.since.min(leaving))
        };
        self.held.borrow().values().any(|held| since(held) <= until)
    }

    /// Begins to write what waits of these sectors.
    fn take(&self, sectors: &[u64]) -> Whole {
        let mut held = self.held.borrow_mut();
        let take = |&sector: &u64| {
            let held = held.get_mut(&sector).expect("the caller has found it");
            let Bytes { buf, mask, since } = held.newest.take().expect("something waits");
            let buf = buf.freeze();
            held.leaving = Some(Bytes { buf: buf.clone(), mask, since });
            (sector * self.sector, buf)
        };
        sectors.iter().map(take).collect()
    }

    /// Ends it: the disk has them.
    fn forget(&self, sectors: &[u64]) {
        let mut held = self.held.borrow_mut();
        for sector in sectors {
            let rest = held.remove(sector).and_then(|held| held.newest);
            if let Some(newest) = rest {
                held.insert(*sector, Held { newest: Some(newest), leaving: None });
            }
        }
        self.changed.raise();
    }

    /// Reads what taken sectors lack.
    async fn complete(&self, taken: Whole) -> Result<Whole> {
        let lacks = |at: u64| {
            let held = self.held.borrow();
            let leaving = held[&(at / self.sector)].leaving.as_ref();
            !leaving.is_some_and(|bytes| self.is_whole(at / self.sector, bytes.mask))
        };
        let read = |(at, part): (u64, SharedBuf)| {
            let buf = || self.pool.take(part.len());
            (at, lacks(at).then(|| self.data.submit(Op::read(at, buf()))), part)
        };
        let reads: Vec<_> = taken.into_iter().map(read).collect();
        let mut whole = Vec::new();
        for (at, read, part) in reads {
            let Some(read) = read else {
                whole.push((at, part));
                continue;
            };
            let done = read.await;
            done.result.clone()?;
            let mut buf = done.into_buf();
            let held = self.held.borrow();
            let leaving = held[&(at / self.sector)].leaving.as_ref().expect("it is being written");
            leaving.copy_to(&mut buf);
            whole.push((at, buf.freeze()));
        }
        Ok(whole)
    }

    /// Writes these sectors by the journal. The caller has the turn.
    async fn round(&self, sectors: &[u64]) -> Result<()> {
        let taken = self.take(sectors);
        let written = match self.complete(taken).await {
            Ok(whole) => self.journal.overwrite(&whole).await,
            Err(error) => Err(error),
        };
        self.note(written)?;
        self.forget(sectors);
        Ok(())
    }

    /// Waits until memory has fewer sectors.
    async fn make_room(&self, fewer: usize) -> Result<()> {
        loop {
            self.check()?;
            if self.held.borrow().len() < fewer.max(1) {
                return Ok(());
            }
            let mut ready = self.ready(u64::MAX);
            // Soon there is some room.
            ready.truncate(self.most.div_ceil(4));
            let turn = if ready.is_empty() { None } else { Turn::take(&self.taken, &self.changed) };
            match turn {
                Some(_turn) => self.round(&ready).await?,
                None => self.changed.wait().await,
            }
        }
    }

    /// Makes durable what was complete at this time.
    async fn flush(&self, submitted: u64) -> Result<()> {
        let _turn = loop {
            self.check()?;
            if self.flushed.get() > submitted {
                return Ok(());
            }
            match Turn::take(&self.taken, &self.changed) {
                Some(turn) => break turn,
                None => self.changed.wait().await,
            }
        };
        let begun = self.tick();
        while self.has_old(begun) && !broken(Broken::FragmentsStay) {
            self.check()?;
            let ready = self.ready(begun);
            if ready.is_empty() {
                self.changed.wait().await;
            } else {
                self.round(&ready).await?;
            }
        }
        self.note(self.journal.flush().await)?;
        self.flushed.set(begun);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mask_has_the_units_of_the_largest_sector() {
        assert_eq!((bits(0..128), bits(0..0), bits(127..128)), (Mask::MAX, 0, 1 << 127));
        let mut all = runs(Mask::MAX);
        assert_eq!((all.next(), all.next()), (Some(0..65536), None));
        assert_eq!(runs(0b1011).collect::<Vec<_>>(), [0..1024, 1536..2048]);
        assert_eq!(runs(0).count(), 0);
    }
}
