//! `parapet destroy`: takes an array apart for good.
//!
//! Only superblocks are overwritten, after a copy of each was made. Data stays where it is until
//! somebody else uses the disks.

use std::path::PathBuf;

use array::examine::FoundSuperblock;
use io::{Op, Pool};
use layout::md::superblock::RESERVED_BYTES;
use layout::md::{SECTOR, Superblock, Uuid};

use crate::api::{Plan, PlannedDisk, SignatureView};
use crate::cmd::serve::Sources;
use crate::disks::Opened;
use crate::failure::{Exit, Failure, Id, Result};
use crate::flags::Consent;
use crate::terminal::{Answer, Terminal};
use crate::{engine, undo};

/// Take an array apart for good: its members are no members any more
///
/// The array must not be in use: `parapet stop` it first. What is overwritten is kept, see the
/// answer.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The array, by name or UUID
    #[arg(value_name = "NAME")]
    name: String,
    /// Its members
    #[arg(value_name = "MEMBER", conflicts_with = "scan")]
    members: Vec<PathBuf>,
    /// Look for members among the files and block devices in this folder
    #[arg(long, value_name = "DIR")]
    scan: Option<PathBuf>,
    #[command(flatten)]
    consent: Consent,
}

/// A member and the superblocks on it that will be overwritten.
struct Victim<'a> {
    opened: &'a Opened,
    superblock: Superblock,
    places: Vec<SignatureView>,
}

pub(crate) fn run(args: Args, terminal: &Terminal) -> Result<Exit> {
    let executor = engine::executor()?;
    let on = executor.spawner();
    let (name, members) = (Some(args.name.as_str()), &args.members[..]);
    let sources = Sources { name, members, scan: args.scan.as_deref() };
    let disks = sources.open(false, &on).map_err(|mut failure| {
        if failure.id == Id::Busy {
            failure.action =
                format!("parapet stop {}, if it is served; {}", args.name, failure.action);
        }
        failure
    })?;
    executor.block_on(async {
        let mut groups = sources.group(&disks).await?;
        let chosen = groups.pop().map(|(_, disks)| disks).unwrap_or_default();
        let mut victims = Vec::new();
        for opened in chosen {
            victims.push(victim(opened, &args.name).await?);
        }
        let mut plan = plan(&args.name, &victims)?;
        if args.consent.dry_run {
            terminal.report(&plan);
            return Ok(Exit::Done);
        }
        if !args.consent.yes {
            terminal.preview(&plan);
        }
        let question = "All data of this array will be given up.";
        terminal.confirm(args.consent.yes, question, &Answer::Name(&args.name))?;
        let doomed: Vec<undo::Doomed<'_>> = victims
            .iter()
            .map(|victim| undo::Doomed { opened: victim.opened, signatures: &victim.places })
            .collect();
        let kept = undo::keep("destroy", &plan.name, &doomed).await?;
        plan.undo = kept.map(|folder| folder.display().to_string());
        for victim in &victims {
            wipe(victim).await?;
        }
        plan.done = true;
        terminal.report(&plan);
        Ok(Exit::Done)
    })
}

/// What is on a disk, if it is a member of this array and of no other.
async fn victim<'a>(opened: &'a Opened, name: &str) -> Result<Victim<'a>> {
    let path = opened.path.display();
    let found = array::examine::examine(&*opened.disk, &opened.clock).await.map_err(|error| {
        Failure::new(Id::Input, format!("{path}: {error}"), "see the system's log")
    })?;
    let valid = |found: &FoundSuperblock| found.superblock.clone().ok();
    let superblocks: Vec<Superblock> = found.superblocks.iter().filter_map(valid).collect();
    let uuid = Uuid::parse(name);
    let ours = |superblock: &&Superblock| {
        uuid == Some(superblock.set_uuid)
            || superblock.set_name.short() == name
            || superblock.set_name.to_string() == name
    };
    let Some(superblock) = superblocks.iter().find(ours).cloned() else {
        let (id, what) = match superblocks.first() {
            Some(other) => (Id::Foreign, format!("a member of {}", other.set_name)),
            None => (Id::NoSuperblock, "no member of any array".into()),
        };
        let action = "leave it out; parapet examine shows what it is";
        return Err(Failure::new(id, format!("{path} is {what}, not of {name}"), action));
    };
    let places = found.superblocks.iter().filter(|found| {
        found.superblock.as_ref().is_ok_and(|found| found.set_uuid == superblock.set_uuid)
    });
    let place = |found: &FoundSuperblock| SignatureView {
        name: format!("{} superblock", found.format),
        offset: found.offset,
    };
    let places = places.map(place).collect();
    Ok(Victim { opened, superblock, places })
}

fn plan(name: &str, victims: &[Victim<'_>]) -> Result<Plan> {
    let Some(first) = victims.first() else {
        return Err(Failure::new(Id::NoArray, format!("no member of {name}"), "check the paths"));
    };
    let set = first.superblock.set_uuid;
    if victims.iter().any(|victim| victim.superblock.set_uuid != set) {
        let message = format!("members of several arrays called {name}");
        return Err(Failure::new(Id::Foreign, message, "name the UUID; parapet examine shows it"));
    }
    let disk = |victim: &Victim<'_>| PlannedDisk {
        path: victim.opened.path.display().to_string(),
        serial: victim.opened.serial.clone(),
        bytes: victim.opened.bytes(),
        role: "member".into(),
        overwrites: victim.places.clone(),
        new: false,
    };
    let slots = first.superblock.raid_disks as usize;
    let mut warnings = Vec::new();
    if victims.len() < slots {
        warnings.push(format!("{} of {slots} members; the others stay as they are", victims.len()));
    }
    let level = layout::Level::from_md(first.superblock.level);
    let layout = level.and_then(|l| layout::Layout::from_md(l, first.superblock.layout).ok());
    Ok(Plan {
        done: false,
        verb: "destroy".into(),
        name: first.superblock.set_name.short(),
        uuid: Some(set.to_string()),
        level: level.map_or_else(|| "raid3.5".into(), |level| level.to_string()),
        layout: layout.map_or_else(|| "none".into(), |layout| layout.to_string()),
        chunk_bytes: u64::from(first.superblock.chunk_sectors) * SECTOR,
        capacity_bytes: 0,
        raw_bytes: victims.iter().map(|victim| victim.opened.bytes()).sum(),
        redundancy: 0,
        disks: victims.iter().map(disk).collect(),
        warnings,
        undo: None,
    })
}

/// Overwrites the superblocks, durably.
async fn wipe(victim: &Victim<'_>) -> Result<()> {
    let pool = Pool::new(1 << 16);
    for place in &victim.places {
        let zeros = pool.take_zeroed(RESERVED_BYTES as usize).freeze();
        let written = victim.opened.ask(Op::write(place.offset, zeros).with_fua()).await;
        written.map_err(|error| {
            Failure::new(Id::Input, error.to_string(), "run it again; what was kept stays kept")
        })?;
    }
    let flushed = victim.opened.ask(Op::flush()).await;
    flushed.map(drop).map_err(|error| Failure::new(Id::Input, error.to_string(), "run it again"))
}
