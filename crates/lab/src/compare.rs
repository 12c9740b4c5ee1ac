//! Two outcomes beside each other, as text.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::experiment::outcome::Outcome;
use crate::experiment::{self, Experiment, Fault};

/// Keys of the experiments that are listed as different.
const KEYS_MAX: usize = 20;

/// Both outcomes' medians and their ratios, and in which keys the experiments differ. A difference
/// within the spread of the seeds is marked with `~`: it says nothing.
pub fn compare(a: &Outcome, b: &Outcome) -> String {
    let mut text = format!("A: {}\nB: {}\nsimulated, ", a.name, b.name);
    let _ = writeln!(text, "medians over {} and {} seeds\n", a.runs.len(), b.runs.len());
    let _ = writeln!(text, "  {:<15}  {:>11}  {:>11}  {:>8}  unit", "", "A", "B", "B/A");
    let [from_a, from_b] = [a, b].map(|outcome| outcome.median.named());
    for (index, ((name, unit, in_a), (_, _, in_b))) in from_a.into_iter().zip(from_b).enumerate() {
        let ratio = if in_a > 0.0 { format!("{:.3}", in_b / in_a) } else { "-".into() };
        let ranges = [a, b].map(|outcome| range(outcome, index));
        let [(low_a, high_a), (low_b, high_b)] = ranges;
        let mark = if low_a <= high_b && low_b <= high_a { "~" } else { " " };
        let _ = writeln!(
            text,
            "  {name:<15}  {:>11}  {:>11}  {ratio:>7}{mark}  {unit}",
            figure(in_a),
            figure(in_b)
        );
    }
    text.push_str("\n  ~ within the spread of the seeds\n");
    differences(&mut text, a, b);
    text
}

/// Runs two experiments without traces, and compares them.
///
/// # Errors
/// As [`experiment::run`].
pub fn run(a: &Experiment, b: &Experiment) -> Result<String, Fault> {
    Ok(compare(&experiment::run(a)?, &experiment::run(b)?))
}

/// Least and most of a figure over the runs.
fn range(outcome: &Outcome, index: usize) -> (f64, f64) {
    let values = || outcome.runs.iter().map(|run| run.figures.named()[index].2);
    (values().fold(f64::INFINITY, f64::min), values().fold(f64::NEG_INFINITY, f64::max))
}

fn figure(value: f64) -> String {
    match value.abs() {
        big if big >= 1000.0 => format!("{value:.0}"),
        big if big >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.3}"),
    }
}

fn differences(text: &mut String, a: &Outcome, b: &Outcome) {
    let [in_a, in_b] = [a, b].map(|outcome| {
        let mut flat = BTreeMap::new();
        if let Ok(table) = outcome.experiment.parse::<toml::Table>() {
            flatten(&mut flat, "", &toml::Value::Table(table));
        }
        flat
    });
    let mut keys: Vec<&String> = in_a.keys().chain(in_b.keys()).collect();
    keys.sort();
    keys.dedup();
    keys.retain(|key| *key != "name" && in_a.get(*key) != in_b.get(*key));
    if keys.is_empty() {
        return text.push_str("\nThe experiments are equal.\n");
    }
    text.push_str("\nThe experiments differ in:\n");
    for key in keys.iter().take(KEYS_MAX) {
        let [left, right] = [&in_a, &in_b].map(|flat| flat.get(*key).map_or("-", String::as_str));
        let _ = writeln!(text, "  {key}: {left} | {right}");
    }
    if keys.len() > KEYS_MAX {
        let _ = writeln!(text, "  and {} more", keys.len() - KEYS_MAX);
    }
}

/// Each value with its path.
fn flatten(flat: &mut BTreeMap<String, String>, path: &str, value: &toml::Value) {
    let below = |key: &str| match path {
        "" => key.to_string(),
        path => format!("{path}.{key}"),
    };
    match value {
        toml::Value::Table(table) => {
            table.iter().for_each(|(key, value)| flatten(flat, &below(key), value));
        }
        toml::Value::Array(list) if list.iter().any(toml::Value::is_table) => {
            for (index, value) in list.iter().enumerate() {
                flatten(flat, &format!("{path}[{index}]"), value);
            }
        }
        other => drop(flat.insert(path.into(), other.to_string())),
    }
}

#[cfg(test)]
mod tests;
