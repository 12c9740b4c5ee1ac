//! The one thing that everything in Parapet is: a disk.
//!
//! **Contract** (checked by `contract.rs` against every implementation):
//! - Operations in flight may run in any order, except that a flush covers every write that was
//!   *completed* before the flush was submitted. Overlapping writes in flight land in any order.
//! - An operation owns its buffers and gives all of them back with its completion, exactly once,
//!   also when it fails. Dropping the completion does not cancel it.
//! - Reads fill all their buffers or fail. After a failed write the range holds old or new bytes,
//!   sector by sector.
//! - Without `fua`, a completed write may be lost by a power cut until a flush completes; with it,
//!   not.
//! - Offsets and lengths are multiples of [`Limits::logical_block`], and within [`Limits::bytes`];
//!   anything else is `Refused` and changes nothing.
//! - A length of zero succeeds and does nothing.

use crate::buf::{Buf, SharedBuf};
use crate::clock::Time;
use crate::completion::Completion;
use crate::error::Result;

/// Anything with blocks: a file, a device, a remote export, an array, a model.
pub trait Disk {
    /// Starts an operation.
    fn submit(&self, op: Op) -> Completion<Done>;

    /// The disk's current limits.
    fn limits(&self) -> Limits;

    /// Completes with the new size when the disk has grown or shrunk.
    fn resized(&self) -> Completion<u64> {
        Completion::never()
    }
}

/// An operation, with everything it needs.
#[derive(Debug)]
pub struct Op {
    /// First byte, from the start of the disk.
    pub offset: u64,
    /// The operation.
    pub work: Work,
    /// For writes, zeroes and discards: complete only when durable.
    pub fua: bool,
    /// After this time the answer is useless: the disk may fail with `Timeout`.
    pub deadline: Option<Time>,
    /// The requester's priority.
    pub class: Class,
}

/// An operation. Buffers come back in the same shape in [`Done`].
#[derive(Debug)]
pub enum Work {
    /// Fill these buffers, in order.
    Read(Vec<Buf>),
    /// Write these buffers, in order.
    Write(Vec<SharedBuf>),
    /// Make every write that has completed durable.
    Flush,
    /// Make these bytes read as zeros.
    Zero {
        /// How many bytes.
        len: u64,
        /// May the space be given back?
        unmap: bool,
        /// Refuse rather than be no faster than writing zeros.
        fast: bool,
    },
    /// These bytes are not needed any more. [`Limits::discard_zeroes`] says how they read later.
    Discard {
        /// How many bytes.
        len: u64,
    },
    /// Say which parts of these bytes are stored, and which read as zeros.
    Extents {
        /// How many bytes.
        len: u64,
        /// Ascending extents without gaps; may end before `len`, but not before the first byte.
        found: Vec<Extent>,
    },
}

/// The answer to an operation: the work with its buffers, and how it went.
#[derive(Debug)]
pub struct Done {
    /// The submitted operation.
    pub work: Work,
    /// How it went.
    pub result: Result<()>,
}

/// A run of bytes of one kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extent {
    /// How many bytes.
    pub len: u64,
    /// The kind of these bytes.
    pub kind: ExtentKind,
}

/// The kind of an [`Extent`], as in NBD's `base:allocation`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ExtentKind {
    /// Stored; content unknown.
    Data,
    /// Stored (space is reserved), and reads as zeros.
    Zero,
    /// Not stored, and reads as zeros.
    Hole,
}

/// Priority: background work yields to the foreground.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Class {
    /// A client waits for it.
    #[default]
    Foreground,
    /// Rebuild, resync, scrub.
    Background,
    /// Superblocks and bitmaps: everyone waits for it.
    Metadata,
}

/// How cheaply a disk makes zeros.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum ZeroSupport {
    /// Only by writing them.
    #[default]
    Written,
    /// Faster than writing.
    Fast,
}

/// The limits of a disk. Sizes in bytes; block sizes are powers of two.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Size of the disk.
    pub bytes: u64,
    /// The unit of offsets and lengths.
    pub logical_block: u32,
    /// The unit the medium really writes; smaller writes cost a read there.
    pub physical_block: u32,
    /// A write of this many bytes, so aligned, is never torn by a power cut.
    pub atomic_write: u32,
    /// The size and alignment of requests that suits best: a chunk, or a page.
    pub optimal: u32,
    /// How `Zero` is done.
    pub zero: ZeroSupport,
    /// `Discard` does something.
    pub discard: bool,
    /// Discarded bytes read as zeros, always.
    pub discard_zeroes: bool,
    /// Distance costs time.
    pub rotational: bool,
    /// Writes are refused.
    pub read_only: bool,
    /// Completed writes may be lost by a power cut until flushed.
    pub volatile: bool,
    /// Changes when the server behind the disk has restarted (and may have lost unflushed writes);
    /// 0 if unknown.
    pub boot_id: u64,
    /// The owner's epoch that the disk enforces; 0 where it enforces none.
    pub epoch: u64,
    /// The store whose free space the disk may need for a write; 0 where it needs none, or where
    /// that cannot be told. Disks of one store run out of space together.
    pub store: u64,
}

impl Limits {
    /// A plain disk of this size: 512-byte blocks, volatile cache, nothing special.
    pub fn plain(bytes: u64) -> Limits {
        Limits {
            bytes,
            logical_block: 512,
            physical_block: 4096,
            atomic_write: 512,
            optimal: 4096,
            zero: ZeroSupport::Written,
            discard: false,
            discard_zeroes: false,
            rotational: false,
            read_only: false,
            volatile: true,
            boot_id: 0,
            epoch: 0,
            store: 0,
        }
    }

    /// Checks an operation: range, alignment, read-only. Every disk calls this first.
    pub fn check(&self, op: &Op) -> Option<&'static str> {
        let len = op.work.len();
        let mask = u64::from(self.logical_block) - 1;
        match op.work {
            Work::Flush => return None,
            Work::Read(_) | Work::Extents { .. } => {}
            _ if self.read_only => return Some("the disk is read-only"),
            _ => {}
        }
        if op.offset.checked_add(len).is_none_or(|end| end > self.bytes) {
            return Some("the range ends after the end of the disk");
        }
        if (op.offset | len) & mask != 0 {
            return Some("the range is not aligned to the logical block");
        }
        None
    }
}

impl Work {
    /// How many bytes the operation covers; 0 for a flush.
    pub fn len(&self) -> u64 {
        match self {
            Work::Read(bufs) => bufs.iter().map(|buf| buf.len() as u64).sum(),
            Work::Write(bufs) => bufs.iter().map(|buf| buf.len() as u64).sum(),
            Work::Flush => 0,
            Work::Zero { len, .. } | Work::Discard { len } | Work::Extents { len, .. } => *len,
        }
    }

    /// True if the operation covers no byte.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// True if the operation changes bytes.
    pub fn is_write(&self) -> bool {
        matches!(self, Work::Write(_) | Work::Zero { .. } | Work::Discard { .. })
    }
}

impl Op {
    /// This work at this offset, for a client, without FUA or deadline.
    pub fn new(offset: u64, work: Work) -> Op {
        Op { offset, work, fua: false, deadline: None, class: Class::Foreground }
    }

    /// Fills `buf` from `offset`.
    pub fn read(offset: u64, buf: Buf) -> Op {
        Op::new(offset, Work::Read(vec![buf]))
    }

    /// Writes `buf` at `offset`.
    pub fn write(offset: u64, buf: SharedBuf) -> Op {
        Op::new(offset, Work::Write(vec![buf]))
    }

    /// Makes completed writes durable.
    pub fn flush() -> Op {
        Op::new(0, Work::Flush)
    }

    /// The same operation, durable when it completes.
    #[must_use]
    pub fn with_fua(mut self) -> Op {
        self.fua = true;
        self
    }

    /// The same operation in another class.
    #[must_use]
    pub fn with_class(mut self, class: Class) -> Op {
        self.class = class;
        self
    }
}

impl Done {
    /// Success.
    pub fn ok(work: Work) -> Done {
        Done { work, result: Ok(()) }
    }

    /// Failure; the buffers come back all the same.
    pub fn failed(work: Work, error: crate::Error) -> Done {
        Done { work, result: Err(error) }
    }

    /// The single buffer of a read.
    ///
    /// # Panics
    /// If this was not a read with one buffer.
    pub fn into_buf(self) -> Buf {
        match self.work {
            Work::Read(mut bufs) if bufs.len() == 1 => bufs.pop().expect("one buffer"),
            other => panic!("not a read with one buffer: {other:?}"),
        }
    }
}
