//! The bytes of a disk, as pages that images share until one of them changes.

use std::ops::Range;
use std::rc::Rc;

use super::{Fill, PAGE};
use crate::rng::mix;

type Bytes = [u8; PAGE as usize];

/// A page. Cheap to clone: bytes are shared.
#[derive(Clone)]
pub(super) enum Page {
    /// As the fill says.
    Untouched,
    /// Given back: zeros.
    Hole,
    /// What was written.
    Bytes(Rc<Bytes>),
}

/// Sparse bytes.
#[derive(Clone)]
pub(super) struct Image {
    fill: Fill,
    pub(super) pages: Vec<Page>,
}

/// The pages that a range touches: page number, range within the page, bytes done before it.
pub(super) fn pages(offset: u64, len: u64) -> impl Iterator<Item = (usize, Range<usize>, usize)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        (done < len).then(|| {
            let at = offset + done;
            let part = (PAGE - at % PAGE).min(len - done);
            let start = (at % PAGE) as usize;
            let item = ((at / PAGE) as usize, start..start + part as usize, done as usize);
            done += part;
            item
        })
    })
}

impl Fill {
    /// The bytes of a page from `start` on, as they are before anything was written. Each word of
    /// noise is grown by itself, so that part of a page costs only that part.
    fn copy(self, page: usize, start: usize, into: &mut [u8]) {
        let Fill::Noise(seed) = self else { return into.fill(0) };
        let first = mix(seed ^ page as u64);
        let word = |at: usize| mix(first.wrapping_add(at as u64)).to_le_bytes();
        // Whoever looks at single bytes begins, or ends, within a word.
        let (head, rest) = into.split_at_mut((start.wrapping_neg() % 8).min(into.len()));
        head.copy_from_slice(&word(start / 8)[start % 8..][..head.len()]);
        let start = (start + head.len()) / 8;
        let (words, tail) = rest.as_chunks_mut::<8>();
        words.iter_mut().zip(start..).for_each(|(eight, at)| *eight = word(at));
        tail.copy_from_slice(&word(start + words.len())[..tail.len()]);
    }

    fn page(self, page: usize) -> Rc<Bytes> {
        let mut bytes = [0; PAGE as usize];
        self.copy(page, 0, &mut bytes);
        Rc::new(bytes)
    }
}

impl Image {
    pub(super) fn new(fill: Fill, bytes: u64) -> Image {
        Image { fill, pages: vec![Page::Untouched; bytes.div_ceil(PAGE) as usize] }
    }

    pub(super) fn read(&self, offset: u64, into: &mut [u8]) {
        for (page, within, done) in pages(offset, into.len() as u64) {
            let part = &mut into[done..done + within.len()];
            match &self.pages[page] {
                Page::Bytes(bytes) => part.copy_from_slice(&bytes[within]),
                Page::Untouched => self.fill.copy(page, within.start, part),
                Page::Hole => part.fill(0),
            }
        }
    }

    fn page_mut(&mut self, page: usize) -> &mut Bytes {
        let slot = &mut self.pages[page];
        match slot {
            Page::Bytes(_) => {}
            Page::Hole => *slot = Page::Bytes(Fill::Zeros.page(page)),
            Page::Untouched => *slot = Page::Bytes(self.fill.page(page)),
        }
        match slot {
            Page::Bytes(bytes) => Rc::make_mut(bytes),
            Page::Untouched | Page::Hole => unreachable!("made just before"),
        }
    }

    pub(super) fn write(&mut self, offset: u64, bytes: &[u8]) {
        for (page, within, done) in pages(offset, bytes.len() as u64) {
            let part = &bytes[done..done + within.len()];
            match <&Bytes>::try_from(part) {
                Ok(whole) => self.replace(page, whole),
                Err(_) => self.page_mut(page)[within].copy_from_slice(part),
            }
        }
    }

    /// Writes a whole page: what it held, and who else holds that, is of no interest.
    fn replace(&mut self, page: usize, bytes: &Bytes) {
        let slot = &mut self.pages[page];
        if let Page::Bytes(own) = slot
            && let Some(own) = Rc::get_mut(own)
        {
            return own.copy_from_slice(bytes);
        }
        *slot = Page::Bytes(Rc::new(*bytes));
    }

    pub(super) fn zero(&mut self, offset: u64, len: u64) {
        for (page, within, _) in pages(offset, len) {
            if within.len() as u64 == PAGE {
                self.pages[page] = Page::Hole;
            } else {
                self.page_mut(page)[within].fill(0);
            }
        }
    }

    pub(super) fn is_hole(&self, page: usize) -> bool {
        match self.pages[page] {
            Page::Untouched => self.fill == Fill::Zeros,
            Page::Hole => true,
            Page::Bytes(_) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noise_is_the_same_from_wherever_it_is_read() {
        let image = Image::new(Fill::Noise(7), 8192);
        let mut all = [0; 8192];
        image.read(0, &mut all);
        for (start, len) in [(0, 1), (3, 2), (5, 20), (8, 13), (4090, 9), (4091, 4101), (8191, 1)] {
            let mut some = vec![0; len];
            image.read(start as u64, &mut some);
            assert_eq!(some, all[start..start + len], "{len} bytes from {start} on");
        }
    }

    #[test]
    fn an_image_does_not_see_what_is_written_to_its_copy() {
        let mut image = Image::new(Fill::Zeros, 8192);
        image.write(0, &[1; 8192]);
        let copy = image.clone();
        image.write(0, &[2; 4096]);
        image.write(4096, &[2; 512]);
        image.zero(4608, 512);
        let (mut own, mut other) = ([0; 8192], [0; 8192]);
        image.read(0, &mut own);
        copy.read(0, &mut other);
        assert_eq!(other, [1; 8192]);
        assert_eq!((own[0], own[4096], own[4608], own[5120]), (2, 2, 0, 1));
    }
}
