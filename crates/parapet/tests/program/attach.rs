//! Arrays as disks of this machine, by FUSE and a loop device, with real file systems. Needs root.
//! The other ways are tried on a newer kernel: `vm/guest/local`.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::memory_group::MemoryGroup;
use crate::world::{Server, World, pattern, until};

/// Held by the test that kills a server, and by the one that uses btrfs. While a mounted disk has
/// lost its server, the tools of btrfs refuse every disk of the machine: they look at the file of
/// each loop device.
static ALONE: Mutex<()> = Mutex::new(());

pub fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A served array under a name that no other test has: `/dev/parapet` is the machine's.
struct Local {
    world: World,
    name: String,
    members: Vec<String>,
}

impl Local {
    fn new(level: &str, members: usize, size: &str) -> Local {
        Local::made_in(World::new(), level, members, size)
    }

    fn made_in(world: World, level: &str, members: usize, size: &str) -> Local {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("local{}x{number}", std::process::id());
        let members: Vec<String> = (0..members).map(|index| format!("m{index}")).collect();
        let names: Vec<&str> = members.iter().map(String::as_str).collect();
        let start = ["create", &name, "--level", level, "--new-files", size, "--yes"];
        world.ok(&[&start[..], &names].concat());
        std::fs::create_dir(world.path("mnt")).unwrap();
        Local { world, name, members }
    }

    fn serve(&self) -> Server {
        let names: Vec<&str> = self.members.iter().map(String::as_str).collect();
        self.world.serve(&[&[&*self.name], &names[..]].concat())
    }

    fn attach(&self) -> PathBuf {
        self.world.order(&["attach", &self.name, "--how", "fuse"]);
        let status = self.world.order(&["status", &self.name]);
        let path = PathBuf::from(status["attached"]["path"].as_str().unwrap());
        assert_eq!(path, Path::new("/dev/parapet").join(&self.name));
        let device = std::fs::read_link(&path).unwrap();
        assert_eq!(device.to_str(), status["attached"]["device"].as_str());
        path
    }

    /// Fails all requests of the FUSE mount: who waits for memory that waits for them cannot even
    /// be killed.
    fn abort(&self) {
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        let at = self.world.path("run/disks");
        let ours = mounts.lines().find(|line| line.contains(at.to_str().unwrap())).unwrap();
        let number = ours.split([' ', ':']).nth(3).unwrap();
        let control = self.world.path("fusectl");
        std::fs::create_dir(&control).unwrap();
        let at = control.to_str().unwrap();
        self.world.tool("mount", &["mount", "-t", "fusectl", "none", at]);
        let aborted = std::fs::write(control.join(number).join("abort"), "1");
        self.world.tool("mount", &["umount", at]);
        aborted.unwrap();
    }

    fn mount(&self, device: &Path) -> Mounted {
        Mounted::new(&self.world, &[device.to_str().unwrap()])
    }

    fn make(&self, file_system: &str, device: &Path) {
        let program = format!("mkfs.{file_system}");
        let device = device.to_str().unwrap();
        let words: &[&str] = match file_system {
            "ext4" => &["mkfs.ext4", "-q", device],
            _ => &[&program, "-q", "-f", device],
        };
        self.world.tool(&program, words);
    }

    /// Checks the file system without mending anything.
    fn check(&self, file_system: &str, device: &Path) {
        let device = device.to_str().unwrap();
        let words: &[&str] = match file_system {
            "ext4" => &["fsck.ext4", "-f", "-n", device],
            "xfs" => &["xfs_repair", "-n", device],
            _ => &["btrfs", "check", "--readonly", device],
        };
        self.world.tool(file_system, words);
    }
}

/// A mounted file system; unmounted with this value.
pub struct Mounted {
    pub at: PathBuf,
}

impl Mounted {
    /// Mounts with these options and this device, in the folder `mnt`.
    pub fn new(world: &World, words: &[&str]) -> Mounted {
        let at = world.path("mnt");
        world.tool("mount", &[&["mount"], words, &[at.to_str().unwrap()]].concat());
        Mounted { at }
    }

    /// Writes files of different sizes, durably.
    pub fn fill(&self, from: usize) {
        for number in from..from + 20 {
            let path = self.at.join(format!("f{number}"));
            std::fs::write(&path, pattern(number * 12_345, number as u64)).unwrap();
            std::fs::File::open(&path).unwrap().sync_all().unwrap();
        }
    }

    pub fn verify(&self, from: usize) {
        for number in from..from + 20 {
            let read = std::fs::read(self.at.join(format!("f{number}"))).unwrap();
            assert!(read == pattern(number * 12_345, number as u64), "f{number}");
        }
    }

    pub fn unmount(self) {
        drop(self);
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let status = std::process::Command::new("umount").arg(&self.at).status();
        assert!(status.is_ok_and(|status| status.success()) || std::thread::panicking());
    }
}

#[test]
fn a_file_system_lives_through_a_loss_and_a_rebuild() {
    let _alone = alone();
    for file_system in ["ext4", "xfs", "btrfs"] {
        let local = Local::new("6", 5, "160M");
        let server = local.serve();
        let device = local.attach();
        local.make(file_system, &device);
        let mounted = local.mount(&device);
        mounted.fill(1);
        local.world.order(&["fail", &local.name, "1"]);
        mounted.fill(21);
        local.world.order(&["fail", &local.name, "3"]);
        mounted.verify(1);
        for spare in ["s0", "s1"] {
            local.world.file(spare, 160 << 20);
            local.world.order(&["add", &local.name, spare]);
        }
        mounted.fill(41);
        let patience = ["--for", "whole", "--timeout", "600", "--quiet"];
        local.world.order(&[&["wait", &local.name], &patience[..]].concat());
        [1, 21, 41].into_iter().for_each(|from| mounted.verify(from));
        mounted.unmount();
        local.check(file_system, &device);
        local.world.order(&["detach", &local.name]);
        assert!(!device.exists());
        assert_eq!(server.terminate(), 0);
    }
}

#[test]
fn a_mounted_disk_is_neither_detached_nor_stopped() {
    let local = Local::new("1", 2, "64M");
    let server = local.serve();
    let device = local.attach();
    local.make("ext4", &device);
    let mounted = local.mount(&device);
    for verb in ["detach", "stop"] {
        let said = local.world.order_refused(&[verb, &local.name], 3, "PPT-3003");
        let wanted = format!("mounted at {}", mounted.at.display());
        assert!(said.contains(&wanted) && said.contains("umount"), "{said}");
    }
    let said = local.world.order_refused(&["attach", &local.name], 3, "PPT-3006");
    assert!(said.contains(device.to_str().unwrap()), "{said}");
    mounted.fill(1);
    mounted.verify(1);
    mounted.unmount();
    local.world.order(&["stop", &local.name]);
    assert!(!device.exists());
    assert_eq!(server.wait(), 0);
}

#[test]
fn a_way_that_the_kernel_lacks_is_refused_with_the_name_of_its_driver() {
    let local = Local::new("1", 2, "64M");
    let server = local.serve();
    let ways = [("ublk", "/dev/ublk-control", "ublk_drv"), ("nbd", "/sys/module/nbd", "nbd")];
    for (how, present, driver) in ways {
        let words = ["attach", &local.name, "--how", how];
        if Path::new(present).exists() {
            local.world.order(&words);
            let status = local.world.order(&["status", &local.name]);
            assert_eq!(status["attached"]["how"], how);
            assert_eq!(status["attached"]["survives_restart"], true);
            local.world.order(&["detach", &local.name]);
        } else {
            let said = local.world.order_refused(&words, 5, "PPT-5003");
            assert!(said.contains(&format!("modprobe {driver}")), "{said}");
        }
    }
    local.world.order(&["attach", &local.name, "--how", "fuse"]);
    let status = local.world.order(&["status", &local.name]);
    assert_eq!(status["attached"]["how"], "fuse");
    assert_eq!(status["attached"]["survives_restart"], false);
    assert_eq!(server.terminate(), 0);
}

#[test]
fn synced_files_survive_a_killed_server() {
    let _alone = alone();
    let local = Local::new("5", 3, "96M");
    let server = local.serve();
    let device = local.attach();
    local.make("ext4", &device);
    let mounted = local.mount(&device);
    mounted.fill(1);
    server.kill();
    // Requests fail at once; they do not hang.
    let failed = std::fs::File::create(mounted.at.join("late"))
        .and_then(|file| std::fs::write(mounted.at.join("late"), "x").and(file.sync_all()));
    failed.expect_err("there is no server");
    let server = local.serve();
    let said = local.world.order_refused(&["attach", &local.name], 3, "PPT-3003");
    assert!(said.contains("mounted at"), "{said}");
    mounted.unmount();
    let device = local.attach();
    let mounted = local.mount(&device);
    mounted.verify(1);
    mounted.unmount();
    local.check("ext4", &device);
    assert_eq!(server.terminate(), 0);
}

#[test]
fn size_trim_and_direct_writes_reach_the_array() {
    let local = Local::new("0", 2, "64M");
    let server = local.serve();
    let device = local.attach();
    let path = device.to_str().unwrap();
    let bytes = local.world.order(&["status", &local.name])["capacity_bytes"].as_u64().unwrap();
    let size = local.world.tool("util-linux", &["blockdev", "--getsize64", path]);
    assert_eq!(size.trim(), bytes.to_string());
    let fio = ["--ioengine=libaio", "--iodepth=16", "--direct=1", "--rw=randwrite", "--bs=4k-256k"];
    let verify = ["--name=v", "--verify=crc32c", "--fsync=50", "--io_size=64m", "--size=100%"];
    let file = format!("--filename={path}");
    local.world.tool("fio", &[&["fio", &file], &fio[..], &verify].concat());
    local.world.tool("util-linux", &["blkdiscard", path]);
    let stored = || {
        let blocks = |name: &String| {
            std::os::unix::fs::MetadataExt::blocks(&local.world.path(name).metadata().unwrap())
        };
        local.members.iter().map(blocks).sum::<u64>() * 512
    };
    until(|| stored() < 24 << 20);
    assert_eq!(server.terminate(), 0);
    assert!(!device.exists(), "a stopped server leaves no device");
}

/// What the server may use, and what the writers may use together.
const SERVER_BYTES: u64 = 64 << 20;
const WRITERS_BYTES: u64 = 64 << 20;
const WRITERS: usize = 4;
const WRITTEN_BYTES: usize = 72 << 20;
/// A writer that takes longer waits for itself.
const HANG: Duration = Duration::from_secs(300);

#[test]
fn writeback_under_memory_pressure_ends() {
    // Without CAP_SYS_RESOURCE the kernel lets the server of a group (version 1) wait for pages of
    // the same group that only the server can write: hence two. Dropped last, when all have ended.
    let own = MemoryGroup::new("server", SERVER_BYTES);
    let group = MemoryGroup::new("writers", WRITERS_BYTES);
    let local = Local::made_in(World::on_disk(), "5", 3, "192M");
    let names: Vec<&str> = local.members.iter().map(String::as_str).collect();
    let program = [env!("CARGO_BIN_EXE_parapet"), "serve", &local.name];
    let flags = ["--control", "unix:control.sock", "--json", "-v"];
    let words = [&program[..], &names, &flags].concat();
    let server = local.world.launch_tool(&own.run(&words));
    let device = local.attach();
    assert!(locked_kibibytes(&server) > 0, "memory is not locked");
    local.make("ext4", &device);
    let mounted = local.mount(&device);
    local.world.pattern("source", WRITTEN_BYTES);
    let (ended, ends) = std::sync::mpsc::channel();
    for number in 0..WRITERS {
        let to = format!("of=mnt/f{number}");
        let words = ["dd", "if=source", &to, "bs=1M", "conv=fsync", "status=none"];
        let words = group.run(&words);
        let mut writer = std::process::Command::new(words[0]);
        writer.args(&words[1..]).current_dir(&local.world.folder);
        let (mut writer, ended) = (writer.spawn().unwrap(), ended.clone());
        std::thread::spawn(move || ended.send(writer.wait().unwrap()));
    }
    drop(ended);
    let mut statuses = Vec::new();
    while statuses.len() < WRITERS {
        match ends.recv_timeout(HANG) {
            Ok(status) => statuses.push(status),
            Err(_) => {
                local.abort();
                // The group goes when they have left it.
                statuses.extend(ends.iter());
                panic!("a writer hangs: {statuses:?}");
            }
        }
    }
    assert!(statuses.iter().all(|status| status.success()), "{statuses:?}");
    assert!(group.pressed() > 0, "the writers had enough memory");
    assert_eq!((own.killed(), group.killed()), (0, 0));
    // What is read now comes from the array.
    mounted.unmount();
    let mounted = local.mount(&device);
    for number in 0..WRITERS {
        local.world.tool("diffutils", &["cmp", "source", &format!("mnt/f{number}")]);
    }
    mounted.unmount();
    assert_eq!(server.terminate(), 0);
}

/// The memory of the server that the kernel never takes away.
fn locked_kibibytes(server: &Server) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmLck:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}
