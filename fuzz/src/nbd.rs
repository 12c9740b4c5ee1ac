//! NBD: our server with any client, our client with any server.
//!
//! Everything runs in one thread over a pipe in memory, with a clock that the body advances.
//! Promises checked: no panic; the server's messages parse, and answer requests; a connection ends
//! after the other side has gone; every operation of a client gets one answer.

use crate::Target;

mod client;
mod pipe;
mod server;
mod world;

/// The server before transmission.
pub const NBD_HANDSHAKE: Target = Target {
    name: "nbd_handshake",
    what: "server: greeting, options, TLS; any bytes in any pieces",
    body: server::handshake,
    seeds: server::handshakes,
    words: OPTION_WORDS,
    ..TARGET
};

/// The server after the handshake.
pub const NBD_TRANSMISSION: Target = Target {
    name: "nbd_transmission",
    what: "server: any bytes after a negotiated handshake, in all three styles",
    body: server::transmission,
    seeds: server::transmissions,
    words: REQUEST_WORDS,
    ..TARGET
};

/// The client.
pub const NBD_CLIENT: Target = Target {
    name: "nbd_client",
    what: "client: any replies, to the handshake or to operations under way",
    body: client::client,
    seeds: client::conversations,
    words: REPLY_WORDS,
    ..TARGET
};

/// The memory limit of one connection in limits.rs, one request's bytes, and a little.
const MEMORY_BYTES: usize = (64 + 32 + 8) << 20;

const TARGET: Target = Target {
    name: "",
    what: "",
    body: |_| crate::Trail::new(),
    seeds: Vec::new,
    mend: crate::as_it_is,
    words: &[],
    memory_bytes: MEMORY_BYTES,
    most_bytes: 4096,
};

const OPTION_WORDS: &[&[u8]] = &[
    b"IHAVEOPT",
    b"IHAVEOPT\0\0\0\x01",
    b"IHAVEOPT\0\0\0\x03",
    b"IHAVEOPT\0\0\0\x05",
    b"IHAVEOPT\0\0\0\x06",
    b"IHAVEOPT\0\0\0\x07",
    b"IHAVEOPT\0\0\0\x0a",
    b"IHAVEOPT\0\0\0\x0b",
    b"\0\0\0\x04disk",
    b"base:allocation",
    b"base:",
];

const REQUEST_WORDS: &[&[u8]] = &[
    &[0x25, 0x60, 0x95, 0x13],
    &[0x25, 0x60, 0x95, 0x13, 0, 0, 0, 0],
    &[0x25, 0x60, 0x95, 0x13, 0, 0, 0, 1],
    &[0x25, 0x60, 0x95, 0x13, 0, 0, 0, 3],
    &[0x25, 0x60, 0x95, 0x13, 0, 0, 0, 6],
    &[0x25, 0x60, 0x95, 0x13, 0, 0, 0, 7],
    &[0x21, 0xe4, 0x1c, 0x71],
    &[0x21, 0xe4, 0x1c, 0x71, 0, 0x20, 0, 7],
    &[0x21, 0xe4, 0x1c, 0x71, 0, 0, 0, 1],
];

const REPLY_WORDS: &[&[u8]] = &[
    &[0x67, 0x44, 0x66, 0x98],
    &[0x66, 0x8e, 0x33, 0xef, 0, 1, 0, 0],
    &[0x66, 0x8e, 0x33, 0xef, 0, 1, 0, 1],
    &[0x66, 0x8e, 0x33, 0xef, 0, 1, 0, 5],
    &[0x66, 0x8e, 0x33, 0xef, 0, 1, 0x80, 1],
    &[0x6e, 0x8a, 0x27, 0x8c, 0, 1, 0, 1],
    &[0x6e, 0x8a, 0x27, 0x8c, 0, 1, 0, 6],
    &[0x00, 0x03, 0xe8, 0x89, 0x04, 0x55, 0x65, 0xa9],
    b"NBDMAGICIHAVEOPT\0\x03",
];
