//! What shards and the keeper tell each other: plain data that may cross threads, gathered while a
//! thread is at work, handed over in batches.
//!
//! ```text
//!   send, send, send ─▶ a list per address ─▶ flush: one batch each ─▶ Mailbox ─▶ other threads
//! ```
//!
//! A message costs a push; a batch costs whatever the mailbox costs (between threads a lock, and a
//! wake if the other one sleeps). Invariant: what one shard sends to one address arrives in order.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use io::{Mailbox, Signal};
use layout::{Configuration, MemberId, Slot, SlotSet};
use metadata::Result;

use crate::member::Introduction;
use crate::shard::queue::{Ended, Unit};

/// A message; which of the two it is for is in its name.
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
    /// A unit has ended, back to where its request came in.
    #[doc(hidden)]
    Ended(#[allow(private_interfaces)] Ended),
    /// The membership is about to change: let no unit begin, and say when you are still.
    Close,
    /// The membership has changed; go on.
    Open(Arc<Configuration>),
    /// Take nothing into the write-back cache from now on, or take in again: matched.
    ShutCache(bool),
    /// A mark is durable, or could not be made so.
    Marked {
        /// From [`ToKeeper::Mark`].
        ticket: u64,
        /// False: nothing may be written.
        granted: bool,
    },
    /// A slot, or its replacement, now holds all bytes below this array offset.
    Recovered {
        /// The slot.
        slot: Slot,
        /// It is the slot's replacement.
        replacement: bool,
        /// Array offset.
        below: u64,
    },
    /// Bytes of a member's data are not to be trusted until they are written.
    Distrust {
        /// The member.
        member: MemberId,
        /// From the start of its data.
        start: u64,
        /// How many.
        len: u64,
    },
    /// An array range could not be made right after a crash: an error until it is written.
    Bad {
        /// Array offset.
        offset: u64,
        /// How many bytes.
        len: u64,
    },
    /// What was asked for by [`ToKeeper::Record`] is done, or nothing can be recorded any more.
    Recorded {
        /// From there.
        ticket: u64,
    },
    /// A flush has ended.
    Flushed {
        /// From [`ToKeeper::Flush`].
        ticket: u64,
        /// Why nothing can be made durable any more, if so.
        result: Result<()>,
    },
    /// Let go of a member that has no place, and so of its disk.
    Forget(Introduction),
    /// Refuse new requests, and say when those under way have ended.
    Quiesce,
    /// The array has stopped.
    End,
}

/// From a shard.
pub enum ToKeeper {
    /// A member failed an operation that must not fail.
    Lost {
        /// The member.
        member: MemberId,
        /// What it said.
        why: io::Error,
    },
    /// What was told before this is to be on record.
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
    /// An array range is lost, and a part of its block is about to be written: an error until it is
    /// written, too.
    GivenUp {
        /// Array offset.
        offset: u64,
        /// How many bytes.
        len: u64,
    },
    /// No unit moves in this shard any more.
    Still {
        /// The shard.
        shard: usize,
    },
    /// No request that came in at this shard is under way, and none will be.
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
    /// The shard has flushed all it wrote to these regions, and writes there no more.
    Unmark {
        /// The shard.
        shard: usize,
        /// The regions.
        regions: Vec<u64>,
    },
    /// All that the shard wrote so far is to be durable.
    Flush {
        /// The shard.
        shard: usize,
        /// Given back with the answer.
        ticket: u64,
        /// The slots whose members it has written to since it asked last.
        slots: SlotSet,
    },
    /// The shard writes nothing at the moment.
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
        /// It is not in sync yet, and listed for a member that is being filled from it.
        filling: bool,
    },
    /// These bytes of a member were on its bad-block list, and have been written anew.
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
    /// A member takes far longer than its peers, or does so no longer.
    Throttle {
        /// The member.
        member: MemberId,
        /// It does.
        slow: bool,
        /// How long.
        text: String,
    },
    /// A client was answered with an error.
    Refused {
        /// What it wanted, where, and why it was not done.
        text: String,
    },
}

/// Shards may live on different threads.
const _: fn() = || {
    fn crosses_threads<T: Send>() {}
    crosses_threads::<Message>();
    crosses_threads::<crate::shard::submit::Blueprint>();
};

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
