//! Replay: repairs the rows that a crash interrupted, as the intent log lists them, before the
//! first request.
//!
//! A member that is absent now, or whose log is unreadable, may hold other records. Once data has
//! been read without these records, they must never be trusted again. Therefore such members are
//! recorded as stale first.
//!
//! ```text
//!   torn row ─▶ read ─▶ solve ─▶ write parity, logged data ─▶ flush ─▶ new session ─▶ open barrier
//! ```
//!
//! Replay is idempotent, because it does not touch the log: after a crash in the middle it gives
//! the same result. If a part of a row stays lost, that is on record before the row is completed
//! with filler. A complete row looks as if it had never been torn.
//!
//! Once all rows are replayed a new session is recorded, and the old log is discarded. Otherwise it
//! would classify a block as torn whose member is lost the next time, although it has been read.

use std::ops::Range;

use io::Turn;
use io::broken::{Broken, broken};
use layout::plan::Roles;
use layout::private::Consistency;
use layout::{Configuration, Epoch, MemberId, RangeSet, Slot, SlotSet, Stripe, StripeMap};
use log::compute;
use log::expected::Expected;
use log::solve::{Held, TornRow, solve};
use metadata::commit::member_io::all;

use crate::keeper::Keeper;
use crate::keeper::replay_checksums::Tables;
use crate::shard::message::ToShard;
use crate::status::{EventKind, Replay};

/// Rows that are replayed concurrently.
const AT_ONCE: usize = 16;

/// The writes that repair a row: bytes for slots, at this place on each.
pub(super) struct RowRepair {
    pub(super) map: StripeMap,
    pub(super) at: u64,
    writes: Vec<(Slot, Vec<u8>)>,
    /// Writes for replacements only. The slots already hold these bytes, and another write would
    /// only risk tearing them.
    replacements: Vec<(Slot, Vec<u8>)>,
    /// Array ranges that stay lost.
    lost: Vec<Range<u64>>,
    /// True if blocks with checksum mismatches stay as they are.
    wrong: bool,
}

/// The contents of a row, as far as members can be read.
struct Answers {
    held: Held,
    /// Data indices whose members did not answer. They may answer later with other contents than
    /// the replay assumes. So they are written, or their members are lost.
    unread: Vec<usize>,
    /// For data indices with bad parts, which count as lost: the readable parts beside these, as
    /// their start in the torn row and their bytes.
    beside: Vec<(usize, usize, Vec<u8>)>,
}

impl RowRepair {
    /// The contents of slots after the repair, where they were computed.
    pub(super) fn known(&self) -> impl Iterator<Item = &(Slot, Vec<u8>)> {
        self.writes.iter().chain(&self.replacements)
    }
}

impl Keeper {
    /// Records which members are left out, replays every torn row, and lets the shards begin.
    pub(super) async fn replay(&self, torn_rows: Vec<TornRow>) {
        let _change = Turn::adopt(&self.changing, &self.changed);
        let turn = self.record.deciding.adopt();
        let mut configuration = self.configuration();
        if self.crash.record_first {
            configuration.epoch = Epoch(configuration.epoch.0 + 1);
            self.make_durable(&mut configuration).await;
        }
        if !torn_rows.is_empty() {
            self.resolve_rows(&mut configuration, torn_rows).await;
            if !broken(Broken::ResolvedLossLate) {
                self.record_losses(&mut configuration).await;
            }
            self.metadata.begin_session();
            if !broken(Broken::ResolvedUnrecorded) {
                // From here on clients may read the rows.
                configuration.epoch = Epoch(configuration.epoch.0 + 1);
                self.make_durable(&mut configuration).await;
            }
        }
        self.publish(configuration);
        drop(turn);
    }

    /// Records members lost during the replay as removed: they may hold other contents than the
    /// replay assumed. That must happen before the log is reused, because only the log lists these
    /// rows.
    async fn record_losses(&self, configuration: &mut Configuration) {
        let losses: Vec<_> = self.inbox.lost.borrow_mut().drain(..).collect();
        if losses.is_empty() {
            return;
        }
        self.note_losses(configuration, &losses);
        self.take_out_all(configuration, &losses);
        configuration.epoch = Epoch(configuration.epoch.0 + 1);
        self.make_durable(configuration).await;
    }

    /// Replays every torn row, or records the parts of it that stay lost.
    async fn resolve_rows(&self, configuration: &mut Configuration, torn_rows: Vec<TornRow>) {
        let (rows, mut later) = (torn_rows.len(), Vec::new());
        let torn_rows: Vec<TornRow> = torn_rows
            .into_iter()
            .flat_map(|torn_row| self.apart(configuration, torn_row))
            .collect();
        let (tables, expected) = (Tables::default(), self.crash.expected.take());
        let logged = (&tables, &expected);
        let mut repaired: Vec<RowRepair> = Vec::new();
        for group in torn_rows.chunks(AT_ONCE) {
            let work =
                group.iter().map(|torn_row| self.solve_torn_row(configuration, torn_row, logged));
            let solved = all(work).await.into_iter().flatten();
            let early = broken(Broken::CutLossForgotten);
            let (whole, lost): (Vec<_>, _) =
                solved.partition(|row: &RowRepair| row.lost.is_empty() || early);
            self.repair_rows(configuration, &whole).await;
            if self.home.engine.checksums.is_some() {
                repaired.extend(whole);
            }
            later.extend(lost);
        }
        let lost: Vec<&Range<u64>> = later.iter().flat_map(|row| &row.lost).collect();
        let lost_bytes = lost.iter().map(|range| range.end - range.start).sum::<u64>();
        if !lost.is_empty() {
            lost.into_iter().for_each(|range| self.give_up(configuration, range));
            configuration.epoch = Epoch(configuration.epoch.0 + 1);
            self.make_durable(configuration).await;
            for group in later.chunks(AT_ONCE) {
                self.repair_rows(configuration, group).await;
            }
        }
        repaired.extend(later);
        let failures = self.resolve_checksums(configuration, logged, &repaired).await;
        self.report(failures);
        let assigned: Vec<MemberId> = configuration.assigned().map(|(_, id)| id).collect();
        let failures = self.metadata.flush(&assigned).await;
        self.report(failures);
        let text = match lost_bytes {
            0 => format!("intent log replayed: {rows} rows"),
            bytes => format!(
                "intent log replayed: {rows} rows; {bytes} bytes of them unrecoverable (never \
                 acknowledged as durable); rewrite to clear"
            ),
        };
        self.crash.replay.set(Some(Replay { rows: rows as u64, lost_bytes }));
        self.note(EventKind::Replayed, None, text);
    }

    /// Writes the repaired rows.
    async fn repair_rows(&self, configuration: &Configuration, rows: &[RowRepair]) {
        let each = rows.iter().flat_map(|row| {
            let both = row.writes.iter().map(move |write| (row.at, write, true));
            both.chain(row.replacements.iter().map(move |write| (row.at, write, false)))
        });
        let each = each.flat_map(|(at, (slot, bytes), own)| {
            let assignment = &configuration.slots[slot.index()];
            let (member, replacement) =
                (assignment.member.filter(|_| own), assignment.replacement.map(|(id, _)| id));
            member.into_iter().chain(replacement).map(move |id| (id, at, bytes))
        });
        let written = each.map(|(id, at, bytes)| async move {
            self.metadata.write_data(id, at, bytes).await.map_err(|why| (id, why)).err()
        });
        self.report(all(written).await.into_iter().flatten().collect());
    }

    /// Records bytes of the array as lost: reads fail until they are written. If that list is full,
    /// the row's parity, and the data member's own block, become untrusted instead.
    fn give_up(&self, configuration: &Configuration, range: &Range<u64>) {
        let (offset, len) = (range.start, range.end - range.start);
        if self.metadata.set_bad(range.clone(), true) {
            return self.home.engine.post.to_all(|| ToShard::Bad { offset, len });
        }
        let (stripe, index, within) = self.geometry.stripe_of(offset);
        let map = self.geometry.stripe(stripe);
        let start = map.member_offset() + within;
        let parity = Roles::of(&map, self.geometry.slots()).parity();
        let own = SlotSet::only(map.data(index));
        let own = if broken(Broken::FillerRead) { SlotSet::EMPTY } else { own };
        for slot in parity.union(own).iter() {
            let assignment = &configuration.slots[slot.index()];
            for member in
                assignment.member.into_iter().chain(assignment.replacement.map(|(id, _)| id))
            {
                self.record_bad(member, (start, len), false);
                self.home.engine.post.to_all(|| ToShard::Distrust { member, start, len });
            }
        }
    }

    /// Records the rest of a lost block as lost before a part of it is written.
    pub(super) fn give_up_rest(&self, range: Range<u64>) {
        let (offset, len) = (range.start, range.end - range.start);
        if self.metadata.set_bad(range, true) {
            self.home.engine.post.to_all(|| ToShard::Bad { offset, len });
        }
        let text = format!(
            "{len} bytes at array offset {offset} are unrecoverable beside a write to a part of \
             their block: an error until they are written"
        );
        self.note(EventKind::BadBlock, None, text);
    }

    /// Splits a torn row into blocks if any block of it is bad: a bad block must not cost another
    /// one.
    fn apart(&self, configuration: &Configuration, torn_row: TornRow) -> Vec<TornRow> {
        let at = self.geometry.stripe(Stripe(torn_row.stripe)).member_offset() + torn_row.start;
        let mut members = configuration.slots.iter().filter_map(|assignment| assignment.member);
        let bad = members.any(|id| !self.metadata.listed(id, at..at + torn_row.len).is_empty());
        if bad { torn_row.pieces().collect() } else { vec![torn_row] }
    }

    /// The torn row, without its partial parity if the parity was discarded. md's log cannot record
    /// data written without parity, so its entry may be older than the row.
    fn trusted(
        &self,
        configuration: &Configuration,
        map: &StripeMap,
        torn_row: &TornRow,
    ) -> TornRow {
        let at = map.member_offset() + torn_row.start;
        let member = configuration.slots[map.p().index()].member;
        let listed = |id: MemberId| !self.metadata.listed(id, at..at + torn_row.len).is_empty();
        let md = self.metadata.facts().consistency == Consistency::Ppl
            && !broken(Broken::OlderEntryTrusted);
        let p = torn_row.p.clone().filter(|_| !(md && member.is_some_and(listed)));
        TornRow { p, ..torn_row.clone() }
    }

    /// Solves a torn row; block by block if a part of it would stay lost or wrong, since a bad
    /// block must not cost another one.
    async fn solve_torn_row(
        &self,
        configuration: &Configuration,
        torn_row: &TornRow,
        logged: (&Tables, &Expected),
    ) -> Vec<RowRepair> {
        let whole = self.solve_row(configuration, torn_row, logged).await;
        let done = whole.lost.is_empty() && !whole.wrong;
        if done || torn_row.pieces().nth(1).is_none() || broken(Broken::CutLostTogether) {
            return vec![whole];
        }
        let mut rows = Vec::new();
        for piece in torn_row.pieces() {
            rows.push(self.solve_row(configuration, &piece, logged).await);
        }
        rows
    }

    /// Computes the repair of a row.
    async fn solve_row(
        &self,
        configuration: &Configuration,
        torn_row: &TornRow,
        logged: (&Tables, &Expected),
    ) -> RowRepair {
        let map = self.geometry.stripe(Stripe(torn_row.stripe));
        let at = map.member_offset() + torn_row.start;
        let torn_row = &self.trusted(configuration, &map, torn_row);
        if torn_row.is_past_parity(&map) {
            // The written blocks are old or new, and their neighbours were not touched.
            let (writes, replacements, lost) = (Vec::new(), Vec::new(), Vec::new());
            return RowRepair { map, at, writes, replacements, lost, wrong: false };
        }
        let Answers { mut held, unread, beside } =
            self.read_row(configuration, &map, torn_row, at).await;
        let mut wrong = self.wrong_of(logged, configuration, torn_row, &held).await;
        let kernel = self.home.engine.setup.kernel;
        let solved = self.solve_without(&map, torn_row, &held, &wrong);
        let left = solved.is_none() && !wrong.is_empty();
        let unsolved = match solved {
            Some(better) => {
                held = better;
                Vec::new()
            }
            // No block is wrong, or the wrong ones cannot be recovered: they stay as they are.
            None => {
                wrong.clear();
                solve(kernel, &map, torn_row, &mut held)
            }
        };
        let is_logged = |index: usize| torn_row.logged.iter().any(|&(logged, _)| logged == index);
        for (index, at, bytes) in beside.iter().filter(|(index, ..)| !is_logged(*index)) {
            let data = held.data[*index].as_mut().expect("`solve` covers every block");
            data[*at..at + bytes.len()].copy_from_slice(bytes);
        }
        let (p, q) = self.parity_of(&map, torn_row, &held);
        let (mut writes, mut replacements): (Vec<(Slot, Vec<u8>)>, _) = (Vec::new(), Vec::new());
        for (index, bytes) in held.data.into_iter().enumerate() {
            let (slot, Some(bytes)) = (map.data(index), bytes) else { continue };
            if is_logged(index) || wrong.contains(&index) || unread.contains(&index) {
                writes.push((slot, bytes));
            } else if configuration.slots[slot.index()].replacement.is_some() {
                let whole = broken(Broken::KeptWrittenAgain);
                if whole { &mut writes } else { &mut replacements }.push((slot, bytes));
            }
        }
        if !broken(Broken::ReplayWritesNoParity) {
            writes.push((map.p(), p));
            writes.extend(map.q().map(|slot| (slot, q)));
        }
        let lost = self.lost_ranges(torn_row, &unsolved, &beside);
        RowRepair { map, at, writes, replacements, lost, wrong: left }
    }

    /// Data indices of a torn row whose blocks match neither their checksums nor the log, where
    /// checksums are valid.
    async fn wrong_of(
        &self,
        logged: (&Tables, &Expected),
        configuration: &Configuration,
        torn_row: &TornRow,
        held: &Held,
    ) -> Vec<usize> {
        let (map, stripe_bytes) =
            (self.geometry.stripe(Stripe(torn_row.stripe)), self.geometry.stripe_bytes());
        let start = torn_row.stripe * stripe_bytes;
        let mut wrong = Vec::new();
        if self.home.engine.checksums.is_none()
            || self.sync.unchecksummed.borrow().overlaps(start..start + stripe_bytes)
        {
            return wrong;
        }
        let at = map.member_offset() + torn_row.start;
        for (index, bytes) in held.data.iter().enumerate() {
            let Some(bytes) = bytes else { continue };
            if self.is_wrong(logged, configuration, map.data(index), at, bytes).await {
                wrong.push(index);
            }
        }
        wrong
    }

    /// The row with the `wrong` blocks recovered as if they were lost. `None` if there are none, or
    /// not all can be recovered.
    fn solve_without(
        &self,
        map: &StripeMap,
        torn_row: &TornRow,
        held: &Held,
        wrong: &[usize],
    ) -> Option<Held> {
        if wrong.is_empty() {
            return None;
        }
        let mut held = held.clone();
        wrong.iter().for_each(|&index| held.data[index] = None);
        let lost = held.data.iter().filter(|data| data.is_none()).count();
        let bearable = lost <= self.geometry.redundancy();
        (bearable && solve(self.home.engine.setup.kernel, map, torn_row, &mut held).is_empty())
            .then_some(held)
    }

    /// Reads a row from its members. Unreadable blocks count as lost.
    async fn read_row(
        &self,
        configuration: &Configuration,
        map: &StripeMap,
        torn_row: &TornRow,
        at: u64,
    ) -> Answers {
        let end = (torn_row.stripe + 1) * self.geometry.stripe_bytes();
        let range = at..at + torn_row.len;
        let member = |slot: Slot| {
            let readable = configuration.is_readable(slot, end);
            configuration.slots[slot.index()].member.filter(|_| readable)
        };
        let read = |slot: Slot| {
            let range = range.clone();
            async move { Some(self.read_beside_bad(member(slot)?, range).await) }
        };
        let slots = (0..self.geometry.slots()).map(|slot| read(Slot::new(slot)));
        let answers = all(slots).await;
        let of = |slot: Slot| answers[slot.index()].as_ref();
        let whole = |slot: Slot| match of(slot)?.as_ref().ok()?.as_slice() {
            [(_, bytes)] if bytes.len() as u64 == torn_row.len => Some(bytes.clone()),
            _ => None,
        };
        let data = (0..map.data_count()).map(|index| whole(map.data(index))).collect();
        let held = Held { data, p: whole(map.p()), q: map.q().and_then(whole) };
        let (mut unread, mut beside) = (Vec::new(), Vec::new());
        for index in (0..map.data_count()).filter(|&index| held.data[index].is_none()) {
            match of(map.data(index)) {
                Some(Err(_)) if !broken(Broken::UnreadLeftAlone) => unread.push(index),
                Some(Ok(parts)) if !broken(Broken::BesideBadLost) => {
                    let part = |(at, bytes): &(usize, Vec<u8>)| (index, *at, bytes.clone());
                    beside.extend(parts.iter().map(part));
                }
                _ => {}
            }
        }
        Answers { held, unread, beside }
    }

    /// Reads a range of a member without its bad blocks: the start and bytes of each part.
    async fn read_beside_bad(
        &self,
        id: MemberId,
        range: Range<u64>,
    ) -> io::Result<Vec<(usize, Vec<u8>)>> {
        let mut good: RangeSet = std::iter::once(range.clone()).collect();
        self.metadata.listed(id, range.clone()).iter().for_each(|bad| good.remove(bad));
        let parts = good.iter().map(|part| async {
            let at = (part.start - range.start) as usize;
            Ok((at, self.metadata.read_data(id, part).await?))
        });
        all(parts).await.into_iter().collect()
    }

    /// P and Q of a row with complete data.
    fn parity_of(&self, map: &StripeMap, torn_row: &TornRow, held: &Held) -> (Vec<u8>, Vec<u8>) {
        let len = torn_row.len as usize;
        let (mut p, mut q) = (vec![0; len], vec![0; len]);
        let whole = held.data.iter().flatten().all(|bytes| bytes.len() == len);
        assert!(whole, "parity of blocks of different lengths");
        let source = |index: usize, at: usize| {
            let bytes = held.data[index].as_deref().expect("`solve` covers every block");
            &bytes[at..]
        };
        let with_q = map.q().is_some().then_some(&mut q[..]);
        compute::encode(self.home.engine.setup.kernel, map, len, source, Some(&mut p), with_q);
        (p, q)
    }

    /// The array ranges that stay lost.
    fn lost_ranges(
        &self,
        torn_row: &TornRow,
        unsolved: &[(Range<u64>, Vec<usize>)],
        beside: &[(usize, usize, Vec<u8>)],
    ) -> Vec<Range<u64>> {
        let base = torn_row.stripe * self.geometry.stripe_bytes() + torn_row.start;
        let mut ranges = Vec::new();
        for (range, indices) in unsolved {
            for &index in indices {
                let start = base + index as u64 * self.geometry.chunk_bytes();
                let mut lost: RangeSet =
                    std::iter::once(start + range.start..start + range.end).collect();
                for (_, at, bytes) in beside.iter().filter(|(beside, ..)| *beside == index) {
                    let first = start + *at as u64;
                    lost.remove(first..first + bytes.len() as u64);
                }
                ranges.extend(lost.iter());
            }
        }
        ranges
    }
}
