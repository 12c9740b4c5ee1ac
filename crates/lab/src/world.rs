//! Virtual time for experiments: models, one core, and tasks that run first come, first served.
//!
//! ```text
//!   tasks are ready ──▶ poll them in the order in which they were woken
//!   none is         ──▶ time leaps to the next event of a model or sleeper
//! ```
//!
//! The core is busy for what the engine charges: time moves on while a task runs, and answers that
//! come meanwhile wait until it is done. There is no chance here: seeds belong to loads. The
//! simulator's executor draws which task is next, which would tear streams apart.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use io::{Clock, Completion, Cost, TaskSet, Time, Timers};

use crate::disk::catalogue::Built;
use crate::disk::{Answer, Model, Nanos};
use crate::member::Member;

/// Wall-clock time at the start of every world: 2026-01-01, in microseconds since 1970.
const START_UNIX_MICROS: u64 = 1_767_225_600_000_000;

/// How often tasks may be polled while time stands still: more is a busy loop.
const POLLS_MAX: u64 = 1_000_000;

/// What work costs on a core. The default is a core for which all work is free.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Costs {
    /// A call into the kernel.
    pub syscall: Nanos,
    /// A request.
    pub request: Nanos,
    /// Copies, picoseconds per byte.
    pub copy: u64,
    /// Parity, picoseconds per byte read.
    pub parity: u64,
    /// Checksums, picoseconds per byte read.
    pub checksum: u64,
}

impl Costs {
    /// The time of this work.
    pub fn of(&self, cost: Cost, bytes: u64) -> Nanos {
        match cost {
            Cost::Syscall => self.syscall,
            Cost::Request => self.request,
            Cost::Copy => bytes * self.copy / 1000,
            Cost::Parity => bytes * self.parity / 1000,
            Cost::Checksum => bytes * self.checksum / 1000,
        }
    }
}

/// The clock of a world.
pub struct LabClock {
    now: Cell<Nanos>,
    timers: Timers,
    costs: Costs,
    busy: Cell<Nanos>,
}

impl LabClock {
    /// How long the core was busy.
    pub fn busy(&self) -> Duration {
        Duration::from_nanos(self.busy.get())
    }
}

impl Clock for LabClock {
    fn now(&self) -> Time {
        Time(self.now.get())
    }

    fn sleep_until(&self, at: Time) -> Completion<()> {
        if at <= self.now() {
            return Completion::ready(());
        }
        self.timers.sleep_until(at)
    }

    fn unix_micros(&self) -> u64 {
        START_UNIX_MICROS + self.now.get() / 1000
    }

    fn charge(&self, cost: Cost, bytes: u64) {
        let time = self.costs.of(cost, bytes);
        self.now.set(self.now.get() + time);
        self.busy.set(self.busy.get() + time);
    }
}

/// Why a run did not come to its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stall {
    /// Tasks wait, and no event is due.
    Hang,
    /// Tasks wake each other without end while time stands still.
    Busy,
}

impl std::fmt::Display for Stall {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Stall::Hang => "experiment: stuck: tasks wait and no event is due",
            Stall::Busy => "experiment: stuck: tasks wake each other while time stands still",
        })
    }
}

/// An answer of the member with this index.
struct Arrival {
    member: usize,
    answer: Answer,
}

/// Disks, a core and tasks in virtual time.
pub struct World {
    /// Time.
    pub clock: Rc<LabClock>,
    tasks: TaskSet,
    members: RefCell<Vec<Rc<Member>>>,
    /// Kept for their room.
    answers: RefCell<(Vec<Answer>, Vec<Arrival>)>,
}

impl World {
    /// An empty world at time 0.
    pub fn new(costs: Costs) -> Rc<World> {
        let (now, busy) = (Cell::new(0), Cell::new(0));
        let clock = LabClock { now, timers: Timers::new(), costs, busy };
        Rc::new(World {
            clock: Rc::new(clock),
            tasks: TaskSet::new(),
            members: RefCell::default(),
            answers: RefCell::default(),
        })
    }

    /// Adds a disk of the catalogue.
    pub fn add_built(&self, name: &str, built: Built) -> Rc<Member> {
        self.add(name, built.model, (built.rotational, built.volatile))
    }

    /// Adds a disk. `properties`: it is rotational; its cache is volatile.
    pub fn add(
        &self,
        name: &str,
        model: impl Model + 'static,
        properties: (bool, bool),
    ) -> Rc<Member> {
        let member = Rc::new(Member::new(name, Box::new(model), properties, &self.clock));
        self.members.borrow_mut().push(Rc::clone(&member));
        member
    }

    /// Adds a task.
    pub fn spawn(&self, task: impl Future<Output = ()> + 'static) {
        self.tasks.spawn(task);
    }

    /// Runs until `main` has ended, and returns its result. Other tasks wait for the next run.
    ///
    /// # Errors
    /// If it hangs or spins.
    pub fn run<T: 'static>(&self, main: impl Future<Output = T> + 'static) -> Result<T, Stall> {
        let slot = Rc::new(RefCell::new(None));
        let result = Rc::clone(&slot);
        self.spawn(async move {
            let value = main.await;
            *result.borrow_mut() = Some(value);
        });
        let woken = Arc::new(Woken(AtomicBool::new(true)));
        let waker = Waker::from(Arc::clone(&woken));
        let mut polls = 0;
        loop {
            while woken.0.swap(false, Ordering::AcqRel) {
                let all_ended = self.tasks.poll(&mut Context::from_waker(&waker));
                if let Some(value) = slot.take() {
                    return Ok(value);
                }
                polls += 1;
                if polls > POLLS_MAX {
                    return Err(Stall::Busy);
                }
                if let Poll::Ready(()) = all_ended {
                    break;
                }
            }
            if !self.advance() {
                return Err(Stall::Hang);
            }
            polls = 0;
        }
    }

    /// Leaps to the next event, unless the core is late for it, and lets everything happen that is
    /// due. False if nothing is.
    fn advance(&self) -> bool {
        let members = self.members.borrow();
        let models = members.iter().filter_map(|member| member.next_event()).min();
        let sleeper = self.clock.timers.next().map(|at| at.0);
        let Some(next) = models.into_iter().chain(sleeper).min() else { return false };
        let now = next.max(self.clock.now.get());
        self.clock.now.set(now);
        let mut kept = self.answers.borrow_mut();
        let (answers, arrivals) = &mut *kept;
        for (index, member) in members.iter().enumerate() {
            if member.next_event().is_some_and(|at| at <= now) {
                member.advance(now, answers);
                arrivals.extend(answers.drain(..).map(|answer| Arrival { member: index, answer }));
            }
        }
        // The core may be late for several: it takes them as they came.
        arrivals.sort_by_key(|arrival| arrival.answer.at);
        arrivals
            .drain(..)
            .for_each(|Arrival { member, answer }| members[member].answer(answer.tag));
        self.clock.timers.fire(Time(now));
        true
    }
}

/// Something was woken.
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Release);
    }
}
