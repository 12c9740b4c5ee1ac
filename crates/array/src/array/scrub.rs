//! Scrubs on request: of the whole array, from a byte on, or of a part.

use std::ops::Range;

use layout::Family;
use metadata::{Error, Result};

use super::Array;
use crate::keeper::ScrubRange;
use crate::rows::job::Task;

impl Array {
    /// Starts to compare all data with its redundancy; with `repair`, also to repair mismatches.
    ///
    /// # Errors
    /// Refused if another job is running, if the level has no redundancy or none is left, and for a
    /// repair if the array is degraded.
    pub fn scrub(&self, repair: bool) -> Result<()> {
        self.scrub_from(repair, 0)
    }

    /// As [`Array::scrub`], from this byte of the array to its end: what lies below was compared
    /// before.
    ///
    /// # Errors
    /// As [`Array::scrub`]; also refused if the array ends before that byte.
    pub fn scrub_from(&self, repair: bool, from: u64) -> Result<()> {
        let range = from..self.inner.geometry.capacity();
        self.begin_scrub(repair, ScrubRange { range, is_part: false })
    }

    /// As [`Array::scrub`], of a part of the array, widened to whole stripes. Says nothing about
    /// the rest: its result is [`crate::Status::last_part`].
    ///
    /// # Errors
    /// As [`Array::scrub`]; also refused if the part is empty, or not in the array.
    pub fn scrub_part(&self, repair: bool, range: Range<u64>) -> Result<()> {
        if range.is_empty() || range.end > self.inner.geometry.capacity() {
            let Range { start, end } = range;
            return Err(Error::refused(format!("the array has no bytes {start} to {end}")));
        }
        let stripe = self.inner.geometry.stripe_bytes();
        let end = range.end.next_multiple_of(stripe).min(self.inner.geometry.capacity());
        let range = range.start / stripe * stripe..end;
        self.begin_scrub(repair, ScrubRange { range, is_part: true })
    }

    fn begin_scrub(&self, repair: bool, what: ScrubRange) -> Result<()> {
        let (keeper, from) = (&self.inner.keeper, what.range.start);
        if what.range.is_empty() {
            return Err(Error::refused(format!("the array ends before byte {from}")));
        }
        if self.inner.geometry.family() == Family::Plain {
            return Err(Error::refused("the level has no redundancy: there is nothing to compare"));
        }
        let in_sync = keeper.configuration().in_sync();
        let whole = in_sync == self.inner.geometry.all_slots();
        if !whole && repair {
            let what = "the array is degraded, so a repair cannot identify a wrong member; a check \
                        is possible where redundancy is left";
            return Err(Error::refused(what));
        }
        if !whole && !self.inner.can_compare(in_sync) {
            let what = "the array is degraded, and no redundancy is left to compare with";
            return Err(Error::refused(what));
        }
        let busy = keeper.jobs.job.borrow().as_ref().map(|job| crate::keeper::describe(job.kind));
        if let Some(job) = busy {
            return Err(Error::refused(format!("a {job} is running; wait for it, or stop it")));
        }
        keeper.jobs.scrub_range.replace(what);
        *keeper.jobs.scrub.borrow_mut() = Some(if repair { Task::Repair } else { Task::Check });
        keeper.changed.raise();
        Ok(())
    }

    /// Stops the running scrub.
    ///
    /// # Errors
    /// Refused if there is none.
    pub fn stop_scrub(&self) -> Result<()> {
        let stopped = self.inner.keeper.cancel_scrub();
        if stopped { Ok(()) } else { Err(Error::refused("no scrub is running")) }
    }
}
