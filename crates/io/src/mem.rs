//! A disk in memory: the contract of [`Disk`] made concrete, and the quickest disk to test with.
//!
//! Every operation completes at once. Holes are tracked per page, so block status is exact.

use std::cell::RefCell;

use crate::buf::BUF_ALIGN;
use crate::completion::Completion;
use crate::disk::{Disk, Done, Extent, ExtentKind, Limits, Op, Work, ZeroSupport};
use crate::error::Error;

/// A disk in memory. Pages that were never written take no memory.
pub struct MemDisk {
    limits: Limits,
    pages: RefCell<Vec<Option<Box<[u8; BUF_ALIGN]>>>>,
}

impl MemDisk {
    /// A disk of `bytes` zeros with 512-byte blocks.
    pub fn new(bytes: u64) -> MemDisk {
        MemDisk::with_limits(Limits { volatile: false, ..Limits::plain(bytes) })
    }

    /// A disk of zeros with these limits; it does zero and discard by forgetting pages.
    pub fn with_limits(limits: Limits) -> MemDisk {
        let pages = usize::try_from(limits.bytes.div_ceil(BUF_ALIGN as u64));
        let pages = pages.expect("a disk in memory fits into memory");
        let limits =
            Limits { zero: ZeroSupport::Fast, discard: true, discard_zeroes: true, ..limits };
        MemDisk { limits, pages: RefCell::new((0..pages).map(|_| None).collect()) }
    }

    /// Copies bytes out, as a test looks at a disk from behind.
    ///
    /// # Panics
    /// If the range is not on the disk.
    pub fn peek(&self, offset: u64, into: &mut [u8]) {
        let pages = self.pages.borrow();
        for_pages(offset, into.len() as u64, |page, within, done| {
            let part = &mut into[done..done + within.len()];
            match &pages[page] {
                Some(bytes) => part.copy_from_slice(&bytes[within]),
                None => part.fill(0),
            }
        });
    }

    /// Changes bytes without the knowledge of the disk's user.
    ///
    /// # Panics
    /// If the range is not on the disk.
    pub fn poke(&self, offset: u64, bytes: &[u8]) {
        let mut pages = self.pages.borrow_mut();
        for_pages(offset, bytes.len() as u64, |page, within, done| {
            let target = pages[page].get_or_insert_with(|| Box::new([0; BUF_ALIGN]));
            let part = &bytes[done..done + within.len()];
            target[within].copy_from_slice(part);
        });
    }

    fn zero(&self, offset: u64, len: u64) {
        let mut pages = self.pages.borrow_mut();
        for_pages(offset, len, |page, within, _| {
            if within.len() == BUF_ALIGN {
                pages[page] = None;
            } else if let Some(bytes) = &mut pages[page] {
                bytes[within].fill(0);
            }
        });
    }

    fn extents(&self, offset: u64, len: u64, found: &mut Vec<Extent>) {
        let pages = self.pages.borrow();
        found.clear();
        for_pages(offset, len, |page, within, _| {
            let len = within.len() as u64;
            let kind = if pages[page].is_some() { ExtentKind::Data } else { ExtentKind::Hole };
            match found.last_mut() {
                Some(last) if last.kind == kind => last.len += len,
                _ => found.push(Extent { len, kind }),
            }
        });
    }
}

/// Calls `each(page, range within the page, bytes done before)` for every page that the range
/// touches.
fn for_pages(offset: u64, len: u64, mut each: impl FnMut(usize, std::ops::Range<usize>, usize)) {
    let page_bytes = BUF_ALIGN as u64;
    let mut done = 0;
    while done < len {
        let at = offset + done;
        let within = (at % page_bytes) as usize;
        let part = (page_bytes - at % page_bytes).min(len - done) as usize;
        each((at / page_bytes) as usize, within..within + part, done as usize);
        done += part as u64;
    }
}

impl Disk for MemDisk {
    fn submit(&self, op: Op) -> Completion<Done> {
        if let Some(fault) = self.limits.check(&op) {
            let error = Error::refused(format!("memory disk, offset {}: {fault}", op.offset));
            return Completion::ready(Done::failed(op.work, error));
        }
        let mut work = op.work;
        let mut at = op.offset;
        match &mut work {
            Work::Read(bufs) => {
                for buf in bufs {
                    self.peek(at, buf);
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
            Work::Zero { len, .. } | Work::Discard { len } => self.zero(at, *len),
            Work::Extents { len, found } => self.extents(at, *len, found),
        }
        Completion::ready(Done::ok(work))
    }

    fn limits(&self) -> Limits {
        self.limits
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tasks::complete;
    use crate::{ErrorKind, Pool};

    fn run(disk: &MemDisk, op: Op) -> Done {
        complete(disk.submit(op)).expect("a memory disk completes at once")
    }

    #[test]
    fn reads_back_writes_across_pages() {
        let (disk, pool) = (MemDisk::new(1 << 16), Pool::new(1 << 20));
        let bytes: Vec<u8> = (0..8192).map(|i| i as u8).collect();
        run(&disk, Op::write(3584, pool.copy_of(&bytes).freeze())).result.expect("in range");
        let read = run(&disk, Op::read(3584, pool.take(8192)));
        assert_eq!(&read.into_buf()[..], &bytes[..]);
    }

    #[test]
    fn refuses_operations_out_of_range_or_misaligned() {
        let (disk, pool) = (MemDisk::new(4096), Pool::new(1 << 20));
        for (offset, len) in [(4096, 512), (u64::MAX - 511, 512), (1, 512), (0, 100)] {
            let done = run(&disk, Op::read(offset, pool.take(len)));
            assert_eq!(done.result.expect_err("must fail").kind(), ErrorKind::Refused);
        }
        assert!(run(&disk, Op::read(4096, pool.take(0))).result.is_ok());
    }

    #[test]
    fn holes_are_reported() {
        let (disk, pool) = (MemDisk::new(1 << 16), Pool::new(1 << 20));
        run(&disk, Op::write(8192, pool.take(4096).freeze())).result.expect("in range");
        let status = run(&disk, Op::new(0, Work::Extents { len: 1 << 16, found: Vec::new() }));
        let Work::Extents { found, .. } = status.work else { panic!("unexpected kind of work") };
        let kinds: Vec<_> = found.iter().map(|extent| (extent.len, extent.kind)).collect();
        let hole = ExtentKind::Hole;
        assert_eq!(kinds, [(8192, hole), (4096, ExtentKind::Data), (53248, hole)]);
    }
}
