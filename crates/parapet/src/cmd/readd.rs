//! `parapet re-add`: returns a member to its slot.

use crate::api::Order;
use crate::client;
use crate::cmd::member_of;
use crate::failure::{Exit, Result};
use crate::flags::Control;
use crate::terminal::Terminal;

/// Return a former member to its slot; copies only changed regions
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Name or UUID of the array
    #[arg(value_name = "NAME")]
    name: String,
    /// Former member: path, or serial number or UUID of a faulty member
    #[arg(value_name = "DISK")]
    disk: String,
    #[command(flatten)]
    control: Control,
}

pub(crate) fn run(args: Args, terminal: &Terminal) -> Result<Exit> {
    let (client, array) = client::find(args.control.path(), Some(&args.name))?;
    let order = Order { member: Some(member_of(&args.disk, &array)), ..Order::default() };
    terminal.report(&client.order(&array.uuid, "re-add", &order)?);
    Ok(Exit::Done)
}
