//! `parapet status`: shows the state of an array, its problems, and the remedies.

use std::time::Duration;

use crate::api::List;
use crate::client;
use crate::cmd::list::Scan;
use crate::failure::{Exit, Result};
use crate::flags::{AnswerTimeout, Control};
use crate::terminal::Terminal;

/// Show state, members, jobs and problems of arrays, with the next step for each problem
#[derive(clap::Args)]
#[command(alias = "detail")]
pub(crate) struct Args {
    /// Name or UUID of the array [default: all arrays]
    #[arg(value_name = "NAME")]
    name: Option<String>,
    /// Show it again every so many seconds, until interrupted
    #[arg(long, short, value_name = "SECONDS",
        value_parser = clap::value_parser!(u32).range(1..=86_400))]
    watch: Option<u32>,
    #[command(flatten)]
    scan: Scan,
    #[command(flatten)]
    control: Control,
    #[command(flatten)]
    timeout: AnswerTimeout,
}

pub(crate) fn run(args: &Args, terminal: &Terminal) -> Result<Exit> {
    let Some(seconds) = args.watch else { return show(args, terminal) };
    loop {
        terminal.clear();
        show(args, terminal)?;
        std::thread::sleep(Duration::from_secs(seconds.into()));
    }
}

fn show(args: &Args, terminal: &Terminal) -> Result<Exit> {
    let (control, timeout) = (args.control.path(), args.timeout.get());
    if args.name.is_none() {
        let mut list = client::everything(control, timeout)?;
        args.scan.look(&mut list)?;
        if list.arrays.len() > 1 || !list.resting.is_empty() {
            report_all(&list, terminal);
            return Ok(Exit::Done);
        }
    }
    let (_, array) = client::find_within(control, args.name.as_deref(), timeout)?;
    terminal.report(&array);
    Ok(Exit::Done)
}

/// The arrays in sequence; in JSON, the same list as `list`.
fn report_all(list: &List, terminal: &Terminal) {
    if terminal.is_json() {
        return terminal.report(list);
    }
    for (index, array) in list.arrays.iter().enumerate() {
        if index > 0 {
            terminal.data("");
        }
        terminal.report(array);
    }
    if !list.resting.is_empty() {
        if !list.arrays.is_empty() {
            terminal.data("");
        }
        terminal.report(&List { resting: list.resting.clone(), ..List::default() });
    }
    list.silent.iter().for_each(|silent| terminal.say(format!("no answer: {silent}")));
}
