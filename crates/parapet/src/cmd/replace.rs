//! `parapet replace`: copies a member to another disk while it stays in service.

use crate::api::Order;
use crate::client;
use crate::cmd::{absolute, member_of};
use crate::failure::{Exit, Result};
use crate::flags::{Control, Overwrite};
use crate::terminal::Terminal;

/// Copy a member to another disk, then swap them; the member stays in service
///
/// Redundancy stays complete. Blocks that the member cannot read are computed from the others.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Name or UUID of the array
    #[arg(value_name = "NAME")]
    name: String,
    /// Member to replace: slot, serial number, UUID or path
    #[arg(value_name = "MEMBER")]
    member: String,
    /// New disk [default: a spare of the array]
    #[arg(value_name = "DISK")]
    with: Option<String>,
    #[command(flatten)]
    overwrite: Overwrite,
    #[command(flatten)]
    control: Control,
}

pub(crate) fn run(args: Args, terminal: &Terminal) -> Result<Exit> {
    let (client, array) = client::find(args.control.path(), Some(&args.name))?;
    let overwrite = args.overwrite.on(args.with.as_deref().unwrap_or_default());
    let with = args.with.as_deref().map(absolute);
    let order = Order {
        member: Some(member_of(&args.member, &array)),
        with,
        overwrite,
        ..Order::default()
    };
    terminal.report(&client.order(&array.uuid, "replace", &order)?);
    Ok(Exit::Done)
}
