//! The write-intent bitmap: which regions of the members may differ.
//!
//! Owns the header, and the place of each bit. Never holds the bits, and never decides when one is
//! set or cleared: that is the keeper's business in `array`.
//!
//! ```text
//!   superblock + bitmap_offset
//!   0        256                        4096                     8192
//!   | header | bits, least significant  | bits                   | …      whole pages are written
//!              bit of each byte first
//! ```
//!
//! Every active member holds the same copy. A region is `chunk_bytes` of each member; at RAID 10,
//! of the array. There is no checksum.
//!
//! Invariant: [`Bitmap::print`] reproduces the bytes that [`Bitmap::parse`] accepted.
//!
//! Source: `drivers/md/md-bitmap.h` of Linux 6.1, and the behaviour of mdadm 4.2.

use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

use super::SECTOR;
use super::field::{Fault, Field, ParseError};
use super::identity::Uuid;

super::field::fields! { 256;
    MAGIC            "magic"            0   4
    VERSION          "version"          4   4
    UUID             "uuid"             8   16
    EVENTS           "events"           24  8
    EVENTS_CLEARED   "events_cleared"   32  8
    SYNC_SIZE        "sync_size"        40  8
    STATE            "state"            48  4
    CHUNK            "chunksize"        52  4
    DAEMON_SLEEP     "daemon_sleep"     56  4
    WRITE_BEHIND     "write_behind"     60  4
    SECTORS_RESERVED "sectors_reserved" 64  4
    NODES            "nodes"            68  4
    CLUSTER_NAME     "cluster_name"     72  64
    PAD              "pad"              136 120
}

/// Bytes of the header, in front of the bits.
pub const HEADER_BYTES: u64 = 256;
/// The kernel reads and writes a bitmap in pages of this many bytes; page 0 has the header too.
pub const PAGE_BYTES: u64 = 4096;
/// The chunk mdadm chooses if the bits fit.
pub const DEFAULT_CHUNK_BYTES: u32 = 64 << 20;
/// The most room a bitmap is given.
pub const MOST_SPACE_BYTES: u64 = 128 << 10;
/// Seconds between two sweeps, as mdadm sets it.
pub const DEFAULT_DAEMON_SLEEP: u32 = 5;

/// `state`: the bitmap was out of date when the array was last assembled.
pub const STALE: u32 = 1 << 1;
/// `state`: a write of the bitmap failed.
pub const WRITE_ERROR: u32 = 1 << 2;

const STRUCTURE: &str = "bitmap";
const MAGIC: u32 = u32::from_le_bytes(*b"bitm");
/// The kernel counts outstanding write-behind requests in 14 bits.
const MOST_WRITE_BEHIND: u32 = 16383;
const LEAST_CHUNK_BYTES: u32 = 512;

/// How the bits are kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BitmapVersion {
    /// 3: in words of the byte order of the host that wrote them. On a little-endian host that is
    /// the same as 4.
    HostEndian,
    /// 4: as drawn above.
    Plain,
    /// 5: one bitmap for each of several nodes.
    Clustered,
}

impl BitmapVersion {
    /// As stored.
    pub const fn number(self) -> u32 {
        match self {
            BitmapVersion::HostEndian => 3,
            BitmapVersion::Plain => 4,
            BitmapVersion::Clustered => 5,
        }
    }
}

/// The header of a bitmap.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Bitmap {
    /// How the bits are kept.
    pub version: BitmapVersion,
    /// The array.
    pub uuid: Uuid,
    /// The superblock's event count when the header was written, or one more.
    pub events: u64,
    /// The event count when a bit was last cleared: a member that left later lacks only the regions
    /// of the bits.
    pub events_cleared: u64,
    /// The covered sectors: a member's `size`, at RAID 10 the array's.
    pub sync_sectors: u64,
    /// [`STALE`], [`WRITE_ERROR`].
    pub state: u32,
    /// Bytes each bit stands for: a power of two, at least 512.
    pub chunk_bytes: u32,
    /// Seconds between two sweeps for bits to clear; at least 1.
    pub daemon_sleep_s: u32,
    /// How many writes to write-mostly members may be outstanding.
    pub write_behind: u32,
    /// Sectors set aside for the bitmap; 0 if not said.
    pub sectors_reserved: u32,
    /// Nodes of the cluster, or 0.
    pub nodes: u32,
    /// The cluster, padded with zeros.
    pub cluster_name: [u8; 64],
}

impl Bitmap {
    /// The header mdadm would write for a new array.
    pub const fn new(uuid: Uuid, sync_sectors: u64, chunk_bytes: u32) -> Bitmap {
        assert!(chunk_bytes.is_power_of_two() && chunk_bytes >= LEAST_CHUNK_BYTES);
        Bitmap {
            version: BitmapVersion::Plain,
            uuid,
            events: 0,
            events_cleared: 0,
            sync_sectors,
            state: 0,
            chunk_bytes,
            daemon_sleep_s: DEFAULT_DAEMON_SLEEP,
            write_behind: 0,
            sectors_reserved: 0,
            nodes: 0,
            cluster_name: [0; 64],
        }
    }

    /// Reads a header from the start of `bytes`.
    ///
    /// # Errors
    /// The first field that is wrong; [`Fault::Magic`] if there is no bitmap here. Version 6, the
    /// lockless bitmap of Linux 6.18, is refused by name.
    pub fn parse(bytes: &[u8]) -> Result<Bitmap, ParseError> {
        let Some(bytes) = bytes.get(..HEADER_BYTES as usize) else {
            let have = bytes.len() as u64;
            return Err(at::PAD.wrong(STRUCTURE, HEADER_BYTES, Fault::Truncated { have }));
        };
        let magic = at::MAGIC.get_u32(bytes);
        if magic != MAGIC {
            return Err(wrong(at::MAGIC, magic, Fault::Magic));
        }
        let version = read_version(bytes)?;
        let pad = at::PAD.bytes(bytes).iter().enumerate().find(|&(_, &byte)| byte != 0);
        if let Some((index, &value)) = pad {
            let field = Field { offset: at::PAD.offset + index, ..at::PAD };
            return Err(wrong(field, u32::from(value), Fault::Reserved));
        }
        let bitmap = Bitmap {
            version,
            uuid: Uuid(at::UUID.array(bytes)),
            events: at::EVENTS.get(bytes),
            events_cleared: at::EVENTS_CLEARED.get(bytes),
            sync_sectors: at::SYNC_SIZE.get(bytes),
            state: at::STATE.get_u32(bytes),
            chunk_bytes: at::CHUNK.get_u32(bytes),
            daemon_sleep_s: at::DAEMON_SLEEP.get_u32(bytes),
            write_behind: at::WRITE_BEHIND.get_u32(bytes),
            sectors_reserved: at::SECTORS_RESERVED.get_u32(bytes),
            nodes: at::NODES.get_u32(bytes),
            cluster_name: at::CLUSTER_NAME.array(bytes),
        };
        bitmap.check()?;
        Ok(bitmap)
    }

    fn check(&self) -> Result<(), ParseError> {
        if self.chunk_bytes < LEAST_CHUNK_BYTES {
            let fault = Fault::Below { least: u64::from(LEAST_CHUNK_BYTES) };
            return Err(wrong(at::CHUNK, self.chunk_bytes, fault));
        }
        if !self.chunk_bytes.is_power_of_two() {
            let fault = Fault::Refused("must be a power of two");
            return Err(wrong(at::CHUNK, self.chunk_bytes, fault));
        }
        if self.daemon_sleep_s == 0 {
            return Err(wrong(at::DAEMON_SLEEP, 0, Fault::Below { least: 1 }));
        }
        if self.write_behind > MOST_WRITE_BEHIND {
            let fault = Fault::Above { most: u64::from(MOST_WRITE_BEHIND) };
            return Err(wrong(at::WRITE_BEHIND, self.write_behind, fault));
        }
        const MOST_SECTORS: u64 = u64::MAX / SECTOR;
        if self.sync_sectors > MOST_SECTORS {
            let fault = Fault::Above { most: MOST_SECTORS };
            return Err(at::SYNC_SIZE.wrong(STRUCTURE, self.sync_sectors, fault));
        }
        Ok(())
    }

    /// The header's 256 bytes.
    pub fn print(&self) -> [u8; HEADER_BYTES as usize] {
        let mut bytes = [0; HEADER_BYTES as usize];
        at::MAGIC.put(&mut bytes, u64::from(MAGIC));
        at::VERSION.put(&mut bytes, u64::from(self.version.number()));
        at::UUID.put_bytes(&mut bytes, &self.uuid.0);
        at::EVENTS.put(&mut bytes, self.events);
        at::EVENTS_CLEARED.put(&mut bytes, self.events_cleared);
        at::SYNC_SIZE.put(&mut bytes, self.sync_sectors);
        at::STATE.put(&mut bytes, u64::from(self.state));
        at::CHUNK.put(&mut bytes, u64::from(self.chunk_bytes));
        at::DAEMON_SLEEP.put(&mut bytes, u64::from(self.daemon_sleep_s));
        at::WRITE_BEHIND.put(&mut bytes, u64::from(self.write_behind));
        at::SECTORS_RESERVED.put(&mut bytes, u64::from(self.sectors_reserved));
        at::NODES.put(&mut bytes, u64::from(self.nodes));
        at::CLUSTER_NAME.put_bytes(&mut bytes, &self.cluster_name);
        bytes
    }

    /// Header and bits in whole pages, every bit `set`: the bitmap of a new array.
    pub fn print_whole(&self, set: bool) -> Vec<u8> {
        let pages = self.bytes().div_ceil(PAGE_BYTES);
        let mut bytes = vec![0; (pages * PAGE_BYTES) as usize];
        bytes[..HEADER_BYTES as usize].copy_from_slice(&self.print());
        if set {
            let bits = self.bits();
            let whole = (HEADER_BYTES + bits / 8) as usize;
            bytes[HEADER_BYTES as usize..whole].fill(0xff);
            if !bits.is_multiple_of(8) {
                bytes[whole] = (1 << (bits % 8)) - 1;
            }
        }
        bytes
    }

    /// How many bits there are.
    pub const fn bits(&self) -> u64 {
        (self.sync_sectors * SECTOR).div_ceil(self.chunk_bytes as u64)
    }

    /// The bit for a covered sector.
    pub const fn bit_of(&self, sector: u64) -> u64 {
        sector / (self.chunk_bytes as u64 / SECTOR)
    }

    /// The sectors a bit stands for.
    pub const fn sectors_of(&self, bit: u64) -> Range<u64> {
        assert!(bit < self.bits(), "a bit beyond the bitmap");
        let chunk = self.chunk_bytes as u64 / SECTOR;
        let start = bit * chunk;
        let end = start + chunk;
        start..if end < self.sync_sectors { end } else { self.sync_sectors }
    }

    /// Bytes of header and bits.
    pub const fn bytes(&self) -> u64 {
        HEADER_BYTES + self.bits().div_ceil(8)
    }
}

/// The byte of a bit, counted from the start of the header, and the bit's mask in it.
pub const fn byte_of(bit: u64) -> (u64, u8) {
    (HEADER_BYTES + bit / 8, 1 << (bit % 8))
}

/// The page of a bit, counted from the start of the header.
pub const fn page_of(bit: u64) -> u64 {
    byte_of(bit).0 / PAGE_BYTES
}

/// Bytes mdadm sets aside for the bitmap of a member of `member_bytes`.
pub const fn space(member_bytes: u64) -> u64 {
    const GIB: u64 = 1 << 30;
    if member_bytes >= 200 * GIB + (64 << 10) {
        MOST_SPACE_BYTES
    } else if member_bytes > 8 * GIB + (4 << 10) {
        64 << 10
    } else {
        4 << 10
    }
}

/// The chunk mdadm would choose to cover `sync_sectors` within `space_bytes`, header included:
/// 64 MiB, or the smallest larger power of two with which the bits fit.
///
/// `None` if no chunk that the header can name is large enough, or the space too small for a bit.
pub const fn chunk_for(sync_sectors: u64, space_bytes: u64) -> Option<u32> {
    let space = if space_bytes < MOST_SPACE_BYTES { space_bytes } else { MOST_SPACE_BYTES };
    if space <= HEADER_BYTES {
        return None;
    }
    let most_bits = (space - HEADER_BYTES) * 8;
    // mdadm counts blocks of 4 KiB plus one, which matters where the bits just fit.
    let blocks = sync_sectors / 8 + 1;
    let mut chunk = DEFAULT_CHUNK_BYTES;
    while blocks.div_ceil(chunk as u64 / 4096) > most_bits {
        if chunk == 1 << 31 {
            return None;
        }
        chunk <<= 1;
    }
    Some(chunk)
}

fn read_version(bytes: &[u8]) -> Result<BitmapVersion, ParseError> {
    let refuse = |number, why| Err(wrong(at::VERSION, number, Fault::Refused(why)));
    match at::VERSION.get_u32(bytes) {
        3 => Ok(BitmapVersion::HostEndian),
        4 => Ok(BitmapVersion::Plain),
        5 => Ok(BitmapVersion::Clustered),
        6 => refuse(6, "the lockless bitmap of Linux 6.18 is not supported"),
        number => refuse(number, "no such version of the bitmap is known"),
    }
}

fn wrong(field: Field, value: u32, fault: Fault) -> ParseError {
    field.wrong(STRUCTURE, u64::from(value), fault)
}

#[cfg(test)]
mod tests {
    use super::*;

    const UUID: Uuid = Uuid([7; 16]);

    #[test]
    fn the_room_for_a_bitmap_grows_with_the_member() {
        const GIB: u64 = 1 << 30;
        let cases = [(1, 4), (8, 4), (9, 64), (110, 64), (199, 64), (300, 128), (10240, 128)];
        for (gib, kib) in cases {
            assert_eq!(space(gib * GIB), kib << 10, "{gib} GiB");
        }
    }

    #[test]
    fn the_chunk_is_64_mib_or_the_smallest_that_fits() {
        let mib = |sectors, space| chunk_for(sectors, space).map(|chunk| chunk >> 20);
        let fit = 8 * (4096 - 256); // bits in a single page
        let per_chunk = (64 << 20) / SECTOR;
        assert_eq!(mib(0, 4096), Some(64));
        assert_eq!(mib(fit * per_chunk - 8, 4096), Some(64));
        assert_eq!(mib(fit * per_chunk, 4096), Some(128), "mdadm's one more block");
        assert_eq!(mib((10 << 40) / SECTOR, 128 << 10), Some(64));
        assert_eq!(mib((100 << 40) / SECTOR, 128 << 10), Some(128));
        assert_eq!(mib(u64::MAX / SECTOR, 128 << 10), None);
        assert_eq!(mib(1, 256), None);
    }

    #[test]
    fn every_sector_has_one_bit_and_every_bit_its_sectors() {
        let bitmap = Bitmap::new(UUID, 1000, 64 << 10); // 7.8 chunks of 128 sectors
        assert_eq!((bitmap.bits(), bitmap.bytes()), (8, 257));
        for sector in 0..1000 {
            let bit = bitmap.bit_of(sector);
            assert!(bit < bitmap.bits() && bitmap.sectors_of(bit).contains(&sector));
        }
        assert_eq!(bitmap.sectors_of(7), 896..1000);
        assert_eq!((byte_of(0), byte_of(9)), ((256, 1), (257, 2)));
        assert_eq!((page_of(30719), page_of(30720)), (0, 1));
    }

    #[test]
    fn a_new_bitmap_has_its_bits_set_and_nothing_behind_them() {
        let bitmap = Bitmap::new(UUID, 1280 + 1, 64 << 10);
        let bytes = bitmap.print_whole(true);
        assert_eq!(bytes.len(), 4096);
        assert_eq!(bytes[256..259], [0xff, 0b111, 0]);
        assert!(bitmap.print_whole(false)[256..].iter().all(|&byte| byte == 0));
        assert_eq!(Bitmap::parse(&bytes), Ok(bitmap));
    }

    #[test]
    fn the_lockless_bitmap_is_refused_by_name() {
        let mut bytes = Bitmap::new(UUID, 1280, 64 << 10).print();
        bytes[4] = 6;
        let error = Bitmap::parse(&bytes).unwrap_err();
        assert_eq!((error.field, error.value, error.offset), ("version", 6, 4));
        assert!(matches!(error.fault, Fault::Refused(why) if why.contains("lockless")));
        for (number, version) in [
            (3, BitmapVersion::HostEndian),
            (4, BitmapVersion::Plain),
            (5, BitmapVersion::Clustered),
        ] {
            bytes[4] = number;
            assert_eq!(Bitmap::parse(&bytes).unwrap().version, version);
        }
        bytes[4] = 7;
        assert!(Bitmap::parse(&bytes).is_err());
    }
}
