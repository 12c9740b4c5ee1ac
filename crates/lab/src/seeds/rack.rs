//! Arrays of equal disks, as the experiments need them: healthy or degraded, flat or nested.

use std::rc::Rc;

use array::{Array, Host};
use io::Disk;
use layout::{Layout, Raid0Layout, Raid5Layout, Raid6Layout};
use metadata::create::NewArray;

use crate::rig;
use crate::world::{Core, World};

/// A level of an experiment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Level {
    /// A disk without an array.
    Single,
    /// RAID 0.
    Raid0,
    /// RAID 1.
    Raid1,
    /// RAID 5.
    Raid5,
    /// RAID 6.
    Raid6,
    /// RAID 10 with two near copies.
    Raid10,
    /// RAID 0 of two RAID 5.
    Raid50,
}

/// A level on a number of disks, some of which are lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shape {
    /// Its level.
    pub level: Level,
    /// Its disks, with the lost ones.
    pub disks: usize,
    /// Lost disks: the first ones.
    pub lost: usize,
}

impl Shape {
    /// A healthy array.
    pub const fn new(level: Level, disks: usize) -> Shape {
        Shape { level, disks, lost: 0 }
    }

    /// The array after the loss of so many disks.
    pub const fn without(self, lost: usize) -> Shape {
        Shape { lost, ..self }
    }

    /// Its name in tables: `RAID 5 ×4, 1 lost`.
    pub fn name(&self) -> String {
        let level = match self.level {
            Level::Single => return "single disk".into(),
            Level::Raid0 => "RAID 0",
            Level::Raid1 => "RAID 1",
            Level::Raid5 => "RAID 5",
            Level::Raid6 => "RAID 6",
            Level::Raid10 => "RAID 10",
            Level::Raid50 => "RAID 50",
        };
        match self.lost {
            0 => format!("{level} ×{}", self.disks),
            lost => format!("{level} ×{}, {lost} lost", self.disks),
        }
    }

    /// Starts the engine's array on the first core. `new` gives all of its parameters but the
    /// layout.
    ///
    /// # Errors
    /// As [`rig::start`] and [`Array::fail`].
    pub async fn start(
        &self,
        world: &World,
        disks: &[Rc<dyn Disk>],
        new: &NewArray,
        host: &Host,
    ) -> metadata::Result<Rc<dyn Disk>> {
        let raid5 = Layout::Raid5(Raid5Layout::LeftSymmetric);
        let layout = match self.level {
            Level::Single => return Ok(Rc::clone(&disks[0])),
            Level::Raid0 => Layout::Raid0(Raid0Layout::Alternate),
            Level::Raid1 => Layout::Raid1,
            Level::Raid5 => raid5,
            Level::Raid6 => Layout::Raid6(Raid6Layout::LeftSymmetric),
            Level::Raid10 => Layout::Raid10 { near: 2, far: 1, offset: false },
            Level::Raid50 => {
                let mut halves = Vec::new();
                for half in disks.chunks(disks.len() / 2) {
                    let new = NewArray { layout: raid5, ..new.clone() };
                    let array = rig::start(world, Core::FIRST, half, &new, host).await?;
                    halves.push(Rc::new(array) as Rc<dyn Disk>);
                }
                let stripe = (self.disks as u64 / 2 - 1) * new.chunk_bytes;
                let layout = Layout::Raid0(Raid0Layout::Alternate);
                let new = NewArray { layout, chunk_bytes: stripe, ..new.clone() };
                let array = rig::start(world, Core::FIRST, &halves, &new, host).await?;
                return Ok(Rc::new(array));
            }
        };
        let chunk_bytes = if self.level == Level::Raid1 { 0 } else { new.chunk_bytes };
        let new = NewArray { layout, chunk_bytes, ..new.clone() };
        let array = rig::start(world, Core::FIRST, disks, &new, host).await?;
        lose(&array, self.lost).await?;
        Ok(Rc::new(array))
    }
}

/// The members of the first slots fail.
async fn lose(array: &Array, count: usize) -> metadata::Result<()> {
    let slots = array.status().slots;
    for member in slots.iter().take(count).filter_map(|slot| slot.member.as_ref()) {
        array.fail(member.id).await?;
    }
    Ok(())
}
