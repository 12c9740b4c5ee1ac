//! Which member of an array is replaced now, and why others wait.
//!
//! Never two members of one array at a time: a wrong guess then costs one copy, not the array.

use super::{Level, Policy};

/// A member that could be replaced, or a spare.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedMember {
    /// Its UUID.
    pub member: String,
    /// How bad its disk is.
    pub level: Level,
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
        plan
    }
}
