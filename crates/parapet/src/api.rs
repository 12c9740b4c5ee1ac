//! What Parapet says, as types: the same structs are the JSON of the command line, the bodies of
//! the control API, and what the text is written from.
//!
//! Rules: bytes are integers, times RFC 3339 in UTC, states lower_snake words. Within a schema's
//! number fields are only added. `parapet schema` prints the JSON Schema of each; what stands in
//! the comments here stands there.

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::page::Page;

mod consistency;
mod examined;
mod journal;
mod kept;
mod listed;
mod order;
mod prospect;
mod recovered;
mod text;

pub(crate) use consistency::{Consistency, of_new};
pub(crate) use examined::{
    Examined, ExaminedDisk, LogView, PrivateView, SignatureView, SuperblockView,
};
pub(crate) use journal::{Journal, JournalNote, JournalState, JournalView};
pub(crate) use kept::{KeptCopy, KeptList};
pub(crate) use order::{Order, Speed};
pub(crate) use recovered::{GuessVerdict, GuessView, Recovered};

/// Something a command answers with.
pub(crate) trait Report: Serialize + JsonSchema {
    /// Its schema's name and number: `parapet/status/1`.
    const SCHEMA: &'static str;

    /// The same for people.
    fn text(&self, page: &mut Page);
}

/// The arrays that are being served.
#[derive(Clone, Default, Serialize, Deserialize, JsonSchema)]
pub(crate) struct List {
    /// By name.
    pub(crate) arrays: Vec<Array>,
    /// Servers that did not answer, and why.
    pub(crate) silent: Vec<String>,
    /// The folder of control sockets that was looked in; null if one socket was named.
    #[serde(default)]
    pub(crate) folder: Option<String>,
    /// Arrays that were found by `--scan` and are not served, by name.
    #[serde(default)]
    pub(crate) resting: Vec<Resting>,
}

/// An array that is not served, by what its members say.
#[derive(Clone, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Resting {
    /// Its identity.
    pub(crate) uuid: String,
    /// Its name.
    pub(crate) name: String,
    /// `raid6`, `linear`, `raid3.5` …; empty if it is not known.
    pub(crate) level: String,
    /// How many slots it has.
    pub(crate) slots: usize,
    /// The members that were found.
    pub(crate) members: Vec<RestingMember>,
}

/// A member of an array that is not served.
#[derive(Clone, Serialize, Deserialize, JsonSchema)]
pub(crate) struct RestingMember {
    /// Where it was found.
    pub(crate) path: String,
    /// By its own superblock: `slot 0`, `spare`, `faulty`, `journal`.
    pub(crate) role: String,
}

/// One array and its story.
#[derive(Clone, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Array {
    /// Its identity.
    pub(crate) uuid: String,
    /// Its name: a label, not an identity.
    pub(crate) name: String,
    /// `raid6`, `linear`, `raid3.5` …
    pub(crate) level: String,
    /// As mdadm names it; `none` where the level has only one.
    pub(crate) layout: String,
    /// Bytes of a chunk; 0 where there are none.
    pub(crate) chunk_bytes: u64,
    /// Bytes that can be stored.
    pub(crate) capacity_bytes: u64,
    /// How it is, in one word.
    pub(crate) state: State,
    /// Whether writes are taken.
    pub(crate) writable: bool,
    /// How far its redundancy agrees with its data.
    #[serde(flatten)]
    pub(crate) integrity: Integrity,
    /// How many members may be lost without losing data, when all are there.
    pub(crate) redundancy: usize,
    /// How many more members may be lost, now: none while parity is not in sync, or not computed.
    pub(crate) redundancy_left: usize,
    /// Whether parity is computed, where the level has it; false only to measure what it costs.
    #[serde(default)]
    pub(crate) parity: bool,
    /// One for each slot, in order.
    pub(crate) slots: Vec<Slot>,
    /// Members that wait for a slot.
    pub(crate) spares: Vec<Member>,
    /// Members that were failed or replaced, and are not removed yet.
    pub(crate) faulty: Vec<Member>,
    /// What is being done in the background.
    pub(crate) job: Option<Job>,
    /// The last scrub that came to its end.
    pub(crate) last_scrub: Option<Scrub>,
    /// The last rebuild or replacement that came to its end while the array was served.
    #[serde(default)]
    pub(crate) last_rebuild: Option<LastRebuild>,
    /// Limits of background work.
    pub(crate) speed: Speed,
    /// When writes are acknowledged: `none`, `sync` or `writeback`, as `serve --cache` takes it.
    #[serde(default)]
    pub(crate) cache: String,
    /// Bytes of memory with writes that are acknowledged and not on the members yet.
    #[serde(default)]
    pub(crate) cached_bytes: u64,
    /// Threads that serve it.
    #[serde(default)]
    pub(crate) threads: usize,
    /// Where clients find it.
    pub(crate) exports: Vec<String>,
    /// What is wrong, and what to do about it.
    pub(crate) problems: Vec<Problem>,
}

/// How far the redundancy of an array agrees with its data, and what keeps it so.
#[derive(Clone, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Integrity {
    /// True while parity or copies may disagree after writes under way.
    pub(crate) dirty: bool,
    /// Bytes of the array whose parity or copies may disagree until they are synced.
    pub(crate) unsynced_bytes: u64,
    /// True if these bytes are only compared: all that a crash may have cut was made right from the
    /// intent log, and parity can be relied on.
    #[serde(default)]
    pub(crate) verifying: bool,
    /// Bytes of the array that a crash cut and nothing could settle: errors until they are written.
    #[serde(default)]
    pub(crate) bad_bytes: u64,
    /// How it stands against the write hole; null without redundancy.
    #[serde(default)]
    pub(crate) consistency: Option<Consistency>,
    /// The journal device; null if the array has none.
    #[serde(default)]
    pub(crate) journal: Option<Journal>,
    /// Bytes of the array whose checksums do not count yet, 0 once all do; null if none are kept.
    #[serde(default)]
    pub(crate) unsummed_bytes: Option<u64>,
    /// What was made right from the intent log when it was started; null if nothing had to be.
    #[serde(default)]
    pub(crate) replay: Option<Replay>,
    /// Why the intent log was of no use when it was started; null if it was, or was not needed.
    #[serde(default)]
    pub(crate) log_unusable: Option<String>,
}

impl Array {
    /// All its members: those with a slot, spares, and those that were failed.
    pub(crate) fn members(&self) -> impl Iterator<Item = &Member> {
        let assigned =
            self.slots.iter().flat_map(|slot| slot.member.iter().chain(&slot.replacement));
        assigned.chain(&self.spares).chain(&self.faulty)
    }
}

/// What the intent log was good for after a crash.
#[derive(Clone, Copy, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Replay {
    /// Rows that were being written, and were made right.
    pub(crate) rows: u64,
    /// Bytes of them that were being written, never acknowledged as durable, and cannot be told:
    /// an error until they are written.
    pub(crate) lost_bytes: u64,
}

/// How an array is, the arrays among its members included; the worst comes last.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub(crate) enum State {
    /// All that should be there is there.
    Healthy,
    /// Members are missing; at least one more may be lost.
    Degraded,
    /// Members are missing, and the next loss loses data.
    Critical,
    /// More is missing than the level can make good.
    Failed,
}

/// A place in an array.
#[derive(Clone, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Slot {
    /// Its number, from 0.
    pub(crate) slot: usize,
    /// How it is.
    pub(crate) state: SlotState,
    /// Who holds it.
    pub(crate) member: Option<Member>,
    /// The member that is being made a copy of this one, to take its place.
    pub(crate) replacement: Option<Member>,
}

/// How a slot is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum SlotState {
    /// Its member holds all that it should.
    InSync,
    /// Its member is being filled.
    Rebuilding,
    /// It has no member.
    Missing,
}

/// A disk of an array.
#[derive(Clone, Default, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Member {
    /// Where it was opened: a path.
    pub(crate) name: String,
    /// Its identity in the array's metadata.
    pub(crate) uuid: String,
    /// The serial number of the device; files have none.
    pub(crate) serial: Option<String>,
    /// Bytes read from it since the array was started.
    #[serde(default)]
    pub(crate) read_bytes: u64,
    /// Bytes written to it since the array was started.
    #[serde(default)]
    pub(crate) written_bytes: u64,
    /// Reads that failed, repaired or not, since the array was started or `parapet clear`.
    pub(crate) read_errors: u64,
    /// Writes that failed or were not answered in time, since the array was started or
    /// `parapet clear`.
    pub(crate) write_errors: u64,
    /// Blocks of 4 KiB read from it that did not match their checksums, repaired or not, since the
    /// array was started or `parapet clear`.
    #[serde(default)]
    pub(crate) checksum_errors: u64,
    /// Bytes that were rewritten from redundancy after a read error or a checksum error.
    pub(crate) repaired_bytes: u64,
    /// Bytes on its bad-block list: errors until they are written, unless the others tell them.
    #[serde(default)]
    pub(crate) bad_bytes: u64,
    /// It takes far longer than its peers: reads go past it where they can.
    #[serde(default)]
    pub(crate) slow: bool,
    /// How long reads take that it makes wait; null while too little is known.
    #[serde(default)]
    pub(crate) read_latency: Option<Latency>,
    /// How long writes take that it makes wait; null while too little is known.
    #[serde(default)]
    pub(crate) write_latency: Option<Latency>,
    /// Why it was lost, or what is wrong with it; null if nothing is.
    pub(crate) trouble: Option<String>,
    /// The slot that it held last, if it holds none now; null if that is not known.
    #[serde(default)]
    pub(crate) last_slot: Option<usize>,
    /// When it was lost; null if it was not lost while the array was served.
    #[serde(default)]
    pub(crate) lost_at: Option<Timestamp>,
    /// Another member has replaced it: it did not fail.
    #[serde(default)]
    pub(crate) replaced: bool,
}

/// How long operations of a member take.
#[derive(Clone, Default, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Latency {
    /// Half take less: microseconds.
    pub(crate) p50_us: u64,
    /// All but a hundredth take less: microseconds.
    pub(crate) p99_us: u64,
}

/// Work in the background.
#[derive(Clone, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Job {
    /// What it does.
    pub(crate) kind: JobKind,
    /// Bytes of the array that are done.
    pub(crate) done_bytes: u64,
    /// Bytes of the array in all.
    pub(crate) total_bytes: u64,
    /// Percent done, below 100 until it is done.
    pub(crate) percent: f64,
    /// Bytes of the array per second over the last minute; none if there is nothing to judge by
    /// yet.
    pub(crate) bytes_per_second: Option<u64>,
    /// Bytes read and written per second over all members, over the last minute.
    pub(crate) member_bytes_per_second: Option<u64>,
    /// Seconds until it is done, at that rate; none if there is no estimate.
    pub(crate) seconds_left: Option<u64>,
    /// What holds it back, in words, where that can be told.
    pub(crate) limited_by: Option<String>,
    /// When it began; the same as long as it runs.
    pub(crate) started: Timestamp,
    /// Places found so far where members contradict each other.
    pub(crate) mismatches: u64,
    /// Bytes of the array that could not be recovered so far.
    pub(crate) lost_bytes: u64,
}

/// Kinds of work in the background.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum JobKind {
    /// A new member is filled from the others.
    Rebuild,
    /// A member is filled from the one it replaces.
    Replace,
    /// Parity and copies are made to agree with the data.
    Resync,
    /// Everything is read and compared.
    Check,
    /// Everything is read and compared, and what disagrees is repaired.
    Repair,
    /// What has no checksums that count is read, compared and checksummed.
    Checksum,
}

/// How a rebuild went.
#[derive(Clone, Serialize, Deserialize, JsonSchema)]
pub(crate) struct LastRebuild {
    /// True if a member was copied to the one that replaces it; false if it was filled from others.
    pub(crate) replace: bool,
    /// When it ended.
    pub(crate) ended: Timestamp,
    /// How long it took.
    pub(crate) seconds: f64,
    /// Bytes read and written per second over all members; null if it was over too soon to tell.
    pub(crate) member_bytes_per_second: Option<u64>,
}

/// How a scrub went.
#[derive(Clone, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Scrub {
    /// True if it was to repair, false if to compare only.
    pub(crate) repair: bool,
    /// True if it came to the end of the array.
    pub(crate) complete: bool,
    /// When it ended.
    pub(crate) ended: Timestamp,
    /// How long it took.
    pub(crate) seconds: f64,
    /// Bytes read and written, over all members.
    pub(crate) bytes: u64,
    /// Bytes of the array that were compared with their redundancy.
    pub(crate) compared_bytes: u64,
    /// Places where members contradicted each other.
    pub(crate) mismatches: u64,
    /// Those of them that were repaired: a check repairs what any read would, a repair all.
    #[serde(default)]
    pub(crate) repaired_mismatches: u64,
    /// Bytes of members that were rewritten.
    pub(crate) repaired_bytes: u64,
    /// Those of them where it could not be told which member was wrong: what they agree on now may
    /// be the wrong one.
    pub(crate) guessed_bytes: u64,
    /// These places: the first 1000.
    pub(crate) findings: Vec<Finding>,
}

/// A place where members contradict each other.
#[derive(Clone, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Finding {
    /// The first byte of the array concerned.
    pub(crate) array_offset: u64,
    /// Where that is on the member, from the start of its data.
    pub(crate) member_offset: u64,
    /// Where that is on the member, from the start of its file or disk: of the wrong member, or of
    /// the first one concerned where it cannot be told.
    pub(crate) disk_offset: u64,
    /// Bytes of a member concerned.
    pub(crate) bytes: u64,
    /// The slot that is wrong, where the level can tell.
    pub(crate) slot: Option<usize>,
    /// The members agree there again.
    #[serde(default)]
    pub(crate) repaired: bool,
}

/// Something that is wrong, and what to do about it.
#[derive(Clone, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Problem {
    /// Stable, such as `PPT-8001`.
    pub(crate) id: String,
    /// One sentence.
    pub(crate) message: String,
    /// One command.
    pub(crate) action: String,
}

/// A control command that was carried out.
#[derive(Clone, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Changed {
    /// What was done, in one sentence.
    pub(crate) message: String,
    /// The array as it is now; null if it is not served any more.
    pub(crate) array: Option<Array>,
}

/// What a command would do, or has done.
#[derive(Clone, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Plan {
    /// True if it was done; false if it was only planned.
    pub(crate) done: bool,
    /// `create`, `destroy`, `undestroy`, `recover`.
    pub(crate) verb: String,
    /// The array.
    pub(crate) name: String,
    /// Its identity; before it is made, null.
    pub(crate) uuid: Option<String>,
    /// As in [`Array`].
    pub(crate) level: String,
    /// As in [`Array`].
    pub(crate) layout: String,
    /// As in [`Array`].
    pub(crate) chunk_bytes: u64,
    /// Bytes that can be stored.
    pub(crate) capacity_bytes: u64,
    /// Bytes of the members that it takes.
    pub(crate) raw_bytes: u64,
    /// How many members may be lost.
    pub(crate) redundancy: usize,
    /// How it will stand against the write hole; null without redundancy, and where the verb does
    /// not make an array.
    #[serde(default)]
    pub(crate) consistency: Option<Consistency>,
    /// It will keep checksums of its blocks.
    #[serde(default)]
    pub(crate) checksums: bool,
    /// The disks it concerns, slots first, then spares, then the journal device.
    pub(crate) disks: Vec<PlannedDisk>,
    /// What the user should know before saying yes.
    pub(crate) warnings: Vec<String>,
    /// Where copies of what was overwritten lie.
    pub(crate) undo: Option<String>,
}

/// What becomes of a disk.
#[derive(Clone, Serialize, Deserialize, JsonSchema)]
pub(crate) struct PlannedDisk {
    /// Its path.
    pub(crate) path: String,
    /// Its serial number, if it has one.
    pub(crate) serial: Option<String>,
    /// Its size.
    pub(crate) bytes: u64,
    /// `slot 0`, `spare`, `journal`.
    pub(crate) role: String,
    /// What is on it and will not be after this.
    pub(crate) overwrites: Vec<SignatureView>,
    /// True if the disk is a file that does not exist yet.
    pub(crate) new: bool,
}

/// An array that was put together.
#[derive(Clone, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Assembled {
    /// The array.
    pub(crate) array: Array,
    /// What a person should know about it.
    pub(crate) notes: Vec<String>,
    /// True if nothing is left to sync, and the array was stopped clean; false if nothing was
    /// written.
    pub(crate) settled: bool,
}

/// What a server serves, once it is ready.
#[derive(Clone, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Serving {
    /// Its process number.
    pub(crate) pid: u32,
    /// Its arrays.
    pub(crate) arrays: Vec<Array>,
    /// Where NBD clients connect: `unix:PATH`, `tcp:ADDRESS:PORT`.
    pub(crate) nbd: Vec<String>,
    /// Where control commands go.
    pub(crate) control: Vec<String>,
    /// Whether TLS is required.
    pub(crate) tls: bool,
}

/// The answer of `health`, as monitoring plugins give it.
#[derive(Clone, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Health {
    /// `ok`, `warning`, `critical`, `unknown`; the exit status is 0, 1, 2, 3.
    pub(crate) verdict: Verdict,
    /// One line.
    pub(crate) message: String,
    /// Performance data, as plugins write it.
    pub(crate) performance: String,
}

/// What `health` thinks.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Verdict {
    /// All is well.
    Ok,
    /// Degraded but redundant, rebuilding, or mismatches were found.
    Warning,
    /// No redundancy left where there should be, or failed.
    Critical,
    /// It cannot be told.
    Unknown,
}

/// When background work will be done.
#[derive(Clone, Serialize, Deserialize, JsonSchema)]
pub(crate) struct When {
    /// The array.
    pub(crate) name: String,
    /// Its identity.
    pub(crate) uuid: String,
    /// What is being done; null if nothing is.
    pub(crate) job: Option<Job>,
    /// When it will be done; null without an estimate.
    pub(crate) expected: Option<Timestamp>,
}

/// The end of a wait.
#[derive(Clone, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Waited {
    /// The array.
    pub(crate) name: String,
    /// How long it took.
    pub(crate) seconds: f64,
    /// The array as it is now.
    pub(crate) array: Array,
}

/// How a demonstration went.
#[derive(Clone, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Demonstration {
    /// Bytes written, and read back, through NBD.
    pub(crate) bytes: u64,
    /// Bytes that came back different.
    pub(crate) wrong_bytes: u64,
    /// Members failed while writes ran.
    pub(crate) failed: Vec<String>,
    /// How long writing took.
    pub(crate) write_seconds: f64,
    /// How long the rest of the rebuild took after the writes.
    pub(crate) rebuild_seconds: f64,
    /// How long reading took.
    pub(crate) read_seconds: f64,
}

/// Plain text, where a verb has nothing else: completions, where manual pages are.
#[derive(Clone, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Text {
    /// All of it.
    pub(crate) text: String,
}

/// An error, in the place of a report.
#[derive(Clone, Serialize, Deserialize, JsonSchema)]
pub(crate) struct ErrorView {
    /// Stable: `PPT-` and a number whose first digit is the exit status.
    pub(crate) id: String,
    /// What is wrong.
    pub(crate) message: String,
    /// What to do next.
    pub(crate) action: String,
    /// The exit status.
    pub(crate) exit_code: u8,
}

/// Percent done, below 100 until all is.
pub(crate) fn percent(done: u64, total: u64) -> f64 {
    if done >= total {
        return 100.0;
    }
    ((done as f64 / total as f64 * 1000.0).floor() / 10.0).min(99.9)
}

#[cfg(test)]
mod tests {
    #[test]
    fn percent_stays_below_100_until_done() {
        use super::percent;
        assert_eq!(percent(0, 0), 100.0);
        assert_eq!(percent(1, 3), 33.3);
        assert_eq!(percent(9_999_999, 10_000_000), 99.9);
        assert_eq!(percent(10, 10), 100.0);
        assert_eq!(percent(20, 10), 100.0);
    }
}
