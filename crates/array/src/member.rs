//! A member: the disk in a slot, its data offset and its statistics; and one shard's view of all
//! members.
//!
//! A [`Configuration`] is plain data: the keeper decides it and sends it to every shard. A [`View`]
//! combines it with a shard's own handles on the members. A view never changes, except for recovery
//! offsets; a new epoch brings a new view.

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use io::broken::{Broken, broken};
use io::{Disk, Limits};
use layout::{Configuration, Epoch, MemberId, Mode, RangeSet, Slot, SlotAssignment, SlotSet};
use log::LogPlace;

use crate::member::durations::DurationCounts;
use crate::member::latency::{Latency, LatencyStats};

pub(crate) mod batch;
pub(crate) mod deadlines;
pub(crate) mod durations;
pub(crate) mod latency;
pub(crate) mod orphans;
pub(crate) mod read_balance;

/// A counter that one thread writes and any thread may read.
#[derive(Default, Debug)]
pub(crate) struct Count(AtomicU64);

impl Count {
    /// Adds, on the counting thread.
    pub(crate) fn add(&self, by: u64) {
        // One thread writes: no need to lock the bus. Release: a reader of this value also sees
        // earlier counts.
        self.0.store(self.0.load(Ordering::Relaxed) + by, Ordering::Release);
    }

    /// Subtracts, on the counting thread.
    pub(crate) fn sub(&self, by: u64) {
        let now = self.0.load(Ordering::Relaxed);
        assert!(by <= now, "more requests ended than started");
        self.0.store(now - by, Ordering::Relaxed);
    }

    /// Sets the value, on the counting thread.
    pub(crate) fn set(&self, now: u64) {
        self.0.store(now, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }
}

/// The statistics of a member towards one shard since the array was started. The shard's thread
/// counts, the keeper's thread reads. Aligned apart from its neighbours in memory, so that counting
/// threads do not contend.
#[derive(Default, Debug)]
#[repr(align(128))]
pub(crate) struct Counters {
    /// Operations sent to it.
    pub(crate) operations: Count,
    /// Bytes read from it.
    pub(crate) read_bytes: Count,
    /// Bytes written to it.
    pub(crate) written_bytes: Count,
    /// Reads that failed.
    pub(crate) read_errors: Count,
    /// Writes that failed.
    pub(crate) write_errors: Count,
    /// Answers that missed the deadline.
    pub(crate) timeouts: Count,
    /// Bytes that were rewritten from redundancy after a read error.
    pub(crate) repaired_bytes: Count,
    /// Blocks read from it that did not match their checksums.
    pub(crate) checksum_errors: Count,
    /// Writes that missed their deadline and may still land, and writes outside the barrier.
    pub(crate) late_writes: Count,
    /// 1 while it is far slower than its peers.
    pub(crate) slow: Count,
    /// Times of reads and writes in nanoseconds: p50 and p99; 0 without enough answers.
    pub(crate) latency: [Count; 4],
    /// Durations of reads and of writes.
    pub(crate) durations: [DurationCounts; 2],
}

impl Counters {
    /// Times of reads and of writes.
    pub(crate) fn latency(&self) -> [Option<Latency>; 2] {
        let span = |count: &Count| Duration::from_nanos(count.get());
        let [read_p50, read_p99, write_p50, write_p99] = &self.latency;
        [(read_p50, read_p99), (write_p50, write_p99)].map(|(p50, p99)| {
            let known = p50.get() > 0;
            known.then(|| Latency { p50: span(p50), p99: span(p99) })
        })
    }

    /// Publishes the times.
    pub(crate) fn set_latency(&self, latency: [Option<Latency>; 2]) {
        for (counts, latency) in self.latency.chunks(2).zip(latency) {
            let Some(Latency { p50, p99 }) = latency else { continue };
            counts[0].set(p50.as_nanos() as u64);
            counts[1].set(p99.as_nanos() as u64);
        }
    }
}

/// The facts about a member that every shard needs besides its disk: plain data that may cross
/// threads.
#[derive(Clone, Debug)]
pub struct Introduction {
    /// Its number.
    pub id: MemberId,
    /// Path or address, for people.
    pub name: String,
    /// The start of the array's data on the disk, in bytes.
    pub data_offset: u64,
    /// Bytes of its data: what follows is not the array's. 0 for a journal device.
    pub data_bytes: u64,
    /// Bytes of its data that are on the bad-block list.
    pub bad: RangeSet,
    /// The place of its intent log, if the array has one.
    pub log: Option<LogPlace>,
    /// The start of its checksum table on the disk, in bytes, if there is one.
    pub table: Option<u64>,
    /// One for each shard.
    pub(crate) counters: Arc<[Counters]>,
}

impl Introduction {
    pub(crate) fn new(
        id: MemberId,
        name: &str,
        data: Range<u64>,
        bad: RangeSet,
        shards: usize,
    ) -> Introduction {
        let counters = (0..shards).map(|_| Counters::default()).collect();
        let (name, data_offset, data_bytes) = (name.into(), data.start, data.end - data.start);
        let (log, table) = (None, None);
        Introduction { id, name, data_offset, data_bytes, bad, log, table, counters }
    }

    /// The same member, with an intent log and a table of checksums.
    pub(crate) fn with_places(self, log: Option<LogPlace>, table: Option<u64>) -> Introduction {
        Introduction { log, table, ..self }
    }
}

/// One shard's handle on a member.
pub(crate) struct Member {
    pub(crate) id: MemberId,
    /// Path or address, for people.
    pub(crate) name: String,
    pub(crate) disk: Rc<dyn Disk>,
    /// The start of the array's data on the disk, in bytes.
    pub(crate) data_offset: u64,
    /// See [`Introduction::data_bytes`].
    data_bytes: u64,
    pub(crate) limits: Limits,
    counters: Arc<[Counters]>,
    shard: usize,
    /// A write of this shard has ended since it last asked for a flush.
    pub(crate) unflushed: Cell<bool>,
    /// Unreadable member offsets: md's bad-block list.
    pub(crate) bad: RefCell<RangeSet>,
    /// Operations in flight, for balancing reads.
    pub(crate) busy: Cell<u32>,
    /// End of the last read, for balancing reads.
    pub(crate) head: Cell<u64>,
    /// The place of its intent log, if the array has one.
    pub(crate) log: Option<LogPlace>,
    /// The start of its checksum table on the disk, if the array keeps checksums.
    pub(crate) table: Option<u64>,
    /// The last batch logged on it; 0: none.
    pub(crate) logged: Cell<u64>,
    /// The batch before that, in case the last one fails.
    pub(crate) logged_before: Cell<u64>,
    /// Its answer times.
    pub(crate) latency_stats: LatencyStats,
}

impl Member {
    /// The handle of this shard.
    pub(crate) fn new(known: &Introduction, disk: Rc<dyn Disk>, shard: usize) -> Member {
        let limits = disk.limits();
        Member {
            id: known.id,
            name: known.name.clone(),
            disk,
            data_offset: known.data_offset,
            data_bytes: known.data_bytes,
            limits,
            counters: Arc::clone(&known.counters),
            shard,
            unflushed: Cell::new(false),
            bad: RefCell::new(known.bad.clone()),
            busy: Cell::new(0),
            head: Cell::new(0),
            log: known.log,
            table: known.table,
            logged: Cell::new(0),
            logged_before: Cell::new(0),
            latency_stats: LatencyStats::default(),
        }
    }

    /// Bytes of its data.
    pub(crate) fn data_bytes(&self) -> u64 {
        self.data_bytes
    }

    /// Checks that a member offset range lies in the array's data.
    ///
    /// # Panics
    /// If it does not: the operation would overwrite superblock, bitmap or log.
    pub(crate) fn assert_holds(&self, at: u64, len: u64) {
        let fits = len <= self.data_bytes && at <= self.data_bytes - len;
        assert!(fits, "{}: {len} bytes at {at} are not all data", self.name);
    }

    /// Checks that a range of the disk lies beside the array's data.
    ///
    /// # Panics
    /// If it does not: a write of log or checksums would overwrite data.
    pub(crate) fn assert_beside(&self, offset: u64, len: u64) {
        let data = self.data_offset..self.data_offset + self.data_bytes;
        let beside = offset + len <= data.start || data.end <= offset;
        assert!(beside, "{}: {len} bytes at {offset} would overwrite data ({data:?})", self.name);
    }

    /// True if this handle was made from that introduction.
    pub(crate) fn is(&self, known: &Introduction) -> bool {
        Arc::ptr_eq(&self.counters, &known.counters)
    }

    /// This shard's counters of it.
    pub(crate) fn counters(&self) -> &Counters {
        &self.counters[self.shard]
    }

    /// True if these bytes are not on the bad-block list.
    pub(crate) fn is_good(&self, member_offset: u64, len: u64) -> bool {
        let bad = self.bad.borrow();
        bad.is_empty()
            || broken(Broken::BadBlocksRead)
            || !bad.overlaps(member_offset..member_offset + len)
    }

    /// True if all of these bytes are on the bad-block list.
    pub(crate) fn is_bad(&self, member_offset: u64, len: u64) -> bool {
        self.bad.borrow().covers(&(member_offset..member_offset + len))
    }

    /// The bytes of a range on the bad-block list, counted from `member_offset`.
    pub(crate) fn bad_within(&self, member_offset: u64, len: u64) -> RangeSet {
        let (bad, end) = (self.bad.borrow(), member_offset + len);
        let within = bad.iter().filter(|range| range.start < end && range.end > member_offset);
        within
            .map(|range| range.start.max(member_offset)..range.end.min(end))
            .map(|range| range.start - member_offset..range.end - member_offset)
            .collect()
    }
}

/// One shard's view of a slot.
pub(crate) struct SlotView {
    pub(crate) member: Option<Rc<Member>>,
    /// The slot is recovered below this array offset; `u64::MAX` if it is in sync.
    pub(crate) recovered_below: Cell<u64>,
    pub(crate) replacement: Option<Rc<Member>>,
    pub(crate) copied_below: Cell<u64>,
}

/// One shard's view of the configuration.
pub(crate) struct View {
    pub(crate) epoch: Epoch,
    pub(crate) mode: Mode,
    pub(crate) slots: Vec<SlotView>,
    /// The journal device, if the array has one.
    pub(crate) journal: Option<Rc<Member>>,
    /// Slots that are in sync: the fast path of most checks.
    pub(crate) in_sync: SlotSet,
    /// Slots that have a member.
    pub(crate) present: SlotSet,
}

impl View {
    pub(crate) fn new(
        configuration: &Configuration,
        member: impl Fn(MemberId) -> Option<Rc<Member>>,
    ) -> View {
        let assignment = |assignment: &SlotAssignment| SlotView {
            member: assignment.member.and_then(&member),
            recovered_below: Cell::new(assignment.recovered.unwrap_or(u64::MAX)),
            replacement: assignment.replacement.and_then(|(id, _)| member(id)),
            copied_below: Cell::new(assignment.replacement.map_or(0, |(_, copied)| copied)),
        };
        View {
            epoch: configuration.epoch,
            mode: configuration.mode,
            slots: configuration.slots.iter().map(assignment).collect(),
            journal: configuration.journal.and_then(&member),
            in_sync: configuration.in_sync(),
            present: configuration.present(),
        }
    }

    /// True if every slot is in sync.
    pub(crate) fn is_whole(&self) -> bool {
        self.in_sync.count() == self.slots.len()
    }

    /// The member in a slot.
    pub(crate) fn member(&self, slot: Slot) -> Option<&Rc<Member>> {
        self.slots[slot.index()].member.as_ref()
    }

    /// True if these bytes of a member may be read. The only place that decides this.
    pub(crate) fn is_readable(&self, slot: Slot, array_end: u64, at: u64, len: u64) -> bool {
        self.holding(slot, array_end).is_some_and(|member| member.is_good(at, len))
    }

    /// The member in a slot if it is recovered below an array offset, except for its bad blocks.
    pub(crate) fn holding(&self, slot: Slot, array_end: u64) -> Option<&Rc<Member>> {
        let assignment = &self.slots[slot.index()];
        assignment.member.as_ref().filter(|_| {
            array_end <= assignment.recovered_below.get() || broken(Broken::ReadsUnrebuilt)
        })
    }

    /// Every member that receives the writes to a slot.
    pub(crate) fn targets(&self, slot: Slot) -> impl Iterator<Item = &Rc<Member>> {
        let assignment = &self.slots[slot.index()];
        let replacement =
            assignment.replacement.iter().filter(|_| !broken(Broken::CopyMissesWrites));
        assignment.member.iter().chain(replacement)
    }

    /// True if this member is the slot's replacement.
    pub(crate) fn is_replacement(&self, slot: Slot, id: MemberId) -> bool {
        self.slots[slot.index()]
            .replacement
            .as_ref()
            .is_some_and(|replacement| replacement.id == id)
    }

    /// True if the array still uses this member, or journal device.
    pub(crate) fn has(&self, id: MemberId) -> bool {
        let journal = self.journal.iter().any(|journal| journal.id == id);
        journal || self.members().any(|(_, member)| member.id == id)
    }

    /// Every member, with its slot.
    pub(crate) fn members(&self) -> impl Iterator<Item = (Slot, &Rc<Member>)> {
        self.slots.iter().enumerate().flat_map(|(slot, assignment)| {
            assignment
                .member
                .iter()
                .chain(assignment.replacement.iter())
                .map(move |m| (Slot::new(slot), m))
        })
    }
}
