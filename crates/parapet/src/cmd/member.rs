//! `parapet fail` and `parapet remove`: take a member out of service, and out of the array.

use crate::api::Order;
use crate::client;
use crate::cmd::member_of;
use crate::failure::{Exit, Result};
use crate::flags::Control;
use crate::terminal::Terminal;

/// Mark a member faulty
///
/// Refused if data would be lost. A spare takes over at once.
#[derive(clap::Args)]
pub(crate) struct Fail {
    #[command(flatten)]
    target: Target,
}

/// Remove a spare or a faulty member
///
/// Refused while the member holds a slot: run `parapet fail` or `parapet replace` first. The server
/// closes the disk, which can then be unplugged or used elsewhere.
#[derive(clap::Args)]
pub(crate) struct Remove {
    #[command(flatten)]
    target: Target,
}

/// A member of an array that is being served.
#[derive(clap::Args)]
struct Target {
    /// Name or UUID of the array
    #[arg(value_name = "NAME")]
    name: String,
    /// Member: slot, serial number, UUID or path
    #[arg(value_name = "MEMBER")]
    member: String,
    #[command(flatten)]
    control: Control,
}

pub(crate) fn fail(args: &Fail, terminal: &Terminal) -> Result<Exit> {
    args.target.order("fail", terminal)
}

pub(crate) fn remove(args: &Remove, terminal: &Terminal) -> Result<Exit> {
    args.target.order("remove", terminal)
}

impl Target {
    fn order(&self, verb: &str, terminal: &Terminal) -> Result<Exit> {
        let (client, array) = client::find(self.control.path(), Some(&self.name))?;
        let order = Order { member: Some(member_of(&self.member, &array)), ..Order::default() };
        terminal.report(&client.order(&array.uuid, verb, &order)?);
        Ok(Exit::Done)
    }
}
