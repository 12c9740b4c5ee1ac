//! The simulated world of one run: time, chance, disks, and their users.

use std::cell::RefCell;
use std::future::Future;
use std::rc::Rc;

use io::Pool;

use crate::clock::{Due, SimClock};
use crate::disk::{Build, SimDisk, Store};
use crate::executor::{Executor, Stall};
use crate::trace::Trace;
use random::Rng;

/// Everything that a run is made of. Cheap to clone.
#[derive(Clone)]
pub struct World {
    /// All chance of the run comes from here.
    pub seed: u64,
    /// Virtual time.
    pub clock: Rc<SimClock>,
    /// Tasks.
    pub executor: Executor,
    /// The history.
    pub trace: Trace,
    /// Memory for requests.
    pub pool: Pool,
    /// The store of the members that are files, if they share one.
    pub store: Rc<Store>,
    disks: Rc<RefCell<Vec<Rc<SimDisk>>>>,
}

impl World {
    /// An empty world.
    pub fn new(seed: u64, trace: Trace) -> World {
        World {
            seed,
            clock: Rc::new(SimClock::new()),
            executor: Executor::new(Rng::stream(seed, "executor", 0)),
            trace,
            pool: Pool::new(4 << 20),
            store: Rc::default(),
            disks: Rc::default(),
        }
    }

    /// A stream of chance.
    pub fn rng(&self, name: &str, number: u64) -> Rng {
        Rng::stream(self.seed, name, number)
    }

    /// A new disk.
    pub fn disk(&self, build: Build) -> Rc<SimDisk> {
        self.put(self.new_disk(build))
    }

    /// A new disk that is a file on the store.
    pub fn file(&self, build: Build) -> Rc<SimDisk> {
        self.put(self.new_disk(build).on_store(&self.store))
    }

    fn new_disk(&self, build: Build) -> SimDisk {
        let number = self.disks.borrow().len() as u64;
        SimDisk::new(number, build, self.seed, &self.clock, &self.trace)
    }

    fn put(&self, disk: SimDisk) -> Rc<SimDisk> {
        let disk = Rc::new(disk);
        self.disks.borrow_mut().push(Rc::clone(&disk));
        disk
    }

    /// Every disk there ever was.
    pub fn disks(&self) -> Vec<Rc<SimDisk>> {
        self.disks.borrow().clone()
    }

    /// The disk of this name.
    pub fn disk_named(&self, name: &str) -> Option<Rc<SimDisk>> {
        self.disks.borrow().iter().find(|disk| disk.name == name).cloned()
    }

    /// Adds a line to the story.
    pub fn note(&self, text: impl FnOnce() -> String) {
        self.trace.note(io::Clock::now(&*self.clock), text);
    }

    /// Runs until this has ended, and returns its result.
    ///
    /// # Errors
    /// If it hangs or spins.
    pub fn run<T: 'static>(&self, main: impl Future<Output = T> + 'static) -> Result<T, Stall> {
        let slot = Rc::new(RefCell::new(None));
        let result = Rc::clone(&slot);
        let task = self.executor.spawn("main", async move {
            let value = main.await;
            *result.borrow_mut() = Some(value);
        });
        self.executor.run_until(task, || self.advance_to_next())?;
        Ok(slot.take().expect("the task has ended"))
    }

    /// Moves time to the next event; false if there is none.
    fn advance_to_next(&self) -> bool {
        match self.clock.advance_to_next() {
            Due::Nothing => false,
            Due::Sleepers => true,
            Due::Operation(entry) => {
                let disk = self.disks.borrow()[SimDisk::of_entry(entry) as usize].clone();
                disk.due(entry);
                true
            }
        }
    }

    /// Waits for this many virtual microseconds.
    pub async fn pause(&self, micros: u64) {
        let clock = &*self.clock;
        let until = io::Clock::now(clock) + std::time::Duration::from_micros(micros);
        io::Clock::sleep_until(clock, until).await;
    }
}
