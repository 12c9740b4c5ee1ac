//! Packages allowed in `Cargo.lock`: those of crates.io and of this project, without those that
//! `deny.toml` bans.
//!
//! `cargo xtask deny` knows more (licences, advisories) but needs a tool that takes minutes to
//! build; this is the part that every run can afford.

use super::Violation;
use super::tree::{File, Tree};

/// How cargo writes crates.io, wherever it really fetched the package from.
const CRATES_IO: &str = "source = \"registry+https://github.com/rust-lang/crates.io-index\"";

/// Sources and bans.
pub(super) fn check(tree: &Tree<'_>) -> Vec<Violation> {
    let banned = tree.file("deny.toml").map_or_else(Vec::new, banned);
    let mut found = Vec::new();
    for file in tree.files.iter().filter(|file| file.name() == "Cargo.lock") {
        for (line, text) in file.lines() {
            if text.starts_with("source = ") && text != CRATES_IO {
                let what = "a package that is not from crates.io";
                found.push(Violation::new(file.path, line, what, "take one that is, or none"));
            }
            let name = text.strip_prefix("name = ").map(|name| name.trim_matches('"'));
            if let Some(name) = name.filter(|name| banned.contains(name)) {
                let what = format!("{name} is banned");
                found.push(Violation::new(file.path, line, what, "deny.toml names what to use"));
            }
        }
    }
    found
}

/// The crates in the lines `{ crate = "name", …` of `deny.toml`.
fn banned<'a>(deny: &File<'a>) -> Vec<&'a str> {
    let name = |text: &'a str| {
        let rest = text.trim_start().strip_prefix("{ crate = \"")?;
        rest.split(['"', '@']).next()
    };
    deny.text.lines().filter_map(name).collect()
}
