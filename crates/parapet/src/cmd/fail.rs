//! `parapet fail`: takes a member out of service, as if it had failed.

use crate::api::Order;
use crate::client;
use crate::cmd::absolute;
use crate::failure::{Exit, Result};
use crate::flags::Control;
use crate::terminal::Terminal;

/// Take a member out of service, as if it had failed
///
/// Refused where data would be lost. A spare, if there is one, takes the place at once.
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
    terminal.report(&client.order(&array.uuid, "fail", &order)?);
    Ok(Exit::Done)
}
