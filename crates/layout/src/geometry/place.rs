//! Places of array bytes on members, and owners of member bytes: the answers of the map.
//!
//! Owns no rule but how copies follow from the first one. Never allocates.

use crate::units::{Slot, Stripe};

/// A byte on a member.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Place {
    /// The member.
    pub slot: Slot,
    /// Bytes from the member's data offset.
    pub member_offset: u64,
}

/// All copies of an array byte, and how far they run on side by side.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Places {
    /// This many bytes from here on have their copies on the same slots, at consecutive offsets: >
    /// 0.
    pub len: u64,
    /// Of copy 0.
    pub(super) member_offset: u64,
    /// Bytes from a stripe to the next, where near copies go on at slot 0.
    pub(super) next: u64,
    /// Bytes from a far copy to the next.
    pub(super) stride: u64,
    /// The slot of copy 0.
    pub(super) first: u8,
    /// Members of the array.
    pub(super) slots: u8,
    pub(super) near: u8,
    pub(super) far: u8,
}

impl Places {
    /// One copy.
    pub(super) const fn one(Slot(first): Slot, member_offset: u64, len: u64) -> Places {
        let slots = first + 1;
        Places { len, member_offset, next: 0, stride: 0, first, slots, near: 1, far: 1 }
    }

    /// A copy on each of `slots` members at the same offset.
    pub(super) const fn near(slots: u8, member_offset: u64, len: u64) -> Places {
        Places { len, member_offset, next: 0, stride: 0, first: 0, slots, near: slots, far: 1 }
    }

    /// How many copies: ≥ 1.
    pub const fn count(&self) -> usize {
        self.near as usize * self.far as usize
    }

    /// Copy `index`, in md's order: the near copies, each followed by its far copies.
    ///
    /// # Panics
    /// If `index` is not below [`Places::count`].
    pub const fn copy(&self, index: usize) -> Place {
        assert!(index < self.count());
        let (near, far) = if self.far == 1 {
            (index, 0)
        } else {
            (index / self.far as usize, index % self.far as usize)
        };
        let slots = self.slots as usize;
        let mut slot = self.first as usize + near;
        let mut member_offset = self.member_offset + far as u64 * self.stride;
        if slot >= slots {
            slot -= slots;
            member_offset += self.next;
        }
        // A far copy is less than a turn away: near · far ≤ slots.
        slot += far * self.near as usize;
        if slot >= slots {
            slot -= slots;
        }
        assert!(slot < slots, "a copy on a slot that the array does not have");
        Place { slot: Slot(slot as u8), member_offset }
    }

    /// Every copy, in order; no two on one slot.
    pub fn copies(&self) -> impl ExactSizeIterator<Item = Place> + use<> {
        let places = *self;
        (0..self.count()).map(move |index| places.copy(index))
    }

    /// The copy on `slot`, with its index.
    pub fn on(&self, slot: Slot) -> Option<(usize, Place)> {
        self.copies().enumerate().find(|(_, place)| place.slot == slot)
    }
}

/// The content at an offset of a member, and for how many bytes the same answer continues.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Owner {
    /// Bytes of the array.
    Data {
        /// The array byte.
        array_offset: u64,
        /// Consecutive here and in the array: > 0.
        len: u64,
        /// Which copy, as [`Places::copy`] counts.
        copy: usize,
    },
    /// P of this stripe; the offset in the chunk is the member offset less the stripe's.
    P {
        /// The stripe.
        stripe: Stripe,
        /// To the end of the chunk: > 0.
        len: u64,
    },
    /// Q of this stripe.
    Q {
        /// The stripe.
        stripe: Stripe,
        /// To the end of the chunk: > 0.
        len: u64,
    },
    /// Nothing: free chunks of a last stripe, or beyond the used part.
    Unused {
        /// To the next chunk; past the used bytes, to the end of the offsets.
        len: u64,
    },
}

impl Owner {
    /// For how many bytes the answer holds.
    pub const fn bytes(&self) -> u64 {
        match *self {
            Owner::Data { len, .. }
            | Owner::P { len, .. }
            | Owner::Q { len, .. }
            | Owner::Unused { len } => len,
        }
    }
}
