//! The checksum table: checksum and generation of each block of a member.
//!
//! Owns the format of its entries and pages. Never reads a block, never decides how to handle a
//! mismatch.
//!
//! # Why
//!
//! Parity reveals that a row is wrong, but not which block, and only if the whole row is read.
//! Without checksums every reader trusts silent corruption, and a read-modify-write carries it into
//! parity. A checksum stored apart from the block detects it at each read; then the block is like
//! an unreadable one:
//!
//! ```text
//!                     block    its entry    what is seen
//!   bit rot           changed  as it was    the sum differs
//!   write lost        old      new          the sum differs
//!   write misplaced   old      new          the sum differs, and at the victim's place too
//!   table damaged     as is    changed      the sum differs; redundancy agrees with the block
//! ```
//!
//! # Form
//!
//! ```text
//!   table | page 0 | page 1 | …      512 entries of 8 bytes: 2 MiB of data
//!   entry | sum (4) | generation (4) |
//! ```
//!
//! The sum is the CRC-32C of the block, and of its place: array, slot, number of the block; so a
//! page that was written elsewhere fits nowhere else. Source of the idea: T10 protection
//! information and NetApp's block checksums, with the place outside the block as in 'Parity Lost
//! and Parity Regained' (FAST'08).
//!
//! # Generations
//!
//! A member that loses a block and its entry together is self-consistent. The *generation* reveals
//! it: that of data grows by one with each write; that of parity is the sum of its row's, each
//! times its own weight ([`weight`]): parity of the generations.
//!
//! ```text
//!   G(P) = Σ wᵢ · G(Dᵢ)        Dᵢ has lost k writes: k · wᵢ too much, which says i
//!                              P has lost writes:    too little
//! ```
//!
//! The weights are different primes above [`BEHIND_MAX`], so the losses of two slots always differ.
//! A write reads no other generation of its row: it adds its weight. Of copies the one with the
//! highest generation is the newest. Generation 0 means never written: with sum 0 the block has the
//! zeros of a new array, otherwise its content is unknown.

use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

use super::{CHECKSUM_BLOCK_BYTES, CHECKSUM_ENTRY_BYTES};
use crate::geometry::{Family, Geometry};
use crate::md::{Crc32c, Uuid};
use crate::units::{MAX_SLOTS, Slot};

pub(crate) mod entry {
    use crate::md::field::fields;
    fields! { 8;
        CHECKSUM        "checksum"        0 4
        GENERATION "generation" 4 4
    }
    pub(crate) use at::*;
}

/// Bytes of a page of the table: it is read and written in whole pages.
pub const PAGE_BYTES: u64 = 4096;
/// Entries of a page.
pub const PAGE_ENTRIES: u64 = PAGE_BYTES / CHECKSUM_ENTRY_BYTES;
/// Bytes of a member's data that a page stands for.
pub const PAGE_COVERS: u64 = PAGE_ENTRIES * CHECKSUM_BLOCK_BYTES;

/// This many lost writes of a block can be distinguished from those of other blocks.
pub const BEHIND_MAX: u32 = 256;

const ENTRY_BYTES: usize = CHECKSUM_ENTRY_BYTES as usize;
/// CRC-32C of a block of zeros.
const CRC_OF_ZEROS: u32 = 0x98f9_4189;

/// An entry of the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ChecksumEntry {
    /// [`Seed::checksum`] of the block.
    pub checksum: u32,
    /// Grows with each write.
    pub generation: u32,
}

impl ChecksumEntry {
    /// The block holds the zeros that the array was made with.
    pub const ZEROS: ChecksumEntry = ChecksumEntry { checksum: 0, generation: 0 };
    /// The content of the block is unknown.
    pub const UNKNOWN: ChecksumEntry = ChecksumEntry { checksum: 1, generation: 0 };

    /// False if the content of the block is unknown.
    pub const fn is_known(self) -> bool {
        self.generation != 0 || self.checksum == 0
    }

    /// True if a block with this CRC-32C, and this [`Seed::checksum`], matches.
    pub fn fits(self, crc: u32, checksum: u32) -> bool {
        match self {
            ChecksumEntry::ZEROS => crc == CRC_OF_ZEROS,
            ChecksumEntry { generation: 0, .. } => false,
            _ => self.checksum == checksum,
        }
    }

    /// A page on which nothing is known.
    pub fn unknown_page() -> Vec<u8> {
        let mut page = vec![0; PAGE_BYTES as usize];
        (0..PAGE_ENTRIES as usize).for_each(|index| ChecksumEntry::UNKNOWN.put(&mut page, index));
        page
    }

    /// The entry after a write of bytes with this checksum: of data `by` 1, of parity by the
    /// weights of the data written in its row. An unknown entry starts at an arbitrary generation,
    /// so that it matches no row by chance.
    pub const fn next(self, checksum: u32, by: u32) -> ChecksumEntry {
        let last = if self.is_known() { self.generation } else { checksum };
        self.of(checksum, last.wrapping_add(by))
    }

    /// The entry of bytes with this checksum, of this generation, or of the one after 0.
    const fn of(self, checksum: u32, generation: u32) -> ChecksumEntry {
        ChecksumEntry { checksum, generation: if generation == 0 { 1 } else { generation } }
    }

    /// The same with this generation; `zeros` is the checksum that zeros would have here.
    pub const fn aged(self, generation: u32, zeros: u32) -> ChecksumEntry {
        match self {
            ChecksumEntry::ZEROS if generation == 0 => self,
            ChecksumEntry::ZEROS => self.of(zeros, generation),
            _ => self.of(self.checksum, generation),
        }
    }

    /// Entry `index` of a page.
    ///
    /// # Panics
    /// If the page has no such entry.
    #[inline]
    pub fn get(page: &[u8], index: usize) -> ChecksumEntry {
        assert_eq!(page.len() as u64, PAGE_BYTES, "a page of the table is read whole");
        let entry = &page[index * ENTRY_BYTES..][..ENTRY_BYTES];
        let (checksum, generation) =
            (entry::CHECKSUM.get_u32(entry), entry::GENERATION.get_u32(entry));
        ChecksumEntry { checksum, generation }
    }

    /// Puts it into a page.
    ///
    /// # Panics
    /// If the page has no such entry.
    #[inline]
    pub fn put(self, page: &mut [u8], index: usize) {
        assert_eq!(page.len() as u64, PAGE_BYTES, "a page of the table is written whole");
        let entry = &mut page[index * ENTRY_BYTES..][..ENTRY_BYTES];
        entry::CHECKSUM.put(entry, self.checksum.into());
        entry::GENERATION.put(entry, self.generation.into());
    }
}

/// The verdict of a row's generations on its blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Behind {
    /// They go together.
    Nobody,
    /// This data index has lost writes.
    Data(usize),
    /// Parity has.
    Parity,
    /// Nothing that a single member could have lost explains them.
    Unclear,
}

/// Primes above [`BEHIND_MAX`], by data index.
const WEIGHTS: [u32; MAX_SLOTS] = {
    let (mut primes, mut found, mut next) = ([0; MAX_SLOTS], 0, BEHIND_MAX + 1);
    while found < MAX_SLOTS {
        let mut divisor = 2;
        while divisor * divisor <= next && !next.is_multiple_of(divisor) {
            divisor += 1;
        }
        if divisor * divisor > next {
            primes[found] = next;
            found += 1;
        }
        next += 1;
    }
    primes
};

/// The weight that a write of a data index adds to its row's parity generation.
pub const fn weight(index: usize) -> u32 {
    WEIGHTS[index]
}

/// The generation that belongs to the parity of data of these generations.
pub fn parity_generation(data: impl Iterator<Item = u32>) -> u32 {
    let each = data.zip(WEIGHTS).map(|(generation, weight)| generation.wrapping_mul(weight));
    each.fold(0, u32::wrapping_add)
}

/// Finds the slots with lost writes, from the generations of a row's parity and data.
pub fn behind(parity: u32, data: impl Iterator<Item = u32> + Clone) -> Behind {
    let excess = parity.wrapping_sub(parity_generation(data.clone()));
    let all: u32 = WEIGHTS.iter().zip(data.clone()).map(|(weight, _)| weight).sum();
    match excess {
        0 => Behind::Nobody,
        _ if excess.wrapping_neg() <= all * BEHIND_MAX => Behind::Parity,
        _ => {
            let lost = |w: u32| excess.is_multiple_of(w) && excess / w <= BEHIND_MAX;
            let index = data.zip(WEIGHTS).position(|(_, weight)| lost(weight));
            index.map_or(Behind::Unclear, Behind::Data)
        }
    }
}

/// The array-specific part of checksums.
#[derive(Clone, Copy, Debug)]
pub struct Seed {
    array: u32,
    crc32c: Crc32c,
}

impl Seed {
    /// That of this array.
    pub fn new(set_uuid: &Uuid, crc32c: Crc32c) -> Seed {
        Seed { array: crc32c(0, &set_uuid.0), crc32c }
    }

    /// The checksum of a block of a slot's data, given the CRC-32C of its bytes.
    pub fn checksum(&self, slot: Slot, block: u64, crc: u32) -> u32 {
        let mut place = [0; 12];
        place[..4].copy_from_slice(&u32::from(slot.0).to_le_bytes());
        place[4..].copy_from_slice(&block.to_le_bytes());
        (self.crc32c)(self.array, &place) ^ crc
    }

    /// The checksum of a block of zeros.
    pub fn checksum_of_zeros(&self, slot: Slot, block: u64) -> u32 {
        self.checksum(slot, block, CRC_OF_ZEROS)
    }
}

/// The page with a block's entry, and the entry's index in it.
pub const fn place(block: u64) -> (u64, usize) {
    (block / PAGE_ENTRIES, (block % PAGE_ENTRIES) as usize)
}

/// The blocks that a range of a member's data touches, each as the part of the range in it.
pub fn blocks(range: Range<u64>) -> impl Iterator<Item = (u64, Range<u64>)> {
    let (mut at, end) = (range.start, range.end);
    core::iter::from_fn(move || {
        let (block, start) = (at / CHECKSUM_BLOCK_BYTES, at);
        at = ((block + 1) * CHECKSUM_BLOCK_BYTES).min(end);
        (start < end).then_some((block, start..at))
    })
}

/// Why an array with md's partial parity log keeps no checksums: that log has no room for them.
pub const NOT_WITH_PPL: &str = "checksums need the intent log to be right after a crash, \
    and md's partial parity log cannot say what they were: choose consistency policy intent, or \
    leave checksums out";

/// True if an array of this shape can have checksums: it has redundancy to repair from, and its
/// chunks are whole blocks.
pub fn possible(geometry: &Geometry) -> bool {
    let block = CHECKSUM_BLOCK_BYTES;
    let chunk = geometry.chunk_bytes();
    let whole = chunk.is_multiple_of(block) && geometry.capacity().is_multiple_of(block);
    geometry.family() != Family::Plain && whole
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::md::tests::crc32c;

    #[test]
    fn entries_are_where_they_were_put() {
        let mut page = vec![0; PAGE_BYTES as usize];
        let checksum = ChecksumEntry { checksum: 0x1234_5678, generation: 9 };
        checksum.put(&mut page, 511);
        assert_eq!(page[4088..], [0x78, 0x56, 0x34, 0x12, 9, 0, 0, 0]);
        assert_eq!(
            (ChecksumEntry::get(&page, 511), ChecksumEntry::get(&page, 510)),
            (checksum, ChecksumEntry::ZEROS)
        );
        assert_eq!(ChecksumEntry::get(&ChecksumEntry::unknown_page(), 77), ChecksumEntry::UNKNOWN);
    }

    #[test]
    fn a_table_of_zeros_says_that_there_are_zeros() {
        let zeros = crc32c(0, &[0; 4096]);
        assert!(ChecksumEntry::ZEROS.is_known() && !ChecksumEntry::UNKNOWN.is_known());
        assert!(ChecksumEntry::ZEROS.fits(zeros, 77) && !ChecksumEntry::ZEROS.fits(zeros ^ 1, 0));
        assert!(!ChecksumEntry::UNKNOWN.fits(zeros, 1));
        let written = ChecksumEntry::ZEROS.next(9, 1);
        assert!(written.fits(3, 9) && !written.fits(3, 8) && written.generation == 1);
    }

    #[test]
    fn a_generation_is_never_unknown_again() {
        let last = ChecksumEntry { checksum: 1, generation: u32::MAX };
        assert_eq!(last.next(7, 1), ChecksumEntry { checksum: 7, generation: 1 });
        assert!(ChecksumEntry::UNKNOWN.next(7, 1).generation > 1, "it begins anywhere");
    }

    #[test]
    fn parity_is_aged_with_its_row() {
        assert_eq!(ChecksumEntry::ZEROS.aged(0, 5), ChecksumEntry::ZEROS);
        assert_eq!(ChecksumEntry::ZEROS.aged(9, 5), ChecksumEntry { checksum: 5, generation: 9 });
        assert_eq!(
            ChecksumEntry { checksum: 2, generation: 3 }.aged(9, 5),
            ChecksumEntry { checksum: 2, generation: 9 }
        );
        assert_eq!(ChecksumEntry { checksum: 2, generation: 3 }.aged(0, 5).generation, 1);
    }

    #[test]
    fn generations_identify_lost_writes() {
        let right: Vec<u32> = (0..MAX_SLOTS as u32).map(|index| u32::MAX - 40 * index).collect();
        let parity = parity_generation(right.iter().copied());
        assert_eq!(behind(parity, right.iter().copied()), Behind::Nobody);
        for index in 0..MAX_SLOTS {
            for lost in [1, 2, 17, BEHIND_MAX] {
                let mut data = right.clone();
                data[index] = data[index].wrapping_sub(lost);
                assert_eq!(behind(parity, data.iter().copied()), Behind::Data(index), "{lost}");
                let less = parity.wrapping_sub(lost * weight(index));
                assert_eq!(behind(less, right.iter().copied()), Behind::Parity, "{lost}");
            }
            let mut data = right.clone();
            data[index] = data[index].wrapping_sub(1 << 24);
            assert_eq!(behind(parity, data.iter().copied()), Behind::Unclear);
        }
    }

    #[test]
    fn a_write_adds_its_weights() {
        let mut data = [7, 0, u32::MAX, 12];
        let mut parity = parity_generation(data.into_iter());
        for written in [&[0][..], &[1, 2], &[3], &[0, 1, 2, 3]] {
            for &index in written {
                data[index] = data[index].wrapping_add(1);
                parity = parity.wrapping_add(weight(index));
            }
            assert_eq!(behind(parity, data.into_iter()), Behind::Nobody);
        }
    }

    #[test]
    fn the_same_bytes_have_other_checksums_elsewhere() {
        let seed = Seed::new(&Uuid([7; 16]), crc32c);
        let other = Seed::new(&Uuid([8; 16]), crc32c);
        let crc = crc32c(0, &[1; 4096]);
        let checksum = seed.checksum(Slot::new(0), 5, crc);
        assert_eq!(checksum, seed.checksum(Slot::new(0), 5, crc));
        assert_ne!(checksum, seed.checksum(Slot::new(1), 5, crc));
        assert_ne!(checksum, seed.checksum(Slot::new(0), 6, crc));
        assert_ne!(checksum, other.checksum(Slot::new(0), 5, crc));
    }

    #[test]
    fn ranges_are_cut_at_blocks() {
        let all: Vec<_> = blocks(4000..12_000).collect();
        assert_eq!(all, [(0, 4000..4096), (1, 4096..8192), (2, 8192..12_000)]);
        assert_eq!(blocks(5..5).count(), 0);
        assert_eq!((place(511), place(512)), ((0, 511), (1, 0)));
    }
}
