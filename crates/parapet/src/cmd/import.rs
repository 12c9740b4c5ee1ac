//! `parapet import`: serves the arrays of another machine read-only.

use std::path::PathBuf;
use std::rc::Rc;

use crate::cmd::serve::{self, Outlets, Sources};
use crate::daemon::Daemon;
use crate::disks::Opened;
use crate::engine::{AssemblyFlags, RunFlags};
use crate::failure::{Exit, Failure, Id, Result};
use crate::images::{self, Image};
use crate::probe;
use crate::terminal::Terminal;

/// Serve arrays read-only from images or disks of another machine
///
/// Writes nothing. Takes images and disks in any order, with members missing, and finds partitions
/// inside them. To write to an array, run `parapet serve` on its devices.
///
/// For example: parapet import nas-disk*.img --nbd unix:/run/nas.nbd
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Disk images or disks
    #[arg(value_name = "IMAGE", required = true)]
    images: Vec<PathBuf>,
    /// Name or UUID of the only array to serve
    #[arg(long, value_name = "NAME")]
    array: Option<String>,
    /// Start dirty and degraded: blocks of the missing member may be wrong where writes were
    /// interrupted
    #[arg(long)]
    force_dirty_degraded: bool,
    /// Layout of a RAID 0 whose superblock has none: original or alternate
    #[arg(long, value_name = "LAYOUT", value_parser = crate::engine::raid0_layout)]
    raid0_layout: Option<layout::Raid0Layout>,
    #[command(flatten)]
    outlets: Outlets,
}

pub(crate) fn run(args: Args, terminal: &Terminal) -> Result<Exit> {
    args.outlets.serve(1, terminal, async |daemon| take_in_all(&args, daemon).await)
}

async fn take_in_all(args: &Args, daemon: &Rc<Daemon>) -> Result<()> {
    let images = images::open(&args.images, true, daemon.spawner()).await?;
    let disks = candidates(&images).await;
    let assembly = AssemblyFlags {
        read_only: true,
        degraded: true,
        force_dirty_degraded: args.force_dirty_degraded,
        raid0_layout: args.raid0_layout,
        ..AssemblyFlags::default()
    };
    let sources = Sources { name: args.array.as_deref(), members: &[], scan: None };
    let found = sources.gather_from(&disks, &assembly, &RunFlags::default(), daemon).await;
    let arrays = match found {
        Err(failure) if failure.id == Id::NoArray => return Err(nothing(failure, &disks).await),
        found => found?,
    };
    let alone = arrays.len() == 1 && !daemon.lacks_others();
    for served in arrays {
        daemon.export(&served, None, true, alone)?;
    }
    Ok(())
}

/// Returns the possible members: the partitions, and the whole image unless one of its partitions
/// is a member. A superblock at the end of the last partition is also at the end of the disk.
async fn candidates(images: &[Image]) -> Vec<&Opened> {
    let parts: Vec<&Opened> = images.iter().flat_map(|image| &image.parts).collect();
    let members = serve::members_among(&parts).await;
    let is_free = |image: &&Image| image.parts.iter().all(|part| !members.contains(&part.path));
    let wholes = images.iter().filter(is_free).map(|image| &image.whole);
    wholes.chain(parts).collect()
}

/// Explains that no array was found, and lists the content found instead.
async fn nothing(failure: Failure, disks: &[&Opened]) -> Failure {
    let mut listed = Vec::new();
    for disk in disks {
        let found = probe::signatures(disk).await.unwrap_or_default();
        let names: Vec<String> = found.iter().map(ToString::to_string).collect();
        let what = if names.is_empty() { "nothing known".into() } else { names.join(", ") };
        listed.push(format!("{}: {what}", disk.path.display()));
    }
    let message = format!("{} ({})", failure.message, listed.join("; "));
    let action = "parapet examine shows what each disk says; for lost superblocks: parapet recover";
    Failure::new(failure.id, message, action)
}
