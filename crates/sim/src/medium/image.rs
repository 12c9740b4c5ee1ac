//! The bytes of a disk, as pages that images share until one of them changes.

use std::ops::Range;
use std::rc::Rc;

use super::{Fill, PAGE};
use random::mix;

type Bytes = [u8; PAGE as usize];

/// A page. Cheap to clone: bytes are shared.
#[derive(Clone)]
enum Page {
    /// As the fill says.
    Untouched,
    /// Given back: zeros.
    Hole,
    /// The written pages.
    Bytes(Rc<Bytes>),
}

/// Sparse bytes.
#[derive(Clone)]
pub(super) struct Image {
    fill: Fill,
    pages: Vec<Page>,
}

/// Pages without references, for reuse.
#[derive(Default)]
pub(super) struct Spare(Vec<Rc<Bytes>>);

impl Spare {
    /// An unshared page with arbitrary content.
    fn take(&mut self) -> Rc<Bytes> {
        self.0.pop().unwrap_or_else(|| Rc::new([0; PAGE as usize]))
    }

    fn give(&mut self, old: Page) {
        if let Page::Bytes(bytes) = old
            && Rc::strong_count(&bytes) == 1
        {
            self.0.push(bytes);
        }
    }

    fn copy_of(&mut self, bytes: &Bytes) -> Rc<Bytes> {
        let mut page = self.take();
        own(&mut page).copy_from_slice(bytes);
        page
    }
}

/// The bytes of a page that was just taken from the spare ones.
fn own(page: &mut Rc<Bytes>) -> &mut Bytes {
    Rc::get_mut(page).expect("spare pages have no other owner")
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
        // A range of single bytes begins, or ends, within a word.
        let (head, rest) = into.split_at_mut((start.wrapping_neg() % 8).min(into.len()));
        head.copy_from_slice(&word(start / 8)[start % 8..][..head.len()]);
        let start = (start + head.len()) / 8;
        let (words, tail) = rest.as_chunks_mut::<8>();
        words.iter_mut().zip(start..).for_each(|(eight, at)| *eight = word(at));
        tail.copy_from_slice(&word(start + words.len())[..tail.len()]);
    }
}

impl Image {
    pub(super) fn new(fill: Fill, bytes: u64) -> Image {
        Image { fill, pages: vec![Page::Untouched; bytes.div_ceil(PAGE) as usize] }
    }

    pub(super) fn read(&mut self, offset: u64, into: &mut [u8], spare: &mut Spare) {
        for (page, within, done) in pages(offset, into.len() as u64) {
            let part = &mut into[done..done + within.len()];
            match &self.pages[page] {
                Page::Bytes(bytes) => part.copy_from_slice(&bytes[within]),
                // Noise is grown once, and looked at at each start of an array.
                Page::Untouched if self.fill != Fill::Zeros && part.len() as u64 == PAGE => {
                    part.copy_from_slice(self.page_mut(page, spare));
                }
                Page::Untouched => self.fill.copy(page, within.start, part),
                Page::Hole => part.fill(0),
            }
        }
    }

    fn page_mut(&mut self, page: usize, spare: &mut Spare) -> &mut Bytes {
        let slot = &mut self.pages[page];
        let new = match slot {
            Page::Bytes(bytes) if Rc::strong_count(bytes) == 1 => None,
            Page::Bytes(bytes) => Some(spare.copy_of(bytes)),
            Page::Hole | Page::Untouched => {
                let fill = if matches!(slot, Page::Hole) { Fill::Zeros } else { self.fill };
                let mut bytes = spare.take();
                fill.copy(page, 0, own(&mut bytes));
                Some(bytes)
            }
        };
        if let Some(new) = new {
            *slot = Page::Bytes(new);
        }
        let Page::Bytes(bytes) = slot else { unreachable!("created just before") };
        Rc::get_mut(bytes).expect("created or checked just before")
    }

    pub(super) fn write(&mut self, offset: u64, bytes: &[u8], spare: &mut Spare) {
        for (page, within, done) in pages(offset, bytes.len() as u64) {
            let part = &bytes[done..done + within.len()];
            match <&Bytes>::try_from(part) {
                Ok(whole) => self.replace(page, whole, spare),
                Err(_) => self.page_mut(page, spare)[within].copy_from_slice(part),
            }
        }
    }

    /// Writes a whole page, whatever its old content and other references.
    fn replace(&mut self, page: usize, bytes: &Bytes, spare: &mut Spare) {
        let slot = &mut self.pages[page];
        if let Page::Bytes(own) = slot
            && let Some(own) = Rc::get_mut(own)
        {
            return own.copy_from_slice(bytes);
        }
        *slot = Page::Bytes(spare.copy_of(bytes));
    }

    /// From here on this page is the other image's.
    pub(super) fn share(&mut self, page: usize, other: &Image, spare: &mut Spare) {
        spare.give(std::mem::replace(&mut self.pages[page], other.pages[page].clone()));
    }

    pub(super) fn zero(&mut self, offset: u64, len: u64, spare: &mut Spare) {
        for (page, within, _) in pages(offset, len) {
            if within.len() as u64 == PAGE {
                spare.give(std::mem::replace(&mut self.pages[page], Page::Hole));
            } else {
                self.page_mut(page, spare)[within].fill(0);
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

    fn read(image: &mut Image, start: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        image.read(start, &mut bytes, &mut Spare::default());
        bytes
    }

    #[test]
    fn noise_is_the_same_from_wherever_it_is_read() {
        let all = read(&mut Image::new(Fill::Noise(7), 8192), 0, 8192);
        for (start, len) in [(0, 1), (3, 2), (5, 20), (8, 13), (4090, 9), (4091, 4101), (8191, 1)] {
            let some = read(&mut Image::new(Fill::Noise(7), 8192), start as u64, len);
            assert_eq!(some, all[start..start + len], "{len} bytes from {start} on");
        }
    }

    #[test]
    fn an_image_does_not_see_writes_to_its_copy() {
        let (mut image, mut spare) = (Image::new(Fill::Zeros, 8192), Spare::default());
        image.write(0, &[1; 8192], &mut spare);
        let mut copy = image.clone();
        image.write(0, &[2; 4096], &mut spare);
        image.write(4096, &[2; 512], &mut spare);
        image.zero(4608, 512, &mut spare);
        let own = read(&mut image, 0, 8192);
        assert_eq!(read(&mut copy, 0, 8192), [1; 8192]);
        assert_eq!((own[0], own[4096], own[4608], own[5120]), (2, 2, 0, 1));
        copy.share(0, &image, &mut spare);
        assert_eq!(spare.0.len(), 1, "an unreferenced page is reused");
        image.write(512, &[3; 512], &mut spare);
        let other = read(&mut copy, 0, 8192);
        assert_eq!((spare.0.len(), other[512], other[4096]), (0, 2, 1));
    }
}
