//! A write of some blocks of a stripe, or of whole stripes: what it reads first, and the bytes that
//! it writes.
//!
//! ```text
//!   way      reads                           for
//!   Whole    nothing                         whole stripes; levels 1 and 3.5 always
//!   Rest     the other blocks                most blocks of the stripe
//!   Delta    the same blocks, and parity     few blocks (read-modify-write)
//!   Decode   what determines the stripe      a stripe with members that are not in sync
//! ```
//!
//! The result is absolute: the new bytes of each member. After a fault the client sends *those*
//! again. A delta that is computed again would use data of which a part is new already, and parity
//! would be wrong without a trace.
//!
//! The result has the bytes of members that are missing, too. A client may have the grant of a
//! newer epoch than it knows: a member that it counts as missing may be in sync, and gets the write
//! when it is sent again.
//!
//! Invariants: all that is read is in sync. Nobody else changes the stripe between reading and the
//! last write: the holder of the region locks the stripe.

use std::ops::Range;

use crate::broken::{Broken, broken};
use crate::code::{self, Pieces};
use crate::config::Config;
use crate::ids::MemberId;

/// How new parity is computed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// From the new blocks.
    Whole,
    /// From the new blocks and all others.
    Rest,
    /// From old and new blocks and old parity.
    Delta,
    /// From the whole stripe, some of it recovered.
    Decode,
}

/// Blocks to write: of one stripe, or all of several.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Change {
    /// The stripes, all of one region.
    pub stripes: Range<u64>,
    /// The numbers of the blocks in each.
    pub blocks: Range<usize>,
}

impl Change {
    /// The blocks from this one on that have so many bytes.
    ///
    /// # Panics
    /// If they are neither whole blocks of one stripe nor whole stripes of one region.
    pub fn new(config: &Config, block: u64, bytes: usize) -> Change {
        let length = code::block_bytes(&config.shape, config.slots.len());
        let width = code::width(&config.shape, config.slots.len());
        let (first, count) = (code::place(config, block).1, bytes / length);
        assert!(bytes.is_multiple_of(length) && count > 0, "whole blocks");
        let stripes = code::stripes(config, block, count as u64);
        let blocks = first..width.min(first + count);
        let whole = first == 0 && bytes.is_multiple_of(length * width);
        assert!(whole || stripes.end - stripes.start == 1, "one stripe or whole ones");
        Change { stripes, blocks }
    }

    /// The members of blocks and parity, and of the other blocks.
    fn split(&self, config: &Config) -> [Vec<MemberId>; 3] {
        let members = config.slots.len();
        let mut data = code::columns(config.shape.level, members, self.stripes.start);
        let parity = data.split_off(code::width(&config.shape, members));
        let own = data[self.blocks.clone()].to_vec();
        data.retain(|member| !own.contains(member));
        [own, parity, data]
    }

    /// The cheapest way, and the members to read.
    pub fn plan(&self, config: &Config) -> (Way, Vec<MemberId>) {
        let width = code::width(&config.shape, config.slots.len());
        if self.blocks.len() == width {
            return (Way::Whole, Vec::new());
        }
        let [own, parity, rest] = self.split(config);
        let in_sync = |member: &MemberId| config.is_in_sync(*member);
        let mut ways = Vec::new();
        if own.iter().chain(&parity).all(in_sync) {
            ways.push((Way::Delta, own.into_iter().chain(parity).collect()));
        }
        if rest.iter().all(in_sync) {
            ways.push((Way::Rest, rest));
        }
        let cheapest = ways.into_iter().min_by_key(|(_, reads): &(Way, Vec<MemberId>)| reads.len());
        cheapest.unwrap_or_else(|| {
            let sources =
                code::sources(config, self.stripes.start, |member| config.is_in_sync(member));
            (Way::Decode, sources.expect("the array serves"))
        })
    }

    /// The bytes of each member that changes; `got`: what the plan reads.
    pub fn settle(&self, config: &Config, way: Way, bytes: &[u8], got: &Pieces) -> Pieces {
        let members = config.slots.len();
        let [own, parity, rest] = self.split(config);
        if way == Way::Whole {
            return code::pieces(&config.shape, members, self.stripes.start, bytes);
        }
        let length = bytes.len() / own.len();
        let new = own.iter().copied().zip(bytes.chunks(length).map(<[u8]>::to_vec));
        if way == Way::Delta {
            let parity = parity.into_iter().enumerate().map(|(number, member)| {
                (member, self.updated(number, got[&member].clone(), &own, bytes, got))
            });
            return new.chain(parity).collect();
        }
        let mut known = got.clone();
        if way == Way::Rest {
            known.extend(new);
        }
        let mut content = code::content(config, self.stripes.start, &known);
        content[self.blocks.start * length..self.blocks.end * length].copy_from_slice(bytes);
        let mut all = code::pieces(&config.shape, members, self.stripes.start, &content);
        all.retain(|member, _| !rest.contains(member));
        all
    }

    /// P (0) or Q (1) after the change.
    fn updated(
        &self,
        number: usize,
        mut parity: Vec<u8>,
        own: &[MemberId],
        bytes: &[u8],
        got: &Pieces,
    ) -> Vec<u8> {
        let kernel = parity::best();
        let each = self.blocks.clone().zip(own).zip(bytes.chunks(parity.len()));
        for ((block, member), new) in each {
            let old = &got[member];
            match number {
                0 => kernel.update_p(old, new, &mut parity),
                _ if broken(Broken::QNotUpdated) => {}
                _ => {
                    let exponent = u8::try_from(block).expect("at most 255 blocks");
                    kernel.update_q(exponent, old, new, &mut parity);
                }
            }
        }
        parity
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Level, Mode, Shape, Slot, State};
    use crate::ids::{ArrayId, BootId, Epoch};

    fn config(level: Level, states: &str) -> Config {
        let shape =
            Shape { level, regions: 1, region_blocks: 6, piece_bytes: 2, mode: Mode::Exclusive };
        let state = |letter| match letter {
            'i' => State::InSync,
            'r' => State::Rebuilding,
            _ => State::Missing,
        };
        let slots = states.chars().map(|letter| Slot { state: state(letter), boot: BootId(1) });
        Config { array: ArrayId(1), epoch: Epoch(1), shape, slots: slots.collect() }
    }

    /// Every change, in every state that the level tolerates, gives the stripe of its new content,
    /// also on members that are missing.
    #[test]
    fn every_way_gives_the_same_stripe() {
        let mut ways = Vec::new();
        for (level, members) in [(Level::Raid5, 3), (Level::Raid5, 5), (Level::Raid6, 6)] {
            for number in 0..3_usize.pow(members) {
                let letter = |slot| "irm".as_bytes()[number / 3_usize.pow(slot) % 3] as char;
                let states: String = (0..members).map(letter).collect();
                let config = config(level, &states);
                if config.serves() {
                    (0..6).for_each(|stripe| ways.extend(check(&config, stripe)));
                }
            }
        }
        for way in [Way::Whole, Way::Rest, Way::Delta, Way::Decode] {
            assert!(ways.contains(&way), "{way:?}");
        }
    }

    fn check(config: &Config, stripe: u64) -> Vec<Way> {
        let members = config.slots.len();
        let width = code::width(&config.shape, members);
        let old: Vec<u8> = (1..=2 * width as u8).collect();
        let before = code::pieces(&config.shape, members, stripe, &old);
        let mut ways = Vec::new();
        for start in 0..width {
            for end in start + 1..=width {
                let bytes: Vec<u8> = (0..2 * (end - start) as u8).map(|byte| byte + 100).collect();
                let change = Change::new(config, stripe * width as u64 + start as u64, bytes.len());
                let (way, reads) = change.plan(config);
                ways.push(way);
                assert!(reads.iter().all(|&member| config.is_in_sync(member)));
                let got = reads.iter().map(|member| (*member, before[member].clone())).collect();
                let settled = change.settle(config, way, &bytes, &got);
                let mut new = old.clone();
                new[2 * start..2 * end].copy_from_slice(&bytes);
                let expected = code::pieces(&config.shape, members, stripe, &new);
                for member in config.members() {
                    let after = settled.get(&member).unwrap_or(&before[&member]);
                    assert_eq!(
                        *after, expected[&member],
                        "{config:?} {stripe} {start}..{end} {way:?}"
                    );
                }
            }
        }
        ways
    }
}
