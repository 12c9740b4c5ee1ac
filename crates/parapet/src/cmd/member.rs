//! `parapet fail` and `parapet remove`: a member leaves service, and the array.

use crate::api::Order;
use crate::client;
use crate::cmd::member_of;
use crate::failure::{Exit, Result};
use crate::flags::Control;
use crate::terminal::Terminal;

/// Take a member out of service, as if it had failed
///
/// Refused where data would be lost. A spare, if there is one, takes the place at once.
#[derive(clap::Args)]
pub(crate) struct Fail {
    #[command(flatten)]
    target: Target,
}

/// Let go of a spare, or of a member that has failed
///
/// Refused while the member holds a slot: `parapet fail` it first, or `parapet replace` it. Then
/// nothing holds the disk any more: it may be unplugged, or used for something else.
#[derive(clap::Args)]
pub(crate) struct Remove {
    #[command(flatten)]
    target: Target,
}

/// A member of an array that is being served.
#[derive(clap::Args)]
struct Target {
    /// The array, by name or UUID
    #[arg(value_name = "NAME")]
    name: String,
    /// The member: slot, serial number, UUID or path
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
