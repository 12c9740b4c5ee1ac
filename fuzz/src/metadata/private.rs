//! Parapet's private area: the header, the intent log, the list of bad blocks.

use std::ops::Range;

use layout::md::{ByteMap, Name, Superblock, Uuid, Version};
use layout::private::bad::{self, BadList};
use layout::private::checksums::ChecksumEntry;
use layout::private::journal::{self, DeviceName, JournalHeader, JournalNote, JournalUse};
use layout::private::log::{self, Batch, BatchHeader, Entry, Form, Record, Syndrome};
use layout::private::{self, Consistency, LogShape, Parts, PrivateHeader};

use super::{CRC, TARGET, mend, number, sample};
use crate::{Target, Trail};

/// Headers of the private area.
pub const PRIVATE_HEADER: Target = Target {
    name: "private_header",
    what: "private area: print(parse(x)) = x, parts in order, whom it belongs to",
    body: private_header,
    seeds: private_headers,
    mend: mend::private_header,
    words: &[b"Pprivate"],
    ..TARGET
};

/// Headers of a journal device.
pub const JOURNAL_HEADER: Target = Target {
    name: "journal_header",
    what: "journal device: print(parse(x)) = x, zones within the log, the log behind the headers",
    body: journal_header,
    seeds: journal_headers,
    mend: mend::private_header,
    words: &[b"Pjournal"],
    ..TARGET
};

/// Batches of the intent log.
pub const PRIVATE_LOG: Target = Target {
    name: "private_log",
    what: "intent log: records within their batch and of what is written, parse(print(x)) = x",
    body: private_log,
    seeds: batches,
    mend: mend::private_log,
    words: &[b"Pintents", b"Pintent2"],
    most_bytes: 16 << 10,
    ..TARGET
};

/// Lists of the array's bad blocks.
pub const PRIVATE_BAD: Target = Target {
    name: "private_bad",
    what: "list of the array's bad blocks: ranges that are some, print(parse(x)) = x",
    body: bad_list,
    seeds: bad_lists,
    mend: mend::bad_list,
    most_bytes: 8 + bad::LIST_BYTES as usize + 64,
    ..TARGET
};

fn private_header(bytes: &[u8]) -> Trail {
    let mut trail = Trail::new();
    let found = match PrivateHeader::parse(bytes, CRC) {
        Ok(found) => found,
        Err(error) => {
            trail.note((error.field, std::mem::discriminant(&error.fault)));
            return trail;
        }
    };
    assert_eq!(found.print(CRC)[..], bytes[..4096], "printed as it was read");
    let mut least = found.bounds.start + private::HEADERS_BYTES;
    let parts = &found.parts;
    for part in [&parts.log, &parts.regions, &parts.history, &parts.checksums] {
        assert!(least <= part.start && part.start <= part.end && part.end <= found.bounds.end);
        least = part.end;
    }
    let owner = sample(Version::V1_2, 5);
    let bounds = sample_bounds(&owner);
    trail.note((found.matches(&owner, &bounds), found.slot.is_some()));
    let valid = private::valid(bytes, &owner, &bounds, CRC);
    assert_eq!(valid.is_some(), found.matches(&owner, &bounds).is_ok());
    trail
}

fn journal_header(bytes: &[u8]) -> Trail {
    let mut trail = Trail::new();
    let found = match JournalHeader::parse(bytes, CRC) {
        Ok(found) => found,
        Err(error) => {
            trail.note((error.field, std::mem::discriminant(&error.fault)));
            return trail;
        }
    };
    assert_eq!(found.print(CRC)[..], bytes[..4096], "printed as it was read");
    assert!(journal::LOG_START <= found.log.start && found.log.start <= found.log.end);
    let used = found.zone_bytes.checked_mul(found.zones.into()).expect("what is read fits");
    assert!(used <= found.log.end - found.log.start);
    trail.note((found.zones == 0, found.session == 0));
    trail
}

fn journal_headers() -> Vec<Vec<u8>> {
    [0, 7]
        .map(|session| {
            let header = JournalHeader {
                set_uuid: Uuid([1; 16]),
                device_uuid: Uuid([2; 16]),
                set_name: Name::new("host:tank").expect("short enough"),
                session,
                log: journal::log_of(8 << 20).expect("the disk is large enough"),
                zone_bytes: session << 12,
                zones: session as u32,
            };
            header.print(CRC)
        })
        .into()
}

fn sample_bounds(owner: &Superblock) -> Range<u64> {
    let map = ByteMap::of(owner, 64 << 20).expect("a good superblock");
    map.private.expect("64 MiB have room")
}

fn private_headers() -> Vec<Vec<u8>> {
    let owner = sample(Version::V1_2, 5);
    let bounds = sample_bounds(&owner);
    [Some(1), None]
        .map(|slot| {
            let header = PrivateHeader {
                set_uuid: owner.set_uuid,
                device_uuid: owner.device.uuid,
                history_id: Uuid([3; 16]),
                events: owner.events,
                utime: owner.utime,
                slot,
                bounds: bounds.clone(),
                parts: Parts::of(bounds.clone(), 32 << 20).expect("64 MiB have room"),
                log: LogShape {
                    session: 5,
                    zones: 2,
                    zone_bytes: 64 << 10,
                    run: 6,
                    since: 7,
                    form: Form::Wide,
                },
                consistency: Consistency::Intent,
                unverified: slot.is_none(),
                bad: BadList { count: 1, crc: 7 },
                checksums_from: slot.map(|_| 1 << 20),
                checksums_torn: slot.is_some(),
                journal: slot.map(|_| JournalNote {
                    uuid: Uuid([8; 16]),
                    name: DeviceName::new("/dev/fast"),
                    used: JournalUse::Logging,
                }),
            };
            header.print(CRC)
        })
        .into()
}

fn private_log(bytes: &[u8]) -> Trail {
    let mut trail = Trail::new();
    let session = number(bytes, 8, 8);
    let announced = Batch::bytes_of(bytes, session);
    let batch = match Batch::parse(bytes, CRC) {
        Ok(batch) => batch,
        Err(error) => {
            trail.note((error.field, std::mem::discriminant(&error.fault), announced.is_some()));
            return trail;
        }
    };
    assert_eq!(announced, Some(batch.bytes), "what the head says, and what is read");
    assert_eq!(Batch::bytes_of(bytes, !session), None, "another session's");
    trail.size(batch.entries.len() as u64);
    let words = batch.entries.iter().map(|entry| entry.checks.len() + 2 * entry.olds.len()).sum();
    let mut at = log::head_bytes(batch.form, batch.entries.len(), words);
    for entry in &batch.entries {
        check_entry(entry, &mut at, &mut trail);
    }
    assert_eq!(at as u64, batch.bytes, "nothing but what the records say");
    let payload = &bytes[at - payload_bytes(&batch)..at];
    assert_eq!(Batch::parse(&print(&batch, payload), CRC), Ok(batch), "parse(print(x)) = x");
    trail
}

/// A record's fields are consistent; its payload begins at `at`.
fn check_entry(entry: &Entry, at: &mut usize, trail: &mut Trail) {
    let Record { start, len, first, count, logged, .. } = entry.record;
    let record = &entry.record;
    assert!(start.is_multiple_of(512) && len.is_multiple_of(512) && len > 0 && count > 0);
    let written = (first..first + count).fold(0_u128, |mask, index| mask | 1 << index);
    assert_eq!(logged & !written, 0, "data of what is not written");
    assert!(record.stripes == 1 || record.stripes > 1 && record.zeros && entry.data.is_empty());
    let syndrome = if record.partial { len as usize } else { 0 };
    assert_eq!(entry.syndrome, *at..*at + syndrome);
    let data = len as usize * logged.count_ones() as usize;
    assert_eq!(entry.data, entry.syndrome.end..entry.syndrome.end + data);
    *at = entry.data.end;
    assert_eq!(entry.checks.len(), record.checks());
    assert_eq!(entry.olds.len(), if record.checksummed { record.checks() } else { 0 });
    if record.checked {
        let mut next = 0;
        for block in record.blocks() {
            assert!(block.start == next && block.end > next && block.end <= len);
            next = block.end;
        }
        assert_eq!(next, len, "every byte has its check");
    }
    trail.note((record.syndrome, record.paired, record.partial, record.checked, record.zeros));
    trail.size(logged.count_ones().into());
    trail.size(record.stripes.into());
}

fn payload_bytes(batch: &Batch) -> usize {
    batch.entries.iter().map(|entry| entry.record.payload_bytes() as usize).sum()
}

/// A batch as the engine writes it.
fn print(batch: &Batch, payload: &[u8]) -> Vec<u8> {
    let records = batch.entries.len();
    let words = |entry: &Entry| {
        let olds = entry.olds.iter().flat_map(|old| [old.checksum, old.generation]);
        entry.checks.iter().copied().chain(olds).collect::<Vec<u32>>()
    };
    let checks: Vec<u32> = batch.entries.iter().flat_map(words).collect();
    let mut bytes = vec![0; log::head_bytes(batch.form, records, checks.len())];
    for (index, entry) in batch.entries.iter().enumerate() {
        log::put_record(batch.form, &mut bytes, index, &entry.record);
    }
    for (index, &check) in checks.iter().enumerate() {
        log::put_check(batch.form, &mut bytes, records, index, check);
    }
    log::seal(batch.form, &mut bytes, &batch.header, records, [payload].into_iter(), CRC);
    bytes.extend_from_slice(payload);
    bytes
}

fn batches() -> Vec<Vec<u8>> {
    let record = Record {
        stripe: 12,
        stripes: 1,
        start: 3584,
        len: 1024,
        first: 1,
        count: 2,
        syndrome: Syndrome::P,
        paired: false,
        partial: true,
        checked: true,
        checksummed: false,
        logged: 0,
        zeros: false,
        epoch: 8,
    };
    let pair = Record { syndrome: Syndrome::Q, paired: true, checksummed: true, ..record };
    let logged = Record { logged: 0b10, first: 1, count: 1, start: 0, len: 512, ..record };
    let whole = Record { partial: false, first: 0, count: 64, checked: false, ..record };
    let high = Record { first: 66, count: 62, logged: 1 << 127 | 1 << 66, ..logged };
    let zeros = Record { zeros: true, stripes: 4, partial: false, checked: false, ..record };
    let header = BatchHeader { session: 5, sequence: 9, tail: 7, durable: 8, previous: 6, zone: 2 };
    let batch = |form: Form, records: &[Record]| {
        let entry = |record: &Record| {
            let checks = (0..record.checks() as u32).collect();
            let olds = (record.checks() as u32..record.words() as u32).step_by(2);
            let olds =
                olds.map(|word| ChecksumEntry { checksum: word, generation: word + 1 }).collect();
            Entry { record: *record, checks, olds, syndrome: 0..0, data: 0..0 }
        };
        let entries = records.iter().map(entry).collect();
        let batch = Batch { form, header, bytes: 0, entries };
        print(&batch, &vec![0x5a; payload_bytes(&batch)])
    };
    let (narrow, wide) = (Form::Narrow, Form::Wide);
    vec![
        batch(narrow, &[]),
        batch(narrow, &[record]),
        batch(narrow, &[pair, logged]),
        batch(narrow, &[whole]),
        batch(narrow, &[zeros]),
        batch(wide, &[]),
        batch(wide, &[pair, high]),
        batch(wide, &[Record { count: 128, ..whole }]),
    ]
}

/// Four bytes for the number of ranges, four for the checksum: as a header says them. Then the
/// list.
fn bad_list(bytes: &[u8]) -> Trail {
    let mut trail = Trail::new();
    let Some(list) = bytes.get(8..) else { return trail };
    let said = BadList { count: number(bytes, 0, 4) as u32, crc: number(bytes, 4, 4) as u32 };
    let Some(ranges) = bad::parse(list, said, CRC) else {
        trail.note((said.count > 0, bad::bytes_of(said) <= list.len() as u64));
        return trail;
    };
    assert_eq!(ranges.len() as u32, said.count);
    assert!(ranges.iter().all(|range| range.start < range.end));
    trail.size(ranges.len() as u64);
    match bad::print(ranges.iter().cloned(), CRC) {
        None => assert!(ranges.len() > bad::MOST_RANGES),
        Some((printed, again)) => {
            let used = bad::bytes_of(said) as usize;
            assert_eq!((&printed[..used], again), (&list[..used], said), "printed as it was read");
            assert!(printed.len() as u64 <= bad::LIST_BYTES);
            assert!(printed[used..].iter().all(|&byte| byte == 0));
        }
    }
    trail
}

fn bad_lists() -> Vec<Vec<u8>> {
    [0, 1, 300, bad::MOST_RANGES as u64]
        .map(|count| {
            let ranges = (0..count).map(|at| at * 8192..at * 8192 + 512);
            let (bytes, list) = bad::print(ranges, CRC).expect("no more than fit");
            [&list.count.to_le_bytes()[..], &list.crc.to_le_bytes(), &bytes].concat()
        })
        .into()
}
