//! Examination of a disk for people: every superblock, valid or not, and its related structures.
//!
//! Reads only. Judges each structure by itself; `assemble` decides whether disks belong together.

use std::rc::Rc;

use io::{Boxed, Clock, Disk};
use layout::Layout;
use layout::md::superblock::{FAIL_FAST, WRITE_MOSTLY};
use layout::md::{
    BadBlocks, Bitmap, ByteMap, Features, FoundBadBlocks, ParseError, RawSuperblock, Signature,
    Superblock,
};

use crate::assemble::{probe, shape};
use crate::bitmap::Bits;
use crate::bounds::Bounds;
use crate::commit::Format;
use crate::commit::member_io::MemberIo;
use crate::error::{Error, Result};

mod private;

pub use private::{FoundJournal, FoundLog, FoundPrivate, NoHeader};

/// Everything found on a disk.
#[derive(Clone, Debug)]
pub struct Examination {
    /// Size of the disk in bytes.
    pub bytes: u64,
    /// Superblocks and remains of superblocks.
    pub superblocks: Vec<FoundSuperblock>,
    /// Its header as a journal device, if it is one.
    pub journal: Option<FoundJournal>,
    /// All other signatures; superblocks have one too.
    pub signatures: Vec<Signature>,
}

/// One superblock.
#[derive(Clone, Debug)]
pub struct FoundSuperblock {
    /// The superblock format.
    pub format: Format,
    /// Bytes from the start of the disk.
    pub offset: u64,
    /// Its contents, or its first error. 0.90 in the terms of version 1.
    pub superblock: std::result::Result<Superblock, ParseError>,
    /// For a damaged one, each field with its bytes, if the fields can be located at all.
    pub fields: Vec<(&'static str, u64, Vec<u8>)>,
    /// Level and layout, or the reason why they are unknown.
    pub layout: std::result::Result<Layout, String>,
    /// The byte map of the member.
    pub map: Option<std::result::Result<ByteMap, ParseError>>,
    /// The bitmap, if there should be one.
    pub bitmap: Option<FoundBitmap>,
    /// The bad-block list, if it is not empty.
    pub bad_blocks: Option<std::result::Result<FoundBadBlocks, String>>,
    /// Parapet's private area, if there is room for one.
    pub private: Option<FoundPrivate>,
    /// Other notes for people, in sentences.
    pub remarks: Vec<String>,
}

/// A bitmap that was found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FoundBitmap {
    /// Its header, or the error in it.
    pub header: std::result::Result<Bitmap, String>,
    /// How many bits are set.
    pub dirty: u64,
}

/// Examines a whole disk. Writes nothing.
///
/// # Errors
/// The disk cannot be read, or does not answer within [`Bounds::deadline`].
pub fn examine<'a>(disk: &'a dyn Disk, clock: &'a Rc<dyn Clock>) -> Boxed<'a, Result<Examination>> {
    Box::pin(async move {
        let reach = MemberIo::within(Rc::clone(clock), Bounds::default().deadline);
        let unreadable = |why| Error::refused("the disk cannot be read").because(why);
        let bytes = disk.limits().bytes;
        let mut superblocks = Vec::new();
        for trace in probe::traces(&reach, disk).await.map_err(unreadable)?.found {
            superblocks.push(look_closer(&reach, disk, trace).await.map_err(unreadable)?);
        }
        let journal = private::look_at_journal(&reach, disk).await.map_err(unreadable)?;
        let signatures = probe::signatures(&reach, disk).await.map_err(unreadable)?;
        Ok(Examination { bytes, superblocks, journal, signatures })
    })
}

async fn look_closer(
    reach: &MemberIo,
    disk: &dyn Disk,
    trace: probe::Trace,
) -> io::Result<FoundSuperblock> {
    let probe::Trace { format, offset, superblock, bytes } = trace;
    let mut found = FoundSuperblock {
        format,
        offset,
        fields: Vec::new(),
        layout: Err("the superblock is damaged".to_string()),
        map: None,
        bitmap: None,
        bad_blocks: None,
        private: None,
        remarks: Vec::new(),
        superblock,
    };
    let superblock = match &found.superblock {
        Ok(superblock) => superblock,
        Err(_) => {
            if let Ok(raw) = RawSuperblock::new(&bytes) {
                let fields = raw.fields();
                let field = |(field, bytes): (layout::md::Field, &[u8])| {
                    (field.name, field.offset as u64, bytes.to_vec())
                };
                found.fields = fields.map(field).collect();
            }
            return Ok(found);
        }
    };
    found.layout = shape::layout(superblock).map_err(|unknown| unknown.to_string());
    let map = ByteMap::of(superblock, disk.limits().bytes);
    if let Ok(map) = &map {
        found.bitmap = read_bitmap(reach, disk, superblock, map).await?;
        found.bad_blocks = read_bad_blocks(reach, disk, superblock, map).await?;
        if let Some(area) = map.private.clone().filter(|_| format != Format::Md090) {
            found.private = Some(private::look(reach, disk, superblock, &area).await?);
        }
    }
    found.remarks = remarks(superblock, found.bitmap.as_ref());
    found.map = Some(map);
    Ok(found)
}

/// Special features of a member: the reason why its array cannot run, and data kept for other
/// programs.
fn remarks(superblock: &Superblock, bitmap: Option<&FoundBitmap>) -> Vec<String> {
    let mut remarks = Vec::new();
    remarks.extend(shape::not_run(superblock).map(|what| format!("the array {what}")));
    if superblock.features.contains(Features::RESHAPE) {
        let now = i64::from(superblock.raid_disks);
        let before = now - i64::from(superblock.reshape.delta_disks);
        remarks.push(format!("the reshape is one from {before} to {now} slots"));
    }
    if let Some(Err(why)) = bitmap.map(|found| &found.header) {
        remarks.push(format!("the bitmap is not used: {why}"));
    }
    let block = superblock.logical_block_size;
    if block != 0 {
        remarks.push(format!(
            "Linux 6.19 or later has noted blocks of {block} bytes for the array: that is kept, \
             and older kernels refuse it for that"
        ));
    }
    if superblock.device.flags & WRITE_MOSTLY != 0 {
        remarks.push("write-mostly: kept for Linux, and without effect here".to_string());
    }
    if superblock.device.flags & FAIL_FAST != 0 {
        remarks.push("failfast: kept for Linux, and without effect here".to_string());
    }
    remarks
}

async fn read_bitmap(
    reach: &MemberIo,
    disk: &dyn Disk,
    superblock: &Superblock,
    map: &ByteMap,
) -> io::Result<Option<FoundBitmap>> {
    let room = map.bitmap.clone().filter(|_| superblock.features.contains(Features::BITMAP));
    let Some(room) = room else { return Ok(None) };
    let bytes = reach.read(disk, room).await?;
    let found = match Bits::parse(&bytes) {
        Ok(Some(bits)) => FoundBitmap { header: Ok(bits.header().clone()), dirty: bits.count() },
        Ok(None) => FoundBitmap { header: Err("larger than its room".to_string()), dirty: 0 },
        Err(error) => FoundBitmap { header: Err(error.to_string()), dirty: 0 },
    };
    Ok(Some(found))
}

async fn read_bad_blocks(
    reach: &MemberIo,
    disk: &dyn Disk,
    superblock: &Superblock,
    map: &ByteMap,
) -> io::Result<Option<std::result::Result<FoundBadBlocks, String>>> {
    let Some(room) = probe::bad_block_log(superblock, map) else { return Ok(None) };
    let Some(bytes) = probe::list_bytes(reach.read(disk, room).await, superblock)? else {
        return Ok(None);
    };
    let parsed = BadBlocks::parse(&bytes, superblock.bblog.shift);
    let says = superblock.features.contains(Features::BAD_BLOCKS);
    if !says && parsed.as_ref().is_ok_and(|found| found.blocks.is_empty()) {
        return Ok(None);
    }
    Ok(Some(parsed.map_err(|error| error.to_string())))
}
