//! `parapet scrub`: compares all data with its redundancy.

use clap::ValueEnum;

use crate::api::Order;
use crate::client;
use crate::failure::{Exit, Result};
use crate::flags::Control;
use crate::terminal::Terminal;

/// Compare all data with its redundancy, and repair it if told so
///
/// A check repairs what any read would: blocks that cannot be read, or do not match their
/// checksums. It changes nothing else. A repair also makes members agree that contradict each
/// other.
///
/// RAID 6, and mirrors of three and more, tell which member is wrong, and repair that one. RAID 4
/// and 5, and mirrors of two, cannot: their repair is a guess, which makes parity agree with the
/// data, and the second copy with the first.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The array, by name or UUID
    #[arg(value_name = "NAME")]
    name: String,
    /// What to do
    #[arg(value_name = "WHAT", default_value = "check")]
    what: What,
    #[command(flatten)]
    control: Control,
}

/// What a scrub does.
#[derive(Clone, Copy, ValueEnum)]
enum What {
    /// Compare; repair read errors and checksum errors only, as any read would
    Check,
    /// Compare; repair read errors, checksum errors and mismatches
    Repair,
    /// Stop the one under way
    Stop,
}

pub(crate) fn run(args: &Args, terminal: &Terminal) -> Result<Exit> {
    let (client, array) = client::find(args.control.path(), Some(&args.name))?;
    let what = args.what.to_possible_value().expect("no variant is hidden");
    let order = Order { scrub: Some(what.get_name().into()), ..Order::default() };
    terminal.report(&client.order(&array.uuid, "scrub", &order)?);
    Ok(Exit::Done)
}
