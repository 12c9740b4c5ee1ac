//! Starts arrays from disks, and provides the host services that the engine needs.
//!
//! Owns randomness, the choice of a parity kernel and the translation of the engine's errors. Never
//! parses a superblock itself.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use array::{Array, CacheMode, Host};
use layout::MemberId;
use layout::md::superblock::Role;
use metadata::Bounds;
use metadata::assemble::{Assembly, Candidate, Cause, Note, Options};
use metadata::commit::Random;
use os::{Executor, Spawner};

use crate::api::Consistency;
use crate::daemon::{Daemon, Known, Served, Story};
use crate::disks::{self, Opened};
use crate::failure::{Failure, Id, Result, of_path};
use crate::flags::{UNLIMITED, on_or_off};
use crate::size::Size;

/// Flags that say how an array is assembled.
#[derive(clap::Args, Default)]
#[command(next_help_heading = "Assembly")]
pub(crate) struct AssemblyFlags {
    /// Start although a member is missing
    #[arg(long)]
    pub(crate) degraded: bool,
    /// Start dirty and degraded: blocks of the missing member may be wrong where writes were
    /// interrupted
    #[arg(long)]
    pub(crate) force_dirty_degraded: bool,
    /// Change the crash-consistency policy [default: unchanged]
    #[arg(long, value_name = "POLICY", conflicts_with = "read_only")]
    pub(crate) consistency: Option<Consistency>,
    /// Switch checksums on or off [default: unchanged]
    #[arg(long, value_name = "ON|OFF", value_parser = on_or_off, conflicts_with = "read_only")]
    pub(crate) checksums: Option<bool>,
    /// Add or change the journal device (policy journal); an existing one is named as a member
    #[arg(long, value_name = "DEVICE", conflicts_with = "read_only")]
    pub(crate) journal: Option<PathBuf>,
    /// Write nothing to the members; refuse client writes
    #[arg(long)]
    pub(crate) read_only: bool,
    /// Layout of a RAID 0 whose superblock has none: original or alternate
    #[arg(long, value_name = "LAYOUT", value_parser = raid0_layout)]
    pub(crate) raid0_layout: Option<layout::Raid0Layout>,
}

/// Parses a layout as users write it.
pub(crate) fn raid0_layout(text: &str) -> std::result::Result<layout::Raid0Layout, String> {
    match text {
        "original" => Ok(layout::Raid0Layout::Original),
        "alternate" => Ok(layout::Raid0Layout::Alternate),
        _ => Err("it is original or alternate".into()),
    }
}

impl AssemblyFlags {
    /// Builds the engine's options for the array of this name or UUID and these run flags.
    pub(crate) fn options(&self, array: Option<&str>, run: &RunFlags) -> Options {
        let uuid = array.and_then(layout::md::Uuid::parse);
        let name = array.filter(|_| uuid.is_none()).map(str::to_owned);
        Options {
            uuid,
            name,
            degraded: self.degraded || self.force_dirty_degraded,
            force_dirty_degraded: self.force_dirty_degraded,
            read_only: self.read_only,
            consistency: self.consistency.map(Into::into),
            checksums: self.checksums,
            journal: self
                .journal
                .as_ref()
                .map(|path| disks::member_path(path).display().to_string()),
            raid0_layout: self.raid0_layout,
            deadline: run.deadline(),
        }
    }
}

/// Flags that say how an array runs.
#[derive(clap::Args, Default)]
#[command(next_help_heading = "Running")]
pub(crate) struct RunFlags {
    /// Parity kernel: scalar, avx2 … [default: the fastest]; `off` writes no parity and protects
    /// nothing, for measurements only
    #[arg(long, value_name = "KERNEL", value_parser = kernel)]
    pub(crate) parity: Option<Parity>,
    /// Compare data with its redundancy at every read
    #[arg(long)]
    pub(crate) check_reads: bool,
    /// Cache mode: when writes are acknowledged; FLUSH and FUA are always honoured
    #[arg(long, value_name = "MODE", default_value = "none")]
    pub(crate) cache: Cache,
    /// Maximum read-ahead of sequential readers; 0 for none
    #[arg(long, value_name = "SIZE")]
    pub(crate) read_ahead: Option<Size>,
    /// Fail a member that does not answer within this time
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub(crate) deadline: Option<u64>,
    #[command(flatten)]
    pub(crate) speed: crate::flags::SpeedLimits,
}

/// When writes are acknowledged.
#[derive(Clone, Copy, Default, clap::ValueEnum)]
pub(crate) enum Cache {
    /// On completion by the members; a power cut may lose unflushed writes
    #[default]
    None,
    /// When durable on the members; flushes are shared
    Sync,
    /// In memory; written to the members in full stripes. A power cut or a killed process loses
    /// unflushed writes, as with any disk cache
    Writeback,
}

/// The computation of parity.
#[derive(Clone, Copy)]
pub(crate) enum Parity {
    By(parity::Kernel),
    Off,
}

fn kernel(text: &str) -> std::result::Result<Parity, String> {
    if text == "off" {
        return Ok(Parity::Off);
    }
    parity::by_name(text).map(Parity::By).ok_or_else(|| {
        let names: Vec<&str> = parity::kernels().map(|kernel| kernel.name()).collect();
        format!("this machine can run: {}", names.join(", "))
    })
}

impl RunFlags {
    /// Returns the host of an array on this executor.
    pub(crate) fn host(&self, on: &Spawner) -> Host {
        let mut host = Host::new(on.clock());
        match self.parity {
            Some(Parity::By(kernel)) => host.kernel = kernel,
            Some(Parity::Off) => host.parity = false,
            None => {}
        }
        host.check_reads = self.check_reads;
        host.cache = match self.cache {
            Cache::None => CacheMode::None,
            Cache::Sync => CacheMode::Sync,
            Cache::Writeback => CacheMode::Writeback,
        };
        if let Some(size) = self.read_ahead {
            host.bounds.ahead_bytes = size.0;
            host.bounds.ahead_rotating_bytes = size.0;
        }
        host.bounds.deadline = self.deadline();
        host
    }

    /// Returns the deadline of a member's requests.
    fn deadline(&self) -> Duration {
        self.deadline.map_or(Bounds::default().deadline, Duration::from_secs)
    }

    /// Sets the requested speed limits.
    pub(crate) fn limit(&self, array: &Array) {
        let (min, max) = array.speed();
        let or = |size: Option<Size>, before| size.map_or(before, |size: Size| size.0);
        let (min, max) = (or(self.speed.speed_min, min), or(self.speed.speed_max, max));
        let max = if max == 0 { UNLIMITED } else { max };
        // A minimum that the user did not name is lowered to the maximum.
        let min = if self.speed.speed_min.is_none() { min.min(max) } else { min };
        array.set_speed(min, max);
    }
}

/// Creates an executor for this thread.
///
/// # Errors
/// If the machine has no file descriptors or memory left.
pub(crate) fn executor() -> Result<Executor> {
    Executor::new(os::Config::default()).map_err(|error| {
        let message = format!("no event loop: {error}");
        Failure::new(Id::Failed, message, "see the limits of open files and locked memory")
    })
}

/// Opens the kernel's source of random bytes.
///
/// # Errors
/// If there is no `/dev/urandom`.
pub(crate) fn random() -> Result<Random> {
    let path = PathBuf::from("/dev/urandom");
    let source = File::open(&path).map_err(|error| of_path(&path, &error))?;
    let source = RefCell::new(source);
    Ok(Rc::new(move |bytes: &mut [u8]| {
        source.borrow_mut().read_exact(bytes).expect("/dev/urandom never ends and never fails");
    }))
}

/// Converts the disks into the engine's candidates.
pub(crate) fn candidates<'a>(disks: impl IntoIterator<Item = &'a Opened>) -> Vec<Candidate> {
    let candidate = |opened: &Opened| Candidate::new(Rc::clone(&opened.disk), opened.name());
    disks.into_iter().map(candidate).collect()
}

/// Assembles the array whose members these disks are.
///
/// # Errors
/// The engine's errors.
pub(crate) async fn assemble(
    disks: &[&Opened],
    options: &Options,
    on: &Spawner,
) -> Result<Assembly> {
    let found = metadata::assemble::assemble(
        candidates(disks.iter().copied()),
        options,
        on.clock(),
        random()?,
    );
    found.await.map_err(|error| {
        let mut failure = crate::daemon::of_engine(error);
        if failure.id == Id::WrongState {
            failure.id = Id::Foreign;
            failure.action = "parapet examine shows what each disk says".into();
        }
        failure
    })
}

/// Describes the role of a member.
pub(crate) fn role_word(role: Role) -> String {
    match role {
        Role::Slot(slot) => format!("slot {slot}"),
        Role::Spare => "spare".into(),
        Role::Faulty => "faulty".into(),
        Role::Journal => "journal".into(),
    }
}

/// Logs the notes of an assembly.
pub(crate) fn log_notes(assembly: &Assembly) {
    let array = &assembly.facts().name;
    let new = |note: &Note| matches!(note, Note::Unsynced { cause: Cause::New, .. });
    let is_new = assembly.notes.iter().any(new);
    for note in &assembly.notes {
        match note {
            Note::Unsynced { cause: Cause::New, .. } => {
                let effect = "first start: computing parity or copies in the background";
                tracing::info!("{array}: {effect} (parapet when {array})");
            }
            // The log of a new array is empty, so nothing is lost.
            Note::LogUnusable { .. } if is_new => tracing::debug!("{array}: {note}"),
            Note::Spare { .. } | Note::Remark { .. } => tracing::info!("{array}: {note}"),
            _ => tracing::warn!("{array}: {note}"),
        }
    }
    if let Some(reason) = &assembly.read_only_reason {
        if reason == metadata::assemble::READ_ONLY_AS_ASKED {
            tracing::info!("{array}: started read-only");
        } else {
            tracing::warn!("{array}: read-only: {reason}");
        }
    }
}

/// Refuses more threads than the intent log has zones for: each thread writes its own zone.
fn check_threads(assembly: &Assembly, threads: usize) -> Result<()> {
    let Some(most) = assembly.most_shards().filter(|&most| most < threads as u64) else {
        return Ok(());
    };
    let name = &assembly.facts().name;
    let message = format!(
        "the log of {name} has room for {most} threads, not for {threads}: each needs a part of it \
         on every member"
    );
    let action = format!("say --threads {most}, or give up the log: --consistency bitmap");
    Err(Failure::new(Id::WrongState, message, action))
}

/// Starts the array on all threads of the server.
///
/// # Errors
/// If it cannot run on that number of threads.
pub(crate) async fn start(
    assembly: Assembly,
    disks: &[&Opened],
    host: Host,
    daemon: &Daemon,
) -> Result<Served> {
    check_threads(&assembly, daemon.threads())?;
    daemon.check_single_threaded(disks.iter().copied())?;
    let mut known = BTreeMap::new();
    // The journal device is not a member: `fail`, `remove` and `replace` do not apply to it.
    for joined in assembly.members.iter().filter(|joined| joined.id != MemberId::JOURNAL) {
        let opened = disks.iter().find(|opened| opened.name() == joined.name);
        if let Some(opened) = opened {
            known.insert(joined.id, know(opened).await);
        }
    }
    let story = Story {
        notes: assembly.notes.iter().map(ToString::to_string).collect(),
        log_unusable: assembly.notes.iter().find_map(|note| match note {
            Note::LogUnusable { why } => Some(why.clone()),
            _ => None,
        }),
        read_only: assembly.read_only_reason.clone(),
        cache: host.cache,
    };
    Ok(Served::new(daemon.start(assembly, disks, host), known, story))
}

impl Known {
    /// Returns true if its disk is a file, not a device.
    pub(crate) fn is_file(&self) -> bool {
        // The identity of a device has no inode.
        self.identity.is_some_and(|(_, inode)| inode != 0)
    }

    /// Returns true if its file was truncated while in use, or its device was unplugged.
    pub(crate) fn is_gone(&self) -> bool {
        self.file.as_ref().is_some_and(|file| file.is_gone())
    }
}

/// Builds the description of a member.
pub(crate) async fn know(opened: &Opened) -> Known {
    // Only the name is used: an unreadable disk has none.
    let found = metadata::examine::examine(&*opened.disk, &opened.clock).await.ok();
    let superblock = found
        .and_then(|found| found.superblocks.into_iter().find_map(|found| found.superblock.ok()));
    Known {
        path: disks::member_path(&opened.path),
        serial: opened.serial.clone(),
        uuid: superblock.map(|found| found.device.uuid.to_string()).unwrap_or_default(),
        disk: Rc::clone(&opened.disk),
        identity: opened.file.as_ref().map(|file| file.identity()),
        file: opened.file.clone(),
        remote: opened.remote.clone(),
    }
}
