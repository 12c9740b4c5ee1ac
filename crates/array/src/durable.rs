//! Flushes shared by those who wait for them.
//!
//! In cache mode `sync` a write is acknowledged when it is durable. Writes that end while a flush
//! is under way wait for the next one, together:
//!
//! ```text
//!   write A ends ──▶ flush 1 ───────────▶ A acknowledged
//!   write B ends ───────┴▶ waits ─▶ flush 2 ───────────▶ B, C acknowledged
//!   write C ends ──────────┴▶ waits ──┘
//! ```

use std::cell::{Cell, RefCell};

use io::Signal;

use crate::error::Result;
use crate::shard::{Scratch, Shard};

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
    /// Number and outcome of the last flush that ended.
    ended: RefCell<Option<(u64, Result<()>)>>,
    changed: Signal,
}

impl Shard {
    /// Completes when a flush that began after this call has ended, with its outcome.
    pub(crate) async fn make_durable(&self, work: &mut Scratch) -> Result<()> {
        let flushes = &self.flushes;
        let wanted = flushes.begun.get() + 1;
        loop {
            if let Some((number, outcome)) = &*flushes.ended.borrow()
                && *number >= wanted
            {
                return outcome.clone();
            }
            if flushes.running.get() {
                flushes.changed.wait().await;
                continue;
            }
            flushes.running.set(true);
            let number = flushes.begun.get() + 1;
            flushes.begun.set(number);
            let outcome = self.flush(work).await;
            *flushes.ended.borrow_mut() = Some((number, outcome));
            flushes.running.set(false);
            flushes.changed.raise();
        }
    }
}
