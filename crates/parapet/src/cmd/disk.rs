//! `parapet disk`: the disks of this machine, their health, self-tests and LEDs.

use std::path::{Path, PathBuf};

use clap::Subcommand;
use jiff::Timestamp;
use policy::health::{Answer, Disk, Settings};

use crate::api::{Array, Changed, DiskHealth, DiskList, DiskUse, DiskView, SmartView};
use crate::client;
use crate::disk_health::whole::WholeDisk;
use crate::disk_health::{locate, smart, whole};
use crate::failure::{Exit, Failure, Id, Result};
use crate::flags::{AnswerTimeout, Control};
use crate::terminal::Terminal;

/// List disks, read their SMART data, test them, switch their locate LEDs
///
/// `serve --health` watches the disks of its members all the time.
#[derive(clap::Args)]
#[command(subcommand_required = true, arg_required_else_help = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: DiskVerb,
}

#[derive(Subcommand)]
enum DiskVerb {
    /// List the disks of this machine with their members and health
    List(ListArgs),
    /// Show the SMART data of a disk, unless it sleeps; reads it with smartctl
    Smart(SmartArgs),
    /// Start a self-test of a disk, with smartctl; `disk smart` shows its result
    Test(TestArgs),
    /// Turn the locate LED of a disk's bay on, with ledctl
    Locate(LocateArgs),
}

#[derive(clap::Args)]
struct ListArgs {
    #[command(flatten)]
    servers: Servers,
}

#[derive(clap::Args)]
struct SmartArgs {
    #[command(flatten)]
    target: Target,
}

#[derive(clap::Args)]
struct TestArgs {
    #[command(flatten)]
    target: Target,
    /// Read the whole surface: takes hours [default: a short test of some minutes]
    #[arg(long)]
    long: bool,
}

#[derive(clap::Args)]
struct LocateArgs {
    #[command(flatten)]
    target: Target,
    /// Turn it off
    #[arg(long)]
    off: bool,
}

/// A disk of this machine.
#[derive(clap::Args)]
struct Target {
    /// Disk: kernel name, path, serial number, or path or UUID of a member on it
    #[arg(value_name = "DISK")]
    disk: String,
    #[command(flatten)]
    servers: Servers,
}

/// The servers that know members and health.
#[derive(clap::Args)]
struct Servers {
    #[command(flatten)]
    control: Control,
    #[command(flatten)]
    timeout: AnswerTimeout,
}

impl Servers {
    fn arrays(&self) -> Result<Vec<Array>> {
        client::everything(self.control.path(), self.timeout.get()).map(|list| list.arrays)
    }
}

impl Target {
    /// Finds the disk. No server has to answer: a disk has names of its own.
    fn find(&self) -> Result<(WholeDisk, Vec<Array>)> {
        let arrays = self.servers.arrays().unwrap_or_default();
        find(&self.disk, &arrays).map(|disk| (disk, arrays))
    }
}

pub(crate) fn run(args: &Args, terminal: &Terminal) -> Result<Exit> {
    let changed = |message| Changed { message, array: None };
    match &args.verb {
        DiskVerb::List(args) => terminal.report(&list(&args.servers.arrays()?)),
        DiskVerb::Smart(args) => {
            let (disk, arrays) = args.target.find()?;
            terminal.report(&show(&disk, &arrays)?);
        }
        DiskVerb::Test(args) => {
            terminal.report(&changed(test(&args.target.find()?.0, args.long)?));
        }
        DiskVerb::Locate(args) => {
            terminal.report(&changed(locate::switch(&args.target.find()?.0, args.off)?));
        }
    }
    Ok(Exit::Done)
}

/// Every member with a path on this machine, and the disks that it is on.
fn uses(arrays: &[Array]) -> Vec<(WholeDisk, DiskUse, Option<DiskHealth>)> {
    let mut found = Vec::new();
    for array in arrays {
        for member in array.members() {
            let is_it = |other: &crate::api::Member| other.uuid == member.uuid;
            let mut slots = array.slots.iter();
            let slot = slots.find(|slot| slot.member.iter().chain(&slot.replacement).any(is_it));
            let (name, uuid) = (array.name.clone(), array.uuid.clone());
            let slot = slot.map(|slot| slot.slot);
            let place = DiskUse { array: name, uuid, slot, name: member.name.clone() };
            let disks = whole::of(Path::new(&member.name)).into_iter();
            found.extend(disks.map(|disk| (disk, place.clone(), member.health.clone())));
        }
    }
    found
}

fn list(arrays: &[Array]) -> DiskList {
    let uses = uses(arrays);
    let mut disks = whole::all();
    disks.extend(uses.iter().map(|(disk, ..)| disk.clone()));
    disks.sort();
    disks.dedup();
    let view = |disk: WholeDisk| {
        let own = || uses.iter().filter(|(other, ..)| *other == disk);
        DiskView {
            path: disk.path().display().to_string(),
            model: disk.model(),
            serial: disk.serial(),
            bytes: disk.bytes(),
            rotational: disk.rotational(),
            members: own().map(|(_, place, _)| place.clone()).collect(),
            health: worst(own().filter_map(|(.., health)| health.clone())),
        }
    };
    DiskList { disks: disks.into_iter().map(view).collect() }
}

fn worst(healths: impl Iterator<Item = DiskHealth>) -> Option<DiskHealth> {
    healths.max_by_key(|health| health.level)
}

/// Finds a disk by any of its names.
fn find(text: &str, arrays: &[Array]) -> Result<WholeDisk> {
    let mut members = arrays.iter().flat_map(Array::members);
    let member = members.find(|it| it.uuid == text || it.name == text);
    let path = match member {
        Some(member) => PathBuf::from(&member.name),
        None if text.contains('/') => PathBuf::from(text),
        None => Path::new("/dev").join(text),
    };
    let mut found = whole::of(&path);
    if found.is_empty() && !text.contains('/') {
        let on_members = uses(arrays).into_iter().map(|(disk, ..)| disk);
        found = whole::all().into_iter().chain(on_members).collect();
        found.retain(|disk| disk.serial().as_deref() == Some(text));
        found.sort();
        found.dedup();
    }
    match &found[..] {
        [disk] => Ok(disk.clone()),
        [] => {
            let message = format!("{text}: there is no such disk");
            Err(Failure::new(Id::Missing, message, "parapet disk list shows what there is"))
        }
        _ => {
            let paths: Vec<String> =
                found.iter().map(|disk| disk.path().display().to_string()).collect();
            let message = format!("{text}: several disks: {}", paths.join(", "));
            Err(Failure::new(Id::Usage, message, "name one of them"))
        }
    }
}

fn show(disk: &WholeDisk, arrays: &[Array]) -> Result<SmartView> {
    let path = disk.path();
    let watched = worst(
        uses(arrays).into_iter().filter(|(other, ..)| other == disk).filter_map(|(.., it)| it),
    );
    let view = SmartView {
        path: path.display().to_string(),
        model: disk.model(),
        serial: disk.serial(),
        watched,
        ..SmartView::default()
    };
    let settings = Settings::default();
    let answer = smart::ask(&settings.smartctl, &path, &|| false).map_err(|why| no_tool(&why))?;
    match answer {
        Answer::Asleep => Ok(SmartView { asleep: true, ..view }),
        Answer::Nothing(why) => {
            let message = format!("{}: no SMART data: {why}", path.display());
            Err(Failure::new(Id::Input, message, format!("see smartctl -a {}", path.display())))
        }
        Answer::Reading(reading) => {
            let mut alone = Disk::default();
            let verdict = alone.observe(Timestamp::now(), Some(&reading), &[], &settings);
            Ok(SmartView {
                model: reading.model.clone().or(view.model),
                serial: reading.serial.clone().or(view.serial),
                protocol: reading.protocol.clone(),
                passed: reading.passed,
                power_on_hours: reading.power_on_hours,
                self_test_remaining_percent: reading.self_test_remaining_percent,
                health: smart::health_of(&verdict, Some(&reading)),
                ..view
            })
        }
    }
}

fn no_tool(why: &str) -> Failure {
    Failure::new(Id::Input, format!("smartctl: {why}"), "install the package smartmontools")
}

fn test(disk: &WholeDisk, is_long: bool) -> Result<String> {
    let (path, kind) = (disk.path(), if is_long { "long" } else { "short" });
    smart::command(&["-t", kind], &path).map_err(|why| {
        let message = format!("{}: the self-test was not started: {why}", path.display());
        Failure::new(Id::Input, message, "needs smartctl (package smartmontools) and root")
    })?;
    let path = path.display();
    Ok(format!(
        "{path}: a {kind} self-test has started; parapet disk smart {path} shows its result"
    ))
}
