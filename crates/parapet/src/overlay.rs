//! A copy-on-write overlay: writes stay in memory, and the disk does not change.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::rc::Rc;

use io::{Completion, Completions, Disk, Done, Error, Extent, ExtentKind, Limits, Op, Work};
use layout::md::SECTOR;
use os::Spawner;

type Sector = [u8; SECTOR as usize];

/// A read-only disk and its overlay. For small changes only: each written sector takes memory.
pub(crate) struct Overlay {
    below: Rc<dyn Disk>,
    /// The overlaid sectors, by number.
    above: Rc<RefCell<BTreeMap<u64, Sector>>>,
    answers: Rc<Completions<Done>>,
    on: Spawner,
}

impl Overlay {
    pub(crate) fn new(below: Rc<dyn Disk>, on: &Spawner) -> Overlay {
        let (above, answers) = (Rc::default(), Rc::new(Completions::new()));
        Overlay { below, above, answers, on: on.clone() }
    }

    /// Writes bytes, whole sectors, into the overlay.
    pub(crate) fn put(&self, offset: u64, bytes: &[u8]) {
        let mut above = self.above.borrow_mut();
        for (number, sector) in (offset / SECTOR..).zip(bytes.chunks_exact(SECTOR as usize)) {
            above.insert(number, sector.try_into().expect("cut to this length"));
        }
    }

    /// Returns the overlaid ranges in whole blocks of the disk, sorted and without duplicates.
    pub(crate) fn changed(&self) -> Vec<Range<u64>> {
        let block = u64::from(self.below.limits().logical_block).max(SECTOR);
        let above = self.above.borrow();
        let starts: BTreeSet<u64> = above.keys().map(|n| n * SECTOR / block * block).collect();
        starts.into_iter().map(|start| start..start + block).collect()
    }

    /// Reads from the disk and applies the overlay.
    fn read(&self, op: Op) -> Completion<Done> {
        let (ticket, answer) = self.answers.start();
        let (above, answers) = (Rc::clone(&self.above), Rc::clone(&self.answers));
        let (offset, below) = (op.offset, self.below.submit(op));
        self.on.spawn_local(async move {
            let mut done = below.await;
            if let (Work::Read(bufs), Ok(())) = (&mut done.work, &done.result) {
                let mut at = offset;
                for buf in bufs {
                    lay_over(&above.borrow(), at, buf);
                    at += buf.len() as u64;
                }
            }
            answers.finish(ticket, done);
        });
        answer
    }
}

/// Copies the overlaid part of a range into a buffer, which may begin and end within a sector.
fn lay_over(above: &BTreeMap<u64, Sector>, offset: u64, bytes: &mut [u8]) {
    let end = offset + bytes.len() as u64;
    for (number, sector) in above.range(offset / SECTOR..end.div_ceil(SECTOR)) {
        let start = number * SECTOR;
        let (from, to) = (start.max(offset), (start + SECTOR).min(end));
        let part = &sector[(from - start) as usize..(to - start) as usize];
        bytes[(from - offset) as usize..(to - offset) as usize].copy_from_slice(part);
    }
}

impl Disk for Overlay {
    fn submit(&self, mut op: Op) -> Completion<Done> {
        if let Some(fault) = self.limits().check(&op) {
            let error = Error::refused(format!("overlay, offset {}: {fault}", op.offset));
            return Completion::ready(Done::failed(op.work, error));
        }
        match &mut op.work {
            Work::Read(_) => return self.read(op),
            Work::Write(bufs) => {
                // The buffers are whole sectors together, but not one by one.
                let bytes: Vec<u8> = bufs.iter().flat_map(|buf| buf.iter().copied()).collect();
                self.put(op.offset, &bytes);
            }
            Work::Zero { len, .. } => {
                (0..*len / SECTOR).for_each(|n| self.put(op.offset + n * SECTOR, &[0; 512]));
            }
            // The disk may have a hole where the overlay has data.
            Work::Extents { len, found } => {
                *found = vec![Extent { len: *len, kind: ExtentKind::Data }];
            }
            Work::Flush | Work::Discard { .. } => {}
        }
        Completion::ready(Done::ok(op.work))
    }

    fn limits(&self) -> Limits {
        let below = self.below.limits();
        let Limits { bytes, logical_block, physical_block, optimal, .. } = below;
        Limits { logical_block, physical_block, optimal, volatile: false, ..Limits::plain(bytes) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use io::{MemDisk, Pool};

    #[test]
    fn what_is_written_lies_above_and_the_disk_stays_as_it_is() {
        let executor = os::Executor::new(os::Config::default()).unwrap();
        let below = Rc::new(MemDisk::new(1 << 20));
        below.poke(4096, &[1; 4096]);
        let overlay = Overlay::new(Rc::clone(&below) as _, &executor.spawner());
        let pool = Pool::new(1 << 20);
        executor.block_on(async {
            let write = Op::write(4608, pool.copy_of(&[2; 512]).freeze());
            overlay.submit(write).await.result.unwrap();
            let read = overlay.submit(Op::read(4096, pool.take(4096))).await.into_buf();
            assert!(read[..512] == [1; 512] && read[512..1024] == [2; 512]);
            assert!(read[1024..].iter().all(|&byte| byte == 1));
        });
        let mut found = [0; 4096];
        below.peek(4096, &mut found);
        assert_eq!(found, [1; 4096]);
        assert_eq!(overlay.changed().first(), Some(&(4608..5120)));
    }

    #[test]
    fn an_overlay_is_a_disk() {
        let executor = os::Executor::new(os::Config::default()).unwrap();
        let below = Rc::new(MemDisk::new(12 << 20));
        let overlay: Rc<dyn Disk> = Rc::new(Overlay::new(below, &executor.spawner()));
        executor.block_on(io::contract::check(overlay, &Pool::new(16 << 20)));
    }
}
