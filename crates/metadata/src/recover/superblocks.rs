//! Superblocks for a guess, which make its disks members of an array again.

use layout::md::superblock::{CLEAN, Device, Role, Version, position};
use layout::md::{Features, Name, SECTOR, Superblock, Timestamp, Uuid};
use layout::{Layout, Level};

use crate::create::FIRST_EVENT;
use crate::recover::Guess;

/// Bytes to write on a disk.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stamp {
    /// The index of the disk.
    pub disk: usize,
    /// The offset on the disk.
    pub offset: u64,
    /// A superblock, in whole sectors.
    pub bytes: Vec<u8>,
}

/// The superblocks of a guess, on disks of these sizes: clean, without a bitmap, as `mdadm --create
/// --assume-clean` would write them. `set_uuid` and the device identities are given. `None` if
/// there is no room for one before or behind the data.
pub fn stamps(
    guess: &Guess,
    disk_bytes: &[u64],
    (name, set_uuid, device_uuids): (Name, Uuid, &[Uuid]),
    unix_seconds: u64,
) -> Option<Vec<Stamp>> {
    let level = guess.layout.level();
    let mut roles = Superblock::role_table(guess.order.len())?;
    for (slot, (role, disk)) in roles.iter_mut().zip(&guess.order).enumerate() {
        *role = disk.map_or(Role::Spare, |_| Role::Slot(slot as u16));
    }
    let features = match level {
        Level::Raid0 => Features::NONE.with(Features::RAID0_LAYOUT),
        _ => Features::NONE,
    };
    let (version, sectors) = (version(guess.data_offset), guess.member_bytes / SECTOR);
    let array = Superblock {
        features,
        set_uuid,
        set_name: name,
        ctime: Timestamp::new(unix_seconds, 0),
        utime: Timestamp::new(unix_seconds, 0),
        level: level.md_number()?,
        layout: guess.layout.to_md(),
        // Levels without redundancy use each member whole.
        size: if matches!(guess.layout, Layout::Raid0(_)) { 0 } else { sectors },
        chunk_sectors: (guess.chunk_bytes / SECTOR) as u32,
        raid_disks: guess.order.len() as u32,
        data_offset: guess.data_offset / SECTOR,
        data_size: sectors,
        events: FIRST_EVENT,
        resync_offset: CLEAN,
        roles,
        ..Superblock::default()
    };
    let of = |(slot, disk): (usize, &Option<usize>)| {
        let disk = (*disk)?;
        let offset = position(version, disk_bytes[disk])?;
        let superblock = Superblock {
            super_offset: offset / SECTOR,
            device: Device { number: slot as u32, uuid: device_uuids[disk], ..array.device },
            ..array.clone()
        };
        let bytes = superblock.print();
        let end = offset + bytes.len() as u64;
        let data = guess.data_offset..guess.data_offset + guess.member_bytes;
        let fits = end <= data.start || offset >= data.end && end <= disk_bytes[disk];
        Some(fits.then_some(Stamp { disk, offset, bytes }))
    };
    guess.order.iter().enumerate().filter_map(of).collect()
}

/// The version whose place has room for a superblock.
fn version(data_offset: u64) -> Version {
    match data_offset {
        8192.. => Version::V1_2,
        4096.. => Version::V1_1,
        _ => Version::V1_0,
    }
}
