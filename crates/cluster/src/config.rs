//! The membership: who is in sync, and the rule for the next epoch.
//!
//! ```text
//!   state        heard of the member     becomes
//!   IN_SYNC      nothing                 MISSING      if enough others stay in sync, else waits
//!   IN_SYNC      another boot            REBUILDING   if enough others stay in sync, else IN_SYNC
//!                                                     with the new boot: unflushed writes are lost
//!   REBUILDING   nothing                 MISSING
//!   REBUILDING   another boot            REBUILDING   with the new boot
//!   REBUILDING   its boot, nothing stale IN_SYNC
//!   MISSING      any boot of its disk    REBUILDING
//!   MISSING      a blank disk            REBUILDING   of which all regions are stale, durably
//! ```
//!
//! A silent member is removed only if those that answer are enough to serve the array.
//! Another disk than that of the boot is nothing heard, unless it is blank and the slot MISSING.
//!
//! A configuration names the *boot* of each live member, and every request carries a boot. So a
//! restart of a member always shows as a new epoch, and no flush can cover writes of an earlier
//! boot by mistake.
//!
//! Invariant: each epoch is decided at most once, and `IN_SYNC(e+1) ⊆ live(e)`: a member enters
//! through REBUILDING only.

use crate::broken::{Broken, broken};
use crate::ids::{ArrayId, BootId, Epoch, MemberId, Region};

/// How a block is spread over the members.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Level {
    /// RAID 1: each member holds the block.
    Mirror,
    /// RAID 3.5: 2^k members hold a fragment each, the last one their XOR.
    Fragments,
    /// RAID 5: a stripe has a block on each member but one, and their XOR.
    Raid5,
    /// RAID 6: a stripe has a block on each member but two, and P and Q.
    Raid6,
}

impl Level {
    /// Members that a stripe can lose; `members`: those of the array.
    pub fn spares(self, members: usize) -> usize {
        match self {
            Level::Mirror => members - 1,
            Level::Fragments | Level::Raid5 => 1,
            Level::Raid6 => 2,
        }
    }

    /// True if a stripe has several blocks, which one parity protects.
    pub fn is_striped(self) -> bool {
        matches!(self, Level::Raid5 | Level::Raid6)
    }

    /// The fewest members.
    pub fn least(self) -> usize {
        match self {
            Level::Mirror => 1,
            Level::Fragments => 2,
            Level::Raid5 => 3,
            Level::Raid6 => 4,
        }
    }
}

/// What a grant lets others do.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Mode {
    /// W: several clients write the region, each its own blocks. A file system sees to it.
    Shared,
    /// X: one client has the region.
    Exclusive,
}

/// The array's fixed properties.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shape {
    /// The level.
    pub level: Level,
    /// Number of regions.
    pub regions: u32,
    /// Stripes of a region. At levels 1 and 3.5 a stripe has one block.
    pub region_blocks: u32,
    /// Bytes of a stripe on one member.
    pub piece_bytes: u32,
    /// The grant that a write needs.
    pub mode: Mode,
}

impl Shape {
    /// The region of a stripe.
    pub fn region(&self, stripe: u64) -> Region {
        let region = u32::try_from(stripe / u64::from(self.region_blocks));
        Region(region.expect("a stripe of the array"))
    }

    /// The stripes of a region.
    pub fn stripes(&self, region: Region) -> std::ops::Range<u64> {
        let count = u64::from(self.region_blocks);
        u64::from(region.0) * count..(u64::from(region.0) + 1) * count
    }
}

/// State of a member.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum State {
    /// Holds every acknowledged write.
    InSync,
    /// Gets every write; its stale regions are being rebuilt.
    Rebuilding,
    /// Gets nothing.
    Missing,
}

/// One member in a configuration.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Slot {
    /// Its state.
    pub state: State,
    /// The boot that the epoch counts on. While MISSING, the last one: it names the only disk that
    /// returns without being rebuilt whole.
    pub boot: BootId,
}

/// The membership of one epoch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Config {
    /// The array.
    pub array: ArrayId,
    /// Its number.
    pub epoch: Epoch,
    /// The array's fixed properties.
    pub shape: Shape,
    /// One entry for each member.
    pub slots: Vec<Slot>,
}

/// A coordinator's observation of a member.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Seen {
    /// No answer for the member timeout.
    Silent,
    /// It answers.
    Alive {
        /// Its current boot.
        boot: BootId,
        /// Nothing on it is stale, durably, and it has the grant log.
        ready: bool,
    },
    /// A blank disk answers. In the log all regions of the member are stale, durably.
    Blank(BootId),
}

impl Seen {
    /// What this means for a slot: a disk that it does not name is none, unless the slot is free.
    fn of(self, slot: &Slot) -> Seen {
        match self {
            Seen::Alive { boot, .. } if !boot.is_of(slot.boot.disk()) => Seen::Silent,
            Seen::Blank(_) if slot.state != State::Missing => Seen::Silent,
            seen => seen,
        }
    }
}

impl Config {
    fn with(&self, wanted: impl Fn(State) -> bool) -> impl Iterator<Item = MemberId> {
        let slots = self.slots.iter().zip(0..);
        slots.filter(move |(slot, _)| wanted(slot.state)).map(|(_, index)| MemberId(index))
    }

    /// Every member.
    pub fn members(&self) -> impl Iterator<Item = MemberId> + use<> {
        (0..u16::try_from(self.slots.len()).expect("at most 65535 members")).map(MemberId)
    }

    /// Members that hold every acknowledged write.
    pub fn in_sync(&self) -> impl Iterator<Item = MemberId> {
        self.with(|state| state == State::InSync)
    }

    /// Members that get every write, and that hold the grant log.
    pub fn live(&self) -> impl Iterator<Item = MemberId> {
        self.with(|state| state != State::Missing)
    }

    /// The slot of a member.
    pub fn slot(&self, member: MemberId) -> Slot {
        self.slots[usize::from(member.0)]
    }

    /// True if this member holds every acknowledged write.
    pub fn is_in_sync(&self, member: MemberId) -> bool {
        self.slot(member).state == State::InSync
    }

    /// The number of members in sync without which nobody may do I/O.
    pub fn needed(&self) -> usize {
        self.slots.len() - self.shape.level.spares(self.slots.len())
    }

    /// True if the data can be read and written.
    pub fn serves(&self) -> bool {
        self.in_sync().count() >= self.needed()
    }

    /// The next configuration; `None` if this one fits.
    pub fn successor(&self, seen: &[Seen]) -> Option<Config> {
        assert_eq!(seen.len(), self.slots.len(), "one observation of each member");
        let mut next = self.clone();
        let seen: Vec<Seen> =
            self.slots.iter().zip(seen).map(|(slot, seen)| seen.of(slot)).collect();
        // Members that enter now count first: they let others leave.
        let enters = |slot: &Slot, seen: &Seen| match *seen {
            Seen::Alive { boot, ready } => {
                slot.state == State::Rebuilding && boot == slot.boot && ready
            }
            Seen::Silent | Seen::Blank(_) => false,
        };
        let pairs = self.slots.iter().zip(&seen);
        let entering = pairs.filter(|(slot, seen)| enters(slot, seen)).count();
        let mut in_sync = self.in_sync().count() + entering;
        // If too few answer, a removal helps nobody, and whoever comes back first may be enough.
        let answers = |(slot, seen): &(&Slot, &Seen)| {
            slot.state == State::InSync && matches!(seen, Seen::Alive { .. })
        };
        let answering = self.slots.iter().zip(&seen).filter(answers).count() + entering;
        let enough = answering >= self.needed() || broken(Broken::RemovesInVain);
        for (slot, seen) in next.slots.iter_mut().zip(seen) {
            let spare = in_sync > self.needed() || broken(Broken::RemovesTooMany);
            let before = slot.state;
            *slot = match (before, seen) {
                (State::InSync, Seen::Silent) if spare && enough => {
                    Slot { state: State::Missing, ..*slot }
                }
                (State::InSync, Seen::Silent) | (State::Missing, Seen::Silent) => *slot,
                (State::InSync, Seen::Alive { boot, .. }) if boot == slot.boot => *slot,
                (State::InSync, Seen::Alive { boot, .. })
                    if spare && !broken(Broken::RestartIgnored) =>
                {
                    Slot { state: State::Rebuilding, boot }
                }
                (State::InSync, Seen::Alive { boot, .. }) => Slot { boot, ..*slot },
                (State::Rebuilding, Seen::Silent) => Slot { state: State::Missing, ..*slot },
                (State::Rebuilding, Seen::Alive { boot, ready }) if boot == slot.boot && ready => {
                    Slot { state: State::InSync, boot }
                }
                (State::Missing, Seen::Alive { boot, .. }) if broken(Broken::ReturnsInSync) => {
                    Slot { state: State::InSync, boot }
                }
                (State::Rebuilding | State::Missing, Seen::Alive { boot, .. })
                | (State::Missing, Seen::Blank(boot)) => Slot { state: State::Rebuilding, boot },
                (_, Seen::Blank(_)) => unreachable!("the slot is not free"),
            };
            in_sync -= usize::from(before == State::InSync && slot.state != State::InSync);
        }
        next.epoch = Epoch(self.epoch.0 + 1);
        (next.slots != self.slots).then_some(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::DiskId;

    fn config(level: Level, states: &str) -> Config {
        let slots = states.chars().map(|state| {
            let state = match state {
                'i' => State::InSync,
                'r' => State::Rebuilding,
                _ => State::Missing,
            };
            Slot { state, boot: BootId(1) }
        });
        let mode = Mode::Shared;
        let shape = Shape { level, regions: 4, region_blocks: 2, piece_bytes: 8, mode };
        let slots = slots.collect();
        Config { array: ArrayId(1), epoch: Epoch(7), shape, slots }
    }

    /// `.` silent, `a` alive, `b` alive after a restart, `A` alive with nothing stale, `o` another
    /// disk, `n` a blank one.
    fn next(level: Level, states: &str, seen: &str) -> String {
        let seen = seen.chars().map(|seen| match seen {
            '.' => Seen::Silent,
            'a' => Seen::Alive { boot: BootId(1), ready: false },
            'A' => Seen::Alive { boot: BootId(1), ready: true },
            'o' => Seen::Alive { boot: BootId::first(DiskId(7)), ready: true },
            'n' => Seen::Blank(BootId::first(DiskId(7))),
            _ => Seen::Alive { boot: BootId(2), ready: false },
        });
        let seen: Vec<Seen> = seen.collect();
        let Some(next) = config(level, states).successor(&seen) else {
            return String::from("same");
        };
        assert_eq!(next.epoch, Epoch(8));
        let letter = |slot: &Slot| match (slot.state, slot.boot.0) {
            (State::InSync, 1) => 'i',
            (State::InSync, _) => 'I',
            (State::Rebuilding, 1) => 'r',
            (State::Rebuilding, _) if slot.boot.disk() == DiskId(7) => 'N',
            (State::Rebuilding, _) => 'R',
            (State::Missing, _) => 'm',
        };
        next.slots.iter().map(letter).collect()
    }

    #[test]
    fn the_table_of_successors() {
        let fragments = |states, seen| next(Level::Fragments, states, seen);
        assert_eq!(fragments("iii", "aaa"), "same");
        assert_eq!(fragments("iii", "a.a"), "imi");
        assert_eq!(fragments("iii", "..a"), "same", "either of them may come back");
        assert_eq!(fragments("iii", ".ba"), "mIi", "one more loss would lose the array");
        assert_eq!(fragments("iii", "aba"), "iRi");
        assert_eq!(fragments("iii", "bba"), "RIi", "the second one lost its cache for good");
        assert_eq!(fragments("imi", "aba"), "iRi");
        assert_eq!(fragments("imi", "ba."), "Iri");
        assert_eq!(fragments("iri", "aAa"), "iii");
        assert_eq!(fragments("iri", "aaa"), "same");
        assert_eq!(fragments("iri", "aba"), "iRi");
        assert_eq!(fragments("iri", "a.a"), "imi");
        assert_eq!(fragments("imi", "a.."), "same");
        assert_eq!(fragments("imi", "ana"), "iNi");
        assert_eq!(fragments("imi", "aoa"), "same", "a disk that was replaced");
        assert_eq!(fragments("iri", "ana"), "imi");
        assert_eq!(fragments("iri", "aoa"), "imi");
        assert_eq!(fragments("iii", "ana"), "imi");
        assert_eq!(fragments("iii", "nna"), "same", "one of them must come back");
        assert_eq!(fragments("mii", "Aoa"), "rii", "the array needs the disk that it names");
        assert_eq!(fragments("rii", "Aoa"), "imi");
        let mirror = |states, seen| next(Level::Mirror, states, seen);
        assert_eq!(mirror("iii", "..a"), "mmi");
        assert_eq!(mirror("ii", ".."), "same");
        assert_eq!(mirror("ii", ".a"), "mi");
        assert_eq!(mirror("mi", ".."), "same");
        assert_eq!(mirror("mi", ".b"), "mI");
        assert_eq!(
            mirror("rir", "Aba"),
            "iRr",
            "a rebuilt member takes the place of a restarted one"
        );
    }
}
