//! Operations in flight, and the requests they were cut into.
//!
//! Owns the buffers of every operation until the server has answered all its pieces, or is gone. A
//! cookie names a piece (slot and generation); an unknown cookie is a violation by the server.

use std::collections::VecDeque;
use std::ops::Range;
use std::task::Waker;

use io::{Error, ErrorKind, Extent, ExtentKind, Op, Pool, Result, SharedBuf, Ticket, Work};

use super::Remote;
use crate::nbd::wire::{Fault, Request, Style, allocation, command, command_flag, flags};

/// Requests that the server has not answered; more wait here.
const MAX_IN_FLIGHT: usize = 128;
/// Effect lengths of compact requests: a multiple of every block size.
const MAX_COMPACT_BYTES: u64 = 1 << 31;
/// Zeros are written in pieces of this many bytes where the server has no WRITE_ZEROES.
const ZEROS_BYTES: u64 = 1 << 20;
/// Extents kept of one answer.
const MAX_EXTENTS: usize = 64 << 10;

pub(super) struct Pieces {
    remote: Remote,
    pool: Pool,
    operations: Vec<Option<Operation>>,
    /// Operations with unsent pieces, in order of arrival.
    queue: VecDeque<usize>,
    slots: Vec<Slot>,
    vacant: Vec<u32>,
    zeros: Option<SharedBuf>,
    /// The link, when it waits.
    waker: Option<Waker>,
    /// The disk is dropped: say goodbye when nothing is left.
    leaving: bool,
    /// The link has ended.
    gone: bool,
}

struct Operation {
    ticket: Ticket,
    op: Op,
    /// Bytes cut into pieces so far.
    cut: u64,
    /// Pieces not answered.
    pending: usize,
    /// The last piece is cut.
    whole: bool,
    /// All data is written; a flush replaces the FUA that the server lacks.
    flushing: bool,
    result: Result<()>,
}

struct Slot {
    generation: u32,
    piece: Option<Piece>,
}

struct Piece {
    operation: usize,
    request: Request,
    /// Where the piece begins within the operation.
    at: u64,
    /// Bytes of it.
    len: u64,
    /// Results of a read, in order.
    covered: Vec<Range<u64>>,
    /// Bytes covered by a block status.
    reported: u64,
    failed: bool,
}

/// A finished operation: its ticket and its result.
pub(super) type Finished = (Ticket, Work, Result<()>);

/// A violation by the server.
pub(super) type Wrong = &'static str;

impl Pieces {
    pub(super) fn new(remote: Remote, pool: Pool) -> Pieces {
        Pieces {
            remote,
            pool,
            operations: Vec::new(),
            queue: VecDeque::new(),
            slots: Vec::new(),
            vacant: Vec::new(),
            zeros: None,
            waker: None,
            leaving: false,
            gone: false,
        }
    }

    /// Takes an operation; gives its work back if the link has ended.
    pub(super) fn enqueue(&mut self, op: Op, ticket: Ticket) -> Option<Work> {
        if self.gone {
            return Some(op.work);
        }
        let free = self.operations.iter().position(Option::is_none);
        let index = free.unwrap_or_else(|| {
            self.operations.push(None);
            self.operations.len() - 1
        });
        let (cut, pending, whole, flushing, result) = (0, 0, false, false, Ok(()));
        let operation = Operation { ticket, op, cut, pending, whole, flushing, result };
        self.operations[index] = Some(operation);
        self.queue.push_back(index);
        self.wake();
        None
    }

    pub(super) fn leave(&mut self) {
        self.leaving = true;
        self.wake();
    }

    fn wake(&mut self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    pub(super) fn wait(&mut self, waker: &Waker) {
        self.waker = Some(waker.clone());
    }

    /// True if it is time to say goodbye.
    pub(super) fn is_done(&self) -> bool {
        self.leaving && self.operations.iter().all(Option::is_none)
    }

    /// The next request to send; its payload is put into `payload`.
    pub(super) fn cut(&mut self, payload: &mut Vec<SharedBuf>) -> Option<Request> {
        payload.clear();
        if self.slots.len() - self.vacant.len() >= MAX_IN_FLIGHT {
            return None;
        }
        let index = *self.queue.front()?;
        let remote = self.remote;
        let operation = self.operations[index].as_mut().expect("queued until it is split");
        let (at, total) = (operation.cut, operation.op.work.len());
        let (command, own, most) = match operation.flushing {
            true => (command::FLUSH, 0, 0),
            false => command_of(&operation.op, &remote, at > 0),
        };
        let len = (total - at).min(most);
        match &operation.op.work {
            Work::Write(bufs) if len > 0 => parts_of(bufs, at, len, payload),
            Work::Zero { .. } if command == command::WRITE => {
                let zeros = || self.pool.take_zeroed(ZEROS_BYTES as usize).freeze();
                payload.push(self.zeros.get_or_insert_with(zeros).slice(0..len as usize));
            }
            _ => {}
        }
        operation.cut += len;
        operation.pending += 1;
        // A status may end anywhere: another operation asks for the rest.
        let status = command == command::BLOCK_STATUS;
        operation.whole = operation.cut == total || status;
        if operation.whole {
            self.queue.pop_front();
        }
        let fua = operation.op.fua && remote.has(flags::SEND_FUA) && !operation.flushing;
        let fua = if fua { command_flag::FUA } else { 0 };
        let sized = remote.style == Style::Extended && command == command::WRITE;
        let sized = if sized { command_flag::PAYLOAD_LENGTH } else { 0 };
        let offset = if command == command::FLUSH { 0 } else { operation.op.offset + at };
        let request = Request { flags: own | fua | sized, command, cookie: 0, offset, length: len };
        Some(self.register(index, request, at, len))
    }

    fn register(&mut self, operation: usize, request: Request, at: u64, len: u64) -> Request {
        let slot = self.vacant.pop().unwrap_or_else(|| {
            self.slots.push(Slot { generation: 0, piece: None });
            self.slots.len() as u32 - 1
        });
        let generation = self.slots[slot as usize].generation;
        let cookie = u64::from(generation) << 32 | u64::from(slot);
        let request = Request { cookie, ..request };
        let (covered, reported, failed) = (Vec::new(), 0, false);
        let piece = Piece { operation, request, at, len, covered, reported, failed };
        self.slots[slot as usize].piece = Some(piece);
        request
    }

    fn piece(&mut self, cookie: u64) -> std::result::Result<&mut Piece, Wrong> {
        let slot = self.slots.get_mut(cookie as u32 as usize);
        let slot = slot.filter(|slot| u64::from(slot.generation) == cookie >> 32);
        slot.and_then(|slot| slot.piece.as_mut()).ok_or("an answer to no request")
    }

    /// The request that a cookie names, and how many bytes it is about.
    pub(super) fn request(&mut self, cookie: u64) -> std::result::Result<(Request, u64), Wrong> {
        self.piece(cookie).map(|piece| (piece.request, piece.len))
    }

    /// Says that `len` bytes at `offset` of the export come now, as part of an answer.
    pub(super) fn cover(
        &mut self,
        cookie: u64,
        offset: u64,
        len: u64,
    ) -> std::result::Result<(), Wrong> {
        let piece = self.piece(cookie)?;
        if piece.request.command != command::READ {
            return Err("data for a request that is no read");
        }
        let start = offset.checked_sub(piece.request.offset).ok_or("data before the request")?;
        let end = start.checked_add(len).filter(|end| *end <= piece.len);
        let range = start..end.ok_or("data beyond the request")?;
        if len == 0 || piece.covered.iter().any(|it| it.start < range.end && range.start < it.end) {
            return Err("data that is empty or overlaps");
        }
        piece.covered.push(range);
        Ok(())
    }

    /// Where a covered byte of the export belongs, and the bytes after it in the same buffer.
    pub(super) fn target(&mut self, cookie: u64, offset: u64) -> &mut [u8] {
        let Ok(piece) = self.piece(cookie) else { return &mut [] };
        let mut at = (piece.at + (offset - piece.request.offset)) as usize;
        let operation = piece.operation;
        let Some(operation) = self.operations[operation].as_mut() else { return &mut [] };
        let Work::Read(bufs) = &mut operation.op.work else { return &mut [] };
        for buf in bufs {
            if at < buf.len() {
                return &mut buf[at..];
            }
            at -= buf.len();
        }
        &mut []
    }

    /// One extent of a block status.
    pub(super) fn extent(
        &mut self,
        cookie: u64,
        len: u64,
        status: u64,
    ) -> std::result::Result<(), Wrong> {
        let piece = self.piece(cookie)?;
        if piece.request.command != command::BLOCK_STATUS || len == 0 {
            return Err("an unrequested or empty block status");
        }
        // The last extent may go on beyond the request.
        let len = len.min(piece.len - piece.reported);
        piece.reported += len;
        let operation = piece.operation;
        let Some(operation) = self.operations[operation].as_mut() else { return Ok(()) };
        let Work::Extents { found, .. } = &mut operation.op.work else { return Ok(()) };
        let zero = status & u64::from(allocation::ZERO) != 0;
        let hole = status & u64::from(allocation::HOLE) != 0;
        let kind = match (zero, hole) {
            (true, true) => ExtentKind::Hole,
            (true, false) => ExtentKind::Zero,
            (false, _) => ExtentKind::Data,
        };
        let full = found.len() == MAX_EXTENTS;
        match found.last_mut() {
            _ if len == 0 => {}
            Some(last) if last.kind == kind => last.len += len,
            _ if full => {
                // The rest is dropped; later extents must not be appended behind the gap.
                let piece = self.piece(cookie)?;
                piece.reported = piece.len;
            }
            _ => found.push(Extent { len, kind }),
        }
        Ok(())
    }

    /// The server says that a piece failed.
    pub(super) fn fail(&mut self, cookie: u64, fault: Fault) -> std::result::Result<(), Wrong> {
        let piece = self.piece(cookie)?;
        piece.failed = true;
        let (offset, len, operation) = (piece.request.offset, piece.len, piece.operation);
        let kind = match fault {
            Fault::Io | Fault::NoMemory => ErrorKind::Medium { offset, len },
            Fault::NoSpace => ErrorKind::NoSpace,
            Fault::Shutdown => ErrorKind::Gone,
            Fault::Permission | Fault::Invalid | Fault::Overflow | Fault::NotFast => {
                ErrorKind::Refused
            }
        };
        if let Some(operation) = self.operations[operation].as_mut()
            && operation.result.is_ok()
        {
            operation.result = Err(Error::new(kind, format!("remote disk: {fault:?}")));
        }
        Ok(())
    }

    /// The last answer to a piece has come. Gives the operation if that was all of it.
    pub(super) fn end(&mut self, cookie: u64) -> std::result::Result<Option<Finished>, Wrong> {
        let piece = self.piece(cookie)?;
        let whole: u64 = piece.covered.iter().map(|range| range.end - range.start).sum();
        let complete = match piece.request.command {
            command::READ => whole == piece.len,
            command::BLOCK_STATUS => piece.reported > 0,
            _ => true,
        };
        if !complete && !piece.failed {
            return Err("an answer that is not complete");
        }
        let index = piece.operation;
        let slot = cookie as u32;
        let entry = &mut self.slots[slot as usize];
        entry.generation = entry.generation.wrapping_add(1);
        entry.piece = None;
        self.vacant.push(slot);
        let remote = self.remote;
        let operation = self.operations[index].as_mut().ok_or("a piece of nothing")?;
        operation.pending -= 1;
        if operation.result.is_err() && !operation.whole {
            // A partly failed operation sends no further pieces.
            operation.whole = true;
            self.queue.retain(|queued| *queued != index);
        }
        if operation.pending > 0 || !operation.whole {
            return Ok(None);
        }
        let durable = !operation.op.fua || remote.has(flags::SEND_FUA) || operation.flushing;
        if !durable && operation.op.work.is_write() && operation.result.is_ok() {
            (operation.flushing, operation.whole) = (true, false);
            self.queue.push_back(index);
            return Ok(None);
        }
        let operation = self.operations[index].take();
        Ok(operation.map(|operation| (operation.ticket, operation.op.work, operation.result)))
    }

    /// The link has ended: everything fails, and so does whatever comes later.
    pub(super) fn give_up(&mut self) -> Vec<Finished> {
        self.gone = true;
        self.queue.clear();
        self.slots.clear();
        self.vacant.clear();
        let operations = std::mem::take(&mut self.operations).into_iter().flatten();
        let gone = || Error::new(ErrorKind::Gone, "remote disk: the connection has ended");
        operations.map(|one| (one.ticket, one.op.work, Err(gone()))).collect()
    }
}

/// The command that does the operation, its flags, and the most bytes of one request. `later` says
/// that a part is done already.
fn command_of(op: &Op, remote: &Remote, later: bool) -> (u16, u16, u64) {
    let block = u64::from(remote.limits().logical_block);
    let payload = u64::from(remote.maximum).min(32 << 20) & !(block - 1);
    let effect = if remote.style == Style::Extended { u64::MAX } else { MAX_COMPACT_BYTES };
    match &op.work {
        Work::Read(_) => (command::READ, 0, payload),
        Work::Write(_) => (command::WRITE, 0, payload),
        Work::Flush => (command::FLUSH, 0, 0),
        Work::Zero { .. } if !remote.has(flags::SEND_WRITE_ZEROES) => {
            (command::WRITE, 0, payload.min(ZEROS_BYTES))
        }
        Work::Zero { unmap, fast, .. } => {
            let no_hole = if *unmap { 0 } else { command_flag::NO_HOLE };
            let fast = if *fast && !later { command_flag::FAST_ZERO } else { 0 };
            (command::WRITE_ZEROES, no_hole | fast, effect)
        }
        Work::Discard { .. } => (command::TRIM, 0, effect),
        Work::Extents { .. } => (command::BLOCK_STATUS, 0, effect),
    }
}

/// Appends slices of the buffers that hold `len` bytes from `at` on.
fn parts_of(bufs: &[SharedBuf], at: u64, len: u64, into: &mut Vec<SharedBuf>) {
    let (mut skip, mut left) = (at as usize, len as usize);
    for buf in bufs {
        let start = skip.min(buf.len());
        let end = (start + left).min(buf.len());
        skip -= start;
        left -= end - start;
        if start < end {
            into.push(buf.slice(start..end));
        }
    }
}
