//! How long a line, a function and a file may be, and how many assertions code needs. Tests are
//! free of all but the first.

use super::Violation;
use super::lexer::{Kind, Token};
use super::tree::{File, Tree, closing, reads};

const COLUMNS: usize = 100;
const FUNCTION_LINES: usize = 70;
const FILE_LINES: usize = 1000;
const FILE_LINES_WISHED: usize = 600;

/// Crates in which a wrong number loses data, and the assertions that they need per 1000 lines of
/// code.
const ASSERTIONS: [(&str, usize); 4] =
    [("array", 11), ("layout", 10), ("log", 20), ("metadata", 7)];

/// Kinds of file that people read as text, not rendered.
const WRAPPED: &[&str] = &[".rs", ".toml", ".sh", ".ci/run"];

/// Lines are at most [`COLUMNS`] characters.
pub(super) fn columns(tree: &Tree<'_>) -> Vec<Violation> {
    let mut found = Vec::new();
    for file in tree.files.iter().filter(|file| WRAPPED.iter().any(|end| file.path.ends_with(end)))
    {
        for (line, text) in file.lines() {
            let width = text.chars().count();
            // An address cannot be broken.
            if width > COLUMNS && !text.contains("https://") {
                let what = format!("{width} columns, {COLUMNS} at most");
                found.push(Violation::new(file.path, line, what, "break the line"));
            }
        }
    }
    found
}

/// Functions are at most [`FUNCTION_LINES`] lines, from `fn` to the closing brace.
pub(super) fn functions(tree: &Tree<'_>) -> Vec<Violation> {
    let mut found = Vec::new();
    for file in tree.rust() {
        for (name, first, last) in function_spans(file) {
            let lines = last - first + 1;
            if lines > FUNCTION_LINES && !file.in_test(first) {
                let what = format!("`{name}` has {lines} lines, {FUNCTION_LINES} at most");
                found.push(Violation::new(file.path, first, what, "name one of its steps"));
            }
        }
    }
    found
}

/// Name, first and last line of each function with a body.
fn function_spans<'a>(file: &File<'a>) -> Vec<(&'a str, usize, usize)> {
    let code = &file.code;
    let mut found = Vec::new();
    for index in 0..code.len().saturating_sub(1) {
        let name = code[index + 1];
        if code[index].text != "fn" || name.kind != Kind::Word {
            continue;
        }
        let mut at = index + 2;
        while at < code.len() && !matches!(code[at].text, "{" | ";") {
            // Braces in brackets are constants of an array type, not the body.
            at = if matches!(code[at].text, "(" | "[") { closing(code, at) } else { at } + 1;
        }
        if at < code.len() && code[at].text == "{" {
            found.push((name.text, code[index].line, code[closing(code, at)].line));
        }
    }
    found
}

/// Files are at most [`FILE_LINES`] lines, tests not counted.
pub(super) fn files(tree: &Tree<'_>) -> Vec<Violation> {
    longer_than(FILE_LINES, tree)
}

/// Files are at most [`FILE_LINES_WISHED`] lines, tests not counted.
pub(super) fn short_files(tree: &Tree<'_>) -> Vec<Violation> {
    longer_than(FILE_LINES_WISHED, tree)
}

fn longer_than(most: usize, tree: &Tree<'_>) -> Vec<Violation> {
    let mut found = Vec::new();
    for file in tree.rust() {
        let lines = file.lines().filter(|(line, _)| !file.in_test(*line)).count();
        if lines > most {
            let what = format!("{lines} lines outside tests, {most} at most");
            found.push(Violation::new(file.path, 1, what, "find the second idea in it"));
        }
    }
    found
}

/// Crates of the table keep their share of assertions: code that is added brings its own. Calls of
/// `expect` count; debug assertions do not, because the shipped program has none.
pub(super) fn assertions(tree: &Tree<'_>) -> Vec<Violation> {
    let asserts = |code: &[Token<'_>]| {
        let macros = ["assert", "assert_eq", "assert_ne", "unreachable"];
        macros.iter().any(|name| reads(code, 0, &[name, "!"])) || reads(code, 0, &[".", "expect"])
    };
    let mut found = Vec::new();
    for (name, least) in ASSERTIONS {
        let folder = format!("crates/{name}/src/");
        let (mut lines, mut count) = (0, 0);
        for file in tree.rust().filter(|file| file.path.starts_with(&folder)) {
            let code: Vec<_> =
                file.code.iter().filter(|token| !file.in_test(token.line)).copied().collect();
            lines += code.chunk_by(|one, next| one.line == next.line).count();
            count += code.windows(2).filter(|pair| asserts(pair)).count();
        }
        if count * 1000 < least * lines {
            let what = format!("{count} assertions in {lines} lines, {least} per 1000 at least");
            let remedy = "assert the invariants of the new code";
            found.push(Violation::new(&format!("{folder}lib.rs"), 1, what, remedy));
        }
    }
    found
}
