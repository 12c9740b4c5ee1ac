//! `parapet plan`: compares layouts before the disks are bought.

mod disks;
mod shown;

use std::path::Path;

use ::lab::disk::catalogue::Entry;
use ::lab::reliability::{self, Candidate, Goal, Inputs, Life, Load, Rates, Runs, per_hour};
use ::lab::speeds::{Modelled, PlannedLoad};
use clap::ValueEnum;
use policy::Period;

use self::disks::Disks;
use crate::failure::{Exit, Failure, Id, Result};
use crate::terminal::Terminal;

/// Compare layouts of disks: usable bytes, speed, rebuild time, chance of loss
///
/// For example: parapet plan 10xhd501lj --load mail --repair 72h. Speeds come from the real engine
/// on modelled disks. All figures are simulated.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Number and model of the disks, or size and class: 10xhd501lj, 8x4TB:nearline
    ///
    /// Models are listed by parapet lab disks. Classes: nearline, desktop, sas15k, ssd, nvme.
    #[arg(value_name = "DISKS", value_parser = Disks::parse)]
    disks: Disks,
    /// Load: mail, oltp, stream, backup, or a file with [[load.worker]]
    #[arg(long, value_name = "LOAD")]
    load: Option<String>,
    /// Order of the layouts, and subject of the advice
    #[arg(long, value_name = "GOAL", default_value = "safe")]
    goal: Wish,
    /// Layouts to compare, such as raid5,raid5+spare [default: all]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    layouts: Vec<String>,
    /// Spares among the disks, in every layout [default: none or one]
    #[arg(long, value_name = "NUMBER", allow_negative_numbers = true)]
    spare: Option<usize>,
    /// Time until a failed disk is replaced by a new one
    #[arg(long, value_name = "TIME", default_value = "48h", value_parser = period,
        allow_hyphen_values = true)]
    repair: Period,
    /// Time between two scrubs, or `never`
    #[arg(long, value_name = "TIME", default_value = "30d", value_parser = interval,
        allow_hyphen_values = true)]
    scrub: Interval,
    /// Time that the array is in service
    #[arg(long, value_name = "TIME", default_value = "5y", value_parser = mission,
        allow_hyphen_values = true)]
    mission: Period,
    /// Time that the disks have been in service already
    #[arg(long, value_name = "TIME", value_parser = period, allow_hyphen_values = true)]
    age: Option<Period>,
    /// Disks that fail in a year, in percent [default: by --class and --age]
    #[arg(long, value_name = "PERCENT", conflicts_with = "class", value_parser = percent)]
    afr: Option<f64>,
    /// Published failure rates [default: fleet; with --age ageing; for flash, flash]
    #[arg(long, value_name = "CLASS")]
    class: Option<String>,
    /// Unreadable bits per bit read, as in data sheets: ure=1e-14
    #[arg(long, value_name = "RATE", value_parser = unreadable)]
    assume: Option<f64>,
    /// Percent of the disks' rate for rebuilds [default: measured by --load, else 50]
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    rebuild_share: Option<f64>,
    /// Do not measure speeds, which takes most of the time
    #[arg(long, conflicts_with = "load")]
    no_speeds: bool,
}

/// What matters most.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Wish {
    /// The least chance of loss
    Safe,
    /// The most requests under the load
    Fast,
    /// The most usable bytes
    Space,
}

impl From<Wish> for Goal {
    fn from(wish: Wish) -> Goal {
        match wish {
            Wish::Safe => Goal::Safe,
            Wish::Fast => Goal::Fast,
            Wish::Space => Goal::Space,
        }
    }
}

/// Between two scrubs; none: there is no scrub.
#[derive(Clone, Copy)]
struct Interval(Option<Period>);

fn period(text: &str) -> std::result::Result<Period, String> {
    // A year has 365 days here, as in all rates.
    let years = text.strip_suffix('y').map(str::trim);
    match years.filter(|years| !years.is_empty() && years.bytes().all(|it| it.is_ascii_digit())) {
        Some(years) => match years.parse() {
            Ok(years @ 1..=10) => Ok(Period::days(365 * years)),
            _ => Err("choose 1 to 10 years".into()),
        },
        None => Period::try_from(text.to_owned()),
    }
}

/// A period of this many hours at least.
fn at_least(text: &str, least: f64, words: &str) -> std::result::Result<Period, String> {
    let period = period(text)?;
    if hours(period) < least { Err(format!("choose {words} or more")) } else { Ok(period) }
}

fn mission(text: &str) -> std::result::Result<Period, String> {
    at_least(text, 24.0, "a day")
}

fn interval(text: &str) -> std::result::Result<Interval, String> {
    if text == "never" {
        return Ok(Interval(None));
    }
    at_least(text, 1.0, "an hour").map(|it| Interval(Some(it)))
}

fn percent(text: &str) -> std::result::Result<f64, String> {
    let number: f64 = text.trim_end_matches('%').trim().parse().map_err(|_| "not a number")?;
    if number > 0.0 && number <= 100.0 { Ok(number) } else { Err("choose above 0 to 100".into()) }
}

fn unreadable(text: &str) -> std::result::Result<f64, String> {
    let number = text.strip_prefix("ure=").and_then(|rate| rate.parse::<f64>().ok());
    match number {
        Some(rate) if rate > 0.0 && rate <= 1e-6 => Ok(rate),
        _ => Err("write ure= and bits per bit read, at most 1e-6: ure=1e-14".into()),
    }
}

fn hours(period: Period) -> f64 {
    period.0.as_secs_f64() / 3600.0
}

pub(crate) fn run(args: &Args, terminal: &Terminal) -> Result<Exit> {
    if args.no_speeds && args.goal == Wish::Fast {
        let action = "leave out --no-speeds, or choose another goal";
        return Err(Failure::new(Id::Usage, "--goal fast needs speeds", action));
    }
    let inputs = inputs(args)?;
    let loads = loads(args.load.as_deref())?;
    let speeds =
        if args.no_speeds { None } else { Some(measured(args, &inputs, &loads, terminal)?) };
    let compared = reliability::plan(&inputs, speeds.as_deref()).map_err(|error| {
        let action = "choose other disks, or another number of them";
        Failure::new(Id::Usage, format!("{}: {error}", args.disks.text), action)
    })?;
    terminal.report(&shown::comparison(args, &inputs, &loads, compared));
    Ok(Exit::Done)
}

/// The load of the user, or what is measured unasked.
fn loads(chosen: Option<&str>) -> Result<Vec<PlannedLoad>> {
    let Some(name) = chosen else { return Ok(PlannedLoad::usual().into()) };
    if let Some(load) = PlannedLoad::built_in(name) {
        return Ok(vec![load]);
    }
    let text = super::lab::text_of(Path::new(name)).map_err(|error| {
        let known = PlannedLoad::built_in_names().join(", ");
        Failure::new(Id::Usage, format!("{name}: {error}"), format!("name a file, or: {known}"))
    })?;
    let load = PlannedLoad::read(name, &text).map_err(|fault| refused(&fault))?;
    Ok(vec![load])
}

/// A fault of a load: the cause, and the hint on lines of its own.
fn refused(fault: &::lab::experiment::Fault) -> Failure {
    let text = fault.to_string();
    let (message, hint) = text.split_once('\n').unwrap_or((&text, "change the load"));
    Failure::new(Id::Usage, message, hint)
}

/// The engine's speeds, with a bar on a terminal.
fn measured(
    args: &Args,
    inputs: &Inputs,
    loads: &[PlannedLoad],
    terminal: &Terminal,
) -> Result<Vec<reliability::LayoutSpeeds>> {
    let progress = |done: usize, all: usize| {
        let full = (done * 20).checked_div(all).unwrap_or(20);
        let bar = format!("[{}{}]", "#".repeat(full), "-".repeat(20 - full));
        terminal.draw(&bar, &format!("running the engine on modelled disks, {done} of {all}"));
    };
    let modelled = Modelled { disk: &args.disks.entry, loads };
    let found = modelled.measure(inputs, &progress);
    terminal.undraw();
    found.map_err(|fault| refused(&fault))
}

fn inputs(args: &Args) -> Result<Inputs> {
    let mut inputs = Inputs::new(args.disks.count, args.disks.kind());
    inputs.candidates = candidates(args)?;
    inputs.life = life(args)?;
    inputs.age_hours = args.age.map_or(0.0, hours);
    inputs.mission_hours = hours(args.mission);
    inputs.scrub_hours = args.scrub.0.map(hours);
    inputs.delivery_hours = hours(args.repair);
    inputs.unreadable_bits = args.assume.unwrap_or(0.0);
    inputs.load = Load {
        share: args.rebuild_share.unwrap_or(50.0) / 100.0,
        is_measured: args.load.is_some() && args.rebuild_share.is_none(),
        ..Load::IDLE
    };
    inputs.goal = args.goal.into();
    inputs.runs = Runs { count: 50_000, seed: 1 };
    inputs.threads = std::thread::available_parallelism().map_or(1, usize::from);
    Ok(inputs)
}

fn life(args: &Args) -> Result<Life> {
    if let Some(percent) = args.afr {
        return Ok(Life::constant(per_hour(percent / 100.0)));
    }
    let (rates, name) = (Rates::built_in(), class(args));
    let class = rates.class(name).ok_or_else(|| {
        let names: Vec<&str> = rates.classes.iter().map(|class| class.name.as_str()).collect();
        let message = format!("{name}: no class of failure rates has this name");
        Failure::new(Id::Usage, message, format!("choose one of: {}", names.join(", ")))
    })?;
    Ok(class.life())
}

/// The class of failure rates: only `ageing` knows ages, those of hard disks.
fn class(args: &Args) -> &str {
    let usual = match (&args.disks.entry, args.age) {
        (Entry::Flash(_), _) => "flash",
        (Entry::Hdd(_), Some(_)) => "ageing",
        (Entry::Hdd(_), None) => "fleet",
    };
    args.class.as_deref().unwrap_or(usual)
}

fn candidates(args: &Args) -> Result<Vec<Candidate>> {
    let count = args.disks.count;
    let mut all = match args.spare {
        None => Candidate::usual(count),
        Some(spares) => {
            if count < spares.saturating_add(2) {
                let action = "leave two disks that are not spares";
                let message = format!("{spares} spares among {count} disks");
                return Err(Failure::new(Id::Usage, message, action));
            }
            let usual = Candidate::usual(count - spares).into_iter();
            usual.filter(|it| it.spares == 0).map(|it| it.with_spares(spares)).collect()
        }
    };
    let plain = |name: &str| name.replace(' ', "").to_ascii_lowercase();
    let known: Vec<String> = all.iter().map(|it| plain(&it.name())).collect();
    let wanted: Vec<String> = args.layouts.iter().map(|name| plain(name)).collect();
    if let Some(name) = wanted.iter().find(|&name| !known.contains(name)) {
        let message = format!("{name}: not a layout of {count} disks here");
        return Err(Failure::new(Id::Usage, message, format!("choose of: {}", known.join(", "))));
    }
    all.retain(|it| wanted.is_empty() || wanted.contains(&plain(&it.name())));
    Ok(all)
}
