//! The state of an array in one sentence, and how serious it is.

use std::fmt::Write;

use crate::document::{Array, Job, JobKind, State};

/// How serious a state is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Level {
    /// Normal.
    Good,
    /// Work is under way; nothing to do.
    Busy,
    /// Needs a look.
    Warning,
    /// Needs action.
    Critical,
}

impl Level {
    /// Of an array.
    pub(crate) fn of(array: &Array) -> Level {
        let scrubs = |job: &Job| matches!(job.kind, JobKind::Check | JobKind::Repair);
        match array.state {
            State::Failed | State::Critical | State::Unknown => Level::Critical,
            State::Degraded => Level::Warning,
            State::Healthy if array.redundancy_left < array.redundancy => Level::Warning,
            State::Healthy if !array.problems.is_empty() => Level::Warning,
            State::Healthy if array.job.as_ref().is_some_and(|job| !scrubs(job)) => Level::Busy,
            State::Healthy => Level::Good,
        }
    }
}

/// Describes state, remaining redundancy and the running job: `tank: critical, one more failure
/// loses data; rebuilding, 3 h 10 min left`.
pub(crate) fn sentence(array: &Array) -> String {
    let mut text = format!("{}: {}, {}", array.name, array.state.text(), redundancy(array));
    if !array.writable && array.state != State::Failed {
        text += "; read-only";
    }
    if let Some(job) = &array.job {
        let _ = write!(text, "; {}, {}", job.kind.activity(), progress(job));
    }
    text
}

/// Describes the failures that the array still tolerates.
pub(crate) fn redundancy(array: &Array) -> String {
    match (array.state, array.redundancy_left) {
        (State::Failed, _) => "data is not available".into(),
        (_, 0) if array.redundancy == 0 => "any failure loses data".into(),
        (_, 0) if array.unsynced_bytes > 0 && !array.verifying => {
            "until it is in sync, one failure loses data".into()
        }
        (_, 0) => "one more failure loses data".into(),
        (_, 1) => "one disk may fail".into(),
        (_, count) => format!("{count} disks may fail"),
    }
}

/// Estimates the end of a job, or counts its progress.
pub(crate) fn progress(job: &Job) -> String {
    match job.seconds_left {
        Some(seconds) => format!("{} left", span(seconds)),
        None => format!("{} % done", job.percent),
    }
}

/// Formats a duration in the form of the command line: `45 s`, `12 min`, `3 h 10 min`, `2 d 4 h`.
pub(crate) fn span(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds.div_ceil(60)),
        7200..172_800 => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds % 86_400 / 3600),
    }
}

/// Formats a size in binary units with three significant digits.
pub(crate) fn size(bytes: u64) -> String {
    const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let (mut value, mut unit) = (bytes as f64, 0);
    while value >= 1023.5 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    let decimals = match value {
        whole if whole.fract() == 0.0 => 0,
        small if small < 10.0 => 2,
        medium if medium < 100.0 => 1,
        _ => 0,
    };
    format!("{value:.decimals$} {}", UNITS[unit])
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use serde_json::json;

    /// A healthy RAID 6 of four members, without problems.
    pub(crate) fn healthy() -> Array {
        let member = |name: &str, serial: &str| {
            json!({ "name": name, "serial": serial, "read_errors": 0, "write_errors": 0,
                "repaired_bytes": 0 })
        };
        let slot = |slot: usize| {
            let member = member(&format!("/dev/sd{slot}"), &format!("S{slot}"));
            json!({ "slot": slot, "state": "in_sync", "member": member })
        };
        let value = json!({
            "uuid": "01:02", "name": "tank", "level": "raid6", "layout": "left-symmetric",
            "chunk_bytes": 65536, "capacity_bytes": 128 << 20, "state": "healthy",
            "writable": true, "unsynced_bytes": 0, "redundancy": 2, "redundancy_left": 2,
            "slots": [slot(0), slot(1), slot(2), slot(3)], "spares": [], "faulty": [],
            "exports": [], "problems": [],
        });
        serde_json::from_value(value).unwrap()
    }

    pub(crate) fn rebuild(seconds_left: Option<u64>) -> Job {
        let value = json!({ "kind": "rebuild", "done_bytes": 1, "total_bytes": 8, "percent": 12.5,
            "bytes_per_second": 1, "seconds_left": seconds_left });
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn the_sentence_says_what_may_fail_and_what_runs() {
        let mut array = healthy();
        assert_eq!(sentence(&array), "tank: healthy, 2 disks may fail");
        assert_eq!(Level::of(&array), Level::Good);
        array.state = State::Critical;
        array.redundancy_left = 0;
        array.job = Some(rebuild(Some(3 * 3600 + 600)));
        let expected = "tank: critical, one more failure loses data; rebuilding, 3 h 10 min left";
        assert_eq!(sentence(&array), expected);
        assert_eq!(Level::of(&array), Level::Critical);
        array.job = Some(rebuild(None));
        assert!(sentence(&array).ends_with("; rebuilding, 12.5 % done"));
        array.state = State::Failed;
        array.job = None;
        assert_eq!(sentence(&array), "tank: failed, data is not available");
    }

    #[test]
    fn reduced_redundancy_is_never_good() {
        let mut array = healthy();
        (array.redundancy_left, array.unsynced_bytes) = (0, 4096);
        assert_eq!(Level::of(&array), Level::Warning);
        assert!(sentence(&array).contains("until it is in sync, one failure loses data"));
    }

    #[test]
    fn words_of_a_newer_server_are_unknown() {
        assert_eq!(serde_json::from_value::<State>(json!("melted")).unwrap(), State::Unknown);
        assert_eq!(State::Unknown.text(), "unknown");
    }

    #[test]
    fn sizes_have_three_digits() {
        assert_eq!([size(0), size(4096), size(5 << 39)], ["0 B", "4 KiB", "2.50 TiB"]);
        assert_eq!(size(u64::MAX), "16 EiB");
    }
}
