//! Losses beyond the level's tolerance: remaining data must be right, the rest returns errors.
//!
//! ```text
//!   quiet, whole ──▶ spoil ──▶ read block by block ──▶ lift the damage ──▶ all data is back
//!                      │        │
//!                      │       atlas: must this block be readable?   yes: right bytes
//!                      │                                             no:  right bytes, or an error
//!                      └──▶ a member is lost, and rebuilt ──▶ lift the damage ──▶ go on:
//!                           blocks that the rebuild lost stay errors until they are written
//! ```
//!
//! Owns the atlas: the unreadable sectors of each slot, separate from the true content, which
//! damage never changes.

use std::collections::BTreeSet;
use std::ops::Range;
use std::rc::Rc;

use layout::private::Consistency;
use layout::{Family, Geometry, Slot, SlotSet};

use crate::crash::Crash;
use crate::cut::Mode;
use crate::incident::Director;
use crate::mark::{self, Part};
use crate::medium::SECTOR;
use crate::node::Node;
use crate::parts::Parts;
use crate::workload::{Kind, Request};
use random::Rng;

/// The unreadable parts of an array's members.
#[derive(Default)]
pub struct Atlas {
    /// Slots whose member does not answer.
    pub gone: SlotSet,
    /// 4 KiB blocks with unreadable sectors, by slot, counted from the start of the member's data:
    /// the engine need not combine a block from parts of its copies.
    pub unreadable: BTreeSet<(usize, u64)>,
}

impl Atlas {
    /// The atlas of a running array, as its disks are now.
    pub fn of(node: &Node) -> Atlas {
        let mut atlas = Atlas::default();
        for slot in (0..node.shape.members).map(Slot::new) {
            let Some(disk) = node.disk_in(slot).filter(|disk| !disk.is_gone()) else {
                atlas.gone = atlas.gone.with(slot);
                continue;
            };
            let Some(data) = Parts::of(&disk, None).range(Part::Data) else { continue };
            let first = data.start / SECTOR;
            let bad = disk.unreadable_sectors().into_iter().filter(|&sector| sector >= first);
            atlas.unreadable.extend(bad.map(|sector| (slot.index(), (sector - first) / 8)));
        }
        atlas
    }

    fn is_lost(&self, slot: Slot, member_offset: u64) -> bool {
        self.gone.contains(slot)
            || self.unreadable.contains(&(slot.index(), member_offset / (8 * SECTOR)))
    }

    /// Must this sector of the array be readable?
    pub fn must_read(&self, geometry: &Geometry, array_offset: u64) -> bool {
        if geometry.family() != Family::Parity {
            let places = geometry.places(array_offset);
            return places.copies().any(|place| !self.is_lost(place.slot, place.member_offset));
        }
        let (stripe, index, within) = geometry.stripe_of(array_offset);
        let map = geometry.stripe(stripe);
        let at = map.member_offset() + within;
        if !self.is_lost(map.data(index), at) {
            return true;
        }
        let slots = (0..geometry.slots()).map(Slot::new);
        geometry.survives(slots.filter(|&slot| self.is_lost(slot, at)).collect())
    }
}

impl Director {
    /// Damages more than the level tolerates, checks the remaining data, and lifts the damage.
    pub(crate) async fn ruin(self: &Rc<Self>, chance: u64) {
        let node = &Rc::clone(&self.nodes[0]);
        if self.nodes.len() > 1 {
            return;
        }
        let mut rng = Rng::stream(chance, "ruin", 0);
        self.stage.hold().await;
        if self.wait_clean(node).await {
            let (gone, rebuild) = if self.ruins { (5, 90) } else { (40, 50) };
            let gone = rng.percent(gone);
            self.note(|| format!("INCIDENT ruin, members are gone: {gone}"));
            self.mark(mark::RUINED);
            self.stage.world.trace.fault();
            self.stage.overloaded.set(true);
            let rebuild = Rng::stream(chance, "ruined rebuild", 0).percent(rebuild)
                && node.geometry().family() == Family::Parity
                // With md's log a block being written beside a loss may be garbage.
                && node.shape.consistency != Consistency::Ppl;
            match (gone, rebuild) {
                (true, _) => self.ruin_members(node, &mut rng).await,
                (false, true) => self.ruin_rebuild(node, &mut rng).await,
                (false, false) => self.ruin_sectors(node, &mut rng).await,
            }
            self.stage.overloaded.set(false);
        }
        self.stage.go_on();
    }

    /// Sectors of all members cannot be read, here and there more than can be recovered.
    async fn ruin_sectors(&self, node: &Rc<Node>, rng: &mut Rng) {
        corrupt(node, rng);
        self.look_at_ruins(node).await;
        node.sim_disks().iter().for_each(|disk| disk.clear_faults());
    }

    /// A rebuild meets such sectors, and then they become readable again: blocks that it could not
    /// recover are on the new member's bad-block list, in rows that lack nothing else.
    async fn ruin_rebuild(&self, node: &Rc<Node>, rng: &mut Rng) {
        let geometry = node.geometry();
        let slot = Slot::new(rng.below(geometry.slots() as u64) as usize);
        let Some(id) = node.status().slots[slot.index()].member.as_ref().map(|member| member.id)
        else {
            return;
        };
        let places = corrupt(node, rng);
        for Range { start, end } in places {
            let stripe = |at: u64| at / geometry.chunk_bytes() * geometry.stripe_bytes();
            let end = stripe(end - 1) + geometry.stripe_bytes();
            self.stage.doubted.borrow_mut().insert(stripe(start)..end.min(geometry.capacity()));
        }
        let failed = node.array().fail(id).await;
        self.note(|| format!("    slot {slot} is failed: {failed:?}"));
        if failed.is_ok() {
            let disk = self.stage.world.disk(self.build);
            let name = disk.name.clone();
            let added = node.add(disk, &name).await;
            self.note(|| format!("    {name} is added: {added:?}"));
            let mut patience = 400;
            while !node.is_whole() && patience > 0 {
                self.stage.world.pause(2000).await;
                patience -= 1;
            }
            if node.lists_bad() {
                self.mark(mark::LISTED);
            }
        }
        node.sim_disks().iter().for_each(|disk| disk.clear_faults());
    }

    /// One more member is lost than the level tolerates.
    async fn ruin_members(self: &Rc<Self>, node: &Rc<Node>, rng: &mut Rng) {
        let geometry = node.geometry();
        let mut slots: Vec<Slot> = (0..geometry.slots()).map(Slot::new).collect();
        rng.shuffle(&mut slots);
        let mut lost = SlotSet::EMPTY;
        for slot in slots {
            if !geometry.survives(lost) {
                break;
            }
            lost = lost.with(slot);
            if let Some(disk) = node.disk_in(slot) {
                disk.set_gone(true);
            }
        }
        self.look_at_ruins(node).await;
        // The cause is repaired: nothing that was acknowledged is missing.
        self.crash(Crash {
            power: rng.percent(50),
            mode: Mode::Clean,
            mended_percent: 100,
            again: [0; 2],
            chance: rng.bits(),
        })
        .await;
    }

    /// Reads block by block: readable blocks must be read.
    async fn look_at_ruins(&self, node: &Rc<Node>) {
        let (geometry, atlas) = (node.geometry(), Atlas::of(node));
        let sectors = geometry.capacity() / SECTOR;
        for first in (0..sectors).step_by(8) {
            let count = 8.min(sectors - first);
            let must =
                (first..first + count).all(|sector| atlas.must_read(&geometry, sector * SECTOR));
            self.stage.overloaded.set(!must);
            let read = Request { kind: Kind::Read(1), sector: first, count, fua: false, pause: 0 };
            self.stage.perform((98, first as usize), read).await;
        }
        self.stage.overloaded.set(true);
    }
}

/// The same few places cannot be read on several members each: ranges of their data.
fn corrupt(node: &Node, rng: &mut Rng) -> Vec<Range<u64>> {
    let geometry = node.geometry();
    let usable = (0..geometry.slots()).map(|slot| geometry.member_bytes(Slot::new(slot)));
    let least = usable.min().unwrap_or(0) / SECTOR;
    let places: Vec<u64> = (0..6).map(|_| rng.below(least)).collect();
    let mut spoiled = Vec::new();
    for slot in (0..geometry.slots()).map(Slot::new) {
        let Some(disk) = node.disk_in(slot) else { continue };
        let Some(data) = Parts::of(&disk, None).range(Part::Data) else { continue };
        for &place in &places {
            if rng.percent(60) {
                let len = rng.skewed(12).min(least - place) * SECTOR;
                disk.set_unreadable(data.start + place * SECTOR, len, false);
                spoiled.push(place * SECTOR..place * SECTOR + len);
            }
        }
    }
    spoiled
}
