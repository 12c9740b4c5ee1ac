//! `parapet stop`: stops an array in order.

use crate::api::Order;
use crate::client;
use crate::failure::{Exit, Result};
use crate::flags::Control;
use crate::terminal::Terminal;

/// Stop an array: finish the requests in flight and mark its members clean
///
/// Client connections end after their last answer. The server exits with its last array.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Name or UUID of the array
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
