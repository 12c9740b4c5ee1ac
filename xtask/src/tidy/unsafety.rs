//! Where `unsafe` may stand. Clippy asks each block for its SAFETY line; this rule asks for the
//! place.

use super::Violation;
use super::tree::{File, Tree, reads, root};

/// Path beginnings under which `unsafe` may stand, and why.
const ALLOWED: &[(&str, &str)] = &[
    ("crates/os/", "system calls"),
    ("crates/io/src/buf", "aligned memory that several operations share in turn"),
    ("crates/parity/src/wide", "the vector kernels, written once over the width"),
    ("crates/parity/src/x86", "vector instructions"),
    ("crates/parity/src/neon", "vector instructions"),
    ("crates/parity/src/crc", "CRC instructions"),
    ("crates/parity/benches/isal", "calls a C library to compare with"),
    ("crates/array/benches/", "an allocator that counts"),
    ("crates/array/tests/alloc", "an allocator that counts"),
    ("fuzz/src/memory", "an allocator that counts"),
    ("vm/xstate/", "stands in for a function of the C library"),
];

/// Crates in which some module may lift the ban: the root denies, the module allows. In the others
/// all modules may.
const PARTLY: &[&str] = &["crates/io/", "crates/parity/", "fuzz/"];
const WHOLLY: &[&str] = &["crates/os/", "vm/xstate/"];

/// `unsafe` stands only where [`ALLOWED`] says, and all other crate roots forbid it.
pub(super) fn check(tree: &Tree<'_>) -> Vec<Violation> {
    let mut found = Vec::new();
    for file in tree.rust() {
        let allowed = ALLOWED.iter().any(|(start, _)| file.path.starts_with(start));
        let mut all = file.code.iter().filter(|token| token.text == "unsafe");
        if let Some(first) = all.next().filter(|_| !allowed) {
            let what = format!("unsafe code outside its list, {} times", 1 + all.count());
            let remedy = "do it safely, or in os; the list is in xtask/src/tidy/unsafety.rs";
            found.push(Violation::new(file.path, first.line, what, remedy));
        }
        let under = |starts: &[&str]| starts.iter().any(|start| file.path.starts_with(start));
        let level = if under(PARTLY) { "deny" } else { "forbid" };
        let owes = root(file.path) == Some(false) && file.name() != "build.rs" && !under(WHOLLY);
        if owes && !bans(file, level) {
            let remedy = format!("write `#![{level}(unsafe_code)]` under its opening comment");
            found.push(Violation::new(file.path, 1, "a crate root that permits unsafe", remedy));
        }
    }
    found
}

/// True if the file says `#![level(unsafe_code)]`.
fn bans(file: &File<'_>, level: &str) -> bool {
    let law = ["#", "!", "[", level, "(", "unsafe_code", ")", "]"];
    (0..file.code.len()).any(|index| reads(&file.code, index, &law))
}
