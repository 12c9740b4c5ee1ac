//! Connects the kernel's NBD client, and reconnects it: like `nbd-client -persist` for a device
//! whose requests wait for the server, which releases before 3.27 cannot do.
//!
//! The kernel reports a dead connection; it gets a new one as soon as there is a server. Requests
//! wait that long.

use std::os::fd::AsFd;
use std::time::Duration;

use os::nbd::{self, DeadLinks, Export};

use super::handshake::{self, Ready};
use crate::failure::{Failure, Result};

/// The block size for the file system.
const BLOCK_BYTES: u32 = 512;
/// So long do requests wait for a server.
const WAIT: Duration = Duration::from_secs(120);
/// After this time another connection resends the requests of a dead one; without it after half a
/// minute.
const RESEND_AFTER: Duration = Duration::from_secs(5);
/// A server that is not there is asked again after this.
const PAUSE: Duration = Duration::from_millis(50);

/// Attaches this export as `/dev/nbdINDEX` with this many connections, for ever.
pub(super) fn run(server: &str, export: &str, index: u32, connections: usize) -> Result {
    let events = DeadLinks::listen()?;
    // The kernel has taken them over; they are kept open here as well, which does no harm.
    let mut links = Vec::new();
    for _ in 0..connections {
        links.push(handshake::connect(server, export)?);
    }
    let first = links.first().ok_or_else(|| Failure::new("no connection is asked for"))?;
    let device = Export {
        bytes: first.bytes,
        block_bytes: BLOCK_BYTES,
        flags: first.flags,
        resend_after: RESEND_AFTER,
        wait: WAIT,
        backend: None,
    };
    let sockets: Vec<_> = links.iter().map(|link| link.stream.as_fd()).collect();
    nbd::connect(Some(index), &device, &sockets)?;
    loop {
        for _ in events.next()?.iter().filter(|dead| **dead == index) {
            let link = again(server, export);
            nbd::reconnect(index, None, link.stream.as_fd())?;
            println!("connected again");
            links.push(link);
        }
    }
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
