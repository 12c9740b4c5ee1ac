//! `parapet lab`: the engine on modelled disks.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use ::lab::disk::catalogue::{Catalogue, Entry};
use ::lab::seeds::{self, Table};

use clap::Subcommand;

mod experiment;

use crate::api::{DiskParameter, Disks, ModelledDisk, SeedTable, Seeds};
use crate::failure::{Exit, Failure, Id, Result};
use crate::size::Size;
use crate::terminal::Terminal;

/// The longest text: experiments and loads have kilobytes, outcomes some megabytes.
const TEXT_BYTES: u64 = 64 << 20;

/// Run the engine on modelled disks: layouts and hardware that are not there
///
/// Everything that the lab prints is simulated.
#[derive(clap::Args)]
#[command(subcommand_required = true, arg_required_else_help = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: LabVerb,
}

#[derive(Subcommand)]
enum LabVerb {
    /// List the modelled disks, or the parameters of one with their sources
    Disks(DisksArgs),
    Run(experiment::Run),
    Replay(experiment::ReplayArgs),
    Calibrate(experiment::CalibrateArgs),
    Compare(experiment::Compare),
    Report(experiment::ReportArgs),
    /// Reproduce published measurements of five systems
    Seeds(SeedsArgs),
}

#[derive(clap::Args)]
struct DisksArgs {
    /// Disk of the catalogue [default: all, without their parameters]
    #[arg(value_name = "DISK")]
    disk: Option<String>,
}

#[derive(clap::Args)]
struct SeedsArgs {
    /// System [default: all]
    #[arg(value_name = "SYSTEM", ignore_case = true, value_parser = seeds::NAMES)]
    systems: Vec<String>,
    #[command(flatten)]
    drawings: experiment::Drawings,
}

pub(crate) fn run(args: &Args, terminal: &Terminal) -> Result<Exit> {
    match &args.verb {
        LabVerb::Disks(args) => terminal.report(&disks(args.disk.as_deref())?),
        LabVerb::Run(args) => return experiment::run(args, terminal),
        LabVerb::Replay(args) => return experiment::replay(args, terminal),
        LabVerb::Calibrate(args) => return experiment::calibrated(args, terminal),
        LabVerb::Compare(args) => return experiment::compared(args, terminal),
        LabVerb::Report(args) => return experiment::reported(args, terminal),
        LabVerb::Seeds(args) => {
            let tables = reproduced(&args.systems, terminal)?;
            args.drawings.write(&[], &tables, terminal)?;
            terminal.report(&Seeds { tables: tables.into_iter().map(SeedTable::from).collect() });
        }
    }
    Ok(Exit::Done)
}

/// The text in a file. Devices and pipes may have no end, so what is too long is refused.
pub(super) fn text_of(file: &Path) -> io::Result<String> {
    let mut text = String::new();
    File::open(file)?.take(TEXT_BYTES + 1).read_to_string(&mut text)?;
    if text.len() as u64 > TEXT_BYTES {
        return Err(io::Error::other(format!("longer than {}", Size(TEXT_BYTES))));
    }
    Ok(text)
}

fn disks(chosen: Option<&str>) -> Result<Disks> {
    let catalogue = Catalogue::get();
    let disks = match chosen {
        None => catalogue.names().filter_map(|name| modelled(name, false)).collect(),
        Some(name) => vec![modelled(name, true).ok_or_else(|| {
            let message = format!("{name}: no modelled disk has this name");
            Failure::new(Id::Usage, message, "list them: parapet lab disks")
        })?],
    };
    Ok(Disks { disks })
}

fn modelled(name: &str, detailed: bool) -> Option<ModelledDisk> {
    let catalogue = Catalogue::get();
    let entry = catalogue.entry(name)?;
    let (kind, description) = match entry {
        Entry::Hdd(hdd) => ("hdd", hdd.name.clone()),
        Entry::Flash(flash) => ("flash", flash.name.clone()),
    };
    let parameters = catalogue.parameters(name).filter(|_| detailed).unwrap_or_default();
    let parameter = |it: &::lab::disk::catalogue::Parameter| DiskParameter {
        name: it.name.clone(),
        value: it.value.clone(),
        source: it.source.clone(),
    };
    Some(ModelledDisk {
        name: name.into(),
        description,
        kind: kind.into(),
        bytes: entry.bytes(),
        parameters: parameters.iter().map(parameter).collect(),
    })
}

fn reproduced(systems: &[String], terminal: &Terminal) -> Result<Vec<Table>> {
    let wanted =
        |name: &str| systems.is_empty() || systems.iter().any(|it| it.eq_ignore_ascii_case(name));
    let mut tables = Vec::new();
    for name in seeds::NAMES.into_iter().filter(|name| wanted(name)) {
        terminal.draw("", &format!("{name}: running the models"));
        let table = seeds::table(name);
        terminal.undraw();
        tables.push(table.map_err(|stall| {
            Failure::new(Id::Internal, format!("{name}: {stall}"), "report this as a bug")
        })?);
    }
    Ok(tables)
}
