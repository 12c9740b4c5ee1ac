//! One member's part of the metadata writer: the places of its structures, and their last written
//! contents.
//!
//! Owns the member's superblock, its bad-block list, and the staleness of its bitmap. Never touches
//! a byte outside the member's byte map.

use std::ops::Range;
use std::rc::Rc;

use io::Disk;
use io::broken::{Broken, broken};
use layout::RangeSet;
use layout::md::{BadBlocks, ByteMap, Features, LogFull, SECTOR, Superblock};

use crate::bitmap::{Bits, Pages};
use crate::commit::flush::Failed;
use crate::commit::member_io::{MemberIo, Writer, all};

/// The metadata writer's record of a member.
#[derive(Clone)]
pub struct Record {
    /// Path or address, for people.
    pub(crate) name: String,
    pub(crate) disk: Rc<dyn Disk>,
    pub(crate) map: ByteMap,
    /// As last written, or as found.
    pub(crate) superblock: Superblock,
    pub(crate) bad: BadBlocks,
    /// The bad-block log on the member is older than `bad`.
    pub(crate) bad_changed: bool,
    /// Bitmap pages that the member does not hold, or not durably.
    pub(crate) behind: Pages,
    /// The session of its intent log in its header; 0: nothing was logged.
    pub(crate) session: u64,
    /// The session from its beginning on.
    pub(crate) next_session: u64,
    /// The epoch in which it got its slot; `None`: it has had none in this session.
    pub(crate) since: Option<u32>,
    /// Its partial parity log has only released contents, and must be emptied before the next
    /// superblock that assigns its slot.
    pub(crate) stale_ppl: bool,
    /// A flush has failed: see `flush.rs`.
    pub(crate) flush_failed: Rc<Failed>,
}

impl Record {
    /// The writer for its disk.
    pub(crate) fn writer<'a>(&'a self, reach: &'a MemberIo) -> Writer<'a> {
        reach.of(&self.name, &self.disk)
    }

    /// Writes `superblock`, durably.
    pub(crate) async fn write_superblock(
        &self,
        reach: &MemberIo,
        superblock: &Superblock,
    ) -> io::Result<()> {
        let block = self.disk.limits().logical_block as usize;
        let at = superblock.super_offset * SECTOR;
        assert_eq!(at, self.map.superblock.start, "a superblock lies where it says");
        let (own, new) = (&self.superblock, superblock);
        let identity = |s: &Superblock| (s.set_uuid, s.device.uuid, s.device.number, s.data_offset);
        assert_eq!(identity(new), identity(own), "{} would get another's superblock", self.name);
        let (last, events) = (own.events, new.events);
        assert!(events >= last, "{}: event {events} after event {last}", self.name);
        let mut bytes = superblock.print();
        bytes.resize(bytes.len().next_multiple_of(block), 0);
        let room = &self.map.superblock;
        if bytes.len() as u64 > room.end - room.start {
            let what = "the superblock does not fit between what lies before and behind it";
            return Err(io::Error::refused(what));
        }
        self.writer(reach).write(self.map.superblock.start, &bytes, true).await
    }

    /// Writes `pages` of the bitmap, durably.
    pub(crate) async fn write_pages(
        &self,
        reach: &MemberIo,
        pages: &[(u64, Vec<u8>)],
    ) -> io::Result<()> {
        let Some(room) = bitmap_range(&self.map, self.superblock.features) else { return Ok(()) };
        let whole = |bytes: u64| (bytes as usize).next_multiple_of(SECTOR as usize);
        let (start, writer) = (room.start, self.writer(reach));
        let cut = pages.iter().map(|(at, bytes)| {
            // The space of a foreign bitmap may end within its last page.
            let room = room.end.saturating_sub(room.start + at);
            (start + at, &bytes[..bytes.len().min(whole(room))])
        });
        // Together: a hard disk writes them in one pass of its heads.
        let writes = cut.filter(|(_, bytes)| !bytes.is_empty());
        let writes = writes.map(|(at, bytes)| writer.write(at, bytes, true));
        all(writes).await.into_iter().collect::<io::Result<()>>()?;
        if broken(Broken::BitmapSpills) {
            writer.write(room.end, &[0; SECTOR as usize], true).await?;
        }
        Ok(())
    }

    /// Writes the bad-block log.
    pub(crate) async fn write_bad_blocks(&self, reach: &MemberIo) -> io::Result<()> {
        let Some(room) = &self.map.bad_blocks else { return Ok(()) };
        let Ok(bytes) = self.print_bad_blocks(&self.bad) else { return Ok(()) };
        assert!(bytes.len() as u64 <= room.end - room.start, "a list larger than its room");
        self.writer(reach).write(room.start, &bytes, false).await
    }

    /// The bytes of the log of `bad` on the member.
    pub(crate) fn print_bad_blocks(&self, bad: &BadBlocks) -> Result<Vec<u8>, LogFull> {
        if self.map.bad_blocks.is_none() {
            return Err(LogFull { needed: bad.ranges().len(), room: 0 });
        }
        bad.print(self.superblock.bblog.shift, self.superblock.bblog.sectors)
    }

    /// Bad bytes, counted from the start of the data.
    pub fn bad_ranges(&self) -> RangeSet {
        let data = &self.map.data;
        let inside = |start: u64| start.clamp(data.start, data.end) - data.start;
        let sectors = self.bad.ranges().iter();
        sectors.map(|r| inside(r.start * SECTOR)..inside(r.end * SECTOR)).collect()
    }

    /// The features that follow from the member's own state; the others are the array's.
    pub(crate) fn own_features(&self, found: Features) -> Features {
        let own = Features::BAD_BLOCKS
            .with(Features::RECOVERY_OFFSET)
            .with(Features::RECOVERY_BITMAP)
            .with(Features::REPLACEMENT);
        let rest = found.without(own);
        if self.bad.is_empty() { rest } else { rest.with(Features::BAD_BLOCKS) }
    }
}

/// The place of the write-intent bits on a member with these features: md's bitmap. Where md's
/// partial parity log excludes that, it is the same form in the private area.
pub(crate) fn bitmap_range(map: &ByteMap, features: Features) -> Option<Range<u64>> {
    match features.intersects(Features::ANY_PPL) {
        true => map.private_parts().map(|parts| parts.regions),
        false => map.bitmap.clone(),
    }
}

/// Copies of `pages` of a bitmap, to be written without a borrow held.
pub(crate) fn copy_pages(bits: &Bits, pages: Pages) -> Vec<(u64, Vec<u8>)> {
    bits.pages(pages).map(|(at, bytes)| (at, bytes.to_vec())).collect()
}
