//! Bytes that a write of an earlier connection may still change.

use std::ops::Range;

use io::Time;
use io::broken::{Broken, broken};

/// See the module.
#[derive(Default)]
pub(super) struct Quarantine(Vec<Suspect>);

/// A write whose outcome is unknown.
struct Suspect {
    /// The operation; the same one may be sent again, since its content is the same.
    operation: u64,
    range: Range<u64>,
    until: Time,
}

impl Quarantine {
    /// Adds the write of this operation.
    pub(super) fn add(&mut self, operation: u64, range: Range<u64>, until: Time) {
        self.0.push(Suspect { operation, range, until });
    }

    /// When `operation` may write to these bytes; none if it may now.
    pub(super) fn blocks(&self, operation: u64, range: &Range<u64>, now: Time) -> Option<Time> {
        if broken(Broken::RemoteQuarantineIgnored) {
            return None;
        }
        let overlaps = |it: &&Suspect| it.range.start < range.end && range.start < it.range.end;
        let suspects = self.0.iter().filter(|it| it.operation != operation && it.until > now);
        suspects.filter(overlaps).map(|it| it.until).max()
    }

    /// The end of the last suspect; none if there is none any more.
    pub(super) fn ends(&mut self, now: Time) -> Option<Time> {
        self.0.retain(|it| it.until > now);
        self.0.iter().map(|it| it.until).max()
    }
}
