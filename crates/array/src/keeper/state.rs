//! What the keeper knows, by subject: ranges in sync, regions, records, jobs, and the last crash.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use layout::{MemberId, RangeSet};
use log::expected::Expected;
use log::solve::TornRow;
use metadata::commit::async_mutex::AsyncMutex;

use crate::keeper::jobs::ScrubResult;
use crate::keeper::{Command, Job, Throttle, bitmap, flush};
use crate::rows::job::Task;
use crate::status::Replay;

/// Which array ranges agree, and how far that is durable.
pub(crate) struct SyncState {
    /// Array ranges whose parity or copies may disagree.
    pub(crate) unsynced: RefCell<RangeSet>,
    /// Array ranges that were synced since the last record, which was the last flush of all.
    pub(crate) undurable: RefCell<RangeSet>,
    /// Array ranges whose checksums mean nothing yet; empty without checksums.
    pub(crate) unchecksummed: RefCell<RangeSet>,
    /// For members that came back: the only ranges that must be copied.
    pub(crate) partial: RefCell<BTreeMap<MemberId, RangeSet>>,
}

/// What arrived and was not acted upon.
pub(crate) struct Inbox {
    /// What arrived and was not acted upon.
    pub(crate) lost: RefCell<VecDeque<(MemberId, io::Error)>>,
    /// Shards that wait for the next flush.
    pub(crate) flushing: RefCell<Vec<flush::Asked>>,
    pub(crate) commands: RefCell<VecDeque<(Command, io::Ticket)>>,
    /// Shards that have come to a stand since the gates were closed.
    pub(crate) still: RefCell<BTreeSet<usize>>,
    /// Shards that take no request any more, and have none.
    pub(crate) quiesced: RefCell<BTreeSet<usize>>,
    pub(crate) marking: RefCell<VecDeque<bitmap::Asked>>,
}

/// Regions of the write-intent bitmap.
pub(crate) struct Regions {
    /// Regions whose bits may be cleared.
    pub(crate) clearing: RefCell<Vec<u64>>,
    /// Who holds a region's mark.
    pub(crate) holders: RefCell<BTreeMap<u64, BTreeSet<usize>>>,
    pub(crate) awake: RefCell<BTreeSet<usize>>,
}

/// What the superblocks say, and whether they may be written.
pub(crate) struct RecordState {
    /// No write is under way: what the superblocks say.
    pub(crate) clean: Cell<bool>,
    /// Nothing was recorded since the start: the superblocks may say that nothing was ever written,
    /// may count members in that are not here, and do not go with what is logged now.
    pub(crate) unrecorded: Cell<bool>,
    /// Journal device and member were lost in one moment: rows may be cut that no log tells of.
    pub(crate) unlogged: Cell<bool>,
    /// Somebody else has decided about this array: it is not ours to write any more.
    pub(crate) overtaken: Cell<bool>,
    /// Somebody is deciding what the superblocks say.
    pub(crate) deciding: AsyncMutex,
}

/// Background work.
pub(crate) struct Jobs {
    pub(crate) job: RefCell<Option<Job>>,
    pub(crate) scrub: RefCell<Option<Task>>,
    pub(crate) last_scrub: RefCell<Option<ScrubResult>>,
    pub(crate) throttle: Throttle,
}

/// What the last run left behind, as assembly found it.
pub(crate) struct CrashState {
    /// Where a crash may have separated blocks from their checksums.
    pub(crate) torn: RangeSet,
    /// A crash may have cut writes there.
    pub(crate) unverified: bool,
    /// The intent log has told of all that a crash may have cut.
    pub(crate) resolved: bool,
    /// What was made right from the intent log.
    pub(crate) replay: Cell<Option<Replay>>,
    /// Rows to be made right before anything else.
    pub(crate) torn_rows: RefCell<Vec<TornRow>>,
    /// Before that, who is left out is put on record.
    pub(crate) record_first: bool,
    /// What blocks may hold by the intent log, where checksums are kept.
    pub(crate) expected: RefCell<Expected>,
}
