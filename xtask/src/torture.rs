//! `cargo xtask torture`: builds the program and the `torture` crate, and runs the latter.

use crate::failure::Failure;
use crate::{shell, tools};

/// Arguments as in `torture/src/options.rs`. Without `--program PATH` the program is built; with
/// `--broken NAME` its engine has mutants, in a separate target directory.
pub(crate) fn run(arguments: &[String]) -> Result<(), Failure> {
    if !tools::is_root() {
        println!("NOT TRIED: torture mounts a file system, which needs root");
        return Ok(());
    }
    let root = shell::root()?;
    let has = |option: &str| arguments.iter().any(|argument| argument == option);
    let build = ["cargo", "build", "--quiet", "--package"];
    let torture = shell::built(&root, &[&build[..], &["parapet-torture"]].concat(), "torture")?;
    let mut words = vec![torture.to_string_lossy().into_owned()];
    if !has("--program") {
        let mutants: &[_] = match has("--broken") {
            true => &["--features", "io/broken", "--target-dir", "target/broken"],
            false => &[],
        };
        let program = [&build[..], &["parapet"], mutants].concat();
        let program = shell::built(&root, &program, "parapet")?;
        words.extend([String::from("--program"), program.to_string_lossy().into_owned()]);
    }
    words.extend_from_slice(arguments);
    shell::hand_over(&root, &words)
}
