//! `parapet attach` and `detach`: an array as a disk of this machine.

use clap::ValueEnum;

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
    /// Way of the kernel's requests to the server [default: the first that the kernel offers, but
    /// nbd before ublk until Linux 6.15]
    #[arg(long, value_name = "WAY")]
    how: Option<How>,
    #[command(flatten)]
    control: Control,
}

/// A way of the kernel's requests to the server.
#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum How {
    /// ublk (Linux 6.5, driver ublk_drv): the fastest; requests wait for a server that restarts
    Ublk,
    /// The kernel's NBD client (driver nbd): requests wait for a server that restarts
    Nbd,
    /// A FUSE file and a loop device: requests fail if the server stops
    Fuse,
}

impl How {
    /// Its word, as in orders.
    pub(crate) fn word(self) -> &'static str {
        match self {
            How::Ublk => "ublk",
            How::Nbd => "nbd",
            How::Fuse => "fuse",
        }
    }
}

pub(crate) fn attach(args: &Attach, terminal: &Terminal) -> Result<Exit> {
    let how = args.how.map(|how| how.word().to_owned());
    order("attach", &args.name, &Order { how, ..Order::default() }, &args.control, terminal)
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
    order("detach", &args.name, &Order::default(), &args.control, terminal)
}

fn order(
    verb: &str,
    name: &str,
    order: &Order,
    control: &Control,
    terminal: &Terminal,
) -> Result<Exit> {
    let (client, array) = client::find(control.path(), Some(name))?;
    terminal.report(&client.order(&array.uuid, verb, order)?);
    Ok(Exit::Done)
}
