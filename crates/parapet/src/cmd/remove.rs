//! `parapet remove`: lets go of a spare, or of a member that has failed.

use crate::api::Order;
use crate::client;
use crate::cmd::absolute;
use crate::failure::{Exit, Result};
use crate::flags::Control;
use crate::terminal::Terminal;

/// Let go of a spare, or of a member that has failed
///
/// Refused while the member holds a slot: `parapet fail` it first, or `parapet replace` it.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The array, by name or UUID
    #[arg(value_name = "NAME")]
    name: String,
    /// The member: slot, serial number, UUID or path
    #[arg(value_name = "MEMBER")]
    member: String,
    #[command(flatten)]
    control: Control,
}

pub(crate) fn run(args: &Args, terminal: &Terminal) -> Result<Exit> {
    let (client, array) = client::find(args.control.path(), Some(&args.name))?;
    let order = Order { member: Some(absolute(&args.member)), ..Order::default() };
    terminal.report(&client.order(&array.uuid, "remove", &order)?);
    Ok(Exit::Done)
}
