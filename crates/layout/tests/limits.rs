//! The limits of the forms on disk at `limit - 1`, `limit` and `limit + 1`: what fits is written
//! and read back, what does not is refused by writer and reader. `docs/limits.md` has the table.

use layout::md::superblock::{EVENTS_MOST, FIXED_BYTES, MAX_DEVICES};
use layout::md::{BadBlocks, Bitmap, LogFull, Name, PplHeader, Role, Superblock, Uuid};
use layout::md::{badblocks, bitmap, ppl};
use layout::private::bad;
use layout::private::log::{Form, Record, Syndrome, put_record};
use layout::{MAX_SLOTS, Slot, SlotSet};

/// CRC-32C, bit by bit.
fn crc32c(before: u32, bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!before, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| (crc >> 1) ^ ((crc & 1) * 0x82f6_3b78))
    })
}

fn panics(work: impl FnOnce()) -> bool {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).is_err()
}

fn superblock() -> Superblock {
    Superblock {
        raid_disks: 2,
        level: 1,
        data_offset: 2048,
        data_size: 2048,
        super_offset: 8,
        events: 1,
        ..Superblock::default()
    }
}

/// A set holds every slot that an array may have, and neither index nor set goes beyond.
#[test]
fn slots() {
    for count in [MAX_SLOTS - 1, MAX_SLOTS] {
        let all = SlotSet::first(count);
        assert_eq!((all.count(), all.iter().count()), (count, count));
        assert!(all.contains(Slot::new(count - 1)));
        assert_eq!(all.without(Slot::new(count - 1)), SlotSet::first(count - 1));
    }
    assert!(panics(|| assert!(!SlotSet::first(MAX_SLOTS + 1).is_empty())));
    assert!(panics(|| assert!(Slot::new(MAX_SLOTS).index() > 0)));
}

#[test]
fn devices() {
    for devices in [MAX_DEVICES - 1, MAX_DEVICES] {
        let mut roles = vec![Role::Spare; devices];
        roles[devices - 1] = Role::Slot(1);
        let written = Superblock { roles: roles.clone(), ..superblock() };
        let bytes = written.print();
        assert!(bytes.len() <= 4096, "{devices} devices");
        let read = Superblock::parse(&bytes, 8).expect("the data was written like this");
        assert_eq!(read.roles, roles, "{devices} devices");
        assert!(Superblock::role_table(devices).is_some_and(|table| table.len() >= devices));
    }
    assert_eq!(Superblock::role_table(MAX_DEVICES + 1), None);
    let roles = vec![Role::Spare; MAX_DEVICES + 1];
    assert!(panics(|| drop(Superblock { roles, ..superblock() }.print())));
    let mut bytes = Superblock { roles: vec![Role::Spare; MAX_DEVICES], ..superblock() }.print();
    bytes[220..224].copy_from_slice(&(MAX_DEVICES as u32 + 1).to_le_bytes());
    bytes.resize(FIXED_BYTES + 2 * (MAX_DEVICES + 1), 0);
    let why = Superblock::parse(&bytes, 8).expect_err("one loss too many").to_string();
    assert!(why.contains("max_dev"), "{why}");
}

/// An event count that could not go on counting is refused, and not taken for the freshest.
#[test]
fn events() {
    for events in [EVENTS_MOST - 1, EVENTS_MOST] {
        let bytes = Superblock { events, ..superblock() }.print();
        assert_eq!(Superblock::parse(&bytes, 8).expect("the member counts").events, events);
    }
    let bytes = Superblock { events: EVENTS_MOST + 1, ..superblock() }.print();
    let why = Superblock::parse(&bytes, 8).expect_err("one loss too many").to_string();
    assert!(why.contains("events"), "{why}");
}

#[test]
fn names() {
    let most = layout::md::NAME_BYTES;
    for bytes in [most - 1, most] {
        let name = Name::new(&"n".repeat(bytes)).expect("the value fits");
        assert_eq!(name.as_bytes().len(), bytes);
        let bytes = Superblock { set_name: name, ..superblock() }.print();
        assert_eq!(Superblock::parse(&bytes, 8).expect("ours").set_name, name);
    }
    assert_eq!(Name::new(&"n".repeat(most + 1)), None);
}

#[test]
fn bad_blocks() {
    let most = badblocks::MOST_ENTRIES as u64;
    let of = |count: u64| {
        let mut list = BadBlocks::default();
        (0..count).for_each(|at| list.add(4 * at..4 * at + 1));
        list
    };
    for count in [most - 1, most] {
        let bytes = of(count).print(0, 8).expect("the value fits");
        let found = BadBlocks::parse(&bytes, 0).expect("the data was written like this");
        assert_eq!((found.blocks, found.refused.len()), (of(count), 0), "{count} entries");
    }
    let full = LogFull { needed: most as usize + 1, room: most as usize };
    assert_eq!(of(most + 1).print(0, 8), Err(full));
    assert!(BadBlocks::parse(&vec![0xff; 8 * (most as usize + 1)], 0).is_err());
}

#[test]
fn bad_ranges() {
    let most = bad::MOST_RANGES as u64;
    let of = |count: u64| (0..count).map(|at| at * 8192..at * 8192 + 4096);
    for count in [most - 1, most] {
        let (bytes, list) = bad::print(of(count), crc32c).expect("the value fits");
        assert!(bytes.len() as u64 <= bad::LIST_BYTES);
        assert_eq!(bad::parse(&bytes, list, crc32c), Some(of(count).collect()));
    }
    assert_eq!(bad::print(of(most + 1), crc32c), None);
}

#[test]
fn ppl_entries() {
    let entry = |index: usize| ppl::PplEntry {
        data_sector: index as u64,
        pp_bytes: 0,
        data_bytes: 4096,
        parity_disk: 0,
        checksum: 0,
    };
    let of =
        |count| PplHeader { signature: 7, generation: 1, entries: (0..count).map(entry).collect() };
    for count in [ppl::MOST_ENTRIES - 1, ppl::MOST_ENTRIES] {
        let bytes = of(count).print(crc32c);
        assert_eq!(bytes.len() as u64, ppl::HEADER_BYTES);
        assert_eq!(PplHeader::parse(&bytes, crc32c), Ok(of(count)), "{count} entries");
    }
    assert!(panics(|| drop(of(ppl::MOST_ENTRIES + 1).print(crc32c))));
}

/// Each form of a log record names its last data index, and a record beyond is not written.
#[test]
fn log_indices() {
    for form in Form::ALL {
        let most = form.indices() as u16;
        let record = |first: u16| Record {
            first,
            count: 1,
            logged: 1_u128.checked_shl(first.into()).unwrap_or(0),
            stripe: 3,
            stripes: 1,
            start: 0,
            len: 4096,
            syndrome: Syndrome::P,
            paired: false,
            partial: false,
            checked: false,
            checksummed: false,
            zeros: false,
            epoch: 1,
        };
        let mut head = vec![0; 512];
        put_record(form, &mut head, 0, &record(most - 2));
        put_record(form, &mut head, 0, &record(most - 1));
        assert!(panics(|| put_record(form, &mut head, 0, &record(most))), "{form:?}");
    }
    assert_eq!(Form::of(MAX_SLOTS), Form::Wide);
    assert!(panics(|| assert!(Form::of(MAX_SLOTS + 1).indices() > 0)));
}

/// The bits that fill md's largest bitmap are addressed within it, and a chunk is chosen that fits.
#[test]
fn bitmap_bits() {
    let space = bitmap::MOST_SPACE_BYTES;
    let most = (space - bitmap::HEADER_BYTES) * 8;
    for bits in [most - 1, most] {
        let header = Bitmap::new(Uuid([7; 16]), bits * 8, 4096);
        assert!(header.bytes() <= space && bitmap::byte_of(bits - 1).0 < space, "{bits} bits");
        assert_eq!(header.bits(), bits);
    }
    assert_eq!(bitmap::byte_of(most).0, space);
    assert!(Bitmap::new(Uuid([7; 16]), (most + 1) * 8, 4096).bytes() > space);
}
