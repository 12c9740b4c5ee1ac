//! Checksums of the members' blocks: a read returns the bytes last written, or it is repaired or
//! fails (`layout::private::checksums` has the theory and the form).
//!
//! ```text
//!   read   ─▶ page in memory? ─no─▶ read it ─▶ verify each block ─mismatch─▶ lock the row, read
//!                                                                         all of it (`repair.rs`)
//!   write  ─▶ old blocks verified ─▶ log: new checksums, old entries ─▶ data ─▶ entries in memory
//!                                                                         │ later
//!   page   ◀── before log space, the bitmap bit or the dirty mark is released ──╯
//! ```
//!
//! Owns the pages of the table that are in memory. A page may be written to its member at any time;
//! no order between a page and the data is needed:
//!
//! - With an intent log, a live record has the old entry and the new checksum of each of its
//!   blocks. After a crash the block matches one of the two, and replay corrects the page
//!   accordingly (`keeper/replay_checksums.rs`).
//! - Without a log, entries of regions with set bits are used only for blocks that match them,
//!   until the regions are synced and checksummed again (`torn.rs`).
//!
//! Invariants:
//! - An entry changes only under the lock of its row, after its block was written.
//! - A page in memory is at least as new as the one on the member. It leaves memory only when
//!   equal.
//! - Regions of different shards have no page in common ([`region_bytes`]).

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

use io::broken::{Broken, broken};
use io::{Class, Signal, Turn};
use layout::private::CHECKSUM_BLOCK_BYTES;
use layout::private::checksums::{ChecksumEntry, PAGE_BYTES, PAGE_COVERS, Seed, place};
use layout::{Family, Geometry, Layout, MemberId, RangeSet, Slot};
use metadata::{Error, ErrorKind, Result};

use crate::member::Member;
use crate::member::batch::IoOptions;
use crate::rows::Scratch;
use crate::rows::engine::{Engine, RowOp};
use crate::rows::intent::Log;

pub(crate) mod generations;
mod load;
pub(crate) mod repair;
mod torn;
pub(crate) mod update;
pub(crate) mod verdict;
pub(crate) mod verify;

pub(crate) use torn::Read;
pub(crate) use update::New;

/// The number of recently used pages that are remembered.
const RECENT: usize = 16;

/// Bytes per checksum.
pub(crate) const BLOCK: u64 = CHECKSUM_BLOCK_BYTES;

/// The checksum settings of a shard.
#[derive(Clone, Debug)]
pub(crate) struct ChecksumSetup {
    pub(crate) seed: Seed,
    /// Array ranges whose entries are not valid yet.
    pub(crate) unchecksummed: RangeSet,
    /// Array ranges where a crash may have separated blocks from their entries.
    pub(crate) torn: RangeSet,
}

/// Bytes of a region, such that no two regions share a page: about the usual number, or the whole
/// array where its places are not contiguous.
pub(crate) fn region_bytes(geometry: &Geometry) -> u64 {
    let usual = geometry.region_bytes();
    let unit = match (geometry.family(), geometry.layout()) {
        (Family::Parity, _) => {
            let stripes = PAGE_COVERS.div_ceil(geometry.chunk_bytes());
            stripes * geometry.stripe_bytes()
        }
        (_, Layout::Raid1) => PAGE_COVERS,
        _ => return geometry.capacity().next_multiple_of(geometry.stripe_bytes()),
    };
    (usual / unit).max(1) * unit
}

/// See the module.
pub(crate) struct ChecksumTable {
    seed: Seed,
    pages: RefCell<BTreeMap<(MemberId, u64), Rc<Page>>>,
    /// Recently used pages: one write looks the same few pages up a dozen times.
    recent: RefCell<[Option<Rc<Page>>; RECENT]>,
    /// The most unused pages that are kept.
    most: usize,
    /// Counts uses of pages, as a clock for their age.
    turn: Cell<u64>,
    /// Number of pages with changes that their members do not have.
    dirty: Cell<usize>,
    /// Array ranges whose entries are not valid yet.
    pub(crate) unchecksummed: RefCell<RangeSet>,
    /// The torn part of these at the start: an entry that matches its block is valid there. Never
    /// changes.
    torn: RangeSet,
    /// Raised when a page has been read, or its read has failed.
    arrived: Signal,
    /// Writes of dirty pages: one at a time, numbered as they begin.
    begun: Cell<u64>,
    ended: Cell<u64>,
    running: Cell<bool>,
    changed: Signal,
    /// Raised when pages should be written, and at the end.
    pub(crate) pressure: Signal,
    list: RefCell<Vec<Rc<Page>>>,
    /// Damaged entries were corrected, and no bitmap bit covers that.
    pub(crate) repaired: Cell<bool>,
}

/// A page of a member's table.
pub(crate) struct Page {
    member: Rc<Member>,
    slot: Slot,
    number: u64,
    bytes: RefCell<Vec<u8>>,
    /// The page has been read; if false, a read is in flight.
    ready: Cell<bool>,
    dirty: Cell<bool>,
    used: Cell<u64>,
}

/// A part of a member whose checksums are needed.
#[derive(Clone)]
pub(crate) struct Wanted {
    pub(crate) member: Rc<Member>,
    pub(crate) slot: Slot,
    /// From the start of the member's data.
    pub(crate) range: Range<u64>,
}

impl ChecksumTable {
    pub(crate) fn new(setup: &ChecksumSetup, bytes: u64) -> ChecksumTable {
        ChecksumTable {
            seed: setup.seed,
            pages: RefCell::default(),
            recent: RefCell::default(),
            most: (bytes / PAGE_BYTES) as usize,
            turn: Cell::new(0),
            dirty: Cell::new(0),
            unchecksummed: RefCell::new(setup.unchecksummed.clone()),
            torn: setup.torn.clone(),
            arrived: Signal::new(),
            begun: Cell::new(0),
            ended: Cell::new(0),
            running: Cell::new(false),
            changed: Signal::new(),
            pressure: Signal::new(),
            list: RefCell::default(),
            repaired: Cell::new(false),
        }
    }

    /// True if the table's entries for this array range are valid.
    pub(crate) fn counts(&self, offset: u64, len: u64) -> bool {
        let unchecksummed = self.unchecksummed.borrow();
        unchecksummed.is_empty() || !unchecksummed.overlaps(offset..offset + len)
    }

    /// True if a crash may have separated the blocks of this array range from their entries. A
    /// block that matches its entry is right there; any other block may be right, too.
    pub(crate) fn is_torn(&self, offset: u64, len: u64) -> bool {
        let (end, unchecksummed) = (offset + len, self.unchecksummed.borrow());
        if !unchecksummed.overlaps(offset..end) || broken(Broken::TornChecksumsIgnored) {
            return false;
        }
        let mut at = offset;
        while let Some(range) = unchecksummed.next(at).filter(|range| range.start < end) {
            let part = range.start.max(at)..range.end.min(end);
            if !self.torn.covers(&part) {
                return false;
            }
            at = part.end;
        }
        true
    }

    /// The checksum of a block of a slot with this CRC.
    pub(crate) fn checksum(&self, slot: Slot, block: u64, crc: u32) -> u32 {
        let (slot, block) =
            if broken(Broken::ChecksumsUnseeded) { (Slot::new(0), 0) } else { (slot, block) };
        self.seed.checksum(slot, block, crc)
    }

    /// The checksum that a block of zeros would have there.
    pub(crate) fn checksum_of_zeros(&self, slot: Slot, block: u64) -> u32 {
        self.seed.checksum_of_zeros(slot, block)
    }

    /// True if this is the entry of a block of a slot with this CRC.
    pub(crate) fn fits(&self, entry: ChecksumEntry, (slot, block): (Slot, u64), crc: u32) -> bool {
        entry.fits(crc, self.checksum(slot, block, crc))
    }

    /// The page with a block's entry, and the entry's index there, if the page is in memory.
    fn page(&self, member: MemberId, block: u64) -> Option<(Rc<Page>, usize)> {
        let (number, index) = place(block);
        self.recall(member, number).map(|page| (page, index))
    }

    /// A page that is in memory.
    fn recall(&self, member: MemberId, number: u64) -> Option<Rc<Page>> {
        let mut recent = self.recent.borrow_mut();
        let assignment = &mut recent[(u64::from(member.0) + number) as usize % RECENT];
        if let Some(page) = assignment.as_ref().filter(|page| page.is(member, number)) {
            return Some(Rc::clone(page));
        }
        let pages = self.pages.borrow();
        let page = pages.get(&(member, number)).filter(|page| page.ready.get())?;
        *assignment = Some(Rc::clone(page));
        Some(Rc::clone(page))
    }

    /// Empties the list of recent pages, so that only real users keep pages alive.
    fn forget_recent(&self) {
        self.recent.borrow_mut().fill(None);
    }

    /// True if the page with a block's entry is in memory.
    pub(crate) fn is_there(&self, member: MemberId, block: u64) -> bool {
        self.page(member, block).is_some()
    }

    /// The entry of a block; unknown if its page is not in memory.
    pub(crate) fn entry(&self, member: MemberId, block: u64) -> ChecksumEntry {
        let page = self.page(member, block);
        page.map_or(ChecksumEntry::UNKNOWN, |(page, index)| {
            ChecksumEntry::get(&page.bytes.borrow(), index)
        })
    }

    /// True if the entry says that the block holds zeros. False if its page is not in memory.
    pub(crate) fn is_zeros(&self, member: MemberId, (slot, block): (Slot, u64)) -> bool {
        let entry = self.entry(member, block);
        let written = entry.generation != 0;
        entry == ChecksumEntry::ZEROS
            || written && entry.checksum == self.checksum_of_zeros(slot, block)
    }

    /// Changes an entry whose page is in memory. False if it is not.
    pub(crate) fn set(&self, member: MemberId, block: u64, checksum: ChecksumEntry) -> bool {
        let Some((page, index)) = self.page(member, block) else { return false };
        checksum.put(&mut page.bytes.borrow_mut(), index);
        if !page.dirty.replace(true) {
            self.dirty.set(self.dirty.get() + 1);
        }
        true
    }

    /// True if so many pages are dirty that they should be written now.
    pub(crate) fn has_pressure(&self) -> bool {
        self.dirty.get() > self.most / 2
    }

    /// True if any page has changes that its member does not have.
    pub(crate) fn is_dirty(&self) -> bool {
        self.dirty.get() > 0 || self.running.get()
    }

    /// Drops the pages of a member that is introduced again or has no slot. A write of these pages
    /// in preparation must not go out: the disk may have another use by now.
    pub(crate) fn forget(&self, member: MemberId) {
        self.forget_recent();
        let mut pages = self.pages.borrow_mut();
        let own = pages.values().filter(|page| page.member.id == member);
        let kept = broken(Broken::ForgottenPageWritten);
        let dirty = own.filter(|page| page.dirty.replace(kept && page.dirty.get())).count();
        assert!(dirty <= self.dirty.get(), "dirty pages are miscounted");
        self.dirty.set(self.dirty.get() - dirty);
        pages.retain(|&(id, _), _| id != member);
    }

    /// Finds a page, or adds one that the caller must read.
    fn find(&self, wanted: &Wanted, number: u64) -> (Rc<Page>, bool) {
        self.turn.set(self.turn.get() + 1);
        if let Some(page) = self.recall(wanted.member.id, number) {
            page.used.set(self.turn.get());
            return (page, false);
        }
        let mut pages = self.pages.borrow_mut();
        let key = (wanted.member.id, number);
        if let Some(page) = pages.get(&key) {
            page.used.set(self.turn.get());
            return (Rc::clone(page), false);
        }
        let page = Rc::new(Page {
            member: Rc::clone(&wanted.member),
            slot: wanted.slot,
            number,
            bytes: RefCell::new(Vec::new()),
            ready: Cell::new(false),
            dirty: Cell::new(false),
            used: Cell::new(self.turn.get()),
        });
        pages.insert(key, Rc::clone(&page));
        (page, true)
    }

    /// Evicts the least recently used pages if there are too many.
    fn evict(&self) {
        let mut pages = self.pages.borrow_mut();
        if pages.len() <= self.most {
            return;
        }
        self.forget_recent();
        let idle = |page: &Rc<Page>| Rc::strong_count(page) == 1 && !page.dirty.get();
        let mut uses: Vec<u64> =
            pages.values().filter(|page| idle(page)).map(|page| page.used.get()).collect();
        // Evicts an eighth at a time: a scan of all pages for each eviction would be slow.
        let excess = (pages.len() - self.most + self.most / 8).min(uses.len());
        let Some(last) = excess.checked_sub(1) else { return };
        let (_, &mut limit, _) = uses.select_nth_unstable(last);
        pages.retain(|_, page| !idle(page) || page.used.get() > limit);
    }
}

impl RowOp<'_> {
    /// Completes when every entry changed before this call is on its member, though not durably
    /// before a flush. Failed members are lost, on record: until then the log keeps the entries
    /// that their tables lack. Must not be awaited inside the barrier.
    ///
    /// # Errors
    /// If a member failed: changes for the others may not be written yet.
    pub(crate) async fn write_checksums(&mut self) -> Result<()> {
        let Some(checksums) = &self.engine.checksums else { return Ok(()) };
        let wanted = checksums.begun.get() + 1;
        loop {
            if checksums.ended.get() >= wanted {
                return Ok(());
            }
            let Some(_turn) = Turn::take(&checksums.running, &checksums.changed) else {
                checksums.changed.wait().await;
                continue;
            };
            checksums.begun.set(checksums.begun.get() + 1);
            let number = self.engine.log.as_ref().map(Log::checksums_begin);
            let whole = self.write_pages(checksums).await;
            if !whole && !broken(Broken::ChecksumsLossUnrecorded) {
                self.engine.on_record().await;
            }
            if whole {
                checksums.ended.set(checksums.begun.get());
                // A failed array does not record losses.
                let log = self.engine.log.as_ref().filter(|_| !self.engine.view().mode.is_final());
                log.zip(number).inspect(|(log, number)| log.checksums_written(*number));
            }
            if !whole {
                let what = "a member did not take its checksums";
                return Err(Error::new(ErrorKind::MemberLost, what));
            }
        }
    }

    /// Writes all pages that are dirty now. False if a member failed.
    async fn write_pages(&mut self, checksums: &ChecksumTable) -> bool {
        // Only one task writes pages at a time, so it can reuse the list.
        let mut dirty = checksums.list.take();
        dirty.extend(
            checksums.pages.borrow().values().filter(|page| page.dirty.get()).map(Rc::clone),
        );
        let mut whole = true;
        for group in dirty.chunks(self.engine.setup.bounds.units) {
            let runs = group.chunk_by(|page, next| page.goes_out_with(next));
            for run in runs.filter(|run| run[0].dirty.get()) {
                let bytes = run.iter().map(|page| {
                    assert!(page.ready.get(), "a write of a page that was never read");
                    page.dirty.set(false);
                    checksums.dirty.set(checksums.dirty.get() - 1);
                    self.engine.pool.copy_of(&page.bytes.borrow()).freeze()
                });
                self.work.batch.log(&run[0].member, run[0].slot, run[0].place(), bytes);
            }
            // The barrier does not wait for these writes: a failed member must not return before
            // they land.
            let ungated = || group.iter().filter(|_| !broken(Broken::PageOvertaken));
            ungated().for_each(|page| page.member.counters().late_writes.add(1));
            let opts = IoOptions {
                fua: false,
                class: Class::Background,
                op_bytes: 0,
                deadline: self.engine.setup.bounds.deadline,
            };
            self.engine.run(&mut self.work.batch, opts).await;
            // Unanswered writes are counted as late by now.
            ungated().for_each(|page| page.member.counters().late_writes.sub(1));
            self.work.batch.drain(|_, _, _| {}, |_, _, _| {}, &mut self.work.failures);
            for failure in self.work.failures.drain(..) {
                whole = false;
                self.engine.lose_late(&failure.member, failure.error);
            }
        }
        dirty.clear();
        *checksums.list.borrow_mut() = dirty;
        whole
    }
}

impl Engine {
    /// Writes pages when too many are dirty, until the shard stops.
    pub(crate) async fn tend_checksums(self: Rc<Self>) {
        let Some(checksums) = &self.checksums else { return };
        let mut scratch = Scratch::default();
        while !self.is_stopping() {
            let repaired = checksums.repaired.take();
            if checksums.has_pressure() || repaired {
                // Failures are reported: the next round runs without the failed members.
                let _ = RowOp::new(&self, &mut scratch, self.background()).write_checksums().await;
                if repaired {
                    let _ = self.make_durable().await;
                }
            } else {
                checksums.pressure.wait().await;
            }
        }
    }
}

impl Page {
    fn is(&self, member: MemberId, number: u64) -> bool {
        (self.member.id, self.number) == (member, number)
    }

    /// True if both pages are dirty and `next` is adjacent: one write covers both.
    fn goes_out_with(&self, next: &Page) -> bool {
        self.dirty.get() && next.dirty.get() && next.is(self.member.id, self.number + 1)
    }

    /// The page's offset on its member's disk.
    fn place(&self) -> u64 {
        let table = self.member.table.expect("every member of an array with sums has a table");
        // The page is in the table if its first block is in the member's data.
        self.member.assert_holds(self.number * PAGE_COVERS, 1);
        table + self.number * PAGE_BYTES
    }
}
