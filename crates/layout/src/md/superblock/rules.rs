//! The rules for the numbers of a superblock by itself.
//!
//! Owns the refused values and their reasons. Rules marked K are the kernel's (`super_1_load`,
//! `super_1_validate` in Linux 6.1); the others keep later arithmetic from overflowing. Never
//! inspects the device or other members: see [`crate::md::ByteMap::of`] and `metadata`.

use super::super::SECTOR;
use super::super::feature::Features;
use super::super::field::{Fault, Field, ParseError};
use super::{MAX_DEVICES, Magic, RAID35_LEVEL, STRUCTURE, Superblock, Version, at, wrong};

/// 2⁵³ sectors are 2⁶² bytes: up to there every place on a member, and every sum of two, is a `u64`
/// of bytes.
const MOST_SECTORS: u64 = 1 << 53;
/// No array lives to see so many events: whoever counts on from more would begin anew at 0.
pub const EVENTS_MOST: u64 = u64::MAX >> 1;
/// More events than one session can count. An array with fewer left is not written: the superblock
/// of an event above [`EVENTS_MOST`] would be refused on every member.
pub const EVENTS_ROOM: u64 = 1 << 32;
/// The smallest `data_size` a kernel accepts.
const LEAST_DATA_SECTORS: u64 = 10;

impl Superblock {
    /// All rules.
    pub(super) fn check(&self) -> Result<(), ParseError> {
        self.check_array()?;
        self.check_features()?;
        self.check_place()
    }

    fn check_array(&self) -> Result<(), ParseError> {
        let most = MAX_DEVICES as u64;
        if self.raid_disks == 0 {
            return Err(wrong(at::RAID_DISKS, self.raid_disks, Fault::Below { least: 1 }));
        }
        if u64::from(self.raid_disks) > most {
            return Err(wrong(at::RAID_DISKS, self.raid_disks, Fault::Above { most }));
        }
        let old = i64::from(self.raid_disks) - i64::from(self.reshape.delta_disks);
        if self.features.contains(Features::RESHAPE) && !(1..=most as i64).contains(&old) {
            let fault = Fault::Conflict("an array of raid_disks cannot have come from that");
            return Err(wrong(at::DELTA_DISKS, self.reshape.delta_disks as u32, fault));
        }
        if (self.magic == Magic::Parapet) != (self.level == RAID35_LEVEL) {
            let fault = Fault::Conflict("level 35 and Parapet's magic go together");
            return Err(wrong(at::LEVEL, self.level as u32, fault));
        }
        let block = self.logical_block_size;
        if block != 0 && !(block.is_power_of_two() && (512..=65536).contains(&block)) {
            let fault = Fault::Refused("not a block size");
            return Err(wrong(at::LOGICAL_BLOCK_SIZE, block, fault));
        }
        Ok(())
    }

    fn check_features(&self) -> Result<(), ParseError> {
        let has = |bit| self.features.contains(bit);
        let conflict = if has(Features::ANY_PPL) {
            "one partial parity log or several, not both" // K
        } else if self.features.intersects(Features::ANY_PPL)
            && (has(Features::BITMAP) || has(Features::JOURNAL))
        {
            "a partial parity log excludes a bitmap and a journal" // K
        } else if has(Features::RAID0_LAYOUT) && self.level != 0 {
            "raid0-layout is for level 0" // K
        } else if has(Features::BAD_BLOCKS) && self.bblog.offset == 0 {
            "there are bad blocks, but no place for their log" // K
        } else if has(Features::BITMAP) && self.bitmap_offset == 0 {
            "there is a bitmap, but no place for it"
        } else {
            return Ok(());
        };
        Err(wrong(at::FEATURES, self.features.0, Fault::Conflict(conflict)))
    }

    fn check_place(&self) -> Result<(), ParseError> {
        let sectors = [
            (at::SIZE, self.size),
            (at::DATA_OFFSET, self.data_offset),
            (at::DATA_SIZE, self.data_size),
            (at::SUPER_OFFSET, self.super_offset),
        ];
        for (field, value) in sectors {
            if value > MOST_SECTORS {
                return Err(field.wrong(STRUCTURE, value, Fault::Above { most: MOST_SECTORS }));
            }
        }
        if self.data_size < LEAST_DATA_SECTORS {
            let fault = Fault::Below { least: LEAST_DATA_SECTORS }; // K
            return Err(at::DATA_SIZE.wrong(STRUCTURE, self.data_size, fault));
        }
        if self.bblog.offset != 0 && self.bblog.sectors > 8 {
            return Err(wrong(at::BBLOG_SIZE, self.bblog.sectors, Fault::Above { most: 8 })); // K
        }
        for (field, offset) in self.data_offsets().into_iter().flatten() {
            self.check_data(field, offset)?;
        }
        Ok(())
    }

    /// `data_offset`, and where it will be after a reshape that moves the data.
    fn data_offsets(&self) -> [Option<(Field, i128)>; 2] {
        let now = i128::from(self.data_offset);
        let moves = self.features.contains(Features::NEW_OFFSET);
        let then = moves.then(|| (at::NEW_OFFSET, now + i128::from(self.reshape.new_offset)));
        [Some((at::DATA_OFFSET, now)), then]
    }

    /// The data must lie behind the superblock (1.1, 1.2: K) or before it (1.0). At 1.0 the kernel
    /// only asks that `data_size` does not exceed `super_offset`, which would let the data run over
    /// the superblock where `data_offset` is not 0.
    fn check_data(&self, field: Field, offset: i128) -> Result<(), ParseError> {
        let fault = if offset < 0 {
            Fault::Conflict("the data would begin before the member")
        } else if self.version() == Version::V1_0 {
            if offset + i128::from(self.data_size) <= i128::from(self.super_offset) {
                return Ok(());
            }
            Fault::Conflict("the data would run into the superblock")
        } else {
            let least = self.super_offset + self.printed_bytes() / SECTOR;
            if offset >= i128::from(least) {
                return Ok(());
            }
            Fault::Below { least }
        };
        Err(field.wrong(STRUCTURE, offset as u64, fault))
    }
}
