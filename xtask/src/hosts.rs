//! `cargo xtask hosts`: builds the program and the `torture` crate, and runs its `hosts` in a
//! network namespace of its own.

use crate::artifacts::Artifacts;
use crate::failure::Failure;
use crate::{shell, tools};

/// Arguments as in `torture/src/bin/hosts/options.rs`, and `--program PATH` for another program.
pub(crate) fn run(arguments: &[String]) -> Result<(), Failure> {
    let root = shell::root()?;
    let unshare = ["unshare", "--net"];
    if !tools::is_root() || !shell::succeeds(&root, &[&unshare[..], &["true"]].concat()) {
        println!("NOT TRIED: hosts are network namespaces, which need root");
        return Ok(());
    }
    let built = Artifacts::build(&root)?;
    let mut words = unshare.map(String::from).to_vec();
    words.push(built.program("hosts")?);
    if !arguments.iter().any(|argument| argument == "--program") {
        words.extend([String::from("--program"), built.program("parapet")?]);
    }
    words.extend_from_slice(arguments);
    shell::hand_over(&root, &words)
}
