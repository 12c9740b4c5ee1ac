//! `parapet completions`: prints scripts that let shells complete commands.

use clap_complete::Shell;

use crate::api::Text;
use crate::completion;
use crate::failure::{Exit, Result};
use crate::terminal::Terminal;

/// Print completions for a shell
///
/// They ask the program, which knows the arrays that are served, and their members. For example:
/// parapet completions bash > /etc/bash_completion.d/parapet
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Shell
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

pub(crate) fn run(args: &Args, terminal: &Terminal) -> Result<Exit> {
    let text = completion::registration(&args.shell.to_string()).unwrap_or_default();
    match terminal.is_json() {
        true => terminal.report(&Text { text }),
        false => terminal.data(&text),
    }
    Ok(Exit::Done)
}
