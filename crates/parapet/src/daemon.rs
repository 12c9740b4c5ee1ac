//! The server process: connects arrays, exports and sockets, and shuts them down in order.
//!
//! ```text
//!    members ─▶ Array ─▶ Export ─▶ nbd::Server ◀── listeners (unix, tcp, systemd, stdio)
//!                 ▲ ├──▶ Lun ────▶ aoe::Target ◀── network interfaces
//!                 │ └────────────▶ ublk, NBD, FUSE ◀── local disks (attach)
//!              orders ◀── control ◀── control sockets (HTTP, JSON)
//! ```
//!
//! Owns its arrays from their assembly until their members are marked clean. It has one executor on
//! one thread; with `--threads`, worker threads serve clients too. Never decides anything about
//! data: that is the job of `array`.
//!
//! Shutdown: accept no new connections; finish and answer requests in flight; flush each array and
//! mark its members clean; exit. A second signal reports the pending work, a third one stops the
//! wait.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::io::Write;
use std::path::Path;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use ::io::{Clock, Disk, Pool};
use array::{Array, Host, Newcomer};
use metadata::assemble::Assembly;
use net::nbd::limits::DEFAULT_MEMORY;
use net::nbd::{Export, Memory, Server};
use os::{Address, FileDisk, Signals, Spawner};

use crate::api::Severity;
use crate::disks::Opened;
use crate::failure::{Failure, Id, Result};
use crate::local_disks::LocalDisks;
use crate::modelled::is_modelled;
use crate::tls::Identity;
use crate::{notify, systemd};

mod alerts;
mod aoe;
mod attach;
mod control;
mod crew;
mod error_places;
mod exports;
mod hand;
mod health;
mod history;
mod job_rate;
mod keep;
mod listen;
mod log;
mod managed;
mod network;
mod orders;
mod own_clients;
mod parts;
mod problems;
mod scrub;
mod served;
mod view;
mod watch;

pub(crate) use aoe::{AoeExport, AoePlace, AoePolicy};
use crew::{Card, Crew, Way, WorkerCommand};
use exports::Shown;
#[cfg(feature = "cluster")]
pub(crate) use listen::{TurnedAway, bind, origin};
pub(crate) use orders::of_engine;
pub(crate) use served::{Known, Served, Story};

/// Memory for payloads and for client requests that are not whole blocks.
const POOL_BYTES: usize = 32 << 20;
/// Minimum interval of log lines about refused clients.
const QUIET: Duration = Duration::from_secs(10);
/// How long clients may take at shutdown to receive their answers.
const CLIENTS: Duration = Duration::from_secs(10);
/// How long control commands in flight may take at shutdown.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// See the module.
pub(crate) struct Daemon {
    spawner: Spawner,
    pool: Pool,
    arrays: RefCell<Vec<Rc<Served>>>,
    /// Whether other arrays were requested or found but are not served.
    others: Cell<bool>,
    /// A report shows the notes of assemblies.
    notes_reported: Cell<bool>,
    exports: Rc<Shown>,
    aoe: aoe::Aoe,
    local_disks: LocalDisks,
    alerts: Rc<notify::Handle>,
    managed: managed::Managed,
    server: Server,
    crew: Crew,
    own_clients: own_clients::OwnClients,
    secure: Cell<bool>,
    nbd: RefCell<Vec<listen::NbdListener>>,
    /// Number of NBD listeners so far: each has its own number and connection limit.
    listeners: Cell<usize>,
    control: RefCell<Vec<Address>>,
    usual_control: Cell<bool>,
    conversations: Cell<usize>,
    ending: Cell<bool>,
    stirred: ::io::Signal,
    turned_away: listen::TurnedAway,
}

impl Daemon {
    /// Creates a server without arrays that runs on `threads` threads.
    ///
    /// # Errors
    /// If the machine cannot start the threads.
    pub(crate) fn new(
        spawner: &Spawner,
        tls: Option<Identity>,
        threads: usize,
    ) -> Result<Rc<Daemon>> {
        Daemon::with_memory(spawner, tls, threads, DEFAULT_MEMORY)
    }

    /// As [`Daemon::new`], with a memory limit for the requests of all NBD clients.
    ///
    /// # Errors
    /// As [`Daemon::new`].
    pub(crate) fn with_memory(
        spawner: &Spawner,
        tls: Option<Identity>,
        threads: usize,
        memory: u64,
    ) -> Result<Rc<Daemon>> {
        let memory = Memory::new(memory);
        let pool = Pool::new(POOL_BYTES);
        let exports = Rc::new(Shown::default());
        let secure = tls.is_some();
        let crew = Crew::start(threads, tls.as_ref(), &memory, spawner)?;
        let server = nbd_server(&exports, tls, memory, &pool, spawner);
        let local_disks = LocalDisks::new(spawner, &pool, &server);
        Ok(Rc::new(Daemon {
            spawner: spawner.clone(),
            pool,
            arrays: RefCell::default(),
            others: Cell::new(false),
            notes_reported: Cell::new(false),
            exports,
            aoe: aoe::Aoe::default(),
            local_disks,
            alerts: Rc::default(),
            managed: managed::Managed::default(),
            server,
            crew,
            own_clients: own_clients::OwnClients::default(),
            secure: Cell::new(secure),
            nbd: RefCell::default(),
            listeners: Cell::new(0),
            control: RefCell::default(),
            usual_control: Cell::new(false),
            conversations: Cell::new(0),
            ending: Cell::new(false),
            stirred: ::io::Signal::new(),
            turned_away: listen::TurnedAway::default(),
        }))
    }

    /// Starts an array on these disks, with a shard on each thread.
    pub(crate) fn start(&self, assembly: Assembly, disks: &[&Opened], mut host: Host) -> Array {
        host.shards = self.crew.threads();
        let mut mailboxes = os::mailbox::connected(host.shards).into_iter();
        let own = mailboxes.next().into_iter().map(|mailbox| Rc::new(mailbox) as _).collect();
        let array = Array::start_with(assembly, &host, own);
        let uuid = layout::md::Uuid(array.status().uuid).to_string();
        let others = RefCell::new(mailboxes);
        self.crew.send_each(|_| {
            let blueprint = array.blueprint();
            let way = |known: &array::Introduction| {
                let disk = disks.iter().find(|disk| disk.name() == known.name);
                let disk = disk.expect("members are named by the paths of their disks");
                Way::to(&disk.path, disk.file.as_ref())
            };
            WorkerCommand::Join {
                uuid: uuid.clone(),
                disks: blueprint.members().iter().map(way).collect(),
                blueprint: Box::new(blueprint.clone()),
                mailbox: others.borrow_mut().next().expect("one for each thread"),
            }
        });
        array
    }

    /// Refuses disks on other machines and modelled disks in a server of several threads: their
    /// connections and models belong to the first thread.
    ///
    /// # Errors
    /// Names the disk.
    pub(crate) fn check_single_threaded<'a>(
        &self,
        disks: impl IntoIterator<Item = &'a Opened>,
    ) -> Result<()> {
        let is_bound = |disk: &&Opened| disk.remote.is_some() || is_modelled(&disk.path);
        let bound = disks.into_iter().find(is_bound).filter(|_| self.crew.threads() > 1);
        let Some(disk) = bound else { return Ok(()) };
        let kind = if disk.remote.is_some() { "network" } else { "modelled" };
        let message = format!("{}: a {kind} member works with one thread only", disk.name());
        Err(Failure::new(Id::WrongState, message, "leave out --threads"))
    }

    /// Announces a joining disk to the other threads before it joins.
    async fn introduce(
        &self,
        served: &Served,
        newcomer: &Newcomer,
        (path, file): (&Path, Option<&Rc<FileDisk>>),
    ) {
        let errand = |ticket| WorkerCommand::Introduce {
            uuid: served.uuid().into(),
            member: Box::new(newcomer.introduction().clone()),
            disk: Way::to(path, file),
            ticket,
        };
        self.crew.ask_each(errand).await;
    }

    /// Adds an array: runs it and processes its events.
    pub(crate) fn take_in(self: &Rc<Self>, served: Served) -> Rc<Served> {
        let served = Rc::new(served);
        served.history.tell(served.name(), served.uuid(), &self.alerts);
        self.arrays.borrow_mut().push(Rc::clone(&served));
        let run = served.array.run();
        self.spawner.spawn_local(run);
        let (daemon, listener) = (Rc::downgrade(self), Rc::clone(&served));
        let clock = self.spawner.clock();
        self.spawner.spawn_local(async move { listener.log_events(daemon, &*clock).await });
        let (clock, watcher) = (self.spawner.clock(), Rc::clone(&served));
        self.spawner.spawn_local(async move { watcher.watch_members(&*clock).await });
        let (daemon, watcher) = (Rc::downgrade(self), Rc::clone(&served));
        let clock = self.spawner.clock();
        self.spawner.spawn_local(async move { watcher.watch_connections(daemon, &*clock).await });
        served
    }

    /// Exports an array, under its own name or another.
    ///
    /// # Errors
    /// If an export of this name exists.
    pub(crate) fn export(
        &self,
        served: &Served,
        name: Option<&str>,
        read_only: bool,
        is_default: bool,
    ) -> Result<()> {
        let name = name.unwrap_or(served.name());
        if self.exports.has(name) {
            let message = format!("there are two arrays called {name}");
            let action = "serve them from two processes, one with a --control of its own";
            return Err(Failure::new(Id::Foreign, message, action));
        }
        let card = served.card(name, read_only, is_default);
        let message = format!("started: {}", card.description);
        tracing::info!("{}: {message}", served.name());
        served.history.note(("NewArray", Severity::Info), None, &message);
        let disk = Rc::new(served.array.clone());
        self.exports.add(served.uuid(), export(&card, disk, self.pool.clone()), is_default);
        let uuid = served.uuid();
        self.crew.send_each(|_| WorkerCommand::Show { uuid: uuid.into(), card: card.clone() });
        Ok(())
    }

    /// Records that a requested or found array is not served.
    pub(crate) fn lack_another(&self) {
        self.others.set(true);
    }

    /// Leaves the notes of assemblies to a report: the log omits them.
    pub(crate) fn report_notes(&self) {
        self.notes_reported.set(true);
    }

    /// Returns true if a report shows the notes of assemblies.
    pub(crate) fn reports_notes(&self) -> bool {
        self.notes_reported.get()
    }

    /// Returns true if a requested or found array is not served.
    pub(crate) fn lacks_others(&self) -> bool {
        self.others.get()
    }

    /// Removes the exports of an array and closes their connections.
    async fn retire(&self, served: &Served) {
        let uuid = served.uuid();
        let (own, luns) = (self.exports.retire(uuid), self.aoe.retire(uuid));
        let farewells = async {
            self.crew.ask_each(|ticket| WorkerCommand::Retire { uuid: uuid.into(), ticket }).await;
            own.await;
            luns.await;
        };
        self.with_patience(farewells).await;
    }

    /// Waits for clients to receive their answers, with a timeout. A client that does not read must
    /// not keep the members from being marked clean.
    async fn with_patience(&self, farewells: impl Future<Output = ()>) {
        let clock = self.spawner.clock();
        if first(farewells, clock.sleep_until(clock.now() + CLIENTS)).await.is_none() {
            tracing::warn!("NBD clients that do not read their answers are left behind");
        }
    }

    /// Returns the number of threads.
    pub(crate) fn threads(&self) -> usize {
        self.crew.threads()
    }

    /// Returns the executor that it runs on.
    pub(crate) fn spawner(&self) -> &Spawner {
        &self.spawner
    }

    /// Returns the arrays, in the order in which they were added.
    pub(crate) fn arrays(&self) -> Vec<Rc<Served>> {
        self.arrays.borrow().clone()
    }

    /// Returns the array of this name or UUID.
    pub(crate) fn find(&self, name: &str) -> Option<Rc<Served>> {
        let arrays = self.arrays.borrow();
        arrays.iter().find(|served| served.uuid() == name || served.name() == name).cloned()
    }

    /// Returns the NBD addresses.
    pub(crate) fn nbd_addresses(&self) -> Vec<Address> {
        self.nbd.borrow().iter().filter_map(|it| it.address.clone()).collect()
    }

    /// Returns the AoE addresses.
    pub(crate) fn aoe_addresses(&self) -> Vec<String> {
        self.aoe.addresses()
    }

    /// Returns the control addresses.
    pub(crate) fn control_addresses(&self) -> Vec<Address> {
        self.control.borrow().clone()
    }

    /// Returns whether TLS is required.
    pub(crate) fn is_secure(&self) -> bool {
        self.secure.get()
    }

    /// Requires TLS with this identity, or none, of NBD clients that connect from now on.
    /// Connections stay as they are.
    pub(crate) fn require_tls(&self, tls: Option<&Identity>) {
        self.secure.set(tls.is_some());
        self.server.set_tls(tls.map(|tls| Rc::new(tls.clone()) as _));
        self.crew.send_each(|_| WorkerCommand::Secure(tls.cloned()));
    }

    /// Returns the server's own clients.
    pub(crate) fn own_clients(&self) -> &own_clients::OwnClients {
        &self.own_clients
    }

    /// Returns the outcome of `work`, or none if shutdown begins first.
    async fn unless_ending<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        self.unless(|| self.ending.get(), work).await
    }

    /// Returns the outcome of `work`, or none if `is_over` becomes true first.
    async fn unless<T>(
        &self,
        is_over: impl Fn() -> bool,
        work: impl Future<Output = T>,
    ) -> Option<T> {
        let over = async {
            while !is_over() {
                self.stirred.wait().await;
            }
        };
        first(work, over).await
    }

    /// Begins the shutdown.
    pub(crate) fn end(&self) {
        self.ending.set(true);
        self.stirred.raise();
    }

    /// Serves until a signal or a command stops it, then shuts down in order.
    ///
    /// # Errors
    /// If an array's members could not be marked clean, or a third signal came.
    pub(crate) async fn run(&self, signals: &Signals) -> Result<()> {
        self.feed_watchdogs();
        while let Some(signal) = self.unless_ending(signals.next()).await {
            if !self.outlives(signal) {
                tracing::info!(?signal, "asked to stop");
                break;
            }
        }
        self.end();
        self.shut_down(signals).await
    }

    /// Shuts down in order while handling signals.
    async fn shut_down(&self, signals: &Signals) -> Result<()> {
        systemd::stopping();
        let impatience = async {
            signals.next().await;
            // The reader of standard error may have gone; that must not prevent an orderly stop.
            let left = self.what_is_left();
            let _ = writeln!(std::io::stderr(), "parapet: still {left}; once more to give up");
            signals.next().await;
        };
        first(self.close(), impatience).await.unwrap_or_else(|| {
            let message = format!("gave up {}", self.what_is_left());
            Err(Failure::new(Id::Failed, message, "the next start resyncs the dirty regions"))
        })
    }

    /// Stops everything in order.
    pub(crate) async fn close(&self) -> Result<()> {
        let own = self.server.shutdown();
        let luns: Vec<_> = self.arrays().iter().map(|it| self.aoe.retire(it.uuid())).collect();
        let farewells = async {
            self.crew.ask_each(|ticket| WorkerCommand::Close { ticket }).await;
            own.await;
            for lun in luns {
                lun.await;
            }
        };
        self.with_patience(farewells).await;
        self.stop_aoe();
        self.leave_attachments().await;
        // An array that is being started is stopped with the others.
        let clock = self.spawner.clock();
        let _turn = first(self.turn(), clock.sleep_until(clock.now() + CLIENTS)).await;
        let mut result = Ok(());
        // Inner arrays started first and stop last.
        for served in self.arrays().iter().rev() {
            let stopped = served.stop().await;
            served.log_final_state();
            self.arrays.borrow_mut().retain(|other| !Rc::ptr_eq(other, served));
            result = result.and(stopped);
        }
        let deadline = clock.sleep_until(clock.now() + LAST_WORDS);
        let silence = async {
            while self.conversations.get() > 0 {
                self.stirred.wait().await;
            }
        };
        first(silence, deadline).await;
        self.alerts.close();
        self.crew.stop_workers();
        result
    }

    fn what_is_left(&self) -> String {
        let clients = self.server.connections() + self.crew.connections();
        let arrays = self.arrays.borrow();
        let requests: usize =
            arrays.iter().map(|served| served.array.status().requests_in_flight).sum();
        let names: Vec<&str> = arrays.iter().map(|served| served.name()).collect();
        format!(
            "waiting for {requests} requests of {clients} NBD clients, and to mark clean: {}",
            if names.is_empty() { "nothing".into() } else { names.join(", ") }
        )
    }
}

/// Creates the NBD server of one thread.
fn nbd_server(
    exports: &Rc<Shown>,
    tls: Option<Identity>,
    memory: Memory,
    pool: &Pool,
    on: &Spawner,
) -> Server {
    let server = Server::new(Rc::clone(exports) as _, on.clock() as _, pool.clone());
    let server = server.with_memory(memory);
    match tls {
        Some(tls) => server.with_tls(Rc::new(tls)),
        None => server,
    }
}

/// Creates the export of an array, or of its front on this thread.
fn export(card: &Card, disk: Rc<dyn Disk>, pool: Pool) -> Export {
    let export = Export::new(&card.name, disk, pool).described(&card.description);
    let export = export.beside(&card.writers).counted(&card.clients);
    if card.read_only { export.read_only() } else { export }
}

/// Returns the outcome of `work` if it completes before `limit`.
pub(crate) async fn first<T>(
    work: impl Future<Output = T>,
    limit: impl Future<Output = ()>,
) -> Option<T> {
    let (mut work, mut limit) = (pin!(work), pin!(limit));
    poll_fn(|cx| match work.as_mut().poll(cx) {
        Poll::Ready(value) => Poll::Ready(Some(value)),
        Poll::Pending => limit.as_mut().poll(cx).map(|()| None),
    })
    .await
}
