//! A store: a file system whose files are disks of the run. Its free space is shared by them.
//!
//! A write to pages that a disk has not stored yet takes free pages, and fails without them; of a
//! failed write only sectors of stored pages land. A write to stored pages always has space.
//!
//! Owns the number of free pages. `medium.rs` knows which pages are stored.

use std::cell::Cell;

use io::{ErrorKind, Op, Work};

use super::SimDisk;
use crate::medium::{Medium, SECTOR};

/// A number of free pages that no run can use up.
const ENDLESS: u64 = u64::MAX;

/// See the module's description.
pub struct Store {
    free: Cell<u64>,
}

impl Default for Store {
    /// A store with space for everything.
    fn default() -> Store {
        Store { free: Cell::new(ENDLESS) }
    }
}

impl Store {
    /// From now on this many pages of 4 KiB are free.
    pub fn limit(&self, pages: u64) {
        self.free.set(pages);
    }

    /// There is space for everything again.
    pub fn unlimit(&self) {
        self.free.set(ENDLESS);
    }

    /// True if it may run out of space.
    pub fn is_limited(&self) -> bool {
        self.free.get() != ENDLESS
    }
}

impl SimDisk {
    /// The error of a write for which the store has no space.
    pub(super) fn lacks_space(&self, medium: &Medium, op: &Op) -> Option<ErrorKind> {
        let store = self.store.as_ref().filter(|store| store.is_limited())?;
        let (offset, len) = (op.offset, op.work.len());
        let needed = match op.work {
            Work::Write(_) | Work::Zero { unmap: false, .. } => medium.holes(offset, len),
            // A partial page is zeroed in place.
            Work::Zero { .. } => [offset, offset + len]
                .into_iter()
                .filter(|edge| !edge.is_multiple_of(4096))
                .map(|edge| medium.holes(edge / 4096 * 4096, 1))
                .sum(),
            _ => 0,
        };
        (needed > store.free.get()).then_some(ErrorKind::NoSpace)
    }

    /// Accounts for the pages that an operation takes or gives back.
    pub(super) fn take_space(&self, holes_before: u64, holes_after: u64) {
        if let Some(store) = self.store.as_ref().filter(|store| store.is_limited()) {
            store.free.set((store.free.get() + holes_after).saturating_sub(holes_before));
        }
    }

    /// Of a write without space, some sectors of stored pages have landed.
    pub(super) fn land_stored(&self, medium: &mut Medium, op: &Op) {
        let Work::Write(bufs) = &op.work else { return };
        let bytes = bufs.iter().map(|buf| &**buf).collect::<Vec<_>>().concat();
        for (at, sector) in (op.offset..).step_by(SECTOR as usize).zip(bytes.chunks(512)) {
            if medium.holes(at, SECTOR) == 0 && self.rng.borrow_mut().percent(50) {
                medium.write(at, sector, false);
            }
        }
    }

    /// True if it is on a store that may run out of space.
    pub fn is_short(&self) -> bool {
        self.store.as_ref().is_some_and(|store| store.is_limited())
    }
}
