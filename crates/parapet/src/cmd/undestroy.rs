//! `parapet undestroy`: restores the superblocks that `destroy` erased.
//!
//! Requires that the disks were not used since, and that they are the same disks. All recorded
//! content must still be present, and zeros where `destroy` wrote them. Writes only the blocks that
//! `destroy` overwrote.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use io::{Op, Pool};

use crate::api::{KeptCopy, KeptList, Plan, PlannedDisk};
use crate::disks::{self, ARRAY, Opened};
use crate::engine;
use crate::failure::{Exit, Failure, Id, Result};
use crate::flags::Consent;
use crate::places;
use crate::terminal::{Answer, Terminal};
use crate::undo::evidence::Evidence;
use crate::undo::{self, Manifest};

/// Restore a destroyed array, if its disks were not used since
///
/// Copies are kept of the latest 64 operations that overwrote disks, up to 8 GiB; the oldest go
/// first.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Name of the array, or folder of its copies [default: list all copies]
    #[arg(value_name = "NAME")]
    name: Option<String>,
    #[command(flatten)]
    consent: Consent,
}

/// Sectors are compared one by one.
const SECTOR: usize = 512;

pub(crate) fn run(args: Args, terminal: &Terminal) -> Result<Exit> {
    let Some(name) = &args.name else {
        terminal.report(&list());
        return Ok(Exit::Done);
    };
    let (folder, manifest) = found(name)?;
    let paths = disks_of(&manifest, &folder)?;
    let executor = engine::executor()?;
    let opened = executor.block_on(disks::open(&paths, false, &executor.spawner()))?;
    let mut victims = Vec::new();
    for (evidence, opened) in manifest.disks.iter().zip(&opened) {
        victims.push(Victim::new(&manifest, &folder, evidence, opened)?);
    }
    executor.block_on(refuse_others(&manifest, &victims))?;
    let mut plan = plan(&manifest, &folder, &opened);
    if args.consent.dry_run {
        terminal.report(&plan);
        return Ok(Exit::Done);
    }
    if !args.consent.yes {
        terminal.preview(&plan);
    }
    terminal.confirm(args.consent.yes, "Put it back?", &Answer::Yes)?;
    for victim in &victims {
        executor.block_on(victim.restore())?;
    }
    plan.done = true;
    terminal.report(&plan);
    Ok(Exit::Done)
}

/// Lists all copies, including those of other verbs.
fn list() -> KeptList {
    let view = |(folder, manifest): (PathBuf, Manifest)| {
        let names: BTreeSet<String> =
            manifest.pieces.iter().map(|piece| piece.disk.clone()).collect();
        KeptCopy {
            bytes: manifest.bytes(),
            disks: names.into_iter().collect(),
            undestroy: manifest.verb == undo::DESTROY && disks_of(&manifest, &folder).is_ok(),
            folder: folder.display().to_string(),
            array: manifest.array,
            verb: manifest.verb,
            made: manifest.made,
        }
    };
    let folder = places::state().join("undo").display().to_string();
    KeptList { folder, copies: undo::all().into_iter().map(view).collect() }
}

/// Returns the copies that the user named.
fn found(name: &str) -> Result<(PathBuf, Manifest)> {
    let folder = Path::new(name);
    if folder.join("undo.json").exists() {
        return Manifest::read(folder).map(|manifest| (folder.to_owned(), manifest));
    }
    undo::latest(name).ok_or_else(|| {
        let other = undo::all().into_iter().rfind(|(_, kept)| kept.array == name);
        let Some((folder, kept)) = other else {
            let message = format!("no copies are kept of an array called {name}");
            return Failure::new(Id::NoArray, message, "parapet undestroy lists all that are kept");
        };
        let message = format!("{name} was not destroyed: the latest copies are of `{}`", kept.verb);
        let action =
            format!("to restore those, run the commands in {}/undo.json", folder.display());
        Failure::new(Id::NoArray, message, action)
    })
}

/// Returns the paths of the disks, in the manifest's order.
fn disks_of(manifest: &Manifest, folder: &Path) -> Result<Vec<PathBuf>> {
    let arrays = manifest.pieces.iter().find(|piece| piece.disk.starts_with(ARRAY));
    if let Some(piece) = arrays {
        let message = format!("{} was a member, which is an array itself", piece.disk);
        let action = "serve that one, and write what undo.json says to it";
        return Err(Failure::new(Id::WrongState, message, action));
    }
    // Copies of `create`, and older ones, record only the paths, which identify no disk.
    let noted = |disk: &str| manifest.disks.iter().any(|evidence| evidence.disk == disk);
    if manifest.disks.is_empty() || !manifest.pieces.iter().all(|piece| noted(&piece.disk)) {
        let message = format!("{}: nothing tells by what to know the disks", folder.display());
        let action = "make sure that each is the one it was, then run the commands in undo.json";
        return Err(Failure::new(Id::WrongState, message, action));
    }
    Ok(manifest.disks.iter().map(|evidence| PathBuf::from(&evidence.disk)).collect())
}

/// Returns a disk of the manifest, if this disk is the same one.
struct Victim<'a> {
    opened: &'a Opened,
    evidence: &'a Evidence,
    /// The copied content: offset and bytes.
    kept: Vec<(u64, Vec<u8>)>,
}

impl<'a> Victim<'a> {
    fn new(
        manifest: &Manifest,
        folder: &Path,
        evidence: &'a Evidence,
        opened: &'a Opened,
    ) -> Result<Victim<'a>> {
        let mut kept = Vec::new();
        for piece in manifest.pieces.iter().filter(|piece| piece.disk == evidence.disk) {
            if let Some(bytes) = piece.kept(folder)? {
                kept.push((piece.offset, bytes));
            }
        }
        Ok(Victim { opened, evidence, kept })
    }

    /// Returns whether this disk holds the content that ours had right after `destroy`.
    async fn is_on(&self, opened: &Opened) -> Result<bool> {
        if !self.evidence.is_on(opened).await? {
            return Ok(false);
        }
        for (offset, kept) in &self.kept {
            let end = offset.checked_add(kept.len() as u64);
            if end.is_none_or(|end| end > opened.bytes()) {
                return Ok(false);
            }
            let buf = Pool::new(0).take(kept.len());
            let done = opened.ask(Op::read(*offset, buf)).await.map_err(|error| {
                let message = format!("{}: {error}", opened.path.display());
                Failure::new(Id::Input, message, "see the system's log")
            })?;
            let now = done.into_buf();
            let sectors = now.chunks(SECTOR).zip(kept.chunks(SECTOR)).enumerate();
            let mut fits = sectors.map(|(index, (now, kept))| {
                let at = offset + (index * SECTOR) as u64;
                let taken = self.evidence.overwritten.iter().any(|range| range.contains(&at));
                now == kept || taken && now.iter().all(|&byte| byte == 0)
            });
            if !fits.all(|fits| fits) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Compares the kernel's identification of the disk at its path with the recorded one.
    fn identity(&self) -> (Option<String>, bool) {
        let now = disks::stable_identity(&self.opened.path);
        let same = now.is_some() && now == self.evidence.identity;
        (now, same)
    }

    /// Writes the copied blocks, and nothing else.
    async fn restore(&self) -> Result<()> {
        for range in &self.evidence.overwritten {
            for (offset, kept) in &self.kept {
                let start = range.start.max(*offset);
                let end = range.end.min(offset + kept.len() as u64);
                if start < end {
                    let bytes = &kept[(start - offset) as usize..(end - offset) as usize];
                    undo::put(self.opened, start, bytes).await?;
                }
            }
        }
        Ok(())
    }
}

/// Refuses if a disk is another one, or holds content that it did not hold before.
async fn refuse_others(manifest: &Manifest, victims: &[Victim<'_>]) -> Result<()> {
    for victim in victims {
        let path = victim.opened.path.display();
        let (now, same) = victim.identity();
        let or_unknown = |identity: &Option<String>| match identity {
            Some(words) => words.clone(),
            None => "nothing that the kernel has a name for".into(),
        };
        let change =
            format!("it is {}; it was {}", or_unknown(&now), or_unknown(&victim.evidence.identity));
        if victim.is_on(victim.opened).await? {
            let others = manifest.disks.iter().filter(|other| other.disk != victim.evidence.disk);
            if same || victim.evidence.is_unlike(others) {
                continue;
            }
            let message = format!("{path} may be another disk than the one destroyed: {change}");
            let action = "if it is the one, run the commands in undo.json that are for it";
            return Err(Failure::new(Id::Foreign, message, action));
        }
        for other in victims.iter().filter(|other| !other.identity().1) {
            if victim.is_on(other.opened).await? {
                let other = other.opened.path.display();
                let message = format!("{path} is another disk now: what was there is at {other}");
                let action = "give the disks the names they had, then run it again";
                return Err(Failure::new(Id::Foreign, message, action));
            }
        }
        if same {
            let message = format!("{path} has been used since");
            let action = "what was kept of it stays in its folder";
            return Err(Failure::new(Id::Signature, message, action));
        }
        let message = format!("{path} does not hold what was destroyed there: {change}");
        let action = "find the disk that was there, and give it that name again";
        return Err(Failure::new(Id::Foreign, message, action));
    }
    Ok(())
}

fn plan(manifest: &Manifest, folder: &Path, opened: &[Opened]) -> Plan {
    let disk = |opened: &Opened| PlannedDisk {
        path: opened.path.display().to_string(),
        serial: opened.serial.clone(),
        bytes: opened.bytes(),
        role: "member".into(),
        overwrites: Vec::new(),
        new: false,
    };
    Plan {
        done: false,
        verb: "undestroy".into(),
        name: manifest.array.clone(),
        uuid: None,
        level: String::new(),
        layout: String::new(),
        chunk_bytes: 0,
        capacity_bytes: 0,
        raw_bytes: opened.iter().map(Opened::bytes).sum(),
        redundancy: 0,
        consistency: None,
        checksums: false,
        disks: opened.iter().map(disk).collect(),
        warnings: vec![format!("destroyed at {:.0}", manifest.made)],
        undo: Some(folder.display().to_string()),
    }
}
