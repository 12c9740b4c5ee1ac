//! `parapet man`: the manual, one page a verb.

use std::path::PathBuf;

use clap::CommandFactory;

use crate::api::Text;
use crate::failure::{Exit, Result, of_path};
use crate::flags::Cli;
use crate::terminal::Terminal;

/// Write the manual pages to a folder
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Folder; created if missing
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

pub(crate) fn run(args: &Args, terminal: &Terminal) -> Result<Exit> {
    let folder = &args.folder;
    let failed = |error: std::io::Error| of_path(folder, &error);
    std::fs::create_dir_all(folder).map_err(failed)?;
    let command = Cli::command().disable_help_subcommand(true);
    clap_mangen::generate_to(command, folder).map_err(failed)?;
    let page = crate::places::quoted(&folder.join("parapet.1").display().to_string());
    let text = format!("see them with: man -l {page}");
    match terminal.is_json() {
        true => terminal.report(&Text { text }),
        false => terminal.say(text),
    }
    Ok(Exit::Done)
}
