//! Dead files: Rust source that no crate root reaches is neither compiled nor tested.

use super::Violation;
use super::tree::Tree;

/// Every Rust file is a root or is reached from one.
pub(super) fn check(tree: &Tree<'_>) -> Vec<Violation> {
    let dead = tree.rust().filter(|file| !file.reached);
    let remedy = "declare it with `mod` where it belongs, or delete it";
    dead.map(|file| Violation::new(file.path, 1, "a file that no crate reaches", remedy)).collect()
}
