//! A member: the disk in a slot, where its data begins, and how it has behaved.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use io::{Disk, Limits};

use crate::ranges::RangeSet;

/// Names a member for as long as the array runs: md's `dev_number`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct MemberId(pub u32);

/// How a member has behaved since the array was started.
#[derive(Default, Debug)]
pub(crate) struct Counters {
    /// Operations sent to it.
    pub(crate) operations: Cell<u64>,
    /// Bytes read from it.
    pub(crate) read_bytes: Cell<u64>,
    /// Bytes written to it.
    pub(crate) written_bytes: Cell<u64>,
    /// Reads that failed.
    pub(crate) read_errors: Cell<u64>,
    /// Writes that failed.
    pub(crate) write_errors: Cell<u64>,
    /// Answers that did not come in time.
    pub(crate) timeouts: Cell<u64>,
    /// Bytes that were rewritten from redundancy after a read error.
    pub(crate) repaired_bytes: Cell<u64>,
}

/// One shard's handle on a member.
pub(crate) struct Member {
    pub(crate) id: MemberId,
    /// Path or address, for people.
    pub(crate) name: String,
    pub(crate) disk: Rc<dyn Disk>,
    /// Where the array's data begins on the disk, in bytes.
    pub(crate) data_offset: u64,
    pub(crate) limits: Limits,
    pub(crate) counters: Counters,
    /// Written since the last flush began.
    pub(crate) unflushed: Cell<bool>,
    /// Flushes under way: what they cover is not durable yet.
    pub(crate) flushing: Cell<u32>,
    /// Member offsets that cannot be read: md's bad-block list.
    pub(crate) bad: RefCell<RangeSet>,
    /// Operations under way, for balancing reads.
    pub(crate) busy: Cell<u32>,
    /// Where the last read ended, for balancing reads.
    pub(crate) head: Cell<u64>,
}

impl Member {
    pub(crate) fn new(id: MemberId, name: String, disk: Rc<dyn Disk>, data_offset: u64) -> Member {
        let limits = disk.limits();
        Member {
            id,
            name,
            disk,
            data_offset,
            limits,
            counters: Counters::default(),
            unflushed: Cell::new(false),
            flushing: Cell::new(0),
            bad: RefCell::default(),
            busy: Cell::new(0),
            head: Cell::new(0),
        }
    }

    /// True if these bytes are not on the bad-block list.
    pub(crate) fn is_good(&self, member_offset: u64, len: u64) -> bool {
        let bad = self.bad.borrow();
        bad.is_empty() || !bad.overlaps(member_offset..member_offset + len)
    }
}

/// Adds to a counter.
pub(crate) fn count(counter: &Cell<u64>, by: u64) {
    counter.set(counter.get() + by);
}
