//! A server, its clock and its clients, all in one thread and driven by hand.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use io::contract::HandClock;
use io::tasks::complete;
use io::{Disk, MemDisk, Pool, TaskSet};
use net::nbd::{Catalogue, Ending, Export, Exports, Server};

use crate::pipe::{self, End};

/// Lets the shortest sleeps end.
const TICK: Duration = Duration::from_nanos(1);

pub struct World {
    pub tasks: TaskSet,
    pub clock: Rc<HandClock>,
    pub server: Server,
    pub endings: Rc<RefCell<Vec<Ending>>>,
}

pub fn pool() -> Pool {
    Pool::new(16 << 20)
}

/// A world with one export named "disk".
pub fn world(disk: Rc<dyn Disk>) -> World {
    World::new(Rc::new(Catalogue::new([Rc::new(Export::new("disk", disk, pool()))])))
}

/// A world with one export named "disk" of 1 MiB of zeros.
pub fn small_world() -> World {
    world(Rc::new(MemDisk::new(1 << 20)))
}

impl World {
    pub fn new(exports: Rc<dyn Exports>) -> World {
        World::with(exports, |server| server)
    }

    pub fn with(exports: Rc<dyn Exports>, configure: impl FnOnce(Server) -> Server) -> World {
        let clock = Rc::new(HandClock::default());
        let server = configure(Server::new(exports, Rc::clone(&clock) as _, pool()));
        World { tasks: TaskSet::new(), clock, server, endings: Rc::default() }
    }

    /// A new connection with much room.
    pub fn connect(&self) -> End {
        self.connect_over(1 << 30, usize::MAX).expect("there is a free slot")
    }

    /// A new connection over a stream with this much room, read in bites.
    pub fn connect_over(&self, room: usize, bite: usize) -> Option<End> {
        self.connect_through(0, room, bite)
    }

    /// The same, through the listener of this number.
    pub fn connect_through(&self, listener: usize, room: usize, bite: usize) -> Option<End> {
        let (near, far) = pipe::pair(room, bite);
        let serving = self.server.admit(Box::new(far), listener, "test")?;
        let endings = Rc::clone(&self.endings);
        self.tasks.spawn(async move {
            let ending = serving.await;
            endings.borrow_mut().push(ending);
        });
        Some(near)
    }

    /// Lets everything run until it waits for something from outside.
    pub fn run_until_idle(&self) {
        complete(self.tasks.run());
        while self.clock.pass(TICK) > 0 {
            complete(self.tasks.run());
        }
    }

    /// Sends bytes and returns the answer.
    pub fn exchange(&self, peer: &End, bytes: &[u8]) -> Vec<u8> {
        peer.push(bytes);
        self.run_until_idle();
        peer.pull()
    }

    /// Greets, and goes into transmission with these options sent before GO.
    pub fn transmit(&self, peer: &End, options: &[(u32, Vec<u8>)], requests: &[u16]) {
        self.transmit_to("disk", peer, options, requests);
    }

    /// The same, to the export of this name.
    pub fn transmit_to(
        &self,
        name: &str,
        peer: &End,
        options: &[(u32, Vec<u8>)],
        requests: &[u16],
    ) {
        use net::nbd::wire::{Choice, answer, option, put_option};
        self.run_until_idle();
        assert_eq!(peer.pull().len(), 18, "the greeting");
        peer.push(&3u32.to_be_bytes());
        for (option, data) in options {
            let mut bytes = Vec::new();
            put_option(&mut bytes, *option, data);
            let reply = self.exchange(peer, &bytes);
            let last = reply.len() - 20;
            assert_eq!(reply[last + 12..last + 16], answer::ACK.to_be_bytes(), "an ACK");
        }
        let mut go = Vec::new();
        let choice = Choice { name, requests: requests.to_vec() };
        put_option(&mut go, option::GO, &choice.encode());
        let reply = self.exchange(peer, &go);
        let last = reply.len() - 20;
        assert_eq!(reply[last + 12..last + 16], answer::ACK.to_be_bytes(), "an ACK to GO");
    }

    /// How the only connection ended.
    pub fn ending(&self) -> String {
        let endings = self.endings.borrow();
        assert_eq!(endings.len(), 1, "one connection has ended");
        format!("{:?}", endings[0])
    }
}

/// Bytes from hexadecimal digits; spaces and line ends do not count.
pub fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u32> = text.chars().filter_map(|digit| digit.to_digit(16)).collect();
    assert_eq!(digits.len() % 2, 0, "whole bytes");
    digits.chunks(2).map(|pair| (pair[0] << 4 | pair[1]) as u8).collect()
}
