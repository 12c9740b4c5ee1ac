//! Block devices that come, go and change, as the kernel reports them: netlink's
//! `NETLINK_KOBJECT_UEVENT`, which udev listens to as well.

use std::future::poll_fn;
use std::io::Result;
use std::task::Poll;

use rustix::net::{
    AddressFamily, RecvFlags, SocketFlags, SocketType, bind, netlink, recv, socket_with,
};

use crate::executor::Spawner;
use crate::reactor::source::{Direction, Watched};

/// The multicast group of the kernel's own messages; udev sends its own to group 2.
const KERNEL_GROUP: u32 = 1;
/// The kernel's messages are at most 2 KiB (`UEVENT_BUFFER_SIZE`).
const MESSAGE_BYTES: usize = 8192;

/// What has happened to a block device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Uevent {
    /// `add`, `remove`, `change` …
    pub action: String,
    /// The name of its node in `/dev`: `sda`, `loop0`, `disk/by-label/x`.
    pub device: String,
}

/// The events of block devices.
pub struct Uevents {
    socket: Watched,
}

impl Uevents {
    /// Listens from now on.
    ///
    /// # Errors
    /// If the kernel or a sandbox denies the socket.
    pub fn listen(on: &Spawner) -> Result<Uevents> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let protocol = Some(netlink::KOBJECT_UEVENT);
        let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, protocol)?;
        bind(&socket, &netlink::SocketAddrNetlink::new(0, KERNEL_GROUP))?;
        Ok(Uevents { socket: Watched::new(socket, on.reactor())? })
    }

    /// The next event; `None` if some were lost, because nobody took them in time.
    pub async fn next(&self) -> Option<Uevent> {
        let mut message = [0; MESSAGE_BYTES];
        poll_fn(|cx| {
            loop {
                match recv(&self.socket, &mut message[..], RecvFlags::DONTWAIT) {
                    Ok((_, bytes)) => {
                        if let Some(event) = parse(&message[..bytes.min(MESSAGE_BYTES)]) {
                            return Poll::Ready(Some(event));
                        }
                    }
                    Err(rustix::io::Errno::INTR) => {}
                    Err(rustix::io::Errno::NOBUFS) => return Poll::Ready(None),
                    Err(_) => {
                        self.socket.arm(Direction::Read, cx);
                        return Poll::Pending;
                    }
                }
            }
        })
        .await
    }
}

/// Reads `ACTION@PATH`, then `KEY=VALUE`, each ended by a zero byte.
fn parse(message: &[u8]) -> Option<Uevent> {
    let text = std::str::from_utf8(message).ok()?;
    let mut parts = text.split('\0');
    parts.next()?.split_once('@')?;
    let value = |key: &str| {
        text.split('\0')
            .find_map(|part| part.strip_prefix(key)?.strip_prefix('='))
            .map(str::to_owned)
    };
    if value("SUBSYSTEM")? != "block" {
        return None;
    }
    Some(Uevent { action: value("ACTION")?, device: value("DEVNAME")? })
}

#[cfg(test)]
mod tests {
    use super::{Uevent, parse};

    #[test]
    fn block_devices_are_told_from_the_rest() {
        let message = "change@/devices/virtual/block/loop0\0ACTION=change\0SUBSYSTEM=block\0\
                       DEVNAME=loop0\0SEQNUM=1\0";
        let expected = Uevent { action: "change".into(), device: "loop0".into() };
        assert_eq!(parse(message.as_bytes()), Some(expected));
        for other in [
            "",
            "libudev\0\u{1}",
            "add@/devices/x\0ACTION=add\0SUBSYSTEM=net\0DEVNAME=x\0",
            "add@/devices/x\0ACTION=add\0SUBSYSTEM=block\0",
        ] {
            assert_eq!(parse(other.as_bytes()), None, "{other:?}");
        }
        assert_eq!(parse(b"add@\xff\0"), None);
    }
}
