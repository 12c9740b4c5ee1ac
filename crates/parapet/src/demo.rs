//! The demonstration: shows and verifies the features of an array in a minute.
//!
//! ```text
//!    write through NBD ──┬── a third: fail a member ──── a spare takes its place, rebuild begins
//!                        └── two thirds: fail another ── two are missing, writes go on
//!    wait for the rebuild ── bring the second one back ── read all through NBD ── compare
//! ```
//!
//! Every byte is derived from its offset, so verification needs no copy. Uses the same NBD socket
//! as any client.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use io::{Clock, Disk, Op, Pool, TaskSet, Work};
use os::{Address, Socket, Spawner};

use crate::api::{Array, Demonstration, SlotState};
use crate::cmd::Progress;
use crate::daemon::{Daemon, Served};
use crate::failure::{Failure, Id, Result};
use crate::page::{OutputOptions, Page};
use crate::terminal::Terminal;

/// Bytes that the demonstration writes.
pub(crate) const BYTES: u64 = 1 << 30;
/// Bytes of one request.
const REQUEST_BYTES: u64 = 1 << 20;
/// Requests in flight.
const DEPTH: u64 = 16;
/// Interval of the progress checks.
const GLANCE: Duration = Duration::from_millis(200);
/// Slots whose members the demonstration fails.
const VICTIMS: [usize; 2] = [1, 4];

/// An array under demonstration.
pub(crate) struct Demo<'a> {
    pub(crate) daemon: &'a Rc<Daemon>,
    pub(crate) served: &'a Rc<Served>,
    pub(crate) socket: &'a Address,
    pub(crate) on: &'a Spawner,
    pub(crate) terminal: &'a Terminal,
}

impl Demo<'_> {
    /// Runs the whole demonstration.
    ///
    /// # Errors
    /// If any step fails, or a byte is read back different.
    pub(crate) async fn run(&self) -> Result<Demonstration> {
        let clock = self.on.clock();
        let disk = self.connect().await?;
        self.terminal.say(format!("writing {} through NBD …", self.size(BYTES)));
        let began = clock.now();
        let failed = self.write_and_fail(&disk).await?;
        flush(&*disk).await?;
        let written = clock.now();
        self.terminal.say("waiting for the rebuild …");
        self.wait_until_idle().await?;
        self.bring_back().await?;
        self.wait_until_idle().await?;
        let rebuilt = clock.now();
        let array = self.daemon.view(self.served);
        if array.slots.iter().any(|slot| slot.state != SlotState::InSync) {
            let message = "the array is not whole after the rebuild";
            return Err(Failure::new(Id::Verification, message, "see the log: run it with -v"));
        }
        self.terminal.say(format!("all members are in sync again {}", array.picture()));
        self.terminal.say("reading everything back …");
        let wrong_bytes = self.transfer(&disk, &Direction::Verify(Cell::new(0))).await?;
        let read = clock.now();
        let seconds = |span: Duration| (span.as_secs_f64() * 100.0).round() / 100.0;
        Ok(Demonstration {
            bytes: BYTES,
            wrong_bytes,
            failed,
            write_seconds: seconds(written - began),
            rebuild_seconds: seconds(rebuilt - written),
            read_seconds: seconds(read - rebuilt),
        })
    }

    async fn connect(&self) -> Result<Rc<dyn Disk>> {
        let broken = |why: String| {
            Failure::new(
                Id::Socket,
                format!("{}: {why}", self.socket),
                "see the log: run it with -v",
            )
        };
        let socket = Socket::connect(self.socket, self.on).await;
        let socket = socket.map_err(|error| broken(error.to_string()))?;
        let pool = Pool::new(32 << 20);
        let connecting = net::nbd::client::connect(Box::new(socket), "", None, pool);
        let (disk, link) = connecting.await.map_err(|error| broken(error.to_string()))?;
        self.on.spawn_local(async move {
            let ending = link.await;
            tracing::debug!(?ending, "the demonstration's connection has ended");
        });
        Ok(Rc::new(disk))
    }

    /// Writes all data and fails members meanwhile; returns their names.
    async fn write_and_fail(&self, disk: &Rc<dyn Disk>) -> Result<Vec<String>> {
        let done = Rc::new(Cell::new(0));
        let failed = RefCell::new(Vec::new());
        let villain = async {
            for (index, slot) in VICTIMS.into_iter().enumerate() {
                let mark = BYTES / 3 * (index as u64 + 1);
                while done.get() < mark {
                    self.pause().await;
                }
                let name = self.fail(slot).await?;
                failed.borrow_mut().push(name);
            }
            Ok::<(), Failure>(())
        };
        let writing = Direction::Write(Rc::clone(&done));
        let (written, villainy) = both(self.transfer(disk, &writing), villain).await;
        villainy?;
        written?;
        Ok(failed.into_inner())
    }

    async fn fail(&self, slot: usize) -> Result<String> {
        let id = self.served.resolve(&slot.to_string())?;
        let name = self.served.title(id);
        self.served.array.fail(id).await.map_err(crate::daemon::of_engine)?;
        self.terminal.undraw();
        let array = self.daemon.view(self.served);
        self.terminal.say(format!("failed slot {slot} ({name}) while writing {}", array.picture()));
        Ok(name)
    }

    /// Re-adds the failed members.
    async fn bring_back(&self) -> Result<()> {
        for id in self.served.faulty() {
            let array = self.daemon.view(self.served);
            if array.slots.iter().all(|slot| slot.state != SlotState::Missing) {
                return Ok(());
            }
            // The spare now holds the first failed member's slot, so that member is refused; the
            // next one is not.
            if let Some(name) = self.daemon.bring_back(self.served, id).await {
                self.terminal.say(format!("{name} is back: only what has changed is copied"));
            }
        }
        Ok(())
    }

    async fn wait_until_idle(&self) -> Result<()> {
        let mut progress = Progress::new(self.terminal);
        loop {
            self.pause().await;
            let array = self.daemon.view(self.served);
            if array.job.is_none() && !array.is_filling() {
                self.terminal.undraw();
                return Ok(());
            }
            progress.show(&array);
        }
    }

    async fn pause(&self) {
        let clock = self.on.clock();
        clock.sleep_until(clock.now() + GLANCE).await;
    }

    /// Writes or reads all data with [`DEPTH`] requests in flight; returns the number of wrong
    /// bytes.
    async fn transfer(&self, disk: &Rc<dyn Disk>, direction: &Direction) -> Result<u64> {
        let tasks = TaskSet::new();
        let next = Rc::new(Cell::new(0));
        let fault: Rc<RefCell<Option<Failure>>> = Rc::default();
        let pool = Pool::new((2 * DEPTH * REQUEST_BYTES) as usize);
        for _ in 0..DEPTH {
            let (disk, next, fault) = (Rc::clone(disk), Rc::clone(&next), Rc::clone(&fault));
            let (direction, pool) = (direction.clone(), pool.clone());
            tasks.spawn(async move {
                loop {
                    let offset = next.get();
                    if offset >= BYTES || fault.borrow().is_some() {
                        return;
                    }
                    next.set(offset + REQUEST_BYTES);
                    if let Err(failure) = direction.one(&*disk, &pool, offset).await {
                        *fault.borrow_mut() = Some(failure);
                    }
                }
            });
        }
        let shown = async {
            loop {
                self.pause().await;
                self.draw(next.get().min(BYTES), &self.daemon.view(self.served));
            }
        };
        let work = std::future::poll_fn(|cx| tasks.poll(cx));
        let _: Option<()> = crate::daemon::first(shown, work).await;
        self.terminal.undraw();
        match fault.take() {
            Some(failure) => Err(failure),
            None => Ok(direction.wrong()),
        }
    }

    fn draw(&self, done: u64, array: &Array) {
        let percent = crate::api::percent(done, BYTES);
        let page = Page::new(false, OutputOptions::default());
        let job = array.job.as_ref().map(|job| format!("; {}", job.sentence(&page)));
        let (done, job) = (self.size(done), job.unwrap_or_default());
        self.terminal.draw("", &format!("{percent:.1} % ({done}) {}{job}", array.picture()));
    }

    fn size(&self, bytes: u64) -> String {
        self.terminal.page().size(bytes)
    }
}

/// The direction of a transfer.
#[derive(Clone)]
enum Direction {
    /// Write the pattern, and count bytes.
    Write(Rc<Cell<u64>>),
    /// Read, and count bytes that differ.
    Verify(Cell<u64>),
}

impl Direction {
    async fn one(&self, disk: &dyn Disk, pool: &Pool, offset: u64) -> Result<()> {
        let mut buf = pool.take(REQUEST_BYTES as usize);
        match self {
            Direction::Write(done) => {
                random::fill(offset, &mut buf);
                let written = disk.submit(Op::write(offset, buf.freeze())).await;
                written.result.map_err(|error| lost(offset, &error))?;
                done.set(done.get() + REQUEST_BYTES);
            }
            Direction::Verify(wrong) => {
                let read = disk.submit(Op::read(offset, buf)).await;
                read.result.map_err(|error| lost(offset, &error))?;
                let Work::Read(bufs) = read.work else { unreachable!("work comes back as it was") };
                wrong.set(
                    wrong.get()
                        + bufs.iter().map(|buf| random::differing(offset, buf)).sum::<u64>(),
                );
            }
        }
        Ok(())
    }

    fn wrong(&self) -> u64 {
        match self {
            Direction::Write(_) => 0,
            Direction::Verify(wrong) => wrong.get(),
        }
    }
}

async fn flush(disk: &dyn Disk) -> Result<()> {
    disk.submit(Op::flush()).await.result.map_err(|error| lost(0, &error))
}

fn lost(offset: u64, error: &io::Error) -> Failure {
    let message = format!("a request at offset {offset} failed: {error}");
    Failure::new(Id::Verification, message, "see the log: run it with -v")
}

/// Returns both outcomes once both futures complete.
async fn both<A, B>(one: impl Future<Output = A>, other: impl Future<Output = B>) -> (A, B) {
    let (mut one, mut other) = (std::pin::pin!(one), std::pin::pin!(other));
    let (mut first, mut second) = (None, None);
    std::future::poll_fn(|cx| {
        use std::task::Poll;
        if first.is_none()
            && let Poll::Ready(value) = one.as_mut().poll(cx)
        {
            first = Some(value);
        }
        if second.is_none()
            && let Poll::Ready(value) = other.as_mut().poll(cx)
        {
            second = Some(value);
        }
        match (first.take(), second.take()) {
            (Some(first), Some(second)) => Poll::Ready((first, second)),
            (one, other) => {
                (first, second) = (one, other);
                Poll::Pending
            }
        }
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_wait_for_both() {
        let pair = both(async { 1 }, async { "two" });
        assert_eq!(io::tasks::complete(pair), Some((1, "two")));
    }
}
