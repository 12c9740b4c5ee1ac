//! Shrinking, from end to end: seeds that fail because the engine is broken on purpose come down to
//! a story of a few steps, which fails alike when it is replayed from its command line.
//!
//! Only an engine that can be broken fails: `cargo xtask test` has the feature `broken`.

use std::process::Command;

/// Ways to be broken, with how many requests and incidents a story needs at most.
const WAYS: [(&str, usize); 4] = [
    ("Canary", 0),
    ("WrongCoefficient", 12),
    ("ParityStaleDegraded", 12),
    ("FlushForgetsHeld", 12),
];

/// The simulator's output with these arguments, and whether it failed.
fn sim(way: &str, words: &[&str]) -> (String, bool) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sim"));
    let output =
        command.args(words).env("PARAPET_BROKEN", way).output().expect("the simulator starts");
    (String::from_utf8_lossy(&output.stdout).into_owned(), !output.status.success())
}

/// The text after these words, up to the end of the line.
fn after<'a>(text: &'a str, words: &str) -> &'a str {
    let place = text.rfind(words).unwrap_or_else(|| panic!("no {words:?} in:\n{text}"));
    text[place + words.len()..].lines().next().unwrap_or_default()
}

/// All numbers in a text.
fn numbers(text: &str) -> Vec<usize> {
    text.split(|char: char| !char.is_ascii_digit()).filter_map(|word| word.parse().ok()).collect()
}

#[test]
#[cfg_attr(not(feature = "broken"), ignore = "needs the feature broken: cargo xtask test tests")]
fn a_seed_that_fails_comes_down_to_a_story_that_replays() {
    for (way, most) in WAYS {
        let (caught, survived) = sim("", &["--broken", way, "--seeds", "0..100"]);
        assert!(!survived, "{caught}");
        let seed = after(&caught, "caught by seed ").split(':').next().unwrap_or_default();
        let (whole, failed) = sim(way, &[seed]);
        assert!(failed, "{whole}");

        let sizes = numbers(after(&whole, "shrunk to: "));
        let &[requests, all_requests, incidents, _, disks, all_disks, ..] = &sizes[..] else {
            panic!("{way}, seed {seed}: {sizes:?}")
        };
        println!("{way}, seed {seed}: {}", after(&whole, "shrunk to: "));
        assert!(requests + incidents <= most, "{way}, seed {seed}: {sizes:?}");
        assert!(10 * requests <= all_requests && disks <= all_disks, "{way}: {sizes:?}");

        let replay = after(&whole, "replay: cargo sim ");
        let words: Vec<&str> = replay.split(' ').collect();
        assert!(words.contains(&"--keep"), "{replay}");
        let (again, failed) = sim(way, &words);
        assert!(failed, "{way}: the story passes: cargo sim {replay}\n{again}");
        let failure = |text| after(text, "\nfailure: ").to_string();
        assert_eq!(failure(&again), failure(&whole), "{way}: cargo sim {replay}");
        assert_eq!(after(&again, "replay: cargo sim "), replay);

        let (sound, failed) = sim("", &words);
        assert!(!failed, "{way}: a sound engine fails too: cargo sim {replay}\n{sound}");
    }
}
