//! Runs futures on the calling thread.
//!
//! ```text
//!    ┌─▶ poll woken tasks, and those that they wake, until none is left ─┐
//!    │                                                                   ▼
//!    └── timers ◀── deliver completions ◀── one turn of the reactor (submit all, spin, sleep)
//! ```
//!
//! Tasks are `!Send` and never move; a waker may go anywhere. Waking allocates nothing.
//! Owns the thread's reactor: disks and sockets are opened with its [`Spawner`] and work as long as
//! it lives. Dropping the executor drops its tasks, then waits until the kernel has let go of every
//! buffer.

use std::future::Future;
use std::io::{Error, ErrorKind, Result};
use std::pin::pin;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use io::TaskSet;

use crate::clock::MonotonicClock;
use crate::reactor::Reactor;
use crate::reactor::bell::Bell;

/// Rounds of polling before the kernel gets its turn, however busy the tasks keep each other.
const ROUNDS: usize = 16;

/// Which of the kernel's interfaces an executor stands on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Engine {
    /// io_uring, or epoll where the kernel or a sandbox forbids it (ENOSYS, EPERM, EACCES).
    #[default]
    Auto,
    /// io_uring, or an error.
    Uring,
    /// epoll, and disks by blocking calls.
    Epoll,
}

/// How an executor is made.
#[derive(Clone, Debug)]
pub struct Config {
    /// The reactor below.
    pub engine: Engine,
    /// Spin time before it sleeps: 0 to some 50 µs. A wake from sleep costs 5 µs, one from another
    /// core 12 to 18; a spin costs its core. Spinning stops after repeated failures.
    pub spin: Duration,
    /// Entries of the ring's submission queue, a power of two from 8 to 32768: how many operations
    /// one turn hands over with a single call. More than that in flight is no problem.
    pub entries: u32,
}

impl Default for Config {
    fn default() -> Config {
        Config { engine: Engine::Auto, spin: Duration::from_micros(20), entries: 256 }
    }
}

/// A single-threaded executor with its reactor and its clock.
pub struct Executor {
    tasks: Rc<TaskSet>,
    bell: Arc<Bell>,
    waker: Waker,
    reactor: Rc<Reactor>,
    clock: Rc<MonotonicClock>,
}

/// Gives an executor more tasks, and opens disks and sockets on it. Stays on its thread.
#[derive(Clone)]
pub struct Spawner {
    tasks: Weak<TaskSet>,
    waker: Waker,
    reactor: Rc<Reactor>,
    clock: Rc<MonotonicClock>,
}

impl Executor {
    /// An executor for this thread.
    ///
    /// # Errors
    /// The kernel has no descriptors or memory left, or forbids the engine that [`Config::engine`]
    /// requires.
    pub fn new(config: Config) -> Result<Executor> {
        let reactor = Rc::new(match config.engine {
            Engine::Uring => Reactor::with_ring(config.entries, config.spin)?,
            Engine::Epoll => Reactor::with_epoll(config.spin)?,
            Engine::Auto => match Reactor::with_ring(config.entries, config.spin) {
                Err(error) if is_forbidden(&error) => Reactor::with_epoll(config.spin)?,
                made => made?,
            },
        });
        let bell = Bell::new(reactor.sleeper());
        let waker = Waker::from(Arc::clone(&bell));
        let clock = Rc::new(MonotonicClock::new());
        Ok(Executor { tasks: Rc::default(), bell, waker, reactor, clock })
    }

    /// Adds tasks to this executor.
    pub fn spawner(&self) -> Spawner {
        Spawner {
            tasks: Rc::downgrade(&self.tasks),
            waker: self.waker.clone(),
            reactor: Rc::clone(&self.reactor),
            clock: Rc::clone(&self.clock),
        }
    }

    /// The clock whose timers this executor fires.
    pub fn clock(&self) -> Rc<MonotonicClock> {
        Rc::clone(&self.clock)
    }

    /// True if this executor stands on io_uring.
    pub fn has_ring(&self) -> bool {
        self.reactor.ring().is_some()
    }

    /// Adds a task; it runs while [`Executor::block_on`] does.
    pub fn spawn_local(&self, future: impl Future<Output = ()> + 'static) {
        self.tasks.spawn(future);
        self.waker.wake_by_ref();
    }

    /// Runs `future`, and all tasks beside it, until `future` completes. Tasks go on at the next
    /// call. Not to be called from within a task.
    pub fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        let mut future = pin!(future);
        let bell = Bell::new(self.reactor.sleeper());
        let waker = Waker::from(Arc::clone(&bell));
        let awake = || bell.is_raised() || self.bell.is_raised();
        loop {
            for _ in 0..ROUNDS {
                // Tasks first, so that the future's completion does not leave behind tasks woken
                // with it.
                if self.bell.answer() {
                    let _ = self.tasks.poll(&mut Context::from_waker(&self.waker));
                }
                if bell.answer()
                    && let Poll::Ready(value) =
                        future.as_mut().poll(&mut Context::from_waker(&waker))
                {
                    self.reactor.submit();
                    return value;
                }
                if !awake() {
                    break;
                }
            }
            let wait_limit = self.clock.wait_limit();
            self.reactor.turn(wait_limit, &awake);
            if wait_limit.is_some() {
                self.clock.fire();
            }
        }
    }
}

/// Errors that say "no io_uring here" rather than "something is wrong".
fn is_forbidden(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Unsupported | ErrorKind::PermissionDenied)
        || matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EPERM | libc::EACCES))
}

impl Drop for Executor {
    fn drop(&mut self) {
        // Tasks own sockets and disks of this reactor: they go first. Spawners hold them weakly.
        self.tasks = Rc::default();
        self.reactor.close();
    }
}

impl Spawner {
    /// Adds a task to the executor. When the executor is gone, so is the task.
    pub fn spawn_local(&self, future: impl Future<Output = ()> + 'static) {
        if let Some(tasks) = self.tasks.upgrade() {
            tasks.spawn(future);
            self.waker.wake_by_ref();
        }
    }

    /// The executor's clock.
    pub fn clock(&self) -> Rc<MonotonicClock> {
        Rc::clone(&self.clock)
    }

    pub(crate) fn reactor(&self) -> &Rc<Reactor> {
        &self.reactor
    }
}
