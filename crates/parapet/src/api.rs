//! The reports of Parapet, as types. The same structs define the JSON of the command line, the
//! bodies of the control API, and the text output.
//!
//! Rules: bytes are integers, times RFC 3339 in UTC, states lower_snake words. A schema number only
//! gains fields. `parapet schema` prints the JSON Schema of each, with these comments as
//! descriptions.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::page::Page;

mod alerts;
#[cfg(feature = "cluster")]
mod cluster;
#[cfg(feature = "lab")]
mod comparison;
mod configuration;
mod consistency;
mod discovery;
mod disks;
mod examined;
mod exported;
mod history;
mod iostat;
mod job;
mod jobs;
mod journal;
mod kept;
#[cfg(feature = "lab")]
mod lab;
mod listed;
mod member_disks;
#[cfg(feature = "notify")]
mod notified;
mod order;
#[cfg(feature = "page")]
mod page;
mod prospect;
mod recovered;
mod serving;
mod text;

pub(crate) use alerts::ChannelState;
#[cfg(feature = "cluster")]
pub(crate) use cluster::{
    CandidateView, ClusterClient, ClusterDemonstration, ClusterExplained, ClusterMember,
    ClusterServing, ClusterState, ClusterStatus, Sentence,
};
#[cfg(feature = "lab")]
pub(crate) use comparison::{
    ChangeKind, ComparedChange, ComparedLayout, Comparison, LoadSpeed, in_words,
};
pub(crate) use configuration::{Configuration, ConfigurationSetting};
pub(crate) use consistency::{Consistency, of_new};
pub(crate) use discovery::{AoePath, AoeTarget, Discovery};
pub(crate) use disks::{DiskList, DiskUse, DiskView, SmartView};
pub(crate) use examined::{
    Examined, ExaminedDisk, LogView, PrivateView, SignatureView, SuperblockView,
};
pub(crate) use exported::{AoeView, AttachedView};
pub(crate) use history::{History, HistoryEntry, Severity};
pub(crate) use iostat::Iostat;
pub(crate) use job::{Finding, Job, JobKind, LastRebuild, Scrub, ScrubRecord, percent};
pub(crate) use jobs::{ArrayJob, Jobs};
pub(crate) use journal::{Journal, JournalNote, JournalState, JournalView};
pub(crate) use kept::{KeptCopy, KeptList};
#[cfg(feature = "lab")]
pub(crate) use lab::{
    Calibrated, DiskParameter, Disks, Experimented, ModelledDisk, SeedTable, Seeds,
};
pub(crate) use member_disks::{
    AttributeRecord, DayValue, DiskRecord, MemberDisks, SelfTestRecord, SmartDay,
};
#[cfg(feature = "notify")]
pub(crate) use notified::{Notified, NotifyTest};
pub(crate) use order::{DiskHealth, HealthLevel, Order, Part, SmartAttribute, Speed};
#[cfg(feature = "page")]
pub(crate) use page::PageView;
pub(crate) use recovered::{GuessVerdict, GuessView, Recovered};
pub(crate) use serving::Serving;

/// The answer of a command.
pub(crate) trait Report: Serialize {
    /// Name and number of its schema: `parapet/status/1`.
    const SCHEMA: &'static str;

    /// Formats the answer as text.
    fn text(&self, page: &mut Page);
}

/// The served arrays.
#[derive(Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct List {
    /// Sorted by name.
    pub(crate) arrays: Vec<Array>,
    /// Servers that did not answer, with the error.
    pub(crate) silent: Vec<String>,
    /// How many of them refused this user.
    #[serde(skip)]
    pub(crate) denied: usize,
    /// The folder searched for control sockets; null if one socket was named.
    #[serde(default)]
    pub(crate) folder: Option<String>,
    /// Arrays found by `--scan` that are not served, sorted by name.
    #[serde(default)]
    pub(crate) resting: Vec<Resting>,
}

/// An array that is not served, as its superblocks describe it.
#[derive(Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Resting {
    /// Its UUID.
    pub(crate) uuid: String,
    /// Its name.
    pub(crate) name: String,
    /// `raid6`, `linear`, `raid3.5` …; empty if unknown.
    pub(crate) level: String,
    /// Number of slots.
    pub(crate) slots: usize,
    /// The members found.
    pub(crate) members: Vec<RestingMember>,
}

/// A member of an array that is not served.
#[derive(Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct RestingMember {
    /// Its path.
    pub(crate) path: String,
    /// Its role in its own superblock: `slot 0`, `spare`, `faulty`, `journal`.
    pub(crate) role: String,
}

/// State of an array.
#[derive(Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Array {
    /// Its UUID.
    pub(crate) uuid: String,
    /// Its name: a label, not an identity.
    pub(crate) name: String,
    /// `raid6`, `linear`, `raid3.5` …
    pub(crate) level: String,
    /// Layout by mdadm's names; `none` where the level has only one.
    pub(crate) layout: String,
    /// Chunk size in bytes; 0 where the level has no chunks.
    pub(crate) chunk_bytes: u64,
    /// Capacity in bytes.
    pub(crate) capacity_bytes: u64,
    /// Its state.
    pub(crate) state: State,
    /// Whether the array accepts writes.
    pub(crate) writable: bool,
    /// Consistency of redundancy and data.
    #[serde(flatten)]
    pub(crate) integrity: Integrity,
    /// Number of members that the level can lose without data loss, when all are present.
    pub(crate) redundancy: usize,
    /// Number of further members that it can lose now; 0 while parity is out of sync or not
    /// computed.
    pub(crate) redundancy_left: usize,
    /// True if parity is computed, where the level has it; false only to measure its cost.
    #[serde(default)]
    pub(crate) parity: bool,
    /// One entry for each slot, in order.
    pub(crate) slots: Vec<Slot>,
    /// Members without a slot, available for rebuilds.
    pub(crate) spares: Vec<Member>,
    /// Failed or replaced members that are not removed yet.
    pub(crate) faulty: Vec<Member>,
    /// The running background job.
    pub(crate) job: Option<Job>,
    /// The last scrub that ended.
    pub(crate) last_scrub: Option<Scrub>,
    /// What is known of scrubs, also of those before the start of the server.
    #[serde(default)]
    pub(crate) scrub_record: ScrubRecord,
    /// The last rebuild or replacement that completed while the array was served.
    #[serde(default)]
    pub(crate) last_rebuild: Option<LastRebuild>,
    /// Limits of background work.
    pub(crate) speed: Speed,
    /// When the array acknowledges writes: `none`, `sync` or `writeback`, as in `serve --cache`.
    #[serde(default)]
    pub(crate) cache: String,
    /// Bytes of acknowledged writes in memory that are not on the members yet.
    #[serde(default)]
    pub(crate) cached_bytes: u64,
    /// Number of threads.
    #[serde(default)]
    pub(crate) threads: usize,
    /// NBD URIs of the export.
    pub(crate) exports: Vec<String>,
    /// NBD connections that use the export now.
    #[serde(default)]
    pub(crate) clients: usize,
    /// The AoE export; null if it was not used since the server's start.
    #[serde(default)]
    pub(crate) aoe: Option<AoeView>,
    /// The local disk; null if the array is not attached.
    #[serde(default)]
    pub(crate) attached: Option<AttachedView>,
    /// Whom the server tells of events; nobody if empty.
    #[serde(default)]
    pub(crate) alerts: Vec<ChannelState>,
    /// Problems, each with a remedy.
    pub(crate) problems: Vec<Problem>,
}

/// Consistency of an array's redundancy and data, and the policy that preserves it.
#[derive(Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Integrity {
    /// True while writes in flight may leave parity or copies inconsistent.
    pub(crate) dirty: bool,
    /// Bytes of the array out of sync.
    pub(crate) unsynced_bytes: u64,
    /// Where they are: at most 64 ranges, each widened to whole 1/128 parts of the capacity.
    #[serde(default)]
    pub(crate) unsynced_ranges: Vec<Span>,
    /// True if the resync only verifies these bytes: a replay of the intent log has completed every
    /// torn row, and parity is valid.
    #[serde(default)]
    pub(crate) verifying: bool,
    /// Bytes torn by a crash that no replay could recover; reads return an error until they are
    /// rewritten.
    #[serde(default)]
    pub(crate) bad_bytes: u64,
    /// Crash-consistency policy; null without redundancy.
    #[serde(default)]
    pub(crate) consistency: Option<Consistency>,
    /// The journal device; null if the array has none.
    #[serde(default)]
    pub(crate) journal: Option<Journal>,
    /// Bytes of the array without valid checksums, 0 once all have them; null without checksums.
    #[serde(default)]
    pub(crate) unsummed_bytes: Option<u64>,
    /// Result of the replay at the start of the array; null if no row needed it.
    #[serde(default)]
    pub(crate) replay: Option<Replay>,
    /// Why the intent log was unusable at the start of the array; null if it was usable or not
    /// needed.
    #[serde(default)]
    pub(crate) log_unusable: Option<String>,
}

impl Array {
    /// Returns all its members: those with a slot, spares, and failed ones.
    pub(crate) fn members(&self) -> impl Iterator<Item = &Member> {
        let assigned =
            self.slots.iter().flat_map(|slot| slot.member.iter().chain(&slot.replacement));
        assigned.chain(&self.spares).chain(&self.faulty)
    }
}

/// Result of a replay of the intent log after a crash.
#[derive(Clone, Copy, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Replay {
    /// Number of interrupted rows replayed.
    pub(crate) rows: u64,
    /// Bytes of these rows with unknown content, never acknowledged as durable. Reads return an
    /// error until they are rewritten.
    pub(crate) lost_bytes: u64,
}

/// A range of the array.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Span {
    /// Its first byte.
    pub(crate) array_offset: u64,
    /// Its length.
    pub(crate) bytes: u64,
}

/// State of an array, including the arrays among its members; from best to worst.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub(crate) enum State {
    /// Every slot has a member in sync.
    Healthy,
    /// Members are missing; the array can lose at least one more.
    Degraded,
    /// Members are missing; the next loss loses data.
    Critical,
    /// More members are missing than the level tolerates.
    Failed,
}

/// A slot of an array.
#[derive(Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Slot {
    /// Its number, from 0.
    pub(crate) slot: usize,
    /// Its state.
    pub(crate) state: SlotState,
    /// Its member.
    pub(crate) member: Option<Member>,
    /// The replacement that the data of the member is being copied to.
    pub(crate) replacement: Option<Member>,
    /// The rebuild, or the copy to the replacement, is complete below this byte of the array; null
    /// if neither is under way.
    #[serde(default)]
    pub(crate) filled_bytes: Option<u64>,
}

/// State of a slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub(crate) enum SlotState {
    /// Its member is complete.
    InSync,
    /// Its member is being rebuilt.
    Rebuilding,
    /// It has no member.
    Missing,
}

/// A disk of an array.
#[derive(Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Member {
    /// The path that it was opened at.
    pub(crate) name: String,
    /// Its UUID in the array's metadata.
    pub(crate) uuid: String,
    /// Serial number of the device; null for files.
    pub(crate) serial: Option<String>,
    /// Bytes read from it since the start of the array.
    #[serde(default)]
    pub(crate) read_bytes: u64,
    /// Bytes written to it since the start of the array.
    #[serde(default)]
    pub(crate) written_bytes: u64,
    /// Failed reads, repaired or not, since the start of the array or `parapet clear`.
    pub(crate) read_errors: u64,
    /// Writes that failed or timed out, since the start of the array or `parapet clear`.
    pub(crate) write_errors: u64,
    /// Blocks of 4 KiB read with a wrong checksum, repaired or not, since the start of the array or
    /// `parapet clear`.
    #[serde(default)]
    pub(crate) checksum_errors: u64,
    /// Bytes rewritten from redundancy after a read error or a checksum error.
    pub(crate) repaired_bytes: u64,
    /// Bytes in its bad-block log: reads return an error until rewritten, unless other members
    /// supply them.
    #[serde(default)]
    pub(crate) bad_bytes: u64,
    /// True if it is far slower than its peers: reads avoid it where possible.
    #[serde(default)]
    pub(crate) slow: bool,
    /// Latency of reads that wait for this member; null without enough samples.
    #[serde(default)]
    pub(crate) read_latency: Option<Latency>,
    /// Latency of writes that wait for this member; null without enough samples.
    #[serde(default)]
    pub(crate) write_latency: Option<Latency>,
    /// Durations of reads of clients' requests.
    #[serde(default)]
    pub(crate) read_durations: Durations,
    /// Durations of writes of clients' requests.
    #[serde(default)]
    pub(crate) write_durations: Durations,
    /// Where its blocks were unreadable or had wrong checksums, and no scrub has covered since: at
    /// most 16 ranges of the array.
    #[serde(default)]
    pub(crate) error_ranges: Vec<Span>,
    /// Health of its disk; null if it is not known.
    #[serde(default)]
    pub(crate) health: Option<DiskHealth>,
    /// Why it was lost, or its problem; null if there is none.
    pub(crate) trouble: Option<String>,
    /// Its last slot, if it has none now; null if unknown.
    #[serde(default)]
    pub(crate) last_slot: Option<usize>,
    /// Time of the loss; null if it was not lost while the array was served.
    #[serde(default)]
    pub(crate) lost_at: Option<Timestamp>,
    /// True if a replacement took over its slot: it did not fail.
    #[serde(default)]
    pub(crate) replaced: bool,
}

/// How long operations of a member have taken, since the start of the array.
#[derive(Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Durations {
    /// Bounds in microseconds, ascending.
    pub(crate) bounds_us: Vec<u64>,
    /// Operations up to each bound and above the one before; the last count has no bound.
    pub(crate) counts: Vec<u64>,
    /// Sum of all durations in microseconds.
    pub(crate) sum_us: u64,
}

/// Latency of a member's operations.
#[derive(Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Latency {
    /// Median in microseconds.
    pub(crate) p50_us: u64,
    /// 99th percentile in microseconds.
    pub(crate) p99_us: u64,
}

/// A problem of an array, with its remedy.
#[derive(Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Problem {
    /// Stable id, such as `PPT-8001`.
    pub(crate) id: String,
    /// Description, one sentence.
    pub(crate) message: String,
    /// Remedy, one command.
    pub(crate) action: String,
}

/// A completed control command.
#[derive(Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Changed {
    /// Its effect, in one sentence.
    pub(crate) message: String,
    /// The array after the command; null if it is not served any more.
    pub(crate) array: Option<Array>,
}

/// The plan of a command, or its result.
#[derive(Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Plan {
    /// True if the command was executed; false for a plan only.
    pub(crate) done: bool,
    /// `create`, `destroy`, `undestroy`, `recover`.
    pub(crate) verb: String,
    /// The array.
    pub(crate) name: String,
    /// Its UUID; null before its creation.
    pub(crate) uuid: Option<String>,
    /// As in [`Array`].
    pub(crate) level: String,
    /// As in [`Array`].
    pub(crate) layout: String,
    /// As in [`Array`].
    pub(crate) chunk_bytes: u64,
    /// Capacity in bytes.
    pub(crate) capacity_bytes: u64,
    /// Bytes used on each member.
    pub(crate) raw_bytes: u64,
    /// Number of members that the array can lose.
    pub(crate) redundancy: usize,
    /// Crash-consistency policy. Null without redundancy, and for verbs that do not create an
    /// array.
    #[serde(default)]
    pub(crate) consistency: Option<Consistency>,
    /// True if the array will keep checksums of its blocks.
    #[serde(default)]
    pub(crate) checksums: bool,
    /// The affected disks: slots first, then spares, then the journal device.
    pub(crate) disks: Vec<PlannedDisk>,
    /// Warnings to read before confirmation.
    pub(crate) warnings: Vec<String>,
    /// Folder of the copies of overwritten blocks.
    pub(crate) undo: Option<String>,
}

/// The plan for a disk.
#[derive(Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct PlannedDisk {
    /// Its path.
    pub(crate) path: String,
    /// Its serial number, if it has one.
    pub(crate) serial: Option<String>,
    /// Its size.
    pub(crate) bytes: u64,
    /// `slot 0`, `spare`, `journal`.
    pub(crate) role: String,
    /// Content that the command erases.
    pub(crate) overwrites: Vec<SignatureView>,
    /// True if the disk is a file to be created.
    pub(crate) new: bool,
}

/// An assembled array.
#[derive(Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Assembled {
    /// The array.
    pub(crate) array: Array,
    /// Notes for the user.
    pub(crate) notes: Vec<String>,
    /// True if everything is in sync and the array was stopped clean; false if nothing was written.
    pub(crate) settled: bool,
}

/// The answer of `health`, in the form of monitoring plugins.
#[derive(Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Health {
    /// `ok`, `warning`, `critical`, `unknown`; the exit status is 0, 1, 2, 3.
    pub(crate) verdict: Verdict,
    /// One line.
    pub(crate) message: String,
    /// Performance data, in the form of monitoring plugins.
    pub(crate) performance: String,
}

/// Health of an array.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub(crate) enum Verdict {
    /// No problem.
    Ok,
    /// Degraded but redundant, rebuilding, or with mismatches.
    Warning,
    /// Failed, or no redundancy left where the level has some.
    Critical,
    /// The state is unknown.
    Unknown,
}

/// The estimated end of background work.
#[derive(Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct When {
    /// The array.
    pub(crate) name: String,
    /// Its UUID.
    pub(crate) uuid: String,
    /// The running job; null if there is none.
    pub(crate) job: Option<Job>,
    /// Its estimated end; null without an estimate.
    pub(crate) expected: Option<Timestamp>,
}

/// Result of a wait.
#[derive(Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Waited {
    /// The array.
    pub(crate) name: String,
    /// Duration.
    pub(crate) seconds: f64,
    /// The array after the wait.
    pub(crate) array: Array,
}

/// Result of a demonstration.
#[derive(Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Demonstration {
    /// Bytes written and read back through NBD.
    pub(crate) bytes: u64,
    /// Bytes that were read back different.
    pub(crate) wrong_bytes: u64,
    /// Members failed during the writes.
    pub(crate) failed: Vec<String>,
    /// Duration of the writes.
    pub(crate) write_seconds: f64,
    /// Duration of the rest of the rebuild, after the writes.
    pub(crate) rebuild_seconds: f64,
    /// Duration of the reads.
    pub(crate) read_seconds: f64,
}

/// Plain text, for verbs without a structured report: completions, folders of manual pages.
#[derive(Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Text {
    /// The text.
    pub(crate) text: String,
}

/// An error, in place of a report.
#[derive(Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct ErrorView {
    /// Stable id: `PPT-` and a number whose first digit is the exit status.
    pub(crate) id: String,
    /// Description of the error.
    pub(crate) message: String,
    /// Remedy.
    pub(crate) action: String,
    /// The exit status.
    pub(crate) exit_code: u8,
}
