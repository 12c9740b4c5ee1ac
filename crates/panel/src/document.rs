//! The fields of the control API's documents that the page and the metrics show.
//!
//! `parapet schema parapet/list/1` describes them. Unknown fields are ignored, and unknown words
//! are shown as unknown: the server may be newer.

use std::path::PathBuf;

use jiff::Timestamp;
use jiff::civil::Date;
use serde::Deserialize;

/// An answer of the control API.
#[derive(Deserialize)]
pub(crate) struct Answer<T> {
    pub(crate) schema: String,
    pub(crate) data: Option<T>,
    pub(crate) error: Option<Refusal>,
}

#[derive(Deserialize)]
pub(crate) struct Refusal {
    pub(crate) message: String,
    #[serde(default)]
    pub(crate) action: String,
}

#[derive(Deserialize)]
pub(crate) struct List {
    pub(crate) arrays: Vec<Array>,
}

/// Declares words that the documents use, each with its text for people.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($word:ident $text:literal),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub(crate) enum $name {
            $($word,)*
            #[serde(other)]
            Unknown,
        }

        impl $name {
            /// The word for people.
            pub(crate) fn text(self) -> &'static str {
                match self { $($name::$word => $text,)* $name::Unknown => "unknown" }
            }
        }
    };
}

words! {
    /// State of an array, from best to worst.
    State {
        Healthy "healthy", Degraded "degraded", Critical "critical", Failed "failed",
    }
}

/// State of a slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum SlotState {
    InSync,
    Rebuilding,
    Missing,
    #[serde(other)]
    Unknown,
}

words! {
    /// Kind of a job.
    JobKind {
        Rebuild "rebuild", Replace "replace", Resync "resync", Check "check", Repair "repair",
        Checksum "checksum",
    }
}

impl JobKind {
    /// What the array is doing, as in "tank: …".
    pub(crate) fn activity(self) -> &'static str {
        match self {
            JobKind::Rebuild => "rebuilding",
            JobKind::Replace => "copying to a replacement",
            JobKind::Resync => "resyncing",
            JobKind::Check => "scrubbing",
            JobKind::Repair => "scrubbing and repairing",
            JobKind::Checksum => "adding checksums",
            JobKind::Unknown => "at work",
        }
    }
}

/// The answer to a command.
#[derive(Deserialize)]
pub(crate) struct Changed {
    pub(crate) message: String,
}

/// The events of an array, the oldest first.
#[derive(Deserialize)]
pub(crate) struct History {
    pub(crate) events: Vec<Event>,
}

/// How much an event matters.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Severity {
    Info,
    Warning,
    Error,
    #[serde(other)]
    Unknown,
}

#[derive(Clone, Deserialize)]
pub(crate) struct Event {
    pub(crate) number: u64,
    pub(crate) time: Timestamp,
    pub(crate) event: String,
    pub(crate) severity: Severity,
    pub(crate) member: Option<String>,
    pub(crate) message: String,
}

#[derive(Deserialize)]
pub(crate) struct Array {
    pub(crate) uuid: String,
    pub(crate) name: String,
    pub(crate) level: String,
    pub(crate) layout: String,
    pub(crate) chunk_bytes: u64,
    pub(crate) capacity_bytes: u64,
    pub(crate) state: State,
    pub(crate) writable: bool,
    pub(crate) unsynced_bytes: u64,
    #[serde(default)]
    pub(crate) unsynced_ranges: Vec<Span>,
    #[serde(default)]
    pub(crate) verifying: bool,
    #[serde(default)]
    pub(crate) bad_bytes: u64,
    pub(crate) unsummed_bytes: Option<u64>,
    pub(crate) redundancy: usize,
    pub(crate) redundancy_left: usize,
    pub(crate) slots: Vec<Slot>,
    pub(crate) spares: Vec<Member>,
    pub(crate) faulty: Vec<Member>,
    pub(crate) job: Option<Job>,
    pub(crate) last_scrub: Option<Scrub>,
    #[serde(default)]
    pub(crate) scrub_record: ScrubRecord,
    pub(crate) exports: Vec<String>,
    #[serde(default)]
    pub(crate) clients: usize,
    pub(crate) aoe: Option<Aoe>,
    pub(crate) problems: Vec<Problem>,
    /// The latest events, from a query of their own; the newest first.
    #[serde(skip)]
    pub(crate) events: Vec<Event>,
    /// The control socket of its server.
    #[serde(skip)]
    pub(crate) server: PathBuf,
}

#[derive(Clone, Copy, Deserialize)]
pub(crate) struct Span {
    pub(crate) array_offset: u64,
    pub(crate) bytes: u64,
}

#[derive(Deserialize)]
pub(crate) struct Slot {
    pub(crate) slot: usize,
    pub(crate) state: SlotState,
    pub(crate) member: Option<Member>,
    pub(crate) replacement: Option<Member>,
    pub(crate) filled_bytes: Option<u64>,
}

#[derive(Deserialize)]
pub(crate) struct Member {
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) uuid: String,
    pub(crate) serial: Option<String>,
    #[serde(default)]
    pub(crate) read_bytes: u64,
    #[serde(default)]
    pub(crate) written_bytes: u64,
    pub(crate) read_errors: u64,
    pub(crate) write_errors: u64,
    #[serde(default)]
    pub(crate) checksum_errors: u64,
    pub(crate) repaired_bytes: u64,
    #[serde(default)]
    pub(crate) bad_bytes: u64,
    #[serde(default)]
    pub(crate) slow: bool,
    pub(crate) read_latency: Option<Latency>,
    pub(crate) write_latency: Option<Latency>,
    #[serde(default)]
    pub(crate) read_durations: Durations,
    #[serde(default)]
    pub(crate) write_durations: Durations,
    pub(crate) trouble: Option<String>,
    pub(crate) health: Option<DiskHealth>,
    pub(crate) last_slot: Option<usize>,
    #[serde(default)]
    pub(crate) replaced: bool,
}

words! {
    /// How bad the disk of a member is.
    HealthLevel {
        Ok "ok", Watch "watch", Suspect "suspect", Replace "replace", Fail "fail",
    }
}

#[derive(Deserialize)]
pub(crate) struct DiskHealth {
    pub(crate) level: HealthLevel,
    #[serde(default)]
    pub(crate) reasons: Vec<String>,
    pub(crate) step: Option<String>,
    pub(crate) temperature_celsius: Option<i64>,
    #[serde(default)]
    pub(crate) attributes: Vec<SmartAttribute>,
}

#[derive(Deserialize)]
pub(crate) struct SmartAttribute {
    pub(crate) id: String,
    pub(crate) raw: u64,
}

/// The whole disks below a member.
#[derive(Deserialize)]
pub(crate) struct MemberDisks {
    pub(crate) disks: Vec<DiskRecord>,
}

#[derive(Deserialize)]
pub(crate) struct DiskRecord {
    pub(crate) path: String,
    pub(crate) model: Option<String>,
    pub(crate) serial: Option<String>,
    pub(crate) bytes: u64,
    pub(crate) rotational: Option<bool>,
    pub(crate) read_at: Option<Timestamp>,
    pub(crate) passed: Option<bool>,
    pub(crate) power_on_hours: Option<u64>,
    pub(crate) temperature_celsius: Option<i64>,
    pub(crate) attributes: Vec<Attribute>,
    pub(crate) self_tests: Vec<SelfTest>,
    /// The oldest first.
    pub(crate) days: Vec<SmartDay>,
}

#[derive(Deserialize)]
pub(crate) struct Attribute {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) raw: u64,
    pub(crate) value: Option<u64>,
    pub(crate) worst: Option<u64>,
    pub(crate) threshold: Option<u64>,
}

#[derive(Deserialize)]
pub(crate) struct SelfTest {
    pub(crate) kind: String,
    pub(crate) result: String,
    pub(crate) passed: Option<bool>,
    pub(crate) power_on_hours: Option<u64>,
}

#[derive(Deserialize)]
pub(crate) struct SmartDay {
    pub(crate) day: Date,
    pub(crate) level: HealthLevel,
    pub(crate) temperature_celsius: Option<i64>,
    pub(crate) values: Vec<DayValue>,
}

/// A borrowed day.
pub(crate) type Day<'a> = &'a SmartDay;

#[derive(Deserialize)]
pub(crate) struct DayValue {
    pub(crate) id: String,
    pub(crate) raw: u64,
}

impl SmartDay {
    /// The raw value of an attribute.
    pub(crate) fn raw(&self, id: &str) -> Option<u64> {
        self.values.iter().find(|value| value.id == id).map(|value| value.raw)
    }
}

#[derive(Clone, Copy, Deserialize)]
pub(crate) struct Latency {
    pub(crate) p50_us: u64,
    pub(crate) p99_us: u64,
}

/// Counts of operations by their duration; the last count has no bound.
#[derive(Default, Deserialize)]
pub(crate) struct Durations {
    pub(crate) bounds_us: Vec<u64>,
    pub(crate) counts: Vec<u64>,
    pub(crate) sum_us: u64,
}

#[derive(Deserialize)]
pub(crate) struct Job {
    pub(crate) kind: JobKind,
    pub(crate) done_bytes: u64,
    pub(crate) total_bytes: u64,
    pub(crate) percent: f64,
    pub(crate) bytes_per_second: Option<u64>,
    pub(crate) seconds_left: Option<u64>,
    pub(crate) limited_by: Option<String>,
}

#[derive(Deserialize)]
pub(crate) struct Scrub {
    pub(crate) complete: bool,
    pub(crate) ended: Timestamp,
    pub(crate) mismatches: u64,
    #[serde(default)]
    pub(crate) repaired_mismatches: u64,
    #[serde(default)]
    pub(crate) findings: Vec<Finding>,
}

/// Scrubs of all servers of the array.
#[derive(Default, Deserialize)]
pub(crate) struct ScrubRecord {
    /// End of the last one that reached the end of the array.
    pub(crate) completed: Option<Timestamp>,
    /// Where one was interrupted; 0 if none was.
    #[serde(default)]
    pub(crate) position_bytes: u64,
}

#[derive(Deserialize)]
pub(crate) struct Finding {
    pub(crate) array_offset: u64,
    #[serde(default)]
    pub(crate) repaired: bool,
}

#[derive(Deserialize)]
pub(crate) struct Aoe {
    pub(crate) address: Option<String>,
    pub(crate) interfaces: Vec<String>,
    pub(crate) online: bool,
}

#[derive(Deserialize)]
pub(crate) struct Problem {
    pub(crate) id: String,
    pub(crate) message: String,
    pub(crate) action: String,
}

impl Array {
    /// All members: those with a slot, spares, and failed ones.
    pub(crate) fn members(&self) -> impl Iterator<Item = &Member> {
        let assigned =
            self.slots.iter().flat_map(|slot| slot.member.iter().chain(&slot.replacement));
        assigned.chain(&self.spares).chain(&self.faulty)
    }

    /// End of the last scrub that covered the array, also of an earlier server.
    pub(crate) fn scrubbed(&self) -> Option<Timestamp> {
        let own = self.last_scrub.as_ref().filter(|scrub| scrub.complete);
        own.map(|scrub| scrub.ended).max(self.scrub_record.completed)
    }

    /// The serial number of a member, or its path where the serial number is unknown or another
    /// member of the array has it too (two partitions of a disk).
    pub(crate) fn disk_name<'a>(&'a self, member: &'a Member) -> &'a str {
        let Some(serial) = &member.serial else { return &member.name };
        let same = self.members().filter(|other| other.serial.as_ref() == Some(serial)).count();
        if same > 1 { &member.name } else { serial }
    }
}

impl Scrub {
    /// Mismatches that it did not repair.
    pub(crate) fn mismatches_left(&self) -> u64 {
        self.mismatches.saturating_sub(self.repaired_mismatches)
    }
}
