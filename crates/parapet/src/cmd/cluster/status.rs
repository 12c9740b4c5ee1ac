//! `parapet cluster status`: what the coordinators and the members say.

use std::time::Duration;

use ::cluster::code;
use ::cluster::config::{Config, Level, Mode, State};
use ::cluster::ids::{Epoch, MemberId};
use ::cluster::session::{Ask, Report, Told};
use os::Spawner;

use crate::api::{CandidateView, ClusterClient, ClusterMember, ClusterState, ClusterStatus};
use crate::cluster::file::{Cluster, ClusterArg};
use crate::cluster::links::{Target, ask, unexpected};
use crate::engine;
use crate::failure::{Exit, Failure, Id, Result};
use crate::terminal::Terminal;

/// How long a process may take to answer.
pub(super) const PATIENCE: Duration = Duration::from_secs(2);

/// Show the state of a cluster
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    cluster: ClusterArg,
}

pub(crate) fn run(args: &Args, terminal: &Terminal) -> Result<Exit> {
    let cluster = args.cluster.read()?;
    let executor = engine::executor()?;
    let on = executor.spawner();
    let status = executor.block_on(status(&cluster, &on))?;
    terminal.report(&status);
    Ok(Exit::Done)
}

/// Asks all processes.
///
/// # Errors
/// If no coordinator answers.
pub(super) async fn status(cluster: &Cluster, on: &Spawner) -> Result<ClusterStatus> {
    let Candidates { views: candidates, newest: report, last } = candidates(cluster, on).await;
    if candidates.iter().all(|candidate| candidate.state == "unreachable") {
        return Err(silent(cluster, last));
    }
    let mut members = Vec::new();
    for (member, address) in cluster.slots() {
        members.push(member_of(cluster, &report, (member, &address), on).await);
    }
    let config = report.config.as_ref();
    let region_bytes = config.map_or(0, region_bytes);
    Ok(ClusterStatus {
        name: cluster.name.clone(),
        uuid: format!("{:032x}", cluster.array.0),
        state: state_of(&report),
        level: config.map_or(String::new(), |config| level_word(config.shape.level).into()),
        mode: config.map_or(String::new(), |config| mode_word(config.shape.mode).into()),
        capacity_bytes: config.map_or(0, |it| u64::from(it.shape.regions) * region_bytes),
        epoch: config.map_or(0, |config| config.epoch.0),
        later_epoch: report.later.map(|epoch| epoch.0),
        coordinators: candidates,
        members,
        members_needed: config.map_or(0, Config::needed),
        clients: clients_of(&report),
        unsynced_regions: report.unsync,
        inconsistent_regions: report.holes,
        resyncing: report.resyncing.map(|region| region.0),
        region_bytes,
    })
}

/// What all candidates say.
struct Candidates {
    /// The state of each.
    views: Vec<CandidateView>,
    /// The report of the one that leads.
    newest: Report,
    /// Why the last one that does not answer does not.
    last: Option<Failure>,
}

async fn candidates(cluster: &Cluster, on: &Spawner) -> Candidates {
    let (mut views, mut newest, mut last) = (Vec::new(), Report::default(), None);
    for address in cluster.candidates() {
        let hello = cluster.operator(MemberId(0));
        let told = ask(&address, &hello, &Ask::Report, Some(PATIENCE), on).await;
        let (state, term) = match told {
            Ok(Told::Report(report)) => {
                let term = report.term;
                if term > newest.term {
                    newest = report;
                }
                (if term.is_some() { "leads" } else { "stands_by" }, term)
            }
            other => {
                last = Some(other.map_or_else(|why| why, |told| unexpected(&address, told)));
                ("unreachable", None)
            }
        };
        let (address, state) = (address.to_string(), state.into());
        views.push(CandidateView { address, state, term: term.map(|term| term.0) });
    }
    Candidates { views, newest, last }
}

/// The address of the coordinator that leads.
///
/// # Errors
/// If none answers, or none leads.
pub(super) async fn leader(cluster: &Cluster, on: &Spawner) -> Result<Target> {
    let Candidates { views, newest, last } = candidates(cluster, on).await;
    let term = newest.term.map(|term| term.0);
    let mut places = views.iter().zip(cluster.candidates());
    match places.find(|(view, _)| term.is_some() && view.term == term) {
        Some((_, address)) => Ok(address),
        None if views.iter().any(|candidate| candidate.state == "stands_by") => {
            let message = format!("{}: no coordinator leads", cluster.name);
            let action = "wait some seconds; if it stays so, see the logs of the coordinators";
            Err(Failure::new(Id::WrongState, message, action))
        }
        None => Err(silent(cluster, last)),
    }
}

fn silent(cluster: &Cluster, last: Option<Failure>) -> Failure {
    let why = last.map(|last| format!(": {}", last.message)).unwrap_or_default();
    let message = format!("{}: no coordinator answers{why}", cluster.name);
    Failure::new(Id::Unreachable, message, "start one: parapet cluster coordinator FILE")
}

async fn member_of(
    cluster: &Cluster,
    report: &Report,
    (member, address): (MemberId, &Target),
    on: &Spawner,
) -> ClusterMember {
    let place = usize::from(member.0);
    let slot = report.config.as_ref().and_then(|config| config.slots.get(place));
    let hello = cluster.operator(member);
    let problem = match ask(address, &hello, &Ask::Describe, Some(PATIENCE), on).await {
        Ok(Told::Described(_, _, Some((label, epoch)))) => {
            let other = report.others.iter().any(|(other, _)| *other == member);
            let named = slot.is_none_or(|slot| slot.boot.is_of(label.disk));
            match (label.array, label.member) == (cluster.array, member) {
                false => Some(format!("this is member {} of {}", label.member.0, label.name)),
                true if !named => Some(other_disk(epoch).into()),
                true => other.then(|| ELSEWHERE.into()),
            }
        }
        Ok(Told::Described(..)) => Some(UNFORMATTED.into()),
        Ok(Told::Failed(why)) => Some(why),
        Ok(_) => Some("another kind of process answers".into()),
        Err(failure) => Some(failure.message),
    };
    let state = slot.map_or("unknown", |slot| state_word(slot.state));
    let stale_regions = report.stale.get(place).copied().unwrap_or(0);
    let (slot, address, state) = (member.0, address.to_string(), state.into());
    ClusterMember { slot, address, state, stale_regions, problem }
}

pub(super) fn state_word(state: State) -> &'static str {
    match state {
        State::InSync => "in_sync",
        State::Rebuilding => "rebuilding",
        State::Missing => "missing",
    }
}

/// A disk without a label.
pub(super) const UNFORMATTED: &str = "the disk is not formatted";
/// A disk that was a member.
pub(super) const REPLACED: &str = "this disk was replaced: stop its server";

/// The coordinator has another file.
const ELSEWHERE: &str = "the coordinator reaches another disk: copy the cluster file to its host, \
    and restart it";

/// What a disk of this epoch is that the coordinator does not count as the member.
pub(super) fn other_disk(epoch: Epoch) -> &'static str {
    match epoch {
        Epoch(0) => "a blank disk: it takes the slot when the member is missing",
        _ => REPLACED,
    }
}

fn clients_of(report: &Report) -> Vec<ClusterClient> {
    let mut clients: Vec<ClusterClient> = Vec::new();
    for joined in &report.clients {
        let evicting = report.evicting.contains(&joined.client);
        clients.push(ClusterClient {
            id: joined.client.0,
            state: if evicting { "evicting" } else { "joined" }.into(),
            incarnation: joined.incarnation.0,
            regions: joined.regions,
            silent_ms: joined.silent_ms,
        });
    }
    let others = report.evicting.iter().map(|id| (id, "evicting"));
    for (id, state) in others.chain(report.undeclared.iter().map(|id| (id, "undeclared"))) {
        if clients.iter().all(|known| known.id != id.0) {
            let (id, state) = (id.0, state.into());
            clients.push(ClusterClient { id, state, incarnation: 0, regions: 0, silent_ms: 0 });
        }
    }
    clients.sort_by_key(|client| client.id);
    clients
}

fn state_of(report: &Report) -> ClusterState {
    let Some(config) = &report.config else { return ClusterState::NoCoordinator };
    match report.active && config.serves() {
        false => ClusterState::Waiting,
        true if config.in_sync().count() == config.slots.len() => ClusterState::Optimal,
        true => ClusterState::Degraded,
    }
}

pub(super) fn region_bytes(config: &Config) -> u64 {
    let stripe = code::stripe_bytes(&config.shape, config.slots.len()) as u64;
    u64::from(config.shape.region_blocks) * stripe
}

pub(super) fn level_word(level: Level) -> &'static str {
    match level {
        Level::Mirror => "raid1",
        Level::Fragments => "raid3.5",
        Level::Raid5 => "raid5",
        Level::Raid6 => "raid6",
    }
}

pub(super) fn mode_word(mode: Mode) -> &'static str {
    match mode {
        Mode::Shared => "shared",
        Mode::Exclusive => "exclusive",
    }
}
