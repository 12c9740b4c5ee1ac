//! The project as the rules see it: its text files, their tokens, which lines are tests, which
//! files the compiler reaches.
//!
//! Never judges. Invariant: paths are relative to the checkout, with `/` between their parts.

use super::lexer::{self, Kind, Token};
use super::manifest::Package;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::path::Path;

/// Excluded files: build output, history (a file in a second work tree), and remains of the
/// quickstart.
const SKIPPED: &[&str] = &["target", ".git", "parapet-data", "node_modules"];

/// Folders beside `src` whose files are crate roots that are never shipped.
const TEST_FOLDERS: &[&str] = &["tests", "benches", "examples", "fuzz_targets"];

/// The whole project.
pub(crate) struct Tree<'a> {
    pub(crate) files: Vec<File<'a>>,
    pub(crate) packages: Vec<Package>,
}

/// One text file.
pub(crate) struct File<'a> {
    pub(crate) path: &'a str,
    pub(crate) text: &'a str,
    /// Tokens without comments; empty unless it is Rust.
    pub(crate) code: Vec<Token<'a>>,
    /// Comments; empty unless it is Rust.
    pub(crate) comments: Vec<Token<'a>>,
    /// True if the compiler reads it from some crate root.
    pub(crate) reached: bool,
    /// Line ranges that exist only for tests.
    tests: Vec<RangeInclusive<usize>>,
}

impl<'a> File<'a> {
    fn new(path: &'a str, text: &'a str) -> File<'a> {
        let tokens = if path.ends_with(".rs") { lexer::tokens(text) } else { Vec::new() };
        let (comments, code): (Vec<_>, Vec<_>) =
            tokens.into_iter().partition(|token| token.kind == Kind::Comment);
        let tests = test_items(&code);
        File { path, text, code, comments, reached: false, tests }
    }

    /// True for Rust source.
    pub(crate) fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    /// True if `line` exists only for tests, benches or examples.
    pub(crate) fn in_test(&self, line: usize) -> bool {
        self.tests.iter().any(|range| range.contains(&line))
    }

    /// True if nothing of the file is shipped.
    #[cfg(test)]
    pub(crate) fn all_test(&self) -> bool {
        self.tests.contains(&WHOLE)
    }

    /// Lines with their numbers, from 1.
    pub(crate) fn lines(&self) -> impl Iterator<Item = (usize, &'a str)> {
        self.text.lines().enumerate().map(|(index, line)| (index + 1, line))
    }

    /// The file's name without folders.
    pub(crate) fn name(&self) -> &'a str {
        self.path.rsplit('/').next().expect("a split has a first part")
    }
}

const WHOLE: RangeInclusive<usize> = 1..=usize::MAX;

/// True if the code at `index` reads as `texts`.
pub(crate) fn reads(code: &[Token<'_>], index: usize, texts: &[&str]) -> bool {
    code.len() >= index + texts.len()
        && code[index..].iter().zip(texts).all(|(token, text)| token.text == *text)
}

/// The index of the token that closes the bracket at `open`, or the last one if none does.
pub(crate) fn closing(code: &[Token<'_>], open: usize) -> usize {
    let mut depth = 0_usize;
    for (index, token) in code.iter().enumerate().skip(open) {
        match token.text {
            "(" | "[" | "{" if token.kind == Kind::Mark => depth += 1,
            ")" | "]" | "}" if token.kind == Kind::Mark => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth == 0 {
            return index;
        }
    }
    code.len().saturating_sub(1)
}

/// The line ranges of items marked `#[test]` or `#[cfg(test)]`; all lines after `#![cfg(test)]`.
fn test_items(code: &[Token<'_>]) -> Vec<RangeInclusive<usize>> {
    let mut found = Vec::new();
    let mut index = 0;
    while index < code.len() {
        let inner = reads(code, index, &["#", "!", "["]);
        if !inner && !reads(code, index, &["#", "["]) {
            index += 1;
            continue;
        }
        let open = index + if inner { 2 } else { 1 };
        let close = closing(code, open);
        if is_for_tests(&code[open + 1..close.max(open + 1)]) {
            if inner {
                return vec![WHOLE];
            }
            let end = item_end(code, close + 1);
            found.push(code[index].line..=code[end].line);
            index = end;
        }
        index = index.max(close) + 1;
    }
    found
}

/// `test`, `cfg(test)`, `cfg(all(test, …))`; but not `cfg(not(test))`.
fn is_for_tests(attribute: &[Token<'_>]) -> bool {
    let says = |word: &str| attribute.iter().any(|token| token.text == word);
    match attribute {
        [only] => only.text == "test",
        [first, ..] => first.text == "cfg" && says("test") && !says("not") && !says("any"),
        [] => false,
    }
}

/// The index of the last token of the item whose attributes or words start at `start`.
fn item_end(code: &[Token<'_>], start: usize) -> usize {
    let mut index = start;
    while index < code.len() {
        match code[index].text {
            "{" => return closing(code, index),
            "(" | "[" => index = closing(code, index),
            ";" | "}" => return index,
            _ => {}
        }
        index += 1;
    }
    code.len() - 1
}

impl<'a> Tree<'a> {
    /// The tree of `texts` (path, content), which belong to `packages`.
    pub(crate) fn new(texts: &'a [(String, String)], packages: Vec<Package>) -> Tree<'a> {
        let mut files: Vec<_> = texts.iter().map(|(path, text)| File::new(path, text)).collect();
        mark_reached(&mut files);
        Tree { files, packages }
    }

    /// The Rust files.
    pub(crate) fn rust(&self) -> impl Iterator<Item = &File<'a>> {
        self.files.iter().filter(|file| file.is_rust())
    }

    /// The file at `path`.
    pub(crate) fn file(&self, path: &str) -> Option<&File<'a>> {
        self.files.iter().find(|file| file.path == path)
    }
}

/// The kind of a crate root, from its path: `Some(true)` if it is only for tests.
pub(crate) fn root(path: &str) -> Option<bool> {
    let parts: Vec<_> = path.rsplit('/').collect();
    match parts.as_slice() {
        ["lib.rs" | "main.rs", "src", ..] | [_, "bin", "src", ..] => Some(false),
        ["main.rs", _, "bin", "src", ..] | ["build.rs", _, ..] => Some(false),
        [_, folder, above @ ..] | ["main.rs", _, folder, above @ ..]
            if TEST_FOLDERS.contains(folder) && !above.contains(&"src") =>
        {
            Some(true)
        }
        _ => None,
    }
}

/// Walks `mod x;` from every root: sets `reached`, and marks files that only tests reach.
fn mark_reached(files: &mut [File<'_>]) {
    let places: BTreeMap<&str, usize> =
        files.iter().enumerate().map(|(index, file)| (file.path, index)).collect();
    let mut seen = BTreeSet::new();
    let mut shipped = BTreeSet::new();
    let mut waiting: Vec<(usize, bool)> = files
        .iter()
        .enumerate()
        .filter_map(|(index, file)| Some((index, root(file.path)?)))
        .collect();
    while let Some((index, for_tests)) = waiting.pop() {
        let news = seen.insert((index, for_tests));
        if !for_tests {
            shipped.insert(index);
        }
        if !news {
            continue;
        }
        for (line, choices) in modules(&files[index]) {
            let child = choices.iter().find_map(|path| places.get(path.as_str()));
            if let Some(&child) = child {
                waiting.push((child, for_tests || files[index].in_test(line)));
            }
        }
    }
    for (index, _) in seen {
        files[index].reached = true;
        if !shipped.contains(&index) {
            files[index].tests = vec![WHOLE];
        }
    }
}

/// For each `mod x;`, `#[path] mod x;` and `include!` of a file: its line, and where it may lie.
fn modules(file: &File<'_>) -> Vec<(usize, Vec<String>)> {
    let (folder, name) = file.path.rsplit_once('/').unwrap_or(("", file.path));
    let owns_folder = root(file.path).is_some() || name == "mod.rs";
    let stem = name.trim_end_matches(".rs");
    let home = if owns_folder { String::from(folder) } else { format!("{folder}/{stem}") };
    let code = &file.code;
    let mut found = Vec::new();
    let mut inline: Vec<(&str, usize)> = Vec::new();
    let mut path = None;
    for (index, token) in code.iter().enumerate() {
        inline.retain(|(_, end)| index < *end);
        if reads(code, index, &["#", "[", "path", "="]) {
            path = code.get(index + 4).map(|literal| literal.text.trim_matches('"'));
        }
        if reads(code, index, &["include", "!", "("]) {
            let included = code.get(index + 3).map_or("", |token| token.text.trim_matches('"'));
            found.push((token.line, vec![join(folder, included)]));
        }
        if token.text != "mod" || index + 2 >= code.len() {
            continue;
        }
        let module = code[index + 1].text;
        match code[index + 2].text {
            "{" => inline.push((module, closing(code, index + 2))),
            ";" => {
                let mut base = home.clone();
                for (outer, _) in &inline {
                    base = format!("{base}/{outer}");
                }
                found.push((
                    token.line,
                    match path.take() {
                        Some(path) => vec![join(folder, path)],
                        None => {
                            vec![format!("{base}/{module}.rs"), format!("{base}/{module}/mod.rs")]
                        }
                    },
                ));
            }
            _ => {}
        }
    }
    found
}

/// `folder/relative` with `.` and `..` resolved.
pub(crate) fn join(folder: &str, relative: &str) -> String {
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in relative.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            name => parts.push(name),
        }
    }
    parts.join("/")
}

/// All text files under `root`, as (path, content), in order of their paths.
pub(crate) fn load(root: &Path) -> std::io::Result<Vec<(String, String)>> {
    let mut texts = Vec::new();
    let mut folders = vec![root.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder)? {
            let entry = entry?;
            let name = entry.file_name();
            let kind = entry.file_type()?;
            if SKIPPED.iter().any(|skipped| name == *skipped) {
                continue;
            }
            if kind.is_dir() {
                folders.push(entry.path());
            } else if kind.is_file() {
                // A file that is not UTF-8 is an image or a disk; no rule inspects those.
                let Ok(text) = String::from_utf8(std::fs::read(entry.path())?) else { continue };
                let path = entry.path();
                let path = path.strip_prefix(root).expect("it was found under the root");
                texts.push((path.to_string_lossy().into_owned(), text));
            }
        }
    }
    texts.sort();
    Ok(texts)
}

#[cfg(test)]
mod tests;
