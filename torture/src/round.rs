//! One round: an array is made, and lives several times; each life ends badly.
//!
//! ```text
//!   create ─▶ start ─▶ verify ─▶ (lose a member, verify, take it back) ─▶ load ─▶ incident ─┐
//!               ▲  ▲──killed as it starts                                                  │
//!               └───────────────────────────────────────────────────────────────────────────┘
//!          ─▶ start ─▶ verify ─▶ settle ─▶ scrub: no mismatch ─▶ lose all it bears, verify
//! ```
//!
//! Invariant: the level tolerates the members missing at any time, so all flushed data must be
//! there, and only writes in flight at a cut may be old or new.

use crate::fio::FIO_BYTES;
use crate::load::{Court, Load, Shape};
use crate::medium::Loss;
use crate::members::{Fault, Members};
use crate::plan::Plan;
use crate::program::{Program, Server};
use parapet_torture::client::Client;
use parapet_torture::random::Random;
use std::fmt::Display;
use std::path::Path;
use std::time::{Duration, Instant};

/// The longest wait for an event.
const PATIENCE: Duration = Duration::from_secs(40);
/// The size of a verifying read, and of the smaller reads after its failure.
const STEP: u64 = 128 << 10;
const BLOCK: u64 = 4096;

/// Statistics of rounds.
#[derive(Clone, Copy, Default)]
pub(crate) struct Tally {
    pub(crate) kills: u64,
    pub(crate) cuts: u64,
    pub(crate) vanished: u64,
    pub(crate) answers: u64,
    pub(crate) verified: u64,
    /// Sectors that a cut could take, and that it took.
    pub(crate) at_stake: u64,
    pub(crate) lost: u64,
    /// Reads of 4 KiB, and starts, that were refused because the array does not know.
    pub(crate) unverified: u64,
    pub(crate) refusals: u64,
}

/// How a life ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Incident {
    PowerCut,
    PartCut,
    Kill,
    Stop,
    Vanish(Fault),
}

/// See the module.
pub(crate) struct Round<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) program: Program<'a>,
    pub(crate) members: &'a Members,
    pub(crate) random: Random,
    pub(crate) court: Court,
    pub(crate) tally: Tally,
    pub(crate) story: Vec<String>,
    pub(crate) server: Option<Server>,
    /// The file in each slot, and those in none.
    slots: Vec<usize>,
    spares: Vec<usize>,
    /// The slot with a missing member.
    away: Option<(usize, Fault)>,
    /// Every slot was filled and in sync when that was last looked at, and none was lost since.
    whole: bool,
    /// The array may not know some blocks any more.
    suspect: bool,
    pub(crate) bytes: u64,
    windows: Vec<std::ops::Range<u64>>,
    begun: Instant,
}

/// Files besides those of the array.
pub(crate) const SPARES: usize = 2;

/// A member without requests for this long gets one.
const UNASKED: Duration = Duration::from_secs(5);

/// A round ends where more of an array that never was in sync has been lost than it can list.
const BEYOND: &str = "list of unverified blocks is full";

/// True if the array says that it is not in sync, and that it gave up a member for that.
fn is_beyond(array: &serde_json::Value) -> bool {
    let says = |what: &str, field: &str, word: &str| {
        let each = array[what].as_array().into_iter().flatten();
        each.filter_map(|one| one[field].as_str()).any(|text| text.contains(word))
    };
    says("problems", "id", "PPT-8011") && says("faulty", "trouble", "list of bad blocks is full")
}

pub(crate) type Outcome<T = ()> = Result<T, String>;

impl<'a> Round<'a> {
    pub(crate) fn new(
        plan: &'a Plan,
        program: Program<'a>,
        members: &'a Members,
        random: Random,
    ) -> Round<'a> {
        Round {
            plan,
            program,
            members,
            random,
            court: Court::new(),
            tally: Tally::default(),
            story: Vec::new(),
            server: None,
            slots: (0..plan.members).collect(),
            spares: (plan.members..plan.members + SPARES).collect(),
            away: None,
            whole: true,
            suspect: false,
            bytes: 0,
            windows: Vec::new(),
            begun: Instant::now(),
        }
    }

    pub(crate) fn note(&mut self, line: impl Display) {
        self.story.push(format!("{:7.3} s  {line}", self.begun.elapsed().as_secs_f64()));
    }

    /// The whole round.
    ///
    /// # Errors
    /// The violation.
    pub(crate) fn run(&mut self) -> Outcome {
        let ended = match self.lives() {
            Err(why) if why == BEYOND => {
                self.note(BEYOND);
                Ok(())
            }
            ended => ended,
        };
        self.tally.answers = self.court.answers();
        self.tally.verified = self.court.verified();
        self.tally.unverified = self.court.unverified();
        ended
    }

    fn lives(&mut self) -> Outcome {
        self.create()?;
        for _ in 0..self.plan.lives {
            if !self.start()? {
                return Ok(());
            }
            self.verify()?;
            if self.away.is_none() && self.random.percent(35) {
                self.lose_and_return()?;
            }
            self.live()?;
        }
        if self.start()? {
            self.verify()?;
            self.close()?;
        }
        Ok(())
    }

    fn create(&mut self) -> Outcome {
        if self.plan.consistency == Some("ppl") {
            self.court.oracle().let_guess();
        }
        let mut words = self.plan.create();
        words.extend(self.slots.iter().map(|file| name(*file)));
        let made = self.program.run(&words)?;
        if made.code != Some(0) {
            return Err(format!("`parapet {}`: {}", words.join(" "), made.said));
        }
        if !self.start()? {
            return Err("a new array does not start".into());
        }
        let end = self.bytes - FIO_BYTES;
        for _ in 0..self.plan.windows {
            let len = self.random.within(16..257) * BLOCK;
            let start = self.random.within(0..(end - len) / BLOCK + 1) * BLOCK;
            self.windows.push(start..start + len);
        }
        if self.plan.fio {
            self.fio_writes()?;
        }
        self.live()
    }

    /// Serves the array; sometimes it is killed during the start. False if the start is refused
    /// because the data is unknown.
    fn start(&mut self) -> Outcome<bool> {
        if self.server.is_some() {
            return Ok(true);
        }
        let gone = self.away.filter(|(_, fault)| *fault != Fault::Full).map(|(slot, _)| slot);
        let slots = (0..self.slots.len()).filter(|slot| Some(*slot) != gone);
        let mut words: Vec<String> = vec!["tank".into()];
        words.extend(slots.map(|slot| name(self.slots[slot])));
        words.extend(gone.map(|_| "--degraded".into()));
        words.extend(["--threads".into(), self.plan.threads.to_string()]);
        words.extend(["--cache".into(), self.plan.cache.into(), "--deadline".into(), "1".into()]);
        while self.bytes > 0 && self.random.percent(25) {
            let mut server = self.program.serve(&words)?;
            let wait = self.random.within(0..40);
            self.note(format!("serve, killed after {wait} ms"));
            std::thread::sleep(Duration::from_millis(wait));
            if server.is_dead() {
                // The next one says why.
                break;
            }
            let cut = self.random.percent(60);
            self.kill(&mut server, cut.then(|| self.all()))?;
            server.wait()?;
            self.end_life(cut.then(|| self.all()));
        }
        let server = self.program.serve(&words)?;
        let array = match server.ready()? {
            Ok(array) => array,
            Err(error) if !self.whole && self.plan.has_hole() => {
                self.note(format!("refused: {}", error["message"]));
                self.tally.refusals += 1;
                server.wait()?;
                return Ok(false);
            }
            Err(error) => return Err(format!("the array is refused: {error}")),
        };
        self.server = Some(server);
        self.bytes = array["capacity_bytes"].as_u64().ok_or("the array has no size")?;
        self.note(format!("serves: {}, unsynced {}", array["state"], array["unsynced_bytes"]));
        Ok(true)
    }

    fn all(&self) -> Vec<usize> {
        (0..self.plan.members + SPARES).collect()
    }

    /// Kills the server. If these members are cut at the same moment, the world stands still
    /// before.
    fn kill(&mut self, server: &mut Server, cut: Option<Vec<usize>>) -> Outcome {
        if server.is_dead() {
            return Err("the server has died by itself".into());
        }
        self.tally.kills += 1;
        if cut.is_some() {
            self.members.freeze();
        }
        server.kill();
        match cut {
            Some(_) => self.members.unfreeze(),
            None => self.members.let_go(),
        }
        Ok(())
    }

    /// The server is gone, with all that these members had not made durable.
    fn end_life(&mut self, cut: Option<Vec<usize>>) {
        let forgets = cut.is_some() || self.plan.cache == "writeback";
        if let Some(cut) = cut {
            self.cut(&cut);
        }
        let mut oracle = self.court.oracle();
        oracle.crash(forgets);
        if !self.whole && self.plan.has_parity() {
            oracle.expose();
        }
    }

    fn cut(&mut self, members: &[usize]) {
        let mut sum = Loss::default();
        for member in members {
            let loss = self.members.cut(*member);
            sum.at_stake += loss.at_stake;
            sum.lost += loss.lost;
        }
        self.tally.cuts += 1;
        self.tally.at_stake += sum.at_stake;
        self.tally.lost += sum.lost;
        self.note(format!("cut {members:?}: {} of {} sectors", sum.lost, sum.at_stake));
    }

    /// Load, and the incident that ends it.
    fn live(&mut self) -> Outcome {
        let incident = match self.random.below(100) {
            0..40 => Incident::PowerCut,
            40..55 => Incident::Kill,
            55..65 => Incident::PartCut,
            65..75 => Incident::Stop,
            _ if self.away.is_some() => Incident::PowerCut,
            _ => Incident::Vanish(self.random.pick(&[
                Fault::Errors,
                Fault::Hangs,
                Fault::Full,
                Fault::Short(3 << 20),
                Fault::Deleted,
            ])),
        };
        if let Incident::Vanish(fault) = incident {
            return self.lose_member(fault);
        }
        let load = self.load();
        // Without a log an interrupted write may cost neighbouring blocks.
        let writes = self.plan.fio && !self.plan.has_hole();
        let fio = if writes { Some(self.fio_goes_on()?) } else { None };
        self.work(&load)?;
        self.note(format!("{incident:?}"));
        load.warn();
        let mut server = self.server.take().ok_or("no server")?;
        if incident == Incident::Stop {
            server.stop()?;
            load.finish()?;
            drop(fio);
            self.members.let_go();
            let code = server.wait()?;
            if code != Some(0) {
                return Err(format!("the server stopped with {code:?}"));
            }
            self.court.oracle().stopped();
            self.members.unfreeze();
            let all = self.all();
            self.end_life(Some(all));
            return Ok(());
        }
        let cut = match incident {
            Incident::PowerCut => Some(self.all()),
            Incident::PartCut => Some(vec![self.random.below(self.plan.members)]),
            _ => None,
        };
        self.kill(&mut server, cut.clone())?;
        load.finish()?;
        drop(fio);
        server.wait()?;
        self.end_life(cut);
        Ok(())
    }

    fn load(&mut self) -> Load {
        let shape = Shape {
            socket: self.program.socket(),
            windows: self.windows.clone(),
            depth: self.plan.depth,
            suspect: self.suspect,
        };
        Load::start(&self.court, &shape, self.plan.clients, &mut self.random)
    }

    /// Lets the load work for some answers, and a moment.
    fn work(&mut self, load: &Load) -> Outcome {
        let most = if self.random.percent(30) { 100 } else { 2500 };
        let wanted = self.court.answers() + self.random.within(1..most);
        let moment = Duration::from_micros(self.random.within(0..3000));
        let begun = Instant::now();
        while self.court.answers() < wanted && begun.elapsed() < Duration::from_millis(800) {
            if load.is_over() {
                break;
            }
            std::thread::sleep(Duration::from_micros(200));
        }
        std::thread::sleep(moment);
        Ok(())
    }

    /// A member vanishes under load, unnoticed. It returns, or the next start lacks it.
    fn lose_member(&mut self, fault: Fault) -> Outcome {
        if !self.whole || self.random.percent(70) {
            self.wait_until_idle()?;
        } else {
            // Blocks that the last crash left out of sync may now be unknown.
            self.suspect = true;
        }
        let slot = self.random.below(self.plan.members);
        self.note(format!("member {} in slot {slot}: {fault:?}", name(self.slots[slot])));
        self.tally.vanished += 1;
        let load = self.load();
        self.work(&load)?;
        self.members.set(self.slots[slot], fault);
        self.away = Some((slot, fault));
        self.whole = false;
        if fault == Fault::Deleted {
            self.work(&load)?;
        } else {
            self.until_missing((slot, fault), &load)?;
        }
        self.work(&load)?;
        load.finish()?;
        self.verify()?;
        if self.random.percent(60) { self.take_back() } else { Ok(()) }
    }

    fn until_missing(&mut self, (slot, fault): (usize, Fault), load: &Load) -> Outcome {
        let (begun, mut sought) = (Instant::now(), false);
        while begun.elapsed() < PATIENCE && !load.is_over() {
            let array = self.program.status()?;
            if array["slots"][slot]["state"] == "missing" {
                return Ok(());
            }
            // All clients' writes may go to other members: then it stays unnoticed.
            let unasked = begun.elapsed() > UNASKED && !self.members.is_touched(self.slots[slot]);
            if unasked && fault == Fault::Full {
                self.note(format!("slot {slot} was not written to: it has space again"));
                self.members.set(self.slots[slot], Fault::Healthy);
                self.away = None;
                return Ok(());
            }
            if unasked && !std::mem::replace(&mut sought, true) {
                self.note(format!("slot {slot} was not asked for anything: a scrub will"));
                // A scrub may be refused, or be running.
                let _ = self.program.order(&["scrub", "tank"]);
            }
        }
        Err(format!("slot {slot} is not missed: {}", self.program.status()?))
    }

    /// Takes the member that is away, or another one, into its slot.
    fn take_back(&mut self) -> Outcome {
        let Some((slot, fault)) = self.away.take() else { return Ok(()) };
        let old = self.slots[slot];
        self.note(format!("slot {slot} is filled again"));
        if fault == Fault::Hangs {
            // Earlier writes must not land on it after its return.
            self.members.let_go();
            self.members.drain();
        }
        match fault {
            Fault::Short(_) => self.add_anew(old)?,
            // Without a bitmap its missed writes are unknown.
            _ if self.plan.bitmap == "off" && fault != Fault::Deleted => self.add_anew(old)?,
            Fault::Deleted => {
                let new = self.spares.remove(0);
                self.slots[slot] = new;
                let (place, new) = (slot.to_string(), name(new));
                match self.program.status()?["slots"][slot]["state"].as_str() {
                    // A server that started without it.
                    Some("missing") => self.program.order(&["add", "tank", &new])?,
                    _ => self.program.order(&["replace", "tank", &place, &new])?,
                };
                self.wait_until_idle()?;
                self.members.renew(old);
                self.spares.push(old);
            }
            _ => {
                self.members.set(old, Fault::Healthy);
                self.take_in("re-add", old)?;
            }
        }
        if self.random.percent(50) {
            self.wait_until_idle()?;
            return self.verify();
        }
        Ok(())
    }

    /// Takes a member in (`add` or `re-add`), if need be once the kernel has let go of it: a server
    /// that was killed while it hung may still have it, and of a file that was cut the kernel may
    /// remember the length for a moment.
    fn take_in(&self, verb: &str, file: usize) -> Outcome {
        let begun = Instant::now();
        loop {
            match self.program.order(&[verb, "tank", &name(file)]) {
                Err(why)
                    if ["PPT-3003", ": cut to "].iter().any(|passing| why.contains(passing))
                        && begun.elapsed() < PATIENCE => {}
                answer => return answer.map(drop),
            }
        }
    }

    /// Waits until nothing is being done; then the array is whole, unless a member is away.
    fn wait_until_idle(&mut self) -> Outcome<serde_json::Value> {
        let array = self.program.wait_until_idle()?;
        if self.away.is_none() {
            if array["state"] != "healthy" {
                if is_beyond(&array) {
                    return Err(BEYOND.into());
                }
                return Err(format!("not whole, and nothing is done about it: {array}"));
            }
            self.whole = true;
        }
        Ok(array)
    }

    fn add_anew(&mut self, file: usize) -> Outcome {
        let is_known = |array: &serde_json::Value| {
            array["faulty"].as_array().is_some_and(|faulty| !faulty.is_empty())
        };
        if is_known(&self.program.status()?) {
            self.program.order(&["remove", "tank", &name(file)])?;
        }
        self.members.renew(file);
        self.take_in("add", file)
    }

    /// All data is also there without a member.
    fn lose_and_return(&mut self) -> Outcome {
        self.wait_until_idle()?;
        let slot = self.random.below(self.plan.members);
        self.note(format!("slot {slot} is failed"));
        self.program.order(&["fail", "tank", &slot.to_string()])?;
        self.away = Some((slot, Fault::Healthy));
        self.whole = false;
        self.verify()?;
        let load = self.load();
        self.work(&load)?;
        load.finish()?;
        self.take_back()
    }

    /// Reads all that was written, and some that was not.
    fn verify(&mut self) -> Outcome {
        let (socket, end) = (self.program.socket(), self.bytes);
        let mut runs = self.court.oracle().written(16 << 10, end - FIO_BYTES);
        for _ in 0..8 {
            runs.push((self.random.within(0..(end - FIO_BYTES) / STEP) * STEP, STEP));
        }
        let client = Client::connect(&socket, "tank");
        let mut client = client.map_err(|error| format!("no connection to verify: {error}"))?;
        for (start, len) in runs {
            for at in (start..start + len).step_by(STEP as usize) {
                let len = STEP.min(start + len - at);
                self.verify_step(&mut client, at, len)?;
            }
        }
        // fio takes no error for an answer.
        let sure = !self.suspect && (self.whole || !self.plan.has_hole());
        if self.plan.fio && sure { self.fio_verifies() } else { Ok(()) }
    }

    /// Reads in one, and if that fails block by block.
    fn verify_step(&mut self, client: &mut Client, at: u64, len: u64) -> Outcome {
        let broken = |error| format!("a read at offset {at} got no answer: {error}");
        let begun = self.court.oracle().read();
        let errno = match client.read(at, len as u32).map_err(broken)? {
            Ok(bytes) => return self.court.check(begun, at, &bytes),
            Err(errno) => errno,
        };
        if len > BLOCK {
            self.court.oracle().unread(begun);
            let blocks = (at..at + len).step_by(BLOCK as usize);
            return blocks.into_iter().try_for_each(|at| self.verify_step(client, at, BLOCK));
        }
        self.court.unread(begun, (at, len), errno, self.suspect)
    }

    /// Finally all is well: parity and copies agree, and the array tolerates its promised losses.
    fn close(&mut self) -> Outcome {
        self.take_back()?;
        self.wait_until_idle()?;
        self.verify()?;
        if !self.suspect {
            self.program.order(&["scrub", "tank", "check"])?;
            let array = self.wait_until_idle()?;
            if array["last_scrub"]["mismatches"] != 0 {
                return Err(format!("not well at the end: {array}"));
            }
        }
        let first = self.random.below(self.plan.members);
        for step in 0..self.plan.redundancy() {
            let slot = (first + step) % self.plan.members;
            self.note(format!("slot {slot} is failed"));
            self.program.order(&["fail", "tank", &slot.to_string()])?;
            self.verify()?;
        }
        let server = self.server.take().ok_or("no server")?;
        server.stop()?;
        match server.wait()? {
            Some(0) => Ok(()),
            code => Err(format!("the server stopped with {code:?}")),
        }
    }
}

impl Drop for Round<'_> {
    fn drop(&mut self) {
        if let Some(mut server) = self.server.take() {
            server.kill();
            self.members.unfreeze();
            let _ = server.wait();
        }
    }
}

/// The path of a member on the program's command line.
fn name(file: usize) -> String {
    Path::new("members").join(format!("m{file}")).display().to_string()
}
