//! Rebuild, copy, resync and scrub of the mirror levels.
//!
//! Copies are compared block by block, and each block is judged by itself:
//!
//! ```text
//!             block 0   block 1   block 2   block 3
//!   copy 0       a         b         X         d        outvoted: wrong here
//!   copy 1       a         Y         c         ?        outvoted: wrong here; unreadable
//!   copy 2       a         b         c         e
//!                                              └ no majority: the newest generation is valid, if
//!                                                there are checksums, else copy 0, by a guess
//! ```
//!
//! A repair writes only the outvoted blocks, on their members. In a range that is not synced no
//! copy is wrong: all reads have gone to the first readable copy so far, and the others are
//! rewritten from it.

use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

use io::broken::{Broken, broken};
use io::{Buf, SharedBuf};
use layout::{Place, Places, RangeSet, Slot};
use metadata::{ErrorKind, Result};

use crate::member::batch::IoOptions;
use crate::member::{Member, View};
use crate::rows::Outgoing;
use crate::rows::checksum::verdict::{Choice, choose};
use crate::rows::checksum::{BLOCK, Read};
use crate::rows::engine::{Engine, RowOp};
use crate::rows::job::scrub::repairing;
use crate::rows::job::{Finding, Report, Task};

impl RowOp<'_> {
    /// Does one task to an array range.
    pub(crate) async fn job_on_copies(
        &mut self,
        (offset, len): (u64, u64),
        task: Task,
        report: &mut Report,
    ) -> Result<()> {
        // Memory is waited for outside the barrier: its holders may be waiting to enter.
        let _memory = self.engine.memory_for_copies(offset, len).await;
        let inside = self.engine.gate.enter().await;
        let mut op = self.inside(&inside);
        for (at, part, places) in op.engine.stretches(offset, len) {
            let stretch = (at, part);
            if task != Task::Resync && op.engine.is_torn(at, part) {
                // Only until the checksums are renewed can they decide which copy is valid.
                let (resync, mut found) = (Task::Resync, Report::default());
                let found = &mut found;
                while !op.compare_copies(stretch, &places, resync, found).await? {}
            }
            match task {
                Task::Rebuild(_) | Task::Copy(_) => {
                    op.restore_copies(stretch, &places, task, report).await?;
                }
                Task::Resync | Task::Check | Task::Repair | Task::Checksum => {
                    // Repeated if a member was lost on the way.
                    while !op.compare_copies(stretch, &places, task, report).await? {}
                }
            }
        }
        Ok(())
    }

    /// Writes the targets of a rebuild or copy: in one go, else block by block. A block without a
    /// readable copy is recorded as bad on the targets, whose old contents there are not the
    /// array's.
    async fn restore_copies(
        &mut self,
        (at, part): (u64, u64),
        places: &Places,
        task: Task,
        report: &mut Report,
    ) -> Result<()> {
        let targets = places.copies().filter(|place| is_target(task, place.slot)).count();
        if targets == 0 {
            return Ok(());
        }
        let whole = self.restore_copy((at, part), places, task, report);
        match whole.await {
            Err(error) if error.kind() == ErrorKind::DataLost => {}
            other => return other,
        }
        for start in (0..part).step_by(BLOCK as usize) {
            let (at, len) = (at + start, BLOCK.min(part - start));
            let places = self.engine.setup.geometry.places(at);
            let unit = self.restore_copy((at, len), &places, task, report);
            match unit.await {
                // A failed array proves no block lost: its members may return.
                Err(error) if self.engine.view().mode.is_final() => return Err(error),
                Err(error) if error.kind() == ErrorKind::DataLost => {
                    report.lose(at, len);
                    if !broken(Broken::LostTakenForRebuilt) {
                        self.engine.note_lost_copies(&places, len, task);
                    }
                }
                other => other?,
            }
        }
        Ok(())
    }

    /// Reads a stretch and writes it to the targets.
    async fn restore_copy(
        &mut self,
        (at, part): (u64, u64),
        places: &Places,
        task: Task,
        report: &mut Report,
    ) -> Result<()> {
        let bytes = self.read_stretch((at, part), places, None).await?.0.freeze();
        report.bytes += 2 * part;
        let view = self.engine.view();
        self.work.outgoing.clear();
        let most = if broken(Broken::RebuildFillsOne) { 1 } else { usize::MAX };
        for place in places.copies().filter(|place| is_target(task, place.slot)).take(most) {
            let (slot, at, bytes) = (place.slot, place.member_offset, bytes.clone());
            self.work.outgoing.push(Outgoing { slot, at, bytes });
        }
        self.send_made(view, task).await?;
        self.align_copies(&self.engine.view(), places, part, &RangeSet::default()).await;
        Ok(())
    }

    /// Compares one stretch. False if a member was lost and nothing was compared.
    pub(crate) async fn compare_copies(
        &mut self,
        (at, part): (u64, u64),
        places: &Places,
        task: Task,
        report: &mut Report,
    ) -> Result<bool> {
        let view = self.engine.view();
        let holding = |place: Place| {
            let member = view.holding(place.slot, at + part)?;
            let holes = member.bad_within(place.member_offset, part);
            let (member, bytes) = (Rc::clone(member), self.engine.pool.take(0).freeze());
            Some(Copy { place, member, bytes, holes })
        };
        let mut copies: Vec<Copy> = places.copies().filter_map(holding).collect();
        // A single copy needs no comparison, but may lack checksums.
        let checksummed =
            self.engine.checksums.as_ref().is_none_or(|checksums| checksums.counts(at, part));
        if copies.is_empty() || (copies.len() < 2 && checksummed) {
            return Ok(true);
        }
        self.add_wanted_copies(&copies, part);
        let unit = self.engine.unit(&view, (at, part));
        if self.load_checksums().await {
            self.fill_copies(&mut copies, (part, unit)).await;
        }
        if !self.work.failures.is_empty() {
            self.lose(&view).await?;
            return Ok(false);
        }
        let whole = copies.iter().all(|copy| copy.bytes.len() as u64 == part);
        assert!(whole, "a copy of another length than {part} bytes would be compared");
        let wrong = self.engine.find_wrong_copies(&mut copies, (at, part));
        report.bytes += copies.len() as u64 * part;
        let resolved = task != Task::Resync && !self.engine.is_unsynced(at, part);
        let resolved = resolved && !broken(Broken::ScrubTrustsData);
        let block = self.engine.block_bytes(&view).min(part);
        let generation = |copy: usize, start: u64| {
            let Copy { member, place, .. } = &copies[copy];
            self.engine.generation(member, (place.member_offset + start) / BLOCK, (at, part))
        };
        let fitting = self.engine.fitting_copies(&copies, (at, part));
        let fitting = |start: u64| fitting.get(&(start / BLOCK)).copied();
        let judged = (resolved, task);
        let mut repairs = judge(&copies, (at, part), block, judged, (generation, fitting), report);
        let disputed = disputed(&repairs);
        if matches!(task, Task::Check | Task::Checksum) {
            // A check changes no readable block, but restores unreadable ones, as any read would.
            repairs.retain(|mend| mend.unreadable && !mend.guessed);
        }
        report_wrong(wrong, &copies, at, &repairs, report);
        report.repaired_bytes += repairs.iter().map(Repair::len).sum::<u64>();
        report.guessed_bytes +=
            repairs.iter().filter(|mend| mend.guessed).map(Repair::len).sum::<u64>();
        let compares = matches!(task, Task::Check | Task::Checksum);
        let left = if compares { disputed } else { RangeSet::default() };
        self.checksum_copies(&view, (&copies, &repairs), (at, part), &left);
        if let Some(checksums) = self.engine.checksums.as_ref().filter(|_| !repairs.is_empty()) {
            checksums.repaired.set(true);
        }
        self.with(repairing(self.opts, task)).write_repairs((&copies, &repairs)).await?;
        self.renew_checksums().await?;
        self.align_copies(&self.engine.view(), places, part, &left).await;
        Ok(true)
    }

    /// Writes outvoted blocks. Writes unreadable blocks and reads them back.
    async fn write_repairs(&mut self, (copies, repairs): (&[Copy], &[Repair])) -> Result<()> {
        for unreadable in [false, true] {
            self.work.outgoing.clear();
            for mend in repairs.iter().filter(|mend| mend.unreadable == unreadable) {
                let Place { slot, member_offset } = copies[mend.copy].place;
                let range = mend.range.start as usize..mend.range.end as usize;
                let bytes = copies[mend.source].bytes.slice(range);
                self.work.outgoing.push(Outgoing {
                    slot,
                    at: member_offset + mend.range.start,
                    bytes,
                });
            }
            if unreadable {
                self.rewrite(self.engine.view()).await?;
            } else {
                self.send(self.engine.view()).await?;
            }
        }
        self.work.outgoing.clear();
        Ok(())
    }

    /// Adds these copies to the wanted checksums.
    fn add_wanted_copies(&mut self, copies: &[Copy], part: u64) {
        self.work.wanted.clear();
        for Copy { place: Place { slot, member_offset: at }, member, .. } in copies {
            self.work.add_wanted([member], *slot, *at..at + part);
        }
    }

    /// Computes missing checksums of copies, as they are or as their mends will leave them. Blocks
    /// in `left` stay disputed and get none.
    fn checksum_copies(
        &mut self,
        view: &View,
        (copies, repairs): (&[Copy], &[Repair]),
        stretch: (u64, u64),
        left: &RangeSet,
    ) {
        self.work.news.clear();
        let Some(checksums) = &self.engine.checksums else { return };
        let counts = checksums.counts(stretch.0, stretch.1);
        for (index, copy) in copies.iter().enumerate() {
            let Place { slot, member_offset } = copy.place;
            let own = || repairs.iter().filter(|mend| mend.copy == index);
            let known = checksums.knows_checksums(view, slot, member_offset, stretch.1);
            if counts && known && own().next().is_none() {
                continue;
            }
            let mut bytes = copy.bytes.to_vec();
            for mend in own() {
                let range = mend.range.start as usize..mend.range.end as usize;
                bytes[range.clone()].copy_from_slice(&copies[mend.source].bytes[range]);
            }
            let mut holes = copy.holes.clone();
            own().for_each(|mend| holes.remove(mend.range.clone()));
            for begin in (0..stretch.1).step_by(BLOCK as usize) {
                let range = begin..(begin + BLOCK).min(stretch.1);
                let bytes = &bytes[range.start as usize..range.end as usize];
                match holes.overlaps(range.clone()) || left.overlaps(range) {
                    false => self.checksum_bytes(slot, member_offset + begin, bytes),
                    // A mismatch with a valid checksum must stay visible.
                    true if counts && !broken(Broken::LostChecksumForgotten) => {}
                    // Unreadable and disputed blocks get no checksum, whatever the table holds.
                    true => checksums.forget_block(&copy.member, (member_offset + begin) / BLOCK),
                }
            }
        }
    }

    /// Reads each copy; block by block if it is not readable as a whole. Unreadable ranges go into
    /// `holes`, failed members into `failures`.
    async fn fill_copies(&mut self, copies: &mut [Copy], (part, unit): (u64, u64)) {
        for (tag, copy) in copies.iter().enumerate() {
            let Place { slot, member_offset } = copy.place;
            let buf = self.engine.pool.take(part as usize);
            self.work.batch.read(
                &copy.member,
                slot,
                member_offset,
                buf,
                tag as u32,
                self.opts.op_bytes,
            );
        }
        self.engine.run(&mut self.work.batch, IoOptions { fua: false, ..self.opts }).await;
        let mut torn = Vec::new();
        let take = |tag: u32, buf: Option<Buf>, ok: bool| match buf.filter(|_| ok) {
            Some(buf) => copies[tag as usize].bytes = buf.freeze(),
            None => torn.push(tag as usize),
        };
        self.work.batch.drain(take, |_, _, _| {}, &mut self.work.failures);
        self.work.failures.retain(|f| !f.error.is_medium());
        for index in torn {
            if !self.work.failures.is_empty() {
                return;
            }
            self.fill_torn(&mut copies[index], (part, unit)).await;
        }
    }

    /// Reads a copy block by block.
    async fn fill_torn(&mut self, copy: &mut Copy, (part, unit): (u64, u64)) {
        let Place { slot, member_offset } = copy.place;
        for (tag, at) in (0..part).step_by(unit as usize).enumerate() {
            let buf = self.engine.pool.take(unit.min(part - at) as usize);
            self.work.batch.read(&copy.member, slot, member_offset + at, buf, tag as u32, unit);
        }
        self.engine.run(&mut self.work.batch, IoOptions { fua: false, ..self.opts }).await;
        let (mut whole, holes) = (self.engine.pool.take(part as usize), &mut copy.holes);
        let take = |tag: u32, buf: Option<Buf>, ok: bool| {
            let start = u64::from(tag) * unit;
            let range = start..(start + unit).min(part);
            match buf.filter(|_| ok) {
                Some(buf) => whole[range.start as usize..range.end as usize].copy_from_slice(&buf),
                None => holes.insert(range),
            }
        };
        self.work.batch.drain(take, |_, _, _| {}, &mut self.work.failures);
        copy.bytes = whole.freeze();
        self.work.failures.retain(|f| !f.error.is_medium());
    }
}

impl Engine {
    /// Records the bytes of the targets as bad: their contents there are wrong.
    fn note_lost_copies(&self, places: &Places, len: u64, task: Task) {
        let view = self.view();
        for place in places.copies().filter(|place| is_target(task, place.slot)) {
            let member = match task {
                Task::Copy(slot) => view.slots[slot.index()].replacement.clone(),
                _ => view.member(place.slot).cloned(),
            };
            self.unrecoverable(member.into_iter(), place.member_offset, len);
        }
    }

    /// The size of the pieces in which an unreadable stretch is read. Where copies may differ,
    /// blocks beside a bad sector must not be overwritten from another copy.
    fn unit(&self, view: &View, (at, part): (u64, u64)) -> u64 {
        let unresolved = self.is_unsynced(at, part) && !broken(Broken::UnsettledTogether);
        if unresolved { self.block_bytes(view) } else { BLOCK }
    }

    /// For torn blocks in which the copies differ: the valid copy of each block, by numbers of
    /// blocks and copies. Blocks without a matching copy are absent.
    fn fitting_copies(&self, copies: &[Copy], (at, part): (u64, u64)) -> BTreeMap<u64, usize> {
        let Some(checksums) = self.checksums.as_ref().filter(|_| self.is_torn(at, part)) else {
            return BTreeMap::new();
        };
        let each = (0..part).step_by(BLOCK as usize).filter_map(|start| {
            let range = start..(start + BLOCK).min(part);
            let bytes = |copy: &'_ Copy| copy.bytes.slice(range.start as usize..range.end as usize);
            let whole = |copy: &Copy| !copy.holes.overlaps(range.clone());
            let first = bytes(&copies[0]);
            if copies.iter().all(|copy| whole(copy) && bytes(copy)[..] == first[..]) {
                return None;
            }
            let read: Vec<Read<'_>> = copies
                .iter()
                .map(|copy| {
                    let crc = whole(copy).then(|| parity::crc32c(0, &bytes(copy)));
                    let block = (copy.place.member_offset + start) / BLOCK;
                    (&*copy.member, (copy.place.slot, block), crc)
                })
                .collect();
            checksums.fitting(&read).map(|copy| (start / BLOCK, copy))
        });
        each.collect()
    }

    /// Marks blocks with checksum mismatches as unreadable. Returns the copy and the range of each.
    fn find_wrong_copies(
        &self,
        copies: &mut [Copy],
        (at, part): (u64, u64),
    ) -> Vec<(usize, Range<u64>)> {
        let mut found = Vec::new();
        let Some(checksums) = self.checksums_of(at, part) else { return found };
        for (index, copy) in copies.iter_mut().enumerate() {
            let (slot, start) = (copy.place.slot, copy.place.member_offset);
            for begin in (0..part).step_by(BLOCK as usize) {
                let range = begin..(begin + BLOCK).min(part);
                let bytes = &copy.bytes[range.start as usize..range.end as usize];
                let wrong =
                    checksums.find_wrong(&copy.member, slot, start + begin, bytes).is_some();
                if wrong && !copy.holes.overlaps(range.clone()) {
                    copy.member.counters().checksum_errors.add(1);
                    found.push((index, range.clone()));
                    copy.holes.insert(range);
                }
            }
        }
        found
    }
}

/// True if a task writes this slot.
fn is_target(task: Task, slot: Slot) -> bool {
    match task {
        Task::Rebuild(slots) => slots.contains(slot),
        Task::Copy(from) => slot == from,
        _ => false,
    }
}

/// A copy of a stretch.
struct Copy {
    place: Place,
    member: Rc<Member>,
    bytes: SharedBuf,
    /// Its bytes that are unreadable or on the bad-block list.
    holes: RangeSet,
}

impl Copy {
    /// A finding for a range of this copy; `array_offset` is the start of the stretch.
    fn finding(&self, array_offset: u64, range: &Range<u64>, culprit: Option<Slot>) -> Finding {
        let member_offset = self.place.member_offset + range.start;
        Finding {
            array_offset: array_offset + range.start,
            member_offset,
            disk_offset: self.member.data_offset + member_offset,
            len: range.end - range.start,
            culprit,
            repaired: false,
        }
    }
}

/// Bytes of a copy that must be rewritten from another.
struct Repair {
    copy: usize,
    source: usize,
    range: Range<u64>,
    unreadable: bool,
    guessed: bool,
}

impl Repair {
    fn len(&self) -> u64 {
        self.range.end - self.range.start
    }
}

/// Judges a stretch block by block. Reports wrong copies, unless the task is a resync, and returns
/// the rewrites that make the copies agree. Where the range is not `resolved`, no copy is wrong.
/// `generation` gives the generation of a copy's block. `fitting` overrides the choice of the valid
/// copy.
fn judge(
    copies: &[Copy],
    (at, part): (u64, u64),
    block: u64,
    (resolved, task): (bool, Task),
    (generation, fitting): (impl Fn(usize, u64) -> Option<u32>, impl Fn(u64) -> Option<usize>),
    report: &mut Report,
) -> Vec<Repair> {
    let mut repairs: Vec<Repair> = Vec::new();
    let (reports, repaired) = (task != Task::Resync, task == Task::Repair);
    let sound = copies.iter().all(|copy| copy.holes.is_empty());
    if sound && copies.iter().all(|copy| copy.bytes[..] == copies[0].bytes[..]) {
        report.compared_bytes += part;
        return repairs;
    }
    for start in (0..part).step_by(block as usize) {
        let range = start..(start + block).min(part);
        let len = range.end - range.start;
        let bytes = |copy: usize| &copies[copy].bytes[range.start as usize..range.end as usize];
        let readable = |&copy: &usize| !copies[copy].holes.overlaps(range.clone());
        let there: Vec<usize> = (0..copies.len()).filter(readable).collect();
        let chosen = || {
            let like = |&copy: &usize| there.iter().position(|&other| bytes(other) == bytes(copy));
            let alike: Vec<usize> = there.iter().filter_map(like).collect();
            let generations = || there.iter().map(|&copy| generation(copy, start)).collect();
            let choice = choose(&alike, resolved, generations)?;
            Some(Choice { source: there[choice.source], ..choice })
        };
        let fitting = fitting(start).map(|source| Choice { source, named: true });
        let Some(verdict) = fitting.or_else(chosen) else {
            report.lose(at + start, len);
            continue;
        };
        if there.len() > 1 {
            report.compared_bytes += len;
        }
        let source = verdict.source;
        let wrong = |&copy: &usize| bytes(copy) != bytes(source);
        let disputed = there.iter().any(wrong);
        if disputed && reports && !verdict.named {
            report.find(Finding { repaired, ..copies[source].finding(at, &range, None) });
        }
        for (copy, judged) in copies.iter().enumerate() {
            let unreadable = !there.contains(&copy);
            if !unreadable && !wrong(&copy) {
                continue;
            }
            if !unreadable && reports && verdict.named {
                let slot = Some(judged.place.slot);
                report.find(Finding { repaired, ..judged.finding(at, &range, slot) });
            }
            assert!(source != copy, "copy {copy} would be rewritten from itself");
            assert!(there.contains(&source), "rewritten from copy {source}, which was not read");
            let guessed = disputed && resolved && !verdict.named;
            let mend = Repair { copy, source, range: range.clone(), unreadable, guessed };
            add(&mut repairs, mend);
        }
    }
    repairs
}

/// True if a range of this copy is rewritten.
fn is_repaired(repairs: &[Repair], copy: usize, range: &Range<u64>) -> bool {
    let covers = |mend: &&Repair| mend.range.start <= range.start && range.end <= mend.range.end;
    repairs.iter().filter(|mend| mend.copy == copy).any(|mend| covers(&mend))
}

/// Reports the blocks of copies with checksum mismatches.
fn report_wrong(
    wrong: Vec<(usize, Range<u64>)>,
    copies: &[Copy],
    at: u64,
    repairs: &[Repair],
    report: &mut Report,
) {
    for (copy, range) in wrong {
        let (slot, repaired) = (copies[copy].place.slot, is_repaired(repairs, copy, &range));
        report.find(Finding { repaired, ..copies[copy].finding(at, &range, Some(slot)) });
    }
}

/// The ranges in which readable copies differ.
fn disputed(repairs: &[Repair]) -> RangeSet {
    let each = repairs.iter().filter(|mend| !mend.unreadable || mend.guessed);
    each.map(|mend| mend.range.clone()).collect()
}

/// Adds a mend, or extends the one that it continues.
fn add(repairs: &mut Vec<Repair>, mend: Repair) {
    let alike = |last: &&mut Repair| {
        let key = |m: &Repair| (m.copy, m.source, m.unreadable, m.guessed);
        key(last) == key(&mend) && last.range.end == mend.range.start
    };
    match repairs.iter_mut().rev().take(8).find(alike) {
        Some(last) => last.range.end = mend.range.end,
        None => repairs.push(mend),
    }
}
