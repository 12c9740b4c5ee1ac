//! An array as its clients see it: over AoE or NBD, with the project's own server and client.

use std::rc::Rc;

use io::{Disk, Link, Mac, Pool};
use net::aoe::target::{Event, Keeping};
use net::aoe::wire::smart::Health;
use net::aoe::{Address, Host, Initiator, Lun, LunOptions, LunState, Target};
use net::nbd::client::connect;
use net::nbd::{Catalogue, Export, Server};

use super::stream::Packet;
use super::{Busy, Pipe, Port, Way};
use crate::world::{Core, World};

/// Bytes kept for requests on each side.
const POOL_BYTES: usize = 32 << 20;
const LUN: Address = Address { shelf: 1, slot: 0 };

/// What carries the clients' requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Protocol {
    /// ATA over Ethernet, on every link.
    Aoe {
        /// Writes are answered before they are durable.
        volatile: bool,
    },
    /// NBD over TCP, one connection on each link; operations take them in turn.
    Nbd,
}

/// A network.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Spec {
    /// The protocol.
    pub protocol: Protocol,
    /// Equal links side by side.
    pub links: usize,
    /// Rate of each in megabits per second.
    pub megabits: u64,
    /// Most bytes of a frame after its Ethernet header.
    pub mtu: u32,
    /// From the end of a frame to its arrival, in nanoseconds.
    pub delay_ns: u64,
}

/// A disk behind a network.
pub struct Reached {
    /// As clients see it.
    pub disk: Rc<dyn Disk>,
    /// Its links, each with how long it was busy to the array and from it, in nanoseconds.
    pub links: Vec<Busy>,
}

/// Nobody changes anything of the LUN.
struct Silent;

impl Host for Silent {
    fn health(&self, _: Address) -> Health {
        Health::default()
    }

    fn keep(&self, _: Address, _: &LunState) -> Keeping {
        Box::pin(async { Ok(()) })
    }

    fn report(&self, _: Address, _: Mac, _: Event) {}
}

/// Serves `disk` on the core `server`, and reaches it from the core `client`.
///
/// # Errors
/// Why the client does not reach it, in words.
pub async fn reach(
    world: &World,
    (server, client): (Core, Core),
    disk: Rc<dyn Disk>,
    spec: Spec,
) -> Result<Reached, String> {
    match spec.protocol {
        Protocol::Aoe { volatile } => aoe(world, (server, client), disk, spec, volatile).await,
        Protocol::Nbd => nbd(world, (server, client), disk, spec).await,
    }
}

async fn aoe(
    world: &World,
    (server, client): (Core, Core),
    disk: Rc<dyn Disk>,
    spec: Spec,
    volatile: bool,
) -> Result<Reached, String> {
    let target = Target::new(Rc::new(Silent), Pool::new(POOL_BYTES)).with_clock(world.dyn_clock());
    let options = LunOptions {
        serial: "0".into(),
        model: "Parapet".into(),
        firmware: env!("CARGO_PKG_VERSION").into(),
        ports: Vec::new(),
        read_only: false,
        volatile,
        remote_control: false,
    };
    let lun = Lun::new(LUN, disk, options, LunState::default(), Pool::new(POOL_BYTES));
    target.online(Rc::new(lun));
    world.spawn(server, target.run());
    let (mut ours, mut links) = (Vec::new(), Vec::new());
    for number in 0..spec.links {
        let addresses = [1, 2].map(|end| Mac([2, 0, 0, 0, end, number as u8]));
        let wire = (spec.megabits, spec.delay_ns);
        let [near, far] = Port::pair(world, wire, spec.mtu, addresses);
        links.push([near.way(), far.way()].map(busy));
        let serving = target.serve(format!("link{number}"), far as Rc<dyn Link>);
        world.spawn(server, async move { drop(serving.await) });
        ours.push(near as Rc<dyn Link>);
    }
    let opening = Initiator::open(LUN, ours, world.dyn_clock(), Pool::new(POOL_BYTES));
    let initiator = opening.await.map_err(|error| format!("no target: {error:?}"))?;
    let running = initiator.run();
    world.spawn(client, async move { drop(running.await) });
    Ok(Reached { disk: Rc::new(initiator), links })
}

fn busy<T: 'static>(way: &Rc<Way<T>>) -> Rc<dyn Fn() -> u64> {
    let way = Rc::clone(way);
    Rc::new(move || way.busy_ns())
}

async fn nbd(
    world: &World,
    (server, client): (Core, Core),
    disk: Rc<dyn Disk>,
    spec: Spec,
) -> Result<Reached, String> {
    let export = Export::new("array", disk, Pool::new(POOL_BYTES));
    let catalogue = Rc::new(Catalogue::new([Rc::new(export)]));
    let serving = Server::new(catalogue, world.dyn_clock(), Pool::new(POOL_BYTES));
    let (mut disks, mut links) = (Vec::new(), Vec::new());
    for number in 0..spec.links {
        let wire = (spec.megabits, spec.delay_ns);
        let [near, far] = Pipe::pair(world, wire, spec.mtu);
        links.push([near.way(), far.way()].map(|way: Rc<Way<Packet>>| busy(&way)));
        let session = serving.admit(Box::new(far), 0, format!("link{number}"));
        let session = session.ok_or("the server takes no connection")?;
        world.spawn(server, async move { drop(session.await) });
        let pool = Pool::new(POOL_BYTES);
        let (disk, link) =
            connect(Box::new(near), "", None, pool).await.map_err(|error| error.to_string())?;
        world.spawn(client, async move { drop(link.await) });
        disks.push(Rc::new(disk) as Rc<dyn Disk>);
    }
    match <[_; 1]>::try_from(disks) {
        Ok([disk]) => Ok(Reached { disk, links }),
        Err(disks) => Ok(Reached { disk: Rc::new(InTurn::new(disks)), links }),
    }
}

/// Connections that take operations in turn, as those of a multi-connection client.
struct InTurn {
    disks: Vec<Rc<dyn Disk>>,
    next: std::cell::Cell<usize>,
}

impl InTurn {
    fn new(disks: Vec<Rc<dyn Disk>>) -> InTurn {
        InTurn { disks, next: std::cell::Cell::new(0) }
    }
}

impl Disk for InTurn {
    fn submit(&self, op: io::Op) -> io::Completion<io::Done> {
        let turn = self.next.replace((self.next.get() + 1) % self.disks.len());
        self.disks[turn].submit(op)
    }

    fn limits(&self) -> io::Limits {
        self.disks[0].limits()
    }
}
