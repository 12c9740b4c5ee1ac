//! No trace of build machines in the project: no folders, no hosts, no mirrors.

use super::Violation;
use super::tree::Tree;

/// Marks of a build machine, in halves so that this file does not carry them itself.
const MARKS: &[(&str, &str)] = &[
    ("/wo", "rk/"),
    ("/ro", "ot/"),
    ("/tmp/", "target"),
    ("/home/", "runner"),
    ("replace", "-with"),
    ("artifact", "registry"),
    ("artifact", "ory"),
];

/// No mark in any text file.
pub(super) fn check(tree: &Tree<'_>) -> Vec<Violation> {
    let marks: Vec<String> = MARKS.iter().map(|(head, tail)| format!("{head}{tail}")).collect();
    let mut found = Vec::new();
    for file in &tree.files {
        for (line, text) in file.lines() {
            if let Some(mark) = marks.iter().find(|mark| text.contains(mark.as_str())) {
                let what = format!("`{mark}` belongs to some machine, not to the project");
                let remedy = "use a path below the checkout or std::env::temp_dir()";
                found.push(Violation::new(file.path, line, what, remedy));
            }
        }
    }
    found
}
