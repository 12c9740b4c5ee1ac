//! Modelled disks in real time, as members: `model:NAME:FILE`.
//!
//! FILE holds the data, as a plain member would: other tools see md on it. The disk NAME of the
//! lab's catalogue decides size, rotation, write cache, and when an operation is answered.
//!
//! Invariant: one model for each open disk, on the executor that opened it.

use std::fs;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use io::Disk;
use os::{FileDisk, Options, Spawner};

use crate::disks::{self, Opened};
use crate::failure::{Failure, Id, Result, of_path};
use crate::places;

#[cfg(not(feature = "lab"))]
use crate::absent::real_time;
#[cfg(feature = "lab")]
mod real_time;

use real_time::Model;

/// Prefix of a modelled disk in place of a path.
const MODEL: &str = "model:";
/// The size of a disk is a multiple of this, in bytes.
const BLOCK_BYTES: u64 = 4096;

/// Name of the model and path of the file; none if the text is not of this form.
fn split(path: &Path) -> Option<(&str, &str)> {
    let (name, file) = path.to_str()?.strip_prefix(MODEL)?.split_once(':')?;
    (!file.is_empty()).then_some((name, file))
}

/// Returns true if the text names a modelled disk, not a path.
pub(crate) fn is_modelled(path: &Path) -> bool {
    path.to_str().is_some_and(|text| text.starts_with(MODEL))
}

/// Returns the file of a modelled disk; any other path as it is.
pub(crate) fn file_of(path: &Path) -> &Path {
    split(path).map_or(path, |(_, file)| Path::new(file))
}

/// Returns the name of a modelled disk that is usable from any folder; none for other paths.
pub(crate) fn whole(path: &Path) -> Option<PathBuf> {
    let (name, file) = split(path)?;
    let file = places::absolute(Path::new(file));
    Some(format!("{MODEL}{name}:{}", file.display()).into())
}

/// Returns the model of a modelled disk; none for a plain path.
///
/// # Errors
/// If the text has another form, or the catalogue has no such disk.
fn model(path: &Path) -> Result<Option<Model>> {
    if !is_modelled(path) {
        return Ok(None);
    }
    let text = path.display().to_string();
    let Some((name, _)) = split(path) else {
        let action = "write it as model:NAME:FILE, for example model:hd501lj:/dev/shm/disk0";
        return Err(Failure::new(Id::Usage, format!("{text}: no model and file"), action));
    };
    Model::named(name, &text).map(Some)
}

/// Tests that a path is plain, or names a model.
///
/// # Errors
/// If the text has another form, or the catalogue has no such disk.
pub(crate) fn check(path: &Path) -> Result<()> {
    model(path).map(drop)
}

/// Returns the size of a new modelled disk, at most this one; none for a plain path.
///
/// # Errors
/// As [`check`].
pub(crate) fn new_bytes(path: &Path, most: Option<u64>) -> Result<Option<u64>> {
    let bytes = |model: Model| model.bytes().min(most.unwrap_or(u64::MAX));
    Ok(model(path)?.map(|model| bytes(model) / BLOCK_BYTES * BLOCK_BYTES))
}

/// Puts the model before an open file; a plain path stays a plain file.
///
/// # Errors
/// As [`check`].
pub(crate) fn in_front(path: &Path, file: &Rc<FileDisk>, on: &Spawner) -> Result<Rc<dyn Disk>> {
    let file: Rc<dyn Disk> = Rc::clone(file) as _;
    match model(path)? {
        Some(model) => Ok(model.in_front(file, on)),
        None => Ok(file),
    }
}

/// Creates the file of a modelled disk, without data and without reserved space.
///
/// # Errors
/// If the file exists, or cannot be made; then nothing is left behind.
pub(crate) async fn create(path: &Path, bytes: u64, on: &Spawner) -> Result<Opened> {
    let file = file_of(path);
    let made = fs::File::create_new(file).map_err(|error| of_path(file, &error))?;
    let opened = match made.set_len(bytes) {
        Ok(()) => disks::open_one(path, &Options::default(), on).await,
        Err(error) => Err(of_path(file, &error)),
    };
    if opened.is_err() {
        // This process has just created it.
        let _ = fs::remove_file(file);
    }
    opened
}

#[cfg(all(test, feature = "lab"))]
mod tests {
    use super::*;

    #[test]
    fn a_modelled_disk_is_a_model_and_a_file() {
        let path = Path::new("model:hd501lj:/dev/shm/a:b");
        assert!(model(path).unwrap().is_some());
        assert_eq!(file_of(path), Path::new("/dev/shm/a:b"));
        assert_eq!(whole(path).as_deref(), Some(path));
        let short = whole(Path::new("model:hd501lj:a")).unwrap();
        assert_eq!(file_of(&short), places::absolute(Path::new("a")));
        assert_eq!(new_bytes(path, None).unwrap(), Some(500_107_862_016));
        assert_eq!(new_bytes(path, Some(10_000)).unwrap(), Some(8192));
        for plain in ["/dev/sda", "./model:hd501lj:a", "models", "aoe:1.0@eth1"] {
            let plain = Path::new(plain);
            assert!(model(plain).unwrap().is_none() && whole(plain).is_none());
            assert_eq!(file_of(plain), plain);
        }
        for wrong in ["model:", "model:hd501lj", "model:hd501lj:", "model:none:/a", "model::/a"] {
            assert!(check(Path::new(wrong)).is_err(), "{wrong}");
        }
    }
}
