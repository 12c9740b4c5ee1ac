//! One request: its validity, its execution, its result.
//!
//! Owns the rules of each command, the error numbers, and the steps of those commands whose ranges
//! have no limit: they are cut at multiples of a step, never shortened.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use io::{Clock, Completion, Error, ErrorKind, Extent, ExtentKind, Limits, Op, Work};

use super::inbox::Payload;
use crate::bytewise::{Answer, Bytewise};
use crate::nbd::context::MetaContext;
use crate::nbd::handshake::Terms;
use crate::nbd::limits::{MAX_EXTENTS, MAX_PAYLOAD, STATUS_STEP_BYTES, STATUS_STEPS, STEP_BYTES};
use crate::nbd::wire::{Fault, Reader, Request, Style, command, command_flag};

/// A checked request: bytes of the export that it is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Range {
    pub(super) offset: u64,
    pub(super) len: u64,
    pub(super) contexts: Wanted,
}

/// Some of a connection's metadata contexts, by position.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Wanted(u32);

impl Wanted {
    const ALL: Wanted = Wanted(u32::MAX);

    pub(super) fn iter(self, all: &[MetaContext]) -> impl Iterator<Item = MetaContext> + Clone {
        let chosen = move |(index, context): (usize, &MetaContext)| {
            (self.0 & 1 << index != 0).then_some(*context)
        };
        all.iter().enumerate().filter_map(chosen)
    }
}

type Refusal = (Fault, &'static str);

/// Parses a valid request: the command's flags, its range, the rules of the protocol.
pub(super) fn check(
    request: &Request,
    payload: &Option<Payload>,
    terms: &Terms,
    limits: &Limits,
    unit: u64,
) -> Result<Range, Refusal> {
    check_flags(request, terms)?;
    let mut range = Range { offset: request.offset, len: request.length, contexts: Wanted::ALL };
    let past_the_end = match request.command {
        command::FLUSH if request.offset | request.length != 0 => {
            return Err((Fault::Invalid, "a flush has no offset and no length"));
        }
        command::FLUSH => return Ok(range),
        command::BLOCK_STATUS if terms.contexts.is_empty() => {
            return Err((Fault::Invalid, "no metadata context was chosen for this export"));
        }
        command::BLOCK_STATUS => {
            if let Some(payload) = payload {
                (range.len, range.contexts) = chosen_contexts(payload.bytes(), &terms.contexts)?;
            }
            if range.len == 0 {
                return Err((Fault::Invalid, "no bytes have no status"));
            }
            Fault::Invalid
        }
        command::WRITE | command::WRITE_ZEROES | command::TRIM if limits.read_only => {
            return Err((Fault::Permission, "the export is read-only"));
        }
        command::TRIM if !limits.discard => return Err((Fault::Invalid, "TRIM is not offered")),
        command::WRITE | command::WRITE_ZEROES => Fault::NoSpace,
        _ => Fault::Invalid,
    };
    if range.offset.checked_add(range.len).is_none_or(|end| end > limits.bytes) {
        return Err((past_the_end, "the range ends after the end of the export"));
    }
    if (range.offset | range.len) & (unit - 1) != 0 {
        return Err((Fault::Invalid, "not a multiple of the minimum block size"));
    }
    if request.command == command::READ && range.len > u64::from(MAX_PAYLOAD) {
        let unfragmented = request.flags & command_flag::DF != 0;
        let fault = if unfragmented { Fault::Overflow } else { Fault::Invalid };
        return Err((fault, "more bytes than the maximum payload"));
    }
    Ok(range)
}

fn check_flags(request: &Request, terms: &Terms) -> Result<(), Refusal> {
    let structured = terms.style != Style::Simple;
    let extended = terms.style == Style::Extended;
    let payload = if extended { command_flag::PAYLOAD_LENGTH } else { 0 };
    let own = match request.command {
        command::READ if structured => command_flag::DF,
        command::WRITE => payload,
        command::WRITE_ZEROES => command_flag::NO_HOLE | command_flag::FAST_ZERO,
        command::BLOCK_STATUS => payload | command_flag::REQUEST_ONE,
        command::READ | command::FLUSH | command::TRIM | command::CACHE => 0,
        _ => return Err((Fault::Invalid, "unknown command")),
    };
    // FUA is right on every command, and ignored where nothing is written.
    if request.flags & !(own | command_flag::FUA) != 0 {
        return Err((Fault::Invalid, "a flag that this command does not have"));
    }
    Ok(())
}

/// The payload of BLOCK_STATUS: a length, and the contexts that the client asks for.
fn chosen_contexts(payload: &[u8], all: &[MetaContext]) -> Result<(u64, Wanted), Refusal> {
    let malformed = (Fault::Invalid, "the payload is malformed");
    let mut reader = Reader::new(payload);
    let len = reader.u64().map_err(|_| malformed)?;
    let mut wanted = 0;
    while reader.remaining() > 0 {
        let id = reader.u32().map_err(|_| malformed)?;
        let index = all.iter().position(|context| context.id() == id);
        let bit = 1 << index.ok_or((Fault::Invalid, "a context that was not chosen"))?;
        if wanted & bit != 0 {
            return Err((Fault::Invalid, "a context is named twice"));
        }
        wanted |= bit;
    }
    if wanted == 0 { Err(malformed) } else { Ok((len, Wanted(wanted))) }
}

/// The error number for the client, a sentence, and the offset if known. The sentence names no
/// disk: clients need not know the members.
pub(super) fn fault_of(error: &Error, request: &Request) -> (Fault, &'static str, Option<u64>) {
    let fast =
        request.command == command::WRITE_ZEROES && request.flags & command_flag::FAST_ZERO != 0;
    match error.kind() {
        ErrorKind::Medium { offset, .. } => {
            let within = offset.checked_sub(request.offset).is_some_and(|at| at < request.length);
            (Fault::Io, "these bytes cannot be accessed", within.then_some(offset))
        }
        ErrorKind::Timeout => (Fault::Io, "no answer from the disk in time", None),
        ErrorKind::Gone => (Fault::Io, "the disk is gone", None),
        ErrorKind::Truncated => (Fault::Io, "the disk has lost bytes", None),
        ErrorKind::Fenced => (Fault::Io, "the disk has a newer owner", None),
        ErrorKind::NoSpace => (Fault::NoSpace, "no space left", None),
        ErrorKind::Refused if fast => (Fault::NotFast, "this would not be fast", None),
        ErrorKind::Refused => (Fault::Invalid, "the disk does not do this", None),
    }
}

/// A request in flight.
pub(super) struct Running {
    pub(super) request: Request,
    /// Memory that it holds, for the connection's limit.
    pub(super) bytes: u64,
    answer: Option<Answer>,
    task: Task,
}

/// Lets the BLOCK_STATUS requests of a connection make one step between two turns of the host's
/// event loop: a step may take a disk milliseconds, and its answer may be there at once.
#[derive(Default)]
pub(super) struct StepLimit {
    pause: Option<Completion<()>>,
}

impl StepLimit {
    /// Ready if a step may be made, which is the only one for now.
    fn poll_step(&mut self, cx: &mut Context<'_>, clock: &dyn Clock) -> Poll<()> {
        if let Some(pause) = &mut self.pause {
            ready!(Pin::new(pause).poll(cx));
        }
        // The shortest sleep there is: timers fire when everything that waits has been looked at.
        self.pause = Some(clock.sleep_until(clock.now() + Duration::from_nanos(1)));
        Poll::Ready(())
    }
}

enum Task {
    /// One operation.
    Once,
    /// Operations of [`STEP_BYTES`], from `next` on.
    Sweep { next: u64, end: u64 },
    /// Questions of [`STATUS_STEP_BYTES`], from `next` on.
    Status { next: u64, end: u64, steps: u32, extents: Vec<Extent>, contexts: Wanted },
}

/// How a request ended.
pub(super) enum Step {
    Done(Work),
    Extents {
        extents: Vec<Extent>,
        contexts: Wanted,
    },
    Failed(Work, Error),
    /// The client is gone, and the rest was not begun.
    LeftOff,
}

impl Running {
    /// A request that is one operation.
    pub(super) fn once(disk: &Bytewise, request: Request, bytes: u64, work: Work) -> Running {
        let fua = request.flags & command_flag::FUA != 0 && work.is_write();
        let answer = disk.submit(Op { fua, ..Op::new(request.offset, work) });
        Running { request, bytes, answer: Some(answer), task: Task::Once }
    }

    /// A TRIM or WRITE_ZEROES over any number of bytes.
    pub(super) fn sweep(disk: &Bytewise, request: Request, bytes: u64, range: Range) -> Running {
        let end = range.offset + range.len;
        let (op, next) = sweep_step(&request, range.offset, end);
        let task = Task::Sweep { next, end };
        Running { request, bytes, answer: Some(disk.submit(op)), task }
    }

    /// A BLOCK_STATUS over any number of bytes.
    pub(super) fn status(request: Request, bytes: u64, range: Range) -> Running {
        let (next, end) = (range.offset, range.offset + range.len);
        let (steps, extents, contexts) = (STATUS_STEPS, Vec::new(), range.contexts);
        let task = Task::Status { next, end, steps, extents, contexts };
        Running { request, bytes, answer: None, task }
    }

    /// Continues as far as the disk has answered. `gone`: the client no longer waits for the
    /// result.
    pub(super) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        disk: &Bytewise,
        clock: &dyn Clock,
        step_limit: &mut StepLimit,
        gone: bool,
    ) -> Poll<Step> {
        loop {
            let Some(answer) = &mut self.answer else {
                if gone {
                    return Poll::Ready(Step::LeftOff);
                }
                ready!(step_limit.poll_step(cx, clock));
                if let Task::Status { next, end, .. } = self.task {
                    self.answer = Some(disk.submit(status_step(next, end)));
                }
                continue;
            };
            let done = ready!(Pin::new(answer).poll(cx));
            self.answer = None;
            if let Err(error) = done.result {
                return Poll::Ready(Step::Failed(done.work, error));
            }
            let next = match &mut self.task {
                Task::Once => return Poll::Ready(Step::Done(done.work)),
                Task::Sweep { next, end } if next == end => {
                    return Poll::Ready(Step::Done(done.work));
                }
                _ if gone => return Poll::Ready(Step::LeftOff),
                Task::Sweep { next, end } => {
                    let (mut op, after) = sweep_step(&self.request, *next, *end);
                    *next = after;
                    // Once a part is zeroed, failing for lack of speed would leave a half-done job.
                    if let Work::Zero { fast, .. } = &mut op.work {
                        *fast = false;
                    }
                    op
                }
                Task::Status { next, end, steps, extents, contexts } => {
                    let Work::Extents { len, found } = done.work else {
                        return Poll::Ready(Step::Done(done.work));
                    };
                    let one = self.request.flags & command_flag::REQUEST_ONE != 0;
                    let most = if one { 1 } else { MAX_EXTENTS };
                    let (reported, whole) = gather(extents, &found, len, most);
                    *next += reported;
                    *steps -= 1;
                    if !whole || next == end || *steps == 0 {
                        let (extents, contexts) = (std::mem::take(extents), *contexts);
                        return Poll::Ready(Step::Extents { extents, contexts });
                    }
                    continue;
                }
            };
            self.answer = Some(disk.submit(next));
        }
    }
}

/// The operation from `next` on, and where the one after it begins: at a multiple of the step.
fn sweep_step(request: &Request, next: u64, end: u64) -> (Op, u64) {
    let flag = |flag| request.flags & flag != 0;
    let after = (next / STEP_BYTES + 1).saturating_mul(STEP_BYTES).min(end);
    let len = after - next;
    let work = if request.command == command::TRIM {
        Work::Discard { len }
    } else {
        let unmap = !flag(command_flag::NO_HOLE);
        Work::Zero { len, unmap, fast: flag(command_flag::FAST_ZERO) }
    };
    (Op { fua: flag(command_flag::FUA), ..Op::new(next, work) }, after)
}

fn status_step(next: u64, end: u64) -> Op {
    let len = (end - next).min(STATUS_STEP_BYTES);
    Op::new(next, Work::Extents { len, found: Vec::new() })
}

/// Appends the extents within `len` bytes and joins neighbours of one kind. Returns the bytes
/// taken, and whether those are all: at most `most` extents are kept.
fn gather(extents: &mut Vec<Extent>, found: &[Extent], len: u64, most: usize) -> (u64, bool) {
    let mut reported = 0;
    for extent in found {
        let extent = Extent { len: extent.len.min(len - reported), ..*extent };
        if extent.len == 0 {
            continue;
        }
        let full = extents.len() == most;
        match extents.last_mut() {
            Some(last) if last.kind == extent.kind => last.len += extent.len,
            _ if full => return (reported, false),
            _ => extents.push(extent),
        }
        reported += extent.len;
    }
    if reported == 0 {
        // A disk that says nothing: data is always a right answer.
        let silent = [Extent { len, kind: ExtentKind::Data }];
        return gather(extents, &silent, len, most);
    }
    (reported, true)
}
