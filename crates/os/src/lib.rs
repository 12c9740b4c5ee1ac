//! The real world: the seam (`io`), implemented with Linux system calls.
//!
//! ```text
//!    Executor ── runs tasks until none is awake, then takes one turn of the
//!       │
//!    Reactor ─── io_uring: disks' operations, readiness, timeouts, in one system call per turn
//!       │        (epoll, where io_uring is not permitted)
//!    ┌──┴─────┬────────┬────────┬─────────┬─────────┬─────────┐
//!    disk     socket   link     fuse      clock     signal    mailbox ─ eventfd ▶ another thread
//! ```
//!
//! Owns every system call of Parapet and, with `io/buf.rs` and the parity kernels, all of its
//! `unsafe` code. Knows neither RAID nor protocols. One executor per thread; nothing here is shared
//! between threads but mailboxes and wakers.

pub mod clock;
pub mod disk;
pub mod executor;
pub mod fuse;
mod genetlink;
pub mod link;
pub mod loop_device;
pub mod mailbox;
pub mod nbd;
mod reactor;
pub mod signal;
pub mod socket;
pub mod threads;
pub mod ublk;
pub mod uevent;

pub use clock::MonotonicClock;
pub use disk::{Direct, FileDisk, OpenError, Options, SharedFile};
pub use executor::{Config, Engine, Executor, Spawner};
pub use fuse::FuseMount;
pub use link::Port;
pub use signal::{Signal, Signals};
pub use socket::{Address, Listener, Peer, Socket, Stdio};
pub use ublk::UblkQueue;
pub use uevent::Uevents;

use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};

/// The number of columns of this terminal; `None` if it is no terminal, or the number is
/// unknown.
pub fn terminal_columns(terminal: impl std::os::fd::AsFd) -> Option<u16> {
    let size = rustix::termios::tcgetwinsize(terminal).ok()?;
    Some(size.ws_col).filter(|&columns| columns > 0)
}

/// A terminal that does not show what is typed, until this is dropped.
pub struct WithoutEcho<T: std::os::fd::AsFd> {
    terminal: T,
    usual: Termios,
}

impl<T: std::os::fd::AsFd> WithoutEcho<T> {
    /// Turns the echo of this terminal off. What was typed before is lost.
    ///
    /// # Errors
    /// If it is no terminal.
    pub fn new(terminal: T) -> std::io::Result<WithoutEcho<T>> {
        let usual = tcgetattr(&terminal)?;
        let mut silent = usual.clone();
        silent.local_modes.remove(LocalModes::ECHO);
        tcsetattr(&terminal, OptionalActions::Flush, &silent)?;
        Ok(WithoutEcho { terminal, usual })
    }
}

impl<T: std::os::fd::AsFd> Drop for WithoutEcho<T> {
    fn drop(&mut self) {
        // The terminal may have gone.
        let _ = tcsetattr(&self.terminal, OptionalActions::Now, &self.usual);
    }
}
