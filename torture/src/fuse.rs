//! The kernel's FUSE protocol, as far as a folder of a few files of fixed size needs it.
//!
//! Source: `include/uapi/linux/fuse.h`, protocol 7.31. All numbers are little-endian here: the
//! machine's own, as the kernel has it.
//!
//! ```text
//!   request  len32 opcode32 unique64 node64 uid32 gid32 pid32 extra32   arguments…
//!   reply    len32 error32 unique64                                     answer…
//! ```
//!
//! Owns the bytes. Never reads or writes the device, never decides anything.

/// Room for one request: the longest write, and its header.
pub(crate) const REQUEST_BYTES: usize = MAX_WRITE as usize + 4096;
const MAX_WRITE: u32 = 1 << 20;

/// The folder; members follow it.
pub(crate) const ROOT: u64 = 1;

const HEADER: usize = 40;
const MINOR: u32 = 31;

/// Linux error numbers of answers.
pub(crate) mod errno {
    pub(crate) const ENOENT: i32 = 2;
    pub(crate) const EIO: i32 = 5;
    pub(crate) const EINVAL: i32 = 22;
    pub(crate) const ENOSPC: i32 = 28;
    pub(crate) const ENOSYS: i32 = 38;
}

/// A request of the kernel's. `fh` is the number that an open was answered with.
pub(crate) struct Request<'a> {
    pub(crate) unique: u64,
    pub(crate) node: u64,
    pub(crate) call: Call<'a>,
}

pub(crate) enum Call<'a> {
    Init,
    Lookup(&'a [u8]),
    GetAttributes,
    Open,
    Read {
        fh: u64,
        offset: u64,
        len: u64,
    },
    Write {
        fh: u64,
        offset: u64,
        bytes: &'a [u8],
        fua: bool,
    },
    Sync {
        fh: u64,
    },
    Allocate {
        fh: u64,
        offset: u64,
        len: u64,
    },
    FileSystem,
    /// Needs only an acknowledgement.
    Close,
    /// Wants no answer.
    Notice,
    Unknown,
}

/// O_DSYNC, which O_SYNC has too.
const DSYNC: u32 = 0o10000;

impl<'a> Request<'a> {
    /// The kernel's message; `None` if that is no request.
    pub(crate) fn parse(bytes: &'a [u8]) -> Option<Request<'a>> {
        let (head, rest) = bytes.split_at_checked(HEADER)?;
        let arguments = Arguments(rest);
        let call = match Arguments(head).u32(4)? {
            1 => Call::Lookup(rest.split(|byte| *byte == 0).next()?),
            2 | 36 | 42 => Call::Notice,
            3 => Call::GetAttributes,
            14 => Call::Open,
            15 => Call::Read {
                fh: arguments.u64(0)?,
                offset: arguments.u64(8)?,
                len: arguments.u32(16)?.into(),
            },
            16 => Call::Write {
                fh: arguments.u64(0)?,
                offset: arguments.u64(8)?,
                bytes: rest.get(40..40 + arguments.u32(16)? as usize)?,
                fua: arguments.u32(32)? & DSYNC != 0,
            },
            17 => Call::FileSystem,
            20 => Call::Sync { fh: arguments.u64(0)? },
            18 | 25 => Call::Close,
            26 => Call::Init,
            43 => Call::Allocate {
                fh: arguments.u64(0)?,
                offset: arguments.u64(8)?,
                len: arguments.u64(16)?,
            },
            _ => Call::Unknown,
        };
        Some(Request { unique: Arguments(head).u64(8)?, node: Arguments(head).u64(16)?, call })
    }
}

struct Arguments<'a>(&'a [u8]);

impl Arguments<'_> {
    fn u32(&self, at: usize) -> Option<u32> {
        Some(u32::from_le_bytes(self.0.get(at..at + 4)?.try_into().ok()?))
    }

    fn u64(&self, at: usize) -> Option<u64> {
        Some(u64::from_le_bytes(self.0.get(at..at + 8)?.try_into().ok()?))
    }
}

/// A reply: bytes, or an error's number.
pub(crate) fn reply(unique: u64, answer: Result<&[u8], i32>) -> Vec<u8> {
    let (error, bytes) = match answer {
        Ok(bytes) => (0, bytes),
        Err(errno) => (-errno, &[][..]),
    };
    let mut reply = Vec::with_capacity(16 + bytes.len());
    reply.extend((16 + bytes.len() as u32).to_le_bytes());
    reply.extend(error.to_le_bytes());
    reply.extend(unique.to_le_bytes());
    reply.extend(bytes);
    reply
}

/// The answer to [`Call::Init`].
pub(crate) fn init() -> Vec<u8> {
    // ASYNC_READ, BIG_WRITES, ASYNC_DIO, MAX_PAGES.
    let flags: u32 = 1 | 1 << 5 | 1 << 15 | 1 << 22;
    let (background, congested): (u16, u16) = (1024, 768);
    let mut answer = Vec::new();
    [7, MINOR, 0, flags].iter().for_each(|number| answer.extend(number.to_le_bytes()));
    [background, congested].iter().for_each(|number| answer.extend(number.to_le_bytes()));
    [MAX_WRITE, 1].iter().for_each(|number| answer.extend(number.to_le_bytes()));
    let pages = (MAX_WRITE / 4096) as u16;
    [pages, 0].iter().for_each(|number| answer.extend(number.to_le_bytes()));
    answer.resize(64, 0);
    answer
}

/// The attributes of a file: its size, and whether it still has a name.
fn attributes(node: u64, bytes: u64, links: u32) -> Vec<u8> {
    let (mode, block): (u32, u32) = (if node == ROOT { 0o040_755 } else { 0o100_600 }, 4096);
    let mut answer = Vec::new();
    [node, bytes, bytes / 512, 0, 0, 0].iter().for_each(|n| answer.extend(n.to_le_bytes()));
    let rest = [0, 0, 0, mode, links, 0, 0, 0, block, 0];
    rest.iter().for_each(|number| answer.extend(number.to_le_bytes()));
    answer
}

/// The answer to [`Call::GetAttributes`], good for this moment only.
pub(crate) fn attributes_now(node: u64, bytes: u64, links: u32) -> Vec<u8> {
    let mut answer = vec![0; 16];
    answer.extend(attributes(node, bytes, links));
    answer
}

/// The answer to [`Call::Lookup`], good for this moment only.
pub(crate) fn entry(node: u64, bytes: u64, links: u32) -> Vec<u8> {
    let mut answer = node.to_le_bytes().to_vec();
    answer.resize(40, 0);
    answer.extend(attributes(node, bytes, links));
    answer
}

/// The answer to [`Call::FileSystem`]: nothing worth knowing.
pub(crate) fn file_system() -> Vec<u8> {
    let mut answer = vec![0; 40];
    [4096_u32, 255, 4096].iter().for_each(|number| answer.extend(number.to_le_bytes()));
    answer.resize(80, 0);
    answer
}

/// The answer to [`Call::Open`]: around the page cache, several writes at a time.
pub(crate) fn opened(fh: u64) -> Vec<u8> {
    let flags: u32 = 1 | 1 << 6;
    [&fh.to_le_bytes()[..], &flags.to_le_bytes(), &[0; 4]].concat()
}

/// The answer to [`Call::Write`].
pub(crate) fn written(len: usize) -> Vec<u8> {
    [(len as u32).to_le_bytes(), [0; 4]].concat()
}
