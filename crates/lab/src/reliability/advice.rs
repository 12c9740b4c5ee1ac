//! One plain sentence from the rows.

use super::compare::Row;
use super::estimate::{LEAST_PRINTED, Odds};
use super::goal::Goal;
use super::inputs::Inputs;
use super::rate::HOURS_PER_YEAR;
use super::what_if::{Change, WhatIf};

/// A change is recommended if it divides the chance of loss by this at least.
const WORTHWHILE: f64 = 1.5;
/// Chances of loss below this need no change.
const RARE: f64 = 1e-4;
/// Speeds closer than this are the same.
const SAME_SPEED: f64 = 0.05;

/// Names the layout that is best for the goal, what the others would give instead, and the change
/// that helps most.
pub(super) fn sentence(rows: &[Row], inputs: &Inputs) -> String {
    let years = inputs.mission_hours / HOURS_PER_YEAR;
    let years = format!("{} years", (years * 10.0).round() / 10.0);
    let redundant: Vec<&Row> = rows.iter().filter(|row| row.tolerated > 0).collect();
    let Some(&best) = redundant.first() else {
        return format!("None of these layouts survives the loss of a disk in {years}.");
    };
    let odds = |row: &Row| Odds::rounded(row.loss.mean);
    let why = match inputs.goal {
        Goal::Safe => "loses data least often",
        Goal::Fast => "is the fastest that survives a failure",
        Goal::Space => "holds the most that survives a failure",
    };
    let mut text = format!("Choose {}: it {why} ({} in {years})", best.name, odds(best));
    let (safest, fastest, largest) = rivals(&redundant, best);
    let mut others = Vec::new();
    if let Some(row) = safest {
        others.push(format!("{} is safer ({}{})", row.name, odds(row), pace(row, best)));
    }
    if let Some(row) = fastest {
        others.push(format!("{} is faster ({}{})", row.name, odds(row), pace(row, best)));
    }
    if let Some(row) = largest {
        let more = size((row.usable_bytes - best.usable_bytes) as f64);
        others.push(format!("{} holds {more} more ({}{})", row.name, odds(row), pace(row, best)));
    }
    if !others.is_empty() {
        text += "; ";
        text += &others.join(", ");
    }
    // What would help the best one if it needs help, or else the layout that holds more.
    let helped = [Some(best).filter(|row| row.loss.mean >= RARE), largest].into_iter().flatten();
    let change = helped.filter_map(|row| best_change(row).map(|change| (row, change))).next();
    if let Some((row, change)) = change {
        let odds = Odds::rounded(change.loss.mean);
        text += &format!("; {} would gain most from {} ({odds})", row.name, change.change);
    }
    text + "."
}

/// The safest, the fastest and the largest of these layouts, where they are clearly better than
/// `best` in that.
fn rivals<'a>(rows: &[&'a Row], best: &Row) -> (Option<&'a Row>, Option<&'a Row>, Option<&'a Row>) {
    let loss = |row: &Row| row.loss.mean.max(LEAST_PRINTED);
    let top = |better: &dyn Fn(&Row, &Row) -> std::cmp::Ordering| {
        rows.iter().copied().reduce(|a, b| if better(b, a).is_gt() { b } else { a })
    };
    let safest = top(&|a, b| loss(b).total_cmp(&loss(a)));
    let fastest = top(&|a, b| speed(a).total_cmp(&speed(b)));
    // Of equal sizes the safer.
    let largest =
        top(&|a, b| a.usable_bytes.cmp(&b.usable_bytes).then(b.loss.mean.total_cmp(&a.loss.mean)));
    let safest = safest.filter(|row| loss(row) * WORTHWHILE < loss(best));
    let fastest = fastest.filter(|row| speed(row) > speed(best) * (1.0 + SAME_SPEED));
    let largest = largest.filter(|row| row.usable_bytes > best.usable_bytes / 100 * 101);
    // A layout is named once.
    let fastest = fastest.filter(|row| safest.is_none_or(|it| it.candidate != row.candidate));
    let named =
        |row: &Row| [safest, fastest].iter().flatten().any(|it| it.candidate == row.candidate);
    let largest = largest.filter(|row| !named(row));
    (safest, fastest, largest)
}

fn size(bytes: f64) -> String {
    if bytes < 1e12 { format!("{:.0} GB", bytes / 1e9) } else { format!("{:.1} TB", bytes / 1e12) }
}

fn speed(row: &Row) -> f64 {
    row.speeds.as_ref().map_or(0.0, |speeds| speeds.score())
}

/// How much faster or slower than `best` a layout is; empty without speeds.
fn pace(row: &Row, best: &Row) -> String {
    let (one, other) = (speed(row), speed(best));
    if one <= 0.0 || other <= 0.0 {
        return String::new();
    }
    match one / other {
        ratio if (ratio - 1.0).abs() < SAME_SPEED => ", as fast".into(),
        ratio if ratio >= 2.0 => format!(", {ratio:.1} times as fast"),
        ratio if ratio > 1.0 => format!(", {:.0} % faster", (ratio - 1.0) * 100.0),
        ratio => format!(", {:.0} % slower", (1.0 - ratio) * 100.0),
    }
}

/// The worthwhile change that helps most; a scrub comes first, because it costs nothing.
fn best_change(row: &Row) -> Option<&WhatIf> {
    let worthwhile =
        || row.what_if.iter().filter(|what| what.loss.mean * WORTHWHILE < row.loss.mean);
    let scrub = worthwhile().find(|what| matches!(what.change, Change::Scrub(_)));
    scrub.or_else(|| worthwhile().min_by(|a, b| a.loss.mean.total_cmp(&b.loss.mean)))
}
