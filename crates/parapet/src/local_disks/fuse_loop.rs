//! FUSE and a loop device: works with every kernel that has the two drivers.
//!
//! A server that was killed leaves the loop device behind, and every request to it fails. The next
//! `attach` clears it away, once nobody uses it.

use std::fs;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use net::fuse;
use os::{FuseMount, loop_device};

use super::{Event, LocalDisks, Source, aside, refuse_in_use};
use crate::failure::{Failure, Id, Result};
use crate::places;

/// See the module.
pub(super) struct LoopDisk {
    pub(super) path: PathBuf,
    mount: Mount,
}

/// A served file of the kernel.
struct Mount {
    file: PathBuf,
    channel: Rc<FuseMount>,
    /// The kernel has ended it.
    ended: Rc<Event>,
}

impl LocalDisks {
    pub(super) async fn make_loop(&self, source: &Source) -> Result<LoopDisk> {
        let file = file_of(&source.name, &source.uuid);
        let mount = self.mount(source, &file)?;
        let (block, read_only) = (source.limits().logical_block, source.read_only);
        match aside(move || loop_device::attach(&file, block, read_only)).await? {
            Ok(path) => Ok(LoopDisk { path, mount }),
            Err(error) => {
                self.end_mount(&mount).await;
                let message = format!("{}: no loop device: {error}", source.name);
                let action = "load the kernel's driver: modprobe loop";
                Err(Failure::new(Id::Input, message, action))
            }
        }
    }

    /// Mounts and serves the file.
    fn mount(&self, source: &Source, file: &Path) -> Result<Mount> {
        make_file(file)?;
        let (pool, read_only) = (self.pool.clone(), source.read_only);
        let channel = FuseMount::new(file, read_only, pool.clone(), &self.spawner);
        let channel = Rc::new(channel.map_err(|error| {
            let message = format!("{}: FUSE mount: {error}", file.display());
            Failure::new(
                Id::Input,
                message,
                "run the server as root, and load the driver: modprobe fuse",
            )
        })?);
        let disk = self.bytewise(source);
        let server = fuse::Server::new(Rc::clone(&channel) as _, disk, pool, read_only);
        let ended = Event::new();
        let raise = Rc::clone(&ended);
        self.spawner.spawn_local(async move {
            server.run().await;
            raise.happen();
        });
        Ok(Mount { file: file.to_owned(), channel, ended })
    }

    pub(super) async fn unmount(&self, disk: &LoopDisk) {
        self.end_mount(&disk.mount).await;
    }

    async fn end_mount(&self, mount: &Mount) {
        if let Err(error) = mount.channel.unmount() {
            tracing::error!("{}: unmount: {error}", mount.file.display());
        }
        if !self.in_time(&mount.ended).await {
            tracing::warn!("{}: a program still has it open", mount.file.display());
        }
        let _ = fs::remove_file(&mount.file);
    }
}

impl LoopDisk {
    /// Takes the loop device away.
    pub(super) async fn detach(&self) -> Result<()> {
        let device = self.path.clone();
        let detached = aside(move || loop_device::detach(&device)).await?;
        detached.map_err(|error| {
            let message = format!("{}: {error}", self.path.display());
            Failure::new(Id::Input, message, "see: losetup --list")
        })
    }
}

/// The file of a disk of this name.
pub(super) fn file_of(name: &str, uuid: &str) -> PathBuf {
    places::runtime().join("disks").join(places::file_name(name, uuid))
}

/// Removes what a server that was killed has left behind.
///
/// # Errors
/// If somebody still uses its loop device.
pub(super) async fn clear_away(link: &Path, file: PathBuf) -> Result<()> {
    if let Ok(device) = fs::read_link(link) {
        match backing_file(&device) {
            None => {}
            Some(other) if other != file => {
                let message = format!("{}: an array of another server", link.display());
                return Err(Failure::new(Id::Busy, message, "detach that one first"));
            }
            Some(_) => {
                refuse_in_use(link, &device).await?;
                // A device that cannot be detached stays, and another one is taken.
                let _ = aside(move || loop_device::detach(&device)).await?;
            }
        }
    }
    aside(move || os::fuse::unmount_dead(&file)).await
}

/// The file behind a loop device; none if it has none.
fn backing_file(device: &Path) -> Option<PathBuf> {
    let backing = Path::new("/sys/block").join(device.file_name()?).join("loop/backing_file");
    let text = fs::read_to_string(backing).ok()?;
    Some(PathBuf::from(text.strip_suffix('\n').unwrap_or(&text)))
}

/// Makes an empty file, for the mount.
fn make_file(file: &Path) -> Result<()> {
    super::folder()?;
    fs::File::create(file).map_err(|error| crate::failure::of_path(file, &error))?;
    Ok(())
}
