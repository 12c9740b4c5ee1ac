//! Signs: bytes that file systems and similar formats store at places they announce themselves.
//!
//! The first block of a file system gives the places of its copies and of other structures. Each
//! sign is a few bytes at an offset of the array. It is there only if the array is assembled
//! correctly.
//!
//! | format | signs |
//! |---|---|
//! | ext2, 3, 4 | backup superblocks, each with its group's number |
//! | XFS | the headers of each allocation group, with its number |
//! | btrfs | its mirrors, each with its address |
//! | LUKS 2 | its second header |
//! | LVM | the start of its data: perhaps another of these |
//! | GPT, MBR | the starts of partitions; GPT, its copy at the end |
//!
//! Source: the formats' own documents (kernel documentation of ext4 and XFS, btrfs's on-disk
//! format, LUKS2's specification, LVM's `label` and `pv_header`, UEFI).

use crate::recover::pages::PAGE;

/// This many signs are enough evidence.
const MOST_SIGNS: usize = 96;

pub(super) const EXT: &str = "ext file system";
pub(super) const XFS: &str = "XFS file system";
pub(super) const MBR: &str = "partition table";

/// The first btrfs superblock is here; the bytes before it are empty.
pub(super) const BTRFS_AT: u64 = 64 << 10;

/// Bytes expected at an offset of the array, within one page.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Sign {
    pub(super) at: u64,
    /// Offsets from there.
    bytes: Vec<(usize, Vec<u8>)>,
}

impl Sign {
    /// True if this page, in which the sign belongs, has it.
    pub(super) fn is_in(&self, page: &[u8]) -> bool {
        let start = (self.at % PAGE) as usize;
        self.bytes.iter().all(|(offset, bytes)| {
            page.get(start + offset..).is_some_and(|rest| rest.starts_with(bytes))
        })
    }
}

/// The contents that begin at an offset of the array.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Start {
    pub(super) name: &'static str,
    /// The distance of the identifying page from that offset.
    pub(super) told_at: u64,
    pub(super) signs: Vec<Sign>,
    /// Possible starts of other contents.
    pub(super) inside: Vec<u64>,
}

impl Start {
    fn new(name: &'static str, signs: Vec<Sign>) -> Start {
        Start { name, told_at: 0, signs, inside: Vec::new() }
    }

    /// The same, at a later offset of the array.
    pub(super) fn moved(mut self, by: u64) -> Start {
        self.signs.iter_mut().for_each(|sign| sign.at = sign.at.saturating_add(by));
        self.inside.iter_mut().for_each(|at| *at = at.saturating_add(by));
        self
    }
}

/// The contents that begin with this page of a disk.
pub(super) fn start(page: &[u8]) -> Option<Start> {
    let known = [ext, xfs, btrfs, luks, lvm, gpt, mbr];
    known.iter().find_map(|known| known(page)).map(|mut start| {
        start.signs.truncate(MOST_SIGNS);
        start
    })
}

fn sign(at: u64, bytes: &[(usize, &[u8])]) -> Sign {
    Sign { at, bytes: bytes.iter().map(|(offset, bytes)| (*offset, bytes.to_vec())).collect() }
}

pub(super) fn little(bytes: &[u8], at: usize, size: usize) -> u64 {
    bytes[at..at + size].iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte))
}

pub(super) fn big(bytes: &[u8], at: usize, size: usize) -> u64 {
    bytes[at..at + size].iter().fold(0, |number, &byte| number << 8 | u64::from(byte))
}

fn ext(page: &[u8]) -> Option<Start> {
    const INCOMPATIBLE_64BIT: u64 = 0x80;
    const READ_ONLY_SPARSE: u64 = 1;
    let superblock = page.get(1024..2048)?;
    let number = |at: usize, size: usize| little(superblock, at, size);
    let block = 1024_u64 << number(0x18, 4).min(7);
    let (first, group_blocks) = (number(0x14, 4), number(0x20, 4));
    let sound = superblock[0x38..].starts_with(&[0x53, 0xef])
        && number(0x18, 4) <= 6
        && number(0x5a, 2) == 0
        && first == u64::from(block == 1024)
        && (1..=8 * block).contains(&group_blocks);
    if !sound {
        return None;
    }
    let high = if number(0x60, 4) & INCOMPATIBLE_64BIT != 0 { number(0x150, 4) } else { 0 };
    let blocks = number(0x4, 4) | high << 32;
    let sparse = number(0x64, 4) & READ_ONLY_SPARSE != 0;
    let uuid = &superblock[0x68..0x78];
    let mut signs = vec![sign(1024, &[(0x38, &[0x53, 0xef]), (0x68, uuid)])];
    let groups = blocks.saturating_sub(first).div_ceil(group_blocks);
    let has_copy = |group: &u64| !sparse || [3, 5, 7].iter().any(|&base| is_power(*group, base));
    for group in (1..groups.min(1 << 20)).filter(has_copy).take(MOST_SIGNS) {
        let number = (group as u16).to_le_bytes();
        let at = (first + group * group_blocks) * block;
        signs.push(sign(at, &[(0x38, &[0x53, 0xef]), (0x5a, &number), (0x68, uuid)]));
    }
    Some(Start::new(EXT, signs))
}

/// Also true for 1.
fn is_power(mut number: u64, base: u64) -> bool {
    while number > 1 && number.is_multiple_of(base) {
        number /= base;
    }
    number == 1
}

fn xfs(page: &[u8]) -> Option<Start> {
    let number = |at: usize, size: usize| big(page, at, size);
    let (block, sector) = (number(4, 4), number(102, 2));
    let (group_blocks, groups) = (number(84, 4), number(88, 4));
    let sound = page.starts_with(b"XFSB")
        && block.is_power_of_two()
        && (512..=65_536).contains(&block)
        && sector.is_power_of_two()
        && (512..=PAGE).contains(&sector)
        && group_blocks > 0
        && groups > 0;
    if !sound {
        return None;
    }
    let uuid = &page[32..48];
    let mut signs = Vec::new();
    for group in 0..groups.min(MOST_SIGNS as u64 / 2) {
        let at = group * group_blocks * block;
        let number = (group as u32).to_be_bytes();
        signs.push(sign(at, &[(0, b"XFSB"), (32, uuid)]));
        signs.push(sign(at + sector, &[(0, b"XAGF"), (8, &number)]));
    }
    Some(Start::new(XFS, signs))
}

fn btrfs(page: &[u8]) -> Option<Start> {
    const FIRST: u64 = BTRFS_AT;
    const MIRRORS: [u64; 2] = [64 << 20, 256 << 30];
    let sound = page[0x40..].starts_with(b"_BHRfS_M") && little(page, 0x30, 8) == FIRST;
    if !sound {
        return None;
    }
    let (id, bytes) = (&page[0x20..0x30], little(page, 0x70, 8));
    let copies = [FIRST].into_iter().chain(MIRRORS.into_iter().filter(|at| at + PAGE <= bytes));
    let copy = |at: u64| sign(at, &[(0x20, id), (0x30, &at.to_le_bytes()), (0x40, b"_BHRfS_M")]);
    Some(Start { told_at: FIRST, ..Start::new("btrfs file system", copies.map(copy).collect()) })
}

fn luks(page: &[u8]) -> Option<Start> {
    if !page.starts_with(b"LUKS\xba\xbe") {
        return None;
    }
    let mut signs = vec![sign(0, &[(0, b"LUKS\xba\xbe")])];
    let header_bytes = big(page, 8, 8);
    if big(page, 6, 2) == 2 && header_bytes.is_power_of_two() && header_bytes <= 4 << 20 {
        signs.push(sign(header_bytes, &[(0, b"SKUL\xba\xbe")]));
    }
    Some(Start::new("LUKS volume", signs))
}

fn lvm(page: &[u8]) -> Option<Start> {
    let label = page.get(512..1024)?;
    let header = little(label, 20, 4) as usize;
    let sound = label.starts_with(b"LABELONE")
        && little(label, 8, 8) == 1
        && label[24..].starts_with(b"LVM2 001")
        && header <= 512 - 56;
    if !sound {
        return None;
    }
    let signs = vec![sign(512, &[(0, b"LABELONE"), (header, &label[header..header + 32])])];
    // The start of data follows the volume's identity and size.
    let data = little(label, header + 40, 8);
    Some(Start { inside: vec![data], ..Start::new("LVM volume", signs) })
}

fn gpt(page: &[u8]) -> Option<Start> {
    let header = page.get(512..1024)?;
    if !header.starts_with(b"EFI PART") || little(header, 24, 8) != 1 {
        return None;
    }
    let id = &header[56..72];
    let mut signs = vec![sign(512, &[(0, b"EFI PART"), (56, id)])];
    if let Some(copy) = little(header, 32, 8).checked_mul(512) {
        signs.push(sign(copy, &[(0, b"EFI PART"), (56, id)]));
    }
    let entries = page[1024..].chunks_exact(128);
    let starts = entries.map(|entry| little(entry, 32, 8)).filter(|&start| start > 0);
    let inside = starts.filter_map(|start| start.checked_mul(512)).collect();
    Some(Start { inside, ..Start::new("GPT", signs) })
}

fn mbr(page: &[u8]) -> Option<Start> {
    let entries = || page[446..510].chunks_exact(16);
    let sound = page[510..].starts_with(&[0x55, 0xaa])
        && entries().all(|entry| entry[0] & 0x7f == 0)
        && entries().any(|entry| entry[4] != 0 && little(entry, 8, 4) > 0);
    if !sound {
        return None;
    }
    let used = entries().filter(|entry| entry[4] != 0 && entry[4] != 0xee);
    let inside: Vec<u64> = used.map(|entry| little(entry, 8, 4) * 512).collect();
    let signs = vec![sign(0, &[(440, &page[440..512])])];
    Some(Start { inside, ..Start::new(MBR, signs) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backups_lie_in_groups_whose_number_is_a_power() {
        let powers: Vec<u64> =
            (1..60).filter(|&n| [3, 5, 7].iter().any(|&base| is_power(n, base))).collect();
        assert_eq!(powers, [1, 3, 5, 7, 9, 25, 27, 49]);
    }

    #[test]
    fn zeros_and_noise_are_nothing() {
        assert_eq!(start(&[0; PAGE as usize]), None);
        assert_eq!(start(&[0xff; PAGE as usize]), None);
    }

    /// Arbitrary numbers behind a magic.
    #[test]
    fn numbers_that_make_no_sense_are_taken() {
        let magics: [(usize, &[u8]); 7] = [
            (1024 + 0x38, &[0x53, 0xef]),
            (0, b"XFSB"),
            (0x40, b"_BHRfS_M"),
            (0, b"LUKS\xba\xbe"),
            (512, b"LABELONE\x01\0\0\0\0\0\0\0"),
            (512, b"EFI PART"),
            (510, &[0x55, 0xaa]),
        ];
        let (mut noise, mut found) = (1_u64, 0);
        for turn in 0..70_000 {
            let mut page = vec![0; PAGE as usize];
            // Few numbers, so that some are small enough to be plausible.
            for _ in 0..turn % 40 {
                noise = noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let at = (noise >> 33) as usize % 2048;
                page[at] = (noise >> 24) as u8;
            }
            let (at, magic) = magics[turn % magics.len()];
            page[at..at + magic.len()].copy_from_slice(magic);
            if let Some(start) = start(&page) {
                let moved = start.moved(u64::MAX - 4096);
                found += usize::from(moved.signs.iter().all(|sign| !sign.is_in(&[])));
            }
        }
        assert!(found > 1000, "{found}");
    }
}
