//! One descriptor whose readiness is waited for: a task per direction at most.
//!
//! Protocol: try the call first; on `EAGAIN` [`Watched::arm`], and return pending. The readiness is
//! looked at when armed, so nothing that came in between is lost. Dropping takes polls back: the
//! kernel would otherwise hold the socket open after its descriptor is closed.

use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::task::{Context, Waker};

use io_uring::{opcode, types};

use super::ring::{Flight, Landing};
use super::{Backend, Reactor};

/// What is waited for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Direction {
    Read,
    Write,
}

const BOTH: [Direction; 2] = [Direction::Read, Direction::Write];

/// A non-blocking descriptor, and the reactor that watches it.
pub(crate) struct Watched {
    fd: OwnedFd,
    reactor: Rc<Reactor>,
    source: Rc<Source>,
    /// Its place in the epoll set; none on a ring, and for what is always ready.
    slot: Option<usize>,
}

/// Who waits.
#[derive(Default)]
pub(crate) struct Source {
    wakers: [RefCell<Option<Waker>>; 2],
    flights: [Cell<Option<Flight>>; 2],
}

impl Source {
    /// Wakes who waits for the directions that are ready.
    pub(crate) fn ready(&self, read: bool, write: bool) {
        for (direction, ready) in [(Direction::Read, read), (Direction::Write, write)] {
            let waker = if ready { self.wakers[direction as usize].take() } else { None };
            if let Some(waker) = waker {
                waker.wake();
            }
        }
        // One-shot polls of epoll cover both directions: whoever was not ready asks again.
        if read != write {
            let other = if read { Direction::Write } else { Direction::Read };
            let waker = self.wakers[other as usize].take();
            if let Some(waker) = waker {
                waker.wake();
            }
        }
    }
}

impl Landing for Source {
    fn land(self: Rc<Self>, token: u32, _: i32) {
        let direction = token as usize;
        self.flights[direction].set(None);
        let waker = self.wakers[direction].take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl Watched {
    /// Watches `fd`, which the caller has made non-blocking.
    pub(crate) fn new(fd: OwnedFd, reactor: &Rc<Reactor>) -> io::Result<Watched> {
        let source = Rc::new(Source::default());
        let slot = match &reactor.backend {
            Backend::Ring(_) => None,
            Backend::Epoll(epoll) => epoll.add(&source, fd.as_fd())?,
        };
        Ok(Watched { fd, reactor: Rc::clone(reactor), source, slot })
    }

    /// Wakes the task when the descriptor is ready (or broken).
    pub(crate) fn arm(&self, direction: Direction, cx: &mut Context<'_>) {
        {
            let mut waker = self.source.wakers[direction as usize].borrow_mut();
            match &mut *waker {
                Some(waker) => waker.clone_from(cx.waker()),
                None => *waker = Some(cx.waker().clone()),
            }
        }
        match (&self.reactor.backend, self.slot) {
            (Backend::Ring(ring), _) => {
                let flight = &self.source.flights[direction as usize];
                if flight.get().is_none() && !ring.is_closed() {
                    let mask = match direction {
                        Direction::Read => libc::POLLIN | libc::POLLRDHUP,
                        Direction::Write => libc::POLLOUT,
                    };
                    let fd = types::Fd(self.fd.as_raw_fd());
                    let entry = opcode::PollAdd::new(fd, mask as u32).build();
                    let owner = Rc::clone(&self.source);
                    // SAFETY: the entry names no memory.
                    let armed = unsafe { ring.launch(entry, owner, direction as u32) };
                    flight.set(Some(armed));
                }
            }
            (Backend::Epoll(epoll), Some(slot)) => {
                let waits = |direction: &Direction| {
                    self.source.wakers[*direction as usize].borrow().is_some()
                };
                let wanted: [Option<Direction>; 2] = BOTH.map(|d| waits(&d).then_some(d));
                match wanted {
                    [Some(_), Some(_)] => epoll.arm(slot, self.fd.as_fd(), &BOTH),
                    _ => epoll.arm(slot, self.fd.as_fd(), &[direction]),
                }
            }
            (Backend::Epoll(_), None) => cx.waker().wake_by_ref(),
        }
    }
}

impl AsFd for Watched {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        match (&self.reactor.backend, self.slot) {
            (Backend::Ring(ring), _) => {
                for flight in self.source.flights.iter().filter_map(Cell::get) {
                    ring.cancel(flight);
                }
            }
            (Backend::Epoll(epoll), Some(slot)) => epoll.remove(slot, self.fd.as_fd()),
            (Backend::Epoll(_), None) => {}
        }
    }
}
