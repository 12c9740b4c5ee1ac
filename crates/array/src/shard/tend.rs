//! A shard's message loop and its periodic tasks.

use std::rc::Rc;

use io::Ticket;
use io::broken::{Broken, broken};
use metadata::Result;

use crate::member::View;
use crate::rows::Scratch;
use crate::rows::checksum::ChecksumTable;
use crate::rows::engine::Engine;
use crate::shard::Shard;
use crate::shard::message::{Message, ToKeeper, ToShard};

/// A held write waits one more [`metadata::Bounds::stream_patience`] for each of these bytes.
const PATIENCE_BYTES: u64 = 16 << 10;

impl Shard {
    /// Handles messages until the shard stops.
    pub(super) async fn listen(self: Rc<Self>, keeper: Option<Rc<dyn Fn(ToKeeper)>>) {
        let mut arrived = Vec::new();
        while !self.engine.stopping.get() {
            std::future::poll_fn(|cx| self.engine.post.poll_receive(cx, &mut arrived)).await;
            for message in arrived.drain(..) {
                match message {
                    Message::Shard(message) => self.handle(message),
                    Message::Keeper(message) => {
                        let keeper =
                            keeper.as_ref().expect("only the keeper's shard is its address");
                        keeper(message);
                    }
                }
            }
        }
    }

    fn handle(self: &Rc<Self>, message: ToShard) {
        match message {
            ToShard::Unit(unit) => self.enqueue(unit),
            ToShard::ShutCache(shut) => self.cache.shut(shut),
            ToShard::Ended(ended) => self.end(ended),
            ToShard::Close => {
                self.engine.gate.close();
                self.engine.log.as_ref().inspect(|log| log.gate_closes());
            }
            ToShard::Open(configuration) => {
                let view = View::new(&configuration, |id| self.member(id));
                *self.engine.view.borrow_mut() = Rc::new(view);
                self.engine.gate.open();
                self.cache.recheck();
                self.engine.log.as_ref().inspect(|log| log.recheck());
            }
            ToShard::Marked { ticket, granted } => {
                self.marking.waiting.finish(Ticket::from_bits(ticket), granted);
            }
            ToShard::Recovered { slot, replacement, below } => {
                let view = self.engine.view();
                let assignment = &view.slots[slot.index()];
                let mark = if replacement {
                    &assignment.copied_below
                } else {
                    &assignment.recovered_below
                };
                mark.set(mark.get().max(below));
            }
            ToShard::Flushed { ticket, result } => self.engine.flushes.answer(ticket, result),
            ToShard::Recorded { ticket } => {
                self.engine.records.finish(Ticket::from_bits(ticket), ())
            }
            ToShard::Distrust { member, start, len } => {
                self.member(member).inspect(|member| {
                    member.bad.borrow_mut().insert(start..start + len);
                });
            }
            ToShard::Bad { offset, len } => {
                self.engine.bad.borrow_mut().insert(offset..offset + len)
            }
            ToShard::Forget(known) => {
                // The same member may have been introduced again meanwhile.
                self.members.borrow_mut().retain(|_, member| !member.is(&known));
                if self.member(known.id).is_none() {
                    self.engine.checksums.as_ref().inspect(|checksums| checksums.forget(known.id));
                }
            }
            ToShard::Quiesce => {
                self.quiescing.set(true);
                self.emptied.raise();
            }
            ToShard::End => self.stop(),
        }
    }

    /// Wakes requests past their deadline. A task of its own, because other tasks may wait for a
    /// member.
    pub(super) async fn keep_deadlines(self: Rc<Self>) {
        let span = self.engine.setup.bounds.deadline / 4;
        while !self.engine.stopping.get() {
            if !self.engine.watch.is_busy() && !self.engine.late.is_busy() {
                self.engine.watch.begun.wait().await;
            }
            let clock = &self.engine.setup.clock;
            let due = clock.now() + span;
            clock.sleep_until(due).await;
            self.engine.watch.sweep(due, clock.now(), self.engine.setup.bounds.deadline);
            self.engine.sweep_late(due, clock.now(), self.engine.setup.bounds.deadline);
        }
    }

    /// Releases a held write if its continuation does not come in time after the last answer that
    /// could bring it. The wait is proportional to its size: about the time in which a client at
    /// 800 MB/s sends as much again.
    pub(super) async fn release_held(self: Rc<Self>) {
        while !self.engine.stopping.get() {
            let held = self.queue.borrow().held();
            let Some((_, len)) = held else {
                self.held_up.wait().await;
                continue;
            };
            let clock = &self.engine.setup.clock;
            let shares = 1 + u32::try_from(len / PATIENCE_BYTES).unwrap_or(u32::MAX);
            let hedge_after = self.engine.setup.bounds.stream_patience * shares;
            clock.sleep_until(clock.now() + hedge_after).await;
            if self.queue.borrow().held() != held {
                continue;
            }
            self.queue.borrow_mut().release();
            self.wake_idle();
        }
    }

    /// Releases bitmap bits that are no longer needed.
    pub(super) async fn tend_bits(self: Rc<Self>) {
        let bounds = self.engine.setup.bounds;
        let span = bounds.clean_delay.min(bounds.region_linger / 4);
        let mut scratch = Scratch::default();
        while !self.engine.stopping.get() {
            if !self.regions.is_busy() {
                self.bits_changed.wait().await;
            }
            let clock = &self.engine.setup.clock;
            clock.sleep_until(clock.now() + span).await;
            if !self.engine.setup.parity {
                // New writes have no parity: their bits stay set, so that the next start resyncs
                // them.
                continue;
            }
            if self.engine.checksums.as_ref().is_some_and(ChecksumTable::is_dirty)
                && self.regions.may_resolve(clock.now(), bounds.clean_delay)
                && !broken(Broken::CleanUnsummed)
                && self.op(&mut scratch).write_checksums().await.is_err()
            {
                continue;
            }
            let now = clock.now();
            // A write may have ended while the checksums of other writes were written.
            let checksummed = !self.engine.checksums.as_ref().is_some_and(ChecksumTable::is_dirty);
            if checksummed || broken(Broken::CleanUnsummed) {
                self.regions.report_quiet(now, bounds.clean_delay);
            }
            let idle = self.regions.idle(now, bounds.region_linger);
            let skips = broken(Broken::BitClearedUnflushed);
            if !idle.is_empty() && (skips || self.put_away(&mut scratch).await.is_ok()) {
                self.regions.release(idle, now);
            }
        }
    }

    /// Makes all writes so far durable, and their checksums.
    async fn put_away(&self, scratch: &mut Scratch) -> Result<()> {
        self.op(scratch).write_checksums().await?;
        self.engine.make_durable().await
    }

    /// Reports to the keeper each time no unit is left inside the closed barrier.
    pub(super) async fn report_stillness(self: Rc<Self>) {
        if self.engine.setup.settling {
            // The barrier starts closed, and the keeper has not asked.
            self.engine.gate.opening().await;
        }
        loop {
            self.engine.gate.wait_quiesced().await;
            self.engine.post.to_keeper(ToKeeper::Still { shard: self.engine.index });
            self.engine.gate.opening().await;
        }
    }

    /// When the array stops: reports to the keeper that the last request has ended.
    pub(super) async fn report_quiescence(self: Rc<Self>) {
        while !self.quiescing.get() || !self.requests.is_empty() {
            self.emptied.wait().await;
        }
        self.engine.post.to_keeper(ToKeeper::Quiesced { shard: self.engine.index });
    }

    /// Closes the write-back caches of all shards for new writes, or opens them again; calls must
    /// be matched. Must be called on the shard that sends the flush, so that this message arrives
    /// first.
    pub(crate) fn shut_caches(&self, shut: bool) {
        for to in 0..self.count {
            if to == self.engine.index && shut {
                // A shard does not send its own units by mail.
                self.cache.shut(true);
            } else {
                self.engine.post.to_shard(to, ToShard::ShutCache(shut));
            }
        }
    }

    /// Makes the shard's tasks end once the queue is empty.
    pub(crate) fn stop(&self) {
        self.engine.stopping.set(true);
        self.bits_changed.raise();
        self.engine.late.wake();
        self.cache.recheck();
        self.engine.log.as_ref().inspect(|log| log.end());
        self.engine.checksums.as_ref().inspect(|checksums| checksums.pressure.raise());
        for worker in self.idle.borrow_mut().drain(..) {
            worker.wake();
        }
    }
}

impl Engine {
    /// True once the shard's tasks must end.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.get()
    }
}
