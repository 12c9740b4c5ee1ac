//! `parapet replace`: copies a member to another disk while it stays in service.

use crate::api::Order;
use crate::client;
use crate::cmd::{absolute, member_of};
use crate::failure::{Exit, Result};
use crate::flags::{Control, Overwrite};
use crate::terminal::Terminal;

/// Copy a member to another disk while it stays in service, then let that take its place
///
/// Redundancy is never reduced: the other members are asked only for what cannot be read any more.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The array, by name or UUID
    #[arg(value_name = "NAME")]
    name: String,
    /// The member to replace: slot, serial number, UUID or path
    #[arg(value_name = "MEMBER")]
    member: String,
    /// The disk that takes its place; a spare of the array if left out
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
