//! A server with two exports, driven by hand.

use std::cell::RefCell;
use std::rc::Rc;

use io::tasks::complete;
use io::{Limits, MemDisk, Pool, Stream, TaskSet};
use net::nbd::server::Accepting;
use net::nbd::{Catalogue, Ending, Export, Server, Tls};

use super::pipe::{self, End};
use crate::clock::HandClock;

/// Bytes of the export called `disk`.
pub(super) const DISK_BYTES: u64 = 1 << 20;

/// TLS without encryption: the code around the cipher is tested.
struct Disguise;

impl Tls for Disguise {
    fn accept(&self, stream: Box<dyn Stream>) -> Accepting {
        Box::pin(async move { Ok((stream, Some(String::from("CN=somebody")))) })
    }
}

/// How the server is set up.
#[derive(Clone, Copy, Default)]
pub(super) struct Setup {
    pub(super) tls: bool,
    pub(super) read_only: bool,
    pub(super) bytewise: bool,
    /// Blocks of the disk: 512 bytes, or 4 KiB.
    pub(super) large_blocks: bool,
}

/// A server, one connection to it, and time.
pub(super) struct World {
    tasks: TaskSet,
    pub(super) clock: Rc<HandClock>,
    server: Server,
    ending: Rc<RefCell<Option<Ending>>>,
}

impl World {
    pub(super) fn new(setup: Setup) -> World {
        let pool = || Pool::new(1 << 20);
        let logical_block = if setup.large_blocks { 4096 } else { 512 };
        let limits = Limits { logical_block, ..Limits::plain(DISK_BYTES) };
        let mut disk = Export::new("disk", Rc::new(MemDisk::with_limits(limits)), pool());
        if setup.read_only {
            disk = disk.read_only();
        }
        if setup.bytewise {
            disk = disk.bytewise();
        }
        let other = Export::new("other", Rc::new(MemDisk::new(4096)), pool()).described("small");
        let exports = Catalogue::new([Rc::new(disk), Rc::new(other)]);
        let clock = Rc::new(HandClock::default());
        let mut server = Server::new(Rc::new(exports), Rc::clone(&clock) as _, pool());
        if setup.tls {
            server = server.with_tls(Rc::new(Disguise));
        }
        World { tasks: TaskSet::new(), clock, server, ending: Rc::default() }
    }

    /// A connection, read in such bites.
    pub(super) fn connect(&self, bite: usize) -> End {
        let (near, far) = pipe::pair(bite);
        let serving = self.server.admit(Box::new(far), 0, "a fuzzer");
        let serving = serving.expect("the first connection");
        let ending = Rc::clone(&self.ending);
        self.tasks.spawn(async move {
            let ended = serving.await;
            ending.replace(Some(ended));
        });
        near
    }

    /// Runs the server until it waits for us, and takes its output.
    pub(super) fn run_until_idle(&self, peer: &End, said: &mut Vec<u8>) {
        loop {
            complete(self.tasks.run());
            if !peer.pull(said) && !self.clock.tick() {
                return;
            }
        }
    }

    /// How the connection has ended, as one word; nothing if it has not.
    pub(super) fn ending(&self) -> Option<String> {
        let ending = self.ending.borrow();
        let name = format!("{:?}", ending.as_ref()?);
        Some(name.split(['(', ' ']).next().unwrap_or_default().to_string())
    }

    /// The client goes away without a word: the connection must end.
    pub(super) fn hang_up(&self, peer: End) {
        drop(peer);
        complete(self.tasks.run());
        assert!(self.ending().is_some(), "the client has gone, its connection has not");
        assert_eq!(self.server.connections(), 0, "a connection that ended is still counted");
    }
}
