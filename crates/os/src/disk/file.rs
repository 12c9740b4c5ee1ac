//! An open file or device: the facts that every access method needs, and the meaning of its errors.
//!
//! Never moves data. Invariant: `access`, `limits` and `mem_align` are fixed at open; `bytes_left`
//! only shrinks. Threads may share it: each has its own way of asking the kernel.

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use io::{Error, ErrorKind, Limits, Op, Pool, Work};
use rustix::fs::{FlockOperation, flock, fstat};
use rustix::io::Errno;

use super::sentinel::Sentinel;
use super::{distant, probe};

/// How bytes get to the medium.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Access {
    /// Around the page cache.
    Direct,
    /// Through the page cache.
    Buffered,
    /// The page cache is all there is (tmpfs).
    Memory,
}

/// Which ways of zeroing are faster than writing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Zeroing {
    /// By giving the space back.
    pub(super) punch: bool,
    /// With the space kept.
    pub(super) range: bool,
}

/// See the module.
pub(super) struct File {
    /// There until the file is dropped.
    pub(super) open: Option<OwnedFd>,
    pub(super) path: PathBuf,
    /// See [`FileDisk::identity`](super::FileDisk::identity).
    pub(super) identity: (u64, u64),
    pub(super) device: bool,
    /// True if it holds a lock of its own.
    pub(super) locked: bool,
    pub(super) access: Access,
    /// The file system's name, if its answers may never come: see [`distant`].
    pub(super) distant: Option<&'static str>,
    pub(super) limits: Limits,
    /// The required alignment of a buffer's address; 1 unless direct.
    pub(super) mem_align: usize,
    /// The functions of `fallocate` available here.
    pub(super) zeroing: Zeroing,
    /// Memory for aligned copies, and for written zeros.
    pub(super) pool: Pool,
    /// `limits.bytes`, or less once the file was seen to be cut.
    pub(super) bytes_left: AtomicU64,
    /// Shows a cut of a local file that is in use, whatever its size.
    pub(super) sentinel: Option<Sentinel>,
    /// True once a sync through the page cache has failed.
    pub(super) unsynced: AtomicBool,
    /// True once a distant file was seen to have lost its last name.
    pub(super) deleted: AtomicBool,
    /// True while a check of a distant file is in flight.
    pub(super) looking: AtomicBool,
    /// Begins and ends of writes that were plain system calls.
    pub(super) changes: AtomicU64,
}

impl File {
    /// Its descriptor.
    pub(super) fn fd(&self) -> &OwnedFd {
        self.open.as_ref().expect("it is closed only when the file is dropped")
    }

    /// Counts the begin or the end of a write.
    pub(super) fn count_change(&self, is_write: bool) {
        if is_write {
            self.changes.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Changes with every write that is a plain system call, on whichever thread.
    pub(super) fn changes(&self) -> u64 {
        self.changes.load(Ordering::SeqCst)
    }

    /// Why this operation cannot be tried, if so: every disk asks this first.
    pub(super) fn refuses(&self, op: &Op) -> Option<Error> {
        if let Some(fault) = self.limits.check(op) {
            let context = format!("{}, offset {}: {fault}", self.path.display(), op.offset);
            return Some(Error::refused(context));
        }
        if let Work::Zero { unmap, fast: true, .. } = op.work
            && !(unmap && self.zeroing.punch || self.zeroing.range)
        {
            return Some(self.not_fast());
        }
        let left = self.bytes_left();
        if left == self.limits.bytes {
            return None;
        }
        let reads = matches!(op.work, Work::Read(_) | Work::Extents { .. });
        if !reads {
            return Some(self.cut());
        }
        let end = op.offset + op.work.len();
        let offset = op.offset.max(left);
        (end > left).then(|| self.unreadable(offset, end - offset))
    }

    /// The answer to a zeroing that was to be fast.
    pub(super) fn not_fast(&self) -> Error {
        let path = self.path.display();
        Error::refused(format!("{path}: zeroing would be no faster than writing"))
    }

    /// The meaning of this errno for `len` bytes at `offset`.
    pub(super) fn fault(&self, errno: i32, offset: u64, len: u64) -> Error {
        let kind = match errno {
            libc::ENOSPC | libc::EDQUOT | libc::EFBIG => ErrorKind::NoSpace,
            libc::ENODEV | libc::ENXIO | libc::ESTALE | libc::ENOMEDIUM => ErrorKind::Gone,
            libc::ENOLINK | libc::ENOTCONN | libc::ESHUTDOWN | libc::ECANCELED => ErrorKind::Gone,
            libc::ETIMEDOUT => ErrorKind::Timeout,
            libc::EINVAL | libc::EOPNOTSUPP | libc::EPERM | libc::EBADF | libc::EROFS => {
                ErrorKind::Refused
            }
            _ if self.is_unplugged() => ErrorKind::Gone,
            _ => ErrorKind::Medium { offset, len },
        };
        let context = format!("{}, offset {offset}", self.path.display());
        Error::new(kind, context).with_source(std::io::Error::from_raw_os_error(errno))
    }

    /// The file ended before byte `offset + len`: why?
    pub(super) fn ended_at(&self, offset: u64, len: u64) -> Error {
        // The kernel has just said where it ends at most.
        if self.distant.is_some() {
            self.bytes_left.fetch_min(offset, Ordering::Relaxed);
        } else {
            self.measure();
        }
        if self.is_unplugged() {
            return Error::new(ErrorKind::Gone, self.path.display().to_string());
        }
        self.unreadable(offset, len)
    }

    /// Checks whether the file has its old length; an error if not. For a distant file it uses the
    /// result of the last check.
    pub(super) fn whole(&self) -> Result<(), Error> {
        if self.distant.is_none() {
            self.measure();
        }
        if self.bytes_left() == self.limits.bytes { Ok(()) } else { Err(self.cut()) }
    }

    /// A write up to `end` has succeeded. If it gave a file that was cut its old size again, no
    /// look at the size shows that later.
    pub(super) fn written(&self, end: u64) -> Result<(), Error> {
        if end == self.limits.bytes && self.sentinel.is_some() { self.whole() } else { Ok(()) }
    }

    /// A sync or a durable write has failed. The kernel reports each page that it could not write
    /// to one caller only, and then counts the page as written: so no later sync is meaningful.
    /// With O_DIRECT an error concerns its request alone.
    pub(super) fn sync_failed(&self) {
        if self.access == Access::Buffered {
            self.unsynced.store(true, Ordering::Relaxed);
        }
    }

    /// A sync has succeeded: is all durable that was written? As [`File::whole`] besides.
    pub(super) fn synced(&self) -> Result<(), Error> {
        if self.unsynced.load(Ordering::Relaxed) {
            let context = format!("{}: a sync has failed before", self.path.display());
            return Err(Error::new(ErrorKind::Medium { offset: 0, len: 0 }, context));
        }
        self.whole()
    }

    /// See [`FileDisk::is_gone`](super::FileDisk::is_gone).
    pub(super) fn is_gone(&self) -> bool {
        if self.device { self.is_unplugged() } else { self.whole().is_err() }
    }

    /// See [`FileDisk::is_deleted`](super::FileDisk::is_deleted).
    pub(super) fn is_deleted(&self) -> bool {
        if self.distant.is_some() {
            return self.deleted.load(Ordering::Relaxed);
        }
        !self.device && fstat(self.fd()).is_ok_and(|stat| stat.st_nlink == 0)
    }

    /// Stores the result of a check.
    pub(super) fn store_stat(&self, stat: &libc::statx) {
        if stat.stx_mask & libc::STATX_SIZE != 0 {
            self.bytes_left.fetch_min(stat.stx_size, Ordering::Relaxed);
        }
        if stat.stx_mask & libc::STATX_NLINK != 0 {
            self.deleted.store(stat.stx_nlink == 0, Ordering::Relaxed);
        }
    }

    /// True if the device behind the descriptor has left: the kernel then shows a size of 0.
    fn is_unplugged(&self) -> bool {
        self.device && probe::device_bytes(self.fd()).is_ok_and(|bytes| bytes == 0)
    }

    fn bytes_left(&self) -> u64 {
        self.bytes_left.load(Ordering::Relaxed)
    }

    fn measure(&self) {
        let bytes = match (self.device, fstat(self.fd())) {
            (false, Ok(stat)) => u64::try_from(stat.st_size).unwrap_or(0),
            (false, Err(_)) => return,
            (true, _) => match probe::device_bytes(self.fd()) {
                Ok(bytes) => bytes,
                Err(_) => return,
            },
        };
        self.bytes_left.fetch_min(bytes, Ordering::Relaxed);
        if self.sentinel.as_ref().is_some_and(|sentinel| !sentinel.is_there())
            && self.bytes_left() == self.limits.bytes
        {
            // It grew back; where it had been cut is unknown.
            self.bytes_left.store(0, Ordering::Relaxed);
        }
    }

    fn unreadable(&self, offset: u64, len: u64) -> Error {
        let context = format!("{}: cut to {} bytes", self.path.display(), self.bytes_left());
        Error::new(ErrorKind::Medium { offset, len }, context)
    }

    fn cut(&self) -> Error {
        let path = self.path.display();
        let context = format!("{path}: cut to {} bytes while in use", self.bytes_left());
        let kind = if self.device { ErrorKind::Gone } else { ErrorKind::Truncated };
        Error::new(kind, context)
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let Some(fd) = self.open.take() else { return };
        let locked = self.locked;
        // Closing is not enough: a child that is just being started shares the descriptor until
        // it has become another program. The lock was taken on this descriptor, so it can be
        // let go.
        let unlock = move |fd: &OwnedFd| {
            if locked {
                let _ = flock(fd, FlockOperation::Unlock);
            }
        };
        match self.distant {
            Some(_) => distant::abandon(fd, unlock),
            None => unlock(&fd),
        }
    }
}

/// An errno as the ring reports it.
pub(super) fn negative(errno: Errno) -> i32 {
    -errno.raw_os_error()
}
