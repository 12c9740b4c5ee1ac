//! A blank disk takes the slot of one that is lost for good.
//!
//! ```text
//!   another disk answers ──▶ is it blank, the slot MISSING? ──▶ +Stale, all regions, in batches
//!           │ no                                                             │ durable
//!           ▼                                                                ▼
//!   nothing heard (`Report::others`)                      decide: REBUILDING, with its boot
//! ```
//!
//! A rebuild copies stale regions only, and a blank disk lacks all of them. So all are stale in the
//! log of every live member *before* an epoch names the disk: a takeover reads one of these logs. A
//! leader that dies earlier leaves marks behind that cost time, and a slot that its disk may still
//! take. Only the rebuild of the member clears its marks, so none goes while it is MISSING.
//!
//! *Blank* is a disk of epoch 0: no order has ever raised it. Any other disk that the slot does
//! not name was a member once. It may hold old data, an old epoch and old fences. It counts as
//! silent; of its answers only a later epoch counts (`Leader::later`).
//!
//! Invariant: a slot changes its disk only from MISSING to REBUILDING, when all its regions are
//! stale.

use super::commit::Effect;
use super::leader::Leader;
use crate::broken::{Broken, broken};
use crate::config::{Seen, State};
use crate::ids::{BootId, Epoch, MemberId, Ms, Region};
use crate::message::Answer;
use crate::record::Mark;

/// Marks of one batch: it has room in the append area, and grants do not wait long for it. Less
/// where the log has little room.
const BATCH: usize = 1 << 14;

/// A disk that the configuration does not name.
#[derive(Clone, Copy, Debug)]
pub(super) struct Other {
    pub(super) heard_ms: Ms,
    pub(super) boot: BootId,
    epoch: Epoch,
}

/// How far a slot is prepared for a blank disk, in this epoch.
#[derive(Default)]
pub(super) struct Prepared {
    /// Regions below this one are stale.
    upto: u32,
    /// The last of these marks are not durable yet.
    waits: bool,
}

impl Leader {
    /// Another disk answers in a member's place.
    pub(super) fn other_answers(&mut self, member: MemberId, boot: BootId, answer: &Answer) {
        let (now, &Answer::Alive(epoch)) = (self.now, answer) else { return };
        self.newest = self.newest.max(epoch);
        if let Some(watch) = self.watch(member) {
            watch.other = Some(Other { heard_ms: now, boot, epoch });
        }
    }

    /// The disk that answers in a member's place.
    fn other(&self, member: MemberId) -> Option<Other> {
        let other = self.watches[usize::from(member.0)].other;
        other.filter(|other| self.now.saturating_sub(other.heard_ms) <= self.timing.member_ms)
    }

    /// Disks that answer in the place of others, with their epochs.
    pub(super) fn others(&self) -> Vec<(MemberId, Epoch)> {
        let members = self.config.members();
        members.filter_map(|member| Some((member, self.other(member)?.epoch))).collect()
    }

    /// A blank disk that can take the slot.
    fn blank(&self, member: MemberId) -> Option<BootId> {
        let free = self.config.slot(member).state == State::Missing;
        let other = self.other(member).filter(|other| free && other.epoch == Epoch(0));
        other.map(|other| other.boot)
    }

    /// Records what blank disks lack, a batch at a time.
    pub(super) fn prepare(&mut self) {
        let regions = self.config.shape.regions;
        let count = u32::try_from(BATCH.min(self.most_marks)).expect("a batch is small");
        for member in self.config.members() {
            if self.blank(member).is_none() {
                continue;
            }
            let prepared = self.prepared.entry(member).or_default();
            if prepared.waits || prepared.upto == regions {
                continue;
            }
            let next = prepared.upto..regions.min(prepared.upto.saturating_add(count));
            *prepared = Prepared { upto: next.end, waits: true };
            for region in next.filter(|_| !broken(Broken::BlankTrusted)) {
                self.commit.record(true, Mark::Stale(member, Region(region)));
            }
            self.commit.then(Effect::Stale(member, self.config.epoch));
        }
    }

    /// A batch of such marks is durable. A change of the membership begins them again.
    pub(super) fn stale_is_durable(&mut self, member: MemberId, epoch: Epoch) {
        if epoch == self.config.epoch
            && let Some(prepared) = self.prepared.get_mut(&member)
        {
            prepared.waits = false;
        }
    }

    /// The blank disk, once its slot is prepared.
    pub(super) fn seen_blank(&self, member: MemberId) -> Seen {
        let whole = |prepared: &Prepared| {
            let durable = prepared.upto == self.config.shape.regions && !prepared.waits;
            durable || broken(Broken::BlankEarly)
        };
        match self.blank(member) {
            Some(boot) if self.prepared.get(&member).is_some_and(whole) => Seen::Blank(boot),
            _ => Seen::Silent,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, Level, Mode, Shape, Slot};
    use crate::coordinator::Action;
    use crate::decisions::Version;
    use crate::ids::{ArrayId, DiskId, Term};
    use crate::message::{FromMember, Order, ToMember};
    use crate::record::Position;
    use crate::timing::Timing;
    use crate::wire;

    const TERM: Term = Term(2);
    const MISSING: MemberId = MemberId(2);

    /// A leader of a mirror whose member 2 is missing; the others have its log.
    fn leader(regions: usize) -> Leader {
        let (level, mode) = (Level::Mirror, Mode::Shared);
        let regions = u32::try_from(regions).expect("a small number");
        let shape = Shape { level, regions, region_blocks: 1, piece_bytes: 512, mode };
        let slot = |state| Slot { state, boot: BootId::first(DiskId(1)) };
        let slots = [State::InSync, State::InSync, State::Missing].map(slot).into();
        let config = Config { array: ArrayId(1), epoch: Epoch(5), shape, slots };
        let mut leader = Leader::new(TERM, Timing::DEFAULT, 0, Version(1), config, usize::MAX);
        leader.reading = None;
        for member in [MemberId(0), MemberId(1)] {
            answer(&mut leader, member, 1, Answer::Appended(Position { term: TERM, seq: 0 }));
        }
        leader
    }

    fn answer(leader: &mut Leader, member: MemberId, disk: u32, answer: Answer) -> Vec<Action> {
        let (mut out, boot) = (Vec::new(), BootId::first(DiskId(disk)));
        leader.member(0, member, FromMember::Control(TERM, boot, answer), &mut out);
        out
    }

    /// The batch that every live member gets.
    fn batch(actions: &[Action]) -> Option<(u64, usize)> {
        let appends = actions.iter().filter_map(|action| match action {
            Action::Member(_, message @ ToMember::Control(_, Order::Append(seq, records))) => {
                assert!(wire::encode(message).len() < 1 << 18, "room in the append area");
                Some((*seq, records.len()))
            }
            _ => None,
        });
        let appends: Vec<(u64, usize)> = appends.collect();
        assert!(appends.is_empty() || appends == [appends[0]; 2], "{appends:?}");
        appends.first().copied()
    }

    #[test]
    fn a_blank_disk_waits_until_all_regions_are_stale_everywhere() {
        let mut leader = leader(2 * BATCH + 1);
        let mut actions = answer(&mut leader, MISSING, 7, Answer::Alive(Epoch(0)));
        for (number, records) in [(1, BATCH), (2, BATCH), (3, 1)] {
            assert_eq!(batch(&actions), Some((number, records)));
            for member in [MemberId(0), MemberId(1)] {
                assert_eq!(leader.proposal(), None);
                let at = Position { term: TERM, seq: number };
                actions = answer(&mut leader, member, 1, Answer::Appended(at));
            }
        }
        let slot = leader.proposal().expect("the disk takes the slot").slot(MISSING);
        assert_eq!(slot, Slot { state: State::Rebuilding, boot: BootId::first(DiskId(7)) });
    }

    #[test]
    fn a_disk_that_was_a_member_takes_no_slot() {
        let mut leader = leader(1);
        let actions = answer(&mut leader, MISSING, 7, Answer::Alive(Epoch(4)));
        assert_eq!(batch(&actions), None);
        assert_eq!(leader.others(), [(MISSING, Epoch(4))]);
        // The disk of a member in sync is another one, too: nothing that it says counts.
        let at = Position { term: TERM, seq: 9 };
        answer(&mut leader, MemberId(1), 7, Answer::Appended(at));
        assert!(leader.watches[1].at < at);
        assert_eq!((leader.proposal(), leader.later()), (None, None));
        answer(&mut leader, MISSING, 7, Answer::Alive(Epoch(6)));
        assert_eq!(leader.later(), Some(Epoch(6)), "the register is an old backup");
    }
}
