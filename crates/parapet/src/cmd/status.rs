//! `parapet status`: how an array is, what is wrong, and what to do about it.

use crate::client;
use crate::failure::{Exit, Result};
use crate::flags::{self, Control};
use crate::terminal::Terminal;

/// Show how an array is, what is wrong, and what to do about it
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The array, by name or UUID; may be left out if there is only one
    #[arg(value_name = "NAME")]
    name: Option<String>,
    #[command(flatten)]
    control: flags::Control,
}

pub(crate) fn run(args: &Args, terminal: &Terminal) -> Result<Exit> {
    let (_, array) = client::find(Control::path(&args.control), args.name.as_deref())?;
    terminal.report(&array);
    Ok(Exit::Done)
}
