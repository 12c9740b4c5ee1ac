//! Orphaned writes: operations that members have not answered in time and may still carry out.
//!
//! ```text
//!   header 150 ─▶ … no answer: given up                             lands late
//!                       header 150 again ─▶ superblock 150              │
//!                                           matches the second header, which is overwritten then
//! ```
//!
//! So nothing more is written to a member while a write is in flight there, even if the keeper has
//! already decided that the member is lost.

use io::broken::{Broken, broken};
use layout::MemberId;

use crate::commit::{Failures, MetadataWriter};

impl MetadataWriter {
    /// Superblocks and bitmap pages written to a member of this name without an answer in time;
    /// they may still land.
    pub fn late_writes(&self, name: &str) -> usize {
        self.reach.late(name)
    }

    /// # Errors
    /// The members among these that have not answered in time.
    pub(super) fn none_late<'a>(
        &self,
        ids: impl Iterator<Item = &'a MemberId>,
    ) -> Result<(), Failures> {
        let late: Failures = ids.filter_map(|&id| Some((id, self.late(id)?))).collect();
        if late.is_empty() { Ok(()) } else { Err(late) }
    }

    /// The reason if nothing more may be written to a member.
    pub(super) fn late(&self, id: MemberId) -> Option<io::Error> {
        let state = self.state.borrow();
        let late = self.reach.late(&state.records.get(&id)?.name) > 0;
        (late && !broken(Broken::LateOvertaken)).then(|| {
            let what = "an earlier write to it is still in flight";
            io::Error::new(io::ErrorKind::Timeout, what)
        })
    }
}
