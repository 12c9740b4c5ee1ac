//! User-mode Linux: a Linux kernel that is a process. It starts in a second, needs no rights, and
//! sees the host's files.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::Cable;
use crate::failure::{Failure, Result};

/// Enough for md, and for the caches of the members.
const MEMORY: &str = "mem=512M";

/// The modules of the kernel of Debian's package `user-mode-linux`, and its release.
///
/// # Errors
/// It is not installed, or another thing than expected.
pub(super) fn find() -> Result<(PathBuf, String)> {
    let home = Path::new("/usr/lib/uml/modules");
    let missing = || Failure::new("user-mode-linux is not installed: `cargo xtask tools`");
    let entry = std::fs::read_dir(home).map_err(|_| missing())?.next().ok_or_else(missing)??;
    let release = entry.file_name().to_string_lossy().into_owned();
    Ok((entry.path(), release))
}

/// What it calls the end of its cable of this number.
pub(super) fn port(number: usize) -> String {
    format!("vec{number}")
}

/// How to start it.
pub(super) struct Machine {
    /// `vm/xstate`: it does not start on every processor without.
    pub(super) preload: Option<PathBuf>,
}

impl Machine {
    /// Starts it with these words for its first process, and these cables.
    pub(super) fn command(&self, first: &Path, words: &[String], cables: &[Cable]) -> Command {
        let cables = cables.iter().enumerate().map(|(number, cable)| {
            let Cable { interface, mtu, address } = cable;
            let address =
                address.as_ref().map_or(String::new(), |address| format!(",mac={address}"));
            let port = port(number);
            format!("{port}:transport=tap,ifname={interface},depth=64,gro=0,mtu={mtu}{address}")
        });
        let mut command = Command::new("linux.uml");
        command
            .args(["rootfstype=hostfs", "rootflags=/", "ro", "con=null", "con0=null", MEMORY])
            .arg(format!("init={}", first.display()))
            .args(words)
            .args(cables);
        if let Some(library) = &self.preload {
            command.env("LD_PRELOAD", library);
        }
        command
    }
}
