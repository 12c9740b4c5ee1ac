//! Places to test in: folders that vanish, loop devices and mounts where root may make them.
#![allow(dead_code, reason = "each test program uses a part of it")]

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard};

pub(crate) fn mib(count: u64) -> u64 {
    count << 20
}

/// A folder whose files are page cache and nothing else.
pub(crate) fn on_tmpfs() -> PathBuf {
    PathBuf::from("/dev/shm")
}

/// A folder on a real file system: where the build is.
pub(crate) fn on_disk() -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
}

pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Reports a root-only step of the running test, past the runner, which hides the output of passing
/// tests.
fn not_tried<T>(what: &str) -> Option<T> {
    let test = std::thread::current().name().unwrap_or_default().to_owned();
    let _ = writeln!(std::io::stderr(), "NOT TRIED: {test} {what}; run it as root");
    None
}

/// A folder of one test's own, removed with everything that was set up in it.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn new(within: PathBuf) -> Scratch {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let folder = within.join(format!("parapet-os-{}-{number}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        Scratch(folder)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// A loop device over a new file; none where this user may not make one.
    pub(crate) fn loop_device(&self, bytes: u64, sector: u32) -> Option<Loop> {
        let file = self.path(&format!("backing-{sector}"));
        fs::File::create(&file).unwrap().set_len(bytes).unwrap();
        let made = Command::new("losetup")
            .args(["--find", "--show", "--sector-size", &sector.to_string()])
            .arg(&file)
            .output();
        match made {
            Ok(output) if output.status.success() => {
                let node = String::from_utf8(output.stdout).unwrap();
                Some(Loop(PathBuf::from(node.trim())))
            }
            _ if is_root() => panic!("root cannot make a loop device"),
            _ => not_tried("makes a loop device"),
        }
    }

    /// A file system in memory of this size; none where this user may not mount.
    pub(crate) fn mount_tmpfs(&self, bytes: u64) -> Option<Mount> {
        let place = self.path("mount");
        fs::create_dir(&place).unwrap();
        let options = format!("size={bytes}");
        let mounted = run("mount", &["-t", "tmpfs", "-o", &options, "tmpfs"], &place);
        assert!(mounted || !is_root(), "root cannot mount");
        if mounted { Some(Mount(place)) } else { not_tried("mounts a tmpfs") }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

pub(crate) struct Loop(PathBuf);

impl Loop {
    pub(crate) fn node(&self) -> &Path {
        &self.0
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        run("losetup", &["--detach"], &self.0);
    }
}

pub(crate) struct Mount(PathBuf);

impl Mount {
    pub(crate) fn place(&self) -> &Path {
        &self.0
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        run("umount", &["--lazy"], &self.0);
    }
}

/// Waits until no other test of this program that starts programs is running: a child shares all
/// descriptors until it has become another program, and a device stays busy for that long.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Runs a command; true if it succeeded.
pub(crate) fn run(program: &str, arguments: &[&str], last: &Path) -> bool {
    let output = Command::new(program).args(arguments).arg(last).output();
    output.is_ok_and(|output| output.status.success())
}
