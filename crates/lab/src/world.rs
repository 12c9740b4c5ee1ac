//! Virtual time with processors: the engine runs in it as it runs on a machine.
//!
//! ```text
//!    tasks ─▶ core ─▶ poll: local time runs on with every charge ─▶ the core is busy until then
//!                       │
//!                       └─▶ requests to stations (disks, links) arrive at the local time
//!
//!    time leaps to the next of: a station's event, a timer, a core that becomes free
//! ```
//!
//! Ready tasks of a core are polled first come, first served: a sequential stream stays one.
//! (`sim` polls them in random order, to find errors; here that would measure another program.)
//!
//! Invariant: chance enters only through the seeds of workloads and models.

mod clock;
mod executor;

use std::cell::RefCell;
use std::future::Future;
use std::rc::Rc;

use io::{Clock, Pool, Time};

pub use self::clock::{CpuCosts, VirtualClock};
pub use self::executor::{Core, Stall};

use self::executor::Executor;

/// Something whose state changes at moments that it knows: a disk, a link, a controller.
pub trait Station {
    /// When the next change is due; `None` while it waits for others.
    fn next_event(&self) -> Option<Time>;

    /// Lets everything happen that is due by `now`.
    fn advance(&self, now: Time);
}

/// A machine room in virtual time. Cheap to clone.
#[derive(Clone)]
pub struct World(Rc<Inner>);

struct Inner {
    clock: Rc<VirtualClock>,
    executor: Executor,
    stations: RefCell<Vec<Rc<dyn Station>>>,
    pool: Pool,
}

/// A place on the agenda, for a station's own events.
#[derive(Clone)]
pub struct Agenda {
    clock: Rc<VirtualClock>,
    station: usize,
}

impl Agenda {
    /// The station is advanced at `at`, or as soon as possible if that is past. Naming a moment
    /// twice is harmless.
    pub fn schedule(&self, at: Time) {
        self.clock.schedule(at, self.station);
    }
}

impl Default for World {
    fn default() -> World {
        World::new()
    }
}

impl World {
    /// A world with one core, whose work is free.
    pub fn new() -> World {
        let clock = Rc::new(VirtualClock::default());
        World(Rc::new(Inner {
            executor: Executor::new(Rc::clone(&clock)),
            clock,
            stations: RefCell::default(),
            pool: Pool::new(16 << 20),
        }))
    }

    /// Another core, whose work costs this much. The first core is [`Core::FIRST`].
    pub fn core(&self, costs: CpuCosts) -> Core {
        self.0.executor.add_core(costs)
    }

    /// From now on the work of a core costs this much.
    pub fn set_costs(&self, core: Core, costs: CpuCosts) {
        self.0.executor.set_costs(core, costs);
    }

    /// How long a core has worked since the start, in nanoseconds.
    pub fn busy_ns(&self, core: Core) -> u64 {
        self.0.executor.busy_ns(core)
    }

    /// The clock of all tasks.
    pub fn clock(&self) -> Rc<VirtualClock> {
        Rc::clone(&self.0.clock)
    }

    /// The clock as the engine wants it.
    pub fn dyn_clock(&self) -> Rc<dyn Clock> {
        Rc::clone(&self.0.clock) as _
    }

    /// Memory for requests.
    pub fn pool(&self) -> &Pool {
        &self.0.pool
    }

    /// Adds a station. `make` gets its place on the agenda.
    pub fn add<S: Station + 'static>(&self, make: impl FnOnce(Agenda) -> S) -> Rc<S> {
        let mut stations = self.0.stations.borrow_mut();
        let agenda = Agenda { clock: self.clock(), station: stations.len() };
        let station = Rc::new(make(agenda));
        stations.push(Rc::clone(&station) as _);
        station
    }

    /// Adds a task to a core.
    pub fn spawn(&self, core: Core, task: impl Future<Output = ()> + 'static) {
        self.0.executor.spawn(core, Box::pin(task));
    }

    /// As [`World::run`], and then ends the world: its tasks are dropped. They hold arrays and
    /// disks, whose tasks hold the world; without this it is never freed.
    ///
    /// # Errors
    /// As [`World::run`].
    pub fn run_once<T: 'static>(
        &self,
        main: impl Future<Output = T> + 'static,
    ) -> Result<T, Stall> {
        let outcome = self.run(main);
        self.0.executor.clear();
        outcome
    }

    /// Runs the world until `main`, a task of the first core, has ended.
    ///
    /// # Errors
    /// If nothing is due and `main` still waits, or if tasks wake each other without end.
    pub fn run<T: 'static>(&self, main: impl Future<Output = T> + 'static) -> Result<T, Stall> {
        let slot = Rc::new(RefCell::new(None));
        let result = Rc::clone(&slot);
        self.spawn(Core::FIRST, async move {
            let value = main.await;
            *result.borrow_mut() = Some(value);
        });
        let clock = &self.0.clock;
        while slot.borrow().is_none() {
            if self.0.executor.poll_one()? {
                continue;
            }
            let free = self.0.executor.next_free();
            if !clock.leap(free) {
                return Err(Stall::Hang);
            }
            while let Some(index) = clock.due_station() {
                let station = Rc::clone(&self.0.stations.borrow()[index]);
                station.advance(clock.now());
                if let Some(at) = station.next_event() {
                    clock.schedule(at, index);
                }
            }
        }
        let value = slot.take();
        value.ok_or(Stall::Hang)
    }
}
