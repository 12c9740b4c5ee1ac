//! The decision store as the coordinator sees it: one register with compare-and-set.
//!
//! A file on one host, a key of etcd on several, a value in the simulator. It holds a few hundred
//! bytes and changes a few times per membership change, never per request.
//!
//! A compare-and-set whose answer is lost has an *unknown* outcome, and may still take effect
//! later. The coordinator then reads the register and looks for its own term and name. A late
//! success of an older attempt makes a newer one conflict, which leads to the same reading.
//!
//! Invariant: term and epoch of the register never decrease.

use crate::config::Config;
use crate::ids::{CandidateId, Term};

/// The register's version; every change increments it (etcd: `mod_revision`).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Version(pub u64);

/// The register's content.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Value {
    /// The term of the last takeover.
    pub term: Term,
    /// The candidate that took over.
    pub leader: CandidateId,
    /// The membership.
    pub config: Config,
}

/// A request to the store.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Request {
    /// A linearizable read.
    Read,
    /// Replace the content if its version is still this one.
    Cas(Version, Value),
}

/// The outcome of a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// The content: of a read, or the new one of a successful replacement.
    Done(Version, Value),
    /// The version was another one; this is the content.
    Conflict(Version, Value),
    /// A timeout or a lost connection: the request may have taken effect, or may do so later.
    Unknown,
}
