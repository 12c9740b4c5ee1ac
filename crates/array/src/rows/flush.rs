//! Flushes, shared by the requests that wait for them.
//!
//! A shard has one flush under way at a time. In cache mode `sync` a write is acknowledged when it
//! is durable. Writes that end while a flush is under way, and clients that flush, wait for the
//! next one, together:
//!
//! ```text
//!   write A ends ──▶ flush 1 ───────────▶ A acknowledged
//!   write B ends ───────┴▶ waits ─▶ flush 2 ───────────▶ B, C acknowledged
//!   write C ends ──────────┴▶ waits ──┘
//! ```
//!
//! The shard does not flush members itself: the keeper flushes once for all shards that ask
//! (`keeper/flush.rs` explains why).

use std::cell::{Cell, RefCell};

use io::broken::{Broken, broken};
use io::{Completions, Signal, Ticket, Turn};
use layout::{Mode, SlotSet};
use metadata::{Error, Result};

use crate::rows::engine::Engine;
use crate::rows::intent::Log;
use crate::shard::message::ToKeeper;

/// When a write is acknowledged.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum CacheMode {
    /// When the members have it: a flush makes it durable.
    #[default]
    None,
    /// When it is durable: for clients that never flush.
    Sync,
    /// When the engine's memory has it; a flush writes it out and makes it durable.
    Writeback,
}

/// The flushes of a shard, numbered as they begin.
#[derive(Default)]
pub(crate) struct Flushes {
    begun: Cell<u64>,
    running: Cell<bool>,
    /// Number and result of the last flush that ended.
    ended: RefCell<Option<(u64, Result<()>)>>,
    /// The error, once nothing can be made durable any more.
    failed: RefCell<Option<Error>>,
    changed: Signal,
    /// The keeper's pending answers.
    answers: Completions<Result<()>>,
}

impl Flushes {
    /// Records the keeper's answer.
    pub(crate) fn answer(&self, ticket: u64, result: Result<()>) {
        self.answers.finish(Ticket::from_bits(ticket), result);
    }
}

impl Engine {
    /// Completes with the result of a flush that began after this call.
    pub(crate) async fn make_durable(&self) -> Result<()> {
        let flushes = &self.flushes;
        let wanted = flushes.begun.get() + 1;
        loop {
            if let Some(error) = &*flushes.failed.borrow() {
                return Err(error.clone());
            }
            if let Some((number, outcome)) = &*flushes.ended.borrow()
                && *number >= wanted
            {
                return outcome.clone();
            }
            let Some(_turn) = Turn::take(&flushes.running, &flushes.changed) else {
                flushes.changed.wait().await;
                continue;
            };
            let number = flushes.begun.get() + 1;
            flushes.begun.set(number);
            let outcome = self.flush().await;
            if let Err(error) = &outcome {
                *flushes.failed.borrow_mut() = Some(error.clone());
            }
            *flushes.ended.borrow_mut() = Some((number, outcome));
        }
    }

    /// Asks the keeper to flush every member written since the last flush.
    async fn flush(&self) -> Result<()> {
        // Replay must finish first: until then a member loss may take data written before the
        // crash.
        drop(self.gate.enter().await);
        let number = self.log.as_ref().map(Log::flush_begins);
        let skips = |slot: usize| broken(Broken::FlushMissesOne) && slot == 0;
        let view = self.view();
        let written = view.members().filter(|(_, member)| member.unflushed.replace(false));
        let slots = written.map(|(slot, _)| slot).filter(|slot| !skips(slot.index()));
        let slots: SlotSet = slots.collect();
        if !slots.is_empty() || view.mode == Mode::Broken {
            let (ticket, answer) = self.flushes.answers.start();
            let (shard, ticket) = (self.index, ticket.to_bits());
            self.post.to_keeper(ToKeeper::Flush { shard, ticket, slots });
            answer.await?;
        }
        self.log.as_ref().zip(number).inspect(|(log, number)| log.flushed(*number));
        Ok(())
    }
}
