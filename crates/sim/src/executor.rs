//! Tasks under a seed: chance chooses among the ready tasks.
//!
//! Owns the tasks and the order of their polls. Uses time only through the clock; never sleeps. If
//! no task is ready, time leaps; if no event is due either, the run hangs, and reports the waiting
//! tasks.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};

use random::Rng;

/// How often tasks may be polled before time has to move: more is a busy loop.
const POLLS_MAX: u64 = 2_000_000;

type Boxed = Pin<Box<dyn Future<Output = ()>>>;

/// Tasks, and which of them are ready.
#[derive(Clone)]
pub struct Executor {
    inner: Rc<Inner>,
}

struct Inner {
    tasks: RefCell<Vec<Option<Task>>>,
    ready: Arc<Mutex<Vec<usize>>>,
    rng: RefCell<Rng>,
    polls: Cell<u64>,
}

struct Task {
    name: String,
    /// Out of its place while it is polled.
    future: Option<Boxed>,
    handle: Arc<Handle>,
    /// Taken along with the future: a poll counts no references.
    waker: Option<Waker>,
}

struct Handle {
    index: usize,
    queued: AtomicBool,
    ready: Arc<Mutex<Vec<usize>>>,
}

impl Wake for Handle {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.queued.swap(true, Ordering::AcqRel) {
            let mut ready = self.ready.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            ready.push(self.index);
        }
    }
}

/// Names a task.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TaskId(usize);

/// Why a run did not come to its end.
#[derive(Debug)]
pub enum Stall {
    /// No task is ready and no event is due: these tasks wait.
    Hang(Vec<String>),
    /// Tasks wake each other without end while time stands still.
    Busy,
}

impl fmt::Display for Stall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Stall::Hang(tasks) => write!(f, "hang: nothing is due, and these wait: {tasks:?}"),
            Stall::Busy => write!(f, "busy loop: tasks wake each other while time stands still"),
        }
    }
}

impl Executor {
    /// An executor without tasks, under this stream of chance.
    pub fn new(rng: Rng) -> Executor {
        let inner = Inner {
            tasks: RefCell::default(),
            ready: Arc::default(),
            rng: RefCell::new(rng),
            polls: Cell::new(0),
        };
        Executor { inner: Rc::new(inner) }
    }

    /// Adds a task; it is ready.
    pub fn spawn(
        &self,
        name: impl Into<String>,
        future: impl Future<Output = ()> + 'static,
    ) -> TaskId {
        let mut tasks = self.inner.tasks.borrow_mut();
        let index = tasks.len();
        let ready = Arc::clone(&self.inner.ready);
        let handle = Arc::new(Handle { index, queued: AtomicBool::new(false), ready });
        Arc::clone(&handle).wake();
        let waker = Some(Waker::from(Arc::clone(&handle)));
        let future: Option<Boxed> = Some(Box::pin(future));
        tasks.push(Some(Task { name: name.into(), future, handle, waker }));
        TaskId(index)
    }

    /// Ends a task where it stands, as the death of a process would. A task cannot end itself so.
    pub fn abort(&self, task: TaskId) {
        let gone = self.inner.tasks.borrow_mut()[task.0].take();
        drop(gone);
    }

    /// True if the task has ended.
    pub fn has_ended(&self, task: TaskId) -> bool {
        self.inner.tasks.borrow()[task.0].is_none()
    }

    /// Ends every task.
    pub fn abort_all(&self) {
        let all = std::mem::take(&mut *self.inner.tasks.borrow_mut());
        drop(all);
    }

    /// Polls ready tasks until `main` has ended. `advance` advances time when no task is ready; it
    /// returns false if no event is due.
    ///
    /// # Errors
    /// If the run hangs or spins.
    pub fn run_until(&self, main: TaskId, mut advance: impl FnMut() -> bool) -> Result<(), Stall> {
        while !self.has_ended(main) {
            if self.poll_one() {
                self.inner.polls.set(self.inner.polls.get() + 1);
                if self.inner.polls.get() > POLLS_MAX {
                    return Err(Stall::Busy);
                }
                continue;
            }
            self.inner.polls.set(0);
            if !advance() {
                return Err(Stall::Hang(self.waiting()));
            }
        }
        Ok(())
    }

    fn waiting(&self) -> Vec<String> {
        let tasks = self.inner.tasks.borrow();
        tasks.iter().flatten().map(|task| task.name.clone()).collect()
    }

    /// Polls one of the ready tasks; false if there is none.
    fn poll_one(&self) -> bool {
        let index = {
            let mut ready =
                self.inner.ready.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            if ready.is_empty() {
                return false;
            }
            let at = match ready.len() {
                1 => 0,
                len => self.inner.rng.borrow_mut().below(len as u64) as usize,
            };
            ready.remove(at)
        };
        let (mut future, waker) = {
            let mut tasks = self.inner.tasks.borrow_mut();
            let Some(task) = tasks[index].as_mut() else { return true };
            task.handle.queued.store(false, Ordering::Release);
            let (Some(future), Some(waker)) = (task.future.take(), task.waker.take()) else {
                return true;
            };
            (future, waker)
        };
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(()) => {
                drop(future);
                self.inner.tasks.borrow_mut()[index] = None;
            }
            Poll::Pending => {
                if let Some(Some(task)) = self.inner.tasks.borrow_mut().get_mut(index) {
                    (task.future, task.waker) = (Some(future), Some(waker));
                }
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use io::Signal;

    fn order(seed: u64) -> Vec<usize> {
        let executor = Executor::new(Rng::stream(seed, "executor", 0));
        let log = Rc::new(RefCell::new(Vec::new()));
        let main = executor.spawn("main", std::future::ready(()));
        let tasks: Vec<TaskId> = (0..20)
            .map(|number| {
                let log = Rc::clone(&log);
                executor.spawn("task", async move { log.borrow_mut().push(number) })
            })
            .collect();
        executor.run_until(main, || false).expect("main is ready");
        for task in tasks {
            executor.run_until(task, || false).expect("every task is ready");
        }
        log.take()
    }

    #[test]
    fn chance_decides_and_the_seed_decides_chance() {
        assert_eq!(order(1), order(1));
        assert_ne!(order(1), order(2));
        assert_ne!(order(1), (0..20).collect::<Vec<_>>());
    }

    #[test]
    fn a_hang_names_the_waiting_tasks() {
        let executor = Executor::new(Rng::stream(1, "executor", 0));
        let never = executor.spawn("sleeper", std::future::pending());
        match executor.run_until(never, || false) {
            Err(Stall::Hang(tasks)) => assert_eq!(tasks, ["sleeper"]),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn tasks_that_only_wake_themselves_are_found() {
        let executor = Executor::new(Rng::stream(1, "executor", 0));
        let main = executor.spawn("spinner", async {
            std::future::poll_fn(|cx| {
                cx.waker().wake_by_ref();
                Poll::<()>::Pending
            })
            .await;
        });
        assert!(matches!(executor.run_until(main, || false), Err(Stall::Busy)));
    }

    #[test]
    fn an_aborted_task_releases_its_resources() {
        let executor = Executor::new(Rng::stream(1, "executor", 0));
        let signal = Rc::new(Signal::new());
        let held = Rc::clone(&signal);
        let task = executor.spawn("holder", async move { held.wait().await });
        executor.poll_one();
        assert_eq!(Rc::strong_count(&signal), 2);
        executor.abort(task);
        assert_eq!(Rc::strong_count(&signal), 1);
        assert!(executor.has_ended(task));
    }
}
