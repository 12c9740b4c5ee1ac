//! The sectors and registers of SMART.
//!
//! Source: ATA8-ACS, 7.52, and the attribute table that drives and smartmontools agree on: 30
//! entries of 12 bytes (id, flags, value, worst, raw 6 bytes), thresholds likewise.

use super::SECTOR;

/// Subcommands, in the feature register.
pub mod feature {
    /// READ DATA: the attributes.
    pub const READ_DATA: u8 = 0xd0;
    /// READ THRESHOLDS.
    pub const READ_THRESHOLDS: u8 = 0xd1;
    /// EXECUTE OFF-LINE IMMEDIATE.
    pub const EXECUTE: u8 = 0xd4;
    /// READ LOG.
    pub const READ_LOG: u8 = 0xd5;
    /// WRITE LOG.
    pub const WRITE_LOG: u8 = 0xd6;
    /// ENABLE OPERATIONS.
    pub const ENABLE: u8 = 0xd8;
    /// DISABLE OPERATIONS.
    pub const DISABLE: u8 = 0xd9;
    /// RETURN STATUS.
    pub const STATUS: u8 = 0xda;
}

/// LBA mid and high of every SMART command, and of the answer "healthy" to RETURN STATUS.
pub const SIGNATURE: [u8; 2] = [0x4f, 0xc2];
/// LBA mid and high of the answer "threshold exceeded".
pub const FAILING: [u8; 2] = [0xf4, 0x2c];

/// The health of what is served, in the terms that monitors of disks read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Health {
    /// Redundancy is lost, or data is: a disk would say "failing".
    pub failing: bool,
    /// Blocks that were repaired from redundancy.
    pub repaired: u64,
    /// Blocks whose reads fail.
    pub lost: u64,
    /// Members that are missing or failed.
    pub members_lost: u64,
}

/// Reallocated sectors.
const REALLOCATED: u8 = 5;
/// Reported uncorrectable errors.
const UNCORRECTABLE: u8 = 187;
/// Free for vendors: members lost.
const MEMBERS: u8 = 240;

impl Health {
    fn attributes(&self) -> [(u8, u64, bool); 3] {
        [
            (REALLOCATED, self.repaired, false),
            (UNCORRECTABLE, self.lost, self.lost > 0),
            (MEMBERS, self.members_lost, self.failing),
        ]
    }

    /// The sector of READ DATA.
    pub fn to_data(self) -> [u8; SECTOR] {
        let mut bytes = [0; SECTOR];
        bytes[0] = 16; // the table's revision
        for ((id, raw, failing), entry) in
            self.attributes().into_iter().zip(bytes[2..].chunks_mut(12))
        {
            // Pre-failure, collected online.
            let value = if failing { 1 } else { 100 };
            entry[..5].copy_from_slice(&[id, 0x03, 0, value, value]);
            entry[5..11].copy_from_slice(&raw.to_le_bytes()[..6]);
        }
        bytes[368] = 3; // attributes are kept by themselves
        seal(bytes)
    }

    /// The sector of READ THRESHOLDS.
    pub fn to_thresholds(self) -> [u8; SECTOR] {
        let mut bytes = [0; SECTOR];
        bytes[0] = 16;
        for ((id, ..), entry) in self.attributes().into_iter().zip(bytes[2..].chunks_mut(12)) {
            entry[..2].copy_from_slice(&[id, 10]);
        }
        seal(bytes)
    }
}

/// The sector of the log directory: there are no other logs.
pub fn log_directory() -> [u8; SECTOR] {
    let mut bytes = [0; SECTOR];
    bytes[0] = 1;
    bytes
}

/// Makes the sum of all bytes zero.
fn seal(mut bytes: [u8; SECTOR]) -> [u8; SECTOR] {
    bytes[SECTOR - 1] = bytes[..SECTOR - 1].iter().fold(0_u8, |sum, byte| sum.wrapping_sub(*byte));
    bytes
}
