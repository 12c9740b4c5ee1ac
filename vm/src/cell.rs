//! The matrix: which arrays must move between Parapet and the kernel, and which way.
//!
//! Owns the list of cells, made from the layout types themselves: a layout that is added there is
//! in the matrix, or its test fails. Never runs anything.

use std::fmt;

use layout::{Layout, Level};

/// Where the superblock lies, as mdadm's `--metadata` names it.
pub(crate) const VERSIONS: [&str; 3] = ["1.0", "1.1", "1.2"];

/// Chunks, in KiB: the smallest there is, a usual one, and mdadm's default.
pub(crate) const CHUNKS_KIB: [u32; 3] = [4, 64, 512];

/// The record of writes in flight.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Record {
    None,
    Bitmap,
    /// md's partial parity log.
    Ppl,
}

impl Record {
    /// The records possible on a level.
    pub(crate) fn of(level: Level) -> &'static [Record] {
        match level {
            Level::Linear | Level::Raid0 => &[Record::None],
            Level::Raid5 => &[Record::None, Record::Bitmap, Record::Ppl],
            _ => &[Record::None, Record::Bitmap],
        }
    }
}

/// One kind of array.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Cell {
    pub(crate) layout: Layout,
    pub(crate) members: usize,
    /// Each member is larger than the one before.
    pub(crate) unequal: bool,
    pub(crate) metadata: &'static str,
    /// 0 where the level has none.
    pub(crate) chunk_kib: u32,
    pub(crate) record: Record,
}

/// The creator of the array.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Maker {
    Theirs,
    Ours,
}

/// A cell one way: made by one side, taken by the other.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Way {
    pub(crate) cell: Cell,
    pub(crate) maker: Maker,
}

impl Cell {
    /// The ways it can go: the kernel has layouts that mdadm has no name for; only Parapet makes
    /// those.
    fn ways(self) -> Vec<Way> {
        let is_nameless = matches!(self.layout, Layout::Raid10 { near: 2.., far: 2.., .. });
        let makers: &[Maker] =
            if is_nameless { &[Maker::Ours] } else { &[Maker::Theirs, Maker::Ours] };
        makers.iter().map(|&maker| Way { cell: self.clone(), maker }).collect()
    }

    /// The kind of array, in words.
    pub(crate) fn outline(&self) -> String {
        let Cell { layout, members, .. } = self;
        let layout = match layout.to_string().as_str() {
            "none" => String::new(),
            name => format!(" {name}"),
        };
        let unequal = if self.unequal { " of different sizes" } else { "" };
        format!("{}{layout}, {members} members{unequal}", self.layout.level())
    }

    /// `mdadm --detail`'s name of the consistency policy; empty if it prints none.
    pub(crate) fn policy(&self) -> &'static str {
        match self.record {
            Record::Bitmap => "bitmap",
            Record::Ppl => "ppl",
            Record::None if self.is_redundant() => "resync",
            Record::None => "",
        }
    }

    /// May it lose a member?
    pub(crate) fn is_redundant(&self) -> bool {
        !matches!(self.layout.level(), Level::Linear | Level::Raid0)
    }
}

/// `raid5-left-symmetric-4-1.2-64K-ppl`
impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Cell { layout, members, metadata, chunk_kib, .. } = self;
        let unequal = if self.unequal { "-unequal" } else { "" };
        write!(f, "{}-{layout}-{members}{unequal}-{metadata}", layout.level())?;
        if *chunk_kib > 0 {
            write!(f, "-{chunk_kib}K")?;
        }
        match self.record {
            Record::None => Ok(()),
            Record::Bitmap => f.write_str("-bitmap"),
            Record::Ppl => f.write_str("-ppl"),
        }
    }
}

/// `theirs raid5-left-symmetric-4-1.2-64K-ppl`
impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let maker = match self.maker {
            Maker::Theirs => "theirs",
            Maker::Ours => "ours",
        };
        write!(f, "{maker} {}", self.cell)
    }
}

/// The arrays' outlines: layout, members, unequal or not. RAID 3.5 is not md's.
fn outlines() -> Vec<(Layout, usize, bool)> {
    let of = |level: Level, members: usize, unequal: bool| {
        Layout::all(level, members).map(move |layout| (layout, members, unequal))
    };
    let few = |(layout, ..): &(Layout, usize, bool)| match layout {
        Layout::Raid10 { near, far, .. } => near * far <= 3,
        _ => true,
    };
    let mut all: Vec<_> = of(Level::Linear, 3, true).collect();
    all.extend(of(Level::Raid0, 3, false));
    all.extend(of(Level::Raid0, 4, true));
    all.extend(of(Level::Raid1, 2, false));
    all.extend(of(Level::Raid1, 3, false));
    all.extend(of(Level::Raid4, 3, false));
    all.extend(of(Level::Raid5, 4, false));
    all.extend(of(Level::Raid6, 5, false));
    all.extend(of(Level::Raid10, 4, false));
    // An odd number of members: copies go round the corner.
    all.extend(of(Level::Raid10, 3, false).filter(few));
    all.extend(of(Level::Raid10, 5, false).filter(few));
    all
}

/// Every cell.
fn cells() -> Vec<Cell> {
    let mut cells = Vec::new();
    for (layout, members, unequal) in outlines() {
        let level = layout.level();
        let chunks: &[u32] = match level {
            Level::Linear | Level::Raid1 => &[0],
            _ => &CHUNKS_KIB,
        };
        for metadata in VERSIONS {
            for &chunk_kib in chunks {
                for &record in Record::of(level) {
                    cells.push(Cell { layout, members, unequal, metadata, chunk_kib, record });
                }
            }
        }
    }
    cells
}

/// One cell of each outline, with the other axes in turn, so that each value of each axis meets
/// many layouts.
fn some() -> Vec<Cell> {
    let all = cells();
    let mut some: Vec<Cell> = Vec::new();
    for (turn, (layout, members, unequal)) in outlines().into_iter().enumerate() {
        let fits =
            |cell: &&Cell| (cell.layout, cell.members, cell.unequal) == (layout, members, unequal);
        let kind: Vec<&Cell> = all.iter().filter(fits).collect();
        // 7 is prime to the number of cells of each outline: all of them come in their turn.
        some.push(kind[turn * 7 % kind.len()].clone());
    }
    some
}

/// The cells that a newer kernel supports: `linear` was removed in Linux 6.8.
fn some_newer() -> Vec<Cell> {
    let mut cells = some();
    cells.retain(|cell| cell.layout.level() != Level::Linear);
    cells
}

/// All of these, both ways.
fn both_ways(cells: Vec<Cell>) -> Vec<Way> {
    cells.into_iter().flat_map(Cell::ways).collect()
}

/// Each of these one way, by turns; twice the same, as every other cell has the same record.
fn one_way(cells: Vec<Cell>) -> Vec<Way> {
    let turns = cells.into_iter().enumerate().map(|(number, cell)| (number / 2, cell));
    turns
        .map(|(turn, cell)| {
            let mut ways = cell.ways();
            ways.remove(turn % ways.len())
        })
        .collect()
}

/// The matrix.
pub(crate) fn all() -> Vec<Way> {
    both_ways(cells())
}

/// A few for every change.
pub(crate) fn slice() -> Vec<Way> {
    one_way(some())
}

/// The cells for a newer kernel; too slow for every change, where a udev story covers its md.
pub(crate) fn newer() -> Vec<Way> {
    both_ways(some_newer())
}

/// How `mdadm --detail` prints a layout; empty where it prints none.
pub(crate) fn detail_layout(layout: Layout) -> String {
    match layout {
        Layout::Raid10 { near, far: 1, .. } => format!("near={near}"),
        Layout::Raid10 { near: 1, far, offset: false } => format!("far={far}"),
        Layout::Raid10 { near: 1, far, offset: true } => format!("offset={far}"),
        Layout::Raid5(_) | Layout::Raid6(_) => layout.to_string(),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A new layout must be added to the matrix.
    #[test]
    fn every_layout_of_md_is_a_cell() {
        let cells = cells();
        for level in Level::ALL.into_iter().filter(|level| level.md_number().is_some()) {
            for layout in Layout::all(level, 4) {
                assert!(cells.iter().any(|cell| cell.layout == layout), "{level} {layout}");
            }
        }
    }

    #[test]
    fn a_newer_kernel_has_its_supported_cells() {
        assert!(some_newer().len() > 20 && some_newer().len() < some().len());
    }

    #[test]
    fn the_slice_has_every_outline_and_every_value() {
        let slice: Vec<Cell> = slice().into_iter().map(|way| way.cell).collect();
        assert_eq!(slice, some());
        assert_eq!(slice.len(), outlines().len());
        for metadata in VERSIONS {
            assert!(slice.iter().any(|cell| cell.metadata == metadata));
        }
        for chunk in CHUNKS_KIB {
            assert!(slice.iter().any(|cell| cell.chunk_kib == chunk));
        }
        for record in [Record::None, Record::Bitmap, Record::Ppl] {
            assert!(slice.iter().any(|cell| cell.record == record));
        }
    }

    #[test]
    fn the_slice_has_both_ways() {
        for maker in [Maker::Theirs, Maker::Ours] {
            assert!(newer().iter().any(|way| way.maker == maker));
            for level in [Level::Raid6, Level::Raid10] {
                for record in Record::of(level) {
                    let is_it = |way: &&Way| {
                        let Cell { layout, record: own, .. } = &way.cell;
                        (way.maker, layout.level(), own) == (maker, level, record)
                    };
                    assert!(slice().iter().any(|way| is_it(&way)), "{maker:?} {level} {record:?}");
                }
            }
        }
    }

    #[test]
    fn no_two_ways_have_one_name() {
        let mut names: Vec<String> = all().iter().map(Way::to_string).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}
