//! Models of disks: when does a disk answer?
//!
//! A model is a component of discrete events. Its owner hands it requests and lets it advance to
//! the moments that it names itself; virtual time leaps from one to the next, a driver in real time
//! sleeps until then.
//!
//! ```text
//!   submit(now, request)      next_event() ──▶ when?      advance(now) ──▶ answers
//! ```
//!
//! A model counts whole nanoseconds and knows no data. Equal requests at equal times give equal
//! answers.

pub(crate) mod agenda;
pub mod catalogue;
pub(crate) mod extents;
pub mod flash;
pub mod geometry;
pub mod hdd;
pub mod seek;

/// A moment or a span: nanoseconds.
pub type Nanos = u64;

/// Bytes of a sector, the unit of addresses.
pub const SECTOR: u64 = 512;

/// What a request asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Read the sectors.
    Read,
    /// Write the sectors.
    Write,
    /// Make every write durable that was answered before.
    Flush,
}

/// A request to a model.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    /// Comes back with the answer; the owner chooses it.
    pub tag: u64,
    /// What to do.
    pub kind: Kind,
    /// First sector; unused by a flush.
    pub sector: u64,
    /// How many sectors; at least 1 except for a flush.
    pub sectors: u32,
    /// For a write: answer only when it is on the medium.
    pub durable: bool,
}

impl Request {
    /// A read of `sectors` sectors from `sector`.
    pub fn read(tag: u64, sector: u64, sectors: u32) -> Request {
        Request { tag, kind: Kind::Read, sector, sectors, durable: false }
    }

    /// A write of `sectors` sectors from `sector`.
    pub fn write(tag: u64, sector: u64, sectors: u32) -> Request {
        Request { tag, kind: Kind::Write, sector, sectors, durable: false }
    }

    /// A flush.
    pub fn flush(tag: u64) -> Request {
        Request { tag, kind: Kind::Flush, sector: 0, sectors: 0, durable: false }
    }

    /// The sector after the last one.
    pub fn end(&self) -> u64 {
        self.sector + u64::from(self.sectors)
    }
}

/// The answer to a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Answer {
    /// The request's tag.
    pub tag: u64,
    /// When the host has it.
    pub at: Nanos,
}

/// A disk as a component of discrete events. Time never goes back.
pub trait Model {
    /// Takes a request that arrives at `now`.
    ///
    /// # Panics
    /// If the request reaches beyond [`Model::sectors`].
    fn submit(&mut self, now: Nanos, request: Request);

    /// When something happens next; `None` while the model is idle. The moment may change with
    /// [`Model::submit`] and [`Model::advance`] only.
    fn next_event(&self) -> Option<Nanos>;

    /// Lets everything happen that is due by `now`, and appends the answers in order of time. A
    /// late caller gets them with the moments at which they were due.
    fn advance(&mut self, now: Nanos, answers: &mut Vec<Answer>);

    /// Size in sectors.
    fn sectors(&self) -> u64;
}

impl<M: Model + ?Sized> Model for Box<M> {
    fn submit(&mut self, now: Nanos, request: Request) {
        (**self).submit(now, request);
    }

    fn next_event(&self) -> Option<Nanos> {
        (**self).next_event()
    }

    fn advance(&mut self, now: Nanos, answers: &mut Vec<Answer>) {
        (**self).advance(now, answers);
    }

    fn sectors(&self) -> u64 {
        (**self).sectors()
    }
}
