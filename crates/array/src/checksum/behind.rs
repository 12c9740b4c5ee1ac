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
use layout::private::sums::blocks;
use layout::{Family, Mode, Place, SlotSet};
use metadata::Result;

use crate::checksum::generations::newest_copies;
use crate::checksum::{BLOCK, Wanted};
use crate::member::batch::IoOptions;
use crate::member::view::View;
use crate::rows::RowWork;
use crate::rows::job::{Report, Task};
use crate::shard::barrier::Inside;
use crate::shard::{Scratch, Shard};

impl Shard {
    /// True if the generations in memory name a slot that has lost writes to a block of this row.
    pub(crate) fn is_behind(&self, view: &View, row: &RowWork) -> bool {
        if self.sums.is_none() || view.mode != Mode::ReadWrite {
            return false;
        }
        let state = self.state_of(view, row);
        let range = row.at()..row.at() + row.row.len();
        state.synced
            && row.roles.all().is_subset(state.readable)
            && blocks(range).any(|(block, _)| self.behind(view, row, block).is_some())
    }

    /// Reads those of the rows whole that are behind, and corrects them. True if the rows are to be
    /// planned anew.
    ///
    /// # Errors
    /// As [`Shard::lose`] and [`Shard::send`].
    pub(crate) async fn correct_behind(
        &self,
        rows: &[RowWork],
        opts: IoOptions,
        inside: &Inside<'_>,
        view: &Rc<View>,
    ) -> Result<bool> {
        let mut work = Scratch::default();
        for row in rows.iter().filter(|row| self.is_behind(view, row)) {
            let read = row.roles.all();
            let plan = WritePlan { method: Method::DataOnly, read, write: SlotSet::EMPTY };
            work.rows.push(RowWork { plan: Some(plan), ..*row });
        }
        if !self.read_for_rows(&mut work, opts, view).await {
            let report = &mut Report::default();
            self.after_reading(&mut work, opts, inside, view, report).await?;
            return Ok(true);
        }
        self.correct_named(&mut work, opts, inside, view).await
    }

    /// Corrects the blocks that a write fills in part: their rest is read from the members.
    ///
    /// # Errors
    /// As [`Shard::correct_behind`].
    pub(crate) async fn correct_edges(
        &self,
        work: &mut Scratch,
        opts: IoOptions,
        (offset, len): (u64, u64),
        (start, wide): (u64, u64),
    ) -> Result<()> {
        if self.view().mode != Mode::ReadWrite {
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
            match self.setup.geometry.family() {
                Family::Parity => self.correct_edge_row(work, opts, range).await?,
                _ => self.correct_edge_copies(work, opts, range).await?,
            }
        }
        Ok(())
    }

    async fn correct_edge_row(
        &self,
        work: &mut Scratch,
        opts: IoOptions,
        (block, len): (u64, u64),
    ) -> Result<()> {
        self.cut_rows(block, len, &mut work.rows);
        let need = len * self.setup.geometry.slots() as u64;
        let _memory = self.scratch.take(need).await;
        let inside = self.gate.enter().await;
        let view = self.view();
        for row in &mut work.rows {
            let read = row.roles.all();
            row.plan = Some(WritePlan { method: Method::DataOnly, read, write: SlotSet::EMPTY });
        }
        self.want_rows(work, &view);
        if !self.load_sums(work).await {
            // A member that fails here fails again where the row is read.
            work.failures.clear();
            return Ok(());
        }
        if work.rows.iter().any(|row| self.is_behind(&view, row)) {
            self.correct_behind(&work.rows, opts, &inside, &view).await?;
        }
        Ok(())
    }

    async fn correct_edge_copies(
        &self,
        work: &mut Scratch,
        opts: IoOptions,
        (block, len): (u64, u64),
    ) -> Result<()> {
        if self.is_unsynced(block, len) {
            return Ok(());
        }
        let _memory = self.scratch.take(len * self.setup.geometry.slots() as u64).await;
        let inside = self.gate.enter().await;
        for (at, part, places) in self.stretches(block, len) {
            let view = self.view();
            work.wanted.clear();
            for Place { slot, member_offset } in places.copies() {
                let range = member_offset..member_offset + part;
                let wanted = |m| Wanted { member: Rc::clone(m), slot, range: range.clone() };
                work.wanted.extend(view.member(slot).map(wanted));
            }
            if !self.load_sums(work).await {
                work.failures.clear();
                return Ok(());
            }
            let generation = |wanted: &Wanted| {
                self.generation(&wanted.member, wanted.range.start / BLOCK, (at, part))
            };
            let each: Vec<_> = work.wanted.iter().map(generation).collect();
            if newest_copies(&each).is_none() {
                continue;
            }
            let (task, report) = (Task::Repair, &mut Report::default());
            let opts = IoOptions { fua: true, ..opts };
            while !self
                .compare_copies(work, opts, &inside, (at, part), &places, task, report)
                .await?
            {}
        }
        Ok(())
    }
}
