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

/// The number of columns of this terminal; `None` if it is no terminal, or the number is
/// unknown.
pub fn terminal_columns(terminal: impl std::os::fd::AsFd) -> Option<u16> {
    let size = rustix::termios::tcgetwinsize(terminal).ok()?;
    Some(size.ws_col).filter(|&columns| columns > 0)
}

/// Reads from this terminal while it does not show what is typed.
///
/// # Errors
/// If it is no terminal.
pub fn without_echo<T>(
    terminal: impl std::os::fd::AsFd,
    read: impl FnOnce() -> T,
) -> std::io::Result<T> {
    use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};
    let usual = tcgetattr(&terminal)?;
    let mut silent = usual.clone();
    silent.local_modes.remove(LocalModes::ECHO);
    tcsetattr(&terminal, OptionalActions::Flush, &silent)?;
    let result = read();
    tcsetattr(&terminal, OptionalActions::Now, &usual)?;
    Ok(result)
}
