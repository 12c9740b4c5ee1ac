//! The capabilities of a file or device, queried from the kernel once, at open.
//!
//! Sources: `BLKGETSIZE64`, `BLKSSZGET`, `BLKPBSZGET` of `linux/fs.h`; `statx(2)` with
//! `STATX_DIOALIGN` (Linux 6.1); the queue's attributes in `/sys/dev/block/MAJOR:MINOR/queue`
//! (Documentation/ABI/stable/ sysfs-block). Never writes to the medium.

use std::fs;
use std::io::IoSliceMut;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

use io::{Limits, Pool, ZeroSupport};
use rustix::fs::{
    AtFlags, FallocateFlags, StatxFlags, fallocate, ioctl_blkpbszget, ioctl_blksszget, major,
    minor, statx,
};
use rustix::io::Result;
use rustix::ioctl::{Getter, Setter, ioctl, opcode};

use super::file::{Access, Zeroing};

/// The result of [`file()`] and [`device()`].
pub(super) struct Found {
    pub(super) limits: Limits,
    pub(super) mem_align: usize,
    pub(super) zeroing: Zeroing,
}

/// Size of a block device; 0 once it is unplugged.
pub(super) fn device_bytes(fd: impl AsFd) -> Result<u64> {
    const BLKGETSIZE64: u32 = opcode::read::<usize>(0x12, 114) as u32;
    // SAFETY: this call writes one u64.
    unsafe { ioctl(fd, Getter::<BLKGETSIZE64, u64>::new()) }
}

/// Discards these bytes of a block device. Blocks until done.
pub(super) fn discard(fd: impl AsFd, offset: u64, len: u64) -> Result<()> {
    const BLKDISCARD: u32 = opcode::none(0x12, 119) as u32;
    // SAFETY: this call reads two u64: start and length in bytes.
    unsafe { ioctl(fd, Setter::<BLKDISCARD, [u64; 2]>::new([offset, len])) }
}

/// A block device's limits.
pub(super) fn device(fd: BorrowedFd<'_>, rdev: u64, access: Access) -> Result<Found> {
    let logical_block = ioctl_blksszget(fd)?;
    let physical_block = ioctl_blkpbszget(fd)?.max(logical_block);
    let queue = Queue::of(rdev);
    let zeroes = queue.number("write_zeroes_max_bytes").unwrap_or(0) > 0;
    let limits = Limits {
        logical_block,
        physical_block,
        atomic_write: logical_block,
        optimal: optimal(queue.number("optimal_io_size"), physical_block),
        zero: if zeroes { ZeroSupport::Fast } else { ZeroSupport::Written },
        discard: queue.number("discard_max_bytes").unwrap_or(0) > 0,
        rotational: queue.number("rotational") == Some(1),
        volatile: is_volatile(access, queue.text("write_cache").as_deref()),
        ..Limits::plain(device_bytes(fd)? / u64::from(logical_block) * u64::from(logical_block))
    };
    let mem_align = match access {
        Access::Direct => dio_align(fd).map_or(logical_block, |(mem, _)| mem) as usize,
        _ => 1,
    };
    Ok(Found { limits, mem_align, zeroing: Zeroing { punch: zeroes, range: zeroes } })
}

/// True if a device with this queue cache loses unflushed writes.
fn is_volatile(access: Access, write_cache: Option<&str>) -> bool {
    // The page cache is one whatever the device has. Without an answer a flush too many is the
    // safe side.
    access != Access::Direct || write_cache != Some("write through")
}

/// A file's limits.
pub(super) fn file(fd: BorrowedFd<'_>, access: Access, read_only: bool) -> Result<Found> {
    let stat = rustix::fs::fstat(fd)?;
    let bytes = u64::try_from(stat.st_size).unwrap_or(0);
    let (mem_align, logical_block) = match access {
        Access::Direct => dio_align(fd).unwrap_or_else(|| tried_align(fd, bytes)),
        _ => (1, 512),
    };
    let block = u32::try_from(stat.st_blksize).unwrap_or(4096);
    // There is no harmless try at ZERO_RANGE. Where it is missing, zeros get written all the same.
    let punch = !read_only && can_punch(fd, bytes);
    let zeroing = Zeroing { punch, range: punch && access != Access::Memory };
    let limits = Limits {
        logical_block,
        physical_block: if block.is_power_of_two() { block.max(logical_block) } else { 4096 },
        atomic_write: logical_block,
        zero: if punch { ZeroSupport::Fast } else { ZeroSupport::Written },
        discard: punch,
        discard_zeroes: punch,
        rotational: access != Access::Memory
            && Queue::of(stat.st_dev).number("rotational") == Some(1),
        // A file with all its blocks needs no more.
        store: if stat.st_blocks as u64 * 512 < bytes { stat.st_dev } else { 0 },
        ..Limits::plain(bytes / u64::from(logical_block) * u64::from(logical_block))
    };
    Ok(Found { limits, mem_align: mem_align as usize, zeroing })
}

/// Multiples that O_DIRECT wants: of addresses, of offsets and lengths. None where the kernel does
/// not say; `(_, 0)` would be "no direct access", which [`super::open`] has ruled out.
fn dio_align(fd: BorrowedFd<'_>) -> Option<(u32, u32)> {
    let wanted = StatxFlags::DIOALIGN;
    let stat = statx(fd, c"", AtFlags::EMPTY_PATH, wanted).ok()?;
    let known = StatxFlags::from_bits_retain(stat.stx_mask).contains(wanted);
    let (mem, offset) = (stat.stx_dio_mem_align, stat.stx_dio_offset_align);
    let sane = mem.is_power_of_two() && offset.is_power_of_two() && offset >= 512;
    (known && sane).then_some((mem, offset))
}

/// True if the kernel says that direct access is not possible here.
pub(super) fn denies_direct(fd: BorrowedFd<'_>) -> bool {
    let wanted = StatxFlags::DIOALIGN;
    statx(fd, c"", AtFlags::EMPTY_PATH, wanted).is_ok_and(|stat| {
        StatxFlags::from_bits_retain(stat.stx_mask).contains(wanted)
            && stat.stx_dio_offset_align == 0
    })
}

/// Where the kernel does not say: does a direct read of 512 bytes work?
fn tried_align(fd: BorrowedFd<'_>, bytes: u64) -> (u32, u32) {
    let mut buf = Pool::new(0).take(4096);
    let works = bytes >= 1024
        && rustix::io::preadv(fd, &mut [IoSliceMut::new(&mut buf[..512])], 512).is_ok();
    if works { (512, 512) } else { (4096, 4096) }
}

/// Tries to punch a hole behind the file's end, where it changes nothing. On any error the function
/// is not offered.
fn can_punch(fd: BorrowedFd<'_>, bytes: u64) -> bool {
    let mode = FallocateFlags::KEEP_SIZE | FallocateFlags::PUNCH_HOLE;
    fallocate(fd, mode, bytes.next_multiple_of(1 << 20), 4096).is_ok()
}

fn optimal(bytes: Option<u64>, physical_block: u32) -> u32 {
    let bytes = bytes.and_then(|bytes| u32::try_from(bytes).ok()).unwrap_or(0);
    bytes.max(physical_block).max(4096)
}

/// The queue attributes of a block device, or of the device that its partition lies on.
pub(super) struct Queue(Option<PathBuf>);

impl Queue {
    pub(super) fn of(dev: u64) -> Queue {
        let link = format!("/sys/dev/block/{}:{}", major(dev), minor(dev));
        let Ok(device) = fs::canonicalize(link) else { return Queue(None) };
        let whole = if device.join("partition").exists() { device.parent() } else { None };
        Queue(Some(whole.unwrap_or(&device).join("queue")))
    }

    fn text(&self, attribute: &str) -> Option<String> {
        attribute_of(self.0.as_deref()?, attribute)
    }

    fn number(&self, attribute: &str) -> Option<u64> {
        self.text(attribute)?.parse().ok()
    }
}

fn attribute_of(directory: &Path, attribute: &str) -> Option<String> {
    Some(fs::read_to_string(directory.join(attribute)).ok()?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_cache_is_volatile_though_the_device_has_no_cache() {
        assert!(!is_volatile(Access::Direct, Some("write through")));
        assert!(is_volatile(Access::Direct, Some("write back")));
        assert!(is_volatile(Access::Direct, None));
        assert!(is_volatile(Access::Buffered, Some("write through")));
    }
}
