//! One client's requests, and their answers beside the register.

use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;

use io::{Clock, Disk, Op, Pool, Work};
use net::aoe::{FRAME_LIFETIME, Initiator};

use super::Run;
use super::driver::{Driver, join};
use super::options::Kind;
use crate::mark;
use crate::medium::SECTOR;
use random::Rng;

/// Sectors of one client: few, so that its writes overlap.
pub(super) const SECTORS: u64 = 48;
/// The most sectors of a request.
const MAX_REQUEST: u64 = 20;
/// Requests at once.
const MAX_DEPTH: u64 = 4;
/// Different data for each sector.
const LETTERS: u64 = 2;

/// What carries a client's requests.
pub(super) enum Carrier {
    Ours(Initiator),
    Model(Rc<Driver>),
}

pub(super) struct Client {
    pub(super) run: Rc<Run>,
    pub(super) number: u64,
    pub(super) kind: Kind,
    pub(super) carrier: Carrier,
    pub(super) rng: RefCell<Rng>,
}

/// A request of a round.
#[derive(Clone, Debug)]
enum Request {
    Read(Range<u64>),
    Write(Range<u64>, u64),
    /// Two writes to overlapping sectors, the second sent before the first is answered.
    Pair(Range<u64>, u64, Range<u64>, u64),
}

impl Carrier {
    async fn write(&self, sectors: Range<u64>, bytes: &[u8]) -> Result<(), String> {
        match self {
            Carrier::Ours(disk) => {
                let op = Op::write(sectors.start * SECTOR, Pool::new(0).copy_of(bytes).freeze());
                disk.submit(op).await.result.map_err(|error| error.to_string())
            }
            Carrier::Model(driver) => driver.transfer(sectors, Some(bytes)).await.map(drop),
        }
    }

    async fn read(&self, sectors: Range<u64>) -> Result<Vec<u8>, String> {
        match self {
            Carrier::Ours(disk) => {
                let bytes = ((sectors.end - sectors.start) * SECTOR) as usize;
                let done =
                    disk.submit(Op::read(sectors.start * SECTOR, Pool::new(0).take(bytes))).await;
                done.result.map_err(|error| error.to_string())?;
                let Work::Read(bufs) = done.work else { return Err("not a read".into()) };
                Ok(bufs.iter().flat_map(|buf| buf.iter().copied()).collect())
            }
            Carrier::Model(driver) => driver.transfer(sectors, None).await,
        }
    }
}

impl Client {
    /// Sends rounds of requests that do not overlap within a round, and ends.
    pub(super) async fn live(self: Rc<Self>) {
        let mut known_to = None;
        for round in 0..self.run.options.rounds {
            if self.run.has_failed() {
                return;
            }
            let start = self.run.server.starts();
            if known_to != Some(start)
                && let Carrier::Model(driver) = &self.carrier
            {
                driver.warm_up().await;
                known_to = Some(start);
            }
            let requests = self.draw();
            let (pause, reboot) = {
                let mut rng = self.rng.borrow_mut();
                let pause = if rng.percent(30) { rng.skewed(500_000) } else { 0 };
                (pause, self.kind == Kind::Linux && rng.percent(5))
            };
            let all = requests.into_iter().map(|request| Box::pin(self.carry_out(round, request)));
            join(all.collect()).await;
            self.run.world.pause(pause).await;
            if reboot && self.run.options.reboots {
                self.reboot().await;
                known_to = None;
            }
        }
    }

    /// The client's host restarts, which takes longer than a target remembers writes.
    async fn reboot(&self) {
        let Carrier::Model(driver) = &self.carrier else { return };
        self.run.world.pause(2 * FRAME_LIFETIME.as_micros() as u64 + 1_000_000).await;
        driver.reboot();
        self.run.world.trace.mark(mark::AOE_REBOOTED);
    }

    /// Reads everything that this client may have written.
    pub(super) async fn read_back(&self) {
        let first = self.number * SECTORS;
        self.read(first..first + SECTORS).await;
    }

    fn draw(&self) -> Vec<Request> {
        let mut rng = self.rng.borrow_mut();
        let mut taken: Vec<Range<u64>> = Vec::new();
        let mut requests = Vec::new();
        for _ in 0..rng.within(1, MAX_DEPTH) {
            let own = self.number * SECTORS..(self.number + 1) * SECTORS;
            let sectors = draw_range(&mut rng, &own);
            if taken.iter().any(|it| overlap(it, &sectors)) {
                continue;
            }
            taken.push(sectors.clone());
            let letter = |rng: &mut Rng| 1 + self.number * LETTERS + rng.below(LETTERS);
            let kind = rng.weighted(&[(3, 0), (5, 1), (2, 2)]);
            requests.push(match kind {
                0 if rng.percent(20) => {
                    // Any sectors: those of others too.
                    Request::Read(draw_range(&mut rng, &(0..self.run.sectors())))
                }
                0 => Request::Read(sectors),
                2 if self.kind == Kind::Ours => {
                    let second = draw_range(&mut rng, &sectors);
                    let (one, other) = (letter(&mut rng), letter(&mut rng));
                    Request::Pair(sectors, one, second, other)
                }
                _ => Request::Write(sectors, letter(&mut rng)),
            });
        }
        requests
    }

    async fn carry_out(&self, round: usize, request: Request) {
        let (run, number) = (&self.run, self.number);
        run.world.trace.event(&[number, round as u64]);
        run.note(|| format!("client {number}, round {round}: {request:?}"));
        match request {
            Request::Read(sectors) => self.read(sectors).await,
            Request::Write(sectors, letter) => self.write(sectors, letter).await,
            Request::Pair(first, one, second, other) => {
                let pair = [(first, one), (second, other)];
                let writes = pair.map(|(sectors, letter)| Box::pin(self.write(sectors, letter)));
                join(writes.into()).await;
            }
        }
    }

    async fn write(&self, sectors: Range<u64>, letter: u64) {
        let run = &self.run;
        let (ticket, bytes) = run.register.borrow_mut().write(sectors.clone(), letter);
        let outcome = self.carrier.write(sectors.clone(), &bytes).await;
        let now = run.world.clock.now();
        let is_well = outcome.is_ok();
        run.world.trace.event(&[self.number, now.0, u64::from(is_well)]);
        run.note(|| format!("client {}: write {letter} of {sectors:?}: {outcome:?}", self.number));
        match outcome {
            Ok(()) => run.register.borrow_mut().acknowledge(ticket),
            Err(why) => {
                run.register.borrow_mut().give_up(ticket, now);
                self.gave_up(&why).await;
            }
        }
    }

    async fn read(&self, sectors: Range<u64>) {
        let run = &self.run;
        let ticket = run.register.borrow_mut().read(sectors.clone());
        let outcome = self.carrier.read(sectors.clone()).await;
        let now = run.world.clock.now();
        run.world.trace.event(&[self.number, now.0, u64::from(outcome.is_ok())]);
        match outcome {
            Ok(bytes) => {
                let checked = run.register.borrow_mut().check(ticket, &bytes, now);
                if let Err(wrong) = checked {
                    run.fail(format!("client {}: {wrong}", self.number));
                }
            }
            Err(why) => {
                run.register.borrow_mut().drop_read(ticket);
                self.gave_up(&why).await;
            }
        }
    }

    /// A request failed: that is allowed only if the target was away for so long.
    async fn gave_up(&self, why: &str) {
        let run = &self.run;
        if !run.options.gives_up {
            run.fail(format!("I7: client {} got no answer: {why}", self.number));
        }
        run.world.trace.mark(mark::AOE_GAVE_UP);
        if self.kind != Kind::Ours {
            run.world.pause(FRAME_LIFETIME.as_micros() as u64).await;
        }
    }
}

fn overlap(one: &Range<u64>, other: &Range<u64>) -> bool {
    one.start < other.end && other.start < one.end
}

fn draw_range(rng: &mut Rng, within: &Range<u64>) -> Range<u64> {
    let most = MAX_REQUEST.min(within.end - within.start);
    let sectors = rng.skewed(most);
    let start = rng.within(within.start, within.end - sectors);
    start..start + sectors
}
