//! The plots of an outcome.

use super::svg::{Axis, Plot, Scale, short, span};
use crate::experiment::histogram::Histogram;
use crate::experiment::outcome::{HeadLine, Outcome, Run, Second, Side, Station};
use crate::seeds::Cell;

/// Bars of a latency histogram to a decade.
const BARS: i32 = 12;
/// Stations that are drawn.
const STATIONS_MAX: usize = 32;
/// Points of a time line; a longer one is thinned.
const POINTS_MAX: usize = 600;

/// The class of an activity: one colour for each, the same in all plots.
pub(super) const ACTIVITIES: [(&str, &str); 8] = [
    ("work", "blue"),
    ("command", "purple"),
    ("seek", "orange"),
    ("rotate", "sky"),
    ("transfer", "green"),
    ("lost revolution", "red"),
    ("read ahead", "yellow"),
    ("idle", "grey"),
];

fn class_of(what: &str) -> &'static str {
    ACTIVITIES.iter().find(|(name, _)| *name == what).map_or("ink", |(_, class)| class)
}

/// Reads and writes that took place.
fn sides(run: &Run) -> impl Iterator<Item = (&'static str, &'static str, &Side)> {
    let all = [("reads", "blue", &run.read), ("writes", "orange", &run.write)];
    all.into_iter().filter(|(_, _, side)| side.requests > 0)
}

/// The axis of all latencies of a run.
fn latency_axis(run: &Run) -> Axis {
    let ends = |pick: fn(&Side) -> u64| sides(run).map(move |(_, _, side)| pick(side) as f64);
    let min = ends(|side| side.min_ns).fold(f64::INFINITY, f64::min);
    let max = ends(|side| side.max_ns).fold(0.0, f64::max);
    Axis::decades("latency", (if min.is_finite() { min } else { 1.0 }, max), span)
}

/// Shares of latencies on a logarithmic axis.
pub(super) fn histogram(run: &Run, stamp: &str) -> String {
    let axis = latency_axis(run);
    let (min, max) = axis.ends();
    let bars = ((max / min).log10().round() as i32) * BARS;
    let edge = |bar: i32| min * 10f64.powf(f64::from(bar) / f64::from(BARS));
    let shares = |latencies: &Histogram| -> Vec<f64> {
        let share = |bar| 100.0 * latencies.share(edge(bar) as u64, edge(bar + 1) as u64);
        (0..bars).map(share).collect()
    };
    let drawn: Vec<_> =
        sides(run).map(|(name, class, side)| (name, class, shares(&side.latencies))).collect();
    let top = drawn.iter().flat_map(|(_, _, shares)| shares.iter().copied()).fold(0.0, f64::max);
    let mut plot = Plot::new("Latency", axis, Axis::from_zero("% of requests", top));
    for (name, class, shares) in &drawn {
        plot.name(class, name);
        for (bar, &share) in (0..).zip(shares) {
            let text =
                format!("{name}: {share:.1} % in {} to {}", span(edge(bar)), span(edge(bar + 1)));
            plot.area(&format!("{class} half"), (edge(bar), 0.0), (edge(bar + 1), share), &text);
        }
    }
    plot.draw(stamp)
}

/// Latency at each percentile, with the nines drawn apart.
pub(super) fn percentiles(run: &Run, stamp: &str) -> String {
    let ticks = [(0.0, "0"), (1.0, "90"), (2.0, "99"), (3.0, "99.9"), (4.0, "99.99")];
    let ticks = ticks.map(|(at, name)| (at, name.to_string())).to_vec();
    let x = Axis::with_ticks("percentile", Scale::Linear, ticks);
    let mut plot = Plot::new("Percentiles of latency", x, latency_axis(run));
    for (name, class, side) in sides(run) {
        plot.name(class, name);
        // Beyond the last request a percentile says nothing.
        let last = (side.requests as f64).log10().min(4.0);
        let points: Vec<(f64, f64)> = (0..=200)
            .map(|step| last * f64::from(step) / 200.0)
            .map(|nines| {
                let share = 1.0 - 10f64.powf(-nines);
                (nines, side.latencies.percentile(share) as f64)
            })
            .collect();
        plot.line(class, &points);
    }
    plot.draw(stamp)
}

/// A figure of each second, with events.
fn over_time(title: &str, unit: &str, run: &Run, figures: &[(&'static str, &str, Figure)]) -> Plot {
    let seconds = run.seconds.len() as f64;
    let step = run.seconds.len().div_ceil(POINTS_MAX).max(1);
    let series = |figure: Figure| -> Vec<(f64, f64)> {
        let parts = run.seconds.chunks(step).enumerate();
        let mean = |part: &[Second]| part.iter().map(figure).sum::<f64>() / part.len() as f64;
        // A figure belongs to the middle of its seconds.
        parts
            .map(|(index, part)| ((index * step) as f64 + part.len() as f64 / 2.0, mean(part)))
            .collect()
    };
    let drawn: Vec<_> =
        figures.iter().map(|(class, name, figure)| (*class, *name, series(*figure))).collect();
    let top = drawn.iter().flat_map(|(_, _, points)| points.iter().map(|point| point.1));
    let top = top.fold(0.0, f64::max);
    let x = Axis::exact("seconds of the window", seconds);
    let mut plot = Plot::new(title, x, Axis::from_zero(unit, top)).tall(200.0);
    for (class, name, points) in &drawn {
        plot.name(class, name);
        plot.line(class, points);
    }
    for (number, event) in super::visible(run).enumerate() {
        plot.event(event.at_s, &(number + 1).to_string());
    }
    plot
}

type Figure = fn(&Second) -> f64;

/// Requests of each second.
pub(super) fn rate(run: &Run, stamp: &str) -> String {
    let figures: [(&'static str, &str, Figure); 1] =
        [("blue", "requests/s", |second| second.requests as f64)];
    over_time("Requests over time", "requests/s", run, &figures).draw(stamp)
}

/// Throughput of each second.
pub(super) fn throughput(run: &Run, stamp: &str) -> String {
    let figures: [(&'static str, &str, Figure); 1] =
        [("green", "MB/s", |second| second.bytes as f64 / 1e6)];
    over_time("Throughput over time", "MB/s", run, &figures).draw(stamp)
}

/// Median and 99th percentile of each second.
pub(super) fn tail(run: &Run, stamp: &str) -> String {
    let figures: [(&'static str, &str, Figure); 2] = [
        ("sky", "p50", |second| second.p50_ns as f64 / 1e6),
        ("red", "p99", |second| second.p99_ns as f64 / 1e6),
    ];
    over_time("Latency over time", "ms", run, &figures).draw(stamp)
}

/// What each station was busy with, stacked.
pub(super) fn stations(stations: &[Station], stamp: &str) -> String {
    let drawn = &stations[..stations.len().min(STATIONS_MAX)];
    let rows = drawn.len() as f64;
    let name = |(row, station): (usize, &Station)| (rows - row as f64 - 0.5, station.name.clone());
    let mut ticks = vec![(0.0, String::new())];
    ticks.extend(drawn.iter().enumerate().map(name).rev());
    ticks.push((rows, String::new()));
    let title = match stations.len() - drawn.len() {
        0 => "Utilization of stations".to_string(),
        more => format!("Utilization of stations ({more} more not drawn)"),
    };
    let x = Axis::exact("% of the window", 100.0);
    let y = Axis::with_ticks("", Scale::Linear, ticks);
    let mut plot = Plot::new(&title, x, y).tall(80.0 + 16.0 * rows.max(2.0)).with_two_lines();
    for (what, class) in ACTIVITIES {
        let used = |station: &&Station| {
            station.shares.iter().any(|share| share.what == what && share.share >= 0.0005)
        };
        if drawn.iter().any(|station| used(&station)) {
            plot.name(class, short_name(what));
        }
    }
    for (row, station) in drawn.iter().enumerate() {
        let (top, mut at) = (rows - row as f64, 0.0);
        for (what, class) in ACTIVITIES {
            let found = station.shares.iter().find(|share| share.what == what);
            let percent = found.map_or(0.0, |share| share.share * 100.0);
            let text = format!("{}: {what} {percent:.1} %", station.name);
            plot.area(class, (at, top - 0.12), (at + percent, top - 0.88), &text);
            at += percent;
        }
    }
    plot.draw(stamp)
}

/// For legends.
fn short_name(what: &str) -> &str {
    match what {
        "lost revolution" => "lost rev.",
        "read ahead" => "ahead",
        "work" => "CPU",
        other => other,
    }
}

/// The way of the heads: time and cylinder.
pub(super) fn heads(line: &HeadLine, stamp: &str) -> String {
    let until = line.spans.last().map_or(0, |span| span.until_ns) as f64 / 1e6;
    let x = Axis::exact("milliseconds of the window", until);
    let places = || line.spans.iter().map(|span| f64::from(span.cylinder));
    let ends = (places().fold(f64::INFINITY, f64::min), places().fold(0.0, f64::max));
    let label = format!("cylinder of {}", short(f64::from(line.cylinders)));
    let y = Axis::between(&label, ends);
    let mut plot = Plot::new(&format!("Heads of {}", line.name), x, y).with_two_lines();
    let mut at = line.spans.first().map_or(0, |span| span.cylinder);
    for span in &line.spans {
        let class = class_of(&span.what);
        plot.name(class, short_name(&span.what));
        let (from, until) = (span.from_ns as f64 / 1e6, span.until_ns as f64 / 1e6);
        let (start, end) = (f64::from(at), f64::from(span.cylinder));
        match span.what.as_str() {
            // The arm moves within the first part of the time that a seek takes.
            "seek" => plot.line(&format!("{class} way"), &[(from, start), (until, end)]),
            _ => plot.line(&format!("{class} way"), &[(from, end), (until, end)]),
        }
        at = span.cylinder;
    }
    plot.draw(stamp)
}

type Of = fn(&Outcome) -> f64;

/// Rate and latency against the depth, of outcomes with different depths.
pub(super) fn depths(outcomes: &[&Outcome], stamp: &str) -> [String; 2] {
    let mut sorted = outcomes.to_vec();
    sorted.sort_by_key(|outcome| outcome.depth);
    let axis = || {
        let depths = sorted.iter().map(|outcome| (outcome.depth as f64, outcome.depth.to_string()));
        Axis::with_ticks("requests in flight", Scale::Log, depths.collect())
    };
    let points = |figure: Of| -> Vec<(f64, f64)> {
        sorted.iter().map(|outcome| (outcome.depth as f64, figure(outcome))).collect()
    };
    let draw = |title: &str, unit: &str, lines: &[(&'static str, &str, Of)]| {
        let tops = lines.iter().flat_map(|(_, _, figure)| points(*figure));
        let top = tops.map(|point| point.1).fold(0.0, f64::max);
        let mut plot = Plot::new(title, axis(), Axis::from_zero(unit, top));
        for (class, name, figure) in lines {
            plot.name(class, name);
            plot.line(class, &points(*figure));
            for point in points(*figure) {
                plot.point(class, point, &format!("{name} at {}: {}", point.0, short(point.1)));
            }
        }
        plot.draw(stamp)
    };
    [
        draw(
            "Requests against depth",
            "requests/s",
            &[("blue", "median", |one| one.median.requests_per_s)],
        ),
        draw(
            "Latency against depth",
            "ms",
            &[
                ("sky", "p50", |one| one.median.p50_ns / 1e6),
                ("red", "p99", |one| one.median.p99_ns / 1e6),
            ],
        ),
    ]
}

/// Measured against reproduced figures, with a band of ±10 %.
pub(super) fn cells(title: &str, unit: &str, cells: &[Cell], stamp: &str) -> Option<String> {
    let known = cells.iter().filter_map(|cell| Some((cell, cell.measured?)));
    let known: Vec<_> =
        known.filter(|(cell, value)| *value > 0.0 && cell.reproduced > 0.0).collect();
    let all = || known.iter().flat_map(|(cell, value)| [*value, cell.reproduced]);
    let (min, max) = (all().fold(f64::INFINITY, f64::min) / 1.3, all().fold(0.0, f64::max) * 1.3);
    if known.is_empty() {
        return None;
    }
    let axis = |label: &str| {
        let decades = Axis::decades(label, (min, max), short);
        if max / min > 30.0 { decades } else { near(label, min, max) }
    };
    let (x, y) = (axis(&format!("measured, {unit}")), axis("reproduced"));
    let (from, to) = x.ends();
    let mut plot = Plot::new(title, x, y).tall(300.0);
    plot.name("band", "±10 %");
    // Cut at the frame.
    let (below, above) = ([(from, from), (from / 0.9, from), (to, to * 0.9)], (to / 1.1, to));
    plot.polygon("band", &[&below[..], &[(to, to), above, (from, from * 1.1)]].concat());
    plot.line("grey", &[(from, from), (to, to)]);
    for (cell, measured) in known {
        let error = cell.reproduced / measured - 1.0;
        let class = if error.abs() <= 0.1 { "blue" } else { "red" };
        let name = if error.abs() <= 0.1 { "within" } else { "outside" };
        plot.name(class, name);
        let text = format!(
            "{}: measured {}, reproduced {} ({:+.1} %)",
            cell.name,
            short(measured),
            short(cell.reproduced),
            error * 100.0
        );
        plot.point(class, (measured, cell.reproduced), &text);
    }
    Some(plot.draw(stamp))
}

/// A logarithmic axis over less than two decades: ticks at 1, 2 and 5.
fn near(label: &str, min: f64, max: f64) -> Axis {
    let power = min.log10().floor() as i32;
    let candidates = (power..power + 4)
        .flat_map(|power| [1.0, 2.0, 5.0].map(|factor| factor * 10f64.powi(power)));
    let all: Vec<f64> = candidates.collect();
    let first = all.iter().rposition(|&value| value <= min).unwrap_or(0);
    let last = all.iter().position(|&value| value >= max).unwrap_or(all.len() - 1);
    let ticks = all[first..=last].iter().map(|&value| (value, short(value))).collect();
    Axis::with_ticks(label, Scale::Log, ticks)
}
