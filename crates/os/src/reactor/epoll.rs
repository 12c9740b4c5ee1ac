//! Readiness without io_uring: one-shot epoll, armed like the ring's polls.
//!
//! Invariant: a source is in the set from its first arming until it is dropped; the key of an event
//! is its place in `sources`.

use std::cell::RefCell;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::{Rc, Weak};
use std::time::Duration;

use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};

use super::bell::Sleeper;
use super::source::{Direction, Source};

const BELL: u64 = u64::MAX;
const BATCH: usize = 256;

/// See the module.
pub(crate) struct Epoll {
    fd: OwnedFd,
    sources: RefCell<Sources>,
    events: RefCell<Vec<Event>>,
}

#[derive(Default)]
struct Sources {
    slots: Vec<Option<Weak<Source>>>,
    free: Vec<usize>,
}

impl Epoll {
    pub(crate) fn new(sleeper: &Sleeper) -> io::Result<Epoll> {
        let fd = epoll::create(CreateFlags::CLOEXEC)?;
        epoll::add(&fd, sleeper, EventData::new_u64(BELL), EventFlags::IN)?;
        let events = RefCell::new(Vec::with_capacity(BATCH));
        Ok(Epoll { fd, sources: RefCell::default(), events })
    }

    /// Takes a source in, without interest in anything yet. False if it is always ready (a plain
    /// file).
    pub(crate) fn add(&self, source: &Rc<Source>, fd: BorrowedFd<'_>) -> io::Result<Option<usize>> {
        let mut sources = self.sources.borrow_mut();
        let slot = sources.free.pop().unwrap_or_else(|| {
            sources.slots.push(None);
            sources.slots.len() - 1
        });
        let key = EventData::new_u64(slot as u64);
        if let Err(error) = epoll::add(&self.fd, fd, key, EventFlags::ONESHOT) {
            sources.free.push(slot);
            return if error == rustix::io::Errno::PERM { Ok(None) } else { Err(error.into()) };
        }
        sources.slots[slot] = Some(Rc::downgrade(source));
        Ok(Some(slot))
    }

    /// Reports the next readiness of these directions, once.
    pub(crate) fn arm(&self, slot: usize, fd: BorrowedFd<'_>, wanted: &[Direction]) {
        let mut flags = EventFlags::ONESHOT;
        for direction in wanted {
            flags |= match direction {
                Direction::Read => EventFlags::IN | EventFlags::RDHUP,
                Direction::Write => EventFlags::OUT,
            };
        }
        epoll::modify(&self.fd, fd, EventData::new_u64(slot as u64), flags)
            .expect("the source was added, and its descriptor is open");
    }

    pub(crate) fn remove(&self, slot: usize, fd: BorrowedFd<'_>) {
        // Fails only if the descriptor is not in the set: then there is nothing to remove.
        let _ = epoll::delete(&self.fd, fd);
        let mut sources = self.sources.borrow_mut();
        sources.slots[slot] = None;
        sources.free.push(slot);
    }

    /// Waits and wakes. Returns how many sources were ready.
    pub(crate) fn wait(&self, wait_limit: Option<Duration>, sleeper: &Sleeper) -> usize {
        let timeout = wait_limit.map(|wait_limit| rustix::event::Timespec {
            tv_sec: i64::try_from(wait_limit.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: wait_limit.subsec_nanos().into(),
        });
        let mut events = self.events.take();
        events.clear();
        // EINTR is the only failure of an own epoll set: nothing happened.
        let _ = epoll::wait(self.fd.as_fd(), spare_capacity(&mut events), timeout.as_ref());
        // Before completions are delivered: a wake on this thread need not ring.
        sleeper.get_up();
        let mut woken = 0;
        for event in &events {
            let key = event.data.u64();
            if key == BELL {
                sleeper.silence();
                continue;
            }
            woken += 1;
            let source = self.sources.borrow().slots[key as usize].as_ref().and_then(Weak::upgrade);
            if let Some(source) = source {
                source.ready();
            }
        }
        self.events.replace(events);
        woken
    }
}
