//! The receive ring of an interface with jumbo frames: memory that the kernel fills.
//!
//! ```text
//!    block 0                      block 1
//!   ┌────────┬────────┬────────┐ ┌────────┬─…      slot: header with status │ frame
//!   │ slot 0 │ slot 1 │ slot 2 │ │ slot 3 │         status: the kernel's ──frame──▶ ours
//!   └────────┴────────┴────────┘ └────────┴─…                          ◀──copied──
//! ```
//!
//! A queued jumbo frame is several pages of the sender's processor, which the receiver copies when
//! they are cold and frees on another processor. The ring takes the frame when it arrives, so the
//! pages go back at once. Frames that fit a page are received faster in batches of `recvmmsg`:
//! figures in decision 0019.
//!
//! Format: TPACKET_V2 of `Documentation/networking/packet_mmap.rst`. Version 3 hands over whole
//! blocks, and would hold the last frames of a burst until a timer.

use std::io::{Error, ErrorKind, Result};
use std::os::fd::{AsFd, AsRawFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use io::link::{ETHERNET_BYTES, MIN_FRAME_BYTES};
use io::{Frame, Mac, Pool};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use super::batch::{BATCH, is_for};
use super::open::set_option;

/// The lowest MTU with a ring: a frame of less is one page.
const RING_MTU: u32 = 3000;
/// Bytes of a block: whole pages that the kernel allocates together.
const BLOCK_BYTES: usize = 128 << 10;
/// Blocks of a ring.
const BLOCKS: usize = 64;
/// The most bytes of a slot before its frame: header, address and alignment.
const BEFORE_FRAME: usize = 96;

/// The frames that arrived at an interface, if it has jumbo frames.
pub(super) struct ReceiveRing {
    pool: Pool,
    /// The MTU that the slots were made for, or for which there are none.
    mtu: u32,
    slots: Option<Slots>,
}

impl ReceiveRing {
    /// Without slots. Received data will come into memory of `pool`.
    pub(super) fn new(pool: Pool) -> ReceiveRing {
        ReceiveRing { pool, mtu: 0, slots: None }
    }

    /// Follows a change of the interface's MTU, and is true if there was one. There are slots for
    /// jumbo frames, if the kernel makes them. Call it when nothing is left to receive: frames that
    /// arrive meanwhile are lost, as on a wire.
    pub(super) fn follow(&mut self, fd: impl AsFd, mtu: u32) -> bool {
        if self.mtu == mtu {
            return false;
        }
        self.mtu = mtu;
        if self.slots.take().is_some() {
            let _ = set_ring(&fd, 0, 0);
        }
        if mtu >= RING_MTU {
            self.slots = Slots::new(&fd, mtu).ok();
        }
        true
    }

    /// True if frames come into the ring.
    pub(super) fn is_used(&self) -> bool {
        self.slots.is_some()
    }

    /// Receives a batch of frames for `own`, and says how many; 0, if all were for others.
    ///
    /// # Errors
    /// `WouldBlock` without a frame; the socket's error, if it has one.
    pub(super) fn receive(
        &mut self,
        fd: impl AsFd,
        own: Mac,
        into: &mut Vec<Frame>,
    ) -> Result<usize> {
        let longest = self.mtu as usize + ETHERNET_BYTES;
        let before = into.len();
        for taken in 0..BATCH {
            let taken_out = self.slots.as_mut().and_then(|slots| {
                slots.take(|bytes| {
                    let whole = bytes.len() <= longest && is_for(bytes, own);
                    whole.then(|| frame_of(bytes, &self.pool))
                })
            });
            match taken_out {
                Some(frame) => into.extend(frame),
                None if taken == 0 => return Err(error_of(fd)),
                None => break,
            }
        }
        Ok(into.len() - before)
    }
}

/// The error of the socket, as when its interface is switched off; else `WouldBlock`.
fn error_of(fd: impl AsFd) -> Error {
    match rustix::net::sockopt::socket_error(fd) {
        Ok(Err(error)) => error.into(),
        Ok(Ok(())) | Err(_) => ErrorKind::WouldBlock.into(),
    }
}

fn frame_of(bytes: &[u8], pool: &Pool) -> Frame {
    match bytes.split_first_chunk() {
        Some((head, body)) if bytes.len() > MIN_FRAME_BYTES => {
            Frame::with_body(*head, pool.copy_of(body).freeze())
        }
        _ => Frame::new(bytes),
    }
}

/// The mapped slots.
struct Slots {
    start: NonNull<u8>,
    slot_bytes: usize,
    per_block: usize,
    next: usize,
}

impl Slots {
    fn new(fd: &impl AsFd, mtu: u32) -> Result<Slots> {
        let bytes = BEFORE_FRAME + mtu as usize + ETHERNET_BYTES;
        let slot_bytes = bytes.next_multiple_of(libc::TPACKET_ALIGNMENT);
        let per_block = BLOCK_BYTES / slot_bytes;
        if per_block == 0 {
            return Err(ErrorKind::InvalidInput.into());
        }
        let version = libc::tpacket_versions::TPACKET_V2 as libc::c_int;
        set_option(fd, libc::SOL_PACKET, libc::PACKET_VERSION, version)?;
        set_ring(fd, BLOCKS, slot_bytes)?;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping, at an address that the kernel chooses.
        let start = unsafe {
            mmap(std::ptr::null_mut(), BLOCKS * BLOCK_BYTES, access, MapFlags::SHARED, fd, 0)
        };
        match start.map(|start| NonNull::new(start.cast())) {
            Ok(Some(start)) => Ok(Slots { start, slot_bytes, per_block, next: 0 }),
            failed => {
                set_ring(fd, 0, 0)?;
                Err(failed.err().map_or(ErrorKind::OutOfMemory.into(), Error::from))
            }
        }
    }

    /// What `read` makes of the next frame; none if there is no frame yet. A frame longer than its
    /// slot has lost its end: `read` gets no bytes.
    fn take<T>(&mut self, read: impl FnOnce(&[u8]) -> Option<T>) -> Option<Option<T>> {
        let (block, within) = (self.next / self.per_block, self.next % self.per_block);
        // SAFETY: `next` is below the number of slots, so the slot lies within the mapping.
        let slot = unsafe { self.start.add(block * BLOCK_BYTES + within * self.slot_bytes) };
        let header = slot.cast::<libc::tpacket2_hdr>();
        // SAFETY: slots are aligned to 16 bytes; the status is shared with the kernel, and only
        // ever accessed as a whole.
        let status = unsafe { AtomicU32::from_ptr(&raw mut (*header.as_ptr()).tp_status) };
        if status.load(Ordering::Acquire) & libc::TP_STATUS_USER == 0 {
            return None;
        }
        // SAFETY: with this status the slot is ours until it is handed back below.
        let header = unsafe { header.as_ref() };
        let (from, len) = (usize::from(header.tp_mac), header.tp_snaplen as usize);
        let whole = header.tp_len == header.tp_snaplen && from + len <= self.slot_bytes;
        let bytes: &[u8] = if whole {
            // SAFETY: as above, and the bytes lie within the slot.
            unsafe { std::slice::from_raw_parts(slot.add(from).as_ptr(), len) }
        } else {
            &[]
        };
        let taken = read(bytes);
        status.store(libc::TP_STATUS_KERNEL, Ordering::Release);
        self.next = (self.next + 1) % (self.per_block * BLOCKS);
        Some(taken)
    }
}

impl Drop for Slots {
    fn drop(&mut self) {
        // SAFETY: the mapping that `new` made; nothing refers to it any more.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), BLOCKS * BLOCK_BYTES) };
    }
}

/// Gives the socket a ring of this many blocks, or takes it away.
fn set_ring(fd: &impl AsFd, blocks: usize, slot_bytes: usize) -> Result<()> {
    let per_block = BLOCK_BYTES.checked_div(slot_bytes).unwrap_or(0);
    let asked = libc::tpacket_req {
        tp_block_size: if blocks == 0 { 0 } else { BLOCK_BYTES as libc::c_uint },
        tp_block_nr: blocks as libc::c_uint,
        tp_frame_size: slot_bytes as libc::c_uint,
        tp_frame_nr: (blocks * per_block) as libc::c_uint,
    };
    let bytes = size_of::<libc::tpacket_req>() as libc::socklen_t;
    let (level, option) = (libc::SOL_PACKET, libc::PACKET_RX_RING);
    // SAFETY: the option takes this structure, and copies it.
    let outcome = unsafe {
        let fd = fd.as_fd().as_raw_fd();
        libc::setsockopt(fd, level, option, (&raw const asked).cast(), bytes)
    };
    if outcome < 0 { Err(Error::last_os_error()) } else { Ok(()) }
}
