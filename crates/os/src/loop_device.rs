//! Loop devices: a file as a block device. All calls may block.
//!
//! Source: `include/uapi/linux/loop.h`, with `LOOP_CONFIGURE` of Linux 5.8.

use std::io::{Error, ErrorKind, Result};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;

use crate::disk::{Holder, holders_of};

const SET_FREE: libc::Ioctl = 0x4C82;
const CONFIGURE: libc::Ioctl = 0x4C0A;
const CLEAR: libc::Ioctl = 0x4C01;
const READ_ONLY: u32 = 1;
const DIRECT_IO: u32 = 16;
/// Bytes of `lo_file_name`.
const NAME_BYTES: usize = 64;
/// How often another process may take the free device first.
const TRIES: usize = 64;

/// `struct loop_info64`.
#[repr(C)]
struct Info {
    device: u64,
    inode: u64,
    rdevice: u64,
    offset: u64,
    size_limit: u64,
    number: u32,
    encrypt_type: u32,
    encrypt_key_size: u32,
    flags: u32,
    file_name: [u8; NAME_BYTES],
    crypt_name: [u8; NAME_BYTES],
    encrypt_key: [u8; 32],
    init: [u64; 2],
}

/// `struct loop_config`.
#[repr(C)]
struct Config {
    fd: u32,
    block_size: u32,
    info: Info,
    reserved: [u64; 8],
}

/// Makes the file a block device with this logical block, past the page cache.
///
/// # Errors
/// Without a loop driver, permission, or a free device; and what the kernel says.
pub fn attach(file: &Path, block_bytes: u32, read_only: bool) -> Result<PathBuf> {
    let access = if read_only { OFlags::RDONLY } else { OFlags::RDWR };
    let open = |path: &Path| open(path, access | OFlags::CLOEXEC, Mode::empty());
    let control = rustix::fs::open("/dev/loop-control", OFlags::RDWR, Mode::empty())?;
    let backing = open(file)?;
    for _ in 0..TRIES {
        // SAFETY: the call takes no memory.
        let number = unsafe { libc::ioctl(control.as_raw_fd(), SET_FREE) };
        if number < 0 {
            return Err(Error::last_os_error());
        }
        let path = PathBuf::from(format!("/dev/loop{number}"));
        let device = open(&path)?;
        match configure(&device, &backing, file, block_bytes, read_only) {
            Ok(()) => return Ok(path),
            Err(error) if Errno::from_io_error(&error) == Some(Errno::BUSY) => {}
            Err(error) => return Err(error),
        }
    }
    Err(ErrorKind::ResourceBusy.into())
}

fn configure(
    device: &OwnedFd,
    backing: &OwnedFd,
    file: &Path,
    block_bytes: u32,
    read_only: bool,
) -> Result<()> {
    // SAFETY: a structure of numbers, for which zeros are valid.
    let mut config: Config = unsafe { std::mem::zeroed() };
    config.fd = backing.as_raw_fd().cast_unsigned();
    config.block_size = block_bytes;
    config.info.flags = DIRECT_IO | if read_only { READ_ONLY } else { 0 };
    let name = file.as_os_str().as_encoded_bytes();
    for (into, byte) in config.info.file_name[..NAME_BYTES - 1].iter_mut().zip(name) {
        *into = *byte;
    }
    // SAFETY: the call reads the structure, which outlives it.
    let outcome = unsafe { libc::ioctl(device.as_raw_fd(), CONFIGURE, &raw const config) };
    if outcome < 0 { Err(Error::last_os_error()) } else { Ok(()) }
}

/// Those that use a block device: mounts, swap, devices upon it, processes. Empty if it is free.
///
/// # Errors
/// If the device cannot be opened at all.
pub fn users(device: &Path) -> Result<Vec<Holder>> {
    match open(device, OFlags::RDONLY | OFlags::EXCL | OFlags::CLOEXEC, Mode::empty()) {
        Ok(_) => Ok(Vec::new()),
        Err(Errno::BUSY) => holders_of(device),
        Err(error) => Err(error.into()),
    }
}

/// Takes the file from a loop device. If a process still has it open, the device ends when that
/// closes it.
///
/// # Errors
/// What the kernel says.
pub fn detach(device: &Path) -> Result<()> {
    let device = open(device, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    // SAFETY: the call takes no memory.
    let outcome = unsafe { libc::ioctl(device.as_raw_fd(), CLEAR) };
    if outcome < 0 { Err(Error::last_os_error()) } else { Ok(()) }
}
