//! `cargo xtask fuzz`: runs the fuzz targets with libFuzzer on a stable compiler; see
//! `fuzz/README.md`.

use crate::failure::Failure;
use crate::shell;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

/// Coverage passes of LLVM that need no nightly compiler.
const COVERAGE: &str = "--cfg fuzzing -Cpasses=sancov-module \
    -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
    -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares";
/// Named, so that build scripts are built without these passes.
const HOST: &str = "x86_64-unknown-linux-gnu";
/// For the C library: keep freed pages. With fresh disks for every input, asking the kernel for
/// pages is most of the time otherwise.
const KEEP_PAGES: &[(&str, &str)] =
    &[("MALLOC_MMAP_THRESHOLD_", "1073741824"), ("MALLOC_TRIM_THRESHOLD_", "4294967296")];
/// An input that takes longer, in seconds, counts as a hang.
const HANG_SECONDS: u64 = 30;
/// A canary not found after this many seconds counts as missed.
const CANARY_SECONDS: u64 = 120;
const CANARY: &str = "canary";

/// When a target ends.
#[derive(Clone, Copy)]
enum Limit {
    /// After so many inputs: the same ones each time.
    Runs(u64),
    Seconds(u64),
}

struct Options {
    /// Seconds are shared by the targets.
    limit: Limit,
    seed: u64,
    file: Option<String>,
    targets: Vec<String>,
}

/// `--seconds N` (20, shared by the targets) or `--runs N` (inputs of each target), `--seed S` (1),
/// TARGET… (all); `--file PATH TARGET`; `--list`.
pub(crate) fn run(arguments: &[String]) -> Result<(), Failure> {
    let root = shell::root()?;
    let known = targets(&root)?;
    if arguments.iter().any(|argument| argument == "--list") {
        known.iter().for_each(|name| println!("{name}"));
        return Ok(());
    }
    let options = parse(arguments, known)?;
    let fuzz = Fuzz { build: root.join("target/fuzz"), source: root.join("fuzz") };
    fuzz.compile(&root)?;
    if let Some(file) = &options.file {
        let mut one = fuzz.command(&options.targets[0]);
        let status = one.arg(file).env("FUZZ_VERBOSE", "1").status();
        return match status {
            Ok(status) if status.success() => Ok(()),
            _ => Err(Failure::reported()),
        };
    }
    let found = fuzz.fuzz(CANARY, Limit::Seconds(CANARY_SECONDS), options.seed)?;
    if !found.failed {
        return Err(Failure::new("the canary was not found", "check the coverage passes"));
    }
    let (mut passed, mut failed) = (0, 0);
    for (index, target) in options.targets.iter().enumerate() {
        let limit = share(options.limit, index as u64, options.targets.len() as u64);
        let started = Instant::now();
        let result = fuzz.fuzz(target, limit, options.seed)?;
        let word = if result.failed { "FAILED" } else { "ok" };
        let seconds = started.elapsed().as_secs();
        println!("{target:<18} {:>10} runs in {seconds:>4} s  {word}", result.executions);
        if result.failed {
            println!("{}", result.log);
        }
        *(if result.failed { &mut failed } else { &mut passed }) += 1;
    }
    let word = if failed == 0 { "ok" } else { "FAILED" };
    println!("test result: {word}. {passed} passed; {failed} failed");
    if failed == 0 { Ok(()) } else { Err(Failure::reported()) }
}

/// The limit of one target. The shares of a time add up to it, also where it does not divide.
fn share(limit: Limit, index: u64, count: u64) -> Limit {
    match limit {
        Limit::Runs(_) => limit,
        Limit::Seconds(all) => {
            Limit::Seconds((all * (index + 1) / count - all * index / count).max(1))
        }
    }
}

fn parse(arguments: &[String], known: Vec<String>) -> Result<Options, Failure> {
    let usage = |what: String| {
        Failure::new(
            what,
            "usage: cargo xtask fuzz [--seconds N | --runs N] [--seed N] [--file PATH] TARGET…",
        )
    };
    let mut options =
        Options { limit: Limit::Seconds(20), seed: 1, file: None, targets: Vec::new() };
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| usage(format!("{word}: no value")));
        let number = |text: &String| text.parse().map_err(|_| usage(format!("{text}: no number")));
        match word.as_str() {
            "--seconds" => options.limit = Limit::Seconds(number(value()?)?),
            "--runs" => options.limit = Limit::Runs(number(value()?)?),
            "--seed" => options.seed = number(value()?)?,
            "--file" => options.file = Some(value()?.clone()),
            name if known.iter().any(|target| target == name) => options.targets.push(name.into()),
            name => return Err(usage(format!("{name}: no such target"))),
        }
    }
    if options.file.is_some() && options.targets.len() != 1 {
        return Err(usage(String::from("--file takes one target")));
    }
    if options.targets.is_empty() {
        options.targets = known;
    }
    Ok(options)
}

/// The targets, by their files.
fn targets(root: &Path) -> Result<Vec<String>, Failure> {
    let folder = root.join("fuzz/fuzz_targets");
    let entries = std::fs::read_dir(&folder).map_err(|error| {
        Failure::new(format!("{}: {error}", folder.display()), "run it in a whole checkout")
    })?;
    let names = entries.flatten().filter_map(|entry| {
        Some(entry.path().file_stem()?.to_str()?.to_owned()).filter(|name| name != CANARY)
    });
    let mut names: Vec<String> = names.collect();
    names.sort();
    Ok(names)
}

/// Where the fuzz targets are, and where they are built.
struct Fuzz {
    source: PathBuf,
    build: PathBuf,
}

/// The result of one target.
struct Outcome {
    executions: u64,
    failed: bool,
    log: String,
}

impl Fuzz {
    /// Builds the targets, runs the tests of their crate (the corpus), and writes the seeds.
    fn compile(&self, root: &Path) -> Result<(), Failure> {
        let [manifest, build] = [self.source.join("Cargo.toml"), self.build.clone()]
            .map(|path| path.to_string_lossy().into_owned());
        let cargo = |verb: &'static str| {
            let words = ["cargo", verb, "--quiet", "--release", "--manifest-path", &manifest];
            let place = ["--target-dir", build.as_str(), "--target", HOST];
            let mut command = shell::command(root, &[&words[..], &place[..]].concat());
            command.env("RUSTFLAGS", COVERAGE);
            command
        };
        let seeds = self.build.join("seeds");
        let [build, mut test, mut write] = ["build", "test", "run"].map(cargo);
        test.arg("--lib");
        write.args(["--bin", "seeds", "--"]).arg(&seeds);
        for (mut command, what) in [
            (build, "the fuzz targets do not build"),
            (test, "a test of the fuzz targets fails"),
            (write, "the seeds cannot be written"),
        ] {
            if !command.status().is_ok_and(|status| status.success()) {
                return Err(Failure::new(what, "read the messages above"));
            }
        }
        Ok(())
    }

    fn command(&self, target: &str) -> Command {
        let mut command = Command::new(self.build.join(HOST).join("release").join(target));
        let artifacts = self.source.join("artifacts").join(target);
        command.arg(format!("-artifact_prefix={}/", artifacts.display()));
        command.args([format!("-timeout={HANG_SECONDS}"), "-rss_limit_mb=4096".into()]);
        command.envs(KEEP_PAGES.iter().copied());
        command
    }

    /// Fuzzes one target.
    fn fuzz(&self, target: &str, limit: Limit, seed: u64) -> Result<Outcome, Failure> {
        let failure = |error: std::io::Error| {
            Failure::new(format!("{target}: {error}"), "run `cargo clean` and try again")
        };
        let of_target = self.build.join("seeds").join(target);
        let found = self.build.join("found").join(target);
        let artifacts = self.source.join("artifacts").join(target);
        for folder in [&found, &artifacts] {
            std::fs::create_dir_all(folder).map_err(failure)?;
        }
        let mut command = self.command(target);
        // A seed of 0 is a random one for libFuzzer.
        let limit = match limit {
            Limit::Runs(runs) => format!("-runs={runs}"),
            Limit::Seconds(seconds) => format!("-max_total_time={seconds}"),
        };
        command.args([format!("-seed={}", seed.max(1)), limit]);
        command.args(["-print_final_stats=1", "-verbosity=1"]);
        if of_target.join("dictionary").is_file() {
            command.arg(format!("-dict={}", of_target.join("dictionary").display()));
        }
        command.arg(&found);
        let corpus = self.source.join("corpus").join(target);
        command.args([corpus, of_target.join("seeds")].iter().filter(|folder| folder.is_dir()));
        let output = command.output().map_err(failure)?;
        let log = String::from_utf8_lossy(&output.stderr).into_owned();
        let executions = log.lines().find_map(|line| {
            line.strip_prefix("stat::number_of_executed_units:")?.trim().parse().ok()
        });
        let failed = !output.status.success();
        Ok(Outcome { executions: executions.unwrap_or(0), failed, log: tail(&log) })
    }
}

/// The end of a log, where the finding is.
fn tail(log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(60)..].join("\n")
}
