//! A worker thread of a server: executes its errands and serves its clients.
//!
//! Owns an executor, a front of each array, and its own NBD server. Decides nothing: its errands
//! come from the [`Crew`](super::crew::Crew).

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::Sender;

use ::io::{Disk, Mailbox, Pool};
use array::{Blueprint, Front, Message};
use net::nbd::{Memory, Server};
use os::mailbox::ThreadMailbox;
use os::{Executor, FileDisk, Socket, Spawner};

use super::crew::{Card, Way, WorkerCommand};
use super::exports::Shown;
use super::listen::{TurnedAway, log_ending, origin};
use super::{POOL_BYTES, export, nbd_server};
use crate::tls::Identity;

/// Runs the thread from start to end.
pub(super) fn work(
    mailbox: ThreadMailbox<WorkerCommand>,
    tls: Option<Identity>,
    memory: Memory,
    connections: Arc<AtomicUsize>,
    ready: &Sender<std::io::Result<()>>,
) {
    let guard = AbortOnPanic;
    let executor = match Executor::new(os::Config::default()) {
        Ok(executor) => executor,
        Err(error) => {
            // The receiver reports the error to the user.
            let _ = ready.send(Err(error));
            return;
        }
    };
    let hand = Hand::new(mailbox, tls, memory, connections, executor.spawner());
    let _ = ready.send(Ok(()));
    executor.block_on(hand.run_commands());
    drop(executor);
    drop(guard);
}

/// Aborts the process on a panic: a server must not continue with part of its threads.
struct AbortOnPanic;

impl Drop for AbortOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            std::process::abort();
        }
    }
}

struct Hand {
    mailbox: ThreadMailbox<WorkerCommand>,
    on: Spawner,
    pool: Pool,
    exports: Rc<Shown>,
    server: Server,
    fronts: RefCell<BTreeMap<String, Front>>,
    connections: Arc<AtomicUsize>,
    turned_away: TurnedAway,
}

impl Hand {
    fn new(
        mailbox: ThreadMailbox<WorkerCommand>,
        tls: Option<Identity>,
        memory: Memory,
        connections: Arc<AtomicUsize>,
        on: Spawner,
    ) -> Rc<Hand> {
        let pool = Pool::new(POOL_BYTES);
        let exports = Rc::new(Shown::default());
        let server = nbd_server(&exports, tls, memory, &pool, &on);
        let fronts = RefCell::default();
        let turned_away = TurnedAway::default();
        Rc::new(Hand { mailbox, on, pool, exports, server, fronts, connections, turned_away })
    }

    async fn run_commands(self: &Rc<Self>) {
        let mut arrived = Vec::new();
        loop {
            std::future::poll_fn(|cx| self.mailbox.poll_receive(cx, &mut arrived)).await;
            for errand in arrived.drain(..) {
                match errand {
                    WorkerCommand::Join { uuid, blueprint, disks, mailbox } => {
                        self.join(uuid, &blueprint, disks, mailbox);
                    }
                    WorkerCommand::Introduce { uuid, member, disk, ticket } => {
                        if let Some(front) = self.fronts.borrow().get(&uuid) {
                            front.introduce(&member, self.disk(disk));
                        }
                        self.done(ticket);
                    }
                    WorkerCommand::Show { uuid, card } => self.show(&uuid, &card),
                    WorkerCommand::Retire { uuid, ticket } => {
                        self.after(self.exports.retire(&uuid), ticket);
                    }
                    WorkerCommand::Serve(client, listener) => self.serve(client, listener),
                    WorkerCommand::Secure(tls) => {
                        self.server.set_tls(tls.map(|tls| Rc::new(tls) as _));
                    }
                    WorkerCommand::Close { ticket } => self.after(self.server.shutdown(), ticket),
                    WorkerCommand::Done { .. } => {}
                    WorkerCommand::Leave => return,
                }
            }
        }
    }

    /// Reports the ticket as done when the future completes.
    fn after(self: &Rc<Self>, what: impl Future<Output = ()> + 'static, ticket: u64) {
        let hand = Rc::clone(self);
        self.on.spawn_local(async move {
            what.await;
            hand.done(ticket);
        });
    }

    fn done(&self, ticket: u64) {
        self.mailbox.send(0, &mut vec![WorkerCommand::Done { ticket }]);
    }

    fn join(
        self: &Rc<Self>,
        uuid: String,
        blueprint: &Blueprint,
        disks: Vec<Way>,
        mailbox: ThreadMailbox<Message>,
    ) {
        let disks = disks.into_iter().map(|way| self.disk(way)).collect();
        let clock = self.on.clock();
        let front = Front::join(blueprint, disks, clock, None, Rc::new(mailbox));
        self.fronts.borrow_mut().insert(uuid.clone(), front.clone());
        let hand = Rc::clone(self);
        self.on.spawn_local(async move {
            front.run().await;
            hand.fronts.borrow_mut().remove(&uuid);
        });
    }

    /// Opens this thread's own handle on a disk.
    fn disk(&self, way: Way) -> Rc<dyn Disk> {
        match way {
            Way::File(file) => FileDisk::of(file, &self.on),
            Way::Array(name) => {
                let fronts = self.fronts.borrow();
                let inner = fronts.values().find(|front| front.name() == name);
                // Errands arrive in order, and an inner array starts before the outer one.
                Rc::new(inner.expect("the inner array's front has joined before").clone())
            }
        }
    }

    fn show(&self, uuid: &str, card: &Card) {
        if let Some(front) = self.fronts.borrow().get(uuid) {
            let disk = Rc::new(front.clone());
            self.exports.add(uuid, export(card, disk, self.pool.clone()), card.is_default);
        }
    }

    fn serve(self: &Rc<Self>, client: OwnedFd, listener: usize) {
        let hand = Rc::clone(self);
        let gone = move || hand.connections.fetch_sub(1, Ordering::Relaxed);
        let socket = match Socket::from_fd(client, &self.on) {
            Ok(socket) => socket,
            Err(error) => {
                tracing::error!(%error, "a connection could not be taken over");
                gone();
                return;
            }
        };
        let origin = origin(socket.peer());
        let Some(serving) = self.server.admit(Box::new(socket), listener, origin.as_str()) else {
            self.turned_away.warn(&*self.on.clock(), &origin);
            gone();
            return;
        };
        tracing::debug!(origin, "an NBD client has connected");
        self.on.spawn_local(async move {
            log_ending(&origin, &serving.await);
            gone();
        });
    }
}
