//! Work side by side, and again where a guest died by itself.

use std::path::Path;
use std::sync::Mutex;
use std::time::Instant;

use crate::failure::Result;
use crate::kernel::{Kernel, Newer};
use crate::outcome::Outcome;

/// A guest that dies as often as this does not do so by chance.
const TRIES: usize = 4;

/// Does this, and if a guest died by itself, all of it again.
pub(crate) fn again<T>(what: &str, mut job: impl FnMut() -> Result<T>) -> Result<T> {
    let mut tries = 1;
    loop {
        match job() {
            Err(failure) if failure.is_of_guest() && tries < TRIES => {
                println!("again   {what}: {failure}");
                tries += 1;
            }
            done => return done,
        }
    }
}

/// The common context of all jobs.
pub(crate) struct Shop<'a> {
    pub(crate) kernel: &'a Kernel,
    pub(crate) newer: &'a Newer,
    pub(crate) program: &'a Path,
    /// The folder in which each job makes its own.
    pub(crate) state: &'a Path,
    /// Limit of concurrent jobs.
    pub(crate) jobs: usize,
}

impl Shop<'_> {
    /// Runs this for each item; prints each outcome.
    pub(crate) fn work<T: Send>(
        &self,
        items: impl Iterator<Item = T> + Send,
        job: impl Fn(T) -> Vec<Outcome> + Sync,
    ) -> Vec<Outcome> {
        let items = Mutex::new(items);
        let outcomes = Mutex::new(Vec::new());
        let worker = || {
            loop {
                let next = items.lock().expect("no thread panics while holding it").next();
                let Some(item) = next else { return };
                let begun = Instant::now();
                let found = job(item);
                let share = begun.elapsed().as_secs_f64() / found.len().max(1) as f64;
                found.iter().for_each(|outcome| println!("{}", outcome.line(share)));
                outcomes.lock().expect("no thread panics while holding it").extend(found);
            }
        };
        std::thread::scope(|scope| {
            (0..self.jobs).for_each(|_| drop(scope.spawn(worker)));
        });
        outcomes.into_inner().expect("no thread panicked while holding it")
    }
}
