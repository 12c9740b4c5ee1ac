//! Background jobs: their progress, and the results of rebuilds and scrubs.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// A background job.
#[derive(Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Job {
    /// Its kind.
    pub(crate) kind: JobKind,
    /// Bytes of the array completed.
    pub(crate) done_bytes: u64,
    /// Total bytes of the array to process.
    pub(crate) total_bytes: u64,
    /// Percent completed, below 100 until the end.
    pub(crate) percent: f64,
    /// Bytes of the array per second over the last minute; null without enough samples.
    pub(crate) bytes_per_second: Option<u64>,
    /// Bytes read and written per second over all members, over the last minute.
    pub(crate) member_bytes_per_second: Option<u64>,
    /// Estimated seconds to the end, at that rate; null without an estimate.
    pub(crate) seconds_left: Option<u64>,
    /// The limiting factor, if known.
    pub(crate) limited_by: Option<String>,
    /// Start time; constant while the job runs.
    pub(crate) started: Timestamp,
    /// Mismatches found so far.
    pub(crate) mismatches: u64,
    /// Bytes of the array found unrecoverable so far.
    pub(crate) lost_bytes: u64,
}

/// Kinds of background jobs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub(crate) enum JobKind {
    /// Compute a lost member's data onto a new member.
    Rebuild,
    /// Copy a member to its replacement.
    Replace,
    /// Make parity and copies match the data.
    Resync,
    /// Read and compare all data.
    Check,
    /// Read and compare all data, and repair mismatches.
    Repair,
    /// Read and compare blocks without valid checksums, and checksum them.
    Checksum,
}

/// Result of a rebuild.
#[derive(Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct LastRebuild {
    /// True if a member was copied to its replacement; false if its data was computed from others.
    pub(crate) replace: bool,
    /// End time.
    pub(crate) ended: Timestamp,
    /// Duration.
    pub(crate) seconds: f64,
    /// Bytes read and written per second over all members; null if the job was too short for a
    /// rate.
    pub(crate) member_bytes_per_second: Option<u64>,
}

/// Result of a scrub.
#[derive(Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Scrub {
    /// True for `repair`, false for `check`.
    pub(crate) repair: bool,
    /// True if it reached the end of the array.
    pub(crate) complete: bool,
    /// End time.
    pub(crate) ended: Timestamp,
    /// Duration.
    pub(crate) seconds: f64,
    /// Bytes read and written over all members.
    pub(crate) bytes: u64,
    /// Bytes of the array compared with their redundancy.
    pub(crate) compared_bytes: u64,
    /// Number of mismatches.
    pub(crate) mismatches: u64,
    /// Number of mismatches repaired: a check repairs read errors and checksum errors like every
    /// read, a repair all mismatches.
    #[serde(default)]
    pub(crate) repaired_mismatches: u64,
    /// Bytes of members rewritten.
    pub(crate) repaired_bytes: u64,
    /// Rewritten bytes where the wrong member was unknown: the members now agree, possibly on
    /// the wrong data.
    pub(crate) guessed_bytes: u64,
    /// The mismatches: the first 1000.
    pub(crate) findings: Vec<Finding>,
}

/// What a server keeps of scrubs over restarts.
#[derive(Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct ScrubRecord {
    /// End of the last scrub that reached the end of the array; null if none did.
    pub(crate) completed: Option<Timestamp>,
    /// How much of the array a scrub had compared when it was interrupted; 0 if none was.
    pub(crate) position_bytes: u64,
}

/// A mismatch between members.
#[derive(Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Finding {
    /// The first affected byte of the array.
    pub(crate) array_offset: u64,
    /// Its position on the member, from the start of the data.
    pub(crate) member_offset: u64,
    /// Its position on the member, from the start of the file or disk. The member is the wrong one,
    /// or the first affected one if the wrong one is unknown.
    pub(crate) disk_offset: u64,
    /// Number of affected bytes on a member.
    pub(crate) bytes: u64,
    /// The slot with wrong data, if the level can identify it.
    pub(crate) slot: Option<usize>,
    /// True if the members agree again.
    #[serde(default)]
    pub(crate) repaired: bool,
}

/// Computes the percentage, below 100 until all is done.
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
