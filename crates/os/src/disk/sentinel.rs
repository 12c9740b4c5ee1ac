//! A private page over the end of a file, which the kernel takes away when the file is cut.
//!
//! The size alone does not show a cut: a write behind the new end, or another `truncate`, makes the
//! file as long as before, with zeros in place of data. So the file's last page is mapped
//! privately, and a random mark is stored in it:
//!
//! ```text
//!    file     ............................|last page|
//!    mapping                              |  mark   |  copied on write: the file never sees it
//!    cut                  ^  zaps every mapped page behind it, private copies included
//!    grown    ............000000000000000 |000000000|  the page is the file's again: no mark
//! ```
//!
//! Only a cut drops private copies (`truncate_pagecache` in `mm/truncate.c` zaps with `even_cows`);
//! reads, writes, direct ones too, punched holes, dropped caches and longer files keep them.
//! A cut within the last page drops none.
//!
//! While the file is short, a load or a store would raise SIGBUS. Therefore only the kernel touches
//! the page: its copies answer `EFAULT`. Not for distant files, whose pages may take for ever.

use std::os::fd::{AsFd, AsRawFd};
use std::ptr::{self, NonNull};

use rustix::fs::{Advice, fadvise};
use rustix::io::{Errno, Result};
use rustix::mm::{Advice as MapAdvice, MapFlags, ProtFlags, madvise, mmap, munmap};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::rand::{GetRandomFlags, getrandom};

/// See the module.
pub(super) struct Sentinel {
    page: NonNull<u32>,
    len: usize,
    mark: u32,
}

// SAFETY: nobody loads from the page or stores to it: its address is only handed to the kernel.
unsafe impl Send for Sentinel {}
// SAFETY: as above.
unsafe impl Sync for Sentinel {}

impl Sentinel {
    /// Guards the last page of a local file of `bytes`. `None` where that does not work: cuts are
    /// then seen by the size only.
    pub(super) fn new(fd: impl AsFd, bytes: u64) -> Option<Sentinel> {
        let len = rustix::param::page_size();
        let start = bytes.checked_sub(1)? / len as u64 * len as u64;
        let flags = MapFlags::PRIVATE;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel chooses an address that nothing else uses.
        let page = unsafe { mmap(ptr::null_mut(), len, access, flags, &fd, start) }.ok()?;
        let mut sentinel = Sentinel { page: NonNull::new(page.cast())?, len, mark: 0 };
        // Reads one page, not those around it; a child does not need it.
        for advice in [MapAdvice::Random, MapAdvice::LinuxDontFork] {
            // SAFETY: the mapping is ours, and the advice changes none of its bytes.
            let _ = unsafe { madvise(page, len, advice) };
        }
        sentinel.mark = sentinel.store_mark().ok()?;
        // A page in the cache would cost direct writes a look at it.
        let _ = fadvise(fd, start, None, Advice::DontNeed);
        Some(sentinel)
    }

    /// False once the file was cut before its last page.
    pub(super) fn is_there(&self) -> bool {
        let (page, none) = (self.page.as_ptr(), 0_usize);
        let how = libc::FUTEX_CMP_REQUEUE | libc::FUTEX_PRIVATE_FLAG;
        // Nobody waits at this address, so that the call only compares the word with the mark:
        // EAGAIN if it differs, EFAULT if there is none.
        // SAFETY: the kernel reads the word, and survives if it cannot.
        let answer =
            unsafe { libc::syscall(libc::SYS_futex, page, how, none, none, page, self.mark) };
        let errno = std::io::Error::last_os_error().raw_os_error();
        answer == 0 || !matches!(errno, Some(libc::EAGAIN | libc::EFAULT))
    }

    /// Has the kernel copy a random number into the page.
    fn store_mark(&self) -> Result<u32> {
        let mut mark = [0; size_of::<u32>()];
        getrandom(&mut mark, GetRandomFlags::empty())?;
        let (from, to) = pipe_with(PipeFlags::CLOEXEC)?;
        rustix::io::write(&to, &mark)?;
        let page = self.page.as_ptr().cast();
        // SAFETY: the page has room for the mark; if it was cut off, the kernel answers so.
        match unsafe { libc::read(from.as_raw_fd(), page, mark.len()) } {
            -1 => Err(Errno::FAULT),
            _ => Ok(u32::from_ne_bytes(mark)),
        }
    }
}

impl Drop for Sentinel {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and ends with us.
        let _ = unsafe { munmap(self.page.as_ptr().cast(), self.len) };
    }
}
