//! Embeds the commit that the simulator was built from: a seed is meaningless without it.

use std::process::Command;

/// The sources of the simulator, relative to here; they decide whether the tree is dirty.
const SOURCES: &[&str] = &[
    "build.rs",
    "Cargo.toml",
    "seeds.txt",
    "src",
    "../log/src",
    "../metadata/src",
    "../array/src",
    "../io/src",
    "../layout/src",
    "../parity/src",
    "../../Cargo.toml",
    "../../Cargo.lock",
];

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").arg("--no-optional-locks").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_string())
}

fn main() {
    if let Some(commit) = git(&["rev-parse", "--short=12", "HEAD"]) {
        let status = ["status", "--porcelain", "--"];
        let changed = git(&[&status, SOURCES].concat()).is_none_or(|files| !files.is_empty());
        let dirty = if changed { "-dirty" } else { "" };
        println!("cargo::rustc-env=PARAPET_COMMIT={commit}{dirty}");
    }
    SOURCES.iter().for_each(|source| println!("cargo::rerun-if-changed={source}"));
    if let Some(log) = git(&["rev-parse", "--path-format=absolute", "--git-path", "logs/HEAD"]) {
        println!("cargo::rerun-if-changed={log}");
    }
}
