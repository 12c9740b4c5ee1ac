//! A connection in memory: two ends, a bounded number of bytes in flight in each direction.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::{Error, ErrorKind, IoSlice, Read, Result};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use io::Stream;

#[derive(Default)]
struct Lane {
    bytes: VecDeque<u8>,
    room: usize,
    closed: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

impl Lane {
    fn wake(&mut self) {
        self.reader.take().into_iter().chain(self.writer.take()).for_each(Waker::wake);
    }
}

/// One end of a connection. Dropping it closes both directions.
pub struct End {
    incoming: Rc<RefCell<Lane>>,
    outgoing: Rc<RefCell<Lane>>,
    /// Most bytes in one read: small ones split messages everywhere.
    bite: usize,
}

/// A connection with this much room each way; reads return at most `bite` bytes.
pub fn pair(room: usize, bite: usize) -> (End, End) {
    let lane = || Rc::new(RefCell::new(Lane { room, ..Lane::default() }));
    let (there, back) = (lane(), lane());
    let near = End { incoming: Rc::clone(&back), outgoing: Rc::clone(&there), bite };
    (near, End { incoming: there, outgoing: back, bite })
}

impl End {
    /// Sends bytes beyond all room, as a test does.
    pub fn push(&self, bytes: &[u8]) {
        let mut lane = self.outgoing.borrow_mut();
        lane.bytes.extend(bytes);
        lane.wake();
    }

    /// Takes all bytes that have come.
    pub fn pull(&self) -> Vec<u8> {
        let mut lane = self.incoming.borrow_mut();
        let bytes = lane.bytes.drain(..).collect();
        lane.wake();
        bytes
    }

    /// Bytes sent that the other end has not taken.
    pub fn unread_by_peer(&self) -> usize {
        self.outgoing.borrow().bytes.len()
    }

    /// True if the other end will send nothing more.
    pub fn is_closed(&self) -> bool {
        self.incoming.borrow().closed
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
        let most = into.len().min(self.bite);
        let count = lane.bytes.read(&mut into[..most])?;
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
        let room = lane.room.saturating_sub(lane.bytes.len());
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

    fn poll_close(&self, _cx: &mut Context<'_>) -> Poll<Result<()>> {
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
