//! Mailboxes between threads, for messages of shards.
//!
//! One mutex and one queue per receiver; a batch costs one lock and, if the receiver sleeps, one
//! write to its executor's eventfd. Never loses and never waits. Invariant: the lock is held for
//! moving messages only, never while a waker runs.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};

use io::Mailbox;

/// One address of a set that is connected each to each. Goes to its thread, and stays there.
pub struct ThreadMailbox<M> {
    inboxes: Arc<[Mutex<Inbox<M>>]>,
    address: usize,
}

struct Inbox<M> {
    arrived: VecDeque<M>,
    waker: Option<Waker>,
}

/// `count` mailboxes, addresses 0 to `count - 1`, connected with one another.
pub fn connected<M: Send>(count: usize) -> Vec<ThreadMailbox<M>> {
    let empty = || Mutex::new(Inbox { arrived: VecDeque::new(), waker: None });
    let inboxes: Arc<[_]> = (0..count).map(|_| empty()).collect();
    (0..count).map(|address| ThreadMailbox { inboxes: Arc::clone(&inboxes), address }).collect()
}

impl<M> ThreadMailbox<M> {
    fn inbox(&self, address: usize) -> MutexGuard<'_, Inbox<M>> {
        // Moving messages does not panic half way.
        self.inboxes[address].lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl<M> Mailbox<M> for ThreadMailbox<M> {
    fn address(&self) -> usize {
        self.address
    }

    fn send(&self, to: usize, batch: &mut Vec<M>) {
        if batch.is_empty() {
            return;
        }
        let waker = {
            let mut inbox = self.inbox(to);
            inbox.arrived.extend(batch.drain(..));
            inbox.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn poll_receive(&self, cx: &mut Context<'_>, into: &mut Vec<M>) -> Poll<()> {
        let mut inbox = self.inbox(self.address);
        if inbox.arrived.is_empty() {
            inbox.waker = Some(cx.waker().clone());
            return Poll::Pending;
        }
        into.extend(inbox.arrived.drain(..));
        Poll::Ready(())
    }
}
