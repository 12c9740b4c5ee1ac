//! A model of the lab's catalogue, in front of a file.

use std::rc::Rc;

use io::Disk;
use lab::disk::catalogue::{Catalogue, Entry};
use lab::real_time::RealTimeDisk;
use os::Spawner;

use crate::failure::{Failure, Id, Result};

/// A disk of the catalogue.
pub(super) struct Model(&'static Entry);

impl Model {
    /// Finds the model of this name, for this member.
    ///
    /// # Errors
    /// If the catalogue has no such disk.
    pub(super) fn named(name: &str, member: &str) -> Result<Model> {
        Catalogue::get().entry(name).map(Model).ok_or_else(|| {
            let message = format!("{member}: no modelled disk is called {name:?}");
            Failure::new(Id::Usage, message, "list them: parapet lab disks")
        })
    }

    /// Returns the size of the disk.
    pub(super) fn bytes(&self) -> u64 {
        self.0.bytes()
    }

    /// Puts the model before an open file.
    pub(super) fn in_front(&self, file: Rc<dyn Disk>, on: &Spawner) -> Rc<dyn Disk> {
        let disk = RealTimeDisk::new(self.0.build(), file, on.clock());
        on.spawn_local(disk.run());
        Rc::new(disk)
    }
}
