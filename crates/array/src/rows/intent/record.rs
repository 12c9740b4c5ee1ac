//! Records of rows that are about to be written, made from the bytes to be written.
//!
//! Owns the contents of a row's record; never decides whether a record is needed.

use std::ops::Range;
use std::rc::Rc;

use io::SharedBuf;
use io::broken::{Broken, broken};
use layout::plan::Method;
use layout::private::checksums::ChecksumEntry;
use layout::private::log::{CHECK_BYTES, Record, Syndrome};
use layout::{SlotSet, Stripe};
use log::batch::{Gathering, Lane};
use log::{LogSetup, compute};

use crate::member::View;
use crate::member::batch::Failure;
use crate::rows::checksum::New;
use crate::rows::engine::{Engine, RowOp};
use crate::rows::intent::{Entry, Log};
use crate::rows::write::Fresh;
use crate::rows::{Outgoing, RowWork};

impl RowOp<'_> {
    /// Logs the rows whose new bytes are in `work.outgoing`. Waits until the records are durable on
    /// all their parity members. False if one failed: it is in `work.failures`.
    pub(crate) async fn log_rows(
        &mut self,
        entry: &Entry<'_>,
        fresh: Fresh<'_>,
        view: &View,
    ) -> bool {
        let log = entry.log;
        if broken(Broken::RowsUnlogged) {
            return true;
        }
        if entry.is_late() {
            return false;
        }
        let (mut outgoing, mut news) = (&self.work.outgoing[..], &self.work.news[..]);
        let mut any = false;
        for row in &self.work.rows {
            let (own, rest) = outgoing.split_at(pieces_of(row, outgoing));
            outgoing = rest;
            let (checksummed, rest) = news.split_at(self.engine.news_of(row).min(news.len()));
            news = rest;
            any |= self.engine.gather_row(log, row, (own, checksummed), fresh, view);
        }
        assert!(outgoing.is_empty() && news.is_empty(), "a write without a log record");
        if !any {
            return true;
        }
        self.hand_over(entry).await
    }

    /// Logs that whole stripes, `first..first + count`, become zeros.
    pub(crate) async fn log_zeros(
        &mut self,
        entry: &Entry<'_>,
        (first, count): (u64, u64),
        view: &View,
    ) -> bool {
        let geometry = &self.engine.setup.geometry;
        let chunk = geometry.chunk_bytes();
        let data = geometry.data_count() as u16;
        assert!(first + count <= geometry.stripes(), "zeros beyond the end of the array");
        let several = u32::try_from(count).expect("a unit lies in one region");
        let zeros = Record::of_zeros(first, several, chunk, data);
        let record = Record { epoch: view.epoch.0 as u32, ..zeros };
        if entry.is_late() {
            return false;
        }
        {
            let mut next = entry.log.next.borrow_mut();
            if let LogSetup::Ppl { .. } = entry.log.setup {
                // Each stripe is logged on the member of its parity.
                for stripe in first..first + count {
                    let slot = geometry.stripe(Stripe(stripe)).p();
                    let one = Record::of_zeros(stripe, 1, chunk, data);
                    let present = view.present.contains(slot);
                    next.lanes[slot.index()].records.extend(present.then_some(one));
                }
            } else {
                let once = if view.journal.is_some() { 1 } else { usize::MAX };
                let present = view.present.iter().take(once);
                present.for_each(|slot| next.lanes[slot.index()].records.push(record));
            }
            next.rows.push(((first * chunk, count * chunk), geometry.all_slots()));
        }
        self.hand_over(entry).await
    }

    /// Waits until the gathered records of a unit are durable.
    async fn hand_over(&mut self, entry: &Entry<'_>) -> bool {
        let log = entry.log;
        let (ticket, answer) = log.answers.start();
        {
            let mut next = log.next.borrow_mut();
            next.units.push(ticket);
            next.reserved += log.space.borrow_mut().hand_over(entry.reserved.take());
        }
        log.wake_writer.raise();
        match answer.await {
            Ok(batch) => {
                entry.batch.set(Some(batch));
                true
            }
            Err(failed) => {
                self.work.failures.extend(failed.iter().map(|(member, slot, error)| Failure {
                    member: Rc::clone(member),
                    slot: *slot,
                    error: error.clone(),
                }));
                false
            }
        }
    }
}

impl Engine {
    /// The slots whose members log a row; `parity` is its written parity. A row without parity is
    /// logged too: it invalidates older records of the row, and only the log has its checksums. A
    /// journal device also takes the records of lost members.
    fn loggers(&self, log: &Log, row: &RowWork, parity: SlotSet, view: &View) -> SlotSet {
        let ours = matches!(log.setup, LogSetup::Zone { .. });
        if !parity.is_empty() || !ours || broken(Broken::DataAloneUnlogged) {
            parity
        } else if view.journal.is_some() {
            SlotSet::only(row.roles.p)
        } else {
            row.roles.parity().intersection(view.present)
        }
    }

    /// Adds a row's records to the next batch. False if it needs none.
    fn gather_row(
        &self,
        log: &Log,
        row: &RowWork,
        (own, news): (&[Outgoing], &[New]),
        fresh: Fresh<'_>,
        view: &View,
    ) -> bool {
        let plan = row.plan.expect("rows are planned before they are logged");
        let parity = row.roles.parity().intersection(plan.write);
        let loggers = self.loggers(log, row, parity, view);
        if loggers.is_empty() || (broken(Broken::DegradedUnlogged) && !view.is_whole()) {
            return false;
        }
        let count = row.row.count;
        let all = plan.method == Method::Full;
        let partial = !all && !parity.is_empty();
        let (ours, checksummed) =
            (matches!(log.setup, LogSetup::Zone { .. }), log.setup.with_checksums());
        let checked = ours
            && (checksummed || count > 1 || view.in_sync.count() < self.setup.geometry.slots());
        // A block without a member exists only in parity: the log must hold its data.
        let absent = |index: usize| ours && !view.present.contains(row.map.data(index));
        let index_logged = |&index: &usize| log.setup.with_data() || absent(index);
        let touched = row.row.first..row.row.first + count;
        let logged = touched.filter(index_logged).fold(0_u128, |mask, index| mask | 1 << index);
        let mut next = log.next.borrow_mut();
        next.checks.clear();
        for slot in loggers.iter() {
            let q = row.roles.q == Some(slot);
            // A journal device stores the shared parts of both records once.
            let again = q && loggers.contains(row.roles.p) && view.journal.is_some();
            let record = Record {
                stripe: row.row.stripe.0,
                stripes: 1,
                start: row.row.start,
                len: row.row.len(),
                first: row.row.first as u16,
                count: count as u16,
                syndrome: if q { Syndrome::Q } else { Syndrome::P },
                paired: loggers.count() == 2,
                partial,
                checked: checked && !again,
                checksummed: checksummed && !again,
                logged: if again { 0 } else { logged },
                zeros: false,
                epoch: view.epoch.0 as u32,
            };
            next.lanes[slot.index()].records.push(record);
            if record.checksummed && next.checks.is_empty() {
                self.put_checksums(&news[..record.checks()], view, &mut next.checks);
            } else if record.checked {
                self.check_new(row, &record, fresh, &mut next.checks);
            }
            let Gathering { lanes, checks, .. } = &mut *next;
            let lane = &mut lanes[slot.index()];
            lane.checks.extend(checks.iter().filter(|_| record.checked));
            if partial {
                let new = own.iter().find(|out| out.slot == slot).expect("the plan writes it");
                lane.payload.push(self.partial(row, &new.bytes, q, fresh));
            }
            self.log_data(row, &record, fresh, lane);
        }
        let slots = if all { self.setup.geometry.all_slots() } else { row.touched() };
        next.rows.push(((row.at(), row.row.len()), slots));
        true
    }

    /// Adds the data blocks that a record contains.
    fn log_data(&self, row: &RowWork, record: &Record, fresh: Fresh<'_>, lane: &mut Lane) {
        for index in record.logged_indices() {
            let at = self.base_of(row) + index as u64 * self.setup.geometry.chunk_bytes();
            let parts = fresh.share(at, row.row.len()).map(|(_, part)| part);
            lane.payload.extend(parts);
        }
    }

    /// The array offset of data index 0 at this row.
    pub(crate) fn base_of(&self, row: &RowWork) -> u64 {
        self.stripe_offset(row.row.stripe) + row.row.start
    }

    /// The new parity minus the new data.
    fn partial(&self, row: &RowWork, parity: &SharedBuf, q: bool, fresh: Fresh<'_>) -> SharedBuf {
        let (base, chunk) = (self.base_of(row), self.setup.geometry.chunk_bytes());
        let touched = row.row.first..row.row.first + row.row.count;
        self.setup.clock.charge(io::Cost::Parity, (parity.len() * row.row.count) as u64);
        let mut rest = self.pool.take(parity.len());
        let from = |index: usize, at: usize| fresh.from(base + index as u64 * chunk + at as u64);
        compute::partial(self.setup.kernel, (&row.map, q), touched, parity, from, &mut rest);
        rest.freeze()
    }

    /// Computes a check for each block of the new data, unless that was already done.
    fn check_new(&self, row: &RowWork, record: &Record, fresh: Fresh<'_>, checks: &mut Vec<u32>) {
        if !checks.is_empty() {
            return;
        }
        let (base, chunk) = (self.base_of(row), self.setup.geometry.chunk_bytes());
        for index in row.row.first..row.row.first + row.row.count {
            let start = base + index as u64 * chunk;
            let check = |block: Range<u64>| fresh.crc(start + block.start, block.end - block.start);
            checks.extend(record.blocks().map(check));
        }
    }

    /// Adds the new checksums of a row's data, then the old table entries.
    fn put_checksums(&self, news: &[New], view: &View, checks: &mut Vec<u32>) {
        checks.extend(news.iter().map(|new| new.crc));
        for new in news {
            let ChecksumEntry { checksum, generation } =
                self.old_checksum(view, new.slot, new.block);
            checks.extend([checksum, generation]);
        }
    }

    /// The number of checksums of a row's data and parity.
    fn news_of(&self, row: &RowWork) -> usize {
        let plan = row.plan.expect("rows are planned before they are logged");
        let parity = row.roles.parity().intersection(plan.write).count();
        let blocks = row.row.end.div_ceil(CHECK_BYTES) - row.row.start / CHECK_BYTES;
        blocks as usize * (row.row.count + parity)
    }
}

/// The number of a row's outgoing pieces; the pieces are in row order.
pub(crate) fn pieces_of(row: &RowWork, outgoing: &[Outgoing]) -> usize {
    let range = row.at()..row.at() + row.row.len();
    outgoing.iter().take_while(|out| range.contains(&out.at)).count()
}
