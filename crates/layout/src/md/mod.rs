//! Linux md's metadata, byte for byte, and foreign signatures.
//!
//! Owns the translation between bytes and numbers. Never reads a device, never asks the time, never
//! compares two members: those are the business of `array`. `docs/format.md` draws the whole.
//!
//! Every structure follows one rule: bytes are checked before they are trusted, lengths before they
//! are used, and an error names the field, its value and its offset.

pub mod badblocks;
pub mod bitmap;
pub mod bytemap;
pub mod feature;
pub mod field;
pub mod foreign;
pub mod identity;
pub mod partitions;
pub mod ppl;
pub mod super090;
pub mod superblock;

pub use badblocks::{BadBlocks, FoundBadBlocks, LogFull};
pub use bitmap::{Bitmap, BitmapVersion};
pub use bytemap::{ByteMap, TooSmall};
pub use feature::Features;
pub use field::{Fault, Field, ParseError};
pub use foreign::{Signature, probe};
pub use identity::{NAME_BYTES, Name, Timestamp, Uuid};
pub use partitions::{Partition, partitions};
pub use ppl::{PplEntry, PplHeader};
pub use super090::Superblock090;
pub use superblock::{Magic, RawSuperblock, Role, Superblock, Version, position};

/// md counts in sectors of 512 bytes, whatever the device's blocks are.
pub const SECTOR: u64 = 512;

/// md's "no sector": the largest number.
pub const MAX_SECTOR: u64 = u64::MAX;

/// CRC-32C (Castagnoli) as `fn(crc of the preceding bytes, bytes)`: `crc32c(0, bytes)` is the
/// standard checksum of `bytes`, and `crc32c(crc32c(0, a), b)` that of `a` followed by `b`.
///
/// The formats here take it as an argument: they depend on nothing, PPL headers are made for every
/// small write, and one fast CRC-32C in the project is enough.
pub type Crc32c = fn(u32, &[u8]) -> u32;

#[cfg(test)]
pub(crate) mod tests {
    use super::{bitmap, ppl, superblock};
    use alloc::borrow::ToOwned;
    use alloc::string::String;
    use alloc::vec::Vec;

    /// CRC-32C, bit by bit: slow, and too short to be wrong.
    pub(crate) fn crc32c(before: u32, bytes: &[u8]) -> u32 {
        !bytes.iter().fold(!before, |crc, &byte| {
            (0..8).fold(crc ^ u32::from(byte), |crc, _| (crc >> 1) ^ ((crc & 1) * 0x82f6_3b78))
        })
    }

    #[test]
    fn crc32c_is_the_standard_one_and_can_be_continued() {
        assert_eq!(crc32c(0, b"123456789"), 0xe306_9283);
        assert_eq!(crc32c(crc32c(0, b"1234"), b"56789"), 0xe306_9283);
    }

    /// The tables in `docs/format.md` match the code: every field of every structure, in order, and
    /// no others.
    #[test]
    fn the_documented_tables_are_those_of_the_code() {
        let text = include_str!("../../../../docs/format.md");
        let row = |line: &str| {
            let mut cells = line.strip_prefix("| ")?.split(" | ");
            let (offset, size) = (cells.next()?.parse().ok()?, cells.next()?.parse().ok()?);
            Some((offset, size, cells.next()?.to_owned()))
        };
        let documented: Vec<(usize, usize, String)> = text.lines().filter_map(row).collect();
        let tables = [
            superblock::at::FIELDS,
            bitmap::at::FIELDS,
            ppl::at::FIELDS,
            ppl::entry::FIELDS,
            crate::private::at::FIELDS,
            crate::private::export::at::FIELDS,
            crate::private::log::at::FIELDS,
            crate::private::log::record::FIELDS,
            crate::private::checksums::entry::FIELDS,
            crate::private::journal::at::FIELDS,
        ];
        let fields = tables.into_iter().flatten();
        let coded: Vec<_> =
            fields.map(|field| (field.offset, field.size, field.name.to_owned())).collect();
        assert_eq!(documented, coded);
    }
}
