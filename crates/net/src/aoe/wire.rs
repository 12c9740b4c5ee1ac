//! Every byte of ATA over Ethernet, both directions.
//!
//! Source: the protocol description AoEr11 (Coraid, 2009), and its version 1.2 of 2011 for keyed
//! reservations. Numbers are big-endian, but for the LBA and the words of IDENTIFY.
//!
//! ```text
//!   0  destination 6   source 6   type 88a2
//!  14  version 4 flags 4   error 8   shelf 16   slot 8   command 8   tag 32
//!  24  argument
//!        ATA     flags 8  error/feature 8  sectors 8  command/status 8  lba 48 (little)  0 16
//!         36     data
//!        query   buffers 16  firmware 16  sectors 8  version 4 directive 4  length 16   text…
//!        mask    0 8  directive 8  error 8  count 8   { 0 8  directive 8  mac 48 }…
//!        reserve directive 8  count 8   { mac 48 }…
//!        keyed   directive 8  …  (see `access`)
//! ```
//!
//! Owns all constants, encoders and decoders. Never sends a frame, never decides anything.
//! Invariant: no decoder reads past the bytes it was given, whatever the counts inside claim.

pub mod access;
pub mod ata;
pub mod identify;
pub mod query;
pub mod smart;
#[cfg(test)]
mod tests;

use std::fmt;
use std::str::FromStr;

use io::link::{ETHERNET_BYTES, Mac};

/// The EtherType of AoE.
pub const ETHERTYPE: u16 = 0x88a2;
/// The only version of the protocol.
pub const VERSION: u8 = 1;
/// Bytes before the argument of a command.
pub const HEADER_BYTES: usize = 24;
/// Bytes before the data of an ATA command.
pub const ATA_HEADER_BYTES: usize = HEADER_BYTES + ata::BYTES;
/// Bytes of a sector: the unit of every LBA.
pub const SECTOR: usize = 512;

/// The flag of answers.
const RESPONSE: u8 = 0x08;
/// The flag of answers that report an [`Error`].
const ERROR: u8 = 0x04;

/// Where a target is on the wire: shelf and slot, `1.0`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address {
    /// The shelf ("major"): 0 to 65534 without 4095.
    pub shelf: u16,
    /// The slot in it ("minor"): 0 to 254.
    pub slot: u8,
}

impl Address {
    /// Every target.
    pub const ALL: Address = Address { shelf: 0xffff, slot: 0xff };
    /// Shelves that Linux ignores: the broadcast, and the one that old hardware with unset switches
    /// has.
    const NO_SHELVES: [u16; 2] = [0xffff, 0x0fff];

    /// True if a target can have this address.
    pub fn is_usable(self) -> bool {
        !Address::NO_SHELVES.contains(&self.shelf) && self.slot != 0xff
    }

    /// True if a request for this address is for the target `own` (among others).
    pub fn covers(self, own: Address) -> bool {
        (self.shelf == own.shelf || self.shelf == 0xffff)
            && (self.slot == own.slot || self.slot == 0xff)
    }

    /// True if requests for this address may reach several targets.
    pub fn is_broadcast(self) -> bool {
        self.shelf == 0xffff || self.slot == 0xff
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.shelf, self.slot)
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Address {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Address, &'static str> {
        let wrong = "not an AoE address such as 1.0 (shelf 0 to 65534 without 4095, slot 0 to 254)";
        let number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        let (shelf, slot) = text.split_once('.').ok_or(wrong)?;
        if !number(shelf) || !number(slot) {
            return Err(wrong);
        }
        let shelf = shelf.parse().map_err(|_| wrong)?;
        let address = Address { shelf, slot: slot.parse().map_err(|_| wrong)? };
        if address.is_usable() { Ok(address) } else { Err(wrong) }
    }
}

/// The commands of a frame.
pub mod command {
    /// An ATA command.
    pub const ATA: u8 = 0;
    /// Query or set the config string.
    pub const QUERY: u8 = 1;
    /// Read or edit the list of admitted clients.
    pub const MASK: u8 = 2;
    /// Read or set the reservation.
    pub const RESERVE: u8 = 3;
    /// Keyed reservations (version 1.2).
    pub const KEYED: u8 = 4;
}

/// What an answer with the error flag reports. Linux logs it and sends the request again, so what a
/// client must learn goes into the ATA status instead.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Error {
    /// The command is not known.
    Command = 1,
    /// An argument is malformed.
    Argument = 2,
    /// The target cannot serve now.
    Unavailable = 3,
    /// A config string is there already.
    ConfigPresent = 4,
    /// Another version of the protocol.
    Version = 5,
    /// Another client holds the reservation.
    Reserved = 6,
}

impl Error {
    /// The error of this number.
    pub fn of(number: u8) -> Option<Error> {
        Some(match number {
            1 => Error::Command,
            2 => Error::Argument,
            3 => Error::Unavailable,
            4 => Error::ConfigPresent,
            5 => Error::Version,
            6 => Error::Reserved,
            _ => return None,
        })
    }
}

/// What every frame begins with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// The receiver.
    pub destination: Mac,
    /// The sender.
    pub source: Mac,
    /// The version: [`VERSION`].
    pub version: u8,
    /// True for answers and announcements.
    pub response: bool,
    /// The number of the reported error; none if the frame reports none.
    pub error: Option<u8>,
    /// The target.
    pub address: Address,
    /// One of [`command`].
    pub command: u8,
    /// Chosen by the client; its answer has the same. 0 in announcements.
    pub tag: u32,
}

impl Header {
    /// The header of a frame; nothing if it is too short or of another EtherType.
    pub fn parse(bytes: &[u8]) -> Option<Header> {
        let bytes: &[u8; HEADER_BYTES] = bytes.first_chunk()?;
        if be16(bytes, 12) != ETHERTYPE {
            return None;
        }
        let flags = bytes[14];
        Some(Header {
            destination: mac(bytes, 0),
            source: mac(bytes, 6),
            version: flags >> 4,
            response: flags & RESPONSE != 0,
            error: (flags & ERROR != 0).then_some(bytes[15]),
            address: Address { shelf: be16(bytes, 16), slot: bytes[18] },
            command: bytes[19],
            tag: u32::from_be_bytes([bytes[20], bytes[21], bytes[22], bytes[23]]),
        })
    }

    /// Writes the header to the start of a frame.
    pub fn put(&self, into: &mut [u8]) {
        into[0..6].copy_from_slice(&self.destination.0);
        into[6..12].copy_from_slice(&self.source.0);
        into[12..ETHERNET_BYTES].copy_from_slice(&ETHERTYPE.to_be_bytes());
        let response = if self.response { RESPONSE } else { 0 };
        let error = if self.error.is_some() { ERROR } else { 0 };
        into[14] = self.version << 4 | response | error;
        into[15] = self.error.unwrap_or(0);
        into[16..18].copy_from_slice(&self.address.shelf.to_be_bytes());
        into[18] = self.address.slot;
        into[19] = self.command;
        into[20..24].copy_from_slice(&self.tag.to_be_bytes());
    }

    /// The header of the answer that the target `own` at `source` sends to this request.
    #[must_use]
    pub fn answer(&self, source: Mac, own: Address) -> Header {
        Header {
            destination: self.source,
            source,
            version: VERSION,
            response: true,
            error: None,
            address: own,
            ..*self
        }
    }

    /// The same header, reporting this error.
    #[must_use]
    pub fn with_error(self, error: Error) -> Header {
        Header { error: Some(error as u8), ..self }
    }
}

/// The most sectors of one frame at this MTU, as every known peer counts them: the Ethernet header
/// is taken off once too often. A power of two, so that payloads stay aligned; at most 16, as
/// Coraid's shelves. 0 if no sector fits.
pub fn sectors_of(mtu: u32) -> u8 {
    match (mtu as usize).saturating_sub(ATA_HEADER_BYTES) / SECTOR {
        0 => 0,
        sectors => 1 << sectors.ilog2().min(4),
    }
}

fn be16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn mac(bytes: &[u8], at: usize) -> Mac {
    let mut mac = Mac::default();
    mac.0.copy_from_slice(&bytes[at..at + 6]);
    mac
}

fn macs(bytes: &[u8]) -> Vec<Mac> {
    bytes.chunks_exact(6).map(|bytes| mac(bytes, 0)).collect()
}
