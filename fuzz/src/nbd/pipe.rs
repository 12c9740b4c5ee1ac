//! A connection in memory: two ends. Reads may come in bites, so that messages are cut anywhere.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::{Error, ErrorKind, IoSlice, Result};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use io::Stream;

/// Bytes in flight, and their waiters.
#[derive(Default)]
struct Lane {
    bytes: VecDeque<u8>,
    closed: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

impl Lane {
    fn wake(&mut self) {
        self.reader.take().into_iter().chain(self.writer.take()).for_each(Waker::wake);
    }
}

/// One end. Dropping it closes both directions.
pub(super) struct End {
    incoming: Rc<RefCell<Lane>>,
    outgoing: Rc<RefCell<Lane>>,
    bite: usize,
}

/// Bytes in flight in one direction before its writer has to wait.
const ROOM: usize = 64 << 10;

/// A connection whose reads return at most `bite` bytes.
pub(super) fn pair(bite: usize) -> (End, End) {
    let (there, back) = (Rc::<RefCell<Lane>>::default(), Rc::<RefCell<Lane>>::default());
    let near = End { incoming: Rc::clone(&back), outgoing: Rc::clone(&there), bite };
    (near, End { incoming: there, outgoing: back, bite })
}

impl End {
    /// Sends bytes, however many are in flight.
    pub(super) fn push(&self, bytes: &[u8]) {
        let mut lane = self.outgoing.borrow_mut();
        lane.bytes.extend(bytes);
        lane.wake();
    }

    /// Takes the received bytes; true if there were any.
    pub(super) fn pull(&self, into: &mut Vec<u8>) -> bool {
        let mut lane = self.incoming.borrow_mut();
        let some = !lane.bytes.is_empty();
        into.extend(lane.bytes.drain(..));
        lane.wake();
        some
    }
}

impl Stream for End {
    fn poll_read(&self, cx: &mut Context<'_>, into: &mut [u8]) -> Poll<Result<usize>> {
        let mut lane = self.incoming.borrow_mut();
        if lane.bytes.is_empty() {
            if lane.closed {
                return Poll::Ready(Ok(0));
            }
            lane.reader = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let count = into.len().min(lane.bytes.len()).min(self.bite);
        for (target, byte) in into.iter_mut().zip(lane.bytes.drain(..count)) {
            *target = byte;
        }
        if let Some(waker) = lane.writer.take() {
            waker.wake();
        }
        Poll::Ready(Ok(count))
    }

    fn poll_write(&self, cx: &mut Context<'_>, bytes: &[IoSlice<'_>]) -> Poll<Result<usize>> {
        let mut lane = self.outgoing.borrow_mut();
        if lane.closed {
            return Poll::Ready(Err(Error::from(ErrorKind::BrokenPipe)));
        }
        let room = ROOM.saturating_sub(lane.bytes.len());
        if room == 0 {
            lane.writer = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let mut count = 0;
        for part in bytes {
            let part = &part[..part.len().min(room - count)];
            lane.bytes.extend(part);
            count += part.len();
        }
        if let Some(waker) = lane.reader.take() {
            waker.wake();
        }
        Poll::Ready(Ok(count))
    }

    fn poll_close(&self, _: &mut Context<'_>) -> Poll<Result<()>> {
        let mut lane = self.outgoing.borrow_mut();
        lane.closed = true;
        lane.wake();
        Poll::Ready(Ok(()))
    }
}

impl Drop for End {
    fn drop(&mut self) {
        for lane in [&self.incoming, &self.outgoing] {
            let mut lane = lane.borrow_mut();
            lane.closed = true;
            lane.wake();
        }
    }
}
