//! The matrix: which arrays must move between Parapet and the kernel.
//!
//! Owns the list of cells, made from the layout types themselves: a layout that is added there is
//! in the matrix, or its test fails. Never runs anything.

use std::fmt;

use layout::{Layout, Level};

/// Where the superblock lies, as mdadm's `--metadata` names it.
pub(crate) const VERSIONS: [&str; 3] = ["1.0", "1.1", "1.2"];

/// Chunks, in KiB: the smallest there is, a usual one, and mdadm's default.
pub(crate) const CHUNKS_KIB: [u32; 3] = [4, 64, 512];

/// What is on record about writes under way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Record {
    None,
    Bitmap,
    /// md's partial parity log.
    Ppl,
}

impl Record {
    /// Those that a level can have.
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

impl Cell {
    /// False for layouts that the kernel has and mdadm has no name for: only Parapet can make them.
    pub(crate) fn has_mdadm_name(&self) -> bool {
        !matches!(self.layout, Layout::Raid10 { near: 2.., far: 2.., .. })
    }

    /// What kind of array it is, in words.
    pub(crate) fn outline(&self) -> String {
        let Cell { layout, members, .. } = self;
        let layout = match layout.to_string().as_str() {
            "none" => String::new(),
            name => format!(" {name}"),
        };
        let unequal = if self.unequal { " of different sizes" } else { "" };
        format!("{}{layout}, {members} members{unequal}", self.layout.level())
    }

    /// How `mdadm --detail` names what makes the array consistent after a crash; empty where it
    /// says nothing.
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

/// `raid5-left-symmetric-4-1.2-64K-ppl`: also the name of its folder.
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
pub(crate) fn all() -> Vec<Cell> {
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

/// A few for every change: each outline once, and the other axes in turn, so that each value of
/// each axis is there with many layouts.
pub(crate) fn slice() -> Vec<Cell> {
    let all = all();
    let mut cells: Vec<Cell> = Vec::new();
    for (turn, (layout, members, unequal)) in outlines().into_iter().enumerate() {
        let fits =
            |cell: &&Cell| (cell.layout, cell.members, cell.unequal) == (layout, members, unequal);
        let kind: Vec<&Cell> = all.iter().filter(fits).collect();
        // 7 is prime to the number of cells of each outline: all of them come in their turn.
        cells.push(kind[turn * 7 % kind.len()].clone());
    }
    cells
}

/// Those of the slice that a newer kernel can have: `linear` went with Linux 6.8.
pub(crate) fn newer() -> Vec<Cell> {
    let mut cells = slice();
    cells.retain(|cell| cell.layout.level() != Level::Linear);
    cells
}

/// Of these, one of each level that most arrays have.
pub(crate) fn newer_slice() -> Vec<Cell> {
    let usual = [Level::Raid1, Level::Raid5, Level::Raid6, Level::Raid10];
    let mut cells = newer();
    cells.retain(|cell| usual.contains(&cell.layout.level()));
    cells.dedup_by_key(|cell| cell.layout.level());
    cells
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

    /// Whoever adds a layout adds it to the matrix.
    #[test]
    fn every_layout_of_md_is_a_cell() {
        let cells = all();
        for level in Level::ALL.into_iter().filter(|level| level.md_number().is_some()) {
            for layout in Layout::all(level, 4) {
                assert!(cells.iter().any(|cell| cell.layout == layout), "{level} {layout}");
            }
        }
    }

    #[test]
    fn a_newer_kernel_has_what_it_can() {
        assert_eq!(newer_slice().len(), 4);
        assert!(newer().len() > 20 && newer().len() < slice().len());
    }

    #[test]
    fn the_slice_has_every_outline_and_every_value() {
        let slice = slice();
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
    fn no_two_cells_have_one_name() {
        let mut names: Vec<String> = all().iter().map(Cell::to_string).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}
