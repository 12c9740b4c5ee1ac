//! How an array is: what the program shows.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::time::Duration;

use layout::private::Consistency;
use layout::private::journal::JournalUse;
use layout::{Layout, MemberId, Mode, Slot};

use crate::keeper::{JobKind, ScrubResult};
use crate::member::latency::Latency;

/// Why a member was given up whose list of bad blocks can take no more.
pub const FULL_LIST: &str = "its list of bad blocks is full";

/// Why a full array takes no writes, and what to do.
pub const FULL: &str =
    "the stores of its members have no space left; free space, stop the array, and start it again";

/// Everything there is to know about a running array, at one moment.
#[derive(Clone, Debug)]
pub struct Status {
    /// Its name.
    pub name: String,
    /// Its identity.
    pub uuid: [u8; 16],
    /// Level and layout.
    pub layout: Layout,
    /// Bytes of a chunk; 0 on RAID 1.
    pub chunk_bytes: u64,
    /// Bytes of the array.
    pub capacity_bytes: u64,
    /// May it be written?
    pub mode: Mode,
    /// Its superblocks say that no write is under way.
    pub clean: bool,
    /// Number of the configuration since the start.
    pub epoch: u64,
    /// md's event count.
    pub events: u64,
    /// Members that may still be lost, whichever they are, before data is. None on levels with
    /// parity while some of it is not in sync, or not computed.
    pub redundancy_left: usize,
    /// Array bytes whose parity or copies may disagree.
    pub unsynced_bytes: u64,
    /// Bytes of the array whose checksums do not count yet; `None` if it keeps none.
    pub unsummed_bytes: Option<u64>,
    /// Array bytes that are lost though no member's block is bad: errors until they are written.
    pub bad_bytes: u64,
    /// The intent log has told of all that a crash may have cut there: it is only compared again,
    /// and parity can be relied on meanwhile.
    pub verifying: bool,
    /// How it stands against the write hole: of use at the levels with parity.
    pub consistency: Consistency,
    /// The journal device, if the array has one.
    pub journal: Option<JournalStatus>,
    /// What was made right from the intent log when it was started; `None` if nothing had to be.
    pub replay: Option<Replay>,
    /// Parity is computed, on levels that have it: off only to measure what it costs.
    pub parity: bool,
    /// Each slot in order.
    pub slots: Vec<SlotStatus>,
    /// Members that wait.
    pub spares: Vec<MemberStatus>,
    /// Background work under way.
    pub job: Option<JobStatus>,
    /// How the last scrub since the start ended.
    pub last_scrub: Option<ScrubResult>,
    /// Memory of writes that are acknowledged and not on the members yet.
    pub cached_bytes: u64,
    /// Writes that had to wait for a flush, since the intent log tells of their rows already.
    pub log_conflicts: u64,
    /// Requests under way.
    pub requests_in_flight: usize,
}

/// A journal device.
#[derive(Clone, Debug)]
pub struct JournalStatus {
    /// Its identity.
    pub uuid: [u8; 16],
    /// Path or address, or what it was last called.
    pub name: String,
    /// Whether the log lies there, by the array's record.
    pub used: JournalUse,
    /// How it has behaved since the start; `None` if it was not there.
    pub member: Option<MemberStatus>,
}

/// What the intent log was good for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Replay {
    /// Rows that were being written, and were made right.
    pub rows: u64,
    /// Bytes of them that were being written, never acknowledged as durable, and cannot be told:
    /// an error until they are written.
    pub lost_bytes: u64,
}

/// A slot.
#[derive(Clone, Debug)]
pub struct SlotStatus {
    /// Its number.
    pub slot: Slot,
    /// How it is.
    pub state: SlotState,
    /// Who holds it.
    pub member: Option<MemberStatus>,
    /// Who is being made a copy of it.
    pub replacement: Option<MemberStatus>,
}

/// How a slot is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SlotState {
    /// Holds all that it should.
    InSync,
    /// Is being filled: so many bytes of the array are done.
    Rebuilding {
        /// Array offset.
        below: u64,
    },
    /// Holds all that it should, and is being copied to another member.
    Replacing {
        /// Array offset.
        below: u64,
    },
    /// Has no member.
    Missing,
}

/// A member and how it has behaved since the start.
#[derive(Clone, Debug)]
pub struct MemberStatus {
    /// Its number: md's `dev_number`.
    pub id: MemberId,
    /// Path or address.
    pub name: String,
    /// Bytes read from it.
    pub read_bytes: u64,
    /// Bytes written to it.
    pub written_bytes: u64,
    /// Reads that failed.
    pub read_errors: u64,
    /// Writes that failed.
    pub write_errors: u64,
    /// Answers that did not come in time.
    pub timeouts: u64,
    /// Blocks read from it that did not match their checksums.
    pub checksum_errors: u64,
    /// Bytes rewritten from redundancy after read errors and checksum errors.
    pub repaired_bytes: u64,
    /// It takes far longer than its peers: reads go past it where they can.
    pub slow: bool,
    /// How long it takes to answer a read that has to be waited for; `None` while too little is
    /// known. The slowest thread's, where there are several.
    pub reads: Option<Latency>,
    /// As `reads`, for writes.
    pub writes: Option<Latency>,
    /// Bytes on its bad-block list: not to be read from it until they are written.
    pub bad_bytes: u64,
}

/// Background work under way.
#[derive(Clone, Debug)]
pub struct JobStatus {
    /// What it is.
    pub kind: JobKind,
    /// Array bytes to walk over.
    pub total_bytes: u64,
    /// Array bytes done.
    pub done_bytes: u64,
    /// How long it has run, the time it was held back included.
    pub elapsed: Duration,
    /// Array bytes per second over the last minute; `None` while too little is known.
    pub array_rate: Option<u64>,
    /// Bytes processed over all members per second over the last minute.
    pub member_rate: Option<u64>,
    /// Time left at that rate; `None` while too little is known.
    pub remaining: Option<Duration>,
    /// It is being held back by its speed limit.
    pub throttled: bool,
    /// Places found so far where members contradict each other.
    pub mismatches: u64,
    /// Bytes that could not be recovered so far.
    pub lost_bytes: u64,
}

/// What has happened to an array.
#[derive(Clone, Debug)]
pub struct Event {
    /// When, in microseconds since 1970.
    pub unix_micros: u64,
    /// What.
    pub kind: EventKind,
    /// To whom.
    pub member: Option<String>,
    /// The slot that the member held, or was copied to, at that moment.
    pub slot: Option<Slot>,
    /// In words.
    pub text: String,
}

/// Kinds of events. Names follow mdadm's where mdadm has them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EventKind {
    /// Rows that a crash had cut were made right from the intent log.
    Settled,
    /// A member was lost.
    Fail,
    /// A member was taken out of service by command.
    TakenOut,
    /// The journal device was lost: the log lies on the members.
    JournalLost,
    /// More was lost than the level can make good.
    Broken,
    /// A member found no space, and the array can not be written without it.
    Full,
    /// A spare was added.
    SpareAdded,
    /// A spare has taken an empty slot.
    RebuildStarted,
    /// A slot is whole again.
    SpareActive,
    /// A member is being copied to another.
    ReplaceStarted,
    /// A member came back.
    Readded,
    /// A member was removed.
    Removed,
    /// Bytes were rewritten from redundancy.
    Repaired,
    /// Bytes of a member could not be recovered.
    BadBlock,
    /// A client was answered with an error; not every one is told.
    ClientError,
    /// A member takes far longer than its peers: reads go past it.
    Slow,
    /// A member is as fast as its peers again.
    SlowOver,
    /// Background work has begun.
    JobStarted,
    /// Background work is done.
    JobFinished,
    /// Background work has ended before it was done.
    JobInterrupted,
}

/// The events kept for whoever asks.
const EVENTS_MAX: usize = 1000;

/// The latest events, numbered from the start of the array.
#[derive(Default)]
pub struct EventLog {
    events: RefCell<VecDeque<Event>>,
    count: Cell<u64>,
    pub(crate) grown: io::Signal,
}

impl EventLog {
    pub(crate) fn push(&self, event: Event) {
        let mut events = self.events.borrow_mut();
        if events.len() == EVENTS_MAX {
            events.pop_front();
        }
        events.push_back(event);
        self.count.set(self.count.get() + 1);
        self.grown.raise();
    }

    /// How many events there were.
    pub fn count(&self) -> u64 {
        self.count.get()
    }

    /// The events from number `from` on, as far as they are still kept.
    pub fn since(&self, from: u64) -> Vec<Event> {
        let events = self.events.borrow();
        let first = self.count.get() - events.len() as u64;
        events.iter().skip(from.saturating_sub(first) as usize).cloned().collect()
    }

    /// Completes when there is an event with number `from` or later.
    pub async fn wait(&self, from: u64) {
        while self.count.get() <= from {
            self.grown.wait().await;
        }
    }
}
