//! Which member of an array is replaced or read now, and why others wait.
//!
//! | level | step |
//! |---|---|
//! | suspect, with errors at known places | compare the array around them |
//! | replace | copy it to the best spare |
//!
//! Never two members of one array at a time: a wrong guess then costs one copy, not the array.

use std::ops::Range;
use std::time::Duration;

use super::{Level, Policy};

/// Latent sector errors are clustered (Bairavasundaram et al., SIGMETRICS 2007): so many bytes of
/// the array on each side of an error are read.
const AROUND_BYTES: u64 = 128 << 20;
/// The most that is read at once; the rest waits for its turn, or for the scrub.
const MOST_BYTES: u64 = 1 << 30;
/// Pause between two reads of one array: a disk that errs again and again is not read without end.
const PAUSE: Duration = Duration::from_secs(3600);

/// A member that could be replaced, or a spare.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedMember {
    /// Its UUID.
    pub member: String,
    /// How bad its disk is.
    pub level: Level,
    /// Where it gave errors that no scrub has covered since, in bytes of the array.
    pub places: Vec<Range<u64>>,
}

/// An array, as the plan sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// Members in sync that nothing replaces, in the order of their slots.
    pub members: Vec<PlannedMember>,
    /// Its spares.
    pub spares: Vec<PlannedMember>,
    /// True if every slot has a member in sync.
    pub is_whole: bool,
    /// True if a member is being replaced.
    pub is_replacing: bool,
    /// True if the array accepts writes.
    pub is_writable: bool,
    /// True while it works in the background.
    pub is_busy: bool,
    /// Time since a part of it was read; none if none was.
    pub since_read: Option<Duration>,
    /// Its size in bytes.
    pub capacity: u64,
}

/// Why a member that should be replaced is not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wait {
    /// The policy only reports.
    Policy,
    /// The array is read-only.
    ReadOnly,
    /// Another member is being replaced.
    Other,
    /// A member is missing or being rebuilt.
    Degraded,
    /// The array has no spare that is better.
    NoSpare,
}

impl Wait {
    /// The reason as a clause.
    pub fn words(self) -> &'static str {
        match self {
            Wait::Policy => "the policy is to report only",
            Wait::ReadOnly => "the array is read-only",
            Wait::Other => "waiting: another member is being replaced",
            Wait::Degraded => "waiting: a member is missing or being rebuilt",
            Wait::NoSpare => "the array has no spare",
        }
    }
}

/// What to do in one array.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// The member to replace, and the spare that takes over.
    pub replace: Option<(String, String)>,
    /// Members that should be replaced and are not.
    pub waiting: Vec<(String, Wait)>,
    /// The suspect whose surroundings are to be compared, and these: bytes of the array.
    pub read: Option<(String, Range<u64>)>,
}

impl Plan {
    /// Plans for an array.
    pub fn of(policy: Policy, array: &Standing) -> Plan {
        let mut bad: Vec<&PlannedMember> =
            array.members.iter().filter(|it| it.level >= Level::Replace).collect();
        // Stable: among equals, the lowest slot.
        bad.sort_by_key(|it| std::cmp::Reverse(it.level));
        let spare = array.spares.iter().filter(|it| it.level < Level::Suspect);
        let spare = spare.min_by_key(|it| it.level);
        let obstacle = match () {
            () if policy != Policy::ReplaceIfSpare => Some(Wait::Policy),
            () if !array.is_writable => Some(Wait::ReadOnly),
            () if array.is_replacing => Some(Wait::Other),
            () if !array.is_whole => Some(Wait::Degraded),
            () => None,
        };
        let mut plan = Plan::default();
        for it in bad {
            let wait = match (obstacle, spare) {
                (Some(obstacle), _) => obstacle,
                (None, None) => Wait::NoSpare,
                (None, Some(spare)) if plan.replace.is_none() => {
                    plan.replace = Some((it.member.clone(), spare.member.clone()));
                    continue;
                }
                (None, Some(_)) => Wait::Other,
            };
            plan.waiting.push((it.member.clone(), wait));
        }
        // A copy reads the whole member.
        if obstacle.is_none() && plan.replace.is_none() {
            plan.read = array.next_read();
        }
        plan
    }
}

impl Standing {
    /// The worst suspect with places, and what to compare because of it.
    fn next_read(&self) -> Option<(String, Range<u64>)> {
        if self.is_busy || self.since_read.is_some_and(|since| since < PAUSE) {
            return None;
        }
        let suspects = self.members.iter().filter(|it| it.level >= Level::Suspect);
        let with_places = suspects.filter(|it| !it.places.is_empty());
        // Among equals, the lowest slot.
        let worst = with_places.min_by_key(|it| std::cmp::Reverse(it.level))?;
        Some((worst.member.clone(), around(&worst.places, self.capacity)?))
    }
}

/// The surroundings of the first place, and of those that lie close behind.
fn around(places: &[Range<u64>], capacity: u64) -> Option<Range<u64>> {
    let wide = |place: &Range<u64>| {
        let end = place.end.saturating_add(AROUND_BYTES).min(capacity);
        place.start.saturating_sub(AROUND_BYTES)..end
    };
    let mut places: Vec<Range<u64>> = places.iter().map(wide).collect();
    places.retain(|place| !place.is_empty());
    places.sort_by_key(|place| place.start);
    let mut whole = places.first()?.clone();
    for place in &places[1..] {
        if place.start > whole.end || place.end - whole.start > MOST_BYTES {
            break;
        }
        whole.end = whole.end.max(place.end);
    }
    whole.end = whole.end.min(whole.start.saturating_add(MOST_BYTES));
    Some(whole)
}
