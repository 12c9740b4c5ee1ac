//! `parapet undestroy`: puts back the superblocks that `destroy` has taken away.
//!
//! Only while nobody has used the disks: each sector that was kept must still hold what was kept,
//! or zeros, as `destroy` has left it. Never writes anything else than what was kept.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use io::{Op, Pool};

use crate::api::{Plan, PlannedDisk};
use crate::disks::{self, ARRAY, Opened};
use crate::engine;
use crate::failure::{Exit, Failure, Id, Result, of_path};
use crate::flags::Consent;
use crate::terminal::{Answer, Terminal};
use crate::undo::{self, Manifest, Piece};

/// Put a destroyed array back together, as long as its disks were not used for anything else
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The array's name; or the folder of copies that `destroy` has told
    #[arg(value_name = "NAME")]
    name: String,
    #[command(flatten)]
    consent: Consent,
}

/// Sectors are compared one by one.
const SECTOR: usize = 512;

pub(crate) fn run(args: Args, terminal: &Terminal) -> Result<Exit> {
    let (folder, manifest) = found(&args.name)?;
    let paths: Vec<PathBuf> = disks_of(&manifest)?;
    let executor = engine::executor()?;
    let opened = disks::open(&paths, false, &executor.spawner())?;
    let by_path: BTreeMap<&Path, &Opened> =
        opened.iter().map(|opened| (opened.path.as_path(), opened)).collect();
    let mut pieces = Vec::new();
    for piece in &manifest.pieces {
        let disk = by_path[Path::new(&piece.disk)];
        let copy = folder.join(&piece.file);
        let kept = std::fs::read(&copy).map_err(|error| of_path(&copy, &error))?;
        executor.block_on(refuse_used(disk, piece, &kept))?;
        pieces.push((disk, piece.offset, kept));
    }
    let mut plan = plan(&manifest, &folder, &opened);
    if args.consent.dry_run {
        terminal.report(&plan);
        return Ok(Exit::Done);
    }
    if !args.consent.yes {
        terminal.preview(&plan);
    }
    terminal.confirm(args.consent.yes, "Put it back?", &Answer::Yes)?;
    for (disk, offset, kept) in pieces {
        executor.block_on(restore(disk, offset, &kept))?;
    }
    plan.done = true;
    terminal.report(&plan);
    Ok(Exit::Done)
}

/// The copies that are meant.
fn found(name: &str) -> Result<(PathBuf, Manifest)> {
    let folder = Path::new(name);
    if folder.join("undo.json").exists() {
        return Manifest::read(folder).map(|manifest| (folder.to_owned(), manifest));
    }
    undo::latest(name).ok_or_else(|| {
        let message = format!("nothing is kept of an array called {name}");
        Failure::new(Id::NoArray, message, "name the folder that `parapet destroy` has told")
    })
}

fn disks_of(manifest: &Manifest) -> Result<Vec<PathBuf>> {
    let mut paths: Vec<PathBuf> = Vec::new();
    for piece in &manifest.pieces {
        if piece.disk.starts_with(ARRAY) {
            let message = format!("{} was a member, which is an array itself", piece.disk);
            let action = "serve that one, and write what undo.json says to it";
            return Err(Failure::new(Id::WrongState, message, action));
        }
        let path = PathBuf::from(&piece.disk);
        if !paths.contains(&path) {
            paths.push(path);
        }
    }
    Ok(paths)
}

/// Refuses if there is something that was not there when `destroy` had done its work.
async fn refuse_used(disk: &Opened, piece: &Piece, kept: &[u8]) -> Result<()> {
    let path = disk.path.display();
    let end = piece.offset.checked_add(kept.len() as u64);
    let used = || {
        let message = format!("{path} has been used since");
        Failure::new(Id::Signature, message, "what was kept of it stays in its folder")
    };
    if end.is_none_or(|end| end > disk.bytes()) || kept.len() as u64 != piece.bytes {
        return Err(used());
    }
    let buf = Pool::new(0).take(kept.len());
    let done = disk.ask(Op::read(piece.offset, buf)).await.map_err(|error| {
        Failure::new(Id::Input, format!("{path}: {error}"), "see the system's log")
    })?;
    let now = done.into_buf();
    let same = now.chunks(SECTOR).zip(kept.chunks(SECTOR));
    let mut same = same.map(|(now, kept)| now == kept || now.iter().all(|&byte| byte == 0));
    if same.all(|same| same) { Ok(()) } else { Err(used()) }
}

async fn restore(disk: &Opened, offset: u64, kept: &[u8]) -> Result<()> {
    let mut buf = Pool::new(0).take(kept.len());
    buf.copy_from_slice(kept);
    let written = disk.ask(Op::write(offset, buf.freeze()).with_fua()).await;
    written.map(drop).map_err(|error| {
        let message = format!("{}: {error}", disk.path.display());
        Failure::new(Id::Input, message, "run it again; what was kept stays kept")
    })
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
        warnings: vec![format!("destroyed at {}", manifest.made)],
        undo: Some(folder.display().to_string()),
    }
}
