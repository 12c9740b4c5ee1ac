//! One input, one verdict.
//!
//! Owns the way a panic becomes a sentence. Bodies share no state, so the next input sees nothing
//! of one that panicked.

use std::cell::RefCell;
use std::panic::{self, AssertUnwindSafe};

use parapet_fuzz::{Target, Trail};

use crate::{memory, watchdog};

thread_local! {
    static LAST: RefCell<String> = const { RefCell::new(String::new()) };
}

/// How an input went.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    /// Every promise held.
    Good(Trail),
    /// It panicked: where, and what it said.
    Panicked { place: String, message: String },
    /// More memory than the target may have.
    Greedy { most: usize },
}

impl Verdict {
    pub(crate) fn is_good(&self) -> bool {
        matches!(self, Verdict::Good(_))
    }

    /// True if both are the same fault, as far as can be told.
    pub(crate) fn is_like(&self, other: &Verdict) -> bool {
        match (self, other) {
            (Verdict::Panicked { place: ours, .. }, Verdict::Panicked { place: theirs, .. }) => {
                ours == theirs
            }
            (Verdict::Greedy { .. }, Verdict::Greedy { .. }) => true,
            _ => false,
        }
    }
}

/// Panics are noted from now on, not printed.
pub(crate) fn listen() {
    panic::set_hook(Box::new(|info| {
        let place = info.location().map(ToString::to_string).unwrap_or_default();
        let payload = info.payload();
        let text = payload.downcast_ref::<String>().map(String::as_str);
        let text = text.or(payload.downcast_ref::<&str>().copied());
        let message = text.unwrap_or("a panic without words");
        let text = format!("{place}\n{message}");
        LAST.with(|last| last.replace(text));
    }));
}

/// Runs an input; also gives the bytes that were allocated at most.
pub(crate) fn of(target: &Target, bytes: &[u8]) -> (Verdict, usize) {
    watchdog::begin(target.name, bytes);
    let run = || panic::catch_unwind(AssertUnwindSafe(|| (target.body)(bytes)));
    let (outcome, peak) = memory::peak_of(run);
    watchdog::end();
    let verdict = match outcome {
        Ok(_) if peak > target.memory_bytes => Verdict::Greedy { most: target.memory_bytes },
        Ok(trail) => Verdict::Good(trail),
        Err(_) => {
            let text = LAST.with(|last| last.take());
            let (place, message) = text.split_once('\n').unwrap_or(("", &text));
            Verdict::Panicked { place: place.to_string(), message: message.to_string() }
        }
    };
    (verdict, peak)
}
