//! `cargo xtask fuzz`: the fuzz targets on a stable compiler; see `fuzz/README.md`.
//!
//! Builds the workspace of `fuzz/` without libFuzzer, and hands the arguments on.

use crate::failure::Failure;
use crate::shell;

/// What stands before the arguments.
const COMMAND: &[&str] = &[
    "cargo",
    "run",
    "--quiet",
    "--release",
    "--manifest-path",
    "fuzz/Cargo.toml",
    "--no-default-features",
    "--bin",
    "stable",
    "--",
];

/// For the C library: pages that were given back are taken again, not asked from the kernel anew.
/// With fresh disks for every input that is most of the time.
const KEEP_PAGES: &[(&str, &str)] =
    &[("MALLOC_MMAP_THRESHOLD_", "1073741824"), ("MALLOC_TRIM_THRESHOLD_", "4294967296")];

/// Runs the targets named, or all, for `--seconds N` (20) in all.
pub(crate) fn run(arguments: &[String]) -> Result<(), Failure> {
    let words: Vec<&str> =
        COMMAND.iter().copied().chain(arguments.iter().map(String::as_str)).collect();
    let mut command = shell::command(&shell::root()?, &words);
    let status = command.envs(KEEP_PAGES.iter().copied()).status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(_) => Err(Failure::told()),
        Err(error) => Err(Failure::new(format!("cargo: {error}"), "is it installed?")),
    }
}
