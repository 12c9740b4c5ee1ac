//! Frames of another encoder: `vectors.txt`, made by `vectors.py` with scapy. Each is decoded to
//! the values that the script gave, and these are encoded to the same bytes.

use super::*;

/// What a frame carries after its header.
#[derive(PartialEq, Eq, Debug)]
enum Body {
    /// An ATA command, and the data of these many sectors.
    Ata(Ata, usize),
    Query(Query),
    Mask(Mask),
    Reserve(Reserve),
}

/// The data of frames with sectors.
fn sectors(count: usize) -> Vec<u8> {
    (0..count * SECTOR).map(|at| (at * 7) as u8).collect()
}

impl Body {
    fn parse(command: u8, bytes: &[u8]) -> Option<Body> {
        Some(match command {
            command::ATA => {
                let data = &bytes[ata::BYTES..];
                assert_eq!(data, sectors(data.len() / SECTOR));
                Body::Ata(Ata::parse(bytes)?, data.len() / SECTOR)
            }
            command::QUERY => Body::Query(Query::parse(bytes)?),
            command::MASK => Body::Mask(Mask::parse(bytes)?),
            _ => Body::Reserve(Reserve::parse(bytes)?),
        })
    }

    fn put(&self, response: bool, into: &mut Vec<u8>) {
        match self {
            Body::Ata(ata, count) => {
                let mut argument = [0; ata::BYTES];
                ata.put(&mut argument);
                into.extend(argument);
                into.extend(sectors(*count));
            }
            Body::Query(query) => query.put(response, into),
            Body::Mask(mask) => mask.put(into),
            Body::Reserve(reserve) => reserve.put(into),
        }
    }
}

fn header(response: bool, command: u8, tag: u32) -> Header {
    let [destination, source] = if response { [CLIENT, TARGET] } else { [TARGET, CLIENT] };
    let address = Address { shelf: 7, slot: 2 };
    Header { destination, source, version: VERSION, response, error: None, address, command, tag }
}

/// The frames of the script.
fn frames() -> Vec<(&'static str, Header, Body)> {
    let ask = |command, tag| header(false, command, tag);
    let tell = |command, tag| header(true, command, tag);
    let (query, mask, reserve) = (command::QUERY, command::MASK, command::RESERVE);
    let read = Ata::transfer(false, 0x01_0203_0405, 2);
    let write = Ata::transfer(true, 0xffff_ffff_fffe, 2);
    let answer = Query {
        buffers: 64,
        firmware: 0x4321,
        sectors: 16,
        directive: Directive::Read as u8,
        text: b"tank".to_vec(),
    };
    let set = Query::request(Directive::SetIfEmpty, &[b'x'; 40]);
    let edits = vec![Edit::Add(CLIENT), Edit::Skip, Edit::Remove(TARGET)];
    vec![
        ("read", ask(command::ATA, 0x0011_2233), Body::Ata(read, 0)),
        ("read-answer", tell(command::ATA, 0x0011_2233), Body::Ata(read.done(), 2)),
        ("write", ask(command::ATA, 0x7fff_0001), Body::Ata(write, 2)),
        (
            "write-failed",
            tell(command::ATA, 0x7fff_0001),
            Body::Ata(write.failed(ata::error::UNCORRECTABLE), 0),
        ),
        ("identify", ask(command::ATA, 0x8000_0001), Body::Ata(Ata::plain(opcode::IDENTIFY), 0)),
        ("flush", ask(command::ATA, 5), Body::Ata(Ata::plain(opcode::FLUSH_EXT), 0)),
        ("query", ask(query, 6), Body::Query(Query::request(Directive::Read, &[]))),
        ("query-answer", tell(query, 6), Body::Query(answer)),
        ("set", ask(query, 7), Body::Query(set.clone())),
        ("set-refused", tell(query, 7).with_error(Error::ConfigPresent), Body::Query(set)),
        ("mask-read", ask(mask, 8), Body::Mask(Mask::Read)),
        ("mask-edit", ask(mask, 9), Body::Mask(Mask::Edit(edits))),
        ("reserve-read", ask(reserve, 10), Body::Reserve(Reserve::Read)),
        ("reserve-set", ask(reserve, 11), Body::Reserve(Reserve::Set(vec![CLIENT, TARGET]))),
        ("release", ask(reserve, 12), Body::Reserve(Reserve::Force(Vec::new()))),
    ]
}

fn bytes_of(hex: &str) -> Vec<u8> {
    let digits = hex.as_bytes().chunks_exact(2);
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.map(byte).collect()
}

#[test]
fn frames_of_scapy_are_decoded_and_encoded_as_scapy_does() {
    let lines = include_str!("vectors.txt").lines();
    let vectors: Vec<(&str, Vec<u8>)> = lines
        .map(|line| {
            let (name, hex) = line.split_once(' ').unwrap();
            (name, bytes_of(hex))
        })
        .collect();
    let frames = frames();
    assert_eq!(vectors.len(), frames.len());
    for ((name, bytes), (expected, header, body)) in vectors.into_iter().zip(frames) {
        assert_eq!(name, expected);
        assert_eq!(Header::parse(&bytes), Some(header), "{name}");
        let parsed = Body::parse(header.command, &bytes[HEADER_BYTES..]);
        assert_eq!(parsed.as_ref(), Some(&body), "{name}");
        let mut ours = vec![0; HEADER_BYTES];
        header.put(&mut ours);
        body.put(header.response, &mut ours);
        assert_eq!(ours, bytes, "{name}");
    }
}
