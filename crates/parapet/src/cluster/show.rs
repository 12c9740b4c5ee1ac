//! The demonstration of a cluster: real processes on this machine, three of which are killed.
//!
//! ```text
//!   three disks, two coordinators, two clients; both clients write all the time
//!   kill a member ──▶ go on ── start it ──▶ rebuilt
//!   kill the coordinator that leads ──▶ the other one takes over
//!   kill a client ──▶ fenced, its regions are resynced
//!   read everything through the client that is left, and compare
//! ```

mod processes;
mod writer;

use std::rc::Rc;
use std::time::Duration;

use ::cluster::config::State;
use ::cluster::ids::{ClientId, MemberId};
use ::cluster::session::{Ask, Report, Told};
use ::io::{Clock, Disk, Op, Pool};
use os::{Address, Signals, Socket, Spawner};

use self::processes::Processes;
use self::writer::{PIECE_BYTES, Writer};
use super::file::Cluster;
use super::links::ask;
use crate::api::ClusterDemonstration;
use crate::daemon::first;
use crate::failure::{Exit, Failure, Id, Result};
use crate::terminal::Terminal;

/// How long each step may take.
const PATIENCE: Duration = Duration::from_secs(30);
/// Between two looks.
const GLANCE: Duration = Duration::from_millis(50);
/// The member and the client that are killed.
const VICTIM_MEMBER: usize = 1;
const VICTIM_CLIENT: usize = 0;

/// Runs the demonstration, until it is interrupted, and reports it.
///
/// # Errors
/// If a step fails, or bytes come back different.
pub(crate) async fn demonstrate(
    on: &Spawner,
    signals: &Signals,
    terminal: &Terminal,
) -> Result<Exit> {
    let interrupted = async {
        signals.next().await;
    };
    let shown = first(run(on, terminal), interrupted).await.unwrap_or_else(|| {
        Err(Failure::new(Id::Failed, "interrupted", "run it again to see the rest"))
    })?;
    terminal.report(&shown);
    if shown.wrong_bytes > 0 {
        let message = format!("{} bytes came back different", shown.wrong_bytes);
        return Err(Failure::new(Id::Verification, message, "please report it"));
    }
    Ok(Exit::Done)
}

/// Runs the demonstration; leaves nothing behind.
///
/// # Errors
/// If a step fails.
async fn run(on: &Spawner, terminal: &Terminal) -> Result<ClusterDemonstration> {
    let began = on.clock().now();
    let processes = Processes::start()?;
    let cluster = processes.create(on).await?;
    let mut show = Show { on, terminal, cluster, processes };
    show.begin().await?;
    let writers = [show.writer(0).await?, show.writer(1).await?];
    writers.iter().for_each(|writer| on.spawn_local(Rc::clone(writer).run(on.clock())));
    show.until("both clients write", &writers, |_| true).await?;
    let member = show.lose_member(&writers).await?;
    let coordinator = show.lose_coordinator(&writers).await?;
    let client = show.lose_client(&writers).await?;
    let [dead, alive] = &writers;
    alive.stop().await;
    terminal.say("reading everything back …");
    let wrong_bytes = dead.differing(alive).await? + alive.differing(alive).await?;
    Ok(ClusterDemonstration {
        written_bytes: (dead.written() + alive.written()) * PIECE_BYTES as u64,
        wrong_bytes,
        member_stall_seconds: member.as_secs_f64(),
        coordinator_stall_seconds: coordinator.as_secs_f64(),
        client_stall_seconds: client.as_secs_f64(),
        seconds: (on.clock().now() - began).as_secs_f64(),
    })
}

struct Show<'a> {
    on: &'a Spawner,
    terminal: &'a Terminal,
    cluster: Cluster,
    processes: Processes,
}

impl Show<'_> {
    async fn begin(&mut self) -> Result<()> {
        self.terminal.say("starting two coordinators and two clients …");
        (0..2).try_for_each(|number| self.processes.coordinator(number))?;
        (0..2).try_for_each(|number| self.processes.client(number))
    }

    async fn writer(&self, number: usize) -> Result<Rc<Writer>> {
        let path = self.processes.path(&format!("n{number}.sock"));
        let address = Address::Unix(path);
        let clock = self.on.clock();
        let limit = clock.now() + PATIENCE;
        loop {
            if let Ok(socket) = Socket::connect(&address, self.on).await {
                let pool = Pool::new(PIECE_BYTES);
                let connecting = net::nbd::client::connect(Box::new(socket), "", None, pool);
                if let Ok((disk, link)) = connecting.await {
                    self.on.spawn_local(async move { drop(link.await) });
                    return Ok(Writer::new(number, Rc::new(disk) as Rc<dyn Disk>));
                }
            }
            if clock.now() > limit {
                return Err(late("the clients start"));
            }
            clock.sleep_until(clock.now() + GLANCE).await;
        }
    }

    /// Waits until the condition holds and each writer that lives has written once more. Returns
    /// the longest time in which one of them stood still.
    async fn until(
        &self,
        what: &str,
        writers: &[Rc<Writer>],
        holds: impl Fn(&Report) -> bool,
    ) -> Result<Duration> {
        let clock = self.on.clock();
        let limit = clock.now() + PATIENCE;
        while !holds(&self.report().await) {
            if clock.now() > limit {
                return Err(late(what));
            }
            clock.sleep_until(clock.now() + GLANCE).await;
        }
        let before: Vec<u64> = writers.iter().map(|writer| writer.written()).collect();
        let alive = || writers.iter().zip(&before).filter(|(writer, _)| !writer.is_over());
        while alive().any(|(writer, before)| writer.written() == *before) {
            if clock.now() > limit {
                return Err(late(what));
            }
            clock.sleep_until(clock.now() + GLANCE).await;
        }
        Ok(writers.iter().map(|writer| writer.take_longest()).max().unwrap_or_default())
    }

    /// The report of the coordinator that leads in the highest term.
    async fn report(&self) -> Report {
        let mut newest = Report::default();
        for address in self.cluster.candidates() {
            let hello = self.cluster.operator(MemberId(0));
            let told = ask(&address, &hello, &Ask::Report, Some(GLANCE * 10), self.on).await;
            if let Ok(Told::Report(report)) = told
                && report.term > newest.term
            {
                newest = report;
            }
        }
        newest
    }

    async fn lose_member(&mut self, writers: &[Rc<Writer>]) -> Result<Duration> {
        self.terminal.say(format!("killing member {VICTIM_MEMBER} …"));
        self.processes.kill(&format!("m{VICTIM_MEMBER}"));
        let state = |report: &Report| {
            let config = report.config.as_ref().filter(|_| report.active);
            config.map(|config| config.slots[VICTIM_MEMBER].state)
        };
        let missing = |report: &Report| state(report) == Some(State::Missing);
        let stall = self.until("the others go on", writers, missing).await?;
        self.say_stall(stall);
        self.terminal.say("starting it again …");
        self.processes.disk(VICTIM_MEMBER)?;
        let whole = |report: &Report| state(report) == Some(State::InSync);
        self.until("the member is rebuilt", writers, whole).await?;
        self.terminal.say("  it is rebuilt");
        Ok(stall)
    }

    async fn lose_coordinator(&mut self, writers: &[Rc<Writer>]) -> Result<Duration> {
        let report = self.report().await;
        let Some((term, leader)) = report.term.zip(self.leader().await) else {
            return Err(late("a coordinator leads"));
        };
        self.terminal.say(format!("killing coordinator {leader}, which leads …"));
        self.processes.kill(&format!("c{leader}"));
        let next = |report: &Report| report.term > Some(term) && report.active;
        let stall = self.until("another coordinator leads", writers, next).await?;
        self.say_stall(stall);
        Ok(stall)
    }

    /// The number of the coordinator that leads.
    async fn leader(&self) -> Option<usize> {
        for (number, address) in self.cluster.candidates().enumerate() {
            let hello = self.cluster.operator(MemberId(0));
            let told = ask(&address, &hello, &Ask::Report, Some(GLANCE * 10), self.on).await;
            if matches!(told, Ok(Told::Report(Report { term: Some(_), .. }))) {
                return Some(number);
            }
        }
        None
    }

    async fn lose_client(&mut self, writers: &[Rc<Writer>]) -> Result<Duration> {
        let id = ClientId(VICTIM_CLIENT as u32 + 1);
        self.terminal.say(format!("killing client {} in the middle of its writes …", id.0));
        self.processes.kill(&format!("n{VICTIM_CLIENT}"));
        let fenced = |report: &Report| {
            let joined = report.clients.iter().any(|joined| joined.client == id);
            report.active && !joined && report.evicting.is_empty() && report.unsync == 0
        };
        let stall = self.until("the client is fenced", writers, fenced).await?;
        self.say_stall(stall);
        self.terminal.say("  it is fenced, and its regions are resynced");
        Ok(stall)
    }

    fn say_stall(&self, stall: Duration) {
        self.terminal.say(format!("  I/O stood still for {:.1} s", stall.as_secs_f64()));
    }
}

/// A flush, as the last word of a writer.
pub(super) async fn flush(disk: &dyn Disk) -> bool {
    disk.submit(Op::flush()).await.result.is_ok()
}

fn late(what: &str) -> Failure {
    let message = format!("waited {} s, in vain, until {what}", PATIENCE.as_secs());
    Failure::new(Id::Failed, message, "run it again; if it happens again, please report it")
}
