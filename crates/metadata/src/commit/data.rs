//! Data and checksum tables of members, read and written before any client is served: for replay.

use std::ops::Range;

use layout::private::checksums::{PAGE_BYTES, PAGE_COVERS};
use layout::{MemberId, RangeSet};

use crate::commit::MetadataWriter;
use crate::commit::record::Record;

impl MetadataWriter {
    fn record_of(&self, id: MemberId) -> io::Result<Record> {
        let gone = || io::Error::new(io::ErrorKind::Gone, "a member that was removed");
        self.record(id).ok_or_else(gone)
    }

    /// Reads bytes of a member's data; its bad blocks are errors.
    pub async fn read_data(&self, id: MemberId, range: Range<u64>) -> io::Result<Vec<u8>> {
        let record = self.record_of(id)?;
        if record.bad_ranges().overlaps(range.clone()) {
            let kind = io::ErrorKind::Medium { offset: range.start, len: range.end - range.start };
            return Err(io::Error::new(kind, "on the list of bad blocks"));
        }
        let start = record.map.data.start;
        assert!(range.end <= record.map.data_bytes(), "a read beyond the data");
        self.reach().read(&*record.disk, start + range.start..start + range.end).await
    }

    /// The parts of a range on a member's bad-block list.
    pub fn listed(&self, id: MemberId, range: Range<u64>) -> RangeSet {
        let bad = self.record(id).map(|record| record.bad_ranges()).unwrap_or_default();
        let within = bad.iter().map(|bad| bad.start.max(range.start)..bad.end.min(range.end));
        within.filter(|bad| bad.start < bad.end).collect()
    }

    /// Writes bytes of a member's data.
    pub async fn write_data(&self, id: MemberId, at: u64, bytes: &[u8]) -> io::Result<()> {
        let record = self.record_of(id)?;
        let most = record.map.data_bytes();
        assert!(at + bytes.len() as u64 <= most, "a write beyond the data");
        record.writer(self.reach()).write(record.map.data.start + at, bytes, false).await
    }

    /// Reads a page of a member's table of checksums.
    pub async fn read_table(&self, id: MemberId, number: u64) -> io::Result<Vec<u8>> {
        let (record, start) = self.table(id, number)?;
        self.reach().read(&*record.disk, start..start + PAGE_BYTES).await
    }

    /// Writes a page of a member's table of checksums.
    pub async fn write_table(&self, id: MemberId, number: u64, page: &[u8]) -> io::Result<()> {
        let (record, start) = self.table(id, number)?;
        assert_eq!(page.len() as u64, PAGE_BYTES, "a page of the table is written whole");
        record.writer(self.reach()).write(start, page, false).await
    }

    fn table(&self, id: MemberId, number: u64) -> io::Result<(Record, u64)> {
        let none = || io::Error::new(io::ErrorKind::Gone, "a member without a table of checksums");
        let (record, start) = self.record(id).zip(self.table_place(id)).ok_or_else(none)?;
        let first = number * PAGE_COVERS;
        assert!(first < record.map.data_bytes(), "a page beyond the end of the table");
        Ok((record, start + number * PAGE_BYTES))
    }
}
