//! How an array is exported, kept with the array: its AoE address, and what clients and
//! administrators set of it.
//!
//! ```text
//!   history: | bad-block list, 24 KiB | export, 8 KiB | bad-block list, 24 KiB | export, 8 KiB |
//!   export:  | head, 48 bytes | config string | masks | holders | registrations | zeros |
//! ```
//!
//! Each member with a private area has two copies; a new state goes over the older one. The state
//! does not depend on data or membership, so it needs no superblock: of all copies of all members,
//! the one with the highest generation counts.

use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

use super::HISTORY_BYTES;
use crate::md::field::{Fault, ParseError, fields};
use crate::md::{Crc32c, Uuid};

fields! { 48;
    MAGIC       "magic"       0   8
    VERSION     "version"     8   4
    CRC         "crc32c"      12  4
    SET_UUID    "set_uuid"    16  16
    GENERATION  "generation"  32  8
    FLAGS       "flags"       40  4
    LENGTH      "length"      44  4
}

/// Bytes of one copy.
pub const EXPORT_BYTES: u64 = 8 << 10;
/// The most bytes of a config string; AoE's own limit.
pub const MAX_CONFIG_BYTES: usize = 1024;
/// The most addresses of each list: masks, holders, and those of all registrations.
pub const MAX_ADDRESSES: usize = 180;
/// The most registrations.
pub const MAX_REGISTRATIONS: usize = 128;

const STRUCTURE: &str = "export state";
const MAGIC: u64 = u64::from_le_bytes(*b"Pexport1");
const VERSION: u64 = 1;
const HEAD_BYTES: usize = 48;
/// Bits of `flags`.
const FLAG_ONLINE: u64 = 1;
const FLAG_ADDRESS: u64 = 2;
const FLAG_KEYED: u64 = 4;
const FLAGS: u64 = FLAG_ONLINE | FLAG_ADDRESS | FLAG_KEYED;

/// A hardware address.
pub type HardwareAddress = [u8; 6];

/// The state of an export.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ExportState {
    /// The AoE address: shelf and slot.
    pub address: Option<(u16, u8)>,
    /// It is served.
    pub online: bool,
    /// At most [`MAX_CONFIG_BYTES`].
    pub config: Vec<u8>,
    /// The clients that it answers; all, if there is none.
    pub masks: Vec<HardwareAddress>,
    /// The clients that have reserved it.
    pub holders: Vec<HardwareAddress>,
    /// The kind of the keyed reservation, and the key that holds it.
    pub keyed: Option<(u8, u64)>,
    /// Registered keys, each with its addresses.
    pub registrations: Vec<(u64, Vec<HardwareAddress>)>,
}

/// One copy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExportCopy {
    /// The array.
    pub set_uuid: Uuid,
    /// Counts the states of this array.
    pub generation: u64,
    /// The state.
    pub state: ExportState,
}

/// The places of both copies, given the private area's history: bytes from the start of the member.
pub fn places(history: &Range<u64>) -> [Range<u64>; 2] {
    [1, 2].map(|copy| {
        let end = history.start + copy * (HISTORY_BYTES / 2);
        end - EXPORT_BYTES..end
    })
}

impl ExportCopy {
    /// The number of the place that a copy of this generation goes to.
    pub const fn place(generation: u64) -> usize {
        (generation % 2) as usize
    }

    /// The bytes of a copy.
    ///
    /// # Panics
    /// If a list is longer than allowed.
    pub fn print(&self, crc32c: Crc32c) -> Vec<u8> {
        let state = &self.state;
        assert!(state.config.len() <= MAX_CONFIG_BYTES, "a config string that is too long");
        let mut body = Vec::new();
        let (shelf, slot) = state.address.unwrap_or_default();
        let (kind, key) = state.keyed.unwrap_or_default();
        body.extend(shelf.to_le_bytes());
        body.extend([slot, kind]);
        body.extend(key.to_le_bytes());
        body.extend((state.config.len() as u16).to_le_bytes());
        body.extend(&state.config);
        put_addresses(&mut body, &state.masks);
        put_addresses(&mut body, &state.holders);
        assert!(state.registrations.len() <= MAX_REGISTRATIONS, "too many registrations");
        body.extend((state.registrations.len() as u16).to_le_bytes());
        for (key, addresses) in &state.registrations {
            body.extend(key.to_le_bytes());
            put_addresses(&mut body, addresses);
        }
        let mut bytes = vec![0; EXPORT_BYTES as usize];
        at::MAGIC.put(&mut bytes, MAGIC);
        at::VERSION.put(&mut bytes, VERSION);
        at::SET_UUID.put_bytes(&mut bytes, &self.set_uuid.0);
        at::GENERATION.put(&mut bytes, self.generation);
        let flag = |set: bool, flag: u64| if set { flag } else { 0 };
        let flags = flag(state.online, FLAG_ONLINE)
            | flag(state.address.is_some(), FLAG_ADDRESS)
            | flag(state.keyed.is_some(), FLAG_KEYED);
        at::FLAGS.put(&mut bytes, flags);
        at::LENGTH.put(&mut bytes, body.len() as u64);
        bytes[HEAD_BYTES..HEAD_BYTES + body.len()].copy_from_slice(&body);
        let crc = crc32c(0, &bytes);
        at::CRC.put(&mut bytes, crc.into());
        bytes
    }

    /// Reads a copy; none if there is none, or one of another array.
    ///
    /// # Errors
    /// The copy is damaged.
    pub fn parse(
        bytes: &[u8],
        set_uuid: &Uuid,
        crc32c: Crc32c,
    ) -> Result<Option<ExportCopy>, ParseError> {
        let have = bytes.len() as u64;
        let Some(bytes) = bytes.get(..EXPORT_BYTES as usize) else {
            return Err(at::LENGTH.wrong(STRUCTURE, EXPORT_BYTES, Fault::Truncated { have }));
        };
        if at::MAGIC.get(bytes) != MAGIC {
            return Ok(None);
        }
        let stored = at::CRC.get(bytes);
        let mut unsealed = bytes.to_vec();
        at::CRC.put(&mut unsealed, 0);
        let computed = u64::from(crc32c(0, &unsealed));
        if stored != computed {
            return Err(at::CRC.wrong(STRUCTURE, stored, Fault::Checksum { computed }));
        }
        let version = at::VERSION.get(bytes);
        if version != VERSION {
            let fault = Fault::Unequal { expected: VERSION };
            return Err(at::VERSION.wrong(STRUCTURE, version, fault));
        }
        if at::SET_UUID.bytes(bytes) != set_uuid.0 {
            return Ok(None);
        }
        let (flags, length) = (at::FLAGS.get(bytes), at::LENGTH.get(bytes));
        if flags & !FLAGS != 0 {
            return Err(at::FLAGS.wrong(STRUCTURE, flags, Fault::Reserved));
        }
        let broken = |why| at::LENGTH.wrong(STRUCTURE, length, Fault::Conflict(why));
        let rest = &bytes[HEAD_BYTES..];
        let body = usize::try_from(length).ok().and_then(|length| rest.split_at_checked(length));
        let (body, rest) = body.ok_or_else(|| broken("longer than the structure"))?;
        if rest.iter().any(|&byte| byte != 0) {
            return Err(broken("there is something after the end"));
        }
        let state = state(Reader(body), flags).ok_or_else(|| broken("the lists do not fit"))?;
        let (set_uuid, generation) = (*set_uuid, at::GENERATION.get(bytes));
        Ok(Some(ExportCopy { set_uuid, generation, state }))
    }
}

fn put_addresses(into: &mut Vec<u8>, addresses: &[HardwareAddress]) {
    assert!(addresses.len() <= MAX_ADDRESSES, "too many hardware addresses");
    into.extend((addresses.len() as u16).to_le_bytes());
    addresses.iter().for_each(|address| into.extend(address));
}

/// The fields of the body; none if they do not fill it exactly, or exceed a limit.
fn state(mut body: Reader<'_>, flags: u64) -> Option<ExportState> {
    let shelf = u16::from_le_bytes(body.take()?);
    let [slot, kind] = body.take()?;
    let key = u64::from_le_bytes(body.take()?);
    let config = body.count(MAX_CONFIG_BYTES)?;
    let config = body.bytes(config)?.to_vec();
    let (masks, holders) = (body.addresses()?, body.addresses()?);
    let mut registrations = Vec::new();
    for _ in 0..body.count(MAX_REGISTRATIONS)? {
        registrations.push((u64::from_le_bytes(body.take()?), body.addresses()?));
    }
    body.0.is_empty().then_some(ExportState {
        address: (flags & FLAG_ADDRESS != 0).then_some((shelf, slot)),
        online: flags & FLAG_ONLINE != 0,
        config,
        masks,
        holders,
        keyed: (flags & FLAG_KEYED != 0).then_some((kind, key)),
        registrations,
    })
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*taken)
    }

    /// A number of entries; none if there are more than `most`.
    fn count(&mut self, most: usize) -> Option<usize> {
        let count = usize::from(u16::from_le_bytes(self.take()?));
        (count <= most).then_some(count)
    }

    fn addresses(&mut self) -> Option<Vec<HardwareAddress>> {
        let count = self.count(MAX_ADDRESSES)?;
        (0..count).map(|_| self.take()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::md::tests::crc32c;

    const UUID: Uuid = Uuid([7; 16]);

    fn full() -> ExportCopy {
        let address = |index: usize| [2, 0, 0, 0, (index >> 8) as u8, index as u8];
        let addresses: Vec<HardwareAddress> = (0..MAX_ADDRESSES).map(address).collect();
        let mut registrations: Vec<_> =
            (1..MAX_REGISTRATIONS as u64).map(|key| (key, vec![address(key as usize)])).collect();
        registrations.push((MAX_REGISTRATIONS as u64, addresses.clone()));
        let state = ExportState {
            address: Some((65534, 254)),
            online: true,
            config: vec![b'x'; MAX_CONFIG_BYTES],
            masks: addresses.clone(),
            holders: addresses,
            keyed: Some((5, u64::MAX)),
            registrations,
        };
        ExportCopy { set_uuid: UUID, generation: 9, state }
    }

    #[test]
    fn printed_bytes_parse_again() {
        let empty = ExportCopy { state: ExportState::default(), ..full() };
        for copy in [empty, full()] {
            let bytes = copy.print(crc32c);
            assert_eq!(bytes.len() as u64, EXPORT_BYTES);
            assert_eq!(ExportCopy::parse(&bytes, &UUID, crc32c), Ok(Some(copy)));
        }
    }

    #[test]
    fn other_bytes_are_no_state_or_damage() {
        let bytes = full().print(crc32c);
        assert_eq!(ExportCopy::parse(&bytes, &Uuid([8; 16]), crc32c), Ok(None));
        assert_eq!(ExportCopy::parse(&vec![0; bytes.len()], &UUID, crc32c), Ok(None));
        assert!(ExportCopy::parse(&bytes[1..], &UUID, crc32c).is_err());
        for index in 8..bytes.len() {
            let mut broken = bytes.clone();
            broken[index] ^= 16;
            assert!(ExportCopy::parse(&broken, &UUID, crc32c).is_err(), "byte {index}");
        }
    }

    #[test]
    fn what_passes_the_checksum_and_does_not_parse_is_damage() {
        let sealed = |change: &dyn Fn(&mut Vec<u8>)| {
            let mut bytes = full().print(crc32c);
            change(&mut bytes);
            at::CRC.put(&mut bytes, 0);
            let crc = crc32c(0, &bytes);
            at::CRC.put(&mut bytes, crc.into());
            ExportCopy::parse(&bytes, &UUID, crc32c)
        };
        assert_eq!(sealed(&|_| {}), Ok(Some(full())));
        assert!(sealed(&|bytes| bytes[at::VERSION.offset] = 2).is_err());
        assert!(sealed(&|bytes| bytes[at::FLAGS.offset] |= 8).is_err());
        assert!(sealed(&|bytes| bytes[at::LENGTH.offset] ^= 1).is_err());
        assert!(sealed(&|bytes| at::LENGTH.put(bytes, u32::MAX.into())).is_err());
        assert!(sealed(&|bytes| *bytes.last_mut().unwrap() = 1).is_err());
        // One more byte of config than allowed, and of a list.
        let config = HEAD_BYTES + 12;
        for place in [config, config + 2 + MAX_CONFIG_BYTES] {
            assert!(sealed(&|bytes| bytes[place] += 1).is_err(), "byte {place}");
        }
    }

    #[test]
    fn the_copies_lie_at_the_ends_of_the_halves() {
        let history = 1 << 20..(1 << 20) + HISTORY_BYTES;
        let [first, second] = places(&history);
        assert_eq!(first.start, history.start + super::super::bad::LIST_BYTES);
        assert_eq!(second.end, history.end);
        assert!(first.end < second.start);
        assert_ne!(ExportCopy::place(4), ExportCopy::place(5));
    }
}
