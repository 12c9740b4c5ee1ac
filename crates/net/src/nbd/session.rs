//! The transmission phase of one connection.
//!
//! ```text
//!    stream ──▶ inbox ──▶ request ──▶ running ──▶ outbox ──▶ stream
//!              one read    all in      all under     one vectored
//!              per turn    the batch   way           write per turn
//! ```
//!
//! One future, no tasks: each turn reads the socket's bytes, starts every request in them, collects
//! every available answer, and sends them in one write. When requests or bytes in use reach their
//! limits, the socket is not read until answers have been sent.
//!
//! Owns the stream from GO to the end. Invariants: a request that was started is waited for, also
//! when the client is gone (its ranges are held until then); answers may overtake each other;
//! memory in use is bounded by `MAX_REQUESTS`, `MAX_REQUEST_BYTES`, and with all connections by
//! `Memory`.

mod inbox;
mod request;
mod watch;

use std::io::ErrorKind;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use io::{Buf, Clock, Cost, Limits, Pool, SharedBuf, Stream, Work};

use self::inbox::{Inbox, Item, Payload};
use self::request::{Running, Step, StepLimit, fault_of};
use self::watch::Watch;
use super::export::Export;
use super::handshake::{Chosen, Terms};
use super::memory::Account;
use super::outbox::{Load, Outbox};
use super::server::Ending;
use super::wire::{Fault, Request, command, reply};

/// Turns before other connections get theirs.
const TURNS: usize = 16;
/// Bytes of reads started before available answers are sent: answers from memory and page cache are
/// sent while they are in the processor's cache.
const BITE_BYTES: u64 = 256 << 10;
/// Read data up to this length is copied behind its header, so that small answers are one piece.
const COPY_BYTES: usize = 4 << 10;

pub(super) struct Session {
    stream: Box<dyn Stream>,
    export: Rc<Export>,
    terms: Terms,
    pool: Pool,
    clock: Rc<dyn Clock>,
    /// As announced at the start; the protocol cannot announce changes.
    limits: Limits,
    /// Offsets and lengths have to be multiples of this.
    unit: u64,
    inbox: Inbox,
    running: Vec<Running>,
    outbox: Outbox<Buf>,
    /// Memory held by its requests.
    account: Account,
    watch: Watch,
    step_limit: StepLimit,
    /// Bytes of reads started in this turn.
    bitten: u64,
    /// All requests in flight were answered by the next turn: then starting more than the client
    /// reads gains nothing.
    prompt: bool,
    phase: Phase,
    stopping: bool,
    spare: Spare,
}

/// The outcome of one attempt to read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Received {
    /// Bytes, or the end of the stream.
    Something,
    /// Nothing yet: the stream wakes the session when bytes arrive.
    Armed,
    /// There was no attempt: no request is taken now, or the inbox has no room.
    NotTried,
}

enum Phase {
    /// Requests are taken.
    Open,
    /// No more requests; requests in flight are answered, then the stream is closed.
    Leaving(Ending),
    /// The client is gone; the session waits for the requests in flight.
    Gone(Ending),
    /// Over.
    Over,
}

/// Vectors that operations brought back, to be used again.
#[derive(Default)]
pub(super) struct Spare {
    reads: Vec<Vec<Buf>>,
    writes: Vec<Vec<SharedBuf>>,
}

impl Spare {
    fn read(&mut self, buf: Buf) -> Work {
        let mut bufs = self.reads.pop().unwrap_or_default();
        bufs.push(buf);
        Work::Read(bufs)
    }

    fn write(&mut self, payload: Option<Payload>) -> Work {
        let mut bufs = self.writes.pop().unwrap_or_default();
        if let Some(payload) = payload {
            bufs.extend(payload.first.into_iter().chain(payload.rest).map(Buf::freeze));
        }
        Work::Write(bufs)
    }

    /// Takes the vector back; gives the buffer of a read.
    fn take_back(&mut self, work: Work) -> Option<Buf> {
        match work {
            Work::Read(mut bufs) => {
                let buf = bufs.pop();
                bufs.clear();
                self.reads.push(bufs);
                buf
            }
            Work::Write(mut bufs) => {
                bufs.clear();
                self.writes.push(bufs);
                None
            }
            _ => None,
        }
    }
}

impl Session {
    pub(super) fn new(
        chosen: Chosen,
        pool: Pool,
        account: Account,
        clock: Rc<dyn Clock>,
    ) -> Session {
        let Chosen { stream, export, terms } = chosen;
        let limits = export.limits();
        let unit = if terms.sized { export.block_sizes().minimum } else { 1 };
        Session {
            stream,
            limits,
            unit: u64::from(unit),
            inbox: Inbox::new(terms.style, pool.clone()),
            export,
            terms,
            pool,
            clock,
            running: Vec::new(),
            outbox: Outbox::default(),
            account,
            watch: Watch::default(),
            step_limit: StepLimit::default(),
            bitten: 0,
            prompt: false,
            phase: Phase::Open,
            stopping: false,
            spare: Spare::default(),
        }
    }

    /// From now on no request is accepted, and the connection ends when none is in flight. Requests
    /// not accepted get no answer, not even ESHUTDOWN: a reconnecting client sends them again, but
    /// Linux would pass that error to its file system.
    pub(super) fn stop(&mut self) {
        self.stopping = true;
    }

    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Ending> {
        self.bitten = 0;
        if !self.running.is_empty() {
            self.collect_answers(cx, 0);
            self.prompt = self.running.is_empty();
        }
        for _ in 0..TURNS {
            let received = self.receive(cx);
            // Older requests wake the session when the disk answers them.
            let older = self.running.len();
            self.take_requests(cx.waker());
            let mut progress = received == Received::Something;
            progress |= self.collect_answers(cx, older);
            // At once is prompt, too.
            self.prompt |= self.bitten > 0 && self.running.is_empty();
            progress |= self.send(cx);
            if let Poll::Ready(ending) = self.poll_end(cx) {
                return Poll::Ready(ending);
            }
            if self.bitten >= BITE_BYTES {
                break;
            }
            // Taking a part of a payload out of a full inbox makes room for bytes that nothing
            // else would wait for: never sleep without a read armed while bytes are wanted.
            let unarmed = received == Received::NotTried && self.wants_bytes();
            if !progress && !unarmed {
                if self.is_stalled(cx) {
                    self.go(Ending::Stalled);
                    continue;
                }
                if !self.is_open() || self.is_full() {
                    self.account.step_aside();
                }
                return Poll::Pending;
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Are requests taken?
    fn is_open(&self) -> bool {
        matches!(self.phase, Phase::Open) && !self.stopping
    }

    /// Is there a reason to read?
    fn wants_bytes(&self) -> bool {
        self.is_open() && self.inbox.wants_bytes()
    }

    /// Reads once, if bytes are wanted.
    fn receive(&mut self, cx: &mut Context<'_>) -> Received {
        if !self.wants_bytes() {
            return Received::NotTried;
        }
        match self.inbox.poll_read(cx, &*self.stream) {
            Poll::Pending => return Received::Armed,
            Poll::Ready(Ok(0)) => {
                self.phase = Phase::Leaving(Ending::Vanished(ErrorKind::UnexpectedEof.into()));
            }
            Poll::Ready(Ok(_)) => {}
            Poll::Ready(Err(error)) => self.lose_connection(error),
        }
        Received::Something
    }

    /// Takes every whole request out of the inbox and starts it, as far as the limits allow.
    fn take_requests(&mut self, waker: &Waker) {
        while self.is_open() && !self.is_full() {
            match self.inbox.take(&mut self.account, waker, &*self.clock) {
                Item::Nothing => return,
                Item::Request(request, payload) => self.start(request, payload),
                Item::Refused(request, fault, message) => {
                    self.fail(&request, 0, fault, message, None);
                }
                Item::Garbage(what) => self.phase = Phase::Leaving(Ending::Misbehaved(what)),
            }
        }
    }

    /// True if the read data must be sent first.
    fn is_full(&self) -> bool {
        let unsent = || self.outbox.holds_back(BITE_BYTES);
        self.bitten >= BITE_BYTES || self.prompt && unsent()
    }

    /// Starts a request, already counted in the load; answers it at once if it is wrong or empty.
    fn start(&mut self, request: Request, payload: Option<Payload>) {
        self.clock.charge(Cost::Request, 0);
        if request.command == command::DISCONNECT {
            self.account.release(Load { requests: 1, bytes: 0 });
            self.phase = Phase::Leaving(Ending::Finished);
            return;
        }
        let bytes = self.inbox.bytes_of(&request);
        let checked = request::check(&request, &payload, &self.terms, &self.limits, self.unit);
        let range = match checked {
            Ok(range) => range,
            Err((fault, message)) => return self.fail(&request, bytes, fault, message, None),
        };
        if range.len == 0 && request.command != command::FLUSH {
            return self.succeed(&request, bytes);
        }
        let disk = self.export.disk();
        let running = match request.command {
            command::READ => {
                self.bitten += range.len;
                let work = self.spare.read(self.pool.take(range.len as usize));
                Running::once(disk, request, bytes, work)
            }
            command::WRITE => {
                let work = self.spare.write(payload);
                Running::once(disk, request, bytes, work)
            }
            command::FLUSH => Running::once(disk, request, bytes, Work::Flush),
            command::CACHE => return self.succeed(&request, bytes),
            command::BLOCK_STATUS => Running::status(request, bytes, range),
            _ => Running::sweep(disk, request, bytes, range),
        };
        self.running.push(running);
    }

    /// Collects every available answer to the requests from this index on; true if there was one.
    fn collect_answers(&mut self, cx: &mut Context<'_>, from: usize) -> bool {
        let mut progress = false;
        let mut index = from;
        let gone = matches!(self.phase, Phase::Gone(_));
        while let Some(running) = self.running.get_mut(index) {
            match running.poll(cx, self.export.disk(), &*self.clock, &mut self.step_limit, gone) {
                Poll::Pending => index += 1,
                Poll::Ready(step) => {
                    let running = self.running.swap_remove(index);
                    self.answer(running, step);
                    progress = true;
                }
            }
        }
        progress
    }

    fn answer(&mut self, running: Running, step: Step) {
        let Running { request, bytes, .. } = running;
        match step {
            Step::Done(work) => match self.spare.take_back(work) {
                Some(buf) => self.answer_read(&request, bytes, buf),
                None => self.succeed(&request, bytes),
            },
            Step::Extents { extents, contexts } => {
                let style = self.terms.style;
                let load = Load { requests: 1, bytes };
                let contexts = contexts.iter(&self.terms.contexts);
                self.outbox.push(load, None, |out| {
                    let count = contexts.clone().count();
                    for (index, context) in contexts.enumerate() {
                        let reported =
                            extents.iter().map(|one| (one.len, context.status(one.kind)));
                        let last = index + 1 == count;
                        reply::status(out, style, &request, context.id(), reported, last);
                    }
                });
            }
            Step::Failed(work, error) => {
                self.spare.take_back(work);
                let (fault, message, at) = fault_of(&error, &request);
                self.fail(&request, bytes, fault, message, at);
            }
            Step::LeftOff => self.account.release(Load { requests: 1, bytes }),
        }
    }

    fn answer_read(&mut self, request: &Request, bytes: u64, buf: Buf) {
        let style = self.terms.style;
        let load = Load { requests: 1, bytes };
        if buf.len() <= COPY_BYTES {
            self.clock.charge(Cost::Copy, buf.len() as u64);
            return self.outbox.push(load, None, |out| {
                reply::data(out, style, request, buf.len());
                out.extend_from_slice(&buf);
            });
        }
        let length = buf.len();
        self.outbox.push(load, Some(buf), |out| reply::data(out, style, request, length));
    }

    fn succeed(&mut self, request: &Request, bytes: u64) {
        let style = self.terms.style;
        let load = Load { requests: 1, bytes };
        self.outbox.push(load, None, |out| reply::success(out, style, request));
    }

    fn fail(
        &mut self,
        request: &Request,
        bytes: u64,
        fault: Fault,
        message: &str,
        at: Option<u64>,
    ) {
        let style = self.terms.style;
        let load = Load { requests: 1, bytes };
        self.outbox.push(load, None, |out| reply::error(out, style, request, fault, message, at));
    }

    /// Writes once; true if something went.
    fn send(&mut self, cx: &mut Context<'_>) -> bool {
        if matches!(self.phase, Phase::Gone(_)) {
            self.account.release(self.outbox.abandon());
        }
        if self.outbox.is_empty() {
            return false;
        }
        match self.outbox.poll_send(cx, &*self.stream) {
            Poll::Pending => false,
            Poll::Ready(Ok(freed)) => {
                self.account.release(freed);
                true
            }
            Poll::Ready(Err(error)) => {
                self.lose_connection(error);
                true
            }
        }
    }

    fn lose_connection(&mut self, error: std::io::Error) {
        self.go(Ending::Vanished(error));
    }

    /// The client is waited for no longer.
    fn go(&mut self, ending: Ending) {
        let earlier = std::mem::replace(&mut self.phase, Phase::Over);
        self.phase = Phase::Gone(match earlier {
            // The client broke the rules, or said goodbye, before it went.
            Phase::Leaving(earlier) => earlier,
            _ => ending,
        });
    }

    /// True if the client neither finishes a request nor takes answers that others need the memory
    /// of.
    fn is_stalled(&mut self, cx: &mut Context<'_>) -> bool {
        if matches!(self.phase, Phase::Gone(_) | Phase::Over) {
            return false;
        }
        let half_sent = self.inbox.half_sent().filter(|_| self.is_open());
        let unsent = (!self.outbox.is_empty()).then(|| self.outbox.total());
        let (watch, account) = (&mut self.watch, &self.account);
        watch.poll(cx, &*self.clock, half_sent, unsent, || account.is_in_the_way())
    }

    /// Ends the connection when nothing is left to do.
    fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<Ending> {
        if !self.running.is_empty() || !self.outbox.is_empty() {
            return Poll::Pending;
        }
        if self.stopping && matches!(self.phase, Phase::Open) {
            self.phase = Phase::Leaving(Ending::Shutdown);
        }
        match std::mem::replace(&mut self.phase, Phase::Over) {
            Phase::Open => self.phase = Phase::Open,
            Phase::Leaving(ending) => match self.stream.poll_close(cx) {
                Poll::Pending => self.phase = Phase::Leaving(ending),
                // Whether the goodbye arrives or not, this is the end.
                Poll::Ready(_) => return Poll::Ready(ending),
            },
            Phase::Gone(ending) => return Poll::Ready(ending),
            Phase::Over => {}
        }
        Poll::Pending
    }
}

#[cfg(test)]
mod tests;
