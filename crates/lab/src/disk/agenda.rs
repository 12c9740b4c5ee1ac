//! Events of a model in order of time; those of one moment in the order in which they were added.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::Nanos;

/// The events of a model.
#[derive(Clone, Debug)]
pub(crate) struct Agenda<E> {
    heap: BinaryHeap<Reverse<Entry<E>>>,
    added: u64,
}

#[derive(Clone, Copy, Debug)]
struct Entry<E> {
    at: Nanos,
    order: u64,
    event: E,
}

impl<E> PartialEq for Entry<E> {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.order) == (other.at, other.order)
    }
}

impl<E> Eq for Entry<E> {}

impl<E> PartialOrd for Entry<E> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> Ord for Entry<E> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}

impl<E: Copy> Agenda<E> {
    /// Nothing to do.
    pub(crate) fn new() -> Agenda<E> {
        Agenda { heap: BinaryHeap::new(), added: 0 }
    }

    /// Adds an event.
    pub(crate) fn add(&mut self, at: Nanos, event: E) {
        self.heap.push(Reverse(Entry { at, order: self.added, event }));
        self.added += 1;
    }

    /// When the next event is due.
    pub(crate) fn next(&self) -> Option<Nanos> {
        self.heap.peek().map(|Reverse(entry)| entry.at)
    }

    /// Takes the next event if it is due by `now`.
    pub(crate) fn take(&mut self, now: Nanos) -> Option<(Nanos, E)> {
        if self.next()? > now {
            return None;
        }
        self.heap.pop().map(|Reverse(entry)| (entry.at, entry.event))
    }
}
