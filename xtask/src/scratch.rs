//! What killed test runs left in memory: their folders in `/dev/shm`, each named after its process.
//!
//! They hold gigabytes. A full `/dev/shm` ends user-mode Linux with SIGABRT, without a message.

use std::path::Path;

use crate::shell;

const MEMORY: &str = "/dev/shm";
/// The tests use this much at their peak.
const NEEDED_MIB: u64 = 6 << 10;

/// Removes the folders of processes that have ended, and warns if the memory left is short.
pub(crate) fn sweep() {
    let entries = std::fs::read_dir(MEMORY).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    for name in names.filter(|name| process_of(name).is_some_and(has_ended)) {
        let folder = Path::new(MEMORY).join(&name);
        unmount_below(&folder);
        match std::fs::remove_dir_all(&folder) {
            Ok(()) => println!("removed {}: its test run has ended", folder.display()),
            Err(error) => println!("{}: left over, not removed: {error}", folder.display()),
        }
    }
    if let Some(free) = free_mib().filter(|&free| free < NEEDED_MIB) {
        println!("{MEMORY}: {free} MiB free, the tests need {NEEDED_MIB}: remove what fills it");
    }
}

/// The process that made a folder such as `parapet-test-1234-5`.
fn process_of(folder: &str) -> Option<u32> {
    let (_, rest) = folder.strip_prefix("parapet-")?.split_once('-')?;
    rest.split('-').next()?.parse().ok()
}

fn has_ended(process: u32) -> bool {
    !Path::new("/proc").join(process.to_string()).exists()
}

/// A local disk whose server was killed stays mounted.
fn unmount_below(folder: &Path) {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let places = mounts.lines().filter_map(|line| line.split(' ').nth(1));
    for place in places.filter(|place| Path::new(place).starts_with(folder)) {
        let _ = shell::succeeds(Path::new("/"), &["umount", "--lazy", place]);
    }
}

fn free_mib() -> Option<u64> {
    let arguments = ["df", "--block-size=1M", "--output=avail", MEMORY];
    shell::output(Path::new("/"), &arguments).ok()?.lines().nth(1)?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::process_of;

    #[test]
    fn a_folder_names_its_process() {
        assert_eq!(process_of("parapet-test-1234-5"), Some(1234));
        assert_eq!(process_of("parapet-vm-77"), Some(77));
        for other in ["parapet-test-x-5", "parapet-1234", "other-test-1234"] {
            assert_eq!(process_of(other), None, "{other}");
        }
    }
}
