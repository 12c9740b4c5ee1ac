//! Judges the members of an array: which ones have the latest history, and which others belong to
//! it.
//!
//! Owns the judgement on event counts and role tables. Pure: superblocks in, standings out.
//!
//! md counts the changes of the metadata (*events*). A count alone proves little. A member that
//! failed and missed a day of writes can be one event behind, and so can a member that missed only
//! the last superblock because of a crash. (Data was lost so in the field: linux-raid, 2023-11-22.)
//! The *role table* of the freshest superblock separates the two:
//!
//! ```text
//!            events   its table                          judged by the freshest (14)
//!   a.img      14     a: slot 0   b: slot 1   c: faulty  freshest
//!   b.img      13     a: slot 0   b: slot 1   c: slot 2  crash in between: accepted
//!   c.img      13     a: slot 0   b: slot 1   c: slot 2  marked faulty by a: stale
//! ```
//!
//! Two members that each list the other as faulty have been written apart: split brain. No rule can
//! decide which history is wanted, so this is refused, with two exceptions. If both list a third
//! member as active, one of them was removed first and returned, and the other was removed later.
//! The third member has the complete history, though it is absent. And present members may prove
//! the order:
//!
//! ```text
//!   b.img   5   a: faulty  b: slot 1  c: slot 2     when b was removed, c went on
//!   c.img   9   a: slot 0  b: faulty  c: slot 2     when c was removed, a went on
//!   a.img  12   a: slot 0  b: faulty  c: faulty     freshest; c precedes it, and b precedes c
//! ```
//!
//! A member precedes another one that it lists as active and that has at least as many events. The
//! other one has taken part in every write of the first, and has only gone on since.

use std::cmp::Reverse;

use io::broken::{Broken, broken};
use layout::Slot;
use layout::md::Features;
use layout::md::superblock::{Role, Superblock};

/// The standing of a member.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Standing {
    /// It holds this slot, or is the replacement for it.
    Active(Slot),
    /// It is a spare.
    Spare,
    /// It is left out.
    Stale(StaleReason),
}

/// The reason why a member is left out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum StaleReason {
    /// The others marked it faulty.
    GivenUp,
    /// It is listed, but missed more than one event.
    Behind,
    /// It is listed and one event behind, and took no part in that event (`rolled_back.rs`).
    RolledBack,
    /// It has the last event, and lost the other structures of it (`rolled_back.rs`).
    Hollow,
    /// Another disk has its number now.
    Replaced,
    /// The others' table does not go as far as its number.
    Unknown,
    /// Its claim to this slot contradicts the others.
    Elsewhere(u16),
}

/// The judgement on members that belong to one array.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct History {
    /// The member with the trusted superblock.
    pub(crate) freshest: usize,
    /// The standing of each, in the order given.
    pub(crate) standings: Vec<Standing>,
}

/// Split brain: two groups that each went on without the other.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Divergence {
    /// The members with the freshest superblock's history.
    pub(crate) ours: Vec<usize>,
    /// The members that went on without them.
    pub(crate) theirs: Vec<usize>,
}

/// True if the writer of this superblock had removed the member with this number. It is marked
/// faulty, or it is one of the array's first members and has no slot any more. A later number is
/// only unknown.
pub(crate) fn excludes(superblock: &Superblock, number: u32) -> bool {
    match superblock.roles.get(number as usize) {
        Some(Role::Slot(_) | Role::Journal) => false,
        Some(Role::Faulty) => true,
        Some(Role::Spare) | None => number < superblock.raid_disks,
    }
}

/// The difference between the shapes of two members, if any.
pub(crate) fn difference(ours: &Superblock, theirs: &Superblock) -> Option<String> {
    let differ = |what: &str, ours: i128, theirs: i128| {
        (ours != theirs).then(|| format!("{what} {theirs}, the others have {ours}"))
    };
    let layout = |superblock: &Superblock| match superblock.level {
        // mdadm and kernels store arbitrary values where a level has only one layout.
        -1 | 1 | 4 => 0,
        _ => superblock.layout.into(),
    };
    differ("level", ours.level.into(), theirs.level.into())
        .or_else(|| differ("layout", layout(ours), layout(theirs)))
        .or_else(|| differ("chunk sectors", ours.chunk_sectors.into(), theirs.chunk_sectors.into()))
        .or_else(|| differ("slots", ours.raid_disks.into(), theirs.raid_disks.into()))
        .or_else(|| differ("used sectors", ours.size.into(), theirs.size.into()))
        .or_else(|| (ours.magic != theirs.magic).then(|| "another format".to_string()))
}

/// Judges members of one array; no two of them have both number and device UUID in common.
///
/// # Errors
/// [`Divergence`] if two groups went on without each other.
///
/// # Panics
/// If there are none.
pub(crate) fn judge(members: &[&Superblock]) -> Result<History, Divergence> {
    let freshest = freshest(members);
    let standings: Vec<Standing> =
        (0..members.len()).map(|index| standing(members, freshest, index)).collect();
    let active: Vec<usize> = (0..members.len())
        .filter(|&index| matches!(standings[index], Standing::Active(_)))
        .collect();
    let witnessed = |member: &Superblock| {
        let both = members[freshest].roles.iter().zip(&member.roles).zip(0..);
        both.into_iter().any(|((ours, theirs), number)| {
            let slots = matches!((ours, theirs), (Role::Slot(a), Role::Slot(b)) if a == b);
            slots && members.iter().all(|present| present.device.number != number)
        })
    };
    let apart = (0..members.len()).filter(|&index| {
        let member = members[index];
        if index == freshest || !matches!(member.own_role(), Role::Slot(_)) {
            return false;
        }
        let without = |other: &usize| excludes(member, members[*other].device.number);
        match standings[index] {
            // It is listed as active, yet it has removed the member that lists it. Not because that
            // member was away, or it would be in rebuild now. So it was written alone.
            Standing::Active(_) => {
                !members[freshest].features.contains(Features::RECOVERY_OFFSET)
                    && matches!(members[freshest].own_role(), Role::Slot(_))
                    && without(&freshest)
            }
            Standing::Stale(_) => {
                let behind = || goes_on_in(members, index, freshest);
                !active.is_empty() && active.iter().all(without) && !witnessed(member) && !behind()
            }
            Standing::Spare => false,
        }
    });
    let theirs: Vec<usize> = apart.collect();
    if theirs.is_empty() || broken(Broken::DivergenceAccepted) {
        return Ok(History { freshest, standings });
    }
    let ours = active.into_iter().filter(|index| !theirs.contains(index)).collect();
    Err(Divergence { ours, theirs })
}

/// True if present members prove, one after the other, that every write of this one is in the
/// history of the freshest.
fn goes_on_in(members: &[&Superblock], index: usize, freshest: usize) -> bool {
    let (mut known, mut next) = (vec![false; members.len()], vec![index]);
    while let Some(at) = next.pop() {
        if std::mem::replace(&mut known[at], true) || broken(Broken::WitnessUnheard) {
            continue;
        }
        let lists = |other: &Superblock| {
            let role = members[at].roles.get(other.device.number as usize);
            let holds = matches!(other.own_role(), Role::Slot(_));
            holds && matches!(role, Some(Role::Slot(_))) && other.events >= members[at].events
        };
        next.extend((0..members.len()).filter(|&other| lists(members[other])));
    }
    known[freshest]
}

/// The member with the most events. Among equals, one that no other removed: a crash may have left
/// a superblock of a commit that never completed, and the others may have reused its number.
fn freshest(members: &[&Superblock]) -> usize {
    let key = |&index: &usize| {
        let member = members[index];
        let given_up = members
            .iter()
            .any(|other| other.events >= member.events && excludes(other, member.device.number));
        let holds_slot = matches!(member.own_role(), Role::Slot(_));
        // The order of the arguments must not matter.
        let identity = (Reverse(member.device.number), member.device.uuid.0);
        (member.events, !given_up, holds_slot, identity)
    };
    (0..members.len()).rev().max_by_key(key).expect("there are members")
}

fn standing(members: &[&Superblock], freshest: usize, index: usize) -> Standing {
    let (member, latest) = (members[index], members[freshest]);
    let number = member.device.number;
    let (own, last) = (member.events, latest.events);
    assert!(own <= last, "a member of event {own} is judged by one of event {last}");
    let newer = |&(other, superblock): &(usize, &&Superblock)| {
        let rank = |at: usize| (members[at].events, at == freshest, members[at].device.uuid.0, at);
        other != index && superblock.device.number == number && rank(other) > rank(index)
    };
    if members.iter().enumerate().any(|pair| newer(&pair)) {
        return Standing::Stale(StaleReason::Replaced);
    }
    let listed = match latest.roles.get(number as usize) {
        Some(&Role::Slot(slot)) if u32::from(slot) >= latest.raid_disks => Role::Spare,
        Some(&role) => role,
        None => return Standing::Stale(StaleReason::Unknown),
    };
    let trusted = broken(Broken::EventsDecide) && latest.events - member.events <= 1;
    let listed = if trusted { member.own_role() } else { listed };
    match (listed, member.own_role()) {
        (Role::Slot(slot), Role::Slot(own)) if own != slot => {
            Standing::Stale(StaleReason::Elsewhere(own))
        }
        (Role::Slot(slot), Role::Slot(_)) if latest.events - member.events <= 1 => {
            Standing::Active(Slot::new(slot.into()))
        }
        (Role::Slot(_), Role::Slot(_)) => Standing::Stale(StaleReason::Behind),
        // A spare that was just assigned to the slot: its contents are not valid yet. One that has
        // missed more events may have lost its number to an absent disk, which holds the slot.
        (Role::Slot(slot), Role::Spare) if latest.events - member.events <= 1 => {
            Standing::Active(Slot::new(slot.into()))
        }
        (Role::Slot(_), Role::Spare) => Standing::Stale(StaleReason::Behind),
        (Role::Spare, Role::Spare) => Standing::Spare,
        _ => Standing::Stale(StaleReason::GivenUp),
    }
}

#[cfg(test)]
mod tests;
