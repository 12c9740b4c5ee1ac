//! Frames, byte by byte.

mod vectors;

use io::Mac;

use super::access::{Edit, Keyed, KeyedState, Kind, Mask, Reserve};
use super::ata::{Ata, opcode, status};
use super::identify::{Identity, MAX_LBA28, MAX_LBA48};
use super::query::{Directive, MAX_CONFIG_BYTES, Query};
use super::smart::Health;
use super::*;

const CLIENT: Mac = Mac([2, 0, 0, 0, 0, 1]);
const TARGET: Mac = Mac([2, 0, 0, 0, 0, 2]);

#[test]
fn addresses_are_read_as_they_are_written() {
    for text in ["0.0", "1.0", "4094.254", "4096.1", "65534.254"] {
        assert_eq!(text.parse::<Address>().unwrap().to_string(), text);
    }
    for text in
        ["", "1", "1.", ".1", "4095.0", "65535.0", "65536.0", "1.255", "1.256", "+1.0", "1.0 "]
    {
        assert!(text.parse::<Address>().is_err(), "{text}");
    }
}

/// A read of two sectors from LBA 0x0102030405 of 7.2, as the protocol's document lays it out.
#[test]
fn a_read_request_has_these_bytes() {
    let header = Header {
        destination: TARGET,
        source: CLIENT,
        version: VERSION,
        response: false,
        error: None,
        address: Address { shelf: 7, slot: 2 },
        command: command::ATA,
        tag: 0x0011_2233,
    };
    let mut bytes = [0; ATA_HEADER_BYTES];
    header.put(&mut bytes);
    Ata::transfer(false, 0x01_0203_0405, 2).put(&mut bytes[HEADER_BYTES..]);
    let expected = [
        2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x88, 0xa2, // Ethernet
        0x10, 0, 0, 7, 2, 0, 0, 0x11, 0x22, 0x33, // AoE
        0x40, 0, 2, 0x24, 5, 4, 3, 2, 1, 0, 0, 0, // ATA
    ];
    assert_eq!(bytes, expected);
    assert_eq!(Header::parse(&bytes), Some(header));
    let answer = header.answer(TARGET, Address { shelf: 7, slot: 2 }).with_error(Error::Argument);
    answer.put(&mut bytes);
    assert_eq!(bytes[..20], [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x88, 0xa2, 0x1c, 2, 0, 7, 2, 0]);
    assert_eq!(Header::parse(&bytes), Some(answer));
    assert!(Header::parse(&bytes[..HEADER_BYTES - 1]).is_none());
    assert_eq!(Error::of(2), Some(Error::Argument));
}

#[test]
fn the_opcode_decides_the_width_of_an_address() {
    let ata = Ata { lba: [1, 2, 3, 0xe4, 5, 6], ..Ata::default() };
    for (command, first) in [
        (opcode::READ, 0x0403_0201),
        (opcode::WRITE, 0x0403_0201),
        (opcode::READ_EXT, 0x0605_e403_0201),
        (opcode::WRITE_EXT, 0x0605_e403_0201),
    ] {
        assert_eq!(Ata { command, ..ata }.first_sector(), first, "{command:#x}");
    }
    let bytes = [0x41, 9, 3, opcode::WRITE_EXT, 1, 2, 3, 4, 5, 6, 0, 0];
    let parsed = Ata::parse(&bytes).unwrap();
    assert!(parsed.is_write() && !parsed.is_read());
    let mut again = [0xff; 12];
    parsed.put(&mut again);
    assert_eq!(again, bytes);
    assert_eq!(Ata::parse(&bytes[..11]), None);
    assert_eq!(parsed.done().command & status::BAD, 0);
    assert_ne!(parsed.failed(4).command & status::BAD, 0);
    assert_ne!(parsed.faulted().command & status::BAD, 0);
}

#[test]
fn payloads_are_powers_of_two() {
    let table = [
        (0, 0),
        (547, 0),
        (548, 1),
        (1059, 1),
        (1060, 2),
        (1500, 2),
        (4131, 4),
        (4132, 8),
        (4200, 8),
        (8227, 8),
        (8228, 16),
        (9000, 16),
        (9216, 16),
        (65_535, 16),
    ];
    for (mtu, sectors) in table {
        assert_eq!(sectors_of(mtu), sectors, "MTU {mtu}");
    }
}

#[test]
fn queries_are_read_as_they_are_written() {
    let query = Query {
        buffers: 64,
        firmware: 0x1234,
        sectors: 16,
        directive: Directive::Read as u8,
        text: b"tank".to_vec(),
    };
    let mut bytes = Vec::new();
    query.put(true, &mut bytes);
    assert_eq!(bytes, [0, 64, 0x12, 0x34, 16, 0x10, 0, 4, b't', b'a', b'n', b'k']);
    assert_eq!(Query::parse(&bytes), Some(query));
    assert_eq!(Query::parse(&bytes[..11]), None, "the string is cut");
    for (len, fits) in
        [(MAX_CONFIG_BYTES - 1, true), (MAX_CONFIG_BYTES, true), (MAX_CONFIG_BYTES + 1, false)]
    {
        let mut bytes = Vec::new();
        Query::request(Directive::Set, &vec![7; len]).put(false, &mut bytes);
        assert_eq!(Query::parse(&bytes).is_some(), fits, "{len}");
    }
    assert_eq!((0..8).filter_map(Directive::of).count(), 6);
}

#[test]
fn masks_and_reservations_are_read_as_they_are_written() {
    let edits = vec![Edit::Add(CLIENT), Edit::Skip, Edit::Remove(TARGET), Edit::Unknown(9)];
    let masks = [Mask::Read, Mask::Edit(edits)];
    for mask in masks {
        let mut bytes = Vec::new();
        mask.put(&mut bytes);
        assert_eq!(Mask::parse(&bytes), Some(mask));
    }
    assert_eq!(Mask::parse(&[0, 1, 0, 2, 0, 1, 2, 0, 0, 0, 0, 1]), None, "a directive is missing");
    assert_eq!(Mask::parse(&[0, 7, 0, 0]), None);
    for reserve in [Reserve::Read, Reserve::Set(vec![CLIENT]), Reserve::Force(vec![])] {
        let mut bytes = Vec::new();
        reserve.put(&mut bytes);
        assert_eq!(Reserve::parse(&bytes), Some(reserve));
    }
    assert_eq!(Reserve::parse(&[1, 1, 0, 0, 0, 0, 0]), None, "an address is cut");
    let keyed = [
        Keyed::Stat,
        Keyed::Register(0x0102_0304_0506_0708, vec![CLIENT, TARGET]),
        Keyed::Set(Kind::GroupWrites, 7),
        Keyed::Replace { kind: Kind::HolderOnly, keep: true, target: 1, key: 2 },
        Keyed::Replace { kind: Kind::HolderWrites, keep: false, target: 1, key: 2 },
        Keyed::Reset,
    ];
    for request in keyed {
        let mut bytes = Vec::new();
        request.put(&mut bytes);
        assert_eq!(bytes[0], request.directive());
        for cut in 1..bytes.len() {
            // Padding may be cut; what was meant must not change.
            if let Some(parsed) = Keyed::parse(&bytes[..cut]) {
                assert_eq!(parsed, request);
            }
        }
        assert_eq!(Keyed::parse(&bytes), Some(request));
    }
    assert_eq!(Keyed::parse(&[]), None);
    assert_eq!(Keyed::parse(&[2, 6, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]), None, "no such kind");
    let state = KeyedState { kind: 1, generation: 3, holder: 5, keys: vec![5, 6] };
    let mut bytes = Vec::new();
    state.put(2, &mut bytes);
    assert_eq!(bytes[..12], [2, 1, 0, 2, 0, 0, 0, 0, 0, 0, 0, 3]);
    assert_eq!(bytes.len(), 12 + 8 + 16);
}

fn word(sector: &[u8; SECTOR], at: usize) -> u16 {
    u16::from_le_bytes([sector[at * 2], sector[at * 2 + 1]])
}

#[test]
fn a_device_is_read_as_it_describes_itself() {
    for sectors in [1, MAX_LBA28 - 1, MAX_LBA28, MAX_LBA28 + 1, MAX_LBA48 - 1, MAX_LBA48] {
        let identity = Identity {
            serial: "0123456789abcdef".into(),
            model: "Parapet RAID 5".into(),
            firmware: "0.1.0".into(),
            sectors,
            physical_block: 4096,
            rotational: false,
        };
        let sector = identity.to_sector();
        assert_eq!(Identity::parse(&sector), Some(identity));
        let short = u64::from(word(&sector, 60)) | u64::from(word(&sector, 61)) << 16;
        assert_eq!(short, sectors.min(MAX_LBA28));
        assert_eq!(word(&sector, 103), 0, "Windows reads 64 bits");
        assert_eq!(sector.iter().fold(0_u8, |sum, byte| sum.wrapping_add(*byte)), 0);
        assert_eq!(&sector[54..58], b"aPar", "swapped in pairs");
    }
    assert_eq!(Identity::parse(&[0; SECTOR]), None);
    assert_eq!(Identity::parse(&[0; SECTOR - 1]), None);
}

#[test]
fn a_failing_array_is_below_its_threshold() {
    for failing in [false, true] {
        let health = Health { failing, repaired: 7, lost: 0, members_lost: 1 };
        let (data, thresholds) = (health.to_data(), health.to_thresholds());
        let below = |entry: usize| data[2 + entry * 12 + 3] <= thresholds[2 + entry * 12 + 1];
        assert_eq!((0..3).any(below), failing);
        assert_eq!(data[2 + 5], 7, "the raw value of the first attribute");
        for sector in [data, thresholds] {
            assert_eq!(sector.iter().fold(0_u8, |sum, byte| sum.wrapping_add(*byte)), 0);
        }
    }
}
