//! A failure in words, with the place to look.

use std::fmt;

/// A sentence for readers of the table of outcomes.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    what: String,
    kind: Kind,
}

/// The object of a failure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// Parapet, or the kernel.
    Fault,
    /// Nothing: it could not be tried, since the kernel lacks something.
    Lacking,
    /// Nothing: the guest died.
    Guest,
}

pub(crate) type Result<T = ()> = std::result::Result<T, Failure>;

impl Failure {
    pub(crate) fn new(what: impl Into<String>) -> Failure {
        Failure { what: what.into(), kind: Kind::Fault }
    }

    /// The feature that the kernel lacks.
    pub(crate) fn lacking(what: impl Into<String>) -> Failure {
        Failure { what: what.into(), kind: Kind::Lacking }
    }

    pub(crate) fn is_skip(&self) -> bool {
        self.kind == Kind::Lacking
    }

    /// The guest died by itself, whatever it was doing. User-mode Linux takes its host's signals on
    /// stacks of 8 KiB, and a machine with large vector registers may need more for two at once:
    /// then it is killed (`overflowed sigaltstack` in the host's log). Or the kernel reports a bug
    /// of its own: ublk of Linux 6.12 sometimes, when its server is killed.
    pub(crate) fn of_guest(what: impl Into<String>) -> Failure {
        Failure { what: what.into(), kind: Kind::Guest }
    }

    /// True if it is worth another try.
    pub(crate) fn is_of_guest(&self) -> bool {
        self.kind == Kind::Guest
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Failure {
        Failure::new(format!("the machine: {error}"))
    }
}

/// Fails with `what`, unless the condition holds.
pub(crate) fn ensure(is_so: bool, what: impl FnOnce() -> String) -> Result {
    if is_so { Ok(()) } else { Err(Failure::new(what())) }
}
