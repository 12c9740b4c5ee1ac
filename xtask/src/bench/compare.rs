//! Two releases side by side: `cargo xtask bench --compare OLD.json NEW.json`.

use super::report::{figure, rows, text};
use crate::failure::Failure;
use serde_json::Value;
use std::path::Path;

/// Units of figures of which less is better.
const LESS_IS_BETTER: &[&str] = &["µs", "ms", "MiB"];

/// Prints the figures of both files with their ratios.
pub(super) fn print(old: &str, new: &str) -> Result<(), Failure> {
    let [old, new] = [read(old)?, read(new)?];
    println!("{}", table(&old, &new));
    Ok(())
}

fn read(path: &str) -> Result<Value, Failure> {
    let path = Path::new(path);
    let failed = |why: String| {
        let what = format!("{}: {why}", path.display());
        Failure::new(what, "name a file of docs/bench, such as docs/bench/0.1.0.json")
    };
    let bytes = std::fs::read_to_string(path).map_err(|error| failed(error.to_string()))?;
    let release: Value = serde_json::from_str(&bytes).map_err(|error| failed(error.to_string()))?;
    match release["benches"].is_object() {
        true => Ok(release),
        false => Err(failed("no figures of a release".into())),
    }
}

/// One line for each figure that both have: a ratio over 1 means that the new one is better.
/// Figures of different machines are not comparable, so both machines stand above.
fn table(old: &Value, new: &Value) -> String {
    let mut page = String::new();
    for (name, bench) in new["benches"].as_object().into_iter().flatten() {
        let before = &old["benches"][name];
        let lines: Vec<String> = rows(bench)
            .filter_map(|row| {
                let then = rows(before).find(|then| then.get("name") == row.get("name"))?;
                line(&text(&row["name"]), then, row)
            })
            .collect();
        if lines.is_empty() {
            continue;
        }
        let versions = [old, new].map(|release| text(&release["version"]));
        let machines = [before, bench].map(|bench| text(&bench["machine"]["cpu"]));
        page += &format!("\n## {name}\n\nOn {} and {}.\n\n", machines[0], machines[1]);
        page += &format!(
            "| what | {} | {} | ratio |\n|---|---:|---:|---:|\n",
            versions[0], versions[1]
        );
        page += &lines.concat();
    }
    page
}

type Row = serde_json::Map<String, Value>;

fn line(name: &str, old: &Row, new: &Row) -> Option<String> {
    let ours = |row: &Row| row.get("ours").and_then(Value::as_f64).filter(|&ours| ours > 0.0);
    let unit = new.get("unit").map_or(String::new(), text);
    let (then, now) = (ours(old)?, ours(new)?);
    let ratio = if LESS_IS_BETTER.contains(&unit.as_str()) { then / now } else { now / then };
    let [before, after] = [old, new].map(|row| figure(row.get("ours")));
    Some(format!("| {name} | {before} {unit} | {after} {unit} | {ratio:.2} |\n"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn two_releases_are_compared_row_by_row() {
        let release = |version, rate, time, more: Value| {
            json!({ "version": version, "benches": { "aoe": { "machine": { "cpu": "x" }, "rows": [
                { "name": "read", "ours": rate, "ratio": 1.0, "unit": "MB/s" },
                { "name": "p99", "ours": time, "ratio": 1.0, "unit": "µs" }, more,
            ] } } })
        };
        let only_old = json!({ "name": "gone", "ours": 1.0, "ratio": 1.0 });
        let only_new = json!({ "name": "new", "ours": 1.0, "ratio": 1.0 });
        let old = release("0.1.0", 100.0, 8.0, only_old);
        let new = release("0.2.0", 150.0, 4.0, only_new);
        let page = table(&old, &new);
        assert!(page.contains("| what | 0.1.0 | 0.2.0 | ratio |\n"), "{page}");
        assert!(page.contains("| read | 100 MB/s | 150 MB/s | 1.50 |\n"), "{page}");
        assert!(page.contains("| p99 | 8.00 µs | 4.00 µs | 2.00 |\n"), "{page}");
        assert_eq!(page.lines().filter(|line| line.starts_with("| ")).count(), 3, "{page}");
    }
}
