//! Flushes, shared by those who wait for them.
//!
//! One flush is under way at a time. In cache mode `sync` a write is acknowledged when it is
//! durable. Writes that end while a flush is under way, and clients that flush, wait for the next
//! one, together:
//!
//! ```text
//!   write A ends ──▶ flush 1 ───────────▶ A acknowledged
//!   write B ends ───────┴▶ waits ─▶ flush 2 ───────────▶ B, C acknowledged
//!   write C ends ──────────┴▶ waits ──┘
//! ```
//!
//! One at a time is not for speed alone. Of two flushes of one member that are under way together,
//! kernels report a lost write to one and success to the other (`fsync` tells each error once): the
//! success would be a lie.
//!
//! # When a flush fails
//!
//! All that the member wrote since its last good flush is unknown, whatever a second flush says.
//! With redundancy the member is lost, and the flush is answered once that is durable; the regions'
//! bits are still set, since bits are cleared only after a good flush of all (`keeper/marks.rs`).
//! Without redundancy, or beyond it, the flush fails, and so does every later one until the array
//! is started anew: nobody is told that something is durable which may be gone.

use std::cell::{Cell, RefCell};

use io::{Class, Signal};
use layout::Slot;

use crate::batch::Manner;
use crate::broken::{Broken, broken};
use crate::error::{Error, ErrorKind, Result};
use crate::log::Log;
use crate::shard::{Scratch, Shard};
use crate::view::Mode;

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
    /// Why nothing can be made durable any more.
    failed: RefCell<Option<Error>>,
    changed: Signal,
}

impl Shard {
    /// Completes when a flush that began after this call has ended, with its outcome.
    pub(crate) async fn make_durable(&self, work: &mut Scratch) -> Result<()> {
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
            if flushes.running.get() {
                flushes.changed.wait().await;
                continue;
            }
            flushes.running.set(true);
            let number = flushes.begun.get() + 1;
            flushes.begun.set(number);
            let outcome = self.flush(work).await;
            if let Err(error) = &outcome {
                *flushes.failed.borrow_mut() = Some(error.clone());
            }
            *flushes.ended.borrow_mut() = Some((number, outcome));
            flushes.running.set(false);
            flushes.changed.raise();
        }
    }

    /// Flushes every member written since its last flush.
    async fn flush(&self, work: &mut Scratch) -> Result<()> {
        let inside = self.gate.enter().await;
        let number = self.log.as_ref().map(Log::flush_begins);
        let done = || {
            self.log.as_ref().zip(number).inspect(|(log, number)| log.flushed(*number));
            Ok(())
        };
        let skips = |slot: Slot| broken(Broken::FlushMissesOne) && slot.index() == 0;
        loop {
            let view = self.view();
            if view.mode == Mode::Broken {
                let what = "the array is broken: what was written may not be there";
                return Err(Error::new(ErrorKind::DataLost, what));
            }
            for (slot, member) in view.members() {
                if member.unflushed.replace(false) && !skips(slot) {
                    work.batch.add(member, slot, 0, io::Work::Flush, 0);
                }
            }
            if work.batch.is_empty() {
                return done();
            }
            let manner = Manner {
                fua: false,
                class: Class::Foreground,
                op_bytes: 0,
                deadline: self.setup.bounds.deadline,
            };
            self.run(&mut work.batch, manner).await;
            work.batch.drain(|_, _, _| {}, |_, _, _| {}, &mut work.failures);
            if work.failures.is_empty() || broken(Broken::FlushErrorIgnored) {
                work.failures.clear();
                return done();
            }
            // Whatever a member wrote since its last good flush is unknown: it is lost.
            for failure in &work.failures {
                failure.member.unflushed.set(true);
            }
            self.lose(&inside, &view, &mut work.failures).await?;
        }
    }
}
