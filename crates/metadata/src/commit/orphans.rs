//! Writes that members have not answered in time and may still execute.
//!
//! ```text
//!   header 150 ─▶ … no answer: it is given up                        lands
//!                       header 150 anew ─▶ superblock 150              │
//!                                          which goes with the later one, that is gone then
//! ```
//!
//! So nothing more is written to a member while a write is in flight there, whether or not it is
//! already lost.

use io::broken::{Broken, broken};
use layout::MemberId;

use crate::commit::{Failures, MetadataWriter};

impl MetadataWriter {
    /// Superblocks and bitmap pages written to a member of this name that it has not answered in
    /// time, and that may still land.
    pub fn late_writes(&self, name: &str) -> usize {
        self.reach.late(name)
    }

    /// # Errors
    /// Those of these members that have not answered in time.
    pub(super) fn none_late<'a>(
        &self,
        ids: impl Iterator<Item = &'a MemberId>,
    ) -> Result<(), Failures> {
        let late: Failures = ids.filter_map(|&id| Some((id, self.late(id)?))).collect();
        if late.is_empty() { Ok(()) } else { Err(late) }
    }

    /// Why no more writes may be sent to a member, if so.
    pub(super) fn late(&self, id: MemberId) -> Option<io::Error> {
        let state = self.state.borrow();
        let late = self.reach.late(&state.records.get(&id)?.name) > 0;
        (late && !broken(Broken::LateOvertaken)).then(|| {
            let what = "what was written to it before is still under way";
            io::Error::new(io::ErrorKind::Timeout, what)
        })
    }
}
