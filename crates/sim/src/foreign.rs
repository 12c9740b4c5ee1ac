//! Another engine runs the array between two of our sessions: our log must not be trusted (I9).
//!
//! ```text
//!   die ──▶ it makes parity agree, writes a row of its own ──▶ it stops, or dies ──▶ assemble
//!            superblocks: no microseconds in utime, another event count or the same
//! ```
//!
//! It maintains the bitmap like a kernel: it sets bits before its writes. After a clean stop all
//! are clear, with its last event as `events_cleared`: a member that left earlier lacks its writes.
//!
//! Owns the incident. The other engine is a few lines over the members' bytes, with md's offsets.
//! Like a kernel it leaves the private area alone. Not with md's partial parity log, which the
//! other engine would have to maintain too.

use std::rc::Rc;

use layout::private::Consistency;
use layout::{Family, Slot, Stripe};

use crate::covered;
use crate::crash::Crash;
use crate::cut::Mode;
use crate::incident::Director;
use crate::logged;
use crate::mark;
use crate::node::Node;
use crate::options::Promise;
use crate::oracle::Put;
use crate::workload::{Kind, Request};
use random::Rng;

impl Director {
    /// The host dies, another engine runs the array, and it comes back to us.
    pub(crate) async fn foreign(self: &Rc<Self>, chance: u64) {
        let node = &Rc::clone(&self.nodes[0]);
        let mut rng = Rng::stream(chance, "foreign", 0);
        let fit = self.nodes.len() == 1
            && node.geometry().family() == Family::Parity
            && node.promise() == Promise::Closed
            && node.shape.consistency != Consistency::Ppl
            && node.is_whole()
            // It knows no lists of bad blocks either, but a kernel does.
            && !node.lists_bad()
            && node.endangered().is_empty();
        if !fit {
            return;
        }
        let crash = Crash {
            power: rng.percent(50),
            mode: Mode::draw(&mut rng),
            mended_percent: 100,
            again: [0; 2],
            chance: rng.bits(),
        };
        let mut ran = false;
        self.crash_with(crash, || ran = self.session(node, &mut rng)).await;
        if ran {
            // An answer means that the engine has resolved everything that it trusts.
            let read = Request { kind: Kind::Read(1), sector: 0, count: 1, fua: false, pause: 0 };
            self.stage.perform((94, 0), read).await;
            assert!(
                !node.has_settled(),
                "{}: a log was replayed over a foreign session",
                node.name
            );
        }
    }

    /// The other engine's session. False if a member is absent.
    fn session(&self, node: &Rc<Node>, rng: &mut Rng) -> bool {
        let Some(geometry) = node.last_geometry() else { return false };
        let slots = covered::slots(&node.sim_disks());
        if slots.len() < geometry.slots() {
            return false;
        }
        let (ends_clean, more) = (rng.percent(50), 2 * rng.below(2));
        self.mark(mark::FOREIGN);
        node.corrupt_log();
        // It ignores our list of lost blocks, and trusts the stored bytes; after it so must we.
        for range in logged::lost(slots.values()) {
            self.stage.oracle.borrow_mut().guess(range);
        }
        // First the rows in our log: these it would spoil.
        let journal = node.journal.disk.borrow().clone();
        let rows = logged::rows(slots.values(), journal.as_ref());
        let stripes: Vec<u64> = rows.keys().copied().collect();
        let stripe =
            if stripes.is_empty() { rng.below(geometry.stripes()) } else { rng.pick(&stripes) };
        self.note(|| {
            let how = format!("ends clean {ends_clean}, {more} events more");
            format!("    another engine writes stripe {stripe}, {how}")
        });
        let map = geometry.stripe(Stripe(stripe));
        let (chunk, index) = (geometry.chunk_bytes(), rng.below(map.data_count() as u64));
        let offset = stripe * geometry.stripe_bytes() + index * chunk;
        let bytes = {
            let mut oracle = self.stage.oracle.borrow_mut();
            let write = oracle.write(offset, chunk, Put::Pattern);
            let mut bytes = vec![0; chunk as usize];
            oracle.fill(write, &mut bytes);
            oracle.acknowledge(write, true);
            bytes
        };
        let place = |slot: Slot| {
            let raw = &slots[&slot.index()];
            (&raw.disk, raw.data_offset() + map.member_offset())
        };
        let sync = map.member_offset()..map.member_offset() + chunk;
        slots.values().for_each(|raw| raw.set_bits(&sync));
        let (disk, at) = place(map.data(index as usize));
        disk.poke(at, &bytes);
        for stripe in 0..geometry.stripes() {
            covered::encode(&geometry, &slots, stripe);
        }
        // A kernel flushes each member before it writes a superblock.
        slots.values().for_each(|raw| raw.disk.drain_cache());
        for raw in slots.values() {
            if ends_clean {
                raw.clear_bits(raw.events + more);
            }
            raw.rewrite(raw.events + more, if ends_clean { u64::MAX } else { 0 });
        }
        true
    }
}
