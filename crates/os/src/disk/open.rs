//! Opening, creating and locking.
//!
//! Invariants: a failed create leaves no file behind; existing content is not written; a disk
//! opened for writing is held by this process alone, if other programs respect locks.

use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use io::Pool;
use rustix::fs::{
    Advice, FallocateFlags, FileType, FlockOperation, Mode, OFlags, fadvise, fallocate,
    fcntl_setfl, fdatasync, flock, fstat, fstatfs, ftruncate,
};
use rustix::io::Errno;

use super::error::{OpenError, OpenErrorKind};
use super::file::{Access, File};
use super::probe::{self, Found};
use super::sentinel::Sentinel;
use super::{Direct, Options, distant, holder};

/// File systems that are nothing but page cache: tmpfs, ramfs, hugetlbfs (`linux/magic.h`).
const IN_MEMORY: [i64; 3] = [0x0102_1994, 0x8584_58f6, 0x9584_58f6];

/// Memory kept for bounces and zeros, per disk.
const POOL_BYTES: usize = 2 << 20;

/// Opens the disk at `path`, or creates it.
pub(super) fn open(path: &Path, options: &Options) -> Result<File, OpenError> {
    let Some(bytes) = options.create_bytes else {
        return finish(path, options, existing(path, options)?);
    };
    let made = create(path)?;
    let opened = reserve(path, &made, bytes).and_then(|()| finish(path, options, made));
    if opened.is_err() {
        // Created above by this process.
        let _ = fs::remove_file(path);
    }
    opened
}

fn create(path: &Path) -> Result<OwnedFd, OpenError> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR)
        .map_err(|errno| OpenError::from_kernel(path, errno))
}

/// Reserves the space, so that the array never runs out of it. File systems without `fallocate` get
/// a file with holes.
fn reserve(path: &Path, fd: &OwnedFd, bytes: u64) -> Result<(), OpenError> {
    let reserved = match fallocate(fd, FallocateFlags::empty(), 0, bytes) {
        Err(Errno::OPNOTSUPP) => ftruncate(fd, bytes),
        answer => answer,
    };
    reserved.map_err(|errno| match errno {
        Errno::NOSPC | Errno::DQUOT | Errno::FBIG => {
            OpenError::new(path, OpenErrorKind::NoSpace(bytes))
        }
        errno => OpenError::from_kernel(path, errno),
    })
}

fn existing(path: &Path, options: &Options) -> Result<OwnedFd, OpenError> {
    // NONBLOCK: do not hang on a pipe at this path. EXCL concerns block devices only.
    let mut flags = OFlags::CLOEXEC | OFlags::NONBLOCK;
    flags |= if options.read_only { OFlags::RDONLY } else { OFlags::RDWR };
    if options.lock {
        flags |= OFlags::EXCL;
    }
    rustix::fs::open(path, flags, Mode::empty()).map_err(|errno| {
        let device = fs::metadata(path).map(|stat| stat.rdev());
        match (errno, device) {
            (Errno::BUSY, Ok(device)) => {
                let holders = holder::of_device(device);
                OpenError::new(path, OpenErrorKind::Busy(holders))
            }
            _ => OpenError::from_kernel(path, errno),
        }
    })
}

/// Locks it, decides how it is accessed, and finds its limits.
fn finish(path: &Path, options: &Options, fd: OwnedFd) -> Result<File, OpenError> {
    let failed = |errno| OpenError::from_kernel(path, errno);
    let stat = fstat(&fd).map_err(failed)?;
    let device = match FileType::from_raw_mode(stat.st_mode) {
        FileType::BlockDevice => true,
        FileType::RegularFile => false,
        _ => return Err(OpenError::new(path, OpenErrorKind::NotADisk)),
    };
    let locked = options.lock && !device;
    if locked {
        lock(path, &fd, options.read_only)?;
    }
    let f_type = if device { 0 } else { fstatfs(&fd).map_err(failed)?.f_type as i64 };
    let in_memory = IN_MEMORY.contains(&f_type);
    let access = access(path, &fd, in_memory, options)?;
    let found = match device {
        true => probe::device(fd.as_fd(), stat.st_rdev, access),
        false => probe::file(fd.as_fd(), access, options.read_only),
    };
    let Found { mut limits, mem_align, zeroing } = found.map_err(failed)?;
    limits.read_only = options.read_only;
    let path = path.to_owned();
    let bytes_left = limits.bytes.into();
    let pool = Pool::new(POOL_BYTES);
    let identity = if device { (stat.st_rdev, 0) } else { (stat.st_dev, stat.st_ino) };
    let distant = distant::name(f_type);
    let sentinel = match locked && distant.is_none() {
        true => Sentinel::new(&fd, limits.bytes),
        false => None,
    };
    let (unsynced, deleted, looking) = (false.into(), false.into(), false.into());
    Ok(File {
        open: Some(fd),
        path,
        identity,
        device,
        locked,
        access,
        distant,
        limits,
        mem_align,
        zeroing,
        pool,
        bytes_left,
        sentinel,
        unsynced,
        deleted,
        looking,
        changes: 0.into(),
    })
}

fn lock(path: &Path, fd: &OwnedFd, read_only: bool) -> Result<(), OpenError> {
    let how = match read_only {
        true => FlockOperation::NonBlockingLockShared,
        false => FlockOperation::NonBlockingLockExclusive,
    };
    match flock(fd, how) {
        Err(Errno::WOULDBLOCK) => {
            let holders = holder::of_file(fd);
            Err(OpenError::new(path, OpenErrorKind::Busy(holders)))
        }
        answer => answer.map_err(|errno| OpenError::from_kernel(path, errno)),
    }
}

fn access(
    path: &Path,
    fd: &OwnedFd,
    in_memory: bool,
    options: &Options,
) -> Result<Access, OpenError> {
    let failed = |errno| OpenError::from_kernel(path, errno);
    let wanted = options.direct;
    if !in_memory && wanted != Direct::Never && !probe::denies_direct(fd.as_fd()) {
        match fcntl_setfl(fd, OFlags::DIRECT) {
            Ok(()) => {
                // Dirty pages of an earlier writer would slow down every direct write. A process
                // that only reads leaves them alone: the file may be in use.
                if !options.read_only {
                    let _ = fdatasync(fd);
                    let _ = fadvise(fd, 0, None, Advice::DontNeed);
                }
                return Ok(Access::Direct);
            }
            Err(Errno::INVAL) => {}
            Err(errno) => return Err(failed(errno)),
        }
    }
    if wanted == Direct::Always {
        return Err(OpenError::new(path, OpenErrorKind::NotDirect));
    }
    // Takes O_NONBLOCK away again.
    fcntl_setfl(fd, OFlags::empty()).map_err(failed)?;
    Ok(if in_memory { Access::Memory } else { Access::Buffered })
}
