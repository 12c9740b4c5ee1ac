//! The bad blocks of members: added and removed in memory, written by the next commit.

use std::ops::Range;

use layout::MemberId;
use layout::md::{BadBlocks, LogFull, SECTOR};

use crate::commit::MetadataWriter;

impl MetadataWriter {
    /// The bad bytes of a member's data.
    pub fn bad_bytes(&self, id: MemberId) -> u64 {
        self.state.borrow().records.get(&id).map_or(0, |record| record.bad_ranges().bytes())
    }

    /// Removes bytes of a member's data from its bad-block log, from the next commit on.
    pub fn clear_bad_block(&self, id: MemberId, range: Range<u64>) {
        let mut state = self.state.borrow_mut();
        let Some(record) = state.records.get_mut(&id) else { return };
        assert!(range.end <= record.map.data_bytes(), "a good block beyond the data");
        let start = (record.map.data.start + range.start).div_ceil(SECTOR);
        let end = (record.map.data.start + range.end) / SECTOR;
        record.bad.remove(start..end);
        record.bad_changed = true;
    }

    /// Records bytes of a member (from the start of its data) as bad, at the next commit.
    ///
    /// # Errors
    /// The member has no room for it in its bad-block log, or no log.
    pub fn add_bad_block(&self, id: MemberId, range: Range<u64>) -> Result<(), LogFull> {
        let mut state = self.state.borrow_mut();
        let Some(record) = state.records.get_mut(&id) else { return Ok(()) };
        assert!(range.end <= record.map.data_bytes(), "a bad block beyond the data");
        let start = (record.map.data.start + range.start) / SECTOR;
        let end = (record.map.data.start + range.end).div_ceil(SECTOR);
        let mut bad: BadBlocks = record.bad.clone();
        bad.add(start..end);
        record.print_bad_blocks(&bad)?;
        record.bad = bad;
        record.bad_changed = true;
        Ok(())
    }
}
