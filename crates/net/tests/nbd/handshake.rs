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
                world.run_until_idle();
                assert_eq!(peer.pull(), hex(bytes), "line {index}");
            }
        }
    }
    world.run_until_idle();
    assert_eq!(peer.pull(), b"", "nothing more");
}

fn line(who: char, parts: &[&str]) -> (char, String) {
    (who, parts.concat())
}

/// An answer without data, or with a message of these bytes.
fn reply_frame(option: &str, kind: &str, message: &str) -> String {
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
    world.run_until_idle();
    assert_eq!(peer.pull(), hex(GREETING));
    world.clock.pass(Duration::from_millis(9_999));
    world.run_until_idle();
    assert!(!peer.is_closed());
    world.clock.pass(Duration::from_millis(1));
    world.run_until_idle();
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
            line('S', &[&reply_frame("00001234", "80000001", "unknown option")]),
            line('C', &[OPTION, "00000002 00000000"]),
            line('S', &[&reply_frame("00000002", "00000001", "")]),
        ],
    );
    assert_eq!(world.ending(), "Finished");
}

const ASKED_FOR_INFO: &str = "49484156454f5054 00000006 0000000a 00000004 6469736b 0000";

#[test]
fn info_answers_and_leaves_options_open() {
    transcript(
        &small_world(),
        &[
            line('S', &[GREETING]),
            line('C', &["00000003"]),
            line('C', &[ASKED_FOR_INFO]),
            line(
                'S',
                &[
                    REPLY,
                    "00000006 00000003 0000000c 0000 0000000000100000",
                    FLAGS,
                    REPLY,
                    "00000006 00000001 00000000",
                ],
            ),
            // An export that is not there.
            line('C', &[OPTION, "00000006 00000009 00000003 6e6f70 0000"]),
            line('S', &[&reply_frame("00000006", "80000006", "no such export")]),
            // The default export; then the name 1 byte longer than the data.
            line('C', &[OPTION, "00000006 00000006 00000000 0000"]),
            line(
                'S',
                &[
                    REPLY,
                    "00000006 00000003 0000000c 0000 0000000000100000",
                    FLAGS,
                    REPLY,
                    "00000006 00000001 00000000",
                ],
            ),
            line('C', &[OPTION, "00000006 0000000a 00000007 6469736b 0000"]),
            line('S', &[&reply_frame("00000006", "80000003", "the option's data is malformed")]),
        ],
    );
}

#[test]
fn list_names_exports_and_takes_no_data() {
    let disk =
        |name: &str| Rc::new(Export::new(name, Rc::new(MemDisk::new(512)), pool()).described("d"));
    let world = World::new(Rc::new(Catalogue::new([disk("a"), disk("bc")])));
    transcript(
        &world,
        &[
            line('S', &[GREETING]),
            line('C', &["00000003"]),
            line('C', &[OPTION, "00000003 00000000"]),
            line(
                'S',
                &[
                    REPLY,
                    "00000003 00000002 00000006 00000001 61 64",
                    REPLY,
                    "00000003 00000002 00000007 00000002 6263 64",
                    REPLY,
                    "00000003 00000001 00000000",
                ],
            ),
            line('C', &[OPTION, "00000003 00000001 00"]),
            line('S', &[&reply_frame("00000003", "80000003", "LIST takes no data")]),
        ],
    );
}

#[test]
fn export_name_with_and_without_zeroes() {
    let answer = ["0000000000100000", FLAGS].concat();
    for (flags, zeroes) in [("00000001", 124), ("00000003", 0), ("00000000", 124)] {
        transcript(
            &small_world(),
            &[
                line('S', &[GREETING]),
                line('C', &[flags]),
                line('C', &[OPTION, "00000001 00000004 6469736b"]),
                line('S', &[&answer, &"00".repeat(zeroes)]),
                // FLUSH.
                line('C', &["25609513 0000 0003 0000000000000007 0000000000000000 00000000"]),
                line('S', &["67446698 00000000 0000000000000007"]),
            ],
        );
    }
}

#[test]
fn structured_replies_then_extended_headers() {
    transcript(
        &small_world(),
        &[
            line('S', &[GREETING]),
            line('C', &["00000003"]),
            line('C', &[OPTION, "00000008 00000001 00"]),
            line('S', &[&reply_frame("00000008", "80000003", "this option takes no data")]),
            line('C', &[OPTION, "00000008 00000000"]),
            line('S', &[REPLY, "00000008 00000001 00000000"]),
            line('C', &[OPTION, "0000000b 00000000"]),
            line('S', &[REPLY, "0000000b 00000001 00000000"]),
            line('C', &[OPTION, "00000008 00000000"]),
            line('S', &[&reply_frame("00000008", "8000000a", "extended headers are in use")]),
            line('C', &[OPTION, "00000007 0000000a 00000004 6469736b 0000"]),
            // DF is offered now; there is no context, so no payload for BLOCK_STATUS.
            line(
                'S',
                &[
                    REPLY,
                    "00000007 00000003 0000000c 0000 0000000000100000 0ded",
                    REPLY,
                    "00000007 00000001 00000000",
                ],
            ),
            // READ of 2 bytes at 16.
            line('C', &["21e41c71 0000 0000 00000000000000aa 0000000000000010 0000000000000002"]),
            line(
                'S',
                &[
                    "6e8a278c 0001 0001 00000000000000aa 0000000000000010 000000000000000a",
                    "0000000000000010 0000",
                ],
            ),
        ],
    );
}

#[test]
fn meta_contexts_are_listed_chosen_and_replaced() {
    // Lengths and names: "disk", "base:allocation", "base:", "x-parapet:", "base:nope".
    let (name, allocation) = ("00000004 6469736b", "0000000f 626173653a616c6c6f636174696f6e");
    let (base, own) = ("00000005 626173653a", "0000000a 782d706172617065743a");
    let nope = "00000009 626173653a6e6f7065";
    let report = |option: &str, id: &str| {
        [REPLY, option, "00000004 00000013", id, "626173653a616c6c6f636174696f6e"].concat()
    };
    let (list, set) = ("00000009", "0000000a");
    transcript(
        &small_world(),
        &[
            line('S', &[GREETING]),
            line('C', &["00000003"]),
            line('C', &[OPTION, list, "0000000c", name, "00000000"]),
            line(
                'S',
                &[&reply_frame(
                    list,
                    "80000003",
                    "metadata needs structured replies or extended headers",
                )],
            ),
            line('C', &[OPTION, "00000008 00000000"]),
            line('S', &[REPLY, "00000008 00000001 00000000"]),
            // LIST: all, by namespace, by a namespace that has none.
            line('C', &[OPTION, list, "0000000c", name, "00000000"]),
            line('S', &[&report(list, "00000000"), REPLY, list, "00000001 00000000"]),
            line('C', &[OPTION, list, "00000015", name, "00000001", base]),
            line('S', &[&report(list, "00000000"), REPLY, list, "00000001 00000000"]),
            line('C', &[OPTION, list, "0000001a", name, "00000001", own]),
            line('S', &[REPLY, list, "00000001 00000000"]),
            // SET: a pattern chooses nothing; twice the same is once.
            line('C', &[OPTION, set, "00000015", name, "00000001", base]),
            line('S', &[REPLY, set, "00000001 00000000"]),
            line('C', &[OPTION, set, "0000003f", name, "00000003", allocation, allocation, nope]),
            line('S', &[&report(set, "00000001"), REPLY, set, "00000001 00000000"]),
            // A SET that fails takes the earlier choice with it: BLOCK_STATUS is EINVAL.
            line('C', &[OPTION, set, "0000000c", "00000004 6e6f7065", "00000000"]),
            line('S', &[&reply_frame(set, "80000006", "no such export")]),
            line('C', &[OPTION, "00000007 0000000a 00000004 6469736b 0000"]),
            line(
                'S',
                &[
                    REPLY,
                    "00000007 00000003 0000000c 0000 0000000000100000 0ded",
                    REPLY,
                    "00000007 00000001 00000000",
                ],
            ),
            line('C', &["25609513 0000 0007 0000000000000001 0000000000000000 00001000"]),
            line(
                'S',
                &[
                    "668e33ef 0001 8001 0000000000000001 00000034 00000016 002e",
                    &"no metadata context was chosen for this export"
                        .bytes()
                        .map(|byte| format!("{byte:02x}"))
                        .collect::<String>(),
                ],
            ),
        ],
    );
}

#[test]
fn starttls_is_refused_where_tls_is_off() {
    transcript(
        &small_world(),
        &[
            line('S', &[GREETING]),
            line('C', &["00000003"]),
            line('C', &[OPTION, "00000005 00000000"]),
            line('S', &[&reply_frame("00000005", "80000002", "TLS is off")]),
            line('C', &[OPTION, "00000005 00000001 00"]),
            line('S', &[&reply_frame("00000005", "80000003", "STARTTLS takes no data")]),
        ],
    );
}
