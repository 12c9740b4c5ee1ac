//! The connection of a remote disk: requests out, answers in.
//!
//! One future that the host drives. Owns the stream and the framing; `pieces` interprets answers.
//! Data is read straight into the buffers of its operation.

use std::future::Future;
use std::io::ErrorKind;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use io::{Done, SharedBuf, Stream};

use super::pieces::{Finished, Wrong};
use super::{Remote, Shared};
use crate::nbd::outbox::{Load, Outbox};
use crate::nbd::server::Ending;
use crate::nbd::wire::reply::{Form, ReplyHeader};
use crate::nbd::wire::{Fault, Reader, Request, Style, chunk, command};

/// Room for answers not taken apart yet.
const INBOX_BYTES: usize = 64 << 10;
/// Data that lacks at least this many bytes is read straight into its buffer.
const DIRECT_BYTES: u64 = 16 << 10;
/// Longest error or hole chunk: numbers, and a message.
const MAX_SMALL_BYTES: u64 = 4096 + 64;
/// Turns before others get theirs.
const TURNS: usize = 16;

/// Carries the requests of a [`RemoteDisk`](super::RemoteDisk); drive it until it ends.
#[must_use = "a remote disk answers only while its link is driven"]
pub struct Link {
    stream: Box<dyn Stream>,
    shared: Rc<Shared>,
    remote: Remote,
    outbox: Outbox<SharedBuf>,
    payload: Vec<SharedBuf>,
    inbox: Box<[u8]>,
    start: usize,
    end: usize,
    expect: Expect,
    leaving: bool,
}

/// The meaning of the next bytes.
#[derive(Clone, Copy)]
enum Expect {
    Header,
    /// Where the data of a read belongs.
    Place {
        cookie: u64,
        left: u64,
        done: bool,
    },
    /// Data of a read, for this offset of the export.
    Data {
        cookie: u64,
        offset: u64,
        left: u64,
        done: bool,
    },
    /// A chunk that is looked at as a whole.
    Small {
        cookie: u64,
        kind: u16,
        length: u64,
        done: bool,
    },
    /// Which context a block status is about.
    Context {
        cookie: u64,
        left: u64,
        done: bool,
    },
    /// Extents of a block status.
    Extents {
        cookie: u64,
        left: u64,
        done: bool,
    },
}

impl Link {
    pub(super) fn new(stream: Box<dyn Stream>, shared: Rc<Shared>, remote: Remote) -> Link {
        Link {
            stream,
            shared,
            remote,
            outbox: Outbox::default(),
            payload: Vec::new(),
            inbox: vec![0; INBOX_BYTES].into_boxed_slice(),
            start: 0,
            end: 0,
            expect: Expect::Header,
            leaving: false,
        }
    }

    fn turn(&mut self, cx: &mut Context<'_>) -> Poll<Result<bool, Ending>> {
        self.shared.pieces.borrow_mut().wait(cx.waker());
        self.write_requests();
        let mut progress = false;
        if !self.outbox.is_empty()
            && let Poll::Ready(sent) = self.outbox.poll_send(cx, &*self.stream)
        {
            sent?;
            progress = true;
        }
        if let Poll::Ready(read) = self.poll_read(cx) {
            if read? == 0 {
                return Poll::Ready(Err(Ending::Vanished(ErrorKind::UnexpectedEof.into())));
            }
            progress = true;
            self.take_answers().map_err(Ending::Misbehaved)?;
        }
        if self.leaving && self.outbox.is_empty() {
            ready!(self.stream.poll_close(cx))?;
            return Poll::Ready(Err(Ending::Finished));
        }
        Poll::Ready(Ok(progress))
    }

    fn write_requests(&mut self) {
        let mut pieces = self.shared.pieces.borrow_mut();
        let style = self.remote.style;
        while let Some(request) = pieces.cut(&mut self.payload) {
            let mut parts = self.payload.drain(..);
            self.outbox.push(Load::default(), parts.next(), |out| request.encode(style, out));
            parts.for_each(|part| self.outbox.push(Load::default(), Some(part), |_| {}));
        }
        if pieces.is_done() && !self.leaving {
            self.leaving = true;
            let (flags, command, cookie) = (0, command::DISCONNECT, 0);
            let goodbye = Request { flags, command, cookie, offset: 0, length: 0 };
            self.outbox.push(Load::default(), None, |out| goodbye.encode(style, out));
        }
    }

    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<std::io::Result<usize>> {
        if let Expect::Data { cookie, offset, left, .. } = &mut self.expect
            && self.start == self.end
            && *left >= DIRECT_BYTES
        {
            let mut pieces = self.shared.pieces.borrow_mut();
            let target = pieces.target(*cookie, *offset);
            let part = (*left).min(target.len() as u64) as usize;
            let read = ready!(self.stream.poll_read(cx, &mut target[..part]))?.min(part);
            *offset += read as u64;
            *left -= read as u64;
            return Poll::Ready(Ok(read));
        }
        if self.start > 0 {
            self.inbox.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        let room = &mut self.inbox[self.end..];
        let read = ready!(self.stream.poll_read(cx, room))?.min(room.len());
        self.end += read;
        Poll::Ready(Ok(read))
    }

    fn take(&mut self, count: usize) -> &[u8] {
        self.start += count;
        &self.inbox[self.start - count..self.start]
    }

    fn take_answers(&mut self) -> Result<(), Wrong> {
        while self.take_answer()? {}
        Ok(())
    }

    /// Takes the next thing out of the inbox; false if it is not all there.
    fn take_answer(&mut self) -> Result<bool, Wrong> {
        let there = self.end - self.start;
        let extended = self.remote.style == Style::Extended;
        match self.expect {
            Expect::Header => {
                let bytes = &self.inbox[self.start..self.end];
                let decoded = ReplyHeader::decode(bytes, self.remote.style);
                let Some((header, length)) = decoded.map_err(|_| "a reply without its magic")?
                else {
                    return Ok(false);
                };
                self.start += length;
                self.take_header(header)?;
            }
            Expect::Data { cookie, offset, left, done } => {
                let part = left.min(there as u64);
                self.copy_data(cookie, offset, part as usize);
                let (offset, left) = (offset + part, left - part);
                self.expect = Expect::Data { cookie, offset, left, done };
                if left > 0 {
                    return Ok(false);
                }
                self.end_chunk(cookie, done)?;
            }
            Expect::Small { cookie, kind, length, done } => {
                if (there as u64) < length {
                    return Ok(false);
                }
                self.take_small(cookie, kind, length as usize)?;
                self.end_chunk(cookie, done)?;
            }
            Expect::Place { cookie, left, done } => {
                if there < 8 {
                    return Ok(false);
                }
                let offset = Reader::new(self.take(8)).u64().map_err(|_| "half an offset")?;
                self.shared.pieces.borrow_mut().cover(cookie, offset, left)?;
                self.expect = Expect::Data { cookie, offset, left, done };
            }
            Expect::Context { cookie, left, done } => {
                let head = if extended { 8 } else { 4 };
                if there < head {
                    return Ok(false);
                }
                let id = Reader::new(self.take(head)).u32().map_err(|_| "half a context")?;
                if Some(id) != self.remote.allocation {
                    return Err("a context that was not chosen");
                }
                self.expect = Expect::Extents { cookie, left, done };
            }
            Expect::Extents { cookie, left: 0, done } => self.end_chunk(cookie, done)?,
            Expect::Extents { cookie, left, done } => {
                let size = if extended { 16 } else { 8 };
                if there < size {
                    return Ok(false);
                }
                self.take_extent(cookie, size)?;
                self.expect = Expect::Extents { cookie, left: left - size as u64, done };
            }
        }
        Ok(true)
    }

    /// Takes one extent: two numbers that make up `size` bytes.
    fn take_extent(&mut self, cookie: u64, size: usize) -> Result<(), Wrong> {
        let mut reader = Reader::new(self.take(size));
        let mut number = || match size {
            16 => reader.u64(),
            _ => reader.u32().map(u64::from),
        };
        let both = number().and_then(|len| Ok((len, number()?)));
        let (len, status) = both.map_err(|_| "half an extent")?;
        self.shared.pieces.borrow_mut().extent(cookie, len, status)
    }

    fn copy_data(&mut self, cookie: u64, offset: u64, count: usize) {
        let mut pieces = self.shared.pieces.borrow_mut();
        let mut bytes = &self.inbox[self.start..self.start + count];
        let mut at = offset;
        while !bytes.is_empty() {
            let target = pieces.target(cookie, at);
            let part = bytes.len().min(target.len());
            if part == 0 {
                // Covered ranges lie within the operation's buffers.
                break;
            }
            target[..part].copy_from_slice(&bytes[..part]);
            bytes = &bytes[part..];
            at += part as u64;
        }
        self.start += count;
    }

    fn take_header(&mut self, header: ReplyHeader) -> Result<(), Wrong> {
        let cookie = header.cookie;
        let mut pieces = self.shared.pieces.borrow_mut();
        let (request, len) = pieces.request(cookie)?;
        self.expect = match header.form {
            Form::Simple { error: 0 } if request.command == command::READ => {
                if self.remote.style != Style::Simple {
                    return Err("a simple reply to a read");
                }
                pieces.cover(cookie, request.offset, len)?;
                Expect::Data { cookie, offset: request.offset, left: len, done: true }
            }
            Form::Simple { error } => {
                if error != 0 {
                    pieces.fail(cookie, Fault::from_wire(error))?;
                }
                drop(pieces);
                return self.end_chunk(cookie, true);
            }
            Form::Chunk { done, kind, length } => match kind {
                chunk::OFFSET_DATA if length > 8 && length - 8 <= len => {
                    Expect::Place { cookie, left: length - 8, done }
                }
                chunk::BLOCK_STATUS | chunk::BLOCK_STATUS_EXTENDED => {
                    let extended = self.remote.style == Style::Extended;
                    let (head, size) = if extended { (8, 16) } else { (4, 8) };
                    let right = (kind == chunk::BLOCK_STATUS_EXTENDED) == extended;
                    let extents = length.checked_sub(head).filter(|rest| rest % size == 0);
                    if !right || extents.is_none_or(|rest| rest == 0) {
                        return Err("a malformed block status");
                    }
                    Expect::Context { cookie, left: length - head, done }
                }
                chunk::NONE if length == 0 && done => Expect::Small { cookie, kind, length, done },
                chunk::OFFSET_HOLE if length == 12 => Expect::Small { cookie, kind, length, done },
                _ if kind & chunk::ERROR_BIT != 0 && (6..=MAX_SMALL_BYTES).contains(&length) => {
                    Expect::Small { cookie, kind, length, done }
                }
                _ => return Err("a chunk that makes no sense"),
            },
        };
        Ok(())
    }

    fn take_small(&mut self, cookie: u64, kind: u16, length: usize) -> Result<(), Wrong> {
        let short = |_| "a chunk that is too short";
        let shared = Rc::clone(&self.shared);
        let mut pieces = shared.pieces.borrow_mut();
        let mut reader = Reader::new(self.take(length));
        match kind {
            chunk::OFFSET_HOLE => {
                let mut offset = reader.u64().map_err(short)?;
                let len = u64::from(reader.u32().map_err(short)?);
                pieces.cover(cookie, offset, len)?;
                let end = offset + len;
                while offset < end {
                    let target = pieces.target(cookie, offset);
                    let part = target.len().min((end - offset) as usize);
                    target[..part].fill(0);
                    offset += part.max(1) as u64;
                }
                Ok(())
            }
            _ if kind & chunk::ERROR_BIT != 0 => {
                let number = reader.u32().map_err(short)?;
                pieces.fail(cookie, Fault::from_wire(number))
            }
            _ => Ok(()),
        }
    }

    /// A chunk is over; after the last one, so is its request.
    fn end_chunk(&mut self, cookie: u64, done: bool) -> Result<(), Wrong> {
        self.expect = Expect::Header;
        if done {
            let finished = self.shared.pieces.borrow_mut().end(cookie)?;
            if let Some(finished) = finished {
                self.finish(finished);
            }
        }
        Ok(())
    }

    fn finish(&self, (ticket, work, result): Finished) {
        self.shared.answers.finish(ticket, Done { work, result });
    }
}

impl Future for Link {
    type Output = Ending;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Ending> {
        for _ in 0..TURNS {
            match ready!(self.turn(cx)) {
                Ok(true) => {}
                Ok(false) => return Poll::Pending,
                Err(ending) => {
                    let finished = self.shared.pieces.borrow_mut().give_up();
                    finished.into_iter().for_each(|one| self.finish(one));
                    return Poll::Ready(ending);
                }
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        let finished = self.shared.pieces.borrow_mut().give_up();
        finished.into_iter().for_each(|one| self.finish(one));
    }
}
