//! The history: a running hash of all events and, on request, a readable story.
//!
//! Two runs of one seed must end with the same hash, bit for bit; a difference means that outside
//! state (an address, a hash order, a real clock) has leaked in. The story is recorded only in the
//! second run of a failed seed: it costs time, and does not change the events.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use io::Time;

use random::mix;

/// The level of detail of a story.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Detail {
    /// None: the hash is enough.
    #[default]
    Nothing,
    /// Requests, incidents, changes of the array.
    Steps,
    /// Every operation of every disk too.
    Everything,
}

/// The record of one run. Cheap to clone; clones write into the same record.
#[derive(Clone, Default)]
pub struct Trace {
    inner: Rc<Inner>,
}

#[derive(Default)]
struct Inner {
    hash: Cell<u64>,
    events: Cell<u64>,
    /// The story; `None` if not requested.
    story: Option<RefCell<Vec<String>>>,
    detailed: bool,
    marks: RefCell<BTreeMap<&'static str, u64>>,
    faults: Cell<u64>,
}

impl Trace {
    /// A record with this detail.
    pub fn new(telling: Detail) -> Trace {
        let story = (telling != Detail::Nothing).then(RefCell::default);
        let detailed = telling == Detail::Everything;
        Trace { inner: Rc::new(Inner { story, detailed, ..Inner::default() }) }
    }

    /// Adds an event to the hash.
    pub fn event(&self, numbers: &[u64]) {
        let mut hash = self.inner.hash.get();
        for &number in numbers {
            hash = mix(hash ^ number);
        }
        self.inner.hash.set(hash);
        self.inner.events.set(self.inner.events.get() + 1);
    }

    /// Adds a line to the story. The text is made only if there is one.
    pub fn note(&self, now: Time, text: impl FnOnce() -> String) {
        if let Some(story) = &self.inner.story {
            let text = text();
            story.borrow_mut().push(format!("{:>12.6} s  {text}", now.0 as f64 / 1e9));
        }
    }

    /// Adds a line that only a very patient reader wants.
    pub fn detail(&self, now: Time, text: impl FnOnce() -> String) {
        if self.inner.detailed {
            self.note(now, text);
        }
    }

    /// Notes that a rare place was reached. The ensemble of runs must reach each.
    pub fn mark(&self, name: &'static str) {
        debug_assert!(crate::mark::is_known(name), "{name:?} is not in the table of marks");
        *self.inner.marks.borrow_mut().entry(name).or_default() += 1;
    }

    /// The hash of everything up to now.
    pub fn hash(&self) -> u64 {
        self.inner.hash.get()
    }

    /// How many events went into the hash.
    pub fn events(&self) -> u64 {
        self.inner.events.get()
    }

    /// The story up to now.
    pub fn story(&self) -> Vec<String> {
        self.inner.story.as_ref().map(|story| story.borrow().clone()).unwrap_or_default()
    }

    /// Counts something that went wrong.
    pub fn fault(&self) {
        self.inner.faults.set(self.inner.faults.get() + 1);
    }

    /// How often something went wrong.
    pub fn faults(&self) -> u64 {
        self.inner.faults.get()
    }

    /// The marks that were reached, with how often.
    pub fn marks(&self) -> BTreeMap<&'static str, u64> {
        self.inner.marks.borrow().clone()
    }
}
