//! The disks of a candidate with its superblocks as overlays in memory, ready to start the array.
//!
//! Never writes to a disk.

use std::rc::Rc;

use io::{Op, Pool};
use jiff::Timestamp;
use layout::md::{Name, Uuid};
use metadata::recover::{Guess, Stamp, stamps};
use os::Spawner;

use super::NAME;
use crate::api::SignatureView;
use crate::cmd::serve::Sources;
use crate::daemon::{Daemon, Served};
use crate::disks::Opened;
use crate::engine::{self, AssemblyFlags, RunFlags};
use crate::failure::{Failure, Id, Result};
use crate::overlay::Overlay;

/// Distance of a version 1.2 superblock from the start of the disk.
const INNER: u64 = 4096;

/// A disk, and the overlay with its superblock under a candidate.
pub(super) struct Member {
    pub(super) disk: Opened,
    pub(super) slot: usize,
    /// The superblocks on the disk that the overlay hides.
    pub(super) replaces: Vec<SignatureView>,
    /// Why nothing may be written to it.
    pub(super) objection: Option<String>,
    over: Rc<Overlay>,
}

impl Member {
    /// Overlays the disk with this superblock, and other superblocks with zeros. The array's data
    /// begins at byte `data`.
    async fn new(disk: Opened, (slot, stamp): (usize, &Stamp), data: u64, on: &Spawner) -> Member {
        let over = Rc::new(Overlay::new(Rc::clone(&disk.disk), on));
        let (mut replaces, mut objection) = (Vec::new(), None);
        let path = disk.path.display();
        match metadata::examine::examine(&*disk.disk, &disk.clock).await {
            Ok(found) => {
                for other in &found.superblocks {
                    let name = format!("{} superblock", other.format);
                    // A superblock at the start of the data belongs to an array inside this one.
                    if (data..=data + INNER).contains(&other.offset) {
                        let at = other.offset;
                        objection =
                            Some(format!("{path}: the data begins with a {name}, at byte {at}"));
                    }
                    replaces.push(SignatureView { name, offset: other.offset });
                    over.put(other.offset, &[0; 512]);
                }
            }
            // An unreadable place only prevents writing: a read-only start finds no superblock
            // there.
            Err(error) => objection = Some(format!("{path}: {error}")),
        }
        over.put(stamp.offset, &stamp.bytes);
        Member { disk, slot, replaces, objection, over }
    }

    /// Returns the disk with the overlay of the candidate.
    fn opened(&self) -> Opened {
        Opened {
            path: self.disk.path.clone(),
            disk: Rc::clone(&self.over) as _,
            file: None,
            remote: None,
            serial: self.disk.serial.clone(),
            clock: Rc::clone(&self.disk.clock),
        }
    }

    /// Returns the bytes to write, and their offsets, to make the candidate permanent.
    ///
    /// # Errors
    /// If the disk cannot be read.
    pub(super) async fn changes(&self) -> Result<Vec<(u64, Vec<u8>)>> {
        let (pool, opened) = (Pool::new(0), self.opened());
        let mut changes = Vec::new();
        for range in self.over.changed() {
            let read = Op::read(range.start, pool.take((range.end - range.start) as usize));
            let done = opened.ask(read).await.map_err(|error| {
                let message = format!("{}: {error}", opened.path.display());
                Failure::new(Id::Input, message, "see the system's log for the disk's errors")
            })?;
            changes.push((range.start, done.into_buf().to_vec()));
        }
        Ok(changes)
    }
}

/// Overlays the disks with the superblocks of a candidate, in the order of their slots.
///
/// # Errors
/// If there is no room for superblocks.
pub(super) async fn lay(guess: &Guess, disks: Vec<Opened>, on: &Spawner) -> Result<Vec<Member>> {
    let random = engine::random()?;
    let uuid = || {
        let mut bytes = [0; 16];
        random(&mut bytes);
        Uuid(bytes)
    };
    let (set_uuid, device_uuids) = (uuid(), disks.iter().map(|_| uuid()).collect::<Vec<_>>());
    let bytes: Vec<u64> = disks.iter().map(Opened::bytes).collect();
    let name = Name::new(NAME).expect("the name is short");
    let seconds = u64::try_from(Timestamp::now().as_second()).unwrap_or(0);
    let stamps = stamps(guess, &bytes, (name, set_uuid, &device_uuids), seconds);
    let stamps = stamps.ok_or_else(|| {
        let message = "there is no room for superblocks beside the data";
        Failure::new(Id::WrongState, message, "choose another one: --choose NUMBER")
    })?;
    let mut members = Vec::new();
    for (index, disk) in disks.into_iter().enumerate() {
        let slot = guess.order.iter().position(|sits| *sits == Some(index));
        let stamp = stamps.iter().find(|stamp| stamp.disk == index);
        if let (Some(slot), Some(stamp)) = (slot, stamp) {
            members.push(Member::new(disk, (slot, stamp), guess.data_offset, on).await);
        }
    }
    members.sort_by_key(|member| member.slot);
    Ok(members)
}

/// Starts the array read-only, from the overlays.
///
/// # Errors
/// If the array cannot start: more members are missing than the level tolerates.
pub(super) async fn start(members: &[Member], daemon: &Rc<Daemon>) -> Result<Rc<Served>> {
    let laid: Vec<Opened> = members.iter().map(Member::opened).collect();
    let laid: Vec<&Opened> = laid.iter().collect();
    let assembly = AssemblyFlags { read_only: true, degraded: true, ..AssemblyFlags::default() };
    let sources = Sources { name: Some(NAME), members: &[], scan: None };
    let arrays = sources.gather_from(&laid, &assembly, &RunFlags::default(), daemon).await?;
    arrays.into_iter().next().ok_or_else(|| {
        let message = "the array found cannot be started";
        Failure::new(Id::NoArray, message, "choose another one: --choose NUMBER")
    })
}
