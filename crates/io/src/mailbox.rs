//! Batches between shards: the only way in which one thread's part of an array speaks to another's.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// One address in a fully connected set. Delivers in order per sender; never loses a message.
pub trait Mailbox<M> {
    /// This mailbox's own address.
    fn address(&self) -> usize;

    /// Sends the whole batch to `to`, in order, and leaves `batch` empty. Never waits.
    fn send(&self, to: usize, batch: &mut Vec<M>);

    /// Appends the received messages to `into`; pending if there are none.
    fn poll_receive(&self, cx: &mut Context<'_>, into: &mut Vec<M>) -> Poll<()>;
}

struct Inbox<M> {
    arrived: VecDeque<M>,
    waker: Option<Waker>,
}

/// Mailboxes within one thread.
pub struct LocalMailbox<M> {
    inboxes: Rc<Vec<RefCell<Inbox<M>>>>,
    address: usize,
}

/// `count` mailboxes connected with one another, for shards that live on one thread.
pub fn local<M>(count: usize) -> Vec<LocalMailbox<M>> {
    let empty = || RefCell::new(Inbox { arrived: VecDeque::new(), waker: None });
    let inboxes = Rc::new((0..count).map(|_| empty()).collect::<Vec<_>>());
    (0..count).map(|address| LocalMailbox { inboxes: Rc::clone(&inboxes), address }).collect()
}

impl<M> Mailbox<M> for LocalMailbox<M> {
    fn address(&self) -> usize {
        self.address
    }

    fn send(&self, to: usize, batch: &mut Vec<M>) {
        let waker = {
            let mut inbox = self.inboxes[to].borrow_mut();
            inbox.arrived.extend(batch.drain(..));
            inbox.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn poll_receive(&self, cx: &mut Context<'_>, into: &mut Vec<M>) -> Poll<()> {
        let mut inbox = self.inboxes[self.address].borrow_mut();
        if inbox.arrived.is_empty() {
            inbox.waker = Some(cx.waker().clone());
            return Poll::Pending;
        }
        into.extend(inbox.arrived.drain(..));
        Poll::Ready(())
    }
}
