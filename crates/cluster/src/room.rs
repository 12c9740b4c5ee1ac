//! The room in a member's header: how many marks it holds, and how they are packed.
//!
//! ```text
//!   what                                            bytes of each   most
//!   Held, and the Unsync that it may become               13 + 5   MOST_MARKS
//!   Stale: a bitmap of the regions for each member            1/8   MOST_STALE
//!   Evicted (the old one and the new one), a fence     9 + 9 + 8   MOST_CLIENTS
//! ```
//!
//! No mark is ever dropped for lack of room. So what sets marks must wait:
//!
//! - A grant waits while the log has `MOST_MARKS` marks. The coordinator then drains the regions
//!   that are held longest, one for each request that waits.
//! - Stale marks go only with a rebuild, which no grant can wait for. So an array has no more
//!   regions than there are bits. A client joins only if there is room for its fence.
//!
//! A takeover unites the logs of members in sync, and must find room, too. These logs differ by the
//! last batch at most: a reign sends its first batch when all have its log. So a mark that is
//! cleared counts until that is durable everywhere.
//!
//! Invariant: all marks of all members in sync, united, have room in one header.

use std::collections::{BTreeMap, BTreeSet};

use crate::config::Shape;
use crate::ids::{MemberId, Region};
use crate::record::{Log, Mark};
use crate::wire::{Malformed, Wire};

/// Bytes of a header slot.
pub const HEADER_BYTES: usize = 3 << 20;
/// Most marks of holders and of regions to resync in the grant log; grants beyond it wait.
pub const MOST_MARKS: usize = 1 << 17;
/// Most regions of an array, times its members.
pub const MOST_STALE: usize = 1 << 22;
/// Most clients that ever joined an array; others wait.
pub const MOST_CLIENTS: usize = 1 << 12;
/// Everything else: numbers, and the beginnings of bitmaps.
const OTHER_BYTES: usize = 32 << 10;

const _: () = assert!(
    MOST_MARKS * 18 + MOST_STALE / 8 + MOST_CLIENTS * 26 + OTHER_BYTES <= HEADER_BYTES,
    "a full header fits its slot"
);

/// True if a header has room for an array of this shape, whatever its members miss.
pub fn fits(shape: &Shape, members: usize) -> bool {
    usize::try_from(shape.regions).is_ok_and(|regions| regions <= MOST_STALE / members.max(1))
}

/// True if the number of marks like this one is limited.
pub(crate) fn is_counted(mark: Mark) -> bool {
    matches!(mark, Mark::Held(..) | Mark::Unsync(_))
}

/// The position, all marks but Stale, then for each member with Stale marks the bitmap of these.
impl Wire for Log {
    fn put(&self, out: &mut Vec<u8>) {
        let mut stale: BTreeMap<MemberId, Vec<u8>> = BTreeMap::new();
        let mut others = Vec::new();
        for &mark in &self.marks {
            let Mark::Stale(member, Region(region)) = mark else {
                others.push(mark);
                continue;
            };
            let (bits, at) = (stale.entry(member).or_default(), region as usize / 8);
            bits.resize(bits.len().max(at + 1), 0);
            bits[at] |= 1 << (region % 8);
        }
        self.at.put(out);
        others.put(out);
        stale.into_iter().collect::<Vec<_>>().put(out);
    }

    fn take(from: &mut &[u8]) -> Result<Log, Malformed> {
        let at = Wire::take(from)?;
        let marks: BTreeSet<Mark> = Wire::take(from)?;
        let stale: Vec<(MemberId, Vec<u8>)> = Wire::take(from)?;
        let bytes: usize = stale.iter().map(|(_, bits)| bits.len()).sum();
        let plain = !marks.iter().any(|mark| matches!(mark, Mark::Stale(..)));
        let ordered = stale.windows(2).all(|pair| pair[0].0 < pair[1].0);
        // One form only: a bitmap ends with its last region.
        let whole = stale.iter().all(|(_, bits)| bits.last().is_some_and(|&last| last != 0));
        if !plain || !ordered || !whole || bytes > MOST_STALE / 8 + stale.len() {
            return Err(Malformed::Value);
        }
        let stale = stale.iter().flat_map(|&(member, ref bits)| {
            let bytes = (0..).step_by(8).zip(bits);
            let set = bytes.flat_map(|(first, byte)| {
                (0..8).filter(move |bit| byte & 1 << bit != 0).map(move |bit| first + bit)
            });
            set.map(move |region| Mark::Stale(member, Region(region)))
        });
        // At once: a set of so many marks is too slow to grow.
        Ok(Log { at, marks: marks.into_iter().chain(stale).collect() })
    }
}
