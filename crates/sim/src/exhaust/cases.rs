//! The cases: every level and layout family on its smallest useful array, and every short workload
//! on each.

use layout::{Geometry, Layout, Level, Raid0Layout, Raid5Layout, Raid6Layout};

use crate::medium::SECTOR;
use random::Rng;

/// Bytes of a chunk, where the level has chunks; of a block on RAID 3.5.
pub(super) const CHUNK: u64 = 4096;

/// Stripes that a workload may touch; the array has one more at least.
const ROWS: u64 = 4;

/// A level with a layout and a number of members.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Case {
    /// Level and layout.
    pub layout: Layout,
    /// How many members.
    pub members: usize,
}

impl Case {
    /// True if another case differs only in the numbering of the members, that is, in the place of
    /// parity.
    pub(super) fn is_turned(self) -> bool {
        let Case { layout, members } = self;
        match layout {
            Layout::Raid5(order) => members == 3 && order != Raid5Layout::LeftSymmetric,
            Layout::Raid6(order) => members == 4 && order != Raid6Layout::LeftSymmetric,
            _ => false,
        }
    }

    /// The array's chunk, as [`layout::geometry::Shape`] wants it.
    pub(super) fn chunk_bytes(self) -> u64 {
        match self.layout {
            Layout::Raid1 => 0,
            Layout::Raid35 { order } => CHUNK >> order,
            _ => CHUNK,
        }
    }

    /// Bytes used of each member, where that can be said.
    pub(super) fn size_bytes(self) -> Option<u64> {
        match self.layout.level() {
            // RAID 1 takes whole 64 KiB.
            Level::Linear | Level::Raid0 | Level::Raid1 => None,
            Level::Raid35 => Some(6 * self.chunk_bytes()),
            Level::Raid10 => Some(6 * CHUNK),
            _ => Some((ROWS + 1) * CHUNK),
        }
    }
}

impl std::fmt::Display for Case {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {} of {}", self.layout.level(), self.layout, self.members)
    }
}

/// Every case, by level.
pub fn all() -> Vec<Case> {
    let case = |layout, members| Case { layout, members };
    let copies = |near, far, offset| Layout::Raid10 { near, far, offset };
    let mut cases = vec![
        case(Layout::Linear, 2),
        case(Layout::Raid0(Raid0Layout::Original), 2),
        case(Layout::Raid1, 2),
        case(Layout::Raid1, 3),
        case(copies(2, 1, false), 4),
        case(copies(2, 1, false), 3),
        case(copies(1, 2, false), 3),
        case(copies(1, 2, true), 3),
        case(copies(3, 1, false), 3),
        case(Layout::Raid4, 3),
        case(Layout::Raid4, 4),
        case(Layout::Raid5(Raid5Layout::LeftSymmetric), 4),
        case(Layout::Raid35 { order: 1 }, 3),
        case(Layout::Raid35 { order: 2 }, 5),
        case(Layout::Raid6(Raid6Layout::LeftSymmetric), 5),
    ];
    cases.extend(Raid5Layout::ALL.map(|layout| case(Layout::Raid5(layout), 3)));
    cases.extend(Raid6Layout::ALL.map(|layout| case(Layout::Raid6(layout), 4)));
    cases
}

/// How an operation is made durable.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Care {
    /// Not.
    None,
    /// By FUA.
    Fua,
    /// By a flush after it.
    Flush,
}

const CARES: [Care; 3] = [Care::None, Care::Fua, Care::Flush];

/// A write.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Write {
    /// First byte.
    pub(super) offset: u64,
    /// How many.
    pub(super) len: u64,
    /// The attached operation.
    pub(super) care: Care,
    /// It is sent together with the one before.
    pub(super) together: bool,
}

/// Writes, one after the other.
pub(super) type Workload = Vec<Write>;

/// A workload in words.
pub(super) fn describe(workload: &Workload) -> String {
    let one = |write: &Write| {
        let Write { offset, len, care, together } = write;
        let care = match care {
            Care::None => "",
            Care::Fua => " FUA",
            Care::Flush => ", FLUSH",
        };
        format!("{}write {offset}+{len}{care}", if *together { "with it " } else { "" })
    };
    workload.iter().map(one).collect::<Vec<_>>().join("; ")
}

/// Where things are in the part of the array that workloads touch.
#[derive(Clone, Copy)]
struct Field {
    /// Bytes of a chunk, or of its replacement.
    chunk: u64,
    stripe: u64,
    end: u64,
}

impl Field {
    fn of(geometry: &Geometry) -> Field {
        let stripe = geometry.stripe_bytes();
        // One stripe at least is never touched: it must stay as it is.
        let end = (ROWS * stripe).min(geometry.capacity() - stripe);
        Field { chunk: CHUNK.min(stripe), stripe, end }
    }

    /// The shapes of a write at a chunk: offset and length.
    fn shapes(self, at: u64) -> Vec<(u64, u64)> {
        let Field { chunk, stripe, .. } = self;
        let shapes = [
            (at + SECTOR, SECTOR),
            (at + 2 * SECTOR, 5 * SECTOR),
            (at, chunk),
            (at, 2 * chunk),
            (at / stripe * stripe, stripe),
            (at + chunk / 2, stripe),
        ];
        let mut fitting: Vec<_> =
            shapes.into_iter().filter(|&(offset, len)| offset + len <= self.end).collect();
        fitting.sort_unstable();
        fitting.dedup();
        fitting
    }

    /// Writes of every shape at these chunks.
    fn writes(self, places: &[u64], care: Care, together: bool) -> Vec<Write> {
        let shapes = places.iter().flat_map(|&at| self.shapes(at));
        let writes = shapes.map(|(offset, len)| Write { offset, len, care, together });
        let mut writes: Vec<Write> = writes.collect();
        writes.sort_unstable();
        writes.dedup();
        writes
    }
}

/// Every workload of one write: each shape at every chunk of the rows.
pub(super) fn singles(geometry: &Geometry) -> Vec<Workload> {
    let field = Field::of(geometry);
    let places: Vec<u64> = (0..field.end).step_by(field.chunk as usize).collect();
    let writes = CARES.into_iter().flat_map(|care| field.writes(&places, care, false));
    writes.map(|write| vec![write]).collect()
}

/// Every workload of two writes: the first of any shape, the second of any shape at the same chunk,
/// at the next one, and in the next stripe; one after the other, or both at once.
pub(super) fn pairs(geometry: &Geometry) -> Vec<Workload> {
    let field = Field::of(geometry);
    let mut pairs = Vec::new();
    for (first_care, together) in [
        (Care::None, false),
        (Care::Fua, false),
        (Care::Flush, false),
        (Care::None, true),
        (Care::Fua, true),
    ] {
        // Another stripe for each kind: parity is elsewhere.
        let turn = (pairs.len() as u64) % (ROWS - 1);
        let start = (turn * field.stripe).min(field.end - field.stripe);
        let near = [start, start + field.chunk, start + field.stripe];
        for first in field.writes(&[start], first_care, false) {
            for care in CARES {
                let seconds = field.writes(&near, care, together);
                pairs.extend(seconds.into_iter().map(|second| vec![first, second]));
            }
        }
    }
    pairs
}

/// Any workloads of three writes.
pub(super) fn triples(geometry: &Geometry, count: usize, rng: &mut Rng) -> Vec<Workload> {
    let field = Field::of(geometry);
    let chunks = field.end / field.chunk;
    let mut any = |first: bool| loop {
        let care = rng.pick(&CARES);
        let shapes = field.shapes(rng.below(chunks) * field.chunk);
        if !shapes.is_empty() {
            let (offset, len) = rng.pick(&shapes);
            let together = !first && rng.percent(30);
            return Write { offset, len, care, together };
        }
    };
    (0..count).map(|_| vec![any(true), any(false), any(false)]).collect()
}
