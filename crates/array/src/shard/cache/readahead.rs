//! Read-ahead for sequential readers at queue depth 1: their next piece is already in memory.
//!
//! ```text
//!   client    ├─ read ─┤ ├─ read ─┤ ├─ read ─┤ ├ copy ┤ ├ copy ┤ ├ copy ┤
//!                                   │ twice in a row: a stream
//!   members                         └──▶ ├─── window ───┤├───── twice as much ─────┤   all at once
//! ```
//!
//! Owns a small table of streams and the bytes read ahead for each. Decides when to read ahead, and
//! answers reads that lie entirely in bytes already read or being read. Never repairs, locks or
//! reports anything: a failed piece is dropped, and the client's own read handles the failure.
//!
//! A stream is detected when a read begins at the end of an earlier one *after* that one was
//! answered, and had to wait for a member, twice in a row. A reader with several requests in flight
//! keeps the members busy by itself. Instant answers from the members leave nothing to gain.
//!
//! **Where members rotate**, each reader in order is a stream, however many requests it has in
//! flight: small ones of one reader keep only one or two disks busy, and those of several readers
//! send the heads back and forth. They may arrive a little out of [`order`]. Streams share the
//! memory, and take turns (`Bounds::ahead_turn`). Two of about the same rate that share members
//! with parity read whole [`runs`] of them.
//!
//! Missing blocks are recovered ahead, from redundancy that agrees with the data.
//!
//! **Never stale.** A change to bytes on members drops all overlapping read-ahead, finished or in
//! flight, when it ends and before it is acknowledged. A read that begins after the acknowledgement
//! finds no older bytes here; one that began earlier may see either. Bytes held only by the
//! write-back cache are laid over read-ahead as over the members' answers. When they leave the
//! cache, their read-ahead is dropped in the same turn.
//!
//! No deadlock: a read waits only for pieces that a worker has begun to read.

mod order;
mod runs;
mod stream;

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::time::Duration;

use io::{Budget, Buf, Class, Signal, Time};
use layout::Geometry;
use metadata::Bounds;
use stream::{IN_A_ROW, Piece, State, Stream};

use crate::rows::engine::RowOp;
use crate::rows::read::Target;
use crate::shard::Shard;
use crate::shard::cache::map::memory_of;
use crate::shard::queue::{Action, Unit};

/// A stream with read-ahead keeps its place for this many reads of others.
const LOYALTY: u64 = 64;

/// A stream without a read for this long has probably ended: others that need its memory get it.
const ENDED: Duration = Duration::from_secs(1);

/// When streams have read this many bytes, what they have read so far counts half. Less would take
/// the unsteady start of two equal streams for different rates.
const LATELY: u64 = 128 << 20;

/// The read-ahead of one shard.
pub(crate) struct Ahead {
    streams: RefCell<Vec<Stream>>,
    /// The most that is read ahead of one stream, in bytes.
    most: u64,
    /// Some members rotate.
    rotational: bool,
    /// Two streams read runs of members.
    runs: bool,
    /// See `Bounds::ahead_turn`.
    turn: Duration,
    /// Memory of all streams: see `Bounds::ahead_streams`.
    room: Budget,
    /// Its size.
    total: u64,
    /// Number of reads seen: the clock for the age of streams.
    reads: Cell<u64>,
    /// The number of the next piece.
    next: Cell<u64>,
    /// Raised when a piece has been read or dropped.
    changed: Signal,
    /// Ranges that reads wait for: disks answer out of order, so a later request may be answered,
    /// and the stream go on, before the pieces of an earlier one are there.
    awaited: RefCell<Vec<Range<u64>>>,
    /// Units to be queued; a field, so that its memory is reused.
    outbox: RefCell<Vec<Unit>>,
}

/// The result of looking a read up here.
enum Found {
    Nothing,
    /// Some of it is still being read.
    Coming,
    /// All of it was copied.
    All,
}

/// Read-ahead is of whole blocks of any member: members refuse parts of a block.
const fn whole_blocks(bytes: u64) -> u64 {
    let block = metadata::MOST_BLOCK_BYTES as u64;
    bytes / block * block
}

impl Ahead {
    /// Read-ahead of an array.
    pub(crate) fn new(bounds: &Bounds, rotational: bool, geometry: &Geometry) -> Ahead {
        let streams = bounds.ahead_streams;
        let all = bounds.ahead_bytes.saturating_mul(streams as u64);
        let (most, total) = if rotational {
            // Small arrays need less for their members' full rate.
            let width = bounds.ahead_member_bytes * geometry.slots() as u64;
            let most = bounds.ahead_rotating_bytes.min(width.max(2 * bounds.ahead_bytes));
            (most, all.min(2 * most))
        } else {
            (bounds.ahead_bytes, all)
        };
        let (most, total) = (whole_blocks(most), total.max(most));
        Ahead {
            streams: RefCell::new(Vec::with_capacity(streams)),
            most,
            rotational,
            runs: rotational && runs::pay(geometry, bounds.ahead_member_bytes, most),
            turn: bounds.ahead_turn,
            room: Budget::new(total),
            total,
            reads: Cell::new(0),
            next: Cell::new(0),
            changed: Signal::new(),
            awaited: RefCell::default(),
            outbox: RefCell::default(),
        }
    }

    /// The most that is read ahead of the stream at `at`. Where members rotate, a stream alone gets
    /// half, or two stripes: with more, members serve it out of order. Streams that share members
    /// get all of it, so that members read for longer than they seek, while there is memory for it.
    /// Whole blocks, in bytes.
    fn share(&self, streams: &[Stream], at: usize, stripe: u64) -> u64 {
        if !self.rotational {
            return self.most;
        }
        whole_blocks(match self.others(streams, at).count() as u64 {
            0 => self.most.min((self.most / 2).max(2 * stripe)),
            others => self.most.min(self.total / (others + 1)),
        })
    }

    /// The stream that a read belongs to.
    fn stream_of(&self, streams: &[Stream], unit: &Unit) -> Option<usize> {
        let range = unit.offset..unit.offset + unit.len;
        let next = streams.iter().position(|stream| stream.end == unit.offset);
        let near = || streams.iter().position(|stream| stream.missed.admit(stream.end, &range));
        if self.rotational { next.or_else(near) } else { next }
    }

    /// The other streams that have read-ahead.
    fn others<'s>(&self, streams: &'s [Stream], at: usize) -> impl Iterator<Item = &'s Stream> {
        let others = streams.iter().enumerate().filter(move |(other, _)| *other != at);
        others.map(|(_, stream)| stream).filter(|stream| !stream.pieces.is_empty())
    }

    /// True if the stream at `at` shares the members with one other, and both read runs. Between
    /// streams of different rates, runs would hold the faster one up.
    fn shares_runs(&self, streams: &[Stream], at: usize) -> bool {
        let mine = streams[at].lately;
        let as_fast = |other: &Stream| {
            let theirs = other.lately;
            3 * mine.min(theirs) >= 2 * mine.max(theirs)
        };
        let mut others = self.others(streams, at);
        self.runs && others.next().is_some_and(as_fast) && others.next().is_none()
    }

    /// Counts bytes of the stream at `at`.
    fn count(&self, streams: &mut [Stream], at: usize, bytes: u64) {
        streams[at].lately += bytes;
        if streams.iter().map(|stream| stream.lately).sum::<u64>() > LATELY {
            streams.iter_mut().for_each(|stream| stream.lately /= 2);
        }
    }

    /// True if the stream at `at` gets no read-ahead now, because another one has waited too long.
    fn yields(&self, streams: &[Stream], at: usize) -> bool {
        let now = streams[at].since;
        let waits = |other: &Stream| !other.answered && now - other.since > self.turn;
        self.rotational && streams[at].upto > streams[at].end && streams.iter().any(waits)
    }

    /// Frees the memory of a stream that has probably ended. False if there is none.
    fn reclaim(&self, streams: &mut [Stream], now: Time) -> bool {
        let ended = |s: &&mut Stream| {
            self.rotational && s.answered && !s.pieces.is_empty() && now - s.since > ENDED
        };
        let oldest = streams.iter_mut().filter(ended).min_by_key(|stream| stream.since);
        oldest.map(|stream| stream.drop_pieces()).is_some()
    }

    /// The unit of a read has ended; `waited` if it asked members and they did not answer at once.
    pub(crate) fn answered(&self, unit: &Unit, waited: Option<bool>) {
        let request = (unit.from.shard, unit.from.request);
        let mut streams = self.streams.borrow_mut();
        let same = |stream: &&mut Stream| stream.unit == unit.offset && stream.request == request;
        if let Some(stream) = streams.iter_mut().find(same) {
            stream.answered = true;
            stream.waited = waited.unwrap_or(stream.waited);
        }
    }

    /// Drops the read-ahead of these bytes: they have changed.
    pub(crate) fn forget(&self, (offset, len): (u64, u64)) {
        let mut dropped = false;
        for stream in self.streams.borrow_mut().iter_mut() {
            let before = stream.pieces.len();
            stream.pieces.retain(|piece| piece.end <= offset || offset + len <= piece.start);
            dropped |= stream.pieces.len() < before;
        }
        if dropped {
            self.changed.raise();
        }
    }

    /// A worker begins to read a piece. False if the piece was dropped.
    fn begin(&self, number: u64) -> bool {
        let mut streams = self.streams.borrow_mut();
        let mut pieces = streams.iter_mut().flat_map(|stream| &mut stream.pieces);
        let found = pieces.find(|piece| piece.number == number);
        found.map(|piece| piece.state = State::Begun).is_some()
    }

    /// A piece was read, or the read failed.
    fn end(&self, number: u64, buf: Option<Buf>) {
        for stream in self.streams.borrow_mut().iter_mut() {
            let Some(at) = stream.pieces.iter().position(|piece| piece.number == number) else {
                continue;
            };
            match buf {
                Some(buf) => {
                    let piece = &mut stream.pieces[at];
                    let (have, range) = (buf.len() as u64, piece.start..piece.end);
                    assert_eq!(
                        have,
                        range.end - range.start,
                        "{have} bytes read ahead of {range:?}"
                    );
                    piece.state = State::There(buf);
                }
                None => drop(stream.pieces.remove(at)),
            }
            break;
        }
        self.changed.raise();
    }

    /// Waits for a change of the pieces of a range, which are kept until then.
    async fn wait(&self, range: &Range<u64>) {
        self.awaited.borrow_mut().push(range.clone());
        self.changed.wait().await;
        let mut awaited = self.awaited.borrow_mut();
        let place = awaited.iter().position(|other| other == range);
        awaited.swap_remove(place.expect("pushed above, and removed once for each"));
    }

    /// Copies a range to the buffers if all of it has been read.
    fn copy(&self, range: &Range<u64>, bufs: &mut [Buf]) -> Found {
        let (mut streams, awaited) = (self.streams.borrow_mut(), self.awaited.borrow());
        for stream in streams.iter_mut() {
            let first = stream.pieces.partition_point(|piece| piece.end <= range.start);
            let (mut at, mut coming, mut last) = (range.start, false, first);
            for piece in &stream.pieces[first..] {
                if at >= range.end || piece.start > at || matches!(piece.state, State::Queued) {
                    break;
                }
                coming |= matches!(piece.state, State::Begun);
                (at, last) = (piece.end, last + 1);
            }
            if at < range.end {
                continue;
            }
            if coming {
                return Found::Coming;
            }
            let mut target = Target { offset: range.start, bufs };
            for piece in &mut stream.pieces[first..last] {
                let State::There(buf) = &piece.state else { unreachable!("checked above") };
                let (from, to) = (piece.start.max(range.start), piece.end.min(range.end));
                let part = (from - piece.start) as usize..(to - piece.start) as usize;
                target.put(from, &buf[part]);
                piece.left = piece.left.saturating_sub(to - from);
            }
            let passed = |piece: &Piece| {
                let last = range.start < piece.end && piece.end <= range.end;
                piece.left == 0 || last && !piece.is_due(&stream.missed, &awaited)
            };
            stream.pieces.retain(|piece| !passed(piece));
            return Found::All;
        }
        Found::Nothing
    }
}

impl Shard {
    /// Records a new read, and reads ahead if that pays off.
    pub(crate) fn read_ahead_of(&self, unit: &Unit) {
        let bounds = &self.engine.setup.bounds;
        if unit.class != Class::Foreground || self.ahead.most == 0 || self.engine.setup.check_reads
        {
            return;
        }
        let ahead = &self.ahead;
        let seen = ahead.reads.replace(ahead.reads.get() + 1);
        let since = if ahead.rotational { self.engine.setup.clock.now() } else { Time::default() };
        let mut streams = ahead.streams.borrow_mut();
        let known = ahead.stream_of(&streams, unit);
        if let Some(at) = known {
            streams[at].add_unit(unit, (seen, since), ahead.rotational, &ahead.awaited.borrow());
            ahead.count(&mut streams, at, unit.len);
            if ahead.yields(&streams, at) {
                return;
            }
            let stripe = self.engine.setup.geometry.stripe_bytes();
            let most = ahead.share(&streams, at, stripe);
            let runs = ahead.shares_runs(&streams, at) && self.engine.view().is_whole();
            let extend = |stream: &mut Stream| match runs {
                true => self.extend_runs(stream, most),
                false => self.extend(stream, most),
            };
            while !extend(&mut streams[at]) && ahead.reclaim(&mut streams, since) {}
        } else if streams.len() < bounds.ahead_streams {
            streams.push(Stream::new(unit, (seen, since)));
        } else {
            // Replaces the stream that was not seen for longest; streams with read-ahead come last.
            let loyal = |s: &Stream| s.in_a_row >= IN_A_ROW && seen - s.seen < LOYALTY;
            let oldest = streams.iter_mut().min_by_key(|stream| (loyal(stream), stream.seen));
            if let Some(oldest) = oldest {
                *oldest = Stream::new(unit, (seen, since));
            }
        }
        drop(streams);
    }

    /// Puts the pieces that a stream wants next in the outbox. False if memory is short.
    fn extend(&self, stream: &mut Stream, most: u64) -> bool {
        let ahead = &self.ahead;
        let step = self.piece_border(most);
        let whole = if ahead.rotational { step } else { 1 };
        let Some(range) = stream.wanted(most, whole) else { return true };
        let end = range.end.min(self.last_of(stream));
        while stream.upto < end {
            let to = ((stream.upto / step + 1) * step).min(end);
            let gap = stream.gap(stream.upto..to);
            if !self.add_piece(stream, &gap) {
                return false;
            }
            stream.upto = gap.start.max(gap.end);
        }
        true
    }

    /// Puts the chunks that are due in the outbox. False if memory is short.
    fn extend_runs(&self, stream: &mut Stream, most: u64) -> bool {
        let geometry = &self.engine.setup.geometry;
        let due = stream.half_rows..runs::due(geometry, stream.end);
        if due.is_empty() || !stream.needs_ahead(most) {
            return true;
        }
        let last = self.last_of(stream);
        let whole = runs::each_due(geometry, &due, |chunk| {
            let gap = stream.gap(chunk.start.max(stream.end)..chunk.end.min(last));
            self.add_piece(stream, &gap)
        });
        if whole {
            stream.half_rows = due.end;
        }
        stream.upto = stream.gap(stream.upto.max(stream.end)..last).start;
        whole
    }

    /// Where the read-ahead of a stream ends at the latest.
    fn last_of(&self, stream: &Stream) -> u64 {
        let geometry = &self.engine.setup.geometry;
        if self.count == 1 {
            return geometry.capacity();
        }
        // A region belongs to one shard.
        let region = geometry.region_bytes();
        let end = (stream.end.saturating_sub(1) / region + 1) * region;
        end.min(geometry.capacity())
    }

    /// Puts a piece in the outbox, unless it is empty. False if memory is short.
    fn add_piece(&self, stream: &mut Stream, range: &Range<u64>) -> bool {
        if range.is_empty() {
            return true;
        }
        let (ahead, Range { start, end }) = (&self.ahead, range.clone());
        let Some(memory) = ahead.room.try_take(memory_of(end - start)) else { return false };
        let number = ahead.next.replace(ahead.next.get() + 1);
        let place = stream.pieces.partition_point(|piece| piece.start < start);
        let (state, left) = (State::Queued, end - start);
        let piece = Piece { number, start, end, left, state, _memory: memory };
        stream.pieces.insert(place, piece);
        let unit = Unit::unasked(self.engine.index, start..end, Action::ReadAhead(number));
        ahead.outbox.borrow_mut().push(unit);
        true
    }

    /// Pieces are cut at multiples of this array offset. Where blocks are missing, they are whole
    /// stripes if these are not too large: the recovery of a part reads the rest of its rows.
    fn piece_border(&self, most: u64) -> u64 {
        let (usual, stripe) = (self.engine.unit_border(), self.engine.job_border());
        let degraded = self.ahead.rotational && !self.engine.view().is_whole();
        if degraded && stripe <= most { stripe } else { usual }
    }

    /// Queues the read-ahead behind the read that triggered it.
    pub(crate) fn line_up_ahead(&self) {
        if self.ahead.outbox.borrow().is_empty() {
            return;
        }
        let mut units = self.ahead.outbox.take();
        units.drain(..).for_each(|unit| self.line_up(unit));
        self.ahead.outbox.replace(units);
    }

    /// Reads a piece ahead.
    pub(crate) async fn carry_read_ahead(
        &self,
        op: &mut RowOp<'_>,
        range: (u64, u64),
        number: u64,
    ) {
        if !self.ahead.begin(number) {
            return;
        }
        let mut bufs = self.requests.list();
        bufs.push(self.engine.pool.take(range.1 as usize));
        let whole = op.read_as_it_is(range, &mut bufs).await;
        // Buffers may have stayed with a hung member.
        let buf = bufs.pop().filter(|buf| whole && buf.len() as u64 == range.1);
        bufs.clear();
        self.requests.keep(bufs);
        self.ahead.end(number, buf);
    }

    /// Fills the buffers from read-ahead if that covers the range; waits for pieces that are being
    /// read.
    pub(crate) async fn copy_read_ahead(
        &self,
        (offset, len): (u64, u64),
        bufs: &mut [Buf],
    ) -> bool {
        let range = offset..offset + len;
        loop {
            match self.ahead.copy(&range, bufs) {
                Found::Nothing => return false,
                Found::Coming => self.ahead.wait(&range).await,
                Found::All => {
                    self.engine.setup.clock.charge(io::Cost::Copy, len);
                    return true;
                }
            }
        }
    }
}
