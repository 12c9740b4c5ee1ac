//! The client: an export of another machine, as a [`Disk`].
//!
//! ```text
//!    Disk::submit ──▶ operations ──cut──▶ pieces ──▶ link ──▶ stream
//!                        ▲                  │ cookie           │
//!                        └───── answers ◀───┴──────────────────┘
//! ```
//!
//! [`connect()`] negotiates and gives a [`RemoteDisk`] and the [`Link`] that carries its requests;
//! the host drives the link. An operation over the server's maximum payload is cut into pieces,
//! each a request of its own.
//!
//! The server is not trusted: sizes, cookies, lengths, chunks and extents are checked, and any
//! violation ends the link. Then every operation fails with `Gone`, its outcome unknown: NBD cannot
//! resume a session, and a restarted server may have lost unflushed data.

mod connect;
mod link;
mod pieces;

use std::cell::RefCell;
use std::rc::Rc;

use io::{
    Completion, Completions, Disk, Done, Error, ErrorKind, Extent, ExtentKind, Limits, Op, Work,
};

use self::pieces::Pieces;
use super::wire::{Style, flags};

pub use self::connect::{ClientTls, ConnectError, Securing, connect};
pub use self::link::Link;

/// Results of the handshake.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Remote {
    style: Style,
    bytes: u64,
    flags: u16,
    /// The id of `base:allocation`, if the server offers it.
    allocation: Option<u32>,
    minimum: u32,
    preferred: u32,
    maximum: u32,
}

impl Remote {
    fn has(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }

    fn limits(&self) -> Limits {
        let logical_block = self.minimum.max(512);
        let fast = self.has(flags::SEND_FAST_ZERO);
        Limits {
            bytes: self.bytes & !(u64::from(logical_block) - 1),
            logical_block,
            physical_block: self.preferred.clamp(logical_block, 1 << 16),
            atomic_write: logical_block,
            optimal: self.preferred.max(logical_block),
            zero: if fast { io::ZeroSupport::Fast } else { io::ZeroSupport::Written },
            discard: self.has(flags::SEND_TRIM),
            discard_zeroes: false,
            rotational: self.has(flags::ROTATIONAL),
            read_only: self.has(flags::READ_ONLY),
            volatile: true,
            boot_id: 0,
            epoch: 0,
            store: 0,
        }
    }
}

/// An export of another machine. Its [`Link`] has to be driven; dropping the disk says goodbye.
pub struct RemoteDisk {
    limits: Limits,
    remote: Remote,
    shared: Rc<Shared>,
}

/// State shared by disk and link.
struct Shared {
    pieces: RefCell<Pieces>,
    answers: Completions<Done>,
}

impl Disk for RemoteDisk {
    fn submit(&self, mut op: Op) -> Completion<Done> {
        if let Some(fault) = self.limits.check(&op) {
            let context = format!("remote disk, offset {}: {fault}", op.offset);
            return Completion::ready(Done::failed(op.work, Error::refused(context)));
        }
        let len = op.work.len();
        match &mut op.work {
            Work::Flush => {}
            _ if len == 0 => return Completion::ready(Done::ok(op.work)),
            Work::Extents { found, .. } if self.remote.allocation.is_none() => {
                // Nothing is known: data is always a right answer.
                found.clear();
                found.push(Extent { len, kind: ExtentKind::Data });
                return Completion::ready(Done::ok(op.work));
            }
            Work::Discard { .. } if !self.limits.discard => {
                let error = Error::refused("the server offers no TRIM");
                return Completion::ready(Done::failed(op.work, error));
            }
            Work::Zero { fast: true, .. } if !self.remote.has(flags::SEND_FAST_ZERO) => {
                let error = Error::refused("the server offers no fast zeroing");
                return Completion::ready(Done::failed(op.work, error));
            }
            Work::Extents { found, .. } => found.clear(),
            _ => {}
        }
        let (ticket, completion) = self.shared.answers.start();
        let refused = self.shared.pieces.borrow_mut().enqueue(op, ticket);
        if let Some(work) = refused {
            let error = Error::new(ErrorKind::Gone, "remote disk: the connection has ended");
            self.shared.answers.finish(ticket, Done::failed(work, error));
        }
        completion
    }

    fn limits(&self) -> Limits {
        self.limits
    }
}

impl Drop for RemoteDisk {
    fn drop(&mut self) {
        self.shared.pieces.borrow_mut().leave();
    }
}
