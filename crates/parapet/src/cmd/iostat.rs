//! `parapet iostat`: what the members of an array do.

use std::time::{Duration, Instant};

use crate::api::Iostat;
use crate::client;
use crate::failure::{Exit, Result};
use crate::flags::Control;
use crate::terminal::Terminal;

/// Show the bytes that each member reads and writes, and its latency
///
/// The first report has the totals since the start of the array; each further one the rates of the
/// seconds before it.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Name or UUID of the array [default: the only one]
    #[arg(value_name = "NAME")]
    name: Option<String>,
    /// Report again every so many seconds
    #[arg(long, short, value_name = "SECONDS",
        value_parser = clap::value_parser!(u32).range(1..=86_400))]
    interval: Option<u32>,
    /// End after so many reports [default: with an interval, when interrupted]
    #[arg(long, short, value_name = "COUNT", requires = "interval",
        value_parser = clap::value_parser!(u32).range(1..))]
    count: Option<u32>,
    #[command(flatten)]
    control: Control,
}

pub(crate) fn run(args: &Args, terminal: &Terminal) -> Result<Exit> {
    let (client, mut array) = client::find(args.control.path(), args.name.as_deref())?;
    let mut at = Instant::now();
    terminal.stream(&Iostat::of(&array, None));
    let Some(interval) = args.interval else { return Ok(Exit::Done) };
    for _ in 1..args.count.unwrap_or(u32::MAX) {
        std::thread::sleep(Duration::from_secs(interval.into()));
        let now = client.array(&array.uuid)?;
        let seconds = at.elapsed().as_secs_f64();
        at = Instant::now();
        terminal.stream(&Iostat::of(&now, Some((&array, seconds))));
        array = now;
    }
    Ok(Exit::Done)
}
