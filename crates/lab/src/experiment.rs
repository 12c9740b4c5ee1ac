//! Experiments: an array on modelled hardware under a load, as a file of TOML, and its outcome.
//!
//! ```text
//!   text ─▶ load ─▶ Experiment ─▶ run, once for each seed ─▶ Outcome ─▶ JSON, fio's JSON, a report
//!                        ▲
//!                    trace, read by the caller
//! ```
//!
//! A run is the engine in virtual time: equal experiments have equal outcomes. Figures are those of
//! requests answered within the window. This module opens no file.

pub mod calibrate;
mod change;
mod fio;
mod hardware;
pub mod histogram;
pub mod outcome;
mod play;
mod record;
mod replay;
mod run;
pub mod schema;
mod tasks;
mod workers;

use std::fmt;
use std::rc::Rc;
use std::time::Duration;

pub use change::Changes;
pub use fio::to_fio_json;
pub use outcome::Outcome;
pub(crate) use play::play;
pub use schema::Experiment;

use self::outcome::{Cell, Figures, Run};
use self::schema::{CellChoice, CellStatus};
use crate::trace::Trace;

/// Runs of an experiment at most.
const SEEDS_MAX: u32 = 1000;
/// Seconds of a run at most: ten days.
const SECONDS_MAX: f64 = 864_000.0;
/// Requests in flight at most.
const DEPTH_MAX: u64 = 65_536;
/// Bytes of all requests in flight at most: they take memory.
const IN_FLIGHT_BYTES_MAX: u64 = 4 << 30;
/// The largest cost of work: a second, or a millisecond of a byte.
const COST_MAX: u64 = 1_000_000_000;
/// The largest request of a worker.
const REQUEST_MAX: u64 = 64 << 20;
/// Milliseconds of head movements at most.
const HEADS_MS_MAX: f64 = 10_000.0;

/// Why an experiment cannot run: a key of its file, what is wrong, and what to do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fault {
    file: String,
    key: String,
    cause: String,
    hint: String,
}

impl Fault {
    pub(crate) fn new(key: &str, cause: impl Into<String>, hint: &str) -> Fault {
        let (file, key) = (String::new(), key.to_string());
        Fault { file, key, cause: cause.into(), hint: hint.into() }
    }

    /// The same, in a file of this name.
    #[must_use]
    pub fn within(mut self, file: &str) -> Fault {
        self.file = file.into();
        self
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let file = if self.file.is_empty() { "experiment" } else { &self.file };
        write!(f, "{file}: ")?;
        if !self.key.is_empty() {
            write!(f, "{}: ", self.key)?;
        }
        f.write_str(&self.cause)?;
        if !self.hint.is_empty() {
            write!(f, "\n{}", self.hint)?;
        }
        Ok(())
    }
}

impl std::error::Error for Fault {}

/// Reads an experiment. Errors name the key; [`Fault::within`] adds the file.
///
/// # Errors
/// If the text is no TOML, has an unknown key, or a value that cannot be.
pub fn load(text: &str) -> Result<Experiment, Fault> {
    let experiment: Experiment = toml::from_str(text).map_err(|cause| of_toml(text, &cause))?;
    experiment.check()?;
    Ok(experiment)
}

/// The fault with its line; the parser's message names the key or what it expects.
pub(crate) fn of_toml(text: &str, cause: &toml::de::Error) -> Fault {
    let at = cause.span().map_or(0, |span| span.start.min(text.len()));
    let before = &text.as_bytes()[..at];
    let line = before.iter().filter(|&&byte| byte == b'\n').count() + 1;
    let content = text.lines().nth(line - 1).unwrap_or_default();
    let key = content.split('=').next().unwrap_or_default().trim();
    let key = format!("line {line}: {}", if key.is_empty() { "end" } else { key });
    let hint = "see `parapet lab run --help` for the keys";
    Fault::new(&key, cause.message(), hint)
}

fn ensure(holds: bool, key: &str, cause: &str, hint: &str) -> Result<(), Fault> {
    if holds { Ok(()) } else { Err(Fault::new(key, cause, hint)) }
}

impl Experiment {
    /// The experiment as a file, without comments.
    pub fn to_toml(&self) -> String {
        toml::to_string(self).expect("numbers, texts and lists of tables have a TOML form")
    }

    /// The file of the trace to replay, as the experiment names it.
    pub fn trace_file(&self) -> Option<&str> {
        Some(&self.load.trace.as_ref()?.file)
    }

    /// Time before the window.
    pub fn warm_up(&self) -> Duration {
        let usual = if self.load.trace.is_some() { 0.0 } else { 10.0 };
        Duration::from_secs_f64(self.warm_up_s.unwrap_or(usual))
    }

    /// The window; `None` for the rest of a trace.
    pub fn window(&self) -> Option<Duration> {
        let usual = if self.load.trace.is_some() { None } else { Some(60.0) };
        self.window_s.or(usual).map(Duration::from_secs_f64)
    }

    /// Requests in flight of all workers, or of a closed replay; 0 for an open one.
    pub fn depth(&self) -> u64 {
        self.load.depth()
    }

    fn check(&self) -> Result<(), Fault> {
        let seconds = |value: Option<f64>, least: f64| {
            value.is_none_or(|value| (least..=SECONDS_MAX).contains(&value))
        };
        let within = "write seconds, at most 864000";
        ensure(seconds(self.warm_up_s, 0.0), "warm_up_s", "not a time", within)?;
        ensure(seconds(self.window_s, 1e-3), "window_s", "not a time", within)?;
        let seeds = (1..=SEEDS_MAX).contains(&self.seeds);
        ensure(seeds, "seeds", "not from 1 to 1000", "write seeds = 5 or leave it out")?;
        let heads = (0.0..=HEADS_MS_MAX).contains(&self.heads_ms);
        ensure(heads, "heads_ms", "not from 0 to 10000", "write milliseconds or leave it out")?;
        let named = hardware::names(&self.hardware.disks)?;
        run::layout(&self.array, named.len())?;
        run::consistency(&self.array)?;
        let spares = self.array.spares < named.len();
        ensure(spares, "array.spares", "every disk is a spare", "add disks or remove spares")?;
        let share = self.personality.lost_revolutions_per_million.unwrap_or(0) <= 1_000_000;
        let key = "personality.lost_revolutions_per_million";
        ensure(share, key, "more than a million", "write at most 1000000")?;
        let micros = |value: Option<f64>| value.is_none_or(|us| (0.0..=1e6).contains(&us));
        let overhead = micros(self.personality.write_overhead_us);
        let hint = "write microseconds, at most 1000000";
        ensure(overhead, "personality.write_overhead_us", "not a time", hint)?;
        if let Some(cache) = &self.hardware.cache {
            let key = "hardware.cache.acknowledge_us";
            ensure(micros(Some(cache.acknowledge_us)), key, "not a time", hint)?;
        }
        if let Some(cpu) = self.hardware.cpu {
            let costs = cpu.costs().iter().all(|(cost, _)| *cost <= COST_MAX);
            ensure(costs, "hardware.cpu", "a cost above 1000000000", "write ns and ps")?;
        }
        self.check_link()?;
        self.load.check()?;
        self.check_events()
    }

    fn check_link(&self) -> Result<(), Fault> {
        let Some(link) = &self.hardware.link else { return Ok(()) };
        let key = |name: &str| format!("hardware.link.{name}");
        ensure(
            (1..=16).contains(&link.links),
            &key("links"),
            "not from 1 to 16",
            "write links = 1",
        )?;
        let rate = (1..=1_000_000).contains(&link.megabits);
        ensure(rate, &key("megabits"), "not from 1 to 1000000", "write megabits = 1000")?;
        let mtu = (576..=65_535).contains(&link.mtu);
        ensure(mtu, &key("mtu"), "not from 576 to 65535", "write mtu = 1500 or 9000")?;
        let delay = (0.0..=100_000.0).contains(&link.delay_us);
        ensure(delay, &key("delay_us"), "not a time", "write microseconds, at most 100000")?;
        let cost = link.client_frame_ns <= COST_MAX;
        ensure(cost, &key("client_frame_ns"), "above 1000000000", "write nanoseconds")?;
        let aoe = link.protocol == schema::Protocol::Aoe || !link.volatile;
        ensure(aoe, &key("volatile"), "only of AoE: NBD has flushes", "remove it")
    }

    fn check_events(&self) -> Result<(), Fault> {
        for (index, event) in self.events.iter().enumerate() {
            let key = |name: &str| format!("event[{index}].{name}");
            let time = (0.0..=SECONDS_MAX).contains(&event.at_s);
            ensure(time, &key("at_s"), "not a time", "write seconds after the window's start")?;
            let fails = event.action == schema::Action::Fail;
            let hint = "write `slot` with do = \"fail\" and only there";
            ensure(fails == event.slot.is_some(), &key("slot"), "missing or unused", hint)?;
        }
        for (index, cell) in self.cells.iter().enumerate() {
            let key = format!("cell[{index}].value");
            let positive = cell.value.is_finite() && cell.value > 0.0;
            ensure(positive, &key, "not above 0", "write the measured figure")?;
            let key = format!("cell[{index}].change");
            let fixed = cell.change.is_empty() || self.load.trace.is_none();
            ensure(fixed, &key, "not with a trace", "write [[load.worker]]")?;
        }
        for (index, constant) in self.constants.iter().enumerate() {
            let key = format!("constant[{index}].high");
            let range = constant.low.is_finite() && constant.high.is_finite();
            let range = range && constant.low < constant.high;
            ensure(range, &key, "not above `low`", "write the range of the constant")?;
        }
        Ok(())
    }
}

impl schema::LoadChoice {
    /// Requests in flight of all workers, or of a closed replay; 0 for an open one.
    fn depth(&self) -> u64 {
        if let Some(trace) = &self.trace {
            let closed = trace.replay == schema::Replay::Closed;
            return if closed { trace.depth as u64 } else { 0 };
        }
        let depth = |worker: &schema::WorkerChoice| {
            (worker.count as u64).saturating_mul(worker.depth as u64)
        };
        self.workers.iter().fold(0, |sum, worker| sum.saturating_add(depth(worker)))
    }

    /// Refuses what no array could carry out.
    pub(crate) fn check(&self) -> Result<(), Fault> {
        let hint = "write either [[load.worker]] or [load.trace]";
        let one = self.workers.is_empty() == self.trace.is_some();
        ensure(one, "load", "needs workers or a trace, and not both", hint)?;
        for (index, worker) in self.workers.iter().enumerate() {
            let key = |name: &str| format!("load.worker[{index}].{name}");
            let size = worker.size.0;
            let aligned = size > 0 && size.is_multiple_of(512) && size <= REQUEST_MAX;
            let cause = "not a multiple of 512 B up to 64 MiB";
            ensure(aligned, &key("size"), cause, "write size = \"4KiB\"")?;
            let start = worker.start.0.is_multiple_of(512);
            ensure(start, &key("start"), "not a multiple of 512 B", "write start = \"1GiB\"")?;
            let percent = worker.write_percent <= 100;
            ensure(percent, &key("write_percent"), "more than 100", "write 0 to 100")?;
            let workers = worker.count > 0 && worker.depth > 0;
            ensure(workers, &key("count"), "no request in flight", "write count and depth ≥ 1")?;
        }
        let bytes = |worker: &schema::WorkerChoice| {
            (worker.count as u64).saturating_mul(worker.depth as u64).saturating_mul(worker.size.0)
        };
        let bytes = self.workers.iter().fold(0, |sum: u64, one| sum.saturating_add(bytes(one)));
        let depth = self.depth() <= DEPTH_MAX && bytes <= IN_FLIGHT_BYTES_MAX;
        let cause = "more than 65536 requests or 4 GiB in flight";
        ensure(depth, "load", cause, "lower count, depth or size")?;
        let Some(trace) = &self.trace else { return Ok(()) };
        let scale = trace.time_scale > 0;
        ensure(scale, "load.trace.time_scale", "0 % of the rate", "write 100 for as recorded")?;
        ensure(trace.depth > 0, "load.trace.depth", "no request in flight", "write depth = 1")
    }
}

/// Runs an experiment without a trace.
///
/// # Errors
/// If the array cannot be made, the load does not fit it, or the experiment needs a trace.
pub fn run(experiment: &Experiment) -> Result<Outcome, Fault> {
    run_with(experiment, None)
}

/// Runs an experiment; its trace is that of [`Experiment::trace_file`].
///
/// # Errors
/// As [`run()`].
pub fn run_with(experiment: &Experiment, trace: Option<Trace>) -> Result<Outcome, Fault> {
    experiment.check()?;
    let named = experiment.trace_file().is_some();
    let hint = "give the trace that the experiment names";
    ensure(named == trace.is_some(), "load.trace", "no trace, or one too many", hint)?;
    let runs = runs(experiment, trace)?;
    let median = median(&runs);
    let cells = compared(experiment, &median, None)?;
    Ok(Outcome {
        schema: outcome::SCHEMA.into(),
        simulated: true,
        name: experiment.name.clone(),
        version: env!("CARGO_PKG_VERSION").into(),
        experiment: experiment.to_toml(),
        constants: hardware::constants(experiment, &hardware::names(&experiment.hardware.disks)?),
        depth: experiment.depth(),
        median,
        cells,
        runs,
    })
}

/// One run for each seed.
fn runs(experiment: &Experiment, trace: Option<Trace>) -> Result<Vec<Run>, Fault> {
    let (shared, trace) = (Rc::new(experiment.clone()), trace.map(Rc::new));
    let run = |number| {
        let seed = experiment.first_seed.wrapping_add(number);
        run::run(&shared, trace.as_ref(), (seed, number == 0))
    };
    (0..u64::from(experiment.seeds)).map(run).collect()
}

fn median(runs: &[Run]) -> Figures {
    Figures::median(&runs.iter().map(|run| run.figures).collect::<Vec<_>>())
}

/// The cells of an experiment without a trace, or those of one status.
fn reproduced(experiment: &Experiment, only: Option<CellStatus>) -> Result<Vec<Cell>, Fault> {
    let wanted = |cell: &&CellChoice| only.is_none_or(|status| cell.status == status);
    let plain = experiment.cells.iter().filter(wanted).any(|cell| cell.change.is_empty());
    let base = if plain { median(&runs(experiment, None)?) } else { Figures::default() };
    compared(experiment, &base, only)
}

/// Cells beside the figures of the experiment, or of a changed one: each change runs once.
fn compared(
    experiment: &Experiment,
    base: &Figures,
    only: Option<CellStatus>,
) -> Result<Vec<Cell>, Fault> {
    let mut changed: Vec<(&Changes, Figures)> = Vec::new();
    let mut cells = Vec::new();
    for cell in experiment.cells.iter().filter(|cell| only.is_none_or(|it| cell.status == it)) {
        let known = changed.iter().find(|(changes, _)| **changes == cell.change);
        let figures = match known {
            _ if cell.change.is_empty() => *base,
            Some((_, figures)) => *figures,
            None => {
                let other = experiment.changed(&cell.change)?;
                let figures = median(&runs(&other, None)?);
                changed.push((&cell.change, figures));
                figures
            }
        };
        cells.push(Cell {
            name: cell.name.clone(),
            unit: cell.unit,
            status: cell.status,
            measured: cell.value,
            reproduced: figures.in_unit(cell.unit),
        });
    }
    Ok(cells)
}

#[cfg(test)]
mod tests;
