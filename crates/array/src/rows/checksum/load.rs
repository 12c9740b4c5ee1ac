//! Reading pages of the table into memory: once each, however many readers need them.
//!
//! Where members rotate, each page costs a stream two seeks, half as long as reading the 2 MiB that
//! the page covers. There, a page behind one in memory is read together with those that follow:
//!
//! ```text
//!   table   ▐ in memory ▌ missing ┊ the next ones, up to RUN ▌
//!                       └────────── one read ────────────────┘
//! ```

use std::ops::Range;
use std::rc::Rc;

use io::{Buf, Class};
use layout::Family;
use layout::private::checksums::{ChecksumEntry, PAGE_BYTES, PAGE_COVERS};

use crate::member::Member;
use crate::member::batch::IoOptions;
use crate::rows::checksum::{ChecksumTable, Page, Wanted};
use crate::rows::engine::{Engine, RowOp};

/// The most pages that are read at once: 128 KiB, which a disk reads in a millisecond, for 64 MiB
/// of its data.
const RUN: u64 = 32;

/// A run takes at most this part of the memory for pages.
const SHARE: u64 = 64;

impl ChecksumTable {
    /// Adds the pages that are read together with this one.
    fn find_run(&self, wanted: &Wanted, number: u64, end: u64, into: &mut Vec<Rc<Page>>) {
        let id = wanted.member.id;
        let in_order = number.checked_sub(1).is_some_and(|last| self.recall(id, last).is_some());
        if !in_order || !wanted.member.limits.rotational {
            return;
        }
        let run = RUN.min(self.most as u64 / SHARE);
        for next in number + 1..end.min(number + run) {
            let (page, own) = self.find(wanted, next);
            if !own {
                return;
            }
            into.push(page);
        }
    }
}

impl Engine {
    /// The end of the pages of a member that this shard may read together with one: no shard keeps
    /// pages of another's regions.
    fn pages_end(&self, member: &Member, number: u64) -> u64 {
        let end = member.data_bytes().div_ceil(PAGE_COVERS);
        if self.loads.len() == 1 {
            return end;
        }
        let geometry = &self.setup.geometry;
        let region = geometry.region_bytes();
        let of_member = match geometry.family() {
            Family::Parity => region / geometry.stripe_bytes() * geometry.chunk_bytes(),
            Family::Mirror | Family::Plain => region,
        };
        let pages = (of_member / PAGE_COVERS).max(1);
        end.min((number / pages + 1) * pages)
    }
}

/// Pages that one reader fetches. If it is dropped, none of them stays half read.
struct Fetch<'a> {
    checksums: &'a ChecksumTable,
    pages: Vec<Rc<Page>>,
}

impl Fetch<'_> {
    /// The pages without their bytes.
    fn unread(&self) -> impl Iterator<Item = &Rc<Page>> {
        self.pages.iter().filter(|page| !page.ready.get())
    }
}

impl Drop for Fetch<'_> {
    fn drop(&mut self) {
        let mut pages = self.checksums.pages.borrow_mut();
        for page in self.unread() {
            pages.remove(&(page.member.id, page.number));
        }
        drop(pages);
        if !self.pages.is_empty() {
            self.checksums.arrived.raise();
        }
    }
}

impl RowOp<'_> {
    /// Brings the pages of these parts into memory and keeps them there as long as `work.pages`.
    /// False if a member failed: it is in `work.failures`. The entries of an unreadable page are
    /// unknown.
    pub(crate) async fn load_checksums(&mut self) -> bool {
        let Some(checksums) = &self.engine.checksums else { return true };
        self.work.pages.clear();
        checksums.evict();
        loop {
            let mut fetch = Fetch { checksums, pages: Vec::new() };
            let mut missing = false;
            for wanted in &self.work.wanted {
                let Range { start, end } = wanted.range;
                for number in start / PAGE_COVERS..end.div_ceil(PAGE_COVERS) {
                    let (page, own) = checksums.find(wanted, number);
                    missing |= !page.ready.get();
                    if own {
                        fetch.pages.push(Rc::clone(&page));
                        let end = self.engine.pages_end(&wanted.member, number);
                        checksums.find_run(wanted, number, end, &mut fetch.pages);
                    }
                    self.work.pages.push(page);
                }
            }
            if !missing {
                return true;
            }
            if fetch.pages.is_empty() {
                // Another reader is about to have read them.
                self.work.pages.clear();
                let arrived = checksums.arrived.wait();
                drop(fetch);
                arrived.await;
                continue;
            }
            fetch.pages.sort_unstable_by_key(|page| (page.member.id, page.number));
            if !self.fetch(&fetch).await {
                return false;
            }
            drop(fetch);
            self.work.pages.clear();
        }
    }

    async fn fetch(&mut self, fetch: &Fetch<'_>) -> bool {
        let joined = self.read_pages(fetch, true).await;
        let medium = |op: &Self| op.work.failures.iter().any(|f| f.error.is_medium());
        if joined && medium(self) {
            // One unreadable page must not cost its neighbours their entries.
            self.work.failures.retain(|f| !f.error.is_medium());
            self.read_pages(fetch, false).await;
        }
        for failure in self.work.failures.iter().filter(|f| f.error.is_medium()) {
            for page in fetch.unread().filter(|page| Rc::ptr_eq(&page.member, &failure.member)) {
                *page.bytes.borrow_mut() = ChecksumEntry::unknown_page();
                page.ready.set(true);
            }
        }
        self.work.failures.retain(|f| !f.error.is_medium());
        self.work.failures.is_empty()
    }

    /// Reads the unread pages, adjacent ones at once if `join`. True if some were joined.
    async fn read_pages(&mut self, fetch: &Fetch<'_>, join: bool) -> bool {
        let unread: Vec<&Rc<Page>> = fetch.unread().collect();
        let (mut tag, mut joined) = (0, false);
        for run in unread.chunk_by(|page, next| join && next.is(page.member.id, page.number + 1)) {
            let buf = self.engine.pool.take(run.len() * PAGE_BYTES as usize);
            let first = run[0];
            self.work.batch.read_elsewhere(&first.member, first.slot, first.place(), buf, tag);
            tag += run.len() as u32;
            joined |= run.len() > 1;
        }
        let opts = IoOptions {
            fua: false,
            class: Class::Foreground,
            op_bytes: 0,
            deadline: self.engine.setup.bounds.deadline,
        };
        self.engine.run(&mut self.work.batch, opts).await;
        let take = |tag: u32, buf: Option<Buf>, ok: bool| {
            let Some(buf) = buf.filter(|_| ok) else { return };
            let pages = buf.chunks_exact(PAGE_BYTES as usize);
            for (page, bytes) in unread[tag as usize..].iter().zip(pages) {
                *page.bytes.borrow_mut() = bytes.to_vec();
                page.ready.set(true);
            }
        };
        self.work.batch.drain(take, |_, _, _| {}, &mut self.work.failures);
        joined
    }
}
