//! A set of futures driven as one: an owner's own tasks, without an executor and without `unsafe`.
//!
//! A [`TaskSet`] polls only the tasks that were woken, in the order in which they were woken. Its
//! owner is itself a future that some host drives; tasks live as long as the set.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Wake, Waker};

/// How often tasks may wake each other before the host gets its turn.
const ROUNDS: usize = 64;

/// A future that leaves its crate. The future of an `async fn` is compiled by each crate that polls
/// it, with the optimisation of that crate; a boxed one is compiled once, where it is written.
pub type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// A task: a future that gives nothing back.
pub type Task = Boxed<'static, ()>;

/// Tasks that belong together. Spawn through a shared reference, also from within a task.
pub struct TaskSet {
    tasks: RefCell<Vec<Option<Entry>>>,
    vacant: RefCell<Vec<usize>>,
    spawned: Cell<u64>,
    /// The batch being polled; kept so that its room is used again.
    turn: RefCell<Vec<Name>>,
    ready: Arc<Ready>,
}

struct Entry {
    /// Out of its place during its poll, with its waker.
    task: Option<(Task, Waker)>,
    handle: Arc<Handle>,
}

/// A place, and the number of the task there: places are used again, numbers are not.
#[derive(Clone, Copy)]
struct Name {
    index: usize,
    number: u64,
}

struct Ready {
    queue: Mutex<Queue>,
}

#[derive(Default)]
struct Queue {
    woken: Vec<Name>,
    owner: Option<Waker>,
}

struct Handle {
    name: Name,
    queued: AtomicBool,
    ready: Arc<Ready>,
}

impl Wake for Handle {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.queued.swap(true, Ordering::AcqRel) {
            return;
        }
        let owner = {
            let mut queue = self.ready.lock();
            queue.woken.push(self.name);
            queue.owner.take()
        };
        if let Some(owner) = owner {
            owner.wake();
        }
    }
}

impl Ready {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl Drop for TaskSet {
    fn drop(&mut self) {
        // A task's waker holds the queue, but not the waker of the set's driver.
        let owner = self.ready.lock().owner.take();
        drop(owner);
    }
}

impl Default for TaskSet {
    fn default() -> TaskSet {
        TaskSet {
            tasks: RefCell::default(),
            vacant: RefCell::default(),
            spawned: Cell::new(0),
            turn: RefCell::default(),
            ready: Arc::new(Ready { queue: Mutex::default() }),
        }
    }
}

impl TaskSet {
    /// A set without tasks.
    pub fn new() -> TaskSet {
        TaskSet::default()
    }

    /// Adds a task; it is polled at the set's next turn.
    pub fn spawn(&self, future: impl Future<Output = ()> + 'static) {
        let mut tasks = self.tasks.borrow_mut();
        let index = self.vacant.borrow_mut().pop().unwrap_or_else(|| {
            tasks.push(None);
            tasks.len() - 1
        });
        let name = Name { index, number: self.spawned.replace(self.spawned.get() + 1) };
        let ready = Arc::clone(&self.ready);
        let handle = Arc::new(Handle { name, queued: AtomicBool::new(false), ready });
        let waker = Waker::from(Arc::clone(&handle));
        let task: Task = Box::pin(future);
        tasks[index] = Some(Entry { task: Some((task, waker)), handle: Arc::clone(&handle) });
        drop(tasks);
        handle.wake();
    }

    /// How many tasks have not ended.
    pub fn len(&self) -> usize {
        self.tasks.borrow().len() - self.vacant.borrow().len()
    }

    /// True if every task has ended.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Ends every task where it stands: for a set that its own tasks keep alive. Not for a task.
    pub fn clear(&self) {
        let mut ended = Vec::new();
        for (index, entry) in self.tasks.borrow_mut().iter_mut().enumerate() {
            if let Some(entry) = entry.take() {
                self.vacant.borrow_mut().push(index);
                ended.push(entry);
            }
        }
        // Dropping a task may spawn others: outside the borrow.
        drop(ended);
    }

    /// Polls the woken tasks, and those that they wake, for a bounded number of rounds; then the
    /// host gets its turn. Ready when the set is empty.
    pub fn poll(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut turn = self.turn.take();
        let mut outcome = None;
        for _ in 0..ROUNDS {
            {
                let mut queue = self.ready.lock();
                if queue.woken.is_empty() {
                    if !self.is_empty() {
                        queue.owner = Some(cx.waker().clone());
                        outcome = Some(Poll::Pending);
                    } else {
                        outcome = Some(Poll::Ready(()));
                    }
                    break;
                }
                std::mem::swap(&mut queue.woken, &mut turn);
            }
            for name in turn.drain(..) {
                self.poll_task(name);
            }
        }
        self.turn.replace(turn);
        outcome.unwrap_or_else(|| {
            cx.waker().wake_by_ref();
            Poll::Pending
        })
    }

    /// The set as a future: drives its tasks until all have ended.
    pub fn run(&self) -> impl Future<Output = ()> + '_ {
        std::future::poll_fn(|cx| self.poll(cx))
    }

    fn poll_task(&self, Name { index, number }: Name) {
        let (mut task, waker) = {
            let mut tasks = self.tasks.borrow_mut();
            let Some(entry) = tasks[index].as_mut() else { return };
            // A late wake of an ended task whose place another one has taken.
            if entry.handle.name.number != number {
                return;
            }
            entry.handle.queued.store(false, Ordering::Release);
            let Some(task) = entry.task.take() else { return };
            task
        };
        let ended = task.as_mut().poll(&mut Context::from_waker(&waker)).is_ready();
        if ended {
            // Dropping a task may spawn or wake others: drop it outside the borrow.
            drop(task);
            let entry = self.tasks.borrow_mut()[index].take();
            self.vacant.borrow_mut().push(index);
            drop(entry);
        } else if let Some(entry) = self.tasks.borrow_mut()[index].as_mut() {
            entry.task = Some((task, waker));
        }
    }
}

/// Polls a future that needs nothing from outside until it completes; `None` if it comes to a
/// stand. For tests and for disks that answer at once.
pub fn complete<T>(future: impl Future<Output = T>) -> Option<T> {
    struct Flag(AtomicBool);
    impl Wake for Flag {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Ordering::Release);
        }
    }
    let flag = Arc::new(Flag(AtomicBool::new(true)));
    let waker = Waker::from(Arc::clone(&flag));
    let mut future = std::pin::pin!(future);
    while flag.0.swap(false, Ordering::AcqRel) {
        if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return Some(value);
        }
    }
    None
}

/// Polls once, with a waker that does nothing.
pub fn poll_once<T>(future: impl Future<Output = T> + Unpin) -> Option<T> {
    let mut future = future;
    match Pin::new(&mut future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => Some(value),
        Poll::Pending => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Signal;
    use std::rc::Rc;

    #[test]
    fn a_set_that_is_dropped_with_woken_tasks_leaves_nothing_behind() {
        let set = TaskSet::new();
        let signal = Rc::new(Signal::new());
        let waiting = Rc::clone(&signal);
        set.spawn(async move { waiting.wait().await });
        complete(set.run());
        set.spawn(std::future::ready(()));
        let ready = Arc::downgrade(&set.ready);
        drop(set);
        signal.raise();
        assert!(ready.upgrade().is_none(), "queue and handles hold each other");
    }

    #[test]
    fn a_cleared_set_drops_its_tasks_and_takes_new_ones() {
        let set = Rc::new(TaskSet::new());
        let (signal, held) = (Rc::new(Signal::new()), Rc::new(()));
        for _ in 0..2 {
            let (keeps_itself, waiting, held) =
                (Rc::clone(&set), Rc::clone(&signal), Rc::clone(&held));
            set.spawn(async move {
                waiting.wait().await;
                drop((keeps_itself, held));
            });
        }
        complete(set.run());
        set.clear();
        assert_eq!((Rc::strong_count(&held), Rc::strong_count(&set), set.len()), (1, 1, 0));
        // A late wake of a task that is gone.
        signal.raise();
        set.spawn(std::future::ready(()));
        assert_eq!(complete(set.run()), Some(()));
    }

    #[test]
    fn only_woken_tasks_are_polled_and_ended_ones_make_room() {
        let set = TaskSet::new();
        let signal = Rc::new(Signal::new());
        let log = Rc::new(RefCell::new(Vec::new()));
        for name in ["a", "b"] {
            let (signal, log) = (Rc::clone(&signal), Rc::clone(&log));
            set.spawn(async move {
                log.borrow_mut().push(name);
                signal.wait().await;
                log.borrow_mut().push(name);
            });
        }
        assert_eq!(complete(set.run()), None);
        assert_eq!(*log.borrow(), ["a", "b"]);
        assert_eq!(complete(set.run()), None, "no task was woken");
        assert_eq!(log.borrow().len(), 2);
        signal.raise();
        assert_eq!(complete(set.run()), Some(()));
        assert_eq!(*log.borrow(), ["a", "b", "a", "b"]);
        set.spawn(async {});
        assert_eq!(set.tasks.borrow().len(), 2, "a place is used again");
    }
}
