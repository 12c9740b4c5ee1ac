//! Bad blocks of the array as a whole: bytes that are lost though no member's block is bad.
//!
//! md's bad-block lists cover blocks of a present member. Blocks of a *missing* member that a crash
//! tore, and that replay cannot resolve, have no such list. Their rows are made consistent with
//! filler content. This list records their array ranges, so that reads return an error instead of
//! the filler.
//!
//! ```text
//!   | ranges: offset, bytes (8 + 8) …            | 24 KiB, one copy for each copy of the header
//! ```
//!
//! Owns the form of the list. How many ranges it has and its checksum are in the header that goes
//! with it: a list counts as long as its header does.

use alloc::vec::Vec;
use core::ops::Range;

use super::HISTORY_BYTES;
use super::export::EXPORT_BYTES;
use crate::md::Crc32c;

/// The distance of the copies. Lists of up to this size are read: there were such before the
/// export state ([`super::export`]) got the end of each half.
pub const COPY_BYTES: u64 = HISTORY_BYTES / 2;
/// Bytes of one copy of the list.
pub const LIST_BYTES: u64 = COPY_BYTES - EXPORT_BYTES;
/// The most ranges that a list has.
pub const MOST_RANGES: usize = LIST_BYTES as usize / ENTRY_BYTES;

const ENTRY_BYTES: usize = 16;

/// A header's fields for its list.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct BadList {
    /// How many ranges there are.
    pub count: u32,
    /// CRC-32C of them.
    pub crc: u32,
}

/// The list of these array ranges, in whole blocks of 4096 bytes, and its header fields. `None` if
/// there are more than [`MOST_RANGES`].
pub fn print(
    ranges: impl Iterator<Item = Range<u64>>,
    crc32c: Crc32c,
) -> Option<(Vec<u8>, BadList)> {
    let mut bytes: Vec<u8> = ranges
        .flat_map(|range| [range.start.to_le_bytes(), (range.end - range.start).to_le_bytes()])
        .flatten()
        .collect();
    let count = bytes.len() / ENTRY_BYTES;
    let list = BadList { count: count as u32, crc: crc32c(0, &bytes) };
    bytes.resize(bytes.len().next_multiple_of(4096), 0);
    (count <= MOST_RANGES).then_some((bytes, list))
}

/// The ranges of a list, given its header fields; `None` if the bytes do not match them.
pub fn parse(bytes: &[u8], list: BadList, crc32c: Crc32c) -> Option<Vec<Range<u64>>> {
    let used = (list.count as usize).checked_mul(ENTRY_BYTES)?;
    let bytes = bytes.get(..used)?;
    let number = |bytes: &[u8]| {
        let mut number = [0; 8];
        number.copy_from_slice(bytes);
        u64::from_le_bytes(number)
    };
    let ranges = bytes.chunks_exact(ENTRY_BYTES).map(|entry| {
        let (start, len) = (number(&entry[..8]), number(&entry[8..]));
        start.checked_add(len).filter(|_| len > 0).map(|end| start..end)
    });
    (crc32c(0, bytes) == list.crc).then(|| ranges.collect::<Option<_>>())?
}

/// Room for a list of as many ranges as a header says.
pub const fn bytes_of(list: BadList) -> u64 {
    list.count as u64 * ENTRY_BYTES as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::md::tests::crc32c;

    #[test]
    fn printed_bytes_parse_again() {
        for count in [0, 1, 300, MOST_RANGES as u64] {
            let ranges: Vec<_> = (0..count).map(|at| at * 8192..at * 8192 + 512).collect();
            let (bytes, list) = print(ranges.iter().cloned(), crc32c).unwrap();
            assert!(bytes.len() as u64 <= LIST_BYTES && bytes_of(list) <= LIST_BYTES);
            assert_eq!(parse(&bytes, list, crc32c), Some(ranges));
        }
        let many = (0..=MOST_RANGES as u64).map(|at| at..at + 1);
        assert_eq!(print(many, crc32c), None);
    }

    #[test]
    fn other_bytes_are_no_list() {
        let (bytes, list) = print([512..1024, 4096..8192].into_iter(), crc32c).unwrap();
        for index in 0..32 {
            let mut broken = bytes.clone();
            broken[index] ^= 4;
            assert_eq!(parse(&broken, list, crc32c), None, "byte {index}");
        }
        assert_eq!(parse(&bytes[..31], list, crc32c), None);
        assert_eq!(parse(&bytes, BadList { count: u32::MAX, ..list }, crc32c), None);
    }
}
