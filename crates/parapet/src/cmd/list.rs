//! `parapet list`: one line for each array that is being served.

use crate::client;
use crate::failure::{Exit, Result};
use crate::flags::{AnswerTimeout, Control};
use crate::terminal::Terminal;

/// List served arrays
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    control: Control,
    #[command(flatten)]
    timeout: AnswerTimeout,
}

pub(crate) fn run(args: &Args, terminal: &Terminal) -> Result<Exit> {
    terminal.report(&client::everything(args.control.path(), args.timeout.get())?);
    Ok(Exit::Done)
}
