//! `parapet add`: gives an array a new disk.

use crate::api::Order;
use crate::client;
use crate::cmd::whole;
use crate::failure::{Exit, Result};
use crate::flags::{Control, Overwrite};
use crate::terminal::Terminal;

/// Give an array a new disk: an empty slot takes it, else it waits as a spare
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The array, by name or UUID
    #[arg(value_name = "NAME")]
    name: String,
    /// The disk: a block device or a file
    #[arg(value_name = "DISK")]
    disk: String,
    #[command(flatten)]
    overwrite: Overwrite,
    #[command(flatten)]
    control: Control,
}

pub(crate) fn run(args: Args, terminal: &Terminal) -> Result<Exit> {
    let (client, array) = client::find(args.control.path(), Some(&args.name))?;
    let overwrite = args.overwrite.on(&args.disk);
    let order = Order { member: Some(whole(&args.disk)), overwrite, ..Order::default() };
    terminal.report(&client.order(&array.uuid, "add", &order)?);
    Ok(Exit::Done)
}
