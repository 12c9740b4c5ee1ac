//! Standard input and output as one stream: `--stdio`, inetd, a parent's pipe.
//!
//! Takes over both descriptors and leaves `/dev/null` in their place, so that no print output gets
//! between the protocol's bytes. Pipes are reopened to become non-blocking: the flag would
//! otherwise affect the processes that share them.

use std::cell::RefCell;
use std::io::{IoSlice, Result};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::task::{Context, Poll};

use io::Stream;
use rustix::fs::{Mode, OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;
use rustix::net::Shutdown;

use super::SLICES;
use crate::executor::Spawner;
use crate::reactor::source::{Direction, Watched};

/// See the module.
pub struct Stdio {
    input: Watched,
    /// None once closed.
    output: RefCell<Option<Watched>>,
}

impl Stdio {
    /// Takes standard input and output.
    ///
    /// # Errors
    /// If one of them is closed, or there are no descriptors left.
    pub fn take(on: &Spawner) -> Result<Stdio> {
        let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
        let input = rustix::io::fcntl_dupfd_cloexec(std::io::stdin(), 3)?;
        let output = rustix::io::fcntl_dupfd_cloexec(std::io::stdout(), 3)?;
        rustix::stdio::dup2_stdin(&null)?;
        rustix::stdio::dup2_stdout(&null)?;
        Stdio::new(input, output, on)
    }

    fn new(input: OwnedFd, output: OwnedFd, on: &Spawner) -> Result<Stdio> {
        let input = Watched::new(unblocked(input, OFlags::RDONLY)?, on.reactor())?;
        let output = Watched::new(unblocked(output, OFlags::WRONLY)?, on.reactor())?;
        Ok(Stdio { input, output: RefCell::new(Some(output)) })
    }
}

/// The same end of the same pipe, non-blocking for us alone if that is possible.
fn unblocked(fd: OwnedFd, access: OFlags) -> Result<OwnedFd> {
    let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
    let flags = access | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    // Sockets cannot be reopened, nor can files without permission.
    if let Ok(own) = rustix::fs::open(path, flags, Mode::empty()) {
        return Ok(own);
    }
    fcntl_setfl(&fd, fcntl_getfl(&fd)? | OFlags::NONBLOCK)?;
    Ok(fd)
}

impl Stream for Stdio {
    fn poll_read(&self, cx: &mut Context<'_>, into: &mut [u8]) -> Poll<Result<usize>> {
        loop {
            match rustix::io::read(&self.input, &mut *into) {
                Ok(count) => return Poll::Ready(Ok(count)),
                Err(Errno::AGAIN) => {
                    self.input.arm(Direction::Read, cx);
                    return Poll::Pending;
                }
                Err(Errno::INTR) => {}
                Err(errno) => return Poll::Ready(Err(errno.into())),
            }
        }
    }

    fn poll_write(&self, cx: &mut Context<'_>, bytes: &[IoSlice<'_>]) -> Poll<Result<usize>> {
        let output = self.output.borrow();
        let Some(output) = output.as_ref() else {
            return Poll::Ready(Err(Errno::PIPE.into()));
        };
        loop {
            match rustix::io::writev(output, &bytes[..bytes.len().min(SLICES)]) {
                Ok(count) => return Poll::Ready(Ok(count)),
                Err(Errno::AGAIN) => {
                    output.arm(Direction::Write, cx);
                    return Poll::Pending;
                }
                Err(Errno::INTR) => {}
                Err(errno) => return Poll::Ready(Err(errno.into())),
            }
        }
    }

    fn poll_close(&self, _: &mut Context<'_>) -> Poll<Result<()>> {
        if let Some(output) = self.output.take() {
            // A socket's other direction stays open; a pipe has none, and ends by being closed.
            let _ = rustix::net::shutdown(output.as_fd(), Shutdown::Write);
        }
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use rustix::pipe::{PipeFlags, pipe_with};

    use super::*;
    use crate::{Config, Engine, Executor};

    #[test]
    fn pipes_carry_both_directions_and_end_when_closed() {
        for engine in [Engine::Uring, Engine::Epoll] {
            let on = Executor::new(Config { engine, ..Config::default() }).unwrap();
            let (input, theirs) = pipe_with(PipeFlags::CLOEXEC).unwrap();
            let (answers, output) = pipe_with(PipeFlags::CLOEXEC).unwrap();
            let stdio = Stdio::new(input, output, &on.spawner()).unwrap();
            let shared = fcntl_getfl(&theirs).unwrap() | fcntl_getfl(&answers).unwrap();
            assert!(!shared.contains(OFlags::NONBLOCK));
            let mut buf = [0; 16];
            // No data yet: the answer comes from another thread while we wait.
            let writer = std::thread::spawn(move || rustix::io::write(&theirs, b"hello").unwrap());
            let count = on.block_on(poll_fn(|cx| stdio.poll_read(cx, &mut buf))).unwrap();
            assert_eq!((&buf[..count], writer.join().unwrap()), (&b"hello"[..], 5));
            let end = on.block_on(poll_fn(|cx| stdio.poll_read(cx, &mut buf))).unwrap();
            assert_eq!(end, 0);
            let slices = [IoSlice::new(b"good"), IoSlice::new(b"bye")];
            let sent = on.block_on(poll_fn(|cx| stdio.poll_write(cx, &slices))).unwrap();
            on.block_on(poll_fn(|cx| stdio.poll_close(cx))).unwrap();
            assert_eq!(rustix::io::read(&answers, &mut buf).unwrap(), sent);
            assert_eq!(&buf[..sent], b"goodbye");
            assert_eq!(rustix::io::read(&answers, &mut buf).unwrap(), 0, "closed");
            let late = on.block_on(poll_fn(|cx| stdio.poll_write(cx, &slices)));
            assert!(late.is_err());
        }
    }
}
