//! Frames over a stream, both ways.
//!
//! Reading allocates what has arrived, not what a head promises. Writing never waits: frames queue
//! up to `MOST_QUEUED`, then the connection ends. The protocol sends again whatever was lost.
//!
//! Invariant: after a damaged frame nothing more is read from the connection.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::io::{Error, ErrorKind, Result};
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

use cluster::wire::{self, Frame};
use io::{Signal, Stream};

use crate::transfer::send;

/// Most bytes that wait to be written.
const MOST_QUEUED: usize = 64 << 20;
/// Most bytes of the first frame.
const FIRST_BYTES: usize = 256;
/// Least bytes of room for a read.
const READ_BYTES: usize = 64 << 10;

/// The sending half of a connection.
pub struct Line {
    stream: Box<dyn Stream>,
    queue: RefCell<Vec<u8>>,
    overflow: Cell<bool>,
    changed: Signal,
}

/// The receiving half.
pub struct Inbox {
    line: Rc<Line>,
    bytes: Vec<u8>,
    begin: usize,
    end: usize,
    /// Most bytes of a frame; a peer that has not said who it is may send a short one only.
    most: usize,
}

/// A frame that is none, as an error of the connection.
fn malformed(error: wire::Malformed) -> Error {
    Error::new(ErrorKind::InvalidData, error.to_string())
}

/// Reads the value of a whole frame.
///
/// # Errors
/// `InvalidData` if it is damaged or of another kind.
pub fn read<T: Frame>(frame: &[u8]) -> Result<T> {
    wire::decode(frame).map(|(value, _)| value).map_err(malformed)
}

impl Line {
    /// Both halves of a connection.
    pub fn open(stream: Box<dyn Stream>) -> (Rc<Line>, Inbox) {
        let (queue, overflow, changed) = (RefCell::default(), Cell::new(false), Signal::new());
        let line = Rc::new(Line { stream, queue, overflow, changed });
        let (bytes, begin, end, most) = (Vec::new(), 0, 0, usize::MAX);
        let inbox = Inbox { line: Rc::clone(&line), bytes, begin, end, most };
        (line, inbox)
    }

    /// Queues a frame.
    pub fn send<T: Frame>(&self, value: &T) {
        let mut queue = self.queue.borrow_mut();
        let queued = queue.len();
        wire::encode_to(value, &mut queue);
        if queue.len() > MOST_QUEUED {
            queue.truncate(queued);
            self.overflow.set(true);
        }
        drop(queue);
        self.changed.raise();
    }

    async fn transmit(&self) -> Error {
        loop {
            let changed = self.changed.wait();
            if self.overflow.get() {
                return Error::new(ErrorKind::TimedOut, "the peer does not read");
            }
            let bytes = self.queue.take();
            if bytes.is_empty() {
                changed.await;
            } else if let Err(error) = send(&*self.stream, &bytes).await {
                return error;
            }
        }
    }
}

impl Inbox {
    /// The next frame.
    ///
    /// # Errors
    /// `UnexpectedEof` at the end of the stream, `InvalidData` after a damaged head, and whatever
    /// the stream says.
    pub async fn frame(&mut self) -> Result<&[u8]> {
        loop {
            let there = &self.bytes[self.begin..self.end];
            let length = wire::frame_bytes(there).map_err(malformed)?;
            if length.is_some_and(|length| length > self.most) {
                return Err(Error::new(ErrorKind::InvalidData, "the first frame is too long"));
            }
            if let Some(length) = length.filter(|&length| length <= there.len()) {
                let begin = self.begin;
                self.begin += length;
                return Ok(&self.bytes[begin..begin + length]);
            }
            self.fill().await?;
        }
    }

    /// The next frame, which must be of this kind.
    ///
    /// # Errors
    /// As [`Inbox::frame`] and [`read`].
    pub async fn next<T: Frame>(&mut self) -> Result<T> {
        read(self.frame().await?)
    }

    /// The first frame, which is a short one.
    ///
    /// # Errors
    /// As [`Inbox::next`], and `InvalidData` if it is longer.
    pub(super) async fn first<T: Frame>(&mut self) -> Result<T> {
        self.most = FIRST_BYTES;
        let first = self.next().await;
        self.most = usize::MAX;
        first
    }

    /// Passes frames on and writes what is queued, until the connection ends; then says why.
    pub async fn run(mut self, mut each: impl FnMut(&[u8]) -> Result<()>) -> Error {
        let line = Rc::clone(&self.line);
        let reading = async {
            loop {
                let handled = match self.frame().await {
                    Ok(frame) => each(frame),
                    Err(error) => return error,
                };
                if let Err(error) = handled {
                    return error;
                }
            }
        };
        let (mut reading, mut writing) = (pin!(reading), pin!(line.transmit()));
        poll_fn(|cx| match reading.as_mut().poll(cx) {
            Poll::Pending => writing.as_mut().poll(cx),
            ended => ended,
        })
        .await
    }

    async fn fill(&mut self) -> Result<()> {
        if self.begin > 0 {
            self.bytes.copy_within(self.begin..self.end, 0);
            (self.begin, self.end) = (0, self.end - self.begin);
        }
        if self.bytes.len() - self.end < READ_BYTES {
            self.bytes.resize(self.end + READ_BYTES.max(self.end), 0);
        }
        let (stream, room) = (&self.line.stream, &mut self.bytes[self.end..]);
        match poll_fn(|cx| stream.poll_read(cx, room)).await? {
            0 => Err(ErrorKind::UnexpectedEof.into()),
            count => {
                self.end += count;
                Ok(())
            }
        }
    }
}
