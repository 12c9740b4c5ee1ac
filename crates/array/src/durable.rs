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

use io::{Class, Signal};

use crate::batch::Manner;
use crate::error::{Error, ErrorKind, Result};
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

    /// Flushes every member written since its last flush.
    pub(crate) async fn flush(&self, work: &mut Scratch) -> Result<()> {
        let inside = self.gate.enter().await;
        loop {
            let view = self.view();
            for (slot, member) in view.members() {
                // A flush under way has not made durable yet what it covers.
                if member.unflushed.replace(false) || member.flushing.get() > 0 {
                    work.batch.add(member, slot, 0, io::Work::Flush, 0);
                }
            }
            if work.batch.is_empty() {
                return Ok(());
            }
            let manner = Manner {
                fua: false,
                class: Class::Foreground,
                op_bytes: 0,
                deadline: self.setup.bounds.deadline,
            };
            self.run(&mut work.batch, manner).await;
            work.batch.drain(|_, _, _| {}, |_, _, _| {}, &mut work.failures);
            if work.failures.is_empty() {
                return Ok(());
            }
            // Whatever a member wrote since its last good flush is unknown: it is lost.
            for failure in &work.failures {
                failure.member.unflushed.set(true);
            }
            self.lose(&inside, &view, &mut work.failures).await?;
            if self.view().mode == crate::view::Mode::Broken {
                let what = "a member could not be flushed, and the array is broken without it";
                return Err(Error::new(ErrorKind::DataLost, what));
            }
        }
    }
}
