//! Slots and sets of slots, and the few numbers that must not be mixed up.
//!
//! Offsets and lengths are plain `u64` bytes everywhere outside the on-disk formats; a name says
//! which space they live in (`array_offset`, `member_offset`). An index is a type of its own.

use core::fmt;

/// The most members an array can have: a [`SlotSet`] is one machine word pair.
pub const MAX_SLOTS: usize = 128;

/// The place of a member in an array: 0 ≤ slot < members. md calls it `raid_disk` or role.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Slot(pub u8);

impl Slot {
    /// As an index into a table with one entry per slot.
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// The slot at `index`.
    ///
    /// # Panics
    /// If `index` is not below [`MAX_SLOTS`].
    pub const fn new(index: usize) -> Slot {
        assert!(index < MAX_SLOTS);
        Slot(index as u8)
    }
}

impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The index of a stripe: one chunk on each member, counted from the start of the array.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Stripe(pub u64);

/// The number of a configuration of an array. It only grows.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Epoch(pub u64);

/// A set of slots (or of indices into a stripe's data), at most [`MAX_SLOTS`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct SlotSet(u128);

impl SlotSet {
    /// No slot.
    pub const EMPTY: SlotSet = SlotSet(0);

    /// The slots `0..count`.
    pub const fn first(count: usize) -> SlotSet {
        assert!(count <= MAX_SLOTS);
        if count == MAX_SLOTS { SlotSet(u128::MAX) } else { SlotSet((1 << count) - 1) }
    }

    /// Just this one.
    pub const fn only(slot: Slot) -> SlotSet {
        SlotSet(1 << slot.0)
    }

    /// True if `slot` is in the set.
    pub const fn contains(self, slot: Slot) -> bool {
        self.0 >> slot.0 & 1 == 1
    }

    /// Adds `slot`.
    pub const fn insert(&mut self, slot: Slot) {
        self.0 |= 1 << slot.0;
    }

    /// Takes `slot` out.
    pub const fn remove(&mut self, slot: Slot) {
        self.0 &= !(1 << slot.0);
    }

    /// The set with `slot` in it.
    #[must_use]
    pub const fn with(self, slot: Slot) -> SlotSet {
        SlotSet(self.0 | 1 << slot.0)
    }

    /// The set without `slot`.
    #[must_use]
    pub const fn without(self, slot: Slot) -> SlotSet {
        SlotSet(self.0 & !(1 << slot.0))
    }

    /// Slots in either.
    #[must_use]
    pub const fn union(self, other: SlotSet) -> SlotSet {
        SlotSet(self.0 | other.0)
    }

    /// Slots in both.
    #[must_use]
    pub const fn intersection(self, other: SlotSet) -> SlotSet {
        SlotSet(self.0 & other.0)
    }

    /// Slots in `self` but not in `other`.
    #[must_use]
    pub const fn difference(self, other: SlotSet) -> SlotSet {
        SlotSet(self.0 & !other.0)
    }

    /// How many slots.
    pub const fn count(self) -> usize {
        self.0.count_ones() as usize
    }

    /// True if there is none.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// True if every slot of `self` is in `other`.
    pub const fn is_subset(self, other: SlotSet) -> bool {
        self.0 & !other.0 == 0
    }

    /// The slots in ascending order.
    pub fn iter(self) -> impl Iterator<Item = Slot> {
        let mut rest = self.0;
        core::iter::from_fn(move || {
            if rest == 0 {
                return None;
            }
            let slot = Slot(rest.trailing_zeros() as u8);
            rest &= rest - 1;
            Some(slot)
        })
    }
}

impl FromIterator<Slot> for SlotSet {
    fn from_iter<I: IntoIterator<Item = Slot>>(slots: I) -> SlotSet {
        slots.into_iter().fold(SlotSet::EMPTY, SlotSet::with)
    }
}

impl fmt::Debug for SlotSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter().map(|slot| slot.0)).finish()
    }
}
