//! The pure crates see disks, networks, time and threads only through the seam, so that the
//! simulator can be the whole world. Clippy's disallowed lists catch renamed imports; this catches
//! `#[allow]`.

use super::Violation;
use super::lexer::Token;
use super::tree::{File, Tree, reads};

const PURE: &[&str] =
    &["parity", "layout", "io", "log", "metadata", "array", "net", "policy", "cluster", "random"];

/// Modules of the standard library that touch the world.
const WORLDLY: &[&str] = &["fs", "net", "thread", "process"];

/// Names forbidden in a pure crate, and their replacements.
const NAMES: &[(&[&str], &str)] = &[
    (&["Instant", ":", ":", "now"], "ask `io::Clock`"),
    (&["SystemTime"], "ask `io::Clock`"),
    (&["HashMap"], "its order is random: use BTreeMap or a table"),
    (&["HashSet"], "its order is random: use BTreeSet or a table"),
    (&["RandomState"], "it is random: use BTreeMap or a table"),
];

/// Nothing of the world in the pure crates, tests aside.
pub(super) fn check(tree: &Tree<'_>) -> Vec<Violation> {
    let ours = |file: &&File<'_>| {
        let mut parts = file.path.split('/');
        parts.next() == Some("crates") && parts.next().is_some_and(|name| PURE.contains(&name))
    };
    tree.rust().filter(ours).flat_map(file).collect()
}

fn file(file: &File<'_>) -> Vec<Violation> {
    let mut found = Vec::new();
    let shipped = (0..file.code.len()).filter(|index| !file.in_test(file.code[*index].line));
    for index in shipped {
        let line = file.code[index].line;
        for module in impure_modules(&file.code, index) {
            let what = format!("`std::{module}` in a pure crate");
            let remedy = "take it from the seam (`io`), or do it in os";
            found.push(Violation::new(file.path, line, what, remedy));
        }
        for (name, remedy) in NAMES {
            if reads(&file.code, index, name) {
                let what = format!("`{}` in a pure crate", name.concat());
                found.push(Violation::new(file.path, line, what, *remedy));
            }
        }
    }
    found
}

/// The worldly modules in a path that starts at `index`: `std::fs`, or some of `std::{fs, net::X}`.
fn impure_modules<'a>(code: &[Token<'a>], index: usize) -> Vec<&'a str> {
    if !reads(code, index, &["std", ":", ":"]) {
        return Vec::new();
    }
    let Some(first) = code.get(index + 3) else { return Vec::new() };
    if first.text != "{" {
        return Some(first.text).filter(|name| WORLDLY.contains(name)).into_iter().collect();
    }
    let mut found = Vec::new();
    let mut depth = 0_usize;
    for pair in code[index + 3..].windows(2) {
        match pair[0].text {
            "{" => depth += 1,
            "}" => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth == 0 {
            break;
        }
        let starts_item = depth == 1 && matches!(pair[0].text, "{" | ",");
        if starts_item && WORLDLY.contains(&pair[1].text) {
            found.push(pair[1].text);
        }
    }
    found
}
