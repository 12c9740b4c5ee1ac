//! Any client of our server.

use std::time::Duration;

use net::nbd::limits::HANDSHAKE_TIME;
use net::nbd::wire::reply::{Form, ReplyHeader};
use net::nbd::wire::{
    AnswerHeader, Choice, OPTION_REPLY_HEADER_BYTES, OPTION_REPLY_MAGIC, Queries, Reader, Request,
    Style, command, command_flag, info, option, put_option,
};

use super::pipe::End;
use super::world::{Setup, World};
use crate::Trail;

/// Sizes of the pieces in which bytes arrive.
const BITES: [usize; 4] = [usize::MAX, 1, 7, 4096];

/// A byte for the setup; then the client's bytes.
pub(super) fn handshake(bytes: &[u8]) -> Trail {
    let mut trail = Trail::new();
    let Some((&setup, sent)) = bytes.split_first() else { return trail };
    let world = World::new(Setup { tls: setup & 1 != 0, ..Setup::default() });
    let peer = world.connect(BITES[usize::from(setup >> 1 & 3)]);
    let mut said = Vec::new();
    world.run_until_idle(&peer, &mut said);
    assert_eq!(said.len(), 18, "the greeting");
    said.clear();
    // Half first: it must not depend on the missing half.
    let (first, second) = sent.split_at(if setup & 8 != 0 { sent.len() / 2 } else { 0 });
    for part in [first, second] {
        peer.push(part);
        world.run_until_idle(&peer, &mut said);
    }
    read_answers(&said, sent, &mut trail);
    trail.note(world.ending());
    if setup & 16 != 0 {
        world.clock.pass(HANDSHAKE_TIME + Duration::from_secs(1));
        world.run_until_idle(&peer, &mut said);
        trail.note(world.ending());
    }
    world.hang_up(peer);
    trail
}

/// Every answer can be taken apart, and belongs to an option that was sent.
fn read_answers(mut said: &[u8], sent: &[u8], trail: &mut Trail) {
    while said.starts_with(&OPTION_REPLY_MAGIC.to_be_bytes()) {
        let Some((header, rest)) = said.split_first_chunk::<OPTION_REPLY_HEADER_BYTES>() else {
            panic!("an answer that ends within its header");
        };
        let header = AnswerHeader::decode(header).expect("its magic was seen");
        let asked = [&b"IHAVEOPT"[..], &header.option.to_be_bytes()].concat();
        let known = sent.windows(asked.len()).any(|window| window == asked);
        assert!(known, "an answer to option {}, which nobody sent", header.option);
        trail.note((header.option.min(12), header.kind));
        let length = header.length as usize;
        assert!(length <= rest.len(), "an answer that ends within its data");
        said = &rest[length..];
    }
}

pub(super) fn handshakes() -> Vec<Vec<u8>> {
    let go = |name: &str| Choice { name, requests: vec![info::BLOCK_SIZE, info::NAME] }.encode();
    let contexts = |query| Queries { name: "disk", queries: vec![query] }.encode();
    let options: [&[(u32, Vec<u8>)]; 7] = [
        &[(option::GO, go("disk"))],
        &[(option::LIST, Vec::new()), (option::INFO, go("")), (option::ABORT, Vec::new())],
        &[(option::EXPORT_NAME, b"disk".to_vec())],
        &[
            (option::STRUCTURED_REPLY, Vec::new()),
            (option::LIST_META_CONTEXT, contexts("base:")),
            (option::SET_META_CONTEXT, contexts("base:allocation")),
            (option::GO, go("disk")),
        ],
        &[(option::EXTENDED_HEADERS, Vec::new()), (option::GO, go("other"))],
        &[(option::STARTTLS, Vec::new()), (option::GO, go("disk"))],
        &[(option::GO, go("nothing")), (99, b"what".to_vec()), (option::STARTTLS, vec![1])],
    ];
    let seed = |(number, options): (usize, &&[(u32, Vec<u8>)])| {
        let tls = u8::from(options[0].0 == option::STARTTLS);
        let mut bytes = vec![tls | (number as u8) << 1 & 0x1e];
        bytes.extend(3_u32.to_be_bytes());
        options.iter().for_each(|(option, data)| put_option(&mut bytes, *option, data));
        bytes
    };
    options.iter().enumerate().map(seed).collect()
}

/// A byte for the style, one for the setup; then the client's bytes after its handshake.
pub(super) fn transmission(bytes: &[u8]) -> Trail {
    let mut trail = Trail::new();
    let [style, setup, sent @ ..] = bytes else { return trail };
    let world = World::new(Setup {
        tls: false,
        read_only: setup & 1 != 0,
        bytewise: setup & 2 != 0,
        large_blocks: setup & 4 != 0,
    });
    let peer = world.connect(BITES[usize::from(setup >> 3 & 3)]);
    let mut said = Vec::new();
    let style = negotiate(&world, &peer, *style);
    let (first, second) = sent.split_at(if setup & 32 != 0 { sent.len() / 2 } else { 0 });
    for part in [first, second] {
        peer.push(part);
        world.run_until_idle(&peer, &mut said);
    }
    read_replies(&said, sent, style, &mut trail);
    trail.note(world.ending());
    world.hang_up(peer);
    trail
}

/// Into transmission, in one of the styles, with or without contexts and block sizes.
fn negotiate(world: &World, peer: &End, choice: u8) -> Style {
    let style = [Style::Simple, Style::Structured, Style::Extended][usize::from(choice) % 3];
    let mut bytes = 3_u32.to_be_bytes().to_vec();
    match style {
        Style::Simple => {}
        Style::Structured => put_option(&mut bytes, option::STRUCTURED_REPLY, &[]),
        Style::Extended => put_option(&mut bytes, option::EXTENDED_HEADERS, &[]),
    }
    if choice & 64 == 0 && style != Style::Simple {
        let queries = Queries { name: "disk", queries: vec!["base:allocation"] };
        put_option(&mut bytes, option::SET_META_CONTEXT, &queries.encode());
    }
    let requests = if choice & 128 == 0 { vec![info::BLOCK_SIZE] } else { Vec::new() };
    put_option(&mut bytes, option::GO, &Choice { name: "disk", requests }.encode());
    peer.push(&bytes);
    let mut said = Vec::new();
    world.run_until_idle(peer, &mut said);
    assert!(world.ending().is_none() && said.len() > 38, "a good handshake fails");
    style
}

/// Every reply parses and has a cookie that was sent; none ends twice. Simple replies do not carry
/// their length, so only the first is checked.
fn read_replies(mut said: &[u8], sent: &[u8], style: Style, trail: &mut Trail) {
    let magic: [u8; 4] = match style {
        Style::Extended => 0x21e4_1c71_u32.to_be_bytes(),
        _ => 0x2560_9513_u32.to_be_bytes(),
    };
    let starts = sent.windows(4).enumerate().filter(|(_, window)| *window == magic);
    let header = Request::header_bytes(style);
    let asked: Vec<Request> = starts
        .filter_map(|(at, _)| sent.get(at..at + header))
        .filter_map(|bytes| Request::decode(bytes, style).ok())
        .collect();
    let mut ended = 0;
    while !said.is_empty() {
        let reply = ReplyHeader::decode(said, style).expect("a reply of this style");
        let (reply, length) = reply.expect("a whole header");
        let of = asked.iter().find(|request| request.cookie == reply.cookie);
        let of = of.expect("an answer to a request that nobody sent");
        said = &said[length..];
        match reply.form {
            Form::Simple { error } => {
                trail.note((of.command.min(8), error));
                return;
            }
            Form::Chunk { done, kind, length } => {
                trail.note((of.command.min(8), kind, done, fault(said, kind)));
                ended += usize::from(done);
                said = &said[usize::try_from(length).expect("a short chunk")..];
            }
        }
    }
    assert!(ended <= asked.len(), "more replies than requests");
}

/// The error number of an error chunk.
fn fault(payload: &[u8], kind: u16) -> Option<u32> {
    (kind >= 0x8000).then(|| Reader::new(payload).u32().ok()).flatten()
}

pub(super) fn transmissions() -> Vec<Vec<u8>> {
    let request = |command, flags, offset, length| Request {
        flags,
        command,
        cookie: 0x5eed_0000 | u64::from(command),
        offset,
        length,
    };
    let plain = [
        request(command::WRITE, 0, 512, 1024),
        request(command::READ, 0, 0, 4096),
        request(command::WRITE_ZEROES, command_flag::FUA, 0, 8192),
        request(command::TRIM, 0, 4096, 4096),
        request(command::FLUSH, 0, 0, 0),
        request(command::CACHE, 0, 0, 512),
        request(command::BLOCK_STATUS, 0, 0, 1 << 20),
        request(command::READ, 0, 1 << 20, 1),
        request(command::DISCONNECT, 0, 0, 0),
    ];
    let odd = [
        request(command::WRITE, command_flag::FUA, 3, 700),
        request(command::READ, 0, 1, 701),
        request(command::WRITE_ZEROES, command_flag::NO_HOLE, 5, 5000),
        request(command::BLOCK_STATUS, command_flag::REQUEST_ONE, 1, 9),
        request(77, 0, 0, 0),
    ];
    let mut seeds = Vec::new();
    for style in [Style::Simple, Style::Structured, Style::Extended] {
        for (requests, setup) in [(&plain[..], 0), (&odd[..], 2 | 8), (&plain[..], 1 | 4 | 32)] {
            let mut bytes = vec![style as u8, setup];
            for request in requests {
                request.encode(style, &mut bytes);
                if request.command == command::WRITE {
                    bytes.extend((0..request.length).map(|byte| byte as u8));
                }
            }
            seeds.push(bytes);
        }
    }
    let mut bytes = vec![2, 0];
    let chosen = request(command::BLOCK_STATUS, command_flag::PAYLOAD_LENGTH, 0, 12);
    chosen.encode(Style::Extended, &mut bytes);
    bytes.extend([0, 0, 0, 0, 0, 0, 16, 0, 0, 0, 0, 1]);
    seeds.push(bytes);
    seeds
}
