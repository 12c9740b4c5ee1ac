//! Certificates that are renewed while their server runs.

use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use super::Files;
use crate::failure::Result;

/// A configuration that follows its files: a renewed certificate needs no restart.
pub(crate) struct Renewing<C> {
    files: Files,
    read: fn(&Files) -> Result<C>,
    /// For the log.
    reader: &'static str,
    state: Mutex<State<C>>,
}

struct State<C> {
    /// Of the files that were read last, whether they were of use or not.
    stamps: Vec<Option<(u64, u64, i64, i64)>>,
    config: C,
}

impl<C: Clone> Renewing<C> {
    /// Reads the files.
    ///
    /// # Errors
    /// Those of `read`.
    pub(crate) fn load(
        files: Files,
        read: fn(&Files) -> Result<C>,
        reader: &'static str,
    ) -> Result<Renewing<C>> {
        let stamps = stamps_of(&files);
        let state = Mutex::new(State { stamps, config: read(&files)? });
        Ok(Renewing { files, read, reader, state })
    }

    /// Returns the files that it follows.
    #[cfg(feature = "cluster")]
    pub(crate) fn files(&self) -> &Files {
        &self.files
    }

    /// Returns the configuration for a new connection. Reads the files again if they have changed;
    /// while they are of no use, the old ones hold: certificate and key may change one by one.
    pub(crate) fn current(&self) -> C {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let stamps = stamps_of(&self.files);
        if stamps != state.stamps {
            state.stamps = stamps;
            let (certificate, reader) = (self.files.certificate.display(), self.reader);
            match (self.read)(&self.files) {
                Ok(config) => {
                    state.config = config;
                    tracing::info!("{certificate}: {reader} has read its certificate again");
                }
                Err(failure) => {
                    tracing::error!("{reader} keeps its old certificate: {failure}");
                }
            }
        }
        state.config.clone()
    }
}

/// What changes with the content of a file: inode, size, time of the last change. None for a
/// file that is missing.
fn stamps_of(files: &Files) -> Vec<Option<(u64, u64, i64, i64)>> {
    let paths = [&files.certificate, &files.key].into_iter().chain(&files.authority);
    let stamp = |path: &PathBuf| {
        let stat = std::fs::metadata(path).ok()?;
        Some((stat.ino(), stat.len(), stat.mtime(), stat.mtime_nsec()))
    };
    paths.map(stamp).collect()
}
