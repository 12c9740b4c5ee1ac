//! A client's user that writes all the time, and knows what must be read.
//!
//! Both writers share the array piece by piece: one has the even pieces, one the odd ones. The
//! content of a piece is derived from its place and from the *round* in which it was written.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use ::io::{Clock, Disk, Op, Pool, Signal, Time, Work};

use super::flush;
use crate::failure::{Failure, Id, Result};

/// Bytes of one write.
pub(super) const PIECE_BYTES: usize = 64 << 10;
/// Pieces of a writer: 16 MiB over the array.
const PIECES: usize = 128;
/// Writes from flush to flush.
const FLUSH_EVERY: u64 = 16;
/// Between two writes: it shows pauses, not speed.
const PAUSE: Duration = Duration::from_millis(2);
/// Unit in which an interrupted write is old or new.
const SECTOR_BYTES: usize = 512;

/// See the module.
pub(super) struct Writer {
    number: usize,
    disk: Rc<dyn Disk>,
    /// The round of each piece that was acknowledged last; 0 for none.
    rounds: RefCell<Vec<u64>>,
    /// The piece that is being written.
    pending: Cell<Option<usize>>,
    written: Cell<u64>,
    last: Cell<Option<Time>>,
    longest: Cell<Duration>,
    stopping: Cell<bool>,
    over: Cell<bool>,
    ended: Signal,
}

impl Writer {
    pub(super) fn new(number: usize, disk: Rc<dyn Disk>) -> Rc<Writer> {
        Rc::new(Writer {
            number,
            disk,
            rounds: RefCell::new(vec![0; PIECES]),
            pending: Cell::new(None),
            written: Cell::new(0),
            last: Cell::new(None),
            longest: Cell::default(),
            stopping: Cell::new(false),
            over: Cell::new(false),
            ended: Signal::new(),
        })
    }

    fn offset(&self, piece: usize) -> u64 {
        ((2 * piece + self.number) * PIECE_BYTES) as u64
    }

    /// The number from which the content of a piece is derived.
    fn seed(&self, piece: usize, round: u64) -> u64 {
        self.offset(piece) | round << 32
    }

    /// Writes until it is stopped, or its client dies.
    pub(super) async fn run(self: Rc<Self>, clock: Rc<dyn Clock>) {
        let pool = Pool::new(PIECE_BYTES);
        self.last.set(Some(clock.now()));
        while !self.stopping.get() {
            let number = self.written.get();
            let (piece, round) = ((number % PIECES as u64) as usize, number / PIECES as u64 + 1);
            let mut buf = pool.take(PIECE_BYTES);
            random::fill(self.seed(piece, round), &mut buf);
            self.pending.set(Some(piece));
            let done = self.disk.submit(Op::write(self.offset(piece), buf.freeze())).await;
            if done.result.is_err() {
                break;
            }
            self.rounds.borrow_mut()[piece] = round;
            self.pending.set(None);
            self.written.set(number + 1);
            if number.is_multiple_of(FLUSH_EVERY) && !flush(&*self.disk).await {
                break;
            }
            let now = clock.now();
            let pause = self.last.replace(Some(now)).map_or(Duration::ZERO, |last| now - last);
            self.longest.set(self.longest.get().max(pause));
            clock.sleep_until(now + PAUSE).await;
        }
        self.over.set(true);
        self.ended.raise();
    }

    /// Stops it, and makes everything durable.
    pub(super) async fn stop(&self) {
        self.stopping.set(true);
        while !self.over.get() {
            self.ended.wait().await;
        }
        flush(&*self.disk).await;
    }

    pub(super) fn is_over(&self) -> bool {
        self.over.get()
    }

    /// Pieces written and acknowledged.
    pub(super) fn written(&self) -> u64 {
        self.written.get()
    }

    /// The longest time between two writes since the last call.
    pub(super) fn take_longest(&self) -> Duration {
        self.longest.take()
    }

    /// Reads its pieces through another one's client; counts bytes that it has not written there.
    pub(super) async fn differing(&self, through: &Writer) -> Result<u64> {
        let pool = Pool::new(PIECE_BYTES);
        let mut wrong = 0;
        for piece in 0..PIECES {
            let read = Op::read(self.offset(piece), pool.take(PIECE_BYTES));
            let done = through.disk.submit(read).await;
            done.result.map_err(|error| {
                let message = format!("a read at offset {}: {error}", self.offset(piece));
                Failure::new(Id::Verification, message, "please report it")
            })?;
            let Work::Read(bufs) = done.work else { unreachable!("work comes back as it was") };
            let content: Vec<u8> = bufs.iter().flat_map(|buf| buf.iter().copied()).collect();
            wrong += self.wrong(piece, &content);
        }
        Ok(wrong)
    }

    fn wrong(&self, piece: usize, content: &[u8]) -> u64 {
        let round = self.rounds.borrow()[piece];
        let torn = self.pending.get() == Some(piece);
        let rounds = round..=round + u64::from(torn);
        let sectors = content.chunks(SECTOR_BYTES).enumerate();
        let of_sector = |(index, sector): (usize, &[u8])| {
            let at = (index * SECTOR_BYTES) as u64;
            let of_round = |round| match round {
                0 => sector.iter().filter(|byte| **byte != 0).count() as u64,
                _ => random::differing(self.seed(piece, round) + at, sector),
            };
            rounds.clone().map(of_round).min().unwrap_or_default()
        };
        sectors.map(of_sector).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::io::MemDisk;

    #[test]
    fn a_torn_write_may_be_old_or_new_and_nothing_else() {
        let writer = Writer::new(1, Rc::new(MemDisk::new(1 << 20)));
        writer.rounds.borrow_mut()[3] = 1;
        let content = |round| {
            let mut buf = Pool::new(PIECE_BYTES).take(PIECE_BYTES);
            random::fill(writer.seed(3, round), &mut buf);
            buf.to_vec()
        };
        let (old, new) = (content(1), content(2));
        assert_eq!(writer.wrong(3, &old), 0);
        assert!(writer.wrong(3, &new) > 60_000);
        writer.pending.set(Some(3));
        let mixed = [&old[..512], &new[512..]].concat();
        assert_eq!(writer.wrong(3, &mixed), 0);
        assert!(writer.wrong(3, &content(3)) > 60_000);
        assert_eq!(writer.wrong(4, &vec![0; PIECE_BYTES]), 0, "never written");
    }
}
