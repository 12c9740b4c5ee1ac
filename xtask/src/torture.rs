//! `cargo xtask torture`: builds the program and the `torture` crate, and runs the latter.

use crate::artifacts::Artifacts;
use crate::failure::Failure;
use crate::{shell, tools};

/// Arguments as in `torture/src/options.rs`, and `--program PATH` for another program.
pub(crate) fn run(arguments: &[String]) -> Result<(), Failure> {
    if !tools::is_root() {
        println!("NOT TRIED: torture mounts a file system, which needs root");
        return Ok(());
    }
    let root = shell::root()?;
    let built = Artifacts::build(&root)?;
    let mut words = vec![built.program("torture")?];
    if !arguments.iter().any(|argument| argument == "--program") {
        words.extend([String::from("--program"), built.program("parapet")?]);
    }
    words.extend_from_slice(arguments);
    shell::hand_over(&root, &words)
}
