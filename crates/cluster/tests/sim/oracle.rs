//! What reads may return, and the locks of the layer above.
//!
//! The upper layer is a cluster file system: it locks blocks among hosts, and breaks a dead host's
//! locks only when the fence agent says so (`Evicted`). Under this contract each half of a *piece*
//! of a block is a register:
//!
//! ```text
//!   acknowledged           exactly this value
//!   writer died (torn)     old or new, each piece for itself; degraded: anything, but stable
//!   unflushed, and too     anything, until it is read or written; the flush must report it
//!   many members restart
//! ```
//!
//! A value that was read stays, as long as no member is lost before the region is resynced.
//!
//! A block has two *cells*, half of it each. In mode exclusive hosts lock cells, in mode shared
//! blocks. A patch writes one cell, and the other keeps its value, whatever becomes of the patch.
//! Only at level 3.5, where the cells share a parity, it has the fate of its block: if a member is
//! lost as well, or too many restart, its value may be lost with the patch.
//!
//! A loss takes effect when the epoch that it begins opens. A client of an earlier epoch may still
//! get answers of before, or have got them long ago:
//!
//! ```text
//!   read begins ─ members answer ─ power cut, the write is lost ─ the client gets the answers
//!                 new              old                            new: legal, it was read before
//! ```
//!
//! The client cannot tell, and a refusal would protect nobody: had it got the answers before the
//! cut, its cache would hold the same bytes. So the oracle keeps what earlier epochs see, until a
//! read has seen the new content: reads that begin after that one must agree with it.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use cluster::config::{Level, Mode};
use cluster::ids::{ClientId, Epoch, Incarnation, RequestId};

pub type Host = (ClientId, Incarnation);

/// Cells of a block.
pub const CELLS: usize = 2;

/// The cells of these blocks.
pub fn cells(blocks: Range<u64>) -> Range<usize> {
    blocks.start as usize * CELLS..blocks.end as usize * CELLS
}

/// The values of each register.
type Allowed = Vec<BTreeSet<u32>>;

/// The content of a cell as clients of epochs below this one see it.
#[derive(Clone)]
struct Before {
    epoch: Epoch,
    allowed: Allowed,
    wild: bool,
}

#[derive(Clone)]
pub struct Cell {
    allowed: Allowed,
    /// Anything is allowed.
    pub wild: bool,
    /// The write in progress.
    pub active: Option<(Host, Vec<u32>)>,
    /// The last acknowledged write, its number, and whether it is flushed.
    pub last: Option<(Host, Vec<u32>, u64)>,
    pub unflushed: bool,
    /// A writer died, and the region is not resynced since.
    torn: bool,
    /// While it was written or torn, a member was not in sync.
    degraded: bool,
    /// The last value read while `degraded`.
    seen: Option<(Epoch, Vec<u32>)>,
    /// What earlier epochs see, while nobody has seen the content of the last loss.
    before: Option<Before>,
    /// Reads in progress; what earlier epochs saw, if a later read has seen more.
    readers: BTreeMap<(Host, RequestId), Vec<Before>>,
}

fn exactly(value: &[u32]) -> Allowed {
    value.iter().map(|&register| BTreeSet::from([register])).collect()
}

fn fits(allowed: &Allowed, value: &[u32]) -> bool {
    allowed.iter().zip(value).all(|(allowed, register)| allowed.contains(register))
}

impl Cell {
    fn is_open(&self) -> bool {
        self.active.is_some() || self.torn
    }

    /// From this epoch on the content may be another one without a write.
    fn unsettle(&mut self, epoch: Epoch) {
        let (now, wild) = (self.allowed.clone(), self.wild || self.degraded);
        let fresh = Before { epoch, allowed: now.clone(), wild };
        let before = self.before.get_or_insert(fresh);
        (before.epoch, before.wild) = (epoch, before.wild || wild);
        before.allowed.iter_mut().zip(now).for_each(|(before, now)| before.extend(now));
    }

    /// A read has seen the new content.
    fn settle(&mut self) {
        if let Some(before) = self.before.take() {
            self.readers.values_mut().for_each(|reader| reader.push(before.clone()));
        }
    }

    /// All members have the block again.
    fn mend(&mut self) {
        self.wild |= self.torn && self.degraded;
        (self.torn, self.seen) = (false, None);
        self.degraded &= self.active.is_some();
    }

    /// The writer died: the value may have replaced the last one.
    fn tear(&mut self, value: &[u32]) {
        (self.torn, self.unflushed, self.last) = (true, false, None);
        let before = self.before.as_mut().map(|before| &mut before.allowed);
        for allowed in before.into_iter().chain([&mut self.allowed]) {
            allowed.iter_mut().zip(value).for_each(|(allowed, &register)| {
                allowed.insert(register);
            });
        }
    }

    /// Ends a read: whether the cell was torn, or why the value is wrong.
    fn check(
        &mut self,
        reader: &(Host, RequestId),
        value: &[u32],
        epoch: Epoch,
    ) -> Result<bool, String> {
        let mut before = self.readers.remove(reader).unwrap_or_default();
        before.extend(self.before.clone());
        before.retain(|before| epoch < before.epoch);
        let torn = self.torn;
        if !before.is_empty() {
            if !before.iter().any(|before| before.wild || fits(&before.allowed, value)) {
                let allowed: Vec<&Allowed> = before.iter().map(|before| &before.allowed).collect();
                return Err(format!("I3: {value:x?} is read, before {allowed:x?}"));
            }
            return Ok(torn);
        }
        self.settle();
        if self.torn && self.degraded {
            if let Some((at, seen)) = &self.seen
                && *at == epoch
                && seen != value
            {
                return Err(format!("I10: {value:x?} is read after {seen:x?}"));
            }
            self.seen = Some((epoch, value.to_vec()));
            return Ok(true);
        }
        if !self.wild && !fits(&self.allowed, value) {
            return Err(format!("I3: {value:x?} is read, allowed {:x?}", self.allowed));
        }
        // A value that was read stays.
        self.allowed = exactly(value);
        self.wild = false;
        Ok(torn)
    }
}

pub struct Oracle {
    pub cells: Vec<Cell>,
    /// Acknowledged writes.
    pub count: u64,
    /// Incarnations up to this one are fenced.
    pub fenced: BTreeMap<ClientId, Incarnation>,
    /// The last epoch that began with a loss of unflushed writes.
    lost: Epoch,
    /// A stripe has several blocks: writes are durable when they are acknowledged, and a block is
    /// read from its member or not at all.
    striped: bool,
    /// The cells of a block share a parity.
    spread: bool,
    /// The layer above locks blocks.
    shared: bool,
}

impl Oracle {
    pub fn new(blocks: usize, registers: usize, level: Level, mode: Mode) -> Oracle {
        let cell = Cell {
            allowed: exactly(&vec![0; registers]),
            wild: false,
            active: None,
            last: None,
            unflushed: false,
            torn: false,
            degraded: false,
            seen: None,
            before: None,
            readers: BTreeMap::new(),
        };
        Oracle {
            cells: vec![cell; blocks * CELLS],
            count: 0,
            fenced: BTreeMap::new(),
            lost: Epoch(0),
            striped: level.is_striped(),
            spread: level == Level::Fragments,
            shared: mode == Mode::Shared,
        }
    }

    pub fn blocks(&self) -> u64 {
        (self.cells.len() / CELLS) as u64
    }

    pub fn is_fenced(&self, (client, incarnation): Host) -> bool {
        self.fenced.get(&client).is_some_and(|&upto| incarnation <= upto)
    }

    /// The cells that the layer above locks for these.
    fn locked(&self, cells: &Range<usize>) -> &[Cell] {
        let (first, end) = (cells.start / CELLS * CELLS, cells.end.next_multiple_of(CELLS));
        &self.cells[if self.shared { first..end } else { cells.clone() }]
    }

    /// True if a write can lock the cells.
    pub fn is_free(&self, cells: &Range<usize>) -> bool {
        let mut locked = self.locked(cells).iter();
        locked.all(|cell| cell.active.is_none() && cell.readers.is_empty())
    }

    /// True if another host writes the other cell of this block.
    pub fn is_beside(&self, cell: usize, host: Host) -> bool {
        let other = self.cells[cell ^ 1].active.as_ref();
        other.is_some_and(|&(writer, _)| writer != host)
    }

    /// Locks the cells for writing.
    pub fn write(&mut self, host: Host, cells: Range<usize>, value: &[u32], degraded: bool) {
        assert!(self.is_free(&cells), "they are free");
        let registers = value.len() / cells.len();
        for (cell, value) in self.cells[cells].iter_mut().zip(value.chunks(registers)) {
            cell.active = Some((host, value.to_vec()));
            cell.degraded |= degraded && !self.striped;
        }
    }

    /// What is being written.
    pub fn writing(&self, cells: Range<usize>) -> Vec<u32> {
        let active = self.cells[cells].iter().map(|cell| cell.active.as_ref());
        let value = active.map(|active| &active.expect("the writer has the lock").1);
        value.flatten().copied().collect()
    }

    /// The write was refused: nothing of it may ever be seen.
    pub fn write_refused(&mut self, host: Host, cells: Range<usize>) {
        for cell in &mut self.cells[cells] {
            let writer = cell.active.take().map(|(writer, _)| writer);
            assert_eq!(writer, Some(host), "the lock belongs to the writer");
        }
    }

    /// The read was refused.
    pub fn read_refused(&mut self, reader: (Host, RequestId), cells: Range<usize>) {
        for cell in &mut self.cells[cells] {
            cell.readers.remove(&reader);
        }
    }

    /// An operator accepts that the block may be garbage, from this epoch on.
    pub fn accepted(&mut self, block: u64, epoch: Epoch) {
        for cell in &mut self.cells[cells(block..block + 1)] {
            cell.unsettle(epoch);
            (cell.wild, cell.last, cell.unflushed) = (true, None, false);
        }
    }

    /// The write is acknowledged, in this epoch of the writer.
    pub fn written(&mut self, host: Host, cells: Range<usize>, epoch: Epoch) {
        self.count += 1;
        for cell in &mut self.cells[cells.clone()] {
            let Some((writer, value)) = cell.active.take() else { continue };
            assert_eq!(writer, host, "the lock belongs to the writer");
            cell.allowed = exactly(&value);
            (cell.wild, cell.torn, cell.degraded, cell.seen) = (false, false, false, None);
            cell.before = None;
            // Members answered before too many of them restarted.
            if epoch < self.lost && !self.striped {
                cell.unsettle(self.lost);
                cell.wild = true;
            }
            cell.last = Some((host, value, self.count));
            cell.unflushed = true;
        }
        if self.spread && cells.len() < CELLS {
            self.cells[cells.start ^ 1].mend();
        }
    }

    /// Locks the cells for a read, if nobody writes them.
    pub fn read(&mut self, host: Host, id: RequestId, cells: Range<usize>) -> bool {
        let free = self.locked(&cells).iter().all(|cell| cell.active.is_none());
        for cell in self.cells[cells].iter_mut().filter(|_| free) {
            cell.readers.insert((host, id), Vec::new());
        }
        free
    }

    /// Ends a read. Returns whether a cell was torn, or why the value is wrong.
    pub fn check(
        &mut self,
        reader: (Host, RequestId),
        cells: Range<usize>,
        value: &[u32],
        epoch: Epoch,
    ) -> Result<bool, String> {
        let (mut torn, registers) = (false, value.len() / cells.len());
        for (number, value) in cells.zip(value.chunks(registers)) {
            let verdict = self.cells[number].check(&reader, value, epoch);
            torn |= verdict.map_err(|story| format!("{story} (cell {number})"))?;
        }
        Ok(torn)
    }

    /// Cells that a flush of this host covers, with their value; all cells of a block together.
    pub fn flushed(&mut self, host: Host, before: u64) -> Vec<(Range<usize>, Vec<u32>)> {
        let mut covered: Vec<(Range<usize>, Vec<u32>)> = Vec::new();
        for (index, cell) in self.cells.iter_mut().enumerate() {
            let Some((writer, value, number)) = &cell.last else { continue };
            if *writer != host || *number > before || cell.active.is_some() || !cell.unflushed {
                continue;
            }
            cell.unflushed = false;
            cell.wild = false;
            cell.allowed = exactly(value);
            match covered.last_mut() {
                Some((cells, whole)) if cells.end == index && index % CELLS > 0 => {
                    cells.end += 1;
                    whole.extend(value);
                }
                _ => covered.push((index..index + 1, value.clone())),
            }
        }
        covered
    }

    /// A flush of this host failed: what it covers is not promised.
    pub fn loss_reported(&mut self, host: Host, before: u64) {
        for cell in &mut self.cells {
            let covered =
                |(writer, _, number): &(Host, Vec<u32>, u64)| *writer == host && *number <= before;
            cell.unflushed &= !cell.last.as_ref().is_some_and(covered);
        }
    }

    /// The client is fenced: its locks are broken.
    pub fn evicted(&mut self, client: ClientId, upto: Incarnation) {
        let entry = self.fenced.entry(client).or_default();
        *entry = (*entry).max(upto);
        let dead = |(id, incarnation): Host| id == client && incarnation <= upto;
        for block in self.cells.chunks_mut(CELLS) {
            let (mut torn, mut degraded) = (false, false);
            for cell in &mut *block {
                cell.readers.retain(|&(host, _), _| !dead(host));
                if let Some((_, value)) = cell.active.take_if(|(host, _)| dead(*host)) {
                    cell.tear(&value);
                    (torn, degraded) = (true, degraded || cell.degraded);
                }
            }
            for cell in block.iter_mut().filter(|_| self.spread && torn) {
                cell.torn = true;
                cell.degraded |= degraded;
                if cell.degraded {
                    (cell.unflushed, cell.last) = (false, None);
                }
            }
        }
    }

    /// A member leaves the set in sync with this epoch; `lost`: its unflushed writes are lost for
    /// good.
    pub fn member_lost(&mut self, epoch: Epoch, lost: bool) {
        if lost {
            self.lost = epoch;
        }
        for block in self.cells.chunks_mut(CELLS) {
            let any = [block.iter().any(Cell::is_open), block.iter().any(|cell| cell.unflushed)];
            for cell in block {
                let own = [cell.is_open(), cell.unflushed];
                let [open, unflushed] = if self.spread { any } else { own };
                let loses = open && (lost || !self.striped) || lost && unflushed && !self.striped;
                if loses {
                    cell.unsettle(epoch);
                    cell.degraded |= open && !self.striped;
                    cell.wild |= lost;
                }
                if cell.torn && cell.degraded {
                    (cell.unflushed, cell.last) = (false, None);
                }
            }
        }
    }

    /// The region of these cells was resynced. A write that is active waits for its grant: what was
    /// read before it says nothing about what is read when it is torn, too.
    pub fn resynced(&mut self, cells: Range<usize>) {
        for cell in self.cells[cells].iter_mut().filter(|cell| cell.torn) {
            match cell.active {
                None => cell.mend(),
                Some(_) => cell.seen = None,
            }
        }
    }
}

const EPOCHS: [Epoch; 2] = [Epoch(1), Epoch(2)];

fn host(client: u32) -> Host {
    (ClientId(client), Incarnation(1))
}

fn read(oracle: &mut Oracle, client: u32, value: u32, epoch: Epoch) -> Result<bool, String> {
    let reader = (host(client), RequestId(9));
    assert!(oracle.read(reader.0, reader.1, 0..1));
    oracle.check(reader, 0..1, &[value], epoch)
}

/// Client 1 writes 5; client 2 begins to read; the write is lost; client 3 reads 0.
fn read_across_a_loss() -> (Oracle, (Host, RequestId)) {
    let mut oracle = Oracle::new(1, 1, Level::Mirror, Mode::Exclusive);
    oracle.write(host(1), 0..1, &[5], false);
    oracle.written(host(1), 0..1, EPOCHS[0]);
    let reader = (host(2), RequestId(1));
    assert!(oracle.read(reader.0, reader.1, 0..1));
    oracle.member_lost(EPOCHS[1], true);
    read(&mut oracle, 3, 0, EPOCHS[1]).expect("the write may be lost");
    (oracle, reader)
}

#[test]
fn a_read_of_an_earlier_epoch_returns_what_was_there_before_a_loss() {
    for (value, epoch, legal) in
        [(5, 0, true), (0, 0, false), (7, 0, false), (0, 1, true), (5, 1, false)]
    {
        let (mut oracle, reader) = read_across_a_loss();
        let verdict = oracle.check(reader, 0..1, &[value], EPOCHS[epoch]);
        assert_eq!(verdict.is_ok(), legal, "{value} in {epoch}: {verdict:?}");
    }
    let (mut oracle, reader) = read_across_a_loss();
    oracle.check(reader, 0..1, &[5], EPOCHS[0]).expect("it was read before the loss");
    for epoch in EPOCHS {
        read(&mut oracle, 2, 5, epoch).expect_err("a later read returns the same value");
        read(&mut oracle, 2, 0, epoch).expect("the value of the earlier read");
    }
}

/// All members of an earlier epoch answer after a decision that began with a loss.
#[test]
fn a_late_write_is_seen_by_its_epoch_and_may_be_lost_with_it() {
    let mut oracle = Oracle::new(1, 1, Level::Mirror, Mode::Exclusive);
    oracle.write(host(1), 0..1, &[5], false);
    oracle.member_lost(EPOCHS[1], true);
    oracle.written(host(1), 0..1, EPOCHS[0]);
    read(&mut oracle, 1, 7, EPOCHS[0]).expect_err("no client wrote this value");
    read(&mut oracle, 1, 5, EPOCHS[0]).expect("acknowledged");
    read(&mut oracle, 2, 7, EPOCHS[1]).expect("anything: the next flush reports it");
    read(&mut oracle, 3, 5, EPOCHS[1]).expect_err("a value that was read stays");
}

/// Client 1 has written 5 to the first cell; client 2 dies in a patch of the second.
#[test]
fn a_cell_keeps_its_value_when_the_writer_of_the_other_one_dies() {
    let (mirror, spread) = (Level::Mirror, Level::Fragments);
    for (level, degraded, legal) in
        [(mirror, true, false), (spread, false, false), (spread, true, true)]
    {
        let mut oracle = Oracle::new(1, 1, level, Mode::Exclusive);
        oracle.write(host(1), 0..1, &[5], false);
        oracle.written(host(1), 0..1, EPOCHS[0]);
        oracle.write(host(2), 1..2, &[6], degraded);
        assert!(!oracle.read(host(3), RequestId(1), 0..2), "a cell is being written");
        read(&mut oracle, 3, 5, EPOCHS[0]).expect("the other one is not");
        oracle.evicted(ClientId(2), Incarnation(1));
        assert_eq!(read(&mut oracle, 3, 7, EPOCHS[0]).is_ok(), legal, "{level:?} {degraded}");
    }
}

/// Client 1 dies in a write without a member; client 2 waits for the resync with another one.
#[test]
fn what_was_read_of_a_torn_cell_counts_until_its_resync() {
    for resynced in [false, true] {
        let mut oracle = Oracle::new(1, 1, Level::Fragments, Mode::Shared);
        oracle.write(host(1), 0..1, &[5], true);
        oracle.evicted(ClientId(1), Incarnation(1));
        read(&mut oracle, 3, 0, EPOCHS[0]).expect("torn");
        oracle.write(host(2), 0..1, &[6], true);
        if resynced {
            oracle.resynced(0..1);
        }
        oracle.evicted(ClientId(2), Incarnation(1));
        assert_eq!(read(&mut oracle, 3, 6, EPOCHS[0]).is_ok(), resynced);
        read(&mut oracle, 3, 7, EPOCHS[0]).expect_err("a value that was read stays");
    }
}
