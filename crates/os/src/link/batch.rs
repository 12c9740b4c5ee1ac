//! Frames in and out of the kernel, many in a call.

use std::collections::VecDeque;
use std::io::{Error, IoSlice, IoSliceMut, Result};
use std::os::fd::{AsFd, AsRawFd};
use std::ptr;

use io::link::{ETHERNET_BYTES, HEAD_BYTES, MIN_FRAME_BYTES};
use io::{Buf, Frame, Mac, Pool};
use rustix::net::SocketAddrUnix;
use rustix::net::addr::SocketAddrArg;

/// The most frames of one call.
pub(super) const BATCH: usize = 32;
/// Zeros behind frames that are too short.
const PADDING: [u8; MIN_FRAME_BYTES] = [0; MIN_FRAME_BYTES];

/// Memory for the frames of the next call.
pub(super) struct Inbox {
    pool: Pool,
    /// Bytes after the head of the longest frame.
    room: usize,
    heads: Box<[[u8; HEAD_BYTES]; BATCH]>,
    bodies: Vec<Buf>,
    pieces: Box<[[libc::iovec; 2]; BATCH]>,
    messages: Box<[libc::mmsghdr; BATCH]>,
}

const NO_PIECE: libc::iovec = libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 };

fn no_message() -> libc::mmsghdr {
    // SAFETY: a structure of numbers and pointers, for which zeros mean "none".
    unsafe { std::mem::zeroed() }
}

impl Inbox {
    pub(super) fn new(mtu: u32, pool: Pool) -> Inbox {
        let mut inbox = Inbox {
            pool,
            room: 0,
            heads: Box::new([[0; HEAD_BYTES]; BATCH]),
            bodies: Vec::new(),
            pieces: Box::new([[NO_PIECE; 2]; BATCH]),
            messages: Box::new(std::array::from_fn(|_| no_message())),
        };
        inbox.fit(mtu);
        inbox
    }

    /// Takes buffers that fit this MTU.
    fn fit(&mut self, mtu: u32) {
        let room = (mtu as usize + ETHERNET_BYTES).saturating_sub(HEAD_BYTES).max(MIN_FRAME_BYTES);
        if room != self.room {
            self.room = room;
            self.bodies = (0..BATCH).map(|_| self.pool.take(room)).collect();
        }
    }

    /// Receives a batch of frames for `own`; the number may be 0, if all were for others.
    pub(super) fn receive(
        &mut self,
        fd: impl AsFd,
        own: Mac,
        mtu: u32,
        into: &mut Vec<Frame>,
    ) -> Result<usize> {
        self.fit(mtu);
        for (index, message) in self.messages.iter_mut().enumerate() {
            let pieces = &mut self.pieces[index];
            let (head, body) = (&mut self.heads[index], &mut self.bodies[index]);
            pieces[0] = libc::iovec { iov_base: head.as_mut_ptr().cast(), iov_len: HEAD_BYTES };
            pieces[1] = libc::iovec { iov_base: body.as_mut_ptr().cast(), iov_len: self.room };
            message.msg_hdr.msg_iov = pieces.as_mut_ptr();
            message.msg_hdr.msg_iovlen = 2;
        }
        // SAFETY: each message names its head and its buffer, which live in `self` and which nobody
        // else looks at during the call.
        let count = unsafe {
            libc::recvmmsg(
                fd.as_fd().as_raw_fd(),
                self.messages.as_mut_ptr(),
                BATCH as u32,
                libc::MSG_DONTWAIT,
                ptr::null_mut(),
            )
        };
        let count = usize::try_from(count).map_err(|_| Error::last_os_error())?;
        let before = into.len();
        for index in 0..count {
            let message = self.messages[index];
            // A frame that was longer than the MTU permits has lost its end.
            if message.msg_hdr.msg_flags & libc::MSG_TRUNC == 0 {
                into.extend(self.frame(index, message.msg_len as usize, own));
            }
        }
        Ok(into.len() - before)
    }

    /// Receives one frame with a plain read.
    pub(super) fn receive_one(
        &mut self,
        fd: impl AsFd,
        own: Mac,
        into: &mut Vec<Frame>,
    ) -> Result<usize> {
        let (head, body) = (&mut self.heads[0], &mut self.bodies[0]);
        let mut pieces = [IoSliceMut::new(head), IoSliceMut::new(body)];
        let bytes = rustix::io::readv(fd, &mut pieces)?;
        let frame = self.frame(0, bytes, own);
        let count = usize::from(frame.is_some());
        into.extend(frame);
        Ok(count)
    }

    /// The frame of `bytes` bytes that came into this place, if it is AoE and for `own` or a group.
    fn frame(&mut self, index: usize, bytes: usize, own: Mac) -> Option<Frame> {
        let head = self.heads[index];
        if !is_for(&head[..bytes.min(HEAD_BYTES)], own) {
            return None;
        }
        let Some(rest) = bytes.checked_sub(HEAD_BYTES) else {
            return Some(Frame::new(&head[..bytes]));
        };
        if bytes <= MIN_FRAME_BYTES {
            let mut short = [0; MIN_FRAME_BYTES];
            short[..HEAD_BYTES].copy_from_slice(&head);
            short[HEAD_BYTES..bytes].copy_from_slice(&self.bodies[index][..rest]);
            return Some(Frame::new(&short[..bytes]));
        }
        let mut body = std::mem::replace(&mut self.bodies[index], self.pool.take(self.room));
        body.truncate(rest);
        Some(Frame::with_body(head, body.freeze()))
    }
}

/// True if a frame that begins with `head` is AoE and for `own` or a group.
pub(super) fn is_for(head: &[u8], own: Mac) -> bool {
    let Some((header, _)) = head.split_first_chunk::<ETHERNET_BYTES>() else { return false };
    let [a, b, c, d, e, f, ..] = *header;
    let to = Mac([a, b, c, d, e, f]);
    header[12..] == super::open::ETHERTYPE.to_be_bytes() && (to == own || to.is_group())
}

/// The descriptions of the frames of the next call.
pub(super) struct Outbox {
    pieces: Box<[[libc::iovec; 3]; BATCH]>,
    messages: Box<[libc::mmsghdr; BATCH]>,
}

impl Outbox {
    pub(super) fn new() -> Outbox {
        Outbox {
            pieces: Box::new([[NO_PIECE; 3]; BATCH]),
            messages: Box::new(std::array::from_fn(|_| no_message())),
        }
    }

    /// Sends frames from the front, and says how many.
    pub(super) fn send(
        &mut self,
        fd: impl AsFd,
        frames: &VecDeque<Frame>,
        to: Option<&SocketAddrUnix>,
    ) -> Result<usize> {
        match to {
            None => self.send_to(fd, frames, ptr::null_mut(), 0),
            Some(to) => {
                // SAFETY: the address lives as long as the call.
                unsafe {
                    to.with_sockaddr(|name, bytes| {
                        self.send_to(fd, frames, name.cast_mut().cast(), bytes)
                    })
                }
            }
        }
    }

    fn send_to(
        &mut self,
        fd: impl AsFd,
        frames: &VecDeque<Frame>,
        name: *mut libc::c_void,
        name_bytes: u32,
    ) -> Result<usize> {
        let mut count = 0;
        for (index, frame) in frames.iter().take(BATCH).enumerate() {
            let pieces = &mut self.pieces[index];
            for (piece, bytes) in pieces.iter_mut().zip(parts(frame)) {
                let base = bytes.as_ptr().cast_mut().cast();
                *piece = libc::iovec { iov_base: base, iov_len: bytes.len() };
            }
            let header = &mut self.messages[index].msg_hdr;
            header.msg_name = name;
            header.msg_namelen = name_bytes;
            header.msg_iov = pieces.as_mut_ptr();
            header.msg_iovlen = pieces.len();
            count += 1;
        }
        // SAFETY: each message names parts of a frame, which outlive the call and are only read.
        let sent = unsafe {
            libc::sendmmsg(
                fd.as_fd().as_raw_fd(),
                self.messages.as_mut_ptr(),
                count,
                libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL,
            )
        };
        usize::try_from(sent).map_err(|_| Error::last_os_error())
    }

    /// Sends one frame with a plain write, and says how many: 1.
    pub(super) fn send_one(&mut self, fd: impl AsFd, frame: &Frame) -> Result<usize> {
        let pieces = parts(frame).map(IoSlice::new);
        rustix::io::writev(fd, &pieces)?;
        Ok(1)
    }
}

/// The bytes of a frame, with its padding.
fn parts(frame: &Frame) -> [&[u8]; 3] {
    let padding = MIN_FRAME_BYTES.saturating_sub(frame.bytes());
    [frame.head(), frame.body(), &PADDING[..padding]]
}
