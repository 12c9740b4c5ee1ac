//! Linear and RAID 0: data without redundancy.
//!
//! Owns the zones. An array is a list of zones in array order; a zone spreads chunks in turn over
//! its members. RAID 0's zones divide the members by height, linear has one zone per member.
//! Invariants: zones are not empty and follow each other without a gap.

use alloc::vec;
use alloc::vec::Vec;

use crate::units::Slot;

use super::divisor::Divisor;
use super::{Owner, Places};

/// The map of an array without redundancy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Plain {
    zones: Vec<Zone>,
    /// By the chunk; zones of one member do without.
    chunk: Divisor,
    /// Used bytes of each member.
    member_bytes: Vec<u64>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Zone {
    array_start: u64,
    array_end: u64,
    /// Where the zone starts on its members.
    member_start: u64,
    /// Its members, ascending.
    slots: Vec<Slot>,
    /// By the number of its members.
    width: Divisor,
    /// The index in `slots` that has the zone's first chunk.
    first: u64,
}

impl Plain {
    /// Members one after the other. `members` are sizes in bytes, none of them 0.
    pub(super) fn linear(members: Vec<u64>) -> Plain {
        let mut array_start = 0;
        let zones = members.iter().enumerate().map(|(index, bytes)| {
            let array_end = array_start + bytes;
            let zone = Zone {
                array_start,
                array_end,
                member_start: 0,
                slots: vec![Slot::new(index)],
                width: Divisor::new(1, 0),
                first: 0,
            };
            array_start = array_end;
            zone
        });
        Plain { zones: zones.collect(), chunk: Divisor::new(1, 0), member_bytes: members }
    }

    /// Chunks in turn. `members` are sizes in bytes, multiples of `chunk`, none of them 0.
    /// `by_array`: turns are counted from the start of the array (md's original layout), not of the
    /// zone.
    pub(super) fn striped(members: Vec<u64>, chunk: u64, by_array: bool) -> Plain {
        let mut heights = members.clone();
        heights.sort_unstable();
        heights.dedup();
        let (mut array_start, mut member_start) = (0, 0);
        let zones = heights.into_iter().map(|height| {
            let higher = members.iter().enumerate().filter(|(_, bytes)| **bytes > member_start);
            let slots: Vec<Slot> = higher.map(|(index, _)| Slot::new(index)).collect();
            let width = slots.len() as u64;
            let array_end = array_start + width * (height - member_start);
            let zone = Zone {
                array_start,
                array_end,
                member_start,
                slots,
                width: Divisor::new(width, (array_end - array_start) / chunk),
                first: if by_array { array_start / chunk % width } else { 0 },
            };
            (array_start, member_start) = (array_end, height);
            zone
        });
        let zones: Vec<Zone> = zones.collect();
        Plain { zones, chunk: Divisor::new(chunk, array_start), member_bytes: members }
    }

    pub(super) fn capacity(&self) -> u64 {
        self.zones.last().map_or(0, |zone| zone.array_end)
    }

    pub(super) fn member_bytes(&self, slot: Slot) -> u64 {
        self.member_bytes[slot.index()]
    }

    /// True if RAID 0's two layouts map something differently: a zone after the first has more than
    /// one member.
    pub(super) fn is_zoned(&self) -> bool {
        self.zones.iter().skip(1).any(|zone| zone.slots.len() > 1)
    }

    pub(super) fn places(&self, array_offset: u64) -> Places {
        let zone = self.zones.partition_point(|zone| zone.array_end <= array_offset);
        let zone = &self.zones[zone];
        assert!(zone.array_start <= array_offset, "zones leave out a part of the array");
        let offset = array_offset - zone.array_start;
        if let [slot] = zone.slots[..] {
            return Places::one(slot, zone.member_start + offset, zone.array_end - array_offset);
        }
        let (chunk, within) = self.chunk.split(offset);
        let (stripe, turn) = zone.width.split(chunk);
        let width = zone.width.get();
        let index = zone.first + turn;
        let index = if index >= width { index - width } else { index };
        let member_offset = zone.member_start + stripe * self.chunk.get() + within;
        let slot = zone.slots[index as usize];
        assert!(member_offset < self.member_bytes(slot), "beyond the end of the member");
        Places::one(slot, member_offset, self.chunk.get() - within)
    }

    /// The content at an offset of a member within the used part.
    pub(super) fn owner(&self, slot: Slot, member_offset: u64) -> Owner {
        // In each zone of the member or below its start; the last that starts at or before the
        // offset.
        let mine = self.zones.iter().rev().filter(|zone| zone.member_start <= member_offset);
        let mut mine = mine.filter_map(|zone| Some((zone, zone.slots.binary_search(&slot).ok()?)));
        let (zone, index) = mine.next().expect("each member is in the first zone, or has its own");
        let offset = member_offset - zone.member_start;
        if zone.slots.len() == 1 {
            let array_offset = zone.array_start + offset;
            return Owner::Data { array_offset, len: zone.array_end - array_offset, copy: 0 };
        }
        let (stripe, within) = self.chunk.split(offset);
        let width = zone.width.get();
        let turn = (index as u64 + width - zone.first) % width;
        let array_offset = zone.array_start + (stripe * width + turn) * self.chunk.get() + within;
        Owner::Data { array_offset, len: self.chunk.get() - within, copy: 0 }
    }
}
