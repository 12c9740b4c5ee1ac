//! Handshakes, byte by byte. The bytes are written out here and not taken from `wire`.

use std::rc::Rc;
use std::time::Duration;

use io::{Limits, MemDisk};
use net::nbd::{Catalogue, Export};

use crate::world::{World, hex, pool, small_world};

const GREETING: &str = "4e42444d41474943 49484156454f5054 0003";
const OPTION: &str = "49484156454f5054";
const REPLY: &str = "0003e889045565a9";

/// Flags of a plain writable export: HAS_FLAGS FLUSH FUA TRIM ZEROES MULTI CACHE FAST_ZERO.
const FLAGS: &str = "0d6d";

/// Runs a transcript: lines "C hex" are sent, and "S hex" must come back.
fn transcript(world: &World, lines: &[(char, String)]) {
    let peer = world.connect();
    for (index, (who, bytes)) in lines.iter().enumerate() {
        match who {
            'C' => peer.push(&hex(bytes)),
            _ => {
                world.settle();
                assert_eq!(peer.pull(), hex(bytes), "line {index}");
            }
        }
    }
    world.settle();
    assert_eq!(peer.pull(), b"", "nothing more");
}

fn line(who: char, parts: &[&str]) -> (char, String) {
    (who, parts.concat())
}

/// An answer without data, or with a message of these bytes.
fn said(option: &str, kind: &str, message: &str) -> String {
    let message: String = message.bytes().map(|byte| format!("{byte:02x}")).collect();
    format!("{REPLY} {option} {kind} {:08x} {message}", message.len() / 2)
}

#[test]
fn go_with_all_information() {
    let disk = Rc::new(MemDisk::with_limits(Limits { optimal: 65536, ..Limits::plain(1 << 20) }));
    let export = Export::new("disk", disk, pool()).described("hi");
    let world = World::new(Rc::new(Catalogue::new([Rc::new(export)])));
    transcript(
        &world,
        &[
            line('S', &[GREETING]),
            line('C', &["00000003"]),
            // GO, 18 bytes: name "disk", four requests: size, name, description, block size.
            line('C', &[OPTION, "00000007 00000012 00000004 6469736b 0004 0000 0001 0002 0003"]),
            line(
                'S',
                &[
                    REPLY,
                    "00000007 00000003 0000000c 0000 0000000000100000",
                    FLAGS,
                    REPLY,
                    "00000007 00000003 00000006 0001 6469736b",
                    REPLY,
                    "00000007 00000003 00000004 0002 6869",
                    REPLY,
                    "00000007 00000003 0000000e 0003 00000200 00010000 02000000",
                    REPLY,
                    "00000007 00000001 00000000",
                ],
            ),
            // READ of 4 bytes at 0: it asked for block sizes, so EINVAL. Then DISC.
            line('C', &["25609513 0000 0000 1122334455667788 0000000000000000 00000004"]),
            line('S', &["67446698 00000016 1122334455667788"]),
            line('C', &["25609513 0000 0002 0000000000000000 0000000000000000 00000000"]),
        ],
    );
    assert_eq!(world.ending(), "Finished");
}

#[test]
fn the_greeting_stands_alone_until_the_deadline() {
    let world = small_world();
    let peer = world.connect();
    world.settle();
    assert_eq!(peer.pull(), hex(GREETING));
    world.clock.pass(Duration::from_millis(9_999));
    world.settle();
    assert!(!peer.is_closed());
    world.clock.pass(Duration::from_millis(1));
    world.settle();
    assert!(peer.is_closed());
    assert_eq!(world.ending(), "TooSlow");
}

#[test]
fn unknown_options_are_answered_and_abort_is_too() {
    let world = small_world();
    transcript(
        &world,
        &[
            line('S', &[GREETING]),
            line('C', &["00000003"]),
            line('C', &[OPTION, "00001234 00000003 aabbcc"]),
            line('S', &[&said("00001234", "80000001", "unknown option")]),
            line('C', &[OPTION, "00000002 00000000"]),
            line('S', &[&said("00000002", "00000001", "")]),
        ],
    );
    assert_eq!(world.ending(), "Finished");
}
