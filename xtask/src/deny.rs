//! `cargo xtask deny`: the law of `deny.toml`, held by cargo-deny.
//!
//! Not part of `cargo xtask test`: building cargo-deny takes minutes, and the advisory list comes
//! from the network. `tidy` always checks sources and bans, which need neither.

use crate::failure::Failure;
use crate::shell;
use std::path::Path;

/// The release whose configuration format `deny.toml` is written in.
const VERSION: &str = "0.20.2";

const CHECKS: &[&str] = &["bans", "licenses", "sources", "advisories"];

/// Runs the checks named, or all; installs cargo-deny below `target` if there is none.
pub(crate) fn run(arguments: &[String]) -> Result<(), Failure> {
    if let Some(stranger) = arguments.iter().find(|name| !CHECKS.contains(&name.as_str())) {
        let remedy = format!("the checks are {}", CHECKS.join(", "));
        return Err(Failure::new(format!("no check {stranger:?}"), remedy));
    }
    let root = shell::root()?;
    let program = program(&root)?;
    let mut failed = Vec::new();
    for check in CHECKS {
        if !arguments.is_empty() && !arguments.iter().any(|name| name == check) {
            continue;
        }
        println!("==> {check}");
        // Called by its own name, the program wants no `deny` in front.
        if shell::run(&root, &[&program, "check", check]).is_err() {
            failed.push(*check);
        }
    }
    if failed.is_empty() {
        return Ok(());
    }
    Err(Failure::new(
        format!("failed: {}", failed.join(", ")),
        "its messages stand above; a change of deny.toml needs a decision record",
    ))
}

/// The path of cargo-deny: the machine's, or one of our own below `target`.
fn program(root: &Path) -> Result<String, Failure> {
    let installed = "cargo-deny";
    if shell::succeeds(root, &[installed, "--version"]) {
        return Ok(String::from(installed));
    }
    let home = root.join("target/tools");
    let home = home.to_str().ok_or_else(|| {
        Failure::new("the checkout's path is not UTF-8", "put cargo-deny on your PATH")
    })?;
    let own = format!("{home}/bin/cargo-deny");
    if !Path::new(&own).exists() {
        let install = ["cargo", "install", "--locked", "cargo-deny", "--version", VERSION];
        shell::run(root, &[&install[..], &["--root", home]].concat())?;
    }
    Ok(own)
}
