//! One operation as a series of requests that a kernel understands.
//!
//! ```text
//!    Read, Write ── aligned? ── Move ◀─┐ short: the rest         ┌─▶ end
//!                      └─ no ── Bounce ┴─────────────────────────┤
//!    Zero ── Punch ── not supported ── Zeros (written) ──────────┤─▶ fua: Sync ─▶ end
//!    Discard ── Punch (file), Trim (device) ─────────────────────┘
//!    Flush ── Sync ─ a distant file? ─▶ Measure ──▶ end
//! ```
//!
//! [`Transfer::next`] returns the next request, [`Transfer::advance`] takes its answer; the callers
//! (`psync`, `uring`) decide nothing. Invariant: the transfer owns the memory that `iov` names.

use io::{Buf, Op, Result, SharedBuf, Work};
use rustix::fs::FallocateFlags;

use super::distant;
use super::file::{Access, File};

/// The most slices of one request: the kernel's `IOV_MAX`.
const SLICES: usize = 1024;

/// The most bytes that are copied for one request when buffers are not aligned.
const BOUNCE_BYTES: usize = 1 << 20;

/// The zeros that written zeroing repeats, and how many of them one request takes.
const ZERO_BYTES: usize = 256 << 10;
const ZERO_SLICES: usize = 16;

/// See the module.
pub(super) struct Transfer {
    op: Op,
    total: u64,
    done: u64,
    step: Step,
    iov: Vec<libc::iovec>,
    bounce: Option<Buf>,
    zeros: Option<SharedBuf>,
    /// Where a look at the file is answered.
    stat: Option<Box<libc::statx>>,
    /// Bytes of the request in flight.
    asked: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    Move,
    Bounce,
    Zeros,
    Punch(FallocateFlags),
    Trim,
    Sync,
    Measure,
}

/// A request to the kernel. `offset` and `len` in bytes.
pub(super) enum Request<'a> {
    Read { iov: &'a [libc::iovec], offset: u64 },
    Write { iov: &'a [libc::iovec], offset: u64, durable: bool },
    Sync,
    Allocate { mode: FallocateFlags, offset: u64, len: u64 },
    Trim { offset: u64, len: u64 },
    Stat(&'a mut libc::statx),
}

impl Transfer {
    /// Takes an operation that [`File::refuses`] lets pass. `iov` lends its room.
    pub(super) fn new(file: &File, op: Op, iov: Vec<libc::iovec>) -> Transfer {
        let step = first_step(file, &op.work);
        let total = op.work.len();
        let (bounce, zeros, stat) = (None, None, None);
        Transfer { op, total, done: 0, step, iov, bounce, zeros, stat, asked: 0 }
    }

    /// The next request. Its memory stays valid until [`Transfer::advance`] gets the answer.
    pub(super) fn next(&mut self, file: &File) -> Request<'_> {
        self.iov.clear();
        let offset = self.op.offset + self.done;
        match self.step {
            Step::Sync => return Request::Sync,
            Step::Measure => return Request::Stat(self.stat.get_or_insert_with(distant::blank)),
            Step::Punch(mode) => return Request::Allocate { mode, offset, len: self.total },
            Step::Trim => return Request::Trim { offset, len: self.total },
            Step::Move => match &mut self.op.work {
                Work::Read(bufs) => {
                    fill(&mut self.iov, self.done, bufs.iter_mut().map(|buf| span_mut(buf)));
                }
                Work::Write(bufs) => {
                    fill(&mut self.iov, self.done, bufs.iter().map(|buf| span(buf)));
                }
                _ => {}
            },
            Step::Bounce => self.fill_bounce(file),
            Step::Zeros => self.fill_zeros(file),
        }
        self.asked = self.iov.iter().map(|slice| slice.iov_len as u64).sum();
        match self.op.work {
            Work::Read(_) => Request::Read { iov: &self.iov, offset },
            _ => {
                let durable = self.is_durable(file);
                Request::Write { iov: &self.iov, offset, durable }
            }
        }
    }

    /// Takes the kernel's answer: bytes, or a negative errno. `None`: there is more to ask.
    pub(super) fn advance(&mut self, file: &File, result: i32) -> Option<Result<()>> {
        match (result, self.step) {
            (errno, _) if errno == -libc::EINTR || errno == -libc::EAGAIN => None,
            (errno, Step::Punch(_) | Step::Trim) if errno == -libc::EOPNOTSUPP => {
                match self.op.work {
                    Work::Zero { fast: true, .. } => Some(Err(file.not_fast())),
                    Work::Zero { .. } => {
                        self.step = Step::Zeros;
                        None
                    }
                    // Nothing is promised of discarded bytes.
                    _ => Some(Ok(())),
                }
            }
            (errno, _) if errno < 0 => {
                let synced = self.step == Step::Sync || self.is_durable(file);
                if synced {
                    file.sync_failed();
                }
                let (offset, len) = self.concerned();
                Some(Err(match -errno {
                    // Through the page cache a sync without space has lost earlier writes, too.
                    libc::ENOSPC | libc::EDQUOT if synced && file.access == Access::Buffered => {
                        file.fault(libc::EIO, offset, len)
                    }
                    errno => file.fault(errno, offset, len),
                }))
            }
            // Without a ring there are no checks: use the last result.
            (_, Step::Sync) if file.distant.is_some() && self.stat.is_none() => {
                self.step = Step::Measure;
                None
            }
            (_, Step::Measure) => {
                self.stat.iter().for_each(|stat| file.store_stat(stat));
                Some(file.synced())
            }
            (_, Step::Sync) => Some(file.synced()),
            (_, Step::Punch(_) | Step::Trim) => self.moved(file),
            (count, Step::Move | Step::Bounce | Step::Zeros) => {
                let block = u64::from(file.limits.logical_block);
                // The kernel may stop anywhere; the next request must begin at a block again.
                let whole = (count as u64).min(self.asked) / block * block;
                if whole == 0 {
                    let (offset, len) = (self.op.offset + self.done, self.total - self.done);
                    return Some(Err(file.ended_at(offset, len)));
                }
                if self.step == Step::Bounce {
                    self.drain_bounce(whole as usize);
                }
                self.done += whole;
                if self.done == self.total { self.moved(file) } else { None }
            }
        }
    }

    /// True if the request in flight is a device's discard.
    pub(super) fn is_trim(&self) -> bool {
        self.step == Step::Trim
    }

    /// True if its writes must be durable on completion.
    fn is_durable(&self, file: &File) -> bool {
        // In memory nothing is durable; zeros are made so at the end, with one sync.
        self.op.fua && file.access != Access::Memory && matches!(self.op.work, Work::Write(_))
    }

    /// Gives back the work, and the room of `iov`.
    pub(super) fn into_parts(self) -> (Work, Vec<libc::iovec>) {
        (self.op.work, self.iov)
    }

    /// All bytes are where they belong; are they durable?
    fn moved(&mut self, file: &File) -> Option<Result<()>> {
        let written = matches!(self.op.work, Work::Write(_)) || self.step == Step::Zeros;
        if written && let Err(cut) = file.written(self.op.offset + self.total) {
            return Some(Err(cut));
        }
        let synced = matches!(self.op.work, Work::Read(_) | Work::Write(_));
        if synced || !self.op.fua {
            return Some(Ok(()));
        }
        self.step = Step::Sync;
        None
    }

    /// The range that an error of the present request is about.
    fn concerned(&self) -> (u64, u64) {
        match self.step {
            Step::Move | Step::Bounce | Step::Zeros => (self.op.offset + self.done, self.asked),
            _ => (self.op.offset, self.total),
        }
    }

    fn fill_bounce(&mut self, file: &File) {
        let len = (self.total - self.done).min(BOUNCE_BYTES as u64) as usize;
        let whole = self.total.min(BOUNCE_BYTES as u64) as usize;
        let bounce = self.bounce.get_or_insert_with(|| file.pool.take(whole));
        if let Work::Write(bufs) = &self.op.work {
            let mut room = &mut bounce[..len];
            for_parts(bufs.iter().map(|buf| buf.len()), self.done, len, |index, part| {
                let (head, rest) = std::mem::take(&mut room).split_at_mut(part.len());
                head.copy_from_slice(&bufs[index][part]);
                room = rest;
            });
        }
        self.iov.push(span_mut(&mut bounce[..len]));
    }

    /// Copies the read data to its destination.
    fn drain_bounce(&mut self, len: usize) {
        let (Work::Read(bufs), Some(bounce)) = (&mut self.op.work, &self.bounce) else { return };
        let mut from = 0;
        let lens: Vec<usize> = bufs.iter().map(|buf| buf.len()).collect();
        for_parts(lens.into_iter(), self.done, len, |index, part| {
            let count = part.len();
            bufs[index][part].copy_from_slice(&bounce[from..from + count]);
            from += count;
        });
    }

    fn fill_zeros(&mut self, file: &File) {
        let zeros = self.zeros.get_or_insert_with(|| file.pool.take_zeroed(ZERO_BYTES).freeze());
        let mut left = self.total - self.done;
        while left > 0 && self.iov.len() < ZERO_SLICES {
            let len = left.min(ZERO_BYTES as u64);
            self.iov.push(span(&zeros[..len as usize]));
            left -= len;
        }
    }
}

fn first_step(file: &File, work: &Work) -> Step {
    let keep = FallocateFlags::KEEP_SIZE;
    match work {
        Work::Read(bufs) if file.access == Access::Direct => {
            direct_step(file, bufs.iter().map(|buf| &buf[..]))
        }
        Work::Write(bufs) if file.access == Access::Direct => {
            direct_step(file, bufs.iter().map(|buf| &buf[..]))
        }
        Work::Read(_) | Work::Write(_) => Step::Move,
        Work::Zero { unmap: true, .. } if file.zeroing.punch => {
            Step::Punch(keep | FallocateFlags::PUNCH_HOLE)
        }
        Work::Zero { .. } if file.zeroing.range => Step::Punch(keep | FallocateFlags::ZERO_RANGE),
        Work::Zero { .. } => Step::Zeros,
        Work::Discard { .. } if file.device => Step::Trim,
        Work::Discard { .. } => Step::Punch(keep | FallocateFlags::PUNCH_HOLE),
        Work::Flush | Work::Extents { .. } => Step::Sync,
    }
}

fn direct_step<'a>(file: &File, mut bufs: impl Iterator<Item = &'a [u8]>) -> Step {
    let block = file.limits.logical_block as usize;
    let aligned = |buf: &[u8]| {
        (buf.as_ptr() as usize).is_multiple_of(file.mem_align) && buf.len().is_multiple_of(block)
    };
    if bufs.all(aligned) { Step::Move } else { Step::Bounce }
}

fn span(bytes: &[u8]) -> libc::iovec {
    libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() }
}

fn span_mut(bytes: &mut [u8]) -> libc::iovec {
    libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() }
}

/// Names the slices behind the first `skip` bytes, as many as one request takes.
fn fill(iov: &mut Vec<libc::iovec>, mut skip: u64, slices: impl Iterator<Item = libc::iovec>) {
    for mut slice in slices {
        let len = slice.iov_len as u64;
        if skip >= len {
            skip -= len;
            continue;
        }
        slice.iov_base = slice.iov_base.cast::<u8>().wrapping_add(skip as usize).cast();
        slice.iov_len -= skip as usize;
        skip = 0;
        iov.push(slice);
        if iov.len() == SLICES {
            return;
        }
    }
}

/// Calls `each(index, range within that buffer)` for the `len` bytes behind the first `skip`.
fn for_parts(
    lens: impl Iterator<Item = usize>,
    skip: u64,
    len: usize,
    mut each: impl FnMut(usize, std::ops::Range<usize>),
) {
    let (mut skip, mut left) = (skip as usize, len);
    for (index, len) in lens.enumerate() {
        let start = skip.min(len);
        let end = len.min(start + left);
        skip -= start;
        left -= end - start;
        if end > start {
            each(index, start..end);
        }
        if left == 0 {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use io::Pool;

    use super::*;
    use crate::disk::{Direct, Options, open};

    /// The result of an operation, given these answers of the kernel.
    fn flush_result(file: &File, op: Op, answers: &[i32]) -> Result<()> {
        let mut transfer = Transfer::new(file, op, Vec::new());
        let mut answers = answers.iter().map(|&answer| {
            let _ = transfer.next(file);
            transfer.advance(file, answer)
        });
        answers.find_map(|result| result).expect("answers to all requests")
    }

    #[test]
    fn no_sync_through_the_page_cache_succeeds_after_a_failed_one() {
        let block = || Op::write(0, Pool::new(0).take_zeroed(4096).freeze());
        let (zero, bytes) = (Work::Zero { len: 4096, unmap: true, fast: false }, 1 << 20);
        for (number, op, answers, fails) in [
            (0, block(), &[-libc::EIO][..], false),
            (1, Op::flush(), &[-libc::EIO], true),
            (2, block().with_fua(), &[-libc::EIO], true),
            (3, Op::new(0, zero).with_fua(), &[0, -libc::EIO], true),
        ] {
            let name = format!("parapet-sync-{}-{number}", std::process::id());
            let path = std::env::temp_dir().join(name);
            let options =
                Options { direct: Direct::Never, create_bytes: Some(bytes), ..Options::default() };
            let mut file = open::open(&path, &options).expect("a new file");
            std::fs::remove_file(&path).expect("made above");
            // Also where it lies in memory.
            file.access = Access::Buffered;
            assert!(flush_result(&file, Op::flush(), &[0]).is_ok());
            assert!(flush_result(&file, op, answers).is_err());
            assert_eq!(flush_result(&file, Op::flush(), &[0]).is_err(), fails, "{number}");
        }
    }
}
