//! Tasks on cores: ready ones are polled first come, first served, one at a time on each core.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use io::Time;

use super::clock::{CpuCosts, VirtualClock};

/// How often tasks may be polled before time has to move: more is a busy loop.
const POLLS_MAX: u64 = 5_000_000;

type Task = Pin<Box<dyn Future<Output = ()>>>;

/// Names a core.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Core(usize);

impl Core {
    /// The core that every world has.
    pub const FIRST: Core = Core(0);
}

/// Why a run did not come to its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stall {
    /// Nothing is due, and the main task waits.
    Hang,
    /// Tasks wake each other without end while time stands still.
    Busy,
}

impl fmt::Display for Stall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Stall::Hang => "virtual time: nothing is due, but the experiment waits",
            Stall::Busy => "virtual time: tasks wake each other while time stands still",
        })
    }
}

impl std::error::Error for Stall {}

/// See the module.
pub(super) struct Executor {
    clock: Rc<VirtualClock>,
    tasks: RefCell<Vec<Option<Entry>>>,
    vacant: RefCell<Vec<usize>>,
    cores: RefCell<Vec<CoreState>>,
    woken: Arc<Mutex<Vec<usize>>>,
    polls: Cell<u64>,
}

struct Entry {
    core: usize,
    /// Out of its place while it is polled.
    task: Option<(Task, Waker)>,
    handle: Arc<Handle>,
}

#[derive(Default)]
struct CoreState {
    costs: CpuCosts,
    ready: VecDeque<usize>,
    /// Until then it works.
    free_at: Time,
    busy_ns: u64,
}

struct Handle {
    index: usize,
    queued: AtomicBool,
    woken: Arc<Mutex<Vec<usize>>>,
}

impl Wake for Handle {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.queued.swap(true, Ordering::Relaxed) {
            lock(&self.woken).push(self.index);
        }
    }
}

/// No code panics while it is locked.
fn lock(woken: &Mutex<Vec<usize>>) -> MutexGuard<'_, Vec<usize>> {
    woken.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Executor {
    pub(super) fn new(clock: Rc<VirtualClock>) -> Executor {
        Executor {
            clock,
            tasks: RefCell::default(),
            vacant: RefCell::default(),
            cores: RefCell::new(vec![CoreState::default()]),
            woken: Arc::default(),
            polls: Cell::new(0),
        }
    }

    pub(super) fn add_core(&self, costs: CpuCosts) -> Core {
        let mut cores = self.cores.borrow_mut();
        cores.push(CoreState { costs, ..CoreState::default() });
        Core(cores.len() - 1)
    }

    pub(super) fn set_costs(&self, core: Core, costs: CpuCosts) {
        self.cores.borrow_mut()[core.0].costs = costs;
    }

    pub(super) fn busy_ns(&self, core: Core) -> u64 {
        self.cores.borrow()[core.0].busy_ns
    }

    pub(super) fn spawn(&self, core: Core, task: Task) {
        let mut tasks = self.tasks.borrow_mut();
        let index = self.vacant.borrow_mut().pop().unwrap_or_else(|| {
            tasks.push(None);
            tasks.len() - 1
        });
        let woken = Arc::clone(&self.woken);
        let handle = Arc::new(Handle { index, queued: AtomicBool::new(false), woken });
        let waker = Waker::from(Arc::clone(&handle));
        waker.wake_by_ref();
        tasks[index] = Some(Entry { core: core.0, task: Some((task, waker)), handle });
    }

    /// Drops all tasks, also those that start meanwhile.
    pub(super) fn clear(&self) {
        self.vacant.borrow_mut().clear();
        loop {
            let tasks = self.tasks.take();
            if tasks.is_empty() {
                break;
            }
            drop(tasks);
        }
        lock(&self.woken).clear();
        self.cores.borrow_mut().iter_mut().for_each(|core| core.ready.clear());
    }

    /// When the first core becomes free that has a ready task.
    pub(super) fn next_free(&self) -> Option<Time> {
        let cores = self.cores.borrow();
        cores.iter().filter(|core| !core.ready.is_empty()).map(|core| core.free_at).min()
    }

    /// Polls a ready task of a free core. False: there is none now.
    pub(super) fn poll_one(&self) -> Result<bool, Stall> {
        self.hand_out();
        let now = self.clock.global();
        let (core, index, costs) = {
            let mut cores = self.cores.borrow_mut();
            let free = |core: &CoreState| core.free_at <= now && !core.ready.is_empty();
            let Some(core) = cores.iter().position(free) else {
                self.polls.set(0);
                return Ok(false);
            };
            let Some(index) = cores[core].ready.pop_front() else { return Ok(false) };
            (core, index, cores[core].costs)
        };
        self.polls.set(self.polls.get() + 1);
        if self.polls.get() > POLLS_MAX {
            return Err(Stall::Busy);
        }
        self.clock.begin_work(costs);
        self.poll(index);
        let end = self.clock.end_work();
        let core = &mut self.cores.borrow_mut()[core];
        core.busy_ns += end.0 - now.0;
        core.free_at = end;
        Ok(true)
    }

    /// Hands woken tasks to their cores.
    fn hand_out(&self) {
        let mut woken = lock(&self.woken);
        if woken.is_empty() {
            return;
        }
        let (tasks, mut cores) = (self.tasks.borrow(), self.cores.borrow_mut());
        for index in woken.drain(..) {
            if let Some(entry) = &tasks[index] {
                cores[entry.core].ready.push_back(index);
            }
        }
    }

    fn poll(&self, index: usize) {
        let taken = {
            let mut tasks = self.tasks.borrow_mut();
            tasks[index].as_mut().and_then(|entry| {
                entry.handle.queued.store(false, Ordering::Relaxed);
                entry.task.take()
            })
        };
        let Some((mut task, waker)) = taken else { return };
        match task.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(()) => {
                drop(task);
                self.tasks.borrow_mut()[index] = None;
                self.vacant.borrow_mut().push(index);
            }
            Poll::Pending => {
                if let Some(entry) = &mut self.tasks.borrow_mut()[index] {
                    entry.task = Some((task, waker));
                }
            }
        }
    }
}
