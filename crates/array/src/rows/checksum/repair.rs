//! Repairs rows with a checksum mismatch on parity levels; mirrors use their other copies
//! (`rows/mirror.rs`). `verdict` decides what is wrong: the block, its entry in the table, or both.
//!
//! A wrong block is never used to compute another block, least of all parity.

use std::rc::Rc;

use layout::plan::{DataLost, Method, RowState, WritePlan, plan_read};
use layout::private::CHECKSUM_ENTRY_BYTES;
use layout::{Mode, Slot, SlotSet};
use metadata::{Error, ErrorKind, Result};

use crate::member::View;
use crate::rows::checksum::verdict::{Recovered, Repair, Suspect, repair};
use crate::rows::checksum::verify::Verdict;
use crate::rows::checksum::{ChecksumTable, New};
use crate::rows::engine::{Engine, RowOp};
use crate::rows::job::{Finding, Report, row_blocks};
use crate::rows::{Outgoing, RowWork, Scratch};
use crate::shard::message::ToKeeper;

/// The slots of a row that could not be repaired.
#[derive(Clone, Copy, Default)]
pub(super) struct Left {
    /// Slots that must not be read.
    wrong: SlotSet,
    /// Those of them that also contradict redundancy.
    contradicted: SlotSet,
}

impl ChecksumTable {
    /// Records that a repair changes entries, so that they are written soon.
    pub(crate) fn note_repair(&self) {
        self.repaired.set(true);
        self.pressure.raise();
    }
}

impl RowOp<'_> {
    /// Records that the entries in `work.news`, if any, belong to a repair.
    pub(crate) fn note_repair(&self) {
        if !self.work.news.is_empty() {
            self.engine.checksums.iter().for_each(ChecksumTable::note_repair);
        }
    }

    /// Handles failed reads of the rows in `work`: reports failed members and repairs checksum
    /// mismatches. Slots that cannot be repaired are marked unreadable.
    pub(crate) async fn after_reading(
        &mut self,
        view: &Rc<View>,
        report: &mut Report,
    ) -> Result<()> {
        if !self.work.failures.is_empty() {
            return self.lose(view).await;
        }
        let mut other = Scratch::default();
        let mut beside = self.beside(&mut other);
        for row in &mut self.work.rows {
            let wrong = std::mem::take(&mut row.wrong);
            if wrong.is_empty() {
                continue;
            }
            for block in row_blocks(*row) {
                let left = beside.repair_block(block, report).await?;
                row.bad = row.bad.union(left.wrong);
                row.contradicted = row.contradicted.union(left.contradicted);
            }
        }
        Ok(())
    }

    /// Repairs one block of each slot of a row, as far as redundancy and checksums determine it.
    pub(super) async fn repair_block(&mut self, row: RowWork, report: &mut Report) -> Result<Left> {
        let Some(checksums) = &self.engine.checksums else { return Ok(Left::default()) };
        let (view, row) = self.read_all_of(row).await?;
        if row.wrong.is_empty() {
            return Ok(Left::default());
        }
        if !self.engine.counts_in(&row) {
            self.repair_torn((view, row), report).await?;
            return Ok(Left::default());
        }
        let members = row.wrong.iter().filter_map(|slot| view.member(slot));
        members.for_each(|member| member.counters().checksum_errors.add(1));
        let lost = Left { wrong: row.wrong, contradicted: row.wrong };
        let Ok(right) = self.recover_wrong(&view, &row) else { return Ok(lost) };
        let (mut left, block) = (SlotSet::EMPTY, row.at() / super::BLOCK);
        let behind = self.engine.behind(&view, &row, block);
        let suspect = match behind {
            _ if row.wrong.is_subset(row.roles.parity()) => Suspect::Parity,
            Some(slot) if row.wrong == SlotSet::only(slot) => Suspect::Behind,
            _ => Suspect::Other,
        };
        let writable = view.mode == Mode::ReadWrite;
        for (slot, bytes) in right {
            let member = view.member(slot).expect("the block was read");
            let crc = parity::crc32c(0, &bytes);
            let recovered = match checksums.judge(member, slot, block, crc) {
                Verdict::Right => Recovered::FitsEntry,
                _ if row.have(&self.work.pieces, slot) == Some(&bytes[..]) => {
                    Recovered::EqualsBlock
                }
                _ => Recovered::Neither,
            };
            let repair = repair(recovered, suspect);
            if repair == Repair::Block {
                let found = self.engine.finding(&view, &row, 0..bytes.len(), Some(slot));
                report.find(Finding { repaired: writable, ..found });
            }
            if matches!(repair, Repair::Entry | Repair::Both) {
                self.work.news.push(New { slot, block, crc, begins: true, whole: true, ages: 1 });
            }
            match repair {
                Repair::Block | Repair::Both => {
                    let at = row.at();
                    self.work.outgoing.push(Outgoing { slot, at, bytes: bytes.freeze() });
                }
                Repair::Entry => {}
                Repair::Neither => left.insert(slot),
            }
        }
        if writable {
            let bytes = self.work.outgoing.iter().map(|out| out.bytes.len() as u64);
            report.repaired_bytes += bytes.sum::<u64>();
        }
        self.finish_repair((view, row), left).await
    }

    /// Reads a row from all readable members. Returns it with its checksum mismatches marked as
    /// wrong.
    async fn read_all_of(&mut self, row: RowWork) -> Result<(Rc<View>, RowWork)> {
        let fresh = RowWork { wrong: SlotSet::EMPTY, ..row };
        loop {
            let view = self.engine.view();
            let mut row = fresh;
            row.bad = row.bad.union(self.work.rows.first().map_or(SlotSet::EMPTY, |r| r.bad));
            let read = self.engine.state_of(&view, &row).readable;
            let method = Method::DataOnly;
            row.plan = Some(WritePlan { method, read, write: SlotSet::EMPTY });
            self.work.rows.clear();
            self.work.rows.push(row);
            let whole = self.read_for_rows(&view).await;
            if whole || !self.work.rows[0].wrong.is_empty() {
                return Ok((view, std::mem::take(&mut self.work.rows)[0]));
            }
            if !self.work.failures.is_empty() {
                self.lose(&view).await?;
            }
        }
    }

    async fn finish_repair(
        &mut self,
        (view, row): (Rc<View>, RowWork),
        left: SlotSet,
    ) -> Result<Left> {
        if view.mode != Mode::ReadWrite {
            // Nothing may be written: the bytes are recovered from the other slots instead.
            self.work.news.clear();
            self.work.outgoing.clear();
            return Ok(Left { wrong: row.wrong, contradicted: left });
        }
        let aged = !self.work.news.is_empty();
        for new in &self.work.news {
            if let Some(member) = view.member(new.slot) {
                let (table, bytes) = (member.table.unwrap_or(0), CHECKSUM_ENTRY_BYTES);
                let (member, offset) = (member.id, table + new.block * bytes);
                self.engine.post.to_keeper(ToKeeper::Repaired { member, offset, bytes });
            }
        }
        self.note_repair();
        self.renew_checksums().await?;
        if aged && left.is_empty() {
            self.align_rows(&view, &[row]).await;
        }
        self.rewrite(view).await?;
        Ok(Left { wrong: left, contradicted: left })
    }

    /// Recovers the slots with checksum mismatches from all the others.
    fn recover_wrong(
        &mut self,
        view: &View,
        row: &RowWork,
    ) -> Result<Vec<(Slot, io::Buf)>, DataLost> {
        let state = self.engine.state_of(view, row);
        let readable = state.readable.difference(row.wrong);
        let state = RowState { readable, ..state };
        let plan = plan_read(&row.roles, &state, row.roles.data)?;
        let kept: Vec<_> = self
            .work
            .pieces
            .iter_mut()
            .map(|piece| {
                let hidden = row.wrong.contains(piece.slot);
                if hidden { piece.buf.take() } else { None }
            })
            .collect();
        let method = plan.recover.map_or(Method::DataOnly, Method::Recover);
        let planned = RowWork {
            plan: Some(WritePlan { method, read: plan.read, write: SlotSet::EMPTY }),
            ..*row
        };
        let wrong = row.wrong.iter();
        let right = wrong
            .map(|slot| (slot, self.engine.bytes_of(&planned, slot, &self.work.pieces)))
            .collect();
        for (piece, hidden) in self.work.pieces.iter_mut().zip(kept) {
            piece.buf = hidden.or(piece.buf.take());
        }
        Ok(right)
    }
}

impl Engine {
    /// The error for a read of blocks that contradict their checksums and cannot be recovered.
    pub(crate) fn contradicted(&self, row: &RowWork) -> Error {
        let what = "checksum mismatch beyond redundancy: the block cannot be recovered";
        Error::new(ErrorKind::DataLost, what).at(self.stripe_offset(row.row.stripe))
    }
}
