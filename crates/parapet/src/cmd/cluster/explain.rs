//! `parapet cluster explain`: the state in sentences, and what the next failure would do.

use super::status::{REPLACED, UNFORMATTED, status};
use crate::api::{ClusterExplained, ClusterState, ClusterStatus, Sentence};
use crate::cluster::file::{Cluster, ClusterArg};
use crate::engine;
use crate::failure::{Exit, Result};
use crate::size::Size;
use crate::terminal::Terminal;

/// Explain the state of a cluster: who leads, who holds what, what one more failure would do
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
    let sentences = sentences(&cluster, &status);
    terminal.report(&ClusterExplained { status, sentences });
    Ok(Exit::Done)
}

fn sentences(cluster: &Cluster, status: &ClusterStatus) -> Vec<Sentence> {
    let mut all = Vec::new();
    let mut say = |subject: &str, text: String| {
        all.push(Sentence { subject: subject.into(), text });
    };
    say("now", now(status));
    coordinators(status).into_iter().for_each(|text| say("coordinator", text));
    members(status).into_iter().for_each(|text| say("members", text));
    clients(status).into_iter().for_each(|text| say("clients", text));
    if status.state != ClusterState::NoCoordinator {
        next(cluster, status).into_iter().for_each(|text| say("next failure", text));
    }
    all
}

fn now(status: &ClusterStatus) -> String {
    if let Some(epoch) = status.later_epoch {
        return format!(
            "nothing is served: the store has epoch {}, a member epoch {epoch}; restore the \
             store's latest content",
            status.epoch
        );
    }
    match status.state {
        ClusterState::Optimal => "all members are in sync; requests are served".into(),
        ClusterState::Degraded => "requests are served, with less redundancy".into(),
        ClusterState::Waiting => format!(
            "requests wait: {} members are in sync, {} are needed and must answer, or a change is \
             under way",
            status.in_sync(),
            status.members_needed
        ),
        ClusterState::NoCoordinator => {
            "no coordinator leads: clients write only where they hold a region already".into()
        }
    }
}

fn coordinators(status: &ClusterStatus) -> Vec<String> {
    let sentence = |candidate: &crate::api::CandidateView| {
        let address = &candidate.address;
        match (candidate.state.as_str(), candidate.term) {
            (_, Some(term)) => format!("{address} leads in term {term}"),
            ("stands_by", _) => format!("{address} stands by"),
            _ => format!("{address} does not answer"),
        }
    };
    status.coordinators.iter().map(sentence).collect()
}

fn members(status: &ClusterStatus) -> Vec<String> {
    let regions = |count| regions(count, status);
    let mut all = Vec::new();
    for member in &status.members {
        let (slot, stale) = (member.slot, member.stale_regions);
        match member.state.as_str() {
            "rebuilding" => all.push(format!(
                "member {slot} gets every write; {} are still to be rebuilt",
                regions(stale)
            )),
            "missing" => {
                let does = match member.problem.as_deref() {
                    Some(UNFORMATTED) => {
                        "its server has an empty disk, which `parapet cluster replace` makes the \
                         member"
                    }
                    Some(REPLACED) => "it is rebuilt when its own disk is served",
                    _ => {
                        "start its server, and it is rebuilt; if its disk is dead, `parapet \
                         cluster replace` rebuilds it onto another one"
                    }
                };
                all.push(format!("member {slot} is missing, {} behind: {does}", regions(stale)));
            }
            _ if member.problem.is_some() && status.state == ClusterState::Waiting => {
                all.push(format!("member {slot} is needed: start its server"));
            }
            _ => {}
        }
        if let Some(problem) = &member.problem {
            all.push(format!("member {slot}: {problem}"));
        }
    }
    if all.is_empty() {
        all.push(format!("all {} answer", status.members.len()));
    }
    all
}

fn clients(status: &ClusterStatus) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for client in &status.clients {
        let id = client.id;
        all.push(match client.state.as_str() {
            "evicting" => format!("client {id} is being evicted: all members must fence it first"),
            "undeclared" => {
                format!("client {id} held regions in an earlier reign and was not heard since")
            }
            _ => format!("client {id} holds {}", regions(client.regions, status)),
        });
    }
    let inconsistent = status.inconsistent_regions;
    if status.unsynced_regions > inconsistent {
        let count = regions(status.unsynced_regions - inconsistent, status);
        all.push(format!("{count} of dead clients to be resynced"));
    }
    if inconsistent > 0 {
        let count = regions(inconsistent, status);
        all.push(format!(
            "a client died that was writing {count} while a member was not in sync: parity may \
             be wrong there. Writes there fail, and reads of what that member holds. Compare with \
             a backup; `parapet cluster accept-loss` serves them again"
        ));
    }
    if all.is_empty() {
        all.push("none is joined".into());
    }
    all
}

/// A number of regions, in words.
fn regions(count: u32, status: &ClusterStatus) -> String {
    let region = Size(status.region_bytes);
    match count {
        0 => "no region".into(),
        1 => format!("1 region of {region}"),
        _ => format!("{count} regions of {region}"),
    }
}

fn next(cluster: &Cluster, status: &ClusterStatus) -> Vec<String> {
    let seconds = |ms: u64| format!("{:.0} s", (ms as f64 / 1000.0).ceil());
    let timing = &cluster.timing;
    let mut all = Vec::new();
    let spare = status.in_sync().saturating_sub(status.members_needed);
    let member = seconds(timing.member_ms + 5 * timing.tick_ms);
    all.push(match (status.in_sync() >= status.members_needed, spare) {
        (false, _) => "a member: the requests that wait go on waiting; no data is lost".into(),
        (true, 0) => "a member: requests wait until it is back; no flushed data is lost \
            unless its disk is"
            .into(),
        (true, 1) => format!("a member: requests stand still for about {member}, then go on"),
        (true, more) => format!(
            "a member: requests stand still for about {member}, then go on; {more} may fail in all"
        ),
    });
    let lease = seconds(timing.lease_ms + 5 * timing.tick_ms);
    all.push(format!(
        "a client: it is fenced after about {lease}; until then, others wait where it held regions \
         exclusively, and its regions are resynced"
    ));
    let standby = status.coordinators.iter().any(|candidate| candidate.state == "stands_by");
    // The second candidate waits half as long again as the first.
    let takeover = seconds(timing.takeover_ms * 3 / 2 + 5 * timing.tick_ms);
    all.push(match standby {
        true => format!("the coordinator: another takes over after about {takeover}"),
        false => "the coordinator: writes to new regions wait until one is started; there is no \
            standby"
            .into(),
    });
    all
}
