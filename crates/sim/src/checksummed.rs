//! The checksum table, checked independently: every entry matches its block.
//!
//! Parses `layout`'s output with its own code, after `docs/format.md`, and with its own bytewise
//! checksum. Only the start of the private area comes from `layout`.

use std::rc::Rc;

use crate::check::Member;
use crate::covered::{long, word};
use crate::disk::SimDisk;

const BLOCK: u64 = 4096;
const CRC_OF_ZEROS: u32 = 0x98f9_4189;

/// The result of eight bitwise steps for a byte.
const TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let (mut crc, mut step) = (byte as u32, 0);
        while step < 8 {
            crc = (crc >> 1) ^ if crc & 1 == 1 { 0x82f6_3b78 } else { 0 };
            step += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
};

/// CRC-32C of bytes, after others with this checksum.
fn crc(seed: u32, bytes: &[u8]) -> u32 {
    let step = |crc: u32, byte: &u8| (crc >> 8) ^ TABLE[usize::from(crc as u8 ^ byte)];
    !bytes.iter().fold(!seed, step)
}

/// The header of the private area that was written last; `None` if there is none, or it keeps no
/// checksums.
fn header(disk: &Rc<SimDisk>, start: u64) -> Option<Vec<u8>> {
    let copies = (0..2).map(|copy| {
        let mut bytes = vec![0; 4096];
        disk.peek(start + copy * 4096, &mut bytes);
        bytes
    });
    let newest = copies.filter(|copy| copy.starts_with(b"Pprivate"));
    let newest = newest.max_by_key(|copy| long(copy, 64))?;
    (word(&newest, 192) & 2 != 0).then_some(newest)
}

/// Compares a member at rest, with this many bytes for data of which it uses some, with its table.
///
/// # Errors
/// The first block that does not fit its entry.
pub fn fits(
    member: &Member,
    slot: u32,
    bytes: u64,
    is_used: impl Fn(u64) -> bool,
) -> Result<(), String> {
    let Some(area) = member.map.private.clone() else { return Ok(()) };
    let Some(header) = header(&member.disk, area.start) else { return Ok(()) };
    let name = &member.disk.name;
    if long(&header, 216) != u64::MAX {
        return Err(format!("{name}: at rest, and not all checksums count"));
    }
    let table = long(&header, 152);
    let array = crc(0, &member.superblock.set_uuid.0);
    for block in (0..bytes / BLOCK).filter(|block| is_used(block * BLOCK)) {
        let (mut entry, mut data) = ([0; 8], [0; BLOCK as usize]);
        member.disk.peek(table + 8 * block, &mut entry);
        member.disk.peek(member.map.data.start + block * BLOCK, &mut data);
        let (checksum, generation) = (word(&entry, 0), word(&entry, 4));
        let found = crc(0, &data);
        let place = [&slot.to_le_bytes()[..], &block.to_le_bytes()[..]].concat();
        let fits = match (checksum, generation) {
            (0, 0) => found == CRC_OF_ZEROS,
            // Unknown: it was lost, and partly rewritten.
            (1, 0) => continue,
            (_, 0) => return Err(format!("{name}: block {block} has no such checksum")),
            _ => checksum == crc(array, &place) ^ found,
        };
        if !fits {
            return Err(format!(
                "{name} (slot {slot}): block {block} of its data does not fit its checksum \
                 {checksum:08x}, generation {generation}"
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_is_crc_32c() {
        assert_eq!(crc(0, b"123456789"), 0xe306_9283);
        assert_eq!(crc(crc(0, b"1234"), b"56789"), 0xe306_9283);
        assert_eq!(crc(0, &[0; BLOCK as usize]), CRC_OF_ZEROS);
    }
}
