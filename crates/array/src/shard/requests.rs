//! The requests in flight, and the results of their units.
//!
//! ```text
//!   Op ──cut at unit and region borders──▶ Unit Unit Unit ──▶ the shards that own the regions
//!    ▲                                                            │
//!    └────── Completion, when the last unit has ended ◀───────────┘
//! ```
//!
//! Owns the table of requests at the shard that received them, and its load counters. The buffers
//! of a read are split between its units and joined again to the client's lengths. A request ends
//! exactly once, with its last unit.

use std::cell::RefCell;
use std::sync::Arc;

use io::{Buf, Completion, Completions, Done, Extent, Pool, SharedBuf, Ticket, Work};
use metadata::Error;

use crate::member::Count;
use crate::rows::job::RangeJob;
use crate::rows::write::Fresh;
use crate::shard::queue::Action;

/// Identifies the unit of a request at the shard that received the request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Origin {
    pub(crate) shard: usize,
    pub(crate) request: u32,
    /// The unit's place among the request's units.
    pub(crate) part: u32,
}

/// How a unit ended.
pub(crate) struct Ended {
    pub(crate) to: Origin,
    pub(crate) gain: Gain,
    pub(crate) result: Result<(), Error>,
}

/// The result of a unit.
pub(crate) enum Gain {
    Nothing,
    Bytes(Vec<Buf>),
    Extents(Vec<Extent>),
    RangeJob(RangeJob),
}

/// The load of one shard. Its own thread counts; the keeper's thread reads.
#[derive(Default, Debug)]
#[repr(align(128))]
pub(crate) struct Load {
    /// Requests received there and still in flight.
    pub(crate) requests: Count,
    /// Acknowledged bytes that are not on the members yet.
    pub(crate) cached_bytes: Count,
    /// Units that waited for a flush of rows that they touch.
    pub(crate) log_conflicts: Count,
}

/// The requests received at one shard and still in flight.
pub(crate) struct Requests {
    shard: usize,
    loads: Arc<[Load]>,
    table: RefCell<Vec<Request>>,
    vacant: RefCell<Vec<u32>>,
    /// Empty lists for the parts of reads, kept for reuse.
    lists: RefCell<Vec<Vec<Buf>>>,
    answers: Completions<Done>,
}

#[derive(Default)]
struct Request {
    ticket: Option<Ticket>,
    offset: u64,
    waiting: u32,
    error: Option<Error>,
    work: Option<Work>,
    /// For reads: the lengths of the client's buffers, and the parts that have been read.
    lengths: Vec<u32>,
    parts: Vec<Option<Vec<Buf>>>,
}

impl Requests {
    pub(crate) fn new(shard: usize, loads: Arc<[Load]>) -> Requests {
        Requests {
            shard,
            loads,
            table: RefCell::default(),
            vacant: RefCell::default(),
            lists: RefCell::default(),
            answers: Completions::new(),
        }
    }

    /// Registers a request of `units` units. `work` goes back to the client in the end. For a read
    /// only the shape is kept, because the buffers travel with the units.
    pub(crate) fn begin(&self, offset: u64, work: Work, units: u32) -> (u32, Completion<Done>) {
        let mut table = self.table.borrow_mut();
        let number = self.vacant.borrow_mut().pop().unwrap_or_else(|| {
            table.push(Request::default());
            table.len() as u32 - 1
        });
        let (ticket, completion) = self.answers.start();
        self.loads[self.shard].requests.add(1);
        let request = &mut table[number as usize];
        assert!(units > 0, "a request without units is never answered");
        assert!(request.ticket.is_none(), "request {number} would get the result of another one");
        request.ticket = Some(ticket);
        request.offset = offset;
        request.waiting = units;
        request.work = Some(work);
        (number, completion)
    }

    /// Remembers the shape of a read.
    pub(crate) fn shape(&self, number: u32, lengths: impl Iterator<Item = u32>, units: u32) {
        let mut table = self.table.borrow_mut();
        let request = &mut table[number as usize];
        request.lengths.clear();
        request.lengths.extend(lengths);
        request.parts.clear();
        request.parts.resize_with(units as usize, || None);
    }

    /// An empty list for a part of a read.
    pub(crate) fn list(&self) -> Vec<Buf> {
        self.lists.borrow_mut().pop().unwrap_or_default()
    }

    /// Takes an empty list back.
    pub(crate) fn keep(&self, list: Vec<Buf>) {
        self.lists.borrow_mut().push(list);
    }

    /// The action for one part of a request that has a range.
    pub(crate) fn action(
        &self,
        number: u32,
        offset: u64,
        (at, len): (u64, u64),
        list: impl FnOnce() -> Vec<SharedBuf>,
    ) -> Action {
        let table = self.table.borrow();
        match table[number as usize].work.as_ref().expect("kept until the request ends") {
            Work::Write(bufs) => {
                let mut list = list();
                list.extend(Fresh::new(offset, bufs).share(at, len).map(|(_, part)| part));
                Action::Write(list)
            }
            Work::Zero { unmap, .. } => Action::Zero { unmap: *unmap },
            Work::Discard { .. } => Action::Discard,
            Work::Extents { .. } => Action::Extents(Vec::new()),
            Work::Read(_) | Work::Flush => unreachable!("reads and flushes are handled separately"),
        }
    }

    /// The load counters of this shard.
    pub(crate) fn load(&self) -> &Load {
        &self.loads[self.shard]
    }

    /// True if every request has ended.
    pub(crate) fn is_empty(&self) -> bool {
        self.load().requests.get() == 0
    }

    /// A unit has ended; the last one ends the request.
    pub(crate) fn end(&self, ended: Ended, array: &str) {
        let mut table = self.table.borrow_mut();
        let request = &mut table[ended.to.request as usize];
        assert!(request.waiting > 0, "a unit ended after its request");
        request.waiting -= 1;
        if let Err(error) = ended.result
            && request.error.is_none()
        {
            request.error = Some(error);
        }
        match ended.gain {
            Gain::Nothing | Gain::RangeJob(_) => {}
            Gain::Bytes(bufs) => {
                let part = request.parts[ended.to.part as usize].replace(bufs);
                assert!(part.is_none(), "two results for part {} of a read", ended.to.part);
            }
            Gain::Extents(extents) => {
                if let Some(Work::Extents { found, .. }) = &mut request.work {
                    *found = extents;
                }
            }
        }
        if request.waiting > 0 {
            return;
        }
        let ticket = request.ticket.take().expect("a request ends once");
        let mut work = request.work.take().expect("kept since the request began");
        let error = request.error.take();
        if let Work::Read(bufs) = &mut work {
            let mut spare = self.lists.borrow_mut();
            if spare.is_empty() {
                spare.push(Vec::new());
            }
            *bufs = spare.pop().expect("a list was pushed above");
            reassemble(bufs, &request.lengths, &mut request.parts, &mut spare);
            let (have, wanted) = (bufs.len(), request.lengths.len());
            assert!(
                error.is_some() || have == wanted,
                "{have} of {wanted} buffers of a read are filled"
            );
        }
        let (offset, len) = (request.offset, work.len());
        drop(table);
        self.vacant.borrow_mut().push(ended.to.request);
        self.loads[self.shard].requests.sub(1);
        let result = match error {
            None => Ok(()),
            Some(error) => Err(error.into_io(array, offset, len)),
        };
        self.answers.finish(ticket, Done { work, result });
    }
}

/// Joins the parts of a read into buffers of the client's lengths. The parts' empty lists go to
/// `spare`.
fn reassemble(
    into: &mut Vec<Buf>,
    lengths: &[u32],
    parts: &mut [Option<Vec<Buf>>],
    spare: &mut Vec<Vec<Buf>>,
) {
    let mut lengths = lengths.iter().map(|&length| length as usize);
    let mut open: Option<(Buf, usize)> = None;
    for mut part in parts.iter_mut().filter_map(Option::take) {
        for mut piece in part.drain(..) {
            while !piece.is_empty() {
                let (buf, length) = match open.take() {
                    Some((buf, length)) => {
                        let take = piece.len().min(length - buf.len());
                        let next = piece.split_to(take);
                        (joined(buf, next), length)
                    }
                    None => {
                        let length = lengths.next().expect("parts cover the request, no more");
                        (piece.split_to(piece.len().min(length)), length)
                    }
                };
                if buf.len() == length { into.push(buf) } else { open = Some((buf, length)) }
            }
        }
        spare.push(part);
    }
    assert!(open.is_none(), "parts cover the request");
}

/// Joins two parts of one buffer. If a part stayed with a hung member, its substitute is not
/// adjacent to the other part: both are copied then.
fn joined(first: Buf, next: Buf) -> Buf {
    first.join(next).unwrap_or_else(|(first, next)| {
        let mut both = Pool::new(0).take(first.len() + next.len());
        both[..first.len()].copy_from_slice(&first);
        both[first.len()..].copy_from_slice(&next);
        both
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shape_of_a_read_is_restored() {
        let pool = Pool::new(1 << 20);
        let mut whole = pool.take(100);
        let (mut a, b) = (whole.split_to(60), whole);
        let c = a.split_off(25);
        let mut parts = [Some(vec![a]), Some(vec![c, b])];
        let (mut out, mut spare) = (Vec::new(), Vec::new());
        reassemble(&mut out, &[60, 30, 10], &mut parts, &mut spare);
        assert_eq!(out.iter().map(|buf| buf.len()).collect::<Vec<_>>(), [60, 30, 10]);
    }
}
