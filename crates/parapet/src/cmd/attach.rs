//! `parapet attach` and `detach`: an array as a disk of this machine.

use crate::api::Order;
use crate::client;
use crate::failure::{Exit, Result};
use crate::flags::Control;
use crate::terminal::Terminal;

/// Make a served array a disk of this machine: /dev/parapet/NAME
///
/// For example: parapet attach tank; mkfs.ext4 /dev/parapet/tank; mount /dev/parapet/tank /mnt
#[derive(clap::Args)]
pub(crate) struct Attach {
    /// Name or UUID of the array
    #[arg(value_name = "NAME")]
    name: String,
    #[command(flatten)]
    control: Control,
}

pub(crate) fn attach(args: &Attach, terminal: &Terminal) -> Result<Exit> {
    order("attach", &args.name, &args.control, terminal)
}

/// Remove the local disk of an array; refused while it is in use
#[derive(clap::Args)]
pub(crate) struct Detach {
    /// Name or UUID of the array
    #[arg(value_name = "NAME")]
    name: String,
    #[command(flatten)]
    control: Control,
}

pub(crate) fn detach(args: &Detach, terminal: &Terminal) -> Result<Exit> {
    order("detach", &args.name, &args.control, terminal)
}

fn order(verb: &str, name: &str, control: &Control, terminal: &Terminal) -> Result<Exit> {
    let (client, array) = client::find(control.path(), Some(name))?;
    terminal.report(&client.order(&array.uuid, verb, &Order::default())?);
    Ok(Exit::Done)
}
