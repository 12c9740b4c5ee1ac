//! A gathering batch: records, checks and payload of rows, separately for each slot's member.
//!
//! ```text
//!   rows ─▶ lane of slot 0   lane of slot 1 … ─▶ place in the space ─▶ one write per lane:
//!                                                     header │ records │ checks │ payload │ zeros
//! ```
//!
//! Owns the bytes of a batch before its payload. `layout::private::log` defines the form, `ppl.rs`
//! has md's.

use io::{Pool, SharedBuf, Ticket};
use layout::private::log::{
    BATCH_ALIGNMENT, BatchHeader, Form, Record, head_bytes, put_check, put_record, seal,
};
use layout::{Slot, SlotSet};

use crate::ring::Placed;
use crate::space::Space;
use crate::touched::Touched;

/// The parts of a batch that gather.
#[derive(Default)]
pub struct Gathering {
    /// One lane for each slot.
    pub lanes: Vec<Lane>,
    /// The units whose rows are in the batch.
    pub units: Vec<Ticket>,
    /// Their reserved space.
    pub reserved: u64,
    /// Checks of the row being added: both parity members get the same.
    pub checks: Vec<u32>,
    /// For the table of touched rows: place and slots.
    pub rows: Vec<((u64, u64), SlotSet)>,
}

/// The part of a batch for one slot's member.
#[derive(Default)]
pub struct Lane {
    /// One record for each row.
    pub records: Vec<Record>,
    /// The checks of all records.
    pub checks: Vec<u32>,
    /// Partial syndromes and data, in the order of the records.
    pub payload: Vec<SharedBuf>,
}

/// The numbers of a batch on one member.
#[derive(Clone, Copy)]
pub struct Numbers {
    /// The session of the member's log.
    pub session: u64,
    /// The previous batch on this member.
    pub previous: u64,
    /// The zone of the shard.
    pub zone: u32,
}

impl Gathering {
    /// An empty batch.
    pub fn new(slots: usize) -> Gathering {
        let lanes = (0..slots).map(|_| Lane::default()).collect();
        Gathering { lanes, ..Gathering::default() }
    }

    /// Joins all lanes into the first one, for a journal device.
    pub fn join(&mut self) {
        let Some((first, others)) = self.lanes.split_first_mut() else { return };
        for lane in others {
            first.records.append(&mut lane.records);
            first.checks.append(&mut lane.checks);
            first.payload.append(&mut lane.payload);
        }
    }

    /// Slots whose members log something.
    pub fn slots_in_use(&self) -> impl Iterator<Item = Slot> + '_ {
        let used = self.lanes.iter().enumerate().filter(|(_, lane)| !lane.records.is_empty());
        used.map(|(slot, _)| Slot::new(slot))
    }

    /// Reserves the place of the batch in the space, and records its touched rows.
    pub fn place(&self, form: Form, space: &mut Space, touched: &mut Touched) -> Placed {
        let bytes = self.lanes.iter().map(|lane| lane.bytes(form)).max().unwrap_or(0);
        let bytes = bytes.max(1).next_multiple_of(BATCH_ALIGNMENT);
        let ring = match space {
            Space::Ring(ring) => ring,
            Space::Round(round) => {
                let sequence = round.place();
                return Placed { start: 0, sequence, tail: sequence, durable: sequence - 1 };
            }
        };
        let fits = self.units.is_empty() || bytes <= self.reserved;
        assert!(fits, "{bytes} bytes of log, {} reserved", self.reserved);
        let placed = ring.place(bytes, self.reserved, self.units.len() as u32);
        for &(place, slots) in &self.rows {
            touched.insert(place, slots, placed.sequence, |sequence| ring.is_live(sequence));
        }
        placed
    }

    /// Clears everything but the units, which wait for their answer.
    pub fn clear(&mut self) {
        self.rows.clear();
        self.reserved = 0;
        for lane in &mut self.lanes {
            lane.records.clear();
            lane.checks.clear();
            lane.payload.clear();
        }
    }
}

impl Lane {
    /// Bytes of a batch with this lane in it.
    fn bytes(&self, form: Form) -> u64 {
        let payload = self.payload.iter().map(|part| part.len() as u64).sum::<u64>();
        head_bytes(form, self.records.len(), self.checks.len()) as u64 + payload
    }

    /// The number of zeros after the payload.
    pub fn padding(&self, form: Form) -> u64 {
        let used = self.bytes(form);
        used.next_multiple_of(BATCH_ALIGNMENT) - used
    }

    /// Header, records and checks for one member.
    pub fn head(&self, form: Form, placed: Placed, numbers: Numbers, pool: &Pool) -> SharedBuf {
        let records = self.records.len();
        let words = self.records.iter().map(Record::words).sum::<usize>();
        assert_eq!(self.checks.len(), words, "a reader would refuse the batch: its checks");
        let data = self.records.iter().map(Record::payload_bytes).sum::<u64>();
        let have = self.payload.iter().map(|part| part.len() as u64).sum::<u64>();
        assert_eq!(have, data, "a reader would refuse the batch: its payload");
        let mut head = pool.take_zeroed(head_bytes(form, records, self.checks.len()));
        for (index, record) in self.records.iter().enumerate() {
            put_record(form, &mut head, index, record);
        }
        for (index, &check) in self.checks.iter().enumerate() {
            put_check(form, &mut head, records, index, check);
        }
        let (Numbers { session, previous, zone }, Placed { sequence, tail, durable, .. }) =
            (numbers, placed);
        let header = BatchHeader { session, sequence, tail, durable, previous, zone };
        let payload = self.payload.iter().map(|part| &part[..]);
        seal(form, &mut head, &header, records, payload, parity::crc32c);
        head.freeze()
    }
}
