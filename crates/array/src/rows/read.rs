//! Reading: directly into the client's buffers where the bytes are readable, else by recovery from
//! the row's other slots.
//!
//! A read of a healthy stripe takes no lock and copies nothing. Where a block is missing, not yet
//! rebuilt or unreadable, its rows are locked, their other slots are read once, and the missing
//! bytes are computed. A block with a read error is then rewritten with the recovered bytes and
//! read once more: if that fails, the member is lost.

use std::rc::Rc;
use std::vec::Drain;

use io::Buf;
use io::broken::{Broken, broken};
use layout::plan::{Erasure, Method, WritePlan, plan_read};
use layout::{Family, Slot, SlotSet};
use log::compute;
use metadata::{Error, ErrorKind, Result};

use crate::member::View;
use crate::member::batch::IoOptions;
use crate::rows::engine::{Engine, RowOp};
use crate::rows::hedge::Attempt;
use crate::rows::job::{Report, Task};
use crate::rows::{Outgoing, Piece, RowWork};

/// The client's buffers of a read, cut into one part per member read, in array order. A part is
/// `None` while a member fills it.
pub(crate) type Parts = Vec<Option<Buf>>;

/// Cuts the next `len` bytes off the client's buffers, at their borders too.
fn take_part(parts: &mut Parts, from: &mut Drain<'_, Buf>, rest: &mut Option<Buf>, len: u64) {
    let mut left = len as usize;
    while left > 0 {
        let mut buf = rest.take().or_else(|| from.next()).expect("buffers cover the request");
        if buf.len() > left {
            *rest = Some(buf.split_off(left));
        }
        left -= buf.len();
        parts.push(Some(buf));
    }
}

impl RowOp<'_> {
    /// Fills `bufs`, which cover `range` of the array.
    pub(crate) async fn read(&mut self, range: (u64, u64), bufs: &mut Vec<Buf>) -> Result<()> {
        self.read_widened(range, bufs).await?;
        // Some bytes may have become lost meanwhile: the buffers hold zeros in their place.
        self.engine.check_bad(range)
    }

    async fn read_widened(&mut self, range: (u64, u64), bufs: &mut Vec<Buf>) -> Result<()> {
        let wide = self.engine.widened(range);
        let torn = self.engine.is_torn(wide.0, wide.1);
        if wide != range && (torn || self.engine.checksums_of(range.0, range.1).is_some()) {
            // Lost bytes beside the range are no error for this client.
            self.engine.check_bad(range)?;
            let mut whole = vec![self.engine.pool.take(wide.1 as usize)];
            match self.read_beside_lost(wide, &mut whole).await {
                Ok(()) => {
                    self.engine.cut_out((wide.0, &whole), range, bufs);
                    return Ok(());
                }
                // The rest of a block may be lost while a part of it has been rewritten since.
                Err(error)
                    if error.kind() == ErrorKind::DataLost
                        && (torn || self.engine.may_read_parts(range, wide)) => {}
                Err(error) => return Err(error),
            }
        }
        self.read_blocks(range, bufs).await
    }

    /// Like [`RowOp::read_blocks`], but also reads ranges that are listed as lost.
    async fn read_beside_lost(&mut self, range: (u64, u64), bufs: &mut Vec<Buf>) -> Result<()> {
        let parity = self.engine.setup.geometry.family() == Family::Parity;
        if !parity || !self.engine.bad.borrow().overlaps(range.0..range.0 + range.1) {
            return self.read_blocks(range, bufs).await;
        }
        let claim = self.engine.locks.claim(self.engine.rows_of(range.0, range.1));
        (&claim).await;
        self.read_rows_held(range, (bufs, true)).await
    }

    /// Reads a range made of whole blocks where checksums are kept.
    async fn read_blocks(&mut self, range: (u64, u64), bufs: &mut Vec<Buf>) -> Result<()> {
        if self.engine.setup.geometry.family() != Family::Parity {
            if self.engine.must_resolve_copies(range) {
                self.resolve_copies(range).await;
            }
            return self.read_copies(range, bufs).await;
        }
        if !self.engine.setup.check_reads && self.read_promptly(range, bufs).await? {
            return Ok(());
        }
        self.read_rows(range, bufs).await
    }

    /// Reads each chunk from its slot into the client's buffers.
    pub(crate) async fn read_directly(
        &mut self,
        view: &View,
        (offset, len): (u64, u64),
        bufs: &mut Vec<Buf>,
    ) -> Attempt {
        if !self.load_for_read(view, (offset, len)).await {
            return Attempt::Failed;
        }
        self.work.parts.clear();
        let (mut from, mut rest) = (bufs.drain(..), None);
        for (slot, at, part, _) in self.engine.each_chunk(offset, len) {
            let first = self.work.parts.len();
            take_part(&mut self.work.parts, &mut from, &mut rest, part);
            let member = view.member(slot).expect("a readable slot has a member");
            let mut at = at;
            for tag in first..self.work.parts.len() {
                let buf = self.work.parts[tag].take().expect("just split off");
                let len = buf.len() as u64;
                self.work.batch.read(member, slot, at, buf, tag as u32, self.opts.op_bytes);
                at += len;
            }
        }
        let all = rest.is_none() && from.len() == 0;
        assert!(all, "the client's buffers are longer than its read of {len} bytes");
        drop(from);
        if !self.run_until_late(view).await {
            return Attempt::Late;
        }
        self.gathered(view, (offset, len), bufs)
    }

    /// Takes the bytes read for clients back from the batch and verifies their checksums.
    pub(crate) fn gathered(
        &mut self,
        view: &View,
        range: (u64, u64),
        bufs: &mut Vec<Buf>,
    ) -> Attempt {
        let whole = self.gather(bufs, range.1) && self.check_read(view, range, bufs);
        if whole { Attempt::Whole } else { Attempt::Failed }
    }

    /// Takes the parts of a read back from the batch. False if a read failed.
    pub(crate) fn gather(&mut self, bufs: &mut Vec<Buf>, len: u64) -> bool {
        let (mut whole, parts) = (true, &mut self.work.parts);
        let take = |tag: u32, buf: Option<Buf>, ok: bool| {
            whole &= (ok || broken(Broken::ReadErrorIgnored)) && buf.is_some();
            parts[tag as usize] = buf;
        };
        self.work.batch.drain(take, |_, _, _| {}, &mut self.work.failures);
        for part in self.work.parts.drain(..).flatten() {
            // Parts of one buffer are joined again.
            match bufs.pop() {
                None => bufs.push(part),
                Some(last) => match last.join(part) {
                    Ok(joined) => bufs.push(joined),
                    Err((last, part)) => bufs.extend([last, part]),
                },
            }
        }
        let have: u64 = bufs.iter().map(|buf| buf.len() as u64).sum();
        assert!(have <= len, "{have} bytes for a read of {len}");
        if have < len {
            assert!(!whole, "a read of {len} bytes succeeds with {have}");
            // Some buffers stayed with a hung member: the client gets new ones.
            bufs.clear();
            bufs.push(self.engine.pool.take(len as usize));
        }
        whole
    }

    /// Reads row by row under the lock. Recovers unreadable blocks, and repairs those with read
    /// errors.
    async fn read_rows(&mut self, range: (u64, u64), bufs: &mut [Buf]) -> Result<()> {
        let claim = self.engine.locks.claim(self.engine.rows_of(range.0, range.1));
        (&claim).await;
        self.read_rows_held(range, (bufs, false)).await
    }

    /// Like [`RowOp::read_rows`], for a caller that holds the lock; with `listed` also lost ranges.
    pub(crate) async fn read_rows_held(
        &mut self,
        (offset, len): (u64, u64),
        (bufs, listed): (&mut [Buf], bool),
    ) -> Result<()> {
        self.engine.split_rows(offset, len, &mut self.work.rows);
        let _memory = self.engine.memory_for_rows(&self.work.rows).await;
        let inside = self.engine.gate.enter().await;
        let mut op = self.inside(&inside);
        if !listed {
            op.engine.check_bad((offset, len))?;
        }
        let mut target = Target { offset, bufs };
        let mut apart = Vec::new();
        loop {
            if !op.read_together(&mut target).await? {
                // One by one, so that one failed read does not fail the other rows.
                apart.append(&mut op.work.rows);
            }
            let Some(row) = apart.pop() else { return Ok(()) };
            op.work.rows.clear();
            op.work.rows.push(row);
        }
    }

    /// Reads the rows in `work`. False if they were split and must be read one by one.
    async fn read_together(&mut self, target: &mut Target<'_>) -> Result<bool> {
        let mut corrected = false;
        let view = loop {
            let view = self.engine.view();
            let planned = self.engine.plan_reads(&view, &mut self.work.rows);
            if planned.is_err() && self.engine.read_apart(&view, &mut self.work.rows) {
                return Ok(false);
            }
            planned?;
            if !self.read_for_rows(&view).await {
                let mut found = Report::default();
                self.after_reading(&view, &mut found).await?;
                continue;
            }
            if !corrected && self.correct_rows(&view).await? {
                corrected = true;
                continue;
            }
            let fits = |row: &RowWork| self.engine.recovered_fits(&view, row, &self.work.pieces);
            let Some(misfit) = self.work.rows.iter().position(|row| !fits(row)) else { break view };
            let row = self.work.rows[misfit];
            // Split into blocks, readable blocks need no recovery.
            if self.engine.read_apart(&view, &mut self.work.rows) {
                return Ok(false);
            }
            self.work.rows[misfit] = row;
            if !self.engine.ask_q(&view, &mut self.work.rows[misfit]) {
                return Err(self.engine.contradicted(&row));
            }
        };
        for row in &self.work.rows {
            self.engine.deliver(row, &self.work.pieces, target)?;
        }
        self.repair_rows(view).await?;
        Ok(true)
    }

    /// With checked reads: corrects rows whose parity identifies the wrong member in every bad
    /// block. True if they must be read again.
    async fn correct_rows(&mut self, view: &Rc<View>) -> Result<bool> {
        if !self.engine.setup.check_reads || view.mode != layout::Mode::ReadWrite {
            return Ok(false);
        }
        self.correct_named(view).await
    }

    /// Corrects the rows in `work` that were read whole and disagree, if redundancy or generations
    /// name the wrong slot in every such block. True if rows were corrected.
    pub(crate) async fn correct_named(&mut self, view: &Rc<View>) -> Result<bool> {
        let checked = |row: &&RowWork| row.plan.is_some_and(|p| p.read == row.roles.all());
        let wrong = |row: &&RowWork| !self.engine.row_agrees(row, &self.work.pieces);
        let wrong: Vec<RowWork> =
            self.work.rows.iter().filter(checked).filter(wrong).copied().collect();
        let mut found = Report::default();
        self.work.outgoing.clear();
        for row in &wrong {
            self.resolve_row(view, row, Task::Repair, &mut found);
        }
        let named = found.findings.iter().filter(|finding| finding.culprit.is_some()).count();
        if named == 0 || named as u64 != found.mismatches {
            // No member is identified as wrong: the reader gets an error.
            self.work.outgoing.clear();
            return Ok(false);
        }
        self.work.news.clear();
        wrong.iter().for_each(|row| self.checksum_pieces(view, row));
        if let Some(checksums) = &self.engine.checksums {
            checksums.note_repair();
        }
        // No bitmap bit covers this write.
        let durably = IoOptions { fua: !broken(Broken::CorrectedVolatile), ..self.opts };
        self.with(durably).send(Rc::clone(view)).await?;
        self.work.outgoing.clear();
        self.renew_checksums().await?;
        self.align_rows(view, &wrong).await;
        for finding in &found.findings {
            let culprit = finding.culprit.and_then(|slot| view.member(slot));
            culprit
                .inspect(|member| self.engine.repaired(member, finding.member_offset, finding.len));
        }
        Ok(true)
    }

    /// Rewrites blocks that had read errors with the recovered bytes, and reads them once more.
    async fn repair_rows(&mut self, view: Rc<View>) -> Result<()> {
        self.work.outgoing.clear();
        for row in self.work.rows.iter().filter(|row| !row.bad.is_empty()) {
            let plan = row.plan.expect("planned in read_rows");
            let Method::Recover(erasure) = plan.method else { continue };
            let (x, y) = self.engine.recover_row(row, erasure, &self.work.pieces);
            for (slot, buf) in erasure.lost().iter().zip([x, y]) {
                // A contradicting block must not be overwritten to agree.
                if row.bad.difference(row.contradicted).contains(slot) {
                    let (at, bytes) = (row.at(), buf.freeze());
                    self.work.outgoing.push(Outgoing { slot, at, bytes });
                }
            }
        }
        self.rewrite(view).await
    }

    /// Writes `outgoing` over unreadable blocks and reads them back. A member that does not return
    /// the written bytes is lost.
    pub(crate) async fn rewrite(&mut self, view: Rc<View>) -> Result<()> {
        if self.work.outgoing.is_empty() || view.mode != layout::Mode::ReadWrite {
            self.work.outgoing.clear();
            return Ok(());
        }
        self.with(IoOptions { fua: true, ..self.opts }).send(Rc::clone(&view)).await?;
        let view = self.engine.view();
        for (tag, out) in self.work.outgoing.iter().enumerate() {
            let Some(member) = view.member(out.slot) else { continue };
            let buf = self.engine.pool.take(out.bytes.len());
            self.work.batch.read(member, out.slot, out.at, buf, tag as u32, self.opts.op_bytes);
        }
        self.engine.run(&mut self.work.batch, self.opts).await;
        let (outgoing, mut wrong) = (&self.work.outgoing, Vec::new());
        let check = |tag: u32, buf: Option<Buf>, ok: bool| {
            let out = &outgoing[tag as usize];
            if !ok || buf.is_none_or(|buf| buf[..] != out.bytes[..]) {
                wrong.push(out.slot);
            }
        };
        self.work.batch.drain(check, |_, _, _| {}, &mut self.work.failures);
        self.work.failures.clear();
        for out in &self.work.outgoing {
            let Some(member) = view.member(out.slot) else { continue };
            if wrong.contains(&out.slot) {
                let offset = member.data_offset + out.at;
                let kind = io::ErrorKind::Medium { offset, len: out.bytes.len() as u64 };
                let error = io::Error::new(kind, format!("{}: not repairable", member.name));
                let (member, slot) = (Rc::clone(member), out.slot);
                self.work.failures.push(crate::member::batch::Failure { member, slot, error });
            } else {
                let end = out.at + out.bytes.len() as u64;
                member.bad.borrow_mut().remove(out.at..end);
                self.engine.repaired(member, out.at, out.bytes.len() as u64);
            }
        }
        self.work.outgoing.clear();
        if !self.work.failures.is_empty() {
            self.lose(&view).await?;
        }
        Ok(())
    }
}

impl Engine {
    /// True if the whole range can be read without recovery.
    pub(crate) fn can_read_directly(&self, view: &View, (offset, len): (u64, u64)) -> bool {
        if self.check_bad((offset, len)).is_err() {
            return false;
        }
        let geometry = &self.setup.geometry;
        let whole = view.in_sync.count() == geometry.slots();
        let good = |(_, member): (Slot, &Rc<crate::member::Member>)| member.bad.borrow().is_empty();
        if whole && view.members().all(good) {
            return true;
        }
        let end = geometry.stripe_bytes();
        self.each_chunk(offset, len).all(|(slot, at, part, array_offset)| {
            let stripe_end = (array_offset / end + 1) * end;
            view.is_readable(slot, stripe_end, at, part)
        })
    }

    /// The chunks of an array range: slot, member offset, bytes, array offset.
    pub(crate) fn each_chunk(
        &self,
        offset: u64,
        len: u64,
    ) -> impl Iterator<Item = (Slot, u64, u64, u64)> {
        let geometry = &self.setup.geometry;
        let chunk = geometry.chunk_bytes();
        let (mut at, end) = (offset, offset + len);
        std::iter::from_fn(move || {
            assert!(at <= end, "a chunk beyond the range");
            if at == end {
                return None;
            }
            let (stripe, index, within) = geometry.stripe_of(at);
            let part = (chunk - within).min(end - at);
            let map = geometry.stripe(stripe);
            let item = (map.data(index), map.member_offset() + within, part, at);
            at += part;
            Some(item)
        })
    }

    /// The bytes recovered from P contradict their entries: P is marked unreadable if Q can be used
    /// instead. False if there is no other parity.
    pub(crate) fn ask_q(&self, view: &View, row: &mut RowWork) -> bool {
        let from_p = |plan: WritePlan| matches!(plan.method, Method::Recover(Erasure::FromP(_)));
        let readable = self.state_of(view, row).readable;
        let asks = row.map.q().is_some_and(|q| readable.contains(q))
            && row.plan.is_some_and(from_p)
            && !broken(Broken::ContradictedByP);
        if asks {
            row.bad.insert(row.map.p());
        }
        asks
    }

    /// Splits rows that cannot be read without recovery, as [`Engine::take_apart`] does.
    fn read_apart(&self, view: &View, rows: &mut Vec<RowWork>) -> bool {
        rows.iter_mut().for_each(|row| row.plan = None);
        !broken(Broken::ReadTogether) && self.take_apart(view, rows)
    }

    /// Plans the reading of every row. The plan lists the slots to read.
    fn plan_reads(&self, view: &View, rows: &mut [RowWork]) -> Result<()> {
        for work in rows {
            let state = self.state_of(view, work);
            let plan = plan_read(&work.roles, &state, work.touched())
                .map_err(|lost| self.data_lost(work, lost))?;
            if !work.contradicted.intersection(work.touched()).is_empty() {
                return Err(self.contradicted(work));
            }
            let all = work.roles.data.union(work.roles.parity());
            let check = self.setup.check_reads && state.synced && all.is_subset(state.readable);
            let method = match plan.recover {
                Some(erasure) => Method::Recover(erasure),
                None => Method::DataOnly,
            };
            let read = if check { all } else { plan.read };
            work.plan = Some(WritePlan { method, read, write: SlotSet::EMPTY });
        }
        Ok(())
    }

    /// Copies a row's bytes to the client, recovering them where needed.
    pub(crate) fn deliver(
        &self,
        work: &RowWork,
        pieces: &[Piece],
        target: &mut Target<'_>,
    ) -> Result<()> {
        let plan = work.plan.expect("planned just before");
        let (map, row) = (&work.map, &work.row);
        let all = work.roles.data.union(work.roles.parity());
        if self.setup.check_reads && all.is_subset(plan.read) {
            self.check_row(work, pieces)?;
        }
        let recovered = match plan.method {
            Method::Recover(erasure) => Some((erasure, self.recover_row(work, erasure, pieces))),
            _ => None,
        };
        let base = self.stripe_offset(row.stripe) + row.start;
        for index in row.first..row.first + row.count {
            let slot = map.data(index);
            let bytes = match (&recovered, work.have(pieces, slot)) {
                (_, Some(bytes)) => bytes,
                (Some((erasure, (x, y))), None) => recovered_of(*erasure, (&x[..], &y[..]), slot),
                (None, None) => unreachable!("the plan reads or recovers what is wanted"),
            };
            target.put(base + index as u64 * self.setup.geometry.chunk_bytes(), bytes);
            self.setup.clock.charge(io::Cost::Copy, bytes.len() as u64);
        }
        Ok(())
    }

    /// Compares a row's parity with its data.
    fn check_row(&self, work: &RowWork, pieces: &[Piece]) -> Result<()> {
        if self.row_agrees(work, pieces) {
            return Ok(());
        }
        let what = "data and parity contradict each other; run `parapet scrub` to see where";
        Err(Error::new(ErrorKind::DataLost, what).at(self.stripe_offset(work.row.stripe)))
    }

    /// True if the parity that was read agrees with the data.
    pub(crate) fn row_agrees(&self, work: &RowWork, pieces: &[Piece]) -> bool {
        let (map, kernel) = (&work.map, self.setup.kernel);
        let have = |slot| work.have(pieces, slot).expect("all slots were read");
        let count = map.data_count();
        self.setup.clock.charge(io::Cost::Parity, work.row.len() * count as u64);
        match map.q() {
            None => {
                let each = (0..count).map(|index| have(map.data(index)));
                compute::sources(each, |all| kernel.check_p(all, have(map.p())))
            }
            Some(q) => {
                let each = (0..count).map(|i| (map.exponent(i), have(map.data(i))));
                compute::terms(each, |all| kernel.check_pq(all, have(map.p()), have(q)))
            }
        }
    }

    /// Computes the lost data of a row: the bytes of the first lost slot, and of the second if
    /// there are two.
    pub(crate) fn recover_row(
        &self,
        work: &RowWork,
        erasure: Erasure,
        pieces: &[Piece],
    ) -> (Buf, Buf) {
        let len = work.row.len() as usize;
        let two = matches!(erasure, Erasure::FromPq(..));
        let (mut x, mut y) = (self.pool.take(len), self.pool.take(if two { len } else { 0 }));
        let have = |slot| work.have(pieces, slot).expect("the plan reads all remaining blocks");
        self.setup.clock.charge(io::Cost::Parity, (len * work.map.data_count()) as u64);
        if !broken(Broken::DegradedReadsNothing) {
            compute::recover(self.setup.kernel, &work.map, erasure, have, &mut x, &mut y);
        }
        (x, y)
    }
}

/// Of what [`Engine::recover_row`] has recovered, the bytes of this slot.
///
/// # Panics
/// If the slot is not one of the lost ones: it would get the bytes of another slot.
pub(crate) fn recovered_of<T>(erasure: Erasure, (x, y): (T, T), slot: Slot) -> T {
    let lost = erasure.lost();
    assert!(lost.contains(slot), "slot {slot} was not recovered: {lost:?} were");
    if lost.iter().next() == Some(slot) { x } else { y }
}

/// The client's buffers, to be filled at array offsets.
pub(crate) struct Target<'a> {
    pub(crate) offset: u64,
    pub(crate) bufs: &'a mut [Buf],
}

impl Target<'_> {
    /// Copies bytes to their array offset.
    pub(crate) fn put(&mut self, array_offset: u64, mut bytes: &[u8]) {
        assert!(array_offset >= self.offset, "bytes that the client has not asked for");
        let mut skip = (array_offset - self.offset) as usize;
        for buf in self.bufs.iter_mut() {
            if skip >= buf.len() {
                skip -= buf.len();
                continue;
            }
            let part = bytes.len().min(buf.len() - skip);
            buf[skip..skip + part].copy_from_slice(&bytes[..part]);
            bytes = &bytes[part..];
            skip = 0;
            if bytes.is_empty() {
                return;
            }
        }
        assert!(bytes.is_empty(), "{} bytes have no place in the client's buffers", bytes.len());
    }
}

/// Cuts the client's buffers for consecutive array ranges. Hands each part to `each` with its tag,
/// the number of its range, and its start in the range.
pub(crate) fn split_parts(
    parts: &mut Parts,
    bufs: &mut Vec<Buf>,
    ranges: impl Iterator<Item = u64>,
    mut each: impl FnMut(u32, usize, u64, Buf),
) {
    parts.clear();
    let (mut from, mut rest) = (bufs.drain(..), None);
    for (number, len) in ranges.enumerate() {
        let first = parts.len();
        take_part(parts, &mut from, &mut rest, len);
        let mut at = 0;
        for (tag, part) in parts.iter_mut().enumerate().skip(first) {
            let buf = part.take().expect("just split off");
            let len = buf.len() as u64;
            each(tag as u32, number, at, buf);
            at += len;
        }
    }
    let all = rest.is_none() && from.len() == 0;
    assert!(all, "the client's buffers are longer than the ranges that they are cut for");
}
