//! `cargo sim --remote`: an array whose members are on other machines (F16).
//!
//! ```text
//!   clients ─▶ array ─▶ net::remote ═══ network ═══ server ─▶ disk with a volatile cache
//!                          ▲ host: fails, resumes, re-adds members, as the program does
//! ```
//!
//! Servers are cut off, shortly and for long; they crash, lose what they had not flushed, and come
//! back; they carry out requests of connections that have ended. At most one member is in trouble
//! at a time, and the array must be whole again before the next one.
//!
//! Promises checked: answered writes read back; the array heals; a connection that flaps is left
//! alone for a while; at the end a scrub finds that the redundancy agrees with the data.

mod command;
mod server;

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::time::Duration;

use array::status::SlotState;
use array::{Array, CacheMode, Host};
use io::{Clock, Disk, Limits, Op, Signal};
use layout::{Layout, Level};
use metadata::assemble::{Candidate, Options as AssembleOptions, assemble};
use metadata::create::{NewArray, create};
use net::remote::{COOL_DOWN, FLAPS, HOLD, QUARANTINE, Remote, RemoteOptions, State};

pub use self::command::command;
use self::server::{Connector, Server};
use crate::disk::Build;
use crate::mark;
use crate::medium::{Fill, SECTOR};
use crate::pattern::Value;
use crate::report;
use crate::trace::{Detail, Trace};
use crate::world::World;

const MEMBER_BYTES: u64 = 8 << 20;
/// Sectors that each client writes; its last one shares a chunk with the next client's first.
const CLIENT_SECTORS: u64 = 24;
const CLIENTS: u64 = 8;
/// Virtual time in which an array must be whole again.
const HEAL: Duration = Duration::from_secs(600);
/// Virtual time for which the way to a server is jammed before it is cut off.
const JAM_MICROS: u64 = 100_000;
/// The longest pause of a client between two requests, in virtual time.
const PAUSE_MICROS: u64 = 30_000;
/// Virtual time between two looks of the host, and of whoever waits for the array.
const LOOK_MICROS: u64 = 200_000;

/// How a run went.
pub struct Ending {
    /// The first violation, in words.
    pub failure: Option<String>,
    /// The history.
    pub trace: Trace,
}

/// Something that happens to the server of one member.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum What {
    /// The connection ends; requests under way may be carried out later.
    Cut,
    /// The server loses its power and its volatile cache.
    Crash,
    /// It does not answer, and its connections stay.
    Stall,
    /// The connection ends several times.
    Flap,
}

struct Member {
    name: String,
    server: Rc<Server>,
    remote: Remote,
    losses: Cell<u64>,
    /// As the host saw it last.
    state: Cell<State>,
    /// The host has failed it.
    is_lost: Cell<bool>,
}

struct Run {
    world: World,
    members: Vec<Member>,
    array: RefCell<Option<Array>>,
    failure: RefCell<Option<String>>,
    over: Cell<bool>,
    /// Clients start no requests.
    quiet: Cell<bool>,
    /// Clients start few requests: nothing happens for long.
    slow: Cell<bool>,
    living: Cell<u64>,
    ended: Signal,
}

/// Runs a seed.
pub fn run(seed: u64, detail: Detail) -> Ending {
    let trace = Trace::new(detail);
    let world = World::new(seed, trace.clone());
    let mut failure = None;
    let inner = world.clone();
    let live = || {
        let all = inner.clone();
        let result = inner.run(async move { live(all).await });
        failure = result.unwrap_or_else(|stall| Some(stall.to_string()));
    };
    if let Some(panic) = report::caught(|| catch_unwind(AssertUnwindSafe(live))) {
        failure = Some(panic);
    }
    world.executor.abort_all();
    Ending { failure, trace }
}

async fn live(world: World) -> Option<String> {
    let mut rng = world.rng("remote options", 0);
    let (layout, count) = rng.pick(&[
        (Layout::Raid1, 2),
        (Layout::default_for(Level::Raid5, 3), 3),
        (Layout::default_for(Level::Raid5, 4), 4),
        (Layout::default_for(Level::Raid6, 4), 4),
    ]);
    let latency_us = rng.pick(&[50, 500, 5000]);
    let mut members = Vec::new();
    for number in 0..count {
        let limits = Limits { volatile: true, ..Limits::plain(MEMBER_BYTES) };
        let disk = world.disk(Build { limits, fill: Fill::Zeros, latency_us });
        let server = Server::new(&world, disk, number as u64);
        let name = format!("far{number}");
        let connector = Box::new(Connector(Rc::clone(&server)));
        let clock = Rc::clone(&world.clock) as Rc<dyn Clock>;
        let opened = Remote::open(name.clone(), connector, clock, RemoteOptions::default()).await;
        let remote = opened.expect("the server is up");
        world.executor.spawn(format!("connection of {name}"), remote.run());
        let (losses, state, is_lost) = (Cell::new(0), Cell::new(State::Up), Cell::new(false));
        members.push(Member { name, server, remote, losses, state, is_lost });
    }
    let run = Rc::new(Run {
        world,
        members,
        array: RefCell::default(),
        failure: RefCell::default(),
        over: Cell::new(false),
        quiet: Cell::new(false),
        slow: Cell::new(false),
        living: Cell::new(CLIENTS),
        ended: Signal::new(),
    });
    run.create(layout).await;
    run.life().await;
    let failure = run.failure.borrow().clone();
    run.array.take();
    failure
}

impl Run {
    fn fail(&self, why: String) {
        for event in self.array().log().since(0) {
            let member = event.member.unwrap_or_default();
            self.world.note(|| format!("  {:?} {member}: {}", event.kind, event.text));
        }
        self.world.note(|| format!("VIOLATION: {why}"));
        self.failure.borrow_mut().get_or_insert(why);
        self.over.set(true);
        self.ended.raise();
    }

    fn array(&self) -> Array {
        self.array.borrow().clone().expect("it runs until the end")
    }

    fn candidates(&self) -> Vec<Candidate> {
        let candidate = |member: &Member| {
            Candidate::new(Rc::new(member.remote.clone()) as Rc<dyn Disk>, &member.name)
        };
        self.members.iter().map(candidate).collect()
    }

    async fn create(self: &Rc<Self>, layout: Layout) {
        let clock = Rc::clone(&self.world.clock) as Rc<dyn Clock>;
        let chunk = if layout == Layout::Raid1 { 0 } else { 4096 };
        // Checksums repair what they find, and so hide what should not have happened.
        let checksums = Some(self.world.rng("checksums", 0).percent(30));
        let new = NewArray { zeroed: true, checksums, ..NewArray::new("far", layout, chunk) };
        let random = || {
            let rng = RefCell::new(self.world.rng("random", 0));
            Rc::new(move |bytes: &mut [u8]| {
                bytes.iter_mut().for_each(|byte| *byte = rng.borrow_mut().bits() as u8);
            })
        };
        create(&new, self.candidates(), &clock, &*random()).await.expect("new disks");
        let options = AssembleOptions::default();
        let found = assemble(self.candidates(), &options, Rc::clone(&clock), random()).await;
        let mut host = Host::new(clock);
        host.cache = CacheMode::None;
        let array = Array::start(found.expect("just made"), &host);
        self.world.executor.spawn("array", array.run());
        self.array.replace(Some(array));
    }

    async fn life(self: &Rc<Self>) {
        let host = Rc::clone(self);
        self.world.executor.spawn("host", async move { host.host().await });
        for number in 0..CLIENTS {
            let run = Rc::clone(self);
            self.world.executor.spawn("client", async move {
                run.client(number).await;
                run.living.set(run.living.get() - 1);
                run.ended.raise();
            });
        }
        self.trouble().await;
        self.over.set(true);
        while self.living.get() > 0 && self.failure.borrow().is_none() {
            self.ended.wait().await;
        }
        if self.failure.borrow().is_none() {
            self.look_behind().await;
        }
    }

    /// What the program's host does: see `daemon/network.rs`.
    async fn host(self: &Rc<Self>) {
        while self.failure.borrow().is_none() {
            self.world.pause(LOOK_MICROS).await;
            let Some(array) = self.array.borrow().clone() else { return };
            for member in &self.members {
                self.look_after(&array, member).await;
            }
        }
    }

    async fn look_after(&self, array: &Array, member: &Member) {
        let status = array.status();
        let in_slot = |slot: &array::status::SlotStatus| {
            slot.member.as_ref().filter(|it| it.name == member.name).map(|it| it.id)
        };
        let id = status.slots.iter().find_map(in_slot);
        let (state, losses) = (member.remote.state(), member.remote.losses());
        let before = member.state.replace(state);
        if before != state {
            self.world.note(|| format!("{}: {state:?}, losses {losses}", member.name));
        }
        let is_needed = status.redundancy_left == 0 && id.is_some();
        member.remote.set_hold(if is_needed { Duration::from_secs(86_400) } else { HOLD });
        if member.losses.replace(losses) != losses {
            member.is_lost.set(true);
            self.world.trace.mark(mark::REMOTE_MISSING);
        } else if before == State::Reconnecting && state == State::Up {
            self.world.trace.mark(mark::REMOTE_RESUMED);
        }
        let is_away = matches!(state, State::Missing | State::Returned);
        if let (Some(id), true) = (id, is_away) {
            let lost = array.lose(id).await;
            self.world.note(|| format!("{}: failed by the host: {lost:?}", member.name));
            return;
        }
        if id.is_some() || !member.is_lost.get() || state == State::Missing {
            return;
        }
        if state == State::Returned {
            self.world.trace.mark(mark::REMOTE_RETURNED);
        }
        member.remote.resume();
        let disk = Rc::new(member.remote.clone()) as Rc<dyn Disk>;
        let back = match array.readmit(disk, &member.name).await {
            Ok(newcomer) => array.add_prepared(newcomer).await.map(drop),
            Err(why) => Err(why),
        };
        self.world.note(|| format!("{}: re-added: {back:?}", member.name));
        if back.is_ok() {
            member.is_lost.set(false);
            self.world.trace.mark(mark::REMOTE_READDED);
        }
    }

    /// Lets something happen to one server after the other.
    async fn trouble(self: &Rc<Self>) {
        let mut rng = self.world.rng("trouble", 0);
        for _ in 0..rng.within(2, 6) {
            self.world.pause(rng.skewed(3_000_000)).await;
            if !self.is_whole_in_time().await {
                return;
            }
            let member = &self.members[rng.below(self.members.len() as u64) as usize];
            let what = rng.pick(&[What::Cut, What::Crash, What::Crash, What::Stall, What::Flap]);
            let long = rng.percent(40);
            let span = if long { rng.within(8_000_000, 40_000_000) } else { rng.skewed(7_000_000) };
            self.world.note(|| format!("{}: for {span} µs: {what:?}", member.name));
            // Nothing in flight tells the array then, and little is flushed yet.
            self.quiet.set(rng.percent(30));
            if self.quiet.get() {
                self.world.pause(100_000).await;
            }
            match what {
                What::Cut => {
                    member.server.set_jammed(rng.percent(50));
                    self.world.pause(JAM_MICROS).await;
                    member.server.cut(true);
                    member.server.set_jammed(false);
                    self.world.pause(span).await;
                    self.world.trace.mark(mark::REMOTE_CUT);
                }
                What::Crash => {
                    member.server.crash(&mut rng);
                    self.world.pause(span).await;
                    self.world.trace.mark(mark::REMOTE_CRASHED);
                }
                What::Stall => {
                    member.server.set_stalled(true);
                    self.world.pause(span).await;
                    member.server.set_stalled(false);
                    self.world.trace.mark(mark::REMOTE_STALLED);
                }
                What::Flap => {
                    for _ in 0..=FLAPS {
                        member.server.cut(false);
                        self.world.pause(rng.skewed(400_000)).await;
                    }
                    self.world.trace.mark(mark::REMOTE_FLAPS);
                    if member.remote.state() == State::Missing {
                        self.is_left_alone(member).await;
                    }
                }
            }
            member.server.come_back();
            if self.quiet.get() {
                self.world.pause(2 * QUARANTINE.as_micros() as u64).await;
                self.quiet.set(false);
            }
        }
        self.is_whole_in_time().await;
    }

    /// A connection that was given up because it breaks too often is not made again at once.
    async fn is_left_alone(&self, member: &Member) {
        let (most, step) = (COOL_DOWN - Duration::from_secs(5), Duration::from_secs(1));
        self.slow.set(true);
        for _ in 0..most.as_secs() {
            self.world.pause(step.as_micros() as u64).await;
            if member.remote.state() != State::Missing {
                return self.fail(format!("{} flaps, and was not left alone", member.name));
            }
        }
        self.slow.set(false);
        self.world.trace.mark(mark::REMOTE_LEFT_ALONE);
    }

    async fn is_whole_in_time(&self) -> bool {
        let clock = &*self.world.clock;
        let limit = Clock::now(clock) + HEAL;
        loop {
            if self.failure.borrow().is_some() {
                return false;
            }
            let status = self.array().status();
            let whole = status.slots.iter().all(|slot| slot.state == SlotState::InSync);
            let calm = self.members.iter().all(|member| member.remote.state() == State::Up);
            if whole && calm && status.job.is_none() && status.unsynced_bytes == 0 {
                return true;
            }
            if Clock::now(clock) >= limit {
                self.fail(format!("I7: the array does not heal: {:?}", status.mode));
                return false;
            }
            self.world.pause(LOOK_MICROS).await;
        }
    }

    /// Writes and reads sectors of its own, one request at a time.
    async fn client(&self, number: u64) {
        let mut rng = self.world.rng("client", number);
        let first = number * CLIENT_SECTORS;
        let mut values = vec![Value::ZERO; CLIENT_SECTORS as usize];
        let mut writes = 0;
        while !self.over.get() {
            let pause = if self.slow.get() { 100 * PAUSE_MICROS } else { PAUSE_MICROS };
            self.world.pause(rng.skewed(pause)).await;
            if self.quiet.get() {
                continue;
            }
            let start = rng.below(CLIENT_SECTORS);
            let count = rng.within(1, (CLIENT_SECTORS - start).min(12));
            let range = start..start + count;
            if rng.percent(60) {
                writes += 1;
                let mut buf = self.world.pool.take((count * SECTOR) as usize);
                for (sector, bytes) in range.clone().zip(buf.chunks_exact_mut(SECTOR as usize)) {
                    let value = Value::of(writes * CLIENTS + number + 1, first + sector);
                    value.fill(bytes);
                    values[sector as usize] = value;
                }
                let op = Op::write((first + start) * SECTOR, buf.freeze());
                let op = if rng.percent(20) { op.with_fua() } else { op };
                if let Err(error) = self.array().submit(op).await.result {
                    return self.fail(format!("client {number}: a write failed: {error}"));
                }
            } else if rng.percent(20) {
                if let Err(error) = self.array().submit(Op::flush()).await.result {
                    return self.fail(format!("client {number}: a flush failed: {error}"));
                }
            } else if !self
                .check(number, first + start, &values[start as usize..][..count as usize])
                .await
            {
                return;
            }
        }
        self.check(number, first, &values).await;
    }

    /// Compares the array's sectors with what was written there.
    async fn check(&self, number: u64, first: u64, values: &[Value]) -> bool {
        let bytes = values.len() * SECTOR as usize;
        let op = Op::read(first * SECTOR, self.world.pool.take(bytes));
        let done = self.array().submit(op).await;
        if let Err(error) = &done.result {
            self.fail(format!("client {number}: a read failed: {error}"));
            return false;
        }
        let buf = done.into_buf();
        for (index, bytes) in buf.chunks_exact(SECTOR as usize).enumerate() {
            let (found, wanted) = (Value::read(bytes), values[index]);
            if found != wanted {
                let sector = first + index as u64;
                self.fail(format!("I1: sector {sector} holds {found}, {wanted} was written"));
                return false;
            }
        }
        true
    }

    /// The redundancy must agree with the data.
    async fn look_behind(&self) {
        let array = self.array();
        let before = array.status().last_scrub.map(|scrub| scrub.unix_micros);
        if let Err(why) = array.scrub(false) {
            return self.fail(format!("no scrub: {why}"));
        }
        let scrub = loop {
            let last = array.status().last_scrub.clone();
            match last.filter(|scrub| Some(scrub.unix_micros) != before) {
                Some(scrub) => break scrub,
                None => self.world.pause(LOOK_MICROS).await,
            }
        };
        if scrub.report.mismatches > 0 {
            self.fail(format!("I6: a scrub finds {} mismatches", scrub.report.mismatches));
        }
    }
}
