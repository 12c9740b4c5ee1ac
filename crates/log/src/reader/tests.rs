//! The output of `batch` read back, also with parts missing.

use io::{Completions, Pool};
use layout::geometry::Shape;
use layout::private::log::Form;
use layout::{Epoch, Layout, Level, Mode, SlotAssignment};

use super::*;
use crate::LogSetup;
use crate::batch::{Gathering, Numbers};
use crate::space::Space;
use crate::touched::Touched;

const ZONE_BYTES: u64 = 1 << 20;
const LEN: u64 = 512;
const SESSION: u64 = 77;

fn geometry(data: usize) -> Geometry {
    let layout = Layout::all(Level::Raid5, data + 1).next().expect("a level has layouts");
    Geometry::new(Shape { layout, chunk_bytes: 4096, members: vec![1 << 20; data + 1] })
        .expect("a small array")
}

/// The zone of P's member of stripe 0 after batches of one row each: (start, data index) of those.
fn written(geometry: &Geometry, rows: &[(u64, usize)]) -> Vec<u8> {
    let (data, form) = (geometry.data_count(), Form::of(geometry.data_count()));
    let setup =
        LogSetup::Zone { zone_bytes: ZONE_BYTES, data: false, checksums: false, device: false };
    let (mut space, mut touched) = (Space::new(setup), Touched::default());
    let units = Completions::<()>::new();
    let (mut zone, mut previous, pool) = (vec![0; ZONE_BYTES as usize], 0, Pool::new(0));
    for &(start, index) in rows {
        let mut batch = Gathering::new(data + 1);
        let zeros = Record::of_zeros(0, 1, LEN, 0);
        let record =
            Record { start, first: index as u16, count: 1, partial: true, zeros: false, ..zeros };
        let slot = geometry.stripe(Stripe(0)).p();
        let lane = &mut batch.lanes[slot.index()];
        lane.records.push(record);
        let mut payload = pool.take_zeroed(LEN as usize);
        payload.fill(index as u8 | 0x80);
        lane.payload.push(payload.freeze());
        // A batch without units would be durable at once.
        batch.units.push(units.start().0);
        batch.reserved =
            space.reserve(3 * BATCH_ALIGNMENT, std::iter::empty()).expect("there is space");
        let placed = batch.place(form, &mut space, &mut touched);
        let numbers = Numbers { session: SESSION, previous, zone: 0 };
        let lane = &batch.lanes[slot.index()];
        let head = lane.head(form, placed, numbers, &pool);
        let mut at = placed.start as usize;
        for part in std::iter::once(&head).chain(&lane.payload) {
            zone[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        }
        assert!((at as u64 + lane.padding(form)).is_multiple_of(BATCH_ALIGNMENT));
        space.written(placed.sequence, false);
        previous = placed.sequence;
    }
    zone
}

/// The reader's result for that zone: start, data index and partial parity (all its bytes are the
/// same) of torn rows.
fn read(geometry: &Geometry, zone: &[u8]) -> Result<Vec<(u64, usize, u8)>, String> {
    let slot = geometry.stripe(Stripe(0)).p();
    let assignment =
        SlotAssignment { member: Some(MemberId(0)), recovered: None, replacement: None };
    let slots = vec![assignment; geometry.slots()];
    let configuration = Configuration {
        epoch: Epoch(1),
        mode: Mode::ReadWrite,
        slots,
        spares: Vec::new(),
        journal: None,
    };
    let holders = Holders { configuration: &configuration, since: BTreeMap::new() };
    let shape =
        LogShape { session: SESSION, zones: 1, zone_bytes: ZONE_BYTES, ..LogShape::default() };
    let source = Source { name: "disk0", of: Some((MemberId(0), slot)), shape };
    let zones = [Zone { log: &source, bytes: zone }];
    let (rows, _) = torn_rows(&zones, 0, &holders, geometry).map_err(|untrusted| untrusted.why)?;
    let row = |row: TornRow| match row.p {
        Some(Partial::Bytes(bytes)) if bytes == [bytes[0]; LEN as usize] => {
            (row.start, row.record.first.into(), bytes[0])
        }
        other => panic!("a partial syndrome was logged, not {other:?}"),
    };
    Ok(rows.into_iter().map(row).collect())
}

#[test]
fn rows_of_every_width_are_read_as_they_were_written() {
    for data in [2, 63, 64, 65, 66, 127] {
        let geometry = geometry(data);
        let zone = written(&geometry, &[(0, data - 1), (1024, 0), (2048, data / 2)]);
        let row = |start, index: usize| (start, index, index as u8 | 0x80);
        let newest_first = vec![row(2048, data / 2), row(1024, 0), row(0, data - 1)];
        assert_eq!(read(&geometry, &zone), Ok(newest_first), "{data} data slots");
    }
}

#[test]
fn of_a_row_that_was_logged_twice_the_newer_record_counts() {
    let geometry = geometry(4);
    let zone = written(&geometry, &[(0, 1), (0, 2)]);
    assert_eq!(read(&geometry, &zone), Ok(vec![(0, 2, 0x82)]));
}

#[test]
fn a_torn_batch_is_unwritten_if_it_is_the_newest_and_damage_if_it_is_not() {
    let geometry = geometry(4);
    let zone = written(&geometry, &[(0, 1), (1024, 2)]);
    let (batches, second) =
        (scan(&zone, SESSION, 0).expect("the batch is complete"), BATCH_ALIGNMENT as usize);
    assert_eq!(batches.values().map(|(_, at)| *at).collect::<Vec<_>>(), [0, second]);
    let mut torn = zone.clone();
    torn[second + 100] ^= 1;
    assert_eq!(read(&geometry, &torn), Ok(vec![(0, 1, 0x81)]));
    let mut damaged = zone;
    damaged[100] ^= 1;
    assert_eq!(read(&geometry, &damaged), Err("the log of disk0 is damaged".into()));
}
