//! ublk: block devices whose requests this process answers through io_uring.
//!
//! ```text
//!    /dev/ublk-control ◀── add, start, recover, remove        calls that may block
//!    /dev/ublkcN       ◀── UblkQueue (queue.rs): requests, data, answers
//!    /dev/ublkbN       the block device
//! ```
//!
//! A device is made with user recovery: when its server ends, requests wait, and those in flight
//! are issued again to the next server, which finds the device by its owner ([`find`]) and recovers
//! it ([`Device::begin_recovery`]). Issuing a write twice is no harm: no later write of the same
//! bytes was accepted meanwhile.
//!
//! Data is copied by this process (`UBLK_F_USER_COPY`), so the kernel never touches its memory.
//!
//! Source: `include/uapi/linux/ublk_cmd.h` of Linux 6.5 and later.

mod queue;

use std::fs::{self, File};
use std::io::{Error, ErrorKind, Result};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use io_uring::{IoUring, cqueue, opcode, squeue, types};

pub use queue::{Command, Request, UblkQueue};

const CONTROL: &str = "/dev/ublk-control";

/// `_IOWR('u', number, struct ublksrv_ctrl_cmd)`; `_IOR` without the second bit.
const fn control(number: u32) -> u32 {
    3 << 30 | 32 << 16 | (b'u' as u32) << 8 | number
}

const GET_DEV_INFO: u32 = control(0x02) & !(1 << 30);
const ADD_DEV: u32 = control(0x04);
const DEL_DEV: u32 = control(0x05);
const START_DEV: u32 = control(0x06);
const STOP_DEV: u32 = control(0x07);
const SET_PARAMS: u32 = control(0x08);
const START_USER_RECOVERY: u32 = control(0x10);
const END_USER_RECOVERY: u32 = control(0x11);
const GET_FEATURES: u32 = control(0x13) & !(1 << 30);

const USER_RECOVERY: u64 = 1 << 3;
const USER_RECOVERY_REISSUE: u64 = 1 << 4;
const IOCTL_ENCODE: u64 = 1 << 6;
const USER_COPY: u64 = 1 << 7;
const FLAGS: u64 = USER_RECOVERY | USER_RECOVERY_REISSUE | IOCTL_ENCODE | USER_COPY;

/// The most requests in flight.
const DEPTH: u16 = 128;
/// The most bytes of a read or a write.
const MAX_TRANSFER_BYTES: u32 = 1 << 20;
/// The most sectors of one discard or zeroing: 1 GiB.
const MAX_CLEAR_SECTORS: u32 = 1 << 21;
const SECTOR_BYTES: u64 = 512;
/// How long the kernel may take to see that the last server has ended.
const PATIENCE: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(20);

/// `struct ublksrv_ctrl_cmd`, in the 80 bytes of a large command.
struct Order {
    device: u32,
    address: u64,
    bytes: u16,
    data: u64,
}

/// `struct ublksrv_ctrl_dev_info`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Info {
    queues: u16,
    depth: u16,
    state: u16,
    pad: u16,
    max_transfer_bytes: u32,
    device: u32,
    pid: i32,
    pad2: u32,
    flags: u64,
    /// The kernel keeps it for servers.
    owner: u64,
    uid: u32,
    gid: u32,
    reserved: [u64; 2],
}

/// `struct ublk_params` with its first two parts.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Params {
    bytes: u32,
    parts: u32,
    attributes: u32,
    logical_shift: u8,
    physical_shift: u8,
    optimal_shift: u8,
    minimum_shift: u8,
    max_sectors: u32,
    chunk_sectors: u32,
    sectors: u64,
    virtual_boundary: u64,
    discard_alignment: u32,
    discard_granularity: u32,
    max_discard_sectors: u32,
    max_zeroes_sectors: u32,
    max_discard_ranges: u16,
    reserved: u16,
    end: u32,
}

const BASIC: u32 = 1;
const DISCARD: u32 = 2;
const READ_ONLY: u32 = 1;
const ROTATIONAL: u32 = 2;
const VOLATILE_CACHE: u32 = 4;
const FUA: u32 = 8;

/// A ublk device, by its number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Device(u32);

/// True if this kernel has ublk with all that is used here (Linux 6.5), and its driver is loaded.
pub fn is_offered() -> bool {
    let mut features = 0_u64;
    let asked = Control::open().and_then(|control| {
        // SAFETY: the memory is a number, and outlives the call.
        unsafe { control.ask(GET_FEATURES, 0, (&raw mut features).cast(), 8, 0) }
    });
    asked.is_ok() && features & FLAGS == FLAGS
}

/// True if this kernel's ublk survives a server that is killed while it takes requests. Linux 6.12
/// may dereference a null pointer in `io_fallback_tw`. Linux 6.15 has a fix of that race, by its
/// title: "ublk: fix race between io_uring_cmd_complete_in_task and ublk_cancel_cmd".
pub fn survives_kill() -> bool {
    std::fs::read_to_string("/proc/sys/kernel/osrelease").is_ok_and(|text| is_mended(&text))
}

/// Whether a kernel of this release, such as `6.12.95-amd64`, is from 6.15 or later.
fn is_mended(release: &str) -> bool {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse::<u32>);
    let (Some(Ok(major)), Some(Ok(minor))) = (numbers.next(), numbers.next()) else {
        return false;
    };
    (major, minor) >= (6, 15)
}

/// Makes a device with the properties of `limits`, for `owner`; it has no block device yet. If it
/// is `recoverable`, requests wait for the next server, otherwise they fail without one. May block,
/// as all calls of this module.
///
/// # Errors
/// `NotFound` without the driver, `PermissionDenied` without CAP_SYS_ADMIN, and what the kernel
/// says.
pub fn add(limits: &io::Limits, owner: u64, recoverable: bool) -> Result<Device> {
    let left_out = if recoverable { 0 } else { USER_RECOVERY | USER_RECOVERY_REISSUE };
    let mut info = Info {
        queues: 1,
        depth: DEPTH,
        max_transfer_bytes: MAX_TRANSFER_BYTES,
        device: u32::MAX,
        flags: FLAGS & !left_out,
        owner,
        ..Info::default()
    };
    let control = Control::open()?;
    let bytes = size_of::<Info>() as u16;
    // SAFETY: the structure is numbers only, and outlives the call.
    unsafe { control.ask(ADD_DEV, info.device, (&raw mut info).cast(), bytes, 0)? };
    let device = Device(info.device);
    let mut params = params_of(limits);
    let bytes = size_of::<Params>() as u16;
    // SAFETY: as above.
    let set = unsafe { control.ask(SET_PARAMS, device.0, (&raw mut params).cast(), bytes, 0) };
    set.inspect_err(|_| drop(device.remove())).map(|()| device)
}

fn params_of(limits: &io::Limits) -> Params {
    let mut attributes = FUA | VOLATILE_CACHE;
    attributes |= if limits.read_only { READ_ONLY } else { 0 };
    attributes |= if limits.rotational { ROTATIONAL } else { 0 };
    let shift = |bytes: u32| bytes.max(512).ilog2() as u8;
    let logical = shift(limits.logical_block);
    Params {
        bytes: size_of::<Params>() as u32,
        parts: BASIC | if limits.read_only { 0 } else { DISCARD },
        attributes,
        logical_shift: logical,
        physical_shift: shift(limits.physical_block).clamp(logical, 12.max(logical)),
        optimal_shift: shift(limits.optimal).max(logical),
        minimum_shift: logical,
        max_sectors: MAX_TRANSFER_BYTES / SECTOR_BYTES as u32,
        sectors: limits.bytes / SECTOR_BYTES,
        discard_granularity: 1 << logical,
        max_discard_sectors: if limits.discard { MAX_CLEAR_SECTORS } else { 0 },
        max_zeroes_sectors: MAX_CLEAR_SECTORS,
        max_discard_ranges: 1,
        ..Params::default()
    }
}

/// The device of this owner, with or without a server.
pub fn find(owner: u64) -> Option<Device> {
    let control = Control::open().ok()?;
    let entries = fs::read_dir("/dev").ok()?;
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let numbers = names.filter_map(|name| name.strip_prefix("ublkc")?.parse().ok());
    numbers.map(Device).find(|&device| {
        control.info(device).is_ok_and(|info| info.owner == owner && info.flags & USER_COPY != 0)
    })
}

impl Device {
    /// Its block device.
    pub fn path(self) -> PathBuf {
        PathBuf::from(format!("/dev/ublkb{}", self.0))
    }

    /// Its size.
    ///
    /// # Errors
    /// If it has no block device.
    pub fn bytes(self) -> Result<u64> {
        let text = fs::read_to_string(format!("/sys/block/ublkb{}/size", self.0))?;
        let sectors: u64 = text.trim().parse().map_err(|_| ErrorKind::InvalidData)?;
        Ok(sectors * SECTOR_BYTES)
    }

    /// Makes the block device. Its queue must be served meanwhile: the kernel looks for partitions.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn start(self) -> Result<()> {
        Control::open()?.order(START_DEV, self, std::process::id().into())
    }

    /// Begins to take over the device from a server that has ended; waits until it has. A new
    /// queue can be opened then.
    ///
    /// # Errors
    /// `ResourceBusy` if another server has it.
    pub fn begin_recovery(self) -> Result<()> {
        let control = Control::open()?;
        let deadline = Instant::now() + PATIENCE;
        loop {
            match control.order(START_USER_RECOVERY, self, 0) {
                Err(error) if error.kind() == ErrorKind::ResourceBusy => {
                    if Instant::now() >= deadline {
                        return Err(error);
                    }
                    std::thread::sleep(PAUSE);
                }
                outcome => return outcome,
            }
        }
    }

    /// Completes the recovery: requests come to the new queue.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn end_recovery(self) -> Result<()> {
        Control::open()?.order(END_USER_RECOVERY, self, std::process::id().into())
    }

    /// Ends the block device. Its queue must be served meanwhile, and ends.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn stop(self) -> Result<()> {
        Control::open()?.order(STOP_DEV, self, 0)
    }

    /// Removes the device; waits until its queue is closed.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn remove(self) -> Result<()> {
        Control::open()?.order(DEL_DEV, self, 0)
    }

    fn queue_path(self) -> PathBuf {
        PathBuf::from(format!("/dev/ublkc{}", self.0))
    }
}

/// The control device, and a ring for its commands.
struct Control(File);

impl Control {
    fn open() -> Result<Control> {
        Ok(Control(File::options().read(true).write(true).open(Path::new(CONTROL))?))
    }

    fn info(&self, device: Device) -> Result<Info> {
        let mut info = Info::default();
        let bytes = size_of::<Info>() as u16;
        // SAFETY: the structure is numbers only, and outlives the call.
        unsafe { self.ask(GET_DEV_INFO, device.0, (&raw mut info).cast(), bytes, 0)? };
        Ok(info)
    }

    fn order(&self, command: u32, device: Device, data: u64) -> Result<()> {
        // SAFETY: no memory is named.
        unsafe { self.ask(command, device.0, std::ptr::null_mut(), 0, data) }
    }

    /// # Safety
    /// The memory of `bytes` bytes at `address` is valid for what the command does with it.
    unsafe fn ask(
        &self,
        command: u32,
        device: u32,
        address: *mut u8,
        bytes: u16,
        data: u64,
    ) -> Result<()> {
        let order = Order { device, address: address as u64, bytes, data };
        let fd = types::Fd(self.0.as_raw_fd());
        let entry = opcode::UringCmd80::new(fd, command).cmd(order.encode()).build();
        let mut ring = IoUring::<squeue::Entry128, cqueue::Entry>::builder().build(1)?;
        // SAFETY: the ring is empty; the memory is valid until the completion, by the caller.
        unsafe { ring.submission().push(&entry) }.map_err(|_| ErrorKind::OutOfMemory)?;
        loop {
            match ring.submit_and_wait(1) {
                Err(error) if error.kind() != ErrorKind::Interrupted => return Err(error),
                _ => {}
            }
            if let Some(done) = ring.completion().next() {
                return match done.result() {
                    error @ ..0 => Err(Error::from_raw_os_error(-error)),
                    _ => Ok(()),
                };
            }
        }
    }
}

impl Order {
    fn encode(&self) -> [u8; 80] {
        let mut bytes = [0; 80];
        bytes[..4].copy_from_slice(&self.device.to_ne_bytes());
        // The command is for no queue.
        bytes[4..6].copy_from_slice(&u16::MAX.to_ne_bytes());
        bytes[6..8].copy_from_slice(&self.bytes.to_ne_bytes());
        bytes[8..16].copy_from_slice(&self.address.to_ne_bytes());
        bytes[16..24].copy_from_slice(&self.data.to_ne_bytes());
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_have_the_numbers_and_sizes_of_the_header() {
        // As the macros of `linux/ioctl.h` compute them.
        assert_eq!((ADD_DEV, GET_DEV_INFO), (0xc020_7504, 0x8020_7502));
        assert_eq!((size_of::<Info>(), size_of::<Params>()), (64, 64));
    }

    #[test]
    fn a_device_has_the_properties_of_its_disk() {
        let limits = io::Limits { discard: true, ..io::Limits::plain(1 << 30) };
        let params = params_of(&limits);
        assert_eq!((params.sectors, params.logical_shift, params.physical_shift), (2 << 20, 9, 12));
        assert_eq!(params.attributes & READ_ONLY, 0);
        assert_ne!(params.max_discard_sectors, 0);
        let params = params_of(&io::Limits { read_only: true, ..limits });
        assert_eq!((params.attributes & READ_ONLY, params.parts), (READ_ONLY, BASIC));
    }

    #[test]
    fn the_release_tells_whether_the_race_is_fixed() {
        for (release, mended) in [
            ("6.12.95-amd64", false),
            ("6.14.0", false),
            ("6.15.0-rc1\n", true),
            ("6.18.5", true),
            ("7.0", true),
            ("5.19", false),
            ("", false),
        ] {
            assert_eq!(is_mended(release), mended, "{release}");
        }
    }
}
