//! Writes that the server has acknowledged, and may have in a volatile cache only.
//!
//! Invariant: replaying the entries in their order, then flushing, gives what a client may expect
//! after the last acknowledged write. An entry is dropped only when a flush that was submitted
//! after its acknowledgement has succeeded.

use std::collections::VecDeque;

use io::broken::{Broken, broken};
use io::{Op, Pool, SharedBuf, Work};

use super::MAX_HELD_BYTES;

/// See the module.
#[derive(Default)]
pub(super) struct Unflushed {
    entries: VecDeque<(u64, Entry)>,
    bytes: u64,
    next: u64,
    /// Entries before this one were not kept: there was no room.
    incomplete_before: u64,
    /// Entries before this one are durable.
    durable_before: u64,
}

#[derive(Clone)]
pub(super) struct Entry {
    pub(super) offset: u64,
    pub(super) change: Change,
}

/// A change of bytes that can be repeated.
#[derive(Clone)]
pub(super) enum Change {
    Write(Vec<SharedBuf>),
    Zero { len: u64, unmap: bool },
    Discard { len: u64 },
}

impl Change {
    /// The change that this work makes; none if it makes none.
    pub(super) fn of(work: &Work) -> Option<Change> {
        match work {
            Work::Write(bufs) => Some(Change::Write(bufs.clone())),
            Work::Zero { len, unmap, .. } => Some(Change::Zero { len: *len, unmap: *unmap }),
            Work::Discard { len } => Some(Change::Discard { len: *len }),
            Work::Read(_) | Work::Flush | Work::Extents { .. } => None,
        }
    }

    /// The same change, from memory that nobody changes.
    pub(super) fn stable(self, pool: &Pool) -> Change {
        match self {
            Change::Write(bufs) => {
                Change::Write(bufs.into_iter().map(|buf| buf.stable(pool)).collect())
            }
            other => other,
        }
    }

    /// The work that repeats it.
    fn work(&self) -> Work {
        match self {
            Change::Write(bufs) => Work::Write(bufs.clone()),
            Change::Zero { len, unmap } => Work::Zero { len: *len, unmap: *unmap, fast: false },
            Change::Discard { len } => Work::Discard { len: *len },
        }
    }

    /// Bytes of memory that it keeps.
    fn kept_bytes(&self) -> u64 {
        match self {
            Change::Write(bufs) => bufs.iter().map(|buf| buf.len() as u64).sum(),
            Change::Zero { .. } | Change::Discard { .. } => 64,
        }
    }
}

impl Entry {
    /// The operation that repeats it.
    pub(super) fn op(&self) -> Op {
        Op::new(self.offset, self.change.work())
    }
}

impl Unflushed {
    /// Records a write that was acknowledged now. A durable one is kept if older entries are: they
    /// may lie under it, and a replay must not bring them back.
    pub(super) fn push(&mut self, entry: Entry, is_durable: bool) {
        let lies_alone = self.entries.is_empty() || broken(Broken::RemoteReplayUndoes);
        if is_durable && lies_alone {
            return;
        }
        self.bytes += entry.change.kept_bytes();
        self.entries.push_back((self.next, entry));
        self.next += 1;
        if self.bytes > MAX_HELD_BYTES {
            self.entries.clear();
            self.bytes = 0;
            self.incomplete_before = self.next;
        }
    }

    /// The place of a flush that is submitted now.
    pub(super) fn mark(&self) -> u64 {
        self.next
    }

    /// A flush with this mark has succeeded.
    pub(super) fn flushed(&mut self, mark: u64) {
        self.durable_before = self.durable_before.max(mark);
        while let Some((number, entry)) = self.entries.front()
            && *number < mark
        {
            self.bytes -= entry.change.kept_bytes();
            self.entries.pop_front();
        }
    }

    /// True if every acknowledged write is durable.
    pub(super) fn is_empty(&self) -> bool {
        self.durable_before >= self.next
    }

    /// True if a flush is due, so that the entries do not fill the memory.
    pub(super) fn is_half_full(&self) -> bool {
        self.bytes >= MAX_HELD_BYTES / 2
    }

    /// True if all writes that are not durable are kept.
    pub(super) fn is_complete(&self) -> bool {
        self.durable_before >= self.incomplete_before
    }

    /// The entries, in the order of their acknowledgements.
    pub(super) fn entries(&self) -> Vec<Entry> {
        self.entries.iter().map(|(_, entry)| entry.clone()).collect()
    }

    /// Forgets everything: the owner of the disk knows that it has lost writes.
    pub(super) fn forget(&mut self) {
        *self = Unflushed { next: self.next, durable_before: self.next, ..Unflushed::default() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(bytes: usize) -> Entry {
        let change = Change::Write(vec![Pool::new(0).take_zeroed(bytes).freeze()]);
        Entry { offset: 0, change }
    }

    #[test]
    fn a_flush_covers_what_was_acknowledged_before_it() {
        let mut unflushed = Unflushed::default();
        assert!(unflushed.is_empty());
        unflushed.push(write(512), false);
        let mark = unflushed.mark();
        unflushed.push(write(512), false);
        unflushed.flushed(mark);
        assert_eq!((unflushed.entries().len(), unflushed.is_empty()), (1, false));
        unflushed.flushed(unflushed.mark());
        assert!(unflushed.is_empty() && unflushed.bytes == 0);
        unflushed.push(write(512), true);
        assert!(unflushed.is_empty(), "nothing older lies under it");
        // An older flush that ends late takes nothing back.
        unflushed.push(write(512), false);
        unflushed.flushed(mark);
        assert_eq!(unflushed.entries().len(), 1);
    }

    #[test]
    fn more_than_fits_is_noticed_until_a_flush() {
        let mut unflushed = Unflushed::default();
        let quarter = (MAX_HELD_BYTES / 4) as usize;
        for count in 1..=4 {
            unflushed.push(write(quarter), false);
            assert_eq!(unflushed.is_half_full(), count >= 2);
            assert!(unflushed.is_complete());
        }
        let before = unflushed.mark();
        unflushed.push(write(512), false);
        assert!(!unflushed.is_complete() && !unflushed.is_empty());
        unflushed.flushed(before);
        assert!(!unflushed.is_complete());
        unflushed.flushed(unflushed.mark());
        assert!(unflushed.is_complete() && unflushed.is_empty());
    }
}
