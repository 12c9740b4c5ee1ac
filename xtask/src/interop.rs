//! `cargo xtask interop`: arrays move between Parapet and the real kernel; see `vm/README.md`.
//!
//! Builds the program and the harness, and hands the arguments on.

use crate::failure::Failure;
use crate::{shell, tools};

/// `--slice` (one cell of each layout), `--only TEXT`, `--jobs N`, `--skips-pass`, `--list`,
/// `--golden FOLDER`; else all of it.
pub(crate) fn run(arguments: &[String]) -> Result<(), Failure> {
    let root = shell::root()?;
    tools::ensure(tools::Purpose::Tests)?;
    // The profile of the tests, which has built them by now.
    let build = |package| ["cargo", "build", "--quiet", "--package", package];
    let program = shell::built(&root, &build("parapet"), "parapet")?;
    let harness = shell::built(&root, &build("parapet-vm"), "vm")?;
    // In cargo's target folder: `cargo clean` removes it.
    let cache = harness.ancestors().nth(2).unwrap_or(&root).join("kernels");
    let [program, harness, cache] = [&program, &harness, &cache].map(|path| path.to_string_lossy());
    let words = [harness.as_ref(), "--program", program.as_ref(), "--cache", cache.as_ref()];
    let mut words = words.map(String::from).to_vec();
    words.extend_from_slice(arguments);
    shell::hand_over(&root, &words)
}
