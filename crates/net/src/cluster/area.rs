//! A member's disk.
//!
//! ```text
//!   0        label: array, slot, disk, shape       one block, written last by a format
//!   1 MiB    header slot 0                         epoch, term, fences, grant log
//!   4 MiB    header slot 1                         written by turns
//!   7 MiB    append area                           grant log since the last header
//!   8 MiB    fragment journal                      sectors that are being overwritten
//!   12 MiB   data                                  piece of block b at b × piece bytes
//! ```
//!
//! A disk with a label but without a valid header is refused: a member that forgot its epoch and
//! its fences would let evicted clients in.
//!
//! Owns these places. The bytes of label and header are frames of `cluster`, with a checksum each.

use std::rc::Rc;

use cluster::ids::MemberId;
use cluster::member::Header;
use cluster::room;
use cluster::session::Label;
use cluster::wire;
use io::{Boxed, Disk, Error, ErrorKind, Op, Part, Pool, Result, Work};

/// Unit of label and header writes; a multiple of every logical block.
pub(super) const BLOCK_BYTES: usize = 4096;
/// Bytes at the start that are a label or zeros.
const BEGINNING_BYTES: usize = 1 << 20;
/// Where the header slots are.
const SLOTS_AT: [u64; 2] = [1 << 20, 4 << 20];
/// Where the append area is, and its bytes.
const AREA_AT: u64 = 7 << 20;
const AREA_BYTES: usize = 1 << 20;
/// Most bytes of a header.
pub const SLOT_BYTES: usize = room::HEADER_BYTES;
/// Where the fragment journal is.
const JOURNAL_AT: u64 = 8 << 20;
/// Where the data is.
pub const DATA_AT: u64 = 12 << 20;
/// Bytes that one operation of a format zeroes.
const ZERO_BYTES: u64 = 1 << 30;
/// Unit of pieces.
const PIECE_UNIT: u32 = 512;

/// Bytes for data on a disk of this size.
pub fn data_bytes(disk: &dyn Disk) -> u64 {
    disk.limits().bytes.saturating_sub(DATA_AT)
}

/// The journal and the data of a member's disk.
///
/// # Errors
/// `Refused` if the disk has no room for them.
pub fn parts(disk: &Rc<dyn Disk>) -> Result<(Part, Part)> {
    let part = |bytes| Part::new(Rc::clone(disk), bytes);
    part(JOURNAL_AT..DATA_AT).zip(part(DATA_AT..disk.limits().bytes)).ok_or_else(no_room)
}

fn no_room() -> Error {
    Error::refused("the disk has no room for a member")
}

/// Reads bytes into memory of their own.
pub(super) async fn read(disk: &dyn Disk, at: u64, bytes: usize) -> Result<Vec<u8>> {
    let done = disk.submit(Op::read(at, Pool::new(0).take(bytes))).await;
    done.result.clone()?;
    Ok(done.into_buf().to_vec())
}

/// Writes whole blocks, durably.
async fn write(disk: &dyn Disk, at: u64, bytes: &[u8]) -> Result<()> {
    let mut buf = Pool::new(0).take_zeroed(bytes.len().next_multiple_of(BLOCK_BYTES));
    buf[..bytes.len()].copy_from_slice(bytes);
    disk.submit(Op::write(at, buf.freeze()).with_fua()).await.result?;
    disk.submit(Op::flush()).await.result
}

/// The label; `None` if the disk starts with zeros. The program looks for signatures elsewhere.
///
/// # Errors
/// `Refused` if the disk holds anything else, also a damaged label; else the disk's.
pub fn label<'a>(disk: &'a dyn Disk) -> Boxed<'a, Result<Option<Label>>> {
    Box::pin(async move {
        if disk.limits().bytes < DATA_AT {
            return Err(no_room());
        }
        let beginning = read(disk, 0, BEGINNING_BYTES).await?;
        match wire::decode(&beginning) {
            Ok((label, _)) => Ok(Some(label)),
            Err(_) if beginning.iter().all(|&byte| byte == 0) => Ok(None),
            Err(_) => Err(Error::refused("the disk holds other data")),
        }
    })
}

/// The content of both header slots.
///
/// # Errors
/// If the disk cannot be read, or no slot is valid.
pub fn slots<'a>(disk: &'a dyn Disk) -> Boxed<'a, Result<[Vec<u8>; 2]>> {
    Box::pin(async move {
        let mut slots = [Vec::new(), Vec::new()];
        for (slot, at) in slots.iter_mut().zip(SLOTS_AT) {
            let head = read(disk, at, BLOCK_BYTES).await?;
            let length = wire::frame_bytes(&head).ok().flatten().filter(|&it| it <= SLOT_BYTES);
            if let Some(length) = length {
                *slot = read(disk, at, length.next_multiple_of(BLOCK_BYTES)).await?;
            }
        }
        if slots.iter().all(|slot| wire::decode::<Header>(slot).is_err()) {
            let context = "the member has a label, but both copies of its header are damaged";
            return Err(Error::refused(context));
        }
        Ok(slots)
    })
}

/// The append area.
///
/// # Errors
/// If the disk cannot be read.
pub fn entries<'a>(disk: &'a dyn Disk) -> Boxed<'a, Result<Vec<u8>>> {
    Box::pin(async move { read(disk, AREA_AT, AREA_BYTES).await })
}

/// Writes an entry to this byte of the append area, durably.
///
/// # Errors
/// The disk's.
pub fn append<'a>(disk: &'a dyn Disk, at: usize, entry: &'a [u8]) -> Boxed<'a, Result<()>> {
    Box::pin(async move { write(disk, AREA_AT + at as u64, entry).await })
}

/// Writes a header to a slot, durably.
///
/// # Errors
/// `NoSpace` if it is too long; else the disk's.
pub fn store<'a>(disk: &'a dyn Disk, slot: usize, header: &'a [u8]) -> Boxed<'a, Result<()>> {
    Box::pin(async move {
        if header.len() > SLOT_BYTES {
            let context = format!("header of {} bytes, at most {SLOT_BYTES}", header.len());
            return Err(Error::new(ErrorKind::NoSpace, context));
        }
        write(disk, SLOTS_AT[slot], header).await
    })
}

/// True if the label fits this disk.
fn fits(disk: &dyn Disk, label: &Label) -> bool {
    let shape = &label.shape;
    let blocks = u64::from(shape.regions) * u64::from(shape.region_blocks);
    let bytes = blocks.checked_mul(u64::from(shape.piece_bytes));
    let whole = shape.piece_bytes > 0 && shape.piece_bytes.is_multiple_of(PIECE_UNIT);
    let slot = label.member < MemberId(label.members);
    let known = room::fits(shape, usize::from(label.members));
    slot && whole && known && bytes.is_some_and(|bytes| bytes > 0 && bytes <= data_bytes(disk))
}

/// Makes the disk a member: zeros, a fresh header, then the label. All members of a new array are
/// zeros, so they match.
///
/// # Errors
/// `Refused` if the label does not fit the disk; else the disk's.
pub fn format<'a>(disk: &'a dyn Disk, label: &'a Label) -> Boxed<'a, Result<()>> {
    Box::pin(async move {
        let bytes = wire::encode(label);
        if !fits(disk, label) || bytes.len() > BLOCK_BYTES {
            return Err(Error::refused("the disk is too small"));
        }
        let end = disk.limits().bytes;
        let mut at = 0;
        while at < end {
            let len = ZERO_BYTES.min(end - at);
            disk.submit(Op::new(at, Work::Zero { len, unmap: true, fast: false })).await.result?;
            at += len;
        }
        disk.submit(Op::flush()).await.result?;
        store(disk, 1, &wire::encode(&Header::fresh(label.disk))).await?;
        write(disk, 0, &bytes).await
    })
}
