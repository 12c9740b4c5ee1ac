//! Experiments: `parapet lab run`, `replay`, `calibrate`, `compare` and `report`.

use std::fs;
use std::path::{Path, PathBuf};

use ::lab::experiment::calibrate::calibrate;
use ::lab::experiment::schema::{LoadChoice, Replay, TraceChoice};
use ::lab::experiment::{self, Experiment, Fault, Outcome, to_fio_json};
use ::lab::report::{self, Report};
use ::lab::seeds::Table;
use ::lab::{compare, trace};

use crate::api::{Calibrated, Experimented, Text};
use crate::failure::{Exit, Failure, Id, Result, of_path};
use crate::terminal::Terminal;

/// Run an experiment
///
/// An experiment is a TOML file: disks, array, load, and figures to compare with. docs/lab.md
/// describes it.
#[derive(clap::Args)]
pub(super) struct Run {
    /// Experiment
    #[arg(value_name = "FILE")]
    experiment: PathBuf,
    #[command(flatten)]
    outputs: Outputs,
}

/// Replay a trace on an experiment's array
#[derive(clap::Args)]
pub(super) struct ReplayArgs {
    /// Trace: an iolog of fio, text of blkparse, or CSV of SNIA
    #[arg(value_name = "TRACE")]
    trace: PathBuf,
    /// Experiment with disks and array; its load is not used
    #[arg(long, value_name = "FILE")]
    on: PathBuf,
    /// Send each request when the one before it is answered, after the recorded think time
    /// [default: at its time stamp]
    #[arg(long)]
    closed: bool,
    /// Rate in percent of the recorded one
    #[arg(long, value_name = "PERCENT", default_value_t = 100, conflicts_with = "closed")]
    time_scale: u32,
    /// Take addresses beyond the array modulo its size
    #[arg(long)]
    fold: bool,
    #[command(flatten)]
    outputs: Outputs,
}

/// Fit an experiment's constants on its known cells
///
/// Each `[[constant]]` has a path in the experiment and a range. Cells marked `known` fit it, cells
/// marked `held` judge it. More constants than known cells are refused.
#[derive(clap::Args)]
pub(super) struct CalibrateArgs {
    /// Experiment
    #[arg(value_name = "FILE")]
    experiment: PathBuf,
    /// Write the experiment with the fitted constants
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
}

/// Compare two experiments, or outcomes of `lab run --out`
#[derive(clap::Args)]
pub(super) struct Compare {
    /// First experiment (.toml) or outcome (.json)
    #[arg(value_name = "A")]
    a: PathBuf,
    /// Second one
    #[arg(value_name = "B")]
    b: PathBuf,
}

/// Draw experiments, or outcomes of `lab run --out`
#[derive(clap::Args)]
pub(super) struct ReportArgs {
    /// Experiments (.toml) or outcomes (.json)
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// Run each experiment with these depths of its first worker
    #[arg(long, value_name = "DEPTH", value_delimiter = ',')]
    depths: Vec<u32>,
    #[command(flatten)]
    drawings: Drawings,
}

/// Where plots go.
#[derive(clap::Args)]
pub(super) struct Drawings {
    /// Draw all as one HTML page
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Draw each plot as an SVG file in this directory
    #[arg(long, value_name = "DIRECTORY")]
    svg: Option<PathBuf>,
}

/// Files to write beside the answer.
#[derive(clap::Args)]
struct Outputs {
    /// Write the outcome, with all its runs, as JSON
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Write it as the JSON of fio, for fio-plot
    #[arg(long, value_name = "FILE")]
    fio: Option<PathBuf>,
    /// Draw it as one HTML page
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

pub(super) fn run(args: &Run, terminal: &Terminal) -> Result<Exit> {
    let experiment = loaded(&args.experiment)?;
    let outcome = outcome_of(&experiment, &args.experiment, terminal)?;
    args.outputs.write(&outcome)?;
    terminal.report(&Experimented::of(&outcome));
    Ok(Exit::Done)
}

pub(super) fn replay(args: &ReplayArgs, terminal: &Terminal) -> Result<Exit> {
    let mut experiment = loaded(&args.on)?;
    let file = args.trace.display().to_string();
    let replay = if args.closed { Replay::Closed } else { Replay::Open };
    let (time_scale, fold) = (args.time_scale, args.fold);
    let trace = TraceChoice { file, replay, time_scale, depth: 1, fold };
    experiment.load = LoadChoice { workers: Vec::new(), trace: Some(trace) };
    // Those of the experiment's own load say nothing about a trace.
    (experiment.warm_up_s, experiment.window_s) = (None, None);
    let outcome = outcome_of(&experiment, Path::new(""), terminal)?;
    args.outputs.write(&outcome)?;
    terminal.report(&Experimented::of(&outcome));
    Ok(Exit::Done)
}

pub(super) fn calibrated(args: &CalibrateArgs, terminal: &Terminal) -> Result<Exit> {
    let experiment = loaded(&args.experiment)?;
    let progress = |run: usize, error: f64| {
        let percent = error.exp_m1() * 100.0;
        terminal.draw("", &format!("{}: run {run}, {percent:.1} % off", experiment.name));
    };
    let found = calibrate(&experiment, &progress);
    terminal.undraw();
    let file = args.experiment.display().to_string();
    let found = found.map_err(|fault| refused(&fault.within(&file)))?;
    if let Some(file) = &args.write {
        fs::write(file, found.experiment.to_toml()).map_err(|error| of_path(file, &error))?;
    }
    terminal.report(&Calibrated::of(&experiment.name, &found));
    Ok(Exit::Done)
}

pub(super) fn compared(args: &Compare, terminal: &Terminal) -> Result<Exit> {
    let [a, b] = [&args.a, &args.b].map(|path| outcome_at(path, terminal));
    terminal.report(&Text { text: compare::compare(&a?, &b?) });
    Ok(Exit::Done)
}

pub(super) fn reported(args: &ReportArgs, terminal: &Terminal) -> Result<Exit> {
    if args.drawings.html.is_none() && args.drawings.svg.is_none() {
        return Err(Failure::new(Id::Usage, "lab report: nowhere to draw", "add --html or --svg"));
    }
    let mut outcomes = Vec::new();
    for path in &args.files {
        if args.depths.is_empty() {
            outcomes.push(outcome_at(path, terminal)?);
            continue;
        }
        let experiment = loaded(path)?;
        for &depth in &args.depths {
            let deeper = experiment.with_number("load.worker.0.depth", depth.into());
            let file = path.display().to_string();
            let deeper = deeper.map_err(|fault| refused(&fault.within(&file)))?;
            outcomes.push(outcome_of(&deeper, path, terminal)?);
        }
    }
    args.drawings.write(&outcomes, &[], terminal)?;
    Ok(Exit::Done)
}

/// Writes outcomes and tables as one page.
///
/// # Errors
/// If the file cannot be written.
fn write_page(file: &Path, outcomes: &[Outcome], tables: &[Table]) -> Result<()> {
    let page = report::html(&drawn(outcomes, tables));
    fs::write(file, page).map_err(|error| of_path(file, &error))
}

fn drawn<'a>(outcomes: &'a [Outcome], tables: &'a [Table]) -> Report<'a> {
    let title = match (outcomes, tables) {
        ([outcome], []) => &outcome.name,
        (_, []) => "Experiments",
        _ => "Reference systems",
    };
    Report { title, commit: None, outcomes, tables }
}

impl Drawings {
    /// Draws outcomes and tables.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub(super) fn write(
        &self,
        outcomes: &[Outcome],
        tables: &[Table],
        terminal: &Terminal,
    ) -> Result<()> {
        if let Some(file) = &self.html {
            write_page(file, outcomes, tables)?;
            terminal.say(format!("{}: written", file.display()));
        }
        let Some(folder) = &self.svg else { return Ok(()) };
        fs::create_dir_all(folder).map_err(|error| of_path(folder, &error))?;
        let figures = report::figures(&drawn(outcomes, tables));
        for figure in &figures {
            let file = folder.join(format!("{}.svg", figure.name));
            fs::write(&file, figure.file()).map_err(|error| of_path(&file, &error))?;
        }
        terminal.say(format!("{}: {} plots written", folder.display(), figures.len()));
        Ok(())
    }
}

impl Outputs {
    fn write(&self, outcome: &Outcome) -> Result<()> {
        if let Some(file) = &self.out {
            fs::write(file, outcome.to_json()).map_err(|error| of_path(file, &error))?;
        }
        if let Some(file) = &self.fio {
            fs::write(file, to_fio_json(outcome)).map_err(|error| of_path(file, &error))?;
        }
        match &self.html {
            Some(file) => write_page(file, std::slice::from_ref(outcome), &[]),
            None => Ok(()),
        }
    }
}

fn text_of(file: &Path) -> Result<String> {
    super::text_of(file).map_err(|error| of_path(file, &error))
}

fn loaded(file: &Path) -> Result<Experiment> {
    let name = file.display().to_string();
    experiment::load(&text_of(file)?).map_err(|fault| refused(&fault.within(&name)))
}

/// A fault of an experiment: the cause, and the hint on lines of its own.
fn refused(fault: &Fault) -> Failure {
    let text = fault.to_string();
    let (message, hint) = text.split_once('\n').unwrap_or((&text, "see docs/lab.md"));
    Failure::new(Id::Usage, message, hint)
}

/// An outcome in a file, or that of the experiment there.
fn outcome_at(file: &Path, terminal: &Terminal) -> Result<Outcome> {
    if file.extension().is_some_and(|extension| extension == "toml") {
        return outcome_of(&loaded(file)?, file, terminal);
    }
    Outcome::from_json(&text_of(file)?).map_err(|error| {
        let message = format!("{}: {error}", file.display());
        Failure::new(Id::Usage, message, "write outcomes by: parapet lab run FILE --out OUTCOME")
    })
}

/// Runs an experiment from this file. Its trace is sought beside the file.
fn outcome_of(experiment: &Experiment, file: &Path, terminal: &Terminal) -> Result<Outcome> {
    let trace = experiment.trace_file().map(|name| {
        let path = file.parent().unwrap_or(Path::new("")).join(name);
        let bytes = fs::read(&path).map_err(|error| of_path(&path, &error))?;
        trace::read(&bytes).map_err(|error| {
            let text = format!("{}: {error}", path.display());
            let (message, hint) = text.split_once('\n').unwrap_or((&text, "correct the trace"));
            Failure::new(Id::Usage, message, hint)
        })
    });
    terminal.draw("", &format!("{}: running the engine", experiment.name));
    let outcome = experiment::run_with(experiment, trace.transpose()?);
    terminal.undraw();
    outcome.map_err(|fault| refused(&fault.within(&file.display().to_string())))
}
