//! Targets: file systems on attached arrays, on btrfs, on a plain file. Everything is taken down
//! when its value is dropped, also after a failure.

use crate::failure::Failure;
use crate::shell;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Until a server answers, or has stopped: modelled disks are slow.
const PATIENCE: Duration = Duration::from_secs(60);
/// Runs a program before everything else: other work on the machine does not come between a
/// modelled disk and its answer.
pub(super) const FIRST: [&str; 3] = ["chrt", "--fifo", "1"];
/// Size of each file on this machine's own disk, sparse.
const OWN_BYTES: u64 = 8 << 30;
const OWN_FILES: usize = 4;

/// What programs run on.
pub(super) enum Target {
    /// An attached array of modelled disks with ext4.
    Modelled { title: &'static str, level: &'static str, disk: &'static str, disks: usize },
    /// An attached RAID 5 of four files on this machine's own disk, with ext4.
    OwnArray,
    /// btrfs RAID 5 (metadata RAID 1) of loop devices on four such files.
    OwnBtrfs,
    /// ext4 on a loop device on one such file.
    OwnFile,
}

impl Target {
    pub(super) fn title(&self) -> &'static str {
        match self {
            Target::Modelled { title, .. } => title,
            Target::OwnArray => "Parapet RAID 5 ×4, ext4",
            Target::OwnBtrfs => "btrfs RAID 5 ×4",
            Target::OwnFile => "plain file, ext4",
        }
    }
}

/// The program and two folders: in memory, and on this machine's own disk.
pub(super) struct Stand {
    program: PathBuf,
    memory: PathBuf,
    disk: PathBuf,
}

impl Stand {
    /// Builds the program, and makes the folders.
    pub(super) fn new(root: &Path) -> Result<Stand, Failure> {
        let program = shell::released(root)?;
        let name = format!("parapet-loads-{}", std::process::id());
        let (memory, disk) = (Path::new("/dev/shm").join(&name), root.join("target").join(&name));
        for folder in [memory.join("run"), disk.clone()] {
            std::fs::create_dir_all(&folder).map_err(|error| {
                Failure::new(format!("{}: {error}", folder.display()), "free some room")
            })?;
        }
        Ok(Stand { program, memory, disk })
    }

    /// A path in memory.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.memory.join(name)
    }

    /// A command of the program.
    fn parapet(&self, arguments: &[&str]) -> Command {
        self.command(&[&[&*self.program.to_string_lossy()], arguments].concat())
    }

    /// A command that finds nothing of the user's own.
    fn command(&self, words: &[&str]) -> Command {
        let mut command = shell::command(&self.memory, words);
        command.env("PARAPET_STATE", self.path("state"));
        command.env("PARAPET_RUNTIME", self.path("run"));
        command
    }

    /// Runs a command of the program.
    pub(super) fn order(&self, arguments: &[&str]) -> Result<String, Failure> {
        let line = arguments.join(" ");
        let failed = |why: String| Failure::new(format!("`parapet {line}`: {why}"), "see above");
        let mut command = self.parapet(arguments);
        let output = command.stderr(Stdio::inherit()).output();
        let output = output.map_err(|error| failed(error.to_string()))?;
        match output.status.success() {
            true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
            false => Err(failed(output.status.to_string())),
        }
    }

    /// Makes an array of new members, and serves it.
    pub(super) fn serve(
        &self,
        level: &str,
        members: &[String],
        create: &[&str],
    ) -> Result<Array<'_>, Failure> {
        static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let number = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        // `/dev/parapet` is the machine's.
        let name = format!("loads{}x{number}", std::process::id());
        let members: Vec<&str> = members.iter().map(String::as_str).collect();
        let words = ["create", &name, "--level", level, "--yes"];
        self.order(&[&words, create, &members[..]].concat())?;
        let socket = self.path(&format!("{name}.nbd"));
        let control = format!("unix:{}", self.path(&format!("{name}.sock")).display());
        let nbd = format!("unix:{}", socket.display());
        let program = self.program.to_string_lossy();
        let words = [&program, "serve", &name, "--nbd", &nbd, "--control", &control];
        // A file on a real disk needs the kernel's own threads.
        let is_modelled = members.iter().all(|member| member.starts_with("model:"));
        let before: &[&str] = if is_modelled { &FIRST } else { &[] };
        let mut serve = self.command(&[before, &words, &members[..]].concat());
        serve.env("PARAPET_LOG", "warn").stdout(Stdio::null());
        let server = serve.spawn().map_err(|error| {
            Failure::new(format!("`parapet serve {name}`: {error}"), "build it again")
        })?;
        let files = members.iter().map(|member| file_of(member)).collect();
        let mut array = Array { stand: self, name, control, socket, server, files };
        let begun = Instant::now();
        while UnixStream::connect(&array.socket).is_err() {
            let ended = array.server.try_wait().map_or(true, |status| status.is_some());
            if ended || begun.elapsed() > PATIENCE {
                let what = format!("`parapet serve {}` does not serve", array.name);
                return Err(Failure::new(what, "its messages stand above"));
            }
            sleep(Duration::from_millis(20));
        }
        Ok(array)
    }

    /// Members on modelled disks.
    pub(super) fn modelled(&self, disk: &str, disks: usize) -> Vec<String> {
        let file = |index: usize| self.path(&format!("disk{index}")).display().to_string();
        (0..disks).map(|index| format!("model:{disk}:{}", file(index))).collect()
    }

    /// Makes a target and mounts it.
    pub(super) fn mount(&self, target: &Target) -> Result<Mounted<'_>, Failure> {
        let own = |index: usize| self.disk.join(format!("disk{index}")).display().to_string();
        let (backing, device, kind) = match target {
            Target::Modelled { level, disk, disks, .. } => {
                let array = self.serve(level, &self.modelled(disk, *disks), &[])?;
                let device = array.attach()?;
                (Backing::Array(array), device, Kind::Ext4)
            }
            Target::OwnArray => {
                let members: Vec<String> = (0..OWN_FILES).map(own).collect();
                members.iter().try_for_each(|path| sparse(Path::new(path)))?;
                let array = self.serve("5", &members, &[])?;
                let device = array.attach()?;
                (Backing::Array(array), device, Kind::Ext4)
            }
            Target::OwnBtrfs => {
                let loops = Loops::new(&(0..OWN_FILES).map(own).collect::<Vec<_>>())?;
                let devices = loops.devices();
                let words = ["mkfs.btrfs", "-q", "-f", "-d", "raid5", "-m", "raid1"];
                shell::output(&self.memory, &[&words[..], &devices].concat())?;
                let device = devices[0].to_owned();
                (Backing::Loops(loops), device, Kind::Btrfs)
            }
            Target::OwnFile => {
                let loops = Loops::new(&[own(0)])?;
                let device = loops.devices()[0].to_owned();
                (Backing::Loops(loops), device, Kind::Ext4)
            }
        };
        let at = self.path("mnt");
        let mut mounted = Mounted { device, at, kind, is_mounted: false, _backing: backing };
        if matches!(kind, Kind::Ext4) {
            // Only what a file system needs at once: the rest of a terabyte would take hours.
            let lazy = "nodiscard,lazy_itable_init=1,lazy_journal_init=1";
            let words = ["mkfs.ext4", "-q", "-F", "-m", "0", "-E", lazy, &mounted.device];
            shell::output(&self.memory, &words)?;
        }
        mounted.mount_again()?;
        Ok(mounted)
    }
}

impl Drop for Stand {
    fn drop(&mut self) {
        for folder in [&self.memory, &self.disk] {
            if let Err(error) = std::fs::remove_dir_all(folder) {
                eprintln!("{} is left behind: {error}", folder.display());
            }
        }
    }
}

/// The file of a member.
fn file_of(member: &str) -> PathBuf {
    PathBuf::from(member.splitn(3, ':').last().unwrap_or(member))
}

fn sparse(path: &Path) -> Result<(), Failure> {
    let made = std::fs::File::create(path).and_then(|file| file.set_len(OWN_BYTES));
    made.map_err(|error| Failure::new(format!("{}: {error}", path.display()), "free some room"))
}

/// A served array. Stops, and its members go, when it is dropped.
pub(super) struct Array<'a> {
    stand: &'a Stand,
    pub(super) name: String,
    control: String,
    socket: PathBuf,
    server: Child,
    files: Vec<PathBuf>,
}

impl Array<'_> {
    /// The array as an NBD export.
    pub(super) fn uri(&self) -> String {
        format!("nbd+unix:///{}?socket={}", self.name, self.socket.display())
    }

    /// Makes it a disk of this machine; gives the disk's path.
    fn attach(&self) -> Result<String, Failure> {
        self.stand.order(&["attach", &self.name, "--control", &self.control])?;
        Ok(format!("/dev/parapet/{}", self.name))
    }
}

impl Drop for Array<'_> {
    fn drop(&mut self) {
        if Path::new("/dev/parapet").join(&self.name).exists() {
            // Its own message is enough.
            let _ = self.stand.order(&["detach", &self.name, "--control", &self.control]);
        }
        let pid = self.server.id().to_string();
        let begun = Instant::now();
        let _ = shell::succeeds(Path::new("/"), &["kill", "-TERM", &pid]);
        while matches!(self.server.try_wait(), Ok(None)) {
            if begun.elapsed() > PATIENCE {
                let _ = self.server.kill();
            }
            sleep(Duration::from_millis(20));
        }
        self.files.iter().for_each(|file| drop(std::fs::remove_file(file)));
    }
}

/// Loop devices on new files. They go when this is dropped.
struct Loops(Vec<(String, String)>);

impl Loops {
    fn new(files: &[String]) -> Result<Loops, Failure> {
        let mut loops = Loops(Vec::new());
        for file in files {
            sparse(Path::new(file))?;
            let words = ["losetup", "--find", "--show", "--direct-io=on", file];
            let device = shell::output(Path::new("/"), &words)?;
            loops.0.push((file.clone(), device.trim().to_owned()));
        }
        Ok(loops)
    }

    fn devices(&self) -> Vec<&str> {
        self.0.iter().map(|(_, device)| device.as_str()).collect()
    }
}

impl Drop for Loops {
    fn drop(&mut self) {
        for (file, device) in &self.0 {
            if !shell::succeeds(Path::new("/"), &["losetup", "--detach", device]) {
                eprintln!("{device} is left behind");
            }
            let _ = std::fs::remove_file(file);
        }
    }
}

#[derive(Clone, Copy)]
enum Kind {
    Ext4,
    Btrfs,
}

enum Backing<'a> {
    Array(#[expect(dead_code, reason = "stops when it is dropped")] Array<'a>),
    Loops(#[expect(dead_code, reason = "they go when they are dropped")] Loops),
}

/// A mounted file system.
pub(super) struct Mounted<'a> {
    device: String,
    at: PathBuf,
    kind: Kind,
    is_mounted: bool,
    /// Dropped after the umount.
    _backing: Backing<'a>,
}

impl Mounted<'_> {
    pub(super) fn folder(&self) -> &Path {
        &self.at
    }

    pub(super) fn mount_again(&mut self) -> Result<(), Failure> {
        std::fs::create_dir_all(&self.at)
            .map_err(|error| Failure::new(format!("{}: {error}", self.at.display()), "see it"))?;
        let options = match self.kind {
            // Nothing may run in the background.
            Kind::Ext4 => "noatime,noinit_itable",
            Kind::Btrfs => "noatime",
        };
        let at = self.at.to_string_lossy();
        shell::output(Path::new("/"), &["mount", "-o", options, &self.device, &at])?;
        self.is_mounted = true;
        Ok(())
    }

    pub(super) fn unmount(&mut self) -> Result<(), Failure> {
        shell::output(Path::new("/"), &["umount", &self.at.to_string_lossy()])?;
        self.is_mounted = false;
        Ok(())
    }

    /// Takes everything down, with its error.
    pub(super) fn close(mut self) -> Result<(), Failure> {
        self.unmount()
    }
}

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        if self.is_mounted && self.unmount().is_err() {
            eprintln!("{} is still mounted", self.at.display());
        }
    }
}
