//! Input from users and other programs: words of the command line, and requests to the control API.
//!
//! The program is no library. Its files that only turn text into values are compiled here by
//! themselves. Promises checked: no panic; accepted input is printed and parses to the same value.

use layout::md::Uuid;
use layout::{Layout, Level};

use crate::{Target, Trail, as_it_is};

#[allow(dead_code)]
#[path = "../../crates/parapet/src/http.rs"]
mod http;
#[allow(dead_code)]
#[path = "../../crates/parapet/src/api/order.rs"]
mod order;
#[allow(dead_code)]
#[path = "../../crates/parapet/src/size.rs"]
mod size;
#[allow(dead_code)]
#[path = "../../crates/parapet/src/written.rs"]
mod written;

/// Text of all kinds.
pub const CONFIG: Target = Target {
    name: "config",
    what: "sizes, names, sockets, signatures, levels, UUIDs, HTTP requests, JSON orders",
    body: config,
    seeds,
    mend: as_it_is,
    words: WORDS,
    // A body of 64 KiB, a few times over.
    memory_bytes: 1 << 20,
    most_bytes: 10 << 10,
};

const WORDS: &[&[u8]] = &[
    b"GET /v1/arrays HTTP/1.1\r\n\r\n",
    b"POST /v1/arrays/tank/fail HTTP/1.1\r\nContent-Length: ",
    b"Content-Length: 65536\r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"\r\n\r\n",
    b"%00",
    b"%2f",
    b"{\"member\":\"",
    b"\"speed\":{\"min\":0,\"max\":18446744073709551615}",
    b"KiB",
    b"1.5G",
    b"18446744073709551615",
    b"0.000000000000000001",
    b"raid10",
    b"near=2",
    b"[::1]:10809",
    b"@0x438",
    "\u{212a}".as_bytes(),
    "\u{0130}".as_bytes(),
];

/// A byte for the kind of text, then the text.
fn config(bytes: &[u8]) -> Trail {
    let mut trail = Trail::new();
    let Some((&kind, bytes)) = bytes.split_first() else { return trail };
    let text = String::from_utf8_lossy(bytes);
    let kind = kind % 8;
    trail.note(kind);
    match kind {
        0 => size(&text, &mut trail),
        1 => name(&text, &mut trail),
        2 => socket(&text, &mut trail),
        3 => signature(&text, &mut trail),
        4 => level(&text, &mut trail),
        5 => uuid(&text, &mut trail),
        6 => request(bytes, &mut trail),
        _ => order(bytes, &mut trail),
    }
    trail
}

fn size(text: &str, trail: &mut Trail) {
    let read = text.parse::<size::Size>();
    trail.note(read.as_ref().map_err(|why| why.len()).is_ok());
    let Ok(size) = read else { return };
    trail.size(size.0);
    assert_eq!(size.0.to_string().parse(), Ok(size), "a number of bytes");
    // Shown with three digits: the parsed value is close.
    for shown in [size.to_string(), size.in_thousands()] {
        let again: Result<size::Size, String> = shown.parse();
        let near = again.is_ok_and(|again| again.0.abs_diff(size.0) <= size.0 / 50);
        assert!(near || size.0 > 15 << 60 || shown.contains('.'), "{} is {shown}", size.0);
    }
}

fn name(text: &str, trail: &mut Trail) {
    let read = written::name(text);
    trail.note(read.is_ok());
    if let Ok(name) = read {
        assert_eq!(name, text);
        assert!(layout::md::Name::new(&name).is_some(), "it fits into a superblock");
        assert!(!name.contains('/') && name != "." && name != "..", "it can be a file's");
    }
}

fn socket(text: &str, trail: &mut Trail) {
    let read = written::socket(text);
    trail.note(read.as_ref().map(Option::is_some).map_err(|_| ()));
    if let Ok(Some(address)) = read {
        assert_eq!(written::socket(&address.to_string()), Ok(Some(address)));
    }
}

fn signature(text: &str, trail: &mut Trail) {
    let read = written::signature(text);
    trail.note(read.is_some());
    if let Some((name, offset)) = read {
        let again = format!("{name}@{offset:#x}");
        assert_eq!(written::signature(&again), Some((name, offset)));
    }
}

/// A level, and behind a space its layout.
fn level(text: &str, trail: &mut Trail) {
    let (first, second) = text.split_once(' ').unwrap_or((text, ""));
    let Ok(level) = first.parse::<Level>() else { return };
    trail.note(level);
    assert_eq!(level.to_string().parse(), Ok(level));
    let Ok(layout) = Layout::parse(level, second) else { return };
    trail.note(layout);
    assert_eq!(layout.level(), level);
    assert_eq!(Layout::parse(level, &layout.to_string()), Ok(layout), "{layout}");
}

fn uuid(text: &str, trail: &mut Trail) {
    let read = Uuid::parse(text);
    trail.note(read.is_some());
    if let Some(uuid) = read {
        assert_eq!(Uuid::parse(&uuid.to_string()), Some(uuid));
        assert_eq!(Uuid::parse(&uuid.rfc().to_string()), Some(uuid));
    }
}

fn request(bytes: &[u8], trail: &mut Trail) {
    let read = http::read(bytes);
    match &read {
        Err(bad) => trail.note(bad),
        Ok(None) => trail.note("more"),
        Ok(Some(request)) => {
            trail.note((request.method, request.path.len().min(6)));
            trail.size(request.body.len() as u64);
            assert!(request.body.len() <= http::BODY_BYTES);
            let path: Vec<&str> = request.path.iter().map(String::as_str).collect();
            let again = http::ask(request.method, &path, &request.body);
            // Its own way to write it may be longer than a head may be.
            if again.len() - request.body.len() < http::HEAD_BYTES {
                assert_eq!(http::read(&again).as_ref(), Ok(&Some(request.clone())));
            }
            // Nothing that is a whole request is also the beginning of another one.
            let longer = [bytes, b"x"].concat();
            assert!(http::read(&longer).is_err(), "one request, and no more");
        }
    }
    if let Some((status, body)) = http::answered(bytes) {
        trail.note("answer");
        trail.size(u64::from(status));
        assert!(body.len() <= bytes.len());
    }
}

fn order(bytes: &[u8], trail: &mut Trail) {
    let read: Result<order::Order, _> = serde_json::from_slice(bytes);
    trail.note(read.as_ref().map_err(serde_json::Error::classify).is_ok());
    let Ok(order) = read else { return };
    trail.note((order.member.is_some(), order.with.is_some(), order.scrub.is_some()));
    trail.note((order.speed.is_some(), order.overwrite.len().min(3)));
    let written = serde_json::to_string(&order).expect("an order is written as JSON");
    let again: order::Order = serde_json::from_str(&written).expect("and read again");
    assert_eq!(serde_json::to_string(&again).ok(), Some(written));
    for text in &order.overwrite {
        signature(text, trail);
    }
}

fn seeds() -> Vec<Vec<u8>> {
    let texts: [(u8, &str); 14] = [
        (0, "64KiB"),
        (0, "1.5 GB"),
        (1, "tank-1"),
        (2, "127.0.0.1:10809"),
        (2, ":10809"),
        (3, "ext4@0x438"),
        (4, "raid5 left-symmetric"),
        (4, "raid10 near=2"),
        (4, "raid3.5 order2"),
        (5, "00112233:44556677:8899aabb:ccddeeff"),
        (6, "GET /v1/arrays/a%20b HTTP/1.1\r\nHost: parapet\r\n\r\n"),
        (6, "POST /v1/arrays/tank/fail HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}"),
        (6, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"),
        (7, "{\"member\":\"/dev/sda\",\"speed\":{\"min\":1,\"max\":null},\"overwrite\":[\"x@1\"]}"),
    ];
    texts.map(|(kind, text)| [&[kind], text.as_bytes()].concat()).into()
}
