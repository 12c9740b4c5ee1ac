//! The kernel's NBD client, over sockets of this process: no listener, no handshake, no TLS.
//!
//! When a server has ended, requests wait for the next one, which gives the device new sockets.
//! Requests in flight are sent again over them. The device carries the UUID of its array.

use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use ::net::nbd::{Ending, Export, Server};
use os::{Socket, Spawner};

use super::{Event, LocalDisks, Source, aside};
use crate::failure::{Failure, Id, Result};

/// Connections of a device.
const LINKS: usize = 4;
/// A request without an answer for so long is sent again over another connection.
const RESEND_AFTER: Duration = Duration::from_secs(15);
/// So long do requests wait for a server: a day.
const WAIT: Duration = Duration::from_secs(24 * 60 * 60);
/// How long the kernel may take to see that connections are dead.
const TRIES: usize = 100;
const PAUSE: Duration = Duration::from_millis(20);

/// See the module.
pub(super) struct NbdDisk {
    pub(super) path: PathBuf,
    index: u32,
    /// It is being removed: connections stay ended.
    leaving: Rc<Event>,
}

/// One connection, which is replaced when the kernel gives it up.
struct Lane {
    index: u32,
    uuid: String,
    export: Rc<Export>,
    leaving: Rc<Event>,
    server: Server,
    spawner: Spawner,
}

impl LocalDisks {
    pub(super) async fn make_nbd(&self, source: &Source) -> Result<NbdDisk> {
        let (export, limits) = (self.kernel_export(source), source.limits());
        let device = os::nbd::Export {
            bytes: limits.bytes,
            block_bytes: limits.logical_block,
            flags: export.plain_flags(),
            resend_after: RESEND_AFTER,
            wait: if source.survives_restart { WAIT } else { Duration::ZERO },
            backend: Some(source.uuid.clone()),
        };
        let (mut ours, mut theirs) = (Vec::new(), Vec::<OwnedFd>::new());
        for _ in 0..LINKS {
            let (our, their) =
                Socket::half(&self.spawner).map_err(|error| of_nbd(source, &error))?;
            ours.push(our);
            theirs.push(their);
        }
        let connected = aside(move || {
            let sockets: Vec<_> = theirs.iter().map(AsFd::as_fd).collect();
            os::nbd::connect(None, &device, &sockets)
        });
        let index = connected.await?.map_err(|error| of_nbd(source, &error))?;
        Ok(self.keep_lanes(ours, (index, &source.uuid), &export))
    }

    /// Gives the device that an earlier server has left new connections; nothing if there is none.
    pub(super) async fn resume_nbd(&self, source: &Source) -> Result<Option<NbdDisk>> {
        let uuid = source.uuid.clone();
        let Some(index) = aside(move || os::nbd::find(&uuid)).await? else { return Ok(None) };
        let mut ours = Vec::new();
        for _ in 0..LINKS {
            let (our, their) =
                Socket::half(&self.spawner).map_err(|error| of_nbd(source, &error))?;
            reconnect(index, &source.uuid, their).await.map_err(|error| of_nbd(source, &error))?;
            ours.push(our);
        }
        let export = self.kernel_export(source);
        Ok(Some(self.keep_lanes(ours, (index, &source.uuid), &export)))
    }

    fn kernel_export(&self, source: &Source) -> Rc<Export> {
        let disk = Rc::clone(&source.disk);
        let export = Export::new(&source.name, disk, self.pool.clone()).beside(&source.writers);
        Rc::new(if source.read_only { export.read_only() } else { export })
    }

    fn keep_lanes(
        &self,
        sockets: Vec<Socket>,
        (index, uuid): (u32, &str),
        export: &Rc<Export>,
    ) -> NbdDisk {
        let leaving = Event::new();
        for socket in sockets {
            let (export, leaving) = (Rc::clone(export), Rc::clone(&leaving));
            let (server, spawner) = (self.server.clone(), self.spawner.clone());
            let lane = Lane { index, uuid: uuid.into(), export, leaving, server, spawner };
            self.spawner.spawn_local(async move { lane.keep(socket).await });
        }
        NbdDisk { path: os::nbd::path_of(index), index, leaving }
    }
}

impl Lane {
    /// Serves one connection after the other until the device or this server ends.
    async fn keep(&self, mut socket: Socket) {
        while let Some(serving) = self.server.adopt(Box::new(socket), Rc::clone(&self.export)) {
            let ending = serving.await;
            let is_over = matches!(ending, Ending::Finished | Ending::Shutdown);
            if is_over || self.leaving.happened.get() {
                return;
            }
            let device = os::nbd::path_of(self.index);
            tracing::warn!(?ending, "{}: a connection is replaced", device.display());
            let Ok((ours, theirs)) = Socket::half(&self.spawner) else { return };
            if let Err(error) = reconnect(self.index, &self.uuid, theirs).await {
                tracing::error!("{}: a connection is lost: {error}", device.display());
                return;
            }
            socket = ours;
        }
    }
}

impl NbdDisk {
    pub(super) async fn remove(&self) -> Result<()> {
        self.leaving.happen();
        let index = self.index;
        let removed = aside(move || os::nbd::disconnect(index)).await?;
        removed.map_err(|error| crate::failure::of_path(&self.path, &error))
    }
}

/// Gives the device this connection as soon as one of its own is dead.
async fn reconnect(index: u32, uuid: &str, socket: OwnedFd) -> std::io::Result<()> {
    let uuid = uuid.to_owned();
    let connected = aside(move || {
        for _ in 0..TRIES {
            match os::nbd::reconnect(index, Some(&uuid), socket.as_fd()) {
                Err(error) if error.kind() == std::io::ErrorKind::StorageFull => {
                    std::thread::sleep(PAUSE);
                }
                outcome => return outcome,
            }
        }
        Err(std::io::ErrorKind::TimedOut.into())
    });
    connected.await.map_err(|failure| std::io::Error::other(failure.to_string()))?
}

fn of_nbd(source: &Source, error: &std::io::Error) -> Failure {
    let message = format!("{}: the kernel's NBD client: {error}", source.name);
    Failure::new(Id::Input, message, "run the server as root; or another way: --how fuse")
}
