//! Batches against broken bytes.

use alloc::vec;

use super::*;
use crate::md::tests::crc32c;

const HEADER: BatchHeader =
    BatchHeader { session: 5, sequence: 9, tail: 7, durable: 8, previous: 6, zone: 2 };

fn record(start: u64, len: u64) -> Record {
    Record {
        stripe: 12,
        stripes: 1,
        start,
        len,
        first: 1,
        count: 2,
        syndrome: Syndrome::Q,
        paired: true,
        partial: true,
        checked: true,
        summed: false,
        logged: 0,
        zeros: false,
        epoch: 0,
    }
}

/// A batch of two records: one with a syndrome and checks, one with data and a sum as well.
fn sample() -> Vec<u8> {
    let second = Record { logged: 2, count: 1, summed: true, ..record(0, 512) };
    let records = [record(3584, 1024), second];
    let checks: usize = records.iter().map(Record::words).sum();
    assert_eq!(checks, 4 + 3);
    let mut head = vec![0; head_bytes(records.len(), checks)];
    for (index, record) in records.iter().enumerate() {
        put_record(&mut head, index, record);
    }
    (0..checks).for_each(|index| put_check(&mut head, records.len(), index, 100 + index as u32));
    let payload: Vec<u8> = (0..1024 + 512 + 512).map(|byte| (byte / 512) as u8).collect();
    seal(
        &mut head,
        &HEADER,
        records.len(),
        [&payload[..1024], &payload[1024..]].into_iter(),
        crc32c,
    );
    head.extend(payload);
    head
}

#[test]
fn what_is_sealed_is_parsed_again() {
    let mut bytes = sample();
    let used = bytes.len();
    assert_eq!(Batch::bytes_of(&bytes, 5), Some(used as u64));
    assert_eq!(Batch::bytes_of(&bytes, 6), None);
    bytes.resize(4096, 0xaa);
    let batch = Batch::parse(&bytes, crc32c).unwrap();
    assert_eq!((batch.header, batch.bytes), (HEADER, used as u64));
    let [first, second] = &batch.entries[..] else { panic!("two records") };
    assert_eq!(first.record, record(3584, 1024));
    assert_eq!(first.checks, [100, 101, 102, 103]);
    assert_eq!((first.syndrome.clone(), first.data.len()), (512..1536, 0));
    assert_eq!((&first.olds[..], &second.checks[..]), (&[][..], &[104][..]));
    assert_eq!(second.olds, [Sum { sum: 105, generation: 106 }]);
    assert_eq!((second.syndrome.clone(), second.data.clone()), (1536..2048, 2048..2560));
    assert_eq!(bytes[second.data.start], 3);
}

#[test]
fn checks_are_cut_at_blocks_of_the_chunk() {
    let blocks: Vec<_> = record(3584, 1024).blocks().collect();
    assert_eq!(blocks, [0..512, 512..1024]);
    let blocks: Vec<_> = record(4096, 8192).blocks().collect();
    assert_eq!(blocks, [0..4096, 4096..8192]);
    for (start, len) in [(0, 512), (512, 4096), (3584, 1024), (8192, 12288), (7680, 4608)] {
        let record = record(start, len);
        assert_eq!(record.blocks().count() * 2, record.checks(), "{start}+{len}");
    }
}

#[test]
fn a_flipped_or_missing_byte_is_an_error() {
    let bytes = sample();
    for index in 0..bytes.len() {
        let mut broken = bytes.clone();
        broken[index] ^= 0x10;
        assert!(Batch::parse(&broken, crc32c).is_err(), "byte {index}");
        assert!(Batch::parse(&bytes[..index], crc32c).is_err(), "{index} bytes");
    }
}

#[test]
fn whatever_has_a_right_crc_is_parsed_or_refused() {
    let bytes = sample();
    for index in (0..head_bytes(2, 7)).filter(|index| !(60..64).contains(index)) {
        for value in [0, 1, 0x7f, 0xff] {
            let mut other = bytes.clone();
            other[index] = value;
            other[60..64].fill(0);
            let crc = crc32c(0, &other);
            other[60..64].copy_from_slice(&crc.to_le_bytes());
            if let Ok(batch) = Batch::parse(&other, crc32c) {
                let inside = |entry: &Entry| entry.data.end.max(entry.syndrome.end) <= other.len();
                assert!(batch.entries.iter().all(inside), "byte {index}");
            }
        }
    }
}

#[test]
fn what_is_logged_is_of_what_is_written() {
    let mut bytes = [0; RECORD_BYTES];
    for (first, count) in [(0, 1), (1, 2), (63, 1), (0, 64)] {
        for index in 0..64 {
            let record = Record { first, count, logged: 1 << index, ..record(0, 512) };
            record.put(&mut bytes);
            let written = (first..first + count).contains(&index);
            assert_eq!(Record::get(&bytes).is_ok(), written, "{index} of {first}+{count}");
        }
    }
}

#[test]
fn only_zeros_span_stripes() {
    let mut bytes = [0; RECORD_BYTES];
    let zeros =
        Record { stripes: 4, zeros: true, partial: false, checked: false, ..record(0, 4096) };
    for (record, good) in [(zeros, true), (Record { zeros: false, ..zeros }, false)] {
        record.put(&mut bytes);
        assert_eq!(Record::get(&bytes).is_ok(), good);
    }
}
