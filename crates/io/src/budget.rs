//! A named limit that is waited for, never exceeded: back-pressure.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// A limited amount of something (bytes, requests). First come, first served.
#[derive(Clone)]
pub struct Budget {
    state: Rc<RefCell<State>>,
}

struct State {
    limit: u64,
    used: u64,
    next_turn: u64,
    queue: VecDeque<Waiter>,
}

struct Waiter {
    turn: u64,
    amount: u64,
    waker: Waker,
}

/// A share of a [`Budget`], given back when dropped.
pub struct Permit {
    state: Rc<RefCell<State>>,
    amount: u64,
}

impl Budget {
    /// A budget of `limit` units.
    pub fn new(limit: u64) -> Budget {
        let state = State { limit, used: 0, next_turn: 0, queue: VecDeque::new() };
        Budget { state: Rc::new(RefCell::new(state)) }
    }

    /// Takes `amount` units once they are free and all earlier callers were served. An amount over
    /// the limit is granted alone, when nothing else is taken: it must not wait for ever.
    pub fn take(&self, amount: u64) -> Take {
        Take { state: Rc::clone(&self.state), amount, turn: None }
    }

    /// Takes `amount` units now, or not at all.
    pub fn try_take(&self, amount: u64) -> Option<Permit> {
        let mut state = self.state.borrow_mut();
        if !state.queue.is_empty() || !state.fits(amount) {
            return None;
        }
        state.used += amount;
        Some(Permit { state: Rc::clone(&self.state), amount })
    }

    /// Units out now.
    pub fn used(&self) -> u64 {
        self.state.borrow().used
    }
}

impl State {
    fn fits(&self, amount: u64) -> bool {
        self.used == 0 || self.used.saturating_add(amount) <= self.limit
    }

    fn wake_front(&self) {
        if let Some(front) = self.queue.front()
            && self.fits(front.amount)
        {
            front.waker.wake_by_ref();
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut state = self.state.borrow_mut();
        state.used -= self.amount;
        state.wake_front();
    }
}

/// See [`Budget::take`].
#[must_use = "a future does nothing unless awaited"]
pub struct Take {
    state: Rc<RefCell<State>>,
    amount: u64,
    turn: Option<u64>,
}

impl Future for Take {
    type Output = Permit;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Permit> {
        let shared = Rc::clone(&self.state);
        let mut state = shared.borrow_mut();
        let first = match (self.turn, state.queue.front()) {
            (_, None) => true,
            (Some(turn), Some(front)) => front.turn == turn,
            (None, Some(_)) => false,
        };
        if first && state.fits(self.amount) {
            if self.turn.take().is_some() {
                state.queue.pop_front();
            }
            state.used += self.amount;
            state.wake_front();
            return Poll::Ready(Permit { state: Rc::clone(&shared), amount: self.amount });
        }
        match self.turn {
            Some(turn) => {
                if let Some(waiter) = state.queue.iter_mut().find(|waiter| waiter.turn == turn) {
                    waiter.waker.clone_from(cx.waker());
                }
            }
            None => {
                let turn = state.next_turn;
                state.next_turn += 1;
                let waker = cx.waker().clone();
                state.queue.push_back(Waiter { turn, amount: self.amount, waker });
                self.turn = Some(turn);
            }
        }
        Poll::Pending
    }
}

impl Drop for Take {
    fn drop(&mut self) {
        if let Some(turn) = self.turn {
            let mut state = self.state.borrow_mut();
            state.queue.retain(|waiter| waiter.turn != turn);
            state.wake_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tasks::{complete, poll_once};

    #[test]
    fn waits_in_order_of_arrival() {
        let budget = Budget::new(10);
        let first = complete(budget.take(8)).expect("the future completes");
        let mut big = budget.take(5);
        let mut small = budget.take(1);
        assert!(poll_once(&mut big).is_none());
        assert!(poll_once(&mut small).is_none(), "the small one does not overtake");
        drop(first);
        let big = poll_once(&mut big).expect("there is space now");
        let small = poll_once(&mut small).expect("there is space for both");
        assert_eq!(budget.used(), 6);
        drop((big, small));
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn more_than_the_limit_goes_alone() {
        let budget = Budget::new(10);
        let one = complete(budget.take(1)).expect("the future completes");
        let mut huge = budget.take(100);
        assert!(poll_once(&mut huge).is_none());
        drop(one);
        assert!(poll_once(&mut huge).is_some());
    }
}
