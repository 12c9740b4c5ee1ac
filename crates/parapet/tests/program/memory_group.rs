//! A control group with little memory, for programs that must work in it. Needs root and a
//! controller of memory: version 1 or 2.

use std::path::{Path, PathBuf};

/// Removed with this value; its processes must have ended then.
pub struct MemoryGroup {
    folder: PathBuf,
    version: Version,
}

#[derive(Clone, Copy)]
enum Version {
    One,
    Two,
}

impl MemoryGroup {
    /// Makes a group whose processes may use `bytes` together.
    pub fn new(name: &str, bytes: u64) -> MemoryGroup {
        let (root, version) = controller();
        let folder = root.join(format!("parapet-test-{}-{name}", std::process::id()));
        if matches!(version, Version::Two) {
            std::fs::write(root.join("cgroup.subtree_control"), "+memory").unwrap();
        }
        std::fs::create_dir(&folder).unwrap();
        let group = MemoryGroup { folder, version };
        group.set("memory.limit_in_bytes", "memory.max", bytes);
        group
    }

    /// The words of a command that runs `words` in the group.
    pub fn run<'a>(&'a self, words: &[&'a str]) -> Vec<&'a str> {
        let join = r#"echo $$ >"$0/cgroup.procs" && exec "$@""#;
        [&["sh", "-c", join, self.folder.to_str().unwrap()], words].concat()
    }

    /// How often its processes had to free memory before they got more.
    pub fn pressed(&self) -> u64 {
        match self.version {
            Version::One => self.read("memory.failcnt").trim().parse().unwrap(),
            Version::Two => self.count("memory.events", "max"),
        }
    }

    /// How many of its processes the kernel has killed for want of memory.
    pub fn killed(&self) -> u64 {
        match self.version {
            Version::One => self.count("memory.oom_control", "oom_kill"),
            Version::Two => self.count("memory.events", "oom_kill"),
        }
    }

    fn count(&self, file: &str, key: &str) -> u64 {
        let text = self.read(file);
        let mut lines = text.lines().filter_map(|line| line.split_once(' '));
        let found = lines.find(|(name, _)| *name == key);
        found.unwrap_or_else(|| panic!("{file} has no {key}: {text}")).1.parse().unwrap()
    }

    fn read(&self, file: &str) -> String {
        std::fs::read_to_string(self.folder.join(file)).unwrap()
    }

    fn set(&self, one: &str, two: &str, value: u64) {
        let file = match self.version {
            Version::One => one,
            Version::Two => two,
        };
        std::fs::write(self.folder.join(file), value.to_string()).unwrap();
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        let removed = std::fs::remove_dir(&self.folder);
        if !std::thread::panicking() {
            removed.unwrap();
        }
    }
}

/// The root of the hierarchy that controls memory.
fn controller() -> (PathBuf, Version) {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    for line in mounts.lines() {
        let fields: Vec<&str> = line.split(' ').collect();
        let [_, at, kind, options, ..] = fields[..] else { continue };
        let at = Path::new(at);
        if kind == "cgroup" && options.split(',').any(|option| option == "memory") {
            return (at.to_owned(), Version::One);
        }
        let controllers = std::fs::read_to_string(at.join("cgroup.controllers"));
        let has_memory = |text: String| text.split_whitespace().any(|name| name == "memory");
        if kind == "cgroup2" && controllers.is_ok_and(has_memory) {
            return (at.to_owned(), Version::Two);
        }
    }
    panic!("no controller of memory is mounted: mount -t cgroup2 none /sys/fs/cgroup");
}
