//! fio on several hosts at once: one job on each export, in one process.

use super::super::nbd::fio::{self, Load};
use super::super::nbd::stand::Server;
use crate::failure::Failure;
use serde_json::Value;

/// What all hosts did together.
pub(super) struct Seen {
    pub(super) requests: f64,
    pub(super) megabytes: f64,
    /// Requests in a second.
    pub(super) rate: f64,
}

impl Seen {
    /// MB/s, or thousands of requests in a second.
    pub(super) fn figure(&self, load: &Load) -> f64 {
        if load.is_large() { self.megabytes } else { self.rate / 1e3 }
    }
}

/// The size of the file that R1 copied: 37 MB.
pub(super) const FILE_MEBIBYTES: usize = 36;

/// A range of an array, in MiB.
pub(super) type Range = (usize, usize);

/// A job on each host, in a range of its own.
struct Jobs<'a>(Vec<(&'a Server, Range)>);

impl Jobs<'_> {
    /// The first job after a `barrier` waits for all before it.
    fn words(&self, group: &str, options: &[String], barrier: bool) -> Vec<String> {
        let mut words = Vec::new();
        for (host, (server, (at, length))) in self.0.iter().enumerate() {
            words.push(format!("--name={group}{host}"));
            words.extend(["--ioengine=nbd".into(), format!("--uri={}", server.uri())]);
            words.extend([format!("--offset={at}m"), format!("--size={length}m")]);
            words.extend((barrier && host == 0).then(|| "--stonewall".into()));
            words.extend_from_slice(options);
        }
        words
    }
}

/// Divides these MiB among hosts, in whole numbers of `unit`.
fn divided(servers: &[Server], mebibytes: usize, unit: usize) -> Jobs<'_> {
    let share = mebibytes / servers.len() / unit * unit;
    Jobs((0..).zip(servers).map(|(host, server)| (server, (host * share, share))).collect())
}

/// Loads these hosts for so long; each has a part of the array, in whole regions of 64 MiB.
pub(super) fn run(
    load: &Load,
    millis: u32,
    servers: &[Server],
    mebibytes: usize,
) -> Result<Seen, Failure> {
    let mut options = load.words().to_vec();
    options.extend(["--time_based".into(), format!("--runtime={millis}ms")]);
    let jobs = divided(servers, mebibytes, 64);
    let report = report(jobs.words("host", &options, false))?;
    seen(&report, 0..servers.len())
}

/// Each host writes [`FILE_MEBIBYTES`] in a region of its own and flushes, and then does so again:
/// the second time it holds the region.
pub(super) fn twice(servers: &[Server]) -> Result<[Seen; 2], Failure> {
    let ranges = (0..).zip(servers).map(|(host, server)| (server, (64 * host, FILE_MEBIBYTES)));
    let jobs = Jobs(ranges.collect());
    let mut options = Load::new("write", 1024, 4).words().to_vec();
    options.push("--end_fsync=1".into());
    let [first, again] = [("first", false), ("again", true)]
        .map(|(group, barrier)| jobs.words(group, &options, barrier));
    let report = report([first, again].concat())?;
    let count = servers.len();
    Ok([seen(&report, 0..count)?, seen(&report, count..2 * count)?])
}

/// Writes one block in each of so many regions of 4 MiB.
pub(super) fn a_block_of_each(server: &Server, regions: usize) -> Result<Seen, Failure> {
    let jobs = Jobs(vec![(server, (0, 4 * regions))]);
    // As many as the client takes on one connection.
    let mut options = ["--rw=write:4092k", "--bs=4k", "--iodepth=256"].map(String::from).to_vec();
    options.push(format!("--io_size={}k", 4 * regions));
    let report = report(jobs.words("grants", &options, false))?;
    seen(&report, 0..1)
}

fn report(jobs: Vec<String>) -> Result<Value, Failure> {
    let mut words = vec!["fio", "--output-format=json", "--thread", "--randrepeat=0"];
    words.extend(jobs.iter().map(String::as_str));
    fio::report(&words)
}

/// The work of these jobs, over the time of the longest.
fn seen(report: &Value, jobs: std::ops::Range<usize>) -> Result<Seen, Failure> {
    let (mut requests, mut bytes, mut seconds) = (0.0, 0.0, 0.0_f64);
    for job in jobs {
        for side in ["read", "write"] {
            let figure = |name: &str| report["jobs"][job][side][name].as_f64().unwrap_or(0.0);
            requests += figure("total_ios");
            bytes += figure("io_bytes");
            seconds = seconds.max(figure("runtime") / 1e3);
        }
    }
    if seconds == 0.0 {
        return Err(Failure::new("fio's report lacks a job", "is it version 3.33 or later?"));
    }
    Ok(Seen { requests, megabytes: bytes / seconds / 1e6, rate: requests / seconds })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn hosts_add_up_over_the_time_of_the_longest() {
        let job = |bytes: u64, millis: u64| {
            json!({ "write": { "total_ios": 10, "io_bytes": bytes, "runtime": millis },
                    "read": { "total_ios": 0, "io_bytes": 0, "runtime": 0 } })
        };
        let report = json!({ "jobs": [job(9_000_000, 500), job(3_000_000, 1000), job(7, 1)] });
        let seen = seen(&report, 0..2).expect("both jobs are there");
        assert_eq!((seen.requests, seen.megabytes, seen.rate), (20.0, 12.0, 20.0));
        assert!(super::seen(&report, 3..4).is_err());
    }
}
