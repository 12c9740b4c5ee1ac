//! A cache of disk pages: every hypothesis reads the same few.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use crate::assemble::Candidate;
use crate::commit::member_io::MemberIo;

pub(super) const PAGE: u64 = 4096;

/// The pages read; `None` where unreadable.
type Known = BTreeMap<(usize, u64), Option<Rc<[u8]>>>;

/// The disks and their pages.
pub(super) struct Pages<'a> {
    reach: &'a MemberIo,
    disks: &'a [Candidate],
    known: RefCell<Known>,
}

impl<'a> Pages<'a> {
    pub(super) fn new(reach: &'a MemberIo, disks: &'a [Candidate]) -> Pages<'a> {
        Pages { reach, disks, known: RefCell::default() }
    }

    pub(super) fn reach(&self) -> &'a MemberIo {
        self.reach
    }

    pub(super) fn disks(&self) -> &'a [Candidate] {
        self.disks
    }

    /// The page of a disk with this byte.
    pub(super) async fn page(&self, disk: usize, offset: u64) -> Option<Rc<[u8]>> {
        let key = (disk, offset / PAGE);
        if let Some(known) = self.known.borrow().get(&key) {
            return known.clone();
        }
        let start = key.1 * PAGE;
        let read = match start + PAGE <= self.disks[disk].disk.limits().bytes {
            true => self.reach.read(&*self.disks[disk].disk, start..start + PAGE).await.ok(),
            false => None,
        };
        let page: Option<Rc<[u8]>> = read.map(Rc::from);
        self.known.borrow_mut().insert(key, page.clone());
        page
    }

    /// Bytes of a disk within one page.
    pub(super) async fn bytes(&self, disk: usize, offset: u64, len: usize) -> Option<Vec<u8>> {
        let page = self.page(disk, offset).await?;
        page.get((offset % PAGE) as usize..)?.get(..len).map(<[u8]>::to_vec)
    }

    /// A large read of a disk, not cached; unreadable parts are zeros.
    pub(super) async fn run(&self, disk: usize, offset: u64, len: u64) -> Vec<u8> {
        let end = (offset + len).min(self.disks[disk].disk.limits().bytes);
        let range = offset..end.max(offset);
        let zeros = || vec![0; (range.end - range.start) as usize];
        let read = self.reach.read(&*self.disks[disk].disk, range.clone()).await;
        read.unwrap_or_else(|_| zeros())
    }
}
