//! The process group of a round: ends every process of the round, however the round ends (also by
//! Ctrl-C, a kill or a panic).
//!
//! The group's leader is a shell that reads its standard input, a pipe that only this process
//! holds. At the end of the pipe the shell unmounts the file system, removes the folder unless it
//! holds the story of a failure, and kills its group.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

const LEADER: &str = "cat > /dev/null
    umount -l \"$1/members\" 2> /dev/null
    [ -e \"$1/story\" ] || rm -rf --one-file-system \"$1\"
    kill -KILL 0";

/// Ends its processes when dropped.
pub struct ProcessGroup(Child);

impl ProcessGroup {
    /// Starts the leader, which cleans up this folder at the end.
    pub fn new(folder: &Path) -> Result<ProcessGroup, String> {
        let mut shell = Command::new("sh");
        shell.args(["-c", LEADER, "group"]).arg(folder).current_dir("/").process_group(0);
        shell.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        shell.spawn().map(ProcessGroup).map_err(|error| format!("sh: {error}"))
    }

    /// Makes the command's process a member of the group.
    pub fn adopt(&self, command: &mut Command) {
        command.process_group(self.0.id() as i32);
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}
