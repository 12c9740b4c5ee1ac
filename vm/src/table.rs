//! The matrix as a table, for people and for `docs/interop.md`.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::cell::{VERSIONS, Way};
use crate::outcome::Outcome;

/// Of one kind of array: by place of the superblock, how many trials passed, of how many.
type Row = BTreeMap<&'static str, (usize, usize)>;

/// A row for each kind of array, a column for each place of the superblock: how many trials passed,
/// of how many. Each is a chunk and a record of writes, made by one side and taken by the other.
pub(crate) fn of(ways: &[Way], outcomes: &[Outcome]) -> String {
    let mut rows: Vec<(String, Row)> = Vec::new();
    for way in ways {
        let outline = way.cell.outline();
        let name = way.to_string();
        if rows.last().is_none_or(|(last, _)| *last != outline) {
            rows.push((outline, Row::new()));
        }
        let row = &mut rows.last_mut().expect("there is one now").1;
        let (passed, tried) = row.entry(way.cell.metadata).or_default();
        for outcome in outcomes.iter().filter(|outcome| outcome.name == name) {
            *tried += 1;
            *passed += usize::from(outcome.failure.is_none());
        }
    }
    let mut text = format!("| array | {} |\n|---|---|---|---|\n", VERSIONS.join(" | "));
    for (outline, row) in rows {
        let column = |version: &&str| match row.get(version) {
            Some((passed, tried)) if *tried > 0 => format!("{passed} of {tried}"),
            _ => String::new(),
        };
        let columns: Vec<String> = VERSIONS.iter().map(column).collect();
        writeln!(text, "| {outline} | {} |", columns.join(" | ")).expect("a string takes all");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cell;

    #[test]
    fn a_row_counts_both_makers() {
        let ways: Vec<Way> =
            cell::all().into_iter().filter(|way| way.to_string().contains("raid4")).collect();
        let outcome = |way: &Way, failure: Option<String>| Outcome {
            name: way.to_string(),
            is_skip: false,
            failure,
        };
        let mut outcomes: Vec<Outcome> = ways[1..].iter().map(|way| outcome(way, None)).collect();
        outcomes.push(outcome(&ways[0], Some("no".into())));
        let table = of(&ways, &outcomes);
        let last = table.lines().last().expect("a row");
        assert_eq!(last, "| raid4, 3 members | 11 of 12 | 12 of 12 | 12 of 12 |");
    }
}
