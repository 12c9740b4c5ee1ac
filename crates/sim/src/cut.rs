//! The remains of non-durable writes after a crash.
//!
//! Owns the choice, write by write and sector by sector; the bytes are in `medium.rs`.
//!
//! ```text
//!   a disk's writes since its last flush, as completed, then those in flight in any order
//!
//!     ■ ■ ■ ■ │ □ □ □      prefix      those up to some moment
//!     ■ □ ◧ ■ │ □ ◧ ■      subset      of each 4 KiB page: kept, dropped, or sector by sector
//!     ◧ ◨ ◧ ■ │ ◨ □ ◧      shorn       of each write the first sectors, or the last
//!     P P · P │ · P ·      by part     only parity; all but parity; data without bitmap; …
//! ```
//!
//! A sector with several writes holds the last of those that survive. Mixing by page and sector is
//! FoundationDB's method (`AsyncFileNonDurable`), shorn writes are those of FAST'13, and choosing
//! by the meaning of the bytes is an adversary's method.

use crate::mark::{self, Part};
use random::Rng;

/// How a crash chooses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// Everything survives.
    Clean,
    /// Nothing does.
    Bare,
    /// Writes before a certain moment survive.
    Prefix,
    /// Page by page, sector by sector.
    Subset,
    /// A part of each write does.
    Shorn,
    /// Only parity does.
    OnlyParity,
    /// All but parity does.
    ButParity,
    /// Everything does, but for one member, where nothing does.
    ButOne,
    /// Superblocks, bitmaps and logs do, data and parity do not.
    OnlyLog,
    /// Data and parity do, superblocks, bitmaps and logs do not.
    ButLog,
    /// Superblocks do on some members, on others not.
    SomeSuperblocks,
}

const MODES: [(u64, Mode); 11] = [
    (1, Mode::Clean),
    (2, Mode::Bare),
    (3, Mode::Prefix),
    (4, Mode::Subset),
    (2, Mode::Shorn),
    (1, Mode::OnlyParity),
    (1, Mode::ButParity),
    (2, Mode::ButOne),
    (1, Mode::OnlyLog),
    (1, Mode::ButLog),
    (2, Mode::SomeSuperblocks),
];

impl Mode {
    /// One of them.
    pub fn draw(rng: &mut Rng) -> Mode {
        rng.weighted(&MODES)
    }

    /// The mark of this mode.
    pub fn mark(self) -> &'static str {
        match self {
            Mode::Clean => mark::CUT_CLEAN,
            Mode::Bare => mark::CUT_BARE,
            Mode::Prefix => mark::CUT_PREFIX,
            Mode::Subset => mark::CUT_SUBSET,
            Mode::Shorn => mark::CUT_SHORN,
            Mode::OnlyParity => mark::CUT_ONLY_PARITY,
            Mode::ButParity => mark::CUT_BUT_PARITY,
            Mode::ButOne => mark::CUT_BUT_ONE,
            Mode::OnlyLog => mark::CUT_ONLY_LOG,
            Mode::ButLog => mark::CUT_BUT_LOG,
            Mode::SomeSuperblocks => mark::CUT_SOME_SUPERBLOCKS,
        }
    }
}

/// The surviving part of one write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kept {
    /// All of it.
    All,
    /// Nothing.
    Nothing,
    /// This many sectors from its start.
    First(u64),
    /// This many sectors up to its end.
    Last(u64),
    /// Chance decides for each page and sector.
    Mixed,
}

/// The choice for one disk in one crash.
pub struct Cut {
    mode: Mode,
    /// This disk is the one that keeps nothing, or one of those without a superblock.
    unlucky: bool,
    /// For [`Mode::Prefix`]: this many writes of a thousand survive.
    share: u64,
    rng: Rng,
}

impl Cut {
    /// The choice for a disk, drawn from its own stream.
    pub fn new(mode: Mode, unlucky: bool, mut rng: Rng) -> Cut {
        let share = rng.below(1001);
        Cut { mode, unlucky, share, rng }
    }

    /// All completed writes survive, and no others.
    pub fn clean(rng: Rng) -> Cut {
        Cut::new(Mode::Clean, false, rng)
    }

    /// The surviving part of write `index` of `count`, of this many sectors.
    pub fn keep(&mut self, index: usize, count: usize, sectors: u64, part: Part) -> Kept {
        let if_so = |keep: bool| if keep { Kept::All } else { Kept::Nothing };
        let metadata = matches!(
            part,
            Part::Superblock | Part::Bitmap | Part::Log | Part::Private | Part::Other
        );
        match self.mode {
            Mode::Clean => Kept::All,
            Mode::Bare => Kept::Nothing,
            Mode::Prefix => if_so((index as u64) * 1000 < self.share * count as u64),
            Mode::Subset => Kept::Mixed,
            Mode::Shorn => match self.rng.below(4) {
                0 => Kept::First(self.rng.below(sectors + 1)),
                1 => Kept::Last(self.rng.below(sectors + 1)),
                keep => if_so(keep == 2),
            },
            Mode::OnlyParity => if_so(part == Part::Parity),
            Mode::ButParity => if_so(part != Part::Parity),
            Mode::ButOne => if_so(!self.unlucky),
            Mode::OnlyLog => if_so(metadata),
            Mode::ButLog => if_so(!metadata),
            Mode::SomeSuperblocks => match part {
                Part::Superblock => if_so(!self.unlucky),
                _ => Kept::Mixed,
            },
        }
    }

    /// The fate of a page of a write that is [`Kept::Mixed`]: kept, dropped, or `None`: sector by
    /// sector.
    pub fn page(&mut self) -> Option<bool> {
        match self.rng.below(3) {
            0 => Some(true),
            1 => Some(false),
            _ => None,
        }
    }

    /// The fate of a sector of a mixed page.
    pub fn sector(&mut self) -> bool {
        self.rng.percent(50)
    }
}
