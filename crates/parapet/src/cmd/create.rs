//! `parapet create`: creates an array.
//!
//! The steps: examine the disks, show the plan, ask for confirmation, copy the blocks to be
//! overwritten, write. No step before the last one writes, even to the members of inner arrays.
//! After a failure, the copies are restored and new member files are removed.

use std::fs;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use io::{ExtentKind, Limits, Op, Work};
use layout::md::Version;
use layout::{Layout, Level};
use metadata::commit::Facts;
use metadata::create::{BitmapChunk, NewArray};
use os::{Options, Spawner};

use crate::api::{self, Consistency, Plan, PlannedDisk};
use crate::cmd::serve::Sources;
use crate::daemon::{Daemon, Served};
use crate::disks::{self, ARRAY, Opened};
use crate::engine::{self, AssemblyFlags, RunFlags};
use crate::failure::{Exit, Failure, Id, Result, of_path};
use crate::flags::{Consent, Overwrite, name};
use crate::modelled::{self, file_of};
use crate::probe::{self, Contents};
use crate::size::Size;
use crate::terminal::{Answer, Terminal};
use crate::undo::{self, Kept};

mod policy;

/// Create an array; shows the plan and asks before it writes
///
/// For example: parapet create tank --level 6 --chunk 64K --spare /dev/sdh /dev/sd[b-g]
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Name of the array (a label; the UUID identifies the array)
    #[arg(value_name = "NAME", value_parser = name)]
    name: String,
    /// Members, in the order of their slots: files, block devices, or array:NAME with --scan
    ///
    /// model:DISK:FILE is a disk of `parapet lab disks`: the data is in FILE, the answers come when
    /// that disk would have answered. A missing FILE is made, sparse, with the size of the disk.
    #[arg(value_name = "MEMBER", required = true)]
    members: Vec<PathBuf>,
    /// Level: linear, 0, 1, 10, 4, 5, 6 or 3.5
    #[arg(short, long, value_name = "LEVEL", value_parser = level)]
    level: Level,
    /// Layout by mdadm's names [default: the first one listed for the level]
    ///
    /// RAID 0: original, alternate (they differ for members of unequal size). RAID 10: n2, f2, o2
    /// (the digit is the number of copies). RAID 5: left-symmetric, left-asymmetric,
    /// right-symmetric, right-asymmetric, parity-first, parity-last. RAID 6: the same, the same
    /// with the suffix -6 (Q on the last member), ddf-zero-restart, ddf-N-restart, ddf-N-continue.
    /// RAID 3.5: order1, order2, … for 2, 4, … data members. Other levels have no layouts.
    #[arg(long, value_name = "LAYOUT")]
    layout: Option<String>,
    /// Chunk size; of a block for RAID 3.5 [default: 512K; RAID 3.5: 4K]
    #[arg(short, long, value_name = "SIZE")]
    chunk: Option<Size>,
    /// Spare disk; may be repeated
    #[arg(long, value_name = "DISK")]
    spare: Vec<PathBuf>,
    /// Journal device for --consistency journal [default: journal on the members]
    #[arg(long, value_name = "DEVICE")]
    journal: Option<PathBuf>,
    /// Size to use of each member [default: all]
    #[arg(long, value_name = "SIZE")]
    size: Option<Size>,
    /// Superblock version: 1.0, 1.1 or 1.2
    #[arg(long, value_name = "VERSION", default_value = "1.2", value_parser = version)]
    metadata: Version,
    /// Crash-consistency policy [default: intent for RAID 4/5/6/3.5, bitmap for RAID 1/10]
    #[arg(long, value_name = "POLICY")]
    consistency: Option<Consistency>,
    /// Checksum every 4 KiB block, verify on read, repair from redundancy [default: on; RAID 10:
    /// off]
    ///
    /// Needs redundancy, chunks of 4K or more (RAID 3.5: fragments), and another policy than ppl.
    /// On RAID 10 checksums limit the array to one thread.
    #[arg(long, value_name = "ON|OFF", value_parser = crate::flags::on_or_off)]
    checksums: Option<bool>,
    /// Write-intent bitmap: `auto`, `off`, or bytes per bit [default: auto, if the policy has one]
    #[arg(long, value_name = "BITMAP", value_parser = bitmap)]
    bitmap: Option<Bitmap>,
    /// Create missing member files with this size [default of modelled disks: their own]
    #[arg(long, value_name = "SIZE")]
    new_files: Option<Size>,
    /// Folder to search for the members of array:NAME members
    #[arg(long, value_name = "DIR")]
    scan: Option<PathBuf>,
    /// Skip the initial sync: all disks contain only zeros
    #[arg(long)]
    assume_zeroed: bool,
    #[command(flatten)]
    overwrite: Overwrite,
    #[command(flatten)]
    consent: Consent,
}

/// mdadm's default.
const CHUNK_BYTES: u64 = 512 << 10;
/// RAID 3.5's default block size, if the members can write fragments this small.
const BLOCK_BYTES: u64 = 4 << 10;

/// Parses a level as users write it.
pub(crate) fn level(text: &str) -> std::result::Result<Level, String> {
    text.parse().map_err(|_| "choose one of: linear, 0, 1, 10, 4, 5, 6, 3.5".into())
}

fn version(text: &str) -> std::result::Result<Version, String> {
    let found = Version::ALL.into_iter().find(|version| version.to_string() == text);
    found.ok_or_else(|| "choose one of: 1.0, 1.1, 1.2".into())
}

/// A choice of bitmap, or none.
#[derive(Clone, Copy)]
struct Bitmap(Option<BitmapChunk>);

fn bitmap(text: &str) -> std::result::Result<Bitmap, String> {
    match text {
        "auto" => Ok(Bitmap(Some(BitmapChunk::Fitting))),
        "off" => Ok(Bitmap(None)),
        size => {
            let bytes = size.parse::<Size>()?.0;
            let bytes = u32::try_from(bytes).map_err(|_| "at most 4 GiB less one byte")?;
            Ok(Bitmap(Some(BitmapChunk::Bytes(bytes))))
        }
    }
}

/// A disk for the array, existing or to be created.
struct Prospect<'a> {
    path: &'a Path,
    opened: Option<Opened>,
    contents: Contents,
    limits: Limits,
}

pub(crate) fn run(args: Args, terminal: &Terminal) -> Result<Exit> {
    let executor = engine::executor()?;
    let on = executor.spawner();
    let paths: Vec<PathBuf> =
        args.members.iter().chain(&args.spare).chain(&args.journal).cloned().collect();
    disks::refuse_same(&paths)?;
    executor.block_on(async {
        let mut agreed = None;
        if args.scan.is_some() {
            // An inner array writes to its members once it runs, so first only examine it.
            let daemon = Daemon::new(&on, None, 1)?;
            let looked = async {
                let draft = Draft::look(&args, &paths, &daemon, true).await?;
                Ok(draft.agreed(terminal)?.then_some(draft.planned))
            };
            agreed = closing(&daemon, looked).await?;
            if agreed.is_none() {
                return Ok(Exit::Done);
            }
        }
        let daemon = Daemon::new(&on, None, 1)?;
        let work = async {
            let draft = Draft::look(&args, &paths, &daemon, false).await?;
            match agreed {
                Some(before) if before != draft.planned => {
                    let message = "the disks have changed since the plan was made";
                    Err(Failure::new(Id::WrongState, message, "run it again"))
                }
                None if !draft.agreed(terminal)? => Ok(None),
                _ => draft.carry_out(&on).await.map(Some),
            }
        };
        if let Some(plan) = closing(&daemon, work).await? {
            terminal.report(&plan);
        }
        Ok(Exit::Done)
    })
}

/// Stops the inner arrays after the work, whatever its result.
pub(crate) async fn closing<T>(
    daemon: &Daemon,
    work: impl Future<Output = Result<T>>,
) -> Result<T> {
    let done = work.await;
    let closed = daemon.close().await;
    done.and_then(|done| closed.map(|()| done))
}

/// A validated plan of an array.
struct Draft<'a> {
    args: &'a Args,
    prospects: Vec<Prospect<'a>>,
    new: NewArray,
    planned: metadata::create::Plan,
    plan: Plan,
}

impl<'a> Draft<'a> {
    /// Checks everything. With `only_look`, inner arrays run read-only and write nothing to their
    /// members.
    async fn look(
        args: &'a Args,
        paths: &'a [PathBuf],
        daemon: &Rc<Daemon>,
        only_look: bool,
    ) -> Result<Draft<'a>> {
        let inner = args.inner_arrays(daemon, only_look).await?;
        let mut prospects = Vec::new();
        for path in paths {
            let mut found = prospect(path, args, &inner, daemon.spawner()).await?;
            let array = !disks::array_name(path).is_empty();
            found.limits.read_only &= !(array && only_look);
            prospects.push(found);
        }
        let found = prospects.iter().map(|disk| (disk.path, &disk.contents));
        let refused = probe::refuse_unnamed(found, &args.overwrite.overwrite_signature).err();
        if let (Some(refusal), false) = (&refused, args.consent.dry_run) {
            return Err(refusal.clone());
        }
        let mut new = args.new_array(&prospects)?;
        let members = &prospects[..args.members.len() + args.spare.len()];
        new.zeroed = args.assume_zeroed || are_zeros(members).await;
        let named: Vec<(String, Limits)> =
            members.iter().map(|disk| (disk.path.display().to_string(), disk.limits)).collect();
        if let Some(device) = prospects[members.len()..].first() {
            let name = device.path.display().to_string();
            let slots = args.members.len();
            metadata::create::check_journal(&new, (&name, device.limits), slots)
                .map_err(of_shape)?;
        }
        let planned = metadata::create::plan(&new, &named).map_err(of_shape)?;
        let mut plan = show(args, &new, &planned, &prospects);
        plan.warnings.extend(refused.map(|refusal| format!("this is refused: {refusal}")));
        Ok(Draft { args, prospects, new, planned, plan })
    }

    /// Shows the plan and asks; returns false for a dry run.
    fn agreed(&self, terminal: &Terminal) -> Result<bool> {
        let consent = &self.args.consent;
        if consent.dry_run {
            terminal.report(&self.plan);
            return Ok(false);
        }
        if !consent.yes {
            terminal.preview(&self.plan);
        }
        let destructive = self.prospects.iter().any(|disk| !disk.contents.signatures.is_empty());
        let answer = if destructive { Answer::Name(&self.args.name) } else { Answer::Yes };
        terminal.confirm(consent.yes, "Make this array?", &answer)?;
        Ok(true)
    }

    /// Creates the array, after copying the blocks to be overwritten.
    async fn carry_out(mut self, on: &Spawner) -> Result<Plan> {
        let kept = keep(&self.new, &self.planned, &self.prospects).await?;
        self.plan.undo = kept.folder.as_ref().map(|folder| folder.display().to_string());
        let journaled = self.args.journal.is_some();
        let made = carry_out(&self.new, self.prospects, journaled, &kept, on).await?;
        self.plan.uuid = Some(made.uuid.to_string());
        self.plan.done = true;
        Ok(self.plan)
    }
}

/// Examines a disk without changing it.
async fn prospect<'a>(
    path: &'a Path,
    args: &Args,
    inner: &[Rc<Served>],
    on: &Spawner,
) -> Result<Prospect<'a>> {
    let opened = match path.to_str().and_then(|text| text.strip_prefix(ARRAY)) {
        Some(name) => {
            let found = inner.iter().find(|served| served.name() == name);
            let found = found.ok_or_else(|| {
                let message = format!("no array called {name} was found");
                Failure::new(Id::NoArray, message, "say where its members are: --scan DIR")
            })?;
            Opened::array(&found.array, on)
        }
        None if disks::is_there(path) => disks::open_one(path, &Options::default(), on).await?,
        None => {
            let asked = args.new_files.map(|size| size.0);
            let Some(bytes) = modelled::new_bytes(path, asked)?.or(asked) else {
                let mut missing = of_path(path, &std::io::ErrorKind::NotFound.into());
                missing.action = "check the path, or have files made: --new-files SIZE".into();
                return Err(missing);
            };
            let limits = Limits::plain(bytes - bytes % 4096);
            return Ok(Prospect { path, opened: None, contents: Contents::default(), limits });
        }
    };
    let contents = probe::contents(&opened).await?;
    let limits = opened.disk.limits();
    Ok(Prospect { path, opened: Some(opened), contents, limits })
}

impl Args {
    /// Starts the arrays that are to be members of this one.
    async fn inner_arrays(&self, daemon: &Rc<Daemon>, read_only: bool) -> Result<Vec<Rc<Served>>> {
        let Some(folder) = &self.scan else { return Ok(Vec::new()) };
        let sources = Sources { name: None, members: &[], scan: Some(folder) };
        let assembly = AssemblyFlags { read_only, ..AssemblyFlags::default() };
        let run = RunFlags::default();
        sources.everything(&assembly, &run, daemon).await
    }

    fn new_array(&self, prospects: &[Prospect<'_>]) -> Result<NewArray> {
        let layout = match &self.layout {
            None => Layout::default_for(self.level, self.members.len()),
            Some(name) => Layout::parse(self.level, name)
                .map_err(|_| no_layout(self.level, name, self.members.len()))?,
        };
        let block = prospects.iter().map(|disk| u64::from(disk.limits.logical_block)).max();
        let chunk = self.chunk.map(|size| size.0);
        check_unit(chunk)?;
        if let (Layout::Raid35 { order }, Some(name)) = (layout, &self.layout) {
            check_order(order, name, self.members.len())?;
        }
        if let Layout::Raid35 { order } = layout {
            check_raid35(order, self.members.len(), chunk)?;
        }
        let chunk_bytes = match layout {
            Layout::Raid1 | Layout::Linear => chunk.unwrap_or(0),
            Layout::Raid35 { order } => {
                let least = block.unwrap_or(512) << order;
                chunk.unwrap_or(BLOCK_BYTES.max(least)) >> order
            }
            _ => chunk.unwrap_or(CHUNK_BYTES),
        };
        let mut new = NewArray::new(&self.name, layout, chunk_bytes);
        new.version = self.metadata;
        let (policy, bitmap) = policy::choose(self.level, self.consistency, self.bitmap)?;
        new.consistency = policy.map(Into::into);
        new.bitmap = bitmap;
        new.checksums = self.checksums;
        new.spares = self.spare.len();
        new.size_bytes = self.size.map(|size| size.0);
        // The user named each signature, or there is none.
        new.overwrite = true;
        Ok(new)
    }
}

/// Refuses a layout that the level does not have.
fn no_layout(level: Level, name: &str, members: usize) -> Failure {
    let message = format!("{level} has no layout {name:?}");
    let names: Vec<String> = Layout::all(level, members).map(|layout| layout.to_string()).collect();
    let action = match &names[..] {
        [] | [_] => "leave --layout out".into(),
        names => format!("choose one of: {}", names.join(", ")),
    };
    Failure::new(Id::Shape, message, action)
}

/// Refuses a chunk size of so few bytes: the user meant another unit.
fn check_unit(chunk: Option<u64>) -> Result<()> {
    let Some(bytes) = chunk.filter(|bytes| (1..=512).contains(bytes)) else {
        return Ok(());
    };
    let message = format!("--chunk {bytes} means {bytes} bytes");
    let action = format!("write the unit, such as --chunk {bytes}K");
    Err(Failure::new(Id::Shape, message, action))
}

/// Refuses a layout of RAID 3.5 that does not fit the number of members.
fn check_order(order: u8, name: &str, members: usize) -> Result<()> {
    let members_of = |order: u8| 1_usize.checked_shl(order.into()).map(|data| data + 1);
    let (Some(takes), true) = (members_of(order), members_of(order) != Some(members)) else {
        return Ok(());
    };
    let message = format!("--layout {name} takes {takes} members, {members} were named");
    let fitting = (1..=u8::MAX).find(|&order| members_of(order).is_none_or(|n| n >= members));
    let action = match fitting.filter(|&order| members_of(order) == Some(members)) {
        Some(order) => format!("{members} members are order{order}; or leave --layout out"),
        None => "name 3, 5, 9 or 17 members and so on; --layout may be left out".into(),
    };
    Err(Failure::new(Id::Shape, message, action))
}

/// Checks RAID 3.5 in the user's terms: the engine counts the fragments of blocks.
fn check_raid35(order: u8, members: usize, block: Option<u64>) -> Result<()> {
    if Some(members) != 1_usize.checked_shl(order.into()).map(|data| data + 1) {
        let message = format!(
            "RAID 3.5 has a parity member and 2, 4, 8 … for data: 3, 5, 9, 17 and so on, not \
             {members}"
        );
        let action = "name so many members; --layout orderN goes with 2 to the power of N, and one";
        return Err(Failure::new(Id::Shape, message, action));
    }
    let fit = |bytes: u64| {
        bytes.is_power_of_two()
            && (layout::geometry::MIN_CHUNK_BYTES..=layout::geometry::MAX_CHUNK_BYTES)
                .contains(&bytes)
    };
    match block.filter(|&bytes| !fit(bytes)) {
        None => Ok(()),
        Some(bytes) => {
            let (min, max) =
                (Size(layout::geometry::MIN_CHUNK_BYTES), Size(layout::geometry::MAX_CHUNK_BYTES));
            let message = format!("RAID 3.5 has no blocks of {}", Size(bytes));
            let action = format!("choose a --chunk that is a power of two, from {min} to {max}");
            Err(Failure::new(Id::Shape, message, action))
        }
    }
}

fn of_shape(error: metadata::Error) -> Failure {
    Failure::new(Id::Shape, error.to_string(), "choose other disks, or another level or chunk")
}

/// Returns true if nothing was ever stored on these disks: files without data, or NBD exports whose
/// server says so.
async fn are_zeros(prospects: &[Prospect<'_>]) -> bool {
    for disk in prospects {
        let Some(opened) = &disk.opened else { continue };
        let len = disk.limits.bytes;
        let is_file = opened.file.as_ref().is_some_and(|file| !file.is_device());
        if !(is_file || opened.remote.is_some()) || !disk.contents.signatures.is_empty() {
            return false;
        }
        let asked = Op::new(0, Work::Extents { len, found: Vec::new() });
        let answer = opened.disk.submit(asked).await;
        let Work::Extents { found, .. } = answer.work else { return false };
        let total: u64 = found.iter().map(|extent| extent.len).sum();
        let data = found.iter().any(|extent| extent.kind == ExtentKind::Data);
        if answer.result.is_err() || data || total < len {
            return false;
        }
    }
    true
}

fn show(
    args: &Args,
    new: &NewArray,
    planned: &metadata::create::Plan,
    prospects: &[Prospect<'_>],
) -> Plan {
    let disk = |(index, disk): (usize, &Prospect<'_>)| PlannedDisk {
        path: disk.path.display().to_string(),
        serial: disk.opened.as_ref().and_then(|opened| opened.serial.clone()),
        bytes: disk.limits.bytes,
        role: match index {
            _ if index < args.members.len() => format!("slot {index}"),
            _ if index < args.members.len() + args.spare.len() => "spare".into(),
            _ => "journal".into(),
        },
        overwrites: disk.contents.signatures.clone(),
        new: disk.opened.is_none(),
    };
    let mut warnings = planned.warnings.clone();
    if !new.zeroed && planned.redundancy > 0 {
        warnings.push("parity or copies are synced in the background once it is served".into());
    }
    let is_array = |disk: &Prospect<'_>| disk.path.to_string_lossy().starts_with(ARRAY);
    if planned.redundancy == 0 {
        warnings.push(match prospects.iter().any(is_array) {
            true => "a member array that fails takes all data with it".into(),
            false => "this level survives no loss: any failure takes all data with it".into(),
        });
    }
    Plan {
        done: false,
        verb: "create".into(),
        name: args.name.clone(),
        uuid: None,
        level: args.level.to_string(),
        layout: new.layout.to_string(),
        chunk_bytes: new.chunk_bytes,
        capacity_bytes: planned.capacity,
        raw_bytes: prospects[..planned.maps.len()].iter().map(|disk| disk.limits.bytes).sum(),
        redundancy: planned.redundancy,
        consistency: api::of_new(new, planned.redundancy),
        checksums: planned.checksums,
        disks: prospects.iter().enumerate().map(disk).collect(),
        warnings,
        undo: None,
    }
}

/// Copies all blocks that the command overwrites.
async fn keep(
    new: &NewArray,
    planned: &metadata::create::Plan,
    prospects: &[Prospect<'_>],
) -> Result<Kept> {
    let mut there = Vec::new();
    for (index, disk) in prospects.iter().enumerate() {
        let Some(opened) = &disk.opened else { continue };
        let written = match planned.maps.get(index) {
            Some(map) => metadata::create::writes(new, planned, map),
            None => metadata::create::writes_on_journal(),
        };
        let signatures = &disk.contents.signatures[..];
        there.push(undo::OverwriteTarget { opened, signatures, written, landmarks: Vec::new() });
    }
    undo::keep("create", &new.name, &there).await
}

/// Creates the missing files and the array, or nothing. The last disk is the journal device if it
/// is `journaled`.
async fn carry_out(
    new: &NewArray,
    prospects: Vec<Prospect<'_>>,
    journaled: bool,
    kept: &Kept,
    on: &Spawner,
) -> Result<Facts> {
    let mut disks = Vec::new();
    let mut made = Vec::new();
    let mut outcome = Ok(());
    for disk in prospects {
        let opened = match disk.opened {
            Some(opened) => Ok(opened),
            None => disks::make_file(disk.path, disk.limits.bytes, on).await.inspect(|_| {
                made.push(disk.path.to_owned());
            }),
        };
        match opened {
            Ok(opened) => disks.push(opened),
            Err(failure) => {
                outcome = Err(failure);
                break;
            }
        }
    }
    let outcome = match outcome {
        Ok(()) => {
            let members = disks.len() - usize::from(journaled);
            match write(new, &disks[..members], disks.get(members), on).await {
                Ok(facts) => Ok(facts),
                Err(failure) => {
                    let old = disks.iter().filter(|disk| !made.contains(&disk.path));
                    Err(give_back(failure, kept, old).await)
                }
            }
        }
        Err(failure) => Err(failure),
    };
    if outcome.is_err() {
        for path in made {
            // This process has just created the file.
            let _ = fs::remove_file(file_of(&path));
        }
    }
    outcome
}

/// Restores the previous content of the disks after a failure, and reports it.
pub(crate) async fn give_back<'a>(
    mut failure: Failure,
    kept: &Kept,
    disks: impl Iterator<Item = &'a Opened>,
) -> Failure {
    let (mut again, mut lost) = (Vec::new(), Vec::new());
    for disk in disks {
        match kept.put_back(disk).await {
            Ok(()) => again.push(disk.path.display().to_string()),
            Err(why) => lost.push(why.message),
        }
    }
    if !again.is_empty() {
        failure.message += &format!("; the previous content is back on {}", again.join(", "));
    }
    if lost.is_empty() {
        return failure;
    }
    failure.message +=
        &format!("; the previous content could not be restored ({})", lost.join("; "));
    failure.action = match &kept.folder {
        Some(folder) => format!(
            "it is kept in {}: once the disk can be written, run the commands in undo.json there",
            folder.display()
        ),
        None => "there were only zeros where something was written: write zeros there".into(),
    };
    failure
}

/// Writes the metadata of the array.
///
/// # Errors
/// If a disk fails; then there is no array.
pub(crate) async fn write(
    new: &NewArray,
    disks: &[Opened],
    journal: Option<&Opened>,
    on: &Spawner,
) -> Result<Facts> {
    let random = engine::random()?;
    let disks = (engine::candidates(disks), engine::candidates(journal).pop());
    let clock = on.clock() as _;
    let made = metadata::create::create_with_journal(new, disks, &clock, &*random).await;
    made.map_err(|error| {
        Failure::new(Id::Failed, error.to_string(), "see the system's log for the disk's errors")
    })
}
