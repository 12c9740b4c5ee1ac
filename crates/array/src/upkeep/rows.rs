//! Rebuild, copy, resync and scrub of the parity levels: the same plans, rows and batches as a
//! client's request, under the same locks.
//!
//! A row that cannot be recovered whole is taken apart into blocks of 4 KiB, so that one bad sector
//! costs no more than its own block.

use io::Buf;
use layout::plan::{Method, Row, WritePlan, plan_read};
use layout::{Slot, SlotSet};
use parity::Culprit;

use crate::batch::Manner;
use crate::compute;
use crate::error::{ErrorKind, Result};
use crate::gate::Inside;
use crate::rows::{Outgoing, RowWork};
use crate::shard::{Scratch, Shard};
use crate::upkeep::{Finding, Report, Task};
use crate::view::View;

/// The grain in which bad blocks are told apart, and mismatches located.
const GRAIN: u64 = 4096;

impl Shard {
    /// Does one task to a range of whole stripes.
    pub(crate) async fn upkeep_rows(
        &self,
        work: &mut Scratch,
        manner: Manner,
        (offset, len): (u64, u64),
        task: Task,
        report: &mut Report,
    ) -> Result<()> {
        let mut all = Vec::new();
        self.cut_rows(offset, len, &mut all);
        let all = self.sliced(all);
        // Memory is waited for outside the gate: those who have it may be waiting to get in.
        let slots = self.setup.geometry.slots() as u64;
        let need = all.iter().map(|row| row.row.len() * slots).max().unwrap_or(0);
        let _memory = self.scratch.take(need).await;
        let inside = self.gate.enter().await;
        for row in all {
            match task {
                Task::Rebuild(_) | Task::Copy(_) => {
                    self.restore(work, manner, &inside, row, task, report).await?;
                }
                Task::Resync | Task::Check | Task::Repair => {
                    self.compare(work, manner, &inside, row, task, report).await?;
                }
            }
        }
        Ok(())
    }

    /// Whole rows, cut so that one of them on all members fits well into the memory of the shard.
    fn sliced(&self, rows: Vec<RowWork>) -> Vec<RowWork> {
        let slots = self.setup.geometry.slots() as u64;
        let share = self.setup.bounds.scratch_bytes / 4 / slots;
        let slice = (share / GRAIN * GRAIN).max(GRAIN);
        rows.into_iter()
            .flat_map(|work| {
                let Row { start, end, .. } = work.row;
                (start..end).step_by(slice as usize).map(move |at| {
                    let row = Row { start: at, end: (at + slice).min(end), ..work.row };
                    RowWork { row, ..work }
                })
            })
            .collect()
    }

    /// Brings the targets of a rebuild or copy up to date in one row; block by block if the row as
    /// a whole cannot be recovered.
    async fn restore(
        &self,
        work: &mut Scratch,
        manner: Manner,
        inside: &Inside<'_>,
        row: RowWork,
        task: Task,
        report: &mut Report,
    ) -> Result<()> {
        let mut todo = vec![row];
        while let Some(row) = todo.pop() {
            match self.restore_once(work, manner, inside, row, task, report).await {
                Err(error) if error.kind() == ErrorKind::DataLost => {
                    let Row { stripe, start, end, .. } = row.row;
                    if end - start <= GRAIN {
                        report.lost.push((self.stripe_offset(stripe), end - start));
                        self.note_unrecoverable(&row, task);
                        continue;
                    }
                    let grains = (start..end).step_by(GRAIN as usize).map(|at| {
                        let part = Row { start: at, end: (at + GRAIN).min(end), ..row.row };
                        RowWork { row: part, bad: SlotSet::EMPTY, ..row }
                    });
                    todo.extend(grains);
                }
                other => other?,
            }
        }
        Ok(())
    }

    /// The targets of a row that could not be recovered hold something wrong there: never read it.
    fn note_unrecoverable(&self, row: &RowWork, task: Task) {
        let view = self.view();
        let members = match task {
            Task::Rebuild(slots) => {
                slots.iter().filter_map(|slot| view.member(slot).cloned()).collect::<Vec<_>>()
            }
            Task::Copy(slot) => view.seats[slot.index()].twin.iter().cloned().collect(),
            _ => Vec::new(),
        };
        self.unrecoverable(members.into_iter(), row.at(), row.row.len());
    }

    async fn restore_once(
        &self,
        work: &mut Scratch,
        manner: Manner,
        inside: &Inside<'_>,
        row: RowWork,
        task: Task,
        report: &mut Report,
    ) -> Result<()> {
        work.rows.clear();
        work.rows.push(row);
        let (view, targets) = loop {
            let view = self.view();
            let targets = match task {
                Task::Rebuild(slots) => slots.intersection(view.present),
                Task::Copy(slot) => SlotSet::only(slot).intersection(view.present),
                _ => unreachable!("only rebuild and copy restore"),
            };
            if targets.is_empty() {
                return Ok(());
            }
            self.plan_restore(&view, &mut work.rows[0], targets)?;
            if self.read_for_rows(work, manner, &view).await {
                break (view, targets);
            }
            if !work.failures.is_empty() {
                self.lose(inside, &view, &mut work.failures).await?;
            }
        };
        let row = work.rows[0];
        let read = row.plan.map_or(0, |plan| plan.read.count()) as u64;
        report.bytes += (read + targets.count() as u64) * row.row.len();
        work.outgoing.clear();
        for slot in targets.iter() {
            let bytes = self.bytes_of(&row, slot, &work.pieces);
            work.outgoing.push(Outgoing { slot, at: row.at(), bytes: bytes.freeze() });
        }
        let result = match task {
            Task::Copy(slot) => self.send_to_twin(work, manner, inside, &view, slot).await,
            _ => self.send(work, manner, inside, view).await,
        };
        work.outgoing.clear();
        result
    }

    /// Plans the reads from which all `targets` of a row can be computed.
    fn plan_restore(&self, view: &View, row: &mut RowWork, targets: SlotSet) -> Result<()> {
        let mut state = self.state_of(view, row);
        let direct = targets.is_subset(state.readable);
        let (method, read) = if direct {
            (Method::DataOnly, targets)
        } else {
            state.readable = state.readable.difference(targets);
            // A parity slot is computed from all the data.
            let wanted = if targets.is_subset(row.roles.data) { targets } else { row.roles.data };
            let plan =
                plan_read(&row.roles, &state, wanted).map_err(|lost| self.data_lost(row, lost))?;
            (plan.recover.map_or(Method::Reconstruct, Method::Recover), plan.read)
        };
        row.plan = Some(WritePlan { method, read, write: targets });
        Ok(())
    }

    /// What a slot should hold in a row, from what was read.
    fn bytes_of(&self, row: &RowWork, slot: Slot, pieces: &[crate::rows::Piece]) -> Buf {
        if let Some(bytes) = row.have(pieces, slot) {
            return self.pool.copy_of(bytes);
        }
        let recovered = match row.plan.map(|plan| plan.method) {
            Some(Method::Recover(erasure)) => {
                Some((erasure, self.recover_row(row, erasure, pieces)))
            }
            _ => None,
        };
        let lost = recovered.as_ref().map_or(SlotSet::EMPTY, |(erasure, _)| erasure.lost());
        if let Some((_, (x, y))) = recovered.as_ref().filter(|_| lost.contains(slot)) {
            let first = lost.iter().next() == Some(slot);
            return self.pool.copy_of(if first { x } else { y });
        }
        let len = row.row.len() as usize;
        let mut buf = self.pool.take(len);
        let source = |index: usize, at: usize| -> &[u8] {
            let data = row.map.data(index);
            match (&recovered, row.have(pieces, data)) {
                (_, Some(bytes)) => &bytes[at..],
                (Some((_, (x, y))), None) => {
                    if lost.iter().next() == Some(data) {
                        &x[at..]
                    } else {
                        &y[at..]
                    }
                }
                (None, None) => unreachable!("the plan reads or recovers all the data"),
            }
        };
        let (p, q) = if slot == row.map.p() {
            (Some(&mut buf[..]), None)
        } else {
            (None, Some(&mut buf[..]))
        };
        compute::encode(self.setup.kernel, &row.map, len, source, p, q);
        buf
    }

    /// Writes what was read of a slot to its twin alone.
    pub(super) async fn send_to_twin(
        &self,
        work: &mut Scratch,
        manner: Manner,
        inside: &Inside<'_>,
        view: &View,
        slot: Slot,
    ) -> Result<()> {
        let Some(twin) = &view.seats[slot.index()].twin else { return Ok(()) };
        for out in &work.outgoing {
            work.batch.write(twin, slot, out.at, out.bytes.clone(), manner.op_bytes);
        }
        self.run(&mut work.batch, manner).await;
        work.batch.drain(|_, _, _| {}, |_, _, _| {}, &mut work.failures);
        if work.failures.is_empty() {
            return Ok(());
        }
        self.lose(inside, view, &mut work.failures).await
    }

    /// Compares data and parity of one row, and makes them agree if the task says so.
    async fn compare(
        &self,
        work: &mut Scratch,
        manner: Manner,
        inside: &Inside<'_>,
        row: RowWork,
        task: Task,
        report: &mut Report,
    ) -> Result<()> {
        work.rows.clear();
        work.rows.push(row);
        let all = row.roles.data.union(row.roles.parity());
        let view = loop {
            let view = self.view();
            let state = self.state_of(&view, &work.rows[0]);
            if !work.rows[0].bad.is_empty() && task != Task::Check {
                // What cannot be read is first restored from the rest.
                let bad = work.rows[0].bad;
                let fresh = RowWork { bad: SlotSet::EMPTY, ..row };
                return self.mend(work, manner, inside, fresh, bad, report).await;
            }
            if !all.is_subset(state.readable) {
                // A degraded row has nothing to be compared with.
                return Ok(());
            }
            work.rows[0].plan =
                Some(WritePlan { method: Method::DataOnly, read: all, write: SlotSet::EMPTY });
            if self.read_for_rows(work, manner, &view).await {
                break view;
            }
            if !work.failures.is_empty() {
                self.lose(inside, &view, &mut work.failures).await?;
            }
        };
        let row = work.rows[0];
        report.bytes += all.count() as u64 * row.row.len();
        if self.row_agrees(&row, &work.pieces) {
            return Ok(());
        }
        work.outgoing.clear();
        self.settle_row(&row, work, task, report);
        if task == Task::Check {
            work.outgoing.clear();
        }
        let bytes: u64 = work.outgoing.iter().map(|out| out.bytes.len() as u64).sum();
        self.send(work, manner, inside, view).await?;
        report.repaired_bytes += bytes;
        work.outgoing.clear();
        Ok(())
    }

    /// Rewrites the blocks of a row that cannot be read.
    async fn mend(
        &self,
        work: &mut Scratch,
        manner: Manner,
        inside: &Inside<'_>,
        row: RowWork,
        bad: SlotSet,
        report: &mut Report,
    ) -> Result<()> {
        work.rows.clear();
        work.rows.push(RowWork { bad, ..row });
        let view = self.view();
        let planned = self.plan_restore(&view, &mut work.rows[0], bad).is_ok();
        if !planned || !self.read_for_rows(work, manner, &view).await {
            report.lost.push((self.stripe_offset(row.row.stripe) + row.row.start, row.row.len()));
            if !work.failures.is_empty() {
                self.lose(inside, &view, &mut work.failures).await?;
            }
            return Ok(());
        }
        let row = work.rows[0];
        work.outgoing.clear();
        for slot in bad.iter() {
            let bytes = self.bytes_of(&row, slot, &work.pieces).freeze();
            report.repaired_bytes += bytes.len() as u64;
            work.outgoing.push(Outgoing { slot, at: row.at(), bytes });
        }
        self.rewrite(work, manner, inside, view).await
    }

    /// Finds the blocks of a row that contradict each other, says which member is wrong where that
    /// can be told, and puts what would mend them into `outgoing`.
    fn settle_row(&self, row: &RowWork, work: &mut Scratch, task: Task, report: &mut Report) {
        let start = row.row.start;
        let offset = self.stripe_offset(row.row.stripe);
        // In a row that is not synced it is parity that is unknown: data is never changed there.
        let stripe_bytes = self.setup.geometry.stripe_bytes();
        let synced = task != Task::Resync && !self.is_unsynced(offset, stripe_bytes);
        let mut at = 0;
        while at < row.row.len() {
            let len = GRAIN.min(row.row.len() - at);
            let block = Block { at: at as usize, len: len as usize, synced };
            if let Some(settled) = self.settle_block(row, &work.pieces, block) {
                report.findings.push(Finding {
                    array_offset: offset,
                    member_offset: row.map.member_offset() + start + at,
                    len,
                    culprit: settled.culprit,
                });
                for (slot, buf) in settled.mends {
                    work.outgoing.push(Outgoing { slot, at: row.at() + at, bytes: buf.freeze() });
                }
            }
            at += len;
        }
    }

    /// The culprit of one block, if its syndromes name one, and what to write to make it agree.
    /// `None` if it agrees.
    fn settle_block(
        &self,
        row: &RowWork,
        pieces: &[crate::rows::Piece],
        block: Block,
    ) -> Option<Settled> {
        let (map, kernel) = (&row.map, self.setup.kernel);
        let part = block.at..block.at + block.len;
        let have = |slot| &row.have(pieces, slot).expect("all slots were read")[part.clone()];
        let mut p = self.pool.take(block.len);
        let mut q = map.q().map(|_| self.pool.take(block.len));
        let source = |index: usize, at: usize| &have(map.data(index))[at..];
        compute::encode(kernel, map, block.len, source, Some(&mut p), q.as_deref_mut());
        let p_differs = p[..] != *have(map.p());
        let q_differs = match (map.q(), &q) {
            (Some(slot), Some(q)) => q[..] != *have(slot),
            _ => false,
        };
        if !p_differs && !q_differs {
            return None;
        }
        let culprit = match (map.q(), &q) {
            (Some(slot), Some(q)) if block.synced => {
                self.culprit(row, (&p, have(map.p())), (q, have(slot)))
            }
            _ => None,
        };
        if let Some(slot) = culprit.filter(|&slot| row.roles.data.contains(slot)) {
            // The data block is wrong and P is right: what P says it should be.
            let mut right = self.pool.copy_of(have(map.p()));
            kernel.xor_into(&[&p[..], have(slot)], &mut right);
            return Some(Settled { culprit, mends: vec![(slot, right)] });
        }
        let mut mends = Vec::new();
        if p_differs {
            mends.push((map.p(), p));
        }
        if let (Some(slot), Some(q)) = (map.q(), q.filter(|_| q_differs)) {
            mends.push((slot, q));
        }
        Some(Settled { culprit, mends })
    }

    /// Which slot alone explains wrong P and Q.
    fn culprit(&self, row: &RowWork, p: (&[u8], &[u8]), q: (&[u8], &[u8])) -> Option<Slot> {
        let kernel = self.setup.kernel;
        let (mut p_syndrome, mut q_syndrome) = (self.pool.copy_of(p.0), self.pool.copy_of(q.0));
        kernel.xor_into(&[p.1], &mut p_syndrome);
        kernel.xor_into(&[q.1], &mut q_syndrome);
        let count = row.map.data_count();
        let exponents: Vec<u8> = (0..count).map(|index| row.map.exponent(index)).collect();
        match parity::locate(&p_syndrome, &q_syndrome, &exponents) {
            Culprit::P => Some(row.map.p()),
            Culprit::Q => row.map.q(),
            Culprit::Data(exponent) => {
                let index = exponents.iter().position(|&e| e == exponent);
                index.map(|index| row.map.data(index))
            }
            Culprit::None | Culprit::Unclear => None,
        }
    }
}

/// How a block that contradicts itself is settled: who is wrong, where it can be told, and what to
/// write.
struct Settled {
    culprit: Option<Slot>,
    mends: Vec<(Slot, Buf)>,
}

/// A block within a row.
#[derive(Clone, Copy)]
struct Block {
    at: usize,
    len: usize,
    /// Parity was known to agree with the data here: then a contradiction has a culprit.
    synced: bool,
}
