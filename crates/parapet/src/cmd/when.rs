//! `parapet when`: estimates the end of background work.

use jiff::{SignedDuration, Timestamp};

use crate::api::When;
use crate::client;
use crate::failure::{Exit, Result};
use crate::flags::Control;
use crate::terminal::Terminal;

/// Show the remaining time of a rebuild, resync or scrub
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Name or UUID of the array [default: the only one]
    #[arg(value_name = "NAME")]
    name: Option<String>,
    #[command(flatten)]
    control: Control,
}

pub(crate) fn run(args: &Args, terminal: &Terminal) -> Result<Exit> {
    let (_, array) =
        client::find_within(args.control.path(), args.name.as_deref(), client::QUESTION_TIMEOUT)?;
    let left = array.job.as_ref().and_then(|job| job.seconds_left);
    let left = left.and_then(|seconds| i64::try_from(seconds).ok()).map(SignedDuration::from_secs);
    let expected = left.and_then(|left| Timestamp::now().checked_add(left).ok());
    let expected = expected.and_then(|time| time.round(jiff::Unit::Second).ok());
    terminal.report(&When { name: array.name, uuid: array.uuid, job: array.job, expected });
    Ok(Exit::Done)
}
