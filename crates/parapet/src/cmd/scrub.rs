//! `parapet scrub`: compares all data with its redundancy.

use clap::ValueEnum;

use crate::api::Order;
use crate::client;
use crate::failure::{Exit, Result};
use crate::flags::Control;
use crate::terminal::Terminal;

/// Compare all data with its redundancy; `repair` corrects mismatches
///
/// `check` repairs unreadable blocks and checksum errors, as every read does, and nothing else.
/// `repair` also corrects mismatches between members.
///
/// RAID 6 and mirrors of three or more identify the wrong member and repair it. RAID 4, RAID 5 and
/// two-way mirrors cannot without checksums: their repair recomputes parity from the data, or
/// copies the first copy over the second.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Name or UUID of the array
    #[arg(value_name = "NAME")]
    name: String,
    /// Action
    #[arg(value_name = "WHAT", default_value = "check")]
    what: What,
    #[command(flatten)]
    control: Control,
}

/// What a scrub does.
#[derive(Clone, Copy, ValueEnum)]
enum What {
    /// Compare; repair read errors and checksum errors only
    Check,
    /// Compare; repair read errors, checksum errors and mismatches
    Repair,
    /// Stop the running scrub
    Stop,
    /// Go on where a scrub was stopped or interrupted
    Resume,
}

pub(crate) fn run(args: &Args, terminal: &Terminal) -> Result<Exit> {
    let (client, array) = client::find(args.control.path(), Some(&args.name))?;
    let what = args.what.to_possible_value().expect("no variant is hidden");
    let order = Order { scrub: Some(what.get_name().into()), ..Order::default() };
    terminal.report(&client.order(&array.uuid, "scrub", &order)?);
    Ok(Exit::Done)
}
