//! The messages between shards and keeper: plain data that may cross threads. They gather while a
//! thread works and are delivered in batches.
//!
//! ```text
//!   send, send, send ─▶ a list per address ─▶ flush: one batch each ─▶ Mailbox ─▶ other threads
//! ```
//!
//! A message costs a push. A batch costs one use of the mailbox: between threads a lock, and a wake
//! if the other thread sleeps. Invariant: messages from one shard to one address arrive in order.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use io::{Mailbox, Signal};
use layout::{Configuration, MemberId, Slot, SlotSet};
use metadata::Result;

use crate::member::Introduction;
use crate::shard::queue::Unit;
use crate::shard::requests::Ended;

/// A message, by the kind of its receiver.
pub enum Message {
    /// To a shard.
    Shard(ToShard),
    /// To the keeper.
    Keeper(ToKeeper),
}

/// From the keeper, or from another shard.
pub enum ToShard {
    /// Work for the shard that owns the region.
    #[doc(hidden)]
    Unit(#[allow(private_interfaces)] Unit),
    /// A unit has ended; goes back to the shard that received its request.
    #[doc(hidden)]
    Ended(#[allow(private_interfaces)] Ended),
    /// The membership is about to change: start no unit, and report when none is in flight.
    Close,
    /// The membership has changed: continue with this one.
    Open(Arc<Configuration>),
    /// Take no write into the write-back cache (true), or take writes again (false); matched.
    ShutCache(bool),
    /// Bitmap bits are durable, or could not be written.
    Marked {
        /// From [`ToKeeper::Mark`].
        ticket: u64,
        /// If false, these regions must not be written.
        granted: bool,
    },
    /// A slot, or its replacement, has been recovered below this array offset.
    Recovered {
        /// The slot.
        slot: Slot,
        /// True for the slot's replacement.
        replacement: bool,
        /// Array offset.
        below: u64,
    },
    /// Bytes of a member's data are unverified until they are written.
    Distrust {
        /// The member.
        member: MemberId,
        /// From the start of its data.
        start: u64,
        /// How many.
        len: u64,
    },
    /// Replay could not determine an array range after a crash: reads fail until it is written.
    Bad {
        /// Array offset.
        offset: u64,
        /// How many bytes.
        len: u64,
    },
    /// The reports before a [`ToKeeper::Record`] are durable, or nothing can be recorded any more.
    Recorded {
        /// The ticket of that message.
        ticket: u64,
    },
    /// A flush has ended.
    Flushed {
        /// From [`ToKeeper::Flush`].
        ticket: u64,
        /// The error, if nothing can be made durable any more.
        result: Result<()>,
    },
    /// Drop a member without a slot, and with it its disk.
    Forget(Introduction),
    /// Refuse new requests, and report when those in flight have ended.
    Quiesce,
    /// The array has stopped.
    End,
}

/// From a shard.
pub enum ToKeeper {
    /// A member failed an operation, and the error removes it from the array.
    Lost {
        /// The member.
        member: MemberId,
        /// Its error.
        why: io::Error,
    },
    /// Make all earlier reports durable, and answer.
    Record {
        /// The shard.
        shard: usize,
        /// Given back with the answer.
        ticket: u64,
    },
    /// An array range that was bad has been written.
    Mended {
        /// Array offset.
        offset: u64,
        /// How many bytes.
        len: u64,
    },
    /// An array range is lost, and a part of its block is about to be written. Reads of it fail
    /// until it is written, too.
    GivenUp {
        /// Array offset.
        offset: u64,
        /// How many bytes.
        len: u64,
    },
    /// No unit is in flight in this shard.
    Still {
        /// The shard.
        shard: usize,
    },
    /// No request received at this shard is in flight, and the shard accepts no more.
    Quiesced {
        /// The shard.
        shard: usize,
    },
    /// The shard is about to write to these regions of the write-intent bitmap.
    Mark {
        /// The shard.
        shard: usize,
        /// Given back with the answer.
        ticket: u64,
        /// First region.
        first: u64,
        /// Last region.
        last: u64,
    },
    /// The shard has flushed all its writes to these regions and has stopped writing there.
    Unmark {
        /// The shard.
        shard: usize,
        /// The regions.
        regions: Vec<u64>,
    },
    /// Make everything durable that the shard has written so far.
    Flush {
        /// The shard.
        shard: usize,
        /// Given back with the answer.
        ticket: u64,
        /// The slots whose members it has written to since its last request.
        slots: SlotSet,
    },
    /// The shard has no write in flight.
    Quiet {
        /// The shard.
        shard: usize,
    },
    /// A rebuild could not recover these bytes of a member.
    Bad {
        /// The member.
        member: MemberId,
        /// First byte, from the start of its data.
        start: u64,
        /// How many.
        len: u64,
        /// The member is not in sync; the bytes are listed because a replacement is copied from it.
        filling: bool,
    },
    /// Bytes on a member's bad-block list have been rewritten.
    Good {
        /// The member.
        member: MemberId,
        /// First byte, from the start of its data.
        start: u64,
        /// How many.
        len: u64,
    },
    /// Bytes of a member were rewritten after a read error.
    Repaired {
        /// The member.
        member: MemberId,
        /// Where, from the start of its disk.
        offset: u64,
        /// How many.
        bytes: u64,
    },
    /// A member has become far slower than its peers, or is no longer slow.
    Throttle {
        /// The member.
        member: MemberId,
        /// True if it is slow now.
        slow: bool,
        /// The measured times.
        text: String,
    },
    /// A client was answered with an error.
    Refused {
        /// The request, its range and the error.
        text: String,
    },
}

/// Shards may live on different threads.
const _: fn() = || {
    fn crosses_threads<T: Send>() {}
    crosses_threads::<Message>();
    crosses_threads::<crate::shard::submit::Blueprint>();
};

/// The shard whose thread runs the keeper.
pub(crate) const KEEPER: usize = 0;

/// The outgoing mail of a shard, and its mailbox.
pub(crate) struct Post {
    mailbox: Rc<dyn Mailbox<Message>>,
    outgoing: RefCell<Vec<Vec<Message>>>,
    waiting: Cell<bool>,
    sent: Signal,
}

impl Post {
    pub(crate) fn new(mailbox: Rc<dyn Mailbox<Message>>, shards: usize) -> Post {
        let outgoing = RefCell::new((0..shards).map(|_| Vec::new()).collect());
        Post { mailbox, outgoing, waiting: Cell::new(false), sent: Signal::new() }
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
            self.sent.raise();
        }
    }

    /// Delivers the gathered messages.
    pub(crate) fn flush(&self) {
        self.waiting.set(false);
        for (to, batch) in self.outgoing.borrow_mut().iter_mut().enumerate() {
            if !batch.is_empty() {
                self.mailbox.send(to, batch);
            }
        }
    }

    /// Delivers gathered messages each time the tasks before this one have run.
    pub(crate) async fn deliver(&self) {
        loop {
            while !self.waiting.get() {
                self.sent.wait().await;
            }
            self.flush();
        }
    }

    /// Appends received messages to `into`; pending if there are none.
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
    fn messages_are_delivered_in_order_and_in_batches() {
        let mailboxes = io::mailbox::local(2);
        let mut mailboxes = mailboxes.into_iter().map(|m| Rc::new(m) as Rc<dyn Mailbox<Message>>);
        let here = Post::new(mailboxes.next().expect("two mailboxes exist"), 2);
        let there = Post::new(mailboxes.next().expect("two mailboxes exist"), 2);
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
