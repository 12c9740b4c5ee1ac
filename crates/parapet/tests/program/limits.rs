//! Compares the table of limits with the code and its tests. The program refuses larger values with
//! a usage error before it touches a disk.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;

use layout::private::log::Form;
use layout::{geometry, md, private};
use net::aoe::target::access as aoe_access;
use net::aoe::wire::query as aoe_query;
use net::nbd::limits as nbd;
use net::nbd::wire::MAX_STRING_BYTES;

use crate::actions::{self, PASSWORD, log_in, set_password, with_actions};
use crate::page_tls::{is_closed, is_served, silent, with_tls};
use crate::panel::with_page;
use crate::tls::certificates;
use crate::world::World;

/// Maximum number of threads of a server, as in the program's help.
const MAX_THREADS: u64 = 256;

/// Limits of the copies of overwritten blocks, as in the help of `undestroy`.
const MOST_KEPT: u64 = 64;
const MOST_KEPT_BYTES: u64 = 8 << 30;

/// The bits of md's largest bitmap.
const MOST_BITS: u64 = 8 * (md::bitmap::MOST_SPACE_BYTES - md::bitmap::HEADER_BYTES);

/// Name and value of every limit in `docs/limits.md`, in its order.
#[rustfmt::skip]
const LIMITS: &[(&str, Option<u64>)] = &[
    ("`layout::MAX_SLOTS`", Some(layout::MAX_SLOTS as u64)),
    ("`layout::MAX_SLOTS`", Some(layout::MAX_SLOTS as u64)),
    ("`layout::private::log::Form::Narrow`", Some(Form::Narrow.indices() as u64)),
    ("`layout::private::log::Form::Wide`", Some(Form::Wide.indices() as u64)),
    ("`layout::geometry::MAX_ORDER`", Some(geometry::MAX_ORDER as u64)),
    ("`layout::md::superblock::MAX_DEVICES`", Some(md::superblock::MAX_DEVICES as u64)),
    ("`layout::md::ppl::MOST_SLOTS`", Some(md::ppl::MOST_SLOTS as u64)),
    ("`layout::md::ppl::MOST_ENTRIES`", Some(md::ppl::MOST_ENTRIES as u64)),
    ("`layout::geometry::MIN_CHUNK_BYTES`", Some(geometry::MIN_CHUNK_BYTES)),
    ("`layout::geometry::MAX_CHUNK_BYTES`", Some(geometry::MAX_CHUNK_BYTES)),
    ("`metadata::MOST_BLOCK_BYTES`", Some(metadata::MOST_BLOCK_BYTES as u64)),
    ("`layout::md::bitmap::MOST_SPACE_BYTES`", Some(md::bitmap::MOST_SPACE_BYTES)),
    ("`layout::md::bitmap::MOST_SPACE_BYTES`", Some(MOST_BITS)),
    ("`layout::md::badblocks::MOST_ENTRIES`", Some(md::badblocks::MOST_ENTRIES as u64)),
    ("`layout::private::bad::MOST_RANGES`", Some(private::bad::MOST_RANGES as u64)),
    ("`layout::md::superblock::EVENTS_MOST`", Some(md::superblock::EVENTS_MOST)),
    ("`layout::md::superblock::EVENTS_ROOM`", Some(md::superblock::EVENTS_ROOM)),
    ("`layout::md::NAME_BYTES`", Some(md::NAME_BYTES as u64)),
    ("`layout::md::NAME_BYTES`", Some(md::NAME_BYTES as u64)),
    ("`Assembly::most_shards`", None),
    ("`Assembly::most_shards`", None),
    ("`--threads`", Some(MAX_THREADS)),
    ("`undo::MOST_KEPT`", Some(MOST_KEPT)),
    ("`undo::MOST_KEPT_BYTES`", Some(MOST_KEPT_BYTES)),
    ("`net::nbd::wire::MAX_STRING_BYTES`", Some(MAX_STRING_BYTES as u64)),
    ("`net::nbd::wire::MAX_STRING_BYTES`", Some(MAX_STRING_BYTES as u64)),
    ("`net::nbd::limits::MAX_PAYLOAD`", Some(nbd::MAX_PAYLOAD as u64)),
    ("`net::nbd::limits::MAX_DRAIN`", Some(nbd::MAX_DRAIN)),
    ("`net::nbd::limits::MAX_REQUESTS`", Some(nbd::MAX_REQUESTS as u64)),
    ("`net::nbd::limits::MAX_REQUEST_BYTES`", Some(nbd::MAX_REQUEST_BYTES)),
    ("`net::nbd::limits::MAX_CONNECTIONS`", Some(nbd::MAX_CONNECTIONS as u64)),
    ("`net::nbd::limits::MAX_HANDSHAKES`", Some(nbd::MAX_HANDSHAKES as u64)),
    ("`net::cluster::door::MAX_SESSIONS`", Some(net::cluster::door::MAX_SESSIONS as u64)),
    ("`net::nbd::limits::MAX_HANDSHAKES`", Some(nbd::MAX_HANDSHAKES as u64)),
    ("`net::nbd::limits::MAX_OPTIONS`", Some(nbd::MAX_OPTIONS as u64)),
    ("`net::nbd::limits::MAX_OPTION_BYTES`", Some(nbd::MAX_OPTION_BYTES as u64)),
    ("`net::nbd::limits::MAX_OPTION_DRAIN`", Some(nbd::MAX_OPTION_DRAIN as u64)),
    ("`net::nbd::limits::MAX_QUERIES`", Some(nbd::MAX_QUERIES as u64)),
    ("`net::nbd::limits::MAX_EXTENTS`", Some(nbd::MAX_EXTENTS as u64)),
    ("`net::aoe::target::MAX_FLIGHTS`", Some(net::aoe::target::MAX_FLIGHTS as u64)),
    ("`net::aoe::initiator::MAX_PATHS`", Some(net::aoe::initiator::MAX_PATHS as u64)),
    ("`net::aoe::wire::query::MAX_CONFIG_BYTES`", Some(aoe_query::MAX_CONFIG_BYTES as u64)),
    ("`net::aoe::target::access::MAX_MACS`", Some(aoe_access::MAX_MACS as u64)),
    ("`net::aoe::target::access::MAX_KEYS`", Some(aoe_access::MAX_KEYS as u64)),
    ("`cluster::room::MOST_MARKS`", Some(cluster::room::MOST_MARKS as u64)),
    ("`cluster::room::MOST_STALE`", Some(cluster::room::MOST_STALE as u64)),
    ("`cluster::room::MOST_CLIENTS`", Some(cluster::room::MOST_CLIENTS as u64)),
    ("`cluster::ids::Incarnation::LAST`", Some(cluster::ids::Incarnation::LAST.0 as u64)),
    ("`panel::MOST_CONNECTIONS`", Some(::panel::MOST_CONNECTIONS as u64)),
    ("`panel::MOST_HANDSHAKES`", Some(::panel::MOST_HANDSHAKES as u64)),
    ("`panel::MOST_SESSIONS`", Some(::panel::MOST_SESSIONS as u64)),
    ("`panel::MOST_FAILED_LOGINS`", Some(::panel::MOST_FAILED_LOGINS as u64)),
    ("`panel::MOST_FORM_BYTES`", Some(::panel::MOST_FORM_BYTES as u64)),
    ("`panel::LEAST_PASSWORD_BYTES`", Some(::panel::LEAST_PASSWORD_BYTES as u64)),
    ("`panel::MOST_PASSWORD_BYTES`", Some(::panel::MOST_PASSWORD_BYTES as u64)),
];

/// Public limits invisible to users: they bound one buffer, one unit of md's log, or one verdict
/// over generations.
const INNER: &[&str] = &[
    "BEHIND_MAX",
    "MAX_ADDRESSES",
    "MAX_BACKGROUND",
    "MAX_BUF_BYTES",
    "MAX_HELD_BYTES",
    "MAX_LBA28",
    "MAX_LBA48",
    "MAX_REGISTRATIONS",
    "MAX_SECTOR",
    "MAX_TRANSFER_BYTES",
    "MOST_LOG_BYTES",
    "MOST_PP_BYTES",
];

const TEXT: &str = include_str!("../../../../docs/limits.md");

/// Returns the rows of the table: value, constant, test.
fn rows() -> impl Iterator<Item = (Option<u64>, &'static str, &'static str)> {
    let lines = TEXT.lines().filter_map(|line| line.strip_prefix("| ")?.strip_suffix(" |"));
    let rows = lines.map(|line| line.split(" | ").collect::<Vec<_>>());
    rows.skip(1).map(|cells| {
        let [_, value, _, constant, _, test] = cells[..] else { panic!("six cells: {cells:?}") };
        (value.parse().ok(), constant, test)
    })
}

#[test]
fn the_documented_limits_are_those_of_the_code() {
    let documented: Vec<_> = rows().map(|(value, constant, _)| (constant, value)).collect();
    assert_eq!(documented, LIMITS);
}

/// Every test named in the table exists.
#[test]
fn each_limit_has_its_test() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut files: BTreeMap<&str, String> = BTreeMap::new();
    for (_, constant, test) in rows() {
        let (place, name) = test.trim_matches('`').split_once("::").expect(test);
        let source = files.entry(place).or_insert_with(|| {
            let (owner, file) = place.split_once('/').expect(test);
            let tests = crates.join(owner).join("tests");
            let paths: Vec<_> = match tests.join(file).is_dir() {
                true => ["limits.rs", "transmission.rs"].map(|of| tests.join(file).join(of)).into(),
                false => [tests.join(format!("{file}.rs"))].into(),
            };
            paths.iter().filter_map(|path| std::fs::read_to_string(path).ok()).collect()
        });
        let found = source.contains(&format!("#[test]\nfn {name}()"));
        assert!(found, "{constant}: no test {test}");
    }
}

/// Every public constant named as a limit is in the table.
#[test]
fn each_limit_is_in_the_table() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let owners = ["layout", "log", "io", "metadata", "array", "net", "os", "panel", "parapet"];
    let mut folders: Vec<_> = owners.map(|owner| crates.join(owner).join("src")).into();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let source = std::fs::read_to_string(&path).unwrap();
            let public = source.lines().filter_map(|line| line.trim().strip_prefix("pub const "));
            for name in public.filter_map(|line| Some(line.split_once(':')?.0)) {
                let limit = ["MAX", "MOST", "LIMIT"]
                    .iter()
                    .any(|word| name.split('_').any(|part| part == *word));
                let known = INNER.contains(&name) || TEXT.contains(&format!("::{name}`"));
                let path = path.display();
                assert!(!limit || known, "{name} of {path}: docs/limits.md does not list it");
            }
        }
    }
}

#[test]
fn threads() {
    let world = World::new();
    let members = world.create("0", 2, &[]);
    let names: Vec<&str> = members.iter().map(String::as_str).collect();
    for threads in [MAX_THREADS - 1, MAX_THREADS] {
        let threads = threads.to_string();
        let server = world.serve(&[&["tank", "--threads", &threads], &names[..]].concat());
        world.qemu_io(&["write -P 5 0 1M", "flush", "read -P 5 0 1M"]);
        assert_eq!(server.terminate(), 0, "{threads} threads: {}", world.log());
    }
    let many = (MAX_THREADS + 1).to_string();
    let ran = world.run(&[&["serve", "tank", "--threads", &many], &names[..]].concat());
    assert!(ran.code == 2 && ran.err.contains("257 is not in 1..=256"), "{ran:?}");
}

#[test]
fn kept_copies() {
    let world = World::new();
    // Manifests of earlier operations, older than any clock of today.
    let earlier = |count: u64, bytes: u64| {
        for index in 0..count {
            let folder = world.path(&format!("state/undo/{index}-old"));
            std::fs::create_dir_all(&folder).unwrap();
            let piece = serde_json::json!({
                "disk": "/d", "offset": 0, "bytes": bytes, "file": "0-0x0", "restore": "dd",
            });
            let made = format!("2001-01-01T00:{:02}:{:02}Z", index / 60, index % 60);
            let manifest = serde_json::json!({
                "schema": "parapet/undo/1", "made": made,
                "verb": "create", "array": "old", "pieces": [piece],
            });
            std::fs::write(folder.join("undo.json"), manifest.to_string()).unwrap();
        }
    };
    let kept = || {
        std::fs::write(world.path("one"), vec![7; 16 << 20]).unwrap();
        let flags = ["--level", "1", "--yes", "--overwrite-signature", "data@0x0", "one", "two"];
        world.file("two", 16 << 20);
        let newest = world.json(&[&["create", "tank"], &flags[..]].concat())["undo"].clone();
        assert!(Path::new(newest.as_str().unwrap()).exists(), "the latest copies stay");
        let names = std::fs::read_dir(world.path("state/undo")).unwrap();
        let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let old: Vec<String> = names.filter(|name| name.ends_with("-old")).collect();
        std::fs::remove_dir_all(world.path("state/undo")).unwrap();
        old
    };
    for operations in [MOST_KEPT - 2, MOST_KEPT - 1] {
        earlier(operations, 1);
        assert_eq!(kept().len() as u64, operations, "within the limit");
    }
    earlier(MOST_KEPT, 1);
    let old = kept();
    assert_eq!(old.len() as u64, MOST_KEPT - 1);
    assert!(!old.contains(&"0-old".into()), "the oldest is deleted: {old:?}");
    earlier(2, MOST_KEPT_BYTES / 4);
    assert_eq!(kept().len(), 2, "within the limit");
    earlier(2, MOST_KEPT_BYTES / 2);
    assert_eq!(kept(), ["1-old"], "the oldest is deleted");
}

#[test]
fn names() {
    let world = World::new();
    let create = |name: &str, member: &str| {
        let flags = ["--level", "0", "--new-files", "16M", "--yes"];
        world.run(&[&["create", name], &flags[..], &[member, &format!("{member}b")]].concat())
    };
    for bytes in [md::NAME_BYTES - 1, md::NAME_BYTES] {
        let name = "n".repeat(bytes);
        let member = format!("m{bytes}");
        assert_eq!(create(&name, &member).code, 0, "{bytes} bytes");
        let examined = world.json(&["examine", &member]);
        assert_eq!(examined["disks"][0]["superblocks"][0]["array_name"], name.as_str());
    }
    let ran = create(&"n".repeat(md::NAME_BYTES + 1), "late");
    assert!(ran.code == 2 && ran.err.contains("a name has 1 to 32 characters"), "{ran:?}");
    assert!(!world.path("late").exists(), "nothing is made");
}

#[test]
fn export_names() {
    let world = World::new();
    let members = world.create("0", 2, &[]);
    let names: Vec<&str> = members.iter().map(String::as_str).collect();
    let ran = |bytes: usize| {
        let name = "n".repeat(bytes);
        let server = ["serve", "other", "--export-name", &name];
        world.run(&[&server[..], &names].concat())
    };
    // These values are valid, and no array has this name.
    for bytes in [MAX_STRING_BYTES - 1, MAX_STRING_BYTES] {
        let ran = ran(bytes);
        assert!(ran.code == 5 && ran.err.contains("called other"), "{bytes} bytes: {ran:?}");
    }
    let ran = ran(MAX_STRING_BYTES + 1);
    assert!(ran.code == 2 && ran.err.contains("at most 4096"), "{}", ran.err);
}

#[test]
fn page_connections() {
    let world = World::new();
    let members = world.create("1", 2, &[]);
    let (server, page) = with_page(&world, &members, &[]);
    // Each stays open after its answer.
    let open = || {
        let mut stream = TcpStream::connect(&page).unwrap();
        write!(stream, "GET /icon.svg HTTP/1.1\r\nHost: {page}\r\n\r\n").unwrap();
        stream
    };
    let answered = |stream: &mut TcpStream| {
        let mut first = [0; 12];
        stream.read_exact(&mut first).unwrap();
        assert_eq!(&first, b"HTTP/1.1 200");
    };
    let mut streams: Vec<TcpStream> = (0..::panel::MOST_CONNECTIONS).map(|_| open()).collect();
    streams.iter_mut().for_each(answered);
    let mut waits = open();
    waits.set_nonblocking(true).unwrap();
    // The control API is not disturbed, and the further connection has no answer meanwhile.
    assert_eq!(world.order(&["status", "tank"])["state"], "healthy");
    let kind = waits.read(&mut [0; 12]).unwrap_err().kind();
    assert_eq!(kind, std::io::ErrorKind::WouldBlock);
    waits.set_nonblocking(false).unwrap();
    drop(streams.pop());
    answered(&mut waits);
    assert_eq!(server.terminate(), 0);
}

#[test]
fn page_handshakes() {
    let world = World::new();
    certificates(&world);
    let members = world.create("1", 2, &[]);
    let (server, port) = with_tls(&world, &members, &["--page-tls-ca", "pki/ca-cert.pem"]);
    let most = ::panel::MOST_HANDSHAKES;
    let mut streams: Vec<TcpStream> = (0..most).map(|_| silent(&port)).collect();
    assert!(!is_closed(&mut streams[0], false));
    streams.push(silent(&port));
    assert!(is_closed(&mut streams[0], true));
    // One more takes the place of the next.
    assert!(is_served(&world, &port));
    assert!(is_closed(&mut streams[1], true));
    assert!(streams[2..].iter_mut().all(|stream| !is_closed(stream, false)));
    assert_eq!(server.terminate(), 0);
}

#[test]
fn page_logins() {
    let world = World::new();
    let members = world.create("1", 2, &[]);
    let (server, page) = with_actions(&world, &members, &[]);
    let cookie = || log_in(&page, PASSWORD).cookie().unwrap().to_owned();
    let is_in = |cookie: &str| actions::get(&page, "/", cookie).status == 200;
    let first = cookie();
    (1..::panel::MOST_SESSIONS).for_each(|_| drop(cookie()));
    assert!(is_in(&first));
    let last = cookie();
    assert!(!is_in(&first) && is_in(&last));
    assert_eq!(server.terminate(), 0);
}

#[test]
fn page_failed_logins() {
    let world = World::new();
    let members = world.create("1", 2, &[]);
    let (server, page) = with_actions(&world, &members, &[]);
    let fail = |count: usize| {
        (0..count).for_each(|_| assert_eq!(log_in(&page, "wrong").status, 403));
    };
    fail(::panel::MOST_FAILED_LOGINS - 1);
    // A good one forgets the failed ones.
    assert_eq!(log_in(&page, PASSWORD).status, 303);
    fail(::panel::MOST_FAILED_LOGINS);
    // The password is not even tried.
    let answer = log_in(&page, PASSWORD);
    assert!(answer.status == 429 && answer.body.contains("wait a minute"), "{answer:?}");
    assert_eq!(server.terminate(), 0);
}

#[test]
fn page_forms() {
    let world = World::new();
    let members = world.create("1", 2, &[]);
    let (server, page) = with_actions(&world, &members, &[]);
    let most = ::panel::MOST_FORM_BYTES;
    for (bytes, status) in [(most - 1, 401), (most, 401), (most + 1, 413)] {
        let answer = actions::post(&page, "/act", "", &"x".repeat(bytes));
        assert_eq!(answer.status, status, "{bytes}");
    }
    assert_eq!(server.terminate(), 0);
}

#[test]
fn page_passwords() {
    let world = World::new();
    let (least, most) = (::panel::LEAST_PASSWORD_BYTES, ::panel::MOST_PASSWORD_BYTES);
    for (bytes, code) in [(least - 1, 1), (least, 0), (most, 0), (most + 1, 1)] {
        assert_eq!(set_password(&world, "page.password", &"x".repeat(bytes)), code, "{bytes}");
    }
}
