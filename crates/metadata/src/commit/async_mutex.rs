//! A mutex for tasks: concurrent writes of the same bytes may land in any order, so there is only
//! one.

use std::cell::Cell;

use io::Signal;

/// A mutex that one task holds at a time.
#[derive(Default)]
pub struct AsyncMutex {
    taken: Cell<bool>,
    free: Signal,
}

/// The lock; released when dropped.
pub struct Held<'a>(&'a AsyncMutex);

impl AsyncMutex {
    /// A mutex that its creator already holds, and [`AsyncMutex::adopt`]s later.
    pub fn taken() -> AsyncMutex {
        AsyncMutex { taken: Cell::new(true), free: Signal::new() }
    }

    /// The lock that the mutex was created with, for the one task meant to hold it; `None` if it
    /// was created free. No other task can take it before that task has dropped it.
    pub fn adopt(&self) -> Option<Held<'_>> {
        self.taken.get().then_some(Held(self))
    }

    /// Waits until the mutex is free, and takes it.
    pub async fn take(&self) -> Held<'_> {
        while self.taken.get() {
            self.free.wait().await;
        }
        self.taken.set(true);
        Held(self)
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.taken.set(false);
        self.0.free.raise();
    }
}
