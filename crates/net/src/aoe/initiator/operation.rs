//! An operation of the disk, and the pieces of it that are frames.

use std::ops::Range;

use io::{
    Buf, Done, Error, ErrorKind, Extent, ExtentKind, Op, Pool, SharedBuf, Ticket, Time, Work,
};

use super::super::wire::ata::{Ata, error, opcode};
use super::super::wire::{Address, SECTOR};

/// An operation in flight.
pub(super) struct Operation {
    op: Op,
    ticket: Ticket,
    deadline: Time,
    /// The first byte that no frame was made for, from the operation's start.
    next: u64,
    /// Pieces that are not answered.
    waiting: u32,
    /// The flush: not wanted, to come, or made.
    flush: Flush,
    error: Option<Error>,
    /// Earlier writes to the same sectors that have not ended: it begins after them.
    after: Vec<u64>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Flush {
    No,
    AfterData,
    Now(u8),
    Made,
}

/// What [`Operation::next_piece`] found.
pub(super) enum Next {
    Piece(Piece),
    /// Its sectors are not free yet.
    Blocked,
    /// Every frame is made.
    Nothing,
}

/// The part of an operation that one frame carries.
pub(super) struct Piece {
    pub(super) ata: Ata,
    /// Its first byte, from the operation's start.
    at: u64,
}

impl Piece {
    /// Its sectors on the disk; none of a flush.
    pub(super) fn sectors(&self) -> Range<u64> {
        let first = self.ata.first_sector();
        first..first + u64::from(self.ata.sectors)
    }

    /// Its parts of at most so many sectors (a power of two), which end at multiples of that.
    fn parts(&self, most_sectors: u8) -> Vec<Piece> {
        let (mut parts, Range { mut start, end }, mut at) = (Vec::new(), self.sectors(), self.at);
        while start < end {
            let sectors = to_boundary(start, most_sectors).min(end - start);
            let ata = Ata::transfer(self.ata.is_write(), start, sectors as u8);
            parts.push(Piece { ata, at });
            (start, at) = (start + sectors, at + sectors * SECTOR as u64);
        }
        parts
    }

    pub(super) fn bytes(&self) -> usize {
        usize::from(self.ata.sectors) * SECTOR
    }

    /// What the target's error register means for it.
    pub(super) fn fault(&self, register: u8) -> ErrorKind {
        if register & error::UNCORRECTABLE != 0 {
            let offset = self.ata.first_sector() * SECTOR as u64;
            return ErrorKind::Medium { offset, len: self.bytes() as u64 };
        }
        if register & (error::NOT_FOUND | error::ABORTED) != 0 {
            return ErrorKind::Refused;
        }
        ErrorKind::Gone
    }
}

/// Sectors from `first` to the next multiple of a power of two.
fn to_boundary(first: u64, most_sectors: u8) -> u64 {
    let most_sectors = u64::from(most_sectors);
    most_sectors - first % most_sectors
}

impl Operation {
    /// An operation that needs frames; or its answer, if it needs none.
    pub(super) fn new(mut op: Op, ticket: Ticket, deadline: Time) -> Result<Operation, Done> {
        match &mut op.work {
            Work::Zero { fast: true, .. } => {
                let why = "zeros are written one by one over AoE";
                return Err(Done::failed(op.work, Error::refused(why)));
            }
            Work::Discard { .. } => return Err(Done::ok(op.work)),
            Work::Extents { len, found } => {
                found.clear();
                if *len > 0 {
                    found.push(Extent { len: *len, kind: ExtentKind::Data });
                }
                return Err(Done::ok(op.work));
            }
            _ => {}
        }
        let flush = match op.work {
            Work::Flush => Flush::Now(opcode::FLUSH_EXT),
            Work::Write(_) | Work::Zero { .. } if op.fua => Flush::AfterData,
            _ => Flush::No,
        };
        if op.work.is_empty() && !matches!(op.work, Work::Flush) {
            return Err(Done::ok(op.work));
        }
        Ok(Operation {
            op,
            ticket,
            deadline,
            next: 0,
            waiting: 0,
            flush,
            error: None,
            after: Vec::new(),
        })
    }

    pub(super) fn deadline(&self) -> Time {
        self.deadline
    }

    /// The sectors that it writes; none of a read or a flush.
    pub(super) fn written(&self) -> Range<u64> {
        let len = if self.op.work.is_write() { self.op.work.len() } else { 0 };
        self.op.offset / SECTOR as u64..(self.op.offset + len) / SECTOR as u64
    }

    /// Lets it begin after these operations have ended.
    pub(super) fn begin_after(&mut self, earlier: Vec<u64>) {
        self.after = earlier;
    }

    /// True if an operation that it waits for has not ended.
    pub(super) fn must_wait(&mut self, in_flight: impl Fn(u64) -> bool) -> bool {
        self.after.retain(|&earlier| in_flight(earlier));
        !self.after.is_empty()
    }

    /// The next frame's part, of at most so many sectors (a power of two). Pieces end at multiples
    /// of that, so that blocks are not split. `is_blocked` says whether sectors must not be written
    /// yet.
    pub(super) fn next_piece(
        &mut self,
        most_sectors: u8,
        is_blocked: impl Fn(&Range<u64>) -> bool,
    ) -> Next {
        let left = self.op.work.len() - self.next;
        if left > 0 && self.error.is_none() {
            let first = (self.op.offset + self.next) / SECTOR as u64;
            let sectors = to_boundary(first, most_sectors).min(left / SECTOR as u64);
            let write = self.op.work.is_write();
            if write && is_blocked(&(first..first + sectors)) {
                return Next::Blocked;
            }
            let piece = Piece { ata: Ata::transfer(write, first, sectors as u8), at: self.next };
            self.next += sectors * SECTOR as u64;
            self.waiting += 1;
            return Next::Piece(piece);
        }
        if let Flush::Now(command) = self.flush {
            self.flush = Flush::Made;
            self.waiting += 1;
            let ata = Ata { sectors: 0, ..Ata::plain(command) };
            return Next::Piece(Piece { ata, at: self.next });
        }
        Next::Nothing
    }

    /// Divides a piece for a path that carries at most so many sectors.
    pub(super) fn divide(&mut self, piece: &Piece, most_sectors: u8) -> Vec<Piece> {
        let parts = piece.parts(most_sectors);
        assert!(self.waiting > 0 && !parts.is_empty(), "a piece that waits is divided");
        self.waiting += parts.len() as u32 - 1;
        parts
    }

    /// The data of a piece that writes.
    pub(super) fn payload(&self, piece: &Piece, pool: &Pool) -> Option<SharedBuf> {
        let bytes = piece.bytes();
        if bytes == 0 {
            return None;
        }
        match &self.op.work {
            Work::Zero { .. } => Some(pool.take_zeroed(bytes).freeze()),
            Work::Write(bufs) => {
                let (mut at, mut copy) = (piece.at as usize, None::<(Buf, usize)>);
                for buf in bufs {
                    if at >= buf.len() {
                        at -= buf.len();
                        continue;
                    }
                    if copy.is_none() && buf.len() - at >= bytes {
                        return Some(buf.slice(at..at + bytes));
                    }
                    // The piece lies in several buffers.
                    let (into, done) = copy.get_or_insert_with(|| (pool.take(bytes), 0));
                    let part = (buf.len() - at).min(bytes - *done);
                    into[*done..*done + part].copy_from_slice(&buf[at..at + part]);
                    (*done, at) = (*done + part, 0);
                    if *done == bytes {
                        break;
                    }
                }
                let (copy, done) = copy.expect("a piece is within its operation");
                assert_eq!(done, bytes, "a piece is within its operation");
                Some(copy.freeze())
            }
            _ => None,
        }
    }

    /// A piece was answered; `data` is what a read has read.
    pub(super) fn end_piece(
        &mut self,
        piece: &Piece,
        data: &[u8],
        outcome: Result<(), ErrorKind>,
        address: Address,
    ) {
        assert!(self.waiting > 0, "a piece is answered once");
        self.waiting -= 1;
        match outcome {
            Err(kind) if self.error.is_none() => {
                let (command, first) = (piece.ata.command, piece.ata.first_sector());
                let what = format!("aoe:{address}: command {command:#x} at sector {first}");
                self.error = Some(Error::new(kind, what));
            }
            Err(_) => {}
            Ok(()) => {
                if let Work::Read(bufs) = &mut self.op.work {
                    fill(bufs, piece.at as usize, &data[..piece.bytes()]);
                }
            }
        }
    }

    /// The target does not know FLUSH CACHE EXT: the older command is tried.
    pub(super) fn flush_the_short_way(&mut self) {
        self.waiting -= 1;
        self.flush = Flush::Now(opcode::FLUSH);
    }

    /// True if every piece is made and answered, or one has failed.
    pub(super) fn is_done(&self) -> bool {
        let all_made = self.next == self.op.work.len() && !matches!(self.flush, Flush::Now(_));
        self.waiting == 0 && (all_made || self.error.is_some())
    }

    /// True if the data is written and a flush must follow.
    pub(super) fn needs_flush(&self) -> bool {
        self.flush == Flush::AfterData && self.error.is_none()
    }

    /// Makes the flush the next piece.
    pub(super) fn flush(&mut self) {
        self.flush = Flush::Now(opcode::FLUSH_EXT);
    }

    /// The end of an operation whose pieces have all ended.
    pub(super) fn end(self) -> (Ticket, Done) {
        let result = self.error.map_or(Ok(()), Err);
        (self.ticket, Done { work: self.op.work, result })
    }

    /// The end of an operation whose pieces are given up, for this reason.
    pub(super) fn give_up(self, kind: ErrorKind, why: String) -> (Ticket, Done) {
        (self.ticket, Done::failed(self.op.work, Error::new(kind, why)))
    }
}

/// Copies `data` into the buffers, from byte `at` of all of them on.
fn fill(bufs: &mut [Buf], mut at: usize, mut data: &[u8]) {
    for buf in bufs {
        if at >= buf.len() {
            at -= buf.len();
            continue;
        }
        let part = (buf.len() - at).min(data.len());
        buf[at..at + part].copy_from_slice(&data[..part]);
        (at, data) = (0, &data[part..]);
        if data.is_empty() {
            return;
        }
    }
    assert!(data.is_empty(), "a piece is within its operation");
}
