//! `parapet cluster evict`: fences a client, as a fence agent needs it.

use std::time::Duration;

use ::cluster::ids::{ClientId, MemberId};
use ::cluster::roles::Role;
use ::cluster::session::{Ask, Told};

use super::status::leader;
use crate::api::Changed;
use crate::cluster::file::ClusterArg;
use crate::cluster::links::{ask, unexpected};
use crate::engine;
use crate::failure::{Exit, Failure, Id, Result};
use crate::terminal::Terminal;

/// Evict a client: no write of it changes anything any more
///
/// Returns only after all members have fenced it, so that its locks may be broken. The client
/// returns by a restart of its process, after whatever used its disk has been unmounted.
///
/// For example: parapet cluster evict pool.toml 2
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    cluster: ClusterArg,
    /// Id of the client
    #[arg(value_name = "CLIENT")]
    client: u32,
    /// Give up after this time; the eviction goes on
    #[arg(long, value_name = "SECONDS", default_value_t = 60,
        value_parser = clap::value_parser!(u64).range(1..=3600))]
    timeout: u64,
}

pub(crate) fn run(args: &Args, terminal: &Terminal) -> Result<Exit> {
    let cluster = args.cluster.read()?;
    cluster.require(Role::Admin)?;
    let executor = engine::executor()?;
    let on = executor.spawner();
    let (client, patience) = (args.client, Duration::from_secs(args.timeout));
    let message = executor.block_on(async {
        let leader = leader(&cluster, &on).await?;
        let (hello, evict) = (cluster.operator(MemberId(0)), Ask::Evict(ClientId(client)));
        let told = ask(&leader, &hello, &evict, Some(patience), &on).await;
        match told {
            Ok(Told::Evicted(upto)) => {
                Ok(format!("client {client} is fenced up to its incarnation {}", upto.0))
            }
            Ok(Told::NeverJoined) => {
                let message = format!("client {client}: no client of this id has ever joined");
                Err(Failure::new(Id::NoMember, message, "parapet cluster status shows the clients"))
            }
            Ok(Told::Failed(why)) => {
                let message = format!("client {client} is not fenced: {leader}: {why}");
                Err(Failure::new(Id::WrongState, message, "repeat the command"))
            }
            Ok(told) => Err(unexpected(&leader, told)),
            Err(mut failure) => {
                failure.message = format!("client {client} may not be fenced: {}", failure.message);
                failure.action = "repeat the command".into();
                Err(failure)
            }
        }
    })?;
    terminal.report(&Changed { message, array: None });
    Ok(Exit::Done)
}
