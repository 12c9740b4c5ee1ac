//! `parapet clear`: resets the error counters of members.

use crate::api::Order;
use crate::client;
use crate::cmd::member_of;
use crate::failure::{Exit, Result};
use crate::flags::Control;
use crate::terminal::Terminal;

/// Reset the error counters of members
///
/// A restart of the server resets them, too. Nothing on the members changes.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Name or UUID of the array
    #[arg(value_name = "NAME")]
    name: String,
    /// Member: slot, serial number, UUID or path [default: all members]
    #[arg(value_name = "MEMBER")]
    member: Option<String>,
    #[command(flatten)]
    control: Control,
}

pub(crate) fn run(args: &Args, terminal: &Terminal) -> Result<Exit> {
    let (client, array) = client::find(args.control.path(), Some(&args.name))?;
    let member = args.member.as_ref().map(|member| member_of(member, &array));
    let order = Order { member, ..Order::default() };
    terminal.report(&client.order(&array.uuid, "clear", &order)?);
    Ok(Exit::Done)
}
