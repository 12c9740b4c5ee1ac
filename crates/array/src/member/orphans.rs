//! Orphaned operations: no request waits for their answers any more.
//!
//! An operation that missed its deadline, and a read that was completed from other members, keep
//! their buffers until the member answers or is removed. This module holds them:
//!
//! - An orphaned *read* still has a deadline: a member that hangs fails by it, though no request
//!   waits. Its answer counts for the member's latency; its bytes are dropped.
//! - An orphaned *write* is never trusted, whatever its answer, and may still reach the disk. The
//!   member failed because of it and must not return before the answer: the late write would
//!   overwrite newer data (`Counters::late_writes`).
//!
//! `member/batch.rs` and `rows/hedge.rs` decide which operations to abandon.

use std::cell::RefCell;
use std::rc::Rc;
use std::task::Waker;

use io::{Completion, Done, Time};

use crate::member::Member;

/// An operation whose answer no request waits for.
pub(crate) struct Orphan {
    pub(crate) member: Rc<Member>,
    pub(crate) answer: Completion<Done>,
    /// The time when it was sent.
    pub(crate) since: Time,
    pub(crate) bytes: u64,
    pub(crate) writes: bool,
    /// It has missed its deadline, and its member was lost for that.
    pub(crate) missed: bool,
    /// It was sent only to measure its time.
    pub(crate) probe: bool,
}

/// The orphans of a shard.
#[derive(Default)]
pub(crate) struct Late {
    pub(crate) orphans: RefCell<Vec<Orphan>>,
    pub(crate) waker: RefCell<Option<Waker>>,
}

impl Late {
    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.orphans.borrow().len()
    }

    /// True if some have not reached their deadline yet.
    pub(crate) fn is_busy(&self) -> bool {
        self.orphans.borrow().iter().any(|orphan| !orphan.missed)
    }

    /// Takes over abandoned operations.
    pub(crate) fn take(&self, orphans: impl IntoIterator<Item = Orphan>) {
        for orphan in orphans {
            if orphan.writes {
                orphan.member.counters().late_writes.add(1);
            }
            self.orphans.borrow_mut().push(orphan);
        }
        self.wake();
    }

    /// Wakes the task that collects them.
    pub(crate) fn wake(&self) {
        if let Some(waker) = &*self.waker.borrow() {
            waker.wake_by_ref();
        }
    }
}

impl Orphan {
    /// Counts one operation less in its member's load.
    pub(crate) fn end_load(&self) {
        if !self.missed {
            self.member.busy.set(self.member.busy.get() - 1);
        }
    }
}
