//! Generations: they identify a member that lost a write where blocks contradict each other
//! although each matches its own entry (`layout::private::checksums` has the theory).
//!
//! ```text
//!   write      data + 1, parity + the weights of the written data   no other generation is read
//!   rebuild,   parity and copies in rows that agree get the         because blocks made without a
//!   scrub, …   generations that match the data                      write must not look stale
//! ```
//!
//! A row with unknown entries has no verdict. Before a write uses a block, it corrects a member
//! that has lost a write to the block together with its entry:
//!
//! ```text
//!   a write reads d1 (stale)       ──▶  P′ matches the old d1     the lost write is lost for good
//!   generations identify d1 first  ──▶  d1 is recovered from P    then the write is planned again
//! ```
//!
//! The comparison uses generations that are in memory. A write to a part of a block loads all of
//! its row, and a write that encodes new parity has all of them in any case. A read-modify-write
//! has those of the other data blocks only if something else loaded them.

use std::rc::Rc;

use io::broken::{Broken, broken};
use layout::plan::{Method, WritePlan};
use layout::private::checksums::{
    Behind, ChecksumEntry, behind, blocks, parity_generation, weight,
};
use layout::{Family, MemberId, Mode, Place, RangeSet, Slot, SlotSet};
use metadata::Result;

use crate::member::batch::IoOptions;
use crate::member::{Member, View};
use crate::rows::checksum::verdict::{newest, newest_copies};
use crate::rows::checksum::{BLOCK, ChecksumTable, Wanted};
use crate::rows::engine::{Engine, RowOp};
use crate::rows::job::{Report, Task};
use crate::rows::{RowWork, Scratch};

/// The increment of a row's parity generation for a write of these data indices.
pub(crate) fn weights(written: impl Iterator<Item = usize>) -> u32 {
    written.map(weight).fold(0, u32::wrapping_add)
}

impl ChecksumTable {
    /// The generations of a block of these members; `None` if one is unknown.
    fn generations<'a>(
        &self,
        members: impl Iterator<Item = Option<&'a Rc<Member>>>,
        block: u64,
    ) -> Option<Vec<u32>> {
        let each = members.map(|member| {
            let entry = self.entry(member?.id, block);
            entry.is_known().then_some(entry.generation)
        });
        each.collect()
    }

    /// Sets the generation of a slot's block, if its entry is known.
    fn age(&self, member: MemberId, (slot, block): (Slot, u64), generation: u32) {
        let entry = self.entry(member, block);
        let aged = entry.aged(generation, self.checksum_of_zeros(slot, block));
        if entry.is_known() && aged != entry {
            self.set(member, block, aged);
        }
    }
}

impl RowOp<'_> {
    /// Sets parity generations to match the data in rows that agree, and those of a replacement to
    /// match its original.
    pub(crate) async fn align_rows(&mut self, view: &View, rows: &[RowWork]) {
        self.align_undisputed(view, rows, &RangeSet::default()).await;
    }

    /// Like [`RowOp::align_rows`], but leaves the disputed blocks (`left`) of the rows unchanged,
    /// because their generations may still identify the wrong member.
    pub(crate) async fn align_undisputed(
        &mut self,
        view: &View,
        rows: &[RowWork],
        left: &RangeSet,
    ) {
        let Some(checksums) = &self.engine.checksums else { return };
        if broken(Broken::RowsUnaligned) {
            return;
        }
        self.work.wanted.clear();
        for row in rows {
            let range = row.at()..row.at() + row.row.len();
            for slot in row.roles.all().iter() {
                self.work.add_wanted(view.targets(slot), slot, range.clone());
            }
        }
        if !self.load_checksums().await {
            // The step that needs this member fails again, and reports it.
            return self.work.failures.clear();
        }
        for row in rows {
            for (block, range) in blocks(row.at()..row.at() + row.row.len()) {
                if !left.overlaps(range.start - row.at()..range.end - row.at()) {
                    self.engine.align_block(checksums, view, row, block);
                }
            }
        }
    }

    /// Sets the generations of a stretch's copies to the newest of them, except in disputed blocks
    /// (`left`). `len` is the length in bytes.
    pub(crate) async fn align_copies(
        &mut self,
        view: &View,
        places: &layout::Places,
        len: u64,
        left: &RangeSet,
    ) {
        let Some(checksums) = &self.engine.checksums else { return };
        if broken(Broken::RowsUnaligned) {
            return;
        }
        self.work.wanted.clear();
        for Place { slot, member_offset: at } in places.copies() {
            self.work.add_wanted(view.targets(slot), slot, at..at + len);
        }
        if !self.load_checksums().await {
            return self.work.failures.clear();
        }
        let wanted = std::mem::take(&mut self.work.wanted);
        let first = |wanted: &Wanted| wanted.range.start / super::BLOCK;
        let disputed = |number| left.overlaps(number * super::BLOCK..(number + 1) * super::BLOCK);
        for number in (0..len.div_ceil(super::BLOCK)).filter(|&number| !disputed(number)) {
            let entries = wanted.iter().map(|w| checksums.entry(w.member.id, first(w) + number));
            let newest = newest(entries.map(|entry| entry.is_known().then_some(entry.generation)));
            for (copy, wanted) in
                newest.into_iter().flat_map(|age| wanted.iter().map(move |w| (age, w)))
            {
                checksums.age(wanted.member.id, (wanted.slot, first(wanted) + number), copy);
            }
        }
        self.work.wanted = wanted;
    }
}

impl Engine {
    fn align_block(&self, checksums: &ChecksumTable, view: &View, row: &RowWork, block: u64) {
        for slot in row.roles.data.iter() {
            let Some(original) = view.member(slot).map(|m| checksums.entry(m.id, block)) else {
                continue;
            };
            let alike = |id| {
                let ChecksumEntry { checksum, .. } = checksums.entry(id, block);
                checksum == original.checksum && original.is_known()
            };
            for replacement in view.targets(slot).filter(|member| alike(member.id)) {
                checksums.age(replacement.id, (slot, block), original.generation);
            }
        }
        let data = (0..row.map.data_count()).map(|index| view.member(row.map.data(index)));
        let Some(data) = checksums.generations(data, block) else { return };
        let due = parity_generation(data.into_iter());
        for slot in row.roles.parity().iter() {
            view.targets(slot).for_each(|member| checksums.age(member.id, (slot, block), due));
        }
    }

    /// The slot that has lost writes to a block of a row together with its entries. `block` counts
    /// from the start of the members' data.
    pub(crate) fn behind(&self, view: &View, row: &RowWork, block: u64) -> Option<Slot> {
        let stripe = self.stripe_offset(row.row.stripe);
        let checksums = self.checksums_of(stripe, self.setup.geometry.stripe_bytes())?;
        // Runs on each write, so it must not allocate.
        let generation = |slot| {
            let entry = checksums.entry(view.member(slot)?.id, block);
            entry.is_known().then_some(entry.generation)
        };
        let parity = generation(row.map.p())?;
        let data = (0..row.map.data_count()).map(|index| generation(row.map.data(index)));
        if data.clone().any(|generation| generation.is_none()) {
            return None;
        }
        match behind(parity, data.map(|known| known.expect("the index was just checked"))) {
            Behind::Data(index) => Some(row.map.data(index)),
            Behind::Parity => Some(row.map.p()),
            Behind::Nobody | Behind::Unclear => None,
        }
        .filter(|_| !broken(Broken::GenerationsUnasked))
    }

    /// The generation of a block of a copy, if it is known and valid in this array range.
    pub(crate) fn generation(
        &self,
        member: &Member,
        block: u64,
        (at, len): (u64, u64),
    ) -> Option<u32> {
        let entry = self.checksums_of(at, len)?.entry(member.id, block);
        entry.is_known().then_some(entry.generation)
    }
}

impl Engine {
    /// True if the generations in memory identify a slot that has lost writes to a block of this
    /// row.
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
    /// True if a planned row reads blocks and its generations show that one is stale.
    pub(crate) fn uses_behind(&self, view: &View) -> bool {
        let reads = |row: &RowWork| row.plan.is_some_and(|plan| !plan.read.is_empty());
        self.work.rows.iter().any(|row| reads(row) && self.engine.is_behind(view, row))
    }

    /// Reads rows with stale blocks whole and corrects them. True if the rows must be planned
    /// again.
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

    /// Corrects the blocks that a write covers only in part: their other parts are read from the
    /// members.
    ///
    /// # Errors
    /// As [`RowOp::correct_behind`].
    pub(crate) async fn correct_edges(
        &mut self,
        (offset, len): (u64, u64),
        (start, wide): (u64, u64),
    ) -> Result<()> {
        if self.engine.view().mode != Mode::ReadWrite || broken(Broken::RestOfBehindKept) {
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
        self.add_wanted_rows(&view);
        if !self.load_checksums().await {
            // The read of the row fails again, and reports the member.
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
            for Place { slot, member_offset: at } in places.copies() {
                self.work.add_wanted(view.member(slot), slot, at..at + part);
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
