//! Copies of what is overwritten, made before it is.
//!
//! ```text
//!    STATE/undo/1763760000-tank/            one folder per operation
//!        undo.json                          what, when, which disks, which bytes
//!        0-0x0                              the bytes of disk 0 from offset 0 on
//! ```
//!
//! Owns what is worth keeping: the head and tail of a disk, where signatures and superblocks lie,
//! and whatever was found elsewhere. Runs of zeros are not kept. `parapet undestroy` puts back what
//! was kept, as long as nobody has used the disks; for everything else `undo.json` says what to
//! write where, and `dd` does it.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use io::{Op, Pool};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::api::SignatureView;
use crate::disks::Opened;
use crate::failure::{Failure, Id, Result, of_path};
use crate::places;

/// Everything that a superblock or a partition table may occupy, at either end.
const HEAD_BYTES: u64 = 1 << 20;
const TAIL_BYTES: u64 = 128 << 10;
/// Around a signature elsewhere.
const AROUND_BYTES: u64 = 64 << 10;

const SCHEMA: &str = "parapet/undo/1";

/// What is in a folder of copies.
#[derive(Serialize, Deserialize)]
pub(crate) struct Manifest {
    schema: String,
    /// When they were made.
    pub(crate) made: Timestamp,
    /// For what.
    pub(crate) verb: String,
    /// The array that was made or destroyed.
    pub(crate) array: String,
    pub(crate) pieces: Vec<Piece>,
}

/// Bytes of a disk.
#[derive(Serialize, Deserialize)]
pub(crate) struct Piece {
    /// Its path.
    pub(crate) disk: String,
    /// Where they were.
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
    /// The copy, in the folder.
    pub(crate) file: String,
    /// A command that puts them back.
    restore: String,
}

impl Manifest {
    /// Reads what is in this folder.
    ///
    /// # Errors
    /// If there is nothing of this kind.
    pub(crate) fn read(folder: &Path) -> Result<Manifest> {
        let path = folder.join("undo.json");
        let text = fs::read(&path).map_err(|error| of_path(&path, &error))?;
        let read = serde_json::from_slice(&text).ok();
        read.filter(|manifest: &Manifest| manifest.schema == SCHEMA).ok_or_else(|| {
            let message = format!("{}: not one that Parapet has written", path.display());
            Failure::new(Id::Input, message, "name the folder that `parapet destroy` has told")
        })
    }
}

/// The latest copies that were made before the array of this name was destroyed.
pub(crate) fn latest(array: &str) -> Option<(PathBuf, Manifest)> {
    let entries = fs::read_dir(places::state().join("undo")).ok()?;
    let folders = entries.flatten().map(|entry| entry.path());
    let read = folders.filter_map(|folder| {
        let manifest = Manifest::read(&folder).ok()?;
        Some((folder, manifest))
    });
    let own = read.filter(|(_, kept)| kept.verb == "destroy" && kept.array == array);
    own.max_by_key(|(_, kept)| kept.made)
}

/// A disk about to be written to.
pub(crate) struct Doomed<'a> {
    /// The disk.
    pub(crate) opened: &'a Opened,
    /// What was found on it.
    pub(crate) signatures: &'a [SignatureView],
}

/// Keeps copies; gives the folder, or nothing if there was nothing but zeros.
///
/// # Errors
/// If the copies cannot be made; then nothing may be overwritten.
pub(crate) async fn keep(verb: &str, array: &str, disks: &[Doomed<'_>]) -> Result<Option<PathBuf>> {
    let mut copies = Vec::new();
    for (index, doomed) in disks.iter().enumerate() {
        for (offset, len) in ranges(doomed.opened.bytes(), doomed.signatures) {
            let bytes = read(doomed.opened, offset, len).await?;
            if bytes.iter().any(|&byte| byte != 0) {
                copies.push((index, offset, bytes));
            }
        }
    }
    if copies.is_empty() {
        return Ok(None);
    }
    let now = Timestamp::now();
    let folder = folder(&now, array)?;
    let (schema, verb, array) = (SCHEMA.into(), verb.into(), array.into());
    let mut manifest = Manifest { schema, made: now, verb, array, pieces: Vec::new() };
    for (index, offset, bytes) in copies {
        let name = format!("{index}-{offset:#x}");
        write(&folder.join(&name), &bytes)?;
        let path = &disks[index].opened.path;
        let disk = match disks[index].opened.file {
            Some(_) => places::absolute(path).display().to_string(),
            None => path.display().to_string(),
        };
        let from = places::absolute(&folder.join(&name)).display().to_string();
        let restore = format!(
            "dd if={} of={} bs=4096 oflag=seek_bytes seek={offset} conv=notrunc,fsync",
            places::quoted(&from),
            places::quoted(&disk)
        );
        let bytes = bytes.len() as u64;
        manifest.pieces.push(Piece { disk, offset, bytes, file: name, restore });
    }
    let text = serde_json::to_vec_pretty(&manifest).expect("made of strings and numbers");
    write(&folder.join("undo.json"), &text)?;
    // What is overwritten next may be lost for good: the names of the copies must be durable too.
    let named = [Some(folder.as_path()), folder.parent()];
    named.into_iter().flatten().try_for_each(|at| sync_folder(at).map_err(|e| of_path(at, &e)))?;
    Ok(Some(folder))
}

fn sync_folder(at: &Path) -> std::io::Result<()> {
    File::open(at)?.sync_all()
}

async fn read(opened: &Opened, offset: u64, len: u64) -> Result<Vec<u8>> {
    let buf = Pool::new(0).take(len as usize);
    let done = opened.ask(Op::read(offset, buf)).await.map_err(|error| {
        let message = format!("no copy can be made of what is there: {error}");
        Failure::new(Id::Input, message, "see the system's log for the disk's errors")
    })?;
    Ok(done.into_buf().to_vec())
}

/// A new folder that only this user can read.
fn folder(now: &Timestamp, array: &str) -> Result<PathBuf> {
    let parent = places::state().join("undo");
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true).mode(0o700);
    builder.create(&parent).map_err(|error| of_path(&parent, &error))?;
    let name = folder_name(now, array);
    // Twice in one second, with one name: another try with another number.
    for number in 0..100 {
        let suffix = if number == 0 { String::new() } else { format!("-{number}") };
        let folder = parent.join(format!("{name}{suffix}"));
        match fs::DirBuilder::new().mode(0o700).create(&folder) {
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            made => return made.map(|()| folder.clone()).map_err(|error| of_path(&folder, &error)),
        }
    }
    Err(of_path(&parent, &std::io::ErrorKind::AlreadyExists.into()))
}

/// A superblock of somebody else's may name its array as no folder can be named.
fn folder_name(now: &Timestamp, array: &str) -> String {
    format!("{}-{}", now.as_second(), array.replace(['/', '\0'], "_"))
}

fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    let mut options = File::options();
    let file = options.write(true).create_new(true).mode(0o600).open(path);
    let written = file.and_then(|mut file| file.write_all(bytes).and_then(|()| file.sync_all()));
    written.map_err(|error| of_path(path, &error))
}

/// Offset and length of what is worth keeping, in order, without overlaps.
fn ranges(disk_bytes: u64, signatures: &[SignatureView]) -> Vec<(u64, u64)> {
    let page = |offset: u64| offset & !4095;
    let mut wanted =
        vec![(0, HEAD_BYTES), (page(disk_bytes.saturating_sub(TAIL_BYTES)), disk_bytes)];
    wanted.extend(signatures.iter().map(|signature| {
        let start = page(signature.offset.saturating_sub(AROUND_BYTES));
        (start, signature.offset.saturating_add(AROUND_BYTES))
    }));
    wanted.sort_unstable();
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    for (start, end) in wanted {
        let end = end.min(disk_bytes);
        match ranges.last_mut() {
            Some((from, length)) if start <= *from + *length => {
                *length = (*length).max(end.saturating_sub(*from));
            }
            _ if start < end => ranges.push((start, end - start)),
            _ => {}
        }
    }
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_array_of_any_name_has_one_folder() {
        let now = Timestamp::UNIX_EPOCH;
        assert_eq!(folder_name(&now, "nas:tank"), "0-nas:tank");
        assert_eq!(folder_name(&now, "a/../../b\0"), "0-a_.._.._b_");
    }

    #[test]
    fn ranges_cover_both_ends_and_what_was_found_and_do_not_overlap() {
        let of = |bytes, offsets: &[u64]| {
            let signature = |&offset: &u64| SignatureView { name: "x".into(), offset };
            let signatures: Vec<SignatureView> = offsets.iter().map(signature).collect();
            ranges(bytes, &signatures)
        };
        assert_eq!(of(0, &[]), []);
        assert_eq!(of(5120, &[]), [(0, 5120)]);
        assert_eq!(of(1 << 30, &[]), [(0, 1 << 20), ((1 << 30) - (128 << 10), 128 << 10)]);
        let middle = 64 << 20;
        let found = of(1 << 30, &[0x438, middle + 0x40]);
        assert_eq!(found[1], (middle - (64 << 10), (128 << 10) + 0x40));
        assert_eq!(found.len(), 3);
    }
}
