//! The version 1 superblock of md (1.0, 1.1, 1.2), and Parapet's RAID 3.5 in the same shape.
//!
//! Owns every byte of it, its checksum, its place on a device, and the rules that a kernel checks
//! first. Never interprets the numbers for an array: levels and layouts stay md's numbers here, and
//! roles are not compared between members.
//!
//! ```text
//!   0      magic, version, features          128  this member's data, its own number, log offsets
//!   16     the array: uuid, name, level …    192  utime, events, resync_offset, checksum
//!   100    a reshape in progress             256  role table: 2 bytes for each device number
//! ```
//!
//! Bytes from a disk become a [`RawSuperblock`] first, with a valid magic and length and nothing
//! else. [`RawSuperblock::check`] turns it into a [`Superblock`]. No length is used before it has
//! been checked (`max_dev` before the checksum: GHSA-5h5p-mx5j-6q4j).
//!
//! Invariant: [`Superblock::print`] reproduces the bytes that [`Superblock::parse`] accepted.
//!
//! Source: `include/uapi/linux/raid/md_p.h` and the behaviour of `super_1_load`, `super_1_validate`
//! and `super_1_sync` in Linux 6.1; byte 224 since 6.19.

mod rules;

use alloc::vec;
use alloc::vec::Vec;
use core::fmt;

use super::feature::Features;
use super::field::{Fault, Field, ParseError};
use super::identity::{Name, Timestamp, Uuid};
use super::{MAX_SECTOR, SECTOR};

pub use rules::{EVENTS_MOST, EVENTS_ROOM};

super::field::fields! { 256;
    MAGIC              "magic"                0   4
    MAJOR              "major_version"        4   4
    FEATURES           "feature_map"          8   4
    PAD0               "pad0"                 12  4
    SET_UUID           "set_uuid"             16  16
    SET_NAME           "set_name"             32  32
    CTIME              "ctime"                64  8
    LEVEL              "level"                72  4
    LAYOUT             "layout"               76  4
    SIZE               "size"                 80  8
    CHUNK              "chunksize"            88  4
    RAID_DISKS         "raid_disks"           92  4
    BITMAP_OFFSET      "bitmap_offset"        96  4
    NEW_LEVEL          "new_level"            100 4
    RESHAPE_POSITION   "reshape_position"     104 8
    DELTA_DISKS        "delta_disks"          112 4
    NEW_LAYOUT         "new_layout"           116 4
    NEW_CHUNK          "new_chunk"            120 4
    NEW_OFFSET         "new_offset"           124 4
    DATA_OFFSET        "data_offset"          128 8
    DATA_SIZE          "data_size"            136 8
    SUPER_OFFSET       "super_offset"         144 8
    RECOVERY_OFFSET    "recovery_offset"      152 8
    DEV_NUMBER         "dev_number"           160 4
    CORRECTED_READS    "cnt_corrected_read"   164 4
    DEVICE_UUID        "device_uuid"          168 16
    DEVICE_FLAGS       "devflags"             184 1
    BBLOG_SHIFT        "bblog_shift"          185 1
    BBLOG_SIZE         "bblog_size"           186 2
    BBLOG_OFFSET       "bblog_offset"         188 4
    UTIME              "utime"                192 8
    EVENTS             "events"               200 8
    RESYNC_OFFSET      "resync_offset"        208 8
    CHECKSUM           "sb_csum"              216 4
    MAX_DEV            "max_dev"              220 4
    LOGICAL_BLOCK_SIZE "logical_block_size"   224 4
    PAD3               "pad3"                 228 28
}

/// The bytes before the role table.
pub const FIXED_BYTES: usize = 256;
/// The most device numbers a superblock has room for: it must fit into 4096 bytes.
pub const MAX_DEVICES: usize = (4096 - FIXED_BYTES) / 2;
/// The room a superblock keeps on a device whatever its length, in bytes.
pub const RESERVED_BYTES: u64 = 4096;
/// The level number of RAID 3.5, which md does not have. `layout` holds its order.
pub const RAID35_LEVEL: i32 = 35;

/// `resync_offset` of an array that needs no resync.
pub const CLEAN: u64 = MAX_SECTOR;

const STRUCTURE: &str = "superblock";
const ROLES: Field = Field { name: "dev_roles", offset: FIXED_BYTES, size: 2 };

/// The array and member of a superblock.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Magic {
    /// Linux md's: udev, blkid, mdadm and the kernel know it.
    #[default]
    Md,
    /// Parapet's, for RAID 3.5: the bytes `Pp35`, which none of them knows, so that none of them
    /// takes hold of a member it cannot read.
    Parapet,
}

impl Magic {
    /// Both.
    pub const ALL: [Magic; 2] = [Magic::Md, Magic::Parapet];

    /// The number at byte 0.
    pub const fn number(self) -> u32 {
        match self {
            Magic::Md => 0xa92b_4efc,
            Magic::Parapet => u32::from_le_bytes(*b"Pp35"),
        }
    }
}

/// Where on a member the superblock lies. It is not stored: `super_offset` implies it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Version {
    /// 8 to 12 KiB from the end; the data may begin at byte 0.
    V1_0,
    /// At byte 0.
    V1_1,
    /// At byte 4096.
    V1_2,
}

impl Version {
    /// All three, in the order in which they should be looked for.
    pub const ALL: [Version; 3] = [Version::V1_2, Version::V1_1, Version::V1_0];
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Version::V1_0 => "1.0",
            Version::V1_1 => "1.1",
            Version::V1_2 => "1.2",
        })
    }
}

/// The byte at which a superblock of `version` begins on a device of `device_bytes`.
///
/// `None` if the device has no room for it (md wants 24 sectors at least).
pub const fn position(version: Version, device_bytes: u64) -> Option<u64> {
    let sectors = device_bytes / SECTOR;
    if sectors < 24 {
        return None;
    }
    Some(match version {
        Version::V1_0 => ((sectors - 16) & !7) * SECTOR,
        Version::V1_1 => 0,
        Version::V1_2 => 8 * SECTOR,
    })
}

/// The role of a device number in the array.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// A member in this slot, at most 0xff00.
    Slot(u16),
    /// The journal.
    Journal,
    /// A member that failed.
    Faulty,
    /// A spare, or an unused number.
    Spare,
}

impl Role {
    const MOST: u16 = 0xff00;

    /// `None` for the numbers that mean nothing.
    const fn from_number(number: u16) -> Option<Role> {
        match number {
            0xffff => Some(Role::Spare),
            0xfffe => Some(Role::Faulty),
            0xfffd => Some(Role::Journal),
            slot if slot <= Role::MOST => Some(Role::Slot(slot)),
            _ => None,
        }
    }

    /// As stored in the role table.
    pub const fn number(self) -> u16 {
        match self {
            Role::Slot(slot) => slot,
            Role::Journal => 0xfffd,
            Role::Faulty => 0xfffe,
            Role::Spare => 0xffff,
        }
    }
}

/// `devflags`: reads avoid this member.
pub const WRITE_MOSTLY: u8 = 1;
/// `devflags`: an error on this member fails it at once.
pub const FAIL_FAST: u8 = 2;

/// Where md keeps a partial parity log, in the bytes that otherwise hold `bitmap_offset`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PplPlace {
    /// Sectors from the superblock; negative if before it.
    pub offset: i16,
    /// Sectors.
    pub size: u16,
}

/// A reshape in progress: the fields are valid if [`Features::RESHAPE`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Reshape {
    /// The level to come.
    pub level: i32,
    /// How far it got, in sectors of the array.
    pub position: u64,
    /// New number of slots less the old one.
    pub delta_disks: i32,
    /// The layout to come.
    pub layout: u32,
    /// The chunk to come, in sectors.
    pub chunk_sectors: u32,
    /// Added to `data_offset` for the new layout, if [`Features::NEW_OFFSET`].
    pub new_offset: i32,
}

/// The member that holds the superblock.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Device {
    /// Its index into `roles`.
    pub number: u32,
    /// Read errors corrected so far.
    pub corrected_reads: u32,
    /// Its own identity. The kernel ignores it.
    pub uuid: Uuid,
    /// [`WRITE_MOSTLY`], [`FAIL_FAST`].
    pub flags: u8,
}

/// Where a member keeps its bad-block log.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct BadBlockLog {
    /// Lengths in the log count 2^shift sectors.
    pub shift: u8,
    /// Its size.
    pub sectors: u16,
    /// Its place, in sectors from the superblock; 0 if there is none.
    pub offset: i32,
}

/// A version 1 superblock as one member holds it. Offsets and sizes named so are in sectors of 512
/// bytes. The checksum, `max_dev` and the pads are not here: printing makes them. The default says
/// nothing yet: zeros, no roles, nothing in sync.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Superblock {
    /// md's or Parapet's.
    pub magic: Magic,
    /// Which of the fields below count.
    pub features: Features,
    /// The array.
    pub set_uuid: Uuid,
    /// `host:name`.
    pub set_name: Name,
    /// When the array was created.
    pub ctime: Timestamp,
    /// −4 multipath, −1 linear, 0, 1, 4, 5, 6, 10; 35 with Parapet's magic.
    pub level: i32,
    /// md's number for the layout within the level.
    pub layout: u32,
    /// Sectors used on each member; levels that use each member whole may hold 0.
    pub size: u64,
    /// Sectors in a chunk; 0 for RAID 1.
    pub chunk_sectors: u32,
    /// Slots of the array; during a reshape already the new number.
    pub raid_disks: u32,
    /// The bitmap's place, in sectors from the superblock, if [`Features::BITMAP`]; see
    /// [`Superblock::ppl`] for its other use.
    pub bitmap_offset: i32,
    /// A reshape in progress, if [`Features::RESHAPE`].
    pub reshape: Reshape,
    /// Where this member's data begins.
    pub data_offset: u64,
    /// Room for data on this member.
    pub data_size: u64,
    /// Where this superblock lies.
    pub super_offset: u64,
    /// How far this member is rebuilt, in sectors from `data_offset`, if
    /// [`Features::RECOVERY_OFFSET`]; on a journal device, where its log begins.
    pub recovery_offset: u64,
    /// This member.
    pub device: Device,
    /// The place and form of its bad-block log.
    pub bblog: BadBlockLog,
    /// When the superblock was last written.
    pub utime: Timestamp,
    /// Counts the changes of the metadata.
    pub events: u64,
    /// How far a resync got: [`CLEAN`], 0 for dirty, or a checkpoint.
    pub resync_offset: u64,
    /// Bytes of the array's logical block; 0 in arrays made before Linux 6.19, and in ours.
    pub logical_block_size: u32,
    /// The role of each device number; at most [`MAX_DEVICES`].
    pub roles: Vec<Role>,
}

impl Superblock {
    /// Reads a superblock from the start of `bytes`, found at `found_at_sector` of its device.
    ///
    /// # Errors
    /// The first field that is wrong; [`Fault::Magic`] if there is no superblock here.
    pub fn parse(bytes: &[u8], found_at_sector: u64) -> Result<Superblock, ParseError> {
        RawSuperblock::new(bytes)?.check(found_at_sector)
    }

    /// The bytes for the disk, rounded up to whole sectors. Where a device writes larger blocks,
    /// the caller adds zeros.
    ///
    /// # Panics
    /// If there are more than [`MAX_DEVICES`] roles.
    pub fn print(&self) -> Vec<u8> {
        assert!(self.roles.len() <= MAX_DEVICES, "more roles than a superblock can hold");
        let used = FIXED_BYTES + 2 * self.roles.len();
        let mut bytes = vec![0; used.next_multiple_of(SECTOR as usize)];
        self.put_array(&mut bytes);
        self.put_member(&mut bytes);
        for (entry, role) in bytes[FIXED_BYTES..].chunks_exact_mut(2).zip(&self.roles) {
            entry.copy_from_slice(&role.number().to_le_bytes());
        }
        let sum = checksum(&bytes[..used]);
        at::CHECKSUM.put(&mut bytes, u64::from(sum));
        bytes
    }

    /// Bytes 0 to 127: the fields that all members of the array share, and the reshape.
    fn put_array(&self, bytes: &mut [u8]) {
        at::MAGIC.put(bytes, u64::from(self.magic.number()));
        at::MAJOR.put(bytes, 1);
        at::FEATURES.put(bytes, u64::from(self.features.0));
        at::SET_UUID.put_bytes(bytes, &self.set_uuid.0);
        at::SET_NAME.put_bytes(bytes, &self.set_name.0);
        at::CTIME.put(bytes, self.ctime.0);
        at::LEVEL.put_i32(bytes, self.level);
        at::LAYOUT.put(bytes, u64::from(self.layout));
        at::SIZE.put(bytes, self.size);
        at::CHUNK.put(bytes, u64::from(self.chunk_sectors));
        at::RAID_DISKS.put(bytes, u64::from(self.raid_disks));
        at::BITMAP_OFFSET.put_i32(bytes, self.bitmap_offset);
        at::NEW_LEVEL.put_i32(bytes, self.reshape.level);
        at::RESHAPE_POSITION.put(bytes, self.reshape.position);
        at::DELTA_DISKS.put_i32(bytes, self.reshape.delta_disks);
        at::NEW_LAYOUT.put(bytes, u64::from(self.reshape.layout));
        at::NEW_CHUNK.put(bytes, u64::from(self.reshape.chunk_sectors));
        at::NEW_OFFSET.put_i32(bytes, self.reshape.new_offset);
    }

    /// Bytes 128 to 255: this member, and the state of the array. Not the checksum.
    fn put_member(&self, bytes: &mut [u8]) {
        at::DATA_OFFSET.put(bytes, self.data_offset);
        at::DATA_SIZE.put(bytes, self.data_size);
        at::SUPER_OFFSET.put(bytes, self.super_offset);
        at::RECOVERY_OFFSET.put(bytes, self.recovery_offset);
        at::DEV_NUMBER.put(bytes, u64::from(self.device.number));
        at::CORRECTED_READS.put(bytes, u64::from(self.device.corrected_reads));
        at::DEVICE_UUID.put_bytes(bytes, &self.device.uuid.0);
        at::DEVICE_FLAGS.put(bytes, u64::from(self.device.flags));
        at::BBLOG_SHIFT.put(bytes, u64::from(self.bblog.shift));
        at::BBLOG_SIZE.put(bytes, u64::from(self.bblog.sectors));
        at::BBLOG_OFFSET.put_i32(bytes, self.bblog.offset);
        at::UTIME.put(bytes, self.utime.0);
        at::EVENTS.put(bytes, self.events);
        at::RESYNC_OFFSET.put(bytes, self.resync_offset);
        at::MAX_DEV.put(bytes, self.roles.len() as u64);
        at::LOGICAL_BLOCK_SIZE.put(bytes, u64::from(self.logical_block_size));
    }

    /// A role table for `devices` device numbers, all [`Role::Spare`], padded as mdadm does so that
    /// the superblock fills whole sectors: 128 entries, 384, 640, …
    ///
    /// `None` if that is more than [`MAX_DEVICES`].
    pub fn role_table(devices: usize) -> Option<Vec<Role>> {
        let length = (FIXED_BYTES + 2 * devices).next_multiple_of(SECTOR as usize) - FIXED_BYTES;
        let entries = (length / 2).max(128);
        (devices <= MAX_DEVICES).then(|| vec![Role::Spare; entries])
    }

    /// 1.0, 1.1 or 1.2, from where it lies.
    pub const fn version(&self) -> Version {
        match self.super_offset {
            0 => Version::V1_1,
            8 => Version::V1_2,
            _ => Version::V1_0,
        }
    }

    /// This member's role by its own table. As in the kernel, a number beyond the table and a slot
    /// beyond the array (old or new shape, whichever is larger) are spares.
    pub fn own_role(&self) -> Role {
        match self.roles.get(self.device.number as usize) {
            Some(&Role::Slot(slot)) if u32::from(slot) >= self.slots() => Role::Spare,
            Some(&role) => role,
            None => Role::Spare,
        }
    }

    /// The slots of the old or of the new shape, whichever has more.
    pub fn slots(&self) -> u32 {
        match self.features.contains(Features::RESHAPE) && self.reshape.delta_disks < 0 {
            true => self.raid_disks.saturating_add(self.reshape.delta_disks.unsigned_abs()),
            false => self.raid_disks,
        }
    }

    /// True if the array was stopped cleanly, or has been resynced since.
    pub const fn is_clean(&self) -> bool {
        self.resync_offset == CLEAN
    }

    /// Feature bits unknown here. The kernel refuses such an array, and so must every writer.
    pub const fn unknown_features(&self) -> Features {
        self.features.unknown()
    }

    /// The place of md's partial parity log, if the array has one.
    pub fn ppl(&self) -> Option<PplPlace> {
        self.features.intersects(Features::ANY_PPL).then(|| {
            let word = self.bitmap_offset as u32;
            PplPlace { offset: word as u16 as i16, size: (word >> 16) as u16 }
        })
    }

    /// Stores the place of a partial parity log where the bitmap's place would be. The caller sets
    /// the feature.
    pub fn set_ppl(&mut self, place: PplPlace) {
        let word = u32::from(place.offset as u16) | u32::from(place.size) << 16;
        self.bitmap_offset = word as i32;
    }

    /// The bytes the superblock uses on disk, as [`Superblock::print`] returns them.
    pub fn printed_bytes(&self) -> u64 {
        ((FIXED_BYTES + 2 * self.roles.len()) as u64).next_multiple_of(SECTOR)
    }
}

/// The checksum of a superblock: the sum of its 32-bit words with the checksum's own word taken as
/// zero, its high half added to its low half once. A role table of odd length ends in a half word.
///
/// `bytes` are the fixed part and the role table.
pub fn checksum(bytes: &[u8]) -> u32 {
    let words = bytes.chunks(4).map(|word| {
        let mut whole = [0; 4];
        whole[..word.len()].copy_from_slice(word);
        u64::from(u32::from_le_bytes(whole))
    });
    let sum = words.sum::<u64>() - at::CHECKSUM.get(bytes);
    (sum as u32).wrapping_add((sum >> 32) as u32)
}

/// Bytes with a superblock's magic and a sufficient length. Their content is not trusted yet: the
/// checksum may be wrong, and a right checksum is no proof of sane numbers.
#[derive(Clone, Copy, Debug)]
pub struct RawSuperblock<'a> {
    magic: Magic,
    /// The fixed part and the role table, nothing else.
    bytes: &'a [u8],
}

impl<'a> RawSuperblock<'a> {
    /// Recognises a superblock at the start of `bytes`.
    ///
    /// # Errors
    /// No magic, another major version, more than [`MAX_DEVICES`] roles, or too few bytes.
    pub fn new(bytes: &'a [u8]) -> Result<RawSuperblock<'a>, ParseError> {
        let have = bytes.len() as u64;
        if bytes.len() < FIXED_BYTES {
            let need = FIXED_BYTES as u64;
            return Err(at::PAD3.wrong(STRUCTURE, need, Fault::Truncated { have }));
        }
        let number = at::MAGIC.get_u32(bytes);
        let magic = Magic::ALL.into_iter().find(|magic| magic.number() == number);
        let Some(magic) = magic else {
            return Err(wrong(at::MAGIC, number, Fault::Magic));
        };
        let major = at::MAJOR.get_u32(bytes);
        if major != 1 {
            return Err(wrong(at::MAJOR, major, Fault::Unequal { expected: 1 }));
        }
        let devices = at::MAX_DEV.get_u32(bytes);
        if devices as usize > MAX_DEVICES {
            let most = MAX_DEVICES as u64;
            return Err(wrong(at::MAX_DEV, devices, Fault::Above { most }));
        }
        let need = FIXED_BYTES + 2 * devices as usize;
        match bytes.get(..need) {
            Some(bytes) => Ok(RawSuperblock { magic, bytes }),
            None => Err(ROLES.wrong(STRUCTURE, need as u64, Fault::Truncated { have })),
        }
    }

    /// Every field with its bytes, for a look at a superblock that does not pass.
    pub fn fields(&self) -> impl Iterator<Item = (Field, &'a [u8])> {
        let bytes = self.bytes;
        at::FIELDS.iter().map(move |field| (*field, field.bytes(bytes)))
    }

    /// Applies every rule a kernel applies to a superblock by itself (not to the device or to the
    /// other members), and a few that keep later arithmetic from overflowing.
    ///
    /// # Errors
    /// The first field that breaks a rule.
    pub fn check(self, found_at_sector: u64) -> Result<Superblock, ParseError> {
        let stored = at::CHECKSUM.get_u32(self.bytes);
        let computed = checksum(self.bytes);
        if stored != computed {
            let fault = Fault::Checksum { computed: u64::from(computed) };
            return Err(wrong(at::CHECKSUM, stored, fault));
        }
        self.check_pads()?;
        let superblock = self.read()?;
        if superblock.events > EVENTS_MOST {
            return Err(wrong(at::EVENTS, superblock.events, Fault::Above { most: EVENTS_MOST }));
        }
        if superblock.super_offset != found_at_sector {
            let fault = Fault::Unequal { expected: found_at_sector };
            return Err(at::SUPER_OFFSET.wrong(STRUCTURE, superblock.super_offset, fault));
        }
        superblock.check()?;
        Ok(superblock)
    }

    fn check_pads(&self) -> Result<(), ParseError> {
        for pad in [at::PAD0, at::PAD3] {
            let mut bytes = pad.bytes(self.bytes).iter().enumerate();
            if let Some((index, &value)) = bytes.find(|&(_, &byte)| byte != 0) {
                let field = Field { offset: pad.offset + index, ..pad };
                return Err(wrong(field, value, Fault::Reserved));
            }
        }
        Ok(())
    }

    fn read(self) -> Result<Superblock, ParseError> {
        let bytes = self.bytes;
        Ok(Superblock {
            magic: self.magic,
            features: Features(at::FEATURES.get_u32(bytes)),
            set_uuid: Uuid(at::SET_UUID.array(bytes)),
            set_name: Name(at::SET_NAME.array(bytes)),
            ctime: Timestamp(at::CTIME.get(bytes)),
            level: at::LEVEL.get_i32(bytes),
            layout: at::LAYOUT.get_u32(bytes),
            size: at::SIZE.get(bytes),
            chunk_sectors: at::CHUNK.get_u32(bytes),
            raid_disks: at::RAID_DISKS.get_u32(bytes),
            bitmap_offset: at::BITMAP_OFFSET.get_i32(bytes),
            reshape: Reshape {
                level: at::NEW_LEVEL.get_i32(bytes),
                position: at::RESHAPE_POSITION.get(bytes),
                delta_disks: at::DELTA_DISKS.get_i32(bytes),
                layout: at::NEW_LAYOUT.get_u32(bytes),
                chunk_sectors: at::NEW_CHUNK.get_u32(bytes),
                new_offset: at::NEW_OFFSET.get_i32(bytes),
            },
            data_offset: at::DATA_OFFSET.get(bytes),
            data_size: at::DATA_SIZE.get(bytes),
            super_offset: at::SUPER_OFFSET.get(bytes),
            recovery_offset: at::RECOVERY_OFFSET.get(bytes),
            device: Device {
                number: at::DEV_NUMBER.get_u32(bytes),
                corrected_reads: at::CORRECTED_READS.get_u32(bytes),
                uuid: Uuid(at::DEVICE_UUID.array(bytes)),
                flags: at::DEVICE_FLAGS.get(bytes) as u8,
            },
            bblog: BadBlockLog {
                shift: at::BBLOG_SHIFT.get(bytes) as u8,
                sectors: at::BBLOG_SIZE.get(bytes) as u16,
                offset: at::BBLOG_OFFSET.get_i32(bytes),
            },
            utime: Timestamp(at::UTIME.get(bytes)),
            events: at::EVENTS.get(bytes),
            resync_offset: at::RESYNC_OFFSET.get(bytes),
            logical_block_size: at::LOGICAL_BLOCK_SIZE.get_u32(bytes),
            roles: self.roles()?,
        })
    }

    fn roles(&self) -> Result<Vec<Role>, ParseError> {
        let entries = self.bytes[FIXED_BYTES..].chunks_exact(2).enumerate();
        let read = entries.map(|(index, entry)| {
            let number = u16::from_le_bytes([entry[0], entry[1]]);
            let field = Field { offset: ROLES.offset + 2 * index, ..ROLES };
            let fault = Fault::Refused("no role has this number");
            Role::from_number(number).ok_or_else(|| wrong(field, number, fault))
        });
        read.collect()
    }
}

fn wrong(field: Field, value: impl Into<u64>, fault: Fault) -> ParseError {
    field.wrong(STRUCTURE, value.into(), fault)
}
