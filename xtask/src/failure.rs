//! A failure and its remedy, for the person at the terminal.

use std::fmt;

/// Why a verb did not succeed. Both halves are complete phrases without a full stop.
#[derive(Debug)]
pub(crate) struct Failure {
    what: String,
    remedy: String,
}

impl Failure {
    /// Everything has been said already.
    pub(crate) fn reported() -> Failure {
        Failure::new("", "")
    }

    /// False if there is nothing left to say.
    pub(crate) fn has_news(&self) -> bool {
        !self.what.is_empty()
    }

    /// `what` happened; do `remedy`.
    pub(crate) fn new(what: impl Into<String>, remedy: impl Into<String>) -> Failure {
        Failure { what: what.into(), remedy: remedy.into() }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.what, self.remedy)
    }
}
