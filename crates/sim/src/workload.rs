//! Clients: many requests in flight at once, each answer compared with the oracle.
//!
//! The requests are drawn before the run, each client's from a stream of its own, so that one can
//! be taken away without changing the others. Offsets are fractions of the array: a request means
//! the same on an array of another size.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::future::Future;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

use array::CacheMode;
use io::{Clock, Completion, Disk, Done, ErrorKind, ExtentKind, Op, Signal, Work};
use layout::RangeSet;

use crate::keep::Choice;
use crate::mark;
use crate::medium::SECTOR;
use crate::node::Node;
use crate::options::Options;
use crate::oracle::{self, Oracle, Put};
use crate::world::World;
use random::Rng;

/// A client's request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Bytes, in this many buffers.
    Read(usize),
    /// Bytes, in this many buffers.
    Write(usize),
    /// Zeros.
    Zero {
        /// Give the space back.
        unmap: bool,
        /// Only if it is fast.
        fast: bool,
    },
    /// Forget.
    Discard,
    /// Make durable.
    Flush,
    /// Query the allocation.
    Extents,
}

/// One request.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// The request.
    pub kind: Kind,
    /// First sector.
    pub sector: u64,
    /// How many.
    pub count: u64,
    /// Durable when answered.
    pub fua: bool,
    /// How long the client waits before it, in microseconds.
    pub pause: u64,
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Request { kind, sector, count, fua, .. } = self;
        let (offset, len) = (sector * SECTOR, count * SECTOR);
        write!(f, "{kind:?} {offset}+{len}{}", if *fua { " fua" } else { "" })
    }
}

/// The requests of one client on an array of `capacity` bytes with stripes of `stripe` bytes.
pub fn draw(options: &Options, client: u64, capacity: u64, stripe: u64) -> Vec<Request> {
    let mut rng = Rng::stream(options.seed, "client", client);
    let (sectors, stripe) = (capacity / SECTOR, (stripe / SECTOR).max(1));
    let mut sequential = rng.below(sectors);
    let streams = rng.percent(30);
    let [read, write, zero, discard, flush, extents] = options.mix;
    let kinds = [(read, 0), (write, 1), (zero, 2), (discard, 3), (flush, 4), (extents, 5)];
    let requests = (0..options.requests)
        .map(|_| {
            let most = (sectors / 3).clamp(1, options.request_sectors);
            let mut count = rng.skewed(most);
            let mut sector = rng.below(sectors);
            if rng.percent(options.hot_percent) {
                sector = rng.below(sectors.min(64));
            } else if streams {
                sector = if sequential >= sectors { 0 } else { sequential };
                sequential = sector + count;
            } else if rng.percent(25) {
                // Whole stripes.
                sector = sector / stripe * stripe;
                count = count.next_multiple_of(stripe);
            }
            count = count.min(sectors - sector);
            let bufs = if rng.percent(20) { rng.within(1, count.min(4)) } else { 1 } as usize;
            let kind = match rng.weighted(&kinds) {
                0 => Kind::Read(bufs),
                1 => Kind::Write(bufs),
                2 => Kind::Zero { unmap: rng.percent(50), fast: rng.percent(20) },
                3 => Kind::Discard,
                4 => Kind::Flush,
                _ => Kind::Extents,
            };
            let pause = if rng.percent(40) { rng.skewed(4000) } else { 0 };
            Request { kind, sector, count, fua: rng.percent(10), pause }
        })
        .enumerate();
    let kept = |&(index, _): &(usize, Request)| {
        options.keep.keeps(Choice::Request(client as usize, index))
    };
    requests.filter(kept).map(|(_, request)| request).collect()
}

/// Where clients and the director of a run meet.
pub struct Stage {
    /// The world.
    pub world: World,
    /// The array that the clients use.
    pub node: Rc<Node>,
    /// The expected content.
    pub oracle: RefCell<Oracle>,
    /// Requests that were answered.
    pub answered: Cell<u64>,
    /// Clients hold back.
    pub paused: Cell<bool>,
    /// The losses exceed the level's tolerance: errors are allowed.
    pub overloaded: Cell<bool>,
    /// Raised at each answer, at the end of a pause, and when the array dies.
    pub stirred: Signal,
    /// How often the array has died.
    pub deaths: Cell<u64>,
    /// Requests in flight.
    pub under_way: Cell<u64>,
    /// Ranges that a crash left unverified when a member was lost: errors are allowed there, until
    /// they are rewritten.
    pub doubted: RefCell<RangeSet>,
    /// A cached write cannot be written out, now or before: its row has more losses than it covers.
    /// Nothing is durable any more until the array is restarted.
    pub stuck: Cell<bool>,
    /// Writes in flight that may be cached in part, and may lack a place too.
    unsure: Cell<u64>,
    /// A member's flush has lied: its stale blocks are not marked.
    pub lied: Cell<bool>,
    /// Some array holds writes back: that it answers does not say that it has reached its members.
    pub held: Cell<bool>,
    /// The store of some members lacks space.
    pub is_short: Cell<bool>,
    /// And the level does not tolerate the loss of all of them: writes may find no space.
    pub full: Cell<bool>,
    /// The stripes written since: a write to them may be unfinished.
    pub tried: RefCell<RangeSet>,
    /// Each write is durable when it is acknowledged.
    sync: bool,
}

/// How a request ended.
#[derive(PartialEq, Eq, Debug)]
pub enum Outcome {
    /// Answered.
    Answered,
    /// The array was being stopped: it was not done.
    Stopping,
    /// The array died.
    Died,
}

impl Stage {
    /// A stage for this array.
    pub fn new(world: &World, node: &Rc<Node>, oracle: Oracle) -> Rc<Stage> {
        Rc::new(Stage {
            world: world.clone(),
            node: Rc::clone(node),
            oracle: RefCell::new(oracle),
            answered: Cell::new(0),
            paused: Cell::new(false),
            overloaded: Cell::new(false),
            stirred: Signal::new(),
            deaths: Cell::new(0),
            under_way: Cell::new(0),
            doubted: RefCell::default(),
            stuck: Cell::new(false),
            unsure: Cell::new(0),
            lied: Cell::new(false),
            is_short: Cell::new(false),
            full: Cell::new(false),
            tried: RefCell::default(),
            held: Cell::new(node.shape.cache == CacheMode::Writeback),
            sync: node.shape.cache == CacheMode::Sync,
        })
    }

    /// A client: one request after the other.
    pub async fn client(self: Rc<Self>, number: usize, requests: Vec<Request>) {
        for (index, request) in requests.into_iter().enumerate() {
            if request.pause > 0 {
                self.world.pause(request.pause).await;
            }
            loop {
                while self.paused.get() || self.node.running().is_none() {
                    let (stirred, started) = (self.stirred.wait(), self.node.started.wait());
                    either(stirred, started).await;
                }
                let name = (number, index);
                self.under_way.set(self.under_way.get() + 1);
                let outcome = self.perform(name, request).await;
                self.under_way.set(self.under_way.get() - 1);
                self.stirred.raise();
                match outcome {
                    Outcome::Answered => break,
                    // A request in flight when the array died may have taken effect: it is not
                    // repeated.
                    Outcome::Died => break,
                    Outcome::Stopping => self.world.pause(500).await,
                }
            }
            self.answered.set(self.answered.get() + 1);
            self.stirred.raise();
        }
    }

    /// Clients pause; completes when none of their requests is in flight.
    pub async fn hold(&self) {
        self.paused.set(true);
        while self.under_way.get() > 0 {
            self.stirred.wait().await;
        }
    }

    /// Clients go on.
    pub fn go_on(&self) {
        self.paused.set(false);
        self.stirred.raise();
    }

    /// Sends one request and holds its answer against the oracle.
    pub async fn perform(&self, name: (usize, usize), request: Request) -> Outcome {
        let Some(array) = self.node.running() else { return Outcome::Stopping };
        match request.kind {
            Kind::Read(bufs) => self.read(&array, name, request, bufs).await,
            Kind::Extents => self.extents(&array, name, request).await,
            Kind::Flush => self.flush(&array, name, request).await,
            _ => self.change(&array, name, request).await,
        }
    }

    fn begin(&self, name: (usize, usize), request: &Request) {
        self.world.note(|| format!("client {}.{}: {request}", name.0, name.1));
    }

    fn end(&self, name: (usize, usize), request: &Request, result: &io::Result<()>) {
        let now = self.world.clock.now().0;
        let ok = u64::from(result.is_ok());
        self.world.trace.event(&[0xc11e, name.0 as u64, name.1 as u64, now, ok]);
        self.world.note(|| {
            let how = result.as_ref().map_or_else(|error| error.to_string(), |()| "ok".into());
            format!("client {}.{}: {request}: {how}", name.0, name.1)
        });
    }

    /// Waits for the answer, or for the death of the array.
    async fn answer(&self, mut completion: Completion<Done>) -> Option<Done> {
        let deaths = self.deaths.get();
        loop {
            let mut dead = pin!(self.stirred.wait());
            let done = std::future::poll_fn(|cx| {
                if self.deaths.get() != deaths {
                    return Poll::Ready(None);
                }
                if let Poll::Ready(done) = std::pin::Pin::new(&mut completion).poll(cx) {
                    return Poll::Ready(Some(Some(done)));
                }
                dead.as_mut().poll(cx).map(|()| Some(None))
            })
            .await;
            match done {
                None => return None,
                Some(Some(done)) => return Some(done),
                Some(None) => {}
            }
        }
    }

    /// An answer, perhaps from the members: none is given before they have replayed a crash.
    fn note_answer(&self, durable: bool) {
        if durable || !self.held.get() {
            self.oracle.borrow_mut().put_right();
        }
    }

    /// A write is cached, or in part while it is in flight: may it lack a place to go to?
    fn is_unsure(&self, request: &Request) -> bool {
        let range = request.sector * SECTOR..(request.sector + request.count) * SECTOR;
        let durable = request.fua || self.sync;
        let held = self.node.shape.cache == CacheMode::Writeback && !durable;
        held && self.doubted.borrow().overlaps(range)
    }

    /// The stripes of a request.
    fn stripes(&self, request: &Request) -> std::ops::Range<u64> {
        let stripe = self.node.last_geometry().map_or(SECTOR, |geometry| geometry.stripe_bytes());
        let end = (request.sector + request.count) * SECTOR;
        request.sector * SECTOR / stripe * stripe..end.next_multiple_of(stripe)
    }

    /// May a write, or a flush of cached data, fail so because the members' store is full?
    fn finds_no_space(&self, request: &Request, error: &io::Error) -> bool {
        let cached = request.kind != Kind::Flush || self.held.get();
        self.full.get() && cached && error.kind() == ErrorKind::NoSpace
    }

    /// Is this error an honest one?
    fn check_error(&self, request: &Request, error: &io::Error) {
        let range = request.sector * SECTOR..(request.sector + request.count) * SECTOR;
        let doubted = request.kind != Kind::Flush && self.doubted.borrow().overlaps(range);
        if doubted && !self.overloaded.get() {
            return self.world.trace.mark(mark::DOUBTED);
        }
        let stuck = self.stuck.get() || self.unsure.get() > 0;
        if stuck && (request.fua || request.kind == Kind::Flush) {
            return self.world.trace.mark(mark::STUCK);
        }
        let honest = self.overloaded.get();
        assert!(honest, "{request} failed within the budget of the level: {}", chain(error));
        self.world.trace.mark(mark::HONEST);
    }

    fn is_stopping(error: &io::Error) -> bool {
        error.kind() == ErrorKind::Refused && error.to_string().contains("being stopped")
    }

    async fn read(
        &self,
        array: &array::Array,
        name: (usize, usize),
        request: Request,
        bufs: usize,
    ) -> Outcome {
        let (offset, len) = (request.sector * SECTOR, request.count * SECTOR);
        let read = self.oracle.borrow_mut().read(offset, len);
        self.begin(name, &request);
        let each = shares(request.count, bufs);
        let bufs = each.map(|sectors| {
            let mut buf = self.world.pool.take((sectors * SECTOR) as usize);
            buf.fill(0xa5);
            buf
        });
        let work = Work::Read(bufs.collect());
        let Some(done) = self.answer(door(array, name).submit(Op::new(offset, work))).await else {
            return Outcome::Died;
        };
        self.end(name, &request, &done.result);
        let Work::Read(bufs) = done.work else {
            panic!("a read completed with another kind of work")
        };
        let back: u64 = bufs.iter().map(|buf| buf.len() as u64).sum();
        assert_eq!(back, len, "{request}: all buffers come back");
        if let Err(error) = done.result {
            let lost = self.oracle.borrow().may_be_lost(read);
            self.oracle.borrow_mut().drop_read(read);
            if Stage::is_stopping(&error) {
                return Outcome::Stopping;
            }
            let unfinished = self.tried.borrow().overlaps(self.stripes(&request));
            match lost || self.full.get() && unfinished {
                true => self.world.trace.mark(mark::LOST),
                false => self.check_error(&request, &error),
            }
            return Outcome::Answered;
        }
        self.note_answer(false);
        let parts = bufs.iter().map(|buf| &**buf);
        if let Err(violation) = self.oracle.borrow_mut().check(read, parts) {
            panic!("client {}.{}: {request}: {violation}", name.0, name.1);
        }
        Outcome::Answered
    }

    async fn change(
        &self,
        array: &array::Array,
        name: (usize, usize),
        request: Request,
    ) -> Outcome {
        let (offset, len) = (request.sector * SECTOR, request.count * SECTOR);
        let limits = array.limits();
        let put = match request.kind {
            Kind::Write(_) => Some(Put::Pattern),
            Kind::Zero { .. } => Some(Put::Zeros),
            _ if limits.discard_zeroes => Some(Put::Zeros),
            _ if limits.discard => Some(Put::Anything),
            _ => None,
        };
        let write = put.map(|put| self.oracle.borrow_mut().write(offset, len, put));
        if self.is_short.get() {
            self.tried.borrow_mut().insert(self.stripes(&request));
        }
        self.begin(name, &request);
        let work = self.work_of(&request, write);
        let op = Op { fua: request.fua, ..Op::new(offset, work) };
        let unsure = u64::from(self.is_unsure(&request));
        self.unsure.set(self.unsure.get() + unsure);
        let answer = self.answer(door(array, name).submit(op)).await;
        self.unsure.set(self.unsure.get() - unsure);
        let Some(done) = answer else { return Outcome::Died };
        self.end(name, &request, &done.result);
        let mut oracle = self.oracle.borrow_mut();
        let Err(error) = done.result else {
            drop(oracle);
            let durable = request.fua || self.sync;
            self.note_answer(durable);
            if self.is_unsure(&request) {
                self.stuck.set(true);
            }
            let mut oracle = self.oracle.borrow_mut();
            write.into_iter().for_each(|write| oracle.acknowledge(write, durable));
            return Outcome::Answered;
        };
        let unwilling = matches!(request.kind, Kind::Zero { fast: true, .. });
        if Stage::is_stopping(&error) || (unwilling && error.kind() == ErrorKind::Refused) {
            write.into_iter().for_each(|write| oracle.refuse(write));
            return if unwilling { Outcome::Answered } else { Outcome::Stopping };
        }
        if self.finds_no_space(&request, &error) {
            // Unfinished until the array is assembled again, as if its host had died meanwhile.
            self.world.trace.mark(mark::STORE_WRITE);
            return Outcome::Answered;
        }
        self.check_error(&request, &error);
        if self.is_unsure(&request) {
            // Some of its units may have been held before one failed.
            self.stuck.set(true);
        }
        write.into_iter().for_each(|write| oracle.fail(write));
        Outcome::Answered
    }

    /// The operation of a request that changes bytes; `write` is what the oracle expects of it.
    fn work_of(&self, request: &Request, write: Option<oracle::Request>) -> Work {
        let len = request.count * SECTOR;
        match request.kind {
            Kind::Write(bufs) => {
                let (oracle, write) =
                    (self.oracle.borrow(), write.expect("a write stores a pattern"));
                let mut sector = request.sector;
                let each = shares(request.count, bufs).map(|sectors| {
                    let mut buf = self.world.pool.take((sectors * SECTOR) as usize);
                    oracle.fill_again(write, sector, &mut buf);
                    sector += sectors;
                    // Some clients change their memory while it is being written.
                    if request.sector % 8 == 3 { buf.into_unstable() } else { buf }.freeze()
                });
                Work::Write(each.collect())
            }
            Kind::Zero { unmap, fast } => Work::Zero { len, unmap, fast },
            _ => Work::Discard { len },
        }
    }

    async fn flush(&self, array: &array::Array, name: (usize, usize), request: Request) -> Outcome {
        self.begin(name, &request);
        let begun = self.oracle.borrow_mut().flush();
        let Some(done) = self.answer(door(array, name).submit(Op::flush())).await else {
            return Outcome::Died;
        };
        self.end(name, &request, &done.result);
        match done.result {
            Err(error) if Stage::is_stopping(&error) => return Outcome::Stopping,
            Err(error) if self.finds_no_space(&request, &error) => {}
            Err(error) => self.check_error(&request, &error),
            Ok(()) => {
                self.note_answer(true);
                self.oracle.borrow_mut().flushed(begun);
            }
        }
        Outcome::Answered
    }

    async fn extents(
        &self,
        array: &array::Array,
        name: (usize, usize),
        request: Request,
    ) -> Outcome {
        let (offset, len) = (request.sector * SECTOR, request.count * SECTOR);
        let reads: Vec<_> = {
            let mut oracle = self.oracle.borrow_mut();
            // One for each sector: which of them are zeros is not known before.
            (0..request.count).map(|at| oracle.read(offset + at * SECTOR, SECTOR)).collect()
        };
        self.begin(name, &request);
        let op = Op::new(offset, Work::Extents { len, found: Vec::new() });
        let Some(done) = self.answer(door(array, name).submit(op)).await else {
            return Outcome::Died;
        };
        self.end(name, &request, &done.result);
        let mut oracle = self.oracle.borrow_mut();
        if let Err(error) = done.result {
            reads.into_iter().for_each(|read| oracle.drop_read(read));
            if Stage::is_stopping(&error) {
                return Outcome::Stopping;
            }
            self.check_error(&request, &error);
            return Outcome::Answered;
        }
        let Work::Extents { found, .. } = done.work else {
            panic!("extents completed with another kind of work")
        };
        let reported: u64 = found.iter().map(|extent| extent.len).sum();
        assert!(reported > 0 && reported <= len, "{request}: {reported} bytes were told of");
        let kinds = found.iter().flat_map(|extent| {
            assert!(extent.len > 0 && extent.len % SECTOR == 0, "{request}: {extent:?}");
            std::iter::repeat_n(extent.kind, (extent.len / SECTOR) as usize)
        });
        let kinds: Vec<ExtentKind> = kinds.collect();
        for (at, read) in reads.into_iter().enumerate() {
            match kinds.get(at) {
                Some(ExtentKind::Hole | ExtentKind::Zero) => {
                    let start = offset + at as u64 * SECTOR;
                    if let Err(violation) = oracle.check_zeros(read, start, SECTOR) {
                        panic!(
                            "client {}.{}: {request} tells of zeros: {violation}",
                            name.0, name.1
                        );
                    }
                }
                _ => oracle.drop_read(read),
            }
        }
        Outcome::Answered
    }
}

/// Where a client's requests go in: clients are spread over the shards, as connections are over
/// threads.
fn door(array: &array::Array, (client, _): (usize, usize)) -> &array::Front {
    let fronts = array.fronts();
    &fronts[client % fronts.len()]
}

/// Cuts this many sectors into about this many buffers.
fn shares(sectors: u64, bufs: usize) -> impl Iterator<Item = u64> {
    let bufs = (bufs as u64).clamp(1, sectors);
    (0..bufs).map(move |index| sectors * (index + 1) / bufs - sectors * index / bufs)
}

/// An error with all that lies underneath.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(source) = next {
        text = format!("{text}: {source}");
        next = source.source();
    }
    text
}

/// Completes when one of the two does.
pub async fn either(a: impl Future<Output = ()>, b: impl Future<Output = ()>) {
    let (mut a, mut b) = (pin!(a), pin!(b));
    std::future::poll_fn(|cx| {
        if a.as_mut().poll(cx).is_ready() || b.as_mut().poll(cx).is_ready() {
            return Poll::Ready(());
        }
        Poll::Pending
    })
    .await;
}
