//! The state of an array, for the program to show.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::ops::Range;
use std::time::Duration;

use layout::private::Consistency;
use layout::private::journal::JournalUse;
use layout::{Layout, MemberId, Mode, Slot};

use crate::keeper::{JobKind, ScrubResult};
use crate::member::durations::Durations;
use crate::member::latency::Latency;

/// The error of a member that was given up because its bad-block list is full.
pub const FULL_LIST: &str = "its list of bad blocks is full";

/// Why a full array takes no writes, and what to do.
pub const FULL: &str =
    "the stores of its members have no space left; free space, stop the array, and start it again";

/// The complete state of a running array at one moment.
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
    /// Whether it accepts writes.
    pub mode: Mode,
    /// Its superblocks are marked clean: no write is in flight.
    pub clean: bool,
    /// Number of membership changes since the start.
    pub epoch: u64,
    /// md's event count.
    pub events: u64,
    /// The number of arbitrary members that may still be lost without data loss. 0 on parity levels
    /// while parity is partly unsynced or not computed.
    pub redundancy_left: usize,
    /// Array bytes whose parity or copies may disagree.
    pub unsynced_bytes: u64,
    /// Bytes of the array without valid checksums; `None` if it keeps none.
    pub unsummed_bytes: Option<u64>,
    /// Lost array bytes, apart from the members' bad blocks: errors until they are written.
    pub bad_bytes: u64,
    /// The intent log has listed all interrupted writes. Unsynced ranges are only compared again,
    /// and their parity is trusted meanwhile.
    pub verifying: bool,
    /// The crash-consistency policy, for levels with parity.
    pub consistency: Consistency,
    /// The journal device, if the array has one.
    pub journal: Option<JournalStatus>,
    /// The result of the replay at the start; `None` if nothing had to be replayed.
    pub replay: Option<Replay>,
    /// Parity is computed, on levels that have it: off only to measure its cost.
    pub parity: bool,
    /// Each slot in order.
    pub slots: Vec<SlotStatus>,
    /// The spares.
    pub spares: Vec<MemberStatus>,
    /// The running background job.
    pub job: Option<JobStatus>,
    /// The result of the last scrub since the start, without those of parts.
    pub last_scrub: Option<ScrubResult>,
    /// The result of the last scrub of a part since the start.
    pub last_part: Option<ScrubResult>,
    /// Memory of acknowledged writes that are not on the members yet.
    pub cached_bytes: u64,
    /// Writes that waited for a flush because the intent log already had a record of their rows.
    pub log_conflicts: u64,
    /// Requests in flight.
    pub requests_in_flight: usize,
}

/// A journal device.
#[derive(Clone, Debug)]
pub struct JournalStatus {
    /// Its identity.
    pub uuid: [u8; 16],
    /// Path or address, or its last known name.
    pub name: String,
    /// Whether the array's record uses it for the log.
    pub used: JournalUse,
    /// Its statistics since the start; `None` if it was absent.
    pub member: Option<MemberStatus>,
}

/// The result of a replay.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Replay {
    /// Interrupted rows that were replayed.
    pub rows: u64,
    /// Bytes of these rows that are lost: they were being written, and the writes were never
    /// acknowledged as durable. Reads fail until they are written.
    pub lost_bytes: u64,
}

/// A slot.
#[derive(Clone, Debug)]
pub struct SlotStatus {
    /// Its number.
    pub slot: Slot,
    /// Its state.
    pub state: SlotState,
    /// Its member.
    pub member: Option<MemberStatus>,
    /// The replacement that the slot is being copied to.
    pub replacement: Option<MemberStatus>,
}

/// The state of a slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SlotState {
    /// In sync.
    InSync,
    /// Being rebuilt; done below this array offset.
    Rebuilding {
        /// Array offset.
        below: u64,
    },
    /// In sync, and being copied to its replacement.
    Replacing {
        /// Array offset.
        below: u64,
    },
    /// Has no member.
    Missing,
}

/// A member and its statistics since the start.
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
    /// Answers that missed the deadline.
    pub timeouts: u64,
    /// Blocks read from it that did not match their checksums.
    pub checksum_errors: u64,
    /// Bytes rewritten from redundancy after read errors and checksum errors.
    pub repaired_bytes: u64,
    /// It is far slower than its peers: reads avoid it where they can.
    pub slow: bool,
    /// Times of reads that did not complete at once; `None` without enough answers. With several
    /// threads, the slowest thread's.
    pub reads: Option<Latency>,
    /// The same for writes.
    pub writes: Option<Latency>,
    /// Durations of the reads and of the writes of clients' requests.
    pub durations: [Durations; 2],
    /// Bytes on its bad-block list: unreadable until they are written.
    pub bad_bytes: u64,
}

/// Background work under way.
#[derive(Clone, Debug)]
pub struct JobStatus {
    /// Its kind.
    pub kind: JobKind,
    /// A scrub of a part of the array.
    pub is_part: bool,
    /// Array bytes to process.
    pub total_bytes: u64,
    /// Array bytes done.
    pub done_bytes: u64,
    /// Its running time, including delays by the speed limit.
    pub elapsed: Duration,
    /// Array bytes per second over the last minute; `None` at the start.
    pub array_rate: Option<u64>,
    /// Bytes processed over all members per second over the last minute.
    pub member_rate: Option<u64>,
    /// Time left at that rate; `None` at the start.
    pub remaining: Option<Duration>,
    /// The speed limit is delaying it.
    pub throttled: bool,
    /// Places found so far where members contradict each other.
    pub mismatches: u64,
    /// Bytes that could not be recovered so far.
    pub lost_bytes: u64,
}

/// Something that happened to an array.
#[derive(Clone, Debug)]
pub struct Event {
    /// When, in microseconds since 1970.
    pub unix_micros: u64,
    /// Its kind.
    pub kind: EventKind,
    /// The member concerned.
    pub member: Option<String>,
    /// The slot that the member held, or was copied to, at that moment.
    pub slot: Option<Slot>,
    /// The bytes of the array concerned, in whole stripes, where they are known.
    pub range: Option<Range<u64>>,
    /// The text for people.
    pub text: String,
}

/// Kinds of events. Names follow mdadm's where mdadm has them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EventKind {
    /// Interrupted rows were replayed from the intent log.
    Replayed,
    /// A member was lost.
    Fail,
    /// A member was taken out of service by command.
    TakenOut,
    /// The journal device was lost: the log is on the members from now on.
    JournalLost,
    /// More members were lost than the level tolerates.
    Broken,
    /// A member found no space, and the array can not be written without it.
    Full,
    /// A spare was added.
    SpareAdded,
    /// A spare has taken an empty slot.
    RebuildStarted,
    /// A slot is in sync again.
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
    /// A client got an error; frequent ones are summarized.
    ClientError,
    /// A member is far slower than its peers: reads avoid it.
    Slow,
    /// A member is as fast as its peers again.
    SlowOver,
    /// Background work has begun.
    JobStarted,
    /// Background work is done.
    JobFinished,
    /// Background work has ended before completion.
    JobInterrupted,
}

/// The number of events kept.
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

    /// The number of events so far.
    pub fn count(&self) -> u64 {
        self.count.get()
    }

    /// The events from number `from` on that are still kept.
    pub fn since(&self, from: u64) -> Vec<Event> {
        let events = self.events.borrow();
        let first = self.count.get() - events.len() as u64;
        events.iter().skip(from.saturating_sub(first) as usize).cloned().collect()
    }

    /// Completes once an event with number `from` or later exists.
    pub async fn wait(&self, from: u64) {
        while self.count.get() <= from {
            self.grown.wait().await;
        }
    }
}
