//! Headers of md's two logs for RAID 4, 5 and 6: the partial parity log, and (recognised only) the
//! journal.
//!
//! Owns the form of a header. Never writes a log, and never replays one.
//!
//! ```text
//!   0         512                 536                        4096
//!   | 0xff …  | signature … crc32c | 148 entries of 24 bytes | partial parities, in that order
//! ```
//!
//! An entry says: these sectors of the array were being written, and the XOR of the *other* data
//! blocks of the row is this. The log of a row lies on the member that holds the row's parity.
//!
//! Source: `drivers/md/raid5-ppl.c`, `include/uapi/linux/raid/md_p.h`,
//! `Documentation/driver-api/md/raid5-ppl.rst` of Linux 6.1.

use alloc::vec;
use alloc::vec::Vec;

use super::field::{Fault, Field, ParseError};
use super::{Crc32c, Uuid};

super::field::fields! { 4096;
    RESERVED   "reserved"      0    512
    SIGNATURE  "signature"     512  4
    PAD        "padding"       516  4
    GENERATION "generation"    520  8
    COUNT      "entries_count" 528  4
    CHECKSUM   "checksum"      532  4
    ENTRIES    "entries"       536  3552
    REST       "rest"          4088 8
}

pub(crate) mod entry {
    super::super::field::fields! { 24;
        DATA_SECTOR "data_sector" 0  8
        PP_SIZE     "pp_size"     8  4
        DATA_SIZE   "data_size"   12 4
        PARITY_DISK "parity_disk" 16 4
        CHECKSUM    "checksum"    20 4
    }
    pub(crate) use at::*;
}

/// Bytes of a header.
pub const HEADER_BYTES: u64 = 4096;
/// The most entries a header has.
pub const MOST_ENTRIES: usize = 148;
/// A log of at least this many bytes is used as a ring of several headers.
pub const MULTIPLE_BYTES: u64 = 2 * (128 + 4) * 1024;

const ENTRY_BYTES: usize = 24;
const STRUCTURE: &str = "partial parity log";

/// The header of one unit of a partial parity log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PplHeader {
    /// [`signature`] of the array.
    pub signature: u32,
    /// Grows with every unit written; the highest valid one counts.
    pub generation: u64,
    /// At most [`MOST_ENTRIES`].
    pub entries: Vec<PplEntry>,
}

/// What was being written, and where the partial parity for it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PplEntry {
    /// The first sector of the array that was being written.
    pub data_sector: u64,
    /// Bytes of partial parity in the log; 0 for a full stripe, which needs none.
    pub pp_bytes: u32,
    /// Bytes being written.
    pub data_bytes: u32,
    /// The slot that holds the parity.
    pub parity_disk: u32,
    /// CRC-32C of the partial parity.
    pub checksum: u32,
}

/// What marks the logs of an array: the CRC-32C of its UUID.
pub fn signature(set_uuid: &Uuid, crc32c: Crc32c) -> u32 {
    crc32c(0, &set_uuid.0)
}

impl PplHeader {
    /// Reads a header from the start of `bytes`. Whether the signature is the array's is for the
    /// caller to see.
    ///
    /// # Errors
    /// Too few bytes, too many entries, or a wrong checksum.
    pub fn parse(bytes: &[u8], crc32c: Crc32c) -> Result<PplHeader, ParseError> {
        let Some(bytes) = bytes.get(..HEADER_BYTES as usize) else {
            let have = bytes.len() as u64;
            return Err(at::REST.wrong(STRUCTURE, HEADER_BYTES, Fault::Truncated { have }));
        };
        let count = at::COUNT.get_u32(bytes) as usize;
        if count > MOST_ENTRIES {
            let fault = Fault::Above { most: MOST_ENTRIES as u64 };
            return Err(at::COUNT.wrong(STRUCTURE, count as u64, fault));
        }
        let (stored, computed) = (at::CHECKSUM.get(bytes), u64::from(checksum(bytes, crc32c)));
        if stored != computed {
            return Err(at::CHECKSUM.wrong(STRUCTURE, stored, Fault::Checksum { computed }));
        }
        let entries = at::ENTRIES.bytes(bytes).chunks_exact(ENTRY_BYTES).take(count);
        Ok(PplHeader {
            signature: at::SIGNATURE.get_u32(bytes),
            generation: at::GENERATION.get(bytes),
            entries: entries.map(PplEntry::read).collect(),
        })
    }

    /// The header's 4096 bytes.
    ///
    /// # Panics
    /// If there are more than [`MOST_ENTRIES`].
    pub fn print(&self, crc32c: Crc32c) -> Vec<u8> {
        assert!(self.entries.len() <= MOST_ENTRIES, "more entries than a header holds");
        let mut bytes = vec![0; HEADER_BYTES as usize];
        bytes[..at::RESERVED.size].fill(0xff);
        at::SIGNATURE.put(&mut bytes, u64::from(self.signature));
        at::GENERATION.put(&mut bytes, self.generation);
        at::COUNT.put(&mut bytes, self.entries.len() as u64);
        let places = bytes[at::ENTRIES.offset..].chunks_exact_mut(ENTRY_BYTES);
        places.zip(&self.entries).for_each(|(place, entry)| entry.write(place));
        let crc = checksum(&bytes, crc32c);
        at::CHECKSUM.put(&mut bytes, u64::from(crc));
        bytes
    }

    /// Bytes of partial parity that follow the header.
    pub fn pp_bytes(&self) -> u64 {
        self.entries.iter().map(|entry| u64::from(entry.pp_bytes)).sum()
    }
}

impl PplEntry {
    fn read(bytes: &[u8]) -> PplEntry {
        PplEntry {
            data_sector: entry::DATA_SECTOR.get(bytes),
            pp_bytes: entry::PP_SIZE.get_u32(bytes),
            data_bytes: entry::DATA_SIZE.get_u32(bytes),
            parity_disk: entry::PARITY_DISK.get_u32(bytes),
            checksum: entry::CHECKSUM.get_u32(bytes),
        }
    }

    fn write(&self, bytes: &mut [u8]) {
        entry::DATA_SECTOR.put(bytes, self.data_sector);
        entry::PP_SIZE.put(bytes, u64::from(self.pp_bytes));
        entry::DATA_SIZE.put(bytes, u64::from(self.data_bytes));
        entry::PARITY_DISK.put(bytes, u64::from(self.parity_disk));
        entry::CHECKSUM.put(bytes, u64::from(self.checksum));
    }
}

/// CRC-32C of the whole header, its own field taken as zero.
fn checksum(bytes: &[u8], crc32c: Crc32c) -> u32 {
    let (before, rest) = bytes.split_at(at::CHECKSUM.offset);
    crc32c(crc32c(crc32c(0, before), &[0; 4]), &rest[at::CHECKSUM.size..])
}

/// True if `bytes` begin with a meta block of an md journal (raid5-cache): magic and version. An
/// array that has one is not started here.
pub fn is_journal(bytes: &[u8]) -> bool {
    const MAGIC: Field = Field { name: "magic", offset: 0, size: 4 };
    bytes.len() >= 32 && MAGIC.get_u32(bytes) == 0x6433_c509 && bytes[8] == 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::md::tests::crc32c;

    fn sample(entries: usize) -> PplHeader {
        let entry = |index: u32| PplEntry {
            data_sector: 0x1_0000_0000 + u64::from(index),
            pp_bytes: 4096 * (index % 3),
            data_bytes: 8192,
            parity_disk: index % 5,
            checksum: 0xdead_0000 + index,
        };
        let signature = signature(&Uuid([3; 16]), crc32c);
        let entries = (0..entries as u32).map(entry).collect();
        PplHeader { signature, generation: 0x0123_4567_89ab_cdef, entries }
    }

    #[test]
    fn what_is_printed_is_parsed_again() {
        for count in [0, 1, 2, 147, 148] {
            let header = sample(count);
            let bytes = header.print(crc32c);
            assert_eq!(bytes.len() as u64, HEADER_BYTES);
            assert!(bytes[..512].iter().all(|&byte| byte == 0xff));
            assert_eq!(PplHeader::parse(&bytes, crc32c), Ok(header));
        }
        assert_eq!(sample(4).pp_bytes(), 4096 * (1 + 2));
    }

    #[test]
    fn fields_lie_where_md_has_them() {
        let bytes = sample(2).print(crc32c);
        assert_eq!(bytes[520..528], 0x0123_4567_89ab_cdef_u64.to_le_bytes());
        assert_eq!(bytes[528..532], [2, 0, 0, 0]);
        assert_eq!(bytes[536 + 24..536 + 32], 0x1_0000_0001_u64.to_le_bytes());
        assert_eq!(bytes[536 + 44..536 + 48], 0xdead_0001_u32.to_le_bytes());
    }

    #[test]
    fn broken_headers_are_errors() {
        let bytes = sample(3).print(crc32c);
        for index in 0..bytes.len() {
            let mut broken = bytes.clone();
            broken[index] ^= 0x10;
            assert!(PplHeader::parse(&broken, crc32c).is_err(), "byte {index}");
            let short = PplHeader::parse(&bytes[..index], crc32c).unwrap_err();
            assert_eq!(short.fault, Fault::Truncated { have: index as u64 });
        }
        let mut many = bytes.clone();
        many[528..532].copy_from_slice(&149_u32.to_le_bytes());
        let error = PplHeader::parse(&many, crc32c).unwrap_err();
        assert_eq!((error.field, error.value), ("entries_count", 149));
    }

    #[test]
    fn a_journal_is_recognised() {
        let mut block = [0; 4096];
        assert!(!is_journal(&block));
        block[..4].copy_from_slice(&[0x09, 0xc5, 0x33, 0x64]);
        block[8] = 1;
        assert!(is_journal(&block));
        assert!(!is_journal(&block[..31]));
    }
}
