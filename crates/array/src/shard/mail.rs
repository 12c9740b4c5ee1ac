//! What a shard sends: gathered while its thread is at work, handed over in batches.
//!
//! ```text
//!   send, send, send ─▶ a list per address ─▶ flush: one batch each ─▶ Mailbox ─▶ other threads
//! ```
//!
//! A message costs a push; a batch costs whatever the mailbox costs (between threads a lock, and a
//! wake if the other one sleeps). Invariant: what one shard sends to one address arrives in order.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::task::{Context, Poll};

use io::{Mailbox, Signal};

use crate::shard::message::{Message, ToKeeper, ToShard};

/// Where the keeper lives.
pub(crate) const KEEPER: usize = 0;

/// The outgoing mail of a shard, and its mailbox.
pub(crate) struct Post {
    mailbox: Rc<dyn Mailbox<Message>>,
    outgoing: RefCell<Vec<Vec<Message>>>,
    waiting: Cell<bool>,
    stirred: Signal,
}

impl Post {
    pub(crate) fn new(mailbox: Rc<dyn Mailbox<Message>>, shards: usize) -> Post {
        let outgoing = RefCell::new((0..shards).map(|_| Vec::new()).collect());
        Post { mailbox, outgoing, waiting: Cell::new(false), stirred: Signal::new() }
    }

    /// The shard's own address.
    pub(crate) fn address(&self) -> usize {
        self.mailbox.address()
    }

    /// Sends to a shard.
    pub(crate) fn to_shard(&self, shard: usize, message: ToShard) {
        self.send(shard, Message::Shard(message));
    }

    /// Sends the same to every shard.
    pub(crate) fn to_all(&self, message: impl Fn() -> ToShard) {
        let shards = self.outgoing.borrow().len();
        (0..shards).for_each(|shard| self.to_shard(shard, message()));
    }

    /// Sends to the keeper.
    pub(crate) fn to_keeper(&self, message: ToKeeper) {
        self.send(KEEPER, Message::Keeper(message));
    }

    fn send(&self, to: usize, message: Message) {
        self.outgoing.borrow_mut()[to].push(message);
        if !self.waiting.replace(true) {
            self.stirred.raise();
        }
    }

    /// Hands over what was gathered.
    pub(crate) fn flush(&self) {
        self.waiting.set(false);
        for (to, batch) in self.outgoing.borrow_mut().iter_mut().enumerate() {
            if !batch.is_empty() {
                self.mailbox.send(to, batch);
            }
        }
    }

    /// Hands over whatever is gathered, each time the tasks before this one have had their turn.
    pub(crate) async fn deliver(&self) {
        loop {
            while !self.waiting.get() {
                self.stirred.wait().await;
            }
            self.flush();
        }
    }

    /// Appends what has arrived to `into`; pending if there is nothing.
    pub(crate) fn poll_receive(&self, cx: &mut Context<'_>, into: &mut Vec<Message>) -> Poll<()> {
        self.mailbox.poll_receive(cx, into)
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use io::tasks::poll_once;

    use super::*;

    #[test]
    fn messages_are_handed_over_in_order_and_in_batches() {
        let mailboxes = io::mailbox::local(2);
        let mut mailboxes = mailboxes.into_iter().map(|m| Rc::new(m) as Rc<dyn Mailbox<Message>>);
        let here = Post::new(mailboxes.next().expect("there are two"), 2);
        let there = Post::new(mailboxes.next().expect("there are two"), 2);
        for ticket in 0..3 {
            here.to_shard(1, ToShard::Marked { ticket, granted: true });
        }
        let (mut arrived, mut cx) = (Vec::new(), Context::from_waker(Waker::noop()));
        assert!(there.poll_receive(&mut cx, &mut arrived).is_pending(), "nothing is handed over");
        assert!(poll_once(std::pin::pin!(here.deliver())).is_none());
        assert!(there.poll_receive(&mut cx, &mut arrived).is_ready());
        let tickets: Vec<u64> = arrived
            .iter()
            .filter_map(|message| match message {
                Message::Shard(ToShard::Marked { ticket, .. }) => Some(*ticket),
                _ => None,
            })
            .collect();
        assert_eq!(tickets, [0, 1, 2]);
    }
}
