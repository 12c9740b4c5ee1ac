//! The register as a file.
//!
//! Each write replaces the file, so a reader needs no lock: it sees the old content or the new one.
//! A writer locks the *folder* from its reading to its writing. The file itself cannot carry the
//! lock, because each write puts another one in its place.

use std::fs::{self, File};
use std::io::Error;
use std::path::PathBuf;

use cluster::decisions::{Value, Version};
use cluster::session::Decided;
use cluster::wire;

use super::{Register, Replaced, decoded};
use crate::atomic_file;
use crate::failure::{Failure, Id, Result, of_path};

/// See the module.
pub(super) struct FileRegister {
    path: PathBuf,
    place: String,
}

impl FileRegister {
    pub(super) fn new(path: PathBuf) -> FileRegister {
        FileRegister { place: format!("file:{}", path.display()), path }
    }

    fn failed(&self, what: &str, error: &Error) -> Failure {
        let message = format!("{}: {what}: {error}", self.place);
        Failure { message, ..of_path(&self.path, error) }
    }

    /// Keeps other writers out until the file is closed.
    fn lock(&self) -> Result<File> {
        let folder = self.path.parent().unwrap_or(&self.path);
        let locked = File::open(folder).and_then(|folder| folder.lock().map(|()| folder));
        locked.map_err(|error| self.failed("the folder cannot be locked", &error))
    }

    fn load(&self) -> Result<Decided> {
        let bytes = fs::read(&self.path);
        let bytes = bytes.map_err(|error| self.failed("cannot be read", &error))?;
        decoded(&self.place, &bytes)
    }

    fn store(&self, decided: &Decided) -> Result<()> {
        let bytes = wire::encode(decided);
        let stored = atomic_file::replace(&self.path, &bytes);
        stored.map_err(|error| self.failed("cannot be written", &error))
    }
}

impl Register for FileRegister {
    fn create(&self, value: &Value) -> Result<()> {
        let folder = self.path.parent().unwrap_or(&self.path);
        fs::create_dir_all(folder)
            .map_err(|error| self.failed("the folder cannot be made", &error))?;
        let _lock = self.lock()?;
        if fs::symlink_metadata(&self.path).is_ok() {
            let message = format!("{}: the file exists", self.place);
            return Err(Failure::new(Id::Signature, message, "choose another path"));
        }
        self.store(&Decided { version: Version(1), value: value.clone() })
    }

    fn read(&self) -> Result<(Version, Value)> {
        self.load().map(|decided| (decided.version, decided.value))
    }

    fn replace(&self, version: Version, value: &Value) -> Result<Replaced> {
        let _lock = self.lock()?;
        let now = self.load()?;
        if now.version != version {
            return Ok(Replaced::Conflict(now.version, now.value));
        }
        let next = Decided { version: Version(version.0 + 1), value: value.clone() };
        self.store(&next)?;
        Ok(Replaced::Done(next.version))
    }

    fn remove(&self) -> Result<()> {
        let lock = self.lock()?;
        let removed = fs::remove_file(&self.path).and_then(|()| lock.sync_all());
        removed.map_err(|error| self.failed("cannot be removed", &error))
    }
}
