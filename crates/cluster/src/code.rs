//! A block as pieces on the members, and back.
//!
//! ```text
//!   mirror   block B          → B  B  B
//!   3.5      block d0 d1      → d0  d1  d0⊕d1         order 1
//!            block d0 d1 d2 d3→ d0  d1  d2  d3  ⊕     order 2
//! ```
//!
//! A resync reads the pieces that a reader reads and writes the others from them. So reads do not
//! change when a resync runs: nobody has to ask whether a region is dirty.
//!
//! Invariant: [`sources`] of a configuration determine the block, and are in sync.

use std::collections::BTreeMap;

use crate::config::{Config, Level, Shape};
use crate::ids::{MemberId, Region};

/// Bytes of a block of an array with this many members.
pub fn block_bytes(shape: &Shape, members: usize) -> usize {
    let piece = usize::try_from(shape.piece_bytes).expect("a piece fits in memory");
    match shape.level {
        Level::Mirror => piece,
        Level::Fragments => piece * (members - 1),
    }
}

fn xor(into: &mut [u8], piece: &[u8]) {
    for (byte, other) in into.iter_mut().zip(piece) {
        *byte ^= other;
    }
}

/// The piece of each member.
///
/// # Panics
/// If the block does not have its length.
pub fn pieces(shape: &Shape, members: usize, block: &[u8]) -> Vec<Vec<u8>> {
    assert_eq!(block.len(), block_bytes(shape, members), "a whole block");
    if shape.level == Level::Mirror {
        return vec![block.to_vec(); members];
    }
    let piece = block.len() / (members - 1);
    let mut pieces: Vec<Vec<u8>> = block.chunks(piece).map(<[u8]>::to_vec).collect();
    let mut parity = vec![0; piece];
    pieces.iter().for_each(|piece| xor(&mut parity, piece));
    pieces.push(parity);
    pieces
}

/// The members whose pieces a reader reads; `None` if too few are in sync.
pub fn sources(config: &Config, region: Region) -> Option<Vec<MemberId>> {
    let in_sync: Vec<MemberId> = config.in_sync().collect();
    if !config.serves() {
        return None;
    }
    Some(match config.shape.level {
        // The same copy for all clients and for the resync: reads are repeatable.
        Level::Mirror => {
            vec![in_sync[usize::try_from(region.0).expect("small") % in_sync.len()]]
        }
        Level::Fragments => in_sync.into_iter().take(config.slots.len() - 1).collect(),
    })
}

/// The block, from the pieces of [`sources`].
///
/// # Panics
/// If a piece is missing.
pub fn block(config: &Config, pieces: &BTreeMap<MemberId, Vec<u8>>) -> Vec<u8> {
    if config.shape.level == Level::Mirror {
        return pieces.values().next().expect("one source").clone();
    }
    let mut lost = vec![0; usize::try_from(config.shape.piece_bytes).expect("fits in memory")];
    pieces.values().for_each(|piece| xor(&mut lost, piece));
    let data = config.members().take(config.slots.len() - 1);
    data.flat_map(|member| pieces.get(&member).unwrap_or(&lost).clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Mode, Slot, State};
    use crate::ids::{ArrayId, BootId, Epoch};

    #[test]
    fn any_single_member_can_be_missing() {
        for (level, members) in [(Level::Mirror, 2), (Level::Fragments, 3), (Level::Fragments, 5)] {
            let mode = Mode::Shared;
            let shape = Shape { level, regions: 1, region_blocks: 1, piece_bytes: 2, mode };
            let content: Vec<u8> = (1..=block_bytes(&shape, members) as u8).collect();
            let pieces = pieces(&shape, members, &content);
            for missing in 0..=members {
                let state = |slot| match slot == missing {
                    true => State::Missing,
                    false => State::InSync,
                };
                let slots = (0..members).map(|slot| Slot { state: state(slot), boot: BootId(1) });
                let slots = slots.collect();
                let config = Config { array: ArrayId(1), epoch: Epoch(1), shape, slots };
                let sources = sources(&config, Region(0)).expect("enough members");
                let read = sources.iter().map(|&m| (m, pieces[usize::from(m.0)].clone())).collect();
                assert_eq!(block(&config, &read), content);
            }
        }
    }
}
