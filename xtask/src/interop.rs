//! `cargo xtask interop`: arrays move between Parapet and the real kernel; see `vm/README.md`.
//!
//! Builds the program and the harness, and hands the arguments on.

use crate::artifacts::Artifacts;
use crate::failure::Failure;
use crate::{shell, tools};
use std::path::Path;

/// `--slice` (one cell of each layout), `--only TEXT`, `--jobs N`, `--skips-pass`, `--list`,
/// `--golden FOLDER`; else all of it.
pub(crate) fn run(arguments: &[String]) -> Result<(), Failure> {
    let root = shell::root()?;
    tools::ensure(tools::Purpose::Tests)?;
    let built = Artifacts::build(&root)?;
    let harness = built.program("vm")?;
    // In cargo's target folder: `cargo clean` removes it.
    let cache = Path::new(&harness).ancestors().nth(2).unwrap_or(&root).join("kernels");
    let mut words = vec![harness];
    words.extend([String::from("--program"), built.program("parapet")?]);
    words.extend([String::from("--preload"), built.program("xstate")?]);
    words.extend([String::from("--cache"), cache.display().to_string()]);
    words.extend_from_slice(arguments);
    shell::hand_over(&root, &words)
}
