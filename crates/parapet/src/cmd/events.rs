//! `parapet events`: what has happened to an array.

use std::time::Duration;

use crate::api::Order;
use crate::client;
use crate::failure::{Exit, Result};
use crate::flags::Control;
use crate::terminal::Terminal;

/// Interval of the questions for new events.
const INTERVAL: Duration = Duration::from_secs(1);

/// Show the events of an array: failures, rebuilds, starts and stops
///
/// The history survives restarts of the server. Words are those of mdadm --monitor.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Name or UUID of the array [default: the only one]
    #[arg(value_name = "NAME")]
    name: Option<String>,
    /// Show new events as they come, until interrupted
    #[arg(long, short)]
    follow: bool,
    /// Make an event, to try who is told (serve --notify)
    #[arg(long, conflicts_with = "follow")]
    test: bool,
    #[command(flatten)]
    control: Control,
}

pub(crate) fn run(args: &Args, terminal: &Terminal) -> Result<Exit> {
    let (client, array) = client::find(args.control.path(), args.name.as_deref())?;
    if args.test {
        terminal.report(&client.order(&array.uuid, "notify-test", &Order::default())?);
        return Ok(Exit::Done);
    }
    let mut seen = 0;
    loop {
        let history = client.events(&array.uuid, seen)?;
        seen = history.events.last().map_or(seen, |event| event.number);
        if !args.follow {
            terminal.report(&history);
            return Ok(Exit::Done);
        }
        if !history.events.is_empty() {
            terminal.stream(&history);
        }
        std::thread::sleep(INTERVAL);
    }
}
