//! `parapet list`: one line for each served array, and for each unserved one in a folder.

use std::path::PathBuf;

use crate::api::List;
use crate::cmd::serve::resting;
use crate::failure::{Exit, Result};
use crate::flags::{AnswerTimeout, Control};
use crate::terminal::Terminal;
use crate::{client, engine};

/// List served arrays
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    scan: Scan,
    #[command(flatten)]
    control: Control,
    #[command(flatten)]
    timeout: AnswerTimeout,
}

/// Where arrays are that are not served.
#[derive(clap::Args)]
pub(super) struct Scan {
    /// List arrays that are not served, too, by the disks in this folder
    #[arg(long, value_name = "DIR")]
    scan: Option<PathBuf>,
}

impl Scan {
    /// Adds the arrays that are not served.
    pub(super) fn look(&self, list: &mut List) -> Result<()> {
        let Some(folder) = &self.scan else { return Ok(()) };
        let executor = engine::executor()?;
        let on = executor.spawner();
        let mut found = executor.block_on(resting(folder, &on))?;
        found.retain(|array| list.arrays.iter().all(|served| served.uuid != array.uuid));
        list.resting = found;
        Ok(())
    }
}

pub(crate) fn run(args: &Args, terminal: &Terminal) -> Result<Exit> {
    let mut list = client::everything(args.control.path(), args.timeout.get())?;
    args.scan.look(&mut list)?;
    terminal.report(&list);
    Ok(Exit::Done)
}
