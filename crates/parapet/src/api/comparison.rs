//! What `parapet plan` shows: layouts on the same disks, beside each other.

use ::lab::reliability::{HOURS_PER_DAY, HOURS_PER_YEAR, Odds};
use serde::Serialize;

use super::Report;
use crate::page::{Page, Style};
use crate::size::Size;

/// Layouts on the same disks. Speeds and chances are simulated.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Comparison {
    /// Hours in service, to which chances and bytes refer.
    pub(crate) mission_hours: f64,
    /// What the figures assume.
    pub(crate) assumptions: Vec<String>,
    /// The best for the goal first; those that survive no failure last.
    pub(crate) layouts: Vec<ComparedLayout>,
    /// One sentence.
    pub(crate) advice: String,
    /// What is not in the figures.
    pub(crate) caveat: String,
}

/// One layout.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct ComparedLayout {
    /// Its name, such as `raid6 + spare`.
    pub(crate) name: String,
    /// Bytes for data, after all metadata, as of `parapet create`.
    pub(crate) usable_bytes: u64,
    /// Members that may always be lost.
    pub(crate) tolerated: usize,
    /// Speeds with all disks, one for each load; empty if they were not asked for.
    pub(crate) healthy: Vec<LoadSpeed>,
    /// The same with one disk missing; empty where that is fatal.
    pub(crate) degraded: Vec<LoadSpeed>,
    /// The same during a rebuild; empty where nothing can be rebuilt.
    pub(crate) rebuilding: Vec<LoadSpeed>,
    /// Bytes of the new disk that are rebuilt in a second beside the load, at the outer tracks, as
    /// measured; null without speeds. `rebuild_hours` follow it with `--load` only.
    pub(crate) rebuild_bytes_per_second: Option<f64>,
    /// Hours of a rebuild as the rate at its start promises.
    pub(crate) rebuild_hours_at_start_rate: Option<f64>,
    /// Hours of a rebuild with the slower inner tracks.
    pub(crate) rebuild_hours: Option<f64>,
    /// Hours from a failure to full redundancy.
    pub(crate) window_hours: Option<f64>,
    /// Chance of any loss of data; null below one in a million.
    pub(crate) loss: Option<f64>,
    /// Lower end of its 95 % interval, at least one in a million.
    pub(crate) loss_low: Option<f64>,
    /// Upper end.
    pub(crate) loss_high: Option<f64>,
    /// The same, in words, with its 95 % interval.
    pub(crate) loss_text: String,
    /// The chance by the other published rate of latent errors; null below one in a million.
    pub(crate) loss_at_other_rate: Option<f64>,
    /// The same, in words, with its 95 % interval.
    pub(crate) loss_at_other_rate_text: String,
    /// The most frequent cause.
    pub(crate) cause: Option<String>,
    /// Bytes lost, on average over many arrays.
    pub(crate) bytes_lost: f64,
    /// The same for each usable byte (NOMDL).
    pub(crate) lost_share: f64,
    /// Hours of a year with a disk missing, on average.
    pub(crate) degraded_hours_per_year: f64,
    /// What would change the chance of loss.
    pub(crate) what_if: Vec<ComparedChange>,
}

/// What clients get under a load.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct LoadSpeed {
    /// Name of the load. Without `--load`: `read` and `write`, a stream of 1 MiB requests, 8 at a
    /// time; `4K reads` and `4K writes`, 32 at a time, at random offsets.
    pub(crate) load: String,
    /// Requests in a second.
    pub(crate) requests_per_second: f64,
    /// Bytes in a second.
    pub(crate) bytes_per_second: f64,
    /// Median latency.
    pub(crate) p50_ms: f64,
    /// The latency that 1 request in 100 exceeds.
    pub(crate) p99_ms: f64,
}

/// A change to a plan.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct ComparedChange {
    /// Its kind.
    pub(crate) kind: ChangeKind,
    /// The change, in words.
    pub(crate) change: String,
    /// The chance of any loss with it; null below one in a million.
    pub(crate) loss: Option<f64>,
    /// The same, in words, with its 95 % interval.
    pub(crate) loss_text: String,
    /// The chance by the other published rate of latent errors; null below one in a million.
    pub(crate) loss_at_other_rate: Option<f64>,
    /// The same, in words, with its 95 % interval.
    pub(crate) loss_at_other_rate_text: String,
}

/// What is changed.
#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub(crate) enum ChangeKind {
    /// More frequent scrubs.
    Scrub,
    /// RAID 6 in place of RAID 5, with one more disk for each array.
    SecondParity,
    /// One more disk, as a spare.
    Spare,
    /// Rebuilds twice as fast.
    FasterRebuild,
}

impl ChangeKind {
    const ALL: [(ChangeKind, &str); 4] = [
        (ChangeKind::Scrub, "MORE SCRUBS"),
        (ChangeKind::SecondParity, "RAID 6, +1 DISK"),
        (ChangeKind::Spare, "+1 SPARE"),
        (ChangeKind::FasterRebuild, "2X REBUILD"),
    ];
}

/// Requests of this size on average are counted in bytes.
const LARGE_BYTES: f64 = 128.0 * 1024.0;

impl LoadSpeed {
    fn is_large(&self) -> bool {
        self.bytes_per_second >= LARGE_BYTES * self.requests_per_second
    }

    fn rate(&self) -> String {
        match self.is_large() {
            true => format!("{:.0} MB/s", self.bytes_per_second / 1e6),
            false => format!("{:.0}/s", self.requests_per_second),
        }
    }

    /// Median and 99th percentile.
    fn latencies(&self) -> String {
        format!("{}/{} ms", digits(self.p50_ms), digits(self.p99_ms))
    }

    fn in_full(&self) -> String {
        format!("{} {}", self.rate(), self.latencies())
    }

    /// Latencies of a stream are those of its depth: left out.
    fn in_brief(&self) -> String {
        if self.is_large() { self.rate() } else { self.in_full() }
    }
}

/// Hours for people: `5 years`, `3 days`.
pub(crate) fn in_words(hours: f64) -> String {
    let of = |count: f64, unit: &str| {
        let count = (count * 10.0).round() / 10.0;
        format!("{count} {unit}{}", if count == 1.0 { "" } else { "s" })
    };
    match hours {
        hours if hours >= HOURS_PER_YEAR => of(hours / HOURS_PER_YEAR, "year"),
        hours if hours >= 2.0 * HOURS_PER_DAY => of(hours / HOURS_PER_DAY, "day"),
        hours => of(hours, "hour"),
    }
}

/// Two digits at least.
fn digits(number: f64) -> String {
    match number {
        number if number < 0.01 => "<0.01".into(),
        number if number < 1.0 => format!("{number:.2}"),
        number if number < 10.0 => format!("{number:.1}"),
        number => format!("{number:.0}"),
    }
}

/// A chance for a narrow column.
fn brief(chance: Option<f64>) -> String {
    chance.map_or("< 1 in 1M".into(), |chance| Odds::rounded(chance).to_string())
}

impl Report for Comparison {
    const SCHEMA: &'static str = "parapet/comparison/2";

    fn text(&self, page: &mut Page) {
        self.chances(page);
        page.line("");
        self.repairs(page);
        self.speeds(page);
        self.changes(page);
        page.line("");
        self.assumptions.iter().for_each(|text| page.paragraph(Style::Faint, text));
        page.paragraph(Style::Faint, &self.caveat);
        page.line("");
        page.paragraph(Style::Strong, &self.advice);
    }
}

/// The speeds of a layout in one state.
type State = fn(&ComparedLayout) -> &Vec<LoadSpeed>;

impl Comparison {
    /// A heading, and a row for each layout that `cells` gives something for.
    fn rows(
        &self,
        heading: &[&str],
        cells: impl Fn(&ComparedLayout) -> Option<Vec<String>>,
    ) -> Vec<(Style, Vec<String>)> {
        let heading = heading.iter().map(|&it| it.into()).collect();
        let row = |layout: &ComparedLayout| {
            let cells = cells(layout)?;
            Some((Style::Plain, [vec![layout.name.clone()], cells].concat()))
        };
        std::iter::once((Style::Plain, heading))
            .chain(self.layouts.iter().filter_map(row))
            .collect()
    }

    fn chances(&self, page: &mut Page) {
        let loss = format!("LOSS IN {}", in_words(self.mission_hours).to_uppercase());
        let rows = self.rows(&["LAYOUT", "USABLE", &loss, "MORE ERRORS"], |layout| {
            let size = page.in_both_units(layout.usable_bytes);
            Some(vec![size, layout.odds(), brief(layout.loss_at_other_rate)])
        });
        page.table(&rows);
    }

    fn repairs(&self, page: &mut Page) {
        let heading =
            ["LAYOUT", "SURVIVES", "REBUILD", "WINDOW", "DEGRADED", "MEAN LOSS", "MAIN CAUSE"];
        let lost = |bytes: f64| match bytes {
            bytes if bytes < 1.0 => "< 1 B".into(),
            bytes => Size(bytes as u64).in_thousands(),
        };
        let rows = self.rows(&heading, |layout| {
            let hours = |hours: Option<f64>| hours.map_or("-".into(), |it| format!("{it:.0} h"));
            let survives = match layout.tolerated {
                0 => "nothing".into(),
                1 => "1 disk".into(),
                count => format!("{count} disks"),
            };
            Some(vec![
                survives,
                hours(layout.rebuild_hours),
                hours(layout.window_hours),
                match layout.tolerated {
                    0 => "-".into(),
                    _ => format!("{} h/y", digits(layout.degraded_hours_per_year)),
                },
                lost(layout.bytes_lost),
                layout.cause.clone().unwrap_or("-".into()),
            ])
        });
        page.table(&rows);
    }

    fn speeds(&self, page: &mut Page) {
        let Some(first) = self.layouts.first().filter(|it| !it.healthy.is_empty()) else { return };
        page.line("");
        if let [load] = &first.healthy[..] {
            page.line(format!("{}: rate, median/99th percentile latency", load.load));
            let heading = ["LAYOUT", "HEALTHY", "DEGRADED", "REBUILDING"];
            let rows = self.rows(&heading, |layout| {
                let states = [&layout.healthy, &layout.degraded, &layout.rebuilding];
                Some(states.map(|it| it.first().map_or("-".into(), LoadSpeed::in_full)).to_vec())
            });
            return page.table(&rows);
        }
        let names = first.healthy.iter().map(|speed| speed.load.to_uppercase());
        let heading: Vec<String> = std::iter::once("LAYOUT".into()).chain(names).collect();
        let heading: Vec<&str> = heading.iter().map(String::as_str).collect();
        let states: [(&str, State); 3] = [
            ("All disks: rate, median/99th percentile latency", |layout| &layout.healthy),
            ("One disk missing", |layout| &layout.degraded),
            ("Rebuilding", |layout| &layout.rebuilding),
        ];
        for (title, state) in states {
            let rows = self.rows(&heading, |layout| {
                let cells: Vec<String> = state(layout).iter().map(LoadSpeed::in_brief).collect();
                Some(cells).filter(|cells| !cells.is_empty())
            });
            if rows.len() > 1 {
                page.line(title);
                page.table(&rows);
            }
        }
    }

    fn changes(&self, page: &mut Page) {
        let all = || self.layouts.iter().flat_map(|layout| &layout.what_if);
        let scrub = all().find(|it| it.kind == ChangeKind::Scrub);
        let scrub = scrub.map_or(String::new(), |it| format!(" (more scrubs: {})", it.change));
        self.changed(page, &format!("Loss with a change{scrub}"), |it| it.loss);
        if page.is_verbose() {
            self.changed(page, "The same, more errors", |it| it.loss_at_other_rate);
        }
    }

    fn changed(&self, page: &mut Page, title: &str, loss: fn(&ComparedChange) -> Option<f64>) {
        let has = |kind| self.layouts.iter().any(|it| it.what_if.iter().any(|it| it.kind == kind));
        let kinds: Vec<_> = ChangeKind::ALL.into_iter().filter(|(kind, _)| has(*kind)).collect();
        let titles = kinds.iter().map(|(_, title)| *title);
        let heading: Vec<&str> = std::iter::once("LAYOUT").chain(titles).collect();
        let rows = self.rows(&heading, |layout| {
            let cell = |kind: ChangeKind| {
                let found = layout.what_if.iter().find(|it| it.kind == kind);
                found.map_or("-".into(), |it| brief(loss(it)))
            };
            // Below what is printed there is nothing to gain.
            let gains = layout.loss.or(layout.loss_at_other_rate.filter(|_| page.is_verbose()));
            let gains = gains.is_some() && !layout.what_if.is_empty();
            gains.then(|| kinds.iter().map(|(kind, _)| cell(*kind)).collect())
        });
        if rows.len() > 1 {
            page.line("");
            page.line(title);
            page.table(&rows);
        }
    }
}

impl ComparedLayout {
    /// The chance of loss with its interval in percent.
    fn odds(&self) -> String {
        let (Some(loss), Some(low), Some(high)) = (self.loss, self.loss_low, self.loss_high) else {
            return self.loss_text.clone();
        };
        let percent = ((high - low) / 2.0 / loss * 100.0).ceil().max(1.0);
        format!("{} ±{percent:.0} %", brief(Some(loss)))
    }
}
