//! fio's NBD client, and its results.

use super::stand::Server;
use crate::failure::Failure;
use crate::shell;
use serde_json::Value;
use std::path::Path;

/// The core that fio runs on.
const CORE: &str = "0";

/// An access pattern of fio.
#[derive(Clone)]
pub(in super::super) struct Load {
    way: &'static str,
    kibibytes: u32,
    depth: u32,
}

/// A result of fio.
pub(in super::super) struct Seen {
    requests: f64,
    bytes: f64,
    pub(in super::super) p50_us: f64,
    pub(in super::super) p99_us: f64,
    /// CPU time that the server took for a request, of all its threads and of the kernel for it.
    pub(in super::super) cpu_us: f64,
}

impl Load {
    /// `way` as fio's `rw` names it.
    pub(in super::super) const fn new(way: &'static str, kibibytes: u32, depth: u32) -> Load {
        Load { way, kibibytes, depth }
    }

    pub(super) fn is(&self, way: &str, depth: u32) -> bool {
        self.way == way && self.depth == depth
    }

    pub(super) fn writes(&self) -> bool {
        self.way.ends_with("write")
    }

    /// As options of fio.
    pub(in super::super) fn words(&self) -> [String; 3] {
        let Load { way, kibibytes, depth } = self;
        [format!("--rw={way}"), format!("--bs={kibibytes}k"), format!("--iodepth={depth}")]
    }

    /// Rates are in bytes.
    pub(in super::super) fn is_large(&self) -> bool {
        self.kibibytes >= 128
    }

    pub(in super::super) fn name(&self) -> String {
        let way = match self.way {
            "write" => "sequential write",
            "read" => "sequential read",
            "randwrite" => "random write",
            _ => "random read",
        };
        format!("{way} {} KiB, depth {}", self.kibibytes, self.depth)
    }
}

impl Seen {
    /// MB/s or thousands of requests a second.
    pub(in super::super) fn rate(&self, load: &Load) -> f64 {
        if load.is_large() { self.bytes / 1e6 } else { self.requests / 1e3 }
    }

    pub(in super::super) fn describe(&self, load: &Load) -> String {
        let unit = if load.is_large() { "MB/s" } else { "k/s" };
        let Seen { p50_us, p99_us, cpu_us, .. } = self;
        let rate = self.rate(load);
        format!("{rate:.1} {unit}, p50 {p50_us:.0} µs, p99 {p99_us:.0} µs, CPU {cpu_us:.1} µs")
    }
}

/// Writes all of the export once; gives the MB/s.
pub(in super::super) fn fill(server: &Server) -> Result<f64, Failure> {
    let uri = format!("--uri={}", server.uri());
    fill_all(&["--ioengine=nbd", &uri])
}

/// As [`fill`], of what these options of fio name.
pub(in super::super) fn fill_all(target: &[&str]) -> Result<f64, Failure> {
    let report = fio(target, &["--rw=write", "--bs=1M", "--iodepth=8", "--size=100%"])?;
    Ok(report["jobs"][0]["write"]["bw_bytes"].as_f64().unwrap_or(0.0) / 1e6)
}

/// Loads the server for so long.
pub(in super::super) fn run(load: &Load, millis: u32, server: &Server) -> Result<Seen, Failure> {
    let uri = format!("--uri={}", server.uri());
    run_on(&["--ioengine=nbd", &uri], load, millis, &|| server.cpu_seconds())
}

/// Loads what these options of fio name; `cpu_seconds` is that of its servers so far.
pub(in super::super) fn run_on(
    target: &[&str],
    load: &Load,
    millis: u32,
    cpu_seconds: &dyn Fn() -> Result<f64, Failure>,
) -> Result<Seen, Failure> {
    let before = cpu_seconds()?;
    let ([way, size, depth], runtime) = (load.words(), format!("--runtime={millis}ms"));
    let report = fio(target, &[&way, &size, &depth, "--time_based", &runtime])?;
    let cpu = cpu_seconds()? - before;
    let side = if load.writes() { "write" } else { "read" };
    seen(&report, side, cpu)
        .ok_or_else(|| Failure::new("fio's report lacks a figure", "is it version 3.33 or later?"))
}

fn seen(report: &Value, side: &str, cpu_seconds: f64) -> Option<Seen> {
    let side = &report["jobs"][0][side];
    let percentile = |name: &str| Some(side["clat_ns"]["percentile"][name].as_f64()? / 1e3);
    Some(Seen {
        requests: side["iops"].as_f64()?,
        bytes: side["bw_bytes"].as_f64()?,
        p50_us: percentile("50.000000")?,
        p99_us: percentile("99.000000")?,
        cpu_us: cpu_seconds * 1e6 / side["total_ios"].as_f64()?,
    })
}

fn fio(target: &[&str], arguments: &[&str]) -> Result<Value, Failure> {
    let mut words = vec!["taskset", "--cpu-list", CORE, "fio", "--name=bench"];
    words.extend(["--output-format=json", "--thread", "--randrepeat=0"]);
    words.extend(target);
    words.extend(arguments);
    report(&words)
}

/// What a command line with fio in it reports in JSON, if none of its jobs failed.
pub(in super::super) fn report(words: &[&str]) -> Result<Value, Failure> {
    let text = shell::output(Path::new("/"), words)?;
    // Remarks may stand before the report.
    let start = text.find('{').unwrap_or(0);
    let report: Value = serde_json::from_str(&text[start..])
        .map_err(|error| Failure::new(format!("fio's report: {error}"), "run fio by hand"))?;
    let jobs = report["jobs"].as_array().map(Vec::as_slice).unwrap_or_default();
    if !jobs.is_empty() && jobs.iter().all(|job| job["error"] == 0) {
        return Ok(report);
    }
    let errors: Vec<String> = jobs.iter().map(|job| job["error"].to_string()).collect();
    let what = format!("`{}` ended with error {}", words.join(" "), errors.join(", "));
    Err(Failure::new(what, "the server's messages stand above"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_report_is_read() {
        let report = json!({ "jobs": [ { "error": 0, "read": {
            "iops": 2000.0, "bw_bytes": 8_192_000, "total_ios": 4000,
            "clat_ns": { "percentile": { "50.000000": 21_000, "99.000000": 40_500 } },
        } } ] });
        let seen = seen(&report, "read", 0.02).expect("all figures are there");
        let load = Load::new("randread", 4, 32);
        assert_eq!(seen.describe(&load), "2.0 k/s, p50 21 µs, p99 40 µs, CPU 5.0 µs");
        assert!(super::seen(&report, "write", 0.0).is_none());
    }
}
