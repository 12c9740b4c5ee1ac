//! A mutex for tasks: concurrent writes of the same bytes may land in any order, so there is only
//! one.

use std::cell::Cell;

use io::{Signal, Turn};

/// A mutex that one task holds at a time.
#[derive(Default)]
pub struct AsyncMutex {
    taken: Cell<bool>,
    free: Signal,
}

/// The lock; released when dropped.
pub type Held<'a> = Turn<'a>;

impl AsyncMutex {
    /// A mutex that its creator already holds, and [`AsyncMutex::adopt`]s later.
    pub fn taken() -> AsyncMutex {
        AsyncMutex { taken: Cell::new(true), free: Signal::new() }
    }

    /// The lock that the mutex was created with, for the one task meant to hold it; `None` if it
    /// was created free. No other task can take it before that task has dropped it.
    pub fn adopt(&self) -> Option<Held<'_>> {
        Turn::adopt(&self.taken, &self.free)
    }

    /// Waits until the mutex is free, and takes it.
    pub async fn take(&self) -> Held<'_> {
        loop {
            match Turn::take(&self.taken, &self.free) {
                Some(turn) => return turn,
                None => self.free.wait().await,
            }
        }
    }
}
