//! What is remembered of disks over restarts: a file for each disk, in `STATE/health`.
//!
//! Without it, errors that grew while the server was away would count as old.

use std::fs;
use std::io::ErrorKind;
use std::path::PathBuf;

use policy::health::Disk;

use crate::{atomic_file, places};

/// Reads what is remembered of a disk; nothing if the file is damaged.
pub(super) fn load(key: &str) -> Disk {
    let path = path(key);
    let text = match fs::read(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Disk::default(),
        Err(error) => {
            tracing::warn!("{}: the history of the disk: {error}", path.display());
            return Disk::default();
        }
    };
    serde_json::from_slice(&text).unwrap_or_else(|error| {
        tracing::warn!("{}: the history of the disk is damaged: {error}", path.display());
        Disk::default()
    })
}

/// Writes it.
pub(super) fn store(key: &str, disk: &Disk) {
    let path = path(key);
    let write = || atomic_file::replace(&path, &serde_json::to_vec(disk)?);
    if let Err(error) = write() {
        tracing::warn!("{}: the history of the disk is not kept: {error}", path.display());
    }
}

/// The file of a disk. Serial numbers and paths may have any character.
fn path(key: &str) -> PathBuf {
    let plain = |c: char| if c.is_ascii_alphanumeric() || "-_".contains(c) { c } else { '_' };
    let name: String = key.chars().map(plain).collect();
    places::state().join("health").join(format!("{name}.json"))
}
