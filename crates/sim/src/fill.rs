//! The store under several members runs out of space while clients write.
//!
//! ```text
//!   quiet, whole ──▶ few pages are free ──▶ clients work ──▶ space again ──▶ go on
//!                                             │                  ▲
//!                                             └──▶ array full ───┴── stop or crash, assemble
//! ```
//!
//! Allowed while the store lacks space, if the level does not tolerate the loss of all members on
//! it: writes fail with "no space left", and such a write is old, new, or partly both until the
//! array has been assembled again, as if its host had died meanwhile. A read fails only in a stripe
//! that was being written. If the level tolerates the loss of all of them, no error is allowed.
//!
//! Owns the incident; `disk/store.rs` owns the space.

use std::rc::Rc;

use layout::{Mode, Slot, SlotSet};

use crate::crash::Crash;
use crate::incident::Director;
use crate::mark;
use crate::node::Node;
use random::Rng;

impl Director {
    /// The store of some members runs out of space.
    pub(crate) async fn fill_up(self: &Rc<Self>, chance: u64) {
        let node = &Rc::clone(&self.nodes[0]);
        // Without redundancy a member is never lost, and an array never full: each write without
        // space fails by itself.
        if self.nodes.len() > 1 || node.geometry().redundancy() == 0 {
            return;
        }
        let mut rng = Rng::stream(chance, "store", 0);
        self.stage.hold().await;
        if self.wait_clean(node).await && !node.has_lost_blocks() {
            self.run_short(node, &mut rng).await;
        }
        self.stage.go_on();
    }

    async fn run_short(self: &Rc<Self>, node: &Rc<Node>, rng: &mut Rng) {
        let (stage, store) = (&self.stage, &self.stage.world.store);
        let pages = rng.pick(&[0, 3, 20, 100]);
        store.limit(pages);
        let slots = (0..node.shape.members).map(Slot::new);
        let is_short = |slot: &Slot| node.disk_in(*slot).is_some_and(|disk| disk.is_short());
        let short: SlotSet = slots.filter(is_short).collect();
        let fills_up = !node.geometry().survives(short);
        self.note(|| format!("INCIDENT {pages} pages are free for {short:?}, full: {fills_up}"));
        self.mark(mark::STORE_SHORT);
        stage.world.trace.fault();
        self.expose(None);
        stage.full.set(fills_up);
        stage.is_short.set(true);
        stage.go_on();
        stage.world.pause(rng.skewed(100_000)).await;
        if rng.percent(40) {
            self.lose_beside(node, rng);
            stage.world.pause(rng.skewed(50_000)).await;
        }
        stage.hold().await;
        store.unlimit();
        // A cached write that found no space may be answered yet, and fill the array.
        stage.world.pause(2 * node.shape.bounds.deadline.as_micros() as u64).await;
        let mode = node.status().mode;
        assert!(mode != Mode::Broken, "{}: no member was lost beyond its level", node.name);
        assert!(mode != Mode::Full || fills_up, "{}: it can do without {short:?}", node.name);
        if mode == Mode::Full {
            self.mark(mark::STORE_FULL);
            self.restart_full(node, rng).await;
        }
        stage.is_short.set(false);
        stage.full.set(false);
        stage.tried.take();
    }

    /// One more member is lost, if the level tolerates that: of a full array, on no record.
    fn lose_beside(&self, node: &Rc<Node>, rng: &mut Rng) {
        let slot = Slot::new(rng.below(node.shape.members as u64) as usize);
        let full = node.status().mode == Mode::Full;
        if !full || !node.geometry().survives(node.unwell().with(slot)) {
            return;
        }
        if let Some(disk) = node.disk_in(slot) {
            self.note(|| format!("    {} is gone", disk.name));
            self.mark(mark::STORE_LOSS);
            self.expose(Some(slot));
            disk.set_gone(true);
        }
    }

    /// There is space again: a new start resolves the interrupted writes.
    async fn restart_full(self: &Rc<Self>, node: &Rc<Node>, rng: &mut Rng) {
        if rng.percent(50) {
            let power = rng.percent(50);
            return self.crash(Crash::draw(rng, power)).await;
        }
        let stopped = node.stop().await;
        self.note(|| format!("    full, and stopped: {:?}", stopped.is_ok()));
        self.stage.deaths.set(self.stage.deaths.get() + 1);
        self.stage.oracle.borrow_mut().crash(self.caches(false));
        self.stage.stuck.set(false);
        self.again(node).await;
        self.note_exposure();
    }
}
