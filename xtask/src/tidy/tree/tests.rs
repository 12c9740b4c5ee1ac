//! Which code counts as a test, and which code the compiler reaches.

use super::*;

fn texts(files: &[(&str, &str)]) -> Vec<(String, String)> {
    files.iter().map(|(path, text)| (String::from(*path), String::from(*text))).collect()
}

#[test]
fn test_items_end_with_their_brace_or_semicolon() {
    let source = "fn a() {}\n#[cfg(test)]\nmod tests {\n  fn b<A, B>() {}\n}\nfn c() {}\n\
                  #[test]\n#[should_panic]\nfn d(x: [u8; 3]) {\n}\n#[cfg(not(test))]\nfn e() {}\n\
                  #[cfg(test)]\nuse x;\nfn f() {}";
    let texts = texts(&[("crates/io/src/lib.rs", source)]);
    let tree = Tree::new(&texts, Vec::new());
    let tests: Vec<_> = (1..=15).filter(|line| tree.files[0].in_test(*line)).collect();
    assert_eq!(tests, [2, 3, 4, 5, 7, 8, 9, 10, 13, 14]);
}

#[test]
fn modules_are_followed_from_the_roots_by_file_folder_path_and_include() {
    let texts = texts(&[
        (
            "crates/io/src/lib.rs",
            "mod a;\n#[cfg(test)] mod oracle;\nmod x { mod deep; } include!(\"part.rs\");",
        ),
        ("crates/io/src/a.rs", "mod b;\n#[path = \"../odd/c.rs\"] mod c; let path = None;\nmod d;"),
        ("crates/io/src/a/b.rs", ""),
        ("crates/io/src/a/d.rs", ""),
        ("crates/io/odd/c.rs", ""),
        ("crates/io/src/oracle.rs", ""),
        ("crates/io/src/x/deep.rs", ""),
        ("crates/io/src/part.rs", ""),
        ("crates/io/src/b.rs", ""),
        ("crates/io/tests/whole.rs", "mod support;"),
        ("crates/io/tests/support/mod.rs", ""),
        ("crates/io/src/bin/tool.rs", ""),
    ]);
    let tree = Tree::new(&texts, Vec::new());
    let state = |path: &str| {
        let file = tree.file(path).expect("a file of the list");
        (file.reached, file.all_test())
    };
    for path in ["a.rs", "a/b.rs", "a/d.rs", "x/deep.rs", "part.rs", "bin/tool.rs"] {
        assert_eq!(state(&format!("crates/io/src/{path}")), (true, false), "{path}");
    }
    assert_eq!(state("crates/io/odd/c.rs"), (true, false));
    assert_eq!(state("crates/io/src/oracle.rs"), (true, true));
    assert_eq!(state("crates/io/tests/whole.rs"), (true, true));
    assert_eq!(state("crates/io/tests/support/mod.rs"), (true, true));
    assert_eq!(state("crates/io/src/b.rs"), (false, false));
}

#[test]
fn a_file_that_both_tests_and_the_crate_reach_is_shipped() {
    let texts = texts(&[
        ("crates/io/src/lib.rs", "mod a;"),
        ("crates/io/src/a.rs", ""),
        ("crates/io/tests/t.rs", "#[path = \"../src/a.rs\"] mod a;"),
    ]);
    let tree = Tree::new(&texts, Vec::new());
    assert!(!tree.file("crates/io/src/a.rs").expect("listed").all_test());
}

#[test]
fn roots_are_identified_by_their_path() {
    assert_eq!(root("crates/io/src/lib.rs"), Some(false));
    assert_eq!(root("xtask/src/main.rs"), Some(false));
    assert_eq!(root("crates/io/build.rs"), Some(false));
    assert_eq!(root("crates/io/benches/copy.rs"), Some(true));
    assert_eq!(root("fuzz/fuzz_targets/wire.rs"), Some(true));
    assert_eq!(root("crates/io/src/disk/tests/deep.rs"), None);
    assert_eq!(root("crates/io/src/disk/lib.rs"), None);
}
