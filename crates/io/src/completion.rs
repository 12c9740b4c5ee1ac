//! The answer to an operation, as a future that allocates nothing.
//!
//! A disk keeps one [`Completions`] table. Starting an operation takes a slot; the caller holds the
//! [`Completion`], the disk holds the [`Ticket`] (slot and generation, eight bytes: it fits into an
//! io_uring `user_data`). Finishing fills the slot and wakes the caller.
//!
//! **Contract.** An operation ends exactly once: finishing a ticket twice panics, because it means
//! that a buffer was handed back while the kernel may still touch it. Dropping a `Completion`
//! abandons the answer, never the operation: the slot and the buffers in it live until the disk
//! finishes.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// The operations in flight on a disk (or a clock).
pub struct Completions<T> {
    table: Rc<RefCell<Table<T>>>,
}

/// Identifies one operation to the code that completes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ticket {
    slot: u32,
    generation: u32,
}

/// The answer to come. Completes exactly once.
#[must_use = "an unchecked answer may hide an error"]
pub struct Completion<T> {
    state: Source<T>,
}

enum Source<T> {
    Ready(Option<T>),
    Waiting { table: Rc<RefCell<Table<T>>>, ticket: Ticket },
    Taken,
}

struct Table<T> {
    slots: Vec<Entry<T>>,
    free: Vec<u32>,
}

struct Entry<T> {
    generation: u32,
    state: State<T>,
}

enum State<T> {
    Free,
    Waiting(Option<Waker>),
    Done(T),
    Abandoned,
}

impl Ticket {
    /// As one number, for a kernel's `user_data`.
    pub fn to_bits(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.slot)
    }

    /// Back from [`Ticket::to_bits`].
    pub fn from_bits(bits: u64) -> Ticket {
        Ticket { slot: bits as u32, generation: (bits >> 32) as u32 }
    }

    /// The slot alone: an index below the highest number of operations in flight at once.
    pub fn slot(self) -> usize {
        self.slot as usize
    }
}

impl<T> Default for Completions<T> {
    fn default() -> Self {
        Completions { table: Rc::new(RefCell::new(Table { slots: Vec::new(), free: Vec::new() })) }
    }
}

impl<T> Clone for Completions<T> {
    fn clone(&self) -> Self {
        Completions { table: Rc::clone(&self.table) }
    }
}

impl<T> Completions<T> {
    /// An empty table.
    pub fn new() -> Self {
        Self::default()
    }

    /// Starts an operation: the ticket is the disk's, the completion the caller's.
    pub fn start(&self) -> (Ticket, Completion<T>) {
        let mut table = self.table.borrow_mut();
        let slot = match table.free.pop() {
            Some(slot) => slot,
            None => {
                let slot = table.slots.len() as u32;
                table.slots.push(Entry { generation: 0, state: State::Free });
                slot
            }
        };
        let entry = &mut table.slots[slot as usize];
        entry.state = State::Waiting(None);
        let ticket = Ticket { slot, generation: entry.generation };
        let state = Source::Waiting { table: Rc::clone(&self.table), ticket };
        (ticket, Completion { state })
    }

    /// Completes an operation and wakes its waiter.
    ///
    /// # Panics
    /// If the operation has ended already.
    pub fn finish(&self, ticket: Ticket, value: T) {
        let mut table = self.table.borrow_mut();
        let entry = &mut table.slots[ticket.slot as usize];
        assert_eq!(entry.generation, ticket.generation, "an operation ended twice");
        match std::mem::replace(&mut entry.state, State::Free) {
            State::Waiting(waker) => {
                entry.state = State::Done(value);
                drop(table);
                if let Some(waker) = waker {
                    waker.wake();
                }
            }
            State::Abandoned => {
                table.release(ticket.slot);
                drop(table);
                drop(value);
            }
            State::Free | State::Done(_) => panic!("an operation ended twice"),
        }
    }

    /// True if no caller waits for this operation.
    pub fn is_abandoned(&self, ticket: Ticket) -> bool {
        let table = self.table.borrow();
        let entry = &table.slots[ticket.slot as usize];
        entry.generation != ticket.generation || matches!(entry.state, State::Abandoned)
    }

    /// The number of operations in flight.
    pub fn in_flight(&self) -> usize {
        let table = self.table.borrow();
        table.slots.len() - table.free.len()
    }
}

impl<T> Table<T> {
    fn release(&mut self, slot: u32) {
        let entry = &mut self.slots[slot as usize];
        entry.state = State::Free;
        entry.generation = entry.generation.wrapping_add(1);
        self.free.push(slot);
    }
}

impl<T> Completion<T> {
    /// A completed answer.
    pub fn ready(value: T) -> Completion<T> {
        Completion { state: Source::Ready(Some(value)) }
    }

    /// An answer that never comes.
    pub fn never() -> Completion<T> {
        Completion { state: Source::Ready(None) }
    }

    /// The answer, if present; registers no waker.
    pub fn take_ready(&mut self) -> Option<T> {
        match &mut self.state {
            Source::Ready(value) => value.take(),
            Source::Taken => None,
            Source::Waiting { table, ticket } => {
                let mut borrowed = table.borrow_mut();
                let entry = &mut borrowed.slots[ticket.slot as usize];
                if !matches!(entry.state, State::Done(_)) {
                    return None;
                }
                let State::Done(value) = std::mem::replace(&mut entry.state, State::Free) else {
                    unreachable!("checked above");
                };
                borrowed.release(ticket.slot);
                drop(borrowed);
                self.state = Source::Taken;
                Some(value)
            }
        }
    }
}

impl<T> Unpin for Completion<T> {}

impl<T> Future for Completion<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        if let Source::Waiting { table, ticket } = &self.state {
            let mut table = table.borrow_mut();
            if let State::Waiting(waker) = &mut table.slots[ticket.slot as usize].state {
                match waker {
                    Some(waker) if waker.will_wake(cx.waker()) => {}
                    _ => *waker = Some(cx.waker().clone()),
                }
                return Poll::Pending;
            }
        }
        self.take_ready().map_or(Poll::Pending, Poll::Ready)
    }
}

impl<T> Drop for Completion<T> {
    fn drop(&mut self) {
        let Source::Waiting { table, ticket } = &self.state else { return };
        let mut table = table.borrow_mut();
        let entry = &mut table.slots[ticket.slot as usize];
        let unread = match std::mem::replace(&mut entry.state, State::Abandoned) {
            State::Done(value) => {
                table.release(ticket.slot);
                Some(value)
            }
            _ => None,
        };
        // The value may own completions of this very table: let go of the borrow first.
        drop(table);
        drop(unread);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tasks::complete;

    #[test]
    fn a_finished_operation_gives_its_value() {
        let table = Completions::new();
        let (ticket, completion) = table.start();
        table.finish(Ticket::from_bits(ticket.to_bits()), 7);
        assert_eq!(complete(completion), Some(7));
        assert_eq!(table.in_flight(), 0);
    }

    #[test]
    fn a_dropped_completion_leaves_the_operation_running() {
        let table = Completions::new();
        let (ticket, completion) = table.start();
        drop(completion);
        assert_eq!(table.in_flight(), 1);
        assert!(table.is_abandoned(ticket));
        table.finish(ticket, 7);
        assert_eq!(table.in_flight(), 0);
    }

    #[test]
    #[should_panic(expected = "ended twice")]
    fn finishing_twice_panics() {
        let table = Completions::new();
        let (ticket, completion) = table.start();
        table.finish(ticket, 7);
        assert_eq!(complete(completion), Some(7));
        table.finish(ticket, 8);
    }

    #[test]
    fn slots_are_used_again() {
        let table = Completions::new();
        for round in 0..100 {
            let (ticket, completion) = table.start();
            assert_eq!(ticket.slot(), 0);
            table.finish(ticket, round);
            assert_eq!(complete(completion), Some(round));
        }
    }
}
