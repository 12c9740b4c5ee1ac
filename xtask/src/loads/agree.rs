//! Real and virtual time on the same load: fio over NBD on modelled disks in real time beside
//! `parapet lab run`.
//!
//! A verdict of this command, not of a test: other people's work on this machine delays answers.

use super::stand::{FIRST, Stand};
use super::table::load_average;
use crate::failure::Failure;
use crate::shell;
use serde_json::Value;

/// The most that both may differ.
const MOST_PERCENT: f64 = 5.0;
const WARM_UP_S: u32 = 3;
const WINDOW_S: u32 = 20;
const SEEDS: u32 = 9;
/// A stream starts again after this many bytes: what it writes stays in memory.
const STREAM_GIB: u32 = 1;

/// An array and its loads.
struct Case {
    level: &'static str,
    disk: &'static str,
    disks: usize,
}

/// A closed load, as fio and the lab name its parts.
struct Load {
    name: &'static str,
    fio: &'static str,
    pattern: &'static str,
    write_percent: u32,
    kibibytes: u32,
    depth: u32,
}

const CASES: [Case; 3] = [
    Case { level: "10", disk: "hd501lj", disks: 4 },
    Case { level: "5", disk: "hd501lj", disks: 4 },
    Case { level: "10", disk: "cheetah-15k5", disks: 6 },
];

const fn load(
    name: &'static str,
    (fio, pattern, write_percent): (&'static str, &'static str, u32),
    (kibibytes, depth): (u32, u32),
) -> Load {
    Load { name, fio, pattern, write_percent, kibibytes, depth }
}

const LOADS: [Load; 4] = [
    load("random reads 4 KiB, depth 8", ("randread", "random", 0), (4, 8)),
    load("random writes 16 KiB, depth 16", ("randwrite", "random", 100), (16, 16)),
    load("stream read 1 MiB, depth 8", ("read", "sequential", 0), (1024, 8)),
    load("stream written 1 MiB, depth 8", ("write", "sequential", 100), (1024, 8)),
];

impl Load {
    fn is_stream(&self) -> bool {
        self.pattern == "sequential"
    }
}

/// Compares; fails if a figure differs by more than the bar.
pub(super) fn run(stand: &Stand) -> Result<(), Failure> {
    let mut worst = 0.0_f64;
    println!("load average before: {}\n", load_average());
    println!("| array | load | real /s | virtual /s | difference |\n|---|---|---:|---:|---:|");
    for case in &CASES {
        let Case { level, disk, disks } = case;
        for load in &LOADS {
            // Each on new disks: no cache holds what came before.
            let members = stand.modelled(disk, *disks);
            let array = stand.serve(level, &members, &["--chunk", "64K"])?;
            let real = really(&array.uri(), load)?;
            drop(array);
            let virtually = virtually(stand, case, load)?;
            let percent = (real / virtually - 1.0) * 100.0;
            worst = worst.max(percent.abs());
            let name = load.name;
            println!(
                "| RAID {level}, {disks}×{disk} | {name} | {real:.1} | {virtually:.1} | \
                 {percent:+.1} % |"
            );
        }
    }
    println!("\nload average after: {}", load_average());
    if worst <= MOST_PERCENT {
        println!("real and virtual time agree within {worst:.1} %");
        return Ok(());
    }
    let what = format!("real and virtual time differ by {worst:.1} %, at most {MOST_PERCENT} %");
    Err(Failure::new(what, "run it again on an idle machine"))
}

/// Requests a second of fio.
fn really(uri: &str, load: &Load) -> Result<f64, Failure> {
    let words = [
        format!("--uri={uri}"),
        format!("--rw={}", load.fio),
        format!("--bs={}k", load.kibibytes),
        format!("--iodepth={}", load.depth),
        format!("--ramp_time={WARM_UP_S}"),
        format!("--runtime={WINDOW_S}"),
    ];
    let zone = load.is_stream().then(|| format!("--size={STREAM_GIB}g"));
    let fixed = "fio --name=agree --ioengine=nbd --time_based --norandommap --randrepeat=0 \
                 --zero_buffers --output-format=json";
    let all = FIRST.into_iter().chain(fixed.split_whitespace());
    let all = all.chain(words.iter().chain(&zone).map(String::as_str));
    let text = shell::output(std::path::Path::new("/"), &all.collect::<Vec<_>>())?;
    let report = json_of(&text)?;
    let side = if load.write_percent > 0 { "write" } else { "read" };
    figure(&report["jobs"][0][side]["iops"], "fio")
}

/// Requests a second of the lab.
fn virtually(stand: &Stand, case: &Case, load: &Load) -> Result<f64, Failure> {
    let Load { pattern, write_percent, kibibytes, depth, .. } = load;
    let Case { level, disk, disks } = case;
    let text = format!(
        "name = \"agree\"\nwarm_up_s = {WARM_UP_S}\nwindow_s = {WINDOW_S}\nseeds = {SEEDS}\n\
         [hardware]\ndisks = \"{disks}x{disk}\"\n\
         [array]\nlevel = \"{level}\"\nchunk = \"64KiB\"\n\
         [[load.worker]]\npattern = \"{pattern}\"\nwrite_percent = {write_percent}\n\
         size = \"{kibibytes}KiB\"\ndepth = {depth}\n"
    );
    let zone = load.is_stream().then(|| format!("zone = \"{STREAM_GIB}GiB\"\n"));
    let text = text + &zone.unwrap_or_default();
    let file = stand.path("agree.toml");
    std::fs::write(&file, text)
        .map_err(|error| Failure::new(format!("{}: {error}", file.display()), "free some room"))?;
    let text = stand.order(&["lab", "run", &file.to_string_lossy(), "--json"])?;
    let report = json_of(&text)?;
    let figures = report["data"]["figures"].as_array();
    let rate = figures.into_iter().flatten().find(|figure| figure["name"] == "rate");
    figure(&rate.map_or(Value::Null, |rate| rate["value"].clone()), "parapet lab run")
}

/// Remarks may stand before the report.
fn json_of(text: &str) -> Result<Value, Failure> {
    let start = text.find('{').unwrap_or(0);
    serde_json::from_str(&text[start..])
        .map_err(|error| Failure::new(format!("a report: {error}"), "run the program by hand"))
}

fn figure(value: &Value, of: &str) -> Result<f64, Failure> {
    let missing = || Failure::new(format!("{of} printed no rate"), "run the program by hand");
    value.as_f64().filter(|rate| *rate > 0.0).ok_or_else(missing)
}
