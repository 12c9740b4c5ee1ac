//! One fault after another, or two at once: each begins on a cluster that is optimal, lasts longer
//! than a lease, is healed, and ends when the cluster is optimal again.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parapet_torture::random::Random;
use serde_json::Value;

use crate::fault::{self, Blow, Fault, Way, What};
use crate::load::{self, Court, Load};
use crate::options::Options;
use crate::processes::{GLANCE, HOSTS, PATIENCE, Part, Processes};

/// Requests of each worker that goes on, while a client that is fenced still stands still.
const LATER: u64 = 50;
/// Choices of hosts before a pair counts as too much.
const CHOICES: usize = 100;

/// The outcome of a fault.
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) hosts: String,
    /// The longest request of a client that must go on.
    pub(crate) stall: Duration,
    /// From the fault until a client was fenced at all members.
    pub(crate) fenced: Option<Duration>,
    /// From the end of the fault until all was optimal.
    pub(crate) healed: Duration,
}

/// See the module.
pub(crate) struct Drill<'a> {
    pub(crate) options: &'a Options,
    pub(crate) processes: Processes<'a>,
    pub(crate) court: Arc<Court>,
    loads: Vec<Load>,
    random: Random,
    sessions: u64,
}

impl<'a> Drill<'a> {
    /// Begins to load a new cluster.
    ///
    /// # Errors
    /// If a client does not serve.
    pub(crate) fn new(options: &'a Options, processes: Processes<'a>) -> Result<Drill<'a>, String> {
        let court = Arc::new(Court::new(options.mode == "shared"));
        let random = Random::new(options.seed, 1);
        let mut drill = Drill { options, processes, court, loads: Vec::new(), random, sessions: 0 };
        for host in 0..HOSTS {
            let load = drill.load(host)?;
            drill.loads.push(load);
        }
        drill.until_optimal(&BTreeSet::new())?;
        Ok(drill)
    }

    fn load(&mut self, host: usize) -> Result<Load, String> {
        self.sessions += 1;
        let socket = self.processes.socket(host);
        Load::start(self.sessions, &socket, &self.court, self.options.seed)
    }

    /// Chooses hosts for these faults, if the cluster must survive them there.
    fn aim(&mut self, faults: &[&'static Fault]) -> Option<Vec<Blow>> {
        let leader = leader(&self.processes.status(0)).unwrap_or(0);
        let etcd = self.processes.etcd_leader().unwrap_or(0);
        (0..CHOICES).find_map(|_| {
            let blow = |fault: &'static Fault| {
                let any = match fault.what {
                    What::Kill(Part::Member) | What::Pause(Part::Member) => self.processes.members,
                    _ => HOSTS,
                };
                let host = match fault.what {
                    What::Kill(Part::Coordinator) | What::Pause(Part::Coordinator) => leader,
                    What::Kill(Part::Etcd) | What::Pause(Part::Etcd) => etcd,
                    _ => self.random.below(any),
                };
                Blow { fault, host, peer: (host + 1) % HOSTS }
            };
            let blows: Vec<Blow> = faults.iter().copied().map(blow).collect();
            fault::is_survivable(&blows, self.options.tolerated(), HOSTS).then_some(blows)
        })
    }

    /// Random faults: one or two.
    pub(crate) fn choose(&mut self) -> Vec<&'static Fault> {
        let count = 1 + self.random.below(2);
        (0..count).map(|_| &fault::FAULTS[self.random.below(fault::FAULTS.len())]).collect()
    }

    /// Runs faults; none if the cluster need not survive them together.
    ///
    /// # Errors
    /// A violation, or something that hangs.
    pub(crate) fn run(&mut self, faults: &[&'static Fault]) -> Result<Option<Row>, String> {
        let Some(blows) = self.aim(faults) else { return Ok(None) };
        let victims = fault::victims(&blows);
        self.court.history().degraded = fault::members_at_risk(&blows) > 0;
        self.loads.iter().for_each(Load::reset);
        let begun = Instant::now();
        let mut fenced = None;
        match faults[0].what {
            What::OldStore => {
                self.court.history().degraded = true;
                self.old_store()?;
            }
            What::Standstill => self.stand_still()?,
            _ => {
                blows.iter().try_for_each(|blow| self.strike(blow))?;
                fenced = self.endure(&blows, begun)?;
                blows.iter().try_for_each(|blow| self.heal(blow))?;
            }
        }
        let ended = Instant::now();
        let stall = self.until_optimal(&victims)?;
        self.court.history().degraded = false;
        let socket = self.processes.socket(self.random.below(HOSTS));
        load::sweep(0, &socket, &self.court)?;
        self.court.verdict()?;
        let names: Vec<&str> = faults.iter().map(|fault| fault.name).collect();
        let hosts: Vec<String> = blows.iter().map(|blow| (blow.host + 1).to_string()).collect();
        let (name, hosts) = (names.join("+"), hosts.join("+"));
        Ok(Some(Row { name, hosts, stall, fenced, healed: ended.elapsed() }))
    }

    fn strike(&mut self, blow: &Blow) -> Result<(), String> {
        let Blow { host, peer, fault } = *blow;
        match fault.what {
            What::Kill(part) => self.processes.kill(part, host),
            What::Pause(part) => self.processes.signal(part, host, "STOP")?,
            What::Power => PARTS.iter().for_each(|&part| self.processes.kill(part, host)),
            What::Isolated(way) => {
                let others = (0..self.processes.members).filter(|&other| other != host);
                others.into_iter().try_for_each(|other| self.cut(way, host, other))?;
            }
            What::Link(way) => self.cut(way, host, peer)?,
            What::Standstill | What::OldStore => {}
        }
        Ok(())
    }

    fn cut(&self, way: Way, host: usize, other: usize) -> Result<(), String> {
        if way != Way::Deaf {
            self.processes.network.cut(host, other)?;
        }
        if way != Way::Mute {
            self.processes.network.cut(other, host)?;
        }
        Ok(())
    }

    /// Lets time pass under load; returns when a client was fenced.
    fn endure(&mut self, blows: &[Blow], begun: Instant) -> Result<Option<Duration>, String> {
        let victims = fault::victims(blows);
        let healthy: Vec<usize> = (0..HOSTS).filter(|host| !victims.contains(host)).collect();
        let mut fenced = None;
        for blow in blows.iter().filter(|blow| blow.evicts()) {
            self.until_fenced(healthy[0], blow.host)?;
            fenced.get_or_insert(begun.elapsed());
            self.court.history().fence(self.loads[blow.host].session);
        }
        self.last(begun)?;
        let goals: Vec<(usize, u64)> =
            healthy.iter().map(|&host| (host, self.loads[host].progress() + LATER)).collect();
        let loads = &self.loads;
        self.processes.until("healthy clients go on", |_| {
            let broken = healthy.iter().find_map(|&host| loads[host].broken());
            broken.map_or(Ok(()), Err)?;
            Ok(goals.iter().all(|&(host, goal)| loads[host].progress() >= goal))
        })?;
        self.alive(&victims)?;
        Ok(fenced)
    }

    /// Waits until a fault has lasted for more than a lease. The kernel of an open connection must
    /// notice, too.
    fn last(&mut self, begun: Instant) -> Result<(), String> {
        let lasts = Duration::from_secs(if self.options.fast { 6 } else { 15 });
        self.processes.until("the fault has lasted", |_| Ok(begun.elapsed() > lasts))
    }

    /// Stops all processes and lets them go on. A new epoch would be one without a member that was
    /// alive.
    fn stand_still(&mut self) -> Result<(), String> {
        let epoch = self.epoch()?;
        self.processes.signal_all("STOP")?;
        self.last(Instant::now())?;
        self.processes.signal_all("CONT")?;
        self.until_optimal(&BTreeSet::new())?;
        let now = self.epoch()?;
        match epoch == now {
            true => Ok(()),
            false => Err(format!("all stood still, and epoch {epoch} was followed by {now}")),
        }
    }

    fn epoch(&self) -> Result<u64, String> {
        let status = self.processes.status(0);
        status["epoch"].as_u64().ok_or_else(|| format!("no coordinator leads: {status}"))
    }

    /// Waits until the cluster has evicted a client by itself, and asks as a fence agent would.
    fn until_fenced(&mut self, from: usize, client: usize) -> Result<(), String> {
        let id = client + 1;
        self.processes.until(&format!("client {id} is evicted"), |it| {
            let status = it.status(from);
            let clients = status["clients"].as_array().cloned().unwrap_or_default();
            let serves = status["state"] == "optimal" || status["state"] == "degraded";
            Ok(serves && clients.iter().all(|client| client["id"] != id))
        })?;
        self.processes.until("the fence agent's call", |it| it.evict(from, client))
    }

    fn heal(&mut self, blow: &Blow) -> Result<(), String> {
        let Blow { host, fault, .. } = *blow;
        match fault.what {
            // The client comes back once its load has ended.
            What::Kill(Part::Client) => {}
            What::Kill(part) => self.start(part, host)?,
            What::Pause(part) => self.processes.signal(part, host, "CONT")?,
            What::Power => {
                let parts = PARTS.iter().filter(|&&part| part != Part::Client);
                parts.into_iter().try_for_each(|&part| self.start(part, host))?;
            }
            What::Isolated(_) | What::Link(_) => self.processes.network.heal()?,
            What::Standstill | What::OldStore => {}
        }
        if fault.what == What::Pause(Part::Client) {
            // It finds out by itself, fails all requests, and does not end.
            let loads = &self.loads;
            self.processes.until("the paused client fails its requests", |_| {
                Ok(loads[host].broken().is_some())
            })?;
        }
        Ok(())
    }

    /// Starts a process that another fault of the pair may have started already.
    fn start(&mut self, part: Part, host: usize) -> Result<(), String> {
        if self.processes.runs(part, host) {
            return Ok(());
        }
        self.processes.launch(part, host)?;
        if part == Part::Etcd { Ok(()) } else { self.processes.ready(part, host) }
    }

    /// Waits until everything is as before; restarts clients of `victims` that were evicted.
    /// Returns how long the others stood still.
    pub(crate) fn until_optimal(&mut self, victims: &BTreeSet<usize>) -> Result<Duration, String> {
        let begun = Instant::now();
        loop {
            for &host in victims {
                if self.loads[host].broken().is_some() || !self.processes.runs(Part::Client, host) {
                    self.return_client(host)?;
                }
            }
            self.alive(victims)?;
            let status = self.processes.status(0);
            if is_optimal(&status) && self.loads.iter().all(|load| load.broken().is_none()) {
                break;
            }
            if begun.elapsed() > PATIENCE {
                return Err(format!("not optimal after {} s: {status}", PATIENCE.as_secs()));
            }
            std::thread::sleep(GLANCE);
        }
        let goals: Vec<u64> = self.loads.iter().map(|load| load.progress() + 1).collect();
        let loads = &self.loads;
        self.processes.until("all clients go on", |_| {
            Ok(loads.iter().zip(&goals).all(|(load, goal)| load.progress() >= *goal))
        })?;
        self.alive(victims)?;
        let healthy = (0..HOSTS).filter(|host| !victims.contains(host));
        Ok(healthy.map(|host| self.loads[host].stall()).max().unwrap_or_default())
    }

    /// Starts a client again, when what used it is gone.
    fn return_client(&mut self, host: usize) -> Result<(), String> {
        self.processes.kill(Part::Client, host);
        self.processes.launch(Part::Client, host)?;
        self.processes.ready(Part::Client, host)?;
        // Its join has evicted the life before.
        self.court.history().fence(self.loads[host].session);
        let load = self.load(host)?;
        std::mem::replace(&mut self.loads[host], load).stop();
        Ok(())
    }

    /// No violation, no process that ended by itself, no error of a client that must go on.
    fn alive(&mut self, victims: &BTreeSet<usize>) -> Result<(), String> {
        self.court.verdict()?;
        if let Some((part, host)) = self.processes.has_ended() {
            return Err(format!("{} {} has ended by itself", part.word(), host + 1));
        }
        let healthy = (0..HOSTS).filter(|host| !victims.contains(host));
        let broken = healthy.filter_map(|host| Some((host, self.loads[host].broken()?))).next();
        broken.map_or(Ok(()), |(host, why)| Err(format!("client {}: {why}", host + 1)))
    }

    /// Restores a backup of etcd from before a change of the membership, and all coordinators start
    /// anew: none may lead with it. Then the latest content returns, and they start again.
    fn old_store(&mut self) -> Result<(), String> {
        self.processes.save_snapshot("old")?;
        self.processes.kill(Part::Member, 0);
        self.processes.until("the member is missing", |it| {
            Ok(it.status(1)["members"][0]["state"] == "missing")
        })?;
        self.start(Part::Member, 0)?;
        self.until_optimal(&BTreeSet::new())?;
        self.processes.save_snapshot("latest")?;
        self.processes.restore_snapshot("old")?;
        self.processes.until("the old store answers", |it| Ok(it.etcd_leader().is_some()))?;
        self.restart_coordinators()?;
        self.processes.until("a coordinator notices", |it| {
            let status = it.status(0);
            if ["optimal", "degraded"].iter().any(|state| status["state"] == *state) {
                return Err(format!("a coordinator leads with an old store: {status}"));
            }
            Ok(status["later_epoch"].is_u64())
        })?;
        self.processes.restore_snapshot("latest")?;
        self.processes.until("the latest store answers", |it| Ok(it.etcd_leader().is_some()))?;
        self.restart_coordinators()
    }

    fn restart_coordinators(&mut self) -> Result<(), String> {
        (0..HOSTS).try_for_each(|host| {
            self.processes.kill(Part::Coordinator, host);
            self.start(Part::Coordinator, host)
        })
    }

    /// Ends all load.
    pub(crate) fn finish(mut self) {
        self.loads.drain(..).for_each(Load::stop);
    }
}

/// All parts of a host.
const PARTS: [Part; 4] = [Part::Client, Part::Coordinator, Part::Member, Part::Etcd];

/// The host of the coordinator that leads in the highest term.
fn leader(status: &Value) -> Option<usize> {
    let all = status["coordinators"].as_array()?;
    let terms = all.iter().enumerate().filter_map(|(host, it)| Some((it["term"].as_u64()?, host)));
    terms.max().map(|(_, host)| host)
}

fn is_optimal(status: &Value) -> bool {
    let coordinators = status["coordinators"].as_array().map_or(&[][..], Vec::as_slice);
    let clients = status["clients"].as_array().map_or(&[][..], Vec::as_slice);
    let leads = coordinators.iter().filter(|it| it["state"] == "leads").count();
    status["state"] == "optimal"
        && status["unsynced_regions"] == 0
        && leads == 1
        && coordinators.iter().all(|it| it["state"] != "unreachable")
        && clients.len() == HOSTS
        && clients.iter().all(|client| client["state"] == "joined")
}
