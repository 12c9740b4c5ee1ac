//! `/dev/fuse`: a file of the kernel whose requests this process answers.
//!
//! A request is read with two pieces: its head, and aligned memory for the data of a write. Small
//! data is copied to memory of its size, so that it does not hold the longest request's.

use std::cell::RefCell;
use std::ffi::CString;
use std::io::{Error, ErrorKind, IoSlice, IoSliceMut, Result};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::task::{Context, Poll};

use io::channel::{Channel, REQUEST_HEAD_BYTES, Request};
use io::{Buf, Pool};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

use crate::executor::Spawner;
use crate::reactor::source::{Direction, Watched};

/// The most data of a write, which the protocol agrees on.
const MAX_DATA_BYTES: usize = 1 << 20;
/// Data of up to this many bytes is copied.
const COPIED_BYTES: usize = 128 << 10;
/// The most requests that are received before the first is worked on.
const BATCH: usize = 32;
/// Data of a batch after which it ends.
const BATCH_BYTES: usize = 2 << 20;

/// A file system of one file, mounted over a file. Dropping it unmounts it.
pub struct FuseMount {
    watched: Watched,
    at: PathBuf,
    pool: Pool,
    /// Memory for the data of the next request.
    spare: RefCell<Option<Buf>>,
}

impl FuseMount {
    /// Mounts over the file `at`. Data of writes comes into memory of `pool`. The caller must
    /// answer the requests from now on.
    ///
    /// # Errors
    /// `NotFound` if the kernel has no FUSE, `PermissionDenied` without CAP_SYS_ADMIN, and what
    /// mount(2) says.
    pub fn new(at: &Path, read_only: bool, pool: Pool, on: &Spawner) -> Result<FuseMount> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let fd = rustix::fs::open("/dev/fuse", flags, Mode::empty())?;
        // A regular file of root.
        let options = format!(
            "fd={},rootmode=100600,user_id=0,group_id=0,allow_other,max_read={MAX_DATA_BYTES}",
            fd.as_raw_fd()
        );
        let options = CString::new(options).map_err(|_| Error::from(ErrorKind::InvalidInput))?;
        let mut flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
        flags.set(MountFlags::RDONLY, read_only);
        mount("parapet", at, "fuse.parapet", flags, Some(options.as_c_str()))?;
        let (at, spare) = (at.to_owned(), RefCell::default());
        let watched = match Watched::new(fd, on.reactor()) {
            Ok(watched) => watched,
            Err(error) => {
                let _ = unmount(&at, UnmountFlags::DETACH);
                return Err(error);
            }
        };
        Ok(FuseMount { watched, at, pool, spare })
    }

    /// Unmounts the file. Requests end, and the channel with them, when it is not open any more.
    ///
    /// # Errors
    /// What umount2(2) says.
    pub fn unmount(&self) -> Result<()> {
        Ok(unmount(&self.at, UnmountFlags::DETACH)?)
    }

    fn receive(&self) -> Result<Request> {
        let mut spare = self.spare.borrow_mut();
        let data = spare.get_or_insert_with(|| self.pool.take(MAX_DATA_BYTES));
        let mut head = [0; REQUEST_HEAD_BYTES];
        let mut pieces = [IoSliceMut::new(&mut head), IoSliceMut::new(data)];
        let bytes = rustix::io::readv(&self.watched, &mut pieces)?;
        let body = match bytes.saturating_sub(REQUEST_HEAD_BYTES) {
            rest if rest <= COPIED_BYTES => self.pool.copy_of(&data[..rest]),
            rest => {
                let mut body = spare.take().unwrap_or_else(|| self.pool.take(MAX_DATA_BYTES));
                body.truncate(rest);
                body
            }
        };
        Ok(Request { head, head_bytes: bytes.min(REQUEST_HEAD_BYTES), body })
    }
}

impl Channel for FuseMount {
    fn poll_receive(&self, cx: &mut Context<'_>, into: &mut Vec<Request>) -> Poll<Result<()>> {
        let (before, mut bytes) = (into.len(), 0);
        while into.len() - before < BATCH && bytes < BATCH_BYTES {
            match self.receive() {
                Ok(request) => {
                    bytes += request.body.len();
                    into.push(request);
                }
                Err(error) => match Errno::from_io_error(&error) {
                    // The request ended before it was read.
                    Some(Errno::INTR | Errno::NOENT) => {}
                    _ if into.len() > before => break,
                    Some(Errno::AGAIN) => {
                        self.watched.arm(Direction::Read, cx);
                        return Poll::Pending;
                    }
                    _ => return Poll::Ready(Err(error)),
                },
            }
        }
        Poll::Ready(Ok(()))
    }

    fn answer(&self, parts: &[&[u8]]) {
        let pieces: Vec<IoSlice<'_>> = parts.iter().map(|part| IoSlice::new(part)).collect();
        // ENOENT: the request was interrupted; ENODEV: unmounted. Nobody waits then.
        let _ = rustix::io::writev(&self.watched, &pieces);
    }
}

/// Unmounts the file if nobody answers its requests any more: its process was killed.
pub fn unmount_dead(at: &Path) {
    let error = std::fs::metadata(at).err();
    if error.as_ref().and_then(Errno::from_io_error) == Some(Errno::NOTCONN) {
        let _ = unmount(at, UnmountFlags::DETACH);
    }
}

impl Drop for FuseMount {
    fn drop(&mut self) {
        let _ = self.unmount();
    }
}
