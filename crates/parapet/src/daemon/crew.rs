//! The other threads of a server: each has fronts of the arrays and its share of the NBD clients.
//!
//! ```text
//!   thread 0: Daemon, arrays, keepers, control      Crew ──errands──▶ Hand 1, Hand 2 …
//!      listener ─▶ connection ─▶ the thread with the fewest           fronts, clients
//! ```
//!
//! Owns the threads. Decides which of them serves a client, never anything about data. Errands are
//! carried out in the order in which they were sent, so an array is there before its export, and
//! its export before its clients.

use std::cell::RefCell;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;

use ::io::{Completions, Mailbox, Ticket};
use array::{Blueprint, Introduction, Message};
use net::bytewise::Writers;
use net::nbd::Memory;
use os::mailbox::{ThreadMailbox, connected};
use os::{FileDisk, SharedFile, Spawner};

use super::hand;
use crate::disks;
use crate::failure::{Failure, Id, Result};
use crate::tls::Identity;

/// What one thread asks of another.
pub(super) enum Errand {
    /// Make a front of this array, with these disks of its members.
    Join {
        uuid: String,
        blueprint: Box<Blueprint>,
        disks: Vec<Way>,
        mailbox: ThreadMailbox<Message>,
    },
    /// Tell the array's front of a member that joins.
    Introduce { uuid: String, member: Box<Introduction>, disk: Way, ticket: u64 },
    /// Show an array to clients.
    Show { uuid: String, card: Card },
    /// Show it no more, and end the connections of those who use it.
    Retire { uuid: String, ticket: u64 },
    /// Serve this NBD client, which came through the listener of this number.
    Serve(OwnedFd, usize),
    /// Finish what clients have asked for, and serve no more.
    Close { ticket: u64 },
    /// To the first thread: done.
    Done { ticket: u64 },
    /// End.
    Leave,
}

/// How a thread comes to a disk that another one has opened.
pub(super) enum Way {
    /// The same open file.
    File(SharedFile),
    /// The thread's own front of the array of this name.
    Array(String),
}

impl Way {
    /// The way to the disk that was opened here.
    pub(super) fn to(path: &Path, file: Option<&Rc<FileDisk>>) -> Way {
        match file {
            Some(file) => Way::File(file.share()),
            None => Way::Array(disks::array_name(path).to_owned()),
        }
    }
}

/// What clients are told of an array.
#[derive(Clone)]
pub(super) struct Card {
    pub(super) name: String,
    pub(super) description: String,
    pub(super) read_only: bool,
    /// Whether a client that names none gets it.
    pub(super) is_default: bool,
    /// What orders the writes of clients on all threads.
    pub(super) writers: Writers,
}

struct Hired {
    thread: JoinHandle<()>,
    connections: Arc<AtomicUsize>,
}

/// See the module. Empty where there is one thread.
pub(super) struct Crew {
    mailbox: Rc<ThreadMailbox<Errand>>,
    hands: RefCell<Vec<Hired>>,
    answers: Rc<Completions<()>>,
}

impl Crew {
    /// Starts so many threads less this one.
    ///
    /// # Errors
    /// If the machine has no room for them.
    pub(super) fn hire(
        threads: usize,
        tls: Option<&Identity>,
        memory: &Memory,
        on: &Spawner,
    ) -> Result<Crew> {
        let mut mailboxes = connected(threads).into_iter();
        let mailbox = Rc::new(mailboxes.next().expect("there is one thread at least"));
        let answers = Rc::new(Completions::new());
        let crew = Crew { mailbox, hands: RefCell::default(), answers };
        for mailbox in mailboxes {
            let hired = hire(mailbox, tls.cloned(), memory.clone())?;
            crew.hands.borrow_mut().push(hired);
        }
        let (mailbox, answers) = (Rc::clone(&crew.mailbox), Rc::clone(&crew.answers));
        on.spawn_local(async move { listen(&mailbox, &answers).await });
        Ok(crew)
    }

    /// How many threads there are, this one included.
    pub(super) fn threads(&self) -> usize {
        self.hands.borrow().len() + 1
    }

    /// Sends each thread an errand of its own, by the thread's number.
    pub(super) fn send_each(&self, errand: impl Fn(usize) -> Errand) {
        for thread in 1..self.threads() {
            self.mailbox.send(thread, &mut vec![errand(thread)]);
        }
    }

    /// Sends each thread an errand, and waits until all have done it.
    pub(super) async fn ask_each(&self, errand: impl Fn(u64) -> Errand) {
        let mut waiting = Vec::new();
        for thread in 1..self.threads() {
            let (ticket, answer) = self.answers.start();
            self.mailbox.send(thread, &mut vec![errand(ticket.to_bits())]);
            waiting.push(answer);
        }
        for answer in waiting {
            answer.await;
        }
    }

    /// NBD clients of the other threads.
    pub(super) fn connections(&self) -> usize {
        let hands = self.hands.borrow();
        hands.iter().map(|hand| hand.connections.load(Ordering::Relaxed)).sum()
    }

    /// Gives a client to the thread with the fewest; back if that is this one, which has `own`.
    pub(super) fn place(&self, client: OwnedFd, listener: usize, own: usize) -> Option<OwnedFd> {
        let hands = self.hands.borrow();
        let load = |hand: &Hired| hand.connections.load(Ordering::Relaxed);
        let idlest = hands.iter().enumerate().min_by_key(|(_, hand)| load(hand));
        let Some((index, hand)) = idlest.filter(|(_, hand)| load(hand) < own) else {
            return Some(client);
        };
        // Counted here, so that the next client sees it; the thread takes it away in the end.
        hand.connections.fetch_add(1, Ordering::Relaxed);
        self.mailbox.send(index + 1, &mut vec![Errand::Serve(client, listener)]);
        None
    }

    /// Lets the threads end, and waits for them.
    pub(super) fn dismiss(&self) {
        self.send_each(|_| Errand::Leave);
        for hand in self.hands.borrow_mut().drain(..) {
            // A thread that panicked has taken the process with it.
            let _ = hand.thread.join();
        }
    }
}

fn hire(mailbox: ThreadMailbox<Errand>, tls: Option<Identity>, memory: Memory) -> Result<Hired> {
    let failed = |error: std::io::Error| {
        let message = format!("one more thread: {error}");
        Failure::new(Id::Failed, message, "see the limits of threads, files and locked memory")
    };
    let connections = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&connections);
    let (ready, started) = mpsc::channel();
    let name = format!("parapet-{}", mailbox.address());
    let builder = std::thread::Builder::new().name(name);
    let thread =
        builder.spawn(move || hand::work(mailbox, tls, memory, counted, &ready)).map_err(failed)?;
    let outcome = started.recv().unwrap_or_else(|_| Err(std::io::ErrorKind::Other.into()));
    outcome.map_err(failed)?;
    Ok(Hired { thread, connections })
}

/// Hears what has been done.
async fn listen(mailbox: &ThreadMailbox<Errand>, answers: &Completions<()>) {
    let mut arrived = Vec::new();
    loop {
        std::future::poll_fn(|cx| mailbox.poll_receive(cx, &mut arrived)).await;
        for errand in arrived.drain(..) {
            if let Errand::Done { ticket } = errand {
                answers.finish(Ticket::from_bits(ticket), ());
            }
        }
    }
}
