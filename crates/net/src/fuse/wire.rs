//! FUSE's messages, as far as a file system of one file needs them.
//!
//! Source: `include/uapi/linux/fuse.h`, protocol 7.31 and later, in the byte order of the machine.
//! The kernel sends them; bytes that make no request are refused all the same.

use io::channel::{REQUEST_HEAD_BYTES, Request as Message};

/// The protocol that this file describes.
const MAJOR: u32 = 7;
const MINOR: u32 = 38;
/// The number of the root, which is the file itself.
const ROOT: u64 = 1;
/// Bytes of a request's header.
const HEADER_BYTES: usize = 40;
/// Bytes of an answer's header.
const ANSWER_BYTES: usize = 16;
/// A page, in which the kernel counts the longest request.
const PAGE_BYTES: u32 = 4096;
/// The most bytes of a read or a write.
pub const MAX_TRANSFER_BYTES: u32 = 1 << 20;
/// The most requests that the kernel sends before it waits for answers.
pub const MAX_BACKGROUND: u16 = 128;

mod code {
    pub(super) const FORGET: u32 = 2;
    pub(super) const GETATTR: u32 = 3;
    pub(super) const SETATTR: u32 = 4;
    pub(super) const OPEN: u32 = 14;
    pub(super) const READ: u32 = 15;
    pub(super) const WRITE: u32 = 16;
    pub(super) const STATFS: u32 = 17;
    pub(super) const RELEASE: u32 = 18;
    pub(super) const FSYNC: u32 = 20;
    pub(super) const INIT: u32 = 26;
    pub(super) const INTERRUPT: u32 = 36;
    pub(super) const DESTROY: u32 = 38;
    pub(super) const BATCH_FORGET: u32 = 42;
    pub(super) const FALLOCATE: u32 = 43;
}

/// Reads come as they are asked for, several at a time.
const ASYNC_READ: u32 = 1 << 0;
const BIG_WRITES: u32 = 1 << 5;
/// Direct requests do not wait for each other.
const ASYNC_DIO: u32 = 1 << 15;
const PARALLEL_DIROPS: u32 = 1 << 18;
/// `max_pages` counts.
const MAX_PAGES: u32 = 1 << 22;

/// The file bypasses the page cache, and writes do not exclude each other.
const DIRECT_IO: u32 = 1 << 0;
const PARALLEL_DIRECT_WRITES: u32 = 1 << 6;

/// `FALLOC_FL_PUNCH_HOLE` and `FALLOC_FL_ZERO_RANGE` of `linux/falloc.h`.
const PUNCH_HOLE: u32 = 0x02;
const ZERO_RANGE: u32 = 0x10;
/// `O_DSYNC`, which is a part of `O_SYNC`.
const DATA_SYNC: u32 = 0o10000;
/// A regular file that its owner reads, and one that the owner writes too.
const MODE_READ: u32 = 0o100_400;
const MODE_WRITE: u32 = 0o100_600;

/// `errno` of answers.
pub mod errno {
    /// Not allowed.
    pub const PERM: i32 = 1;
    /// The disk failed.
    pub const IO: i32 = 5;
    /// A malformed request.
    pub const INVAL: i32 = 22;
    /// Past the end.
    pub const FBIG: i32 = 27;
    /// The disk's store is full.
    pub const NOSPC: i32 = 28;
    /// The request is unknown: the kernel does not ask again.
    pub const NOSYS: i32 = 38;
    /// The disk does not do this.
    pub const NOTSUP: i32 = 95;
}

/// A request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Request {
    /// The kernel's first message, with its protocol.
    Init {
        /// Its protocol, 7 for all that are known.
        major: u32,
        /// What it can do.
        flags: u32,
    },
    /// Size and kind of the file.
    Attributes,
    /// A change of size, owner or times.
    SetAttributes,
    /// The file is opened.
    Open,
    /// The file is closed.
    Release,
    /// Space of the file system.
    Space,
    /// Read these bytes.
    Read {
        /// First byte.
        offset: u64,
        /// How many.
        bytes: u32,
    },
    /// Write the data behind the head.
    Write {
        /// First byte.
        offset: u64,
        /// How many.
        bytes: u32,
        /// Answer when it is durable.
        durable: bool,
    },
    /// Make everything durable that was answered.
    Flush,
    /// Make these bytes read as zeros.
    Zero {
        /// First byte.
        offset: u64,
        /// How many.
        bytes: u64,
        /// The space may be given back.
        unmap: bool,
    },
    /// Needs no answer: the kernel forgets the file, or wants a request ended early.
    Unanswered,
    /// The file system ends.
    Destroy,
    /// Anything else.
    Unknown,
}

/// Reads the header: the request's number and kind.
///
/// # Errors
/// The `errno` for the number, if it could be read: the bytes are no request.
pub fn parse(message: &Message) -> Result<(u64, Request), Option<(u64, i32)>> {
    let head = message.head.get(..message.head_bytes).ok_or(None)?;
    let total = head.len() + message.body.len();
    let (Some(len), Some(opcode)) = (u32_at(head, 0), u32_at(head, 4)) else { return Err(None) };
    let unique = u64_at(head, 8).ok_or(None)?;
    let malformed = Err(Some((unique, errno::INVAL)));
    if len as usize != total || total < HEADER_BYTES {
        return malformed;
    }
    let arguments = &head[HEADER_BYTES..];
    let (word, long) = (|at| u32_at(arguments, at), |at| u64_at(arguments, at));
    let request = match opcode {
        code::INIT => word(0).zip(word(12)).map(|(major, flags)| Request::Init { major, flags }),
        code::GETATTR => Some(Request::Attributes),
        code::SETATTR => Some(Request::SetAttributes),
        code::OPEN => Some(Request::Open),
        code::RELEASE => Some(Request::Release),
        code::STATFS => Some(Request::Space),
        code::READ => long(8)
            .zip(word(16))
            .filter(|&(_, bytes)| bytes <= MAX_TRANSFER_BYTES)
            .map(|(offset, bytes)| Request::Read { offset, bytes }),
        code::WRITE => {
            let data = total.checked_sub(REQUEST_HEAD_BYTES);
            let fields = long(8).zip(word(16)).zip(word(32));
            fields.filter(|&((_, bytes), _)| data == Some(bytes as usize)).map(
                |((offset, bytes), flags)| {
                    let durable = flags & DATA_SYNC != 0;
                    Request::Write { offset, bytes, durable }
                },
            )
        }
        code::FSYNC => Some(Request::Flush),
        code::FALLOCATE => {
            long(8).zip(long(16)).zip(word(24)).map(|((offset, bytes), mode)| match mode {
                _ if mode & PUNCH_HOLE != 0 => Request::Zero { offset, bytes, unmap: true },
                _ if mode & ZERO_RANGE != 0 => Request::Zero { offset, bytes, unmap: false },
                _ => Request::Unknown,
            })
        }
        code::FORGET | code::BATCH_FORGET | code::INTERRUPT => Some(Request::Unanswered),
        code::DESTROY => Some(Request::Destroy),
        _ => Some(Request::Unknown),
    };
    request.map_or(malformed, |request| Ok((unique, request)))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().map(|bytes| u64::from_ne_bytes(*bytes))
}

/// The header of an answer with this many bytes behind it; `error` is 0, or an `errno`.
pub fn answer(unique: u64, error: i32, bytes: usize) -> [u8; ANSWER_BYTES] {
    let mut header = [0; ANSWER_BYTES];
    header[..4].copy_from_slice(&((ANSWER_BYTES + bytes) as u32).to_ne_bytes());
    header[4..8].copy_from_slice(&(-error).to_ne_bytes());
    header[8..].copy_from_slice(&unique.to_ne_bytes());
    header
}

/// The answer to [`Request::Init`]: what both sides can do.
pub fn init(flags: u32) -> Vec<u8> {
    let wanted = ASYNC_READ | BIG_WRITES | ASYNC_DIO | PARALLEL_DIROPS | MAX_PAGES;
    let mut out = Out::default();
    out.word(MAJOR).word(MINOR).word(MAX_TRANSFER_BYTES).word(flags & wanted);
    // The kernel's queue is congested at three quarters.
    out.half(MAX_BACKGROUND).half(MAX_BACKGROUND / 4 * 3);
    // Times are in nanoseconds.
    out.word(MAX_TRANSFER_BYTES).word(1).half((MAX_TRANSFER_BYTES / PAGE_BYTES) as u16).half(0);
    out.zeros(32);
    out.0
}

/// The answer to [`Request::Attributes`] for a file of this size.
pub fn attributes(bytes: u64, read_only: bool, block: u32) -> Vec<u8> {
    let mut out = Out::default();
    // Valid for ever: nobody else changes them.
    out.long(u64::MAX).word(0).word(0);
    out.long(ROOT).long(bytes).long(bytes.div_ceil(512)).zeros(3 * 8 + 3 * 4);
    out.word(if read_only { MODE_READ } else { MODE_WRITE }).word(1).word(0).word(0).word(0);
    out.word(block).word(0);
    out.0
}

/// The answer to [`Request::Open`].
pub fn opened() -> Vec<u8> {
    let mut out = Out::default();
    out.long(0).word(DIRECT_IO | PARALLEL_DIRECT_WRITES).word(0);
    out.0
}

/// The answer to [`Request::Space`]: a file system that is full with its one file.
pub fn space(bytes: u64) -> Vec<u8> {
    let mut out = Out::default();
    out.long(bytes / u64::from(PAGE_BYTES)).zeros(2 * 8).long(1).zeros(8);
    out.word(PAGE_BYTES).word(255).word(PAGE_BYTES).zeros(7 * 4);
    out.0
}

/// The answer to [`Request::Write`].
pub fn written(bytes: u32) -> [u8; 8] {
    let mut out = [0; 8];
    out[..4].copy_from_slice(&bytes.to_ne_bytes());
    out
}

/// Fields of an answer, in order.
#[derive(Default)]
struct Out(Vec<u8>);

impl Out {
    fn half(&mut self, value: u16) -> &mut Out {
        self.0.extend(value.to_ne_bytes());
        self
    }

    fn word(&mut self, value: u32) -> &mut Out {
        self.0.extend(value.to_ne_bytes());
        self
    }

    fn long(&mut self, value: u64) -> &mut Out {
        self.0.extend(value.to_ne_bytes());
        self
    }

    fn zeros(&mut self, bytes: usize) -> &mut Out {
        self.0.resize(self.0.len() + bytes, 0);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_have_the_sizes_of_the_kernels_structures() {
        assert_eq!(init(u32::MAX).len(), 64);
        assert_eq!(attributes(1, false, 512).len(), 104);
        assert_eq!(opened().len(), 16);
        assert_eq!(space(1).len(), 80);
    }
}
