//! A Rust file starts with its module comment: what it owns, what it never does, its invariants.

use super::Violation;
use super::tree::Tree;

/// The first line starts with `//!`.
pub(super) fn check(tree: &Tree<'_>) -> Vec<Violation> {
    let silent = tree.rust().filter(|file| !file.text.starts_with("//! "));
    let remedy = "open it with `//! ` and what it owns, never does, and keeps true";
    silent
        .map(|file| Violation::new(file.path, 1, "a file that does not say what it owns", remedy))
        .collect()
}
