//! `parapet cluster accept-loss`: serves regions again whose parity may be wrong.

use ::cluster::ids::MemberId;
use ::cluster::roles::Role;
use ::cluster::session::{Ask, Told};

use super::status::{PATIENCE, leader, status};
use crate::api::Changed;
use crate::cluster::file::ClusterArg;
use crate::cluster::links::{ask, unexpected};
use crate::engine;
use crate::failure::{Exit, Result};
use crate::flags::Consent;
use crate::terminal::{Answer, Terminal};

/// Serve inconsistent regions of level 5 or 6 again, whatever some of their blocks hold
///
/// A client died that was writing these regions, while a member was not in sync. Blocks of this
/// member are recovered by parity: those in stripes that the client was writing may become garbage.
/// Compare what lies in these regions with a backup.
///
/// For example: parapet cluster accept-loss pool.toml
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    cluster: ClusterArg,
    #[command(flatten)]
    consent: Consent,
}

pub(crate) fn run(args: &Args, terminal: &Terminal) -> Result<Exit> {
    let cluster = args.cluster.read()?;
    cluster.require(Role::Admin)?;
    let executor = engine::executor()?;
    let on = executor.spawner();
    let count = executor.block_on(status(&cluster, &on))?.inconsistent_regions;
    let mut message = format!("{}: {count} inconsistent regions", cluster.name);
    if count > 0 && !args.consent.dry_run {
        terminal.say(format!("{message}: some of their blocks may be garbage"));
        terminal.confirm(args.consent.yes, "Serve them again?", &Answer::Yes)?;
        message = executor.block_on(async {
            let (leader, hello) = (leader(&cluster, &on).await?, cluster.operator(MemberId(0)));
            match ask(&leader, &hello, &Ask::AcceptLoss, Some(PATIENCE), &on).await? {
                Told::Accepted(count) => Ok(format!("{count} regions are resynced and served")),
                told => Err(unexpected(&leader, told)),
            }
        })?;
    }
    terminal.report(&Changed { message, array: None });
    Ok(Exit::Done)
}
