//! Figures as a table for people and as JSON.

use crate::failure::Failure;
use serde_json::{Value, json};
use std::fmt;
use std::path::{Path, PathBuf};

/// A figure of a program; its unit is part of its name.
pub(super) struct Figure {
    name: String,
    value: f64,
}

impl Figure {
    pub(super) fn new(name: &str, value: f64) -> Figure {
        Figure { name: name.to_owned(), value }
    }

    /// With three digits or more.
    fn digits(&self) -> String {
        match self.value {
            value if value >= 100.0 => format!("{value:.0}"),
            value if value >= 10.0 => format!("{value:.1}"),
            value => format!("{value:.2}"),
        }
    }
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.name, self.digits())
    }
}

/// The figures of a target.
pub(super) struct Row {
    target: String,
    figures: Vec<Figure>,
}

impl Row {
    pub(super) fn new(target: &str) -> Row {
        Row { target: target.to_owned(), figures: Vec::new() }
    }

    pub(super) fn add(&mut self, figure: Figure) {
        self.figures.push(figure);
    }
}

/// The rows of a preset, which all have the same figures.
pub(super) struct Table {
    preset: &'static str,
    what: &'static str,
    scale: &'static str,
    /// The load average at the start, this program's own work not included.
    load_before: String,
    rows: Vec<Row>,
}

impl Table {
    pub(super) fn new(preset: &'static str, what: &'static str, scale: &'static str) -> Table {
        Table { preset, what, scale, load_before: load_average(), rows: Vec::new() }
    }

    pub(super) fn add(&mut self, row: Row) {
        self.rows.push(row);
    }

    fn json(&self) -> Value {
        let row = |row: &Row| {
            let figures = row.figures.iter().map(|it| json!({"name": it.name, "value": it.value}));
            json!({"target": row.target, "figures": figures.collect::<Vec<_>>()})
        };
        json!({
            "preset": self.preset,
            "what": self.what,
            "parameters": self.scale,
            "load_before": self.load_before,
            "rows": self.rows.iter().map(row).collect::<Vec<_>>(),
        })
    }
}

/// As Markdown.
impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(first) = self.rows.first() else { return Ok(()) };
        writeln!(f, "{} ({}; load average before {})\n", self.what, self.scale, self.load_before)?;
        let names: Vec<&str> = first.figures.iter().map(|figure| figure.name.as_str()).collect();
        writeln!(f, "| {} | {} |", self.preset, names.join(" | "))?;
        writeln!(f, "|---|{}", "---:|".repeat(names.len()))?;
        for row in &self.rows {
            let values: Vec<String> = row.figures.iter().map(Figure::digits).collect();
            writeln!(f, "| {} | {} |", row.target, values.join(" | "))?;
        }
        Ok(())
    }
}

/// The load average of the last minute.
pub(super) fn load_average() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().map(String::from).unwrap_or_default()
}

/// Writes all tables so far as JSON.
pub(super) fn keep(root: &Path, tables: &[Table]) -> Result<PathBuf, Failure> {
    let path = root.join("target/loads.json");
    let all: Vec<Value> = tables.iter().map(Table::json).collect();
    let text = serde_json::to_string_pretty(&all).expect("a value is always printable");
    std::fs::write(&path, text).map_err(|error| {
        Failure::new(format!("{}: {error}", path.display()), "make it writable")
    })?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_markdown() {
        let mut table = Table::new("r9", "two disks", "short");
        table.load_before = "0.10".into();
        for (target, value) in [("one", 2.346), ("two", 271.8)] {
            let mut row = Row::new(target);
            row.add(Figure::new("cp s", value));
            row.add(Figure::new("umount s", 12.34));
            table.add(row);
        }
        let text = "two disks (short; load average before 0.10)\n\n\
                    | r9 | cp s | umount s |\n|---|---:|---:|\n\
                    | one | 2.35 | 12.3 |\n| two | 272 | 12.3 |\n";
        assert_eq!(table.to_string(), text);
        assert_eq!(table.json()["rows"][1]["figures"][0]["value"], 271.8);
    }
}
