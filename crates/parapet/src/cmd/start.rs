//! `parapet start`: starts an array in the daemon.

use crate::api::Order;
use crate::client::Client;
use crate::failure::{Exit, Result};
use crate::flags::Control;
use crate::places;
use crate::terminal::Terminal;

/// Start an array in the daemon, also without its missing members
///
/// The daemon starts arrays by itself; this starts one that was stopped, or does not wait for
/// missing members. Without a daemon: parapet serve.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Name or UUID of the array
    #[arg(value_name = "NAME")]
    name: String,
    #[command(flatten)]
    control: Control,
}

pub(crate) fn run(args: &Args, terminal: &Terminal) -> Result<Exit> {
    let usual = places::control_of("daemon");
    let client = Client::at(args.control.path().unwrap_or(&usual));
    terminal.report(&client.order(&args.name, "start", &Order::default())?);
    Ok(Exit::Done)
}
