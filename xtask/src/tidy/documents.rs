//! The documents: links lead somewhere, decision records have numbers.

use super::Violation;
use super::tree::{Tree, join};
use std::collections::BTreeMap;

/// Every relative link of a Markdown file leads to a file or folder of the project.
pub(super) fn links(tree: &Tree<'_>) -> Vec<Violation> {
    let mut found = Vec::new();
    for file in tree.files.iter().filter(|file| file.path.ends_with(".md")) {
        let folder = file.path.rsplit_once('/').map_or("", |(folder, _)| folder);
        let mut fenced = false;
        for (line, text) in file.lines() {
            fenced ^= text.trim_start().starts_with("```");
            for target in targets(text).into_iter().filter(|_| !fenced) {
                let file_part = target.split('#').next().unwrap_or("");
                let path = join(folder, file_part);
                let below = format!("{path}/");
                let there = |other: &str| other == path || other.starts_with(&below);
                if file_part.is_empty() || tree.files.iter().any(|file| there(file.path)) {
                    continue;
                }
                let what = format!("the link to {target} leads nowhere");
                found.push(Violation::new(file.path, line, what, "mend it or take it out"));
            }
        }
    }
    found
}

/// The targets of links `[text](target)` in a line, inside the project; code is skipped.
fn targets(line: &str) -> Vec<&str> {
    let prose = line.split('`').step_by(2);
    let links = prose.flat_map(|text| text.split("](").skip(1));
    links
        .filter_map(|rest| rest.split([')', ' ']).next())
        .filter(|target| !target.contains("://") && !target.starts_with("mailto:"))
        .collect()
}

const RECORDS: &str = "docs/decisions/";

/// Records are named `NNNN-title.md` and no number is given twice.
pub(super) fn decisions(tree: &Tree<'_>) -> Vec<Violation> {
    let mut found = Vec::new();
    let mut numbers = BTreeMap::new();
    for file in tree.files.iter().filter(|file| file.path.starts_with(RECORDS)) {
        let name = &file.path[RECORDS.len()..];
        if name == "README.md" {
            continue;
        }
        let Some(number) = number(name) else {
            let remedy = "call it NNNN-title.md, with the next free number";
            found.push(Violation::new(file.path, 1, "a record without a number", remedy));
            continue;
        };
        if let Some(other) = numbers.insert(number, name) {
            let what = format!("{other} has the same number");
            found.push(Violation::new(file.path, 1, what, "take the next free number"));
        }
    }
    found
}

/// The four digits before the title, if the name has both.
fn number(name: &str) -> Option<&str> {
    let (number, title) = name.strip_suffix(".md")?.split_once('-')?;
    let counted = number.len() == 4 && number.bytes().all(|byte| byte.is_ascii_digit());
    let titled = !title.is_empty()
        && title.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-'));
    (counted && titled).then_some(number)
}
