//! What went wrong, in words, with where to look.

use std::fmt;

/// A sentence for who reads the table of outcomes.
#[derive(Debug)]
pub(crate) struct Failure {
    what: String,
    /// It could not be tried: the kernel lacks something.
    is_skip: bool,
}

pub(crate) type Result<T = ()> = std::result::Result<T, Failure>;

impl Failure {
    pub(crate) fn new(what: impl Into<String>) -> Failure {
        Failure { what: what.into(), is_skip: false }
    }

    /// What the kernel does not have.
    pub(crate) fn lacking(what: impl Into<String>) -> Failure {
        Failure { what: what.into(), is_skip: true }
    }

    pub(crate) fn is_skip(&self) -> bool {
        self.is_skip
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

/// `what`, unless it is so.
pub(crate) fn ensure(is_so: bool, what: impl FnOnce() -> String) -> Result {
    if is_so { Ok(()) } else { Err(Failure::new(what())) }
}
