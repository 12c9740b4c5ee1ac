//! Which disks may be lost together, and which one must not fail next.

use layout::{Geometry, Layout, Slot, SlotSet};

/// What an array survives. Slots are numbered across all inner arrays of a nested one.
#[derive(Clone, Debug)]
pub enum Redundancy {
    /// Groups of disks, each of which survives the loss of any `tolerated` of its disks. The array
    /// is lost with any group.
    Groups {
        /// The slots of each group.
        groups: Vec<SlotSet>,
        /// Disks that a group may lose.
        tolerated: usize,
    },
    /// As the map of copies says: RAID 10 with far or offset copies, or an odd number of disks.
    Map(Box<Geometry>),
}

impl Redundancy {
    /// Equal groups of neighbouring slots.
    ///
    /// # Panics
    /// If there are more disks than slots.
    pub fn groups(groups: usize, disks: usize, tolerated: usize) -> Redundancy {
        let group = |index: usize| (index * disks..(index + 1) * disks).map(Slot::new).collect();
        Redundancy::Groups { groups: (0..groups).map(group).collect(), tolerated }
    }

    /// Of an array, or of a RAID 0 over `arrays` such arrays; `None` for a RAID 0 over arrays whose
    /// disks form no groups.
    pub fn of(geometry: &Geometry, arrays: usize) -> Option<Redundancy> {
        let (slots, tolerated) = (geometry.slots(), geometry.redundancy());
        match geometry.layout() {
            Layout::Raid10 { near, far: 1, .. } if slots.is_multiple_of(near.into()) => {
                let copies = usize::from(near);
                Some(Redundancy::groups(arrays * slots / copies, copies, copies - 1))
            }
            Layout::Raid10 { .. } if arrays > 1 => None,
            Layout::Raid10 { .. } => Some(Redundancy::Map(Box::new(geometry.clone()))),
            _ => Some(Redundancy::groups(arrays, slots, tolerated)),
        }
    }

    /// All disks.
    pub fn slots(&self) -> SlotSet {
        match self {
            Redundancy::Groups { groups, .. } => {
                groups.iter().fold(SlotSet::EMPTY, |all, group| all.union(*group))
            }
            Redundancy::Map(geometry) => geometry.all_slots(),
        }
    }

    /// True if no data is lost with these disks.
    pub fn survives(&self, lost: SlotSet) -> bool {
        match self {
            Redundancy::Groups { groups, tolerated } => {
                groups.iter().all(|group| group.intersection(lost).count() <= *tolerated)
            }
            Redundancy::Map(geometry) => geometry.survives(lost),
        }
    }

    /// The disks whose loss, or unreadable sector, loses data while these are down.
    pub fn critical(&self, down: SlotSet) -> SlotSet {
        match self {
            Redundancy::Groups { groups, tolerated } => {
                let at_limit =
                    groups.iter().filter(|group| group.intersection(down).count() == *tolerated);
                at_limit.fold(SlotSet::EMPTY, |all, group| all.union(*group)).difference(down)
            }
            Redundancy::Map(geometry) if down.is_empty() && geometry.redundancy() > 0 => {
                SlotSet::EMPTY
            }
            Redundancy::Map(geometry) => {
                let others = self.slots().difference(down);
                others.iter().filter(|slot| !geometry.survives(down.with(*slot))).collect()
            }
        }
    }

    /// The disks that the rebuild of this one reads whole.
    pub fn read_by_rebuild(&self, slot: Slot) -> SlotSet {
        match self {
            Redundancy::Groups { groups, .. } => {
                let own = groups.iter().copied().find(|group| group.contains(slot));
                own.unwrap_or(SlotSet::EMPTY).without(slot)
            }
            // Parts of several.
            Redundancy::Map(_) => SlotSet::EMPTY,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use layout::geometry::{Raid5Layout, Raid6Layout, Shape};

    fn geometry(layout: Layout, slots: usize) -> Geometry {
        let chunk_bytes = if layout == Layout::Raid1 { 0 } else { 64 << 10 };
        let shape = Shape { layout, chunk_bytes, members: vec![1 << 30; slots] };
        Geometry::new(shape).expect("a usual shape")
    }

    #[test]
    fn groups_and_maps_agree() {
        let near = |near, far| Layout::Raid10 { near, far, offset: false };
        let cases = [
            (Layout::Raid5(Raid5Layout::LeftSymmetric), 5),
            (Layout::Raid6(Raid6Layout::LeftSymmetric), 6),
            (Layout::Raid1, 3),
            (near(2, 1), 6),
            (near(3, 1), 6),
            (near(2, 1), 5),
            (near(1, 2), 6),
        ];
        for (layout, slots) in cases {
            let geometry = geometry(layout, slots);
            let found = Redundancy::of(&geometry, 1).expect("not nested");
            for bits in 0..1_u32 << slots {
                let down: SlotSet =
                    (0..slots).filter(|s| bits >> s & 1 == 1).map(Slot::new).collect();
                assert_eq!(found.survives(down), geometry.survives(down), "{layout:?} {down:?}");
                if !geometry.survives(down) {
                    continue;
                }
                let last: SlotSet = (0..slots)
                    .map(Slot::new)
                    .filter(|s| !down.contains(*s) && !geometry.survives(down.with(*s)))
                    .collect();
                assert_eq!(found.critical(down), last, "{layout:?} {down:?}");
            }
        }
    }

    #[test]
    fn nested_arrays_are_groups() {
        let inner = geometry(Layout::Raid6(Raid6Layout::LeftSymmetric), 5);
        let nested = Redundancy::of(&inner, 2).expect("parity forms groups");
        let down: SlotSet = [0, 1, 5, 6].into_iter().map(Slot::new).collect();
        assert!(nested.survives(down));
        assert!(!nested.survives(down.with(Slot::new(7))));
        assert_eq!(nested.critical(SlotSet::only(Slot::new(0))), SlotSet::EMPTY);
        assert_eq!(nested.slots().count(), 10);
    }
}
