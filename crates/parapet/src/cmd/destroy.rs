//! `parapet destroy`: destroys an array permanently.
//!
//! Overwrites superblocks only, after copying each of them. The data stays on the disks until they
//! are used again.

use std::path::{Path, PathBuf};
use std::rc::Rc;

use io::{Op, Pool};
use layout::md::superblock::{RESERVED_BYTES, Role};
use layout::md::{ByteMap, SECTOR, Superblock, Uuid};
use metadata::examine::FoundSuperblock;

use crate::api::{Plan, PlannedDisk, SignatureView};
use crate::cmd::serve::Sources;
use crate::daemon::Daemon;
use crate::disks::{ARRAY, Opened};
use crate::engine::{AssemblyFlags, RunFlags};
use crate::failure::{Exit, Failure, Id, Result};
use crate::flags::Consent;
use crate::terminal::{Answer, Terminal};
use crate::{engine, undo};

/// Destroy an array: erase the superblocks of its members
///
/// The array must not be in use; run `parapet stop` first. `parapet undestroy` restores it from
/// copies of the erased blocks.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Name or UUID of the array
    #[arg(value_name = "NAME")]
    name: String,
    /// Members of the array; with --scan only members that are arrays (array:NAME)
    #[arg(value_name = "MEMBER")]
    members: Vec<PathBuf>,
    /// Folder to search for members (files and block devices)
    #[arg(long, value_name = "DIR")]
    scan: Option<PathBuf>,
    /// Destroy the array even if it is a member of another array
    #[arg(long)]
    inside: bool,
    #[command(flatten)]
    consent: Consent,
}

/// A member and its superblocks to be overwritten, or a journal device.
struct Victim<'a> {
    opened: &'a Opened,
    /// `None`: the journal device.
    superblock: Option<Superblock>,
    places: Vec<SignatureView>,
    /// The starts of its own content: its private area and its data.
    landmarks: Vec<u64>,
}

impl Victim<'_> {
    fn target(&self) -> undo::OverwriteTarget<'_> {
        let written = |place: &SignatureView| place.offset..place.offset + RESERVED_BYTES;
        undo::OverwriteTarget {
            opened: self.opened,
            signatures: &self.places,
            written: self.places.iter().map(written).collect(),
            landmarks: self.landmarks.clone(),
        }
    }
}

pub(crate) fn run(args: Args, terminal: &Terminal) -> Result<Exit> {
    let executor = engine::executor()?;
    let on = executor.spawner();
    let files: Vec<PathBuf> = args.members.iter().filter(|path| !is_array(path)).cloned().collect();
    if let (Some(file), true) = (files.first(), args.scan.is_some()) {
        let message = format!("{} and --scan: one of them is too much", file.display());
        let action = "name all members, or have them looked for: only array:NAME goes with --scan";
        return Err(Failure::new(Id::Usage, message, action));
    }
    let name = Some(args.name.as_str());
    let sources = Sources { name, members: &files, scan: args.scan.as_deref() };
    let daemon = Daemon::new(&on, None, 1)?;
    let outcome = executor.block_on(async {
        let outcome = take_apart(&args, &sources, &daemon, terminal).await;
        let closed = daemon.close().await;
        outcome.and(closed)
    });
    outcome.map(|()| Exit::Done)
}

fn is_array(path: &Path) -> bool {
    path.to_str().is_some_and(|path| path.starts_with(ARRAY))
}

async fn take_apart(
    args: &Args,
    sources: &Sources<'_>,
    daemon: &Rc<Daemon>,
    terminal: &Terminal,
) -> Result<()> {
    let taken = sources.take(false, daemon).await?;
    let (files, arrays) = sources.members_of_wanted(&taken, daemon).await?;
    let chosen: Vec<&Opened> = files.into_iter().chain(&arrays).collect();
    for named in args.members.iter().filter(|path| is_array(path)) {
        if chosen.iter().all(|opened| opened.path != *named) {
            let message = format!("{} is no member of {}", named.display(), args.name);
            return Err(Failure::new(Id::Foreign, message, "parapet examine shows what it is"));
        }
    }
    let worth = look_into(args, &chosen, daemon).await?;
    {
        let mut victims = Vec::new();
        for opened in chosen {
            victims.push(victim(opened, &args.name).await?);
        }
        victims.sort_by_key(|victim| role(victim.superblock.as_ref()));
        let mut plan = plan(&args.name, &victims, worth)?;
        if args.consent.dry_run {
            terminal.report(&plan);
            return Ok(());
        }
        if !args.consent.yes {
            terminal.preview(&plan);
        }
        let question = "All data of this array will be given up.";
        terminal.confirm(args.consent.yes, question, &Answer::Name(&args.name))?;
        let target: Vec<undo::OverwriteTarget<'_>> = victims.iter().map(Victim::target).collect();
        let kept = undo::keep(undo::DESTROY, &plan.name, &target).await?;
        plan.undo = kept.folder.map(|folder| folder.display().to_string());
        for victim in &victims {
            wipe(victim).await?;
        }
        plan.done = true;
        terminal.report(&plan);
        Ok(())
    }
}

/// Returns the losses of the command: capacity, and the number of members that may still be lost.
/// None if the array cannot start. Reads the array without writing anything.
///
/// # Errors
/// If it is itself a member of another array.
async fn look_into(
    args: &Args,
    members: &[&Opened],
    daemon: &Rc<Daemon>,
) -> Result<Option<(u64, usize)>> {
    let on = daemon.spawner();
    let assembly = AssemblyFlags { degraded: true, read_only: true, ..AssemblyFlags::default() };
    let run = RunFlags::default();
    let options = assembly.options(None, &run);
    let Ok(found) = engine::assemble(members, &options, on).await else { return Ok(None) };
    let served = daemon.take_in(engine::start(found, members, run.host(on), daemon).await?);
    let (geometry, status) = (served.array.geometry(), served.array.status());
    let worth = (geometry.capacity(), status.redundancy_left);
    let inside = Opened::array(&served.array, on);
    let found = metadata::examine::examine(&*inside.disk, &inside.clock).await;
    drop(inside);
    daemon.give_up(&served).await?;
    if args.inside {
        return Ok(Some(worth));
    }
    let superblocks = found.map(|found| found.superblocks).unwrap_or_default();
    let Some(outer) = superblocks.into_iter().find_map(|found| found.superblock.ok()) else {
        return Ok(Some(worth));
    };
    let (name, outer) = (&args.name, outer.set_name.short());
    let message = format!("{name} is a member of {outer}");
    let action = format!(
        "parapet destroy {outer} first; or say --inside, if it is no array that anybody needs"
    );
    Err(Failure::new(Id::WrongState, message, action))
}

/// Returns the superblocks of a disk, if it is a member of this array and of no other.
async fn victim<'a>(opened: &'a Opened, name: &str) -> Result<Victim<'a>> {
    let path = opened.path.display();
    let found =
        metadata::examine::examine(&*opened.disk, &opened.clock).await.map_err(|error| {
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
        let journal = found.journal.as_ref().filter(|found| {
            let header = &found.header;
            uuid == Some(header.set_uuid)
                || header.set_name.short() == name
                || header.set_name.to_string() == name
        });
        if let Some(journal) = journal {
            let place = |&offset: &u64| SignatureView { name: "journal header".into(), offset };
            let places = journal.places.iter().map(place).collect();
            return Ok(Victim { opened, superblock: None, places, landmarks: vec![0] });
        }
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
    let maps = places.clone().filter_map(|found| found.map.as_ref()?.as_ref().ok());
    let starts = |map: &ByteMap| map.private.iter().map(|area| area.start).collect::<Vec<_>>();
    let landmarks = maps.flat_map(|map| [starts(map), vec![map.data.start]].concat()).collect();
    let places = places.map(place).collect();
    Ok(Victim { opened, superblock: Some(superblock), places, landmarks })
}

fn plan(name: &str, victims: &[Victim<'_>], worth: Option<(u64, usize)>) -> Result<Plan> {
    let Some(first) = victims.first().and_then(|victim| victim.superblock.as_ref()) else {
        return Err(Failure::new(Id::NoArray, format!("no member of {name}"), "check the paths"));
    };
    let set = first.set_uuid;
    let members = || victims.iter().filter_map(|victim| victim.superblock.as_ref());
    if members().any(|superblock| superblock.set_uuid != set) {
        let message = format!("members of several arrays called {name}");
        return Err(Failure::new(Id::Foreign, message, "name the UUID; parapet examine shows it"));
    }
    let disk = |victim: &Victim<'_>| PlannedDisk {
        path: victim.opened.path.display().to_string(),
        serial: victim.opened.serial.clone(),
        bytes: victim.opened.bytes(),
        role: role(victim.superblock.as_ref()).1,
        overwrites: victim.places.clone(),
        new: false,
    };
    let (slots, here) = (first.raid_disks as usize, members().count());
    let mut warnings = Vec::new();
    if here < slots {
        warnings.push(format!("{here} of {slots} members; the others stay as they are"));
    }
    let level = layout::Level::from_md(first.level);
    let layout = level.and_then(|l| layout::Layout::from_md(l, first.layout).ok());
    Ok(Plan {
        done: false,
        verb: "destroy".into(),
        name: first.set_name.short(),
        uuid: Some(set.to_string()),
        level: level.map_or_else(|| "raid3.5".into(), |level| level.to_string()),
        layout: layout.map_or_else(|| "none".into(), |layout| layout.to_string()),
        chunk_bytes: u64::from(first.chunk_sectors) * SECTOR,
        capacity_bytes: worth.map_or(0, |(bytes, _)| bytes),
        raw_bytes: victims
            .iter()
            .filter(|victim| victim.superblock.is_some())
            .map(|victim| victim.opened.bytes())
            .sum(),
        redundancy: worth.map_or(0, |(_, redundancy)| redundancy),
        consistency: None,
        checksums: false,
        disks: victims.iter().map(disk).collect(),
        warnings,
        undo: None,
    })
}

/// Returns the role of a disk in its array, to sort slots first and the journal device last.
fn role(superblock: Option<&Superblock>) -> (u32, String) {
    let role = superblock.map_or(Role::Journal, Superblock::own_role);
    let place = match role {
        Role::Slot(slot) => slot.into(),
        Role::Spare | Role::Faulty => u32::MAX - 1,
        Role::Journal => u32::MAX,
    };
    (place, engine::role_word(role))
}

/// Overwrites the superblocks, durably.
async fn wipe(victim: &Victim<'_>) -> Result<()> {
    let pool = Pool::new(1 << 16);
    for place in &victim.places {
        let zeros = pool.take_zeroed(RESERVED_BYTES as usize).freeze();
        let written = victim.opened.ask(Op::write(place.offset, zeros).with_fua()).await;
        written.map_err(|error| {
            Failure::new(Id::Input, error.to_string(), "run it again; the kept copies remain")
        })?;
    }
    let flushed = victim.opened.ask(Op::flush()).await;
    flushed.map(drop).map_err(|error| Failure::new(Id::Input, error.to_string(), "run it again"))
}
