//! `parapet online`, `offline`, `shelf`, `mask`, `reservations`: the AoE export of an array.

use io::Mac;

use crate::api::Order;
use crate::client;
use crate::daemon::AoePlace;
use crate::failure::{Exit, Result};
use crate::flags::Control;
use crate::terminal::Terminal;

/// An array that is being served.
#[derive(clap::Args)]
struct Target {
    /// Name or UUID of the array
    #[arg(value_name = "NAME")]
    name: String,
    #[command(flatten)]
    control: Control,
}

impl Target {
    fn order(&self, verb: &str, order: &Order, terminal: &Terminal) -> Result<Exit> {
        let (client, array) = client::find(self.control.path(), Some(&self.name))?;
        terminal.report(&client.order(&array.uuid, verb, order)?);
        Ok(Exit::Done)
    }
}

/// Export an array over ATA over Ethernet
///
/// For example: parapet online tank 1.0@eth1,eth2
#[derive(clap::Args)]
pub(crate) struct Online {
    #[command(flatten)]
    target: Target,
    /// Address and interfaces [default: those of the last time]
    #[arg(value_name = "[SHELF.SLOT]@INTERFACE[,INTERFACE]")]
    place: Option<AoePlace>,
}

pub(crate) fn online(args: &Online, terminal: &Terminal) -> Result<Exit> {
    let order = Order { aoe: args.place.as_ref().map(ToString::to_string), ..Order::default() };
    args.target.order("online", &order, terminal)
}

/// Stop the AoE export of an array
///
/// Requests in flight are answered first. The array itself and its NBD export go on.
#[derive(clap::Args)]
pub(crate) struct Offline {
    #[command(flatten)]
    target: Target,
}

pub(crate) fn offline(args: &Offline, terminal: &Terminal) -> Result<Exit> {
    args.target.order("offline", &Order::default(), terminal)
}

/// Show or set the AoE address of an array
#[derive(clap::Args)]
pub(crate) struct Shelf {
    #[command(flatten)]
    target: Target,
    /// The new address; the export must be offline
    #[arg(value_name = "SHELF.SLOT")]
    address: Option<String>,
}

pub(crate) fn shelf(args: &Shelf, terminal: &Terminal) -> Result<Exit> {
    let order = Order { aoe: args.address.clone(), ..Order::default() };
    args.target.order("shelf", &order, terminal)
}

/// Show or change the list of clients that an AoE export answers
///
/// An empty list admits every client. Hardware addresses can be forged: a mask is no protection.
#[derive(clap::Args)]
pub(crate) struct Mask {
    #[command(flatten)]
    target: Target,
    /// Client to add; may be repeated
    #[arg(long, value_name = "MAC")]
    add: Vec<Mac>,
    /// Client to remove; may be repeated
    #[arg(long, value_name = "MAC")]
    remove: Vec<Mac>,
}

pub(crate) fn mask(args: &Mask, terminal: &Terminal) -> Result<Exit> {
    let added = args.add.iter().map(|mac| format!("+{mac}"));
    let removed = args.remove.iter().map(|mac| format!("-{mac}"));
    let order = Order { masks: removed.chain(added).collect(), ..Order::default() };
    args.target.order("mask", &order, terminal)
}

/// Show or end the reservation of an AoE export
#[derive(clap::Args)]
pub(crate) struct Reservations {
    #[command(flatten)]
    target: Target,
    /// End the reservation: other clients can write again
    #[arg(long)]
    clear: bool,
}

pub(crate) fn reservations(args: &Reservations, terminal: &Terminal) -> Result<Exit> {
    let order = Order { clear: args.clear, ..Order::default() };
    args.target.order("reservations", &order, terminal)
}
