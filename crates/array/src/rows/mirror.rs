//! Levels without parity: a write goes to every copy of a range, a read to one.
//!
//! Linear and RAID 0 are the case of one copy. A mirror reads another copy if one is unreadable,
//! and rewrites the bad one. Where copies may disagree (a range not synced yet) all reads go to the
//! first readable copy. After a crash the other copies are first resynced from it, so that later
//! reads return the same data whichever member is lost.

use io::broken::{Broken, broken};
use io::{Buf, Permit, SharedBuf};
use layout::{Family, Mode, Place, Places, RangeSet, Slot, SlotSet};
use metadata::{Error, ErrorKind, Result};

use crate::member::View;
use crate::member::batch::IoOptions;
use crate::rows::Outgoing;
use crate::rows::checksum::BLOCK;
use crate::rows::engine::{Engine, RowOp};
use crate::rows::hedge::Attempt;
use crate::rows::job::{RangeJob, Report, Task};
use crate::rows::read::{Target, split_parts};
use crate::rows::write::Fresh;

impl Engine {
    /// The stretches of an array range with the same places: array offset, bytes, places.
    pub(crate) fn stretches(
        &self,
        offset: u64,
        len: u64,
    ) -> impl Iterator<Item = (u64, u64, Places)> {
        let (mut at, end) = (offset, offset + len);
        std::iter::from_fn(move || {
            if at == end {
                return None;
            }
            let places = self.setup.geometry.places(at);
            let part = places.len.min(end - at);
            assert!(part > 0, "no bytes of the array lie at offset {at}");
            at += part;
            Some((at - part, part, places))
        })
    }

    /// Memory for all copies of one stretch of an array range.
    pub(crate) async fn memory_for_copies(&self, offset: u64, len: u64) -> Permit {
        let needs = self.stretches(offset, len).map(|(_, part, at)| part * at.count() as u64);
        self.scratch.take(needs.max().unwrap_or(0)).await
    }

    fn copies_lost(&self, at: u64, places: &Places) -> Error {
        let what = "no member with a copy is left";
        Error::new(ErrorKind::DataLost, what).in_slot(places.copy(0).slot).at(at)
    }

    /// The place to read a stretch from, in none of the slots `shunned`. A slow member is used only
    /// if there is no other. Where copies may disagree, only the first readable copy may be used.
    fn choose_copy(
        &self,
        view: &View,
        (at, part): (u64, u64),
        places: &Places,
        shunned: SlotSet,
    ) -> Option<Place> {
        let readable = |place: Place| {
            let ok = view.is_readable(place.slot, at + part, place.member_offset, part);
            ok.then(|| view.member(place.slot)).flatten().map(|member| &**member)
        };
        let wanted = |place: Place| readable(place).filter(|_| !shunned.contains(place.slot));
        let unfinished = |place: Place| self.is_unfinished(place.member_offset, part);
        let dirty = self.is_unsynced(at, part) || places.copies().any(unfinished);
        let dirty = dirty && !broken(Broken::DirtyReadsBalanced);
        if places.count() == 1 || dirty {
            let there = |place: &Place| match dirty && !broken(Broken::LeaderOfAll) {
                true => view.holding(place.slot, at + part).is_some(),
                false => readable(*place).is_some(),
            };
            // Ranges with bad blocks are read block by block, each block from the first copy that
            // has it.
            let leader = places.copies().find(there).filter(|&place| readable(place).is_some());
            return leader.filter(|place| !shunned.contains(place.slot));
        }
        if !self.hedges.slow.get() {
            return self.balancer.choose(at, part, places, wanted);
        }
        let quick = |place: Place| wanted(place).filter(|member| !member.latency_stats.is_slow());
        let place = self.balancer.choose(at, part, places, quick);
        for copy in places.copies() {
            if wanted(copy).is_some_and(|member| member.latency_stats.is_slow()) {
                self.probe(view, copy.slot, copy.member_offset, part);
            }
        }
        place.or_else(|| self.balancer.choose(at, part, places, wanted))
    }

    /// True if a crash may have left copies of this range different and they can be resynced.
    pub(crate) fn must_resolve_copies(&self, (offset, len): (u64, u64)) -> bool {
        self.setup.unverified
            && self.setup.geometry.family() == Family::Mirror
            && self.is_unsynced(offset, len)
            && self.view().mode == Mode::ReadWrite
            && !broken(Broken::CopiesUnsettled)
    }
}

impl RowOp<'_> {
    /// Writes every copy of the range.
    pub(crate) async fn write_copies(
        &mut self,
        (offset, len): (u64, u64),
        fresh: Fresh<'_>,
    ) -> Result<()> {
        let inside = self.engine.gate.enter().await;
        let mut op = self.inside(&inside);
        let view = op.engine.view();
        if op.engine.setup.geometry.family() == Family::Mirror || view.mode == Mode::ReadOnly {
            op.engine.check_writable(&view)?;
        }
        op.work.outgoing.clear();
        for (at, part, places) in op.engine.stretches(offset, len) {
            if !places.copies().any(|place| view.member(place.slot).is_some()) {
                return Err(op.engine.copies_lost(at, &places));
            }
            let misses = |place: &Place| {
                broken(Broken::RebuildMissesWrites) && !view.in_sync.contains(place.slot)
            };
            for place in places.copies().filter(|place| !misses(place)) {
                let mut written = 0;
                for (begin, bytes) in fresh.share(at, part) {
                    written += bytes.len() as u64;
                    let at = place.member_offset + begin;
                    op.work.outgoing.push(Outgoing { slot: place.slot, at, bytes });
                }
                assert_eq!(written, part, "slot {} would get part of the write", place.slot);
            }
        }
        op.checksum_outgoing();
        let result = op.send(view).await;
        op.work.outgoing.clear();
        result?;
        op.renew_checksums().await
    }

    /// Resyncs the copies of a range, durably, before any client reads it. Later reads then return
    /// the same data whichever member is lost.
    pub(crate) async fn resolve_copies(&mut self, range: (u64, u64)) {
        let (offset, len) = self.engine.widened(range);
        let claim = self.engine.locks.claim(self.engine.rows_of(offset, len));
        (&claim).await;
        let opts = IoOptions { fua: true, ..self.opts };
        let mut resync = RangeJob { task: Task::Resync, report: Report::default() };
        // The following read reports blocks that cannot be read or resynced.
        let _ = self.with(opts).job((offset, len), &mut resync).await;
    }

    /// Reads one copy of each stretch, or another copy if that fails.
    pub(crate) async fn read_copies(
        &mut self,
        (offset, len): (u64, u64),
        bufs: &mut Vec<Buf>,
    ) -> Result<()> {
        let writable = self.engine.view().mode == Mode::ReadWrite;
        if self.engine.setup.check_reads && writable && !self.engine.is_unsynced(offset, len) {
            return self.read_compared((offset, len), bufs).await;
        }
        // Different copies may all match their entries: only a comparison of all decides which one
        // is valid.
        let differ = self.engine.is_torn(offset, len) && self.engine.is_unsynced(offset, len);
        if !differ && self.read_promptly((offset, len), bufs).await? {
            return Ok(());
        }
        self.read_any_copy((offset, len), bufs).await
    }

    /// Compares all copies before one of them is read. Wrong copies are corrected, durably, where a
    /// majority or the generations identify them.
    ///
    /// # Errors
    /// [`ErrorKind::DataLost`] where copies differ and none is identified as wrong.
    async fn read_compared(&mut self, (offset, len): (u64, u64), bufs: &mut [Buf]) -> Result<()> {
        let claim = self.engine.locks.claim(self.engine.rows_of(offset, len));
        (&claim).await;
        let memory = self.engine.memory_for_copies(offset, len).await;
        let inside = self.engine.gate.enter().await;
        let mut op = self.inside(&inside);
        for (at, part, places) in op.engine.stretches(offset, len) {
            for task in [Task::Check, Task::Repair] {
                let mut found = Report::default();
                let report = &mut found;
                while !op.compare_copies((at, part), &places, task, report).await? {}
                if found.mismatches == 0 || broken(Broken::CopiesUncompared) {
                    break;
                }
                let named = found.findings.iter().filter(|finding| finding.culprit.is_some());
                if named.count() as u64 != found.mismatches {
                    let what = "copies contradict each other; run `parapet scrub` to see where";
                    return Err(Error::new(ErrorKind::DataLost, what).at(at));
                }
            }
        }
        drop((inside, memory));
        self.read_any_copy_held((offset, len), bufs).await
    }

    /// Reads the best copy of each stretch. With `shunned`, avoids these slots and waits without
    /// hedging.
    pub(crate) async fn read_chosen(
        &mut self,
        view: &View,
        ((offset, len), shunned): ((u64, u64), Option<SlotSet>),
        bufs: &mut Vec<Buf>,
    ) -> Attempt {
        self.work.chosen.clear();
        for (at, part, places) in self.engine.stretches(offset, len) {
            let place = self.engine.choose_copy(
                view,
                (at, part),
                &places,
                shunned.unwrap_or(SlotSet::EMPTY),
            );
            self.work.chosen.extend(place);
        }
        if self.work.chosen.len() < self.engine.stretches(offset, len).count() {
            return Attempt::Failed;
        }
        if !self.load_for_read(view, (offset, len)).await {
            return Attempt::Failed;
        }
        let (batch, chosen) = (&mut self.work.batch, &self.work.chosen);
        let lens = self.engine.stretches(offset, len).map(|(_, part, _)| part);
        split_parts(&mut self.work.parts, bufs, lens, |tag, number, begin, buf| {
            let place = chosen[number];
            let member = view.member(place.slot).expect("a chosen slot has a member");
            let at = place.member_offset + begin;
            batch.read(member, place.slot, at, buf, tag, self.opts.op_bytes);
        });
        if shunned.is_some() {
            self.engine.run(&mut self.work.batch, self.opts).await;
        } else if !self.run_until_late(view).await {
            return Attempt::Late;
        }
        self.gathered(view, (offset, len), bufs)
    }

    /// Reads stretch by stretch under the lock, from the first readable copy, and rewrites the
    /// unreadable ones.
    async fn read_any_copy(&mut self, (offset, len): (u64, u64), bufs: &mut [Buf]) -> Result<()> {
        let claim = self.engine.locks.claim(self.engine.rows_of(offset, len));
        (&claim).await;
        self.read_any_copy_held((offset, len), bufs).await
    }

    /// Like [`RowOp::read_any_copy`], for a caller that holds the lock.
    pub(crate) async fn read_any_copy_held(
        &mut self,
        (offset, len): (u64, u64),
        bufs: &mut [Buf],
    ) -> Result<()> {
        let inside = self.engine.gate.enter().await;
        let mut op = self.inside(&inside);
        let mut target = Target { offset, bufs };
        for (at, part, places) in op.engine.stretches(offset, len) {
            // Where copies may disagree, a bad block of one must not change the copy that its
            // neighbours use.
            let whole = !op.engine.is_unsynced(at, part) || broken(Broken::LeaderOfAll);
            let torn = op.engine.is_torn(at, part);
            if (whole || part <= BLOCK) && !torn {
                let stretch = (at, part);
                match op.restore_stretch(stretch, &places, None).await {
                    Ok(bytes) => {
                        target.put(at, &bytes);
                        continue;
                    }
                    // Each copy may have a different bad block.
                    Err(error) if error.kind() == ErrorKind::DataLost && part > BLOCK => {}
                    Err(error) => return Err(error),
                }
            }
            let mut begin = at;
            while begin < at + part {
                let end = ((begin / BLOCK + 1) * BLOCK).min(at + part);
                let (places, block) =
                    (op.engine.setup.geometry.places(begin), (begin, end - begin));
                let first = match torn {
                    true => op.fitting_copy(begin / BLOCK * BLOCK).await?,
                    false => None,
                };
                let bytes = op.restore_stretch(block, &places, first).await?;
                target.put(begin, &bytes);
                begin = end;
            }
        }
        Ok(())
    }

    /// The bytes of a stretch from any copy, preferably the one in slot `first`. Copies that were
    /// unreadable or have checksum mismatches are rewritten with them.
    async fn restore_stretch(
        &mut self,
        stretch: (u64, u64),
        places: &Places,
        first: Option<Slot>,
    ) -> Result<SharedBuf> {
        let (bytes, healed) = self.read_stretch(stretch, places, first).await?;
        let bytes = bytes.freeze();
        self.work.outgoing.clear();
        for place in &healed {
            let (slot, at, bytes) = (place.slot, place.member_offset, bytes.clone());
            self.work.outgoing.push(Outgoing { slot, at, bytes });
        }
        let view = self.engine.view();
        if view.mode == Mode::ReadWrite {
            // The entry may have been wrong, and not the block.
            self.checksum_outgoing();
            self.note_repair();
            self.renew_checksums().await?;
        }
        self.rewrite(view).await?;
        if !healed.is_empty() {
            let none = RangeSet::default();
            self.align_copies(&self.engine.view(), places, stretch.1, &none).await;
        }
        Ok(bytes)
    }

    /// The bytes of a stretch from any copy, preferably the one in slot `first`, and the copies
    /// with medium errors.
    pub(crate) async fn read_stretch(
        &mut self,
        (at, part): (u64, u64),
        places: &Places,
        first: Option<Slot>,
    ) -> Result<(Buf, Vec<Place>)> {
        let mut bad = Vec::new();
        let together = places.len;
        assert!(part <= together, "{part} bytes at {at} in one place: {together} lie together");
        loop {
            let view = self.engine.view();
            let usable = |place: &Place| {
                let at_end = at + part;
                !bad.contains(place)
                    && view.is_readable(place.slot, at_end, place.member_offset, part)
            };
            let preferred = |place: &Place| usable(place) && first == Some(place.slot);
            let place = places.copies().find(preferred).or_else(|| places.copies().find(usable));
            let Some(place) = place else {
                return Err(self.engine.copies_lost(at, places));
            };
            let member = view.member(place.slot).expect("a readable slot has a member");
            if !self.load_for_copy(member, &place, part).await {
                self.lose(&view).await?;
                continue;
            }
            let buf = self.engine.pool.take(part as usize);
            self.work.batch.read(member, place.slot, place.member_offset, buf, 0, u64::MAX);
            self.engine.run(&mut self.work.batch, self.opts).await;
            let mut got = None;
            let take = |_, buf: Option<Buf>, ok| got = buf.filter(|_| ok);
            self.work.batch.drain(take, |_, _, _| {}, &mut self.work.failures);
            let fits = |buf: &Buf| {
                let Some(checksums) = self.engine.checksums_of(at, part) else { return true };
                let wrong = checksums.count_wrong(member, place.slot, place.member_offset, buf);
                member.counters().checksum_errors.add(wrong);
                wrong == 0
            };
            if let Some(buf) = got.filter(fits) {
                self.work.failures.clear();
                assert_eq!(buf.len() as u64, part, "a copy of another length than its stretch");
                return Ok((buf, bad));
            }
            bad.push(place);
            self.work.failures.retain(|f| !f.error.is_medium());
            if !self.work.failures.is_empty() {
                self.lose(&view).await?;
            }
        }
    }
}
