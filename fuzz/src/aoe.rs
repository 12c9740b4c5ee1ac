//! AoE: our target with any clients, our initiator with any target.
//!
//! An input is a list of steps: frames, good or spoilt, answers of the disk, changes of the links,
//! and time. Everything runs in one thread on a wire in memory.

use std::future::poll_fn;
use std::task::Poll;

use io::tasks::complete;
use io::{Frame, Link, Mac, MemLink};
use net::aoe::Address;
use net::aoe::wire::{HEADER_BYTES, Header, VERSION};

use crate::Target;
use crate::choice::Choices;

mod initiator;
mod target;

/// The target.
pub const AOE_TARGET: Target = Target {
    name: "aoe_target",
    what: "target: frames of any clients, good and spoilt, in any order",
    body: target::target,
    seeds: target::seeds,
    ..TARGET
};

/// The initiator.
pub const AOE_INITIATOR: Target = Target {
    name: "aoe_initiator",
    what: "initiator: frames of any target, to operations under way",
    body: initiator::initiator,
    seeds: initiator::seeds,
    ..TARGET
};

/// The target's queue and history of one LUN, one input's frames, and a little.
const MEMORY_BYTES: usize = 24 << 20;

const TARGET: Target = Target {
    name: "",
    what: "",
    body: |_| crate::Trail::new(),
    seeds: Vec::new,
    mend: crate::as_it_is,
    words: &[&[0x88, 0xa2], &[0x88, 0xa2, 0x10], &[0x88, 0xa2, 0x18], &[0xff; 6]],
    memory_bytes: MEMORY_BYTES,
    most_bytes: 4096,
};

/// The target's address.
const LUN: Address = Address { shelf: 1, slot: 0 };
/// The MTUs of links.
const MTUS: [u32; 4] = [1500, 9000, 576, 100];

/// All frames that have arrived at a port.
fn inbox(link: &MemLink) -> Vec<Frame> {
    let mut frames = Vec::new();
    complete(poll_fn(|cx| {
        while link.poll_receive(cx, &mut frames).is_ready() {}
        Poll::Ready(())
    }));
    frames
}

/// The header of a request to the target.
fn request(source: Mac, destination: Mac, command: u8, tag: u32) -> Header {
    Header {
        destination,
        source,
        version: VERSION,
        response: false,
        error: None,
        address: LUN,
        command,
        tag,
    }
}

/// A frame of this header, and of as many chosen bytes as are chosen; some bytes are spoilt.
fn chosen_frame(header: &Header, choices: &mut Choices<'_>) -> Vec<u8> {
    let mut bytes = vec![0; HEADER_BYTES];
    header.put(&mut bytes);
    let len = choices.byte();
    bytes.extend((0..len).map(|_| choices.byte()));
    // What follows is data, of one value.
    let sectors = choices.below(20);
    let value = choices.byte();
    bytes.resize(bytes.len() + sectors * 512, value);
    for _ in 0..choices.below(4) {
        let at = usize::from(choices.byte()) % bytes.len();
        bytes[at] = choices.byte();
    }
    bytes
}

/// The choices that [`chosen_frame`] makes of this argument.
fn put_frame(argument: &[u8], sectors: u8, value: u8, into: &mut Vec<u8>) {
    into.push(argument.len() as u8);
    into.extend(argument);
    into.extend([sectors, value, 0]);
}
