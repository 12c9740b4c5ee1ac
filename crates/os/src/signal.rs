//! Signals as a future.
//!
//! The handler writes the signal's number into a pipe, which is all that a handler may do. (A
//! signalfd would want the signals blocked in every thread, and children would inherit that.)
//! SIGPIPE is ignored: a vanished client is an error of one write.
//!
//! Invariant: `PIPE` is the writing end of a living [`Signals`], or -1.

use std::future::poll_fn;
use std::io::{Error, ErrorKind, Result};
use std::os::fd::{AsRawFd, IntoRawFd};
use std::sync::atomic::{AtomicI32, Ordering};
use std::task::{Context, Poll};

use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};

use crate::executor::Spawner;
use crate::reactor::source::{Direction, Watched};

/// A signal that asks for something.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Signal {
    /// SIGINT: Ctrl-C.
    Interrupt,
    /// SIGTERM: the service manager wants it to stop.
    Terminate,
    /// SIGHUP: read the configuration again, or the terminal has gone.
    Hangup,
}

const HANDLED: [(i32, Signal); 3] = [
    (libc::SIGINT, Signal::Interrupt),
    (libc::SIGTERM, Signal::Terminate),
    (libc::SIGHUP, Signal::Hangup),
];

static PIPE: AtomicI32 = AtomicI32::new(-1);

/// Catches SIGINT, SIGTERM and SIGHUP for as long as it lives. There is one per process at a time.
///
/// SIGHUP stays ignored if this process was started so, as `nohup` does. SIGINT does not: shells
/// have it ignored by whatever they start in the background.
pub struct Signals {
    watched: Watched,
    caught: Vec<i32>,
}

impl Signals {
    /// Starts catching.
    ///
    /// # Errors
    /// `AlreadyExists` if a handler is installed; or when there are no descriptors left.
    pub fn catch(on: &Spawner) -> Result<Signals> {
        let (reader, writer) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        let watched = Watched::new(reader, on.reactor())?;
        let claimed =
            PIPE.compare_exchange(-1, writer.as_raw_fd(), Ordering::SeqCst, Ordering::SeqCst);
        if claimed.is_err() {
            let message = "this process already has a signal handler";
            return Err(Error::new(ErrorKind::AlreadyExists, message));
        }
        // Never closed: a handler on another thread may have read `PIPE` just before it changed.
        let _ = writer.into_raw_fd();
        let mut signals = Signals { watched, caught: Vec::new() };
        for (number, _) in HANDLED {
            if number == libc::SIGHUP && handler_of(number)? == libc::SIG_IGN {
                continue;
            }
            set_handler(number, handle as *const () as libc::sighandler_t)?;
            signals.caught.push(number);
        }
        set_handler(libc::SIGPIPE, libc::SIG_IGN)?;
        Ok(signals)
    }

    /// The next signal; several concurrent signals of one kind may be reported once.
    pub async fn next(&self) -> Signal {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    fn poll_next(&self, cx: &mut Context<'_>) -> Poll<Signal> {
        loop {
            let mut number = [0];
            match rustix::io::read(&self.watched, &mut number) {
                Ok(1) => {
                    let caught = HANDLED.iter().find(|(handled, _)| *handled == number[0].into());
                    if let Some(&(_, signal)) = caught {
                        return Poll::Ready(signal);
                    }
                }
                Err(Errno::INTR) => {}
                // EAGAIN; nothing else can happen to a pipe whose other end is never closed.
                _ => {
                    self.watched.arm(Direction::Read, cx);
                    return Poll::Pending;
                }
            }
        }
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        for &number in &self.caught {
            // It could be set, so it can be set back.
            let _ = set_handler(number, libc::SIG_DFL);
        }
        PIPE.store(-1, Ordering::SeqCst);
    }
}

extern "C" fn handle(number: i32) {
    let pipe = PIPE.load(Ordering::SeqCst);
    let number = number as u8;
    // SAFETY: write is async-signal-safe, and is given one byte that lives until it returns. errno
    // is put back for the code that was interrupted.
    unsafe {
        let errno = *libc::__errno_location();
        libc::write(pipe, (&raw const number).cast(), 1);
        *libc::__errno_location() = errno;
    }
}

fn handler_of(number: i32) -> Result<libc::sighandler_t> {
    // SAFETY: zeros are a valid sigaction.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: nothing is set; the action lives until the call returns.
    let answer = unsafe { libc::sigaction(number, std::ptr::null(), &raw mut action) };
    if answer == 0 { Ok(action.sa_sigaction) } else { Err(Error::last_os_error()) }
}

fn set_handler(number: i32, handler: libc::sighandler_t) -> Result<()> {
    // SAFETY: zeros are a valid sigaction: no flags, an empty mask.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler;
    action.sa_flags = libc::SA_RESTART;
    // SAFETY: `handle` is async-signal-safe; the action lives until the call returns.
    let answer = unsafe { libc::sigaction(number, &raw const action, std::ptr::null_mut()) };
    if answer == 0 { Ok(()) } else { Err(Error::last_os_error()) }
}
