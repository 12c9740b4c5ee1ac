//! The seam: the interfaces that Parapet needs from the outside, without their implementation.
//!
//! ```text
//!    array   net          speak only this
//!       \    /
//!         io              Disk · Stream · Link · Channel · Clock · Mailbox, and their buffers
//!       /    \
//!     os      sim         the real world, the pretend world
//! ```
//!
//! Owns the traits, the aligned buffer [`Buf`], the [`Completion`] of an operation, and
//! [`MemDisk`], the reference implementation of a disk. Never opens a file, a socket or a clock.
//! `unsafe` is in `buf.rs` only.
#![deny(unsafe_code)]
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

pub mod broken;
pub mod budget;
pub mod buf;
pub mod channel;
pub mod clock;
pub mod completion;
#[cfg(feature = "contract")]
pub mod contract;
pub mod disk;
pub mod error;
pub mod link;
pub mod mailbox;
pub mod mem;
pub mod mem_link;
pub mod part;
pub mod signal;
pub mod stream;
pub mod tasks;

pub use budget::{Budget, Permit};
pub use buf::{BUF_ALIGN, Buf, Pool, SharedBuf};
pub use channel::Channel;
pub use clock::{Clock, Cost, Time, Timers};
pub use completion::{Completion, Completions, Ticket};
pub use disk::{Class, Disk, Done, Extent, ExtentKind, Limits, Op, Work, ZeroSupport};
pub use error::{Error, ErrorKind, Result};
pub use link::{Frame, Link, LinkState, Mac};
pub use mailbox::Mailbox;
pub use mem::MemDisk;
pub use mem_link::{MemLink, MemWire};
pub use part::Part;
pub use signal::{Signal, Turn};
pub use stream::Stream;
pub use tasks::{Boxed, TaskSet};
