//! `parapet plan`: compares layouts before the disks are bought.

use ::lab::disk::catalogue::{Catalogue, Entry};
use ::lab::reliability::{
    self, CAVEAT, DiskKind, HOURS_PER_YEAR, Inputs, LEAST_PRINTED, LatentRate, LayoutSpeeds, Life,
    Performance, Rates, Row, Runs, Speeds, per_hour,
};
use ::lab::speeds::Modelled;
use policy::Period;

use crate::api::{ComparedChange, ComparedLayout, Comparison, LayoutSpeed};
use crate::failure::{Exit, Failure, Id, Result};
use crate::terminal::Terminal;

/// Compare layouts of disks: usable bytes, speed, rebuild time, chance of loss
///
/// For example: parapet plan 10xhd501lj --repair 72h --scrub 14d. Speeds come from the real engine
/// on modelled disks. All figures are simulated.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Number and model of the disks, such as 10xhd501lj; models: parapet lab disks
    #[arg(value_name = "DISKS", value_parser = disks)]
    disks: Disks,
    /// Time until a failed disk is replaced by a new one
    #[arg(long, value_name = "TIME", default_value = "48h", value_parser = period)]
    repair: Period,
    /// Time between two scrubs, or `never`
    #[arg(long, value_name = "TIME", default_value = "30d", value_parser = interval)]
    scrub: Interval,
    /// Time that the array is in service
    #[arg(long, value_name = "TIME", default_value = "5y", value_parser = period)]
    mission: Period,
    /// Time that the disks have been in service already
    #[arg(long, value_name = "TIME", value_parser = period)]
    age: Option<Period>,
    /// Disks that fail in a year, in percent [default: by class and age]
    #[arg(long, value_name = "PERCENT", conflicts_with = "class", value_parser = percent)]
    afr: Option<f64>,
    /// Class of disks: fleet, and others of Backblaze's and other published figures
    #[arg(long, value_name = "CLASS", default_value = "fleet")]
    class: String,
    /// Share of the disks' rate that clients leave to a rebuild, in percent
    #[arg(long, value_name = "PERCENT", default_value = "50", value_parser = percent)]
    rebuild_share: f64,
    /// Do not measure speeds, which takes most of the time
    #[arg(long)]
    no_speeds: bool,
}

#[derive(Clone)]
struct Disks {
    count: usize,
    model: String,
}

/// Between two scrubs; none: there is no scrub.
#[derive(Clone, Copy)]
struct Interval(Option<Period>);

fn disks(text: &str) -> std::result::Result<Disks, String> {
    let wrong = "write a number, x and a model: 10xhd501lj";
    let (count, model) = text.split_once('x').ok_or(wrong)?;
    let count = count.parse().map_err(|_| wrong)?;
    if !(2..=100).contains(&count) {
        return Err("choose 2 to 100 disks".into());
    }
    Ok(Disks { count, model: model.into() })
}

fn period(text: &str) -> std::result::Result<Period, String> {
    // A year has 365 days here, as in all rates.
    let years = text.strip_suffix('y').and_then(|years| years.trim().parse::<u64>().ok());
    match years {
        Some(years @ 1..=10) => Ok(Period::days(365 * years)),
        _ => Period::try_from(text.to_owned()),
    }
}

fn interval(text: &str) -> std::result::Result<Interval, String> {
    if text == "never" { Ok(Interval(None)) } else { period(text).map(|it| Interval(Some(it))) }
}

fn percent(text: &str) -> std::result::Result<f64, String> {
    let number: f64 = text.trim_end_matches('%').trim().parse().map_err(|_| "not a number")?;
    if number > 0.0 && number <= 100.0 { Ok(number) } else { Err("choose above 0 to 100".into()) }
}

fn hours(period: Period) -> f64 {
    period.0.as_secs_f64() / 3600.0
}

pub(crate) fn run(args: &Args, terminal: &Terminal) -> Result<Exit> {
    let Disks { count, model } = &args.disks;
    let entry = Catalogue::get().entry(model).ok_or_else(|| {
        let message = format!("{model}: no modelled disk has this name");
        Failure::new(Id::Usage, message, "list them: parapet lab disks")
    })?;
    let inputs = inputs(args, entry)?;
    let progress = |layout: &str| terminal.draw("", &format!("{layout}: running the engine"));
    let modelled = Modelled { disk: entry, progress: &progress };
    let speeds: Option<&dyn Speeds> = if args.no_speeds { None } else { Some(&modelled) };
    let compared = reliability::plan(&inputs, speeds).map_err(|error| {
        let message = format!("{count}x{model}: {error}");
        Failure::new(Id::Usage, message, "choose other disks, or another number of them")
    })?;
    terminal.undraw();
    let other = match compared.other_latent {
        LatentRate::Elerath => "one a year",
        _ => "one in 30 years",
    };
    let assumptions = vec![
        format!(
            "Simulated: {count} disks {model}, {:.1} years; random seed {}.",
            inputs.mission_hours / HOURS_PER_YEAR,
            inputs.runs.seed
        ),
        "A disk gets an unreadable sector once in 30 years (nearline disks, Bairavasundaram 2007)."
            .into(),
        format!("By the other published rate, {other} (Elerath 2007), see --json."),
    ];
    terminal.report(&Comparison {
        assumptions,
        layouts: compared.rows.iter().map(layout).collect(),
        advice: compared.advice,
        caveat: CAVEAT.into(),
    });
    Ok(Exit::Done)
}

fn inputs(args: &Args, entry: &Entry) -> Result<Inputs> {
    let kind = kind(&args.disks.model, entry);
    let rates = Rates::built_in();
    let life = match args.afr {
        Some(percent) => Life::constant(per_hour(percent / 100.0)),
        None => {
            let class = rates.class(&args.class).ok_or_else(|| {
                let names: Vec<&str> =
                    rates.classes.iter().map(|class| class.name.as_str()).collect();
                let message = format!("{}: no class of disks has this name", args.class);
                Failure::new(Id::Usage, message, format!("choose one of: {}", names.join(", ")))
            })?;
            class.life()
        }
    };
    let mut inputs = Inputs::new(args.disks.count, kind);
    inputs.life = life;
    inputs.age_hours = args.age.map_or(0.0, hours);
    inputs.mission_hours = hours(args.mission);
    inputs.scrub_hours = args.scrub.0.map(hours);
    inputs.delivery_hours = hours(args.repair);
    inputs.load.share = args.rebuild_share / 100.0;
    inputs.runs = Runs { count: 50_000, seed: 1 };
    Ok(inputs)
}

fn kind(name: &str, entry: &Entry) -> DiskKind {
    let (outer_rate, inner_share) = entry.rates();
    DiskKind { name: name.into(), bytes: entry.bytes(), outer_rate, inner_share }
}

fn layout(row: &Row) -> ComparedLayout {
    let speeds = row.speeds;
    ComparedLayout {
        name: row.name.clone(),
        usable_bytes: row.usable_bytes,
        tolerated: row.tolerated,
        healthy: speeds.map(|LayoutSpeeds { healthy, .. }| speed(&healthy)),
        rebuilding: speeds.and_then(|it| it.rebuilding).map(|rebuilding| speed(&rebuilding)),
        rebuild_hours_at_start_rate: row.rebuild.map(|rebuild| rebuild.at_start_rate),
        rebuild_hours: row.rebuild.map(|rebuild| rebuild.zone_corrected),
        window_hours: row.window_hours,
        loss: (row.loss.mean >= LEAST_PRINTED).then_some(row.loss.mean),
        loss_text: row.loss.to_string(),
        loss_at_other_rate_text: row.loss_at_other_rate.to_string(),
        cause: row.cause.map(|cause| cause.name().into()),
        bytes_lost: row.bytes_lost,
        degraded_hours_per_year: row.degraded_hours_per_year,
        what_if: row
            .what_if
            .iter()
            .map(|what| ComparedChange {
                change: what.change.to_string(),
                loss_text: what.loss.to_string(),
            })
            .collect(),
    }
}

fn speed(performance: &Performance) -> LayoutSpeed {
    let Performance { random_read, random_write, .. } = performance;
    LayoutSpeed {
        sequential_read_bytes_per_second: performance.sequential_read,
        sequential_write_bytes_per_second: performance.sequential_write,
        random_reads_per_second: random_read.per_second,
        random_read_p50_ms: random_read.p50_us / 1000.0,
        random_read_p99_ms: random_read.p99_us / 1000.0,
        random_writes_per_second: random_write.per_second,
        random_write_p50_ms: random_write.p50_us / 1000.0,
        random_write_p99_ms: random_write.p99_us / 1000.0,
    }
}
