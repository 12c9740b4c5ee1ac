//! `parapet add`: adds a disk to an array.

use crate::api::Order;
use crate::client;
use crate::cmd::whole;
use crate::failure::{Exit, Result};
use crate::flags::{Control, Overwrite};
use crate::terminal::Terminal;

/// Add a disk; it fills a missing slot, otherwise becomes a spare
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Name or UUID of the array
    #[arg(value_name = "NAME")]
    name: String,
    /// Block device or file
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
