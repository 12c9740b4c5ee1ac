//! `parapet config`: tests and shows the configuration of `parapet daemon`.

use crate::api::{Configuration, ConfigurationSetting, Text};
use crate::cmd::daemon::ConfigFile;
use crate::failure::{Exit, Result};
use crate::machine::settings;
use crate::terminal::Terminal;

/// Test or show the configuration of `parapet daemon`
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    /// Test the configuration: a mistake is named with its file and line
    Check(ConfigFile),
    /// Show every setting in force
    Show {
        #[command(flatten)]
        files: ConfigFile,
        /// Show where each setting comes from
        #[arg(long)]
        origin: bool,
    },
}

pub(crate) fn run(args: &Args, terminal: &Terminal) -> Result<Exit> {
    match &args.what {
        What::Check(files) => {
            settings::read(files.config.as_deref())?;
            terminal.report(&Text { text: "the configuration has no mistake\n".into() });
        }
        What::Show { files, origin } => {
            let loaded = settings::read(files.config.as_deref())?;
            let shown = loaded.settings().into_iter().map(|setting| ConfigurationSetting {
                key: setting.key,
                value: setting.value,
                origin: setting.origin,
            });
            terminal.report(&Configuration { settings: shown.collect(), origins: *origin });
        }
    }
    Ok(Exit::Done)
}
