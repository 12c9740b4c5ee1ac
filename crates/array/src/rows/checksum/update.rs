//! Updates of checksums by writes.
//!
//! ```text
//!   bytes to write ─▶ CRC of each block ─▶ into the log, with the old entry ─▶ written ─▶ entry
//! ```
//!
//! Decides when an entry changes, and completes partial blocks. Never writes a page.

use std::ops::Range;
use std::rc::Rc;

use io::broken::{Broken, broken};
use layout::plan::{Method, WritePlan};
use layout::private::checksums::{ChecksumEntry, blocks};
use layout::{RangeSet, Slot, SlotSet};
use metadata::{ErrorKind, Result};

use crate::member::View;
use crate::member::batch::IoOptions;
use crate::rows::checksum::generations::weights;
use crate::rows::checksum::{BLOCK, ChecksumTable, Wanted};
use crate::rows::engine::{Engine, RowOp};
use crate::rows::read::Target;
use crate::rows::write::Fresh;
use crate::rows::{Outgoing, Piece, RowWork, Scratch};
use crate::shard::message::ToKeeper;

/// Room that stays free in the list of lost array ranges, for those that a crash may add.
const ROOM: usize = 256;

/// The new contents of a slot's block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct New {
    pub(crate) slot: Slot,
    pub(crate) block: u64,
    /// CRC-32C of the written bytes.
    pub(crate) crc: u32,
    /// The bytes begin at the start of the block.
    pub(crate) begins: bool,
    /// The bytes are the whole block; if not, its checksum becomes unknown.
    pub(crate) whole: bool,
    /// The increment of the generation: 1 for data, the weights of the written data for parity.
    pub(crate) ages: u32,
}

impl ChecksumTable {
    /// True if every block of this part of a slot has an entry, on all its members.
    pub(crate) fn knows_checksums(&self, view: &View, slot: Slot, at: u64, len: u64) -> bool {
        let known = |member: &Rc<crate::member::Member>| {
            blocks(at..at + len).all(|(block, _)| self.entry(member.id, block).is_known())
        };
        view.targets(slot).all(known)
    }

    /// Makes the entry of a block unknown, if its page is in memory.
    pub(crate) fn forget_block(&self, member: &crate::member::Member, block: u64) {
        self.set(member.id, block, ChecksumEntry::UNKNOWN);
    }

    /// Updates a block's entry for this member, if its page is in memory.
    fn renew(&self, member: layout::MemberId, new: New) -> bool {
        let (old, checksum) =
            (self.entry(member, new.block), self.checksum(new.slot, new.block, new.crc));
        self.set(
            member,
            new.block,
            if new.whole { old.next(checksum, new.ages) } else { ChecksumEntry::UNKNOWN },
        )
    }
}

impl RowOp<'_> {
    /// Computes checksums of the new data and parity of the rows in `work`, row by row. First the
    /// written data, by index and block in the log's order, then parity.
    pub(crate) fn checksum_rows(&mut self, fresh: Fresh<'_>) {
        self.work.news.clear();
        if self.engine.checksums.is_none() {
            return;
        }
        let mut outgoing = &self.work.outgoing[..];
        for row in &self.work.rows {
            let (own, rest) = outgoing.split_at(crate::rows::intent::pieces_of(row, outgoing));
            outgoing = rest;
            let (base, chunk) =
                (self.engine.base_of(row), self.engine.setup.geometry.chunk_bytes());
            for index in row.row.first..row.row.first + row.row.count {
                let slot = row.map.data(index);
                let start = base + index as u64 * chunk;
                for (block, range) in blocks(row.at()..row.at() + row.row.len()) {
                    let len = range.end - range.start;
                    let crc = fresh.crc(start + range.start - row.at(), len);
                    let whole = len == BLOCK;
                    self.work.news.push(New { slot, block, crc, begins: true, whole, ages: 1 });
                }
            }
            for out in own.iter().filter(|out| row.roles.parity().contains(out.slot)) {
                let first = self.work.news.len();
                push_checksums(&mut self.work.news, out.slot, out.at, &out.bytes);
                let ages = weights(row.row.first..row.row.first + row.row.count);
                self.work.news[first..].iter_mut().for_each(|new| new.ages = ages);
            }
            let checksummed = row.roles.parity().count() + row.row.count;
            self.engine.setup.clock.charge(io::Cost::Checksum, row.row.len() * checksummed as u64);
        }
        assert!(outgoing.is_empty(), "a write without a checksum");
    }

    /// Computes checksums of the outgoing bytes, all in whole blocks.
    pub(crate) fn checksum_outgoing(&mut self) {
        self.work.news.clear();
        if self.engine.checksums.is_none() {
            return;
        }
        for Outgoing { slot, at, bytes } in &self.work.outgoing {
            for (block, range) in blocks(*at..at + bytes.len() as u64) {
                let part = &bytes[(range.start - at) as usize..(range.end - at) as usize];
                // Pieces of a block in different buffers follow each other.
                let goes_on = range.start % BLOCK != 0;
                match self.work.news.last_mut() {
                    Some(last) if goes_on && (last.slot, last.block) == (*slot, block) => {
                        last.crc = parity::crc32c(last.crc, part);
                        last.whole = last.begins && range.end % BLOCK == 0;
                    }
                    _ => {
                        let crc = parity::crc32c(0, part);
                        let (begins, whole) = (!goes_on, part.len() as u64 == BLOCK);
                        let new = New { slot: *slot, block, crc, begins, whole, ages: 1 };
                        self.work.news.push(new);
                    }
                }
            }
            self.engine.setup.clock.charge(io::Cost::Checksum, bytes.len() as u64);
        }
    }

    /// Brings the pages for `work.news` into memory, for every member that the write goes to. False
    /// if a member failed.
    pub(crate) async fn load_for_write(&mut self, view: &View) -> bool {
        self.work.wanted.clear();
        for number in 0..self.work.news.len() {
            let new = self.work.news[number];
            let range = new.block * BLOCK..(new.block + 1) * BLOCK;
            for member in view.targets(new.slot) {
                let last = self.work.wanted.last_mut();
                match last.filter(|last| {
                    Rc::ptr_eq(&last.member, member) && last.range.end == range.start
                }) {
                    Some(last) => last.range.end = range.end,
                    None => self.work.add_wanted([member], new.slot, range.clone()),
                }
            }
        }
        self.load_checksums().await
    }

    /// Enters the written blocks in `work.news` into the table, for every member that has them.
    pub(crate) async fn renew_checksums(&mut self) -> Result<()> {
        let Some(checksums) = &self.engine.checksums else { return Ok(()) };
        loop {
            let view = self.engine.view();
            let whole = self.work.news.iter().all(|new| {
                let member = |m: &Rc<crate::member::Member>| checksums.is_there(m.id, new.block);
                view.targets(new.slot).all(member)
            });
            if whole || self.load_for_write(&view).await {
                for &new in &self.work.news {
                    for member in view.targets(new.slot) {
                        if !broken(Broken::ChecksumStaleAfterWrite) || new.block % 8 != 3 {
                            assert!(checksums.renew(member.id, new), "its page was brought in");
                        }
                    }
                }
                self.work.news.clear();
                break;
            }
            self.lose(&view).await?;
        }
        if checksums.has_pressure() {
            checksums.pressure.raise();
        }
        Ok(())
    }

    /// Computes missing checksums of a row that agrees, from the bytes read and the repairs about
    /// to be written.
    pub(crate) fn checksum_pieces(&mut self, view: &View, row: &RowWork) {
        self.checksum_undisputed(view, row, &RangeSet::default());
    }

    /// Like [`RowOp::checksum_pieces`], but disputed blocks (`left`) of the row get no checksum.
    pub(crate) fn checksum_undisputed(&mut self, view: &View, row: &RowWork, left: &RangeSet) {
        let Some(checksums) = &self.engine.checksums else { return };
        let Scratch { pieces, outgoing, news, .. } = self.work;
        let stripe = self.engine.stripe_offset(row.row.stripe);
        let counts = checksums.counts(stripe, self.engine.setup.geometry.stripe_bytes());
        for piece in &mut pieces[row.first..row.first + row.count] {
            let Piece { slot, buf: Some(buf), .. } = piece else { continue };
            let repaired = outgoing.iter().any(|out| out.slot == *slot);
            if counts
                && !repaired
                && checksums.knows_checksums(view, *slot, row.at(), buf.len() as u64)
            {
                continue;
            }
            let end = row.at() + buf.len() as u64;
            for out in outgoing.iter().filter(|out| out.slot == *slot) {
                if out.at >= row.at() && out.at + out.bytes.len() as u64 <= end {
                    let start = (out.at - row.at()) as usize;
                    buf[start..start + out.bytes.len()].copy_from_slice(&out.bytes);
                }
            }
            let first = news.len();
            push_checksums(news, *slot, row.at(), buf);
            if left.is_empty() {
                continue;
            }
            let disputed = |block: u64| {
                let within = |at: u64| at.saturating_sub(row.at());
                left.overlaps(within(block * BLOCK)..within((block + 1) * BLOCK))
            };
            let member = view.member(*slot).filter(|_| !counts);
            for new in news[first..].iter().filter(|new| disputed(new.block)) {
                member.inspect(|member| checksums.forget_block(member, new.block));
            }
            // Earlier entries are of other slots of the row.
            news.retain(|new| new.slot != *slot || !disputed(new.block));
        }
    }

    /// Renews the checksums of a row that cannot be compared and has no valid ones. Readable blocks
    /// are accepted as they are; unreadable ones get no checksum.
    pub(crate) async fn checksum_uncompared(&mut self, mut row: RowWork) -> Result<()> {
        if !self.engine.is_unsummed(&row) {
            return Ok(());
        }
        self.repair_uncompared(row).await?;
        loop {
            let view = self.engine.view();
            let planned = |read| {
                let (method, write) = (Method::DataOnly, SlotSet::EMPTY);
                RowWork { plan: Some(WritePlan { method, read, write }), ..row }
            };
            self.work.rows.clear();
            self.work.rows.push(planned(view.present));
            self.add_wanted_rows(&view);
            if self.load_checksums().await {
                self.forget_checksums();
            }
            self.work.rows[0] =
                planned(row.roles.all().intersection(self.engine.state_of(&view, &row).readable));
            if self.read_for_rows(&view).await {
                let row = self.work.rows[0];
                self.work.outgoing.clear();
                self.checksum_pieces(&view, &row);
                return self.renew_checksums().await;
            }
            // The step that needs this member fails again, and reports it.
            self.work.failures.clear();
            if self.work.rows[0].bad == row.bad {
                return Ok(());
            }
            row.bad = self.work.rows[0].bad;
        }
    }

    /// Makes the entries of the parts in `work.wanted` unknown.
    pub(crate) fn forget_checksums(&self) {
        let Some(checksums) = &self.engine.checksums else { return };
        for wanted in &self.work.wanted {
            for (block, _) in blocks(wanted.range.clone()) {
                checksums.set(wanted.member.id, block, ChecksumEntry::UNKNOWN);
            }
        }
    }

    /// Updates the checksums after these parts of slots (slot, member offset, bytes) were zeroed;
    /// on parity levels they are whole stripes.
    pub(crate) async fn checksum_zeros(
        &mut self,
        parts: impl Iterator<Item = (Slot, u64, u64)>,
    ) -> Result<()> {
        let Some(checksums) = &self.engine.checksums else { return Ok(()) };
        let zeros = parity::crc32c(0, &[0; BLOCK as usize]);
        let parts: Vec<(Slot, u64, u64)> = parts.collect();
        loop {
            let view = self.engine.view();
            self.work.wanted.clear();
            for &(slot, at, len) in &parts {
                self.work.add_wanted(view.targets(slot), slot, at..at + len);
            }
            if self.load_checksums().await {
                break;
            }
            self.lose(&view).await?;
        }
        for Wanted { member, slot, range } in &self.work.wanted {
            for (block, _) in blocks(range.clone()) {
                let (slot, ages) = (*slot, self.engine.ages_of_stripe(*slot, block));
                let new = New { slot, block, crc: zeros, begins: true, whole: true, ages };
                checksums.renew(member.id, new);
            }
        }
        Ok(())
    }

    /// Extends a write to whole blocks: reads the other parts of its first and last block, whose
    /// locks the caller holds. If such a block is lost, its other part is recorded as lost before
    /// zeros take its place. `None` if the block has no checksum: its parts are then written as
    /// they are.
    ///
    /// # Errors
    /// The block is unreadable, and its other part cannot be recorded as lost.
    pub(crate) async fn fill_edges(
        &mut self,
        (offset, len): (u64, u64),
        bytes: &[io::SharedBuf],
    ) -> Result<Option<Vec<io::SharedBuf>>> {
        let (start, wide) = self.engine.widened((offset, len));
        let (end, wide_end) = (offset + len, start + wide);
        let rests = [start..offset, end..wide_end];
        let mut edges = Vec::new();
        let mut lost = Vec::new();
        for rest in rests.into_iter().filter(|rest| !rest.is_empty()) {
            let block = rest.start / BLOCK * BLOCK;
            assert!(rest.end <= block + BLOCK, "the rest of one block");
            let whole = block..(block + BLOCK).min(wide_end);
            let bytes = match self.read_held(whole).await {
                Ok(bytes) => bytes,
                Err(error) if error.kind() == ErrorKind::DataLost => {
                    if !self.is_checksummed(block).await {
                        return Ok(None);
                    }
                    if !self.engine.can_give_up() {
                        return Err(error);
                    }
                    lost.push(rest.clone());
                    self.engine.pool.take_zeroed(BLOCK as usize).freeze()
                }
                Err(error) => return Err(error),
            };
            edges.push((
                rest.start,
                bytes.slice((rest.start - block) as usize..(rest.end - block) as usize),
            ));
        }
        if !lost.is_empty() && !broken(Broken::RestOfBlockForgotten) {
            self.engine.record_lost(lost).await;
        }
        let (before, after): (Vec<_>, Vec<_>) = edges.into_iter().partition(|&(at, _)| at < offset);
        let each = before.into_iter().map(|(_, bytes)| bytes).chain(bytes.iter().cloned());
        Ok(Some(each.chain(after.into_iter().map(|(_, bytes)| bytes)).collect()))
    }

    /// True if this block of the array has a checksum and no part of it is listed as lost.
    async fn is_checksummed(&mut self, block: u64) -> bool {
        let Some(checksums) = self.engine.checksums_of(block, BLOCK) else { return false };
        if self.engine.bad.borrow().overlaps(block..block + BLOCK) {
            return false;
        }
        let view = self.engine.view();
        self.work.wanted.clear();
        let mut add_wanted = |slot: Slot, at: u64| {
            let range = at / BLOCK * BLOCK..(at / BLOCK + 1) * BLOCK;
            self.work.add_wanted(view.member(slot), slot, range);
        };
        if self.engine.setup.geometry.family() == layout::Family::Parity {
            self.engine.each_chunk(block, BLOCK).for_each(|(slot, at, ..)| add_wanted(slot, at));
        } else {
            let places = self.engine.setup.geometry.places(block);
            places.copies().for_each(|place| add_wanted(place.slot, place.member_offset));
        }
        if !self.load_checksums().await {
            // The step that needs this member fails again, and reports it.
            self.work.failures.clear();
            return false;
        }
        let known = |w: &Wanted| checksums.entry(w.member.id, w.range.start / BLOCK).is_known();
        self.work.wanted.iter().any(known)
    }

    /// Reads a block of the array; the caller holds its lock.
    async fn read_held(&mut self, range: Range<u64>) -> Result<io::SharedBuf> {
        let (offset, len) = (range.start, range.end - range.start);
        let mut bufs = [self.engine.pool.take(len as usize)];
        let opts = IoOptions { fua: false, ..self.opts };
        if self.engine.setup.geometry.family() == layout::Family::Parity {
            self.with(opts).read_rows_held((offset, len), (&mut bufs, true)).await?;
        } else {
            self.with(opts).read_any_copy_held((offset, len), &mut bufs).await?;
        }
        let [buf] = bufs;
        Ok(buf.freeze())
    }

    /// Computes checksums of bytes of a slot.
    pub(crate) fn checksum_bytes(&mut self, slot: Slot, at: u64, bytes: &[u8]) {
        push_checksums(&mut self.work.news, slot, at, bytes);
    }
}

impl Engine {
    /// The old entry of a block, for the log.
    pub(crate) fn old_checksum(&self, view: &View, slot: Slot, block: u64) -> ChecksumEntry {
        let block = if broken(Broken::OldChecksumUnlogged) { block ^ 1 } else { block };
        let member = view.member(slot).zip(self.checksums.as_ref());
        member
            .map_or(ChecksumEntry::UNKNOWN, |(member, checksums)| checksums.entry(member.id, block))
    }

    /// True if the checksums of this row are not valid yet.
    pub(crate) fn is_unsummed(&self, row: &RowWork) -> bool {
        self.checksums.is_some() && !self.counts_in(row)
    }

    /// True if the checksums of this row are valid.
    pub(crate) fn counts_in(&self, row: &RowWork) -> bool {
        let stripe = self.stripe_offset(row.row.stripe);
        self.checksums_of(stripe, self.setup.geometry.stripe_bytes()).is_some()
    }

    /// The increment of a slot's block generation by the write of a whole stripe.
    fn ages_of_stripe(&self, slot: Slot, block: u64) -> u32 {
        let geometry = &self.setup.geometry;
        if geometry.family() != layout::Family::Parity {
            return 1;
        }
        let map = geometry.stripe(layout::Stripe(block * BLOCK / geometry.chunk_bytes()));
        let data = 0..map.data_count();
        let is_data = data.clone().any(|index| map.data(index) == slot);
        if is_data { 1 } else { weights(data) }
    }

    /// True if bytes may be recorded as lost: no missing member could return with them, and the
    /// list has room.
    fn can_give_up(&self) -> bool {
        let view = self.view();
        let whole = self.setup.geometry.family() != layout::Family::Parity || view.is_whole();
        let room = self.bad.borrow().count() + ROOM < layout::private::bad::MOST_RANGES;
        whole && room && view.mode == layout::Mode::ReadWrite
    }

    /// Records these array ranges as lost: reads return errors until they are written.
    async fn record_lost(&self, lost: Vec<Range<u64>>) {
        for range in lost {
            let (offset, len) = (range.start, range.end - range.start);
            self.bad.borrow_mut().insert(range);
            self.post.to_keeper(ToKeeper::GivenUp { offset, len });
        }
        self.on_record().await;
    }

    /// Reads whole blocks around a range, and returns the client's part.
    pub(crate) fn cut_out(
        &self,
        (start, wide): (u64, &[io::Buf]),
        (offset, len): (u64, u64),
        bufs: &mut [io::Buf],
    ) {
        let mut target = Target { offset, bufs };
        let (mut at, end) = (start, offset + len);
        for buf in wide {
            let next = at + buf.len() as u64;
            let (from, to) = (at.max(offset), next.min(end));
            if from < to {
                target.put(from, &buf[(from - at) as usize..(to - at) as usize]);
            }
            at = next;
        }
        assert!(start <= offset && end <= at, "the blocks around a range cover it");
        self.setup.clock.charge(io::Cost::Copy, len);
    }
}

/// Computes checksums of whole blocks of a slot from `at` on.
fn push_checksums(news: &mut Vec<New>, slot: Slot, at: u64, bytes: &[u8]) {
    for (block, range) in blocks(at..at + bytes.len() as u64) {
        let crc = parity::crc32c(0, &bytes[(range.start - at) as usize..(range.end - at) as usize]);
        let whole = range.end - range.start == BLOCK;
        news.push(New { slot, block, crc, begins: true, whole, ages: 1 });
    }
}
