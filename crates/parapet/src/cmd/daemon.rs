//! `parapet daemon`: runs all arrays of a machine, in the foreground.

use std::path::PathBuf;

use crate::cmd::serve::Outlets;
use crate::failure::{Exit, Result, of_path};
use crate::flags::Control;
use crate::machine::{Machine, settings};
use crate::places;
use crate::terminal::Terminal;

/// Serve all arrays of this machine, as its configuration says, until stopped
///
/// Finds the members of arrays in the configured folders, also of disks that are plugged in later;
/// starts an array without its missing members after a while; adds a disk that comes back; scrubs
/// on a schedule; moves spares between the arrays of a group. SIGHUP reloads the configuration.
///
/// For example: parapet daemon --config parapet.toml
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    files: ConfigFile,
    /// Control socket [default: daemon.sock in the folder of control sockets]
    #[arg(long, value_name = "unix:PATH", env = "PARAPET_CONTROL",
        value_parser = crate::flags::unix_path)]
    control: Option<PathBuf>,
}

/// Where the configuration is.
#[derive(clap::Args)]
pub(crate) struct ConfigFile {
    /// Configuration (TOML), with the files of conf.d beside it
    /// [default: /etc/parapet/parapet.toml]
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}

pub(crate) fn run(args: Args, terminal: &Terminal) -> Result<Exit> {
    let loaded = settings::read(args.files.config.as_deref())?;
    let control = args.control.unwrap_or_else(|| places::control_of("daemon"));
    if places::is_control(&control) {
        make_private(&places::runtime())?;
    }
    let outlets = Outlets::configured(&loaded, Control { control: Some(control) })?;
    let threads = usize::from(loaded.config.arrays.threads);
    outlets.serve(threads, terminal, async |daemon| {
        Machine::start(daemon, args.files.config.clone(), loaded).await;
        Ok(())
    })
}

fn make_private(folder: &std::path::Path) -> Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    std::os::unix::fs::DirBuilderExt::mode(builder.recursive(true), 0o700);
    builder.create(folder).map_err(|error| of_path(folder, &error))
}
