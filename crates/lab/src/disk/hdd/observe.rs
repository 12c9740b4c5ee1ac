//! What the heads do, for plots.

use super::super::Nanos;

/// What the heads do.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Activity {
    /// Nothing.
    Idle,
    /// They read on after a read, for the cache.
    ReadAhead,
    /// The controller decodes a command; the heads wait for it.
    Command,
    /// The arm moves, or changes heads, or settles.
    Seek,
    /// They wait for the first sector.
    Rotate,
    /// Sectors pass.
    Transfer,
    /// They lose revolutions within a write (see [`super::Lost`]).
    LostRevolution,
}

/// The heads did one thing for a while.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span {
    /// From when.
    pub from: Nanos,
    /// Until when.
    pub until: Nanos,
    /// What.
    pub activity: Activity,
    /// On which cylinder, at its end.
    pub cylinder: u32,
}

/// Gets the spans in order, without gaps; none is empty.
pub type Observer = Box<dyn FnMut(Span)>;
