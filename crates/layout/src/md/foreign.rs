//! Foreign signatures: to be found before anything is written to a device.
//!
//! Owns the table of signatures, where each may be, and which bytes to wipe so that it is no longer
//! found. Never interprets a format beyond its name, never wipes anything itself.
//!
//! Most formats are one line of [`PROBES`]. The rest need a look at more than the magic: which of
//! ext2, ext3 and ext4 it is; whether the boot signature is a partition table or the boot sector of
//! a file system.
//!
//! Source: the formats' own documents and libblkid's behaviour; compared with `wipefs` and `blkid`
//! in `tests/md_foreign.rs`.

use alloc::vec::Vec;
use core::ops::Range;

mod table;

pub use table::PROBES;

/// Where a signature may lie.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// Bytes from the start of the device.
    Start(u64),
    /// `back` bytes before the end, rounded down to a multiple of `align`.
    End {
        /// Bytes from the end.
        back: u64,
        /// A power of two.
        align: u64,
        /// Bytes from there.
        plus: u64,
    },
}

impl Place {
    /// The byte on a device of `device_bytes`; `None` if it is too small.
    pub fn offset(self, device_bytes: u64) -> Option<u64> {
        match self {
            Place::Start(offset) => Some(offset),
            Place::End { back, align, plus } => {
                device_bytes.checked_sub(back).map(|offset| (offset & !(align - 1)) + plus)
            }
        }
    }
}

/// A signature to look for.
#[derive(Clone, Copy, Debug)]
pub struct Probe {
    /// As blkid calls the format, where blkid knows it.
    pub name: &'static str,
    /// Where.
    pub place: Place,
    /// The kind of data.
    pub bytes: &'static [u8],
    /// It may also lie this many times 1 KiB further on (ZFS writes its magic round a ring).
    pub more: u64,
    /// A further condition.
    pub check: Check,
}

/// Conditions beyond the magic.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Check {
    /// Nothing.
    None,
    /// Which ext file system it is.
    Ext,
    /// Whether it is a partition table.
    Partitions,
    /// Whether it is the boot sector of a FAT file system.
    Fat,
}

/// A signature that was found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Signature {
    /// As blkid calls the format, where blkid knows it.
    pub name: &'static str,
    /// The byte of the device at which the magic lies.
    pub offset: u64,
    /// How many bytes to overwrite there so that nothing finds it again.
    pub length: u64,
}

impl Signature {
    /// The bytes of the device to overwrite.
    pub const fn wipe(&self) -> Range<u64> {
        self.offset..self.offset + self.length
    }
}

/// Looks for every signature on a device of `device_bytes`, through `read(offset, length)`, which
/// gives `None` where the device cannot be read. A few bytes are read for most probes, 128 KiB for
/// each of ZFS's four labels. The answer is in the order of [`PROBES`]; a file system with several
/// copies of its signature is found at each.
pub fn probe<B: AsRef<[u8]>>(
    mut read: impl FnMut(u64, usize) -> Option<B>,
    device_bytes: u64,
) -> Vec<Signature> {
    let mut read = |offset: u64, length: usize| {
        let end = offset.checked_add(length as u64)?;
        (end <= device_bytes)
            .then(|| read(offset, length))
            .flatten()
            .filter(|bytes| bytes.as_ref().len() == length)
    };
    let mut found: Vec<Signature> = Vec::new();
    for probe in PROBES {
        let Some(start) = probe.place.offset(device_bytes) else { continue };
        let length = probe.bytes.len() + (probe.more as usize) * 1024;
        let Some(window) = read(start, length) else { continue };
        for index in 0..=probe.more as usize {
            let offset = start + 1024 * index as u64;
            if !window.as_ref()[1024 * index..].starts_with(probe.bytes) {
                continue;
            }
            let name = match probe.check {
                Check::None => Some(probe.name),
                Check::Ext => read(0x400, 1024).map(|block| ext(block.as_ref())),
                Check::Partitions => named(&mut read, probe.name, is_partition_table),
                Check::Fat => named(&mut read, probe.name, is_fat),
            };
            let signature = |name| Signature { name, offset, length: probe.bytes.len() as u64 };
            let new = name.map(signature).filter(|new| !found.contains(new));
            found.extend(new);
        }
    }
    found
}

/// Which ext file system a superblock belongs to: a journal makes it 3, extents (or anything else
/// that ext3 does not know) 4.
fn ext(superblock: &[u8]) -> &'static str {
    let word = |offset: usize| {
        let bytes = &superblock[offset..offset + 4];
        bytes.iter().rev().fold(0, |word: u32, &byte| word << 8 | u32::from(byte))
    };
    const HAS_JOURNAL: u32 = 0x4;
    /// filetype, recover, meta_bg
    const INCOMPATIBLE_EXT3: u32 = 0x2 | 0x4 | 0x10;
    /// sparse_super, large_file, btree_dir
    const READ_ONLY_EXT3: u32 = 0x1 | 0x2 | 0x4;
    if word(0x60) & !INCOMPATIBLE_EXT3 != 0 || word(0x64) & !READ_ONLY_EXT3 != 0 {
        "ext4"
    } else if word(0x5c) & HAS_JOURNAL != 0 {
        "ext3"
    } else {
        "ext2"
    }
}

/// The name, if the boot sector matches `is`.
fn named<B: AsRef<[u8]>>(
    mut read: impl FnMut(u64, usize) -> Option<B>,
    name: &'static str,
    is: fn(&[u8]) -> bool,
) -> Option<&'static str> {
    read(0, 512).filter(|sector| is(sector.as_ref())).map(|_| name)
}

/// True if the four entries of a boot sector can be partitions: each is marked bootable or not, and
/// one is in use. FAT and NTFS have the same boot signature.
fn is_partition_table(sector: &[u8]) -> bool {
    let ntfs = sector[3..].starts_with(b"NTFS    ") || sector[3..].starts_with(b"EXFAT   ");
    let entries = || sector[446..510].chunks_exact(16);
    !ntfs
        && !is_fat(sector)
        && entries().all(|entry| entry[0] & 0x7f == 0)
        && entries().any(|entry| entry[4] != 0)
}

/// True if a boot sector begins with a jump over the parameters of a FAT file system, and these are
/// plausible. The name of the format is optional there.
fn is_fat(sector: &[u8]) -> bool {
    let number = |offset: usize| u16::from_le_bytes([sector[offset], sector[offset + 1]]);
    let [sector_bytes, reserved_sectors] = [number(11), number(14)];
    let [cluster_sectors, fats, media] = [sector[13], sector[16], sector[21]];
    matches!(sector[0], 0xeb | 0xe9)
        && sector_bytes.is_power_of_two()
        && (512..=4096).contains(&sector_bytes)
        && cluster_sectors.is_power_of_two()
        && reserved_sectors > 0
        && (1..=4).contains(&fats)
        && matches!(media, 0xf0 | 0xf8..)
}
