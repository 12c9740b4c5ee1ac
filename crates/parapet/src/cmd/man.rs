//! `parapet man`: writes the manual, one page for each verb.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};

use clap::CommandFactory;

use crate::api::Text;
use crate::failure::{Exit, Result, of_path};
use crate::flags::Cli;
use crate::terminal::Terminal;

/// The end of every page, unless its verb replaces it.
const EXIT_STATUS: &str = ".SH \"EXIT STATUS\"
0 done, 1 failed, 2 usage, 3 refused by a safety guard, 4 server unreachable or permission denied, \
5 no such array or disk, 6 timed out.
";
const LAST_SECTIONS: &str = ".SH FILES
.TP
.I /run/parapet/NAME.sock
Control socket of the server of the array NAME; of other users than root in $XDG_RUNTIME_DIR/parapet
.TP
.I /var/lib/parapet/undo
Copies of what was overwritten, for \\fBparapet\\-undestroy\\fR(1); of other users than root in \
~/.local/state/parapet
.SH \"SEE ALSO\"
.BR parapet (1),
.BR mdadm (8),
.BR nbd\\-client (8),
.BR qemu\\-nbd (8)
";

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
    for verb in Cli::command().get_subcommands() {
        let page = folder.join(format!("parapet-{}.1", verb.get_name()));
        // `health` has the statuses of monitoring plugins, and its help lists them.
        let statuses = if verb.get_name() == "health" { "" } else { EXIT_STATUS };
        add(&page, &[statuses, LAST_SECTIONS])?;
    }
    add(&folder.join("parapet.1"), &[LAST_SECTIONS])?;
    let page = crate::places::quoted(&folder.join("parapet.1").display().to_string());
    let text = format!("see them with: man -l {page}");
    match terminal.is_json() {
        true => terminal.report(&Text { text }),
        false => terminal.say(text),
    }
    Ok(Exit::Done)
}

/// Adds sections to a page.
fn add(page: &Path, sections: &[&str]) -> Result<()> {
    let failed = |error: std::io::Error| of_path(page, &error);
    let mut file = OpenOptions::new().append(true).open(page).map_err(failed)?;
    sections.iter().try_for_each(|text| file.write_all(text.as_bytes())).map_err(failed)
}
