//! `cargo sim --aoe`: clients and a target on bad wires.
//!
//! ```text
//!   our initiator ─┐                          ┌─ target (ours, or without history) ─ disk
//!   Linux's driver ┼─ ports ═══ wires ═══ ports                                        │
//!   same-tag client┘      lost, repeated, late, cut, down                    register ─┘
//! ```
//!
//! Promises checked: an answered write stays, whatever copies of older writes arrive later; reads
//! return allowed values (`register`); every request is answered, or given up when the target was
//! away for long; our target never has two overlapping writes on its disk at once, and never
//! executes a copy of a request in flight (`watched`).
//!
//! Not checked, because no target can promise it: copies that wires make, and those of clients that
//! repeat without counting answers, when the target restarts sooner than a frame's lifetime; and
//! any of them on a target without history. Clients write to sectors of their own.

mod client;
mod command;
mod driver;
mod options;
mod register;
mod server;
mod watched;

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use io::{Clock, Limits, Link, LinkState, Mac, Pool, Signal};
use net::aoe::Initiator;
use net::aoe::initiator::Break;

use self::client::{Carrier, Client};
pub use self::command::command;
use self::driver::{Driver, Tags};
use self::options::{Incident, Kind, Options, What};
use self::register::Register;
use self::server::{LUN, Server};
use crate::disk::Build;
use crate::link::{LIFETIME, SimLink, SimWire, Weather};
use crate::mark;
use crate::medium::{Fill, SECTOR};
use crate::report;
use crate::trace::{Detail, Trace};
use crate::world::World;
use random::Rng;

/// Virtual time in which every run must end.
const PATIENCE: Duration = Duration::from_secs(1200);

/// The parts of a run that are kept: all, or what a shrunk failure needs.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Keep {
    /// So many rounds at most.
    pub rounds: Option<usize>,
    /// These incidents only.
    pub incidents: Option<Vec<usize>>,
}

/// How a run went.
pub struct Ending {
    /// The first violation, in words.
    pub failure: Option<String>,
    /// The history.
    pub trace: Trace,
}

/// What the parts of one run share.
struct Run {
    world: World,
    options: Options,
    wires: Vec<Rc<SimWire>>,
    /// The clients' ports, then the target's; each a list by wire.
    client_links: Vec<Vec<Rc<SimLink>>>,
    target_links: Vec<Rc<SimLink>>,
    server: Rc<Server>,
    register: RefCell<Register>,
    failure: RefCell<Option<String>>,
    failed: Signal,
    /// Clients that have not ended.
    living: Cell<usize>,
    ended: Signal,
}

/// Runs a seed.
pub fn run(seed: u64, keep: &Keep, detail: Detail) -> Ending {
    let options = Options::draw(seed).kept(keep);
    let trace = Trace::new(detail);
    let world = World::new(seed, trace.clone());
    let mut failure = None;
    let live = || failure = Run::new(world.clone(), options).run();
    if let Some(panic) = report::caught(|| catch_unwind(AssertUnwindSafe(live))) {
        failure = Some(panic);
    }
    world.executor.abort_all();
    Ending { failure, trace }
}

/// The properties of a seed's run, in words.
pub fn describe(seed: u64, keep: &Keep) -> String {
    Options::draw(seed).kept(keep).to_string()
}

impl Options {
    fn kept(mut self, keep: &Keep) -> Options {
        self.rounds = keep.rounds.map_or(self.rounds, |rounds| rounds.min(self.rounds));
        if let Some(kept) = &keep.incidents {
            let chosen = kept.iter().filter_map(|&number| self.incidents.get(number).copied());
            self.incidents = chosen.collect();
        }
        self
    }
}

fn mac(host: usize, wire: usize) -> Mac {
    Mac([2, 0, 0, 0, host as u8, wire as u8])
}

impl Run {
    fn new(world: World, options: Options) -> Rc<Run> {
        let wires: Vec<_> = (0..options.wires)
            .map(|wire| SimWire::new(&world.clock, world.rng("wire", wire as u64)))
            .collect();
        for wire in &wires {
            wire.set_weather(options.weather);
            world.executor.spawn("wire", wire.carry());
        }
        let ports = |host| {
            let each = wires.iter().enumerate();
            each.map(|(wire, it)| it.port(mac(host, wire), options.mtu)).collect::<Vec<_>>()
        };
        let target_links = ports(0);
        let client_links = (1..=options.clients.len()).map(ports).collect();
        let bytes = client::SECTORS * options.clients.len() as u64 * SECTOR;
        let limits = Limits { volatile: options.volatile, ..Limits::plain(bytes) };
        let latency_us = options.latency_us;
        let disk = world.disk(Build { limits, fill: Fill::Zeros, latency_us });
        let server = Server::new(&world, disk, target_links.clone(), options.has_history);
        Rc::new(Run {
            register: RefCell::new(Register::new(bytes / SECTOR)),
            living: Cell::new(options.clients.len()),
            world,
            options,
            wires,
            client_links,
            target_links,
            server,
            failure: RefCell::default(),
            failed: Signal::new(),
            ended: Signal::new(),
        })
    }

    fn sectors(&self) -> u64 {
        self.server.sectors()
    }

    fn note(&self, text: impl FnOnce() -> String) {
        self.world.note(text);
    }

    fn has_failed(&self) -> bool {
        self.failure.borrow().is_some()
    }

    fn fail(&self, why: String) {
        self.note(|| format!("VIOLATION: {why}"));
        self.failure.borrow_mut().get_or_insert(why);
        self.failed.raise();
    }

    /// Runs to the end; the first violation ends it too.
    fn run(self: &Rc<Self>) -> Option<String> {
        let run = Rc::clone(self);
        let main = async move {
            let clock = Rc::clone(&run.world.clock);
            let mut alarm = clock.sleep_until(clock.now() + PATIENCE);
            let mut living = pin!(run.live());
            let mut failed = pin!(async {
                while !run.has_failed() {
                    run.failed.wait().await;
                }
            });
            poll_fn(|cx| {
                if failed.as_mut().poll(cx).is_ready() || living.as_mut().poll(cx).is_ready() {
                    return Poll::Ready(());
                }
                let late = std::pin::Pin::new(&mut alarm).poll(cx);
                late.map(|()| run.fail("I7: the clients do not end".into()))
            })
            .await;
        };
        if let Err(stall) = self.world.run(main) {
            self.fail(stall.to_string());
        }
        self.mark_counts();
        self.failure.borrow().clone()
    }

    async fn live(self: &Rc<Self>) {
        self.server.start();
        let run = Rc::clone(self);
        self.world.executor.spawn("incidents", async move { run.trouble().await });
        let mut clients = Vec::new();
        for number in 0..self.options.clients.len() {
            clients.push(self.client(number).await);
        }
        for client in &clients {
            let (run, client) = (Rc::clone(self), Rc::clone(client));
            self.world.executor.spawn("client", async move {
                client.live().await;
                run.living.set(run.living.get() - 1);
                run.ended.raise();
            });
        }
        while self.living.get() > 0 {
            self.ended.wait().await;
        }
        // What is late arrives; then the faults stop.
        self.world.pause(LIFETIME.as_micros() as u64).await;
        self.wires.iter().for_each(|wire| wire.set_weather(Weather::default()));
        for client in &clients {
            client.read_back().await;
        }
        self.look_behind();
    }

    /// Compares the disk itself.
    fn look_behind(&self) {
        let mut register = self.register.borrow_mut();
        let all = register.read(0..self.sectors());
        let checked = register.check(all, &self.server.peek(), self.world.clock.now());
        drop(register);
        if let Err(wrong) = checked {
            self.fail(format!("on the disk: {wrong}"));
        }
        if let Some(fault) = self.server.fault() {
            self.fail(fault);
        }
    }

    async fn client(self: &Rc<Self>, number: usize) -> Rc<Client> {
        let kind = self.options.clients[number];
        let links = self.client_links[number].clone();
        let macs: Vec<Mac> = (0..links.len()).map(|wire| mac(0, wire)).collect();
        let rng = self.world.rng("driver", number as u64);
        let model = |links, tags| Carrier::Model(Driver::new(&self.world, links, macs, tags, rng));
        self.world.trace.mark(match kind {
            Kind::Ours if links.len() > 1 => mark::AOE_OURS_PATHS,
            Kind::Ours => mark::AOE_OURS,
            Kind::Linux => mark::AOE_LINUX,
            Kind::SameTag => mark::AOE_SAME_TAG,
        });
        let carrier = match kind {
            Kind::Ours => Carrier::Ours(self.open(links).await),
            Kind::Linux => model(links, Tags::New),
            Kind::SameTag => model(links[..1].to_vec(), Tags::Same),
        };
        let rng = RefCell::new(self.world.rng("client", number as u64));
        Rc::new(Client { run: Rc::clone(self), number: number as u64, kind, carrier, rng })
    }

    /// Our initiator; the wires may be too bad at first.
    async fn open(self: &Rc<Self>, links: Vec<Rc<SimLink>>) -> Initiator {
        let links: Vec<Rc<dyn Link>> = links.into_iter().map(|link| link as _).collect();
        let initiator = loop {
            let clock = Rc::clone(&self.world.clock) as Rc<dyn Clock>;
            match Initiator::open(LUN, links.clone(), clock, Pool::new(1 << 20)).await {
                Ok(initiator) => break initiator,
                Err(why) => self.note(|| format!("cannot be opened yet: {why:?}")),
            }
            self.world.pause(100_000).await;
        };
        let running = initiator.run();
        self.world.executor.spawn("initiator", async move { drop(running.await) });
        let (run, watched) = (Rc::clone(self), initiator.clone());
        self.world.executor.spawn("breaks", async move {
            loop {
                let sign = watched.broke().await;
                run.world.trace.mark(match sign {
                    Break::Silence => mark::AOE_SILENCE,
                    Break::Announcement => mark::AOE_ANNOUNCED,
                });
            }
        });
        initiator
    }

    /// Lets the incidents happen, one after the other.
    async fn trouble(self: &Rc<Self>) {
        let mut rng = self.world.rng("incidents", 0);
        for Incident { at_us, span_us, what } in self.options.incidents.clone() {
            let at = io::Time(at_us * 1000);
            self.world.clock.sleep_until(at).await;
            self.note(|| format!("for {span_us} µs: {what:?}"));
            self.begin(what, span_us, &mut rng);
            self.world.pause(span_us).await;
            self.end(what);
        }
    }

    fn begin(&self, what: What, span_us: u64, rng: &mut Rng) {
        let mtu = self.options.mtu;
        let down = LinkState { up: false, mtu };
        let marked = match what {
            What::Restart { power } => {
                self.server.kill(power, rng);
                match u128::from(span_us) < net::aoe::FRAME_LIFETIME.as_micros() {
                    true => mark::AOE_RESTARTED_SOON,
                    false => mark::AOE_RESTARTED,
                }
            }
            What::Cut { wire } => {
                self.wires[wire].set_cut(true);
                mark::AOE_CUT
            }
            What::TargetPort { wire } => {
                self.target_links[wire].set_state(down);
                mark::AOE_TARGET_PORT
            }
            What::ClientPorts { wire } => {
                self.client_links.iter().for_each(|links| links[wire].set_state(down));
                mark::AOE_CLIENT_PORT
            }
            What::Mtu { wire, mtu } => {
                self.set_wire(wire, LinkState { up: true, mtu });
                mark::AOE_MTU
            }
            What::Hole { wire } => {
                self.wires[wire].set_weather(Weather { hole: 1514, ..self.options.weather });
                mark::AOE_HOLE
            }
        };
        self.world.trace.mark(marked);
    }

    fn end(&self, what: What) {
        let up = LinkState { up: true, mtu: self.options.mtu };
        match what {
            What::Restart { .. } => self.server.start(),
            What::Cut { wire } => self.wires[wire].set_cut(false),
            What::TargetPort { wire } => self.target_links[wire].set_state(up),
            What::ClientPorts { wire } => {
                self.client_links.iter().for_each(|links| links[wire].set_state(up));
            }
            What::Mtu { wire, .. } => self.set_wire(wire, up),
            What::Hole { wire } => self.wires[wire].set_weather(self.options.weather),
        }
    }

    fn set_wire(&self, wire: usize, state: LinkState) {
        let clients = self.client_links.iter().map(|links| &links[wire]);
        clients.chain([&self.target_links[wire]]).for_each(|link| link.set_state(state));
    }

    fn mark_counts(&self) {
        let trace = &self.world.trace;
        let dropped = self.server.dropped();
        for (count, name) in [(dropped.late, mark::AOE_LATE), (dropped.repeated, mark::AOE_JOINED)]
        {
            if count > 0 {
                trace.mark(name);
            }
        }
        if !self.options.has_history {
            trace.mark(mark::AOE_FOREIGN);
        }
    }
}
