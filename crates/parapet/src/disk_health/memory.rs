//! What is remembered of disks over restarts: two files for each disk, in `STATE/health`.
//!
//! `DISK.json` is for the ladder: without it, errors that grew while the server was away would
//! count as old. `DISK.days` is for people: SMART values over two years.

use std::fs::{self, File};
use std::io::{ErrorKind, Result, Write};
use std::path::{Path, PathBuf};

use policy::health::{Change, Day, Days, Disk};

use crate::{atomic_file, places};

/// Reads what is remembered of a disk; nothing if the file is damaged.
pub(super) fn load(key: &str) -> Disk {
    let path = path(key, "json");
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
    let path = path(key, "json");
    let written = serde_json::to_vec(disk).map_err(Into::into);
    report(&path, written.and_then(|text| atomic_file::replace(&path, &text)));
}

/// Reads the days of a disk; none if there is no file.
pub(super) fn days(key: &str) -> Days {
    Days::parse(&String::from_utf8_lossy(&fs::read(path(key, "days")).unwrap_or_default()))
}

/// Adds a day, unless it is there already.
pub(super) fn add_day(key: &str, day: Day) {
    let path = path(key, "days");
    let written = match days(key).add(day) {
        Change::Nothing => Ok(()),
        Change::Append(line) => append(&path, &line),
        Change::Replace(text) => atomic_file::replace(&path, text.as_bytes()),
    };
    report(&path, written);
}

fn report(path: &Path, written: Result<()>) {
    if let Err(error) = written {
        tracing::warn!("{}: the history of the disk is not kept: {error}", path.display());
    }
}

fn append(path: &Path, line: &str) -> Result<()> {
    fs::create_dir_all(path.with_file_name(""))?;
    let mut file = File::options().create(true).append(true).open(path)?;
    // An empty line ends one that a crash has cut.
    file.write_all(format!("\n{line}").as_bytes())
}

/// A file of a disk. Serial numbers and paths may have any character.
fn path(key: &str, ending: &str) -> PathBuf {
    let plain = |c: char| if c.is_ascii_alphanumeric() || "-_".contains(c) { c } else { '_' };
    let name: String = key.chars().map(plain).collect();
    places::state().join("health").join(format!("{name}.{ending}"))
}
