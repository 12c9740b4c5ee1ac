//! The environment of measured servers: a folder in memory with their sockets and files, and one
//! core for all of them, of which only one works at a time.
//!
//! Servers end and the folder goes with their values, also when a measurement fails.

use super::super::process::Process;
use crate::failure::Failure;
use crate::shell;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The core that servers run on.
pub(in super::super) const CORE: &str = "1";
/// Size of an export: RAID 0, four RAID 5, four RAID 6, a new array and two files take 4 GiB.
pub(in super::super) const EXPORT_MEBIBYTES: usize = 224;
/// Room on each member for metadata.
const OVERHEAD_MEBIBYTES: usize = 16;

/// See the module.
pub(in super::super) struct Stand {
    folder: PathBuf,
    pub(in super::super) program: PathBuf,
}

/// Options of `create` and `serve` besides the level, the members and the sockets.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in super::super) struct Options {
    pub(in super::super) create: &'static [&'static str],
    pub(in super::super) serve: &'static [&'static str],
}

impl Options {
    /// The defaults.
    pub(in super::super) const NONE: Options = Options { create: &[], serve: &[] };
}

/// A running server. Ends when it is dropped.
pub(in super::super) struct Server {
    process: Process,
    socket: PathBuf,
    /// The export's name.
    export: String,
}

impl Stand {
    /// Builds the program, and makes the folder.
    pub(in super::super) fn new(root: &Path) -> Result<Stand, Failure> {
        Stand::of(shell::released(root)?, "nbd")
    }

    /// A stand for another program; `name` keeps its folder apart.
    pub(in super::super) fn of(program: PathBuf, name: &str) -> Result<Stand, Failure> {
        let name = format!("parapet-{name}-{}", std::process::id());
        let folder = Path::new("/dev/shm").join(name);
        std::fs::create_dir_all(folder.join("run/parapet")).map_err(|error| {
            let what = format!("{}: {error}", folder.display());
            Failure::new(what, "the benchmark needs 4 GiB of /dev/shm")
        })?;
        Ok(Stand { folder, program })
    }

    pub(in super::super) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// As [`Stand::parapet`], on sparse files that exist before.
    pub(super) fn sparse(
        &self,
        name: &str,
        level: &str,
        members: usize,
    ) -> Result<Server, Failure> {
        for path in self.members(name, members) {
            sparse_file(&path, EXPORT_MEBIBYTES / 4 + OVERHEAD_MEBIBYTES)?;
        }
        let create = &["--assume-zeroed"];
        self.parapet(name, level, members, Options { create, serve: &[] })
    }

    /// An array served; members that do not exist are made, with their space reserved, so that
    /// nothing need be synced.
    pub(in super::super) fn parapet(
        &self,
        name: &str,
        level: &str,
        members: usize,
        options: Options,
    ) -> Result<Server, Failure> {
        let size = format!("{}M", EXPORT_MEBIBYTES / 4 + OVERHEAD_MEBIBYTES);
        let members = self.members(name, members);
        let mut create = self.command(&self.program);
        create.args(["create", name, "--level", level, "--yes"]);
        if members.iter().any(|member| !member.exists()) {
            create.args(["--new-files", &size]);
        }
        create.args(options.create).args(&members);
        let made = create.stdout(Stdio::null()).status();
        if !made.is_ok_and(|status| status.success()) {
            return Err(Failure::new(format!("{name} could not be made"), "see above"));
        }
        let (socket, control) = (self.path(&format!("{name}.s")), self.path(&format!("{name}.c")));
        let mut serve = self.command("taskset");
        serve.args(["--cpu-list", CORE]).arg(&self.program).args(["serve", name]).args(&members);
        serve.args(["--nbd", &format!("unix:{}", socket.display())]);
        serve.args(["--control", &format!("unix:{}", control.display())]).args(options.serve);
        start(serve, socket, name)
    }

    /// A command of the program.
    pub(in super::super) fn parapet_command(&self, arguments: &[&str]) -> Command {
        let mut command = self.command(&self.program);
        command.args(arguments).stdout(Stdio::null());
        command
    }

    fn members(&self, name: &str, count: usize) -> Vec<PathBuf> {
        (0..count).map(|index| self.path(&format!("{name}-{index}"))).collect()
    }

    /// Removes the members of an array, or the file, after its server has ended. The rest goes with
    /// the folder.
    pub(super) fn remove(&self, name: &str, members: usize) {
        for path in self.members(name, members).into_iter().chain([self.path(name)]) {
            let _ = std::fs::remove_file(path);
        }
    }

    /// The fastest server of a file; the file is new and sparse.
    pub(in super::super) fn nbdkit(&self, name: &str) -> Result<Server, Failure> {
        let (file, socket) = (self.path(name), self.path(&format!("{name}.s")));
        sparse_file(&file, EXPORT_MEBIBYTES)?;
        let mut serve = self.command("taskset");
        serve.args(["--cpu-list", CORE, "nbdkit", "--foreground", "--unix"]).arg(&socket);
        serve.arg("file").arg(file);
        start(serve, socket, "")
    }

    /// The usual server with default options.
    pub(super) fn qemu_nbd(&self) -> Result<Server, Failure> {
        let (file, socket) = (self.path("qemu"), self.path("qemu.s"));
        sparse_file(&file, EXPORT_MEBIBYTES)?;
        let mut serve = self.command("taskset");
        serve.args(["--cpu-list", CORE, "qemu-nbd", "--persistent", "--shared=4"]);
        serve.args(["--format=raw", "--export-name=", "--socket"]).arg(&socket).arg(file);
        start(serve, socket, "")
    }

    /// A command that finds nothing of the user's own, and does not chatter.
    pub(in super::super) fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        command.current_dir(&self.folder).stdin(Stdio::null());
        command.env("PARAPET_STATE", self.path("state")).env("XDG_RUNTIME_DIR", self.path("run"));
        command.env("PARAPET_RUNTIME", self.path("run"));
        command
    }
}

impl Drop for Stand {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.folder) {
            eprintln!("{} is left behind: {error}", self.folder.display());
        }
    }
}

/// A new file without blocks.
pub(in super::super) fn sparse_file(path: &Path, mebibytes: usize) -> Result<(), Failure> {
    let made = std::fs::File::create(path).and_then(|file| file.set_len((mebibytes as u64) << 20));
    made.map_err(|error| Failure::new(format!("{}: {error}", path.display()), "is /dev/shm full?"))
}

/// Starts a server and waits until it takes connections.
pub(in super::super) fn start(
    command: Command,
    socket: PathBuf,
    export: &str,
) -> Result<Server, Failure> {
    let line = format!("{command:?}");
    let mut server =
        Server { process: Process::start(command)?, socket, export: String::from(export) };
    let socket = &server.socket;
    server.process.wait_until(&line, || UnixStream::connect(socket).is_ok())?;
    Ok(server)
}

impl Server {
    pub(in super::super) fn uri(&self) -> String {
        format!("nbd+unix:///{}?socket={}", self.export, self.socket.display())
    }

    /// CPU time since its start, its own and the kernel's for it.
    pub(in super::super) fn cpu_seconds(&self) -> Result<f64, Failure> {
        self.process.cpu_seconds()
    }

    /// Memory that it holds now.
    pub(super) fn resident_mebibytes(&self) -> Result<f64, Failure> {
        let status = self.process.proc("status")?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kibibytes = line.and_then(|line| line.trim().split(' ').next()?.parse::<f64>().ok());
        kibibytes
            .map(|kibibytes| kibibytes / 1024.0)
            .ok_or_else(|| Failure::new("/proc/PID/status has no VmRSS", "is this Linux?"))
    }
}
