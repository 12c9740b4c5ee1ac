//! The load of a host: readers and writers of its client's NBD export, one request each at a time.
//!
//! Every request is told to the history before it is sent and after its answer, and its duration
//! counts: the longest one is how long I/O stood still.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parapet_torture::client::{Ask, Client};
use parapet_torture::random::Random;

use crate::history::{BLOCK_BYTES, History, PIECE_BYTES, PIECES, Session, encode};
use crate::processes::PATIENCE;

/// Blocks in use: few, so that hosts meet on them.
pub(crate) const BLOCKS: usize = 96;
/// Blocks of a region in use, at its beginning.
const OF_A_REGION: usize = 12;
/// Blocks from region to region.
const REGION_BLOCKS: usize = (4 << 20) / BLOCK_BYTES;
/// Concurrent requests of a host.
const WORKERS: usize = 4;
/// Between two requests: it shows pauses, not speed.
const PAUSE: Duration = Duration::from_millis(3);

/// What all loads have in common.
pub(crate) struct Court {
    history: Mutex<History>,
    violation: Mutex<Option<String>>,
    /// Answers.
    pub(crate) answers: AtomicU64,
}

impl Court {
    pub(crate) fn new(shared: bool) -> Court {
        let history = Mutex::new(History::new(BLOCKS, shared));
        Court { history, violation: Mutex::default(), answers: AtomicU64::new(0) }
    }

    pub(crate) fn history(&self) -> MutexGuard<'_, History> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The first violation.
    ///
    /// # Errors
    /// If there is one.
    pub(crate) fn verdict(&self) -> Result<(), String> {
        let found = self.violation.lock().unwrap_or_else(PoisonError::into_inner);
        found.clone().map_or(Ok(()), Err)
    }

    fn accuse(&self, what: String) {
        let mut found = self.violation.lock().unwrap_or_else(PoisonError::into_inner);
        found.get_or_insert(what);
    }
}

/// The time of a worker's requests.
#[derive(Default)]
struct Watch {
    since: Option<Instant>,
    longest: Duration,
    done: u64,
}

/// What a load's workers share with its owner.
#[derive(Default)]
struct Desk {
    stopping: AtomicBool,
    broken: Mutex<Option<String>>,
    watches: [Mutex<Watch>; WORKERS],
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// See the module.
pub(crate) struct Load {
    pub(crate) session: Session,
    desk: Arc<Desk>,
    workers: Vec<JoinHandle<()>>,
}

impl Load {
    /// Begins to read and write through this socket.
    ///
    /// # Errors
    /// If nobody serves it.
    pub(crate) fn start(
        session: Session,
        socket: &std::path::Path,
        court: &Arc<Court>,
        seed: u64,
    ) -> Result<Load, String> {
        let desk = Arc::new(Desk::default());
        let worker = |number: usize| {
            let client = Client::connect(socket, "pool").and_then(|client| {
                client.set_patience(PATIENCE)?;
                Ok(client)
            });
            let client = client.map_err(|error| format!("{}: {error}", socket.display()))?;
            let random = Random::new(seed, session * WORKERS as u64 + number as u64);
            let (court, desk) = (Arc::clone(court), Arc::clone(&desk));
            let mut worker = Worker { session, number, client, court, desk, random };
            Ok(std::thread::spawn(move || worker.run()))
        };
        let workers = (0..WORKERS).map(worker).collect::<Result<_, String>>()?;
        Ok(Load { session, desk, workers })
    }

    /// Why it has ended by itself.
    pub(crate) fn broken(&self) -> Option<String> {
        lock(&self.desk.broken).clone()
    }

    /// Forgets how long requests took.
    pub(crate) fn reset(&self) {
        self.desk.watches.iter().for_each(|watch| lock(watch).longest = Duration::ZERO);
    }

    /// How long the longest request took since then, or has taken until now.
    pub(crate) fn stall(&self) -> Duration {
        let of = |watch: &Mutex<Watch>| {
            let watch = lock(watch);
            watch.longest.max(watch.since.map_or(Duration::ZERO, |since| since.elapsed()))
        };
        self.desk.watches.iter().map(of).max().unwrap_or_default()
    }

    /// Requests answered, of the worker with the fewest.
    pub(crate) fn progress(&self) -> u64 {
        self.desk.watches.iter().map(|watch| lock(watch).done).min().unwrap_or_default()
    }

    /// Ends it, with its client or without.
    pub(crate) fn stop(self) {
        self.desk.stopping.store(true, Ordering::Relaxed);
        self.workers.into_iter().for_each(|worker| drop(worker.join()));
    }
}

struct Worker {
    session: Session,
    number: usize,
    client: Client,
    court: Arc<Court>,
    desk: Arc<Desk>,
    random: Random,
}

impl Worker {
    fn run(&mut self) {
        while !self.desk.stopping.load(Ordering::Relaxed) && lock(&self.desk.broken).is_none() {
            let begun = Instant::now();
            lock(&self.desk.watches[self.number]).since = Some(begun);
            let ended = match self.random.below(20) {
                0 => self.flush(),
                1..=9 => self.read(),
                _ => self.write(),
            };
            let mut watch = lock(&self.desk.watches[self.number]);
            watch.since = None;
            match ended {
                Ok(done) => {
                    watch.longest = watch.longest.max(begun.elapsed());
                    watch.done += u64::from(done);
                    self.court.answers.fetch_add(u64::from(done), Ordering::Relaxed);
                }
                Err(why) => drop(lock(&self.desk.broken).get_or_insert(why)),
            }
            drop(watch);
            std::thread::sleep(PAUSE);
        }
    }

    /// Sends a request and waits; false: the block was locked, and none was sent.
    fn read(&mut self) -> Result<bool, String> {
        let block = self.random.below(BLOCKS);
        let Some(op) = self.court.history().read(self.session, block) else { return Ok(false) };
        let (offset, len) = (offset(block), BLOCK_BYTES as u32);
        match self.client.read(offset, len).map_err(|error| error.to_string()) {
            Ok(Ok(content)) => {
                if let Err(what) = self.court.history().check(op, &content) {
                    self.court.accuse(what);
                }
                Ok(true)
            }
            failed => {
                self.court.history().read_failed(op);
                Err(format!("a read failed: {:?}", failed.err()))
            }
        }
    }

    fn write(&mut self) -> Result<bool, String> {
        let block = self.random.below(BLOCKS);
        let pieces = match self.random.below(4) {
            0 => {
                let first = self.random.below(PIECES);
                first..first + 1 + self.random.below(PIECES - first)
            }
            _ => 0..PIECES,
        };
        let began = self.court.history().write(self.session, block, pieces.clone());
        let Some(op) = began else { return Ok(false) };
        let place = |piece: usize| (block * PIECES + piece) as u64;
        let bytes: Vec<u8> = pieces.clone().flat_map(|piece| encode(op, place(piece))).collect();
        let offset = offset(block) + (pieces.start * PIECE_BYTES) as u64;
        let fua = self.random.percent(10);
        self.ask(&Ask::Write { offset, bytes: &bytes, fua })?;
        self.court.history().written(op);
        Ok(true)
    }

    fn flush(&mut self) -> Result<bool, String> {
        self.ask(&Ask::Flush).map(|()| true)
    }

    fn ask(&mut self, ask: &Ask<'_>) -> Result<(), String> {
        let sent = self.client.send(0, ask).and_then(|()| self.client.answer());
        let what = if matches!(ask, Ask::Flush) { "flush" } else { "write" };
        match sent {
            Ok((_, 0)) => Ok(()),
            Ok((_, errno)) => Err(format!("a {what} failed with {errno}")),
            Err(error) => Err(format!("a {what} failed: {error}")),
        }
    }
}

fn offset(block: usize) -> u64 {
    let (region, index) = (block / OF_A_REGION, block % OF_A_REGION);
    ((region * REGION_BLOCKS + index) * BLOCK_BYTES) as u64
}

/// Reads all blocks once; those that are locked come later.
///
/// # Errors
/// If a read fails.
pub(crate) fn sweep(
    session: Session,
    socket: &std::path::Path,
    court: &Court,
) -> Result<(), String> {
    let wrong = |error: std::io::Error| format!("{}: {error}", socket.display());
    let mut client = Client::connect(socket, "pool").map_err(wrong)?;
    client.set_patience(PATIENCE).map_err(wrong)?;
    for block in 0..BLOCKS {
        let op = loop {
            match court.history().read(session, block) {
                Some(op) => break op,
                None => std::thread::yield_now(),
            }
        };
        match client.read(offset(block), BLOCK_BYTES as u32).map_err(wrong)? {
            Ok(content) => court.history().check(op, &content)?,
            Err(errno) => return Err(format!("a read of block {block} failed with {errno}")),
        }
    }
    Ok(())
}
