//! Corrected checksums, computed from the formats' documents and not by the code under test; only
//! the CRC's polynomial is shared.
//!
//! An input too short to have a checksum stays as it is.

use super::{crc32c, number};

/// Version 1: 32-bit words of the fixed part and the role table, the high half added once.
pub(crate) fn superblock(bytes: &mut [u8]) {
    let used = 256 + 2 * number(bytes, 220, 4) as usize;
    let Some(whole) = bytes.get_mut(..used) else { return };
    whole[216..220].fill(0);
    let checksum: u64 = (0..used).step_by(4).map(|at| number_up_to(whole, at, 4)).sum();
    let checksum = (checksum as u32).wrapping_add((checksum >> 32) as u32);
    whole[216..220].copy_from_slice(&checksum.to_le_bytes());
}

/// As many of the `size` bytes as there are.
fn number_up_to(bytes: &[u8], at: usize, size: usize) -> u64 {
    number(bytes, at, size.min(bytes.len() - at))
}

/// 0.90: all words, in the byte order of the magic.
pub(crate) fn superblock_090(bytes: &mut [u8]) {
    let Some(whole) = bytes.get_mut(..4096) else { return };
    let big = whole[0] == 0xa9;
    whole[152..156].fill(0);
    let word = |word: &[u8]| {
        let word = [word[0], word[1], word[2], word[3]];
        u64::from(if big { u32::from_be_bytes(word) } else { u32::from_le_bytes(word) })
    };
    let checksum: u64 = whole.chunks_exact(4).map(word).sum();
    let checksum = (checksum as u32).wrapping_add((checksum >> 32) as u32);
    whole[152..156].copy_from_slice(&if big {
        checksum.to_be_bytes()
    } else {
        checksum.to_le_bytes()
    });
}

/// The header's CRC at byte 532, counted as zero.
pub(crate) fn ppl(bytes: &mut [u8]) {
    checksum_of_block(bytes, 532);
}

/// The header's CRC at byte 12, counted as zero.
pub(crate) fn private_header(bytes: &mut [u8]) {
    checksum_of_block(bytes, 12);
}

/// A batch's CRC at byte 60, counted as zero, over as many bytes as byte 48 says.
pub(crate) fn private_log(bytes: &mut [u8]) {
    let used = number(bytes, 48, 4) as usize;
    let Some(batch) = bytes.get_mut(..used).filter(|batch| batch.len() >= 64) else { return };
    batch[60..64].fill(0);
    let crc = crc32c(0, batch);
    batch[60..64].copy_from_slice(&crc.to_le_bytes());
}

/// The CRC at byte 4, over as many ranges of 16 bytes from byte 8 on as byte 0 says.
pub(crate) fn bad_list(bytes: &mut [u8]) {
    let used = 16 * number(bytes, 0, 4) as usize;
    let Some(list) = bytes.get(8..).and_then(|list| list.get(..used)) else { return };
    let crc = crc32c(0, list);
    bytes[4..8].copy_from_slice(&crc.to_le_bytes());
}

fn checksum_of_block(bytes: &mut [u8], at: usize) {
    let Some(block) = bytes.get_mut(..4096) else { return };
    block[at..at + 4].fill(0);
    let crc = crc32c(0, block);
    block[at..at + 4].copy_from_slice(&crc.to_le_bytes());
}
