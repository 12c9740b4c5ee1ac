//! Bytes that a real kernel (Linux 6.1) and mdadm 4.2 wrote, read here and printed again.
//!
//! Three arrays of 64 MiB members: a RAID 5 (1.2, bitmap) with bad blocks on slot 1, whose slot 2
//! was failed while it ran, seen from slot 1; a RAID 5 (1.0, partial parity log) after one write of
//! 4 KiB; a RAID 1 (0.90, bitmap). In the dumps, rows that are missing are zeros.

use layout::md::badblocks::BadBlocks;
use layout::md::super090::ByteOrder;
use layout::md::superblock::PplPlace;
use layout::md::{
    Bitmap, BitmapVersion, ByteMap, Features, PplEntry, PplHeader, Role, Superblock, Superblock090,
    Version, ppl,
};

/// At sector 8.
const SUPERBLOCK_1_2: &str = "\
    0000 fc4e2ba90100000009000000000000001ba3e583c282ea96dbd04f60ed1ec118
    0020 6b65726e656c3a676f6c64656e00000000000000000000000000000000000000
    0040 8d0d026b00000000050000000200000000f80100000000008000000003000000
    0060 0800000000000000000000000000000000000000000000000000000000000000
    0080 000800000000000000f801000000000008000000000000000000000000000000
    00a0 01000000000000001b7d208ccc716b480ab2824b813b1a9e0000080010000000
    00c0 8d0d026b000000000400000000000000ffffffffffffffff1894570c80000000
    0100 00000100feffffffffffffffffffffffffffffffffffffffffffffffffffffff
    0120 ff x 224";

const BITMAP: &str = "\
    0000 6269746d040000001ba3e583c282ea96dbd04f60ed1ec1180400000000000000
    0020 010000000000000000f801000000000000000000000000040500000000000000
    0100 ff x 3840";

const BAD_BLOCKS: &str = "\
    0000 01a08c000000000010c045040000000008c04d0400000000ffffffffffffffff
    0020 ff x 4064";

/// At sector 131,056.
const SUPERBLOCK_1_0: &str = "\
    0000 fc4e2ba901000000000800000000000077cfd950f41a97165b7b5222e35b29a9
    0020 6b65726e656c3a70706c00000000000000000000000000000000000000000000
    0040 8d0d026b00000000050000000200000080f70100000000008000000003000000
    0060 f8f7000800000000000000000000000000000000000000000000000000000000
    0080 0000000000000000e8f7010000000000f0ff0100000000000000000000000000
    00a0 0000000000000000bc32ff09188195fbc6e6e57eca311ca300000800f8ffffff
    00c0 8d0d026b000000000200000000000000ffffffffffffffffc1266fc080000000
    0100 000001000200ffffffffffffffffffffffffffffffffffffffffffffffffffff
    0120 ff x 224";

const SUPERBLOCK_0_90: &str = "\
    0000 fc4e2ba9000000005a00000000000000000000004251d5558d0d026b01000000
    0020 c0ff000002000000020000000200000000000000e5530c723c6b183d348f9553
    0080 8e0d026b0101000002000000020000000000000000000000760dc0d712000000
    00a0 000000001200000000000000ffffffff00000000000000000000000000000000
    0200 0000000062000000600000000000000006000000000000000000000000000000
    0280 0100000062000000700000000100000006000000000000000000000000000000
    0f80 0100000062000000700000000100000006000000000000000000000000000000";

const BITMAP_0_90: &str = "\
    0000 6269746d040000004251d555e5530c723c6b183d348f95531200000000000000
    0020 010000000000000080ff01000000000000000000000000040500000000000000
    0100 feffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff
    0120 ff x 3808";

const PPL_HEADER: &str = "\
    0000 ff x 512
    0200 7ca04f3900000000010000000000000001000000792f5d502800000000000000
    0220 0010000000100000020000008941f99800000000000000000000000000000000";

const MEMBER_BYTES: u64 = 64 << 20;

/// The bytes of a dump: rows of an offset and either bytes or `ff x COUNT`.
fn bytes(dump: &str, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    for row in dump.lines() {
        let (offset, row) = row.trim().split_once(' ').expect("an offset and bytes");
        let offset = usize::from_str_radix(offset, 16).expect("hexadecimal");
        match row.strip_prefix("ff x ") {
            Some(count) => {
                let count: usize = count.parse().expect("decimal");
                bytes[offset..offset + count].fill(0xff);
            }
            None => {
                let digit = |index: usize| u8::from_str_radix(&row[2 * index..2 * index + 2], 16);
                for index in 0..row.len() / 2 {
                    bytes[offset + index] = digit(index).expect("hexadecimal");
                }
            }
        }
    }
    bytes
}

/// CRC-32C, bit by bit.
fn crc32c(before: u32, bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!before, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| (crc >> 1) ^ ((crc & 1) * 0x82f6_3b78))
    })
}

#[test]
fn a_1_2_superblock_of_the_kernel() {
    let bytes = bytes(SUPERBLOCK_1_2, 512);
    let found = Superblock::parse(&bytes, 8).unwrap();
    assert_eq!(found.print(), bytes);
    assert_eq!(found.version(), Version::V1_2);
    assert_eq!(found.set_uuid.to_string(), "1ba3e583:c282ea96:dbd04f60:ed1ec118");
    assert_eq!(found.device.uuid.to_string(), "1b7d208c:cc716b48:0ab2824b:813b1a9e");
    assert_eq!((found.set_name.to_string(), found.set_name.short()), names("kernel:golden"));
    assert_eq!(found.features, Features::BITMAP.with(Features::BAD_BLOCKS));
    assert_eq!((found.level, found.layout, found.raid_disks, found.chunk_sectors), (5, 2, 3, 128));
    assert_eq!((found.size, found.data_offset, found.data_size), (129_024, 2048, 129_024));
    assert_eq!((found.bitmap_offset, found.bblog.offset, found.bblog.sectors), (8, 16, 8));
    assert_eq!((found.events, found.is_clean(), found.utime.micros()), (4, true, 0));
    assert_eq!(found.roles[..4], [Role::Slot(0), Role::Slot(1), Role::Faulty, Role::Spare]);
    assert_eq!((found.roles.len(), found.own_role()), (128, Role::Slot(1)));
    let map = ByteMap::of(&found, MEMBER_BYTES).unwrap();
    assert_eq!(map.data, 1 << 20..MEMBER_BYTES);
    assert_eq!((map.bitmap, map.bad_blocks), (Some(8192..12288), Some(12288..16384)));
    assert_eq!((map.ppl, map.private), (None, Some(16384..1 << 20)));
}

fn names(name: &str) -> (String, String) {
    (name.to_owned(), name.rsplit(':').next().unwrap_or("").to_owned())
}

#[test]
fn a_bitmap_of_the_kernel() {
    let bytes = bytes(BITMAP, 4096);
    let found = Bitmap::parse(&bytes).unwrap();
    assert_eq!(found.print(), bytes[..256]);
    let superblock = Superblock::parse(&self::bytes(SUPERBLOCK_1_2, 512), 8).unwrap();
    let expected = Bitmap::new(superblock.set_uuid, superblock.size, 64 << 20);
    assert_eq!(found, Bitmap { events: 4, events_cleared: 1, ..expected });
    assert_eq!((found.version, found.bits()), (BitmapVersion::Plain, 1));
}

#[test]
fn a_bad_block_log_of_the_kernel() {
    let bytes = bytes(BAD_BLOCKS, 4096);
    let found = BadBlocks::parse(&bytes, 0).unwrap();
    assert_eq!(found.blocks.ranges(), [9000..9001, 70_000..70_016, 70_512..70_520]);
    assert_eq!((found.refused.len(), found.blocks.print(0, 8)), (0, Ok(bytes)));
}

#[test]
fn a_1_0_superblock_with_a_partial_parity_log() {
    let bytes = bytes(SUPERBLOCK_1_0, 512);
    let found = Superblock::parse(&bytes, 131_056).unwrap();
    assert_eq!(found.print(), bytes);
    assert_eq!((found.version(), found.features), (Version::V1_0, Features::MULTIPLE_PPLS));
    assert_eq!(found.ppl(), Some(PplPlace { offset: -2056, size: 2048 }));
    assert_eq!((found.bblog.offset, found.data_offset, found.data_size), (-8, 0, 129_000));
    let map = ByteMap::of(&found, MEMBER_BYTES).unwrap();
    let start = 131_056 * 512;
    assert_eq!(map.bad_blocks, Some(start - 4096..start));
    assert_eq!(map.ppl, Some(start - 2056 * 512..start - 4096));
    assert_eq!((map.data, map.private), (0..129_000 * 512, None));
}

#[test]
fn a_partial_parity_header_of_the_kernel() {
    let bytes = bytes(PPL_HEADER, 4096);
    let found = PplHeader::parse(&bytes, crc32c).unwrap();
    assert_eq!(found.print(crc32c), bytes);
    let superblock = Superblock::parse(&self::bytes(SUPERBLOCK_1_0, 512), 131_056).unwrap();
    assert_eq!(found.signature, ppl::signature(&superblock.set_uuid, crc32c));
    let entry = PplEntry {
        data_sector: 40,
        pp_bytes: 4096,
        data_bytes: 4096,
        parity_disk: 2,
        checksum: crc32c(0, &[0; 4096]),
    };
    assert_eq!((found.generation, &found.entries[..], found.pp_bytes()), (1, &[entry][..], 4096));
}

#[test]
fn a_0_90_superblock_of_the_kernel() {
    let found = Superblock090::parse(&bytes(SUPERBLOCK_0_90, 4096)).unwrap();
    assert_eq!(found.set_uuid.to_string(), "55d55142:720c53e5:3d186b3c:53958f34");
    assert_eq!((found.order, found.minor, found.events), (ByteOrder::Little, 90, 18));
    let view = found.as_version_1(MEMBER_BYTES).unwrap();
    assert_eq!((view.level, view.raid_disks, view.size, view.events), (1, 2, 130_944, 18));
    assert_eq!(view.roles[..3], [Role::Slot(0), Role::Slot(1), Role::Spare]);
    assert_eq!((view.own_role(), view.is_clean()), (Role::Slot(1), true));
    assert_eq!((view.features, view.bitmap_offset), (Features::BITMAP, 8));
    let bitmap = Bitmap::parse(&bytes(BITMAP_0_90, 4096)).unwrap();
    assert_eq!((bitmap.uuid, bitmap.events), (found.stored_uuid(), 18));
}
