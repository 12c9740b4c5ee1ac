//! `parapet quickstart`: creates and serves an array with one command.
//!
//! ```text
//!    DIR/member-0.img … member-5.img   spare-0.img      the array's members: files
//!    DIR/nbd.sock                      control.sock     where clients and commands connect
//!    DIR/demo                          the array as a demonstration has left it: see `trace`
//! ```
//!
//! Invariant: an unfinished creation is removed again. Existing members are used as they are and
//! never created anew.

use std::cell::Cell;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use io::Limits;
use layout::md::Superblock;
use metadata::create::NewArray;
use os::{Address, Options, Signals, Spawner};

use crate::cluster;
use crate::cmd::{create, serve};
use crate::daemon::{Daemon, Served, first};
use crate::demo::{self, Demo};
use crate::disks::{self, Opened};
use crate::engine::{self, AssemblyFlags, RunFlags};
use crate::failure::{Exit, Failure, Id, Result, of_path};
use crate::flags::tcp_address;
use crate::places;
use crate::size::Size;
use crate::terminal::Terminal;

/// Create and serve a RAID 6 of six files and a spare
///
/// A second run serves the same array again. Ctrl-C stops the server cleanly.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Folder for members and sockets; created if missing
    #[arg(long, value_name = "DIR", default_value = "parapet-data")]
    dir: PathBuf,
    /// Also serve NBD over TCP: PORT (loopback address), ADDRESS:PORT or :PORT (all addresses)
    #[arg(long, value_name = "ADDRESS", value_parser = tcp_address,
        num_args = 0..=1, default_missing_value = "10809")]
    tcp: Option<SocketAddr>,
    /// Size of new member files [default: 320M]
    #[arg(long, value_name = "SIZE")]
    member_size: Option<Size>,
    /// Write, fail two members, rebuild, read back, verify, and exit
    #[arg(long)]
    demo: bool,
    /// With --demo: overwrite an array that contains data
    #[arg(short, long, requires = "demo")]
    yes: bool,
    /// Instead: run a cluster on this machine, three disks and two clients, for half a minute; kill
    /// a member, a coordinator and a client; verify, clean up, and exit
    #[arg(long, conflicts_with_all = ["dir", "tcp", "member_size", "demo"],
        hide = cfg!(not(feature = "cluster")))]
    cluster: bool,
    #[command(flatten)]
    assembly: AssemblyFlags,
    #[command(flatten)]
    run: RunFlags,
}

/// File in the folder with the array's [`trace`] after a demonstration.
const MARKER: &str = "demo";
/// Name of the array.
const NAME: &str = "quickstart";
/// Number of members with a slot, and of spares.
const MEMBERS: usize = 6;
const SPARES: usize = 1;
const CHUNK_BYTES: u64 = 64 << 10;
/// Space for the demonstration, and a reserve.
const MEMBER_BYTES: u64 = 320 << 20;

pub(crate) fn run(args: Args, terminal: &Terminal) -> Result<Exit> {
    let executor = engine::executor()?;
    let on = executor.spawner();
    let signals = serve::catch(&on)?;
    if args.cluster {
        return executor.block_on(cluster::demonstrate(&on, &signals, terminal));
    }
    for socket in ["nbd.sock", "control.sock"] {
        check_length(&args.dir.join(socket))?;
    }
    let made = prepare(&args.dir)?;
    // Hold the lock until the server runs. A second process in this folder waits, then finds the
    // members in use.
    let mut starting = Some(turn(&args.dir)?);
    let shown = Cell::new(false);
    let outcome = executor.block_on(async {
        let daemon = Daemon::new(&on, None, 1)?;
        let before = trace(&args.dir, &on).await;
        let found = array(&args, &daemon).await;
        starting.take();
        let (served, fresh) = found?;
        let served = daemon.take_in(served);
        daemon.export(&served, None, args.assembly.read_only, true)?;
        daemon.resume_attachment(&served).await;
        args.run.limit(&served.array);
        let (terminal, signals) = (terminal, &signals);
        let session = Session { args: &args, on: &on, terminal, signals, before, shown: &shown };
        let opened = session.open(&daemon).await;
        let outcome = match opened {
            Ok(()) => session.serve(&daemon, &served, fresh).await,
            Err(failure) => Err(failure),
        };
        daemon.end();
        daemon.run(signals).await.and(outcome)
    });
    if shown.get() {
        executor.block_on(mark(&args.dir, &on));
    }
    if outcome.is_err() && made {
        // Removes the folder only if it is empty.
        let _ = fs::remove_dir(&args.dir);
    }
    outcome
}

/// Refuses paths that the kernel does not accept, before creating anything.
fn check_length(socket: &Path) -> Result<()> {
    match places::check_socket(socket) {
        Err(failure) if failure.id != Id::Missing => Err(failure),
        _ => Ok(()),
    }
}

/// Identifies the last write to the array: its UUID, its event count, and the time and random tag
/// of its latest superblock. The event count alone is not enough, since md may reach the same
/// number. None if there is no array.
async fn trace(folder: &Path, on: &Spawner) -> Option<String> {
    let look = Options { read_only: true, lock: false, ..Options::default() };
    let mut latest: Option<Superblock> = None;
    for path in paths(folder) {
        let Ok(opened) = disks::open_one(&path, &look, on).await else { continue };
        let Ok(found) = metadata::examine::examine(&*opened.disk, &opened.clock).await else {
            continue;
        };
        let valid = found.superblocks.into_iter().filter_map(|found| found.superblock.ok());
        latest = latest.into_iter().chain(valid).max_by_key(|found| found.events);
    }
    let found = latest?;
    let (seconds, micros) = (found.utime.seconds(), found.utime.micros());
    Some(format!("{} {} {seconds}.{micros:06}\n", found.set_uuid, found.events))
}

/// Records that only a demonstration has written to the array.
async fn mark(folder: &Path, on: &Spawner) {
    let Some(trace) = trace(folder, on).await else { return };
    // Without this file, the next demonstration asks for --yes.
    let _ = fs::write(folder.join(MARKER), trace);
}

/// Creates the folder; returns true if it did not exist.
fn prepare(folder: &Path) -> Result<bool> {
    match fs::create_dir(folder) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists && folder.is_dir() => {
            Ok(false)
        }
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
            let message = format!("{}: is a file, not a folder", folder.display());
            Err(Failure::new(Id::Input, message, "choose another --dir"))
        }
        Err(error) => Err(of_path(folder, &error)),
    }
}

/// The lock for creating or starting the array of this folder, held until dropped. Blocks.
fn turn(folder: &Path) -> Result<fs::File> {
    let opened = fs::File::open(folder);
    let locked = opened.and_then(|folder| folder.lock().map(|()| folder));
    locked.map_err(|error| of_path(folder, &error))
}

fn paths(folder: &Path) -> Vec<PathBuf> {
    let members = (0..MEMBERS).map(|index| format!("member-{index}.img"));
    let spares = (0..SPARES).map(|index| format!("spare-{index}.img"));
    members.chain(spares).map(|name| folder.join(name)).collect()
}

/// Finds or creates the array; returns true if it was created.
async fn array(args: &Args, daemon: &Daemon) -> Result<(Served, bool)> {
    let on = daemon.spawner();
    let paths = paths(&args.dir);
    let there: Vec<PathBuf> = paths.iter().filter(|path| path.exists()).cloned().collect();
    let fresh = there.is_empty();
    let disks = match fresh {
        true => make(&paths, args, on).await?,
        false => disks::open(&there, args.assembly.read_only, on)
            .await
            .map_err(|failure| running(failure, &args.dir))?,
    };
    if let (Some(size), false, Some(first)) = (args.member_size, fresh, disks.first())
        && size.0 != first.bytes()
    {
        let (folder, bytes) = (args.dir.display(), Size(first.bytes()));
        tracing::warn!(
            "--member-size {size} has no effect: {folder} holds an array of members of {bytes}"
        );
    }
    let all: Vec<&Opened> = disks.iter().collect();
    let mut options = args.assembly.options(Some(NAME), &args.run);
    options.degraded = true;
    let assembly = engine::assemble(&all, &options, on).await?;
    engine::log_notes(&assembly);
    Ok((engine::start(assembly, &all, args.run.host(on), daemon).await?, fresh))
}

/// Returns advice about a server that already runs this folder's array, by its name and socket.
fn running(mut failure: Failure, folder: &Path) -> Failure {
    let socket = control_word(folder);
    failure.action = failure.action.replace("NAME", &format!("{NAME} --control {socket}"));
    failure
}

/// Formats the control socket of this folder for a command line.
fn control_word(folder: &Path) -> String {
    let control = places::absolute(&folder.join("control.sock"));
    places::quoted(&format!("unix:{}", control.display()))
}

/// Creates the members and their array, or nothing at all.
async fn make(paths: &[PathBuf], args: &Args, on: &Spawner) -> Result<Vec<Opened>> {
    let bytes = args.member_size.map_or(MEMBER_BYTES, |size| size.0);
    let layout = layout::Layout::default_for(layout::Level::Raid6, MEMBERS);
    let mut new = NewArray::new(NAME, layout, CHUNK_BYTES);
    new.spares = SPARES;
    new.zeroed = true;
    let bytes = bytes - bytes % 4096;
    let named = |path: &PathBuf| (path.display().to_string(), Limits::plain(bytes));
    let named: Vec<(String, Limits)> = paths.iter().map(named).collect();
    let planned = metadata::create::plan(&new, &named).map_err(|error| {
        Failure::new(Id::Shape, error.to_string(), "choose another --member-size, such as 320M")
    })?;
    if args.demo && planned.capacity < demo::BYTES {
        let (size, bytes) = (Size(planned.capacity), Size(demo::BYTES));
        let message = format!("the array would have {size}, the demonstration needs {bytes}");
        return Err(Failure::new(Id::Shape, message, "say --member-size 320M, or leave it out"));
    }
    let mut disks: Vec<Opened> = Vec::new();
    let mut outcome = Ok(());
    for path in paths {
        match disks::make_file(path, bytes, on).await {
            Ok(opened) => disks.push(opened),
            Err(failure) => {
                outcome = Err(failure);
                break;
            }
        }
    }
    if outcome.is_ok() {
        outcome = create::write(&new, &disks, None, on).await.map(|_| ());
    }
    if let Err(failure) = outcome {
        for disk in &disks {
            // This process has just created the file.
            let _ = fs::remove_file(&disk.path);
        }
        return Err(failure);
    }
    Ok(disks)
}

struct Session<'a> {
    args: &'a Args,
    on: &'a Spawner,
    terminal: &'a Terminal,
    signals: &'a Signals,
    /// The array's trace before the demonstration.
    before: Option<String>,
    /// Set when a demonstration has begun.
    shown: &'a Cell<bool>,
}

impl Session<'_> {
    fn nbd(&self) -> Address {
        Address::Unix(self.args.dir.join("nbd.sock"))
    }

    async fn open(&self, daemon: &Rc<Daemon>) -> Result<()> {
        daemon.serve_nbd(&self.nbd()).await?;
        if let Some(address) = self.args.tcp {
            daemon.serve_nbd(&Address::Tcp(address)).await?;
        }
        daemon.listen(&self.args.dir.join("control.sock"), false).await
    }

    async fn serve(&self, daemon: &Rc<Daemon>, served: &Rc<Served>, fresh: bool) -> Result<Exit> {
        let marker = self.args.dir.join(MARKER);
        if !self.args.demo {
            // From here on, clients may write user data to the array.
            let _ = fs::remove_file(&marker);
            self.terminal.report(&serve::serving(daemon));
            self.hints(daemon, fresh);
            daemon.run(self.signals).await?;
            return Ok(Exit::Done);
        }
        self.permit_demo(&marker, served, fresh)?;
        // The trace is invalid until the demonstration ends.
        let _ = fs::remove_file(&marker);
        self.shown.set(true);
        self.terminal.preview(&serve::serving(daemon));
        let socket = self.nbd();
        let (on, terminal) = (self.on, self.terminal);
        let demo = Demo { daemon, served, socket: &socket, on, terminal };
        let interrupted = async {
            self.signals.next().await;
        };
        let shown = first(demo.run(), interrupted).await.unwrap_or_else(|| {
            Err(Failure::new(Id::Failed, "interrupted", "run it again to see the rest"))
        })?;
        self.terminal.report(&shown);
        if shown.wrong_bytes > 0 {
            let message = format!("{} bytes came back different", shown.wrong_bytes);
            return Err(Failure::new(Id::Verification, message, "please report it"));
        }
        let folder = self.args.dir.display().to_string();
        let word = places::quoted(&folder);
        self.terminal.say(format!("the array stays in {folder}: rm -r {word} takes it away"));
        Ok(Exit::Done)
    }

    /// Refuses to overwrite the start of the array if anyone but a demonstration has written to it.
    fn permit_demo(&self, marker: &Path, served: &Served, fresh: bool) -> Result<()> {
        let capacity = served.array.geometry().capacity();
        if capacity < demo::BYTES {
            let folder = self.args.dir.display().to_string();
            let message = format!(
                "{folder}: the array that is there already has {}, the demonstration needs {}",
                Size(capacity),
                Size(demo::BYTES)
            );
            let word = places::quoted(&folder);
            let action = format!(
                "choose another --dir; or, if its data is not needed: rm -r {word}, then run it \
                 again with --member-size 320M or more"
            );
            return Err(Failure::new(Id::Shape, message, action));
        }
        let left = fs::read_to_string(marker).ok();
        if fresh || self.args.yes || left.is_some() && left == self.before {
            return Ok(());
        }
        let message = "the array has been used: the demonstration would overwrite its data";
        Err(Failure::new(Id::Confirmation, message, "choose another --dir, or say --yes"))
    }

    /// Prints commands to copy and paste.
    fn hints(&self, daemon: &Daemon, fresh: bool) {
        let program = std::env::args().next().unwrap_or_else(|| "parapet".into());
        let program = places::quoted(&program);
        let control = format!("--control {}", control_word(&self.args.dir));
        let array = daemon.views().into_iter().next();
        let spares = match array.as_ref().map_or(0, |array| array.spares.len()) {
            0 => "no spare".into(),
            1 => "a spare".into(),
            count => format!("{count} spares"),
        };
        let uri = array.and_then(|array| array.exports.first().cloned());
        let uri = uri.unwrap_or_default();
        let verb = if fresh { "made" } else { "found" };
        let folder = self.args.dir.display();
        self.terminal.say(format!(
            "{verb} a RAID 6 of {MEMBERS} files with {spares} in {folder}; try, in another \
             terminal:"
        ));
        for line in [
            format!("nbdinfo '{uri}'"),
            format!("nbdcopy --progress SOME-FILE '{uri}'"),
            format!("qemu-io -f raw -c 'write -P 0x5a 0 1M' -c 'read -P 0x5a 0 1M' '{uri}'"),
            format!("{program} status {NAME} {control}"),
            format!("{program} fail {NAME} 2 {control}"),
            format!("{program} when {NAME} {control}"),
        ] {
            self.terminal.say(format!("  {line}"));
        }
        self.terminal.say("Ctrl-C stops it cleanly; run it again to continue.");
    }
}
