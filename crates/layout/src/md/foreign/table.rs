//! The signatures, one a line.

use super::{Check, Place, Probe};

const fn start(name: &'static str, offset: u64, bytes: &'static [u8]) -> Probe {
    Probe { name, place: Place::Start(offset), bytes, more: 0, check: Check::None }
}

const fn end(name: &'static str, back: u64, align: u64, bytes: &'static [u8]) -> Probe {
    let place = Place::End { back, align, plus: 0 };
    Probe { name, place, bytes, more: 0, check: Check::None }
}

const fn checked(check: Check, probe: Probe) -> Probe {
    Probe { check, ..probe }
}

/// The ring of 128 uberblocks of one of ZFS's four labels of 256 KiB.
const fn zfs(place: Place, bytes: &'static [u8]) -> Probe {
    Probe { name: "zfs_member", place, bytes, more: 127, check: Check::None }
}

const MD: &str = "linux_raid_member";
const MD_LITTLE: &[u8] = &[0xfc, 0x4e, 0x2b, 0xa9];
const MD_BIG: &[u8] = &[0xa9, 0x2b, 0x4e, 0xfc];
const PARAPET: &str = "parapet_member";
const PARAPET_MAGIC: &[u8] = b"Pp35";
const JOURNAL: &str = "parapet_journal";
const JOURNAL_MAGIC: &[u8] = crate::private::journal::MAGIC_BYTES;
/// The head of a label frame: magic, version, kind (`cluster::session::Label`).
const CLUSTER_LABEL: &[u8] = b"PpCl\x01\0\x08\0";
const LVM: &[u8] = b"LABELONE";
const LUKS: &str = "crypto_LUKS";
const LUKS_BACKUP: &[u8] = b"SKUL\xba\xbe";
const BTRFS: &[u8] = b"_BHRfS_M";
const SWAP: &[u8] = b"SWAPSPACE2";
const GPT: &[u8] = b"EFI PART";
const ZFS_LITTLE: &[u8] = &[0x0c, 0xb1, 0xba, 0x00, 0, 0, 0, 0];
const ZFS_BIG: &[u8] = &[0, 0, 0, 0, 0x00, 0xba, 0xb1, 0x0c];
const RING: u64 = 128 << 10;
const LABEL: u64 = 256 << 10;

const fn label_from_end(labels: u64) -> Place {
    Place::End { back: labels * LABEL, align: LABEL, plus: RING }
}

/// Every signature that is looked for.
pub const PROBES: &[Probe] = &[
    // Partition tables
    checked(Check::Partitions, start("dos", 510, &[0x55, 0xaa])),
    start("gpt", 512, GPT),
    start("gpt", 4096, GPT),
    end("gpt", 512, 512, GPT),
    end("gpt", 4096, 4096, GPT),
    // RAID
    start(MD, 4096, MD_LITTLE),
    start(MD, 0, MD_LITTLE),
    end(MD, 8192, 4096, MD_LITTLE),
    end(MD, 64 << 10, 64 << 10, MD_LITTLE),
    end(MD, 64 << 10, 64 << 10, MD_BIG),
    start(PARAPET, 4096, PARAPET_MAGIC),
    start(PARAPET, 0, PARAPET_MAGIC),
    end(PARAPET, 8192, 4096, PARAPET_MAGIC),
    start("parapet_cluster_member", 0, CLUSTER_LABEL),
    start(JOURNAL, 4096, JOURNAL_MAGIC),
    start(JOURNAL, 8192, JOURNAL_MAGIC),
    end("ddf_raid_member", 512, 512, &[0xde, 0x11, 0xde, 0x11]),
    end("ddf_raid_member", 257 * 512, 512, &[0xde, 0x11, 0xde, 0x11]),
    end("isw_raid_member", 1024, 512, b"Intel Raid ISM Cfg Sig. "),
    // Volume managers and layers
    start("LVM2_member", 0, LVM),
    start("LVM2_member", 512, LVM),
    start("LVM2_member", 1024, LVM),
    start("LVM2_member", 1536, LVM),
    start(LUKS, 0, b"LUKS\xba\xbe"),
    start(LUKS, 0x4000, LUKS_BACKUP),
    start(LUKS, 0x8000, LUKS_BACKUP),
    start(LUKS, 0x10000, LUKS_BACKUP),
    start(LUKS, 0x20000, LUKS_BACKUP),
    start(LUKS, 0x40000, LUKS_BACKUP),
    start(LUKS, 0x80000, LUKS_BACKUP),
    start(LUKS, 0x10_0000, LUKS_BACKUP),
    start(LUKS, 0x20_0000, LUKS_BACKUP),
    start(LUKS, 0x40_0000, LUKS_BACKUP),
    start("DM_integrity", 0, b"integrt\0"),
    start("DM_verity_hash", 0, b"verity\0\0"),
    start("ceph_bluestore", 0, b"bluestore block device"),
    start("bcache", 4096 + 24, b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81"),
    start(
        "bcachefs",
        4096 + 24,
        b"\xc6\x85\x73\xf6\x66\xce\x90\xa9\xd9\x6a\x60\xcf\x80\x3d\xf7\xef",
    ),
    // File systems
    checked(Check::Ext, start("ext4", 0x438, &[0x53, 0xef])),
    start("xfs", 0, b"XFSB"),
    start("btrfs", 0x1_0040, BTRFS),
    start("btrfs", 0x400_0040, BTRFS),
    start("btrfs", 0x40_0000_0040, BTRFS),
    start("f2fs", 0x400, &[0x10, 0x20, 0xf5, 0xf2]),
    start("ntfs", 3, b"NTFS    "),
    start("exfat", 3, b"EXFAT   "),
    checked(Check::Fat, start("vfat", 0, &[0xeb])),
    checked(Check::Fat, start("vfat", 0, &[0xe9])),
    checked(Check::Fat, start("vfat", 510, &[0x55, 0xaa])),
    start("vfat", 0x52, b"FAT32   "),
    start("vfat", 0x36, b"FAT12   "),
    start("vfat", 0x36, b"FAT16   "),
    start("vfat", 0x36, b"FAT     "),
    start("iso9660", 0x8001, b"CD001"),
    start("squashfs", 0, b"hsqs"),
    zfs(Place::Start(RING), ZFS_LITTLE),
    zfs(Place::Start(RING), ZFS_BIG),
    zfs(Place::Start(LABEL + RING), ZFS_LITTLE),
    zfs(Place::Start(LABEL + RING), ZFS_BIG),
    zfs(label_from_end(2), ZFS_LITTLE),
    zfs(label_from_end(2), ZFS_BIG),
    zfs(label_from_end(1), ZFS_LITTLE),
    zfs(label_from_end(1), ZFS_BIG),
    // Swap, at the end of a page of 4 to 64 KiB; and a suspended system in it
    start("swap", (4 << 10) - 10, SWAP),
    start("swap", (8 << 10) - 10, SWAP),
    start("swap", (16 << 10) - 10, SWAP),
    start("swap", (32 << 10) - 10, SWAP),
    start("swap", (64 << 10) - 10, SWAP),
    start("swap", (4 << 10) - 10, b"SWAP-SPACE"),
    start("swsuspend", (4 << 10) - 10, b"S1SUSPEND"),
    start("swsuspend", (4 << 10) - 10, b"S2SUSPEND"),
    start("swsuspend", (4 << 10) - 10, b"ULSUSPEND"),
];
