//! The version 0.90 superblock of md: read, never written.
//!
//! Owns its fields in both byte orders (it was written in that of its host), its checksum, its
//! place, and its translation into the terms of a version 1 superblock.
//!
//! ```text
//!   0     the array       512   27 device descriptors of 128 bytes    3968  this device's own
//!   128   its state
//!   256   its layout      the last whole 64 KiB of the device begin with it; a bitmap at + 4096
//! ```
//!
//! Source: `include/uapi/linux/raid/md_p.h`, `super_90_load` and `super_90_validate` in Linux 6.1.

use alloc::vec::Vec;

use super::feature::Features;
use super::field::{Fault, Field, ParseError};
use super::identity::{Name, Timestamp, Uuid};
use super::superblock::{
    BadBlockLog, CLEAN, Device, Magic, Reshape, Role, Superblock, WRITE_MOSTLY,
};
use super::{MAX_SECTOR, SECTOR};

super::field::fields! { 4096;
    MAGIC            "magic"            0    4
    MAJOR            "major_version"    4    4
    MINOR            "minor_version"    8    4
    PATCH            "patch_version"    12   4
    GVALID_WORDS     "gvalid_words"     16   4
    UUID0            "set_uuid0"        20   4
    CTIME            "ctime"            24   4
    LEVEL            "level"            28   4
    SIZE             "size"             32   4
    NR_DISKS         "nr_disks"         36   4
    RAID_DISKS       "raid_disks"       40   4
    MD_MINOR         "md_minor"         44   4
    NOT_PERSISTENT   "not_persistent"   48   4
    UUID1            "set_uuid1"        52   4
    UUID2            "set_uuid2"        56   4
    UUID3            "set_uuid3"        60   4
    PAD0             "gstate_creserved" 64   64
    UTIME            "utime"            128  4
    STATE            "state"            132  4
    ACTIVE           "active_disks"     136  4
    WORKING          "working_disks"    140  4
    FAILED           "failed_disks"     144  4
    SPARE            "spare_disks"      148  4
    CHECKSUM         "sb_csum"          152  4
    EVENTS           "events"           156  8
    CP_EVENTS        "cp_events"        164  8
    RECOVERY_CP      "recovery_cp"      172  4
    RESHAPE_POSITION "reshape_position" 176  8
    NEW_LEVEL        "new_level"        184  4
    DELTA_DISKS      "delta_disks"      188  4
    NEW_LAYOUT       "new_layout"       192  4
    NEW_CHUNK        "new_chunk"        196  4
    PAD1             "gstate_sreserved" 200  56
    LAYOUT           "layout"           256  4
    CHUNK            "chunk_size"       260  4
    ROOT             "root_pv, block"   264  8
    PAD2             "pers_reserved"    272  240
    DISKS            "disks"            512  3456
    THIS_DISK        "this_disk"        3968 128
}

/// Bytes of the superblock.
pub const BYTES: usize = 4096;
/// Where the bitmap lies, in sectors from the superblock.
pub const BITMAP_OFFSET: i32 = 8;

const DISK_BYTES: usize = 128;
const MOST_DISKS: u32 = 27;
const MAGIC: u64 = 0xa92b_4efc;
const STRUCTURE: &str = "0.90 superblock";
const RESERVED_BYTES: u64 = 64 << 10;

const STATE_CLEAN: u32 = 1 << 0;
const STATE_BITMAP: u32 = 1 << 8;
const DISK_FAULTY: u32 = 1 << 0;
const DISK_SYNC: u32 = 1 << 2;
const DISK_WRITE_MOSTLY: u32 = 1 << 9;

/// The byte at which a 0.90 superblock begins on a device of `device_bytes`: 64 to 128 KiB from the
/// end. `None` if the device is too small.
pub const fn position(device_bytes: u64) -> Option<u64> {
    if device_bytes < 2 * RESERVED_BYTES {
        return None;
    }
    Some(device_bytes / RESERVED_BYTES * RESERVED_BYTES - RESERVED_BYTES)
}

/// The byte order of the host that wrote a superblock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ByteOrder {
    /// Least significant byte first.
    Little,
    /// Most significant byte first.
    Big,
}

/// A device as a 0.90 superblock describes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Disk {
    /// Its number in the table.
    pub number: u32,
    /// Its slot, if its state says that it has one.
    pub raid_disk: u32,
    /// md's bits: 0 faulty, 1 active, 2 in sync, 3 removed, 9 write-mostly.
    pub state: u32,
}

/// A 0.90 superblock.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Superblock090 {
    /// Of the host that wrote it.
    pub order: ByteOrder,
    /// 90, or 91 while the array is reshaped.
    pub minor: u32,
    /// The array, in the form mdadm shows.
    pub set_uuid: Uuid,
    /// Seconds since 1970.
    pub ctime: u32,
    /// As in version 1.
    pub level: i32,
    /// As in version 1.
    pub layout: u32,
    /// KiB used on each member.
    pub size_kib: u32,
    /// Bytes of a chunk.
    pub chunk_bytes: u32,
    /// Slots.
    pub raid_disks: u32,
    /// The number of the block device (`/dev/md`N) it had last.
    pub md_minor: u32,
    /// Seconds since 1970.
    pub utime: u32,
    /// Bit 0 clean, bit 8 has a bitmap.
    pub state: u32,
    /// Counts the changes of the metadata.
    pub events: u64,
    /// How far a resync got, in sectors; counts only if `cp_events` equals `events`.
    pub recovery_cp: u32,
    /// The event count when `recovery_cp` was written.
    pub cp_events: u64,
    /// Reshape: how far it got, in sectors of the array.
    pub reshape_position: u64,
    /// Reshape: the level to come.
    pub new_level: i32,
    /// Reshape: new number of slots less the old one.
    pub delta_disks: i32,
    /// Reshape: the layout to come.
    pub new_layout: u32,
    /// Reshape: the chunk to come, in bytes.
    pub new_chunk_bytes: u32,
    /// The table: 27 entries.
    pub disks: Vec<Disk>,
    /// The member it was read from.
    pub this_disk: Disk,
}

/// Reads fields in one byte order.
#[derive(Clone, Copy)]
struct Reader<'a> {
    bytes: &'a [u8],
    order: ByteOrder,
}

impl Reader<'_> {
    fn number(self, field: Field) -> u64 {
        match self.order {
            ByteOrder::Little => field.get(self.bytes),
            ByteOrder::Big => field.get_big(self.bytes),
        }
    }

    fn word(self, field: Field) -> u32 {
        assert!(field.size == 4, "not a word");
        self.number(field) as u32
    }

    fn disk(self, offset: usize) -> Disk {
        let word =
            |index: usize| self.word(Field { name: "disk", offset: offset + 4 * index, size: 4 });
        Disk { number: word(0), raid_disk: word(3), state: word(4) }
    }

    /// mdadm shows the four words as numbers.
    fn uuid(self) -> Uuid {
        let words = [at::UUID0, at::UUID1, at::UUID2, at::UUID3];
        let mut bytes = [0; 16];
        for (place, field) in bytes.chunks_exact_mut(4).zip(words) {
            place.copy_from_slice(&self.word(field).to_be_bytes());
        }
        Uuid(bytes)
    }
}

impl Superblock090 {
    /// Reads a superblock of either byte order from the start of `bytes`.
    ///
    /// # Errors
    /// The first field that is wrong; [`Fault::Magic`] if there is no superblock here.
    pub fn parse(bytes: &[u8]) -> Result<Superblock090, ParseError> {
        let Some(bytes) = bytes.get(..BYTES) else {
            let have = bytes.len() as u64;
            return Err(at::THIS_DISK.wrong(STRUCTURE, BYTES as u64, Fault::Truncated { have }));
        };
        let order = match (at::MAGIC.get(bytes), at::MAGIC.get_big(bytes)) {
            (MAGIC, _) => ByteOrder::Little,
            (_, MAGIC) => ByteOrder::Big,
            (other, _) => return Err(at::MAGIC.wrong(STRUCTURE, other, Fault::Magic)),
        };
        let reader = Reader { bytes, order };
        check(reader)?;
        Ok(Superblock090 {
            order,
            minor: reader.word(at::MINOR),
            set_uuid: reader.uuid(),
            ctime: reader.word(at::CTIME),
            level: reader.word(at::LEVEL) as i32,
            layout: reader.word(at::LAYOUT),
            size_kib: reader.word(at::SIZE),
            chunk_bytes: reader.word(at::CHUNK),
            raid_disks: reader.word(at::RAID_DISKS),
            md_minor: reader.word(at::MD_MINOR),
            utime: reader.word(at::UTIME),
            state: reader.word(at::STATE),
            events: reader.number(at::EVENTS),
            recovery_cp: reader.word(at::RECOVERY_CP),
            cp_events: reader.number(at::CP_EVENTS),
            reshape_position: reader.number(at::RESHAPE_POSITION),
            new_level: reader.word(at::NEW_LEVEL) as i32,
            delta_disks: reader.word(at::DELTA_DISKS) as i32,
            new_layout: reader.word(at::NEW_LAYOUT),
            new_chunk_bytes: reader.word(at::NEW_CHUNK),
            disks: (0..MOST_DISKS as usize)
                .map(|index| reader.disk(at::DISKS.offset + DISK_BYTES * index))
                .collect(),
            this_disk: reader.disk(at::THIS_DISK.offset),
        })
    }

    /// The UUID as its bytes lie on the disk: its bitmap carries it in that form.
    pub fn stored_uuid(&self) -> Uuid {
        let mut bytes = self.set_uuid.0;
        if self.order == ByteOrder::Little {
            bytes.chunks_exact_mut(4).for_each(<[u8]>::reverse);
        }
        Uuid(bytes)
    }

    /// How far the array is in sync, as `resync_offset` of version 1 says it.
    pub fn resync_offset(&self) -> u64 {
        if self.state & STATE_CLEAN != 0 {
            return CLEAN;
        }
        match self.recovery_cp {
            u32::MAX => MAX_SECTOR,
            sectors if self.cp_events == self.events => u64::from(sectors),
            _ => 0,
        }
    }

    /// The fields that assembly needs, in terms of version 1, for a member of `member_bytes`. A
    /// view only: written to the member, it would destroy the member's superblock, so an array
    /// assembled from it must stay read-only.
    ///
    /// There is no name and no device UUID in 0.90.
    ///
    /// # Errors
    /// If the member is smaller than the superblock says, or too small to have one.
    pub fn as_version_1(&self, member_bytes: u64) -> Result<Superblock, ParseError> {
        let Some(start) = position(member_bytes) else {
            let fault = Fault::Truncated { have: member_bytes };
            return Err(at::MAGIC.wrong(STRUCTURE, 2 * RESERVED_BYTES, fault));
        };
        let size = u64::from(self.size_kib) * 2;
        if size * SECTOR > start {
            let fault = Fault::Above { most: start / 1024 };
            return Err(at::SIZE.wrong(STRUCTURE, u64::from(self.size_kib), fault));
        }
        let has_bitmap = self.state & STATE_BITMAP != 0;
        let bitmap = if has_bitmap { Features::BITMAP } else { Features::NONE };
        let reshape = if self.minor == 91 { Features::RESHAPE } else { Features::NONE };
        let write_mostly = self.this_disk.state & DISK_WRITE_MOSTLY != 0;
        Ok(Superblock {
            magic: Magic::Md,
            features: bitmap.with(reshape),
            set_uuid: self.set_uuid,
            set_name: Name::default(),
            ctime: Timestamp(u64::from(self.ctime)),
            level: self.level,
            layout: self.layout,
            size,
            chunk_sectors: self.chunk_bytes / SECTOR as u32,
            raid_disks: self.raid_disks,
            bitmap_offset: if has_bitmap { BITMAP_OFFSET } else { 0 },
            reshape: Reshape {
                level: self.new_level,
                position: self.reshape_position,
                delta_disks: self.delta_disks,
                layout: self.new_layout,
                chunk_sectors: self.new_chunk_bytes / SECTOR as u32,
                new_offset: 0,
            },
            data_offset: 0,
            data_size: start / SECTOR,
            super_offset: start / SECTOR,
            recovery_offset: 0,
            device: Device {
                number: self.this_disk.number,
                flags: if write_mostly { WRITE_MOSTLY } else { 0 },
                ..Device::default()
            },
            bblog: BadBlockLog::default(),
            utime: Timestamp(u64::from(self.utime)),
            events: self.events,
            resync_offset: self.resync_offset(),
            logical_block_size: 0,
            roles: self.disks.iter().map(Disk::role).collect(),
        })
    }
}

impl Disk {
    /// Only a disk that is in sync has a slot; a kernel rebuilds any other from the start.
    fn role(&self) -> Role {
        if self.state & DISK_FAULTY != 0 {
            Role::Faulty
        } else if self.state & DISK_SYNC != 0 && self.raid_disk < MOST_DISKS {
            Role::Slot(self.raid_disk as u16)
        } else {
            Role::Spare
        }
    }
}

fn check(reader: Reader<'_>) -> Result<(), ParseError> {
    let wrong = |field: Field, fault| Err(field.wrong(STRUCTURE, reader.number(field), fault));
    if reader.word(at::MAJOR) != 0 {
        return wrong(at::MAJOR, Fault::Unequal { expected: 0 });
    }
    match reader.word(at::MINOR) {
        ..90 => return wrong(at::MINOR, Fault::Below { least: 90 }),
        90 | 91 => {}
        _ => return wrong(at::MINOR, Fault::Above { most: 91 }),
    }
    let (stored, computed) = (reader.word(at::CHECKSUM), checksum(reader));
    if fold(stored) != fold(computed) {
        return wrong(at::CHECKSUM, Fault::Checksum { computed: u64::from(computed) });
    }
    match reader.word(at::RAID_DISKS) {
        0 => wrong(at::RAID_DISKS, Fault::Below { least: 1 }),
        1..=MOST_DISKS => Ok(()),
        _ => wrong(at::RAID_DISKS, Fault::Above { most: u64::from(MOST_DISKS) }),
    }
}

/// The sum of all words with the checksum's own taken as zero, the high half added to the low half.
fn checksum(reader: Reader<'_>) -> u32 {
    let fields = (0..BYTES).step_by(4).map(|offset| Field { name: "word", offset, size: 4 });
    let sum = fields.map(|field| reader.number(field)).sum::<u64>() - reader.number(at::CHECKSUM);
    (sum as u32).wrapping_add((sum >> 32) as u32)
}

/// Old kernels computed the sum differently on some machines; all agree on its 16-bit fold.
const fn fold(sum: u32) -> u16 {
    let once = (sum & 0xffff) + (sum >> 16);
    ((once & 0xffff) + (once >> 16)) as u16
}
