//! The memory that requests of all clients may keep in use, and each connection's account of it.
//!
//! ```text
//!    connection   | own room: OWN_BYTES | beyond it: shared memory, first come first served
//! ```
//!
//! A request is admitted with all the memory that it will need, or waits. An admitted request
//! waits for no memory, only for its client and its disk, so the wait cannot be a circle. Each
//! connection has a little room of its own: clients of small requests go on whatever others hold.
//!
//! Owns the accounting, never a buffer. Invariant: the requests of all connections keep at most
//! the limit in use, and `OWN_BYTES` for each connection. A single request over the limit goes
//! alone.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use super::limits::{MAX_REQUEST_BYTES, MAX_REQUESTS, OWN_BYTES};
use super::outbox::Load;

/// Memory for the requests of all connections. Clones share it, on whichever threads.
#[derive(Clone)]
pub struct Memory(Arc<Mutex<State>>);

struct State {
    limit: u64,
    used: u64,
    /// The number of the next account.
    next: u64,
    queue: VecDeque<Waiter>,
}

/// A connection whose next request waits for memory.
struct Waiter {
    account: u64,
    amount: u64,
    waker: Waker,
}

impl Memory {
    /// Room for this many bytes of requests.
    pub fn new(limit: u64) -> Memory {
        let state = State { limit, used: 0, next: 0, queue: VecDeque::new() };
        Memory(Arc::new(Mutex::new(state)))
    }

    /// Bytes in use, without the connections' own room.
    pub fn used(&self) -> u64 {
        self.lock().used
    }

    /// True if a request waits for memory.
    pub(super) fn is_short(&self) -> bool {
        !self.lock().queue.is_empty()
    }

    /// Opens the account of a connection.
    pub(super) fn account(&self) -> Account {
        let mut state = self.lock();
        let number = state.next;
        state.next += 1;
        Account { memory: self.clone(), number, load: Load::default(), waits: false }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No code panics while it is locked.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes `amount` if it is free and all earlier callers were served; otherwise queues.
    fn take(&self, account: u64, amount: u64, waker: &Waker) -> bool {
        let mut state = self.lock();
        let front = state.queue.front().map(|waiter| waiter.account);
        if front.is_none_or(|front| front == account) && state.fits(amount) {
            if front.is_some() {
                state.queue.pop_front();
            }
            state.used += amount;
            wake_next(state);
            return true;
        }
        match state.queue.iter_mut().find(|waiter| waiter.account == account) {
            Some(waiter) => {
                waiter.amount = amount;
                waiter.waker.clone_from(waker);
            }
            None => state.queue.push_back(Waiter { account, amount, waker: waker.clone() }),
        }
        false
    }

    fn give_back(&self, amount: u64) {
        let mut state = self.lock();
        state.used -= amount;
        wake_next(state);
    }

    fn leave_queue(&self, account: u64) {
        let mut state = self.lock();
        state.queue.retain(|waiter| waiter.account != account);
        wake_next(state);
    }
}

impl State {
    fn fits(&self, amount: u64) -> bool {
        self.used == 0 || self.used.saturating_add(amount) <= self.limit
    }
}

/// Wakes the first in the queue if there is room for its request.
fn wake_next(state: MutexGuard<'_, State>) {
    let first = state.queue.front().filter(|first| state.fits(first.amount));
    let waker = first.map(|first| first.waker.clone());
    drop(state);
    waker.into_iter().for_each(Waker::wake);
}

/// Memory used by one connection's requests.
pub(super) struct Account {
    memory: Memory,
    number: u64,
    load: Load,
    /// Its next request is in the queue for memory.
    waits: bool,
}

impl Account {
    /// Admits one more request that keeps `bytes` in memory, if the limits have room for it. If
    /// it is the shared memory that is short, `waker` is woken when there is room.
    pub(super) fn admit(&mut self, bytes: u64, waker: &Waker) -> bool {
        // Alone, a request may be of any size: its own limit is far lower.
        let fits = self.load.bytes == 0 || self.load.bytes + bytes <= MAX_REQUEST_BYTES;
        if self.load.requests >= MAX_REQUESTS || !fits {
            // The connection's own answers make room.
            self.step_aside();
            return false;
        }
        let after = Load { requests: self.load.requests + 1, bytes: self.load.bytes + bytes };
        let more = shared_part(after) - shared_part(self.load);
        if more == 0 {
            self.step_aside();
        } else {
            self.waits = !self.memory.take(self.number, more, waker);
            if self.waits {
                return false;
            }
        }
        self.load = after;
        true
    }

    /// This is no longer in use.
    pub(super) fn release(&mut self, load: Load) {
        let before = shared_part(self.load);
        self.load -= load;
        let freed = before - shared_part(self.load);
        if freed > 0 {
            self.memory.give_back(freed);
        }
    }

    /// Leaves the queue: no request can be admitted now, and others must not wait for this one.
    pub(super) fn step_aside(&mut self) {
        if std::mem::take(&mut self.waits) {
            self.memory.leave_queue(self.number);
        }
    }

    /// Memory in use.
    #[cfg(test)]
    pub(super) fn load(&self) -> Load {
        self.load
    }

    /// True if it keeps others from the memory that they wait for.
    pub(super) fn is_in_the_way(&self) -> bool {
        shared_part(self.load) > 0 && self.memory.is_short()
    }
}

/// The share from the common memory.
fn shared_part(load: Load) -> u64 {
    load.bytes.saturating_sub(OWN_BYTES)
}

impl Drop for Account {
    fn drop(&mut self) {
        self.step_aside();
        self.release(self.load);
    }
}
