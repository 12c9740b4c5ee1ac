//! Exports, and the host's list of them.
//!
//! Owns the description of an export (flags, block sizes). Never decides who may see it: that is
//! the host's [`Exports`]. An export is opened only when a client enters transmission (GO,
//! EXPORT_NAME), after TLS and the host's checks.

use std::cell::Cell;
use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use io::signal::Wait;
use io::{Disk, Limits, Pool, Signal};

use super::limits::MAX_PAYLOAD;
use super::wire::{BlockSizes, MAX_STRING_BYTES, Style, flags};
use crate::bytewise::{Bytewise, Writers};

/// One served disk. Share one `Export` among all its connections: it orders their unaligned writes;
/// or, among threads, its [`Writers`].
pub struct Export {
    name: String,
    description: String,
    disk: Bytewise,
    read_only: bool,
    bytewise: bool,
    users: Users,
    clients: Clients,
}

/// Number of connections in transmission on the exports of a disk. Clones share it, on whichever
/// threads.
#[derive(Clone, Default)]
pub struct Clients(Arc<AtomicUsize>);

impl Clients {
    /// Connections now.
    pub fn count(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

/// Connections that are in transmission on an export.
#[derive(Default)]
struct Users {
    count: Cell<usize>,
    left: Signal,
    retired: Cell<bool>,
    retire: Signal,
}

/// The client that requests an export.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Client {
    /// Where the connection comes from, for logs and access lists.
    pub origin: String,
    /// True once the connection is under TLS.
    pub secure: bool,
    /// The subject of the client's TLS certificate, if any.
    pub identity: Option<String>,
}

/// Why a client does not get an export.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Denial {
    /// There is none of this name.
    Unknown,
    /// There is, but not for this client.
    Forbidden,
}

/// The host's exports.
pub trait Exports {
    /// Lists name and description of every export that this client may see.
    fn list(&self, client: &Client, each: &mut dyn FnMut(&str, &str));

    /// The export of this name, for a description of it; an empty name means the default one.
    ///
    /// # Errors
    /// Why there is none for this client.
    fn find(&self, name: &str, client: &Client) -> Result<Rc<Export>, Denial>;

    /// The export of this name, to be used: called once for each client that enters transmission.
    ///
    /// # Errors
    /// Why the client does not get it.
    fn open(&self, name: &str, client: &Client) -> Result<Rc<Export>, Denial> {
        self.find(name, client)
    }
}

impl Export {
    /// Serves `disk` under `name`; memory for unaligned requests comes from `pool`.
    ///
    /// # Panics
    /// If the name is longer than [`MAX_STRING_BYTES`]: no client could ask for it.
    pub fn new(name: impl Into<String>, disk: Rc<dyn Disk>, pool: Pool) -> Export {
        let disk = Bytewise::new(disk, pool);
        let (name, description) = (name.into(), String::new());
        assert!(name.len() <= MAX_STRING_BYTES, "a name that no client can ask for");
        let (users, clients) = (Users::default(), Clients::default());
        Export { name, description, disk, read_only: false, bytewise: false, users, clients }
    }

    /// The same export with a sentence for people.
    #[must_use]
    pub fn described(mut self, description: impl Into<String>) -> Export {
        self.description = description.into();
        self
    }

    /// The same export, beside others of the same disk that have these writers.
    #[must_use]
    pub fn beside(mut self, writers: &Writers) -> Export {
        self.disk = self.disk.beside(writers);
        self
    }

    /// The same export, whose connections are counted here, with those of other exports.
    #[must_use]
    pub fn counted(mut self, clients: &Clients) -> Export {
        self.clients = clients.clone();
        self
    }

    /// The same export, refusing all writes.
    #[must_use]
    pub fn read_only(mut self) -> Export {
        self.read_only = true;
        self
    }

    /// The same export, offering a block size of 1. Unaligned requests are served in any case to
    /// clients that never asked for block sizes; this invites the others to send them too.
    #[must_use]
    pub fn bytewise(mut self) -> Export {
        self.bytewise = true;
        self
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A sentence for people; may be empty.
    pub fn description(&self) -> &str {
        &self.description
    }

    /// Connections in transmission on it, and on the exports that share its count.
    pub fn clients(&self) -> usize {
        self.clients.count()
    }

    /// Ends its connections: requests in flight are finished and answered, new ones are not
    /// accepted. The future completes when the last connection has ended.
    pub fn retire(self: Rc<Self>) -> impl Future<Output = ()> + 'static {
        self.users.retired.set(true);
        self.users.retire.raise();
        async move {
            while self.users.count.get() > 0 {
                self.users.left.wait().await;
            }
        }
    }

    /// True once its connections are to end.
    pub(super) fn is_retired(&self) -> bool {
        self.users.retired.get()
    }

    /// Completes when its connections must end.
    pub(super) fn retirement(&self) -> Wait<'_> {
        self.users.retire.wait()
    }

    /// Registers one more connection, until the returned guard is dropped.
    pub(super) fn enter(self: &Rc<Self>) -> User {
        self.users.count.set(self.users.count.get() + 1);
        self.clients.0.fetch_add(1, Ordering::Relaxed);
        User(Rc::clone(self))
    }

    /// The disk behind it.
    pub(super) fn disk(&self) -> &Bytewise {
        &self.disk
    }

    /// The disk's limits; read-only if the export is.
    pub fn limits(&self) -> Limits {
        let limits = self.disk.limits();
        Limits { read_only: limits.read_only || self.read_only, ..limits }
    }

    /// Transmission flags for a client that has negotiated nothing: [`Server::adopt`].
    ///
    /// [`Server::adopt`]: super::Server::adopt
    pub fn plain_flags(&self) -> u16 {
        self.flags(Style::Simple, false)
    }

    /// Transmission flags for a client that negotiated `style`, and metadata contexts or none.
    pub(super) fn flags(&self, style: Style, contexts: bool) -> u16 {
        let limits = self.limits();
        let always = flags::HAS_FLAGS | flags::SEND_FLUSH | flags::SEND_FUA | flags::SEND_CACHE;
        // One engine stands behind all connections: a flush on one covers all.
        let mut set = always | flags::CAN_MULTI_CONN;
        let mut when = |condition, flag| set |= if condition { flag } else { 0 };
        when(limits.read_only, flags::READ_ONLY);
        when(limits.rotational, flags::ROTATIONAL);
        when(limits.discard && !limits.read_only, flags::SEND_TRIM);
        when(!limits.read_only, flags::SEND_WRITE_ZEROES | flags::SEND_FAST_ZERO);
        when(style != Style::Simple, flags::SEND_DF);
        when(style == Style::Extended && contexts, flags::BLOCK_STATUS_PAYLOAD);
        set
    }

    /// Block sizes for clients.
    pub(super) fn block_sizes(&self) -> BlockSizes {
        let limits = self.limits();
        let minimum = if self.bytewise { 1 } else { limits.logical_block.clamp(1, 1 << 16) };
        // The protocol needs a power of two: the largest one that suits the disk.
        let optimal = 1 << limits.optimal.max(1).ilog2();
        let preferred = u32::clamp(optimal, minimum.max(512), MAX_PAYLOAD);
        BlockSizes { minimum, preferred, maximum: MAX_PAYLOAD }
    }
}

/// See [`Export::enter`].
pub(super) struct User(Rc<Export>);

impl Drop for User {
    fn drop(&mut self) {
        let users = &self.0.users;
        users.count.set(users.count.get() - 1);
        self.0.clients.0.fetch_sub(1, Ordering::Relaxed);
        users.left.raise();
    }
}

/// The simplest [`Exports`]: a list that everybody may use; the first one is the default.
#[derive(Default)]
pub struct Catalogue {
    exports: Vec<Rc<Export>>,
}

impl Catalogue {
    /// A list of these exports.
    pub fn new(exports: impl IntoIterator<Item = Rc<Export>>) -> Catalogue {
        Catalogue { exports: exports.into_iter().collect() }
    }
}

impl Exports for Catalogue {
    fn list(&self, _client: &Client, each: &mut dyn FnMut(&str, &str)) {
        self.exports.iter().for_each(|export| each(&export.name, &export.description));
    }

    fn find(&self, name: &str, _client: &Client) -> Result<Rc<Export>, Denial> {
        let mut exports = self.exports.iter();
        let found = exports.find(|export| export.name == name);
        let default = || self.exports.first().filter(|_| name.is_empty());
        found.or_else(default).cloned().ok_or(Denial::Unknown)
    }
}
