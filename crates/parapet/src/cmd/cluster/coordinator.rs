//! `parapet cluster coordinator`: one of the processes that decide.
//!
//! Candidates learn of each other by asking: each asks the others for their report several times in
//! the time after which a silent leader is replaced. They also learn from members who leads.

use std::time::Duration;

use ::cluster::config::{Config, State};
use ::cluster::ids::{CandidateId, ClientId, MemberId};
use ::cluster::roles::Role;
use ::cluster::session::{Ask, Report, Told};
use ::io::Clock;
use net::cluster::coordinator::{CoordinatorServer, Duty};
use os::Spawner;

use super::status::other_disk;
use crate::api::ClusterServing;
use crate::cluster::file::{Cluster, ClusterArg, Endpoint, address};
use crate::cluster::host::{self, Exposure, until_stopped};
use crate::cluster::links::{self, Target, ask, spawn};
use crate::cmd::serve::catch;
use crate::engine;
use crate::failure::{Exit, Failure, Id, Result};
use crate::systemd;
use crate::terminal::Terminal;

/// Coordinate a cluster, or stand by
///
/// Several may run, on several hosts; one leads, and another takes over when it falls silent.
///
/// For example: parapet cluster coordinator pool.toml --listen 10.0.0.1:7610
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    cluster: ClusterArg,
    /// Which of the file's coordinators this is [default: the only one]
    #[arg(long, value_name = "ADDRESS", value_parser = address)]
    listen: Option<Endpoint>,
    #[command(flatten)]
    exposure: Exposure,
}

pub(crate) fn run(args: &Args, terminal: &Terminal) -> Result<Exit> {
    let cluster = args.cluster.read()?;
    let (me, listen) = own(&cluster, args)?;
    args.exposure.check(&listen, cluster.keys.as_ref())?;
    cluster.require(Role::Coordinator)?;
    // A wrong store shows at once, not as a coordinator that never leads.
    if let Err(failure) = cluster.store.read(cluster.array) {
        if failure.id != Id::Unreachable {
            return Err(failure);
        }
        tracing::warn!("{failure}");
    }
    let executor = engine::executor()?;
    let on = executor.spawner();
    let signals = catch(&on)?;
    executor.block_on(async {
        let store = cluster.store.open(cluster.array, on.clock())?;
        let addresses = cluster.members.iter().map(ToString::to_string).collect();
        let (array, timing) = (cluster.array, cluster.timing);
        let duty = Duty { me, array, name: cluster.name.clone(), addresses, timing };
        let server = CoordinatorServer::new(duty, store, on.clock(), spawn(&on));
        let serving = server.clone();
        let keys = cluster.keys.as_ref();
        let serve = async move |session| serving.serve(session).await;
        let address = Some(host::receive(&listen, keys, &on, serve).await?.to_string());
        for (member, to) in cluster.slots() {
            let server = server.clone();
            let connected = async move |stream| server.connect(member, stream).await;
            links::keep(format!("member {}", member.0), to, &on, connected);
        }
        let others = cluster.candidates().filter(|other| other.at != listen);
        others.for_each(|other| listen_to(other, &cluster, &server, &on));
        let what = format!("coordinator {} of {}", me.0, cluster.name);
        systemd::ready(&what);
        let (pid, role, array) = (std::process::id(), "coordinator".into(), Some(cluster.name));
        terminal.report(&ClusterServing { pid, role, array, what, address, attached: None });
        let ticking = server.clone();
        on.spawn_local(async move { ticking.run().await });
        until_stopped(&signals, watch(&server, timing.tick_ms, &on)).await;
        Ok(Exit::Done)
    })
}

/// The number and address of this candidate.
fn own(cluster: &Cluster, args: &Args) -> Result<(CandidateId, Endpoint)> {
    let all = &cluster.coordinators;
    let listen = match (&args.listen, &all[..]) {
        (Some(listen), _) => listen,
        (None, [only]) => only,
        (None, several) => {
            let message = format!("the cluster file has {} coordinators", several.len());
            return Err(Failure::new(Id::Usage, message, format!("say --listen {}", several[0])));
        }
    };
    match all.iter().position(|known| known == listen) {
        Some(place) => {
            let me = u16::try_from(place).expect("a file has few coordinators");
            Ok((CandidateId(me), listen.clone()))
        }
        None => {
            let file = args.cluster.file.display();
            let message = format!("{listen}: {file} has no such coordinator");
            let action = "choose one of its addresses, or add this one on all hosts";
            Err(Failure::new(Id::Usage, message, action))
        }
    }
}

/// Asks another candidate whether it leads, or hears the one that does, again and again.
fn listen_to(other: Target, cluster: &Cluster, server: &CoordinatorServer, on: &Spawner) {
    let (hello, server) = (cluster.operator(MemberId(0)), server.clone());
    let interval = Duration::from_millis(cluster.timing.takeover_ms / 6);
    let spawner = on.clone();
    on.spawn_local(async move {
        let clock = spawner.clock();
        loop {
            let told = ask(&other, &hello, &Ask::Report, Some(interval * 2), &spawner).await;
            match told {
                Ok(Told::Report(Report { term: Some(term), led: true, .. })) => server.beat(term),
                Ok(Told::Report(Report { led: true, .. })) => server.led(),
                _ => {}
            }
            clock.sleep_until(clock.now() + interval).await;
        }
    });
}

/// Logs changes of the reign, for ever.
async fn watch(server: &CoordinatorServer, tick_ms: u64, on: &Spawner) {
    let (clock, mut before) = (on.clock(), Report::default());
    loop {
        clock.sleep_until(clock.now() + Duration::from_millis(tick_ms)).await;
        let now = server.report();
        log_changes(&before, &now);
        before = now;
    }
}

fn log_changes(before: &Report, now: &Report) {
    match (before.term, now.term) {
        (old, Some(term)) if old != now.term => {
            tracing::info!("leads in term {}", term.0);
            systemd::status(&format!("leads in term {}", term.0));
        }
        (Some(term), None) => {
            tracing::warn!("term {} is over: stands by", term.0);
            systemd::status("stands by");
        }
        _ => {}
    }
    if let Some(config) = &now.config {
        log_members(before.config.as_ref(), config);
    }
    for &(member, epoch) in now.others.iter().filter(|other| !before.others.contains(other)) {
        tracing::warn!("member {}: {}", member.0, other_disk(epoch));
    }
    let clients = |report: &Report| -> Vec<ClientId> {
        report.clients.iter().map(|joined| joined.client).collect()
    };
    let (old, new) = (clients(before), clients(now));
    for client in new.iter().filter(|client| !old.contains(client)) {
        tracing::info!("client {} joined", client.0);
    }
    for client in now.evicting.iter().filter(|client| !before.evicting.contains(client)) {
        tracing::warn!("client {} is being evicted", client.0);
    }
    if now.term == before.term {
        for client in before.evicting.iter().filter(|client| !now.evicting.contains(client)) {
            tracing::info!("client {} is fenced by all members", client.0);
        }
    }
    if let Some(epoch) = now.later.filter(|_| now.later != before.later) {
        let what = "a member knows epoch";
        tracing::error!("{what} {}, the store an earlier one: nothing is served", epoch.0);
    }
    if now.active != before.active && now.term.is_some() {
        tracing::info!("I/O {}", if now.active { "goes on" } else { "waits" });
    }
}

fn log_members(before: Option<&Config>, now: &Config) {
    for member in now.members() {
        let (old, new) = (before.map(|config| config.slot(member).state), now.slot(member).state);
        if old.is_some_and(|old| old != new) {
            tracing::warn!("epoch {}: member {} is {}", now.epoch.0, member.0, words_of(new));
        }
    }
}

fn words_of(state: State) -> &'static str {
    match state {
        State::InSync => "in sync",
        State::Rebuilding => "being rebuilt",
        State::Missing => "missing",
    }
}
