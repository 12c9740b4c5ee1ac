//! Levels and layouts: their names, and the numbers md stores for them.
//!
//! Owns the correspondence name ↔ value ↔ md number, and the list of every layout there is. Never
//! maps a byte.

use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;

use crate::units::MAX_SLOTS;

use super::error::LayoutError;

/// How an array spreads its data: the family of layouts, as people name it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Level {
    /// Members one after the other (JBOD). Loses data with any member.
    Linear,
    /// Chunks in turn over all members. Loses data with any member.
    Raid0,
    /// Each member holds everything.
    Raid1,
    /// Parity on the last member.
    Raid4,
    /// Parity in turn on all members.
    Raid5,
    /// Two parities; any two members may be lost.
    Raid6,
    /// Copies of chunks, in turn over all members.
    Raid10,
    /// Each block cut over all data members, parity on the last: no read-modify-write.
    Raid35,
}

impl Level {
    /// Every level.
    pub const ALL: [Level; 8] = [
        Level::Linear,
        Level::Raid0,
        Level::Raid1,
        Level::Raid4,
        Level::Raid5,
        Level::Raid6,
        Level::Raid10,
        Level::Raid35,
    ];

    /// The number in the superblock's `level` field; `None` for RAID 3.5, which md has not.
    pub const fn md_number(self) -> Option<i32> {
        match self {
            Level::Linear => Some(-1),
            Level::Raid0 => Some(0),
            Level::Raid1 => Some(1),
            Level::Raid4 => Some(4),
            Level::Raid5 => Some(5),
            Level::Raid6 => Some(6),
            Level::Raid10 => Some(10),
            Level::Raid35 => None,
        }
    }

    /// The level that md stores as `number`; `None` if it holds no data (multipath is −4).
    pub fn from_md(number: i32) -> Option<Level> {
        Level::ALL.into_iter().find(|level| level.md_number() == Some(number))
    }

    /// The fewest members md runs this level with. One for linear, 0 and 1: rare, but such arrays
    /// exist (appliances with a single disk) and must be readable.
    pub const fn min_members(self) -> usize {
        match self {
            Level::Linear | Level::Raid0 | Level::Raid1 => 1,
            Level::Raid4 | Level::Raid5 | Level::Raid10 => 2,
            Level::Raid35 => 3,
            Level::Raid6 => 4,
        }
    }

    /// The name as a word: `raid5`.
    pub const fn name(self) -> &'static str {
        match self {
            Level::Linear => "linear",
            Level::Raid0 => "raid0",
            Level::Raid1 => "raid1",
            Level::Raid4 => "raid4",
            Level::Raid5 => "raid5",
            Level::Raid6 => "raid6",
            Level::Raid10 => "raid10",
            Level::Raid35 => "raid3.5",
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Level {
    type Err = LayoutError;

    /// Takes `5`, `raid5`, `RAID 5`, `raid-5`; `linear`, `jbod`; `stripe` and `mirror` as mdadm
    /// does.
    fn from_str(text: &str) -> Result<Level, LayoutError> {
        let word = text.trim().to_ascii_lowercase();
        match word.as_str() {
            "linear" | "jbod" => return Ok(Level::Linear),
            "stripe" => return Ok(Level::Raid0),
            "mirror" => return Ok(Level::Raid1),
            _ => {}
        }
        let number = match word.strip_prefix("raid") {
            Some(number) => number.trim_start_matches(['-', ' ']),
            None => &word,
        };
        Level::ALL
            .into_iter()
            .find(|level| level.name().strip_prefix("raid") == Some(number))
            .ok_or(LayoutError::UnknownLevel)
    }
}

/// Which member a chunk of a RAID 0 with unequal members goes to (see Linux 5.4, `raid0.c`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Raid0Layout {
    /// By the chunk's number in the array: Linux before 3.14, and mdadm's default.
    Original,
    /// By the chunk's number in its zone: Linux 3.14 to 5.3.
    Alternate,
}

/// Where a RAID 5 has parity and data; the numbers are md's.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Raid5Layout {
    /// Parity from the last slot down, data ascending from slot 0.
    LeftAsymmetric = 0,
    /// Parity from slot 0 up, data ascending from slot 0.
    RightAsymmetric = 1,
    /// Parity from the last slot down, data from the slot after it: md's default.
    LeftSymmetric = 2,
    /// Parity from slot 0 up, data from the slot after it.
    RightSymmetric = 3,
    /// Parity on slot 0.
    ParityFirst = 4,
    /// Parity on the last slot (a RAID 4).
    ParityLast = 5,
}

impl Raid5Layout {
    /// Every layout of RAID 5.
    pub const ALL: [Raid5Layout; 6] = [
        Raid5Layout::LeftAsymmetric,
        Raid5Layout::RightAsymmetric,
        Raid5Layout::LeftSymmetric,
        Raid5Layout::RightSymmetric,
        Raid5Layout::ParityFirst,
        Raid5Layout::ParityLast,
    ];

    const fn name(self) -> &'static str {
        match self {
            Raid5Layout::LeftAsymmetric => "left-asymmetric",
            Raid5Layout::RightAsymmetric => "right-asymmetric",
            Raid5Layout::LeftSymmetric => "left-symmetric",
            Raid5Layout::RightSymmetric => "right-symmetric",
            Raid5Layout::ParityFirst => "parity-first",
            Raid5Layout::ParityLast => "parity-last",
        }
    }
}

/// Where a RAID 6 has its parities and data; the numbers are md's.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Raid6Layout {
    /// As RAID 5's, Q after P.
    LeftAsymmetric = 0,
    /// As RAID 5's, Q after P.
    RightAsymmetric = 1,
    /// As RAID 5's, Q after P, data after Q: md's default.
    LeftSymmetric = 2,
    /// As RAID 5's, Q after P, data after Q.
    RightSymmetric = 3,
    /// P on slot 0, Q on slot 1.
    ParityFirst = 4,
    /// P and Q on the last two slots.
    ParityLast = 5,
    /// DDF: right-asymmetric with DDF's exponents.
    DdfZeroRestart = 8,
    /// DDF: left-asymmetric, one stripe ahead, with DDF's exponents.
    DdfNRestart = 9,
    /// DDF: parity down, Q before P, data after P, with DDF's exponents.
    DdfNContinue = 10,
    /// RAID 5 left-asymmetric on all slots but the last, Q on the last.
    LeftAsymmetric6 = 16,
    /// RAID 5 right-asymmetric on all slots but the last, Q on the last.
    RightAsymmetric6 = 17,
    /// RAID 5 left-symmetric on all slots but the last, Q on the last.
    LeftSymmetric6 = 18,
    /// RAID 5 right-symmetric on all slots but the last, Q on the last.
    RightSymmetric6 = 19,
    /// P on slot 0, Q on the last.
    ParityFirst6 = 20,
}

impl Raid6Layout {
    /// Every layout of RAID 6.
    pub const ALL: [Raid6Layout; 14] = [
        Raid6Layout::LeftAsymmetric,
        Raid6Layout::RightAsymmetric,
        Raid6Layout::LeftSymmetric,
        Raid6Layout::RightSymmetric,
        Raid6Layout::ParityFirst,
        Raid6Layout::ParityLast,
        Raid6Layout::DdfZeroRestart,
        Raid6Layout::DdfNRestart,
        Raid6Layout::DdfNContinue,
        Raid6Layout::LeftAsymmetric6,
        Raid6Layout::RightAsymmetric6,
        Raid6Layout::LeftSymmetric6,
        Raid6Layout::RightSymmetric6,
        Raid6Layout::ParityFirst6,
    ];

    const fn name(self) -> &'static str {
        match self {
            Raid6Layout::LeftAsymmetric => "left-asymmetric",
            Raid6Layout::RightAsymmetric => "right-asymmetric",
            Raid6Layout::LeftSymmetric => "left-symmetric",
            Raid6Layout::RightSymmetric => "right-symmetric",
            Raid6Layout::ParityFirst => "parity-first",
            Raid6Layout::ParityLast => "parity-last",
            Raid6Layout::DdfZeroRestart => "ddf-zero-restart",
            Raid6Layout::DdfNRestart => "ddf-N-restart",
            Raid6Layout::DdfNContinue => "ddf-N-continue",
            Raid6Layout::LeftAsymmetric6 => "left-asymmetric-6",
            Raid6Layout::RightAsymmetric6 => "right-asymmetric-6",
            Raid6Layout::LeftSymmetric6 => "left-symmetric-6",
            Raid6Layout::RightSymmetric6 => "right-symmetric-6",
            Raid6Layout::ParityFirst6 => "parity-first-6",
        }
    }
}

/// A level with its parameters: md's `level` and `layout`, and RAID 3.5's order.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Layout {
    /// Members one after the other.
    Linear,
    /// Chunks in turn.
    Raid0(Raid0Layout),
    /// Copies of everything.
    Raid1,
    /// Parity last.
    Raid4,
    /// Rotating parity.
    Raid5(Raid5Layout),
    /// Two parities.
    Raid6(Raid6Layout),
    /// Each chunk has `near` · `far` copies.
    Raid10 {
        /// Copies next to each other; ≥ 1.
        near: u8,
        /// Sets of near copies, each `near` slots further on; ≥ 1.
        far: u8,
        /// Far copies in the next stripe instead of the next part of the members.
        offset: bool,
    },
    /// 2^order data members and one parity member.
    Raid35 {
        /// 1 ..= [`MAX_ORDER`].
        order: u8,
    },
}

/// The highest order of a RAID 3.5: 64 data members.
pub const MAX_ORDER: u8 = 6;

/// Bit 16 of RAID 10's layout word: far copies are offset by a row.
const RAID10_OFFSET: u32 = 1 << 16;
/// Bits 17 and 18: far copies stay within sets of members.
const RAID10_FAR_SETS: u32 = 3 << 17;

impl Layout {
    /// Its level.
    pub const fn level(self) -> Level {
        match self {
            Layout::Linear => Level::Linear,
            Layout::Raid0(_) => Level::Raid0,
            Layout::Raid1 => Level::Raid1,
            Layout::Raid4 => Level::Raid4,
            Layout::Raid5(_) => Level::Raid5,
            Layout::Raid6(_) => Level::Raid6,
            Layout::Raid10 { .. } => Level::Raid10,
            Layout::Raid35 { .. } => Level::Raid35,
        }
    }

    /// mdadm's defaults: left-symmetric, n2, original. For RAID 3.5 the largest order that
    /// `members` allow (at least 1); other levels ignore `members`.
    pub fn default_for(level: Level, members: usize) -> Layout {
        match level {
            Level::Linear => Layout::Linear,
            Level::Raid0 => Layout::Raid0(Raid0Layout::Original),
            Level::Raid1 => Layout::Raid1,
            Level::Raid4 => Layout::Raid4,
            Level::Raid5 => Layout::Raid5(Raid5Layout::LeftSymmetric),
            Level::Raid6 => Layout::Raid6(Raid6Layout::LeftSymmetric),
            Level::Raid10 => Layout::Raid10 { near: 2, far: 1, offset: false },
            Level::Raid35 => {
                let data = members.saturating_sub(1).max(2);
                Layout::Raid35 { order: data.ilog2().min(MAX_ORDER.into()) as u8 }
            }
        }
    }

    /// Every layout of `level` that an array of `members` can have.
    pub fn all(level: Level, members: usize) -> impl Iterator<Item = Layout> {
        let layouts: Vec<Layout> = match level {
            _ if members < level.min_members() || members > MAX_SLOTS => Vec::new(),
            Level::Linear => [Layout::Linear].into(),
            Level::Raid0 => {
                [Raid0Layout::Original, Raid0Layout::Alternate].map(Layout::Raid0).into()
            }
            Level::Raid1 => [Layout::Raid1].into(),
            Level::Raid4 => [Layout::Raid4].into(),
            Level::Raid5 => Raid5Layout::ALL.map(Layout::Raid5).into(),
            Level::Raid6 => Raid6Layout::ALL.map(Layout::Raid6).into(),
            Level::Raid10 => raid10_layouts(members).collect(),
            Level::Raid35 => (1..=MAX_ORDER)
                .filter(|order| (1 << order) + 1 == members)
                .map(|order| Layout::Raid35 { order })
                .collect(),
        };
        layouts.into_iter()
    }

    /// The superblock's `layout` field. Linear, 1 and 4 store 0; RAID 3.5 stores its order.
    pub const fn to_md(self) -> u32 {
        match self {
            Layout::Linear | Layout::Raid1 | Layout::Raid4 => 0,
            Layout::Raid0(Raid0Layout::Original) => 1,
            Layout::Raid0(Raid0Layout::Alternate) => 2,
            Layout::Raid5(layout) => layout as u32,
            Layout::Raid6(layout) => layout as u32,
            Layout::Raid10 { near, far, offset } => {
                near as u32 | (far as u32) << 8 | if offset { RAID10_OFFSET } else { 0 }
            }
            Layout::Raid35 { order } => order as u32,
        }
    }

    /// The layout that a superblock's `layout` field names. Linear, 1 and 4 ignore it, as md does.
    ///
    /// # Errors
    /// [`LayoutError::Unspecified`] for RAID 0 with 0; [`LayoutError::FarSets`] for RAID 10 with
    /// bits 17 or 18; [`LayoutError::UnknownNumber`] for numbers that md lacks.
    pub fn from_md(level: Level, number: u32) -> Result<Layout, LayoutError> {
        let unknown = LayoutError::UnknownNumber { level, number };
        let [near, far, flags, rest] = number.to_le_bytes();
        match level {
            Level::Linear => Ok(Layout::Linear),
            Level::Raid1 => Ok(Layout::Raid1),
            Level::Raid4 => Ok(Layout::Raid4),
            Level::Raid0 if number == 0 => Err(LayoutError::Unspecified),
            Level::Raid10 if rest != 0 || flags > 7 => Err(unknown),
            Level::Raid10 if number & RAID10_FAR_SETS != 0 => Err(LayoutError::FarSets),
            Level::Raid10 if u32::from(near) * u32::from(far) < 2 => Err(unknown),
            Level::Raid10 => Ok(Layout::Raid10 { near, far, offset: flags & 1 == 1 }),
            Level::Raid35 => match u8::try_from(number) {
                Ok(order @ 1..=MAX_ORDER) => Ok(Layout::Raid35 { order }),
                _ => Err(unknown),
            },
            Level::Raid0 | Level::Raid5 | Level::Raid6 => {
                Layout::all(level, MAX_SLOTS).find(|l| l.to_md() == number).ok_or(unknown)
            }
        }
    }

    /// The layout of `level` called `name`: mdadm's names and short forms (`left-symmetric`, `ls`,
    /// `ddf-N-restart`, `n2`, `f3`, `o2`), `n2f2` and `n2o2` where mdadm has no name, `order2` for
    /// RAID 3.5. Upper and lower case are the same.
    ///
    /// # Errors
    /// [`LayoutError::UnknownName`].
    pub fn parse(level: Level, name: &str) -> Result<Layout, LayoutError> {
        let word = name.trim().to_ascii_lowercase();
        let found = match level {
            Level::Raid10 => parse_raid10(&word),
            Level::Raid35 => word
                .strip_prefix("order")
                .and_then(|order| order.trim_start_matches(['=', ' ']).parse().ok())
                .filter(|order| (1..=MAX_ORDER).contains(order))
                .map(|order| Layout::Raid35 { order }),
            _ => {
                let full = unabbreviate(level, &word);
                Layout::all(level, MAX_SLOTS).find(|layout| layout.has_name(full))
            }
        };
        let fallback = (word == "default" && level != Level::Raid35)
            .then(|| Layout::default_for(level, MAX_SLOTS));
        found.or(fallback).ok_or(LayoutError::UnknownName { level })
    }

    fn has_name(self, word: &str) -> bool {
        match self {
            Layout::Raid0(Raid0Layout::Original) => word == "original",
            Layout::Raid0(Raid0Layout::Alternate) => word == "alternate",
            Layout::Raid5(layout) => layout.name().eq_ignore_ascii_case(word),
            Layout::Raid6(layout) => layout.name().eq_ignore_ascii_case(word),
            _ => word == "none" || word == "-",
        }
    }
}

/// The layout's name within its level, as mdadm prints it; `none` where a level has only one.
impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Layout::Linear | Layout::Raid1 | Layout::Raid4 => f.pad("none"),
            Layout::Raid0(Raid0Layout::Original) => f.pad("original"),
            Layout::Raid0(Raid0Layout::Alternate) => f.pad("alternate"),
            Layout::Raid5(layout) => f.pad(layout.name()),
            Layout::Raid6(layout) => f.pad(layout.name()),
            Layout::Raid10 { near, far: 1, offset: false } => write!(f, "n{near}"),
            Layout::Raid10 { near, far, offset } => {
                if near != 1 {
                    write!(f, "n{near}")?;
                }
                write!(f, "{}{far}", if offset { 'o' } else { 'f' })
            }
            Layout::Raid35 { order } => write!(f, "order{order}"),
        }
    }
}

/// RAID 10's layouts for this number of members: every copy count, without layouts that
/// [`super::Geometry::new`] refuses or that differ in name only.
fn raid10_layouts(members: usize) -> impl Iterator<Item = Layout> {
    let members = members as u8;
    (1..=members).flat_map(move |near| {
        (1..=members / near).flat_map(move |far| {
            [false, true]
                .into_iter()
                .filter(move |offset| near * far >= 2 && (!offset || far > 1))
                .filter(move |offset| !offset || members.is_multiple_of(near))
                .map(move |offset| Layout::Raid10 { near, far, offset })
        })
    })
}

/// mdadm's short and foreign names. RAID 5's DDF names are names for native layouts; RAID 6's are
/// layouts of their own.
fn unabbreviate(level: Level, word: &str) -> &str {
    match (level, word) {
        (_, "la") => "left-asymmetric",
        (_, "ra") => "right-asymmetric",
        (_, "ls") => "left-symmetric",
        (_, "rs") => "right-symmetric",
        (_, "la-6") => "left-asymmetric-6",
        (_, "ra-6") => "right-asymmetric-6",
        (_, "ls-6") => "left-symmetric-6",
        (_, "rs-6") => "right-symmetric-6",
        (Level::Raid5, "ddf-zero-restart") => "right-asymmetric",
        (Level::Raid5, "ddf-n-restart") => "left-asymmetric",
        (Level::Raid5, "ddf-n-continue") => "left-symmetric",
        _ => word,
    }
}

/// `n2`, `f2`, `o2`, `n2f2`, `n2o2`.
fn parse_raid10(word: &str) -> Option<Layout> {
    let copies =
        |text: &str| text.parse::<u8>().ok().filter(|&n| (1..=MAX_SLOTS).contains(&n.into()));
    let (near, rest) = match word.strip_prefix('n') {
        Some(rest) => {
            let digits = rest.find(['f', 'o']).unwrap_or(rest.len());
            (copies(&rest[..digits])?, &rest[digits..])
        }
        None => (1, word),
    };
    let (far, offset) = match (rest.strip_prefix('f'), rest.strip_prefix('o')) {
        (Some(far), _) => (copies(far)?, false),
        (_, Some(far)) => (copies(far)?, true),
        _ if rest.is_empty() => (1, false),
        _ => return None,
    };
    (near > 1 || far > 1).then_some(Layout::Raid10 { near, far, offset })
}
