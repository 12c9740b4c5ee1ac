//! Requests of a LUN that are not answered yet, in order of arrival.
//!
//! Two rules hold here. A copy of a request in flight joins it, and every copy is answered at its
//! end: the client waits for one of them, and drops the others. A write that overlaps an earlier
//! write waits for it, because a disk may carry out what it has at once in any order.

use std::rc::Rc;

use io::SharedBuf;
use io::broken::{Broken, broken};

use super::super::wire::Header;
use super::super::wire::ata::Ata;
use super::history::Content;
use super::port::Port;

/// The most requests of a LUN in flight. It announces a quarter of that, for each of several
/// clients.
pub const MAX_FLIGHTS: usize = 256;
/// The most copies of one request that are answered.
const MAX_COPIES: usize = 8;

/// Where an answer goes.
pub(super) struct Copy {
    pub(super) port: Rc<Port>,
    pub(super) header: Header,
    pub(super) ata: Ata,
}

/// A request in flight.
pub(super) struct Flight {
    serial: u64,
    pub(super) write: Option<Payload>,
    pub(super) first: u64,
    pub(super) sectors: u8,
    started: bool,
    /// A write that overlaps this read has come or ended since: a later read must see it.
    outdated: bool,
    pub(super) copies: Vec<Copy>,
}

/// The data of a write.
pub(super) struct Payload {
    pub(super) data: SharedBuf,
    pub(super) print: u64,
}

/// How a request was taken in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Taken {
    /// Start it.
    Start(u64),
    /// It waits for an earlier write.
    Waits,
    /// It is a copy of one in flight.
    Joined,
    /// There are too many.
    Full,
}

#[derive(Default)]
pub(super) struct Flights {
    /// In order of arrival, and so of serial numbers.
    list: Vec<Flight>,
    serial: u64,
}

impl Flight {
    pub(super) fn new(first: u64, sectors: u8, write: Option<Payload>, copy: Copy) -> Flight {
        Flight {
            serial: 0,
            write,
            first,
            sectors,
            started: false,
            outdated: false,
            copies: vec![copy],
        }
    }

    /// What it writes; nothing if it reads.
    pub(super) fn content(&self) -> Option<Content> {
        let print = self.write.as_ref()?.print;
        Some(Content { first: self.first, sectors: self.sectors, print })
    }

    fn is_same(&self, other: &Flight) -> bool {
        let print = |it: &Flight| it.write.as_ref().map(|payload| payload.print);
        let what = |it: &Flight| (it.first, it.sectors, print(it));
        !self.outdated && what(self) == what(other) && !broken(Broken::AoeCopyInFlightExecuted)
    }

    fn overlaps(&self, other: &Flight) -> bool {
        let end = |it: &Flight| it.first + u64::from(it.sectors);
        self.first < end(other) && other.first < end(self)
    }
}

impl Flights {
    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Takes a request in.
    pub(super) fn take(&mut self, mut flight: Flight) -> Taken {
        if let Some(same) = self.list.iter_mut().find(|it| it.is_same(&flight)) {
            // The newest copies count: of the oldest the client has given up the tag.
            if same.copies.len() == MAX_COPIES {
                same.copies.remove(0);
            }
            same.copies.append(&mut flight.copies);
            return Taken::Joined;
        }
        if self.list.len() == MAX_FLIGHTS {
            return Taken::Full;
        }
        self.outdate_reads(&flight);
        self.serial += 1;
        flight.serial = self.serial;
        flight.started = !self.must_wait(self.list.len(), &flight);
        let taken = if flight.started { Taken::Start(flight.serial) } else { Taken::Waits };
        self.list.push(flight);
        taken
    }

    /// The request of this serial number.
    ///
    /// # Panics
    /// If it has ended: serial numbers are given once.
    pub(super) fn get(&self, serial: u64) -> &Flight {
        &self.list[self.place(serial)]
    }

    /// Ends a request. Those that waited for it are to be started.
    ///
    /// # Panics
    /// As [`Flights::get`].
    pub(super) fn end(&mut self, serial: u64) -> (Flight, Vec<u64>) {
        let ended = self.list.remove(self.place(serial));
        let mut released = Vec::new();
        self.outdate_reads(&ended);
        if ended.write.is_some() {
            for index in 0..self.list.len() {
                let waiting = &self.list[index];
                if !waiting.started && !self.must_wait(index, waiting) {
                    released.push(waiting.serial);
                    self.list[index].started = true;
                }
            }
        }
        (ended, released)
    }

    /// Later reads do not join reads that may not have seen this write.
    fn outdate_reads(&mut self, flight: &Flight) {
        if flight.write.is_some() {
            let reads = self.list.iter_mut().filter(|it| it.write.is_none());
            reads.filter(|it| it.overlaps(flight)).for_each(|it| it.outdated = true);
        }
    }

    fn place(&self, serial: u64) -> usize {
        let found = self.list.binary_search_by_key(&serial, |it| it.serial);
        found.expect("in flight until it is ended")
    }

    /// True if an earlier write than place `index` overlaps this write.
    fn must_wait(&self, index: usize, flight: &Flight) -> bool {
        if broken(Broken::AoeOverlapUnordered) {
            return false;
        }
        let earlier = &self.list[..index];
        flight.write.is_some() && earlier.iter().any(|it| it.write.is_some() && it.overlaps(flight))
    }
}
