//! Malformed copies of a client's ATA requests, and how a target must answer them (docs/aoe.md).
//!
//! ```text
//!   12 88a2   14 version 4 flags 4   15 error   16 shelf   18 slot   19 command   20 tag
//!   24 ATA flags   25 error/feature   26 sectors   27 command/status   28 lba   36 data
//! ```

use crate::random::Random;

/// Bytes before the data of an ATA request.
const HEAD_BYTES: usize = 36;
/// Frames are at least as long as this: shorter ones are padded on every wire.
const LEAST_BYTES: usize = 60;
/// Opcode of a write with 48 bits of LBA, and of one with 28.
const WRITES: [u8; 2] = [0x34, 0x30];

/// Bits of our tags, and the bits below that count.
pub(super) const OUR_TAGS: u32 = 0xc000_0000;

/// What is wrong with a request.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(in super::super) enum Malformed {
    /// A write without the end of its data.
    CutShort,
    /// Of 0 sectors.
    NoSectors,
    /// Of more sectors than any frame holds.
    TooManySectors,
    /// Past the end of every device.
    PastEnd,
    /// An ATA command that a target does not have.
    UnknownOpcode,
    /// A command of AoE that nobody has.
    UnknownCommand,
    /// Another version of AoE.
    OtherVersion,
    /// To all targets at once.
    ToAll,
    /// To a shelf that is not there.
    OtherShelf,
    /// From a group of hosts.
    FromGroup,
    /// With the flag of answers.
    IsAnswer,
}

impl Malformed {
    pub(in super::super) const ALL: [Malformed; 11] = [
        Malformed::CutShort,
        Malformed::NoSectors,
        Malformed::TooManySectors,
        Malformed::PastEnd,
        Malformed::UnknownOpcode,
        Malformed::UnknownCommand,
        Malformed::OtherVersion,
        Malformed::ToAll,
        Malformed::OtherShelf,
        Malformed::FromGroup,
        Malformed::IsAnswer,
    ];

    /// A malformed copy of this frame, if it is a request for sectors. Its tag is one of ours.
    pub(super) fn make(frame: &[u8], random: &mut Random) -> Option<(Malformed, Vec<u8>)> {
        let is_request = frame.len() >= HEAD_BYTES && frame[14] == 0x10 && frame[19] == 0;
        if !is_request || frame[26] == 0 || frame[27] == 0xec {
            return None;
        }
        let mut kind = Malformed::ALL[random.below(Malformed::ALL.len())];
        if kind == Malformed::CutShort && !WRITES.contains(&frame[27]) {
            kind = Malformed::NoSectors;
        }
        let mut bytes = frame.to_vec();
        let tag = OUR_TAGS | random.below(1 << 30) as u32;
        bytes[20..24].copy_from_slice(&tag.to_be_bytes());
        match kind {
            Malformed::CutShort => {
                bytes.truncate(LEAST_BYTES + random.below(frame.len() - LEAST_BYTES));
            }
            Malformed::NoSectors => bytes[26] = 0,
            Malformed::TooManySectors => bytes[26] = 0xff,
            Malformed::PastEnd => bytes[28..34].fill(0xff),
            Malformed::UnknownOpcode => bytes[27] = 0xc8,
            Malformed::UnknownCommand => bytes[19] = 5 + random.below(0xfa) as u8,
            Malformed::OtherVersion => bytes[14] = (2 + random.below(14) as u8) << 4,
            Malformed::ToAll => bytes[16..19].fill(0xff),
            Malformed::OtherShelf => bytes[17] ^= 4,
            Malformed::FromGroup => bytes[6] |= 1,
            Malformed::IsAnswer => bytes[14] |= 0x08,
        }
        Some((kind, bytes))
    }

    /// What the target must say to it.
    pub(super) fn answer(self) -> Answer {
        match self {
            Malformed::CutShort
            | Malformed::NoSectors
            | Malformed::TooManySectors
            | Malformed::ToAll => Answer::Error(2),
            Malformed::UnknownCommand => Answer::Error(1),
            Malformed::OtherVersion => Answer::Error(5),
            Malformed::PastEnd => Answer::Ata { status: 0x41, error: 0x10 },
            Malformed::UnknownOpcode => Answer::Ata { status: 0x41, error: 0x04 },
            Malformed::OtherShelf | Malformed::FromGroup | Malformed::IsAnswer => Answer::None,
        }
    }
}

/// How a target answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Answer {
    /// With this AoE error.
    Error(u8),
    /// With these registers.
    Ata { status: u8, error: u8 },
    /// Not at all.
    None,
}

impl Answer {
    /// What this frame says.
    pub(super) fn of(frame: &[u8]) -> Answer {
        match frame {
            bytes if bytes.len() < HEAD_BYTES => Answer::None,
            bytes if bytes[14] & 0x04 != 0 => Answer::Error(bytes[15]),
            bytes => Answer::Ata { status: bytes[27], error: bytes[25] },
        }
    }
}

/// The tag of a frame; 0 if it has none.
pub(super) fn tag(frame: &[u8]) -> u32 {
    let bytes = frame.get(20..).and_then(|rest| rest.first_chunk());
    bytes.copied().map_or(0, u32::from_be_bytes)
}
