//! One word for one thing. Words of other programs for our things, and module names that say
//! nothing.
//!
//! Only identifiers are looked at: prose may speak of other systems in their own words.

use super::Violation;
use super::lexer::Kind;
use super::tree::Tree;
use std::collections::BTreeSet;

/// A word that names one of our concepts elsewhere, and the word for it here.
const WORDS: &[(&str, &str)] = &[
    ("drive", "member or disk"),
    ("strip", "chunk"),
    ("segment", "chunk, region or range"),
    ("child", "member"),
    ("leg", "member"),
    ("replica", "copy"),
    ("twin", "replacement"),
    ("sighting", "probe"),
    ("laggard", "orphan"),
    ("pulse", "latency"),
    ("seat", "slot"),
    ("seated", "assigned"),
    ("ledger", "metadata writer"),
    ("upkeep", "job"),
    ("sums", "checksums"),
    ("summed", "checksummed"),
    ("doubt", "unverified"),
    ("doubtful", "suspect"),
    ("believed", "trusted"),
    ("grain", "block"),
    ("manner", "style or options"),
];

/// Identifiers that contain such a word and mean something else, where, and why.
const EXCEPTIONS: &[(&str, &str, &str)] = &[
    ("strip_prefix", "", "the standard library's"),
    ("strip_suffix", "", "the standard library's"),
    ("Child", "", "std::process::Child; pure crates cannot reach it"),
    ("ChildStdin", "", "the standard library's"),
    ("ChildStdout", "", "the standard library's"),
    ("child", "xtask/", "a process"),
    ("child", "torture/", "a process"),
    ("child", "crates/parapet/", "a process"),
    ("child", "crates/os/", "a process"),
    ("sums", "crates/parity/", "the field adds: an XOR of sources"),
];

/// Module names that do not describe their content.
const MODULES: &[&str] = &["utils", "util", "common", "helpers", "helper", "types"];

/// Identifiers and module names.
pub(super) fn check(tree: &Tree<'_>) -> Vec<Violation> {
    let mut found = Vec::new();
    for file in tree.rust() {
        if let Some(name) = file.path.split('/').find_map(|part| {
            MODULES.iter().find(|name| part.strip_suffix(".rs").unwrap_or(part) == **name)
        }) {
            let what = format!("a module called {name}");
            found.push(Violation::new(file.path, 1, what, "name it after what it owns"));
        }
        let mut seen = BTreeSet::new();
        for token in file.code.iter().filter(|token| token.kind == Kind::Word) {
            let excepted = EXCEPTIONS
                .iter()
                .any(|(name, start, _)| token.text == *name && file.path.starts_with(start));
            let banned = WORDS.iter().find(|(word, _)| contains(token.text, word));
            if let Some((word, ours)) = banned.filter(|_| !excepted)
                && seen.insert(token.text)
            {
                let what = format!("`{}` says {word}", token.text);
                let remedy = format!("say {ours} (exceptions: xtask/src/tidy/words.rs)");
                found.push(Violation::new(file.path, token.line, what, remedy));
            }
        }
    }
    found
}

/// True if `word`, or its plural, is one of the words that `identifier` is made of.
fn contains(identifier: &str, word: &str) -> bool {
    parts(identifier).iter().any(|part| {
        let plural = part.strip_suffix('s').or(part.strip_suffix("ren"));
        part == word || plural == Some(word)
    })
}

/// `DriveCount`, `drive_count` and `DRIVE_COUNT` are all made of `drive` and `count`.
fn parts(identifier: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut after_small = false;
    for character in identifier.chars() {
        if character == '_' || (character.is_uppercase() && after_small) {
            parts.push(String::new());
        }
        if character != '_' {
            let last = parts.last_mut().expect("it starts with one and only grows");
            last.extend(character.to_lowercase());
        }
        after_small = character.is_lowercase();
    }
    parts
}
