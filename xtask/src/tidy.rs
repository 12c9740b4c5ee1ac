//! `cargo xtask tidy`: the house rules as a test. The law is written in `docs/style.md`; each of
//! its lines that a program can check is one row of [`RULES`].
//!
//! Reads the whole checkout once. Then each rule inspects the same [`Tree`] and returns violations
//! with place, fault and remedy. Never edits a file.

mod budget;
mod depend;
mod documents;
mod leftover;
mod lexer;
mod lock;
mod machine;
mod manifest;
mod modules;
mod opening;
mod pure;
mod rooms;
mod tree;
mod unsafety;
mod words;

use crate::failure::Failure;
use crate::shell;
use std::fmt;
use tree::Tree;

/// A place that breaks a rule.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Violation {
    path: String,
    line: usize,
    what: String,
    remedy: String,
}

impl Violation {
    fn new(path: &str, line: usize, what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Violation { path: path.into(), line, what: what.into(), remedy: remedy.into() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}; {}", self.path, self.line, self.what, self.remedy)
    }
}

/// One rule. A wish is printed but fails nothing.
struct Rule {
    name: &'static str,
    law: &'static str,
    wish: bool,
    check: fn(&Tree<'_>) -> Vec<Violation>,
}

const fn rule(
    name: &'static str,
    law: &'static str,
    check: fn(&Tree<'_>) -> Vec<Violation>,
) -> Rule {
    Rule { name, law, wish: false, check }
}

const RULES: &[Rule] = &[
    rule("depend", "crates depend in one direction only; third parties are listed", depend::check),
    rule("lock", "Cargo.lock: crates.io only, nothing that deny.toml bans", lock::check),
    rule("pure", "the pure crates reach the world through the seam only", pure::check),
    rule("rooms", "the rooms of the engine name those below them", rooms::check),
    rule("unsafe", "unsafe code only where its table allows it", unsafety::check),
    rule("columns", "a line has at most 100 columns", budget::columns),
    rule("functions", "a function has at most 70 lines", budget::functions),
    rule("files", "a file has at most 1000 lines outside its tests", budget::files),
    Rule {
        wish: true,
        ..rule("short", "a file has at most 600 lines outside its tests", budget::short_files)
    },
    rule("asserts", "crates that could lose data keep their assertions", budget::assertions),
    rule("opening", "a Rust file opens by saying what it owns", opening::check),
    rule("words", "one word for one thing, and names that explain themselves", words::check),
    rule("leftover", "nothing unfinished, nothing that panics on purpose", leftover::check),
    rule("machine", "no trace of the machine it was built on", machine::check),
    rule("links", "every link to a file of the project leads somewhere", documents::links),
    rule("decisions", "decision records are named NNNN-title.md", documents::decisions),
    rule("modules", "every Rust file is part of a crate", modules::check),
];

/// Holds all rules against the checkout; `--list` prints them.
pub(crate) fn run(arguments: &[String]) -> Result<(), Failure> {
    match arguments {
        [] => {}
        [only] if only == "--list" => {
            for rule in RULES {
                println!("{:<10} {}", rule.name, rule.law);
            }
            return Ok(());
        }
        _ => return Err(Failure::new("tidy takes no argument but --list", "leave it out")),
    }
    let root = shell::root()?;
    let texts = tree::load(&root).map_err(|error| {
        Failure::new(format!("cannot read the checkout: {error}"), "mend it and run tidy again")
    })?;
    let (mut broken, mut wishes) = (0, 0);
    let packages = manifest::packages(&root).unwrap_or_else(|failure| {
        // A manifest that cargo cannot read must not hide the other rules' violations: they read
        // the text.
        println!("Cargo.toml:1: {failure} [depend]");
        broken += 1;
        Vec::new()
    });
    let tree = Tree::new(&texts, packages);
    for rule in RULES {
        let mut found = (rule.check)(&tree);
        found.sort();
        for violation in &found {
            println!("{violation} [{}{}]", if rule.wish { "wish: " } else { "" }, rule.name);
        }
        *(if rule.wish { &mut wishes } else { &mut broken }) += found.len();
    }
    let (files, rules) = (tree.files.len(), RULES.len());
    println!("tidy: {rules} rules, {files} files, {broken} violations, {wishes} wishes");
    if broken == 0 {
        return Ok(());
    }
    Err(Failure::new(
        format!("{broken} violations of the house rules"),
        "each line above says what to do; docs/style.md says why",
    ))
}

#[cfg(test)]
mod tests;
