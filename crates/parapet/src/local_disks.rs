//! Disks of this process as disks of this machine: arrays, and the array of a cluster.
//!
//! ```text
//!    /dev/parapet/tank ─▶ /dev/ublkb0 ═ io_uring ═ os::UblkQueue ─────────────────────▶ disk
//!                      ─▶ /dev/nbd0   ═ 4 sockets ═ nbd::Server ──────────────────────▶ disk
//!                      ─▶ /dev/loop0 ─▶ RUNTIME/disks/tank ═ FUSE ═ net::fuse::Server ─▶ disk
//! ```
//!
//! The kernel's part must not wait for this thread while this thread waits for the kernel: calls
//! that make the kernel read the disk run on threads of their own.
//!
//! ublk and NBD devices can outlive their server: requests wait, and the next server takes the
//! device over when it serves the disk. [`Source::survives_restart`] says when that is right.

mod fuse_loop;
mod nbd;
mod ublk;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use ::io::{Clock, Disk, Limits, Pool, Signal};
use net::bytewise::{Bytewise, Writers};
use net::nbd::Server;
use os::disk::Holder;
use os::{Spawner, loop_device, threads};

use crate::api::AttachedView;
use crate::daemon::first;
use crate::failure::{Failure, Id, Result, of_path};
use crate::places;

/// How long the kernel may take to let go of a detached disk.
const PATIENCE: Duration = Duration::from_secs(30);

/// The local disks of a process, by UUID.
pub(crate) struct LocalDisks {
    spawner: Spawner,
    pool: Pool,
    server: Server,
    attached: RefCell<BTreeMap<String, Rc<Attached>>>,
}

/// A disk of this process that becomes a local disk.
pub(crate) struct Source {
    pub(crate) uuid: String,
    pub(crate) name: String,
    pub(crate) disk: Rc<dyn Disk>,
    /// Orders its writes with those of its other clients.
    pub(crate) writers: Writers,
    pub(crate) read_only: bool,
    /// Requests may wait for the next server: this one keeps no acknowledged write in its memory,
    /// and nobody else changes the disk meanwhile.
    pub(crate) survives_restart: bool,
}

/// A local disk.
struct Attached {
    name: String,
    link: PathBuf,
    way: Way,
    survives_restart: bool,
}

/// The way of the kernel's requests to this process.
enum Way {
    Ublk(ublk::UblkDisk),
    Nbd(nbd::NbdDisk),
    Fuse(fuse_loop::LoopDisk),
}

/// Something that happens once.
struct Event {
    happened: Cell<bool>,
    signal: Signal,
}

impl LocalDisks {
    /// Has no disk yet. Connections of the kernel's NBD client are served by `server`.
    pub(crate) fn new(on: &Spawner, pool: &Pool, server: &Server) -> LocalDisks {
        let (spawner, pool, server) = (on.clone(), pool.clone(), server.clone());
        LocalDisks { spawner, pool, server, attached: RefCell::default() }
    }

    /// Makes `source` a local disk, in this way or the best one.
    ///
    /// # Errors
    /// If the kernel lacks the way, or somebody uses what an earlier server has left.
    pub(crate) async fn attach(&self, source: &Source, how: Option<&str>) -> Result<AttachedView> {
        let how = choose(how).await?;
        clear_away(&source.name, &source.uuid).await?;
        self.prepare(&source.name);
        let way = match how {
            "ublk" => Way::Ublk(self.make_ublk(source).await?),
            "nbd" => Way::Nbd(self.make_nbd(source).await?),
            _ => Way::Fuse(self.make_loop(source).await?),
        };
        let attached = self.record(source, way);
        if let Err(failure) = make_link(&attached.link, attached.way.device()) {
            self.let_go(&source.uuid, &attached).await?;
            return Err(failure);
        }
        Ok(attached.view())
    }

    /// Takes the local disk over that an earlier server of `source` has left.
    pub(crate) async fn resume(&self, source: &Source) {
        let name = &source.name;
        if !source.survives_restart || self.find(&source.uuid).is_some() {
            return;
        }
        match self.take_over(source).await {
            Ok(None) => {}
            Ok(Some(way)) => {
                self.prepare(name);
                let attached = self.record(source, way);
                let device = attached.way.device();
                tracing::info!("{name}: {} is taken over", device.display());
                if let Err(failure) = make_link(&attached.link, device) {
                    tracing::error!("{name}: {failure}");
                }
            }
            Err(failure) => {
                tracing::error!("{name}: the last server's local disk is not served: {failure}");
            }
        }
    }

    async fn take_over(&self, source: &Source) -> Result<Option<Way>> {
        if let Some(disk) = self.resume_ublk(source).await? {
            return Ok(Some(Way::Ublk(disk)));
        }
        Ok(self.resume_nbd(source).await?.map(Way::Nbd))
    }

    /// The kernel may need this disk to free memory: this process must never wait for that.
    fn prepare(&self, name: &str) {
        if let Err(error) = threads::serve_memory_reclaim() {
            tracing::warn!(
                "{name}: memory pressure can stop the local disk: {error}; give the server \
                 CAP_SYS_RESOURCE and CAP_IPC_LOCK"
            );
        }
    }

    fn record(&self, source: &Source, way: Way) -> Rc<Attached> {
        let survives_restart = source.survives_restart && !matches!(way, Way::Fuse(_));
        let (name, link) = (source.name.clone(), link_of(&source.name, &source.uuid));
        let attached = Rc::new(Attached { name, link, way, survives_restart });
        self.attached.borrow_mut().insert(source.uuid.clone(), Rc::clone(&attached));
        attached
    }

    /// The disk for requests of the kernel.
    fn bytewise(&self, source: &Source) -> Bytewise {
        Bytewise::new(Rc::clone(&source.disk), self.pool.clone()).beside(&source.writers)
    }

    /// Takes a local disk away, unless it is in use.
    ///
    /// # Errors
    /// As [`LocalDisks::refuse_in_use`], and what the kernel says.
    pub(crate) async fn detach(&self, uuid: &str) -> Result<()> {
        let Some(attached) = self.find(uuid) else { return Ok(()) };
        self.refuse_in_use(uuid).await?;
        self.let_go(uuid, &attached).await
    }

    /// Refuses if it is attached and in use.
    ///
    /// # Errors
    /// `Busy`. Names the users, and how to stop the use.
    pub(crate) async fn refuse_in_use(&self, uuid: &str) -> Result<()> {
        let Some(attached) = self.find(uuid) else { return Ok(()) };
        refuse_in_use(&attached.link, attached.way.device()).await
    }

    /// Takes a local disk away. One that is in use stays, and all its requests fail from then on.
    pub(crate) async fn end(&self, uuid: &str) {
        let Some(attached) = self.find(uuid) else { return };
        let name = &attached.name;
        if let Err(failure) = self.refuse_in_use(uuid).await {
            tracing::error!("{name}: {failure}; its requests fail from now on");
        }
        if let Err(failure) = self.let_go(uuid, &attached).await {
            tracing::error!("{name}: {failure}");
        }
    }

    /// Leaves a local disk to the next server; takes it away if it cannot be left.
    pub(crate) async fn leave(&self, uuid: &str) {
        match self.find(uuid) {
            Some(attached) if attached.survives_restart => {
                if let Way::Ublk(disk) = &attached.way {
                    disk.leave().await;
                }
            }
            _ => self.end(uuid).await,
        }
    }

    /// Describes a local disk; none if it is not attached.
    pub(crate) fn view(&self, uuid: &str) -> Option<AttachedView> {
        Some(self.find(uuid)?.view())
    }

    fn find(&self, uuid: &str) -> Option<Rc<Attached>> {
        self.attached.borrow().get(uuid).cloned()
    }

    async fn let_go(&self, uuid: &str, attached: &Attached) -> Result<()> {
        match &attached.way {
            Way::Ublk(disk) => self.remove_ublk(disk).await?,
            Way::Nbd(disk) => disk.remove().await?,
            Way::Fuse(disk) => disk.detach().await?,
        }
        let _ = fs::remove_file(&attached.link);
        self.attached.borrow_mut().remove(uuid);
        if let Way::Fuse(disk) = &attached.way {
            self.unmount(disk).await;
        }
        Ok(())
    }

    /// Waits for the kernel; false if it takes too long.
    async fn in_time(&self, event: &Event) -> bool {
        let clock = self.spawner.clock();
        first(event.until(), clock.sleep_until(clock.now() + PATIENCE)).await.is_some()
    }
}

impl Source {
    /// What the kernel must know of it.
    fn limits(&self) -> Limits {
        Limits { read_only: self.read_only, ..self.disk.limits() }
    }
}

impl Attached {
    fn view(&self) -> AttachedView {
        AttachedView {
            path: self.link.display().to_string(),
            device: self.way.device().display().to_string(),
            how: self.way.name().into(),
            survives_restart: self.survives_restart,
        }
    }
}

impl Way {
    fn device(&self) -> &Path {
        match self {
            Way::Ublk(disk) => &disk.path,
            Way::Nbd(disk) => &disk.path,
            Way::Fuse(disk) => &disk.path,
        }
    }

    fn name(&self) -> &'static str {
        match self {
            Way::Ublk(_) => "ublk",
            Way::Nbd(_) => "nbd",
            Way::Fuse(_) => "fuse",
        }
    }
}

impl Event {
    fn new() -> Rc<Event> {
        Rc::new(Event { happened: Cell::new(false), signal: Signal::new() })
    }

    fn happen(&self) {
        self.happened.set(true);
        self.signal.raise();
    }

    async fn until(&self) {
        while !self.happened.get() {
            self.signal.wait().await;
        }
    }
}

/// Makes the folder of the files that the kernel reads. Others may not look into it.
pub(crate) fn folder() -> Result<PathBuf> {
    let folder = places::runtime().join("disks");
    let mut builder = fs::DirBuilder::new();
    std::os::unix::fs::DirBuilderExt::mode(builder.recursive(true), 0o700);
    builder.create(&folder).map_err(|error| of_path(&folder, &error))?;
    Ok(folder)
}

fn link_of(name: &str, uuid: &str) -> PathBuf {
    Path::new("/dev/parapet").join(places::file_name(name, uuid))
}

/// The best way that the kernel offers, or the one that is asked for. A ublk that may bring the
/// kernel down when the server is killed comes after the NBD client.
///
/// # Errors
/// Says what is missing, and how to load it.
async fn choose(asked: Option<&str>) -> Result<&'static str> {
    let offered = aside(|| (os::ublk::is_offered(), os::nbd::is_offered())).await?;
    let asked = match offered {
        (true, true) if asked.is_none() && !os::ublk::survives_kill() => Some("nbd"),
        _ => asked,
    };
    let missing = |message: &str, action: &str| Err(Failure::new(Id::Missing, message, action));
    match (asked, offered) {
        (None | Some("ublk"), (true, _)) => Ok("ublk"),
        (None | Some("nbd"), (_, true)) => Ok("nbd"),
        (None | Some("fuse"), _) => Ok("fuse"),
        (Some("ublk"), _) if Path::new("/dev/ublk-control").exists() => missing(
            "ublk: this kernel's ublk is too old or forbidden: Linux 6.5 is needed",
            "leave out --how; nbd and fuse work with older kernels",
        ),
        (Some("ublk"), _) => {
            missing("ublk: there is no /dev/ublk-control", "load the driver: modprobe ublk_drv")
        }
        (Some("nbd"), _) => {
            missing("nbd: the kernel's NBD client is not there", "load the driver: modprobe nbd")
        }
        (Some(other), _) => {
            let message = format!("{other}: there is no such way");
            Err(Failure::new(Id::Usage, message, "say --how ublk, nbd or fuse"))
        }
    }
}

/// Removes the devices that an earlier server of this disk has left, and that were not resumed.
///
/// # Errors
/// `Busy` if somebody still uses one.
pub(crate) async fn clear_away(name: &str, uuid: &str) -> Result<()> {
    let link = link_of(name, uuid);
    let (uuid, owner) = (uuid.to_owned(), ublk::owner_of(uuid));
    let file = fuse_loop::file_of(name, &uuid);
    let (ublk, nbd) = aside(move || (os::ublk::find(owner), os::nbd::find(&uuid))).await?;
    let own = [ublk.map(os::ublk::Device::path), nbd.map(os::nbd::path_of)];
    if let Ok(device) = fs::read_link(&link)
        && !own.contains(&Some(device.clone()))
        && is_served(&device)
    {
        let message = format!("{}: an array of another server", link.display());
        return Err(Failure::new(Id::Busy, message, "detach that one first"));
    }
    if let Some(device) = ublk {
        if device.path().exists() {
            refuse_in_use(&link, &device.path()).await?;
        }
        aside(move || device.stop().and_then(|()| device.remove()))
            .await?
            .map_err(|error| of_path(&device.path(), &error))?;
    }
    if let Some(index) = nbd {
        let path = os::nbd::path_of(index);
        refuse_in_use(&link, &path).await?;
        aside(move || os::nbd::disconnect(index)).await?.map_err(|error| of_path(&path, &error))?;
    }
    fuse_loop::clear_away(&link, file).await
}

/// True for a device of ublk or NBD that has a server.
fn is_served(device: &Path) -> bool {
    let Some(name) = device.file_name().and_then(|name| name.to_str()) else { return false };
    let block = Path::new("/sys/block").join(name);
    name.starts_with("ublkb") && block.exists()
        || name.starts_with("nbd") && block.join("backend").exists()
}

async fn users(device: &Path) -> Result<Vec<Holder>> {
    let asked = device.to_owned();
    let users = aside(move || loop_device::users(&asked)).await?;
    users.map_err(|error| of_path(device, &error))
}

async fn refuse_in_use(link: &Path, device: &Path) -> Result<()> {
    match users(device).await?.split_first() {
        None => Ok(()),
        Some((holder, others)) => Err(in_use(link, holder, others)),
    }
}

fn in_use(link: &Path, holder: &Holder, others: &[Holder]) -> Failure {
    let more = match others.len() {
        0 => String::new(),
        count => format!(" and {count} more"),
    };
    let message = format!("{}: in use: {}{more}", link.display(), holder.who);
    Failure::new(Id::Busy, message, format!("free it first: {}", holder.free_by))
}

fn make_link(link: &Path, device: &Path) -> Result<()> {
    let folder = link.parent().unwrap_or(Path::new("/"));
    let _ = fs::create_dir_all(folder);
    let _ = fs::remove_file(link);
    std::os::unix::fs::symlink(device, link).map_err(|error| of_path(link, &error))
}

/// Runs `work` on a thread of its own.
pub(crate) async fn aside<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T> {
    let running = threads::aside(work).map_err(|error| {
        Failure::new(Id::Failed, format!("a thread: {error}"), "see the limit of processes")
    })?;
    Ok(running.await)
}
