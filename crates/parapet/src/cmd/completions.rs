//! `parapet completions`: prints scripts that let shells complete commands.

use clap::CommandFactory;
use clap_complete::Shell;

use crate::api::Text;
use crate::failure::{Exit, Result};
use crate::flags::Cli;
use crate::terminal::Terminal;

/// Print completions for a shell
///
/// For example: parapet completions bash > /etc/bash_completion.d/parapet
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Shell
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

pub(crate) fn run(args: &Args, terminal: &Terminal) -> Result<Exit> {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "parapet", &mut text);
    let text = String::from_utf8_lossy(&text).into_owned();
    match terminal.is_json() {
        true => terminal.report(&Text { text }),
        false => terminal.data(&text),
    }
    Ok(Exit::Done)
}
