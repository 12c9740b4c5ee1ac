//! `parapet stop`: stops an array in order.

use crate::api::Order;
use crate::client;
use crate::failure::{Exit, Result};
use crate::flags::Control;
use crate::terminal::Terminal;

/// Stop an array in order: requests under way are finished, members are marked clean
///
/// Its clients' connections end when what they have asked for is answered. A server whose last
/// array is stopped ends.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The array, by name or UUID
    #[arg(value_name = "NAME")]
    name: String,
    #[command(flatten)]
    control: Control,
}

pub(crate) fn run(args: &Args, terminal: &Terminal) -> Result<Exit> {
    let (client, array) =
        client::find_within(args.control.path(), Some(&args.name), client::QUESTION_TIMEOUT)?;
    terminal.report(&client.order(&array.uuid, "stop", &Order::default())?);
    Ok(Exit::Done)
}
