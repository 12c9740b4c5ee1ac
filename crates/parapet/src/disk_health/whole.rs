//! Whole disks: which of them hold the bytes of a path, by sysfs.

use std::fs;
use std::path::{Path, PathBuf};

use crate::disks::{self, first_text};

/// Layers of device mapper that are followed.
const MOST_LAYERS: usize = 8;
const SECTOR_BYTES: u64 = 512;

/// A whole disk.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct WholeDisk {
    /// The kernel's name, such as `sda`.
    pub(crate) name: String,
}

impl WholeDisk {
    /// Its path.
    pub(crate) fn path(&self) -> PathBuf {
        // The kernel writes `!` for `/`: `cciss!c0d0`.
        Path::new("/dev").join(self.name.replace('!', "/"))
    }

    fn folder(&self) -> PathBuf {
        Path::new("/sys/block").join(&self.name)
    }

    /// Its model.
    pub(crate) fn model(&self) -> Option<String> {
        first_text(&self.folder(), &["device/model"])
    }

    /// Its serial number.
    pub(crate) fn serial(&self) -> Option<String> {
        disks::serial(&self.path())
    }

    /// The name by which it is remembered: its serial number, or else the kernel's name.
    pub(super) fn key(&self) -> String {
        self.serial().unwrap_or_else(|| self.name.clone())
    }

    /// Its size in bytes; 0 if unknown.
    pub(crate) fn bytes(&self) -> u64 {
        let sectors = first_text(&self.folder(), &["size"]).and_then(|text| text.parse().ok());
        sectors.unwrap_or(0_u64).saturating_mul(SECTOR_BYTES)
    }

    /// Whether it rotates.
    pub(crate) fn rotational(&self) -> Option<bool> {
        first_text(&self.folder(), &["queue/rotational"]).map(|text| text == "1")
    }

    /// True for a piece of hardware, or its likeness in a virtual machine.
    fn is_hardware(&self) -> bool {
        self.folder().join("device").exists() && self.bytes() > 0
    }
}

/// The whole disks that hold the bytes of a block device: itself, the disk of a partition, those
/// below device mapper. None for a file.
pub(crate) fn of(path: &Path) -> Vec<WholeDisk> {
    let mut found = Vec::new();
    if let Some(folder) = disks::sys(path) {
        descend(&folder, 0, &mut found);
    }
    found.sort();
    found.dedup();
    found
}

fn descend(folder: &Path, layer: usize, found: &mut Vec<WholeDisk>) {
    let is_part = folder.join("partition").exists();
    let Some(whole) = (if is_part { folder.parent() } else { Some(folder) }) else { return };
    let below = fs::read_dir(whole.join("slaves")).into_iter().flatten().flatten();
    let below: Vec<PathBuf> = below.filter_map(|it| fs::canonicalize(it.path()).ok()).collect();
    if below.is_empty() || layer == MOST_LAYERS {
        let name = whole.file_name().map(|name| name.to_string_lossy().into_owned());
        found.extend(name.map(|name| WholeDisk { name }));
    } else {
        below.iter().for_each(|below| descend(below, layer + 1, found));
    }
}

/// The disks of this machine that are hardware.
pub(crate) fn all() -> Vec<WholeDisk> {
    let entries = fs::read_dir("/sys/block").into_iter().flatten().flatten();
    let disks = entries.map(|it| WholeDisk { name: it.file_name().to_string_lossy().into_owned() });
    let mut disks: Vec<WholeDisk> = disks.filter(WholeDisk::is_hardware).collect();
    disks.sort();
    disks
}
