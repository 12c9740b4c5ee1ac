//! Batches in the form of md's partial parity log (`layout::md::ppl`): what Linux replays.
//!
//! md's log says less than ours: no checks, and no new data. So a row is its range, and the partial
//! parity of what is not written. Each member's log is a ring of its own.

use std::rc::Rc;

use io::SharedBuf;
use layout::md::ppl::{HEADER_BYTES, MULTIPLE_BYTES, PplEntry, PplHeader, PplRow};
use layout::private::log::Record;
use layout::{Geometry, Slot, Stripe};
use log::LogPlace;
use log::space::Space;

use crate::member::Member;
use crate::member::view::View;
use crate::rows::RowWork;
use crate::rows::engine::Engine;
use crate::rows::intent::{Gathering, Lane, Log};

/// The partial parity that a row logs, at most, and on which slot's member.
pub(super) fn partial_of(row: &RowWork) -> (Slot, u64) {
    let all = row.touched() == row.roles.data;
    (row.roles.p, if all { 0 } else { row.row.len() })
}

/// Where a batch of so many bytes goes in a member's log, if the one before ended at `next`.
fn place(log: LogPlace, next: u64, bytes: u64) -> u64 {
    // Linux 6.1 looks for headers up to the last 4096 bytes. If it gets there without an end to the
    // units, it takes the partial parities of the newest for what lies behind it.
    let fits = next + bytes + HEADER_BYTES < log.bytes;
    if fits && log.bytes >= MULTIPLE_BYTES { next } else { 0 }
}

impl Engine {
    /// Logs that whole stripes become zeros: each on its parity's member.
    pub(super) fn gather_zeros(&self, next: &mut Gathering, stripes: (u64, u64), view: &View) {
        let geometry = &self.setup.geometry;
        for stripe in stripes.0..stripes.0 + stripes.1 {
            let slot = geometry.stripe(Stripe(stripe)).p();
            if view.present.contains(slot) {
                next.lanes[slot.index()].records.push(whole_stripe(geometry, stripe));
            }
        }
    }

    /// A lane as one write: header and partial parities, and where it goes on this member.
    pub(super) fn ppl_unit(
        &self,
        lane: &Lane,
        (signature, generation): (u32, u64),
        slot: Slot,
        member: &Rc<Member>,
        log: LogPlace,
    ) -> (u64, SharedBuf) {
        let geometry = &self.setup.geometry;
        let shape = (geometry.chunk_bytes(), geometry.data_count() as u64);
        let mut payload = lane.payload.iter();
        let entry = |record: &Record| {
            let pp = payload.by_ref().take(usize::from(record.partial)).next();
            let row = PplRow {
                stripe: record.stripe,
                start: record.start,
                len: record.len,
                first: record.first.into(),
                count: record.count.into(),
            };
            let pp = pp.map_or(&[][..], |part| &part[..]);
            PplEntry::of_row(&row, shape, slot.index() as u32, pp, parity::crc32c)
        };
        let entries = lane.records.iter().map(entry).collect();
        let header = PplHeader { signature, generation, entries };
        let bytes = HEADER_BYTES + header.pp_bytes();
        let at = place(log, member.logged.get(), bytes);
        member.logged.set(at + bytes);
        let mut head = self.pool.take(HEADER_BYTES as usize);
        head.copy_from_slice(&header.print(parity::crc32c));
        (log.offset + at, head.freeze())
    }
}

impl Log {
    /// How many whole stripes may be logged together: all their parity may be on one member.
    pub(super) fn most_stripes(&self) -> u64 {
        match &*self.space.borrow() {
            Space::Ring(_) => u64::MAX,
            Space::Round(round) => round.most_entries(),
        }
    }
}

fn whole_stripe(geometry: &Geometry, stripe: u64) -> Record {
    Record::of_zeros(stripe, 1, geometry.chunk_bytes(), geometry.data_count() as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_follow_each_other_and_begin_anew_at_the_end() {
        let log = LogPlace { offset: 0, bytes: 1 << 20, session: 1 };
        let end = log.bytes;
        assert_eq!(place(log, 0, 8192), 0);
        assert_eq!(place(log, 8192, 4096), 8192);
        assert_eq!(place(log, end - 16384, 8192), end - 16384);
        assert_eq!(place(log, end - 16384, 12288), 0, "Linux would not find its way");
        assert_eq!(place(log, end - 4096, 4096), 0);
        let small = LogPlace { bytes: MULTIPLE_BYTES - 4096, ..log };
        assert_eq!(place(small, 8192, 4096), 0, "no ring");
    }
}
