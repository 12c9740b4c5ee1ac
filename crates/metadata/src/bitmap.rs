//! The write-intent bitmap of an array, in memory: the regions in which the members may differ.
//!
//! Owns the bits and the header in front of them, as the image that is stored on every member.
//! Never writes it, and never decides when a bit is set or cleared.
//!
//! ```text
//!   the image      | header, bits | bits | bits |       pages of 4 KiB
//!   each member    stale in      {0}      {}  {2}         pages that it does not hold durably yet
//! ```
//!
//! Each member has a set of [`Pages`] in which its copy is older than the image. A bit is durable
//! once its page is current on every assigned member. A joining member is stale in all pages.
//!
//! Invariant: bits beyond the last region are zero.

use std::ops::{Range, RangeInclusive};

use layout::md::ParseError;
use layout::md::bitmap::{self, Bitmap, HEADER_BYTES, PAGE_BYTES};

/// A set of pages: a bitmap has at most 32.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Pages(u32);

impl Pages {
    /// No page.
    pub(crate) const NONE: Pages = Pages(0);
    /// The page with the header.
    pub(crate) const HEADER: Pages = Pages(1);
    /// All pages that there could be.
    pub(crate) const ALL: Pages = Pages(u32::MAX);

    pub(crate) fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(crate) fn union(self, other: Pages) -> Pages {
        Pages(self.0 | other.0)
    }

    fn with(self, page: u64) -> Pages {
        Pages(self.0 | 1 << page)
    }

    fn contains(self, page: u64) -> bool {
        self.0 >> page & 1 == 1
    }
}

/// The header and the bits.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Bits {
    header: Bitmap,
    image: Vec<u8>,
}

impl Bits {
    /// A new bitmap, all its bits `set` or all clear.
    ///
    /// # Panics
    /// If it is larger than md's bitmaps. The header was made or checked by this crate.
    pub(crate) fn new(header: Bitmap, set: bool) -> Bits {
        assert!(header.bytes() <= bitmap::MOST_SPACE_BYTES, "a bitmap larger than md's");
        let image = header.print_whole(set);
        Bits { header, image }
    }

    /// A bitmap as read from a member: `bytes` from the header on, to the end of its space.
    ///
    /// # Errors
    /// The invalid field of the header. `Ok(None)` if the bits do not fit into the space.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Option<Bits>, ParseError> {
        let header = Bitmap::parse(bytes)?;
        if header.bytes() > (bytes.len() as u64).min(bitmap::MOST_SPACE_BYTES) {
            return Ok(None);
        }
        let mut bits = Bits::new(header, false);
        let used = bits.header.bytes() as usize;
        bits.image[..used].copy_from_slice(&bytes[..used]);
        let last = bits.header.bits() % 8;
        if last != 0 {
            bits.image[used - 1] &= (1 << last) - 1;
        }
        Ok(Some(bits))
    }

    pub(crate) fn header(&self) -> &Bitmap {
        &self.header
    }

    /// The number of regions.
    pub(crate) fn regions(&self) -> u64 {
        self.header.bits()
    }

    /// Changes the header; its page must then be written.
    pub(crate) fn edit_header(&mut self, edit: impl FnOnce(&mut Bitmap)) {
        let bits = self.header.bits();
        edit(&mut self.header);
        assert_eq!(self.header.bits(), bits, "the bits would stand for other regions");
        self.image[..HEADER_BYTES as usize].copy_from_slice(&self.header.print());
    }

    /// Sets the bits of `regions`; returns the changed pages. Ignores regions beyond the last.
    pub(crate) fn set(&mut self, regions: RangeInclusive<u64>) -> Pages {
        let end = self.regions();
        let mut changed = Pages::NONE;
        for region in regions.take_while(|&region| region < end) {
            let (byte, mask) = bitmap::byte_of(region);
            let byte = &mut self.image[byte as usize];
            if *byte & mask == 0 {
                *byte |= mask;
                changed = changed.with(bitmap::page_of(region));
            }
        }
        changed
    }

    /// True if the bits of all these regions are set.
    pub(crate) fn are_set(&self, mut regions: RangeInclusive<u64>) -> bool {
        *regions.end() < self.regions()
            && regions.all(|region| {
                let (byte, mask) = bitmap::byte_of(region);
                self.image[byte as usize] & mask != 0
            })
    }

    /// Clears the bits of `regions`; returns the changed pages.
    pub(crate) fn clear(&mut self, regions: impl IntoIterator<Item = u64>) -> Pages {
        let (end, mut changed) = (self.regions(), Pages::NONE);
        for region in regions.into_iter().filter(|&region| region < end) {
            let (byte, mask) = bitmap::byte_of(region);
            let byte = &mut self.image[byte as usize];
            if *byte & mask != 0 {
                *byte &= !mask;
                changed = changed.with(bitmap::page_of(region));
            }
        }
        changed
    }

    /// Sets every bit that is set in `other`, a copy of the same bitmap.
    pub(crate) fn merge(&mut self, other: &Bits) {
        let bits = HEADER_BYTES as usize..self.image.len().min(other.image.len());
        for (byte, more) in self.image[bits.clone()].iter_mut().zip(&other.image[bits]) {
            *byte |= more;
        }
    }

    /// The regions whose bit is set, ascending.
    pub(crate) fn dirty(&self) -> Vec<u64> {
        let bytes = self.image[HEADER_BYTES as usize..].iter().enumerate();
        let set = bytes.filter(|&(_, &byte)| byte != 0).flat_map(|(index, &byte)| {
            let first = 8 * index as u64;
            (0..8).filter(move |bit| byte >> bit & 1 == 1).map(move |bit| first + bit)
        });
        set.collect()
    }

    /// How many regions are dirty.
    pub(crate) fn count(&self) -> u64 {
        self.image[HEADER_BYTES as usize..].iter().map(|byte| u64::from(byte.count_ones())).sum()
    }

    /// The range of sync space of a region.
    pub(crate) fn sync_range(&self, region: u64) -> Range<u64> {
        let sectors = self.header.sectors_of(region);
        sectors.start * 512..sectors.end * 512
    }

    /// Those of `pages` that exist, each with its bytes and its offset from the start of the
    /// header.
    pub(crate) fn pages(&self, pages: Pages) -> impl Iterator<Item = (u64, &[u8])> {
        let chunks = self.image.chunks(PAGE_BYTES as usize).enumerate();
        chunks
            .map(|(index, bytes)| (index as u64, bytes))
            .filter(move |&(index, _)| pages.contains(index))
            .map(|(index, bytes)| (index * PAGE_BYTES, bytes))
    }
}

#[cfg(test)]
mod tests {
    use layout::md::Uuid;

    use super::*;

    fn bits(sectors: u64, set: bool) -> Bits {
        Bits::new(Bitmap::new(Uuid([7; 16]), sectors, 64 << 10), set)
    }

    #[test]
    fn set_and_cleared_bits_name_the_pages_that_change() {
        let per_page = 8 * PAGE_BYTES;
        let mut bits = bits(128 * 2 * per_page, false);
        assert_eq!(bits.regions(), 2 * per_page);
        let edge = per_page - 8 * HEADER_BYTES; // the first bit of page 1
        assert_eq!(bits.set(edge - 1..=edge), Pages(0b11));
        assert_eq!(bits.set(edge - 1..=edge), Pages::NONE, "they are set already");
        assert_eq!(bits.dirty(), [edge - 1, edge]);
        assert_eq!(bits.clear([edge, edge + 1]), Pages(0b10));
        assert_eq!((bits.dirty(), bits.count()), (vec![edge - 1], 1));
        assert_eq!(bits.set(2 * per_page..=2 * per_page + 9), Pages::NONE, "no such region");
    }

    #[test]
    fn a_bitmap_reads_back_without_junk_behind_its_last_bit() {
        let mut bits = bits(1280, false);
        bits.set(3..=4);
        bits.edit_header(|header| header.events = 9);
        let mut bytes: Vec<u8> =
            bits.pages(Pages::ALL).flat_map(|(_, page)| page.to_vec()).collect();
        bytes[258] = 0xff; // regions 16 and on, of 10
        bytes[257] = 0xfc; // regions 10 to 15
        let read = Bits::parse(&bytes).unwrap().unwrap();
        assert_eq!(read, bits);
        assert_eq!(Bits::parse(&bytes[..257]).unwrap(), None, "the room is too small");
    }

    #[test]
    fn a_merged_bitmap_has_the_bits_of_both() {
        let (mut a, mut b) = (bits(1280, false), bits(1280, false));
        a.set(1..=1);
        b.set(7..=8);
        a.merge(&b);
        assert_eq!(a.dirty(), [1, 7, 8]);
        assert_eq!(a.sync_range(9), 9 * 65536..10 * 65536);
    }
}
