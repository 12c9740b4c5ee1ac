//! Damage on disks: bad sectors outside the array's data cost nothing, and structures with right
//! checksums but wrong numbers are not trusted.

use array::Array;
use array::status::SlotState;
use layout::private::journal::{COPIES, JournalHeader};
use layout::private::log::{self as form, Batch, Syndrome};
use layout::private::{Consistency, PrivateHeader};
use layout::{Layout, Level};
use metadata::assemble::Options;
use metadata::create::NewArray;

use crate::world::{Fault, World, holder, map_of, pattern};

const CHUNK: u64 = 16 << 10;

#[test]
fn a_journal_whose_log_lies_at_the_end_of_numbers_is_no_panic() {
    let layout = Layout::default_for(Level::Raid5, 4);
    let new = NewArray {
        zeroed: true,
        consistency: Some(Consistency::Journal),
        ..NewArray::new("tank", layout, CHUNK)
    };
    let world = World::new(5, 8 << 20);
    world.create_journaled(&new).expect("the array is created");
    let array = world.start();
    world.write(&array, 0, &pattern(0, 512 << 10, 1)).expect("the array is healthy");
    world.disks[holder(&array, 0)].break_with(Fault::HungFrom(world.data_offset()));
    drop(world.begin(&array, 0, &pattern(0, 4096, 2)));
    world.crash(array);
    for at in COPIES {
        let mut bytes = vec![0; 4096];
        world.disks[4].disk.peek(at, &mut bytes);
        let Ok(header) = JournalHeader::parse(&bytes, parity::crc32c) else { continue };
        let end = u64::MAX - 4095;
        let wrong = JournalHeader { log: end..end, zone_bytes: 0, zones: 0, ..header };
        let bytes = wrong.print(parity::crc32c);
        if JournalHeader::parse(&bytes, parity::crc32c).is_err() {
            return;
        }
        world.disks[4].disk.poke(at, &bytes);
    }
    // Refused or started without its log, but no panic.
    let assembled = world.assemble(0..5, &Options::default());
    let trusted = assembled.as_ref().is_ok_and(|assembly| {
        !assembly.notes.iter().any(|n| matches!(n, metadata::assemble::Note::LogUnusable { .. }))
    });
    assert!(!trusted, "a missing log is trusted");
}

fn raid6() -> (World, Array) {
    let world = World::new(5, 8 << 20);
    let layout = Layout::default_for(Level::Raid6, 5);
    world.create(&NewArray { zeroed: true, ..NewArray::new("tank", layout, CHUNK) });
    let array = world.start();
    world.write(&array, 0, &pattern(0, 512 << 10, 1)).expect("the array is healthy");
    world.flush(&array);
    (world, array)
}

#[test]
fn records_of_a_row_that_differ_in_length_are_no_panic() {
    let (world, array) = raid6();
    let held = &world.disks[holder(&array, 0)];
    held.break_with(Fault::HungFrom(world.data_offset()));
    drop(world.begin(&array, 0, &pattern(0, 8192, 2)));
    let q = &world.disks[holder(&array, 4)];
    world.crash(array);
    let parts = map_of(q).private_parts().expect("the member has a private area");
    let mut zone = vec![0; (parts.log.end - parts.log.start) as usize];
    q.disk.peek(parts.log.start, &mut zone);
    let bounds = map_of(q).private.expect("the member has a private area");
    let mut copies = vec![0; 8192];
    q.disk.peek(bounds.start, &mut copies);
    let headers = copies.chunks(4096).filter_map(|c| PrivateHeader::parse(c, parity::crc32c).ok());
    let header = headers.max_by_key(|header| header.events).expect("ours");
    let batches = (0..zone.len()).step_by(4096).filter_map(|at| {
        let batch = Batch::parse(&zone[at..], parity::crc32c).ok()?;
        (batch.header.session == header.log.session).then_some((at, batch))
    });
    let (at, batch) = batches.max_by_key(|(_, b)| b.header.sequence).expect("the row was logged");
    let mut record = batch.entries[0].record;
    assert!(record.syndrome == Syndrome::Q && record.len == 8192 && record.partial);
    // The same batch with a record of half the row, at the last place of the zone.
    record.len = 512;
    (record.checked, record.checksummed) = (false, false);
    let payload = [7_u8; 512];
    let mut head = vec![0; form::head_bytes(batch.form, 1, 0)];
    form::put_record(batch.form, &mut head, 0, &record);
    let parts_of = [&payload[..]];
    form::seal(batch.form, &mut head, &batch.header, 1, parts_of.into_iter(), parity::crc32c);
    q.disk.poke(parts.log.start + at as u64, &[0; 4096]);
    let last = parts.log.start + header.log.zone_bytes - 4096;
    q.disk.poke(last, &[&head[..], &payload[..]].concat());
    let _ = world.assemble(0..5, &Options::default()).map(drop);
}

/// A batch with a right checksum was written completely. If it does not parse, its records are
/// unknown and may be needed. Such a log is damaged; the reader must not skip the batch.
#[test]
fn a_whole_batch_that_does_not_parse_is_a_damaged_log() {
    let layout = Layout::default_for(Level::Raid5, 4);
    let world = World::new(4, 8 << 20);
    world.create(&NewArray { zeroed: true, ..NewArray::new("tank", layout, CHUNK) });
    let array = world.start();
    world.write(&array, 0, &pattern(0, 512 << 10, 1)).expect("the array is healthy");
    world.disks[holder(&array, 0)].break_with(Fault::HungFrom(world.data_offset()));
    drop(world.begin(&array, 0, &pattern(0, 4096, 2)));
    let (parity, lost) = (holder(&array, 3), holder(&array, 1));
    world.crash(array);
    assert!(world.assemble_without(&[lost]).is_ok(), "the log is good");

    let disk = &world.disks[parity].disk;
    let parts =
        map_of(&world.disks[parity]).private_parts().expect("the member has a private area");
    let mut zone = vec![0; (parts.log.end - parts.log.start) as usize];
    disk.peek(parts.log.start, &mut zone);
    let batches = (0..zone.len()).step_by(4096);
    let parsed =
        batches.filter_map(|at| Some((at, Batch::parse(&zone[at..], parity::crc32c).ok()?)));
    let newest = parsed.max_by_key(|(_, batch)| batch.header.sequence);
    let (at, batch) = newest.expect("the row was logged");
    let used = batch.bytes as usize;
    let bytes = &mut zone[at..at + used];
    // An impossible number of data indices in its first record.
    bytes[64 + 22..64 + 24].fill(0xff);
    bytes[60..64].fill(0);
    let crc = parity::crc32c(0, bytes);
    bytes[60..64].copy_from_slice(&crc.to_le_bytes());
    disk.poke(parts.log.start + at as u64, bytes);

    let refused = world.assemble_without(&[lost]).err().expect("unknown fields are preserved");
    assert!(refused.to_string().contains("is damaged"), "{refused}");
    let complete =
        world.assemble(0..4, &Options::default()).expect("the region is resynced instead");
    let says = |note: &metadata::assemble::Note| {
        matches!(note, metadata::assemble::Note::LogUnusable { .. })
    };
    assert!(complete.notes.iter().any(says), "{:?}", complete.notes);
}

/// Each zone costs a read.
#[test]
fn zones_of_nothing_are_not_looked_at_one_by_one() {
    let (world, array) = raid6();
    world.disks[holder(&array, 0)].break_with(Fault::HungFrom(world.data_offset()));
    drop(world.begin(&array, 0, &pattern(0, 8192, 2)));
    world.crash(array);
    for disk in &world.disks {
        let bounds = map_of(disk).private.expect("the member has a private area");
        for at in [bounds.start, bounds.start + 4096] {
            let mut bytes = vec![0; 4096];
            disk.disk.peek(at, &mut bytes);
            let Ok(mut header) = PrivateHeader::parse(&bytes, parity::crc32c) else { continue };
            (header.log.zones, header.log.zone_bytes) = (1 << 16, 0);
            disk.disk.poke(at, &header.print(parity::crc32c));
        }
    }
    let array = world.start();
    assert!(array.status().unsynced_bytes > 0, "a log of nothing is trusted");
}

/// An unreadable sector without a superblock of the array: in the data, near the end.
#[test]
fn a_bad_sector_at_the_end_of_the_data_costs_no_member() {
    let world = World::new(3, 8 << 20);
    let layout = Layout::default_for(Level::Raid5, 3);
    world.create(&NewArray {
        zeroed: true,
        checksums: Some(false),
        ..NewArray::new("tank", layout, 16 << 10)
    });
    let array = world.start();
    world.run(&array, array.stop()).expect("the array stops");
    let map = map_of(&world.disks[0]);
    let ends = [map.member_bytes - 8192, map.member_bytes - (64 << 10)];
    for (disk, at) in ends.into_iter().enumerate() {
        assert!(map.data.contains(&at), "data");
        world.disks[disk].break_with(Fault::Unreadable { offset: at, len: 512 });
    }
    let options = Options { degraded: true, ..Options::default() };
    let assembly = match world.assemble(0..3, &options) {
        Ok(assembly) => assembly,
        Err(why) => panic!("{why}"),
    };
    let array = Array::start(assembly, &world.host);
    assert!(array.status().slots.iter().all(|slot| slot.state == SlotState::InSync));
}

/// No superblock mentions a bad block: the list has nothing to lose.
#[test]
fn a_bad_sector_in_a_list_of_nothing_costs_no_member() {
    let world = World::new(4, 8 << 20);
    let layout = Layout::default_for(Level::Raid5, 4);
    world.create(&NewArray { zeroed: true, ..NewArray::new("tank", layout, 16 << 10) });
    let array = world.start();
    world.write(&array, 0, &pattern(0, 256 << 10, 1)).expect("the array is healthy");
    world.run(&array, array.stop()).expect("the array stops");
    for disk in 1..3 {
        let offset =
            map_of(&world.disks[disk]).bad_blocks.expect("the member has a bad-block log").end
                - 512;
        world.disks[disk].break_with(Fault::Unreadable { offset, len: 512 });
    }
    let array = world.start();
    assert!(array.status().slots.iter().all(|slot| slot.state == SlotState::InSync));
}
