//! Flushes for shards, one for all that ask meanwhile. Decides which members are flushed and which
//! shards get the answer. The metadata writer handles the effect of a failed flush on later ones.
//!
//! ```text
//!   shard 0 ──flush──┐                        ┌──flushed──▶ shard 0
//!   shard 1 ──flush──┴▶ each member, once ────┴──flushed──▶ shard 1
//!   shard 0 ──flush────────▶ waits, for the next
//! ```
//!
//! # When a flush fails
//!
//! Everything sent to the member since its last good flush is unknown, whatever a second flush
//! returns (`commit/flush.rs`). With redundancy the member is lost, and the flush is answered once
//! that is durable. Until then the log keeps the records of the rows, and the regions' bits stay
//! set. Without redundancy, or beyond it, the flush fails, and so does every later one until the
//! array is started again. A client must not count data as durable that may be lost.

use io::Class;
use io::broken::{Broken, broken};
use layout::{Epoch, Family, Mode, SlotSet};
use metadata::{Error, ErrorKind, Result};

use crate::keeper::Keeper;
use crate::member::batch::{Batch, Failure, IoOptions};
use crate::shard::message::ToShard;

/// A shard's request to flush its writes to the members in these slots.
pub(crate) struct Asked {
    pub(crate) shard: usize,
    pub(crate) ticket: u64,
    pub(crate) slots: SlotSet,
}

/// Buffers kept for reuse.
#[derive(Default)]
struct Desk {
    batch: Batch,
    failures: Vec<Failure>,
}

impl Keeper {
    /// Flushes members for shards. A task of its own: membership changes never wait for a caller
    /// that waits for a flush.
    pub(super) async fn run_flushes(&self) {
        let (mut asked, mut desk) = (Vec::new(), Desk::default());
        loop {
            asked.extend(self.inbox.flushing.borrow_mut().drain(..));
            if asked.is_empty() {
                self.changed.wait().await;
                continue;
            }
            let slots = asked.iter().map(|asked: &Asked| asked.slots);
            let slots = slots.fold(SlotSet::EMPTY, SlotSet::union);
            let result = self.flush(slots, &mut desk).await;
            for Asked { shard, ticket, .. } in asked.drain(..) {
                let result = result.clone();
                self.home.engine.post.to_shard(shard, ToShard::Flushed { ticket, result });
            }
        }
    }

    /// Makes writes to the members in these slots durable, or the loss of members.
    async fn flush(&self, slots: SlotSet, desk: &mut Desk) -> Result<()> {
        loop {
            let epoch = self.flush_once(slots, desk).await?;
            if desk.failures.is_empty() || broken(Broken::FlushErrorIgnored) {
                desk.failures.clear();
                return Ok(());
            }
            let plain = self.geometry.family() == Family::Plain;
            let kept = |failure: &&Failure| {
                let assignment = &self.configuration.borrow().slots[failure.slot.index()];
                let copy = assignment.replacement.is_some_and(|(id, _)| id == failure.member.id);
                plain && (!copy || broken(Broken::FailedCopyKept))
            };
            let fatal = desk.failures.iter().position(|failure| kept(&failure));
            let fatal = fatal.map(|at| desk.failures.swap_remove(at));
            let lost = desk.failures.drain(..).filter(|failure| !kept(&failure));
            self.report(lost.map(|failure| (failure.member.id, failure.error)).collect());
            if let Some(Failure { member, slot, error }) = fatal {
                let what = format!("{} failed, and the level has no redundancy", member.name);
                return Err(Error::new(ErrorKind::DataLost, what).in_slot(slot).because(error));
            }
            self.after(epoch).await;
        }
    }

    /// Flushes the members in these slots; returns the epoch of that assignment.
    async fn flush_once(&self, slots: SlotSet, desk: &mut Desk) -> Result<Epoch> {
        let _turn = self.metadata.turn_to_flush().await;
        let epoch = {
            let now = self.configuration.borrow();
            if now.mode == Mode::Broken {
                let what = "the array has failed: unflushed writes may be lost";
                return Err(Error::new(ErrorKind::DataLost, what));
            }
            for (slot, id) in now.assigned().filter(|&(slot, _)| slots.contains(slot)) {
                let member =
                    self.home.member(id).expect("an assigned member is known to this shard");
                match self.metadata.unflushable(id) {
                    Some(error) => desk.failures.push(Failure { member, slot, error }),
                    None => desk.batch.add(&member, slot, 0, io::Work::Flush, 0),
                }
            }
            now.epoch
        };
        let (class, deadline) = (Class::Foreground, self.bounds.deadline);
        self.home
            .engine
            .run(&mut desk.batch, IoOptions { fua: false, class, op_bytes: 0, deadline })
            .await;
        let known = desk.failures.len();
        desk.batch.drain(|_, _, _| {}, |_, _, _| {}, &mut desk.failures);
        for Failure { member, error, .. } in &desk.failures[known..] {
            self.metadata.set_unflushable(member.id, error);
        }
        Ok(epoch)
    }
}
