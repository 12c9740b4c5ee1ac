//! `cargo xtask hosts`: builds the program and the `torture` crate, and runs its `hosts` in a
//! network namespace of its own.

use crate::failure::Failure;
use crate::{shell, tools};

/// Arguments as in `torture/src/bin/hosts/options.rs`. Builds the program without `--program PATH`.
pub(crate) fn run(arguments: &[String]) -> Result<(), Failure> {
    let root = shell::root()?;
    let unshare = ["unshare", "--net"];
    if !tools::is_root() || !shell::succeeds(&root, &[&unshare[..], &["true"]].concat()) {
        println!("NOT TRIED: hosts are network namespaces, which need root");
        return Ok(());
    }
    let build = ["cargo", "build", "--quiet", "--package"];
    let hosts = shell::built(&root, &[&build[..], &["parapet-torture"]].concat(), "hosts")?;
    let mut words = unshare.map(String::from).to_vec();
    words.push(hosts.to_string_lossy().into_owned());
    if !arguments.iter().any(|argument| argument == "--program") {
        let program = shell::built(&root, &[&build[..], &["parapet"]].concat(), "parapet")?;
        words.extend([String::from("--program"), program.to_string_lossy().into_owned()]);
    }
    words.extend_from_slice(arguments);
    shell::hand_over(&root, &words)
}
