//! Partition tables: where other disks lie inside a disk.
//!
//! Owns reading GPT and MBR tables, for members that are partitions of a disk's image: a kernel
//! would have made devices of them. Never writes one.
//!
//! ```text
//!   MBR    sector 0: four entries; an extended one leads to a chain of sectors with one each
//!   GPT    sector 1: header ─▶ entries;  a copy of both at the end of the disk
//! ```
//!
//! Source: UEFI specification 2.10, chapter 5; compared with `sfdisk` in `program/import.rs`.

use alloc::vec::Vec;
use core::ops::Range;

/// A partition.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Partition {
    /// Its number, from 1, as Linux has it in the names of devices.
    pub number: u32,
    /// Its bytes on the disk.
    pub range: Range<u64>,
}

/// Sector sizes of disks. A table does not record its own; the GPT header's place reveals it.
const SECTORS: [u64; 2] = [512, 4096];
const MBR_SECTOR: u64 = 512;
/// Types of MBR entries that hold other partitions, and of the one that hides a GPT.
const EXTENDED: [u8; 3] = [0x05, 0x0f, 0x85];
const PROTECTIVE: u8 = 0xee;
/// Logical partitions are numbered from here.
const FIRST_LOGICAL: u32 = 5;
/// A chain of more logical partitions goes round in a circle.
const MOST_LOGICAL: u32 = 128;
/// Entries of a GPT: 128 is usual.
const MOST_ENTRIES: u32 = 1024;
const MOST_ENTRY_BYTES: u32 = 512;
const HEADER_BYTES: usize = 92;

/// The partitions of a disk of `device_bytes`, through `read(offset, length)`, which returns `None`
/// if the disk cannot be read there. Empty without a complete table; from the backup if only that
/// is complete. Partitions beyond the disk are skipped.
pub fn partitions<B: AsRef<[u8]>>(
    mut read: impl FnMut(u64, usize) -> Option<B>,
    device_bytes: u64,
) -> Vec<Partition> {
    let mut read = |offset: u64, length: usize| -> Option<Vec<u8>> {
        let end = offset.checked_add(length as u64)?;
        let bytes = if end <= device_bytes { read(offset, length)? } else { return None };
        (bytes.as_ref().len() == length).then(|| bytes.as_ref().to_vec())
    };
    for sector in SECTORS {
        let last = device_bytes / sector;
        for block in [1, last.saturating_sub(1)] {
            if let Some(found) = gpt(&mut read, sector, block) {
                return on_disk(found, device_bytes);
            }
        }
    }
    on_disk(mbr(&mut read).unwrap_or_default(), device_bytes)
}

fn on_disk(mut found: Vec<Partition>, device_bytes: u64) -> Vec<Partition> {
    found.retain(|part| part.range.start < part.range.end && part.range.end <= device_bytes);
    found
}

/// The table whose header is in this block, if it is valid and complete.
fn gpt(
    read: &mut impl FnMut(u64, usize) -> Option<Vec<u8>>,
    sector: u64,
    block: u64,
) -> Option<Vec<Partition>> {
    let header = read(block.checked_mul(sector)?, sector as usize)?;
    let length = number(&header, 12, 4) as usize;
    let sound = header.starts_with(b"EFI PART")
        && (HEADER_BYTES..=header.len()).contains(&length)
        && number(&header, 24, 8) == block;
    if !sound {
        return None;
    }
    let mut checked = header[..length].to_vec();
    checked[16..20].fill(0);
    let (count, size) = (number(&header, 80, 4) as u32, number(&header, 84, 4) as u32);
    let usual = count <= MOST_ENTRIES && (128..=MOST_ENTRY_BYTES).contains(&size);
    if u64::from(crc32(&checked)) != number(&header, 16, 4) || !usual {
        return None;
    }
    let at = number(&header, 72, 8).checked_mul(sector)?;
    let entries = read(at, (count * size) as usize)?;
    if u64::from(crc32(&entries)) != number(&header, 88, 4) {
        return None;
    }
    let partition = |(number_before, entry): (u32, &[u8])| {
        let (first, last) = (number(entry, 32, 8), number(entry, 40, 8));
        let is_used = entry[..16].iter().any(|&byte| byte != 0);
        let range = first.checked_mul(sector)?..last.checked_add(1)?.checked_mul(sector)?;
        is_used.then_some(Partition { number: number_before + 1, range })
    };
    Some((0..).zip(entries.chunks_exact(size as usize)).filter_map(partition).collect())
}

/// The four partitions of a boot sector, and the logical ones that they lead to; `None` where it is
/// none, or stands before a GPT.
fn mbr(read: &mut impl FnMut(u64, usize) -> Option<Vec<u8>>) -> Option<Vec<Partition>> {
    let table = entries(&read(0, MBR_SECTOR as usize)?)?;
    if table.iter().any(|entry| entry.kind == PROTECTIVE) {
        return None;
    }
    let mut found = Vec::new();
    for (number, entry) in (1..).zip(&table) {
        let is_extended = EXTENDED.contains(&entry.kind);
        if is_extended {
            found.extend(logical(read, entry.start));
        } else if entry.kind != 0 {
            found.push(Partition { number, range: entry.at(0) });
        }
    }
    found.sort_by_key(|part: &Partition| part.number);
    Some(found)
}

/// Each sector of the chain has one partition, which is where it says from there on, and says where
/// the next sector is, from the beginning of the chain on.
fn logical(read: &mut impl FnMut(u64, usize) -> Option<Vec<u8>>, chain: u64) -> Vec<Partition> {
    let (mut found, mut next) = (Vec::new(), 0);
    for number in FIRST_LOGICAL..FIRST_LOGICAL + MOST_LOGICAL {
        let here = chain + next;
        let table = read(here * MBR_SECTOR, MBR_SECTOR as usize);
        let Some(table) = table.as_deref().and_then(entries) else { break };
        if table[0].kind != 0 {
            found.push(Partition { number, range: table[0].at(here) });
        }
        if !EXTENDED.contains(&table[1].kind) || table[1].start == 0 {
            break;
        }
        next = table[1].start;
    }
    found
}

/// An entry of a boot sector; in sectors.
struct Entry {
    kind: u8,
    start: u64,
    len: u64,
}

impl Entry {
    /// Its bytes, counted from a sector.
    fn at(&self, base: u64) -> Range<u64> {
        let start = (base + self.start) * MBR_SECTOR;
        start..start + self.len * MBR_SECTOR
    }
}

/// The entries of a sector, if it is the boot sector of a disk with partitions: each is marked
/// bootable or not. File systems have the same signature.
fn entries(sector: &[u8]) -> Option<[Entry; 4]> {
    let entries = || sector[446..510].chunks_exact(16);
    let sound = sector.ends_with(&[0x55, 0xaa]) && entries().all(|entry| entry[0] & 0x7f == 0);
    let entry = |index: usize| {
        let bytes = &sector[446 + 16 * index..][..16];
        Entry { kind: bytes[4], start: number(bytes, 8, 4), len: number(bytes, 12, 4) }
    };
    sound.then(|| [0, 1, 2, 3].map(entry))
}

/// A little-endian number of up to eight bytes.
fn number(bytes: &[u8], at: usize, size: usize) -> u64 {
    bytes[at..at + size].iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte))
}

/// CRC-32 (IEEE 802.3), bit by bit: a table has a few KiB.
fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| (crc >> 1) ^ ((crc & 1) * 0xedb8_8320))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    const DEVICE: u64 = 1 << 20;

    fn of(disk: &[u8]) -> Vec<Partition> {
        let read = |offset: u64, length: usize| disk.get(offset as usize..)?.get(..length);
        partitions(read, disk.len() as u64)
    }

    fn put(disk: &mut [u8], at: u64, bytes: &[u8]) {
        disk[at as usize..][..bytes.len()].copy_from_slice(bytes);
    }

    /// A boot sector with entries of these types, first sectors and lengths.
    fn boot(disk: &mut [u8], at: u64, table: &[(u8, u32, u32)]) {
        for (index, (kind, start, len)) in (0..).zip(table) {
            let entry = at + 446 + 16 * index;
            put(disk, entry + 4, &[*kind]);
            put(disk, entry + 8, &start.to_le_bytes());
            put(disk, entry + 12, &len.to_le_bytes());
        }
        put(disk, at + 510, &[0x55, 0xaa]);
    }

    /// A GPT whose header is in this block, with one partition.
    fn gpt_at(disk: &mut [u8], (sector, block): (u64, u64), entries_at: u64, part: Range<u64>) {
        let mut entry = [0; 128];
        entry[0] = 0xa1;
        put(&mut entry, 32, &part.start.to_le_bytes());
        put(&mut entry, 40, &(part.end - 1).to_le_bytes());
        let mut table = [0; 512];
        // The second one.
        put(&mut table, 128, &entry);
        put(disk, entries_at * sector, &table);
        let mut header = [0; 92];
        put(&mut header, 0, b"EFI PART");
        put(&mut header, 12, &92_u32.to_le_bytes());
        put(&mut header, 24, &block.to_le_bytes());
        put(&mut header, 72, &entries_at.to_le_bytes());
        put(&mut header, 80, &4_u32.to_le_bytes());
        put(&mut header, 84, &128_u32.to_le_bytes());
        put(&mut header, 88, &crc32(&table).to_le_bytes());
        let sum = crc32(&header);
        put(&mut header, 16, &sum.to_le_bytes());
        put(disk, block * sector, &header);
    }

    #[test]
    fn the_checksum_is_the_standard_one() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
    }

    #[test]
    fn a_boot_sector_has_primary_and_logical_partitions() {
        let mut disk = vec![0; DEVICE as usize];
        boot(&mut disk, 0, &[(0xfd, 8, 100), (0x83, 200, 50), (0x0f, 400, 900)]);
        boot(&mut disk, 400 * 512, &[(0xfd, 10, 20), (0x05, 100, 300)]);
        boot(&mut disk, 500 * 512, &[(0xfd, 4, 40)]);
        let sectors = |range: Range<u64>| range.start * 512..range.end * 512;
        let expected = [(1, 8..108), (2, 200..250), (5, 410..430), (6, 504..544)]
            .map(|(number, range)| Partition { number, range: sectors(range) });
        assert_eq!(of(&disk), expected);
    }

    #[test]
    fn a_chain_that_goes_round_ends() {
        let mut disk = vec![0; DEVICE as usize];
        boot(&mut disk, 0, &[(0x05, 400, 900)]);
        boot(&mut disk, 400 * 512, &[(0xfd, 10, 20), (0x05, 100, 300)]);
        boot(&mut disk, 500 * 512, &[(0xfd, 4, 40), (0x05, 100, 300)]);
        assert_eq!(of(&disk).len(), MOST_LOGICAL as usize);
    }

    #[test]
    fn either_table_of_a_gpt_will_do_at_any_sector_size() {
        for sector in SECTORS {
            let last = DEVICE / sector - 1;
            for (block, entries_at) in [(1, 2), (last, last - 1)] {
                let mut disk = vec![0; DEVICE as usize];
                boot(&mut disk, 0, &[(PROTECTIVE, 1, 2047)]);
                gpt_at(&mut disk, (sector, block), entries_at, 8..16);
                let expected = Partition { number: 2, range: 8 * sector..16 * sector };
                assert_eq!(of(&disk), [expected]);
                disk[(block * sector) as usize + 60] ^= 1;
                assert_eq!(of(&disk), [], "a copy with a wrong checksum is not trusted");
            }
        }
    }

    #[test]
    fn an_invalid_table_has_no_partitions() {
        let mut disk = vec![0; DEVICE as usize];
        assert_eq!(of(&disk), []);
        boot(&mut disk, 0, &[(0xfd, 8, 4000)]);
        assert_eq!(of(&disk), [], "it ends after the disk");
        disk[446] = 1;
        assert_eq!(of(&disk), []);
        assert_eq!(of(&disk[..100]), []);
    }
}
