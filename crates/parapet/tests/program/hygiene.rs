//! Rules for every verb, for any wrong command line and any damaged disk.

use serde_json::Value;

use crate::world::World;

/// For each verb, the remaining arguments of a complete command line.
const VERBS: &[(&str, &[&str])] = &[
    ("quickstart", &[]),
    ("create", &["tank", "--level", "5", "DISK"]),
    ("examine", &["DISK"]),
    ("assemble", &["tank", "DISK"]),
    ("serve", &["tank", "DISK"]),
    ("serve-disk", &["DISK", "--listen", "unix:x.sock"]),
    ("cluster", &["status", "DISK"]),
    ("list", &[]),
    ("status", &["tank"]),
    ("when", &["tank"]),
    ("fail", &["tank", "0"]),
    ("remove", &["tank", "0"]),
    ("add", &["tank", "DISK"]),
    ("re-add", &["tank", "DISK"]),
    ("replace", &["tank", "0", "DISK"]),
    ("scrub", &["tank"]),
    ("clear", &["tank"]),
    ("speed", &["tank"]),
    ("wait", &["tank"]),
    ("health", &["tank"]),
    ("jobs", &["tank"]),
    ("lab", &["disks"]),
    ("plan", &["4xhd501lj", "--no-speeds"]),
    ("stop", &["tank"]),
    ("destroy", &["tank", "DISK"]),
    ("completions", &["bash"]),
    ("man", &["DIR"]),
    ("schema", &[]),
];

/// Verbs that open the named disks.
const OPENING: &[&str] = &["create", "examine", "assemble", "serve", "serve-disk", "destroy"];

fn line<'a>(verb: &'a str, rest: &[&'a str], disk: &'a str) -> Vec<&'a str> {
    let words = rest.iter().map(|word| if *word == "DISK" { disk } else { word });
    std::iter::once(verb).chain(words).collect()
}

#[test]
fn every_verb_has_help_that_begins_with_what_it_does() {
    let world = World::new();
    for (verb, _) in VERBS {
        let long = world.ok(&[verb, "--help"]);
        let short = world.ok(&[verb, "-h"]);
        assert!(long.contains(&format!("Usage: parapet {verb}")), "{long}");
        assert!(short.lines().count() <= long.lines().count());
        assert!(long.lines().all(|line| line.chars().count() <= 100), "{long}");
    }
    let whole = world.ok(&["--help"]);
    for (verb, _) in VERBS {
        assert!(whole.contains(&format!("  {verb} ")), "{verb} is missing in {whole}");
    }
}

#[test]
fn a_wrong_option_is_a_usage_error_also_in_json() {
    let world = World::new();
    for (verb, rest) in VERBS {
        let words = [&line(verb, rest, "x")[..], &["--no-such-option"]].concat();
        let ran = world.run(&words);
        // From `health`, 2 means CRITICAL to a monitor.
        let code = if *verb == "health" { 3 } else { 2 };
        assert_eq!((ran.code, ran.out.as_str()), (code, ""), "{words:?}");
        assert!(ran.err.contains("--no-such-option"), "{ran:?}");
        world.refused(&words, code, "PPT-2001");
    }
    assert_eq!(world.run(&[]).code, 2);
    assert_eq!(world.run(&["no-such-verb"]).code, 2);
}

#[test]
fn a_missing_disk_is_unknown() {
    let world = World::new();
    for (verb, rest) in VERBS.iter().filter(|(verb, _)| OPENING.contains(verb)) {
        let message = world.refused(&line(verb, rest, "no-such-file"), 5, "PPT-5003");
        assert!(message.contains("no-such-file"), "{message}");
    }
}

#[test]
fn a_folder_is_no_disk() {
    let world = World::new();
    std::fs::create_dir(world.path("folder")).unwrap();
    for (verb, rest) in VERBS.iter().filter(|(verb, _)| OPENING.contains(verb)) {
        world.refused(&line(verb, rest, "folder"), 1, "PPT-1002");
    }
}

#[test]
fn a_tiny_or_empty_file_is_no_member() {
    let world = World::new();
    for bytes in [0, 1, 511, 512, 4096, 100_000] {
        world.file("tiny", bytes);
        for (verb, rest) in VERBS.iter().filter(|(verb, _)| OPENING.contains(verb)) {
            let ran = world.run(&[&line(verb, rest, "tiny")[..], &["--json"]].concat());
            let value: Value = serde_json::from_str(&ran.out).expect(&ran.out);
            assert!((1..=5).contains(&ran.code), "{verb} {bytes}: {ran:?}");
            assert!(value["error"].is_object() || *verb == "examine", "{verb}: {value}");
        }
        assert_eq!(std::fs::read(world.path("tiny")).unwrap(), vec![0; bytes as usize]);
    }
}

#[test]
fn a_file_full_of_noise_is_no_member_and_is_not_changed() {
    let world = World::new();
    let noise = crate::world::pattern(4 << 20, 99);
    std::fs::write(world.path("noise"), &noise).unwrap();
    for (verb, rest) in VERBS.iter().filter(|(verb, _)| OPENING.contains(verb)) {
        let ran = world.run(&line(verb, rest, "noise"));
        assert!((1..=5).contains(&ran.code), "{verb}: {ran:?}");
        assert!(!ran.err.contains("panicked"), "{ran:?}");
    }
    assert!(std::fs::read(world.path("noise")).unwrap() == noise);
}

#[test]
fn a_damaged_superblock_is_reported_and_not_trusted() {
    let world = World::new();
    world.create("5", 3, &[]);
    let path = world.path("m1");
    let whole = std::fs::read(&path).unwrap();
    for byte in [0, 5, 72, 88, 92, 128, 160, 216, 220, 256, 300] {
        let mut bytes = whole.clone();
        bytes[4096 + byte] ^= 0x55;
        std::fs::write(&path, &bytes).unwrap();
        let ran = world.run(&["examine", "m1"]);
        assert_eq!(ran.code, 5, "byte {byte}: {ran:?}");
        // The other members start without it only with the flag, and the error gives the reason.
        let ran = world.run(&["assemble", "tank", "m0", "m1", "m2", "--dry-run"]);
        assert_eq!(ran.code, 3, "byte {byte}: {ran:?}");
        assert!(ran.err.contains("m1"), "byte {byte}: {ran:?}");
        let ran = world.run(&["assemble", "tank", "--scan", ".", "--dry-run"]);
        assert_eq!(ran.code, 3, "byte {byte}: {ran:?}");
        // Without its magic number it is a foreign file.
        assert!(byte == 0 || ran.err.contains("m1"), "byte {byte}: {ran:?}");
        world.ok(&["assemble", "tank", "m0", "m1", "m2", "--dry-run", "--degraded"]);
    }
}

/// Edits a superblock in place and updates its checksum (md(4): the sum of all words, with the
/// checksum taken as zero).
fn forge(world: &World, member: &str, at: usize, value: &[u8]) {
    let mut bytes = std::fs::read(world.path(member)).unwrap();
    let superblock = &mut bytes[4096..];
    superblock[at..at + value.len()].copy_from_slice(value);
    superblock[216..220].fill(0);
    let devices = u32::from_le_bytes(superblock[220..224].try_into().unwrap());
    let len = 256 + 2 * (devices.min(1920) as usize);
    let words = superblock[..len]
        .chunks(4)
        .map(|word| word.iter().rev().fold(0_u64, |sum, byte| sum << 8 | u64::from(*byte)));
    let sum: u64 = words.sum();
    let sum = ((sum & 0xffff_ffff) + (sum >> 32)) as u32;
    superblock[216..220].copy_from_slice(&sum.to_le_bytes());
    std::fs::write(world.path(member), bytes).unwrap();
}

#[test]
fn a_superblock_whose_numbers_make_no_sense_is_refused_although_its_checksum_is_right() {
    let world = World::new();
    world.create("5", 3, &[]);
    let whole = std::fs::read(world.path("m1")).unwrap();
    forge(&world, "m1", 0, &whole[4096..4100]);
    assert!(std::fs::read(world.path("m1")).unwrap() == whole, "the checksum is as it was");
    let huge = u64::MAX.to_le_bytes();
    for (field, at, value) in [
        ("level", 72, &99_u32.to_le_bytes()[..]),
        ("layout", 76, &77_u32.to_le_bytes()),
        ("size", 80, &huge),
        ("chunk", 88, &3_u32.to_le_bytes()),
        ("raid_disks", 92, &0_u32.to_le_bytes()),
        ("raid_disks", 92, &0xffff_u32.to_le_bytes()),
        ("bitmap_offset", 96, &0x7fff_ffff_u32.to_le_bytes()),
        ("data_offset", 128, &huge),
        ("data_size", 136, &huge),
        ("super_offset", 144, &1_u64.to_le_bytes()),
        ("dev_number", 160, &0xffff_ff00_u32.to_le_bytes()),
        ("bblog_offset", 188, &0x7fff_ffff_u32.to_le_bytes()),
        ("max_dev", 220, &0xffff_u32.to_le_bytes()),
    ] {
        std::fs::write(world.path("m1"), &whole).unwrap();
        forge(&world, "m1", at, value);
        let ran = world.run(&["examine", "m1"]);
        assert!(ran.code <= 5 && !ran.err.contains("panicked"), "{field}: {ran:?}");
        let message = world.refused(&["assemble", "tank", "m0", "m1", "m2"], 3, "PPT-3005");
        assert!(message.contains("m1"), "{field}: {message}");
        // The other members start without it.
        world.ok(&["assemble", "tank", "m0", "m2", "--dry-run", "--degraded"]);
    }
}

#[test]
fn short_and_copied_members_are_named() {
    let world = World::new();
    world.create("5", 3, &[]);
    std::fs::copy(world.path("m1"), world.path("copy")).unwrap();
    let message = world.refused(&["assemble", "tank", "m0", "m1", "copy", "m2"], 3, "PPT-3005");
    assert!(message.contains("m1") && message.contains("copy"), "{message}");
    let file = std::fs::File::options().write(true).open(world.path("m1")).unwrap();
    file.set_len(12 << 20).unwrap();
    let message = world.refused(&["assemble", "tank", "m0", "m1", "m2"], 3, "PPT-3005");
    assert!(message.contains("m1") && message.contains("cut short"), "{message}");
    world.ok(&["assemble", "tank", "m0", "m1", "m2", "--dry-run", "--degraded"]);
}

#[test]
fn nobody_answers() {
    let world = World::new();
    for (verb, rest) in VERBS {
        let talks = [
            "status", "when", "fail", "remove", "add", "re-add", "replace", "scrub", "clear",
            "speed", "wait", "stop",
        ];
        if talks.contains(verb) {
            // Without a name, `status` accepts any array.
            world.refused(&line(verb, rest, "x"), 5, "PPT-5001");
            let words = [&line(verb, rest, "x")[..], &["--control", "unix:no.sock"]].concat();
            world.refused(&words, 4, "PPT-4001");
        }
    }
    assert_eq!(world.json(&["list"])["arrays"], serde_json::json!([]));
    let ran = world.run(&["health", "tank"]);
    assert_eq!(ran.code, 3, "unknown, as plugins say it");
    assert!(ran.out.starts_with("PARAPET UNKNOWN: "), "{ran:?}");
}

#[test]
fn a_socket_path_that_is_too_long_is_refused_before_anything_else() {
    let world = World::new();
    let long = format!("unix:{}", world.path(&"x".repeat(120)).display());
    world.refused(&["status", "tank", "--control", &long], 1, "PPT-1004");
    let members = world.create("1", 2, &[]);
    for flag in ["--nbd", "--control"] {
        let words = ["serve", "tank", &members[0], &members[1], flag, &long];
        world.refused(&words, 1, "PPT-1004");
    }
    let folder = "y".repeat(110);
    world.refused(&["quickstart", "--dir", &folder], 1, "PPT-1004");
    assert!(!world.path(&folder).exists());
}

#[test]
fn completions_manual_and_schemas_come_from_the_same_definitions() {
    let world = World::new();
    for shell in ["bash", "zsh", "fish"] {
        let text = world.ok(&["completions", shell]);
        assert!(text.contains("PARAPET_COMPLETE"), "{shell}: {text}");
    }
    world.ok(&["man", "pages"]);
    let page = std::fs::read_to_string(world.path("pages/parapet-serve.1")).unwrap();
    for section in ["EXIT STATUS", "FILES", "SEE ALSO"] {
        assert!(
            page.contains(&format!(".SH {section}"))
                || page.contains(&format!(".SH \"{section}\""))
        );
    }
    for (verb, _) in VERBS {
        let page = std::fs::read_to_string(world.path(&format!("pages/parapet-{verb}.1"))).unwrap();
        assert!(page.contains(".SH OPTIONS"), "{verb}");
    }
    let all: Value = serde_json::from_str(&world.ok(&["schema"])).unwrap();
    let status = world.ok(&["schema", "parapet/status/1"]);
    assert_eq!(all["parapet/status/1"], serde_json::from_str::<Value>(&status).unwrap());
    assert_eq!(all["parapet/status/1"]["properties"]["capacity_bytes"]["format"], "uint64");
    world.refused(&["schema", "parapet/nothing/1"], 2, "PPT-2001");
}
