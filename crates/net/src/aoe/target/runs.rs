//! Adjacent requests of one batch of frames go to the disk as one.
//!
//! ```text
//!   frames     r8   w40  r10  r12  w42  r90        2 sectors each, MTU 1500
//!   disk       r8 ─────────── 14   w40 ─── 44   r90
//!   answers    r8   r10  r12   w40  w42   r90      slices of the run's buffer
//! ```
//!
//! A client's request of 128 KiB comes as 128 frames at MTU 1500. A disk pays for each request: a
//! system call, a checksum of a part of a block, a flush. The order within a batch is free, because
//! writes that overlap an earlier one do not start (see `flights`) and the client has an answer to
//! none of them.
//!
//! Invariant: a run that fails is tried again request by request, so that a bad sector fails only
//! the request that asked for it.

use std::rc::Rc;

use io::tasks::poll_once;
use io::{Done, Op, SharedBuf, Work};

use super::super::wire::SECTOR;
use super::flights::Flight;
use super::{Lun, Shared};

/// The most bytes of a run: few enough that its data is still in the cache when it is sent.
const RUN_BYTES: usize = 64 << 10;

/// Requests in flight that are adjacent on the disk, by their serial numbers.
struct Run {
    write: bool,
    first: u64,
    sectors: u64,
    serials: Vec<u64>,
}

impl Run {
    fn of(flight: &Flight, serial: u64) -> Run {
        let write = flight.write.is_some();
        Run { write, first: flight.first, sectors: flight.sectors.into(), serials: vec![serial] }
    }

    /// Takes in a request that begins at the end of the run.
    fn take(&mut self, flight: &Flight, serial: u64) -> bool {
        let sectors = self.sectors + u64::from(flight.sectors);
        let adjacent = self.first + self.sectors == flight.first;
        let same = self.write == flight.write.is_some();
        let taken = adjacent && same && sectors as usize * SECTOR <= RUN_BYTES;
        if taken {
            self.sectors = sectors;
            self.serials.push(serial);
        }
        taken
    }
}

impl Shared {
    /// Notes a request in flight to be given to the disk by [`Shared::start_noted`].
    pub(super) fn note_start(&self, lun: &Rc<Lun>, serial: u64) {
        let mut starting = lun.starting.borrow_mut();
        starting.push(serial);
        if starting.len() == 1 {
            self.starting.borrow_mut().push(Rc::clone(lun));
        }
    }

    /// Gives the disks all requests that were noted.
    pub(super) fn start_noted(self: &Rc<Self>) {
        for lun in self.starting.take() {
            let runs = runs(&lun, lun.starting.take());
            runs.into_iter().for_each(|run| self.start(&lun, run));
        }
    }

    fn start(self: &Rc<Self>, lun: &Rc<Lun>, run: Run) {
        let mut answer = lun.disk.submit(self.operation(lun, &run));
        if let Some(done) = poll_once(&mut answer) {
            return self.end_run(lun, run, done);
        }
        let (shared, lun) = (Rc::clone(self), Rc::clone(lun));
        self.tasks.spawn(async move {
            let done = answer.await;
            shared.end_run(&lun, run, done);
        });
    }

    fn operation(&self, lun: &Lun, run: &Run) -> Op {
        let offset = run.first * SECTOR as u64;
        if !run.write {
            return Op::read(offset, self.pool.take(run.sectors as usize * SECTOR));
        }
        let flights = lun.flights.borrow();
        let data = |&serial: &u64| flights.get(serial).write.as_ref().map(|it| it.data.clone());
        let op = Op::new(offset, Work::Write(run.serials.iter().filter_map(data).collect()));
        if lun.policy().volatile { op } else { op.with_fua() }
    }

    fn end_run(self: &Rc<Self>, lun: &Rc<Lun>, run: Run, done: Done) {
        if done.result.is_err() && run.serials.len() > 1 {
            for serial in run.serials {
                let single = Run::of(lun.flights.borrow().get(serial), serial);
                self.start(lun, single);
            }
            return;
        }
        let mut data: Option<SharedBuf> = match done.work {
            Work::Read(mut bufs) if done.result.is_ok() => bufs.pop().map(io::Buf::freeze),
            _ => None,
        };
        let result = done.result.map_err(|error| error.kind());
        let mut offset = 0;
        for serial in run.serials {
            let part = data.as_mut().map(|data| {
                let bytes = usize::from(lun.flights.borrow().get(serial).sectors) * SECTOR;
                let part = data.slice(offset..offset + bytes);
                offset += bytes;
                part
            });
            self.end(lun, serial, result, part);
        }
        self.start_noted();
    }
}

/// Groups requests that are adjacent.
fn runs(lun: &Lun, mut serials: Vec<u64>) -> Vec<Run> {
    let flights = lun.flights.borrow();
    serials.sort_by_key(|&serial| {
        let flight = flights.get(serial);
        (flight.write.is_some(), flight.first)
    });
    let mut runs: Vec<Run> = Vec::new();
    for serial in serials {
        let flight = flights.get(serial);
        if !runs.last_mut().is_some_and(|run| run.take(flight, serial)) {
            runs.push(Run::of(flight, serial));
        }
    }
    runs
}
