//! File systems whose answers come from elsewhere, and may never come.
//!
//! A system call on such a file waits for a server, a process or a network, possibly for ever, and
//! blocks its thread. So an open file is never accessed on the thread itself: reads, writes, syncs
//! and size checks go through the ring, whose workers may wait, and a separate thread does the last
//! close.
//!
//! Owns the list of these file systems, and the check. Never interprets a missing answer.

use std::os::fd::{AsRawFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use io_uring::{opcode, squeue, types};

use super::file::File;
use crate::reactor::ring::{CompletionHandler, Ring};

/// `f_type` of `statfs(2)`, from `linux/magic.h` and the file systems' own sources.
const DISTANT: [(u32, &str); 18] = [
    (0x6573_5546, "FUSE"),
    (0x6969, "NFS"),
    (0x517b, "SMB"),
    (0xff53_4d42, "CIFS"),
    (0xfe53_4d42, "SMB2"),
    (0x564c, "NCP"),
    (0x0102_1997, "9p"),
    (0x00c3_6400, "Ceph"),
    (0x5346_414f, "AFS"),
    (0x6b41_4653, "AFS"),
    (0x7375_7245, "Coda"),
    (0x7461_636f, "OCFS2"),
    (0x0116_1970, "GFS2"),
    (0x0bd0_0bd0, "Lustre"),
    (0x4750_4653, "GPFS"),
    (0x1983_0326, "BeeGFS"),
    (0x2003_0528, "OrangeFS"),
    (0x786f_4256, "VirtualBox"),
];

/// Workers of a ring that may wait for such files at once: the kernel's default is four for each
/// processor, and one member that hangs would keep them all from the others.
const WORKERS: u32 = 512;

/// The name of the file system, if it is one of these.
pub(super) fn name(f_type: i64) -> Option<&'static str> {
    // The field's width and sign differ among machines.
    let magic = f_type as u32;
    DISTANT.iter().find(|(known, _)| *known == magic).map(|&(_, name)| name)
}

/// Lets other members get workers while one member hangs.
pub(super) fn widen(ring: &Ring) {
    ring.allow_workers(WORKERS);
}

/// Lets go of a file without waiting for it: unlocking and closing may ask its file system.
pub(super) fn abandon(fd: OwnedFd, unlock: impl FnOnce(&OwnedFd) + Send + 'static) {
    let closing = move || {
        unlock(&fd);
        drop(fd);
    };
    // Where no thread can be had, the descriptor was closed with the closure: there is no choice.
    let _ = std::thread::Builder::new().name("parapet-close".into()).spawn(closing);
}

/// Asks for a file's size and its names. The answer goes where `stat` is.
pub(super) fn entry(file: &File, stat: &mut libc::statx) -> squeue::Entry {
    let fd = types::Fd(file.fd().as_raw_fd());
    let start = std::ptr::from_mut(stat).cast();
    opcode::Statx::new(fd, c"".as_ptr(), start)
        .flags(libc::AT_EMPTY_PATH)
        .mask(libc::STATX_SIZE | libc::STATX_NLINK)
        .build()
}

/// Room for an answer.
pub(super) fn blank() -> Box<libc::statx> {
    // SAFETY: numbers only, for which all zeros are a value.
    Box::new(unsafe { std::mem::zeroed() })
}

/// One look at a file, in the ring.
struct Look {
    file: Arc<File>,
    stat: std::cell::RefCell<Box<libc::statx>>,
}

/// Checks the file, unless a check is in flight. The result is available after the answer.
pub(super) fn look(file: &Arc<File>, ring: &Rc<Ring>) {
    if file.looking.swap(true, Ordering::Relaxed) {
        return;
    }
    let look = Rc::new(Look { file: Arc::clone(file), stat: blank().into() });
    let entry = entry(file, &mut look.stat.borrow_mut());
    // SAFETY: the answer's place is in a box of the look, which the ring keeps until it lands.
    unsafe { ring.launch(entry, look, 0) };
}

impl CompletionHandler for Look {
    fn complete(self: Rc<Self>, _: u32, result: i32) {
        if result == 0 {
            self.file.store_stat(&self.stat.borrow());
        }
        self.file.looking.store(false, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_systems_are_identified_by_their_magic_numbers() {
        assert_eq!(name(0x6573_5546), Some("FUSE"));
        // Where the field is 32 bits wide it is negative.
        assert_eq!(name(i64::from(0xff53_4d42_u32 as i32)), Some("CIFS"));
        for local in [0xef53, 0x0102_1994, 0x9123_683e, 0x5846_5342] {
            assert_eq!(name(local), None, "{local:#x}");
        }
    }
}
