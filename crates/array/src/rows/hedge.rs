//! Reads that do not wait for one slow member.
//!
//! ```text
//!   read ─▶ its member ──────── in time: the usual case ───────────────────────────▶ answer
//!              │
//!              ├─ late: its peers would have answered long since (`member/latency.rs`)
//!              │        the read is hedged without it ──────┐
//!              │                                            ├─ the first answer wins; the other
//!              └─ the member's own late answer ─────────────┘  is orphaned (`member/orphans.rs`)
//!
//!   read ─▶ its member is marked slow: read without it at once; occasional probes, on which
//!           no request waits, show when it is fast again
//! ```
//!
//! *Without it* means another copy on mirrors, and the row's other slots and parity on parity
//! levels. A hedged read costs the other members work. So only a share of all reads may be hedged,
//! after a small initial burst ([`Bounds`](metadata::Bounds)); otherwise hedges would add load when
//! all members are busy. Avoiding a slow member costs no share, because that member is spared the
//! read.
//!
//! Invariants:
//! - A hedged read writes nothing: it may be dropped at any point.
//! - It uses redundancy only where that is known to agree with the data. Where copies or parity may
//!   disagree, a reader gets the same bytes as without the hedge, however late.
//! - A member's late answer is used only if the epoch has not changed since: a member that left in
//!   between may hold other bytes by now.
//! - No request waits inside the barrier for a late member.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use io::broken::{Broken, broken};
use io::{Buf, Class, Op, Time, Work};
use layout::plan::{Method, RowState, WritePlan, plan_read};
use layout::{Family, Slot, SlotSet};
use metadata::Result;

use crate::member::batch::IoOptions;
use crate::member::latency::{Kind, LatencyStats, Peer, Report, SMALL_BYTES};
use crate::member::orphans::Orphan;
use crate::member::{Member, View, latency};
use crate::rows::engine::{Engine, RowOp};
use crate::rows::read::Target;
use crate::rows::{RowWork, Scratch};
use crate::shard::message::ToKeeper;

/// The interval of comparing members while any request waits for them.
const ASSESSMENT: Duration = Duration::from_millis(20);
/// The interval of probing a slow member while reads avoid it: 16 good answers take a second.
const PROBING: Duration = Duration::from_millis(50);
/// After this many requests, a member that delays reads would have been detected.
const KNOWN: u64 = 64;
/// The credit that one hedged read costs.
const PRICE: u32 = 100;

/// The result of a direct read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Attempt {
    /// All of it was read.
    Whole,
    /// Some of it failed, or is not directly readable from any copy.
    Failed,
    /// Some of it must be recovered: a member is missing or not rebuilt yet, or blocks are bad.
    Degraded,
    /// Some members take longer than their peers would; their operations are still in flight.
    Late,
    /// Some members are slow and were not asked.
    Shunned,
}

/// The hedging budget of a shard.
pub(crate) struct Hedges {
    credit: Cell<u32>,
    most: u32,
    /// Some member may be slow: if not, reads skip the check.
    pub(crate) slow: Cell<bool>,
    /// Memory for hedged reads, and for comparing members.
    spare: RefCell<Vec<Scratch>>,
    room: RefCell<Vec<u64>>,
}

impl Hedges {
    pub(crate) fn new(most: u32) -> Hedges {
        let most = most.saturating_mul(PRICE);
        let (credit, spare, room) = (Cell::new(most), RefCell::default(), RefCell::default());
        Hedges { credit, most, slow: Cell::new(false), spare, room }
    }

    /// Adds credit for a share of another read.
    fn earn(&self, percent: u32) {
        self.credit.set((self.credit.get() + percent).min(self.most));
    }

    /// Takes the credit for a hedged read, if there is enough.
    fn pay(&self) -> bool {
        let rest = self.credit.get().checked_sub(PRICE);
        self.credit.set(rest.unwrap_or(self.credit.get()));
        rest.is_some()
    }
}

impl RowOp<'_> {
    /// Reads directly, avoiding members that are slow or late. True if the whole range was read.
    /// Reports failed members and waits for the change of the membership; does not report
    /// unreadable blocks.
    pub(crate) async fn read_promptly(
        &mut self,
        range: (u64, u64),
        bufs: &mut Vec<Buf>,
    ) -> Result<bool> {
        let inside = self.engine.gate.enter().await;

        let view = self.engine.view();
        let inside = match self.inside(&inside).attempt(&view, range, bufs).await {
            Attempt::Whole => return Ok(true),
            Attempt::Failed | Attempt::Degraded => inside,
            Attempt::Shunned => {
                drop(inside);
                let slow = self.engine.slow_slots(&view);
                return Ok(self.read_without(range, bufs, slow).await);
            }
            Attempt::Late => {
                drop(inside);
                if self.read_again(&view, range, bufs).await {
                    return Ok(true);
                }
                self.engine.gate.enter().await
            }
        };
        self.work.failures.retain(|f| !f.error.is_medium());
        if self.engine.view().epoch > view.epoch {
            // Another unit has already reported the loss.
            self.work.failures.clear();
        }
        if !self.work.failures.is_empty() {
            self.inside(&inside).lose(&view).await?;
        }
        Ok(false)
    }

    /// Reads without repair and without reporting failures, avoiding members that are slow or late.
    /// False if a part of the range was not read.
    pub(crate) async fn read_as_it_is(&mut self, range: (u64, u64), bufs: &mut Vec<Buf>) -> bool {
        // Read-ahead begins and ends at block borders, except at the end of the array.
        if self.engine.must_resolve_copies(range) || self.engine.widened(range) != range {
            return false;
        }
        let inside = self.engine.gate.enter().await;
        let view = self.engine.view();
        let whole = match self.inside(&inside).attempt(&view, range, bufs).await {
            Attempt::Whole => true,
            Attempt::Failed => false,
            Attempt::Shunned | Attempt::Degraded => {
                drop(inside);
                let slow = self.engine.slow_slots(&view);
                self.read_without(range, bufs, slow).await
            }
            Attempt::Late => {
                drop(inside);
                self.read_again(&view, range, bufs).await
            }
        };
        self.work.failures.clear();
        whole
    }

    async fn attempt(&mut self, view: &View, range: (u64, u64), bufs: &mut Vec<Buf>) -> Attempt {
        self.engine.hedges.earn(self.engine.setup.bounds.hedge_percent);
        if self.engine.setup.geometry.family() != Family::Parity {
            return self.read_chosen(view, (range, None), bufs).await;
        }
        if self.engine.can_read_directly(view, range) {
            if self.engine.hedges.slow.get() && self.engine.avoids_member(view, range) {
                return Attempt::Shunned;
            }
            return self.read_directly(view, range, bufs).await;
        }
        // Missing blocks are recovered from the others, without the slow members if those are not
        // needed.
        let slow = self.engine.hedges.slow.get() && !self.engine.slow_slots(view).is_empty();
        if slow { Attempt::Shunned } else { Attempt::Degraded }
    }

    /// Sends reads and waits for them. False if some are late and a hedge is possible.
    pub(crate) async fn run_until_late(&mut self, view: &View) -> bool {
        let (clock, watch) = (&*self.engine.setup.clock, &self.engine.watch);
        let ended = self.work.batch.run_until_late(clock, watch, self.opts).await;
        self.engine.take_stock(&mut self.work.batch);
        if ended {
            return true;
        }
        if self.engine.may_hedge(view, self.work.batch.pending(), self.opts) {
            return false;
        }
        self.work.batch.wait_rest(clock, watch, self.opts).await;
        self.engine.leave_behind(&mut self.work.batch);
        true
    }

    /// Hedges a read without the late members, and continues to wait for them. True once either
    /// attempt has the bytes, false if both fail. Runs outside the barrier.
    async fn read_again(&mut self, view: &View, range: (u64, u64), bufs: &mut Vec<Buf>) -> bool {
        let late = self.work.batch.pending();
        let mut second = self.engine.hedges.spare.borrow_mut().pop().unwrap_or_default();
        assert!(second.batch.is_empty(), "a hedged read would send another read's operations");
        let mut fresh = vec![self.engine.pool.take(range.1 as usize)];
        let first_wins = {
            let mut beside = self.beside(&mut second);
            let again = beside.read_without(range, &mut fresh, late);
            let mut again = Box::pin(again);
            let (clock, watch) = (&*self.engine.setup.clock, &self.engine.watch);
            let mut rest = pin!(self.work.batch.wait_rest(clock, watch, self.opts));
            let (mut rest_failed, mut again_failed) = (false, false);
            std::future::poll_fn(|cx| {
                if !rest_failed && let Poll::Ready(ok) = rest.as_mut().poll(cx) {
                    if ok && self.engine.view().epoch == view.epoch {
                        return Poll::Ready(Some(true));
                    }
                    rest_failed = true;
                }
                if !again_failed && let Poll::Ready(ok) = again.as_mut().poll(cx) {
                    if ok {
                        return Poll::Ready(Some(false));
                    }
                    again_failed = true;
                }
                if rest_failed && again_failed { Poll::Ready(None) } else { Poll::Pending }
            })
            .await
        };
        // The slower attempt may have operations in flight.
        second.batch.abandon_all();
        self.engine.leave_behind(&mut second.batch);
        second.batch.drain(|_, _, _| {}, |_, _, _| {}, &mut second.failures);
        assert!(second.outgoing.is_empty(), "a hedged read prepared a write");
        second.parts.clear();
        second.pieces.clear();
        second.release_disks();
        self.engine.hedges.spare.borrow_mut().push(second);
        self.work.batch.abandon_all();
        self.engine.leave_behind(&mut self.work.batch);
        if first_wins != Some(false) {
            let whole = self.gathered(view, range, bufs) == Attempt::Whole;
            return whole && first_wins.is_some();
        }
        self.work.batch.drain(|_, _, _| {}, |_, _, _| {}, &mut self.work.failures);
        self.work.parts.clear();
        for failure in self.work.failures.drain(..) {
            if !failure.error.is_medium() {
                self.engine.lose_late(&failure.member, failure.error);
            }
        }
        let have = fresh.iter().map(|buf| buf.len() as u64).sum::<u64>();
        assert_eq!(have, range.1, "a hedged read has other bytes than its request");
        bufs.clear();
        bufs.append(&mut fresh);
        true
    }

    /// Reads without these slots, from redundancy that agrees with the data. Changes nothing, so it
    /// may be dropped at any point. False if the range cannot be read this way.
    async fn read_without(
        &mut self,
        range: (u64, u64),
        bufs: &mut Vec<Buf>,
        shunned: SlotSet,
    ) -> bool {
        if self.engine.setup.geometry.family() == Family::Parity {
            return self.read_rows_without(range, bufs, shunned).await;
        }
        let _inside = self.engine.gate.enter().await;
        let view = self.engine.view();
        let what = (range, Some(shunned));
        let attempt = self.read_chosen(&view, what, bufs).await;
        self.work.failures.clear();
        attempt == Attempt::Whole
    }

    async fn read_rows_without(
        &mut self,
        (offset, len): (u64, u64),
        bufs: &mut [Buf],
        shunned: SlotSet,
    ) -> bool {
        let claim = self.engine.locks.claim(self.engine.rows_of(offset, len));
        (&claim).await;
        self.engine.split_rows(offset, len, &mut self.work.rows);
        let _memory = self.engine.memory_for_rows(&self.work.rows).await;
        let _inside = self.engine.gate.enter().await;
        let view = self.engine.view();
        if self.engine.check_bad((offset, len)).is_err() {
            return false;
        }
        if view.mode.is_final() || !self.plan_without(&view, shunned) {
            return false;
        }
        if !self.read_for_rows(&view).await {
            // The regular read will meet the failure again and handle it.
            self.work.failures.clear();
            return false;
        }
        let fits = |row: &RowWork| self.engine.fits_entries(&view, row, &self.work.pieces, shunned);
        if !self.work.rows.iter().all(fits) {
            return false;
        }
        let mut target = Target { offset, bufs };
        self.work
            .rows
            .iter()
            .all(|row| self.engine.deliver(row, &self.work.pieces, &mut target).is_ok())
    }

    /// Plans the reading of every row without these slots. False if that is impossible, or where
    /// parity may disagree with the data.
    fn plan_without(&mut self, view: &View, shunned: SlotSet) -> bool {
        self.work.rows.iter_mut().all(|row| {
            let state = self.engine.state_of(view, row);
            let unsafely = broken(Broken::HedgeReadsUnrebuilt);
            let readable = if unsafely { view.present } else { state.readable };
            let readable = readable.difference(shunned);
            let state = RowState { readable, ..state };
            let Ok(plan) = plan_read(&row.roles, &state, row.touched()) else { return false };
            let method = plan.recover.map_or(Method::DataOnly, Method::Recover);
            row.plan = Some(WritePlan { method, read: plan.read, write: SlotSet::EMPTY });
            plan.recover.is_none() || state.synced
        })
    }
}

impl Engine {
    /// True if a read may be hedged without these slots.
    fn may_hedge(&self, view: &View, late: SlotSet, opts: IoOptions) -> bool {
        let (geometry, bounds) = (&self.setup.geometry, &self.setup.bounds);
        let missing = geometry.all_slots().difference(view.in_sync);
        opts.class == Class::Foreground
            && bounds.hedge_percent > 0
            && !view.mode.is_final()
            && geometry.survives(missing.union(late))
            && self.late.count() < bounds.hedges as usize
            && self.hedges.pay()
    }

    // ---- slow members --------------------------------------------------------------------------

    /// The slots whose members are slow.
    fn slow_slots(&self, view: &View) -> SlotSet {
        let slots = view.slots.iter().enumerate();
        let slow = slots.filter(|(_, assignment)| {
            assignment.member.as_ref().is_some_and(|m| m.latency_stats.is_slow())
        });
        slow.map(|(slot, _)| Slot::new(slot)).collect()
    }

    /// True if this range touches a slow member and may be read without it.
    fn avoids_member(&self, view: &View, (offset, len): (u64, u64)) -> bool {
        let slow =
            |slot: Slot| view.member(slot).is_some_and(|member| member.latency_stats.is_slow());
        let Some((slot, at, part, _)) = self.each_chunk(offset, len).find(|&(slot, ..)| slow(slot))
        else {
            return false;
        };
        let missing = self.setup.geometry.all_slots().difference(view.in_sync);
        let without = missing.union(self.slow_slots(view));
        let can = !view.mode.is_final()
            && self.setup.geometry.survives(without)
            && !self.is_unsynced(offset, len);
        if can {
            self.probe(view, slot, at, part);
        }
        can
    }

    /// Sends a read to a slow member; no request waits for it.
    pub(crate) fn probe(&self, view: &View, slot: Slot, at: u64, len: u64) {
        let Some(member) = view.member(slot) else { return };
        let (latency_stats, now) = (&member.latency_stats, self.setup.clock.now());
        let most = self.setup.bounds.hedges as usize;
        let soon = now - latency_stats.probed.get() < PROBING;
        if latency_stats.probing.get() || soon || self.late.count() >= most {
            return;
        }
        latency_stats.probing.set(true);
        latency_stats.probed.set(now);
        let bytes = len.min(SMALL_BYTES);
        member.counters().operations.add(1);
        member.counters().read_bytes.add(bytes);
        member.busy.set(member.busy.get() + 1);
        let op = Op {
            offset: member.data_offset + at,
            work: Work::Read(vec![self.pool.take(bytes as usize)]),
            fua: false,
            deadline: None,
            class: Class::Foreground,
        };
        let answer = member.disk.submit(op);
        let (member, since) = (Rc::clone(member), now);
        let (writes, missed, probe) = (false, false, true);
        self.late.take([Orphan { member, answer, since, bytes, writes, missed, probe }]);
        self.watch.begun.raise();
    }

    /// Wakes requests whose members are late, and compares the members.
    pub(crate) async fn track_latency(self: Rc<Self>) {
        let clock = &self.setup.clock;
        let mut assessed = Time(0);
        while !self.is_stopping() {
            if !self.watch.is_busy() {
                self.watch.begun.wait().await;
            }
            let next = clock.now().max(assessed) + ASSESSMENT;
            let mut alarm = pin!(clock.sleep_until(self.watch.next_due(next)));
            let mut due_earlier = pin!(self.watch.due_earlier.wait());
            std::future::poll_fn(|cx| match due_earlier.as_mut().poll(cx) {
                Poll::Ready(()) => Poll::Ready(()),
                Poll::Pending => alarm.as_mut().poll(cx),
            })
            .await;
            let now = clock.now();
            self.watch.wake_due(now);
            if now - assessed >= ASSESSMENT {
                assessed = now;
                self.assess();
            }
        }
    }

    /// Compares the members after one may have become slow.
    pub(crate) fn judge_latency(&self) {
        let view = self.view();
        let peers = peers(&view);
        latency::judge(&peers);
        self.hedges.slow.set(peers.iter().any(|peer| peer.latency_stats.is_slow()));
    }

    /// Compares the members, and reports those that an administrator should know to the keeper.
    fn assess(&self) {
        let (view, bounds) = (self.view(), &self.setup.bounds);
        let peers = peers(&view);
        let mut room = self.hedges.room.borrow_mut();
        latency::assess(&peers, bounds.hedge_floor, bounds.deadline / 4, &mut room);
        self.hedges.slow.set(peers.iter().any(|peer| peer.latency_stats.is_slow()));
        for (_, member) in view.members() {
            let (latency_stats, counters) = (&member.latency_stats, member.counters());
            counters.set_latency([
                latency_stats.latency(Kind::Read),
                latency_stats.latency(Kind::Write),
            ]);
            let change = latency_stats.report(bounds.slow_report, member.limits.rotational);
            let Some(change) = change else { continue };
            let slow = matches!(change, Report::Slow(_));
            counters.slow.set(u64::from(slow));
            let text = describe(latency_stats, change);
            self.post.to_keeper(ToKeeper::Throttle { member: member.id, slow, text });
        }
    }
}

fn peers(view: &View) -> Vec<Peer<'_>> {
    let peer = |member: &'_ Rc<Member>| member.counters().operations.get() >= KNOWN;
    view.members()
        .map(|(_, member)| Peer { latency_stats: &member.latency_stats, is_known: peer(member) })
        .collect()
}

/// The text that compares a member with its peers.
fn describe(latency_stats: &LatencyStats, report: Report) -> String {
    let Report::Slow(kind) = report else { return "as fast as its peers again".into() };
    let millis = |span: Duration| match span < Duration::from_micros(50) {
        true => "under 0.1 ms".into(),
        false => format!("{:.1} ms", span.as_secs_f64() * 1e3),
    };
    let (late, peers) = latency_stats.late(kind);
    let (late, peers) = (millis(late), millis(peers));
    let (what, effect) = match kind {
        Kind::Read => ("reads", "reads avoid it"),
        Kind::Write => ("writes", "every write waits for it"),
    };
    format!("slow: its {what} take {late}, those of its peers {peers}; {effect}")
}
