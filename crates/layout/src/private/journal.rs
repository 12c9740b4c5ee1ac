//! The journal device: its header, and its fields in the members' headers.
//!
//! Owns the places on the device, and the session of its log. The records have the format of the
//! members' logs ([`super::log`]), including zones.
//!
//! ```text
//!   0      4096     8192     12288
//!   | free | header | header | zone | zone | … | the rest is not used |
//! ```
//!
//! A session begins here first: its header goes into the copy that the session before does not
//! need, and is durable before any member names it. So whichever session the members name, its
//! header stands. The log counts if the members name this device and this session.
//!
//! Invariant: [`JournalHeader::print`] reproduces the bytes that [`JournalHeader::parse`] accepted.

use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;
use core::ops::Range;

use super::frame::Frame;
use super::{ALIGNMENT, NEW_LOG_BYTES};
use crate::md::field::{Fault, ParseError, fields};
use crate::md::{Crc32c, Name, Uuid};

fields! { 256;
    MAGIC       "magic"       0   8
    VERSION     "version"     8   4
    CRC         "crc32c"      12  4
    SET_UUID    "set_uuid"    16  16
    DEVICE_UUID "device_uuid" 32  16
    SET_NAME    "set_name"    48  32
    SESSION     "session"     80  8
    LOG_START   "log_start"   88  8
    LOG_END     "log_end"     96  8
    ZONE_BYTES  "zone_bytes"  104 8
    ZONES       "zones"       112 4
    PAD         "pad"         116 140
}

/// Where the two copies of the header lie, in bytes from the start of the device.
pub const COPIES: [u64; 2] = [4096, 8192];
/// Bytes of one copy of the header.
pub const HEADER_BYTES: u64 = super::HEADER_BYTES;
/// Where the log begins.
pub const LOG_START: u64 = 12288;
/// The least that a journal device must have.
pub const LEAST_BYTES: u64 = LOG_START + NEW_LOG_BYTES;

/// The header of the device, at [`COPIES`].
pub const MAGIC_BYTES: &[u8; 8] = b"Pjournal";
const FRAME: Frame = Frame {
    structure: STRUCTURE,
    magic: u64::from_le_bytes(*MAGIC_BYTES),
    version: 1,
    fields: at::FIELDS,
};
const STRUCTURE: &str = "journal device";

/// The place of the log on a device of this size; `None` if it is too small.
pub const fn log_of(device_bytes: u64) -> Option<Range<u64>> {
    if device_bytes < LEAST_BYTES {
        return None;
    }
    Some(LOG_START..device_bytes / ALIGNMENT * ALIGNMENT)
}

/// The header of a journal device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JournalHeader {
    /// The array.
    pub set_uuid: Uuid,
    /// The device.
    pub device_uuid: Uuid,
    /// The array's name when the session began, for people.
    pub set_name: Name,
    /// The random number that everything logged in this session carries; 0: nothing was logged.
    pub session: u64,
    /// The log, in bytes from the start of the device.
    pub log: Range<u64>,
    /// Bytes of a zone of it: see [`super::LogShape`].
    pub zone_bytes: u64,
    /// How many zones.
    pub zones: u32,
}

impl JournalHeader {
    /// Reads a header from the start of `bytes`.
    ///
    /// # Errors
    /// The first field that is wrong; [`Fault::Magic`] if there is no header here.
    pub fn parse(bytes: &[u8], crc32c: Crc32c) -> Result<JournalHeader, ParseError> {
        let bytes = FRAME.open(bytes, crc32c)?;
        let header = JournalHeader {
            set_uuid: Uuid(at::SET_UUID.array(bytes)),
            device_uuid: Uuid(at::DEVICE_UUID.array(bytes)),
            set_name: Name(at::SET_NAME.array(bytes)),
            session: at::SESSION.get(bytes),
            log: at::LOG_START.get(bytes)..at::LOG_END.get(bytes),
            zone_bytes: at::ZONE_BYTES.get(bytes),
            zones: at::ZONES.get_u32(bytes),
        };
        header.check()?;
        Ok(header)
    }

    /// The log lies behind the headers, and its zones within it, all in whole blocks.
    fn check(&self) -> Result<(), ParseError> {
        let fields = [
            (at::LOG_START, self.log.start, LOG_START),
            (at::LOG_END, self.log.end, self.log.start),
            (at::ZONE_BYTES, self.zone_bytes, 0),
        ];
        for (field, value, least) in fields {
            if value < least {
                return Err(field.wrong(STRUCTURE, value, Fault::Below { least }));
            }
            if !value.is_multiple_of(ALIGNMENT) {
                let fault = Fault::Refused("must be a multiple of 4096");
                return Err(field.wrong(STRUCTURE, value, fault));
            }
        }
        let most = self.log.end - self.log.start;
        match self.zone_bytes.checked_mul(self.zones.into()) {
            Some(bytes) if bytes <= most && (self.zones == 0 || bytes > 0) => Ok(()),
            _ => Err(at::ZONES.wrong(STRUCTURE, self.zones.into(), Fault::Above { most })),
        }
    }

    /// The header's 4096 bytes.
    pub fn print(&self, crc32c: Crc32c) -> Vec<u8> {
        let mut bytes = vec![0; HEADER_BYTES as usize];
        at::SET_UUID.put_bytes(&mut bytes, &self.set_uuid.0);
        at::DEVICE_UUID.put_bytes(&mut bytes, &self.device_uuid.0);
        at::SET_NAME.put_bytes(&mut bytes, &self.set_name.0);
        at::SESSION.put(&mut bytes, self.session);
        at::LOG_START.put(&mut bytes, self.log.start);
        at::LOG_END.put(&mut bytes, self.log.end);
        at::ZONE_BYTES.put(&mut bytes, self.zone_bytes);
        at::ZONES.put(&mut bytes, self.zones.into());
        FRAME.close(&mut bytes, crc32c);
        bytes
    }
}

/// The device's last path, for people: at most 128 bytes, padded with zeros.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct DeviceName(pub [u8; 128]);

impl DeviceName {
    /// This name, or as much of its end as there is room for.
    pub fn new(text: &str) -> DeviceName {
        let mut bytes = [0; 128];
        let mut start = text.len().saturating_sub(bytes.len());
        while !text.is_char_boundary(start) {
            start += 1;
        }
        let kept = &text.as_bytes()[start..];
        bytes[..kept.len()].copy_from_slice(kept);
        DeviceName(bytes)
    }
}

/// The name as text; unprintable bytes are escaped, because it comes from a disk.
impl fmt::Display for DeviceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let length = self.0.iter().position(|&byte| byte == 0).unwrap_or(self.0.len());
        let text: String = String::from_utf8_lossy(&self.0[..length]).into_owned();
        for character in text.chars() {
            match character.is_control() {
                true => write!(f, "{}", character.escape_default())?,
                false => write!(f, "{character}")?,
            }
        }
        Ok(())
    }
}

impl fmt::Debug for DeviceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DeviceName({self})")
    }
}

/// The state of an array's journal device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum JournalUse {
    /// The log of this run lies on the members: the device was not there when it began.
    Away,
    /// The log of this run lies on the device.
    Logging,
    /// It failed: the log lies on the members, and the device is not used again by itself.
    GivenUp,
}

/// A member header's fields on the array's journal device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct JournalNote {
    /// The device.
    pub uuid: Uuid,
    /// Its last path.
    pub name: DeviceName,
    /// Its state.
    pub used: JournalUse,
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;
    use crate::md::tests::crc32c;

    fn header() -> JournalHeader {
        JournalHeader {
            set_uuid: Uuid([1; 16]),
            device_uuid: Uuid([2; 16]),
            set_name: Name::new("host:tank").unwrap(),
            session: 99,
            log: log_of(4 << 20).unwrap(),
            zone_bytes: 65536,
            zones: 3,
        }
    }

    #[test]
    fn a_header_parses_again_and_a_flipped_or_missing_byte_is_an_error() {
        let bytes = header().print(crc32c);
        assert_eq!(JournalHeader::parse(&bytes, crc32c), Ok(header()));
        for index in 0..bytes.len() {
            let mut broken = bytes.clone();
            broken[index] ^= 1;
            assert!(JournalHeader::parse(&broken, crc32c).is_err(), "byte {index}");
            assert!(JournalHeader::parse(&bytes[..index], crc32c).is_err(), "{index} bytes");
        }
    }

    #[test]
    fn a_flipped_byte_with_a_right_checksum_is_an_error_or_a_difference() {
        let bytes = header().print(crc32c);
        for index in (0..bytes.len()).filter(|index| !(12..16).contains(index)) {
            for bit in 0..8 {
                let mut other = bytes.clone();
                other[index] ^= 1 << bit;
                FRAME.seal(&mut other, crc32c);
                if let Ok(parsed) = JournalHeader::parse(&other, crc32c) {
                    assert_ne!(parsed, header(), "byte {index} does not count");
                    assert_eq!(parsed.print(crc32c), other, "byte {index} is lost");
                }
            }
        }
    }

    #[test]
    fn a_device_that_is_too_small_has_no_log() {
        assert_eq!(log_of(LEAST_BYTES - 1), None);
        assert_eq!(log_of(LEAST_BYTES), Some(LOG_START..LEAST_BYTES));
        assert_eq!(log_of(LEAST_BYTES + 4095), Some(LOG_START..LEAST_BYTES));
    }

    #[test]
    fn of_a_long_name_its_end_is_kept() {
        assert_eq!(DeviceName::new("/dev/nvme0n1p3").to_string(), "/dev/nvme0n1p3");
        let long = DeviceName::new(&["/dev/", &"ä".repeat(100), "x\n"].concat()).to_string();
        assert!(long.starts_with('ä') && long.ends_with("äx\\n"), "{long}");
    }
}
