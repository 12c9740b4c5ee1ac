//! `parapet cluster`: several hosts that share one array.

use clap::Subcommand;

use crate::failure::{Exit, Result};
use crate::terminal::Terminal;

mod accept_loss;
mod client;
mod coordinator;
mod create;
mod evict;
mod explain;
mod key;
mod replace;
mod status;

/// Share one array among several hosts
///
/// Each disk has a server (`parapet serve-disk`), each host that uses the array a client, and
/// coordinators decide. docs/cluster.md leads through it.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: ClusterVerb,
}

#[derive(Subcommand)]
enum ClusterVerb {
    Create(create::Args),
    Coordinator(coordinator::Args),
    Client(client::Args),
    Status(status::Args),
    Explain(explain::Args),
    Evict(evict::Args),
    AcceptLoss(accept_loss::Args),
    Replace(replace::Args),
    Key(key::Args),
}

impl Args {
    /// Returns true for a verb that runs as a server.
    pub(crate) fn is_server(&self) -> bool {
        matches!(self.verb, ClusterVerb::Coordinator(_) | ClusterVerb::Client(_))
    }
}

pub(crate) fn run(args: Args, terminal: &Terminal) -> Result<Exit> {
    match args.verb {
        ClusterVerb::Create(args) => create::run(&args, terminal),
        ClusterVerb::Coordinator(args) => coordinator::run(&args, terminal),
        ClusterVerb::Client(args) => client::run(&args, terminal),
        ClusterVerb::Status(args) => status::run(&args, terminal),
        ClusterVerb::Explain(args) => explain::run(&args, terminal),
        ClusterVerb::Evict(args) => evict::run(&args, terminal),
        ClusterVerb::AcceptLoss(args) => accept_loss::run(&args, terminal),
        ClusterVerb::Replace(args) => replace::run(&args, terminal),
        ClusterVerb::Key(args) => key::run(&args, terminal),
    }
}
