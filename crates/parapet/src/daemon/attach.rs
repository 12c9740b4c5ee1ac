//! Arrays as local disks: `parapet attach`.
//!
//! ```text
//!    /dev/parapet/tank ─▶ /dev/ublkb0 ═ io_uring ═ os::UblkQueue ─────────────────────▶ array
//!                      ─▶ /dev/nbd0   ═ 4 sockets ═ nbd::Server ──────────────────────▶ array
//!                      ─▶ /dev/loop0 ─▶ RUNTIME/disks/tank ═ FUSE ═ net::fuse::Server ─▶ array
//! ```
//!
//! The kernel's part must not wait for this thread while this thread waits for the kernel: calls
//! that make the kernel read the disk run on threads of their own.
//!
//! ublk and NBD devices outlive their server: requests wait, and the next server takes the device
//! over when it serves the array. That is right only if the server keeps no acknowledged write in
//! its memory, so with `--cache writeback` requests fail instead.

mod fuse_loop;
mod nbd;
mod ublk;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use ::io::{Clock, Disk, Signal};
use array::CacheMode;
use net::bytewise::Bytewise;
use os::disk::Holder;
use os::{loop_device, threads};

use super::{Daemon, Served, first};
use crate::api::{AttachedView, Order};
use crate::failure::{Failure, Id, Result};
use crate::places;

/// How long the kernel may take to let go of a detached disk.
const PATIENCE: Duration = Duration::from_secs(30);

/// The attached arrays, by UUID.
#[derive(Default)]
pub(super) struct Attachments(RefCell<BTreeMap<String, Rc<Attached>>>);

/// An array that is a local disk.
struct Attached {
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

/// What a way needs to know of the array.
struct Source {
    uuid: String,
    name: String,
    limits: ::io::Limits,
    survives_restart: bool,
}

/// Something that happens once.
struct Event {
    happened: Cell<bool>,
    signal: Signal,
}

impl Daemon {
    /// Makes the array a local disk.
    pub(super) async fn order_attach(
        self: &Rc<Self>,
        served: &Rc<Served>,
        order: &Order,
    ) -> Result<String> {
        let name = served.name();
        if let Some(attached) = self.attachment(served) {
            let message = format!("{name} is attached as {}", attached.link.display());
            return Err(Failure::new(Id::WrongState, message, format!("parapet detach {name}")));
        }
        let how = choose(order.how.as_deref()).await?;
        let source = source_of(served);
        clear_away(&source).await?;
        fuse_loop::clear_away(&link_of(&source), &source).await?;
        self.prepare(name);
        let way = match how {
            "ublk" => Way::Ublk(self.make_ublk(served, &source).await?),
            "nbd" => Way::Nbd(self.make_nbd(served, &source).await?),
            _ => Way::Fuse(self.make_loop(served, &source).await?),
        };
        let attached = self.attached(&source, way);
        if let Err(failure) = make_link(&attached.link, attached.way.device()) {
            self.let_go(served, &attached).await?;
            return Err(failure);
        }
        let (link, device) = (attached.link.display(), attached.way.device().display());
        Ok(format!("{name}: attached as {link} ({device})"))
    }

    /// Takes the local disk over that an earlier server of this array has left.
    pub(crate) async fn resume_attachment(self: &Rc<Self>, served: &Rc<Served>) {
        let (name, source) = (served.name(), source_of(served));
        if !source.survives_restart || self.attachment(served).is_some() {
            return;
        }
        match self.resume(served, &source).await {
            Ok(None) => {}
            Ok(Some(way)) => {
                self.prepare(name);
                let attached = self.attached(&source, way);
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

    async fn resume(self: &Rc<Self>, served: &Served, source: &Source) -> Result<Option<Way>> {
        if let Some(disk) = self.resume_ublk(served, source).await? {
            return Ok(Some(Way::Ublk(disk)));
        }
        Ok(self.resume_nbd(served, source).await?.map(Way::Nbd))
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

    fn attached(&self, source: &Source, way: Way) -> Rc<Attached> {
        let survives_restart = source.survives_restart && !matches!(way, Way::Fuse(_));
        let attached = Rc::new(Attached { link: link_of(source), way, survives_restart });
        self.attachments.0.borrow_mut().insert(source.uuid.clone(), Rc::clone(&attached));
        attached
    }

    /// The array for requests of the kernel.
    fn bytewise(&self, served: &Served) -> Bytewise {
        let disk = Bytewise::new(Rc::new(served.array.clone()), self.pool.clone());
        disk.beside(served.writers())
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
        refuse_in_use(&attached.link, attached.way.device()).await
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

    /// Leaves all local disks to the next server; takes those away that cannot be left.
    pub(super) async fn leave_attachments(&self) {
        for served in self.arrays() {
            match self.attachment(&served) {
                Some(attached) if attached.survives_restart => {
                    if let Way::Ublk(disk) = &attached.way {
                        disk.leave().await;
                    }
                }
                _ => self.end_attachment(&served).await,
            }
        }
    }

    /// Describes the array's local disk.
    pub(super) fn attached_view(&self, served: &Served) -> Option<AttachedView> {
        let attached = self.attachment(served)?;
        Some(AttachedView {
            path: attached.link.display().to_string(),
            device: attached.way.device().display().to_string(),
            how: attached.way.name().into(),
            survives_restart: attached.survives_restart,
        })
    }

    fn attachment(&self, served: &Served) -> Option<Rc<Attached>> {
        self.attachments.0.borrow().get(served.uuid()).cloned()
    }

    async fn let_go(&self, served: &Served, attached: &Rc<Attached>) -> Result<()> {
        match &attached.way {
            Way::Ublk(disk) => self.remove_ublk(disk).await?,
            Way::Nbd(disk) => disk.remove().await?,
            Way::Fuse(disk) => disk.detach().await?,
        }
        let _ = fs::remove_file(&attached.link);
        self.attachments.0.borrow_mut().remove(served.uuid());
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

fn source_of(served: &Served) -> Source {
    let limits = served.array.limits();
    let read_only = limits.read_only || served.read_only().is_some();
    Source {
        uuid: served.uuid().into(),
        name: served.name().into(),
        limits: ::io::Limits { read_only, ..limits },
        survives_restart: served.story.cache != CacheMode::Writeback,
    }
}

fn link_of(source: &Source) -> PathBuf {
    Path::new("/dev/parapet").join(places::file_name(&source.name, &source.uuid))
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

/// Removes the devices that an earlier server of this array has left, and that were not resumed.
///
/// # Errors
/// If somebody still uses one.
async fn clear_away(source: &Source) -> Result<()> {
    let link = link_of(source);
    let (uuid, owner) = (source.uuid.clone(), ublk::owner_of(&source.uuid));
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
            .map_err(|error| crate::failure::of_path(&device.path(), &error))?;
    }
    if let Some(index) = nbd {
        let path = os::nbd::path_of(index);
        refuse_in_use(&link, &path).await?;
        aside(move || os::nbd::disconnect(index))
            .await?
            .map_err(|error| crate::failure::of_path(&path, &error))?;
    }
    Ok(())
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
    users.map_err(|error| crate::failure::of_path(device, &error))
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
    std::os::unix::fs::symlink(device, link).map_err(|error| crate::failure::of_path(link, &error))
}

/// Runs `work` on a thread of its own.
pub(super) async fn aside<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T> {
    let running = threads::aside(work).map_err(|error| {
        Failure::new(Id::Failed, format!("a thread: {error}"), "see the limit of processes")
    })?;
    Ok(running.await)
}
