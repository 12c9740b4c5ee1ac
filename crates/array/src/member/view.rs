//! One shard's view of the configuration.
//!
//! A [`Configuration`] is plain data: the keeper decides it and sends it to every shard. A [`View`]
//! is what a shard makes of it, with its own handles on the members. A view never changes but for
//! the watermarks of slots being rebuilt; a new epoch brings a new view.

use std::cell::Cell;
use std::rc::Rc;

use io::broken::{Broken, broken};
use layout::{Configuration, Epoch, MemberId, Mode, Slot, SlotAssignment, SlotSet};

use crate::member::Member;

/// One shard's view of a slot.
pub(crate) struct SlotView {
    pub(crate) member: Option<Rc<Member>>,
    /// Bytes below this array offset are there; `u64::MAX` when all are.
    pub(crate) recovered_below: Cell<u64>,
    pub(crate) replacement: Option<Rc<Member>>,
    pub(crate) copied_below: Cell<u64>,
}

/// One shard's view of the configuration.
pub(crate) struct View {
    pub(crate) epoch: Epoch,
    pub(crate) mode: Mode,
    pub(crate) slots: Vec<SlotView>,
    /// The device that the log lies on, if it is not on the members.
    pub(crate) journal: Option<Rc<Member>>,
    /// Slots that hold all that they should: most questions end here.
    pub(crate) in_sync: SlotSet,
    /// Slots that have a member.
    pub(crate) present: SlotSet,
}

impl View {
    pub(crate) fn new(
        configuration: &Configuration,
        member: impl Fn(MemberId) -> Option<Rc<Member>>,
    ) -> View {
        let assignment = |assignment: &SlotAssignment| SlotView {
            member: assignment.member.and_then(&member),
            recovered_below: Cell::new(assignment.recovered.unwrap_or(u64::MAX)),
            replacement: assignment.replacement.and_then(|(id, _)| member(id)),
            copied_below: Cell::new(assignment.replacement.map_or(0, |(_, copied)| copied)),
        };
        View {
            epoch: configuration.epoch,
            mode: configuration.mode,
            slots: configuration.slots.iter().map(assignment).collect(),
            journal: configuration.journal.and_then(&member),
            in_sync: configuration.in_sync(),
            present: configuration.present(),
        }
    }

    /// Every slot holds all that it should.
    pub(crate) fn is_whole(&self) -> bool {
        self.in_sync.count() == self.slots.len()
    }

    /// The member in a slot.
    pub(crate) fn member(&self, slot: Slot) -> Option<&Rc<Member>> {
        self.slots[slot.index()].member.as_ref()
    }

    /// May these bytes of a member be read? The one place that decides it.
    pub(crate) fn is_readable(&self, slot: Slot, array_end: u64, at: u64, len: u64) -> bool {
        self.holding(slot, array_end).is_some_and(|member| member.is_good(at, len))
    }

    /// The member in a slot if it holds all below an array offset, but for its bad blocks.
    pub(crate) fn holding(&self, slot: Slot, array_end: u64) -> Option<&Rc<Member>> {
        let assignment = &self.slots[slot.index()];
        assignment.member.as_ref().filter(|_| {
            array_end <= assignment.recovered_below.get() || broken(Broken::ReadsUnrebuilt)
        })
    }

    /// Every member that must get what is written to a slot.
    pub(crate) fn targets(&self, slot: Slot) -> impl Iterator<Item = &Rc<Member>> {
        let assignment = &self.slots[slot.index()];
        let replacement =
            assignment.replacement.iter().filter(|_| !broken(Broken::CopyMissesWrites));
        assignment.member.iter().chain(replacement)
    }

    /// True if this member is the copy that is to take the slot.
    pub(crate) fn is_replacement(&self, slot: Slot, id: MemberId) -> bool {
        self.slots[slot.index()]
            .replacement
            .as_ref()
            .is_some_and(|replacement| replacement.id == id)
    }

    /// True if the array still relies on this member, or journal device.
    pub(crate) fn has(&self, id: MemberId) -> bool {
        let journal = self.journal.iter().any(|journal| journal.id == id);
        journal || self.members().any(|(_, member)| member.id == id)
    }

    /// Every member, with its slot.
    pub(crate) fn members(&self) -> impl Iterator<Item = (Slot, &Rc<Member>)> {
        self.slots.iter().enumerate().flat_map(|(slot, assignment)| {
            assignment
                .member
                .iter()
                .chain(assignment.replacement.iter())
                .map(move |m| (Slot::new(slot), m))
        })
    }
}
