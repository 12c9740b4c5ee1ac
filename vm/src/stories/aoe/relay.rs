//! A relay of AoE frames between a client and a server: a wire that loses, repeats, delays and
//! reorders, and on which somebody else sends malformed copies of the client's requests.
//!
//! ```text
//!   client ── near │ receive ─ fate ─ outbox │ far ── server
//!                  │            └─ sleep ─┘  │
//!                  │       └─ malformed ─────│─▶
//!                  │◀──────── expected? ─────│── their answers go no further
//! ```
//!
//! The seed determines what is drawn for the frames, in order of their arrival. Frames keep their
//! bytes; tags of malformed copies say that they are ours (the driver of Linux leaves that bit 0).

mod malformed;

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use io::link::{HEAD_BYTES, MIN_FRAME_BYTES};
use io::{Clock, Frame, Link, Pool, Signal};
use os::link::{Filter, Role};
use os::{Config, Executor, Port, Spawner};

pub(super) use self::malformed::Malformed;
use self::malformed::{Answer, OUR_TAGS};
use crate::failure::{Failure, Result, ensure};
use crate::random::Random;

/// Memory for frames under way.
const POOL_BYTES: usize = 64 << 20;
/// Interval at which a relay looks whether it is to end.
const TICK: Duration = Duration::from_millis(10);
/// Ticks in which the last answers must come.
const LAST_TICKS: usize = 500;

/// How frames fare: of so many, one, on average.
#[derive(Clone, Copy)]
pub(super) struct Fate {
    pub(super) seed: u64,
    /// Is lost.
    pub(super) lost: usize,
    /// Comes twice, the second time later.
    pub(super) repeated: usize,
    /// Comes later, after others that were sent after it.
    pub(super) delayed: usize,
    /// Is a request of which a malformed copy is sent, too.
    pub(super) malformed: usize,
    /// The most that a frame is late.
    pub(super) longest: Duration,
}

/// What a relay has done.
#[derive(Default, Debug)]
pub(super) struct Deeds {
    pub(super) lost: u64,
    pub(super) repeated: u64,
    pub(super) delayed: u64,
    /// Malformed copies of each kind, all answered as they must be.
    pub(super) malformed: BTreeMap<Malformed, u64>,
}

/// A relay at work; it ends with this value.
pub(super) struct Relay {
    enough: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<Deeds>>>,
}

impl Relay {
    /// Connects two interfaces, of which the near one is the client's.
    pub(super) fn start(near: &str, far: &str, fate: Fate) -> Result<Relay> {
        let enough = Arc::new(AtomicBool::new(false));
        let (near, far, end) = (near.to_owned(), far.to_owned(), Arc::clone(&enough));
        let thread = std::thread::Builder::new().name("relay".into());
        let thread = thread.spawn(move || run(&near, &far, fate, &end))?;
        Ok(Relay { enough, thread: Some(thread) })
    }

    /// Ends it, when the server has answered all that it must.
    pub(super) fn end(mut self) -> Result<Deeds> {
        self.enough.store(true, Ordering::Relaxed);
        let thread = self.thread.take().expect("only `end` takes it");
        thread.join().map_err(|_| Failure::new("the relay panicked"))?
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.enough.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// One end: a port, and the frames that wait for it.
struct End {
    port: Port,
    outbox: RefCell<VecDeque<Frame>>,
    filled: Signal,
}

impl End {
    fn open(name: &str, role: Role, on: &Spawner) -> Result<Rc<End>> {
        let filter = Filter { role, shelves: vec![], slot: None };
        let port = Port::interface(name, &filter, Pool::new(POOL_BYTES), on)
            .map_err(|why| Failure::new(format!("{name}: {why}")))?;
        Ok(Rc::new(End { port, outbox: RefCell::default(), filled: Signal::new() }))
    }

    fn push(&self, frame: Frame) {
        self.outbox.borrow_mut().push_back(frame);
        self.filled.raise();
    }

    /// Sends what is pushed, until the port is gone.
    async fn send(&self) {
        loop {
            while self.outbox.borrow().is_empty() {
                self.filled.wait().await;
            }
            let sent = poll_fn(|cx| self.port.poll_send(cx, &mut self.outbox.borrow_mut())).await;
            if sent.is_err() {
                return;
            }
        }
    }
}

/// The state of both directions.
struct Wire {
    fate: Fate,
    random: RefCell<Random>,
    deeds: RefCell<Deeds>,
    /// Malformed requests that are not answered yet, by their tags; and those that must not be.
    open: RefCell<BTreeMap<u32, Malformed>>,
    /// The first wrong answer.
    wrong: RefCell<Option<String>>,
    spawner: Spawner,
    pool: Pool,
}

fn run(near: &str, far: &str, fate: Fate, enough: &AtomicBool) -> Result<Deeds> {
    let executor = Executor::new(Config::default())?;
    let spawner = executor.spawner();
    let near = End::open(near, Role::Target, &spawner)?;
    let far = End::open(far, Role::Initiator, &spawner)?;
    let wire = Rc::new(Wire {
        fate,
        random: Random::new(fate.seed).into(),
        deeds: RefCell::default(),
        open: RefCell::default(),
        wrong: RefCell::default(),
        spawner,
        pool: Pool::new(POOL_BYTES),
    });
    for (from, to) in [(&near, &far), (&far, &near)] {
        let (wire, from, to) = (Rc::clone(&wire), Rc::clone(from), Rc::clone(to));
        let sender = Rc::clone(&to);
        executor.spawn_local(async move { sender.send().await });
        executor.spawn_local(async move { wire.carry(&from, &to).await });
    }
    let clock = executor.clock();
    executor.block_on(async {
        while !enough.load(Ordering::Relaxed) {
            clock.sleep_until(clock.now() + TICK).await;
        }
        for _ in 0..LAST_TICKS {
            if wire.unanswered().is_empty() {
                break;
            }
            clock.sleep_until(clock.now() + TICK).await;
        }
    });
    wire.verdict()
}

impl Wire {
    /// Carries what arrives at one end to the other, until a port is gone.
    async fn carry(self: Rc<Self>, from: &End, to: &Rc<End>) {
        let mut frames = Vec::new();
        while poll_fn(|cx| from.port.poll_receive(cx, &mut frames)).await.is_ok() {
            for frame in frames.drain(..) {
                if !self.keeps(&frame) {
                    self.deal(frame, to);
                }
            }
        }
    }

    /// One of so many.
    fn draw(&self, of: usize) -> bool {
        self.random.borrow_mut().below(of) == 0
    }

    /// Deals with a frame as it is fated.
    fn deal(&self, frame: Frame, to: &Rc<End>) {
        let mut deeds = self.deeds.borrow_mut();
        if self.draw(self.fate.malformed) {
            let copy = Malformed::make(&frame.to_vec(), &mut self.random.borrow_mut());
            if let Some((kind, bytes)) = copy {
                *deeds.malformed.entry(kind).or_default() += 1;
                self.open.borrow_mut().insert(malformed::tag(&bytes), kind);
                to.push(whole(&bytes, &self.pool));
            }
        }
        if self.draw(self.fate.lost) {
            deeds.lost += 1;
            return;
        }
        if self.draw(self.fate.repeated) {
            deeds.repeated += 1;
            self.send_later(frame.clone(), to);
        }
        if self.draw(self.fate.delayed) {
            deeds.delayed += 1;
            self.send_later(frame, to);
        } else {
            to.push(frame);
        }
    }

    fn send_later(&self, frame: Frame, to: &Rc<End>) {
        let micros = self.random.borrow_mut().below(self.fate.longest.as_micros() as usize);
        let (to, clock) = (Rc::clone(to), self.spawner.clock());
        let at = clock.now() + Duration::from_micros(micros as u64);
        self.spawner.spawn_local(async move {
            clock.sleep_until(at).await;
            to.push(frame);
        });
    }

    /// True for answers to malformed requests: they are checked, and go no further.
    fn keeps(&self, frame: &Frame) -> bool {
        let bytes = frame.to_vec();
        let tag = malformed::tag(&bytes);
        if tag & OUR_TAGS != OUR_TAGS {
            return false;
        }
        let kind = self.open.borrow_mut().remove(&tag);
        let found = Answer::of(&bytes);
        if kind.is_none_or(|kind| kind.answer() != found) {
            let mut wrong = self.wrong.borrow_mut();
            wrong.get_or_insert_with(|| format!("{kind:?} is answered by {found:?}"));
        }
        true
    }

    /// The malformed requests whose answers are still to come.
    fn unanswered(&self) -> Vec<Malformed> {
        let must = |kind: &Malformed| kind.answer() != Answer::None;
        self.open.borrow().values().copied().filter(must).collect()
    }

    fn verdict(&self) -> Result<Deeds> {
        let wrong = self.wrong.borrow_mut().take();
        ensure(wrong.is_none(), || wrong.unwrap_or_default())?;
        let unanswered = self.unanswered();
        ensure(unanswered.is_empty(), || format!("no answers to {unanswered:?}"))?;
        Ok(self.deeds.take())
    }
}

/// A frame of these bytes.
fn whole(bytes: &[u8], pool: &Pool) -> Frame {
    match bytes.split_first_chunk::<HEAD_BYTES>() {
        Some((head, body)) if bytes.len() > MIN_FRAME_BYTES => {
            Frame::with_body(*head, pool.copy_of(body).freeze())
        }
        _ => Frame::new(bytes),
    }
}
