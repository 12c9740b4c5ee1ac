//! The keeper's state by subject: ranges in sync, regions, records, jobs, and the last crash.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use layout::{MemberId, RangeSet};
use log::expected::Expected;
use log::solve::TornRow;
use metadata::commit::async_mutex::AsyncMutex;

use crate::keeper::jobs::{ScrubRange, ScrubResult};
use crate::keeper::{Command, Job, Throttle, bitmap, flush};
use crate::rows::job::Task;
use crate::status::Replay;

/// The array ranges that agree, and the durability of that.
pub(crate) struct SyncState {
    /// Array ranges whose parity or copies may disagree.
    pub(crate) unsynced: RefCell<RangeSet>,
    /// Array ranges resynced since the last commit, which was also the last flush of all members.
    pub(crate) undurable: RefCell<RangeSet>,
    /// Array ranges without valid checksums; empty if the array keeps none.
    pub(crate) unchecksummed: RefCell<RangeSet>,
    /// For returned members: the ranges to copy.
    pub(crate) partial: RefCell<BTreeMap<MemberId, RangeSet>>,
}

/// Messages that were received but not handled yet.
pub(crate) struct Inbox {
    /// Lost members, with their errors.
    pub(crate) lost: RefCell<VecDeque<(MemberId, io::Error)>>,
    /// Shards that wait for the next flush.
    pub(crate) flushing: RefCell<Vec<flush::Asked>>,
    pub(crate) commands: RefCell<VecDeque<(Command, io::Ticket)>>,
    /// Shards that have become still since their barriers were closed.
    pub(crate) quiesced_shards: RefCell<BTreeSet<usize>>,
    /// Shards that refuse requests and have none in flight.
    pub(crate) quiesced: RefCell<BTreeSet<usize>>,
    pub(crate) marking: RefCell<VecDeque<bitmap::Asked>>,
}

/// Regions of the write-intent bitmap.
pub(crate) struct Regions {
    /// Regions whose bits may be cleared.
    pub(crate) clearing: RefCell<Vec<u64>>,
    /// The shards that hold a region's bit.
    pub(crate) holders: RefCell<BTreeMap<u64, BTreeSet<usize>>>,
    pub(crate) awake: RefCell<BTreeSet<usize>>,
}

/// The state of the superblocks, and whether they may be written.
pub(crate) struct RecordState {
    /// The superblocks are marked clean: no write is in flight.
    pub(crate) clean: Cell<bool>,
    /// Nothing was recorded since the start. The superblocks may still say that nothing was ever
    /// written, may list absent members as in sync, and do not match the current log session.
    pub(crate) unrecorded: Cell<bool>,
    /// Journal device and a member were lost together: rows may be torn that no log lists.
    pub(crate) unlogged: Cell<bool>,
    /// Another host has taken over the array: this one must not write to it any more.
    pub(crate) overtaken: Cell<bool>,
    /// The turn to write the superblocks.
    pub(crate) deciding: AsyncMutex,
}

/// Background work.
#[derive(Default)]
pub(crate) struct Jobs {
    pub(crate) job: RefCell<Option<Job>>,
    pub(crate) scrub: RefCell<Option<Task>>,
    /// What the scrub compares.
    pub(crate) scrub_range: RefCell<ScrubRange>,
    pub(crate) last_scrub: RefCell<Option<ScrubResult>>,
    /// The last scrub of a part.
    pub(crate) last_part: RefCell<Option<ScrubResult>>,
    pub(crate) throttle: Throttle,
}

/// The state after the last session, from assembly.
pub(crate) struct CrashState {
    /// Ranges where a crash may have separated blocks from their checksums.
    pub(crate) torn: RangeSet,
    /// Unsynced ranges may hold writes torn by a crash.
    pub(crate) unverified: bool,
    /// The intent log has listed all interrupted writes.
    pub(crate) resolved: bool,
    /// The result of the replay.
    pub(crate) replay: Cell<Option<Replay>>,
    /// Rows to replay before the first request.
    pub(crate) torn_rows: RefCell<Vec<TornRow>>,
    /// Before that, absent members are recorded as stale.
    pub(crate) record_first: bool,
    /// The block contents that the intent log allows, if the array keeps checksums.
    pub(crate) expected: RefCell<Expected>,
}
