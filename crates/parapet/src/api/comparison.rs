//! What `parapet plan` shows: layouts on the same disks, beside each other.

use schemars::JsonSchema;
use serde::Serialize;

use super::Report;
use crate::page::{Page, Style};

/// Layouts on the same disks. Speeds and chances are simulated.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Comparison {
    /// What the figures assume.
    pub(crate) assumptions: Vec<String>,
    /// The safest first.
    pub(crate) layouts: Vec<ComparedLayout>,
    /// One sentence.
    pub(crate) advice: String,
    /// What is not in the figures.
    pub(crate) caveat: String,
}

/// One layout.
#[derive(Serialize, JsonSchema)]
pub(crate) struct ComparedLayout {
    /// Its name, such as `raid6 + spare`.
    pub(crate) name: String,
    /// Bytes for data, after all metadata, as of `parapet create`.
    pub(crate) usable_bytes: u64,
    /// Members that may always be lost.
    pub(crate) tolerated: usize,
    /// Speeds with all disks; null if they were not asked for.
    pub(crate) healthy: Option<LayoutSpeed>,
    /// Speeds during a rebuild; null where nothing can be rebuilt.
    pub(crate) rebuilding: Option<LayoutSpeed>,
    /// Hours of a rebuild as the rate at its start promises.
    pub(crate) rebuild_hours_at_start_rate: Option<f64>,
    /// Hours of a rebuild with the slower inner tracks.
    pub(crate) rebuild_hours: Option<f64>,
    /// Hours from a failure to full redundancy.
    pub(crate) window_hours: Option<f64>,
    /// Chance of any loss of data; null below one in a million.
    pub(crate) loss: Option<f64>,
    /// The same, in words, with its 95 % interval.
    pub(crate) loss_text: String,
    /// The same by the other published rate of latent errors.
    pub(crate) loss_at_other_rate_text: String,
    /// The most frequent cause.
    pub(crate) cause: Option<String>,
    /// Bytes lost, on average over many arrays.
    pub(crate) bytes_lost: f64,
    /// Hours of a year with a disk missing, on average.
    pub(crate) degraded_hours_per_year: f64,
    /// What would change the chance of loss.
    pub(crate) what_if: Vec<ComparedChange>,
}

/// Speeds of a layout.
#[derive(Serialize, JsonSchema)]
pub(crate) struct LayoutSpeed {
    /// Sequential reads of 1 MiB, 8 at a time, at the start of the array.
    pub(crate) sequential_read_bytes_per_second: f64,
    /// The same writes.
    pub(crate) sequential_write_bytes_per_second: f64,
    /// Reads of 4 KiB in a second, 32 at a time, over all of the array.
    pub(crate) random_reads_per_second: f64,
    /// Their median latency.
    pub(crate) random_read_p50_ms: f64,
    /// The latency that 1 in 100 exceeds.
    pub(crate) random_read_p99_ms: f64,
    /// The same writes in a second.
    pub(crate) random_writes_per_second: f64,
    /// Their median latency.
    pub(crate) random_write_p50_ms: f64,
    /// The latency that 1 in 100 exceeds.
    pub(crate) random_write_p99_ms: f64,
}

/// A change to a plan.
#[derive(Serialize, JsonSchema)]
pub(crate) struct ComparedChange {
    /// The change.
    pub(crate) change: String,
    /// The chance of any loss with it.
    pub(crate) loss_text: String,
}

impl Report for Comparison {
    const SCHEMA: &'static str = "parapet/comparison/1";

    fn text(&self, page: &mut Page) {
        self.safety(page);
        if self.layouts.iter().any(|layout| layout.healthy.is_some()) {
            page.line("");
            self.speeds(page);
        }
        page.line("");
        page.line("What would change the chance of loss:");
        for layout in &self.layouts {
            let change = |it: &ComparedChange| format!("{}: {}", it.change, it.loss_text);
            let changes: Vec<String> = layout.what_if.iter().map(change).collect();
            if !changes.is_empty() {
                page.line(format!("  {}", layout.name));
                changes.iter().for_each(|change| page.line(format!("    {change}")));
            }
        }
        page.line("");
        self.assumptions.iter().for_each(|line| page.line(line));
        page.line(&self.caveat);
        page.line("");
        page.line(&self.advice);
    }
}

impl Comparison {
    fn safety(&self, page: &mut Page) {
        let heading =
            ["LAYOUT", "USABLE", "MAY LOSE", "REBUILD", "WINDOW", "LOSS OF DATA", "CAUSE"];
        let mut rows = vec![(Style::Plain, heading.map(String::from).to_vec())];
        for layout in &self.layouts {
            let hours = |hours: Option<f64>| hours.map_or("-".into(), |it| format!("{it:.0} h"));
            let row = vec![
                layout.name.clone(),
                page.in_both_units(layout.usable_bytes),
                layout.tolerated.to_string(),
                hours(layout.rebuild_hours),
                hours(layout.window_hours),
                layout.loss_text.clone(),
                layout.cause.clone().unwrap_or("-".into()),
            ];
            rows.push((Style::Plain, row));
        }
        page.table(&rows);
    }

    fn speeds(&self, page: &mut Page) {
        let heading = ["LAYOUT", "STATE", "READ", "WRITE", "4K READS", "P99", "4K WRITES", "P99"];
        let mut rows = vec![(Style::Plain, heading.map(String::from).to_vec())];
        for layout in &self.layouts {
            let states = [("healthy", &layout.healthy), ("rebuilding", &layout.rebuilding)];
            for (state, speed) in states {
                let Some(speed) = speed else { continue };
                let rate = |bytes: f64| format!("{:.0} MB/s", bytes / 1e6);
                let row = vec![
                    layout.name.clone(),
                    state.into(),
                    rate(speed.sequential_read_bytes_per_second),
                    rate(speed.sequential_write_bytes_per_second),
                    format!("{:.0}/s", speed.random_reads_per_second),
                    format!("{:.0} ms", speed.random_read_p99_ms),
                    format!("{:.0}/s", speed.random_writes_per_second),
                    format!("{:.0} ms", speed.random_write_p99_ms),
                ];
                rows.push((Style::Plain, row));
            }
        }
        page.table(&rows);
    }
}
