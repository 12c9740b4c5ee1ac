//! Outgoing messages, and the memory that they hold.
//!
//! ```text
//!    heads    | h h h h | h | h h h |          headers and small payloads, one run of bytes
//!    entries     4 heads + payload, 1 head + payload, 3 heads
//!    one write:  heads, payload, head, payload, heads         no payload is copied
//! ```
//!
//! Owns the order of bytes on the wire and the payload buffers until they are sent. An answer
//! counts against its connection's limits until its last byte is sent: that stops a client that
//! sends requests and never reads.

use std::collections::VecDeque;
use std::io::{ErrorKind, IoSlice, Result};
use std::ops::{AddAssign, Deref, SubAssign};
use std::task::{Context, Poll, ready};

use io::Stream;

/// Slices in one write; well below the system limit (1024).
const SLICES: usize = 128;
/// At this many sent bytes the buffer's front is cut off.
const COMPACT_BYTES: usize = 64 << 10;

/// Memory held by requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Load {
    pub(super) requests: usize,
    pub(super) bytes: u64,
}

impl AddAssign for Load {
    fn add_assign(&mut self, other: Load) {
        self.requests += other.requests;
        self.bytes += other.bytes;
    }
}

impl SubAssign for Load {
    fn sub_assign(&mut self, other: Load) {
        self.requests -= other.requests;
        self.bytes -= other.bytes;
    }
}

/// Messages on their way out: a server's answers with [`Buf`](io::Buf)s, a client's requests with
/// [`SharedBuf`](io::SharedBuf)s.
pub(super) struct Outbox<P> {
    heads: Vec<u8>,
    /// Bytes of `heads` that are sent.
    sent: usize,
    /// Bytes sent since the beginning, payloads included.
    total: u64,
    entries: VecDeque<Entry<P>>,
}

/// Some of `heads`, then perhaps a payload. `head` shrinks and `payload_sent` grows on the way.
struct Entry<P> {
    head: usize,
    payload: Option<P>,
    payload_sent: usize,
    load: Load,
}

impl<P> Default for Outbox<P> {
    fn default() -> Outbox<P> {
        Outbox { heads: Vec::new(), sent: 0, total: 0, entries: VecDeque::new() }
    }
}

impl<P: Deref<Target = [u8]>> Outbox<P> {
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Bytes sent since the beginning.
    pub(super) fn total(&self) -> u64 {
        self.total
    }

    /// True if at least this many bytes of payload are unsent.
    pub(super) fn holds_back(&self, bytes: u64) -> bool {
        let mut left = bytes;
        self.entries.iter().any(|entry| {
            let payload = entry.payload.as_ref().map_or(0, |payload| payload.len());
            left = left.saturating_sub((payload - entry.payload_sent) as u64);
            left == 0
        })
    }

    /// Drops everything after the reader has gone. Returns the released load.
    pub(super) fn abandon(&mut self) -> Load {
        let mut load = Load::default();
        self.entries.drain(..).for_each(|entry| load += entry.load);
        self.heads.clear();
        self.sent = 0;
        load
    }

    /// Appends an answer: the output of `write`, then `payload`. Holds `load` until it is sent.
    pub(super) fn push(
        &mut self,
        load: Load,
        payload: Option<P>,
        write: impl FnOnce(&mut Vec<u8>),
    ) {
        let before = self.heads.len();
        write(&mut self.heads);
        let head = self.heads.len() - before;
        match self.entries.back_mut() {
            Some(last) if last.payload.is_none() => {
                last.head += head;
                last.payload = payload;
                last.load += load;
            }
            _ => self.entries.push_back(Entry { head, payload, payload_sent: 0, load }),
        }
    }

    /// Sends as much as the stream accepts in one write; returns the released load.
    ///
    /// # Errors
    /// Whatever the stream says.
    pub(super) fn poll_send(
        &mut self,
        cx: &mut Context<'_>,
        stream: &dyn Stream,
    ) -> Poll<Result<Load>> {
        let mut slices = [IoSlice::new(&[]); SLICES];
        let mut count = 0;
        let mut heads = &self.heads[self.sent..];
        for entry in self.entries.iter().take(SLICES / 2) {
            let (head, rest) = heads.split_at(entry.head);
            heads = rest;
            let payload = entry.payload.as_deref().unwrap_or_default();
            let payload = &payload[entry.payload_sent..];
            for part in [head, payload] {
                if !part.is_empty() {
                    slices[count] = IoSlice::new(part);
                    count += 1;
                }
            }
        }
        let sent = ready!(stream.poll_write(cx, &slices[..count]))?;
        if sent == 0 {
            return Poll::Ready(Err(ErrorKind::WriteZero.into()));
        }
        self.total += sent as u64;
        Poll::Ready(Ok(self.advance(sent)))
    }

    fn advance(&mut self, mut sent: usize) -> Load {
        let mut freed = Load::default();
        while let Some(entry) = self.entries.front_mut() {
            let head = sent.min(entry.head);
            entry.head -= head;
            self.sent += head;
            sent -= head;
            if entry.head > 0 {
                break;
            }
            if let Some(payload) = &entry.payload {
                let part = sent.min(payload.len() - entry.payload_sent);
                entry.payload_sent += part;
                sent -= part;
                if entry.payload_sent < payload.len() {
                    break;
                }
            }
            freed += entry.load;
            self.entries.pop_front();
        }
        if self.entries.is_empty() {
            self.heads.clear();
            self.sent = 0;
        } else if self.sent >= COMPACT_BYTES {
            self.heads.drain(..self.sent);
            self.sent = 0;
        }
        freed
    }
}
