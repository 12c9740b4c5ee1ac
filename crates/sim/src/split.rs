//! Two halves of an array each go on alone: no rule can say which one is wanted.
//!
//! ```text
//!   stop ──▶ start A without B, write ──▶ start B without A, write ──▶ start all: refused
//!                                                                        │
//!                        the operator chooses A ──▶ B's members come back as new ones
//! ```
//!
//! Owns the incident F12 of the fault model. B's writes must never be seen again. Only for arrays
//! without spares: if one half has added a spare, the other half counts as stale today.

use std::rc::Rc;

use io::{Disk, Op};
use layout::{Slot, SlotSet};

use crate::incident::Director;
use crate::mark;
use crate::node::{Consent, Node};
use crate::workload::{Kind, Request};
use random::Rng;

impl Director {
    /// Splits the array in two, if both halves can go on.
    pub(crate) async fn split(&self, chance: u64) {
        let node = &Rc::clone(&self.nodes[0]);
        if self.nodes.len() > 1 {
            return;
        }
        let mut rng = Rng::stream(chance, "split", 0);
        self.stage.hold().await;
        if let Some(theirs) = halves(node, &mut rng)
            && self.wait_clean(node).await
            && node.status().spares.is_empty()
            && !node.has_lost_blocks()
        {
            self.note(|| format!("INCIDENT two halves go on apart, one without {theirs:?}"));
            self.mark(mark::F12);
            self.stage.world.trace.fault();
            self.diverge(node, theirs, &mut rng).await;
        }
        self.stage.go_on();
    }

    async fn diverge(&self, node: &Rc<Node>, theirs: SlotSet, rng: &mut Rng) {
        let named = |slots: SlotSet| -> Vec<String> {
            let disks = slots.iter().filter_map(|slot| node.disk_in(slot));
            disks.map(|disk| disk.name.clone()).collect()
        };
        let (theirs_named, assigned) = (named(theirs), node.assigned());
        let all = node.members.borrow().clone();
        let (mut ours, mut others) = (all.clone(), all.clone());
        ours.retain(|name, _| !theirs_named.contains(name));
        others.retain(|name, _| theirs_named.contains(name));
        node.stop().await.expect("an idle array stops");
        self.stage.oracle.borrow_mut().keep_all();
        let sectors = node.last_geometry().map_or(1, |geometry| geometry.capacity() / 512);
        let sector = rng.below(sectors);

        *node.members.borrow_mut() = ours.clone();
        // A spare in a slot hides the split: its table does not list the others.
        node.members.borrow_mut().retain(|name, _| assigned.contains(name));
        node.assemble(Consent::Degraded).await.expect("one half stays in service");
        let chosen = node.assigned();
        let write = Request { kind: Kind::Write(1), sector, count: 1, fua: true, pause: 0 };
        self.stage.perform((97, 0), write).await;
        node.stop().await.expect("a half stops");
        self.stage.oracle.borrow_mut().keep_all();

        *node.members.borrow_mut() = others;
        node.assemble(Consent::Degraded).await.expect("the other half stays in service");
        let noise = self.stage.world.pool.copy_of(&[0xbb; 512]).freeze();
        let write = node.array().submit(Op::write(sector * 512, noise).with_fua()).await;
        write.result.expect("the other half accepts writes");
        node.stop().await.expect("a half stops");

        *node.members.borrow_mut() = all;
        let refused = node.assemble(Consent::Degraded).await.err();
        let refused = refused.expect("diverged members do not form an array");
        self.note(|| format!("    {refused}"));
        self.mark(mark::DIVERGED);
        // Members excluded before the split may contradict this half, if no present member saw
        // both: then they are excluded too.
        *node.members.borrow_mut() = ours;
        node.choose(chosen);
        self.assemble(node).await;
    }
}

/// Slots that can go on without the others, and the others without them.
fn halves(node: &Node, rng: &mut Rng) -> Option<SlotSet> {
    let geometry = node.last_geometry()?;
    let all = geometry.all_slots();
    (0..8).find_map(|_| {
        let some: SlotSet =
            (0..geometry.slots()).map(Slot::new).filter(|_| rng.percent(50)).collect();
        let both = geometry.survives(some) && geometry.survives(all.difference(some));
        both.then_some(some)
    })
}
