//! The membership of an array: which member holds which slot.
//!
//! Plain data. The superblocks record it, the keeper decides it, every shard has a copy.

use alloc::vec::Vec;

use crate::{Epoch, Slot, SlotSet};

/// Names a member for as long as the array runs: md's `dev_number`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct MemberId(pub u32);

impl MemberId {
    /// The journal device: no member in md's sense, and in no slot.
    pub const JOURNAL: MemberId = MemberId(u32::MAX);
}

/// May the array be written?
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Mode {
    /// Reads and writes.
    #[default]
    ReadWrite,
    /// Reads only, by order of the user.
    ReadOnly,
    /// Members have no space for a write, more of them than the level tolerates: all data is read,
    /// nothing is written.
    Full,
    /// More members are lost than the level tolerates: readable data is read, nothing is written.
    Broken,
}

impl Mode {
    /// Nothing is written until the array is restarted.
    pub fn is_final(self) -> bool {
        matches!(self, Mode::Full | Mode::Broken)
    }
}

/// The member of a slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SlotAssignment {
    /// The member, if there is one.
    pub member: Option<MemberId>,
    /// The array offset up to which the member is in sync; `None` if it is in sync everywhere.
    pub recovered: Option<u64>,
    /// A member that is being made a copy of the slot, and up to which array offset it is one.
    pub replacement: Option<(MemberId, u64)>,
}

/// The membership of an array at one epoch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Configuration {
    /// Its number.
    pub epoch: Epoch,
    /// The member of each slot.
    pub slots: Vec<SlotAssignment>,
    /// Members that wait for a slot to become free.
    pub spares: Vec<MemberId>,
    /// The device that the log lies on; `None`: on the members, if there is one.
    pub journal: Option<MemberId>,
    /// May the array be written?
    pub mode: Mode,
}

impl Configuration {
    /// Slots that hold all that they should.
    pub fn in_sync(&self) -> SlotSet {
        let whole = |(_, assignment): &(usize, &SlotAssignment)| {
            assignment.member.is_some() && assignment.recovered.is_none()
        };
        self.slots.iter().enumerate().filter(whole).map(|(slot, _)| Slot::new(slot)).collect()
    }

    /// Slots that have a member, whole or being rebuilt.
    pub fn present(&self) -> SlotSet {
        let held = |(_, assignment): &(usize, &SlotAssignment)| assignment.member.is_some();
        self.slots.iter().enumerate().filter(held).map(|(slot, _)| Slot::new(slot)).collect()
    }

    /// Every member with a slot, replacements included.
    pub fn assigned(&self) -> impl Iterator<Item = (Slot, MemberId)> + '_ {
        self.slots.iter().enumerate().flat_map(|(slot, assignment)| {
            let replacement = assignment.replacement.map(|(id, _)| id);
            assignment.member.into_iter().chain(replacement).map(move |id| (Slot::new(slot), id))
        })
    }

    /// True if the member of a slot holds all below this array offset.
    pub fn is_readable(&self, slot: Slot, end: u64) -> bool {
        let assignment = &self.slots[slot.index()];
        assignment.member.is_some() && assignment.recovered.is_none_or(|below| end <= below)
    }

    /// Checks that every member has one place at most.
    ///
    /// # Panics
    /// If one has several: one place's writes would overwrite the other's.
    pub fn assert_consistent(&self) {
        let mut all: Vec<MemberId> = self.assigned().map(|(_, id)| id).collect();
        all.extend(self.spares.iter().chain(&self.journal));
        let places = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), places, "a member has several places: {self:?}");
    }

    /// Members that are being filled, or else copies, where this one is whole.
    pub fn filled_beside(&self, whole: MemberId) -> Vec<MemberId> {
        let is_whole = |assignment: &SlotAssignment| {
            assignment.member == Some(whole) && assignment.recovered.is_none()
        };
        if !self.slots.iter().any(is_whole) {
            return Vec::new();
        }
        let filled = self.slots.iter().filter(|assignment| assignment.recovered.is_some());
        let filled: Vec<MemberId> = filled.filter_map(|assignment| assignment.member).collect();
        if !filled.is_empty() {
            return filled;
        }
        self.slots
            .iter()
            .filter_map(|assignment| assignment.replacement)
            .map(|(id, _)| id)
            .collect()
    }

    /// The slot a member sits in, and whether as a replacement.
    pub fn slot_of(&self, id: MemberId) -> Option<(Slot, bool)> {
        self.assigned().find(|&(_, assigned)| assigned == id).map(|(slot, _)| {
            let replacement = self.slots[slot.index()]
                .replacement
                .is_some_and(|(replacement, _)| replacement == id);
            (slot, replacement)
        })
    }
}
