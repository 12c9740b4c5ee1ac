//! The array of a cluster as a local disk: `parapet cluster client --attach`.
//!
//! It never waits for the next client: other hosts may write to the array meanwhile, and what used
//! the disk would not notice. The next client does not even join while that is mounted.

use std::fs::{File, TryLockError};
use std::rc::Rc;
use std::time::Duration;

use ::io::{Clock, Completion, Disk, Done, Limits, Op};
use net::bytewise::Writers;
use net::cluster::client::ClientDisk;
use os::{Signals, Spawner};

use crate::api::AttachedView;
use crate::cluster::file::Cluster;
use crate::cluster::host::until_stopped;
use crate::failure::{Failure, Id, Result, of_path};
use crate::local_disks::{self, LocalDisks, Source};
use crate::places;
use crate::systemd;

/// Logical block of the device. File systems do not outlive a change of it, so it is constant.
const BLOCK_BYTES: u32 = 4096;
/// Between two looks whether a local disk is still in use.
const GLANCE: Duration = Duration::from_secs(1);

/// The right of a process to the local disk of this cluster on this host.
pub(super) struct Place {
    name: String,
    uuid: String,
    _lock: File,
}

/// The local disk of a client.
pub(super) struct Local {
    disks: LocalDisks,
    place: Place,
    view: AttachedView,
}

/// The array in blocks that the kernel and file systems know.
struct Blocks(ClientDisk);

impl Disk for Blocks {
    fn submit(&self, op: Op) -> Completion<Done> {
        self.0.submit(op)
    }

    fn limits(&self) -> Limits {
        let limits = self.0.limits();
        Limits {
            logical_block: limits.logical_block.max(BLOCK_BYTES),
            physical_block: limits.physical_block.max(BLOCK_BYTES),
            ..limits
        }
    }
}

impl Place {
    /// Takes the place. Removes what a client that was killed has left there.
    ///
    /// # Errors
    /// `Busy` if another client has it, or a user still has the disk of an earlier one.
    pub(super) async fn take(cluster: &Cluster) -> Result<Place> {
        let (name, uuid) = (cluster.name.clone(), format!("{:032x}", cluster.array.0));
        let lock = format!("{}.lock", places::file_name(&name, &uuid));
        let path = local_disks::folder()?.join(lock);
        let file = File::options().create(true).append(true).open(&path);
        let lock = file.map_err(|error| of_path(&path, &error))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let message = format!("{name}: another client of this host is its local disk");
                return Err(Failure::new(Id::Busy, message, "stop that one first"));
            }
            Err(TryLockError::Error(error)) => return Err(of_path(&path, &error)),
        }
        local_disks::clear_away(&name, &uuid).await?;
        Ok(Place { name, uuid, _lock: lock })
    }
}

impl Local {
    /// Makes the array the local disk.
    ///
    /// # Errors
    /// As [`LocalDisks::attach`].
    pub(super) async fn attach(
        place: Place,
        how: Option<&str>,
        (disk, writers): (&ClientDisk, &Writers),
        disks: LocalDisks,
    ) -> Result<Local> {
        let source = Source {
            uuid: place.uuid.clone(),
            name: place.name.clone(),
            disk: Rc::new(Blocks(disk.clone())),
            writers: writers.clone(),
            read_only: false,
            survives_restart: false,
        };
        let view = disks.attach(&source, how).await?;
        Ok(Local { disks, place, view })
    }

    /// Describes it.
    pub(super) fn view(&self) -> AttachedView {
        self.view.clone()
    }

    /// Takes the local disk away, as soon as nobody uses it or another signal comes. A disk that is
    /// still in use then fails all requests, and a further signal ends the wait for the kernel.
    pub(super) async fn end(&self, signals: &Signals, on: &Spawner) {
        let (clock, uuid) = (on.clock(), &self.place.uuid);
        let free = async {
            let mut said = false;
            while let Err(failure) = self.disks.refuse_in_use(uuid).await
                && failure.id == Id::Busy
            {
                if !said {
                    tracing::warn!("{failure}; waiting for that, or for another signal");
                    systemd::status(&failure.message);
                    said = true;
                }
                clock.sleep_until(clock.now() + GLANCE).await;
            }
        };
        until_stopped(signals, free).await;
        until_stopped(signals, self.disks.end(uuid)).await;
    }
}
