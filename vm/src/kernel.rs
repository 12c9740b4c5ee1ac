//! A real kernel, started for one story and gone with it.
//!
//! There are two: user-mode Linux, which is quick (`uml`), and a newer one on a whole machine
//! (`qemu`; `debian` fetches it). Both see the host's files. The first process is `vm/guest/init`,
//! which runs one script of that folder in a folder of the host.

mod debian;
mod moved;
mod qemu;
mod uml;

pub(crate) use moved::Moved;

use std::fmt::Write;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::failure::{Failure, Result, ensure};

/// A guest that has not ended by then hangs.
const PATIENCE: Duration = Duration::from_secs(300);
/// Exit status of a guest's script whose kernel lacks a feature.
const SKIPPED: &str = "77";

/// Suffix of cells on the newer kernel.
pub(crate) const NEWER: &str = "-newer";

/// How to start kernels.
pub(crate) struct Kernel {
    machine: Machine,
    /// Its modules.
    modules: PathBuf,
    guest: PathBuf,
    pub(crate) release: String,
}

/// A wire from a guest to a tap of the host.
pub(crate) struct Cable {
    /// The tap.
    pub(crate) interface: String,
    /// The largest that it ever has.
    pub(crate) mtu: u32,
    /// The guest's own; any, if none.
    pub(crate) address: Option<String>,
}

/// One of two machines of QEMU's that share a disk, and have a wire between them.
pub(crate) struct Peer {
    /// 0 or 1.
    pub(crate) number: usize,
    /// The disk: an NBD export.
    pub(crate) disk: String,
    /// The sockets at the ends of the wire: its own, and the other's.
    pub(crate) ends: [PathBuf; 2],
}

enum Machine {
    Uml(uml::Machine),
    Qemu(qemu::Machine),
}

impl Kernel {
    /// The quick one, started with the library `preload`.
    ///
    /// # Errors
    /// It is not installed, or another thing than expected.
    pub(crate) fn uml(preload: Option<PathBuf>) -> Result<Kernel> {
        let (modules, release) = uml::find()?;
        let machine = Machine::Uml(uml::Machine { preload });
        Ok(Kernel { machine, modules, guest: scripts()?, release })
    }

    /// The newer one; `cache` keeps it, and `state` is this run's.
    ///
    /// # Errors
    /// It cannot be fetched, or is another thing than expected.
    pub(crate) fn newer(cache: &Path, state: &Path) -> Result<Kernel> {
        let image = debian::Image::get(cache)?;
        let guest = scripts()?;
        let machine = Machine::Qemu(qemu::Machine::new(&image, &guest, state)?);
        Ok(Kernel { machine, modules: image.modules(), guest, release: image.release })
    }

    /// The suffix of names on it, if it is not the usual one.
    pub(crate) fn suffix(&self) -> &'static str {
        if self.is_quick() { "" } else { NEWER }
    }

    /// Does it start in a moment, and run nearly as fast as the host?
    pub(crate) fn is_quick(&self) -> bool {
        matches!(self.machine, Machine::Uml(_))
    }

    /// Runs a story in this folder to its end. Its output is in the folder's `log`.
    ///
    /// # Errors
    /// It failed, or did not end.
    pub(crate) fn run(&self, story: &str, work: &Path) -> Result {
        self.boot(story, work)?.finish()
    }

    /// Starts a story; the guest is killed if it is dropped.
    pub(crate) fn boot(&self, story: &str, work: &Path) -> Result<Guest> {
        self.boot_with(story, work, &[])
    }

    /// What a guest calls the end of its cable of this number.
    pub(crate) fn port(&self, number: usize) -> String {
        match self.machine {
            Machine::Uml(_) => uml::port(number),
            Machine::Qemu(_) => qemu::port(number),
        }
    }

    /// The same, with cables to interfaces of the host.
    pub(crate) fn boot_with(&self, story: &str, work: &Path, cables: &[Cable]) -> Result<Guest> {
        self.start(story, work, cables, None)
    }

    /// The same, as one of the two machines of a cluster.
    pub(crate) fn boot_as(&self, story: &str, work: &Path, peer: &Peer) -> Result<Guest> {
        self.start(story, work, &[], Some(peer))
    }

    fn start(
        &self,
        story: &str,
        work: &Path,
        cables: &[Cable],
        peer: Option<&Peer>,
    ) -> Result<Guest> {
        for stale in ["status", "log", "console"] {
            let _ = std::fs::remove_file(work.join(stale));
        }
        let console = std::fs::File::create(work.join("console"))?;
        let word = |name: &str, value: &str| format!("{name}={value}");
        let path = |name: &str, path: &Path| word(name, &path.display().to_string());
        let machine = match self.machine {
            Machine::Uml(_) => "uml",
            Machine::Qemu(_) => "qemu",
        };
        let words = [
            path("work", work),
            path("guest", &self.guest),
            path("modules", &self.modules),
            word("machine", machine),
            word("story", story),
        ];
        let first = self.guest.join("init");
        let mut command = match &self.machine {
            Machine::Uml(machine) => machine.command(&first, &words, cables),
            Machine::Qemu(machine) => machine.command(&first, work, &words, cables),
        };
        command.args(peer.map(qemu::peer).unwrap_or_default());
        command
            .stdin(Stdio::null())
            .stdout(console.try_clone()?)
            .stderr(console)
            // It is several processes; they are killed as one.
            .process_group(0);
        let process = command
            .spawn()
            .map_err(|error| Failure::new(format!("{:?}: {error}", command.get_program())))?;
        Ok(Guest { process, story: story.to_owned(), work: work.to_owned() })
    }
}

/// The folder of the guests' scripts.
fn scripts() -> Result<PathBuf> {
    let guest = Path::new(env!("CARGO_MANIFEST_DIR")).join("guest");
    ensure(guest.join("init").exists(), || format!("{} is missing", guest.display()))?;
    Ok(guest)
}

/// How a story ended, as its guest has left word.
fn outcome(story: &str, work: &Path) -> Result {
    let read = |name: &str| std::fs::read_to_string(work.join(name)).unwrap_or_default();
    let status = read("status");
    let (log, console) = (read("log"), read("console"));
    let oops = oops_in(&console);
    let console_or_log = if log.is_empty() { console } else { log };
    let from = console_or_log.lines().count().saturating_sub(12);
    let end = console_or_log.lines().skip(from).collect::<Vec<_>>().join("\n");
    match (status.trim(), oops) {
        ("0", _) => Ok(()),
        (SKIPPED, _) => Err(Failure::lacking(end)),
        (_, Some(oops)) => Err(Failure::of_guest(format!("the guest of {story}: {oops}"))),
        (status, None) => {
            Err(Failure::new(format!("the story {story} ended with {status:?}:\n{end}")))
        }
    }
}

/// The place of a kernel's oops, a bug of its own whatever a program does. It may go on without the
/// threads that met it.
fn oops_in(console: &str) -> Option<String> {
    let mut lines = console.lines().skip_while(|line| !line.contains("Oops: "));
    let oops = lines.next()?;
    let place = lines.find(|line| line.contains("RIP: ")).unwrap_or_default();
    Some(format!("{oops} {place}"))
}

/// The newer kernel, made ready when the first story asks for it.
pub(crate) struct Newer {
    cache: PathBuf,
    state: PathBuf,
    kernel: Mutex<Option<Arc<Kernel>>>,
}

impl Newer {
    pub(crate) fn new(cache: PathBuf, state: PathBuf) -> Newer {
        Newer { cache, state, kernel: Mutex::new(None) }
    }

    /// # Errors
    /// See [`Kernel::newer`]; the next call tries again.
    pub(crate) fn get(&self) -> Result<Arc<Kernel>> {
        let mut kernel = self.kernel.lock().expect("no thread panics while holding it");
        if let Some(kernel) = &*kernel {
            return Ok(Arc::clone(kernel));
        }
        let made = Arc::new(Kernel::newer(&self.cache, &self.state)?);
        println!("and on Linux {}", made.release);
        *kernel = Some(Arc::clone(&made));
        Ok(made)
    }
}

/// Leaves variables in a folder: the guest's script of that folder begins by reading them.
pub(crate) fn set(work: &Path, variables: &[(&str, &str)]) -> Result {
    let mut text = String::new();
    for (name, value) in variables {
        writeln!(text, "{name}='{value}'").expect("a string takes everything");
    }
    Ok(std::fs::write(work.join("cell"), text)?)
}

/// A kernel that runs.
pub(crate) struct Guest {
    process: Child,
    story: String,
    work: PathBuf,
}

impl Guest {
    /// It runs, or has turned itself off, or said why not.
    fn check_alive(&mut self) -> Result {
        let console = std::fs::read_to_string(self.work.join("console")).unwrap_or_default();
        let Some(status) = self.process.try_wait()? else {
            let oops = oops_in(&console).map(|oops| format!("the guest of {}: {oops}", self.story));
            return oops.map_or(Ok(()), |oops| Err(Failure::of_guest(oops)));
        };
        let has = |name: &str| self.work.join(name).exists();
        // A kernel that is not up when it panics has not met us: emulated processors can err while
        // it changes its own code.
        let says = has("status") || has("log") && console.contains("panic");
        if says && status.signal().is_none() {
            return Ok(());
        }
        let story = &self.story;
        Err(Failure::of_guest(format!("the guest of {story} died by itself: {status}")))
    }

    /// Until it has turned itself off, which must be the story's good end.
    pub(crate) fn finish(mut self) -> Result {
        let what = format!("the end of {}", self.story);
        self.until(&what, |guest| Ok(guest.process.try_wait()?.is_some()))?;
        self.check_alive()?;
        outcome(&self.story, &self.work)
    }

    /// It has not turned itself off: the story's end would be too early.
    pub(crate) fn runs(&mut self) -> Result {
        if self.process.try_wait()?.is_none() {
            return Ok(());
        }
        self.check_alive()?;
        outcome(&self.story, &self.work)?;
        Err(Failure::new(format!("the story {} ended too early", self.story)))
    }

    /// Until this is so; it is asked for again and again.
    pub(crate) fn until(
        &mut self,
        what: &str,
        mut is_so: impl FnMut(&mut Guest) -> Result<bool>,
    ) -> Result {
        let started = Instant::now();
        while !is_so(self)? {
            self.check_alive()?;
            ensure(started.elapsed() < PATIENCE, || format!("waited in vain for {what}"))?;
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// Waits until it has turned itself off before the story's end.
    pub(crate) fn ends_by_itself(mut self) -> Result {
        let started = Instant::now();
        while self.process.try_wait()?.is_none() {
            ensure(started.elapsed() < PATIENCE, || format!("{} does not end", self.story))?;
            std::thread::sleep(Duration::from_millis(5));
        }
        let status = self.work.join("status").exists();
        ensure(!status, || format!("the story {} ended, not its machine", self.story))
    }

    /// The power is cut.
    pub(crate) fn kill(mut self) {
        self.end();
    }

    fn end(&mut self) {
        let group = format!("-{}", self.process.id());
        let _ = Command::new("kill").args(["-KILL", "--", &group]).stderr(Stdio::null()).status();
        let _ = self.process.wait();
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_oops_is_told_from_a_guest_that_waits() {
        let console = "[ 1.0] BUG: kernel NULL pointer dereference\n[ 1.1] Oops: Oops: 0002 [#1]\n\
                       [ 1.2] RIP: 0010:io_fallback_tw+0x116/0x1b0\n";
        let oops = oops_in(console).expect("an oops");
        assert!(oops.contains("0002") && oops.contains("io_fallback_tw"), "{oops}");
        let lockup =
            "[ 9.0] watchdog: BUG: soft lockup - CPU#0 stuck for 26s!\n[ 9.1] RIP: 0010:x\n";
        assert_eq!(oops_in(lockup), None);
    }
}
