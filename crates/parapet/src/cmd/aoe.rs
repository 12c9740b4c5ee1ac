//! `parapet aoe`: looks at the wire.

use std::collections::BTreeSet;

use net::aoe::wire::SECTOR;

use crate::api::{AoePath, AoeTarget, Discovery};
use crate::engine;
use crate::failure::{Exit, Result};
use crate::remote::{self, AoeAddress, Discovered, RemoteAddress};
use crate::terminal::Terminal;

/// Look for ATA over Ethernet targets
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(clap::Subcommand)]
enum Verb {
    /// List the AoE targets that answer on network interfaces
    ///
    /// Sends a broadcast on each interface. Needs CAP_NET_RAW.
    Discover {
        /// Network interfaces [default: all with a carrier]
        #[arg(value_name = "INTERFACE")]
        interfaces: Vec<String>,
    },
}

pub(crate) fn run(args: &Args, terminal: &Terminal) -> Result<Exit> {
    let Verb::Discover { interfaces } = &args.verb;
    let executor = engine::executor()?;
    let on = executor.spawner();
    let named: BTreeSet<&String> = interfaces.iter().collect();
    let interfaces = match named.is_empty() {
        true => remote::connected_interfaces(&on)?,
        false => named.into_iter().cloned().collect(),
    };
    let found = executor.block_on(remote::discover_all(&interfaces, &on))?;
    let targets = found.into_iter().map(target).collect();
    terminal.report(&Discovery { interfaces, targets });
    Ok(Exit::Done)
}

fn target(found: Discovered) -> AoeTarget {
    let interfaces = found.paths.iter().map(|(interface, _)| interface.clone()).collect();
    let address = AoeAddress { target: found.address, interfaces };
    let ports = found.paths.iter().flat_map(|(interface, ports)| {
        ports.iter().map(move |port| AoePath {
            interface: interface.clone(),
            mac: port.mac.to_string(),
            sectors: port.query.sectors,
            buffers: port.query.buffers,
        })
    });
    let paths: Vec<AoePath> = ports.collect();
    let config = found.paths.iter().flat_map(|(_, ports)| ports).next();
    let config = config.map(|port| String::from_utf8_lossy(&port.query.text).into_owned());
    let identity = found.identity.as_ref();
    AoeTarget {
        address: RemoteAddress::Aoe(address).to_string(),
        shelf: found.address.shelf,
        slot: found.address.slot,
        bytes: identity.map(|it| it.sectors * SECTOR as u64),
        serial: identity.map(|it| it.serial.clone()),
        model: identity.map(|it| it.model.clone()),
        config: config.unwrap_or_default(),
        own: found.is_own,
        paths,
    }
}
