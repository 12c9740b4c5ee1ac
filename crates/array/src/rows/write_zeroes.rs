//! Zeroing and discarding.
//!
//! Zeros have zero parity, so whole stripes are zeroed by zeroing every member; the edges are
//! written as zeros. A discard is passed on only where every member promises that discarded bytes
//! read as zeros: otherwise parity and copies would disagree.

use io::broken::{Broken, broken};
use io::{SharedBuf, Work, ZeroSupport};
use layout::{Family, Mode, Slot};
use metadata::Result;

use crate::member::View;
use crate::rows::Scratch;
use crate::rows::checksum::BLOCK;
use crate::rows::engine::{Engine, RowOp};

/// Zeros are written from one block of this size.
const ZERO_BLOCK: u64 = 64 << 10;

impl Engine {
    /// The whole stripes within an array range.
    fn whole_stripes(&self, offset: u64, len: u64) -> std::ops::Range<u64> {
        let stripe = self.setup.geometry.stripe_bytes();
        let first = offset.next_multiple_of(stripe).min(offset + len);
        first..((offset + len) / stripe * stripe).max(first)
    }

    /// The whole blocks within an array range; all of it where no checksums are kept.
    fn whole_blocks(&self, offset: u64, len: u64) -> std::ops::Range<u64> {
        if self.checksums.is_none() {
            return offset..offset + len;
        }
        let first = offset.next_multiple_of(BLOCK).min(offset + len);
        first..((offset + len) / BLOCK * BLOCK).max(first)
    }

    /// True if zeroing this array range is faster than writing zeros to it.
    pub(crate) fn zeroes_fast(&self, offset: u64, len: u64) -> bool {
        let view = self.view();
        let whole = self.setup.geometry.family() != Family::Parity
            || self.whole_stripes(offset, len) == (offset..offset + len);
        whole && view.members().all(|(_, member)| member.limits.zero >= ZeroSupport::Fast)
    }
}

impl RowOp<'_> {
    /// Makes a range read as zeros.
    pub(crate) async fn zero(&mut self, (offset, len): (u64, u64), unmap: bool) -> Result<()> {
        // The request was checked for speed when it arrived.
        let how = |len| Work::Zero { len, unmap, fast: false };
        if self.engine.setup.geometry.family() != Family::Parity {
            let whole = self.engine.whole_blocks(offset, len);
            for (start, end) in [(offset, whole.start), (whole.end, offset + len)] {
                self.write_zeros(start, end).await?;
            }
            let whole = (whole.start, whole.end - whole.start);
            return self.on_copies(whole, how).await;
        }
        let whole = self.engine.whole_stripes(offset, len);
        for (start, end) in [(offset, whole.start), (whole.end, offset + len)] {
            self.write_zeros(start, end).await?;
        }
        if whole.is_empty() {
            return Ok(());
        }
        self.on_stripes(whole, how).await
    }

    async fn write_zeros(&mut self, start: u64, end: u64) -> Result<()> {
        if start >= end {
            return Ok(());
        }
        let block = self.engine.pool.take_zeroed(ZERO_BLOCK as usize).freeze();
        let mut bytes: Vec<SharedBuf> = Vec::new();
        let mut at = start;
        while at < end {
            let part = ZERO_BLOCK.min(end - at);
            bytes.push(block.slice(0..part as usize));
            at += part;
        }
        self.write((start, end - start), &mut bytes).await
    }

    /// Discards the range if that leaves zeros on every member; otherwise does nothing.
    pub(crate) async fn discard(&mut self, (offset, len): (u64, u64)) -> Result<()> {
        let view = self.engine.view();
        let redundant = self.engine.setup.geometry.family() != Family::Plain;
        // Discarded bytes of a slot and of its replacement may read differently.
        let copying = view.slots.iter().any(|assignment| assignment.replacement.is_some());
        if copying && !self.engine.setup.discard_zeroes {
            return Ok(());
        }
        let can = |limits: &io::Limits| limits.discard && (limits.discard_zeroes || !redundant);
        if !view.members().all(|(_, member)| can(&member.limits)) {
            // A member that joined later may not discard to zeros as the array promised at its
            // start.
            return if self.engine.setup.discard_zeroes {
                self.zero((offset, len), true).await
            } else {
                Ok(())
            };
        }
        let how = |len| Work::Discard { len };
        if self.engine.setup.geometry.family() != Family::Parity {
            let whole = self.engine.whole_blocks(offset, len);
            for (start, end) in [(offset, whole.start), (whole.end, offset + len)] {
                if self.engine.setup.discard_zeroes {
                    self.write_zeros(start, end).await?;
                }
            }
            let whole = (whole.start, whole.end - whole.start);
            return self.on_copies(whole, how).await;
        }
        // The array promises zeros, as its members do: the parts outside whole stripes are written.
        let whole = self.engine.whole_stripes(offset, len);
        for (start, end) in [(offset, whole.start), (whole.end, offset + len)] {
            if !broken(Broken::DiscardKeepsEdges) {
                self.write_zeros(start, end).await?;
            }
        }
        if whole.is_empty() { Ok(()) } else { self.on_stripes(whole, how).await }
    }

    /// Sends the same operation for a range of whole stripes to every member.
    async fn on_stripes(
        &mut self,
        whole: std::ops::Range<u64>,
        how: impl Fn(u64) -> Work,
    ) -> Result<()> {
        let most =
            self.engine.stripes_to_log().saturating_mul(self.engine.setup.geometry.stripe_bytes());
        let mut at = whole.start;
        while at < whole.end {
            let end = at.saturating_add(most).min(whole.end);
            self.on_logged_stripes(at..end, &how).await?;
            at = end;
        }
        Ok(())
    }

    /// Like [`RowOp::on_stripes`], for at most as many stripes as one record can log.
    async fn on_logged_stripes(
        &mut self,
        whole: std::ops::Range<u64>,
        how: impl Fn(u64) -> Work,
    ) -> Result<()> {
        let geometry = &self.engine.setup.geometry;
        let stripe = geometry.stripe_bytes();
        let stripes = (whole.start / stripe, (whole.end - whole.start) / stripe);
        let range = (whole.start, whole.end - whole.start);
        let parts = (whole.start % stripe, whole.end % stripe);
        assert_eq!(parts, (0, 0), "{whole:?} zeroes part of a stripe: its parity would be wrong");
        let sync = layout::sync::sync_range(geometry, whole);
        let (len, chunks) = (sync.end - sync.start, stripes.1 * geometry.chunk_bytes());
        assert_eq!(len, chunks, "other stripes would be zeroed than logged");
        let (inside, entry) = loop {
            let entry = self.engine.admit_stripes(stripes).await?;
            let inside = self.engine.gate.enter().await;
            let mut op = self.inside(&inside);
            let view = op.engine.view();
            op.engine.check_writable(&view)?;
            match &entry {
                Some(entry) if !op.log_zeros(entry, stripes, &view).await => {
                    if !op.work.failures.is_empty() {
                        op.lose(&view).await?;
                    }
                }
                _ => break (inside, entry),
            }
        };
        entry.as_ref().inspect(|entry| entry.begins());
        let mut op = self.inside(&inside);
        let each = |view: &View, work: &mut Scratch| {
            for (slot, member) in view.members() {
                let at = sync.start;
                let at = if broken(Broken::DiscardMisplaced) { at / 8192 * 8192 } else { at };
                work.batch.add(member, slot, at, how(sync.end - sync.start), 0);
            }
        };
        op.work.cleared_bad = false;
        op.on_members(each).await?;
        for (_, member) in op.engine.view().members() {
            op.work.cleared_bad |= op.engine.clear_bad(member, sync.start, sync.end - sync.start);
        }
        op.engine.mark_resolved(sync.clone());
        let slots =
            geometry.all_slots().iter().map(|slot| (slot, sync.start, sync.end - sync.start));
        op.checksum_zeros(slots).await?;
        entry.inspect(|entry| entry.whole(op.engine.is_volatile()));
        drop(inside);
        self.repair_bad(range).await;
        Ok(())
    }

    /// Sends the same operation for every copy of a range.
    async fn on_copies(
        &mut self,
        (offset, len): (u64, u64),
        how: impl Fn(u64) -> Work,
    ) -> Result<()> {
        let engine = self.engine;
        let each = |view: &View, work: &mut Scratch| {
            for (_, part, places) in engine.stretches(offset, len) {
                for place in places.copies() {
                    let first = broken(Broken::DiscardOneOffset);
                    let at = if first { places.copy(0) } else { place }.member_offset;
                    for member in view.targets(place.slot) {
                        work.batch.add(member, place.slot, at, how(part), 0);
                    }
                }
            }
        };
        let inside = self.engine.gate.enter().await;
        let mut op = self.inside(&inside);
        op.work.cleared_bad = false;
        op.on_members(each).await?;
        let all = op.engine.stretches(offset, len);
        let copies: Vec<(Slot, u64, u64)> = all
            .flat_map(|(_, part, places)| {
                let place = move |place: layout::Place| (place.slot, place.member_offset, part);
                places.copies().map(place).collect::<Vec<_>>()
            })
            .collect();
        let view = op.engine.view();
        for &(slot, at, len) in &copies {
            for member in view.targets(slot) {
                op.work.cleared_bad |= op.engine.clear_bad(member, at, len);
            }
        }
        op.checksum_zeros(copies.into_iter()).await?;
        drop(inside);
        self.repair_bad((offset, len)).await;
        Ok(())
    }

    /// Sends a batch of idempotent operations. After a loss, sends all of them again.
    async fn on_members(&mut self, fill: impl Fn(&View, &mut Scratch)) -> Result<()> {
        self.engine.check_writable(&self.engine.view())?;
        loop {
            let view = self.engine.view();
            fill(&view, self.work);
            if view.mode == Mode::Full {
                let mut unfinished = self.engine.unfinished.borrow_mut();
                self.work.batch.abandon(|range| unfinished.insert(range));
            }
            self.engine.check_unbroken(&view)?;
            self.engine.run(&mut self.work.batch, self.opts).await;
            self.work.batch.drain(|_, _, _| {}, |_, _, _| {}, &mut self.work.failures);
            if self.work.failures.is_empty() {
                return Ok(());
            }
            self.lose(&view).await?;
        }
    }
}

#[cfg(test)]
mod tests {
    use io::Pool;

    use crate::rows::write::Fresh;

    #[test]
    fn fresh_bytes_are_shared_across_buffers() {
        let pool = Pool::new(1 << 20);
        let bufs = [pool.copy_of(b"abcd").freeze(), pool.copy_of(b"efgh").freeze()];
        let fresh = Fresh::new(100, &bufs);
        assert_eq!(fresh.from(103), b"d");
        let parts: Vec<_> = fresh.share(102, 4).map(|(at, part)| (at, part.to_vec())).collect();
        assert_eq!(parts, [(0, b"cd".to_vec()), (2, b"ef".to_vec())]);
        assert_eq!(
            fresh.share(104, 4).map(|(_, part)| part.to_vec()).collect::<Vec<_>>(),
            [b"efgh"]
        );
    }
}
