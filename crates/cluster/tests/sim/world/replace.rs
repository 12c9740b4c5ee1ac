//! Disks are replaced: a blank one takes a place, an old one comes back.
//!
//! No disk is thrown away. The one that an epoch counts as in sync comes back if it must: the level
//! tolerates the loss of no further one.

use cluster::config::State;
use cluster::decisions::Value;
use cluster::ids::{DiskId, Epoch, MemberId, Ms};
use cluster::member::Header;
use cluster::message::{Answer, FromMember};
use cluster::wire;

use super::{Event, World};
use crate::faults::Fault;
use crate::ground::{DiskState, Node, Promise};
use crate::marks;
use crate::medium::Medium;

/// Between two looks at a disk that is not the member's.
const LOOK_MS: Ms = 100;
/// So long somebody waits until the slot is free.
const PATIENCE_MS: Ms = 1500;

impl World {
    /// The disk that the truth names for a slot.
    fn named(&self, index: usize) -> DiskId {
        self.value.config.slots[index].boot.disk()
    }

    /// Takes the disk out and puts another one in, which is served after this time.
    fn insert(&mut self, index: usize, disk: DiskState, time: Ms) {
        let node = Node::Member(index);
        if !self.is_dead(node) {
            self.crash(node);
        }
        self.tell(|| format!("{node:?} has {:?}", disk.number));
        let member = &mut self.ground.members[index];
        let old = std::mem::replace(&mut member.disk, disk);
        member.drawer.push(old);
        self.at(self.now + time, Event::Start(node));
    }

    /// A blank disk takes the place. Its data is garbage: nobody may read it.
    pub fn replace(&mut self, index: usize, time: Ms) {
        // An old register and its old disks together look like the past.
        if self.restored.is_some() {
            return;
        }
        let shape = self.value.config.shape;
        let stripes = u64::from(shape.regions) * u64::from(shape.region_blocks);
        let number = DiskId(self.blanks.within(1, u64::from(u32::MAX)) as u32);
        let header = Header::fresh(number);
        let disk = DiskState {
            number,
            medium: Medium::garbage(&mut self.blanks, stripes),
            slots: [Vec::new(), wire::encode(&header)],
            area: vec![0; self.ground.members[index].disk.area.len()],
            header,
            promise: Promise::default(),
        };
        self.insert(index, disk, time);
        self.blank_term = self.value.term;
        let until = self.now + time + PATIENCE_MS;
        self.at(self.now + LOOK_MS, Event::Fault(Fault::Disk(index, until)));
    }

    /// A disk that was replaced is in its place again, for some time.
    pub fn old_disk(&mut self, index: usize, time: Ms) {
        let named = self.named(index);
        let drawer = &self.ground.members[index].drawer;
        let old = drawer.iter().position(|disk| disk.number != named && disk.header.epoch.0 > 0);
        let Some(old) = old.filter(|_| self.restored.is_none()) else { return };
        let disk = self.ground.members[index].drawer.remove(old);
        self.insert(index, disk, 5);
        let until = self.now + time;
        self.at(until, Event::Fault(Fault::Disk(index, until)));
    }

    /// Somebody looks whether the disk in place has become the member, and ends the attempt if not.
    pub fn look_at_disk(&mut self, index: usize, until: Ms) {
        let (named, now) = (self.named(index), self.now);
        let node = &self.ground.members[index];
        if node.disk.number == named {
            return;
        }
        let blank = node.disk.header.epoch == Epoch(0);
        let number = node.disk.number;
        let names = |value: &Value| value.config.slots[index].boot.disk() == number;
        let member = self.past.iter().any(names);
        self.require(if blank || member {
            Ok(())
        } else {
            Err(format!("I12: {number:?} was never member {index}, and is raised"))
        });
        let node = &self.ground.members[index];
        let free = self.value.config.slots[index].state != State::InSync;
        if blank && (free || now < until) {
            return self.at(now + LOOK_MS, Event::Fault(Fault::Disk(index, until)));
        }
        let position = node.drawer.iter().position(|disk| disk.number == named);
        let position = position.expect("no disk is thrown away");
        let disk = self.ground.members[index].drawer.remove(position);
        self.insert(index, disk, 5);
    }

    pub fn crash_leader(&mut self) {
        let leads = |index: &usize| {
            let machine = self.ground.candidates[*index].machine.as_ref();
            machine.is_some_and(|machine| machine.leads().is_some())
        };
        if let Some(index) = (0..self.ground.candidates.len()).find(leads) {
            self.crash(Node::Candidate(index));
            self.at(self.now + 800, Event::Start(Node::Candidate(index)));
        }
    }

    /// A slot has another disk now.
    pub fn note_replaced(&mut self, index: usize, before: DiskId) {
        self.mark(marks::REPLACED);
        // Its last message may have been late: another one may be in place.
        self.at(self.now + LOOK_MS, Event::Fault(Fault::Disk(index, self.now)));
        if before != DiskId(0) {
            self.mark(marks::REPLACED_AGAIN);
        }
        if self.value.term > self.blank_term {
            self.mark(marks::REPLACED_TAKEOVER);
        }
    }

    /// A leader hears of a disk that the truth does not name.
    pub fn note_disk(&mut self, candidate: usize, member: MemberId, message: &FromMember) {
        let &FromMember::Control(term, boot, Answer::Alive(epoch)) = message else { return };
        let slot = self.value.config.slot(member);
        let machine = self.ground.candidates[candidate].machine.as_ref();
        let leads = machine.is_some_and(|machine| machine.leads() == Some(term));
        if boot.disk() == slot.boot.disk() || !leads {
            return;
        }
        let missing = slot.state == State::Missing;
        match (epoch, missing) {
            (Epoch(0), false) => self.mark(marks::BLANK_WAITS),
            (Epoch(0), true) => {}
            (_, false) => self.mark(marks::OLD_DISK),
            (_, true) => self.mark(marks::OLD_DISK_MISSING),
        }
    }
}
