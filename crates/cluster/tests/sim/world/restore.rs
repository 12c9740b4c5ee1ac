//! The store is restored from an old backup, while no coordinator runs.

use cluster::config::Level;
use cluster::decisions::{Value, Version};
use cluster::ids::Ms;
use cluster::member::Peer;

use super::{Event, Packet, World};
use crate::faults::Fault;
use crate::ground::Node;
use crate::marks;

impl World {
    /// The store's content. `value` stays the truth.
    pub fn stored_value(&self) -> &Value {
        self.restored.as_ref().unwrap_or(&self.value)
    }

    /// Restores an old content; if that is an old membership, the latest one after this time.
    pub fn restore(&mut self, time: Ms) {
        let now = &self.value;
        let same = |old: &Value| old.config == now.config && old.term < now.term;
        // Nobody has heard of an epoch that was only decided. And where half of the members
        // suffice, those that were removed later cannot contradict.
        let half = now.config.slots.len() / 2;
        let epoch = |member| self.ground.named(&now.config, member).header.epoch;
        let told = now.config.shape.level != Level::Mirror
            && now.config.needed() > half
            && now.config.live().all(|member| epoch(member) >= now.config.epoch)
            // Disks of the past with a membership of the past contradict nothing.
            && self.ground.members.iter().all(|node| node.drawer.is_empty());
        let fits = |old: &&Value| same(old) || (told && old.config.epoch < now.config.epoch);
        let backups: Vec<Value> = self.past.iter().filter(fits).cloned().collect();
        if backups.is_empty() || self.restored.is_some() {
            return;
        }
        let old = backups[self.rng.below(backups.len() as u64) as usize].clone();
        self.tell(|| format!("restored: {old:?}"));
        if old.config == self.value.config {
            self.mark(marks::RESTORED_TERM);
            self.value = old;
        } else {
            self.mark(marks::RESTORED_EPOCH);
            self.restored = Some(old);
            self.at(self.now + time, Event::Fault(Fault::Repair));
        }
        self.replaced();
    }

    /// Restores the latest content.
    pub fn repair(&mut self) {
        self.restored = None;
        self.replaced();
    }

    /// Coordinators start anew; nothing of the earlier ones is on its way any more.
    fn replaced(&mut self) {
        self.version = Version(self.version.0 + 1);
        self.queue.retain(|_, event| {
            let order = matches!(event, Event::Deliver(_, Packet::ToMember(Peer::Candidate(_), _)));
            !order && !matches!(event, Event::Ask(..))
        });
        for index in 0..self.ground.candidates.len() {
            let node = Node::Candidate(index);
            if self.ground.candidates[index].machine.is_some() {
                self.crash(node);
            }
            self.at(self.now + 20, Event::Start(node));
        }
    }
}
