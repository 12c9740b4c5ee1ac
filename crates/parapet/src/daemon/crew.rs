//! The worker threads of a server: each has fronts of the arrays and its share of the NBD clients.
//!
//! ```text
//!   thread 0: Daemon, arrays, keepers, control      Crew ──errands──▶ Hand 1, Hand 2 …
//!      listener ─▶ connection ─▶ the thread with the fewest           fronts, clients
//! ```
//!
//! Owns the threads. Decides which of them serves a client, never anything about data. Each thread
//! executes its errands in the order sent. An array therefore exists before its export, and its
//! export before its clients.

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
use net::nbd::{Clients, Memory};
use os::mailbox::{ThreadMailbox, connected};
use os::{FileDisk, SharedFile, Spawner};

use super::hand;
use crate::disks;
use crate::failure::{Failure, Id, Result};
use crate::tls::Identity;

/// A command from one thread to another.
pub(super) enum WorkerCommand {
    /// Create a front of this array, with these disks of its members.
    Join {
        uuid: String,
        blueprint: Box<Blueprint>,
        disks: Vec<Way>,
        mailbox: ThreadMailbox<Message>,
    },
    /// Announce a joining member to the array's front.
    Introduce { uuid: String, member: Box<Introduction>, disk: Way, ticket: u64 },
    /// Export an array to clients.
    Show { uuid: String, card: Card },
    /// Remove the export and close the connections to it.
    Retire { uuid: String, ticket: u64 },
    /// Serve this NBD client, accepted by the listener of this number.
    Serve(OwnedFd, usize),
    /// Require TLS with this identity, or none, of clients that connect from now on.
    Secure(Option<Identity>),
    /// Finish the clients' requests in flight, then stop serving.
    Close { ticket: u64 },
    /// Report completion to the first thread.
    Done { ticket: u64 },
    /// Stop the thread.
    Leave,
}

/// How a thread reaches a disk that another thread opened.
pub(super) enum Way {
    /// The same open file.
    File(SharedFile),
    /// The thread's own front of the array of this name.
    Array(String),
}

impl Way {
    /// Describes how other threads reach a disk opened on this thread.
    pub(super) fn to(path: &Path, file: Option<&Rc<FileDisk>>) -> Way {
        match file {
            Some(file) => Way::File(file.share()),
            None => Way::Array(disks::array_name(path).to_owned()),
        }
    }
}

/// The properties of an export that clients see.
#[derive(Clone)]
pub(super) struct Card {
    pub(super) name: String,
    pub(super) description: String,
    pub(super) read_only: bool,
    /// Whether clients that name no export get this one.
    pub(super) is_default: bool,
    /// Orders the writes of clients on all threads.
    pub(super) writers: Writers,
    /// Counts the clients on all threads.
    pub(super) clients: Clients,
}

struct Worker {
    thread: JoinHandle<()>,
    connections: Arc<AtomicUsize>,
}

/// See the module. Empty in a single-threaded server.
pub(super) struct Crew {
    mailbox: Rc<ThreadMailbox<WorkerCommand>>,
    hands: RefCell<Vec<Worker>>,
    answers: Rc<Completions<()>>,
}

impl Crew {
    /// Starts `threads - 1` worker threads.
    ///
    /// # Errors
    /// If the machine cannot start them.
    pub(super) fn start(
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
            let hired = start_worker(mailbox, tls.cloned(), memory.clone())?;
            crew.hands.borrow_mut().push(hired);
        }
        let (mailbox, answers) = (Rc::clone(&crew.mailbox), Rc::clone(&crew.answers));
        on.spawn_local(async move { listen(&mailbox, &answers).await });
        Ok(crew)
    }

    /// Returns the number of threads, this one included.
    pub(super) fn threads(&self) -> usize {
        self.hands.borrow().len() + 1
    }

    /// Sends each thread its own errand, by the thread's number.
    pub(super) fn send_each(&self, errand: impl Fn(usize) -> WorkerCommand) {
        for thread in 1..self.threads() {
            self.mailbox.send(thread, &mut vec![errand(thread)]);
        }
    }

    /// Sends each thread an errand, and waits until all have completed it.
    pub(super) async fn ask_each(&self, errand: impl Fn(u64) -> WorkerCommand) {
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

    /// Counts the NBD clients of the other threads.
    pub(super) fn connections(&self) -> usize {
        let hands = self.hands.borrow();
        hands.iter().map(|hand| hand.connections.load(Ordering::Relaxed)).sum()
    }

    /// Hands a client to the least loaded thread; returns it if that is this one, which has `own`.
    pub(super) fn place(&self, client: OwnedFd, listener: usize, own: usize) -> Option<OwnedFd> {
        let hands = self.hands.borrow();
        let load = |hand: &Worker| hand.connections.load(Ordering::Relaxed);
        let idlest = hands.iter().enumerate().min_by_key(|(_, hand)| load(hand));
        let Some((index, hand)) = idlest.filter(|(_, hand)| load(hand) < own) else {
            return Some(client);
        };
        // Count it here, so that the next client sees it. The thread decrements it at the end.
        hand.connections.fetch_add(1, Ordering::Relaxed);
        self.mailbox.send(index + 1, &mut vec![WorkerCommand::Serve(client, listener)]);
        None
    }

    /// Stops the threads and waits for them.
    pub(super) fn stop_workers(&self) {
        self.send_each(|_| WorkerCommand::Leave);
        for hand in self.hands.borrow_mut().drain(..) {
            // A panic in a thread aborts the whole process, so the result carries nothing.
            let _ = hand.thread.join();
        }
    }
}

fn start_worker(
    mailbox: ThreadMailbox<WorkerCommand>,
    tls: Option<Identity>,
    memory: Memory,
) -> Result<Worker> {
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
    Ok(Worker { thread, connections })
}

/// Receives completion reports.
async fn listen(mailbox: &ThreadMailbox<WorkerCommand>, answers: &Completions<()>) {
    let mut arrived = Vec::new();
    loop {
        std::future::poll_fn(|cx| mailbox.poll_receive(cx, &mut arrived)).await;
        for errand in arrived.drain(..) {
            if let WorkerCommand::Done { ticket } = errand {
                answers.finish(Ticket::from_bits(ticket), ());
            }
        }
    }
}
