//! Reasons why a disk cannot be opened: a kind to match on, the path, and the next step.

use std::path::{Path, PathBuf};
use std::{error, fmt, io};

use super::holder::Holder;

/// Why a disk could not be opened.
#[derive(Debug)]
pub enum OpenErrorKind {
    /// There is nothing at this path.
    Missing,
    /// There is something already where a new file was to be made.
    Exists,
    /// This user may not open it.
    Denied,
    /// Its file system is mounted read-only.
    ReadOnly,
    /// The file is immutable or append-only.
    Immutable,
    /// In use; with the holder, if known.
    Busy(Vec<Holder>),
    /// Neither a file nor a block device.
    NotADisk,
    /// No room for a new file of this many bytes.
    NoSpace(u64),
    /// The file system does not support O_DIRECT, which was requested.
    NotDirect,
    /// Anything else: see the source.
    Failed,
}

/// A failed open.
#[derive(Debug)]
pub struct OpenError {
    path: PathBuf,
    kind: OpenErrorKind,
    source: Option<io::Error>,
}

impl OpenError {
    pub(super) fn new(path: &Path, kind: OpenErrorKind) -> OpenError {
        OpenError { path: path.to_owned(), kind, source: None }
    }

    /// Classifies an error of `open` and similar calls.
    pub(super) fn from_kernel(path: &Path, errno: rustix::io::Errno) -> OpenError {
        use rustix::io::Errno;
        let kind = match errno {
            Errno::NOENT | Errno::NOTDIR | Errno::NXIO | Errno::NODEV => OpenErrorKind::Missing,
            Errno::EXIST => OpenErrorKind::Exists,
            Errno::ROFS => OpenErrorKind::ReadOnly,
            // Of a device the kernel says so where a control group keeps the process from it.
            Errno::PERM if path.is_file() => OpenErrorKind::Immutable,
            Errno::ACCESS | Errno::PERM => OpenErrorKind::Denied,
            Errno::ISDIR => OpenErrorKind::NotADisk,
            Errno::BUSY | Errno::TXTBSY => OpenErrorKind::Busy(Vec::new()),
            _ => OpenErrorKind::Failed,
        };
        OpenError { path: path.to_owned(), kind, source: Some(errno.into()) }
    }

    /// Distinguishes errors for the caller.
    pub fn kind(&self) -> &OpenErrorKind {
        &self.kind
    }

    /// The path to be opened.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.display();
        match &self.kind {
            OpenErrorKind::Missing => write!(f, "{path}: there is no such file or device")?,
            OpenErrorKind::Exists => write!(f, "{path}: exists already; nothing was changed")?,
            OpenErrorKind::Denied => write!(f, "{path}: permission denied")?,
            OpenErrorKind::ReadOnly => {
                write!(f, "{path}: cannot be opened for writing: the file system is read-only")?;
            }
            OpenErrorKind::Immutable => {
                write!(f, "{path}: cannot be opened for writing: the file is immutable (lsattr)")?;
            }
            OpenErrorKind::NotADisk => write!(f, "{path}: neither a file nor a block device")?,
            OpenErrorKind::NotDirect => {
                write!(f, "{path}: this file system cannot go around the page cache (O_DIRECT)")?;
            }
            OpenErrorKind::NoSpace(bytes) => {
                write!(f, "{path}: no room for {bytes} bytes; nothing was left behind")?;
            }
            OpenErrorKind::Failed => write!(f, "{path}: cannot be opened")?,
            OpenErrorKind::Busy(holders) if holders.is_empty() => {
                write!(f, "{path}: in use by an unknown process")?;
            }
            OpenErrorKind::Busy(holders) => {
                write!(f, "{path}: in use")?;
                for holder in holders {
                    write!(f, "; {holder}")?;
                }
            }
        }
        match (&self.kind, &self.source) {
            (OpenErrorKind::Failed, Some(source)) => {
                write!(f, ": {source}")
            }
            _ => Ok(()),
        }
    }
}

impl error::Error for OpenError {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        self.source.as_ref().map(|source| source as _)
    }
}
