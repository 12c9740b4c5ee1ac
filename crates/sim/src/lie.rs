//! A member says that it has flushed, and has not; then the power is cut.
//!
//! ```text
//!   quiet ──▶ it begins to lie ──▶ writes, flush, clean ──▶ cut ──▶ assemble ──▶ scrub and repair
//! ```
//!
//! No engine can detect it at once; the damage must stay limited. The member has old bytes in
//! blocks written meanwhile, all others are right. If two redundancies identify the wrong member
//! (RAID 6, three copies; not in rows with errors), or checksum generations do, a scrub finds the
//! member and nothing is lost. Otherwise a scrub finds the rows, and only that member's blocks may
//! be old: documented as a limit (`docs/faults.md`).

use std::collections::BTreeSet;
use std::rc::Rc;

use layout::{Family, Geometry, Slot};

use crate::covered;
use crate::crash::Crash;
use crate::cut::Mode;
use crate::incident::Director;
use crate::mark;
use crate::medium::SECTOR;
use crate::node::Node;
use crate::silent::identifies_wrong_member;
use crate::workload::{Kind, Request};
use random::Rng;

/// Blocks that are written while it lies.
const BLOCKS: usize = 12;

impl Director {
    /// The member in this slot lies for a while, until the power is cut.
    pub(crate) async fn lying_flush(self: &Rc<Self>, slot: Slot, chance: u64) {
        let node = &Rc::clone(&self.nodes[0]);
        let volatile = self.build.limits.volatile;
        if self.nodes.len() > 1 || !volatile || node.geometry().redundancy() == 0 {
            return;
        }
        let mut rng = Rng::stream(chance, "lie", 0);
        self.stage.hold().await;
        // A listed block is recovered from all others: none of them may lie.
        if self.wait_clean(node).await && !node.lists_bad() {
            self.lose_flush(node, slot, &mut rng).await;
        }
        self.stage.go_on();
    }

    async fn lose_flush(self: &Rc<Self>, node: &Rc<Node>, slot: Slot, rng: &mut Rng) {
        let Some(disk) = node.disk_in(slot) else { return };
        self.note(|| format!("INCIDENT slot {slot}, {}: flushes are lies", disk.name));
        self.mark(mark::LYING_FLUSH);
        self.stage.world.trace.fault();
        let geometry = node.geometry();
        let blocks: BTreeSet<u64> =
            (0..BLOCKS).map(|_| rng.below(geometry.capacity() / 4096)).collect();
        let sectors = blocks.iter().flat_map(|block| block * 8..block * 8 + 8);
        let own = sectors.filter(|&sector| holds(&geometry, slot, sector * SECTOR));
        let past = self.stage.oracle.borrow().past(own);
        disk.set_lying(true);
        for (number, block) in blocks.iter().enumerate() {
            let kind = Kind::Write(1);
            let write = Request { kind, sector: block * 8, count: 8, fua: false, pause: 0 };
            self.stage.perform((93, number), write).await;
        }
        if !self.quiet(node).await {
            // Another operation came between: it flushes before anything is lost.
            return disk.set_lying(false);
        }
        let (mode, chance) = (Mode::draw(rng), rng.bits());
        let crash = Crash { power: true, mode, mended_percent: 100, again: [0; 2], chance };
        self.stage.lied.set(true);
        let lost = || {
            disk.set_lying(false);
            node.corrupt_log();
        };
        self.crash_with(crash, lost).await;
        self.stage.lied.set(false);
        // It has lost checksums as well as blocks: where they match each other, generations
        // identify it, unless it has also lost the record that the checksums are ours.
        let counts = node.running().is_some() && node.status().unsummed_bytes == Some(0);
        let outvoted = identifies_wrong_member(node) && self.stage.doubted.borrow().is_empty();
        if outvoted || counts {
            return self.find_and_repair(node, slot).await;
        }
        self.stage.oracle.borrow_mut().allow_older(&past);
        for repair in [true, false] {
            let Some(report) = self.scrubbed(node, repair).await else { return };
            let clean = repair || report.findings.is_empty();
            assert!(clean, "{}: repaired, and still there: {:?}", node.name, report.findings);
        }
    }
}

impl Director {
    /// Waits until the array is idle and no member has a mark: a resync after a crash trusts the
    /// first member read, also the lying one.
    async fn quiet(&self, node: &Rc<Node>) -> bool {
        for _ in 0..100 {
            if !self.wait_clean(node).await {
                return false;
            }
            if covered::is_quiet(&covered::slots(&node.sim_disks())) {
                return true;
            }
            self.stage.world.pause(2000).await;
        }
        false
    }
}

/// Is this byte of the array on the member in this slot?
fn holds(geometry: &Geometry, slot: Slot, offset: u64) -> bool {
    if geometry.family() == Family::Parity {
        let (stripe, index, _) = geometry.stripe_of(offset);
        return geometry.stripe(stripe).data(index) == slot;
    }
    geometry.places(offset).copies().any(|place| place.slot == slot)
}
