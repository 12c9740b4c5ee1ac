//! The sector that IDENTIFY DEVICE answers with.
//!
//! Source: ATA8-ACS, 7.16. Words are little-endian; strings have their bytes swapped in pairs and
//! are padded with spaces. Linux reads words 10–46 (names), 60–61, 83, 86 and 100–103 (size).

use super::SECTOR;

/// The most sectors that a 28-bit address reaches.
pub const MAX_LBA28: u64 = 0x0fff_ffff;
/// The most sectors that a 48-bit address reaches.
pub const MAX_LBA48: u64 = (1 << 48) - 1;
/// Bytes of a serial number.
pub const SERIAL_BYTES: usize = 20;
/// Bytes of a model name.
pub const MODEL_BYTES: usize = 40;
/// Bytes of a firmware's name.
pub const FIRMWARE_BYTES: usize = 8;

/// A device, as it describes itself.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Identity {
    /// At most [`SERIAL_BYTES`].
    pub serial: String,
    /// At most [`MODEL_BYTES`].
    pub model: String,
    /// At most [`FIRMWARE_BYTES`].
    pub firmware: String,
    /// Its size.
    pub sectors: u64,
    /// Bytes of a physical block; a power of two from 512 on.
    pub physical_block: u32,
    /// Distance costs time.
    pub rotational: bool,
}

impl Identity {
    /// The sector.
    pub fn to_sector(&self) -> [u8; SECTOR] {
        let mut bytes = [0; SECTOR];
        let mut put = |word: usize, value: u16| {
            bytes[word * 2..word * 2 + 2].copy_from_slice(&value.to_le_bytes());
        };
        put(0, 0x0040); // a fixed device
        put(47, 0x8000); // no READ MULTIPLE
        put(49, 0x0200); // LBA
        put(50, 0x4000);
        put(53, 0x0002);
        let short = self.sectors.min(MAX_LBA28);
        put(60, short as u16);
        put(61, (short >> 16) as u16);
        put(80, 0x00f0); // ATA/ATAPI-4 to -7
        // SMART and power management; 48-bit addresses, FLUSH CACHE and FLUSH CACHE EXT. First what
        // is supported, then what is enabled.
        for (word, value) in [(82, 0x0009), (83, 0x7400), (84, 0x4000)] {
            put(word, value);
        }
        for (word, value) in [(85, 0x0009), (86, 0x3400), (87, 0x4000)] {
            put(word, value);
        }
        put(93, 0x400b);
        let long = self.sectors.min(MAX_LBA48);
        (0..3).for_each(|part| put(100 + part, (long >> (16 * part)) as u16));
        let ratio = (self.physical_block.max(SECTOR as u32) / SECTOR as u32).ilog2() as u16;
        put(106, 0x4000 | if ratio > 0 { 0x2000 | ratio } else { 0 });
        put(217, if self.rotational { 7200 } else { 1 });
        put_text(&mut bytes[20..20 + SERIAL_BYTES], &self.serial);
        put_text(&mut bytes[46..46 + FIRMWARE_BYTES], &self.firmware);
        put_text(&mut bytes[54..54 + MODEL_BYTES], &self.model);
        bytes[510] = 0xa5;
        bytes[511] = checksum(&bytes);
        bytes
    }

    /// The device that a sector describes. Nothing if it addresses no sector.
    pub fn parse(bytes: &[u8]) -> Option<Identity> {
        let bytes = bytes.first_chunk::<SECTOR>()?;
        let word = |at: usize| u16::from_le_bytes([bytes[at * 2], bytes[at * 2 + 1]]);
        let extended = (word(83) | word(86)) & 0x0400 != 0;
        let words = if extended { 100..103 } else { 60..62 };
        let sectors = words.rev().fold(0, |sectors, at| sectors << 16 | u64::from(word(at)));
        let ratio = if word(106) & 0xe000 == 0x6000 { word(106) & 0x0f } else { 0 };
        let identity = Identity {
            serial: text(&bytes[20..20 + SERIAL_BYTES]),
            model: text(&bytes[54..54 + MODEL_BYTES]),
            firmware: text(&bytes[46..46 + FIRMWARE_BYTES]),
            sectors,
            physical_block: (SECTOR as u32) << ratio.min(8),
            rotational: word(217) > 1,
        };
        (sectors > 0).then_some(identity)
    }
}

/// Makes the sum of all bytes zero, its own included.
fn checksum(bytes: &[u8; SECTOR]) -> u8 {
    bytes[..SECTOR - 1].iter().fold(0_u8, |sum, byte| sum.wrapping_sub(*byte))
}

fn put_text(into: &mut [u8], text: &str) {
    let bytes = text.bytes().filter(|byte| matches!(byte, b' '..=b'~'));
    let mut bytes = bytes.chain(std::iter::repeat(b' '));
    for pair in into.chunks_exact_mut(2) {
        pair[1] = bytes.next().unwrap_or(b' ');
        pair[0] = bytes.next().unwrap_or(b' ');
    }
}

fn text(bytes: &[u8]) -> String {
    let swapped = bytes.chunks_exact(2).flat_map(|pair| [pair[1], pair[0]]);
    let printable = swapped.filter(|byte| matches!(byte, b' '..=b'~')).map(char::from);
    printable.collect::<String>().trim().to_owned()
}
