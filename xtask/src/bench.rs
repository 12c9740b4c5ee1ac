//! `cargo xtask bench`: measures Parapet beside its peers and keeps the figures of each release.
//!
//! A benchmark is a command that prints one JSON object a line: `name`, `ours`, each peer's figure
//! under the peer's name, `ratio` (ours over the first peer's, more is better), and if it likes
//! `unit` and `target` (the least ratio wanted). It measures itself and its peers in turn, in one
//! run; here figures are only collected, kept in `docs/bench/VERSION.json`, and printed. Nothing
//! fails for being slow.

mod aoe;
mod cluster;
mod compare;
mod fuse;
mod nbd;
mod process;
mod profiles;
mod report;
mod row;

use crate::failure::Failure;
use crate::shell;
use crate::tools::{self, Purpose};
use serde_json::{Map, Value, json};
use std::path::Path;

/// One benchmark. No command has a word with a space in it.
struct Bench {
    name: &'static str,
    what: &'static str,
    /// The command that runs it.
    command: &'static str,
    /// The program that measures.
    by: By,
}

enum By {
    /// The command itself.
    Command,
    /// This program: the checkout, and whether there is time to be thorough.
    Xtask(fn(&Path, bool) -> Result<Vec<Value>, Failure>),
}

const BENCHES: &[Bench] = &[
    Bench {
        name: "parity",
        what: "parity kernels in memory and in cache, beside ISA-L",
        command: "taskset --cpu-list 0 cargo bench -q -p parapet-parity --features isal \
                  --bench isal",
        by: By::Command,
    },
    Bench {
        name: "engine",
        what: "the engine in process on one core, beside one raw member file",
        command: "cargo bench -q -p parapet --bench engine",
        by: By::Command,
    },
    Bench {
        name: "nbd",
        what: "NBD over a unix socket, members in memory, beside nbdkit and qemu-nbd with one file",
        command: "cargo xtask bench nbd",
        by: By::Xtask(nbd::measure),
    },
    Bench {
        name: "profiles",
        what: "the everyday build over NBD, members in memory, beside the build of packages",
        command: "cargo xtask bench profiles",
        by: By::Xtask(profiles::measure),
    },
    Bench {
        name: "aoe",
        what: "ATA over Ethernet over veth cables, beside vblade with one file",
        command: "cargo xtask bench aoe",
        by: By::Xtask(aoe::measure),
    },
    Bench {
        name: "fuse",
        what: "local disks by FUSE, members in memory, beside qemu-storage-daemon and nbdfuse",
        command: "cargo xtask bench fuse",
        by: By::Xtask(fuse::measure),
    },
    Bench {
        name: "cluster",
        what: "clusters on one machine: two hosts beside one, marks, grants, TLS, a local array",
        command: "cargo xtask bench cluster",
        by: By::Xtask(cluster::measure),
    },
];

/// Asks for more and longer rounds, where a benchmark has a choice.
const FULL: &str = "--full";

/// The page for readers. It includes `VERSION.md`, if present: hand-written remarks on causes of
/// missed targets and possible remedies.
const REPORT: &str = "README.md";

/// Programs and packages whose versions belong to a figure, by the command that prints them.
const VERSIONS: &[(&str, &str)] = &[
    ("rustc", "rustc --version"),
    ("fio", "fio --version"),
    ("nbdkit", "nbdkit --version"),
    ("qemu-nbd", "qemu-nbd --version"),
    ("qemu-storage-daemon", "qemu-storage-daemon --version"),
    ("nbdfuse", "nbdfuse --version"),
    ("vblade", "dpkg-query --show --showformat=${Version} vblade"),
    ("etcd", "etcd --version"),
    ("libisal", "dpkg-query --show --showformat=${Version} libisal-dev"),
];

/// Only compares the figures in two files: an older and a newer release.
const COMPARE: &str = "--compare";
/// Only rewrites the page from the stored figures.
const REPORT_ONLY: &str = "--report";

/// Measures the benchmarks named, or all; `--list` prints them, `--full` takes more rounds,
/// `--report` measures nothing, nor does `--compare OLD.json NEW.json`.
pub(crate) fn run(arguments: &[String]) -> Result<(), Failure> {
    if arguments.iter().any(|argument| argument == "--list") {
        for bench in BENCHES {
            println!("{:<8} {}: {}", bench.name, bench.what, bench.command);
        }
        return Ok(());
    }
    if let [first, files @ ..] = arguments
        && first == COMPARE
    {
        let [old, new] = files else {
            return Err(Failure::new("--compare takes two files", "name the older release first"));
        };
        return compare::print(old, new);
    }
    let root = shell::root()?;
    let folder = root.join("docs/bench");
    if arguments.iter().any(|argument| argument == REPORT_ONLY) {
        let release = report::read(&folder, env!("CARGO_PKG_VERSION")).ok_or_else(|| {
            let what = format!("{} has no figures of this version", folder.display());
            Failure::new(what, "measure: `cargo xtask bench`")
        })?;
        return keep(&folder, &release);
    }
    let full = arguments.iter().any(|argument| argument == FULL);
    let names: Vec<&String> = arguments.iter().filter(|argument| *argument != FULL).collect();
    let known = |name: &String| BENCHES.iter().any(|bench| bench.name == *name);
    if let Some(stranger) = names.iter().find(|name| !known(name)) {
        let remedy = "`cargo xtask bench --list` shows them";
        return Err(Failure::new(format!("no benchmark {stranger:?}"), remedy));
    }
    tools::ensure(Purpose::Figures)?;
    std::fs::create_dir_all(&folder).map_err(|error| unwritable(&folder, &error))?;
    let mut release = report::read(&folder, env!("CARGO_PKG_VERSION")).unwrap_or_else(|| json!({}));
    release["version"] = json!(env!("CARGO_PKG_VERSION"));
    for bench in BENCHES {
        if names.is_empty() || names.iter().any(|name| *name == bench.name) {
            println!("\n==> {}: {}", bench.name, bench.command);
            release["benches"][bench.name] = measure(bench, &root, full)?;
            // At once: the next benchmark may not come to its end.
            keep(&folder, &release)?;
        }
    }
    print_report(&folder)
}

/// The rows that a benchmark prints, with its command and machine.
fn measure(bench: &Bench, root: &Path, full: bool) -> Result<Value, Failure> {
    let mut machine = machine(root);
    let rows: Vec<Value> = match bench.by {
        By::Xtask(measure) => measure(root, full)?,
        By::Command => {
            let words: Vec<_> = bench.command.split(' ').collect();
            shell::output(root, &words)?.lines().filter_map(whole).map(Value::Object).collect()
        }
    };
    if rows.is_empty() {
        let what = format!("{} printed no row", bench.name);
        return Err(Failure::new(what, format!("run `{}` and see", bench.command)));
    }
    machine["load_after"] = json!(load());
    Ok(json!({
        "what": bench.what,
        "command": bench.command,
        "machine": machine,
        "rows": rows,
    }))
}

/// A line that is a row: an object with `name`, `ours` and `ratio`.
fn whole(line: &str) -> Option<Map<String, Value>> {
    let Ok(Value::Object(row)) = serde_json::from_str(line.trim()) else { return None };
    let whole = row.get("name").is_some_and(Value::is_string)
        && ["ours", "ratio"].iter().all(|key| row.get(*key).is_some_and(Value::is_number));
    whole.then_some(row)
}

/// The machine that produced the figures.
fn machine(root: &Path) -> Value {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let field = |text: &str, key: &str| {
        let line = text.lines().find(|line| line.starts_with(key))?;
        Some(String::from(line.split_once(':')?.1.trim()))
    };
    let mut versions = Map::new();
    for (name, command) in VERSIONS {
        let words: Vec<_> = command.split(' ').collect();
        if let Ok(text) = shell::output(root, &words) {
            let first = text.lines().next().unwrap_or_default();
            versions.insert(String::from(*name), json!(first));
        }
    }
    // The release without suffixes of a distribution or host.
    let kernel = read("/proc/sys/kernel/osrelease");
    let kernel = kernel.trim().split('-').next();
    json!({
        "kernel": kernel,
        "cpu": field(&read("/proc/cpuinfo"), "model name"),
        "cores": std::thread::available_parallelism().map_or(0, usize::from),
        "memory": field(&read("/proc/meminfo"), "MemTotal"),
        "load_before": load(),
        "versions": versions,
    })
}

/// The load average of the last minute: more than 1 before a benchmark, and others were at work.
fn load() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().map(String::from).unwrap_or_default()
}

/// Writes the release's figures and the report.
fn keep(folder: &Path, release: &Value) -> Result<(), Failure> {
    let version = env!("CARGO_PKG_VERSION");
    let earlier = report::earlier(folder, version);
    let notes = std::fs::read_to_string(folder.join(format!("{version}.md"))).ok();
    let text = report::markdown(release, earlier.as_ref(), notes.as_deref());
    let figures = serde_json::to_string_pretty(release).expect("a value is always printable");
    let json = format!("{version}.json");
    for (name, content) in [(json.as_str(), format!("{figures}\n")), (REPORT, text)] {
        let path = folder.join(name);
        std::fs::write(&path, content).map_err(|error| unwritable(&path, &error))?;
    }
    Ok(())
}

fn print_report(folder: &Path) -> Result<(), Failure> {
    let path = folder.join(REPORT);
    let text = std::fs::read_to_string(&path).map_err(|error| {
        Failure::new(format!("{}: {error}", path.display()), "run the benchmark again")
    })?;
    println!("\n{text}");
    Ok(())
}

fn unwritable(path: &Path, error: &std::io::Error) -> Failure {
    Failure::new(format!("{}: {error}", path.display()), "make it writable")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_rows_count() {
        assert!(whole(r#"{"name":"p 4+1","ours":9.5,"isal":10,"ratio":0.95}"#).is_some());
        assert!(whole(r#"{"name":"p 4+1","ours":9.5}"#).is_none());
        assert!(whole("running 3 kernels").is_none());
    }
}
