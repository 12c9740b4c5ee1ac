//! Errors of a disk, by the caller's possible response.
//!
//! One small matchable kind, one sentence of context (which disk, which offset, which call), and
//! the error underneath where there is one.

use std::{error, fmt};

/// The result of an operation on a [`Disk`](crate::Disk).
pub type Result<T> = std::result::Result<T, Error>;

/// Why an operation on a disk failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ErrorKind {
    /// These bytes cannot be read or written; the rest of the disk works.
    Medium {
        /// First byte concerned, from the start of the disk.
        offset: u64,
        /// How many bytes are concerned.
        len: u64,
    },
    /// No answer in time. The outcome is unknown: the operation may still land.
    Timeout,
    /// The disk is not there any more.
    Gone,
    /// The disk has lost bytes for good: its file was cut while it was in use.
    Truncated,
    /// Someone with a newer epoch owns the disk now.
    Fenced,
    /// The store behind the disk is full.
    NoSpace,
    /// The operation is not one this disk does: out of range, misaligned, read-only, unsupported.
    Refused,
}

/// A failed operation: kind, context, source. One word wide.
#[derive(Clone)]
pub struct Error(Box<Inner>);

#[derive(Clone)]
struct Inner {
    kind: ErrorKind,
    context: String,
    source: Option<std::sync::Arc<dyn error::Error + Send + Sync>>,
}

impl Error {
    /// An error of this kind; `context` names the object (path or name, offset, call).
    pub fn new(kind: ErrorKind, context: impl Into<String>) -> Error {
        Error(Box::new(Inner { kind, context: context.into(), source: None }))
    }

    /// The same error with its cause.
    #[must_use]
    pub fn with_source(mut self, source: impl error::Error + Send + Sync + 'static) -> Error {
        self.0.source = Some(std::sync::Arc::new(source));
        self
    }

    /// The disk does not do this: out of range, misaligned, read-only or unsupported.
    pub fn refused(context: impl Into<String>) -> Error {
        Error::new(ErrorKind::Refused, context)
    }

    /// Distinguishes errors for the caller.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// True if the disk lost the content and a write would make it readable.
    pub fn is_medium(&self) -> bool {
        matches!(self.0.kind, ErrorKind::Medium { .. })
    }

    /// Where it happened: disk, offset, call.
    pub fn context(&self) -> &str {
        &self.0.context
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.0.kind {
            ErrorKind::Medium { len: 0, .. } => "I/O error",
            ErrorKind::Medium { offset, len } => {
                let context = &self.0.context;
                return write!(f, "{context}: I/O error on {len} bytes at offset {offset}");
            }
            ErrorKind::Timeout => "no answer in time",
            ErrorKind::Gone => "the disk is gone",
            ErrorKind::Truncated => "the disk has lost bytes",
            ErrorKind::Fenced => "the disk has a newer owner",
            ErrorKind::NoSpace => "no space left",
            ErrorKind::Refused => "refused",
        };
        write!(f, "{}: {what}", self.0.context)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}({self})", self.0.kind)
    }
}

impl error::Error for Error {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        self.0.source.as_ref().map(|source| source.as_ref() as _)
    }
}
