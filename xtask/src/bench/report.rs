//! Figures of one or two releases → a Markdown report.

use serde_json::{Map, Value};
use std::path::Path;

/// Keys of a row that are not a peer's name.
const NOT_PEERS: &[&str] = &["name", "ours", "ratio", "unit", "target"];

/// The figures kept for `version`, if there are any that can be read.
pub(super) fn read(folder: &Path, version: &str) -> Option<Value> {
    let text = std::fs::read_to_string(folder.join(format!("{version}.json"))).ok()?;
    serde_json::from_str(&text).ok().filter(Value::is_object)
}

/// The figures of the last release before `version`.
pub(super) fn earlier(folder: &Path, version: &str) -> Option<Value> {
    let names = std::fs::read_dir(folder).ok()?.flatten().map(|entry| entry.file_name());
    let versions =
        names.filter_map(|name| Some(String::from(name.to_str()?.strip_suffix(".json")?)));
    let now = number(version)?;
    let last = versions.filter(|other| number(other).is_some_and(|other| other < now));
    read(folder, &last.max_by_key(|other| number(other))?)
}

/// `1.10.2` as numbers, which sort by release.
fn number(version: &str) -> Option<[u64; 3]> {
    let parts: Option<Vec<u64>> = version.split('.').map(|part| part.parse().ok()).collect();
    parts?.try_into().ok()
}

/// The report of a release, beside the one before it if there is one.
/// `notes` are hand-written remarks about the figures, in Markdown.
pub(super) fn markdown(release: &Value, earlier: Option<&Value>, notes: Option<&str>) -> String {
    let version = text(&release["version"]);
    let mut page = format!("# Figures of {version}\n\n");
    page += "Written by `cargo xtask bench`; the figures are in the JSON files beside it.\n";
    page +=
        "Figures are medians of interleaved rounds. A ratio is ours over the first peer's of the\n";
    page += "same round; for times and sizes it is the peer's over ours: more is always better.\n";
    page += "A *quoted* peer was measured elsewhere. If it is also *scaled*, its figure is\n";
    page += "divided by the speed of a raw file there and multiplied by that of a raw file here.\n";
    if let Some(notes) = notes {
        page += &format!("\n{}\n", notes.trim());
    }
    page += &shortfalls(release);
    for (name, bench) in release["benches"].as_object().into_iter().flatten() {
        page += &format!("\n## {name}: {}\n\n", text(&bench["what"]));
        page += &format!("`{}`\n\n", text(&bench["command"]));
        page += &format!("On {}.\n\n", facts(&bench["machine"]).join(" · "));
        let before = earlier.map(|release| (text(&release["version"]), &release["benches"][name]));
        page += &table(bench, before);
    }
    page
}

/// The rows that miss their target.
fn shortfalls(release: &Value) -> String {
    let mut lines = String::new();
    let (mut judged, mut met) = (0, 0);
    for (name, bench) in release["benches"].as_object().into_iter().flatten() {
        for row in rows(bench) {
            let [ratio, target] =
                ["ratio", "target"].map(|key| row.get(key).and_then(Value::as_f64));
            let (Some(ratio), Some(target)) = (ratio, target) else { continue };
            judged += 1;
            if ratio >= target {
                met += 1;
            } else {
                let what = text(&row["name"]);
                lines += &format!("| {name} | {what} | {ratio:.2} | {target:.2} |\n");
            }
        }
    }
    let mut page = format!("\n## Targets\n\n{met} of {judged} rows with a target meet it.\n");
    if !lines.is_empty() {
        page += "\n| bench | short of its target | ratio | target |\n|---|---|---:|---:|\n";
        page += &lines;
    }
    page
}

/// "key: value" of an object and of the objects in it.
fn facts(object: &Value) -> Vec<String> {
    let mut found = Vec::new();
    for (key, value) in object.as_object().into_iter().flatten() {
        match value {
            Value::Object(_) => found.extend(facts(value)),
            _ => found.push(format!("{key}: {}", text(value).trim())),
        }
    }
    found
}

/// One line per row; with `before` (version, bench) also the earlier figure.
fn table(bench: &Value, before: Option<(String, &Value)>) -> String {
    let mut lines = String::from("| what | ours | peers | ratio | target |");
    let mut rule = String::from("|---|---:|---:|---:|---:|");
    if let Some((version, _)) = &before {
        lines += &format!(" ours in {version} | ratio in {version} |");
        rule += "---:|---:|";
    }
    lines += &format!("\n{rule}\n");
    for row in rows(bench) {
        let unit = row.get("unit").map_or(String::new(), |unit| format!(" {}", text(unit)));
        let [ours, ratio, target] = ["ours", "ratio", "target"].map(|key| figure(row.get(key)));
        let name = text(&row["name"]);
        lines += &format!("| {name} | {ours}{unit} | {} | {ratio} | {target} |", peers(row));
        if let Some((_, bench)) = &before {
            let then = rows(bench).find(|then| then.get("name") == row.get("name"));
            let [ours, ratio] = ["ours", "ratio"].map(|key| figure(then.and_then(|t| t.get(key))));
            lines += &format!(" {ours} | {ratio} |");
        }
        lines += "\n";
    }
    lines
}

pub(super) fn rows(bench: &Value) -> impl Iterator<Item = &Map<String, Value>> {
    bench["rows"].as_array().into_iter().flatten().filter_map(Value::as_object)
}

fn peers(row: &Map<String, Value>) -> String {
    let peers = row.iter().filter(|(key, _)| !NOT_PEERS.contains(&key.as_str()));
    peers
        .map(|(key, value)| format!("{key} {}", figure(Some(value))))
        .collect::<Vec<_>>()
        .join(", ")
}

/// Three significant digits; nothing for nothing.
pub(super) fn figure(value: Option<&Value>) -> String {
    let Some(number) = value.and_then(Value::as_f64) else { return String::new() };
    let whole_digits = number.abs().max(1.0).log10().floor() as usize;
    format!("{number:.*}", 2_usize.saturating_sub(whole_digits))
}

/// A value without quotation marks.
pub(super) fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), String::from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn release(version: &str, ours: f64) -> Value {
        json!({ "version": version, "benches": { "parity": {
            "what": "kernels", "command": "x",
            "machine": { "cores": 2, "versions": { "fio": "3.33" } }, "rows": [
                { "name": "p 4+1", "ours": ours, "isal": 10.0, "ratio": ours / 10.0,
                  "unit": "GB/s" }
            ] } } })
    }

    #[test]
    fn a_report_shows_ours_the_peer_s_and_the_ratio() {
        let page = markdown(&release("0.1.0", 9.5), None, Some("Mind the gap."));
        assert!(page.contains("| p 4+1 | 9.50 GB/s | isal 10.0 | 0.95 |  |\n"), "{page}");
        assert!(page.contains("\nMind the gap.\n"), "{page}");
        assert!(page.contains("On cores: 2 · fio: 3.33.\n"));
    }

    #[test]
    fn a_report_shows_the_release_before_too() {
        let page = markdown(&release("0.2.0", 12.0), Some(&release("0.1.0", 9.5)), None);
        assert!(page.contains("ours in 0.1.0 | ratio in 0.1.0 |"), "{page}");
        assert!(page.contains("| 12.0 GB/s | isal 10.0 | 1.20 |  | 9.50 | 0.95 |"), "{page}");
    }

    #[test]
    fn missed_targets_are_listed() {
        let mut release = release("0.1.0", 9.5);
        release["benches"]["parity"]["rows"][0]["target"] = json!(0.95);
        assert!(markdown(&release, None, None).contains("1 of 1 rows with a target meet it.\n"));
        release["benches"]["parity"]["rows"][0]["target"] = json!(0.96);
        let page = markdown(&release, None, None);
        assert!(page.contains("| parity | p 4+1 | 0.95 | 0.96 |\n"), "{page}");
    }

    #[test]
    fn the_release_before_is_found_by_number_not_by_spelling() {
        let folder = std::env::temp_dir().join(format!("parapet-report-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a writable temporary folder");
        for version in ["0.2.0", "0.9.0", "0.10.0", "0.11.0"] {
            let text = release(version, 1.0).to_string();
            std::fs::write(folder.join(format!("{version}.json")), text).expect("writable");
        }
        let found = |version: &str| earlier(&folder, version).map(|found| text(&found["version"]));
        assert_eq!(found("0.11.0").as_deref(), Some("0.10.0"));
        assert_eq!(found("0.10.0").as_deref(), Some("0.9.0"));
        assert_eq!(found("0.2.0"), None);
        std::fs::remove_dir_all(&folder).expect("our own folder");
    }

    #[test]
    fn figures_have_three_digits() {
        let shown = [0.954_6, 9.5, 12.34, 1234.5].map(|number| figure(Some(&json!(number))));
        assert_eq!(shown, ["0.95", "9.50", "12.3", "1234"]);
    }
}
