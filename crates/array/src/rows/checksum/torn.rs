//! Blocks and entries that a crash may have separated: dirty regions whose table no intent log has
//! corrected.
//!
//! Blocks and pages of the table are written in no order. After a crash each of them is old or new:
//!
//! ```text
//!   block   entry   match  what is known
//!   ─────   ─────   ────   ─────────────────────────────────────────────────────────────────
//!   old     old     yes    the block was durable, or a write to it was never acknowledged
//!   new     new     yes    the same
//!   old     new     no     a write was in flight, not durable: either content is allowed
//!   new     old     no     the same, or durable: then it is new on all members, parity too
//!   rotten  any     no     no write was in flight: the other copies and the row still match
//! ```
//!
//! Hence a block that matches its entry is right. Another block is replaced by a copy that matches
//! its own entry, or by the bytes recovered from its row if those match. Otherwise the block stays
//! and gets a new entry: a write was in flight, or the loss exceeds redundancy.
//!
//! Owns that rule. A replacement is durable before a client reads the block, so it never changes
//! back.

use std::rc::Rc;

use io::Buf;
use layout::plan::{Erasure, Method, WritePlan};
use layout::{Family, Mode, Slot, SlotSet};
use metadata::Result;

use crate::member::batch::IoOptions;
use crate::member::{Member, View};
use crate::rows::checksum::verdict::choose_fitting;
use crate::rows::checksum::verify::Verdict;
use crate::rows::checksum::{BLOCK, ChecksumTable, New, Wanted};
use crate::rows::engine::{Engine, RowOp};
use crate::rows::job::{Finding, Report, row_blocks};
use crate::rows::read::recovered_of;
use crate::rows::{Outgoing, RowWork, Scratch};

/// A copy of one block as read: its member, its slot and number there, and the CRC-32C of its
/// bytes; `None` if a part is unreadable.
pub(crate) type Read<'a> = (&'a Member, (Slot, u64), Option<u32>);

impl ChecksumTable {
    /// The valid copy of a torn block, by number: see [`choose_fitting`].
    pub(crate) fn fitting(&self, copies: &[Read<'_>]) -> Option<usize> {
        let fits = |&(member, (slot, block), crc): &Read<'_>| {
            crc.is_some_and(|crc| self.judge(member, slot, block, crc) == Verdict::Right)
        };
        let fit: Vec<bool> = copies.iter().map(fits).collect();
        choose_fitting(&fit, |copy| {
            let (member, (_, block), _) = copies[copy];
            Some(self.entry(member.id, block).generation)
        })
    }
}

impl Engine {
    /// The checksums for verifying reads of this array range: they are valid, or torn in a way that
    /// allows mismatches to be resolved.
    pub(crate) fn checksums_to_verify(
        &self,
        view: &View,
        offset: u64,
        len: u64,
    ) -> Option<&ChecksumTable> {
        let mirror = self.setup.geometry.family() != Family::Parity;
        let torn = |checksums: &ChecksumTable| {
            (mirror || view.mode == Mode::ReadWrite) && checksums.is_torn(offset, len)
        };
        self.checksums.as_ref().filter(|checksums| checksums.counts(offset, len) || torn(checksums))
    }

    /// True if a crash may have separated the blocks of this array range from their entries.
    pub(crate) fn is_torn(&self, offset: u64, len: u64) -> bool {
        self.checksums.as_ref().is_some_and(|checksums| checksums.is_torn(offset, len))
    }
}

impl RowOp<'_> {
    /// The slot with the valid copy of a torn block; `None` if no copy matches its entry. The array
    /// block begins at `at`.
    pub(crate) async fn fitting_copy(&mut self, at: u64) -> Result<Option<Slot>> {
        let Some(checksums) = &self.engine.checksums else { return Ok(None) };
        let places = self.engine.setup.geometry.places(at);
        loop {
            let view = self.engine.view();
            self.work.wanted.clear();
            for place in places.copies() {
                let (slot, start) = (place.slot, place.member_offset);
                let readable = view.is_readable(slot, at + BLOCK, start, BLOCK);
                let member = view.member(slot).filter(|_| readable);
                self.work.add_wanted(member, slot, start..start + BLOCK);
            }
            if self.load_checksums().await {
                for (tag, wanted) in self.work.wanted.iter().enumerate() {
                    let (slot, start) = (wanted.slot, wanted.range.start);
                    let buf = self.engine.pool.take(BLOCK as usize);
                    self.work.batch.read(&wanted.member, slot, start, buf, tag as u32, u64::MAX);
                }
                self.engine.run(&mut self.work.batch, IoOptions { fua: false, ..self.opts }).await;
                let mut crcs = vec![None; self.work.wanted.len()];
                let take = |tag: u32, buf: Option<Buf>, ok: bool| {
                    crcs[tag as usize] = buf.filter(|_| ok).map(|buf| parity::crc32c(0, &buf));
                };
                self.work.batch.drain(take, |_, _, _| {}, &mut self.work.failures);
                self.work.failures.retain(|f| !f.error.is_medium());
                if self.work.failures.is_empty() {
                    let read = |wanted: &'_ Wanted, crc| {
                        (Rc::clone(&wanted.member), (wanted.slot, wanted.range.start / BLOCK), crc)
                    };
                    let copies: Vec<_> = self
                        .work
                        .wanted
                        .iter()
                        .zip(crcs)
                        .map(|(wanted, crc)| read(wanted, crc))
                        .collect();
                    let each: Vec<Read<'_>> = copies
                        .iter()
                        .map(|(member, place, crc)| (&**member, *place, *crc))
                        .collect();
                    return Ok(checksums.fitting(&each).map(|copy| each[copy].1.0));
                }
            }
            self.lose(&view).await?;
        }
    }

    /// Repairs a torn row that cannot be compared, before it gets new checksums.
    pub(super) async fn repair_uncompared(&mut self, row: RowWork) -> Result<()> {
        let stripe = self.engine.stripe_offset(row.row.stripe);
        if !self.engine.is_torn(stripe, self.engine.setup.geometry.stripe_bytes()) {
            return Ok(());
        }
        let (mut other, mut report) = (Scratch::default(), Report::default());
        for block in row_blocks(row) {
            self.beside(&mut other).repair_block(block, &mut report).await?;
        }
        Ok(())
    }

    /// Repairs the mismatches in a torn row's block for which the rest of the row yields bytes that
    /// match the entry. The other mismatches stay and get new entries.
    pub(super) async fn repair_torn(
        &mut self,
        (view, row): (Rc<View>, RowWork),
        report: &mut Report,
    ) -> Result<()> {
        if self.engine.checksums.is_none() || view.mode != Mode::ReadWrite {
            return Ok(());
        }
        let (mut open, block) = (row.wrong, row.at() / BLOCK);
        self.work.outgoing.clear();
        self.work.news.clear();
        while let Some((slot, bytes)) = open.iter().find_map(|slot| {
            let bytes = self.fitting_bytes(&view, &row, (slot, open))?;
            Some((slot, bytes))
        }) {
            open.remove(slot);
            let found = self.engine.finding(&view, &row, 0..bytes.len(), Some(slot));
            report.find(Finding { repaired: true, ..found });
            report.repaired_bytes += bytes.len() as u64;
            let piece = self.work.pieces.iter_mut().find(|piece| piece.slot == slot);
            piece.expect("the remaining data was read").buf =
                Some(self.engine.pool.copy_of(&bytes));
            self.work.outgoing.push(Outgoing { slot, at: row.at(), bytes: bytes.freeze() });
        }
        for slot in open.iter() {
            let bytes = row.have(&self.work.pieces, slot).expect("the remaining data was read");
            let crc = parity::crc32c(0, bytes);
            self.work.news.push(New { slot, block, crc, begins: true, whole: true, ages: 1 });
        }
        self.note_repair();
        self.renew_checksums().await?;
        self.rewrite(view).await
    }

    /// The bytes that the rest of a row yields for a slot's block, if they match its entry. Other
    /// mismatching blocks (`open`) may be right all the same.
    fn fitting_bytes(
        &self,
        view: &View,
        row: &RowWork,
        (slot, open): (Slot, SlotSet),
    ) -> Option<Buf> {
        let (checksums, member) = (self.engine.checksums.as_ref()?, view.member(slot)?);
        let fits = |bytes: &Buf| {
            let crc = parity::crc32c(0, bytes);
            checksums.judge(member, slot, row.at() / BLOCK, crc) == Verdict::Right
        };
        let there = |slot: Slot| row.have(&self.work.pieces, slot).is_some();
        let rest = row.roles.data.without(slot);
        let missing: SlotSet = rest.iter().filter(|&data| !there(data)).collect();
        if !row.roles.data.contains(slot) {
            let method = Method::DataOnly;
            let plan = WritePlan { method, read: row.roles.data, write: SlotSet::EMPTY };
            let row = RowWork { plan: Some(plan), ..*row };
            let computed = || self.engine.computed(&row, slot, &self.work.pieces);
            return missing.is_empty().then(computed).filter(fits);
        }
        let (p, q) = (there(row.map.p()), row.map.q().is_some_and(there));
        let recovered = |erasure: Erasure| {
            let both = self.engine.recover_row(row, erasure, &self.work.pieces);
            Some(recovered_of(erasure, both, slot)).filter(fits)
        };
        let single = [p.then_some(Erasure::FromP(slot)), q.then_some(Erasure::FromQ(slot))];
        let mut single = single.into_iter().flatten().filter(|_| missing.is_empty());
        if let Some(bytes) = single.find_map(recovered) {
            return Some(bytes);
        }
        let other = |&data: &Slot| {
            missing.without(data).is_empty() && (!there(data) || open.contains(data))
        };
        let others = rest.iter().filter(other).filter(|_| p && q);
        others.map(|other| Erasure::FromPq(slot.min(other), slot.max(other))).find_map(recovered)
    }
}
