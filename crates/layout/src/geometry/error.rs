//! Why a layout or a shape is refused.
//!
//! Owns the reasons and their sentences. Never formats an array's or a member's name: the caller
//! has those.

use core::fmt;

use crate::units::Slot;

use super::names::{Layout, Level};

/// A level or layout that is not known, or known and not supported.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LayoutError {
    /// No level has this name.
    UnknownLevel,
    /// No layout of this level has this name.
    UnknownName {
        /// The level that was asked.
        level: Level,
    },
    /// md stores no such number for this level.
    UnknownNumber {
        /// The level that was asked.
        level: Level,
        /// The `layout` field.
        number: u32,
    },
    /// A RAID 0 whose superblock does not name one of the two layouts. With equal members they
    /// agree ([`super::Geometry::is_zoned`]): use either. Otherwise the user must choose.
    Unspecified,
    /// RAID 10 whose far copies stay within sets of members (bits 17 and 18): dm-raid creates them,
    /// mdadm never did.
    FarSets,
}

impl fmt::Display for LayoutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LayoutError::UnknownLevel => {
                f.write_str("unknown level: expected linear, 0, 1, 3.5, 4, 5, 6 or 10")
            }
            LayoutError::UnknownName { level } => write!(f, "{level} has no layout of this name"),
            LayoutError::UnknownNumber { level, number } => {
                write!(f, "{level} has no layout number {number:#x}")
            }
            LayoutError::Unspecified => f.write_str(
                "raid0 without a layout in its superblock: original (Linux before 3.14) or \
                 alternate (3.14 to 5.3)?",
            ),
            LayoutError::FarSets => f.write_str("raid10 with far sets is not supported"),
        }
    }
}

impl core::error::Error for LayoutError {}

/// Why these members cannot be an array of this layout.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GeometryError {
    /// The layout needs more members.
    TooFewMembers {
        /// The requested value.
        layout: Layout,
        /// The fewest it takes.
        needed: usize,
        /// How many there are.
        found: usize,
    },
    /// More members than [`crate::MAX_SLOTS`], or than the order of a RAID 3.5 allows.
    TooManyMembers {
        /// The requested value.
        layout: Layout,
        /// The most it takes.
        allowed: usize,
        /// How many there are.
        found: usize,
    },
    /// A parameter of the layout is out of range: 0 or 1 copies, order 0.
    BadLayout {
        /// The requested value.
        layout: Layout,
    },
    /// RAID 10 with near and offset copies and members that near copies do not divide: md maps two
    /// chunks to one place there.
    CopiesCollide {
        /// The requested value.
        layout: Layout,
        /// How many members.
        members: usize,
    },
    /// The chunk is smaller or larger than allowed.
    ChunkRange {
        /// The size that was asked for.
        bytes: u64,
        /// The smallest.
        min: u64,
        /// The largest.
        max: u64,
    },
    /// The level needs a chunk that is a power of two.
    ChunkNotPowerOfTwo {
        /// The size that was asked for.
        bytes: u64,
    },
    /// The chunk is not a whole number of sectors.
    ChunkNotSectors {
        /// The size that was asked for.
        bytes: u64,
    },
    /// RAID 1 has no chunk.
    ChunkNotZero {
        /// The size that was asked for.
        bytes: u64,
    },
    /// A member does not hold one chunk (or far copies of one).
    MemberTooSmall {
        /// Which member.
        slot: Slot,
        /// Its size.
        bytes: u64,
        /// The least it needs.
        needed: u64,
    },
    /// A member or the array is larger than 2⁶³ − 1 bytes.
    TooLarge,
}

impl fmt::Display for GeometryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            GeometryError::TooFewMembers { layout, needed, found } => {
                write!(f, "{} needs {needed} or more members, not {found}", Named(layout))
            }
            GeometryError::TooManyMembers { layout, allowed, found } => {
                write!(f, "{} takes at most {allowed} members, not {found}", Named(layout))
            }
            GeometryError::BadLayout { layout } => {
                write!(f, "{} is not a layout", Named(layout))
            }
            GeometryError::CopiesCollide { layout, members } => {
                let layout = Named(layout);
                write!(f, "{layout} on {members} members would put two chunks in one place")
            }
            GeometryError::ChunkRange { bytes, min, max } => {
                let [bytes, min, max] = [bytes, min, max].map(Amount);
                write!(f, "a chunk of {bytes} is not supported: {min} to {max}")
            }
            GeometryError::ChunkNotPowerOfTwo { bytes } => {
                write!(f, "a chunk of {} is not a power of two", Amount(bytes))
            }
            GeometryError::ChunkNotSectors { bytes } => {
                write!(f, "a chunk of {bytes} bytes is not a multiple of 512")
            }
            GeometryError::ChunkNotZero { bytes } => {
                write!(f, "raid1 has no chunk, but {bytes} bytes were given")
            }
            GeometryError::MemberTooSmall { slot, bytes, needed } => {
                write!(f, "member {slot} has {bytes} bytes for data and needs {needed}")
            }
            GeometryError::TooLarge => f.write_str("larger than 2^63 - 1 bytes"),
        }
    }
}

impl core::error::Error for GeometryError {}

/// Bytes in the largest unit that leaves a whole number.
struct Amount(u64);

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            bytes if bytes > 0 && bytes.is_multiple_of(1 << 20) => write!(f, "{} MiB", bytes >> 20),
            bytes if bytes > 0 && bytes.is_multiple_of(1 << 10) => write!(f, "{} KiB", bytes >> 10),
            bytes => write!(f, "{bytes} bytes"),
        }
    }
}

/// Level and layout in one: `raid10 f2`, `raid5 left-symmetric`, `linear`.
struct Named(Layout);

impl fmt::Display for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Layout::Linear | Layout::Raid1 | Layout::Raid4 => write!(f, "{}", self.0.level()),
            layout => write!(f, "{} {layout}", layout.level()),
        }
    }
}
