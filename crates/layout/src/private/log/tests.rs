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
        checksummed: false,
        logged: 0,
        zeros: false,
        epoch: 0,
    }
}

/// A batch of two records: one with a syndrome and checks, one with data and a checksum as well.
fn sample(form: Form) -> Vec<u8> {
    let second = Record { logged: 2, count: 1, checksummed: true, ..record(0, 512) };
    let records = [record(3584, 1024), second];
    let checks: usize = records.iter().map(Record::words).sum();
    assert_eq!(checks, 4 + 3);
    let mut head = vec![0; head_bytes(form, records.len(), checks)];
    for (index, record) in records.iter().enumerate() {
        put_record(form, &mut head, index, record);
    }
    for index in 0..checks {
        put_check(form, &mut head, records.len(), index, 100 + index as u32);
    }
    let payload: Vec<u8> = (0..1024 + 512 + 512).map(|byte| (byte / 512) as u8).collect();
    seal(
        form,
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
fn sealed_batches_parse_again() {
    Form::ALL.into_iter().for_each(sealed_is_parsed_again);
}

fn sealed_is_parsed_again(form: Form) {
    let mut bytes = sample(form);
    let used = bytes.len();
    assert_eq!(Batch::bytes_of(&bytes, 5), Some(used as u64));
    assert_eq!(Batch::bytes_of(&bytes, 6), None);
    bytes.resize(4096, 0xaa);
    let batch = Batch::parse(&bytes, crc32c).unwrap();
    assert_eq!((batch.form, batch.header, batch.bytes), (form, HEADER, used as u64));
    let [first, second] = &batch.entries[..] else { panic!("two records") };
    assert_eq!(first.record, record(3584, 1024));
    assert_eq!(first.checks, [100, 101, 102, 103]);
    assert_eq!((first.syndrome.clone(), first.data.len()), (512..1536, 0));
    assert_eq!((&first.olds[..], &second.checks[..]), (&[][..], &[104][..]));
    assert_eq!(second.olds, [ChecksumEntry { checksum: 105, generation: 106 }]);
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
    for bytes in Form::ALL.map(sample) {
        for index in 0..bytes.len() {
            let mut broken = bytes.clone();
            broken[index] ^= 0x10;
            assert!(Batch::parse(&broken, crc32c).is_err(), "byte {index}");
            assert!(Batch::parse(&bytes[..index], crc32c).is_err(), "{index} bytes");
        }
    }
}

#[test]
fn whatever_has_a_right_crc_is_parsed_or_refused() {
    for form in Form::ALL {
        let bytes = sample(form);
        for index in (0..head_bytes(form, 2, 7)).filter(|index| !(60..64).contains(index)) {
            for value in [0, 1, 0x7f, 0xff] {
                let mut other = bytes.clone();
                other[index] = value;
                other[60..64].fill(0);
                let crc = crc32c(0, &other);
                other[60..64].copy_from_slice(&crc.to_le_bytes());
                if let Ok(batch) = Batch::parse(&other, crc32c) {
                    let end = |entry: &Entry| entry.data.end.max(entry.syndrome.end);
                    let inside = |entry: &Entry| end(entry) <= other.len();
                    assert!(batch.entries.iter().all(inside), "byte {index}");
                    assert_ne!(batch.header.session, 0, "no writer seals it: byte {index}");
                }
            }
        }
    }
}

/// The bytes of a record, and whether a reader takes them.
fn is_read(form: Form, record: &Record) -> bool {
    let mut bytes = [0; 48];
    let bytes = &mut bytes[..form.record_bytes()];
    record.put(form, bytes);
    match Record::get(form, bytes) {
        Ok(read) => {
            assert_eq!(read, *record);
            true
        }
        Err(_) => false,
    }
}

#[test]
fn logged_indices_are_written_ones() {
    let ranges = [(0, 1), (1, 2), (62, 2), (63, 1), (0, 64), (63, 2), (64, 1), (0, 65)];
    let wide = [(63, 64), (126, 1), (0, 127), (127, 1), (126, 2), (0, 128), (64, 64)];
    for (form, most) in [(Form::Narrow, 64), (Form::Wide, 128)] {
        for (first, count) in ranges.into_iter().chain(wide) {
            for index in 0..most {
                let record = Record { first, count, logged: 1 << index, ..record(0, 512) };
                let good = first + count <= most && (first..first + count).contains(&index);
                assert_eq!(is_read(form, &record), good, "{form:?} {index} of {first}+{count}");
            }
            let none = Record { first, count, logged: 0, ..record(0, 512) };
            assert_eq!(is_read(form, &none), first + count <= most, "{form:?} {first}+{count}");
        }
        let past = Record { first: most, count: 1, ..record(0, 512) };
        assert!(!is_read(form, &past), "{form:?}: index {most}");
        let last = Record { first: u16::MAX, count: u16::MAX, ..record(0, 512) };
        assert!(!is_read(form, &last), "{form:?}: no sum wraps");
    }
}

#[test]
fn the_form_follows_from_the_data_slots() {
    for (data_slots, form) in [1, 63, 64].map(|count| (count, Form::Narrow)) {
        assert_eq!(Form::of(data_slots), form, "{data_slots}");
    }
    for (data_slots, form) in [65, 127, 128].map(|count| (count, Form::Wide)) {
        assert_eq!(Form::of(data_slots), form, "{data_slots}");
    }
}

/// The writer's assertion: no record goes out that a reader would refuse.
#[test]
#[should_panic(expected = "not a record")]
fn a_record_that_no_reader_takes_is_not_written() {
    let mut head = vec![0; head_bytes(Form::Narrow, 1, 0)];
    let record = Record { first: 66, count: 1, ..record(0, 512) };
    put_record(Form::Narrow, &mut head, 0, &record);
}

/// Bytes of a batch as version 1 has always written them.
#[test]
fn batches_of_the_first_version_are_read() {
    let bytes = sample(Form::Narrow);
    assert_eq!(&bytes[..8], b"Pintents");
    let second = 64 + 40;
    assert_eq!(bytes[second + 22], 1, "its count");
    assert_eq!(bytes[second + 32..second + 40], 2_u64.to_le_bytes(), "its mask");
    assert_eq!(bytes[64 + 80..64 + 84], 100_u32.to_le_bytes(), "the first check");
    assert_eq!(Batch::parse(&bytes, crc32c).unwrap().entries.len(), 2);
}

#[test]
fn only_zeros_span_stripes() {
    let zeros =
        Record { stripes: 4, zeros: true, partial: false, checked: false, ..record(0, 4096) };
    for form in Form::ALL {
        assert!(is_read(form, &zeros));
        assert!(!is_read(form, &Record { zeros: false, ..zeros }));
    }
}
