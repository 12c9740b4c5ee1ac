//! What a read of blocks asks of each member, and the blocks from the answers.
//!
//! ```text
//!   RAID 5 of 3      of blocks 1 to 6
//!   s=0   0  1  P       1             member 0   reads 3 pieces, from stripe 1 on
//!   s=1   3  P  2    3  P  2          member 1   reads 3 pieces, from stripe 0 on
//!   s=2   P  4  5    P  4  5          member 2   reads 2 pieces, from stripe 1 on
//!   s=3   6  7  P    6
//! ```
//!
//! Each member reads all pieces between the first and the last that are needed of it: a piece of
//! parity among them costs less than another request.
//!
//! A block whose member is not in sync is recovered from the other members. Such a read is like a
//! write: it needs the region's grant and locks the stripes, or it would mix old and new pieces. At
//! level 3.5 only bytes of the same block are mixed. So mode shared needs neither there, as the
//! layer above locks whole blocks; in mode exclusive one part may be read while another is written.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::broken::{Broken, broken};
use crate::code::{self, Pieces};
use crate::config::{Config, Level};
use crate::ids::MemberId;
use crate::message::Io;

/// True if a read of so many blocks computes some of it from parity.
pub(super) fn recovers(config: &Config, block: u64, count: u64) -> bool {
    let data = match config.shape.level {
        Level::Mirror => 0,
        Level::Fragments => config.slots.len() - 1,
        Level::Raid5 | Level::Raid6 => config.slots.len(),
    };
    let all = config.members().take(data).all(|member| config.is_in_sync(member));
    let lost = |block| holder(config, block).is_none();
    !all && (!config.shape.level.is_striped() || (block..block + count).any(lost))
}

/// At levels 5 and 6: the member of a block, if it is in sync.
fn holder(config: &Config, block: u64) -> Option<MemberId> {
    if !config.shape.level.is_striped() {
        return None;
    }
    let (stripe, index) = code::place(config, block);
    let member = code::columns(config.shape.level, config.slots.len(), stripe)[index];
    config.is_in_sync(member).then_some(member)
}

fn sources(config: &Config, stripe: u64) -> Vec<MemberId> {
    code::sources(config, stripe, |member| config.is_in_sync(member)).expect("the array serves")
}

/// The stripes whose pieces each member reads.
fn asked(config: &Config, block: u64, count: u64) -> BTreeMap<MemberId, Range<u64>> {
    let stripes = code::stripes(config, block, count);
    if !config.shape.level.is_striped() {
        let each = |member| (member, stripes.clone());
        return sources(config, stripes.start).into_iter().map(each).collect();
    }
    let mut asked = BTreeMap::<MemberId, Range<u64>>::new();
    for block in block..block + count {
        let (stripe, _) = code::place(config, block);
        let members = match holder(config, block) {
            Some(member) => vec![member],
            None => sources(config, stripe),
        };
        for member in members {
            asked.entry(member).or_insert(stripe..stripe).end = stripe + 1;
        }
    }
    asked
}

/// The blocks, from the pieces that [`reads`] asks for.
pub(super) fn blocks_of(config: &Config, block: u64, count: u64, got: &Pieces) -> Vec<u8> {
    if !config.shape.level.is_striped() {
        return code::content(config, code::place(config, block).0, got);
    }
    let asked = asked(config, block, count);
    let length = code::piece_bytes(&config.shape);
    let piece = |member: MemberId, stripe: u64| {
        let before = usize::try_from(stripe - asked[&member].start).expect("pieces in memory");
        &got[&member][before * length..][..length]
    };
    let mut blocks = Vec::with_capacity(length * usize::try_from(count).expect("blocks in memory"));
    for block in block..block + count {
        let (stripe, index) = code::place(config, block);
        if let Some(member) = holder(config, block) {
            blocks.extend_from_slice(piece(member, stripe));
            continue;
        }
        let sources = sources(config, stripe).into_iter();
        let pieces = sources.map(|member| (member, piece(member, stripe).to_vec())).collect();
        let content = code::content(config, stripe, &pieces);
        blocks.extend_from_slice(&content[index * length..][..length]);
    }
    blocks
}

/// The member requests of a read.
pub(super) fn reads(config: &Config, block: u64, count: u64) -> Vec<(MemberId, Io)> {
    let asked = asked(config, block, count);
    let read = |stripes: &Range<u64>| {
        let count = u32::try_from(stripes.end - stripes.start).expect("a region has fewer");
        Io::Read(stripes.start, count)
    };
    checked(config, asked.iter().map(|(&member, stripes)| (member, read(stripes))).collect())
}

/// Adds checks to reads. A member that was removed would still answer an old epoch. Until a later
/// one opens, only live members of this one can be in sync. As many as a stripe can lose, and one
/// more, meet one of those: it refuses.
pub(super) fn checked(config: &Config, mut all: Vec<(MemberId, Io)>) -> Vec<(MemberId, Io)> {
    let enough = config.shape.level.spares(config.slots.len()) + 1;
    if !broken(Broken::ReadsUnchecked) {
        let unasked = broken(Broken::RebuildingUnchecked);
        let counts = |member: &MemberId| config.is_in_sync(*member) || !unasked;
        let asked: Vec<MemberId> = all.iter().map(|(member, _)| *member).collect();
        let others = config.live().filter(counts).filter(|it| !asked.contains(it));
        let others = others.take(enough.saturating_sub(asked.len()));
        all.extend(others.map(|member| (member, Io::Check)));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Mode, Shape, Slot, State};
    use crate::ids::{ArrayId, BootId, Epoch};

    fn config(level: Level, states: &[State]) -> Config {
        let mode = Mode::Shared;
        let shape = Shape { level, regions: 1, region_blocks: 12, piece_bytes: 2, mode };
        let slots = states.iter().map(|&state| Slot { state, boot: BootId(1) }).collect();
        Config { array: ArrayId(1), epoch: Epoch(5), shape, slots }
    }

    fn asked(level: Level, states: &[State]) -> Vec<(u16, Io)> {
        let reads = reads(&config(level, states), 0, 1);
        reads.into_iter().map(|(member, io)| (member.0, io)).collect()
    }

    /// Member 1 is rebuilt in epoch 5, enters in 6, which never opens, and is alone in 7: member 0
    /// knows nothing of this.
    #[test]
    fn a_read_meets_every_member_that_can_be_alone_in_a_later_epoch() {
        use State::{InSync, Missing, Rebuilding};
        let (read, check) = (|member| (member, Io::Read(0, 1)), |member| (member, Io::Check));
        assert_eq!(asked(Level::Mirror, &[InSync, Rebuilding]), [read(0), check(1)]);
        assert_eq!(asked(Level::Mirror, &[InSync, InSync, Missing]), [read(0), check(1)]);
        assert_eq!(asked(Level::Fragments, &[InSync, Rebuilding]), [read(0), check(1)]);
        assert_eq!(asked(Level::Fragments, &[InSync, Rebuilding, InSync]), [read(0), read(2)]);
        assert_eq!(asked(Level::Raid5, &[InSync; 4]), [read(0), check(1)]);
        // Data of stripe 0 is on members 1, 2 and 3, Q on 0, P on 4.
        assert_eq!(asked(Level::Raid6, &[InSync; 5]), [read(1), check(0), check(2)]);
        let degraded = [InSync, Missing, InSync, InSync, InSync];
        assert_eq!(asked(Level::Raid6, &degraded), [read(2), read(3), read(4)]);
    }

    #[test]
    fn a_member_reads_what_lies_between_its_pieces() {
        let reads = reads(&config(Level::Raid5, &[State::InSync; 3]), 1, 6);
        let reads: Vec<_> = reads.into_iter().map(|(member, io)| (member.0, io)).collect();
        assert_eq!(reads, [(0, Io::Read(1, 3)), (1, Io::Read(0, 3)), (2, Io::Read(1, 2))]);
    }

    /// All ranges of blocks, whichever members are missing.
    #[test]
    fn blocks_come_back() {
        for (level, members) in [
            (Level::Mirror, 2),
            (Level::Fragments, 3),
            (Level::Fragments, 5),
            (Level::Raid5, 3),
            (Level::Raid6, 5),
        ] {
            let spares = level.spares(members);
            for missing in (0..1_u32 << members).filter(|it| it.count_ones() as usize <= spares) {
                let state = |slot| match missing >> slot & 1 {
                    0 => State::InSync,
                    _ => State::Missing,
                };
                let config = config(level, &(0..members).map(state).collect::<Vec<_>>());
                ranges(&config);
            }
        }
    }

    fn ranges(config: &Config) {
        let (shape, members) = (&config.shape, config.slots.len());
        let bytes = 12 * code::stripe_bytes(shape, members);
        let content: Vec<u8> = (0..bytes).map(|byte| (byte * 7 % 251) as u8).collect();
        let stored = code::pieces(shape, members, 0, &content);
        let length = code::block_bytes(shape, members);
        let blocks = (content.len() / length) as u64;
        for (first, end) in (0..blocks).flat_map(|a| (a + 1..=blocks).map(move |b| (a, b))) {
            let answer = |(member, io)| match io {
                Io::Read(stripe, count) => {
                    let pieces = &stored[&member][2 * stripe as usize..][..2 * count as usize];
                    Some((member, pieces.to_vec()))
                }
                _ => None,
            };
            let reads = reads(config, first, end - first);
            assert!(reads.iter().all(|(member, _)| config.is_in_sync(*member)));
            let got = reads.into_iter().filter_map(answer).collect();
            let expected = &content[first as usize * length..end as usize * length];
            assert!(blocks_of(config, first, end - first, &got) == *expected, "{config:?}");
        }
    }
}
