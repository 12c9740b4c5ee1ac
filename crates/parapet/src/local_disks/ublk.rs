//! ublk: the kernel's requests come through io_uring, without sockets or files between.
//!
//! ```text
//!    file system ─▶ /dev/ublkbN ═ UblkQueue ═ Service ─▶ Bytewise ─▶ array
//! ```

use std::cell::RefCell;
use std::future::poll_fn;
use std::path::PathBuf;
use std::rc::Rc;
use std::task::{Context, Poll};

use ::io::{Done, ErrorKind, Op, Pool, TaskSet, Work};
use net::bytewise::Bytewise;
use net::fuse::wire::errno;
use os::UblkQueue;
use os::ublk::{self, Command, Device, Request};

use super::{Event, LocalDisks, Source, aside};
use crate::daemon::first;
use crate::failure::{Failure, Id, Result};

/// See the module.
pub(super) struct UblkDisk {
    pub(super) path: PathBuf,
    device: Device,
    /// The server lets the device go, for the next one.
    leaving: Rc<Event>,
    /// Its requests are answered, and its queue is closed or left.
    ended: Rc<Event>,
}

/// Serves the requests of a device.
struct Service {
    queue: Rc<UblkQueue>,
    disk: Bytewise,
    pool: Pool,
    tasks: TaskSet,
    received: RefCell<Vec<Request>>,
}

impl LocalDisks {
    pub(super) async fn make_ublk(&self, source: &Source) -> Result<UblkDisk> {
        let (limits, survives) = (source.limits(), source.survives_restart);
        let owner = owner_of(&source.uuid);
        let added = aside(move || ublk::add(&limits, owner, survives)).await?;
        let device = added.map_err(|error| of_ublk(source, &error))?;
        let started = match self.serve_queue(source, device) {
            Ok(disk) => aside(move || device.start()).await?.map(|()| disk),
            Err(error) => Err(error),
        };
        if started.is_err() {
            let _ = aside(move || device.stop().and_then(|()| device.remove())).await?;
        }
        started.map_err(|error| of_ublk(source, &error))
    }

    /// Takes over the device that an earlier server has left; nothing if there is none.
    pub(super) async fn resume_ublk(&self, source: &Source) -> Result<Option<UblkDisk>> {
        let owner = owner_of(&source.uuid);
        let Some(device) = aside(move || ublk::find(owner)).await? else { return Ok(None) };
        if device.bytes().ok() != Some(source.limits().bytes) {
            let message = format!("{}: the array has another size", device.path().display());
            let action = format!("unmount it, then: parapet attach {}", source.name);
            return Err(Failure::new(Id::WrongState, message, action));
        }
        let begun = aside(move || device.begin_recovery()).await?;
        begun.map_err(|error| of_ublk(source, &error))?;
        let disk = self.serve_queue(source, device).map_err(|error| of_ublk(source, &error))?;
        let recovered = aside(move || device.end_recovery()).await?;
        recovered.map_err(|error| of_ublk(source, &error))?;
        Ok(Some(disk))
    }

    fn serve_queue(&self, source: &Source, device: Device) -> std::io::Result<UblkDisk> {
        let service = Service {
            queue: Rc::new(UblkQueue::open(device, &self.spawner)?),
            disk: self.bytewise(source),
            pool: self.pool.clone(),
            tasks: TaskSet::new(),
            received: RefCell::default(),
        };
        let (leaving, ended) = (Event::new(), Event::new());
        let (leave, end) = (Rc::clone(&leaving), Rc::clone(&ended));
        self.spawner.spawn_local(async move {
            service.run(&leave).await;
            // The device can be removed when its queue is closed.
            drop(service);
            end.happen();
        });
        Ok(UblkDisk { path: device.path(), device, leaving, ended })
    }

    pub(super) async fn remove_ublk(&self, disk: &UblkDisk) -> Result<()> {
        let device = disk.device;
        let of_path = |error| crate::failure::of_path(&disk.path, &error);
        aside(move || device.stop()).await?.map_err(of_path)?;
        if !self.in_time(&disk.ended).await {
            tracing::warn!("{}: requests do not end", disk.path.display());
        }
        aside(move || device.remove()).await?.map_err(of_path)
    }
}

impl UblkDisk {
    /// Answers the requests in flight, and takes no more.
    pub(super) async fn leave(&self) {
        self.leaving.happen();
        self.ended.until().await;
    }
}

impl Service {
    async fn run(&self, leaving: &Event) {
        let ended = first(poll_fn(|cx| self.poll_requests(cx)), leaving.until()).await;
        self.tasks.run().await;
        if ended.is_none() {
            Rc::clone(&self.queue).leave();
        }
    }

    /// Ready when the device has ended.
    fn poll_requests(&self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            // Ready only says that nothing is in flight.
            let _ = self.tasks.poll(cx);
            let mut received = self.received.borrow_mut();
            match self.queue.poll_requests(cx, &mut received) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Err(_)) => return Poll::Ready(()),
                Poll::Ready(Ok(())) => {
                    received.drain(..).for_each(|request| self.start(request));
                }
            }
        }
    }

    fn start(&self, request: Request) {
        let op = match self.operation(&request) {
            Ok(op) => op,
            Err(errno) => return self.queue.answer(&request, Err(errno)),
        };
        let (queue, answer) = (Rc::clone(&self.queue), self.disk.submit(op));
        self.tasks.spawn(async move {
            let outcome = outcome_of(&queue, &request, &answer.await);
            queue.answer(&request, outcome);
        });
    }

    fn operation(&self, request: &Request) -> std::result::Result<Op, i32> {
        let Request { offset, bytes, fua, .. } = *request;
        let work = match request.command {
            Command::Read => return Ok(Op::read(offset, self.pool.take(bytes as usize))),
            Command::Write => {
                let mut data = self.pool.take(bytes as usize);
                self.queue.take(request, &mut data).map_err(|_| errno::IO)?;
                return Ok(Op { fua, ..Op::write(offset, data.freeze()) });
            }
            Command::Flush => return Ok(Op::flush()),
            Command::Discard => Work::Discard { len: bytes },
            Command::Zero { unmap } => Work::Zero { len: bytes, unmap, fast: false },
            Command::Unknown => return Err(errno::NOTSUP),
        };
        Ok(Op { fua, ..Op::new(offset, work) })
    }
}

/// Hands read data over.
fn outcome_of(queue: &UblkQueue, request: &Request, done: &Done) -> std::result::Result<(), i32> {
    match (&done.work, &done.result) {
        (Work::Read(bufs), Ok(())) => {
            let mut at = 0;
            for buf in bufs {
                queue.give(request, at, buf).map_err(|_| errno::IO)?;
                at += buf.len();
            }
            Ok(())
        }
        (_, Ok(())) => Ok(()),
        (_, Err(error)) => Err(match error.kind() {
            ErrorKind::Refused => errno::NOTSUP,
            ErrorKind::NoSpace => errno::NOSPC,
            _ => errno::IO,
        }),
    }
}

/// What a device carries of its array's UUID: the first 64 bits.
pub(super) fn owner_of(uuid: &str) -> u64 {
    let digits: String = uuid.chars().filter(char::is_ascii_hexdigit).take(16).collect();
    u64::from_str_radix(&digits, 16).unwrap_or_default()
}

fn of_ublk(source: &Source, error: &std::io::Error) -> Failure {
    let message = format!("{}: ublk: {error}", source.name);
    Failure::new(Id::Input, message, "run the server as root; or another way: --how nbd")
}
