//! Rebuild and copy of the parity levels: the same plans, rows and batches as for a client's
//! request, under the same locks. Rows that fit into memory together are done in one go. Adjacent
//! bytes then cost one member request, however small the chunks are.
//!
//! A row that cannot be recovered whole is split into blocks of 4 KiB, so that one bad sector costs
//! only its own block.

use std::rc::Rc;

use io::Buf;
use io::broken::{Broken, broken};
use layout::plan::{Method, Row, WritePlan, plan_read};
use layout::{Slot, SlotSet};
use metadata::{ErrorKind, Result};

use crate::member::View;
use crate::rows::checksum::BLOCK;
use crate::rows::engine::{Engine, RowOp};
use crate::rows::job::scrub::row_blocks;
use crate::rows::job::{Report, Task};
use crate::rows::read::recovered_of;
use crate::rows::{Outgoing, Piece, RowWork, touched_bytes};

impl RowOp<'_> {
    /// Does one task to a range of whole stripes.
    pub(crate) async fn job_on_rows(
        &mut self,
        (offset, len): (u64, u64),
        task: Task,
        report: &mut Report,
    ) -> Result<()> {
        let mut all = Vec::new();
        self.engine.split_rows(offset, len, &mut all);
        let all = self.engine.sliced(all);
        let slots = self.engine.setup.geometry.slots() as u64;
        let weight = |rows: &[RowWork]| rows.iter().map(|row| row.row.len() * slots).sum::<u64>();
        let runs = gathered(&all, self.engine.setup.bounds.scratch_bytes / 4, weight);
        // Memory is waited for outside the barrier: its holders may be waiting to enter.
        let need = runs.iter().map(|rows| weight(rows)).max().unwrap_or(0);
        let _memory = self.engine.scratch.take(need).await;
        let inside = self.engine.gate.enter().await;
        let mut op = self.inside(&inside);
        for rows in runs {
            match task {
                Task::Rebuild(_) | Task::Copy(_) => {
                    op.restore_rows(rows, task, report).await?;
                }
                Task::Resync | Task::Check | Task::Repair | Task::Checksum => {
                    op.compare_rows(rows, task, report).await?;
                }
            }
        }
        Ok(())
    }

    /// Restores the targets of a rebuild or copy in rows that fit into memory together: in one go,
    /// else one by one, and block by block where a row cannot be recovered whole.
    async fn restore_rows(
        &mut self,
        rows: &[RowWork],
        task: Task,
        report: &mut Report,
    ) -> Result<()> {
        if rows.len() > 1 {
            match self.restore_once(rows, task, report).await {
                Err(error) if error.kind() == ErrorKind::DataLost => {}
                other => return other,
            }
        }
        let mut todo = rows.to_vec();
        while let Some(row) = todo.pop() {
            match self.restore_once(&[row], task, report).await {
                Err(error) if error.kind() == ErrorKind::DataLost => {
                    let Row { stripe, start, end, .. } = row.row;
                    if end - start <= BLOCK {
                        report.lose(self.engine.stripe_offset(stripe), end - start);
                        if !broken(Broken::LostTakenForRebuilt) {
                            self.engine.note_unrecoverable(&row, task);
                        }
                        self.engine.discard_suspect_parity(&row);
                        continue;
                    }
                    todo.extend(row_blocks(row));
                }
                other => other?,
            }
        }
        Ok(())
    }

    async fn restore_once(
        &mut self,
        rows: &[RowWork],
        task: Task,
        report: &mut Report,
    ) -> Result<()> {
        self.work.rows.clear();
        self.work.rows.extend_from_slice(rows);
        let view = loop {
            let view = self.engine.view();
            let targets = match task {
                Task::Rebuild(slots) => slots.intersection(view.present),
                Task::Copy(slot) => SlotSet::only(slot).intersection(view.present),
                _ => unreachable!("only rebuild and copy restore"),
            };
            if targets.is_empty() {
                return Ok(());
            }
            for row in &mut self.work.rows {
                let targets = self.engine.lacking(&view, row, task, targets);
                self.engine.plan_restore(&view, row, targets)?;
            }
            if !self.read_for_rows(&view).await {
                self.after_reading(&view, report).await?;
                continue;
            }
            let fits = |row: &RowWork| self.engine.recovered_fits(&view, row, &self.work.pieces);
            let Some(misfit) = self.work.rows.iter().position(|row| !fits(row)) else { break view };
            if !self.engine.ask_q(&view, &mut self.work.rows[misfit]) {
                return Err(self.engine.contradicted(&self.work.rows[misfit]));
            }
        };
        self.work.outgoing.clear();
        for row in &self.work.rows {
            let Some(WritePlan { read, write, .. }) = row.plan else { continue };
            report.bytes += (read.count() + write.count()) as u64 * row.row.len();
            let own = matches!(task, Task::Rebuild(_)) && !read.intersection(write).is_empty();
            assert!(!own, "slots {write:?} would be rebuilt from their own old bytes ({read:?})");
            for slot in write.iter() {
                let bytes = self.engine.bytes_of(row, slot, &self.work.pieces).freeze();
                self.work.outgoing.push(Outgoing { slot, at: row.at(), bytes });
            }
        }
        self.send_made(view, task).await?;
        let rows = std::mem::take(&mut self.work.rows);
        self.align_rows(&self.engine.view(), &rows).await;
        self.work.rows = rows;
        Ok(())
    }

    /// Writes the restored bytes of a rebuild or copy, with their checksums.
    pub(super) async fn send_made(&mut self, view: Rc<View>, task: Task) -> Result<()> {
        self.checksum_outgoing();
        let result = match task {
            Task::Copy(slot) => self.send_to_replacement(&view, slot).await,
            _ => self.send(view).await,
        };
        self.work.outgoing.clear();
        result?;
        self.renew_checksums().await
    }

    /// Writes the bytes read from a slot only to its replacement.
    async fn send_to_replacement(&mut self, view: &View, slot: Slot) -> Result<()> {
        let Some(replacement) = &view.slots[slot.index()].replacement else { return Ok(()) };
        for out in &self.work.outgoing {
            assert_eq!(out.slot, slot, "the replacement of slot {slot} would get another's bytes");
            self.work.batch.write(replacement, slot, out.at, out.bytes.clone(), self.opts.op_bytes);
        }
        self.engine.run(&mut self.work.batch, self.opts).await;
        self.work.batch.drain(|_, _, _| {}, |_, _, _| {}, &mut self.work.failures);
        if self.work.failures.is_empty() || broken(Broken::CopyErrorSwallowed) {
            self.work.failures.clear();
            for out in &self.work.outgoing {
                self.engine.clear_bad(replacement, out.at, out.bytes.len() as u64);
            }
            return Ok(());
        }
        self.lose(view).await
    }
}

impl Engine {
    /// Whole rows, cut so that one row of all members takes only a share of the shard's memory.
    fn sliced(&self, rows: Vec<RowWork>) -> Vec<RowWork> {
        let slots = self.setup.geometry.slots() as u64;
        let share = self.setup.bounds.scratch_bytes / 4 / slots;
        let slice = (share / BLOCK * BLOCK).max(BLOCK);
        let whole = touched_bytes(&rows);
        let each = rows.into_iter().flat_map(|work| {
            let Row { start, end, .. } = work.row;
            (start..end).step_by(slice as usize).map(move |at| {
                let row = Row { start: at, end: (at + slice).min(end), ..work.row };
                RowWork { row, ..work }
            })
        });
        let slices: Vec<RowWork> = each.collect();
        assert_eq!(touched_bytes(&slices), whole, "background work would leave out part of a row");
        slices
    }

    /// The targets that do not hold a row yet: of several slots in a rebuild, one may be further
    /// along. All targets of a copy.
    fn lacking(&self, view: &View, row: &RowWork, task: Task, targets: SlotSet) -> SlotSet {
        match task {
            Task::Rebuild(_) => targets.difference(self.state_of(view, row).readable),
            _ => targets,
        }
    }

    /// Records the targets of an unrecoverable row as bad there: their contents are wrong.
    fn note_unrecoverable(&self, row: &RowWork, task: Task) {
        let view = self.view();
        let members = match task {
            Task::Rebuild(slots) => {
                let lacking = self.lacking(&view, row, task, slots);
                lacking.iter().filter_map(|slot| view.member(slot).cloned()).collect::<Vec<_>>()
            }
            Task::Copy(slot) => view.slots[slot.index()].replacement.iter().cloned().collect(),
            _ => Vec::new(),
        };
        self.unrecoverable(members.into_iter(), row.at(), row.row.len());
    }

    /// Discards the parity of a suspect row that could not be recovered. It must not become trusted
    /// later, once the row counts as verified.
    fn discard_suspect_parity(&self, row: &RowWork) {
        let view = self.view();
        if self.state_of(&view, row).suspect {
            self.give_up_parity(&view, row, true);
        }
    }

    /// Records this row's parity as bad, also on its replacements: it must never be used for
    /// recovery again.
    pub(super) fn give_up_parity(&self, view: &View, row: &RowWork, filling: bool) {
        let parity = row.roles.parity().intersection(view.present);
        let members = parity.iter().flat_map(|slot| view.targets(slot).cloned());
        self.put_on_lists(members, (row.at(), row.row.len()), filling);
    }

    /// Plans the reads needed to compute all `targets` of a row.
    pub(super) fn plan_restore(
        &self,
        view: &View,
        row: &mut RowWork,
        targets: SlotSet,
    ) -> Result<()> {
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

    /// The contents of a slot in a row, from the pieces read.
    pub(crate) fn bytes_of(&self, row: &RowWork, slot: Slot, pieces: &[Piece]) -> Buf {
        if let Some(bytes) = row.have(pieces, slot) {
            return self.pool.copy_of(bytes);
        }
        if !row.roles.data.contains(slot) {
            return self.computed(row, slot, pieces);
        }
        let Some(Method::Recover(erasure)) = row.plan.map(|plan| plan.method) else {
            unreachable!("data that was not read is recovered");
        };
        recovered_of(erasure, self.recover_row(row, erasure, pieces), slot)
    }
}

/// Groups rows into runs of weight `most` or less; a heavier row is a run of its own.
fn gathered(rows: &[RowWork], most: u64, weight: impl Fn(&[RowWork]) -> u64) -> Vec<&[RowWork]> {
    let (mut runs, mut first) = (Vec::new(), 0);
    for next in 1..=rows.len() {
        if next == rows.len() || weight(&rows[first..=next]) > most {
            runs.push(&rows[first..next]);
            first = next;
        }
    }
    assert_eq!(first, rows.len(), "rows would be left out, and count as done");
    runs
}
