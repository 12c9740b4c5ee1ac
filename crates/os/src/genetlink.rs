//! Generic netlink, as far as one family needs it: requests with an answer, and events. (Messages:
//! the kernel's `include/uapi/linux/{netlink,genetlink}.h`.)

use std::io::{Error, ErrorKind, Result};
use std::os::fd::OwnedFd;

use rustix::net::netlink::{GENERIC, SocketAddrNetlink};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind, recv, send, socket_with,
};

const HEADER: usize = 16;
/// The header of a family's messages, behind the common one.
const FAMILY_HEADER: usize = 4;
/// Of the family's messages.
const VERSION: u8 = 1;
const ERROR: u16 = 2;
const REQUEST_AND_ACK: u16 = 1 | 4;
const NESTED: u16 = 1 << 15;

/// The controller family: its number, its query, and its answer.
const CONTROL: u16 = 16;
const GET_FAMILY: u8 = 3;
const FAMILY_ID: u16 = 1;
const FAMILY_NAME: u16 = 2;
const GROUPS: u16 = 7;
const GROUP_NAME: u16 = 1;
const GROUP_ID: u16 = 2;

/// An attribute: its type, and its value.
pub(crate) fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let len = (value.len() + 4) as u16;
    let mut bytes = [len.to_ne_bytes(), kind.to_ne_bytes()].concat();
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// An attribute of attributes.
pub(crate) fn nest(kind: u16, inner: &[u8]) -> Vec<u8> {
    attribute(kind | NESTED, inner)
}

/// The attributes in these bytes.
pub(crate) fn attributes(mut bytes: &[u8]) -> Vec<(u16, &[u8])> {
    let mut found = Vec::new();
    while let [a, b, c, d, ..] = *bytes {
        let len = usize::from(u16::from_ne_bytes([a, b]));
        let kind = u16::from_ne_bytes([c, d]) & !NESTED;
        let Some(value) = bytes.get(4..len) else { break };
        found.push((kind, value));
        bytes = bytes.get(len.next_multiple_of(4)..).unwrap_or_default();
    }
    found
}

fn value_of<'a>(attributes: &[(u16, &'a [u8])], kind: u16) -> Result<&'a [u8]> {
    let found = attributes.iter().find(|(found, _)| *found == kind);
    found.map(|(_, value)| *value).ok_or_else(|| Error::from(ErrorKind::InvalidData))
}

/// A message of a family's.
pub(crate) struct Message {
    pub(crate) command: u8,
    /// Its attributes.
    pub(crate) body: Vec<u8>,
}

impl Message {
    fn of(payload: &[u8]) -> Option<Message> {
        let (&[command, ..], body) = payload.split_first_chunk::<FAMILY_HEADER>()?;
        Some(Message { command, body: body.to_vec() })
    }
}

/// A family, by its number here.
pub(crate) struct Family {
    id: u16,
    /// Its only group of listeners.
    group: u32,
}

impl Family {
    /// # Errors
    /// `NotFound` if the kernel has none of this name; `InvalidData` if it has no listeners.
    pub(crate) fn find(name: &str) -> Result<Family> {
        let wanted = attribute(FAMILY_NAME, format!("{name}\0").as_bytes());
        let answer = Channel::open(0)?.ask(CONTROL, GET_FAMILY, &wanted)?;
        let answer = answer.ok_or_else(|| Error::from(ErrorKind::InvalidData))?;
        let answer_fields = attributes(&answer.body);
        let id = value_of(&answer_fields, FAMILY_ID)?.first_chunk().copied().unwrap_or_default();
        let groups = attributes(value_of(&answer_fields, GROUPS)?);
        let group = groups.first().map(|(_, group)| attributes(group)).unwrap_or_default();
        value_of(&group, GROUP_NAME)?;
        let group = value_of(&group, GROUP_ID)?.first_chunk().copied().unwrap_or_default();
        Ok(Family { id: u16::from_ne_bytes(id), group: u32::from_ne_bytes(group) })
    }

    /// A request, which must succeed; its answer, if it has one.
    pub(crate) fn order(&self, command: u8, attributes: &[u8]) -> Result<Option<Message>> {
        Channel::open(0)?.ask(self.id, command, attributes)
    }

    /// Subscribes to the kernel's events for the family.
    pub(crate) fn listen(&self) -> Result<Channel> {
        match self.group {
            1..=32 => Channel::open(1 << (self.group - 1)),
            _ => Err(ErrorKind::Unsupported.into()),
        }
    }
}

/// A netlink socket.
pub(crate) struct Channel(OwnedFd);

impl Channel {
    fn open(groups: u32) -> Result<Channel> {
        let (family, flags) = (AddressFamily::NETLINK, SocketFlags::CLOEXEC);
        let socket = socket_with(family, SocketType::RAW, flags, Some(GENERIC))?;
        bind(&socket, &SocketAddrNetlink::new(0, groups))?;
        Ok(Channel(socket))
    }

    /// Sends a request; returns the messages before its acknowledgement.
    fn ask(&self, family: u16, command: u8, attributes: &[u8]) -> Result<Option<Message>> {
        let len = HEADER + FAMILY_HEADER + attributes.len();
        let mut bytes = (len as u32).to_ne_bytes().to_vec();
        bytes.extend([family, REQUEST_AND_ACK].map(u16::to_ne_bytes).concat());
        // The only sender here: no request number, no sender id.
        bytes.extend([0; 8]);
        bytes.extend([command, VERSION, 0, 0]);
        bytes.extend(attributes);
        send(&self.0, &bytes, SendFlags::empty())?;
        let mut answer = None;
        loop {
            for (kind, payload) in self.receive()? {
                if kind != ERROR {
                    answer = Message::of(&payload);
                    continue;
                }
                let code = payload.first_chunk().map_or(0, |code| i32::from_ne_bytes(*code));
                return match code {
                    0 => Ok(answer),
                    _ => Err(Error::from_raw_os_error(-code)),
                };
            }
        }
    }

    /// The next events.
    pub(crate) fn next(&self) -> Result<Vec<Message>> {
        Ok(self.receive()?.iter().filter_map(|(_, payload)| Message::of(payload)).collect())
    }

    /// Messages, each with its type.
    fn receive(&self) -> Result<Vec<(u16, Vec<u8>)>> {
        let mut room = vec![0; 1 << 16];
        let (len, _) = recv(&self.0, &mut room[..], RecvFlags::empty())?;
        let mut bytes = &room[..len];
        let mut found = Vec::new();
        while let Some(&[a, b, c, d, e, f, ..]) = bytes.first_chunk::<HEADER>() {
            let len = u32::from_ne_bytes([a, b, c, d]) as usize;
            let Some(payload) = bytes.get(HEADER..len) else { break };
            found.push((u16::from_ne_bytes([e, f]), payload.to_vec()));
            bytes = bytes.get(len.next_multiple_of(4)..).unwrap_or_default();
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_read_as_they_are_written() {
        let inner = attribute(3, &[1, 2, 3]);
        assert_eq!(inner.len(), 8);
        let bytes = [nest(7, &inner), attribute(2, b"nbd")].concat();
        assert_eq!(attributes(&bytes), [(7, &inner[..]), (2, b"nbd")]);
        assert_eq!(attributes(&bytes[..bytes.len() - 2]), [(7, &inner[..])]);
    }
}
