//! The bytes of a disk of a stand: pages that are shared, and pages of its own over them.

use std::rc::Rc;

/// Bytes of a page of an [`Image`].
pub const PAGE: usize = 4096;

type Page = [u8; PAGE];

/// The bytes of a disk; pages that were never written are zeros. Cheap to clone.
#[derive(Clone, Default)]
pub struct Image {
    pages: Vec<Option<Rc<Page>>>,
}

impl Image {
    fn page(&self, page: usize) -> Option<&Page> {
        self.pages.get(page)?.as_deref()
    }

    /// Copies bytes out that lie within one page.
    pub fn read(&self, offset: u64, into: &mut [u8]) {
        let within = offset as usize % PAGE;
        match self.page(offset as usize / PAGE) {
            Some(page) => into.copy_from_slice(&page[within..within + into.len()]),
            None => into.fill(0),
        }
    }

    /// Changes bytes that lie within one page.
    pub fn write(&mut self, offset: u64, bytes: &[u8]) {
        let (page, within) = (offset as usize / PAGE, offset as usize % PAGE);
        if self.pages.len() <= page {
            self.pages.resize(page + 1, None);
        }
        let page = Rc::make_mut(self.pages[page].get_or_insert_with(|| Rc::new([0; PAGE])));
        page[within..within + bytes.len()].copy_from_slice(bytes);
    }
}

/// The current content of a disk: an image, and the writes over it.
#[derive(Default)]
pub(super) struct Contents {
    pub(super) under: Rc<Image>,
    pub(super) over: Vec<Option<Box<Page>>>,
    pub(super) touched: Vec<usize>,
    /// Pages to be used again.
    spare: Vec<Box<Page>>,
}

impl Contents {
    /// Zeros.
    pub(super) fn new(bytes: u64) -> Contents {
        let over = (0..bytes as usize / PAGE).map(|_| None).collect();
        Contents { over, ..Contents::default() }
    }

    /// From now on this image, and nothing over it.
    pub(super) fn reset(&mut self, image: Rc<Image>) {
        for page in self.touched.drain(..) {
            self.spare.extend(self.over[page].take());
        }
        self.under = image;
    }

    pub(super) fn read(&self, offset: u64, into: &mut [u8]) {
        for (page, within, done) in pages(offset, into.len()) {
            let part = &mut into[done..done + within.len()];
            let own = self.over[page].as_deref().or_else(|| self.under.page(page));
            match own {
                Some(bytes) => part.copy_from_slice(&bytes[within]),
                None => part.fill(0),
            }
        }
    }

    fn page_mut(&mut self, page: usize) -> &mut Page {
        let Contents { under, over, touched, spare } = self;
        over[page].get_or_insert_with(|| {
            touched.push(page);
            let mut bytes = spare.pop().unwrap_or_else(|| Box::new([0; PAGE]));
            match under.page(page) {
                Some(old) => bytes.copy_from_slice(old),
                None => bytes.fill(0),
            }
            bytes
        })
    }

    pub(super) fn write(&mut self, offset: u64, bytes: &[u8]) {
        for (page, within, done) in pages(offset, bytes.len()) {
            let part = &bytes[done..done + within.len()];
            self.page_mut(page)[within].copy_from_slice(part);
        }
    }

    pub(super) fn zero(&mut self, offset: u64, len: u64) {
        for (page, within, _) in pages(offset, len as usize) {
            if self.over[page].is_some() || self.under.page(page).is_some() {
                self.page_mut(page)[within].fill(0);
            }
        }
    }
}

/// The pages that a range touches: page, range within it, bytes done before it.
fn pages(offset: u64, len: usize) -> impl Iterator<Item = (usize, std::ops::Range<usize>, usize)> {
    let (mut at, mut done) = (offset as usize, 0);
    std::iter::from_fn(move || {
        (done < len).then(|| {
            let within = at % PAGE;
            let part = (PAGE - within).min(len - done);
            let item = (at / PAGE, within..within + part, done);
            (at, done) = (at + part, done + part);
            item
        })
    })
}
