//! Ends what a round has started, however the round ends: also by Ctrl-C, a kill or a panic.
//!
//! A shell that waits for the end of its standard input, which is a pipe that only we hold. All
//! processes of the round are in its process group. When the pipe ends it takes the file system
//! away, removes the folder unless a story of a failure lies in it, and kills its group.

use crate::failure::Failure;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

const DUTY: &str = "cat > /dev/null
    umount -l \"$1/members\" 2> /dev/null
    [ -e \"$1/story\" ] || rm -rf --one-file-system \"$1\"
    kill -KILL 0";

/// See the module. Its end is the round's.
pub(super) struct Warden(Child);

impl Warden {
    /// Watches over this folder.
    pub(super) fn new(folder: &Path) -> Result<Warden, Failure> {
        let mut shell = Command::new("sh");
        shell.args(["-c", DUTY, "warden"]).arg(folder).current_dir("/").process_group(0);
        shell.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let started = shell.spawn();
        started.map(Warden).map_err(|error| Failure::new(format!("sh: {error}"), "install one"))
    }

    /// What the command starts ends with the round.
    pub(super) fn adopt(&self, command: &mut Command) {
        command.process_group(self.0.id() as i32);
    }
}

impl Drop for Warden {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}
