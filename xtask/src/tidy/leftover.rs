//! Leftovers of unfinished work: placeholders, debugging, disabled tests, notes to oneself; and
//! `unwrap`, which does not say why it cannot fail.

use super::Violation;
use super::lexer::Token;
use super::tree::{File, Tree, reads};

/// A code pattern, the places that allow it, and the remedy.
const CODE: &[(&[&str], Place, &str)] = &[
    (&[".", "unwrap", "("], Place::Tests, "write `expect(\"why it cannot happen\")` or return"),
    (&["todo", "!"], Place::Nowhere, "finish it or leave it out"),
    (&["unimplemented", "!"], Place::Nowhere, "finish it or leave it out"),
    (&["dbg", "!"], Place::Nowhere, "take it out"),
    (&["#", "[", "ignore"], Place::Nowhere, "let the test run, or take it out"),
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Tests,
    Nowhere,
}

/// Notes that promise work.
const NOTES: &[&str] = &["TODO", "FIXME", "XXX"];

/// Kinds of file, besides Rust, whose comments are searched for notes.
const NOTED: &[&str] = &[".toml", ".sh", ".ci/run"];

/// Nothing is left over.
pub(super) fn check(tree: &Tree<'_>) -> Vec<Violation> {
    let mut found = Vec::new();
    for file in &tree.files {
        for index in 0..file.code.len() {
            let line = file.code[index].line;
            for (code, place, remedy) in CODE {
                let allowed = *place == Place::Tests && file.in_test(line);
                if reads(&file.code, index, code) && !allowed {
                    let what = format!("`{}`", code.concat());
                    found.push(Violation::new(file.path, line, what, *remedy));
                }
            }
        }
        for (line, note) in notes(file) {
            let remedy = "do it, or open an issue and say nothing here";
            found.push(Violation::new(file.path, line, format!("a {note} note"), remedy));
        }
    }
    found
}

/// Line and word of each note in the file's comments.
fn notes(file: &File<'_>) -> Vec<(usize, &'static str)> {
    let spans: Vec<(usize, &str)> = if file.is_rust() {
        file.comments.iter().flat_map(comment_lines).collect()
    } else if NOTED.iter().any(|end| file.path.ends_with(end)) {
        file.lines().filter_map(|(line, text)| Some((line, text.split_once('#')?.1))).collect()
    } else {
        Vec::new()
    };
    let noted = |text: &str, note: &&&str| {
        text.split(|character: char| !character.is_alphanumeric()).any(|word| word == **note)
    };
    spans
        .into_iter()
        .filter_map(|(line, text)| Some((line, *NOTES.iter().find(|note| noted(text, note))?)))
        .collect()
}

fn comment_lines<'a>(comment: &Token<'a>) -> impl Iterator<Item = (usize, &'a str)> + use<'a> {
    let first = comment.line;
    comment.text.lines().enumerate().map(move |(index, text)| (first + index, text))
}
