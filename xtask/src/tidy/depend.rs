//! The allowed dependencies between crates.
//!
//! ```text
//!   parity   layout   io   random  depend on nothing; random: what sim and lab draw from
//!      └───┬────┘ ┌────┼────┐
//!         log     │    │    │     the intent log, apart from its writer
//!       metadata  │    │    │     what members say about an array, at rest
//!        array   net   │    os    array: no network; net: no RAID; os: only the seam
//!          └──┬───┴────┘    │
//!            sim            │    sim and os never meet …
//!          lab │   parapet ──┘    … not in the program either, which takes lab, not sim
//!                   panel         a client of the control API: the program starts it
//!                   policy        decides what a server does unasked; no world either
//! ```
//!
//! [`ALLOWED`] lists our own crates. Decision records list third-party crates, each as a table row
//! "| `crate` | user, user | why |", so that a new one needs a written decision.

use super::Violation;
use super::manifest::{Dependency, Package};
use super::tree::Tree;

/// A crate of ours, its allowed dependencies, and further ones for its tests.
struct Row {
    name: &'static str,
    uses: &'static [&'static str],
    tests_use: &'static [&'static str],
}

const fn row(name: &'static str, uses: &'static [&'static str]) -> Row {
    Row { name, uses, tests_use: &[] }
}

const ALLOWED: &[Row] = &[
    row("parity", &[]),
    row("layout", &[]),
    row("io", &[]),
    row("random", &[]),
    row("log", &["parity", "layout", "io"]),
    row("metadata", &["log", "parity", "layout", "io"]),
    row("array", &["metadata", "log", "parity", "layout", "io"]),
    Row { tests_use: &["random"], ..row("net", &["cluster", "io", "layout"]) },
    row("os", &["io"]),
    row("sim", &["array", "metadata", "net", "io", "layout", "parity", "random"]),
    row("lab", &["array", "metadata", "net", "io", "layout", "parity", "random"]),
    row("panel", &[]),
    row("policy", &[]),
    Row { tests_use: &["random"], ..row("cluster", &["parity"]) },
    row(
        "parapet",
        &[
            "panel", "policy", "lab", "random", "os", "array", "metadata", "cluster", "net", "io",
            "layout", "parity",
        ],
    ),
    row("fuzz", &["array", "cluster", "metadata", "net", "io", "layout", "parity"]),
    row("torture", &[]),
    row("vm", &["os", "io", "layout", "parity"]),
    row("vm-xstate", &[]),
    row("xtask", &[]),
];

/// Crates that take nothing from third parties, whatever a record says.
const ALONE: &[&str] =
    &["parity", "layout", "io", "random", "log", "metadata", "array", "net", "cluster"];

/// Crates depend as [`ALLOWED`] and the decision records say.
pub(super) fn check(tree: &Tree<'_>) -> Vec<Violation> {
    let records = records(tree);
    let mut found = Vec::new();
    for package in &tree.packages {
        let Some(row) = ALLOWED.iter().find(|row| row.name == package.name) else {
            let remedy = "add its row to xtask/src/tidy/depend.rs and a decision record";
            found.push(Violation::new(&package.manifest, 1, "a crate with no place", remedy));
            continue;
        };
        for dependency in &package.dependencies {
            let complaint = if dependency.ours {
                own(row, dependency)
            } else {
                third_party(package, dependency, &records)
            };
            if let Some((what, remedy)) = complaint {
                let line = line_of(tree, package, &dependency.name);
                found.push(Violation::new(&package.manifest, line, what, remedy));
            }
        }
    }
    found
}

type Complaint = Option<(String, String)>;

fn own(row: &Row, dependency: &Dependency) -> Complaint {
    let name = dependency.name.as_str();
    let in_tests = dependency.for_tests && (row.tests_use.contains(&name) || row.name == name);
    if row.uses.contains(&name) || in_tests {
        return None;
    }
    let kind = if dependency.for_tests { " in its tests" } else { "" };
    Some((
        format!("{} must not depend on {name}{kind}", row.name),
        String::from("let them meet as traits of `io`, in sim or parapet"),
    ))
}

fn third_party(package: &Package, dependency: &Dependency, records: &[Record]) -> Complaint {
    let (user, name) = (package.name.as_str(), dependency.name.as_str());
    if ALONE.contains(&user) {
        return Some((
            format!("{user} takes no third-party crate, {name} neither"),
            String::from("write it here, or let a crate above do it"),
        ));
    }
    let written = records
        .iter()
        .any(|record| record.name == name && record.users.iter().any(|recorded| recorded == user));
    (!written).then(|| {
        (
            format!("{user} uses {name} and no decision record says why"),
            format!("add a row \"| `{name}` | {user} | why |\" to a record in docs/decisions"),
        )
    })
}

/// A third-party crate that a decision record lets some of our crates use.
struct Record {
    name: String,
    users: Vec<String>,
}

/// The rows "| `crate` | user, user | why |" of all decision records.
fn records(tree: &Tree<'_>) -> Vec<Record> {
    let documents = tree.files.iter().filter(|file| {
        file.path.starts_with("docs/decisions/") && file.name().starts_with(char::is_numeric)
    });
    documents.flat_map(|file| file.text.lines()).filter_map(record).collect()
}

fn record(line: &str) -> Option<Record> {
    let cells: Vec<_> = line.strip_prefix('|')?.split('|').map(str::trim).collect();
    let [name, users, why, ""] = cells.as_slice() else { return None };
    let name = name.strip_prefix('`')?.strip_suffix('`')?;
    let users = users.split(',').map(|user| String::from(user.trim())).collect();
    (!why.is_empty()).then(|| Record { name: String::from(name), users })
}

/// The line of the manifest that names `dependency`, or 1.
fn line_of(tree: &Tree<'_>, package: &Package, dependency: &str) -> usize {
    let Some(manifest) = tree.file(&package.manifest) else { return 1 };
    let named = |text: &str| {
        let key = text.split(['=', '.', ' ']).next().unwrap_or("");
        key == dependency || text.contains(&format!("\"parapet-{dependency}\""))
    };
    manifest.lines().find(|(_, text)| named(text)).map_or(1, |(line, _)| line)
}
