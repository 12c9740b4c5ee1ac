//! The rooms of the engine: each names those below it, and only the shard's files extend it.

use super::Violation;
use super::tree::{File, Tree, reads};

/// Where the rooms are.
const HOUSE: &str = "crates/array/src/";

/// From the bottom to the top.
const ROOMS: &[&str] = &["member", "rows", "shard", "keeper"];

/// Names of a higher layer that a lower one may use: the messages in which a row reports, and plain
/// data.
const OPEN: &[(&str, &[&str])] =
    &[("rows", &["shard::mail", "shard::message", "shard::requests::Load", "shard::cache::map"])];

/// Arrows between rooms point down.
pub(super) fn check(tree: &Tree<'_>) -> Vec<Violation> {
    tree.rust().filter_map(|file| Some((file, level(file.path)?))).flat_map(arrows).collect()
}

/// The room of a file, as an index of [`ROOMS`].
fn level(path: &str) -> Option<usize> {
    let inside = path.strip_prefix(HOUSE)?;
    let room = inside.split(['/', '.']).next()?;
    ROOMS.iter().position(|name| *name == room)
}

fn arrows((file, level): (&File<'_>, usize)) -> Vec<Violation> {
    let mut found = Vec::new();
    let shipped = (0..file.code.len()).filter(|index| !file.in_test(file.code[*index].line));
    for index in shipped {
        let line = file.code[index].line;
        if ROOMS[level] != "shard" && reads(&file.code, index, &["impl", "Shard"]) {
            let remedy = "make it a method of `RowOp` or `Engine`, or move it to shard/";
            found.push(Violation::new(file.path, line, "`impl Shard` outside of shard/", remedy));
        }
        if !reads(&file.code, index, &["crate", ":", ":"]) {
            continue;
        }
        let names = file.code[index + 3..].iter().map(|token| token.text);
        let named: Vec<&str> = names.take_while(|text| *text != ";").collect();
        let above = ROOMS[level + 1..].iter().find(|room| named.first() == Some(room));
        let Some(room) = above else { continue };
        let path = named.concat();
        let open = OPEN.iter().find(|(name, _)| *name == ROOMS[level]);
        if open.is_none_or(|(_, paths)| !paths.iter().any(|open| path.starts_with(open))) {
            let what = format!("`{}` names `crate::{room}`, a room above it", ROOMS[level]);
            let remedy = "move what it needs down, or pass it in";
            found.push(Violation::new(file.path, line, what, remedy));
        }
    }
    found
}
