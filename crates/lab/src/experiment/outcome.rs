//! The outcome of an experiment: what its runs have seen, and the medians over them.
//!
//! Its JSON is [`SCHEMA`]: one object, units in the names, the experiment's text inside, so that a
//! file of an outcome is all that a report or another run needs.

use serde::{Deserialize, Serialize};

use super::histogram::Histogram;
use super::schema::{CellStatus, Unit};

/// Name and version of the JSON form.
pub const SCHEMA: &str = "parapet-lab-outcome/1";

/// The outcome of an experiment.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
pub struct Outcome {
    /// [`SCHEMA`].
    pub schema: String,
    /// Always true: models, not measurements.
    pub simulated: bool,
    /// The experiment's title.
    pub name: String,
    /// The version of the program.
    pub version: String,
    /// The experiment as TOML.
    pub experiment: String,
    /// Every number that the models were given, besides the experiment.
    pub constants: Vec<Constant>,
    /// Requests in flight of all workers; 0 for an open replay.
    pub depth: u64,
    /// Medians over the runs, each figure for itself.
    pub median: Figures,
    /// Comparison with measured figures.
    pub cells: Vec<Cell>,
    /// One for each seed.
    pub runs: Vec<Run>,
}

/// A number given to the models.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug)]
pub struct Constant {
    /// Its meaning.
    pub name: String,
    /// Its value with the unit.
    pub value: String,
    /// Where it comes from.
    pub source: String,
}

/// The figures of a run, over reads, writes and trims.
#[derive(Clone, Copy, PartialEq, Default, Serialize, Deserialize, Debug)]
pub struct Figures {
    /// Requests in a second.
    pub requests_per_s: f64,
    /// Bytes in a second.
    pub bytes_per_s: f64,
    /// Mean latency.
    pub mean_ns: f64,
    /// Median latency.
    pub p50_ns: f64,
    /// 90th percentile.
    pub p90_ns: f64,
    /// 99th percentile.
    pub p99_ns: f64,
    /// 99.9th percentile.
    pub p999_ns: f64,
}

impl Figures {
    /// Each figure with a name and a unit for people, divided so that the unit fits.
    pub fn named(&self) -> [(&'static str, &'static str, f64); 7] {
        [
            ("rate", "requests/s", self.requests_per_s),
            ("throughput", "MB/s", self.bytes_per_s / 1e6),
            ("latency mean", "ms", self.mean_ns / 1e6),
            ("latency p50", "ms", self.p50_ns / 1e6),
            ("latency p90", "ms", self.p90_ns / 1e6),
            ("latency p99", "ms", self.p99_ns / 1e6),
            ("latency p99.9", "ms", self.p999_ns / 1e6),
        ]
    }

    /// The figure that a unit names.
    pub fn in_unit(&self, unit: Unit) -> f64 {
        match unit {
            Unit::Requests => self.requests_per_s,
            Unit::KiB => self.bytes_per_s / 1024.0,
            Unit::MiB => self.bytes_per_s / f64::from(1 << 20),
            Unit::MB => self.bytes_per_s / 1e6,
            Unit::P50 => self.p50_ns / 1e6,
            Unit::P99 => self.p99_ns / 1e6,
            Unit::Mean => self.mean_ns / 1e6,
        }
    }

    /// The median of each figure.
    pub fn median(all: &[Figures]) -> Figures {
        let of = |figure: fn(&Figures) -> f64| median(all.iter().map(figure).collect());
        Figures {
            requests_per_s: of(|one| one.requests_per_s),
            bytes_per_s: of(|one| one.bytes_per_s),
            mean_ns: of(|one| one.mean_ns),
            p50_ns: of(|one| one.p50_ns),
            p90_ns: of(|one| one.p90_ns),
            p99_ns: of(|one| one.p99_ns),
            p999_ns: of(|one| one.p999_ns),
        }
    }
}

/// The median; 0 of nothing.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => 0.0,
        odd if odd % 2 == 1 => values[middle],
        _ => f64::midpoint(values[middle - 1], values[middle]),
    }
}

/// A comparison with a measured figure.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
pub struct Cell {
    /// What was measured.
    pub name: String,
    /// The unit of both figures.
    pub unit: Unit,
    /// May it calibrate?
    pub status: CellStatus,
    /// The measured figure.
    pub measured: f64,
    /// The median of the runs.
    pub reproduced: f64,
}

impl Cell {
    /// Deviation from the measurement: 0.05 is 5 % too much.
    pub fn error(&self) -> f64 {
        self.reproduced / self.measured - 1.0
    }
}

/// A run: one seed.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
pub struct Run {
    /// Its seed.
    pub seed: u64,
    /// The length of the window in seconds.
    pub span_s: f64,
    /// Its figures.
    pub figures: Figures,
    /// Reads.
    pub read: Side,
    /// Writes.
    pub write: Side,
    /// Discards.
    pub trim: Side,
    /// Flushes.
    pub sync: Side,
    /// Requests that failed. A worker stops with its first one.
    pub errors: u64,
    /// The first error.
    pub first_error: Option<String>,
    /// What each member did, in the order of the disks.
    pub members: Vec<Member>,
    /// What was busy with what.
    pub stations: Vec<Station>,
    /// The window second by second.
    pub seconds: Vec<Second>,
    /// What happened, in order.
    pub events: Vec<Happened>,
    /// Movements of the heads at the start of the window: of the first run only.
    pub heads: Vec<HeadLine>,
}

impl Run {
    /// All latencies but those of flushes.
    pub fn latencies(&self) -> Histogram {
        let mut all = Histogram::default();
        [&self.read, &self.write, &self.trim].iter().for_each(|side| all.merge(&side.latencies));
        all
    }
}

/// What a request does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Direction {
    Read,
    Write,
    Trim,
    Sync,
}

/// Requests of one direction.
#[derive(Clone, PartialEq, Default, Serialize, Deserialize, Debug)]
pub struct Side {
    /// Their number.
    pub requests: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Requests in a second.
    pub requests_per_s: f64,
    /// Bytes in a second.
    pub bytes_per_s: f64,
    /// The shortest latency.
    pub min_ns: u64,
    /// The longest.
    pub max_ns: u64,
    /// The mean.
    pub mean_ns: f64,
    /// The standard deviation.
    pub stddev_ns: f64,
    /// All of them: `[lower bound, count]`.
    pub latencies: Histogram,
}

/// What a member did within the window.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug)]
pub struct Member {
    /// `disk0` …
    pub name: String,
    /// Reads.
    pub reads: u64,
    /// Writes.
    pub writes: u64,
    /// Flushes.
    pub flushes: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
}

/// A resource, and the shares of the window that it spent with something.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
pub struct Station {
    /// `cpu`, `disk0` …
    pub name: String,
    /// The shares; their sum is 1.
    pub shares: Vec<Share>,
}

impl Station {
    /// The share that is not idle.
    pub fn busy(&self) -> f64 {
        let busy = self.shares.iter().filter(|share| share.what != "idle");
        busy.map(|share| share.share).sum()
    }
}

/// A share of a station's time.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
pub struct Share {
    /// `seek`, `rotate`, `transfer`, `idle` …
    pub what: String,
    /// 0 to 1.
    pub share: f64,
}

/// A second of the window.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Debug)]
pub struct Second {
    /// Requests answered.
    pub requests: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Median latency.
    pub p50_ns: u64,
    /// 99th percentile.
    pub p99_ns: u64,
}

/// Something that happened to the array.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
pub struct Happened {
    /// Seconds since the start of the window; negative before it.
    pub at_s: f64,
    /// The engine's text.
    pub text: String,
}

/// The heads of a disk.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
pub struct HeadLine {
    /// `disk0` …
    pub name: String,
    /// The disk's cylinders.
    pub cylinders: u32,
    /// In order, without gaps.
    pub spans: Vec<HeadSpan>,
}

/// The heads did one thing for a while.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
pub struct HeadSpan {
    /// Since the start of the window.
    pub from_ns: u64,
    /// Since the start of the window.
    pub until_ns: u64,
    /// As in [`Share::what`].
    pub what: String,
    /// The cylinder at the end.
    pub cylinder: u32,
}

impl Outcome {
    /// The outcome as JSON, for [`Outcome::from_json`].
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("numbers and texts have a JSON form")
    }

    /// Reads an outcome.
    ///
    /// # Errors
    /// If the text is no JSON, or no outcome of this version.
    pub fn from_json(text: &str) -> Result<Outcome, String> {
        #[derive(Deserialize)]
        struct Head {
            schema: String,
        }
        let hint = "write one with `parapet lab run --json`";
        let wrong = |cause: serde_json::Error| format!("not an outcome: {cause}\n{hint}");
        let head: Head = serde_json::from_str(text).map_err(wrong)?;
        if head.schema != SCHEMA {
            return Err(format!(
                "not an outcome: schema {:?}, not {SCHEMA:?}\n{hint}",
                head.schema
            ));
        }
        serde_json::from_str(text).map_err(wrong)
    }

    /// The run whose rate is the median, or the lower one of two.
    pub fn median_run(&self) -> Option<&Run> {
        let mut runs: Vec<&Run> = self.runs.iter().collect();
        let rate = |run: &&Run| run.figures.requests_per_s;
        runs.sort_by(|a, b| rate(a).total_cmp(&rate(b)));
        runs.get(runs.len().saturating_sub(1) / 2).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        assert_eq!(median(vec![]), 0.0);
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), 2.5);
    }

    #[test]
    fn other_json_is_refused() {
        let error = Outcome::from_json("{\"schema\": \"parapet-lab-outcome/9\"}").unwrap_err();
        assert!(error.contains("outcome/9"), "{error}");
        assert!(Outcome::from_json("[]").is_err());
    }
}
