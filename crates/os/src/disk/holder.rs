//! The holder of a busy file or device, and how to free it.
//!
//! Read from `/sys/dev/block/*/holders`, `/proc/self/mountinfo`, `/proc/swaps`, `/proc/locks` and
//! `/proc/*/fd`. A help for people: incomplete where this process may not look, never an error.

use std::fmt;
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{fstat, major, minor};

/// A holder of a disk.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Holder {
    /// Its name: "mounted at /home", "process 42 (qemu-system-x86)".
    pub who: String,
    /// The command that frees the disk.
    pub free_by: String,
    /// If another program would take the disk again at once: how to prevent that.
    pub keep_by: Option<String>,
}

impl Holder {
    fn new(who: String, free_by: String) -> Holder {
        Holder { who, free_by, keep_by: None }
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.who)
    }
}

/// The holders of the block device at this path, or of one of its partitions.
///
/// # Errors
/// If there is no such device.
pub(crate) fn holders_of(device: &Path) -> std::io::Result<Vec<Holder>> {
    Ok(of_device(fs::metadata(device)?.rdev()))
}

/// The holder of the block device with this number, or of one of its partitions.
pub(super) fn of_device(device: u64) -> Vec<Holder> {
    let mut holders = Vec::new();
    let sysfs = fs::canonicalize(format!("/sys/dev/block/{}", number(device)));
    let mut directories: Vec<PathBuf> = sysfs.into_iter().collect();
    let partitions: Vec<PathBuf> =
        directories.first().into_iter().flat_map(|whole| entries(whole)).collect();
    directories.extend(partitions.into_iter().filter(|entry| entry.join("partition").exists()));
    for directory in &directories {
        holders.extend(entries(&directory.join("holders")).iter().map(|link| stacked(link)));
        let Ok(number) = fs::read_to_string(directory.join("dev")) else { continue };
        let node = Path::new("/dev").join(directory.file_name().unwrap_or_default());
        holders.extend(mounts(number.trim(), &node));
        holders.extend(swap(&node));
    }
    if holders.is_empty() {
        holders
            .extend(processes(|stat| stat.file_type().is_block_device() && stat.rdev() == device));
    }
    holders
}

/// The holder of a lock on this file.
pub(super) fn of_file(fd: &OwnedFd) -> Vec<Holder> {
    let Ok(stat) = fstat(fd) else { return Vec::new() };
    let name = format!("{:02x}:{:02x}:{}", major(stat.st_dev), minor(stat.st_dev), stat.st_ino);
    let locks = fs::read_to_string("/proc/locks").unwrap_or_default();
    // 1: FLOCK  ADVISORY  WRITE 1234 08:01:56789 0 EOF
    let pids = locks.lines().filter_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let at = fields.iter().position(|field| *field == name)?;
        fields.get(at.checked_sub(1)?)?.parse().ok()
    });
    let mut pids: Vec<u32> = pids.filter(|&pid| pid > 0).collect();
    pids.sort_unstable();
    pids.dedup();
    pids.into_iter().map(process).collect()
}

/// A device that lies on another: md, device mapper, loop and the like.
fn stacked(link: &Path) -> Holder {
    let kernel_name = link.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let mapped = fs::read_to_string(format!("/sys/block/{kernel_name}/dm/name"));
    match mapped {
        Ok(name) => {
            let name = name.trim();
            let who = format!("part of the mapped device {name}");
            Holder::new(who, format!("dmsetup remove {name}"))
        }
        Err(_) if kernel_name.starts_with("md") => Holder {
            who: format!("member of the kernel's array {kernel_name}"),
            free_by: format!("mdadm --stop /dev/{kernel_name}"),
            keep_by: md_uuid(&kernel_name).map(|uuid| {
                format!(
                    "if it is not to be the kernel's, the line `ARRAY <ignore> UUID={uuid}` in \
                     /etc/mdadm/mdadm.conf (and in the initramfs) keeps udev from putting it \
                     together again"
                )
            }),
        },
        Err(_) => Holder::new(format!("under {kernel_name}"), format!("lsblk /dev/{kernel_name}")),
    }
}

/// The UUID of a kernel's array, in mdadm's way of writing; only of superblocks of version 1, of
/// others the kernel has it in another order, or not at all.
fn md_uuid(kernel_name: &str) -> Option<String> {
    let attribute =
        |name: &str| fs::read_to_string(format!("/sys/block/{kernel_name}/md/{name}")).ok();
    let digits: Vec<u8> = attribute("uuid")?.bytes().filter(u8::is_ascii_hexdigit).collect();
    let is_sound = digits.len() == 32 && attribute("metadata_version")?.starts_with("1.");
    let words = digits.chunks(8).map(String::from_utf8_lossy);
    is_sound.then(|| words.collect::<Vec<_>>().join(":"))
}

fn mounts(number: &str, node: &Path) -> Vec<Holder> {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    // 36 35 8:1 /root /mnt options - ext4 /dev/sda1 options
    let at = table.lines().filter_map(|line| {
        let fields: Vec<&str> = line.split(' ').collect();
        let source = fields.iter().position(|field| *field == "-").map(|dash| dash + 2);
        let source = source.and_then(|index| fields.get(index));
        // btrfs mounts under a number of its own; its source still names the device.
        let ours = fields.get(2) == Some(&number)
            || source.is_some_and(|source| Path::new(source) == node);
        if ours { fields.get(4).map(|place| unescaped(place)) } else { None }
    });
    at.map(|place| Holder::new(format!("mounted at {place}"), format!("umount {place}"))).collect()
}

fn swap(node: &Path) -> Option<Holder> {
    let table = fs::read_to_string("/proc/swaps").unwrap_or_default();
    let used = table.lines().filter_map(|line| line.split_whitespace().next());
    used.map(unescaped)
        .find(|used| Path::new(used) == node)
        .map(|used| Holder::new("used as swap".to_owned(), format!("swapoff {used}")))
}

/// Processes with a matching descriptor.
fn processes(is_it: impl Fn(&fs::Metadata) -> bool) -> Vec<Holder> {
    let mut found = Vec::new();
    for entry in entries(Path::new("/proc")) {
        let name = entry.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let Ok(pid) = name.parse::<u32>() else { continue };
        let opened = entries(&entry.join("fd"));
        if opened.iter().any(|link| fs::metadata(link).is_ok_and(|stat| is_it(&stat))) {
            found.push(process(pid));
        }
    }
    found
}

fn process(pid: u32) -> Holder {
    let command = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    let command = command.trim();
    let command = if command.is_empty() { "name unknown" } else { command };
    let who = format!("process {pid} ({command})");
    if pid == std::process::id() {
        return Holder::new(format!("this very {who}"), "name it only once".into());
    }
    Holder::new(who, format!("kill {pid}"))
}

fn number(device: u64) -> String {
    format!("{}:{}", major(device), minor(device))
}

fn entries(directory: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    paths
}

/// Undoes the kernel's octal escapes of blanks in paths.
fn unescaped(text: &str) -> String {
    text.replace("\\040", " ").replace("\\011", "\t").replace("\\134", "\\")
}
