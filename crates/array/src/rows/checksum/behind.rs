//! Correcting a member that has lost a write together with its entry, before a write uses it.
//!
//! ```text
//!   a write reads d1 (behind)  ──▶  P′ describes the old d1     the lost write is lost for good
//!   generations name d1 first  ──▶  d1 is recovered from P      then the write is planned anew
//! ```
//!
//! Owns the look that a write takes. It compares generations that are in memory: a write of a part
//! of a block loads all of its row, a write that encodes parity anew has all of them in any case. A
//! read-modify-write has those of the other data blocks only if something else loaded them.

use std::rc::Rc;

use layout::plan::{Method, WritePlan};
use layout::private::checksums::blocks;
use layout::{Family, Mode, Place, SlotSet};
use metadata::Result;

use crate::member::batch::IoOptions;
use crate::member::view::View;
use crate::rows::checksum::verdict::newest_copies;
use crate::rows::checksum::{BLOCK, Wanted};
use crate::rows::engine::Engine;
use crate::rows::job::{Report, Task};
use crate::rows::op::RowOp;
use crate::rows::{RowWork, Scratch};

impl Engine {
    /// True if the generations in memory name a slot that has lost writes to a block of this row.
    pub(crate) fn is_behind(&self, view: &View, row: &RowWork) -> bool {
        if self.checksums.is_none() || view.mode != Mode::ReadWrite {
            return false;
        }
        let state = self.state_of(view, row);
        let range = row.at()..row.at() + row.row.len();
        state.synced
            && row.roles.all().is_subset(state.readable)
            && blocks(range).any(|(block, _)| self.behind(view, row, block).is_some())
    }
}

impl RowOp<'_> {
    /// True if a row that is planned reads blocks, and generations say that one is behind.
    pub(crate) fn uses_behind(&self, view: &View) -> bool {
        let reads = |row: &RowWork| row.plan.is_some_and(|plan| !plan.read.is_empty());
        self.work.rows.iter().any(|row| reads(row) && self.engine.is_behind(view, row))
    }

    /// Reads those of the rows whole that are behind, and corrects them. True if the rows are to be
    /// planned anew.
    ///
    /// # Errors
    /// As [`RowOp::lose`] and [`RowOp::send`].
    pub(crate) async fn correct_behind(
        &mut self,
        rows: &[RowWork],
        view: &Rc<View>,
    ) -> Result<bool> {
        self.work.rows.clear();
        for row in rows.iter().filter(|row| self.engine.is_behind(view, row)) {
            let read = row.roles.all();
            let plan = WritePlan { method: Method::DataOnly, read, write: SlotSet::EMPTY };
            self.work.rows.push(RowWork { plan: Some(plan), ..*row });
        }
        if !self.read_for_rows(view).await {
            let report = &mut Report::default();
            self.after_reading(view, report).await?;
            return Ok(true);
        }
        self.correct_named(view).await
    }

    /// Corrects the blocks that a write fills in part: their rest is read from the members.
    ///
    /// # Errors
    /// As [`RowOp::correct_behind`].
    pub(crate) async fn correct_edges(
        &mut self,
        (offset, len): (u64, u64),
        (start, wide): (u64, u64),
    ) -> Result<()> {
        if self.engine.view().mode != Mode::ReadWrite {
            return Ok(());
        }
        let last = (offset + len) / BLOCK * BLOCK;
        let edges = [(start < offset, start), (offset + len < start + wide, last)];
        let mut done = None;
        for (_, block) in edges.into_iter().filter(|(is_partial, _)| *is_partial) {
            if done.replace(block) == Some(block) {
                continue;
            }
            let range = (block, BLOCK.min(start + wide - block));
            match self.engine.setup.geometry.family() {
                Family::Parity => self.correct_edge_row(range).await?,
                _ => self.correct_edge_copies(range).await?,
            }
        }
        Ok(())
    }

    async fn correct_edge_row(&mut self, (block, len): (u64, u64)) -> Result<()> {
        self.engine.split_rows(block, len, &mut self.work.rows);
        let need = len * self.engine.setup.geometry.slots() as u64;
        let _memory = self.engine.scratch.take(need).await;
        let inside = self.engine.gate.enter().await;
        let view = self.engine.view();
        for row in &mut self.work.rows {
            let read = row.roles.all();
            row.plan = Some(WritePlan { method: Method::DataOnly, read, write: SlotSet::EMPTY });
        }
        self.want_rows(&view);
        if !self.load_checksums().await {
            // A member that fails here fails again where the row is read.
            self.work.failures.clear();
            return Ok(());
        }
        if self.work.rows.iter().any(|row| self.engine.is_behind(&view, row)) {
            let (mut other, rows) = (Scratch::default(), self.work.rows.clone());
            let within = self.inside(&inside);
            within.beside(&mut other).correct_behind(&rows, &view).await?;
        }
        Ok(())
    }

    async fn correct_edge_copies(&mut self, (block, len): (u64, u64)) -> Result<()> {
        if self.engine.is_unsynced(block, len) {
            return Ok(());
        }
        let _memory =
            self.engine.scratch.take(len * self.engine.setup.geometry.slots() as u64).await;
        let inside = self.engine.gate.enter().await;
        for (at, part, places) in self.engine.stretches(block, len) {
            let view = self.engine.view();
            self.work.wanted.clear();
            for Place { slot, member_offset } in places.copies() {
                let range = member_offset..member_offset + part;
                let wanted = |m| Wanted { member: Rc::clone(m), slot, range: range.clone() };
                self.work.wanted.extend(view.member(slot).map(wanted));
            }
            if !self.load_checksums().await {
                self.work.failures.clear();
                return Ok(());
            }
            let generation = |wanted: &Wanted| {
                self.engine.generation(&wanted.member, wanted.range.start / BLOCK, (at, part))
            };
            let each: Vec<_> = self.work.wanted.iter().map(generation).collect();
            if newest_copies(&each).is_none() {
                continue;
            }
            let (task, report) = (Task::Repair, &mut Report::default());
            let opts = IoOptions { fua: true, ..self.opts };
            let mut within = self.with(opts);
            let mut within = within.inside(&inside);
            while !within.compare_copies((at, part), &places, task, report).await? {}
        }
        Ok(())
    }
}
