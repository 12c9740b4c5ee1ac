//! CRC32C (Castagnoli), the checksum of the private log and of network headers.
//!
//! Owns: the checksum's polynomial and its tables. Never: other CRCs; instructions are in `x86`.
//! Invariant: hardware and table give the same result for every input and every split.
//!
//! Source: RFC 3720, section 12.1 and appendix B.4 (test vectors).

/// The Castagnoli polynomial 0x1edc6f41, bits reversed.
pub(crate) const POLYNOMIAL: u32 = 0x82f6_3b78;

/// `TABLES[k][b]`: the effect of byte b that is followed by k zero bytes.
static TABLES: [[u32; 256]; 8] = tables();

const fn tables() -> [[u32; 256]; 8] {
    let mut tables = [[0; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        let (mut crc, mut bit) = (byte as u32, 0);
        while bit < 8 {
            crc = (crc >> 1) ^ if crc & 1 != 0 { POLYNOMIAL } else { 0 };
            bit += 1;
        }
        tables[0][byte] = crc;
        byte += 1;
    }
    let mut zeros = 1;
    while zeros < 8 {
        let mut byte = 0;
        while byte < 256 {
            let shorter: u32 = tables[zeros - 1][byte];
            tables[zeros][byte] = (shorter >> 8) ^ tables[0][(shorter & 0xff) as usize];
            byte += 1;
        }
        zeros += 1;
    }
    tables
}

/// CRC32C of `bytes`, continuing from `seed`: 0 to start, or the CRC of what came before, so
/// that `crc32c(crc32c(0, a), b)` is the CRC of a and b together.
///
/// Initial and final inversion are inside. Linux's `crc32c(~0, …)`, which has neither, is
/// `!crc32c(0, …)`.
pub fn crc32c(seed: u32, bytes: &[u8]) -> u32 {
    #[cfg(target_arch = "x86_64")]
    if let Some(crc) = crate::x86::crc32c(!seed, bytes) {
        return !crc;
    }
    !by_table(!seed, bytes)
}

/// Eight bytes a step through eight tables. The register is passed as it is, not inverted.
pub(crate) fn by_table(mut crc: u32, bytes: &[u8]) -> u32 {
    let (words, rest) = bytes.as_chunks::<8>();
    for word in words {
        let word = u64::from_le_bytes(*word) ^ crc as u64;
        crc = (0..8).fold(0, |sum, at| sum ^ TABLES[7 - at][(word >> (8 * at)) as usize & 0xff]);
    }
    for &byte in rest {
        crc = (crc >> 8) ^ TABLES[0][((crc ^ byte as u32) & 0xff) as usize];
    }
    crc
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    #[test]
    fn vectors_of_rfc_3720() {
        assert_eq!(crc32c(0, b""), 0);
        assert_eq!(crc32c(0, b"123456789"), 0xe306_9283);
        assert_eq!(crc32c(0, &[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(0, &[0xff; 32]), 0x62a8_ab43);
        let ascending: Vec<u8> = (0..32).collect();
        assert_eq!(crc32c(0, &ascending), 0x46dd_794e);
    }

    #[test]
    fn table_and_instruction_agree_over_every_split() {
        let bytes: Vec<u8> = (0..700u32).map(|i| ((i * i) >> 3) as u8).collect();
        for from in 0..9 {
            for to in from..bytes.len() {
                assert_eq!(crc32c(7, &bytes[from..to]), !by_table(!7, &bytes[from..to]));
            }
        }
        let whole = crc32c(0, &bytes);
        for at in 0..bytes.len() {
            assert_eq!(crc32c(crc32c(0, &bytes[..at]), &bytes[at..]), whole);
        }
    }
}
