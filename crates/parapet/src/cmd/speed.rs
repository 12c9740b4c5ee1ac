//! `parapet speed`: changes the limits of background work while it runs.

use crate::api::{Changed, Order, Speed};
use crate::client;
use crate::failure::{Exit, Result};
use crate::flags::{Control, SpeedLimits, UNLIMITED};
use crate::terminal::Terminal;

/// Show or set the speed limits of rebuild, resync and scrub
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Name or UUID of the array
    #[arg(value_name = "NAME")]
    name: String,
    #[command(flatten)]
    limits: SpeedLimits,
    #[command(flatten)]
    control: Control,
}

pub(crate) fn run(args: &Args, terminal: &Terminal) -> Result<Exit> {
    let (client, array) = client::find(args.control.path(), Some(&args.name))?;
    if args.limits.speed_min.is_none() && args.limits.speed_max.is_none() {
        let message = format!("{}: background work goes {}", array.name, array.speed.sentence());
        terminal.report(&Changed { message, array: Some(array) });
        return Ok(Exit::Done);
    }
    let max = match args.limits.speed_max {
        None => array.speed.max,
        Some(max) => Some(max.0).filter(|&max| max != UNLIMITED),
    };
    // A minimum that the user did not name is lowered to the maximum.
    let min = match args.limits.speed_min {
        Some(min) => min.0,
        None => array.speed.min.min(max.unwrap_or(UNLIMITED)),
    };
    let order = Order { speed: Some(Speed { min, max }), ..Order::default() };
    terminal.report(&client.order(&array.uuid, "speed", &order)?);
    Ok(Exit::Done)
}
