//! Each rule against a small input that breaks it, and its neighbour that does not.

use super::manifest::{Dependency, Package};
use super::*;

/// `path:line` of each violation of the rule in `files`.
fn places(rule: &str, files: &[(&str, &str)]) -> Vec<String> {
    places_with(rule, files, Vec::new())
}

fn places_with(rule: &str, files: &[(&str, &str)], packages: Vec<Package>) -> Vec<String> {
    let texts: Vec<_> =
        files.iter().map(|(path, text)| (String::from(*path), String::from(*text))).collect();
    let tree = Tree::new(&texts, packages);
    let rule = RULES.iter().find(|known| known.name == rule).expect("a rule of the table");
    let mut found = (rule.check)(&tree);
    found.sort();
    found.iter().map(|violation| format!("{}:{}", violation.path, violation.line)).collect()
}

const ROOT: &str = "crates/io/src/lib.rs";

fn package(name: &str, dependencies: &[(&str, bool, bool)]) -> Package {
    let dependency = |(name, ours, for_tests): &(&str, bool, bool)| Dependency {
        name: String::from(*name),
        ours: *ours,
        for_tests: *for_tests,
    };
    Package {
        name: String::from(name),
        manifest: format!("crates/{name}/Cargo.toml"),
        dependencies: dependencies.iter().map(dependency).collect(),
    }
}

#[test]
fn a_violation_has_place_fault_and_remedy() {
    let violation = Violation::new("a/b.rs", 7, "it is wrong", "make it right");
    assert_eq!(violation.to_string(), "a/b.rs:7: it is wrong; make it right");
}

#[test]
fn every_rule_has_its_own_name_and_a_law() {
    for (index, rule) in RULES.iter().enumerate() {
        assert!(!rule.law.is_empty());
        assert!(RULES[..index].iter().all(|other| other.name != rule.name), "{}", rule.name);
    }
}

#[test]
fn depend_sees_a_wrong_direction_also_in_tests() {
    for wrong in [
        package("array", &[("net", true, false)]),
        package("net", &[("array", true, true)]),
        package("os", &[("array", true, true)]),
        package("sim", &[("os", true, false)]),
        package("parapet", &[("sim", true, false)]),
        package("xtask", &[("layout", true, false)]),
        package("stray", &[]),
    ] {
        let name = wrong.name.clone();
        assert_eq!(places_with("depend", &[], vec![wrong]).len(), 1, "{name}");
    }
    let right = vec![
        package("array", &[("io", true, false), ("layout", true, false)]),
        package("io", &[("io", true, true)]),
        package("parapet", &[("lab", true, false), ("os", true, false)]),
    ];
    assert_eq!(places_with("depend", &[], right), [""; 0]);
}

#[test]
fn depend_wants_a_record_for_third_parties_and_has_none_for_the_pure_crates() {
    let manifest = ("crates/os/Cargo.toml", "[dependencies]\nio.workspace = true\nlibc = \"0.2\"");
    let record = ("docs/decisions/0001-crates.md", "| `libc` | os, io | system calls |\n");
    let users = || vec![package("os", &[("libc", false, false)])];
    assert_eq!(places_with("depend", &[manifest], users()), ["crates/os/Cargo.toml:3"]);
    assert_eq!(places_with("depend", &[manifest, record], users()), [""; 0]);
    let reasonless = ("docs/decisions/0001-crates.md", "| `libc` | os | |\n");
    assert_eq!(places_with("depend", &[reasonless], users()).len(), 1);
    let pure = vec![package("io", &[("libc", false, true)])];
    assert_eq!(places_with("depend", &[record], pure).len(), 1);
}

#[test]
fn lock_sees_banned_crates_and_other_sources() {
    let deny = ("deny.toml", "deny = [\n    { crate = \"atty\", use-instead = \"x\" },\n]");
    let crates_io = "source = \"registry+https://github.com/rust-lang/crates.io-index\"";
    let other = "source = \"git+https://example.org/x\"";
    let lock = format!("name = \"atty\"\n{crates_io}\nname = \"libc\"\n{other}\n");
    let found = places("lock", &[deny, ("Cargo.lock", &lock)]);
    assert_eq!(found, ["Cargo.lock:1", "Cargo.lock:4"]);
}

#[test]
fn pure_sees_the_world_in_paths_and_groups_but_not_in_tests_or_words() {
    let source = "use std::fs::File;\nuse std::{fmt, net::{A, process}, thread};\n\
                  use core::net::X;\n\
                  fn a() { std::time::Instant::now(); }\nuse std::collections::HashMap;\n\
                  fn process() { \"std::fs\"; }\n#[cfg(test)]\nmod t { use std::fs; }\n";
    let found = places("pure", &[(ROOT, source), ("crates/os/src/lib.rs", source)]);
    let lines = [1, 2, 2, 4, 5].map(|line| format!("{ROOT}:{line}"));
    assert_eq!(found, lines);
}

#[test]
fn unsafe_stands_only_in_its_places() {
    let kernel = "//! k\nunsafe { x() }\n";
    let forbidding = "#![forbid(unsafe_code)]\n";
    let found = places(
        "unsafe",
        &[
            ("crates/parity/src/x86.rs", kernel),
            ("crates/io/src/disk.rs", kernel),
            ("crates/net/src/lib.rs", forbidding),
            ("crates/array/src/lib.rs", "// #![forbid(unsafe_code)]\n"),
            ("crates/io/src/lib.rs", "#![deny(unsafe_code)]\n"),
            ("crates/parity/src/lib.rs", ""),
            ("crates/os/src/lib.rs", kernel),
        ],
    );
    let wrong = ["array/src/lib.rs:1", "io/src/disk.rs:2", "parity/src/lib.rs:1"];
    assert_eq!(found, wrong.map(|place| format!("crates/{place}")));
}

#[test]
fn columns_are_characters_not_bytes() {
    let (fits, wide) = ("é".repeat(100), "é".repeat(101));
    let address = format!("// https://{wide}");
    let text = format!("{fits}\n{wide}\n{address}\n");
    assert_eq!(places("columns", &[(ROOT, &text), ("README.md", &text)]), [format!("{ROOT}:2")]);
}

#[test]
fn asserts_counts_assertions_of_shipped_code() {
    let root = "crates/metadata/src/lib.rs";
    let code = "const A: u8 = 0;\n".repeat(140);
    let test = "#[cfg(test)]\nmod tests {\n    fn t() { assert!(true); assert!(true); }\n}\n";
    let with = |line: &str| format!("{code}{line}\n{test}");
    let at = [format!("{root}:1")];
    for wrong in ["", "// assert!(true);", "fn f() { debug_assert!(true); }"] {
        assert_eq!(places("asserts", &[(root, &with(wrong))]), at, "{wrong}");
    }
    for right in ["fn f() { assert!(true); }", "fn f() { None::<u8>.expect(\"\"); }"] {
        assert!(places("asserts", &[(root, &with(right))]).is_empty(), "{right}");
    }
    assert!(places("asserts", &[("crates/vm/src/lib.rs", &code)]).is_empty());
}

#[test]
fn functions_end_at_their_brace_wherever_other_braces_stand() {
    let body = |lines: usize| format!("    let x = \"}}\"; // }}\n{}", "\n".repeat(lines - 3));
    let fits = format!("fn fits(x: [u8; {{ 3 }}]) {{\n{}}}\n", body(70));
    let long = format!("fn long<'a>() -> char {{\n{}'}}' }}\n", body(71));
    let source = format!("{fits}{long}#[cfg(test)]\nmod tests {{\n{long}}}\nfn short();\n");
    assert_eq!(places("functions", &[(ROOT, &source)]), [format!("{ROOT}:71")]);
}

#[test]
fn files_do_not_count_their_tests() {
    let code = "\n".repeat(1000);
    let tests = format!("{code}#[cfg(test)]\nmod tests {{\n{code}}}\n");
    assert_eq!(places("files", &[(ROOT, &tests), ("crates/io/tests/t.rs", &tests)]), [""; 0]);
    let long = format!("{code}fn x() {{}}\n");
    assert_eq!(places("files", &[(ROOT, &long)]), [format!("{ROOT}:1")]);
    assert_eq!(places("short", &[(ROOT, &"\n".repeat(601))]), [format!("{ROOT}:1")]);
    assert_eq!(places("short", &[(ROOT, &"\n".repeat(600))]), [""; 0]);
}

#[test]
fn opening_wants_the_module_comment_first() {
    let silent = ("crates/io/src/a.rs", "\n//! late");
    assert_eq!(places("opening", &[(ROOT, "//! Owns."), silent]), ["crates/io/src/a.rs:1"]);
}

#[test]
fn words_are_looked_for_inside_identifiers() {
    let source = "fn drive_count() {}\nstruct LegSet;\nconst STRIPS: u8 = 1;\nlet children = 1;\n\
                  // a drive\n\"drive\"; x.strip_prefix(y); stripe; legacy; PathSegment;\n";
    let lines = [1, 2, 3, 4, 6].map(|line| format!("{ROOT}:{line}"));
    assert_eq!(places("words", &[(ROOT, source)]), lines);
    let named = ["crates/io/src/utils.rs", "crates/io/tests/common/mod.rs"];
    assert_eq!(places("words", &named.map(|path| (path, ""))).len(), 2);
}

#[test]
fn leftover_sees_code_and_notes_but_not_strings() {
    let source = "x.unwrap();\ntodo!();\nunimplemented!();\ndbg!(x);\n#[ignore = \"slow\"]\n\
                  // TODO later\n/* two\nFIXME */\n\"TODO\"; x.unwrap_or(1); // XXXX\n\
                  #[test]\nfn t() { x.unwrap(); }\n";
    let lines = [1, 2, 3, 4, 5, 6, 8].map(|line| format!("{ROOT}:{line}"));
    assert_eq!(places("leftover", &[(ROOT, source)]), lines);
    assert_eq!(places("leftover", &[("vm/boot.sh", "x\n# XXX\n")]), ["vm/boot.sh:2"]);
}

#[test]
fn machine_sees_folders_of_a_build_machine_in_any_file() {
    let text = format!("fine\nsee /wo{}\n", "rk/main");
    assert_eq!(places("machine", &[("docs/a.md", &text)]), ["docs/a.md:2"]);
}

#[test]
fn links_lead_somewhere() {
    let text = "[a](b.md) [`c`](../README.md#top) [d](https://x.y) [e](#here)\n[f](gone.md)\n\
                `[g](code.md)`\n```\n[h](code.md)\n```\n[i](folder/)\n";
    let files = [("docs/a.md", text), ("docs/b.md", ""), ("README.md", ""), ("docs/folder/x", "")];
    assert_eq!(places("links", &files), ["docs/a.md:2"]);
}

#[test]
fn decisions_have_numbers_of_their_own() {
    let files = ["README.md", "0001-one.md", "0001-uno.md", "two.md", "0003-Three.md", "0004-.md"]
        .map(|name| format!("docs/decisions/{name}"));
    let files: Vec<_> = files.iter().map(|path| (path.as_str(), "")).collect();
    let wrong = ["0001-uno.md", "0003-Three.md", "0004-.md", "two.md"];
    assert_eq!(places("decisions", &files), wrong.map(|name| format!("docs/decisions/{name}:1")));
}

#[test]
fn undeclared_modules_are_dead() {
    let files = [(ROOT, "mod a;"), ("crates/io/src/a.rs", ""), ("crates/io/src/b.rs", "")];
    assert_eq!(places("modules", &files), ["crates/io/src/b.rs:1"]);
}

#[test]
fn the_checkout_is_seen_whole() {
    let root = shell::root().expect("tests run inside the checkout");
    let texts = tree::load(&root).expect("a readable checkout");
    let tree = Tree::new(&texts, Vec::new());
    let this = tree.file("xtask/src/tidy/tests.rs").expect("the file you read");
    assert!(this.reached && this.all_test());
    assert!(tree.files.iter().all(|file| !file.path.starts_with("target/")));
}

#[test]
fn rooms_name_those_below_them_and_mail_only_above() {
    let files = [
        (ROOT, "mod rows; mod shard;"),
        ("crates/array/src/rows.rs", "use crate::shard::mail::Post;\nuse crate::shard::Shard;"),
        ("crates/array/src/rows/read.rs", "impl Shard {\n}\nuse crate::member::Member;"),
        ("crates/array/src/shard.rs", "use crate::rows::op;\nimpl Shard {}"),
        ("crates/array/src/member.rs", "use crate::rows::op::RowOp;"),
    ];
    let found = places("rooms", &files);
    let wrong = ["array/src/member.rs:1", "array/src/rows.rs:2", "array/src/rows/read.rs:1"];
    assert_eq!(found, wrong.map(|place| format!("crates/{place}")));
}
