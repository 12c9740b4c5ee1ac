//! One at a time: two writes of the same bytes may land in any order, so there are never two.

use std::cell::Cell;

use io::Signal;

/// A right that one task has at a time.
#[derive(Default)]
pub struct AsyncMutex {
    taken: Cell<bool>,
    free: Signal,
}

/// The right; given back when dropped.
pub struct Held<'a>(&'a AsyncMutex);

impl AsyncMutex {
    /// A right that its maker already has, and [`AsyncMutex::adopt`]s later.
    pub fn taken() -> AsyncMutex {
        AsyncMutex { taken: Cell::new(true), free: Signal::new() }
    }

    /// The right that this was made with, for the one task that was to have it; `None` if it was
    /// made free. No other task can have it before that task has dropped it.
    pub fn adopt(&self) -> Option<Held<'_>> {
        self.taken.get().then_some(Held(self))
    }

    /// Waits until it is free.
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
