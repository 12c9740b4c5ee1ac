//! The fragment journal of a member's disk: a place for one entry, in front of the data.
//!
//! `sectors` says why and when. Owns the entry, and what a start makes of it:
//!
//! | found | meaning | start |
//! |---|---|---|
//! | no head of an entry | cleared, or never used | goes on |
//! | another checksum | torn: no sector of it was written in place | goes on |
//! | an entry | its sectors may be torn in place | writes them again, flushes, clears |
//! | valid checksum, but no entry, or one beyond the data | damage, another version | refuses |
//!
//! Invariants: an entry is cleared or replaced only after its sectors are durable in place. A start
//! that is cut off leaves it to the next.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;

use cluster::session::Journaled;
use cluster::wire::{self, Malformed};
use io::broken::{Broken, broken};
use io::{Completion, Disk, Done, Error, Op, Part, Pool, Result, SharedBuf, Work};

use super::area::{self, BLOCK_BYTES};

/// Bytes of an entry for each sector: offset and length. The rest of a frame is less than a block.
const SECTOR_HEAD: u64 = 12;
/// Most sectors of a write.
const MOST_RUN: usize = 256;

/// Whole sectors, with their first bytes.
pub(super) type Whole = Vec<(u64, SharedBuf)>;

/// The journal, and the data that it is for.
pub(super) struct Journal {
    place: Part,
    data: Rc<Part>,
    /// First bytes of the sectors that a start would write.
    entry: RefCell<BTreeSet<u64>>,
    /// True if these are durable in place.
    settled: Cell<bool>,
}

/// Writes sectors in place, neighbours together. Ascending.
async fn write_in_place(data: &Part, sectors: &Whole) -> Result<()> {
    let goes_on =
        |one: &(u64, SharedBuf), next: &(u64, SharedBuf)| one.0 + one.1.len() as u64 == next.0;
    let write = |run: &[(u64, SharedBuf)]| {
        let bufs = run.iter().map(|(_, bytes)| bytes.clone()).collect();
        data.submit(Op::new(run[0].0, Work::Write(bufs)))
    };
    let runs = sectors.chunk_by(goes_on).flat_map(|run| run.chunks(MOST_RUN));
    let writes: Vec<Completion<Done>> = runs.map(write).collect();
    let mut result = Ok(());
    for write in writes {
        result = result.and(write.await.result);
    }
    result
}

fn damaged(what: impl std::fmt::Display) -> Error {
    Error::refused(format!("fragment journal: {what}: the disk is damaged, or of another version"))
}

impl Journal {
    /// Opens the journal: writes the sectors of its entry in place, if it has one.
    ///
    /// # Errors
    /// `Refused` if it is damaged; else the disk's.
    pub(super) async fn open(place: Part, data: Rc<Part>) -> Result<Journal> {
        let (entry, settled) = (RefCell::default(), Cell::new(true));
        let journal = Journal { place, data, entry, settled };
        if let Some(Journaled { sectors }) = journal.read().await?
            && !broken(Broken::FragmentsNotReplayed)
        {
            let pool = Pool::new(0);
            let shared = |(at, bytes): (u64, Vec<u8>)| (at, pool.copy_of(&bytes).freeze());
            let sectors = sectors.into_iter().map(shared).collect();
            journal.settled.set(false);
            write_in_place(&journal.data, &sectors).await?;
            journal.clear().await?;
        }
        Ok(journal)
    }

    /// The valid entry, if there is one.
    async fn read(&self) -> Result<Option<Journaled>> {
        let head = area::read(&self.place, 0, BLOCK_BYTES).await?;
        let length = match wire::frame_bytes(&head) {
            Err(Malformed::Magic) => return Ok(None),
            Ok(Some(length)) if length as u64 <= self.place.limits().bytes => length,
            _ => return Err(damaged("the length of its entry is out of range")),
        };
        let bytes = area::read(&self.place, 0, length.next_multiple_of(BLOCK_BYTES)).await?;
        let entry = match wire::decode::<Journaled>(&bytes) {
            Ok((entry, _)) => entry,
            Err(Malformed::Checksum) if !broken(Broken::TornFragmentsReplayed) => return Ok(None),
            Err(error) => return Err(damaged(error)),
        };
        let limits = self.data.limits();
        let lies_within = |(at, bytes): &(u64, Vec<u8>)| {
            let write =
                Op::new(*at, Work::Zero { len: bytes.len() as u64, unmap: false, fast: false });
            limits.check(&write).is_none()
        };
        match entry.sectors.iter().all(lies_within) {
            true => Ok(Some(entry)),
            false => Err(damaged("a sector of its entry is out of range")),
        }
    }

    /// Most sectors of this length in an entry.
    pub(super) fn most(&self, sector_bytes: u64) -> usize {
        let room = self.place.limits().bytes - BLOCK_BYTES as u64;
        (room / (sector_bytes + SECTOR_HEAD)) as usize
    }

    /// True if a start would write this sector.
    pub(super) fn has(&self, at: u64) -> bool {
        self.entry.borrow().contains(&at)
    }

    /// Overwrites whole sectors that no entry has. Durable after a flush.
    pub(super) async fn write(&self, sectors: &Whole) -> Result<()> {
        assert!(sectors.iter().all(|&(at, _)| !self.has(at)) || broken(Broken::OldFragmentsKept));
        write_in_place(&self.data, sectors).await
    }

    /// Overwrites parts of sectors, given as the whole sectors. Durable after a flush. One at a
    /// time.
    pub(super) async fn overwrite(&self, sectors: &Whole) -> Result<()> {
        self.settle().await?;
        let copied = sectors.iter().map(|(at, bytes)| (*at, bytes.to_vec())).collect();
        let entry = wire::encode(&Journaled { sectors: copied });
        if !broken(Broken::FragmentsUnjournaled) {
            self.store(&entry).await?;
        }
        *self.entry.borrow_mut() = sectors.iter().map(|(at, _)| *at).collect();
        self.settled.set(false);
        write_in_place(&self.data, sectors).await
    }

    /// Makes writes durable that are complete. Not beside [`Journal::overwrite`].
    pub(super) async fn flush(&self) -> Result<()> {
        self.data.submit(Op::flush()).await.result?;
        self.settled.set(true);
        Ok(())
    }

    /// Makes sure that no start writes the sectors of the entry. Not beside
    /// [`Journal::overwrite`].
    pub(super) async fn clear(&self) -> Result<()> {
        self.settle().await?;
        if !broken(Broken::OldFragmentsKept) {
            self.store(&[0; BLOCK_BYTES]).await?;
        }
        self.entry.borrow_mut().clear();
        Ok(())
    }

    /// Writes the beginning of the journal, durably.
    async fn store(&self, bytes: &[u8]) -> Result<()> {
        let mut buf = Pool::new(0).take_zeroed(bytes.len().next_multiple_of(BLOCK_BYTES));
        buf[..bytes.len()].copy_from_slice(bytes);
        self.place.submit(Op::write(0, buf.freeze())).await.result?;
        self.place.submit(Op::flush()).await.result
    }

    /// Makes the sectors of the entry durable in place.
    async fn settle(&self) -> Result<()> {
        if self.settled.get() || broken(Broken::FragmentsUnsettled) {
            Ok(())
        } else {
            self.flush().await
        }
    }
}
