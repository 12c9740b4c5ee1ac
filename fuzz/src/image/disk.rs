//! A disk in memory that can be copied in a moment, cut short, and looked at from behind.

use std::cell::RefCell;
use std::rc::Rc;

use io::{Completion, Disk, Done, Error, Extent, ExtentKind, Limits, Op, Work, ZeroSupport};

const PAGE_BYTES: u64 = 4096;

type Page = Rc<[u8; PAGE_BYTES as usize]>;

/// Pages that copies share until one of them is written.
pub(super) struct Image {
    bytes: u64,
    pages: RefCell<Vec<Option<Page>>>,
}

impl Image {
    /// Zeros.
    pub(super) fn new(bytes: u64) -> Image {
        Image { bytes, pages: RefCell::new(vec![None; bytes.div_ceil(PAGE_BYTES) as usize]) }
    }

    /// The first `bytes` of it, as another disk.
    pub(super) fn cut(&self, bytes: u64) -> Image {
        let pages = self.pages.borrow();
        let kept = bytes.div_ceil(PAGE_BYTES) as usize;
        Image { bytes, pages: RefCell::new(pages[..kept].to_vec()) }
    }

    /// All of it, as another disk.
    pub(super) fn copy(&self) -> Image {
        self.cut(self.bytes)
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Fills `into`; bytes beyond the end read as zeros.
    pub(super) fn peek(&self, offset: u64, into: &mut [u8]) {
        let pages = self.pages.borrow();
        for (byte, target) in (offset..).zip(into.chunks_mut(1)) {
            let page = pages.get((byte / PAGE_BYTES) as usize).and_then(Option::as_ref);
            target[0] = page.map_or(0, |page| page[(byte % PAGE_BYTES) as usize]);
        }
    }

    /// Writes; bytes beyond the end are dropped.
    pub(super) fn poke(&self, offset: u64, bytes: &[u8]) {
        self.each_page(offset, bytes.len() as u64, |page, within, done| {
            let page = page.get_or_insert_with(|| Rc::new([0; PAGE_BYTES as usize]));
            let part = &bytes[done..done + within.len()];
            Rc::make_mut(page)[within].copy_from_slice(part);
        });
    }

    fn each_page(
        &self,
        offset: u64,
        len: u64,
        mut each: impl FnMut(&mut Option<Page>, std::ops::Range<usize>, usize),
    ) {
        let mut pages = self.pages.borrow_mut();
        let end = offset.saturating_add(len).min(self.bytes);
        let mut at = offset;
        while at < end {
            let within = (at % PAGE_BYTES) as usize;
            let part = (PAGE_BYTES - at % PAGE_BYTES).min(end - at);
            let page = &mut pages[(at / PAGE_BYTES) as usize];
            each(page, within..within + part as usize, (at - offset) as usize);
            at += part;
        }
    }

    fn read(&self, offset: u64, into: &mut [u8]) {
        self.each_page(offset, into.len() as u64, |page, within, done| {
            let part = &mut into[done..done + within.len()];
            match page {
                Some(page) => part.copy_from_slice(&page[within]),
                None => part.fill(0),
            }
        });
    }

    fn extents(&self, offset: u64, len: u64, found: &mut Vec<Extent>) {
        found.clear();
        self.each_page(offset, len, |page, within, _| {
            let len = within.len() as u64;
            let kind = if page.is_some() { ExtentKind::Data } else { ExtentKind::Hole };
            match found.last_mut() {
                Some(last) if last.kind == kind => last.len += len,
                _ => found.push(Extent { len, kind }),
            }
        });
    }
}

impl Disk for Image {
    fn submit(&self, op: Op) -> Completion<Done> {
        if let Some(fault) = self.limits().check(&op) {
            let error = Error::refused(format!("offset {}: {fault}", op.offset));
            return Completion::ready(Done::failed(op.work, error));
        }
        let mut work = op.work;
        let mut at = op.offset;
        match &mut work {
            Work::Read(bufs) => {
                for buf in bufs {
                    self.read(at, buf);
                    at += buf.len() as u64;
                }
            }
            Work::Write(bufs) => {
                for buf in bufs {
                    self.poke(at, buf);
                    at += buf.len() as u64;
                }
            }
            Work::Flush => {}
            Work::Zero { len, .. } | Work::Discard { len } => {
                self.each_page(at, *len, |page, within, _| match page {
                    Some(_) if within.len() == PAGE_BYTES as usize => *page = None,
                    Some(page) => Rc::make_mut(page)[within].fill(0),
                    None => {}
                });
            }
            Work::Extents { len, found } => self.extents(at, *len, found),
        }
        Completion::ready(Done::ok(work))
    }

    fn limits(&self) -> Limits {
        Limits {
            volatile: false,
            zero: ZeroSupport::Fast,
            discard: true,
            discard_zeroes: true,
            ..Limits::plain(self.bytes)
        }
    }
}
