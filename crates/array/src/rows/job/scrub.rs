//! Resync and scrub of the parity levels.
//!
//! ```text
//!   a run of rows ──read all at once──▶ each agrees? ──yes──▶ done
//!                                          │ no, or a read failed
//!                                          ▼
//!                      the row alone ──▶ block by block: which member is wrong? ──▶ the repair
//! ```
//!
//! A row that cannot be read whole is split into blocks, so that one bad sector hides nothing else.
//! Every block is judged by itself. RAID 6 identifies two members that are wrong in different
//! blocks of a row. Other levels need generations for that, which identify a member that lost
//! writes with their checksums. If no member is identified, parity is computed again: a guess.

use std::ops::{ControlFlow, Range};
use std::rc::Rc;

use io::SharedBuf;
use io::broken::{Broken, broken};
use layout::plan::{Method, Row, WritePlan, plan_read};
use layout::{RangeSet, Slot, SlotSet};
use log::compute;
use metadata::Result;
use parity::Culprit;

use crate::member::View;
use crate::member::batch::IoOptions;
use crate::rows::checksum::BLOCK;
use crate::rows::engine::{Engine, RowOp};
use crate::rows::job::{Finding, Report, Task};
use crate::rows::read::recovered_of;
use crate::rows::{Outgoing, Piece, RowWork, Scratch};

/// The result of comparing one row.
enum Compared {
    Done,
    /// Some of it is unreadable.
    Torn,
}

/// The I/O options for a task's writes. No bitmap bit covers a repair, so a member that lost it
/// would return unrepaired.
pub(super) fn repairing(opts: IoOptions, task: Task) -> IoOptions {
    let repair = task == Task::Repair && !broken(Broken::RepairVolatile);
    IoOptions { fua: opts.fua || repair, ..opts }
}

impl RowOp<'_> {
    /// Compares data and parity of rows that fit into memory together. Makes them agree if the task
    /// writes.
    pub(super) async fn compare_rows(
        &mut self,
        rows: &[RowWork],
        task: Task,
        report: &mut Report,
    ) -> Result<()> {
        for row in self.compare_together(rows, report).await? {
            let mut todo = vec![row];
            while let Some(row) = todo.pop() {
                match self.compare(row, task, report).await? {
                    Compared::Done => {}
                    Compared::Torn => todo.extend(row_blocks(row)),
                }
            }
        }
        Ok(())
    }

    /// Compares rows in one go. Returns those that must be compared one by one.
    async fn compare_together(
        &mut self,
        rows: &[RowWork],
        report: &mut Report,
    ) -> Result<Vec<RowWork>> {
        let view = self.engine.view();
        self.work.rows.clear();
        for &row in rows {
            let all = row.roles.all();
            if !all.is_subset(self.engine.state_of(&view, &row).readable) {
                return Ok(rows.to_vec());
            }
            let plan = WritePlan { method: Method::DataOnly, read: all, write: SlotSet::EMPTY };
            self.work.rows.push(RowWork { plan: Some(plan), ..row });
        }
        if !self.read_for_rows(&view).await {
            self.work.failures.clear();
            return Ok(rows.to_vec());
        }
        let (good, bad): (Vec<RowWork>, Vec<RowWork>) =
            self.work.rows.iter().partition(|row| self.engine.row_agrees(row, &self.work.pieces));
        self.work.outgoing.clear();
        for row in &good {
            self.engine.count_compared(row, row.roles.all(), report);
            self.checksum_pieces(&view, row);
        }
        self.renew_checksums().await?;
        self.align_rows(&view, &good).await;
        Ok(bad.into_iter().map(|row| RowWork { plan: None, ..row }).collect())
    }

    /// Reads one row to compare it. Restores unreadable blocks even for a check, as any read would,
    /// but changes no readable block.
    async fn read_to_compare(
        &mut self,
        row: RowWork,
        report: &mut Report,
    ) -> Result<ControlFlow<Compared, Rc<View>>> {
        self.work.rows.clear();
        self.work.rows.push(RowWork { plan: None, ..row });
        let (mut restored, mut made) = (false, 0);
        loop {
            let view = self.engine.view();
            let now = self.work.rows[0];
            let torn = !now.bad.is_empty();
            if torn && now.row.len() > BLOCK {
                return Ok(ControlFlow::Break(Compared::Torn));
            }
            if !now.contradicted.is_empty() {
                report
                    .lose(self.engine.stripe_offset(now.row.stripe) + now.row.start, now.row.len());
                return Ok(ControlFlow::Break(Compared::Done));
            }
            if torn {
                let fresh = RowWork { bad: SlotSet::EMPTY, plan: None, ..now };
                let repaired = self.repair_unreadable(fresh, now.bad, report).await?;
                if !repaired {
                    let row = RowWork { bad: now.bad, ..fresh };
                    self.checksum_uncompared(row).await?;
                } else if !std::mem::replace(&mut restored, true)
                    && !broken(Broken::RestoredUncompared)
                {
                    // The other parity may not agree with the parity used for the restore.
                    self.work.rows.clear();
                    self.work.rows.push(fresh);
                    continue;
                }
                return Ok(ControlFlow::Break(Compared::Done));
            }
            let (plan, bad) =
                (self.engine.plan_compare(&view, &now), self.engine.to_be_made(&view, &now));
            let beside = plan.is_some() && !broken(Broken::ListedLeftOut);
            // Listed blocks are restored first, even if the rest could be compared without them.
            if plan.is_none() || (beside && made < 2 && !bad.is_empty()) {
                if self.engine.hides_blocks(&view, &now) {
                    return Ok(ControlFlow::Break(Compared::Torn));
                }
                made += 1;
                // Data in the first pass, parity in the second. On a read-only array both passes
                // change nothing.
                let more = !bad.is_empty() && made <= 2;
                let repaired = more && self.repair_unreadable(now, bad, report).await?;
                self.work.rows.clear();
                self.work.rows.push(RowWork { plan: None, ..now });
                if repaired || plan.is_some() {
                    continue;
                }
            }
            let Some(plan) = plan else {
                self.checksum_uncompared(now).await?;
                return Ok(ControlFlow::Break(Compared::Done));
            };
            self.work.rows[0].plan = Some(plan);
            if self.read_for_rows(&view).await {
                return Ok(ControlFlow::Continue(view));
            }
            self.after_reading(&view, report).await?;
        }
    }

    /// Compares one row.
    async fn compare(&mut self, row: RowWork, task: Task, report: &mut Report) -> Result<Compared> {
        let view = match self.read_to_compare(row, report).await? {
            ControlFlow::Continue(view) => view,
            ControlFlow::Break(compared) => return Ok(compared),
        };
        let row = self.work.rows[0];
        let read = row.plan.map_or(SlotSet::EMPTY, |plan| plan.read);
        self.engine.count_compared(&row, read, report);
        self.work.outgoing.clear();
        if read == row.roles.all() {
            self.resolve_row(&view, &row, task, report);
        } else {
            self.engine.compare_rest(&view, &row, &self.work.pieces, report);
        }
        let within = |out: &Outgoing| {
            let (at, len) = (row.at(), out.bytes.len() as u64);
            let inside = at <= out.at && out.at + len <= at + row.row.len();
            assert!(inside, "a repair of {len} bytes at {} for the row at {at}", out.at);
            out.at - at..out.at - at + len
        };
        let disputed: RangeSet = self.work.outgoing.iter().map(within).collect();
        if matches!(task, Task::Check | Task::Checksum) {
            self.work.outgoing.clear();
        }
        let left = self.checksum_compared(&view, &row, (task, disputed));
        report.repaired_bytes +=
            self.work.outgoing.iter().map(|out| out.bytes.len() as u64).sum::<u64>();
        self.with(repairing(self.opts, task)).send(view).await?;
        self.work.outgoing.clear();
        self.renew_checksums().await?;
        if read == row.roles.all() {
            self.align_undisputed(&self.engine.view(), &[row], &left).await;
        }
        Ok(Compared::Done)
    }

    /// Computes the checksums of a compared row, as its repair will leave it. Disputed blocks that
    /// are not repaired get none; returns these.
    fn checksum_compared(
        &mut self,
        view: &View,
        row: &RowWork,
        (task, disputed): (Task, RangeSet),
    ) -> RangeSet {
        let repairs = task == Task::Repair && !disputed.is_empty();
        if let Some(checksums) = self.engine.checksums.as_ref().filter(|_| repairs) {
            checksums.repaired.set(true);
        }
        let left = if self.work.outgoing.is_empty() { disputed } else { RangeSet::default() };
        self.checksum_undisputed(view, row, &left);
        left
    }

    /// Rewrites the unreadable blocks of a row. False if they cannot be recovered.
    async fn repair_unreadable(
        &mut self,
        row: RowWork,
        bad: SlotSet,
        report: &mut Report,
    ) -> Result<bool> {
        self.work.rows.clear();
        self.work.rows.push(RowWork { bad, ..row });
        let view = self.engine.view();
        let mut whole = self.engine.plan_restore(&view, &mut self.work.rows[0], bad).is_ok();
        if whole && !self.read_for_rows(&view).await {
            // Blocks with checksum mismatches are repaired, and may be readable then.
            self.after_reading(&view, report).await?;
            whole = self.engine.plan_restore(&view, &mut self.work.rows[0], bad).is_ok()
                && self.read_for_rows(&view).await;
        }
        if !whole {
            report.lose(self.engine.stripe_offset(row.row.stripe) + row.row.start, row.row.len());
            self.engine.give_up_unmade(&row);
            if !self.work.failures.is_empty() {
                self.lose(&view).await?;
            }
            return Ok(false);
        }
        let engine = self.engine;
        let fits = |work: &Scratch| engine.recovered_fits(&view, &work.rows[0], &work.pieces);
        if !fits(self.work) {
            let again = self.engine.ask_q(&view, &mut self.work.rows[0])
                && self.engine.plan_restore(&view, &mut self.work.rows[0], bad).is_ok()
                && self.read_for_rows(&view).await;
            if !self.work.failures.is_empty() {
                self.lose(&view).await?;
            }
            if !again || !fits(self.work) {
                report
                    .lose(self.engine.stripe_offset(row.row.stripe) + row.row.start, row.row.len());
                return Ok(false);
            }
        }
        let row = self.work.rows[0];
        self.work.outgoing.clear();
        for slot in bad.iter() {
            let bytes = self.engine.bytes_of(&row, slot, &self.work.pieces).freeze();
            report.repaired_bytes += bytes.len() as u64;
            self.work.outgoing.push(Outgoing { slot, at: row.at(), bytes });
        }
        self.rewrite(view).await.map(|()| true)
    }

    /// Finds the blocks of a row that contradict each other and the wrong member of each, if it is
    /// identified. Puts the repairs into `outgoing`.
    pub(crate) fn resolve_row(
        &mut self,
        view: &View,
        row: &RowWork,
        task: Task,
        report: &mut Report,
    ) {
        let (map, pieces) = (&row.map, &self.work.pieces);
        let have = |slot: Slot| row.have(pieces, slot).expect("all slots were read");
        let p = self.engine.computed(row, map.p(), pieces).freeze();
        let q = map.q().map(|q| (q, self.engine.computed(row, q, pieces).freeze()));
        // In an unsynced row only parity is unverified: data is never changed there.
        let offset = self.engine.stripe_offset(row.row.stripe);
        let unsynced = self.engine.is_unsynced(offset, self.engine.setup.geometry.stripe_bytes());
        let synced = task != Task::Resync && !unsynced;
        let synced =
            (synced || broken(Broken::ResyncChangesData)) && !broken(Broken::ScrubTrustsData);
        let exponents: Vec<u8> = (0..map.data_count()).map(|index| map.exponent(index)).collect();
        for range in self.engine.blocks(view, row) {
            let differs =
                |slot: Slot, right: &SharedBuf| have(slot)[range.clone()] != right[range.clone()];
            let p_differs = differs(map.p(), &p);
            let q_wrong = q.as_ref().filter(|(slot, right)| differs(*slot, right));
            if !p_differs && q_wrong.is_none() {
                continue;
            }
            let at = row.at() + range.start as u64;
            let culprit = match &q {
                Some((slot, q)) if synced => {
                    let p = (&p[range.clone()], &have(map.p())[range.clone()]);
                    let q = (&q[range.clone()], &have(*slot)[range.clone()]);
                    self.engine.culprit(row, p, q, &exponents)
                }
                None if synced => self.engine.behind(view, row, at / BLOCK),
                _ => None,
            };
            if task != Task::Resync {
                let repaired = task == Task::Repair;
                let found = self.engine.finding(view, row, range.clone(), culprit);
                report.find(Finding { repaired, ..found });
            }
            let outgoing = &mut self.work.outgoing;
            let mut send = |slot, bytes| outgoing.push(Outgoing { slot, at, bytes });
            if let Some(slot) = culprit.filter(|&slot| row.roles.data.contains(slot)) {
                // The data block is wrong and P is right: computes the block from P.
                let mut right = self.engine.pool.copy_of(&have(map.p())[range.clone()]);
                let both = [&p[range.clone()], &have(slot)[range.clone()]];
                self.engine.setup.kernel.xor_into(&both, &mut right);
                send(slot, right.freeze());
                continue;
            }
            let mut written = 0;
            if p_differs {
                send(map.p(), p.slice(range.clone()));
                written += range.len() as u64;
            }
            if let Some((slot, right)) = q_wrong {
                send(*slot, right.slice(range.clone()));
                written += range.len() as u64;
            }
            if synced && culprit.is_none() && task == Task::Repair {
                report.guessed_bytes += written;
            }
        }
    }
}

impl Engine {
    /// Counts a row that was read and compared.
    fn count_compared(&self, row: &RowWork, read: SlotSet, report: &mut Report) {
        report.bytes += read.count() as u64 * row.row.len();
        report.compared_bytes += row.map.data_count() as u64 * row.row.len();
    }

    /// Plans the reads for comparing a row; `None` if no redundancy is left to compare.
    fn plan_compare(&self, view: &View, row: &RowWork) -> Option<WritePlan> {
        let state = self.state_of(view, row);
        let all = row.roles.all();
        let read = all.intersection(state.readable);
        let missing = all.difference(read).count();
        let plan = |method| Some(WritePlan { method, read, write: SlotSet::EMPTY });
        if missing == 0 {
            return plan(Method::DataOnly);
        }
        if missing >= row.roles.parity().count() || !state.synced {
            return None;
        }
        let recover = plan_read(&row.roles, &state, row.roles.data).ok()?.recover;
        plan(recover.map_or(Method::DataOnly, Method::Recover))
    }

    /// The slots to restore before a row with bad blocks can be compared: listed data, then listed
    /// parity. If the parity is not in sync it is restored on all slots, because its other parts
    /// cannot be compared either.
    fn to_be_made(&self, view: &View, row: &RowWork) -> SlotSet {
        let (state, parity) = (self.state_of(view, row), row.roles.parity());
        let end = self.stripe_offset(row.row.stripe) + self.setup.geometry.stripe_bytes();
        let there = |slot: &Slot| view.holding(*slot, end).is_some();
        let listed: SlotSet =
            row.roles.all().difference(state.readable).iter().filter(there).collect();
        let data = listed.intersection(row.roles.data);
        match (data.is_empty(), state.synced) {
            (false, _) => data,
            (true, true) => listed,
            (true, false) if parity.intersection(listed).is_empty() => SlotSet::EMPTY,
            (true, false) => parity.intersection(view.present),
        }
    }

    /// True if bad blocks in a part of the row make all of it unreadable.
    fn hides_blocks(&self, view: &View, row: &RowWork) -> bool {
        let present = row.roles.all().intersection(view.present);
        row.row.len() > BLOCK && !present.is_subset(self.state_of(view, row).readable)
    }

    /// Compares the rest of a RAID 6 row with one missing slot: computes the parity that was not
    /// needed to recover that slot, and compares it.
    fn compare_rest(&self, view: &View, row: &RowWork, pieces: &[Piece], report: &mut Report) {
        let has = |slot: &Slot| row.have(pieces, *slot).is_some();
        // If a data slot is missing, P recovers it and Q is left to compare.
        let Some(parity) = row.map.q().filter(has).or_else(|| Some(row.map.p()).filter(has)) else {
            return;
        };
        let Some(stored) = row.have(pieces, parity) else { return };
        let computed = self.computed(row, parity, pieces);
        for range in self.blocks(view, row) {
            if stored[range.clone()] != computed[range.clone()] {
                report.find(self.finding(view, row, range, None));
            }
        }
    }

    /// The blocks of a row, from its start.
    fn blocks(&self, view: &View, row: &RowWork) -> impl Iterator<Item = Range<usize>> + use<> {
        let (block, len) = (self.block_bytes(view) as usize, row.row.len() as usize);
        (0..len).step_by(block).map(move |at| at..(at + block).min(len))
    }

    /// A finding in a run of blocks of a row.
    pub(crate) fn finding(
        &self,
        view: &View,
        row: &RowWork,
        range: Range<usize>,
        culprit: Option<Slot>,
    ) -> Finding {
        let index = (0..row.map.data_count()).find(|&index| Some(row.map.data(index)) == culprit);
        let index = index.unwrap_or(0);
        let (at, len) = (range.start as u64, (range.end - range.start) as u64);
        let within = index as u64 * self.setup.geometry.chunk_bytes() + row.row.start + at;
        let slot = culprit.unwrap_or(row.map.data(0));
        let member_offset = row.at() + at;
        let data_offset = view.member(slot).map_or(0, |member| member.data_offset);
        Finding {
            array_offset: self.stripe_offset(row.row.stripe) + within,
            member_offset,
            disk_offset: data_offset + member_offset,
            len,
            culprit,
            repaired: false,
        }
    }

    /// Discards parity that cannot be computed because data is unreadable: it would be trusted once
    /// the row counts as synced.
    fn give_up_unmade(&self, row: &RowWork) {
        let view = self.view();
        let state = self.state_of(&view, row);
        let counts = row.roles.all().is_subset(view.in_sync) && !state.synced;
        if (counts || state.suspect) && !broken(Broken::UnverifiedForgotten) {
            self.give_up_parity(&view, row, false);
        }
    }

    /// The single slot that explains the mismatch of P and Q, each given as computed and as stored.
    fn culprit(
        &self,
        row: &RowWork,
        p: (&[u8], &[u8]),
        q: (&[u8], &[u8]),
        exponents: &[u8],
    ) -> Option<Slot> {
        let kernel = self.setup.kernel;
        let (mut p_syndrome, mut q_syndrome) = (self.pool.copy_of(p.0), self.pool.copy_of(q.0));
        kernel.xor_into(&[p.1], &mut p_syndrome);
        kernel.xor_into(&[q.1], &mut q_syndrome);
        match parity::locate(&p_syndrome, &q_syndrome, exponents) {
            Culprit::P => Some(row.map.p()),
            Culprit::Q => row.map.q(),
            Culprit::Data(exponent) => {
                let index = exponents.iter().position(|&e| e == exponent);
                index.map(|index| row.map.data(index))
            }
            Culprit::None | Culprit::Unclear => None,
        }
    }

    /// P or Q of a row, computed from its data as read or recovered.
    pub(crate) fn computed(&self, row: &RowWork, slot: Slot, pieces: &[Piece]) -> io::Buf {
        let recovered = match row.plan.map(|plan| plan.method) {
            Some(Method::Recover(erasure)) => {
                Some((erasure, self.recover_row(row, erasure, pieces)))
            }
            _ => None,
        };
        let len = row.row.len() as usize;
        let mut buf = self.pool.take(len);
        let source = |index: usize, at: usize| -> &[u8] {
            let data = row.map.data(index);
            match (&recovered, row.have(pieces, data)) {
                (_, Some(bytes)) => &bytes[at..],
                (Some((erasure, (x, y))), None) => {
                    &recovered_of(*erasure, (&x[..], &y[..]), data)[at..]
                }
                (None, None) => unreachable!("the plan reads or recovers all the data"),
            }
        };
        let (p, q) = if slot == row.map.p() {
            (Some(&mut buf[..]), None)
        } else {
            (None, Some(&mut buf[..]))
        };
        self.setup.clock.charge(io::Cost::Parity, (len * row.map.data_count()) as u64);
        compute::encode(self.setup.kernel, &row.map, len, source, p, q);
        buf
    }
}

/// The blocks of a row, last block first, for use as a stack.
pub(crate) fn row_blocks(work: RowWork) -> impl Iterator<Item = RowWork> {
    let Row { start, end, .. } = work.row;
    (start / BLOCK..end.div_ceil(BLOCK)).rev().map(move |block| {
        let (first, last) = (block * BLOCK, (block + 1) * BLOCK);
        let part = Row { start: first.max(start), end: last.min(end), ..work.row };
        let (bad, wrong) = (SlotSet::EMPTY, SlotSet::EMPTY);
        RowWork { row: part, bad, wrong, contradicted: wrong, plan: None, ..work }
    })
}
