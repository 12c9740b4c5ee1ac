//! Errors of an array, by the action that they call for.

use std::{error, fmt};

use layout::Slot;

/// The result of an operation on an array.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What to do about an error.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ErrorKind {
    /// Try again: the configuration changed meanwhile.
    Retry,
    /// A member was lost; the array continues without it.
    MemberLost,
    /// The array accepts no writes.
    ReadOnly,
    /// The stores of members are full: nothing is written any more.
    NoSpace,
    /// More is missing than redundancy can recover: these bytes are lost.
    DataLost,
    /// The request is wrong, or comes at the wrong time; nothing was changed.
    Refused,
    /// An internal contradiction. Please report it.
    Bug,
}

/// An error with its context.
#[derive(Clone)]
pub struct Error(Box<Inner>);

#[derive(Clone)]
struct Inner {
    kind: ErrorKind,
    slot: Option<Slot>,
    offset: Option<u64>,
    message: String,
    source: Option<io::Error>,
}

impl Error {
    /// An error of this kind; `message` states the problem and a hint.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Error {
        let message = message.into();
        Error(Box::new(Inner { kind, slot: None, offset: None, message, source: None }))
    }

    /// The request is wrong or comes at the wrong time.
    pub fn refused(message: impl Into<String>) -> Error {
        Error::new(ErrorKind::Refused, message)
    }

    /// The same error, in this slot.
    #[must_use]
    pub fn in_slot(mut self, slot: Slot) -> Error {
        self.0.slot = Some(slot);
        self
    }

    /// The same error, at this offset of the array.
    #[must_use]
    pub fn at(mut self, array_offset: u64) -> Error {
        self.0.offset = Some(array_offset);
        self
    }

    /// The same error, with the disk's error as its source.
    #[must_use]
    pub fn because(mut self, source: io::Error) -> Error {
        self.0.source = Some(source);
        self
    }

    /// The kind, which determines what to do next.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The slot concerned.
    pub fn slot(&self) -> Option<Slot> {
        self.0.slot
    }

    /// The error in the form for a client that uses the array as a disk.
    pub fn into_io(self, array: &str, offset: u64, len: u64) -> io::Error {
        let kind = match self.0.kind {
            ErrorKind::DataLost | ErrorKind::MemberLost => io::ErrorKind::Medium { offset, len },
            ErrorKind::NoSpace => io::ErrorKind::NoSpace,
            ErrorKind::Retry => io::ErrorKind::Timeout,
            ErrorKind::ReadOnly | ErrorKind::Refused => io::ErrorKind::Refused,
            ErrorKind::Bug => io::ErrorKind::Gone,
        };
        io::Error::new(kind, format!("array {array}")).with_source(self)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)?;
        if let Some(slot) = self.0.slot {
            write!(f, " (slot {slot})")?;
        }
        if let Some(offset) = self.0.offset {
            write!(f, " (array offset {offset})")?;
        }
        if let Some(source) = &self.0.source {
            write!(f, ": {source}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}({self})", self.0.kind)
    }
}

impl error::Error for Error {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        self.0.source.as_ref().map(|source| source as _)
    }
}
