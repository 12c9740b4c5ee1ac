//! The messages of a channel on disk, so that a server that is killed loses none.
//!
//! ```text
//!   STATE/alerts/webhook-1f2e3d4c.0         the messages
//!                webhook-1f2e3d4c.0.lock    held while a server uses that file
//!                webhook-1f2e3d4c.1 …       of another server with a channel of this destination
//! ```
//!
//! A server takes a free file, and what dead servers have left in others: their messages go out
//! with its own. A damaged file is reported, and its messages are lost.

use std::fs::{self, File, TryLockError};
use std::io::{Error, ErrorKind, Read, Result};
use std::path::{Path, PathBuf};

use policy::alerts::{Channel, Kept, TOO_OLD};

use crate::{atomic_file, places};

/// Servers of this machine with a channel of the same destination.
const MOST_SERVERS: u32 = 64;
/// A file has 200 messages and 1000 events that were told: far less than this.
const MOST_BYTES: u64 = 4 << 20;

/// See the module.
pub(super) struct Store {
    own: Claimed,
    /// What dead servers have left; removed once their messages are in the own file.
    others: Vec<Claimed>,
}

/// A file that no other server uses.
struct Claimed {
    path: PathBuf,
    /// Locked as long as it is open.
    _lock: File,
}

impl Store {
    /// Takes a file for this channel. Also returns what earlier servers have left for it.
    ///
    /// # Errors
    /// The folder cannot be used, or too many servers do.
    pub(super) fn claim(channel: &Channel) -> Result<(Store, Vec<Kept>)> {
        let folder = places::state().join("alerts");
        fs::create_dir_all(&folder)?;
        sweep(&folder);
        let (mut claimed, mut left) = (Vec::new(), Vec::new());
        for number in 0..MOST_SERVERS {
            let path = folder.join(format!("{}.{number}", key(channel)));
            if !claimed.is_empty() && !path.exists() {
                continue;
            }
            let Some(_lock) = lock(&path)? else { continue };
            left.extend(load(&path));
            claimed.push(Claimed { path, _lock });
        }
        let mut claimed = claimed.into_iter();
        let own =
            claimed.next().ok_or_else(|| Error::other("too many servers use this channel"))?;
        Ok((Store { own, others: claimed.collect() }, left))
    }

    /// Stores this in place of what is stored.
    ///
    /// # Errors
    /// What was stored before still is.
    pub(super) fn put(&mut self, kept: &Kept) -> Result<()> {
        match kept.is_empty() {
            true => remove(&self.own.path)?,
            false => atomic_file::replace(&self.own.path, &serde_json::to_vec(kept)?)?,
        }
        while let Some(other) = self.others.last() {
            remove(&other.path)?;
            self.others.pop();
        }
        Ok(())
    }
}

/// Removes a file that may be gone.
fn remove(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// The name of a channel's files. Its destination may be a secret.
fn key(channel: &Channel) -> String {
    let destination = channel.kind.destination();
    format!("{}-{:08x}", channel.kind.word(), parity::crc32c(0, destination.as_bytes()))
}

/// Locks the file of messages at this path; none if a server uses it.
fn lock(path: &Path) -> Result<Option<File>> {
    let lock = File::options().create(true).append(true).open(locked_by(path))?;
    match lock.try_lock() {
        Ok(()) => Ok(Some(lock)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

fn locked_by(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    name.into()
}

/// Reads a file of messages.
fn load(path: &Path) -> Option<Kept> {
    let mut text = Vec::new();
    let read = File::open(path).and_then(|file| file.take(MOST_BYTES).read_to_end(&mut text));
    let kept = match read {
        Ok(_) => serde_json::from_slice(&text).map_err(Error::from),
        Err(error) if error.kind() == ErrorKind::NotFound => return None,
        Err(error) => Err(error),
    };
    let damaged = |error: &Error| {
        tracing::warn!("{}: alerts of an earlier server are lost: {error}", path.display());
    };
    kept.inspect_err(damaged).ok()
}

/// Removes what was left for channels that nobody has any more: no message is sent when it is so
/// old.
fn sweep(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.extension().is_some_and(|end| end == "lock") || !is_old(&path) {
            continue;
        }
        let Ok(Some(_lock)) = lock(&path) else { continue };
        let waiting = load(&path).map_or(0, |kept| kept.waiting());
        if fs::remove_file(&path).is_ok() && waiting > 0 {
            tracing::warn!("{}: alerts of a channel that is gone: {waiting}", path.display());
        }
    }
}

fn is_old(path: &Path) -> bool {
    let written = fs::metadata(path).and_then(|stat| stat.modified());
    written.is_ok_and(|time| time.elapsed().is_ok_and(|age| age > TOO_OLD))
}
