//! A stripe as pieces on the members, and back.
//!
//! ```text
//!   mirror   block B           → B  B  B
//!   3.5      block d0 d1       → d0  d1  d0⊕d1        order 1
//!            block d0 d1 d2 d3 → d0  d1  d2  d3  ⊕    order 2
//!   5, 6     blocks B0 B1 …    → a piece each, and P (and Q), which turn:
//!
//!              5, 3 members           6, 5 members
//!              s=0   0  1  P          s=0   Q  0  1  2  P
//!              s=1   3  P  2          s=1   3  4  5  P  Q
//!              s=2   P  4  5          s=2   7  8  P  Q  6
//! ```
//!
//! Levels 1 and 3.5 have one block in a stripe. Levels 5 and 6 have several, as md's left-symmetric
//! layout with a chunk of one block: a read of a block asks one member, and blocks in order fill
//! stripes.
//!
//! A resync reads the pieces that a reader reads and writes the others from them. So reads do not
//! change when a resync runs: nobody has to ask whether a region is dirty.
//!
//! Invariant: [`sources`] determine the stripe, and are in sync.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::config::{Config, Level, Shape};
use crate::ids::MemberId;

/// Pieces, by member; of several stripes one after the other.
pub type Pieces = BTreeMap<MemberId, Vec<u8>>;

/// Bytes of a piece.
pub fn piece_bytes(shape: &Shape) -> usize {
    usize::try_from(shape.piece_bytes).expect("a piece fits in memory")
}

/// Pieces of a stripe that hold data.
fn data(level: Level, members: usize) -> usize {
    if level == Level::Mirror { 1 } else { members - level.spares(members) }
}

/// Blocks of a stripe.
pub fn width(shape: &Shape, members: usize) -> usize {
    if shape.level.is_striped() { data(shape.level, members) } else { 1 }
}

/// Bytes of a stripe's blocks.
pub fn stripe_bytes(shape: &Shape, members: usize) -> usize {
    piece_bytes(shape) * data(shape.level, members)
}

/// Bytes of a block of an array with this many members.
pub fn block_bytes(shape: &Shape, members: usize) -> usize {
    stripe_bytes(shape, members) / width(shape, members)
}

/// The stripe of a block, and the block's number in it.
pub fn place(config: &Config, block: u64) -> (u64, usize) {
    let width = width(&config.shape, config.slots.len()) as u64;
    (block / width, usize::try_from(block % width).expect("less than the members"))
}

/// The stripes of so many blocks.
///
/// # Panics
/// If they are not of one region.
pub fn stripes(config: &Config, block: u64, count: u64) -> Range<u64> {
    let (first, last) = (place(config, block).0, place(config, block + count - 1).0);
    let region = |stripe| config.shape.region(stripe);
    assert_eq!(region(first), region(last), "blocks of one region");
    first..last + 1
}

/// The members of a stripe's pieces: data in order, then P, then Q.
pub fn columns(level: Level, members: usize, stripe: u64) -> Vec<MemberId> {
    let turn = usize::try_from(stripe % members as u64).expect("less than the members");
    let (data, p) = (data(level, members), members - 1 - turn);
    let slot = |column: usize| match (level.is_striped(), column.checked_sub(data)) {
        (false, _) => column,
        (true, None) => (p + members - data + column) % members,
        (true, Some(parity)) => (p + parity) % members,
    };
    let id = |column| MemberId(u16::try_from(slot(column)).expect("at most 65535 members"));
    (0..members).map(id).collect()
}

/// Bytes with their exponents in Q.
pub fn terms<'a>(data: &[&'a [u8]]) -> Vec<parity::Term<'a>> {
    (0..).zip(data.iter().copied()).collect()
}

/// The pieces of all members, of a stripe and of those after it.
///
/// # Panics
/// If `content` is not the length of stripes.
pub fn pieces(shape: &Shape, members: usize, stripe: u64, content: &[u8]) -> Pieces {
    let whole = content.len().is_multiple_of(stripe_bytes(shape, members));
    assert!(whole && !content.is_empty(), "whole stripes");
    let first = columns(shape.level, members, stripe);
    if shape.level == Level::Mirror {
        return first.into_iter().map(|member| (member, content.to_vec())).collect();
    }
    // Columns are long: all stripes of one together.
    let (length, count) = (piece_bytes(shape), data(shape.level, members));
    let room = content.len() / count;
    let mut all = vec![Vec::with_capacity(room); count];
    for (column, piece) in (0..count).cycle().zip(content.chunks(length)) {
        all[column].extend_from_slice(piece);
    }
    let data: Vec<&[u8]> = all.iter().map(Vec::as_slice).collect();
    let (mut p, mut q) = (vec![0; room], Vec::new());
    if shape.level == Level::Raid6 {
        q.resize(room, 0);
        parity::best().pq(&terms(&data), &mut p, &mut q);
    } else {
        parity::best().xor(&data, &mut p);
    }
    all.extend([p, q]);
    if room == length || !shape.level.is_striped() {
        return first.into_iter().zip(all).collect();
    }
    let mut turned = Pieces::new();
    for (stripe, at) in (stripe..).zip((0..room).step_by(length)) {
        for (member, column) in columns(shape.level, members, stripe).into_iter().zip(&all) {
            let pieces = turned.entry(member).or_insert_with(|| Vec::with_capacity(room));
            pieces.extend_from_slice(&column[at..at + length]);
        }
    }
    turned
}

/// The members whose pieces determine a stripe, data first; `None` if too few are `usable`.
pub fn sources(
    config: &Config,
    stripe: u64,
    usable: impl Fn(MemberId) -> bool,
) -> Option<Vec<MemberId>> {
    let (level, members) = (config.shape.level, config.slots.len());
    let columns = columns(level, members, stripe);
    let found: Vec<MemberId> = columns.into_iter().filter(|&member| usable(member)).collect();
    if found.len() < config.needed() {
        return None;
    }
    Some(match level {
        // The same copy for all clients and for the resync: reads are repeatable.
        Level::Mirror => {
            let region = usize::try_from(config.shape.region(stripe).0).expect("small");
            vec![found[region % found.len()]]
        }
        _ => found.into_iter().take(data(level, members)).collect(),
    })
}

/// The stripe, from the pieces of [`sources`]; at levels 1 and 3.5 also those after it, if the
/// pieces are several.
///
/// # Panics
/// If a piece is missing.
pub fn content(config: &Config, stripe: u64, pieces: &Pieces) -> Vec<u8> {
    let (level, members) = (config.shape.level, config.slots.len());
    let some = pieces.values().next().expect("a source");
    if level == Level::Mirror {
        return some.clone();
    }
    let count = data(level, members);
    let columns = columns(level, members, stripe);
    let got: Vec<Option<&[u8]>> =
        columns.iter().map(|member| pieces.get(member).map(Vec::as_slice)).collect();
    let mut lost = (0..).zip(&got[..count]).filter(|(_, piece)| piece.is_none());
    let (first, second) = (lost.next().map(|(e, _)| e), lost.next().map(|(e, _)| e));
    let known: Vec<parity::Term> =
        (0..).zip(&got[..count]).filter_map(|(e, piece)| Some((e, (*piece)?))).collect();
    let (p, q) = (got[count], got.get(count + 1).copied().flatten());
    let room = |lost: Option<u8>| vec![0; lost.map_or(0, |_| some.len())];
    let (mut one, mut two) = (room(first), room(second));
    let kernel = parity::best();
    match (first, second, p, q) {
        (None, ..) => {}
        (Some(_), None, Some(p), _) => kernel.recover_one_p(&known, p, &mut one),
        (Some(x), None, None, Some(q)) => kernel.recover_one_q(&known, q, x, &mut one),
        (Some(x), Some(y), Some(p), Some(q)) => {
            kernel.recover_two(&known, p, q, (x, &mut one), (y, &mut two));
        }
        _ => panic!("the sources do not determine the stripe"),
    }
    let found = |e| if Some(e) == first { &one[..] } else { &two[..] };
    let columns = (0..).zip(&got[..count]).map(|(e, piece)| piece.unwrap_or_else(|| found(e)));
    let columns: Vec<&[u8]> = columns.collect();
    let length = piece_bytes(&config.shape);
    let mut content = Vec::with_capacity(count * some.len());
    for at in (0..some.len()).step_by(length) {
        columns.iter().for_each(|column| content.extend_from_slice(&column[at..at + length]));
    }
    content
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Mode, Slot, State};
    use crate::ids::{ArrayId, BootId, Epoch};

    #[test]
    fn members_that_the_level_tolerates_can_be_missing() {
        let levels = [
            (Level::Mirror, 2),
            (Level::Fragments, 3),
            (Level::Fragments, 5),
            (Level::Raid5, 3),
            (Level::Raid5, 5),
            (Level::Raid6, 4),
            (Level::Raid6, 6),
        ];
        for (level, members) in levels {
            let mode = Mode::Exclusive;
            let shape = Shape { level, regions: 1, region_blocks: 12, piece_bytes: 2, mode };
            let content: Vec<u8> = (1..=stripe_bytes(&shape, members) as u8).collect();
            let spares = level.spares(members);
            let absent = |mask: &usize| mask.count_ones() as usize <= spares;
            for (missing, stripe) in (0..1_usize << members).filter(absent).zip((0_u64..12).cycle())
            {
                let pieces = pieces(&shape, members, stripe, &content);
                let state = |slot| match missing >> slot & 1 {
                    0 => State::InSync,
                    _ => State::Missing,
                };
                let slots = (0..members).map(|slot| Slot { state: state(slot), boot: BootId(1) });
                let slots = slots.collect();
                let config = Config { array: ArrayId(1), epoch: Epoch(1), shape, slots };
                let sources = sources(&config, stripe, |member| config.is_in_sync(member));
                let sources = sources.expect("enough members");
                let read = sources.iter().map(|m| (*m, pieces[m].clone())).collect();
                assert_eq!(
                    super::content(&config, stripe, &read),
                    content,
                    "{level:?} {missing:b}"
                );
            }
        }
    }

    /// A member holds the same bytes, whether stripes are written together or each by itself.
    #[test]
    fn stripes_together_are_the_stripes_one_by_one() {
        for (level, members) in
            [(Level::Mirror, 2), (Level::Fragments, 5), (Level::Raid5, 4), (Level::Raid6, 5)]
        {
            let mode = Mode::Exclusive;
            let shape = Shape { level, regions: 1, region_blocks: 12, piece_bytes: 2, mode };
            let length = stripe_bytes(&shape, members);
            let content: Vec<u8> = (0..7 * length).map(|byte| byte as u8).collect();
            let mut each = Pieces::new();
            for (stripe, content) in (3..).zip(content.chunks(length)) {
                for (member, piece) in pieces(&shape, members, stripe, content) {
                    each.entry(member).or_default().extend(piece);
                }
            }
            assert_eq!(pieces(&shape, members, 3, &content), each, "{level:?}");
        }
    }

    /// md's left-symmetric layout: DESIGN.md's `layout::geometry` has the same tables.
    #[test]
    fn parity_turns() {
        let table = |level, members, stripe| {
            let columns = columns(level, members, stripe);
            let names = "0123456789".chars().take(data(level, members)).chain("PQ".chars());
            let mut row = vec!['.'; members];
            names.zip(columns).for_each(|(name, member)| row[usize::from(member.0)] = name);
            row.into_iter().collect::<String>()
        };
        let rows = |level| (0..5).map(|stripe| table(level, 5, stripe)).collect::<Vec<_>>();
        assert_eq!(rows(Level::Raid5), ["0123P", "123P0", "23P01", "3P012", "P0123"]);
        assert_eq!(rows(Level::Raid6), ["Q012P", "012PQ", "12PQ0", "2PQ01", "PQ012"]);
        assert_eq!(table(Level::Fragments, 3, 7), "01P");
    }
}
