//! Bytes from the client, cut into requests and payloads.
//!
//! Requests are parsed out of one receive buffer, many to a read. A payload begins in the receive
//! buffer and is copied from there; a long remainder is read straight into its own buffer. That
//! buffer grows with the payload: announced bytes alone allocate nothing.
//!
//! Owns the framing: after every request, also a refused one, the next header is found where it
//! belongs.

use std::io::Result;
use std::task::{Context, Poll, Waker};

use io::{Buf, Clock, Cost, Pool, Stream};

use crate::nbd::limits::{MAX_DRAIN, MAX_EXTENTS, MAX_PAYLOAD, MAX_QUERIES, PIECE_BYTES};
use crate::nbd::memory::Account;
use crate::nbd::outbox::Load;
use crate::nbd::wire::{Fault, Request, Style, command, command_flag};

/// Room for bytes not taken apart yet.
const INBOX_BYTES: usize = 64 << 10;
/// A payload that lacks at least this many bytes is read straight into its buffer.
const DIRECT_BYTES: usize = 16 << 10;
/// Memory for the answer to a BLOCK_STATUS.
const STATUS_BYTES: u64 = (MAX_EXTENTS * size_of::<io::Extent>()) as u64;
/// Longest payload of a BLOCK_STATUS: a length, and the contexts asked for.
const MAX_STATUS_PAYLOAD: u64 = 8 + 4 * MAX_QUERIES as u64;

pub(super) struct Inbox {
    style: Style,
    bytes: Box<[u8]>,
    /// Bytes not taken yet lie in `start..end`.
    start: usize,
    end: usize,
    expect: Expect,
    /// A whole header has arrived and waits for room within the limits.
    held_up: bool,
    /// Headers taken since the beginning.
    begun: u64,
    pool: Pool,
}

/// The payload of a request: usually one buffer, several if it is long.
pub(super) struct Payload {
    pub(super) first: Option<Buf>,
    pub(super) rest: Vec<Buf>,
    length: usize,
    /// Bytes of all buffers together, and how many of them have come.
    taken: usize,
    filled: usize,
}

impl Payload {
    fn new(length: u64) -> Payload {
        Payload { first: None, rest: Vec::new(), length: length as usize, taken: 0, filled: 0 }
    }

    /// The payload as one run of bytes, if it is short.
    pub(super) fn bytes(&self) -> &[u8] {
        self.first.as_deref().unwrap_or_default()
    }

    fn missing(&self) -> usize {
        self.length - self.filled
    }

    /// Room for the next bytes; takes a new piece if the last one is full.
    fn room(&mut self, pool: &Pool) -> &mut [u8] {
        if self.filled == self.taken && self.missing() > 0 {
            let piece = pool.take(self.missing().min(PIECE_BYTES));
            self.taken += piece.len();
            match self.first {
                None => self.first = Some(piece),
                Some(_) => self.rest.push(piece),
            }
        }
        let last = self.rest.last_mut().or(self.first.as_mut());
        let free = self.taken - self.filled;
        last.map_or(&mut [], |last| {
            let used = last.len() - free;
            &mut last[used..]
        })
    }

    /// Copies the available part from `from`; returns its length.
    fn fill(&mut self, mut from: &[u8], pool: &Pool) -> usize {
        let before = self.filled;
        while !from.is_empty() && self.missing() > 0 {
            let room = self.room(pool);
            let (part, rest) = from.split_at(from.len().min(room.len()));
            room[..part.len()].copy_from_slice(part);
            self.filled += part.len();
            from = rest;
        }
        self.filled - before
    }
}

/// The meaning of the next bytes.
enum Expect {
    Header,
    Payload {
        request: Request,
        payload: Payload,
    },
    /// Bytes of a refused payload, then its refusal.
    Skip {
        left: u64,
        request: Request,
        fault: Fault,
        message: &'static str,
    },
}

/// An item found in the inbox.
pub(super) enum Item {
    /// No whole request; or no room for it.
    Nothing,
    /// A whole request.
    Request(Request, Option<Payload>),
    /// A request whose payload was dropped; it holds no memory.
    Refused(Request, Fault, &'static str),
    /// Bytes that make no sense: the framing is lost.
    Garbage(&'static str),
}

impl Inbox {
    /// An inbox for requests of this style; payloads come from `pool`.
    pub(super) fn new(style: Style, pool: Pool) -> Inbox {
        let bytes = vec![0; INBOX_BYTES].into_boxed_slice();
        let expect = Expect::Header;
        Inbox { style, bytes, start: 0, end: 0, expect, held_up: false, begun: 0, pool }
    }

    /// The received bytes of a request with an incomplete payload, and the number of that request.
    pub(super) fn half_sent(&self) -> Option<(u64, u64)> {
        match &self.expect {
            Expect::Header => None,
            Expect::Payload { payload, .. } => Some((self.begun, payload.filled as u64)),
            Expect::Skip { left, request, .. } => Some((self.begun, request.length - left)),
        }
    }

    /// False while a request waits for room: then reading on would only fill memory; and while
    /// there is no room for bytes.
    pub(super) fn wants_bytes(&self) -> bool {
        !self.held_up && self.end - self.start < self.bytes.len()
    }

    /// Reads once.
    pub(super) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        stream: &dyn Stream,
    ) -> Poll<Result<usize>> {
        if let Expect::Payload { payload, .. } = &mut self.expect
            && self.start == self.end
            // Not before the first byte of it has come.
            && payload.filled > 0
            && payload.missing() >= DIRECT_BYTES
        {
            let read = std::task::ready!(stream.poll_read(cx, payload.room(&self.pool)))?;
            payload.filled += read;
            return Poll::Ready(Ok(read));
        }
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        } else if self.end == self.bytes.len() {
            self.bytes.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        let read = std::task::ready!(stream.poll_read(cx, &mut self.bytes[self.end..]))?;
        self.end += read;
        Poll::Ready(Ok(read))
    }

    /// Takes the next thing out. A request is begun only if `account` admits it, which wakes
    /// `waker` if that waits for others.
    pub(super) fn take(&mut self, account: &mut Account, waker: &Waker, clock: &dyn Clock) -> Item {
        if matches!(self.expect, Expect::Header)
            && let Some(item) = self.take_header(account, waker)
        {
            return item;
        }
        match &mut self.expect {
            Expect::Header => Item::Nothing,
            Expect::Payload { request, payload } => {
                let part = payload.fill(&self.bytes[self.start..self.end], &self.pool);
                clock.charge(Cost::Copy, part as u64);
                self.start += part;
                if payload.missing() > 0 {
                    return Item::Nothing;
                }
                let request = *request;
                match std::mem::replace(&mut self.expect, Expect::Header) {
                    Expect::Payload { payload, .. } => Item::Request(request, Some(payload)),
                    _ => Item::Nothing,
                }
            }
            Expect::Skip { left, request, fault, message } => {
                let part = (*left).min((self.end - self.start) as u64);
                *left -= part;
                self.start += part as usize;
                if *left > 0 {
                    return Item::Nothing;
                }
                let item = Item::Refused(*request, *fault, message);
                self.expect = Expect::Header;
                item
            }
        }
    }

    /// Takes a header; returns an immediate result, if any.
    fn take_header(&mut self, account: &mut Account, waker: &Waker) -> Option<Item> {
        let bytes = &self.bytes[self.start..self.end];
        let header = Request::header_bytes(self.style);
        if bytes.len() < header {
            return Some(Item::Nothing);
        }
        let Ok(request) = Request::decode(bytes, self.style) else {
            return Some(Item::Garbage("a request without its magic number"));
        };
        let wanted = self.bytes_of(&request);
        self.held_up = !account.admit(wanted, waker);
        if self.held_up {
            return Some(Item::Nothing);
        }
        self.start += header;
        self.begun += 1;
        if !self.has_payload(&request) {
            return Some(Item::Request(request, None));
        }
        let (most, message) = match request.command {
            command::WRITE => (u64::from(MAX_PAYLOAD), "more bytes than the maximum payload"),
            command::BLOCK_STATUS => (MAX_STATUS_PAYLOAD, "more contexts than there can be"),
            _ => (0, "this command takes no payload"),
        };
        if request.length > MAX_DRAIN {
            return Some(Item::Garbage("a payload of more bytes than are read"));
        }
        self.expect = if request.length > most {
            account.release(Load { requests: 0, bytes: wanted });
            Expect::Skip { left: request.length, request, fault: Fault::Invalid, message }
        } else {
            Expect::Payload { request, payload: Payload::new(request.length) }
        };
        None
    }

    /// With extended headers a flag announces a payload. A write has one even without the flag:
    /// QEMU's client (seen in 10.0) omits it, and its server accepts that.
    fn has_payload(&self, request: &Request) -> bool {
        let flagged = request.flags & command_flag::PAYLOAD_LENGTH != 0;
        request.command == command::WRITE || self.style == Style::Extended && flagged
    }

    /// Memory held by a request.
    pub(super) fn bytes_of(&self, request: &Request) -> u64 {
        match request.command {
            command::READ if request.length <= u64::from(MAX_PAYLOAD) => request.length,
            command::WRITE => request.length.min(u64::from(MAX_PAYLOAD)),
            command::BLOCK_STATUS => STATUS_BYTES,
            _ => 0,
        }
    }
}

#[cfg(test)]
impl Inbox {
    /// True if nothing is left that `take` could take: no whole header that the limits admit, and
    /// no byte of a payload.
    pub(super) fn is_taken_apart(&self) -> bool {
        let left = self.end - self.start;
        match self.expect {
            Expect::Header => self.held_up || left < Request::header_bytes(self.style),
            Expect::Payload { .. } | Expect::Skip { .. } => left == 0,
        }
    }

    pub(super) fn is_between_requests(&self) -> bool {
        matches!(self.expect, Expect::Header)
    }
}
