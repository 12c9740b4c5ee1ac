//! A power cut in the middle of a sector: it holds neither the old bytes nor the new.
//!
//! Disks promise atomic sectors, and most keep that; some do not (Zheng et al., FAST 2013). On such
//! a disk a sector being written may have arbitrary content; the engine must keep all other data
//! intact.
//!
//! ```text
//!   data     of that sector, and of no other                   anything, then always the same
//!   parity   of the sectors of its row that were being written that, or right; never the others
//!   log      the batch was never durable                       its checksum fails
//! ```
//!
//! The checksum table is excluded: such a sector has wrong entries for 64 blocks, which redundancy
//! repairs, if any (`docs/format.md`, assumptions about the medium).
//!
//! Owns the choice. The budget is one sector of one disk for each cut: md's format does not
//! tolerate a garbage superblock or bitmap on several members at once.

use std::rc::Rc;

use layout::{Family, Geometry, Owner, Slot};

use crate::covered;
use crate::disk::{Pending, SimDisk};
use crate::incident::Director;
use crate::mark::{self, Part};
use crate::medium::SECTOR;
use crate::parts::Parts;
use crate::pattern::Value;
use random::Rng;

/// Limit on sectors tried for a suitable one.
const TRIES: usize = 32;

impl Director {
    /// Makes garbage of one of the sectors that a cut could choose from.
    pub(crate) fn write_garbage(&self, pending: Vec<(Rc<SimDisk>, Pending)>, rng: &mut Rng) {
        let fit = |part| matches!(part, Part::Data | Part::Parity | Part::Log | Part::Private);
        let mut pending = pending;
        let whole = |range: &std::ops::Range<u64>| range.end - range.start >= SECTOR;
        pending.retain(|(_, p)| !p.durable && fit(p.part) && whole(&p.range));
        rng.shuffle(&mut pending);
        for (disk, Pending { range, part, .. }) in pending.into_iter().take(TRIES) {
            let at = range.start + rng.below((range.end - range.start) / SECTOR) * SECTOR;
            let Some(sectors) = self.concerned(&disk, at, part) else { continue };
            let mut bytes = [0; SECTOR as usize];
            disk.peek(at, &mut bytes);
            let before = bytes;
            let kept = rng.pick(&[0, 8, 100, 256]);
            bytes[kept..].iter_mut().for_each(|byte| *byte = rng.bits() as u8);
            disk.poke(at, &bytes);
            if !sectors.is_empty() && !self.is_marked() {
                // Clients' writes are marked; the array's own copies and repairs are not.
                disk.poke(at, &before);
                continue;
            }
            self.note(|| format!("    {}: garbage at {at}, {part:?}", disk.name));
            self.mark(mark::GARBAGE);
            self.stage.world.trace.fault();
            let mut oracle = self.stage.oracle.borrow_mut();
            let known = (part == Part::Data).then(|| Value::read(&bytes));
            return sectors.into_iter().for_each(|sector| oracle.write_garbage(sector, known));
        }
    }

    /// Is all that is out of step marked, as far as can be seen?
    fn is_marked(&self) -> bool {
        let node = &self.nodes[0];
        let disks = node.sim_disks();
        node.last_geometry().is_some_and(|geometry| node.covered(&geometry, &disks).is_ok())
    }

    /// The array's sectors that garbage here may reach; `None` if none of them was being written.
    fn concerned(&self, disk: &Rc<SimDisk>, at: u64, part: Part) -> Option<Vec<u64>> {
        if matches!(part, Part::Log | Part::Private) {
            let table = Parts::of(disk, None).tables().is_some_and(|table| table.contains(&at));
            return (!table).then(Vec::new);
        }
        let node = &self.nodes[0];
        let (geometry, slot) = node.slot_of(disk).filter(|_| self.nodes.len() == 1)?;
        let data = Parts::of(disk, None).range(Part::Data)?;
        let oracle = self.stage.oracle.borrow();
        let whole = covered::slots(&node.sim_disks()).len() == geometry.slots();
        if !whole && geometry.family() != Family::Plain {
            // The mark is observable only without missing members.
            return None;
        }
        let mut sectors = row_of(&geometry, slot, at - data.start);
        sectors.retain(|&sector| oracle.is_open(sector));
        (!sectors.is_empty()).then_some(sectors)
    }
}

/// The array's sectors that these bytes of a member hold, or are computed from.
fn row_of(geometry: &Geometry, slot: Slot, at: u64) -> Vec<u64> {
    match geometry.owner(slot, at) {
        Owner::Data { array_offset, .. } => vec![array_offset / SECTOR],
        Owner::P { stripe, .. } | Owner::Q { stripe, .. } => {
            let (map, chunk) = (geometry.stripe(stripe), geometry.chunk_bytes());
            let first = stripe.0 * geometry.stripe_bytes() + at - map.member_offset();
            (0..map.data_count() as u64).map(|index| (first + index * chunk) / SECTOR).collect()
        }
        _ => Vec::new(),
    }
}
