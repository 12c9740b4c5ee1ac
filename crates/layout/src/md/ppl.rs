//! Headers of md's two logs for RAID 4, 5 and 6: the partial parity log, and (recognised only) the
//! journal.
//!
//! Owns the format of a header, the row of an entry, and the choice of the valid header in a log.
//! Never writes a log, and never replays one.
//!
//! ```text
//!   0         512                 536                        4096
//!   | 0xff …  | signature … crc32c | 148 entries of 24 bytes | partial parities, in that order
//! ```
//!
//! An entry says: these sectors of the array were being written, and the XOR of the *other* data
//! blocks of the row is this. The log of a row lies on the member that holds the row's parity.
//!
//! Header and partial parities are a *unit*. Only the newest unit in a log counts: when it was
//! written, all rows of its predecessor were durable. A log with room for two is a ring: units
//! follow each other, and one that does not fit before the end goes to the start.
//!
//! ```text
//!   | unit 7 | unit 8 | remains of 3, torn or older …        8 is the newest
//! ```
//!
//! Source: `drivers/md/raid5-ppl.c`, `include/uapi/linux/raid/md_p.h`,
//! `Documentation/driver-api/md/raid5-ppl.rst` of Linux 6.1.

use alloc::vec;
use alloc::vec::Vec;

use super::field::{Fault, Field, ParseError};
use super::{Crc32c, SECTOR, Uuid};

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
/// The most partial parity that a unit of a ring has.
pub const MOST_PP_BYTES: u64 = 128 << 10;
/// A log of at least this many bytes is used as a ring of several units.
pub const MULTIPLE_BYTES: u64 = 2 * (MOST_PP_BYTES + HEADER_BYTES);
/// The most slots of an array that has such logs.
pub const MOST_SLOTS: usize = 64;

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

/// The interrupted write, and the place of its partial parity.
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

/// The row of an entry, or a part of one. Sizes in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PplRow {
    /// The stripe.
    pub stripe: u64,
    /// First byte of the row, from the start of the chunk: a multiple of 512.
    pub start: u64,
    /// Bytes of the row on one member: a multiple of 512.
    pub len: u64,
    /// The first data index that is written.
    pub first: u64,
    /// How many data indices are written.
    pub count: u64,
}

/// Bytes of a log of `size` bytes that are used: the header and whole blocks of 4096.
pub const fn usable_bytes(size: u64) -> u64 {
    size / HEADER_BYTES * HEADER_BYTES
}

/// The most partial parity of a unit in a log of this many usable bytes. If there is room, a unit
/// ends before the last 4096 of them: see [`newest`].
pub const fn unit_pp_bytes(usable: u64) -> u64 {
    if usable >= MULTIPLE_BYTES {
        MOST_PP_BYTES
    } else if usable > 4 * HEADER_BYTES {
        usable - 3 * HEADER_BYTES
    } else {
        usable.saturating_sub(HEADER_BYTES)
    }
}

/// The newest unit of a log, and where it begins in it: units are followed from the start as long
/// as they are valid, of this array, and none is older than the one before. `None` if there is none
/// at the start: it was torn, or this is no log.
///
/// # Errors
/// A header of this array with a right checksum and invalid content: the log is damaged.
///
/// Linux 6.1 searches up to the last 4096 bytes. If it gets there without an end of the units, it
/// misreads the newest unit's partial parities as the next header, and recovers nothing: so no unit
/// should end there. Here they are found all the same.
pub fn newest(
    log: &[u8],
    signature: u32,
    crc32c: Crc32c,
) -> Result<Option<(PplHeader, usize)>, ParseError> {
    let (mut found, mut at) = (None::<(PplHeader, usize)>, 0);
    while let Some(bytes) = log.get(at..) {
        let header = match PplHeader::parse(bytes, crc32c) {
            Ok(header) if header.signature == signature => header,
            Err(error) if !error.may_be_torn() && at::SIGNATURE.get_u32(bytes) == signature => {
                return Err(error);
            }
            _ => break,
        };
        if found.as_ref().is_some_and(|(before, _)| before.generation > header.generation) {
            break;
        }
        let unit = HEADER_BYTES + header.pp_bytes();
        found = Some((header, at));
        at += unit as usize;
    }
    Ok(found)
}

/// The signature of an array's logs: the CRC-32C of its UUID.
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
        let (stored, computed) = (at::CHECKSUM.get(bytes), u64::from(checksum(bytes, crc32c)));
        if stored != computed {
            return Err(at::CHECKSUM.wrong(STRUCTURE, stored, Fault::Checksum { computed }));
        }
        let count = at::COUNT.get_u32(bytes) as usize;
        if count > MOST_ENTRIES {
            let fault = Fault::Above { most: MOST_ENTRIES as u64 };
            return Err(at::COUNT.wrong(STRUCTURE, count as u64, fault));
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
    /// The entry of a row whose parity is on slot `parity_disk`, in an array of chunks of
    /// `chunk_bytes`, `data_count` in a stripe. `pp` is its partial parity, as many bytes as the
    /// row has; empty if all data of the row is written.
    pub fn of_row(
        row: &PplRow,
        (chunk_bytes, data_count): (u64, u64),
        parity_disk: u32,
        pp: &[u8],
        crc32c: Crc32c,
    ) -> PplEntry {
        let chunk = row.stripe * data_count + row.first;
        PplEntry {
            data_sector: (chunk * chunk_bytes + row.start) / SECTOR,
            pp_bytes: pp.len() as u32,
            data_bytes: (row.len * row.count) as u32,
            parity_disk,
            checksum: crc32c(0, pp),
        }
    }

    /// The row of this entry. `None` for entries that no kernel writes: several rows of different
    /// blocks, or inconsistent sizes.
    pub fn row(&self, (chunk_bytes, data_count): (u64, u64)) -> Option<PplRow> {
        let (offset, data_bytes) = (self.data_sector.checked_mul(SECTOR)?, self.data_bytes.into());
        let (chunk, start) = (offset / chunk_bytes, offset % chunk_bytes);
        let (stripe, first) = (chunk / data_count, chunk % data_count);
        let (len, count) = match u64::from(self.pp_bytes) {
            0 => (data_bytes / data_count, data_count),
            len => (len, data_bytes / len),
        };
        let whole = len > 0 && len.is_multiple_of(SECTOR) && len * count == data_bytes;
        let inside = start + len <= chunk_bytes && count > 0 && first + count <= data_count;
        (whole && inside).then_some(PplRow { stripe, start, len, first, count })
    }

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
    fn printed_bytes_parse_again() {
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
        let crc = checksum(&many, crc32c);
        at::CHECKSUM.put(&mut many, crc.into());
        let error = PplHeader::parse(&many, crc32c).unwrap_err();
        assert_eq!((error.field, error.value), ("entries_count", 149));
    }

    #[test]
    fn an_entry_gives_its_row() {
        let shape = (64 << 10, 4);
        let pp = [7; 64 << 10];
        for (start, len) in [(0, 4096), (512, 512), (4096, 60 << 10), (0, 64 << 10)] {
            for (first, count) in [(0, 1), (1, 2), (3, 1), (1, 3), (0, 4)] {
                let row = PplRow { stripe: 11, start, len, first, count };
                let pp = if count == 4 { &[][..] } else { &pp[..len as usize] };
                let entry = PplEntry::of_row(&row, shape, 2, pp, crc32c);
                assert_eq!(entry.data_sector, (11 * 4 + first) * 128 + start / 512);
                assert_eq!(entry.row(shape), Some(row));
            }
        }
    }

    #[test]
    fn an_entry_no_kernel_writes_has_no_row() {
        let shape = (64 << 10, 4);
        let entry = |data_sector, pp_bytes, data_bytes| {
            PplEntry { data_sector, pp_bytes, data_bytes, parity_disk: 0, checksum: 0 }.row(shape)
        };
        assert!(entry(8, 4096, 8192).is_some());
        assert_eq!(entry(8, 4096, 6144), None, "not a whole number of blocks");
        assert_eq!(entry(8, 4096, 0), None, "nothing is written");
        assert_eq!(entry(8, 4096, 5 * 4096), None, "past the end of the stripe");
        assert_eq!(entry(384, 4096, 8192), None, "past the end of the stripe");
        assert_eq!(entry(120, 8192, 8192), None, "past the end of the chunk");
        assert_eq!(entry(0, 0, 6 * 512), None, "not the same of each block");
        assert_eq!(entry(128, 0, 4 * 512), None, "all data, but not from the first on");
        assert_eq!(entry(u64::MAX, 512, 512), None);
        assert_eq!(entry(64, 64 << 10, 64 << 10), None, "the end of a chunk and half the next");
    }

    #[test]
    fn a_header_with_a_right_checksum_and_too_many_entries_is_damage() {
        let header = sample(MOST_ENTRIES);
        let mut log = header.print(crc32c);
        log.resize(96 << 10, 0);
        at::COUNT.put(&mut log, MOST_ENTRIES as u64 + 1);
        assert_eq!(newest(&log, header.signature, crc32c), Ok(None), "torn");
        let crc = checksum(&log[..4096], crc32c);
        at::CHECKSUM.put(&mut log, crc.into());
        assert!(newest(&log, header.signature, crc32c).is_err_and(|e| !e.may_be_torn()));
        assert_eq!(newest(&log, !header.signature, crc32c), Ok(None), "another array's");
    }

    /// A log of 96 KiB with units at these places: generation and bytes of partial parity.
    fn log(units: &[(usize, u64, u32)]) -> Vec<u8> {
        let mut log = vec![0; 96 << 10];
        for &(at, generation, pp_bytes) in units {
            let entry = PplEntry { pp_bytes, ..sample(1).entries[0] };
            let header = PplHeader { generation, entries: vec![entry], ..sample(0) };
            log[at..at + 4096].copy_from_slice(&header.print(crc32c));
        }
        log
    }

    #[test]
    fn the_newest_unit_is_the_last_of_those_that_follow_each_other() {
        let signature = sample(0).signature;
        let newest = |log: &[u8]| {
            let found = newest(log, signature, crc32c).expect("not damaged");
            found.map(|(header, at)| (header.generation, at))
        };
        let units = [(0, 5, 4096), (8192, 6, 0), (12288, 7, 8192)];
        assert_eq!(newest(&log(&units)), Some((7, 12288)));
        assert_eq!(newest(&log(&units[..2])), Some((6, 8192)));
        let older = [(0, 5, 4096), (8192, 6, 0), (12288, 3, 8192)];
        assert_eq!(newest(&log(&older)), Some((6, 8192)));
        let mut torn = log(&units);
        torn[12288 + 600] ^= 1;
        assert_eq!(newest(&torn), Some((6, 8192)));
        torn[600] ^= 1;
        assert_eq!(newest(&torn), None);
        assert_eq!(super::newest(&log(&units), signature ^ 1, crc32c), Ok(None));
        // A header that would go on past the end, and one that ends there.
        assert_eq!(newest(&log(&[(0, 5, u32::MAX)])), Some((5, 0)));
        assert_eq!(newest(&log(&[(0, 5, 88 << 10), (92 << 10, 6, 0)])), Some((6, 92 << 10)));
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
