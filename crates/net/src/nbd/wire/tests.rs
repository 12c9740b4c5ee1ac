//! The bytes, against the protocol's text.

use super::reply::{self, Form, ReplyHeader};
use super::*;

const STYLES: [Style; 3] = [Style::Simple, Style::Structured, Style::Extended];

fn request(length: u64) -> Request {
    Request { flags: 1, command: 2, cookie: 0x0304, offset: 0x05, length }
}

#[test]
fn requests_come_back() {
    for style in STYLES {
        let mut bytes = Vec::new();
        request(6).encode(style, &mut bytes);
        assert_eq!(bytes.len(), Request::header_bytes(style));
        assert_eq!(Request::decode(&bytes, style), Ok(request(6)));
        assert_eq!(Request::decode(&bytes[..bytes.len() - 1], style), Err(Malformed::Short));
        bytes[0] ^= 1;
        assert_eq!(Request::decode(&bytes, style), Err(Malformed::Magic));
    }
}

#[test]
fn headers_of_one_style_are_garbage_in_another() {
    let mut compact = Vec::new();
    request(6).encode(Style::Simple, &mut compact);
    compact.extend_from_slice(&[0; 4]);
    assert_eq!(Request::decode(&compact, Style::Extended), Err(Malformed::Magic));
    let mut reply = Vec::new();
    reply::success(&mut reply, Style::Simple, &request(6));
    assert_eq!(ReplyHeader::decode(&reply, Style::Extended), Err(Malformed::Magic));
}

#[test]
fn lengths_around_32_bits_survive() {
    for length in [u64::from(u32::MAX), 1 << 32, (1 << 63) - 1, 1 << 63, u64::MAX] {
        let mut bytes = Vec::new();
        request(length).encode(Style::Extended, &mut bytes);
        assert_eq!(Request::decode(&bytes, Style::Extended), Ok(request(length)));
    }
}

#[test]
fn replies_come_back() {
    for style in STYLES {
        let mut bytes = Vec::new();
        reply::data(&mut bytes, style, &request(512), 512);
        let (header, length) =
            ReplyHeader::decode(&bytes, style).unwrap().expect("all members are present");
        assert_eq!(header.cookie, 0x0304);
        match style {
            Style::Simple => assert_eq!((header.form, length), (Form::Simple { error: 0 }, 16)),
            _ => {
                let (done, kind) = (true, chunk::OFFSET_DATA);
                assert_eq!(header.form, Form::Chunk { done, kind, length: 520 });
                assert_eq!(bytes[length..], 5u64.to_be_bytes());
            }
        }
        assert_eq!(ReplyHeader::decode(&bytes[..length - 1], style), Ok(None));
    }
}

#[test]
fn messages_are_cut_at_a_character() {
    let mut bytes = Vec::new();
    let long = "é".repeat(3000);
    reply::error(&mut bytes, Style::Structured, &request(1), Fault::Io, &long, Some(7));
    assert_eq!(bytes.len(), 20 + 6 + 4096 + 8);
    let long = format!("x{long}");
    bytes.clear();
    reply::error(&mut bytes, Style::Structured, &request(1), Fault::Io, &long, None);
    assert_eq!(bytes.len(), 20 + 6 + 4095);
}

#[test]
fn no_length_inside_is_trusted() {
    let huge = u32::MAX.to_be_bytes();
    assert_eq!(Choice::decode(&huge), Err(Malformed::Short));
    assert_eq!(Queries::decode(&[&[0; 4], &huge[..]].concat(), 32), Err(Malformed::Long));
    let one = [&[0; 4][..], &[0, 0, 0, 1], &huge].concat();
    assert_eq!(Queries::decode(&one, 32), Err(Malformed::Short));
    assert_eq!(Choice::decode(&[0, 0, 0, 0, 0, 1]), Err(Malformed::Short));
    assert_eq!(Choice::decode(&[0, 0, 0, 0, 0, 0, 9]), Err(Malformed::Trailing));
}

#[test]
fn options_come_back() {
    let choice = Choice { name: "näme", requests: vec![3, 0, 7] };
    assert_eq!(Choice::decode(&choice.encode()), Ok(choice));
    let queries = Queries { name: "", queries: vec!["base:allocation", "x:"] };
    assert_eq!(Queries::decode(&queries.encode(), 2), Ok(queries.clone()));
    assert_eq!(Queries::decode(&queries.encode(), 1), Err(Malformed::Long));
}

#[test]
fn unknown_errors_count_as_invalid() {
    assert_eq!(Fault::from_wire(28), Fault::NoSpace);
    assert_eq!(Fault::from_wire(38), Fault::Invalid);
}
