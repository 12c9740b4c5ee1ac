//! The clients' load during faults: writes of all sizes into a few hot places, so that they
//! overlap, with FUA, flushes, zeros and reads among them.
//!
//! Each client is a thread with one connection and many requests in flight; every request is
//! reported to the oracle before it is sent and after it is answered.

use crate::medium::SECTOR;
use crate::oracle::Oracle;
use parapet_torture::client::{Ask, Client};
use parapet_torture::random::Random;
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// The longest request.
const MOST: u64 = 128 << 10;

/// The shared state of all clients of a round.
#[derive(Clone)]
pub(crate) struct Court {
    oracle: Arc<Mutex<Oracle>>,
    /// From now on errors and broken connections mean nothing.
    ending: Arc<AtomicBool>,
    /// How many answers have come.
    answers: Arc<AtomicU64>,
    /// Bytes that were read and found right.
    verified: Arc<AtomicU64>,
    /// Errors where the array may say that it does not know, in blocks.
    unverified: Arc<AtomicU64>,
}

/// Where and how hard.
#[derive(Clone)]
pub(crate) struct Shape {
    pub(crate) socket: PathBuf,
    pub(crate) windows: Vec<Range<u64>>,
    pub(crate) depth: usize,
    /// Reads may fail: parity may be unverified.
    pub(crate) suspect: bool,
}

/// Clients at work.
pub(crate) struct Load {
    court: Court,
    clients: Vec<JoinHandle<Result<(), String>>>,
}

impl Court {
    pub(crate) fn new() -> Court {
        let count = || Arc::new(AtomicU64::new(0));
        Court {
            oracle: Arc::new(Mutex::new(Oracle::new())),
            ending: Arc::new(AtomicBool::new(false)),
            answers: count(),
            verified: count(),
            unverified: count(),
        }
    }

    pub(crate) fn oracle(&self) -> MutexGuard<'_, Oracle> {
        self.oracle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of answers since the round began.
    pub(crate) fn answers(&self) -> u64 {
        self.answers.load(Ordering::Relaxed)
    }

    pub(crate) fn verified(&self) -> u64 {
        self.verified.load(Ordering::Relaxed)
    }

    pub(crate) fn unverified(&self) -> u64 {
        self.unverified.load(Ordering::Relaxed)
    }

    /// The oracle's verdict on bytes that a read has returned.
    ///
    /// # Errors
    /// The violation.
    pub(crate) fn check(&self, begun: u64, offset: u64, bytes: &[u8]) -> Result<(), String> {
        self.oracle().check(begun, offset, bytes)?;
        self.verified.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        Ok(())
    }

    /// A read of `len` bytes was answered with an error.
    ///
    /// # Errors
    /// A certain violation.
    pub(crate) fn unread(
        &self,
        begun: u64,
        (offset, len): (u64, u64),
        errno: u32,
        suspect: bool,
    ) -> Result<(), String> {
        self.oracle().unread(begun);
        if suspect || self.oracle().may_be_lost(begun, (offset, len)) {
            self.unverified.fetch_add(1, Ordering::Relaxed);
            return Ok(());
        }
        Err(format!("a read at offset {offset} failed with error {errno}"))
    }
}

impl Load {
    /// Starts this many clients, each with its own seed.
    pub(crate) fn start(court: &Court, shape: &Shape, clients: usize, random: &mut Random) -> Load {
        court.ending.store(false, Ordering::Relaxed);
        let clients = (0..clients)
            .map(|_| {
                let random = Random::new(random.draw(), 0);
                let (court, shape) = (court.clone(), shape.clone());
                std::thread::spawn(move || work(court, &shape, random))
            })
            .collect();
        Load { court: court.clone(), clients }
    }

    /// Something is about to happen that clients will not like; they stop.
    pub(crate) fn warn(&self) {
        self.court.ending.store(true, Ordering::Relaxed);
    }

    /// True if a client has stopped: [`Load::finish`] gives the reason.
    pub(crate) fn is_over(&self) -> bool {
        self.clients.iter().any(JoinHandle::is_finished)
    }

    /// Waits for all of them.
    ///
    /// # Errors
    /// The first client's violation.
    pub(crate) fn finish(self) -> Result<(), String> {
        self.warn();
        let ends: Vec<_> = self.clients.into_iter().map(JoinHandle::join).collect();
        ends.into_iter().try_for_each(|end| end.unwrap_or_else(|_| Err("a client died".into())))
    }
}

/// A request in flight.
enum Asked {
    Read { begun: u64, offset: u64, len: u32 },
    Write { write: u64, fua: bool },
    Flush { begun: u64 },
}

struct Worker<'a> {
    court: Court,
    shape: &'a Shape,
    random: Random,
    client: Client,
    asked: BTreeMap<u64, Asked>,
    cookie: u64,
}

fn work(court: Court, shape: &Shape, random: Random) -> Result<(), String> {
    let ending = Arc::clone(&court.ending);
    let client = match Client::connect(&shape.socket, "tank") {
        Ok(client) => client,
        Err(_) if ending.load(Ordering::Relaxed) => return Ok(()),
        Err(error) => return Err(format!("a client could not connect: {error}")),
    };
    let mut worker = Worker { court, shape, random, client, asked: BTreeMap::new(), cookie: 0 };
    loop {
        let done = ending.load(Ordering::Relaxed);
        if done && worker.asked.is_empty() {
            return Ok(());
        }
        let went = match worker.asked.len() < shape.depth && !done {
            true => worker.ask(),
            false => worker.read_answer()?,
        };
        match went {
            Ok(()) => {}
            // The server is gone, as announced.
            Err(_) if ending.load(Ordering::Relaxed) => return Ok(()),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                return Err("a request got no answer".into());
            }
            Err(error) => return Err(format!("a client's connection broke: {error}")),
        }
    }
}

impl Worker<'_> {
    /// Sends a request.
    fn ask(&mut self) -> std::io::Result<()> {
        self.cookie += 1;
        let window = &self.shape.windows[self.random.below(self.shape.windows.len())];
        let unit = if self.random.percent(70) { 4096 } else { SECTOR };
        let most = self.random.pick(&[SECTOR, 4096, 4096, 4096, 16 << 10, MOST]).max(unit);
        let len = (1 + self.random.draw() % (most / unit)) * unit;
        let len = len.min(window.end - window.start);
        let slots = (window.end - window.start - len) / unit;
        let offset = window.start + self.random.draw() % (slots + 1) * unit;
        let fua = self.random.percent(10);
        match self.random.below(100) {
            0..20 => {
                let begun = self.court.oracle().read();
                self.asked.insert(self.cookie, Asked::Read { begun, offset, len: len as u32 });
                self.client.send(self.cookie, &Ask::Read { offset, len: len as u32 })
            }
            20..26 => {
                let begun = self.court.oracle().flush();
                self.asked.insert(self.cookie, Asked::Flush { begun });
                self.client.send(self.cookie, &Ask::Flush)
            }
            26..30 => {
                let write = self.court.oracle().write(offset, len, true);
                self.asked.insert(self.cookie, Asked::Write { write, fua });
                self.client.send(self.cookie, &Ask::Zeros { offset, len: len as u32, fua })
            }
            _ => {
                let (write, bytes) = {
                    let mut oracle = self.court.oracle();
                    let write = oracle.write(offset, len, false);
                    (write, oracle.fill(write))
                };
                self.asked.insert(self.cookie, Asked::Write { write, fua });
                self.client.send(self.cookie, &Ask::Write { offset, bytes: &bytes, fua })
            }
        }
    }

    /// Takes an answer: the outer error is a violation, the inner one a broken connection.
    fn read_answer(&mut self) -> Result<std::io::Result<()>, String> {
        let (cookie, errno) = match self.client.answer() {
            Ok(answer) => answer,
            Err(error) => return Ok(Err(error)),
        };
        let asked = self.asked.remove(&cookie).ok_or("an answer to no question")?;
        self.court.answers.fetch_add(1, Ordering::Relaxed);
        let excused = self.court.ending.load(Ordering::Relaxed);
        match (asked, errno) {
            (Asked::Read { begun, offset, len }, 0) => match self.client.take(len) {
                Ok(bytes) => self.court.check(begun, offset, &bytes)?,
                Err(error) => return Ok(Err(error)),
            },
            (Asked::Read { begun, offset, len }, errno) => {
                let (place, suspect) = ((offset, len as u64), excused || self.shape.suspect);
                self.court.unread(begun, place, errno, suspect)?;
            }
            (Asked::Write { write, fua }, 0) => self.court.oracle().acknowledge(write, fua),
            (Asked::Flush { begun }, 0) => self.court.oracle().flushed(begun),
            (asked, errno) => {
                let (what, lost) = match asked {
                    Asked::Write { write, .. } => {
                        let mut oracle = self.court.oracle();
                        let place = oracle.place(write);
                        oracle.fail(write);
                        ("write", oracle.may_be_lost(write, place))
                    }
                    _ => ("flush", false),
                };
                if !excused && (lost || self.shape.suspect) {
                    self.court.unverified.fetch_add(1, Ordering::Relaxed);
                } else if !excused {
                    return Err(format!("a {what} failed with error {errno}"));
                }
            }
        }
        Ok(Ok(()))
    }
}
