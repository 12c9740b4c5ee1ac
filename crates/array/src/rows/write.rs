//! Writing: executes the plan of each row.
//!
//! ```text
//!          ┌─ plan ─┐   ┌─ read old bytes ──┐   ┌─ compute P′ Q′ ─┐   ┌ write d′ P′ Q′ ┐
//!   rows ─▶│ table  │──▶│ (nothing if full) │──▶│ absolute bytes  │──▶│ all at once    │─▶ done
//!          └───▲────┘   └─────────┬─────────┘   └─────────────────┘   └───────┬────────┘
//!              └── plan again ◀───┘ a read failed                             │ a write failed
//!                                        the member is lost; wait for the new epoch;
//!                                        send the same bytes again to the slots that remain
//! ```
//!
//! With an intent log, a record from which the row can be replayed is durable before the first of
//! these writes (`rows/intent.rs`).
//!
//! Before the first write a unit may be planned again, because nothing has changed yet. From then
//! on the row on the members is neither old nor new, so it must never be read to compute parity.
//! The bytes d′, P′, Q′ are absolute: they are kept until the unit ends, and sent again as they
//! are.
//!
//! Invariant: when a unit is acknowledged, every slot that is present in the newest epoch has its
//! bytes.

use io::broken::{Broken, broken};
use io::{Buf, SharedBuf};
use layout::plan::Method;
use layout::{Family, Mode, Slot};
use log::compute;
use metadata::{Error, ErrorKind, Result};

use crate::member::View;
use crate::member::batch::IoOptions;
use crate::rows::engine::{Engine, RowOp};
use crate::rows::job::Report;
use crate::rows::read::recovered_of;
use crate::rows::{Outgoing, Piece, RowWork, Scratch};
use crate::status::FULL;

/// The new bytes of a unit: consecutive buffers from an array offset on.
#[derive(Clone, Copy)]
pub(crate) struct Fresh<'a> {
    offset: u64,
    bufs: &'a [SharedBuf],
}

impl<'a> Fresh<'a> {
    pub(crate) fn new(offset: u64, bufs: &'a [SharedBuf]) -> Fresh<'a> {
        Fresh { offset, bufs }
    }

    /// The bytes from an array offset to the end of the buffer that holds it.
    pub(crate) fn from(self, array_offset: u64) -> &'a [u8] {
        assert!(array_offset >= self.offset, "new bytes are asked for before they begin");
        let mut skip = (array_offset - self.offset) as usize;
        for buf in self.bufs {
            if skip < buf.len() {
                return &buf[skip..];
            }
            skip -= buf.len();
        }
        &[]
    }

    /// CRC-32C of an array range.
    pub(crate) fn crc(self, array_offset: u64, len: u64) -> u32 {
        let (mut at, mut crc, end) = (array_offset, 0, array_offset + len);
        while at < end {
            let part = self.from(at);
            let run = part.len().min((end - at) as usize);
            assert!(run > 0, "new bytes cover the row");
            crc = parity::crc32c(crc, &part[..run]);
            at += run as u64;
        }
        crc
    }

    /// The buffers of an array range, without a copy.
    pub(crate) fn share(
        self,
        array_offset: u64,
        len: u64,
    ) -> impl Iterator<Item = (u64, SharedBuf)> {
        assert!(array_offset >= self.offset, "new bytes are asked for before they begin");
        let (mut skip, mut left) = ((array_offset - self.offset) as usize, len as usize);
        let mut done = 0;
        self.bufs.iter().filter_map(move |buf| {
            if left == 0 || skip >= buf.len() {
                skip -= buf.len().min(skip);
                return None;
            }
            let take = left.min(buf.len() - skip);
            let part = buf.slice(skip..skip + take);
            let at = done;
            (skip, left, done) = (0, left - take, done + take as u64);
            Some((at, part))
        })
    }
}

/// The outcome of writing rows.
enum Written {
    /// They are written.
    Done,
    /// Their records do not fit into the log with the remaining members.
    LogTooSmall,
    /// Some were split and must be written one by one.
    Split,
    /// Nothing was written: some rows must first discard parity that is still trusted.
    ParityTrusted,
}

impl RowOp<'_> {
    /// Writes `bytes`, which cover `range` of the array.
    pub(crate) async fn write(&mut self, range: (u64, u64), bytes: &mut [SharedBuf]) -> Result<()> {
        for buf in bytes.iter_mut() {
            if !buf.is_stable() && !broken(Broken::UnstableBuffer) {
                *buf = buf.clone().stable(&self.engine.pool);
            }
        }
        let wide = self.engine.widened(range);
        let whole = match wide == range {
            true => None,
            false => {
                Box::pin(self.correct_edges(range, wide)).await?;
                // An incomplete block would have no checksum.
                self.fill_edges(range, bytes).await?
            }
        };
        let (at, bytes) = match &whole {
            Some(whole) => (wide, &whole[..]),
            None => (range, &*bytes),
        };
        let have = bytes.iter().map(|buf| buf.len() as u64).sum::<u64>();
        assert_eq!(have, at.1, "a write has all the bytes of its range");
        self.work.cleared_bad = false;
        self.write_blocks(at, Fresh::new(at.0, bytes)).await?;
        self.repair_bad(range).await;
        Ok(())
    }

    /// Writes a range made of whole blocks where checksums are kept.
    async fn write_blocks(&mut self, range: (u64, u64), fresh: Fresh<'_>) -> Result<()> {
        if self.engine.setup.geometry.family() != Family::Parity {
            return self.write_copies(range, fresh).await;
        }
        self.engine.split_rows(range.0, range.1, &mut self.work.rows);
        let mut todo = self.engine.parts_to_log(&self.work.rows).unwrap_or_default();
        loop {
            if let Some(part) = todo.pop() {
                self.work.rows = part;
            }
            match self.write_rows(fresh).await? {
                Written::Done => {}
                // A member was lost since the rows were divided: its data must be logged, too.
                Written::LogTooSmall => {
                    let rows = std::mem::take(&mut self.work.rows);
                    todo.extend(self.engine.parts_to_log(&rows).unwrap_or_else(|| vec![rows]));
                }
                Written::ParityTrusted => {
                    self.engine.discard_parity(&mut self.work.rows).await;
                    todo.push(std::mem::take(&mut self.work.rows));
                }
                // One by one, so that one failed read does not fail the other rows.
                Written::Split => todo.extend(self.work.rows.drain(..).map(|row| vec![row])),
            }
            if todo.is_empty() {
                break;
            }
        }
        Ok(())
    }

    /// Writes the rows in `work.rows`, or reports why nothing was written.
    async fn write_rows(&mut self, fresh: Fresh<'_>) -> Result<Written> {
        let _memory = self.engine.memory_for_rows(&self.work.rows).await;
        let (inside, view, entry) = loop {
            let present = self.engine.view().present;
            if !self.engine.fits_log(&self.work.rows, present) {
                return Ok(Written::LogTooSmall);
            }
            let entry = self.engine.admit(&self.work.rows, present).await?;
            let inside = self.engine.gate.enter().await;
            let mut op = self.inside(&inside);
            let view = match op.prepare().await? {
                Ok(view) => view,
                Err(not_yet) => return Ok(not_yet),
            };
            if entry.is_some() && view.present != present {
                // The size of the records depends on the members that are present.
                continue;
            }
            op.work.outgoing.clear();
            for row in &op.work.rows {
                op.engine.compute_row(row, fresh, &mut op.work.pieces, &mut op.work.outgoing);
            }
            op.work.pieces.clear();
            op.checksum_rows(fresh);
            let logged = match &entry {
                Some(entry) => op.log_rows(entry, fresh, &view).await,
                None => true,
            };
            if logged {
                break (inside, view, entry);
            }
            if !op.work.failures.is_empty() {
                op.lose(&view).await?;
            }
        };
        let mut op = self.inside(&inside);
        entry.as_ref().inspect(|entry| entry.begins());
        let result = op.send(std::rc::Rc::clone(&view)).await;
        op.work.outgoing.clear();
        let result = match result {
            Ok(()) => op.renew_checksums().await,
            failure => failure,
        };
        if result.is_ok() {
            op.engine.resolve_rows(&op.work.rows);
            entry.inspect(|entry| entry.whole(op.engine.is_volatile()));
        }
        result.map(|()| Written::Done)
    }

    /// Plans the rows and reads what the plans ask for, until all of it is there. Otherwise returns
    /// what must happen first.
    async fn prepare(&mut self) -> Result<std::result::Result<std::rc::Rc<View>, Written>> {
        let mut corrected = false;
        loop {
            let view = self.engine.view();
            self.engine.check_writable(&view)?;
            let planned = match self.engine.setup.parity {
                true => self.engine.plan_rows(&view, &mut self.work.rows),
                false => self.engine.plan_without_parity(&view, &mut self.work.rows),
            };
            if self.engine.take_apart(&view, &mut self.work.rows) {
                return Ok(Err(Written::Split));
            }
            if self.engine.setup.parity
                && self.work.rows.iter().any(|row| self.engine.is_trusted(&view, row))
            {
                return Ok(Err(Written::ParityTrusted));
            }
            planned?;
            if self.read_for_rows(&view).await {
                let first = !std::mem::replace(&mut corrected, true);
                if first && self.uses_behind(&view) && !broken(Broken::BehindUsed) {
                    let (mut other, rows) = (Scratch::default(), &self.work.rows);
                    if Box::pin(self.beside(&mut other).correct_behind(rows, &view)).await? {
                        continue;
                    }
                }
                let mut asked = false;
                for row in &mut self.work.rows {
                    asked |= !self.engine.recovered_fits(&view, row, &self.work.pieces)
                        && self.engine.ask_q(&view, row);
                }
                if asked {
                    continue;
                }
                return Ok(Ok(view));
            }
            self.after_reading(&view, &mut Report::default()).await?;
        }
    }

    /// Reads the blocks that the rows' plans ask for. False if a read failed: failed members are in
    /// `failures`, bad blocks are noted in their rows.
    pub(crate) async fn read_for_rows(&mut self, view: &View) -> bool {
        self.work.pieces.clear();
        if self.engine.checksums.is_some() {
            self.add_wanted_rows(view);
            if !self.load_checksums().await {
                return false;
            }
        }
        for row in &mut self.work.rows {
            row.first = self.work.pieces.len();
            let plan = row.plan.expect("rows are planned before they are read");
            for slot in plan.read.iter() {
                let buf = self.engine.pool.take(row.row.len() as usize);
                let member = view.member(slot).expect("a readable slot has a member");
                let tag = self.work.pieces.len() as u32;
                self.work.batch.read(member, slot, row.at(), buf, tag, self.opts.op_bytes);
                self.work.pieces.push(Piece { slot, buf: None, failed: false });
            }
            row.count = self.work.pieces.len() - row.first;
        }
        if self.work.batch.is_empty() {
            return true;
        }
        self.engine.run(&mut self.work.batch, IoOptions { fua: false, ..self.opts }).await;
        let whole = self.collect_pieces();
        let Scratch { rows, pieces, .. } = self.work;
        self.engine.check_pieces(view, rows, pieces) && whole
    }

    /// Moves the batch's reads into the pieces. False if one failed: medium errors are noted in the
    /// rows, other failures stay in `failures`.
    pub(crate) fn collect_pieces(&mut self) -> bool {
        let pieces = &mut self.work.pieces;
        self.work.batch.drain(
            |tag, buf, ok| {
                let piece = &mut pieces[tag as usize];
                // A failed read must not enter any computation.
                let kept = ok || broken(Broken::FailedReadUsed);
                (piece.buf, piece.failed) = (buf.filter(|_| kept), !ok);
            },
            |_, _, _| {},
            &mut self.work.failures,
        );
        let mut whole = true;
        for row in &mut self.work.rows {
            for piece in &self.work.pieces[row.first..row.first + row.count] {
                if piece.failed {
                    row.bad.insert(piece.slot);
                    whole = false;
                }
            }
        }
        // Other members replace an unreadable block; after any other error the member is lost.
        let medium = |error: &io::Error| error.is_medium();
        self.work.failures.retain(|failure| !medium(&failure.error));
        whole
    }

    /// Sends the outgoing bytes. After a loss, sends them again across epochs until every present
    /// slot has its bytes.
    pub(crate) async fn send(&mut self, mut view: std::rc::Rc<View>) -> Result<()> {
        let mut again: Option<Vec<Slot>> = None;
        loop {
            for out in &self.work.outgoing {
                if again.as_ref().is_none_or(|slots| slots.contains(&out.slot)) {
                    for member in view.targets(out.slot) {
                        let bytes = out.bytes.clone();
                        self.work.batch.write(member, out.slot, out.at, bytes, self.opts.op_bytes);
                    }
                }
            }
            // All members that need a retry may have been lost.
            let sent = !self.work.batch.is_empty();
            if sent {
                self.engine.run(&mut self.work.batch, self.opts).await;
                self.work.batch.drain(|_, _, _| {}, |_, _, _| {}, &mut self.work.failures);
            }
            if !sent || self.work.failures.is_empty() {
                let heals = sent || !broken(Broken::ListedAfterLoss);
                for out in self.work.outgoing.iter().filter(|_| heals) {
                    for member in view.targets(out.slot) {
                        self.work.cleared_bad |=
                            self.engine.clear_bad(member, out.at, out.bytes.len() as u64);
                    }
                }
                return Ok(());
            }
            if broken(Broken::AckBeforeLoss) {
                self.work
                    .failures
                    .drain(..)
                    .for_each(|f| self.engine.lose_late(&f.member, f.error));
                return Ok(());
            }
            again = Some(self.work.failures.iter().map(|failure| failure.slot).collect());
            self.lose(&view).await?;
            assert!(self.engine.view().epoch > view.epoch, "sent again without a change");
            view = self.engine.view();
            if view.mode == Mode::Full {
                let mut unfinished = self.engine.unfinished.borrow_mut();
                for out in &self.work.outgoing {
                    unfinished.insert(out.at..out.at + out.bytes.len() as u64);
                }
            }
            self.engine.check_unbroken(&view)?;
            let homeless = |out: &&Outgoing| !view.present.contains(out.slot);
            // Only parity could hold these bytes, and this array computes none.
            if let Some(out) =
                self.work.outgoing.iter().find(homeless).filter(|_| self.engine.lacks_parity())
            {
                let what = "the member was lost, and there is no parity";
                return Err(Error::new(ErrorKind::DataLost, what).in_slot(out.slot));
            }
        }
    }
}

impl Engine {
    /// True if some member needs a flush to make its writes durable.
    pub(crate) fn is_volatile(&self) -> bool {
        self.view().members().any(|(_, member)| member.limits.volatile)
    }

    /// Records parity as discarded that the rows' plans leave out, or that cannot recover their
    /// losses. That must be on record first: otherwise, after a crash, missing blocks would be
    /// computed from new data and old parity.
    async fn discard_parity(&self, rows: &mut [RowWork]) {
        let view = self.view();
        for row in rows.iter() {
            let members = self.trusted_parity(&view, row).cloned();
            self.unrecoverable(members, row.at(), row.row.len());
        }
        if !broken(Broken::ParityTrusted) {
            self.on_record().await;
        }
        rows.iter_mut().for_each(|row| row.given_up = true);
    }

    /// Refuses to begin a write if the array is read-only.
    pub(crate) fn check_writable(&self, view: &View) -> Result<()> {
        match view.mode {
            Mode::ReadOnly => Err(Error::new(ErrorKind::ReadOnly, "the array is read-only")),
            Mode::ReadWrite | Mode::Full | Mode::Broken => self.check_unbroken(view),
        }
    }

    /// Refuses to continue a write only if the array has failed. A write that has begun must end
    /// even if the administrator makes the array read-only: the records of a torn row would never
    /// be released.
    pub(crate) fn check_unbroken(&self, view: &View) -> Result<()> {
        if view.mode == Mode::Full {
            return Err(Error::new(ErrorKind::NoSpace, FULL));
        }
        let what = "the array has lost more members than its level tolerates; writes are refused";
        let refused = broken(Broken::BegunWriteRefused) && view.mode == Mode::ReadOnly;
        match view.mode == Mode::Broken || refused {
            true => Err(Error::new(ErrorKind::DataLost, what)),
            false => Ok(()),
        }
    }

    /// Computes the bytes to write to a row's slots.
    fn compute_row(
        &self,
        work: &RowWork,
        fresh: Fresh<'_>,
        pieces: &mut [Piece],
        outgoing: &mut Vec<Outgoing>,
    ) {
        let plan = work.plan.expect("planned in prepare");
        let (map, row, chunk) = (&work.map, &work.row, self.setup.geometry.chunk_bytes());
        let base = self.stripe_offset(row.stripe) + row.start;
        let touched = row.first..row.first + row.count;
        for index in touched.clone().filter(|&index| plan.write.contains(map.data(index))) {
            let mut end = work.at();
            for (at, bytes) in fresh.share(base + index as u64 * chunk, row.len()) {
                end += bytes.len() as u64;
                outgoing.push(Outgoing { slot: map.data(index), at: work.at() + at, bytes });
            }
            assert_eq!(end - work.at(), row.len(), "parity would have what the data has not");
        }
        let parity = plan.write.intersection(work.roles.parity());
        if parity.is_empty() {
            return;
        }
        let new = |index: usize, at: usize| fresh.from(base + index as u64 * chunk + at as u64);
        let (p, q) = if plan.method == Method::ReadModifyWrite {
            self.modified_parity(work, new, pieces)
        } else {
            self.encoded_parity(work, new, pieces)
        };
        for (slot, buf) in [(Some(map.p()), p), (map.q(), q)] {
            let Some(slot) = slot else { continue };
            let planned = parity.contains(slot);
            assert_eq!(buf.is_some(), planned, "parity in slot {slot} would not match the data");
            if let Some(buf) = buf {
                assert_eq!(buf.len() as u64, row.len(), "parity of another length than its row");
                outgoing.push(Outgoing { slot, at: work.at(), bytes: buf.freeze() });
            }
        }
    }

    /// P and Q, updated by the difference between old and new data.
    fn modified_parity<'a>(
        &self,
        work: &RowWork,
        new: impl Fn(usize, usize) -> &'a [u8],
        pieces: &mut [Piece],
    ) -> (Option<Buf>, Option<Buf>) {
        let (map, row) = (&work.map, &work.row);
        let pieces = &mut pieces[work.first..work.first + work.count];
        let mut take = |slot: Slot| {
            pieces.iter_mut().find(|piece| piece.slot == slot).and_then(|piece| piece.buf.take())
        };
        let mut p = take(map.p());
        let mut q = map.q().and_then(&mut take);
        for index in row.first..row.first + row.count {
            let old = take(map.data(index)).expect("a read-modify-write reads what it touches");
            let len = old.len() as u64;
            assert_eq!(len, row.len(), "old data of another length than its row");
            self.setup.clock.charge(io::Cost::Parity, len);
            compute::update(
                self.setup.kernel,
                map.exponent(index),
                &old,
                |at| if broken(Broken::RmwBufferReused) { &old[at..] } else { new(index, at) },
                p.as_deref_mut(),
                q.as_deref_mut().filter(|_| !broken(Broken::QStale)),
            );
        }
        (p, q)
    }

    /// P and Q of all the data: new where touched, read or recovered elsewhere.
    fn encoded_parity<'a>(
        &self,
        work: &RowWork,
        new: impl Fn(usize, usize) -> &'a [u8],
        pieces: &[Piece],
    ) -> (Option<Buf>, Option<Buf>) {
        let (map, row, kernel) = (&work.map, &work.row, self.setup.kernel);
        let plan = work.plan.expect("planned in prepare");
        let len = row.len() as usize;
        let want = |slot: Slot| plan.write.contains(slot).then(|| self.pool.take(len));
        let (mut p, mut q) = (want(map.p()), map.q().and_then(want));
        let recovered = match plan.method {
            Method::Recover(erasure) => Some((erasure, self.recover_row(work, erasure, pieces))),
            _ => None,
        };
        let touched = row.first..row.first + row.count;
        let source = |index: usize, at: usize| -> &[u8] {
            if touched.contains(&index) {
                return new(index, at);
            }
            let slot = map.data(index);
            if let Some((erasure, (x, y))) = &recovered
                && erasure.lost().contains(slot)
            {
                return &recovered_of(*erasure, (&x[..], &y[..]), slot)[at..];
            }
            &work.have(pieces, slot).expect("the plan reads the kept blocks")[at..]
        };
        self.setup.clock.charge(io::Cost::Parity, (len * map.data_count()) as u64);
        compute::encode(kernel, map, len, source, p.as_deref_mut(), q.as_deref_mut());
        (p, q)
    }

    /// The level has parity, but this array does not compute it.
    fn lacks_parity(&self) -> bool {
        self.setup.geometry.family() == Family::Parity && !self.setup.parity
    }
}
