//! RAID 1 and RAID 10: where the copies of a chunk are.
//!
//! Owns the near, far and offset rules. Never chooses a copy to read. RAID 1 is RAID 10 with as
//! many near copies as members: one stripe is one chunk, so that array and member offsets are equal
//! and the chunk does not matter.

use crate::units::{Slot, SlotSet};

use super::divisor::Divisor;
use super::{Owner, Places};

/// The map of an array of copies.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Mirror {
    near: u8,
    far: u8,
    offset: bool,
    /// Stripes that hold a set of near copies: the distance of far copies, md's stride.
    stripes: u64,
    /// Array chunks.
    chunks: u64,
    capacity: u64,
    /// By the chunk, a power of two.
    chunk: Divisor,
    /// By the members.
    slots: Divisor,
}

impl Mirror {
    /// RAID 1: `bytes` on each of `slots` members.
    pub(super) fn whole(slots: usize, bytes: u64) -> Mirror {
        Mirror {
            near: slots as u8,
            far: 1,
            offset: false,
            stripes: 1,
            chunks: 1,
            capacity: bytes,
            chunk: Divisor::new(bytes, bytes),
            slots: Divisor::new(slots as u64, 0),
        }
    }

    /// RAID 10: members of `member_chunks` chunks, near · far ≤ `slots`, far ≤ `member_chunks`.
    ///
    /// Each member is cut into `far` parts of equal length; the remainder is unused. md rounds the
    /// used chunks up if `near` does not divide them. That gives the same stripes, because at most
    /// near − 1 chunks of a last stripe are then free.
    pub(super) fn new(
        (near, far, offset): (u8, u8, bool),
        slots: usize,
        chunk: u64,
        member_chunks: u64,
    ) -> Mirror {
        let stripes = member_chunks / u64::from(far);
        let chunks = stripes * slots as u64 / u64::from(near);
        Mirror {
            near,
            far,
            offset,
            stripes,
            chunks,
            capacity: chunks * chunk,
            chunk: Divisor::new(chunk, u64::MAX),
            slots: Divisor::new(slots as u64, stripes * slots as u64),
        }
    }

    pub(super) const fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Used bytes of every member.
    pub(super) const fn member_bytes(&self) -> u64 {
        self.stripes * self.far as u64 * self.chunk.get()
    }

    pub(super) const fn copies(&self) -> usize {
        self.near as usize * self.far as usize
    }

    /// Array chunks after which the same slots hold the copies again.
    pub(super) const fn period(&self) -> u64 {
        self.slots.get() / gcd(self.slots.get(), self.near as u64)
    }

    /// A stripe holds one chunk, so that consecutive chunks are consecutive on each member.
    const fn is_contiguous(&self) -> bool {
        self.near as u64 == self.slots.get()
    }

    pub(super) const fn places(&self, array_offset: u64) -> Places {
        let slots = self.slots.get() as u8;
        if self.is_contiguous() {
            assert!(array_offset < self.capacity, "beyond the end of the array");
            let len = self.capacity - array_offset;
            return Places::near(slots, array_offset, len);
        }
        let (chunk, within) = self.chunk.split(array_offset);
        let (stripe, first) = self.slots.split(chunk * self.near as u64);
        let far = self.far as u64;
        let (stripe, stride) = if self.offset { (stripe * far, 1) } else { (stripe, self.stripes) };
        let chunk = self.chunk.get();
        let last = stripe * chunk + within + (far - 1) * stride * chunk;
        assert!(last < self.member_bytes(), "a copy beyond the end of its member");
        Places {
            len: chunk - within,
            member_offset: stripe * chunk + within,
            next: chunk,
            stride: stride * chunk,
            first: first as u8,
            slots,
            near: self.near,
            far: self.far,
        }
    }

    /// The content at an offset of a member within the used part.
    pub(super) const fn owner(&self, slot: Slot, member_offset: u64) -> Owner {
        if self.is_contiguous() {
            let (array_offset, len) = (member_offset, self.capacity - member_offset);
            return Owner::Data { array_offset, len, copy: slot.index() };
        }
        let (near, far, slots) = (self.near as u64, self.far as u64, self.slots.get());
        let (member_stripe, within) = self.chunk.split(member_offset);
        let (stripe, part) = if self.offset {
            (member_stripe / far, member_stripe % far)
        } else {
            (member_stripe % self.stripes, member_stripe / self.stripes)
        };
        // The far copy of part f lies f · near slots further on than its near copy.
        let at = stripe * slots + (slot.0 as u64 + slots - part * near) % slots;
        let (chunk, copy) = (at / near, at % near);
        let len = self.chunk.get() - within;
        if chunk >= self.chunks {
            return Owner::Unused { len };
        }
        let array_offset = chunk * self.chunk.get() + within;
        Owner::Data { array_offset, len, copy: (copy * far + part) as usize }
    }

    /// True if each chunk has a copy outside of `lost`.
    ///
    /// The copies of chunk c are on the near · far slots from c · near on, around the end: as many
    /// different sets as the period, fewer in a very small array.
    pub(super) fn survives(&self, lost: SlotSet) -> bool {
        let (near, slots) = (u64::from(self.near), self.slots.get());
        let starts = (0..self.period().min(self.chunks)).map(|chunk| chunk * near % slots);
        starts
            .map(|first| (0..self.copies() as u64).map(move |i| (first + i) % slots))
            .all(|mut copies| copies.any(|slot| !lost.contains(Slot(slot as u8))))
    }
}

const fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}
