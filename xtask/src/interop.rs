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
    // Beside what cargo builds: `cargo clean` takes it along.
    let cache = harness.ancestors().nth(2).unwrap_or(&root).join("kernels");
    let [program, harness, cache] = [&program, &harness, &cache].map(|path| path.to_string_lossy());
    let mut words =
        vec![harness.as_ref(), "--program", program.as_ref(), "--cache", cache.as_ref()];
    words.extend(arguments.iter().map(String::as_str));
    match shell::command(&root, &words).status() {
        Ok(status) if status.success() => Ok(()),
        Ok(_) => Err(Failure::told()),
        Err(error) => Err(Failure::new(format!("{harness}: {error}"), "build it anew")),
    }
}
