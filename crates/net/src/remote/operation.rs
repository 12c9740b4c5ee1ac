//! One operation, over as many connections as it takes.

use std::future::{Future, poll_fn};
use std::ops::Range;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

use io::{Disk, Done, Error, ErrorKind, Op, Ticket, Time, Work};

use super::unflushed::{Change, Entry};
use super::{InFlight, MAX_HELD_BYTES, Shared, State, unless};

/// Carries out an operation and answers it.
pub(super) async fn serve(shared: Rc<Shared>, op: Op, ticket: Ticket) {
    let number = shared.number();
    let done = attempt(&shared, op, number).await;
    shared.answers.finish(ticket, done);
}

async fn attempt(shared: &Shared, op: Op, number: u64) -> Done {
    let Op { offset, mut work, fua, deadline, class } = op;
    if work.is_empty() && !matches!(work, Work::Flush) {
        return Done::ok(work);
    }
    let len = work.len();
    let written = if work.is_write() { offset..offset + len } else { 0..0 };
    // The connection gets memory that cannot change: what is sent, and sent again, is the same.
    let change = Change::of(&work).map(|change| change.stable(&shared.pool));
    loop {
        let disk = match connection(shared, number, &written, len, deadline).await {
            Ok(disk) => disk,
            Err(error) => return Done::failed(work, error),
        };
        let (session, mark) = (shared.session.get(), shared.unflushed.borrow().mark());
        let sent = match (&change, &work) {
            (Some(Change::Write(bufs)), _) => Work::Write(bufs.clone()),
            _ => std::mem::replace(&mut work, Work::Flush),
        };
        let shape = Shape::of(&sent);
        let in_flight = InFlight::begin(shared, number, written.clone());
        let answer = disk.submit(Op { offset, work: sent, fua, deadline, class });
        let answered = unless_broken(shared, session, answer).await;
        drop(in_flight);
        let result = match answered {
            Some(done) => {
                if !matches!(change, Some(Change::Write(_))) {
                    work = done.work;
                }
                done.result
            }
            None => {
                // The old connection has the buffers, and never gives them back.
                if !matches!(change, Some(Change::Write(_))) {
                    work = shape.make(shared);
                }
                continue;
            }
        };
        match &result {
            Ok(()) if work.is_write() => {
                let change = change.clone().expect("a write is a change");
                shared.unflushed.borrow_mut().push(Entry { offset, change }, fua);
            }
            Ok(()) if matches!(work, Work::Flush) => shared.unflushed.borrow_mut().flushed(mark),
            Err(error) if matches!(error.kind(), ErrorKind::Gone | ErrorKind::Timeout) => {
                let late = deadline.is_some_and(|deadline| deadline <= shared.clock.now());
                shared.suspect(number, &written);
                shared.lose_connection(session);
                if late {
                    return Done { work, result };
                }
                continue;
            }
            _ => {}
        }
        return Done { work, result };
    }
}

/// Waits for a connection, and for the end of the quarantine of these bytes.
async fn connection(
    shared: &Shared,
    number: u64,
    written: &Range<u64>,
    len: u64,
    deadline: Option<Time>,
) -> Result<Rc<dyn Disk>, Error> {
    let mut held = None;
    loop {
        let now = shared.clock.now();
        if matches!(shared.state.get(), State::Missing | State::Returned) {
            return Err(shared.gone());
        }
        if deadline.is_some_and(|deadline| deadline <= now) {
            let context = format!("{}: no connection", shared.name);
            return Err(Error::new(ErrorKind::Timeout, context));
        }
        let until = shared.quarantine.borrow().blocks(number, written, now);
        if let (None, Some(disk)) = (until, &*shared.disk.borrow()) {
            return Ok(Rc::clone(disk));
        }
        if held.is_none() {
            let hold = Held::new(shared, len);
            if shared.held_bytes.get() > MAX_HELD_BYTES {
                shared.give_up();
                return Err(shared.gone());
            }
            held = Some(hold);
        }
        let changed = shared.changed.wait();
        match until.into_iter().chain(deadline).min() {
            Some(at) => {
                let _: Option<()> = unless(changed, shared.clock.sleep_until(at)).await;
            }
            None => changed.await,
        }
    }
}

/// Bytes of an operation that waits, counted while this lives.
struct Held<'a> {
    shared: &'a Shared,
    bytes: u64,
}

impl Held<'_> {
    fn new(shared: &Shared, bytes: u64) -> Held<'_> {
        shared.held_bytes.set(shared.held_bytes.get() + bytes);
        Held { shared, bytes }
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.shared.held_bytes.set(self.shared.held_bytes.get() - self.bytes);
    }
}

/// The answer; none if the connection was given up before it came.
async fn unless_broken<T>(
    shared: &Shared,
    session: u64,
    answer: impl Future<Output = T>,
) -> Option<T> {
    let mut answer = pin!(answer);
    let mut changed = pin!(shared.changed.wait());
    poll_fn(|cx| {
        loop {
            if let Poll::Ready(value) = answer.as_mut().poll(cx) {
                return Poll::Ready(Some(value));
            }
            if shared.session.get() != session {
                return Poll::Ready(None);
            }
            if changed.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            changed.set(shared.changed.wait());
        }
    })
    .await
}

/// What an operation without a payload of its own looks like, so that it can be made anew.
enum Shape {
    Read(Vec<usize>),
    Flush,
    Zero { len: u64, unmap: bool, fast: bool },
    Discard { len: u64 },
    Extents { len: u64 },
}

impl Shape {
    fn of(work: &Work) -> Shape {
        match work {
            Work::Read(bufs) => Shape::Read(bufs.iter().map(|buf| buf.len()).collect()),
            // The caller keeps the buffers of a write.
            Work::Write(_) | Work::Flush => Shape::Flush,
            Work::Zero { len, unmap, fast } => {
                Shape::Zero { len: *len, unmap: *unmap, fast: *fast }
            }
            Work::Discard { len } => Shape::Discard { len: *len },
            Work::Extents { len, .. } => Shape::Extents { len: *len },
        }
    }

    fn make(&self, shared: &Shared) -> Work {
        match self {
            Shape::Read(lens) => {
                Work::Read(lens.iter().map(|&len| shared.pool.take(len)).collect())
            }
            Shape::Flush => Work::Flush,
            Shape::Zero { len, unmap, fast } => {
                Work::Zero { len: *len, unmap: *unmap, fast: *fast }
            }
            Shape::Discard { len } => Work::Discard { len: *len },
            Shape::Extents { len } => Work::Extents { len: *len, found: Vec::new() },
        }
    }
}
