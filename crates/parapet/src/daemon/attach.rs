//! Arrays as local disks: `parapet attach`.
//!
//! ```text
//!    /dev/parapet/tank ─▶ /dev/loop0 ─▶ RUNTIME/disks/tank ═ FUSE ═ net::fuse::Server ─▶ array
//! ```
//!
//! The kernel's part must not wait for this thread while this thread waits for the kernel: calls
//! that make the kernel read the disk run on threads of their own.
//!
//! A server that was killed leaves the loop device behind, and every request to it fails. The next
//! `attach` clears it away, once nobody uses it.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use ::io::{Clock, Disk, Signal};
use net::bytewise::Bytewise;
use net::fuse;
use os::disk::Holder;
use os::{FuseMount, loop_device, threads};

use super::{Daemon, Served, first};
use crate::api::AttachedView;
use crate::failure::{Failure, Id, Result};
use crate::places;

/// How long the kernel may take to let go of a detached disk.
const PATIENCE: Duration = Duration::from_secs(30);

/// The attached arrays, by UUID.
#[derive(Default)]
pub(super) struct Attachments(RefCell<BTreeMap<String, Rc<Attached>>>);

/// An array that is a local disk.
struct Attached {
    device: PathBuf,
    link: PathBuf,
    mount: Mount,
}

/// A served file of the kernel.
struct Mount {
    file: PathBuf,
    channel: Rc<FuseMount>,
    /// Set and raised when the kernel has ended it.
    ended: Rc<(Cell<bool>, Signal)>,
}

impl Daemon {
    /// Makes the array a local disk.
    pub(super) async fn order_attach(self: &Rc<Self>, served: &Rc<Served>) -> Result<String> {
        let name = served.name();
        if let Some(attached) = self.attachment(served) {
            let message = format!("{name} is attached as {}", attached.link.display());
            return Err(Failure::new(Id::WrongState, message, format!("parapet detach {name}")));
        }
        let file_name = places::file_name(name, served.uuid());
        let file = places::runtime().join("disks").join(&file_name);
        let link = Path::new("/dev/parapet").join(&file_name);
        clear_away(&link, &file).await?;
        let read_only = served.array.limits().read_only || served.read_only().is_some();
        let mount = self.mount(served, &file, read_only)?;
        let block = served.array.limits().logical_block;
        let looped = aside(move || loop_device::attach(&file, block, read_only)).await?;
        let device = match looped {
            Ok(device) => device,
            Err(error) => {
                self.unmount(&mount).await;
                let message = format!("{name}: no loop device: {error}");
                let action = "load the kernel's driver: modprobe loop";
                return Err(Failure::new(Id::Input, message, action));
            }
        };
        let attached = Rc::new(Attached { device, link, mount });
        self.attachments.0.borrow_mut().insert(served.uuid().into(), Rc::clone(&attached));
        if let Err(failure) = make_link(&attached.link, &attached.device) {
            self.let_go(served, &attached).await?;
            return Err(failure);
        }
        let (link, device) = (attached.link.display(), attached.device.display());
        Ok(format!("{name}: attached as {link} ({device})"))
    }

    /// Takes the local disk away, unless it is in use.
    pub(super) async fn order_detach(&self, served: &Rc<Served>) -> Result<String> {
        let name = served.name();
        let Some(attached) = self.attachment(served) else {
            let message = format!("{name} is not attached");
            return Err(Failure::new(Id::WrongState, message, format!("parapet attach {name}")));
        };
        self.refuse_attached_in_use(served).await?;
        self.let_go(served, &attached).await?;
        Ok(format!("{name}: {} is detached", attached.link.display()))
    }

    /// Refuses if the array is attached and in use.
    ///
    /// # Errors
    /// Names the users, and how to stop the use.
    pub(super) async fn refuse_attached_in_use(&self, served: &Served) -> Result<()> {
        let Some(attached) = self.attachment(served) else { return Ok(()) };
        match users(&attached.device).await?.split_first() {
            None => Ok(()),
            Some((holder, others)) => Err(in_use(&attached.link, holder, others)),
        }
    }

    /// Takes the local disk of an array that stops away. One that is in use stays, and all its
    /// requests fail from then on.
    pub(super) async fn end_attachment(&self, served: &Served) {
        let Some(attached) = self.attachment(served) else { return };
        if let Err(failure) = self.refuse_attached_in_use(served).await {
            tracing::error!("{}: {failure}; its requests fail from now on", served.name());
        }
        if let Err(failure) = self.let_go(served, &attached).await {
            tracing::error!("{}: {failure}", served.name());
        }
    }

    /// Takes all local disks away.
    pub(super) async fn end_attachments(&self) {
        for served in self.arrays() {
            self.end_attachment(&served).await;
        }
    }

    /// Describes the array's local disk.
    pub(super) fn attached_view(&self, served: &Served) -> Option<AttachedView> {
        let attached = self.attachment(served)?;
        Some(AttachedView {
            path: attached.link.display().to_string(),
            device: attached.device.display().to_string(),
            how: "fuse".into(),
            survives_restart: false,
        })
    }

    fn attachment(&self, served: &Served) -> Option<Rc<Attached>> {
        self.attachments.0.borrow().get(served.uuid()).cloned()
    }

    /// Mounts and serves the file.
    fn mount(&self, served: &Served, file: &Path, read_only: bool) -> Result<Mount> {
        make_file(file)?;
        // The kernel may need this disk to free memory: this process must never wait for that.
        if let Err(error) = threads::serve_memory_reclaim() {
            tracing::warn!(
                "{}: memory pressure can stop the local disk: {error}; give the server \
                 CAP_SYS_RESOURCE and CAP_IPC_LOCK",
                served.name()
            );
        }
        let pool = self.pool.clone();
        let channel = FuseMount::new(file, read_only, pool.clone(), &self.spawner);
        let channel = Rc::new(channel.map_err(|error| {
            let message = format!("{}: FUSE mount: {error}", file.display());
            Failure::new(
                Id::Input,
                message,
                "run the server as root, and load the driver: modprobe fuse",
            )
        })?);
        let disk = Bytewise::new(Rc::new(served.array.clone()), pool.clone());
        let disk = disk.beside(served.writers());
        let ended = Rc::new((Cell::new(false), Signal::new()));
        let server = fuse::Server::new(Rc::clone(&channel) as _, disk, pool, read_only);
        let raise = Rc::clone(&ended);
        self.spawner.spawn_local(async move {
            server.run().await;
            raise.0.set(true);
            raise.1.raise();
        });
        Ok(Mount { file: file.to_owned(), channel, ended })
    }

    async fn unmount(&self, mount: &Mount) {
        if let Err(error) = mount.channel.unmount() {
            tracing::error!("{}: unmount: {error}", mount.file.display());
        }
        let ended = async {
            while !mount.ended.0.get() {
                mount.ended.1.wait().await;
            }
        };
        let clock = self.spawner.clock();
        if first(ended, clock.sleep_until(clock.now() + PATIENCE)).await.is_none() {
            tracing::warn!("{}: a program still has it open", mount.file.display());
        }
        let _ = fs::remove_file(&mount.file);
    }

    async fn let_go(&self, served: &Served, attached: &Rc<Attached>) -> Result<()> {
        let device = attached.device.clone();
        let detached = aside(move || loop_device::detach(&device)).await?;
        detached.map_err(|error| {
            let message = format!("{}: {error}", attached.device.display());
            Failure::new(Id::Input, message, "see: losetup --list")
        })?;
        let _ = fs::remove_file(&attached.link);
        self.attachments.0.borrow_mut().remove(served.uuid());
        self.unmount(&attached.mount).await;
        Ok(())
    }
}

/// Removes what a server that was killed has left behind.
///
/// # Errors
/// If somebody still uses its loop device.
async fn clear_away(link: &Path, file: &Path) -> Result<()> {
    if let Ok(device) = fs::read_link(link) {
        match backing_file(&device) {
            None => {}
            Some(other) if other != file => {
                let message = format!("{}: an array of another server", link.display());
                return Err(Failure::new(Id::Busy, message, "detach that one first"));
            }
            Some(_) => detach_left(link, device).await?,
        }
    }
    let file = file.to_owned();
    aside(move || os::fuse::unmount_dead(&file)).await
}

/// Detaches the loop device of a server that was killed.
async fn detach_left(link: &Path, device: PathBuf) -> Result<()> {
    if let Some((holder, others)) = users(&device).await?.split_first() {
        return Err(in_use(link, holder, others));
    }
    // A device that cannot be detached stays, and another one is taken.
    let _ = aside(move || loop_device::detach(&device)).await?;
    Ok(())
}

/// The file behind a loop device; none if it has none.
fn backing_file(device: &Path) -> Option<PathBuf> {
    let backing = Path::new("/sys/block").join(device.file_name()?).join("loop/backing_file");
    let text = fs::read_to_string(backing).ok()?;
    Some(PathBuf::from(text.strip_suffix('\n').unwrap_or(&text)))
}

async fn users(device: &Path) -> Result<Vec<Holder>> {
    let asked = device.to_owned();
    let users = aside(move || loop_device::users(&asked)).await?;
    users.map_err(|error| crate::failure::of_path(device, &error))
}

fn in_use(link: &Path, holder: &Holder, others: &[Holder]) -> Failure {
    let more = match others.len() {
        0 => String::new(),
        count => format!(" and {count} more"),
    };
    let message = format!("{}: in use: {}{more}", link.display(), holder.who);
    Failure::new(Id::Busy, message, format!("free it first: {}", holder.free_by))
}

/// Makes an empty file, for the mount.
fn make_file(file: &Path) -> Result<()> {
    let folder = file.parent().unwrap_or(Path::new("/"));
    let mut builder = fs::DirBuilder::new();
    std::os::unix::fs::DirBuilderExt::mode(builder.recursive(true), 0o700);
    builder.create(folder).map_err(|error| crate::failure::of_path(folder, &error))?;
    fs::File::create(file).map_err(|error| crate::failure::of_path(file, &error))?;
    Ok(())
}

fn make_link(link: &Path, device: &Path) -> Result<()> {
    let folder = link.parent().unwrap_or(Path::new("/"));
    let _ = fs::create_dir_all(folder);
    let _ = fs::remove_file(link);
    std::os::unix::fs::symlink(device, link).map_err(|error| crate::failure::of_path(link, &error))
}

/// Runs `work` on a thread of its own.
async fn aside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T> {
    let running = threads::aside(work).map_err(|error| {
        Failure::new(Id::Failed, format!("a thread: {error}"), "see the limit of processes")
    })?;
    Ok(running.await)
}
