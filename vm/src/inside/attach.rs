//! Connects the kernel's NBD client, and reconnects it: like `nbd-client -persist` for a device
//! whose requests wait for the server, which releases before 3.27 cannot do.
//!
//! The kernel reports a dead connection; it gets a new one as soon as there is a server. Requests
//! wait that long. (Messages: `include/uapi/linux/nbd-netlink.h`.)

use std::os::fd::AsRawFd;
use std::time::Duration;

use super::genetlink::{self, Family, attribute, nest};
use super::handshake::{self, Ready};
use crate::failure::{Failure, Result};

const FAMILY: &str = "nbd";
const CONNECT: u8 = 1;
const RECONFIGURE: u8 = 3;
const LINK_DEAD: u8 = 4;

const INDEX: u16 = 1;
const SIZE_BYTES: u16 = 2;
const BLOCK_SIZE_BYTES: u16 = 3;
const TIMEOUT: u16 = 4;
const SERVER_FLAGS: u16 = 5;
const SOCKETS: u16 = 7;
const DEAD_CONN_TIMEOUT: u16 = 8;
const SOCKET: u16 = 1;

/// The block size for the file system.
const BLOCK_BYTES: u64 = 512;
/// So long do requests wait for a server.
const WAIT_SECONDS: u64 = 120;
/// After this time another connection resends the requests of a dead one; without it after half a
/// minute.
const AGAIN_SECONDS: u64 = 5;
/// A server that is not there is asked again after this.
const PAUSE: Duration = Duration::from_millis(50);

/// Attaches this export as `/dev/nbdINDEX` with this many connections, for ever.
pub(super) fn run(server: &str, export: &str, index: u32, connections: usize) -> Result {
    let family = Family::find(FAMILY)?;
    let events = family.listen()?;
    // The kernel has taken them over; they are kept open here as well, which does no harm.
    let mut links = Vec::new();
    for _ in 0..connections {
        links.push(handshake::connect(server, export)?);
    }
    let first = links.first().ok_or_else(|| Failure::new("no connection is asked for"))?;
    let device = attribute(INDEX, &index.to_ne_bytes());
    let words = [
        device.clone(),
        attribute(SIZE_BYTES, &first.bytes.to_ne_bytes()),
        attribute(BLOCK_SIZE_BYTES, &BLOCK_BYTES.to_ne_bytes()),
        attribute(TIMEOUT, &AGAIN_SECONDS.to_ne_bytes()),
        attribute(SERVER_FLAGS, &u64::from(first.flags).to_ne_bytes()),
        attribute(DEAD_CONN_TIMEOUT, &WAIT_SECONDS.to_ne_bytes()),
        sockets(&links),
    ];
    family.order(CONNECT, &words.concat())?;
    loop {
        for event in events.next()? {
            let fields = genetlink::attributes(&event.body);
            let ours = fields.contains(&(INDEX, &index.to_ne_bytes()[..]));
            if event.command == LINK_DEAD && ours {
                let link = [again(server, export)];
                family.order(RECONFIGURE, &[device.clone(), sockets(&link)].concat())?;
                println!("connected again");
                links.extend(link);
            }
        }
    }
}

fn sockets(links: &[Ready]) -> Vec<u8> {
    let item =
        |link: &Ready| nest(SOCKET, &attribute(SOCKET, &link.stream.as_raw_fd().to_ne_bytes()));
    nest(SOCKETS, &links.iter().flat_map(item).collect::<Vec<u8>>())
}

/// As soon as there is a server.
fn again(server: &str, export: &str) -> Ready {
    loop {
        match handshake::connect(server, export) {
            Ok(ready) => return ready,
            Err(_) => std::thread::sleep(PAUSE),
        }
    }
}
