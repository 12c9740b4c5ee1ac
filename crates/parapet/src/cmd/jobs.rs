//! `parapet jobs`: the background work of all arrays.

use crate::api::{ArrayJob, Jobs};
use crate::client;
use crate::failure::{Exit, Result};
use crate::flags::{AnswerTimeout, Control};
use crate::terminal::Terminal;

/// Show rebuilds, replacements, resyncs and scrubs that are running
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Name or UUID of the array [default: all arrays]
    #[arg(value_name = "NAME")]
    name: Option<String>,
    #[command(flatten)]
    control: Control,
    #[command(flatten)]
    timeout: AnswerTimeout,
}

pub(crate) fn run(args: &Args, terminal: &Terminal) -> Result<Exit> {
    let (control, timeout) = (args.control.path(), args.timeout.get());
    let (arrays, silent) = match &args.name {
        None => {
            let list = client::everything(control, timeout)?;
            (list.arrays, list.silent)
        }
        name => (vec![client::find_within(control, name.as_deref(), timeout)?.1], Vec::new()),
    };
    let of = |array: crate::api::Array| {
        Some(ArrayJob { name: array.name, uuid: array.uuid, job: array.job? })
    };
    terminal.report(&Jobs { jobs: arrays.into_iter().filter_map(of).collect(), silent });
    Ok(Exit::Done)
}
