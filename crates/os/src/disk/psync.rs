//! Requests as plain system calls, here and now.
//!
//! The quickest way where the answer is a copy from memory: 1.2 µs for 4 KiB of tmpfs, where
//! io_uring takes 3 to 7 because it hands such requests to worker threads. Never waits for a
//! completion.

use std::cell::Cell;
use std::io::{IoSlice, IoSliceMut};

use io::{Buf, Done, Extent, ExtentKind, Op, Work};
use rustix::fs::{SeekFrom, fallocate, fdatasync, fstat, seek};
use rustix::io::{Errno, ReadWriteFlags};

use super::file::{Access, File, negative};
use super::probe;
use super::transfer::{Request, Transfer};

/// The most extents of one answer: one system call each.
const EXTENTS: usize = 256;

/// See the module. Owns the room for slices, so that an operation allocates nothing.
#[derive(Default)]
pub(super) struct Inline {
    iov: Cell<Vec<libc::iovec>>,
    stretch: Cell<Option<Stretch>>,
}

/// The kernel's last answer about the bytes around an offset: all data, or all a hole.
///
/// tmpfs inspects every page to find the end of a hole with reserved space, which takes
/// milliseconds for 100 MiB. A caller that queries a file piece by piece would pay that for each
/// piece.
#[derive(Clone, Copy)]
struct Stretch {
    start: u64,
    end: u64,
    kind: ExtentKind,
    /// [`File::changes`] before the kernel was asked.
    changes: u64,
}

impl Inline {
    /// Does the whole operation.
    pub(super) fn run(&self, file: &File, mut op: Op) -> Done {
        if let Work::Extents { len, found } = &mut op.work {
            let fault = |errno: Errno| file.fault(errno.raw_os_error(), op.offset, *len);
            let listed = self.extents(file, op.offset, *len, found).map_err(fault);
            return Done { result: listed.and_then(|()| file.whole()), work: op.work };
        }
        // A hole that is seen between the two is not remembered beyond the second.
        let changes = op.work.is_write();
        file.count_change(changes);
        let mut transfer = Transfer::new(file, op, self.iov.take());
        let result = loop {
            let answer = perform(file, &mut transfer.next(file));
            if let Some(result) = transfer.advance(file, answer) {
                break result;
            }
        };
        file.count_change(changes);
        let (work, iov) = transfer.into_parts();
        self.iov.set(iov);
        Done { work, result }
    }

    /// Fills the buffers from the page cache; false if any byte is not there.
    pub(super) fn read_cached(&self, file: &File, bufs: &mut [Buf], offset: u64) -> bool {
        const FEW: usize = 16;
        if bufs.len() > FEW {
            return false;
        }
        let len: usize = bufs.iter().map(|buf| buf.len()).sum();
        let mut bufs = bufs.iter_mut();
        let mut slices: [IoSliceMut<'_>; FEW] =
            std::array::from_fn(|_| IoSliceMut::new(bufs.next().map_or(&mut [], |buf| buf)));
        let flags = ReadWriteFlags::NOWAIT;
        rustix::io::preadv2(file.fd(), &mut slices, offset, flags).is_ok_and(|read| read == len)
    }

    /// The file's data ranges, by `SEEK_DATA` and `SEEK_HOLE`. If the file system does not support
    /// that, all of it is data; a distant one is not queried. Reserved, never written space counts
    /// as a hole.
    fn extents(
        &self,
        file: &File,
        offset: u64,
        len: u64,
        found: &mut Vec<Extent>,
    ) -> Result<(), Errno> {
        found.clear();
        let end = offset + len;
        if file.device || file.distant.is_some() {
            found.push(Extent { len, kind: ExtentKind::Data });
            return Ok(());
        }
        // A block that is partly data is data.
        let block = u64::from(file.limits.logical_block);
        let mut at = offset;
        while at < end && found.len() < EXTENTS {
            let here = self.stretch_at(file, at)?;
            let data = if here.kind == ExtentKind::Data { at } else { here.end };
            let start = (data / block * block).clamp(at, end);
            if start > at {
                found.push(Extent { len: start - at, kind: ExtentKind::Hole });
                at = start;
                continue;
            }
            let hole = self.stretch_at(file, data)?.end;
            let stop = hole.next_multiple_of(block).clamp(at, end);
            match found.last_mut() {
                Some(last) if last.kind == ExtentKind::Data => last.len += stop - at,
                _ => found.push(Extent { len: stop - at, kind: ExtentKind::Data }),
            }
            at = stop;
        }
        Ok(())
    }

    /// The stretch of data, or the hole, from this byte on.
    fn stretch_at(&self, file: &File, at: u64) -> Result<Stretch, Errno> {
        let changes = file.changes();
        let known = self.stretch.get().filter(|known| {
            // Elsewhere writes come back later, through the ring.
            let is_current = file.access == Access::Memory && known.changes == changes;
            is_current && (known.start..known.end).contains(&at)
        });
        if let Some(known) = known {
            return Ok(known);
        }
        let data = match seek(file.fd(), SeekFrom::Data(at)) {
            Err(Errno::NXIO) => u64::MAX,
            answer => answer?,
        };
        let (kind, end) = if data > at {
            (ExtentKind::Hole, data)
        } else {
            (ExtentKind::Data, seek(file.fd(), SeekFrom::Hole(at))?)
        };
        let found = Stretch { start: at, end, kind, changes };
        self.stretch.set(Some(found));
        Ok(found)
    }
}

/// Asks the kernel; answers as the ring does: a count, or a negative errno.
pub(super) fn perform(file: &File, request: &mut Request<'_>) -> i32 {
    let answer = match *request {
        Request::Read { iov, offset } => {
            // SAFETY: the transfer owns this memory exclusively, and it is used until the call is
            // over; IoSliceMut has the layout of iovec.
            let slices = unsafe {
                let start = iov.as_ptr().cast_mut().cast::<IoSliceMut<'_>>();
                std::slice::from_raw_parts_mut(start, iov.len())
            };
            match slices {
                [one] => rustix::io::pread(file.fd(), &mut one[..], offset),
                many => rustix::io::preadv(file.fd(), many, offset),
            }
        }
        Request::Write { iov, offset, durable } => {
            // SAFETY: the transfer owns this memory and nothing writes to it; IoSlice has the
            // layout of iovec.
            let slices = unsafe {
                std::slice::from_raw_parts(iov.as_ptr().cast::<IoSlice<'_>>(), iov.len())
            };
            match slices {
                _ if durable => {
                    let flags = ReadWriteFlags::DSYNC;
                    rustix::io::pwritev2(file.fd(), slices, offset, flags)
                }
                [one] => rustix::io::pwrite(file.fd(), one, offset),
                many => rustix::io::pwritev(file.fd(), many, offset),
            }
        }
        Request::Sync if file.access == Access::Memory => Ok(0),
        Request::Stat(ref mut stat) => measure(file, stat),
        Request::Sync => fdatasync(file.fd()).map(|()| 0),
        Request::Allocate { mode, offset, len } => {
            fallocate(file.fd(), mode, offset, len).map(|()| 0)
        }
        Request::Trim { offset, len } => probe::discard(file.fd(), offset, len).map(|()| 0),
    };
    match answer {
        // The kernel moves at most 2 GiB - 4 KiB at once.
        Ok(count) => i32::try_from(count).unwrap_or(i32::MAX),
        Err(errno) => negative(errno),
    }
}

/// A look at the file.
fn measure(file: &File, stat: &mut libc::statx) -> Result<usize, Errno> {
    let found = fstat(file.fd())?;
    stat.stx_size = u64::try_from(found.st_size).unwrap_or(0);
    stat.stx_nlink = u32::try_from(found.st_nlink).unwrap_or(u32::MAX);
    stat.stx_mask = libc::STATX_SIZE | libc::STATX_NLINK;
    Ok(0)
}
