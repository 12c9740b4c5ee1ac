//! A report: one file of HTML with plots as SVG, without scripts and without anything from outside.
//!
//! Every plot says that its figures are simulated, from which seed, and with which constants.
//! Colours are those of Okabe and Ito, which most people can tell apart; they never stand alone.

mod plots;
mod svg;

use std::fmt::Write;

use self::svg::{escape, short, span};
use crate::experiment;
use crate::experiment::outcome::{Constant, Figures, Happened, Outcome, Run};
use crate::seeds::{Cell, Table};

/// Events that are drawn and listed.
const EVENTS_MAX: usize = 12;

/// What a report shows.
#[derive(Clone, Copy, Debug, Default)]
pub struct Report<'a> {
    /// The page's title.
    pub title: &'a str,
    /// The commit of the program, if it is known.
    pub commit: Option<&'a str>,
    /// Outcomes; with different depths they are also drawn against the depth.
    pub outcomes: &'a [Outcome],
    /// Published measurements and their reproductions.
    pub tables: &'a [Table],
}

/// The report as a page.
pub fn html(report: &Report<'_>) -> String {
    let title = escape(report.title);
    let mut page = format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <title>{title}</title><style>{}</style></head>\n<body><h1>{title}</h1>\n\
         <p class=\"note\">Simulated: the engine of Parapet {}{} in virtual time, on models of \
         disks. No figure was measured unless it is called so.</p>\n",
        include_str!("report/page.css"),
        env!("CARGO_PKG_VERSION"),
        report.commit.map(|commit| format!(" ({})", escape(commit))).unwrap_or_default(),
    );
    against_depth(&mut page, report.outcomes);
    for outcome in report.outcomes {
        of_outcome(&mut page, outcome);
    }
    for table in report.tables {
        of_table(&mut page, table);
    }
    page.push_str("</body></html>\n");
    page
}

/// A plot with the constants that its figures depend on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Figure {
    /// What it shows, for a file's name: `r4-cells`.
    pub name: String,
    svg: String,
    caption: String,
}

impl Figure {
    fn new(name: impl Into<String>, svg: String, caption: &str) -> Figure {
        Figure { name: name.into(), svg, caption: caption.into() }
    }

    /// The plot as a file of its own, with its caption.
    pub fn file(&self) -> String {
        svg::file(&self.svg, &self.caption)
    }
}

/// All plots of a report.
pub fn figures(report: &Report<'_>) -> Vec<Figure> {
    let mut figures = depth_figures(report.outcomes);
    for outcome in report.outcomes {
        let prefix = slug(&outcome.name);
        figures.extend(outcome_figures(outcome).into_iter().map(|figure| {
            let name = format!("{prefix}-{}", figure.name);
            Figure { name, ..figure }
        }));
    }
    figures.extend(report.tables.iter().filter_map(table_figure));
    figures
}

/// Small letters, digits and dashes.
fn slug(text: &str) -> String {
    let words = text.split(|letter: char| !letter.is_ascii_alphanumeric());
    let words: Vec<_> = words.filter(|word| !word.is_empty()).map(str::to_lowercase).collect();
    words.join("-")
}

/// Plots beside each other.
fn put(page: &mut String, figures: &[Figure]) {
    page.push_str("<div class=\"plots\">\n");
    for Figure { svg, caption, .. } in figures {
        let caption = escape(caption);
        let _ = writeln!(page, "<figure>{svg}<figcaption>{caption}</figcaption></figure>");
    }
    page.push_str("</div>\n");
}

fn listed(constants: &[Constant]) -> String {
    let text = |one: &Constant| format!("{}: {} ({})", one.name, one.value, one.source);
    let texts: Vec<String> = constants.iter().map(text).collect();
    format!("Constants: {}.", texts.join("; "))
}

/// Outcomes of the same experiment, but for depth and times.
fn families(outcomes: &[Outcome]) -> Vec<Vec<&Outcome>> {
    let mut families: Vec<(String, Vec<&Outcome>)> = Vec::new();
    for outcome in outcomes.iter().filter(|outcome| outcome.depth > 0) {
        let Ok(mut plain) = experiment::load(&outcome.experiment) else { continue };
        (plain.name, plain.warm_up_s, plain.window_s) = (String::new(), None, None);
        (plain.events, plain.cells) = (Vec::new(), Vec::new());
        plain.load.workers.iter_mut().for_each(|worker| (worker.count, worker.depth) = (1, 1));
        let key = format!("{plain:?}");
        match families.iter_mut().find(|(known, _)| *known == key) {
            Some((_, family)) => family.push(outcome),
            None => families.push((key, vec![outcome])),
        }
    }
    families.into_iter().map(|(_, family)| family).collect()
}

/// Outcomes that differ in their depth alone.
fn depth_families(outcomes: &[Outcome]) -> impl Iterator<Item = Vec<&Outcome>> {
    let differ = |family: &Vec<&Outcome>| family.iter().any(|one| one.depth != family[0].depth);
    families(outcomes).into_iter().filter(differ)
}

/// Rates and latencies of a family against the depth.
fn of_depths(family: &[&Outcome]) -> Vec<Figure> {
    let seeds = family.iter().map(|outcome| outcome.runs.len()).min().unwrap_or(0);
    let stamp = format!("simulated · medians over {seeds} seeds");
    let caption = listed(&family[0].constants);
    let plots =
        ["rate-by-depth", "latency-by-depth"].into_iter().zip(plots::depths(family, &stamp));
    plots.map(|(name, svg)| Figure::new(name, svg, &caption)).collect()
}

fn depth_figures(outcomes: &[Outcome]) -> Vec<Figure> {
    depth_families(outcomes).flat_map(|family| of_depths(&family)).collect()
}

fn against_depth(page: &mut String, outcomes: &[Outcome]) {
    for family in depth_families(outcomes) {
        let _ = writeln!(page, "<h2>{}: against the depth</h2>", escape(&family[0].name));
        put(page, &of_depths(&family));
    }
}

/// Events within the window.
fn visible(run: &Run) -> impl Iterator<Item = &Happened> {
    run.events.iter().filter(|event| (0.0..=run.span_s).contains(&event.at_s)).take(EVENTS_MAX)
}

fn of_outcome(page: &mut String, outcome: &Outcome) {
    let _ = writeln!(page, "<h2>{}</h2>", escape(&outcome.name));
    medians(page, outcome);
    let Some(run) = outcome.median_run() else { return };
    if let Some(error) = &run.first_error {
        let _ = writeln!(page, "<p><b>{} errors</b>, first: {}</p>", run.errors, escape(error));
    }
    put(page, &outcome_figures(outcome));
    members(page, run);
    let text = escape(&outcome.experiment);
    let _ = writeln!(page, "<details><summary>The experiment</summary><pre>{text}</pre></details>");
}

/// All plots of an outcome.
fn outcome_figures(outcome: &Outcome) -> Vec<Figure> {
    let Some(run) = outcome.median_run() else { return Vec::new() };
    let constants = listed(&outcome.constants);
    let stamp = |run: &Run| {
        let count = outcome.constants.len();
        format!("simulated · seed {} · {count} constants, listed below", run.seed)
    };
    let mut events = String::new();
    for (number, event) in visible(run).enumerate() {
        let _ = write!(events, "{}: {:.1} s, {}. ", number + 1, event.at_s, event.text);
    }
    let mut figures = vec![
        Figure::new("latency", plots::histogram(run, &stamp(run)), &constants),
        Figure::new("percentiles", plots::percentiles(run, &stamp(run)), &constants),
    ];
    if run.seconds.len() > 1 {
        let caption = format!("{events}{constants}");
        let rate = plots::rate(run, &stamp(run));
        figures.push(Figure::new("rate-over-time", rate, &caption));
        let throughput = plots::throughput(run, &stamp(run));
        figures.push(Figure::new("throughput-over-time", throughput, &caption));
        figures.push(Figure::new("latency-over-time", plots::tail(run, &stamp(run)), &caption));
    }
    if !run.stations.is_empty() {
        let svg = plots::stations(&run.stations, &stamp(run));
        figures.push(Figure::new("stations", svg, &constants));
    }
    for first in outcome.runs.iter().filter(|run| !run.heads.is_empty()) {
        for line in &first.heads {
            let name = format!("heads-{}", line.name);
            figures.push(Figure::new(name, plots::heads(line, &stamp(first)), &constants));
        }
    }
    for unit in units(outcome) {
        let cells = outcome.cells.iter().filter(|cell| cell.unit.to_string() == unit);
        let mine = cells.map(|cell| Cell {
            name: cell.name.clone(),
            measured: Some(cell.measured),
            reproduced: cell.reproduced,
            bound_by: "",
        });
        let mine: Vec<Cell> = mine.collect();
        let stamp = format!("simulated · medians over {} seeds", outcome.runs.len());
        let svg = plots::cells("Measured and reproduced", &unit, &mine, &stamp);
        figures.extend(svg.map(|svg| Figure::new("cells", svg, &constants)));
    }
    figures
}

/// The units of the cells, each once.
fn units(outcome: &Outcome) -> Vec<String> {
    let mut units: Vec<String> = outcome.cells.iter().map(|cell| cell.unit.to_string()).collect();
    units.sort();
    units.dedup();
    units
}

/// Medians and ranges over the seeds.
fn medians(page: &mut String, outcome: &Outcome) {
    let seeds = outcome.runs.len();
    let _ = write!(
        page,
        "<div class=\"wide\"><table><tr><th class=\"text\">over {seeds} seeds</th><th>median</th>\
         <th>least</th><th>most</th><th class=\"text\">unit</th></tr>"
    );
    let all: Vec<_> = outcome.runs.iter().map(|run| run.figures.named()).collect();
    for (index, (name, unit, median)) in outcome.median.named().into_iter().enumerate() {
        let values = || all.iter().map(|named| named[index].2);
        let (least, most) = (values().fold(f64::INFINITY, f64::min), values().fold(0.0, f64::max));
        let _ = write!(
            page,
            "<tr><td>{name}</td><td>{}</td><td>{}</td><td>{}</td>\
             <td class=\"text\">{unit}</td></tr>",
            short(median),
            short(least.min(most)),
            short(most)
        );
    }
    page.push_str("</table></div>\n");
    single(page, &outcome.median, outcome);
}

/// One sentence for those who read no table.
fn single(page: &mut String, median: &Figures, outcome: &Outcome) {
    let busiest = outcome
        .median_run()
        .and_then(|run| run.stations.iter().max_by(|a, b| a.busy().total_cmp(&b.busy())));
    let busiest = busiest.map(|station| {
        format!("; the busiest station is {} ({:.0} %)", station.name, station.busy() * 100.0)
    });
    let _ = writeln!(
        page,
        "<p>{} requests/s, half of them within {}, all but one in a hundred within {}{}.</p>",
        short(median.requests_per_s),
        span(median.p50_ns),
        span(median.p99_ns),
        escape(&busiest.unwrap_or_default())
    );
}

fn members(page: &mut String, run: &Run) {
    page.push_str(
        "<details><summary>Members</summary><div class=\"wide\"><table><tr><th>member</th>\
         <th>reads</th><th>writes</th><th>flushes</th><th>MB read</th><th>MB written</th></tr>",
    );
    for member in &run.members {
        let _ = write!(
            page,
            "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{:.1}</td><td>{:.1}</td></tr>",
            escape(&member.name),
            member.reads,
            member.writes,
            member.flushes,
            member.read_bytes as f64 / 1e6,
            member.written_bytes as f64 / 1e6
        );
    }
    page.push_str("</table></div></details>\n");
}

fn of_table(page: &mut String, table: &Table) {
    let _ = writeln!(page, "<h2>{}: {}</h2>", escape(table.name), escape(table.title));
    put(page, table_figure(table).as_slice());
    page.push_str("<div class=\"wide\"><table><tr><th>cell</th><th>measured</th>");
    page.push_str("<th>reproduced</th><th>error</th><th class=\"text\">bound by</th></tr>");
    for cell in &table.cells {
        let measured = cell.measured.map_or("–".into(), short);
        let error = cell.error().map_or("–".into(), |error| format!("{:+.1} %", error * 100.0));
        let _ = write!(
            page,
            "<tr><td>{}</td><td>{measured}</td><td>{}</td><td>{error}</td>\
             <td class=\"text\">{}</td></tr>",
            escape(&cell.name),
            short(cell.reproduced),
            escape(cell.bound_by)
        );
    }
    let (unit, limits) = (escape(table.unit), escape(table.limits));
    let _ = writeln!(page, "</table></div>\n<p class=\"note\">Unit: {unit}. {limits}</p>");
}

/// Measured and reproduced figures of a table, if it has measured ones.
fn table_figure(table: &Table) -> Option<Figure> {
    let constants = table.constants.iter().map(|one| Constant {
        name: one.name.into(),
        value: one.value.clone(),
        source: format!("fitted on {}", one.fitted_on),
    });
    let constants: Vec<Constant> = constants.collect();
    let stamp = format!("simulated · fixed seeds · {} constants, listed below", constants.len());
    let title = format!("{}: measured and reproduced", table.name);
    let svg = plots::cells(&title, table.unit, &table.cells, &stamp)?;
    Some(Figure::new(format!("{}-cells", slug(table.name)), svg, &listed(&constants)))
}

#[cfg(test)]
mod tests;
