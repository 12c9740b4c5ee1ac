//! One plain sentence from the rows.

use super::compare::Row;
use super::estimate::{LEAST_PRINTED, Odds};
use super::inputs::Inputs;
use super::rate::HOURS_PER_YEAR;
use super::what_if::{Change, WhatIf};

/// A change is recommended if it divides the chance of loss by this at least.
const WORTHWHILE: f64 = 1.5;

/// Compares the safest layout with the redundant one that holds most, and names the change that
/// helps the latter.
pub(super) fn sentence(rows: &[Row], inputs: &Inputs) -> String {
    let redundant = || rows.iter().filter(|row| row.tolerated > 0);
    let years = inputs.mission_hours / HOURS_PER_YEAR;
    let years = format!("{} years", (years * 10.0).round() / 10.0);
    let largest = redundant().max_by(|a, b| {
        // Of equal ones the safer.
        a.usable_bytes.cmp(&b.usable_bytes).then(b.loss.mean.total_cmp(&a.loss.mean))
    });
    let (Some(safest), Some(largest)) = (redundant().next(), largest) else {
        return format!("None of these layouts survives the loss of a disk in {years}.");
    };
    let odds = |chance| Odds::rounded(chance);
    let mut text = format!("{} loses data least often", safest.name);
    text += &format!(" ({} in {years})", odds(safest.loss.mean));
    if safest.candidate == largest.candidate {
        text += " and holds the most";
    } else {
        let gigabytes = (largest.usable_bytes - safest.usable_bytes) as f64 / 1e9;
        let its_odds = odds(largest.loss.mean);
        text += &format!("; {} holds {gigabytes:.0} GB more ({its_odds})", largest.name);
    }
    if let Some(best) = best_change(largest) {
        text += &format!(", and would gain from {} ({})", best.change, odds(best.loss.mean));
    }
    text + "."
}

/// The worthwhile change that helps most; a scrub comes first, because it costs nothing.
fn best_change(row: &Row) -> Option<&WhatIf> {
    if row.loss.mean < LEAST_PRINTED {
        return None;
    }
    let worthwhile =
        || row.what_if.iter().filter(|what| what.loss.mean * WORTHWHILE < row.loss.mean);
    let scrub = worthwhile().find(|what| matches!(what.change, Change::Scrub(_)));
    scrub.or_else(|| worthwhile().min_by(|a, b| a.loss.mean.total_cmp(&b.loss.mean)))
}
