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
    let preload = shell::built(&root, &build("parapet-vm-xstate"), "xstate")?;
    // In cargo's target folder: `cargo clean` removes it.
    let cache = harness.ancestors().nth(2).unwrap_or(&root).join("kernels");
    let mut words = vec![harness.to_string_lossy().into_owned()];
    for (option, path) in [("--program", program), ("--cache", cache), ("--preload", preload)] {
        words.extend([option.to_owned(), path.to_string_lossy().into_owned()]);
    }
    words.extend_from_slice(arguments);
    shell::hand_over(&root, &words)
}
