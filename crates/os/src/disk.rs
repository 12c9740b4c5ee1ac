//! Files and block devices as disks.
//!
//! ```text
//!    open ─▶ File (descriptor, limits, how it is accessed)         holder   names its holder
//!              │                                                   probe    finds the limits
//!              │                                                   sentinel shows a cut
//!    submit ─▶ Transfer: one operation as a series of requests
//!              ├─▶ psync: the request as a system call, here and now
//!              └─▶ uring: the request in the thread's ring
//! ```
//!
//! How a disk is accessed is decided once, at open (`DESIGN` 10):
//!
//! | disk | reads, writes | flush, zero, discard |
//! |---|---|---|
//! | block device, file: O_DIRECT | ring | ring |
//! | file, buffered | inline; ring for a read that is not in the page cache | ring |
//! | file in memory (tmpfs) | inline | inline |
//! | file on a file system that can hang (FUSE, NFS …) | ring, by its workers | ring |
//! | any of them, without io_uring | inline | inline |
//!
//! An inline request blocks its thread for its duration; so do `BLKDISCARD` on kernels before 6.12,
//! and queries for extents (`lseek`). No file is ever accessed both direct and buffered: that is
//! slow, and incoherent in the page cache's gaps. Superblocks use the same disk as data.
//!
//! Deadlines and classes are ignored: a buffer that the kernel may still write to cannot be
//! returned in time, so the waiter stops waiting.
//!
//! A file that was *cut* while in use is noticed at a read behind its new end, at a write up to its
//! old one, and at each flush, also if it has grown back meanwhile (`sentinel`). From then on
//! writes fail as `Truncated`, since one of them would make the file whole again with zeros in
//! place of data. Reads below the cut still work while the file is short.

mod distant;
mod error;
mod file;
mod holder;
mod open;
mod probe;
mod psync;
mod sentinel;
mod transfer;
mod uring;

use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use io::{Completion, Disk, Done, Limits, Op, Work};

use crate::executor::Spawner;
use file::{Access, File};
use psync::Inline;
use uring::Transfers;

pub use error::{OpenError, OpenErrorKind};
pub use holder::Holder;
pub(crate) use holder::holders_of;

/// Whether a file's bytes go around the page cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Direct {
    /// Wherever the file system can, and for every block device.
    #[default]
    Auto,
    /// Fail at open where it cannot.
    Always,
    /// Through the page cache.
    Never,
}

/// How a disk is opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    /// Around the page cache?
    pub direct: Direct,
    /// Open for reading only; others may then read too.
    pub read_only: bool,
    /// Make a new file of this many bytes, with its space reserved; fail if there is one already.
    pub create_bytes: Option<u64>,
    /// Keep others out: `flock` on files, O_EXCL on block devices.
    pub lock: bool,
}

impl Default for Options {
    /// Read and write an existing file or device, direct where possible, locked.
    fn default() -> Options {
        Options { direct: Direct::Auto, read_only: false, create_bytes: None, lock: true }
    }
}

/// An open file or block device on its way to another thread: see [`FileDisk::share`].
#[derive(Clone)]
pub struct SharedFile(Arc<File>);

impl SharedFile {
    /// Opens the file or block device at `path`, for whichever executor takes it then. Waits for
    /// the file system, however long that takes: see [`aside`](crate::threads::aside()).
    ///
    /// # Errors
    /// As [`FileDisk::open`].
    pub fn open(path: &Path, options: &Options) -> Result<SharedFile, OpenError> {
        Ok(SharedFile(Arc::new(open::open(path, options)?)))
    }
}

/// A file or block device. Belongs to the executor whose [`Spawner`] opened it.
pub struct FileDisk {
    file: Arc<File>,
    inline: Inline,
    transfers: Option<Rc<Transfers>>,
}

impl FileDisk {
    /// Opens the file or block device at `path`.
    ///
    /// # Errors
    /// Names the obstacle and, if possible, the command that removes it: see [`OpenErrorKind`]. A
    /// created file is removed again.
    pub fn open(path: &Path, options: &Options, on: &Spawner) -> Result<Rc<FileDisk>, OpenError> {
        Ok(FileDisk::of(SharedFile::open(path, options)?, on))
    }

    /// The same file, locks and all, for another executor. It is closed when the last one is.
    pub fn share(&self) -> SharedFile {
        SharedFile(Arc::clone(&self.file))
    }

    /// A file that another executor has opened.
    pub fn of(SharedFile(file): SharedFile, on: &Spawner) -> Rc<FileDisk> {
        let ring = on.reactor().ring().filter(|_| file.access != Access::Memory);
        let transfers = ring.map(|ring| Transfers::new(&file, ring));
        Rc::new(FileDisk { file, inline: Inline::default(), transfers })
    }

    /// Where it was opened.
    pub fn path(&self) -> &Path {
        &self.file.path
    }

    /// Its identity, whatever paths lead to it: a device's number and 0, or the numbers of a file's
    /// file system and inode.
    pub fn identity(&self) -> (u64, u64) {
        self.file.identity
    }

    /// True if bytes go around the page cache.
    pub fn is_direct(&self) -> bool {
        self.file.access == Access::Direct
    }

    /// True if it is a block device.
    pub fn is_device(&self) -> bool {
        self.file.device
    }

    /// The name of the file's file system, if a hang of that one would hang this thread: it may
    /// never answer, and there is no ring to wait for it.
    pub fn can_freeze(&self) -> Option<&'static str> {
        self.file.distant.filter(|_| self.transfers.is_none())
    }

    /// Checks a file on a file system that can hang, without waiting for the answer:
    /// [`FileDisk::is_gone`] and [`FileDisk::is_deleted`] report the results of such checks. No
    /// effect on other files.
    pub fn look(&self) {
        if self.file.distant.is_some()
            && let Some(transfers) = self.transfers.as_ref().filter(|ring| ring.is_open())
        {
            transfers.look();
        }
    }

    /// True if the file was cut, or the device is unplugged: bytes are lost. Costs one system call.
    pub fn is_gone(&self) -> bool {
        self.file.is_gone()
    }

    /// True if the file has lost its last name. Costs one system call. A deleted file works as
    /// before until it is closed; only then its bytes are lost.
    pub fn is_deleted(&self) -> bool {
        self.file.is_deleted()
    }

    /// The ring for this operation, if it goes there.
    fn ring_for(&self, op: &Op) -> Option<&Rc<Transfers>> {
        let transfers = self.transfers.as_ref().filter(|transfers| transfers.is_open())?;
        match (self.file.access, &op.work) {
            (_, Work::Extents { .. }) => None,
            _ if self.file.distant.is_some() => Some(transfers),
            (Access::Buffered, Work::Write(_)) => None,
            _ => Some(transfers),
        }
    }
}

impl Disk for FileDisk {
    fn submit(&self, mut op: Op) -> Completion<Done> {
        if let Some(error) = self.file.refuses(&op) {
            return Completion::ready(Done::failed(op.work, error));
        }
        if op.work.is_empty() && !matches!(op.work, Work::Flush) {
            return Completion::ready(Done::ok(op.work));
        }
        let Some(transfers) = self.ring_for(&op) else {
            return Completion::ready(self.inline.run(&self.file, op));
        };
        if let (Access::Buffered, Work::Read(bufs)) = (self.file.access, &mut op.work)
            && self.file.distant.is_none()
            && self.inline.read_cached(&self.file, bufs, op.offset)
        {
            return Completion::ready(Done::ok(op.work));
        }
        transfers.begin(op)
    }

    fn limits(&self) -> Limits {
        self.file.limits
    }
}
