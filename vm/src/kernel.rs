//! A real kernel, started for one story and gone with it.
//!
//! User-mode Linux is a Linux kernel that is a process: it starts in a second, needs no rights, and
//! sees the host's files. Its first process is `vm/guest/init`, which runs one script of that
//! folder in a folder of the host.

use std::fmt::Write;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::failure::{Failure, Result, ensure};

/// A guest that has not ended by then hangs.
const PATIENCE: Duration = Duration::from_secs(300);
/// Enough for md, and for the caches of the members.
const MEMORY: &str = "mem=512M";

/// How to start kernels.
pub(crate) struct Kernel {
    /// Its modules.
    modules: PathBuf,
    guest: PathBuf,
    pub(crate) release: String,
}

impl Kernel {
    /// The kernel of Debian's package `user-mode-linux`.
    ///
    /// # Errors
    /// It is not installed, or another thing than expected.
    pub(crate) fn find() -> Result<Kernel> {
        let home = Path::new("/usr/lib/uml/modules");
        let missing = || Failure::new("user-mode-linux is not installed: `cargo xtask tools`");
        let entry =
            std::fs::read_dir(home).map_err(|_| missing())?.next().ok_or_else(missing)??;
        let release = entry.file_name().to_string_lossy().into_owned();
        let modules = entry.path();
        let guest = Path::new(env!("CARGO_MANIFEST_DIR")).join("guest");
        ensure(guest.join("init").exists(), || format!("{} is missing", guest.display()))?;
        Ok(Kernel { modules, guest, release })
    }

    /// Runs a story in this folder to its end. What it says stands in the folder's `log`.
    ///
    /// # Errors
    /// It failed, or did not end.
    pub(crate) fn run(&self, story: &str, work: &Path) -> Result {
        let mut guest = self.boot(story, work)?;
        guest.until(&format!("the end of {story}"), |guest| {
            Ok(guest.process.try_wait()?.is_some())
        })?;
        guest.check_alive()?;
        let status = std::fs::read_to_string(work.join("status")).unwrap_or_default();
        ensure(status.trim() == "0", || {
            let log = std::fs::read_to_string(work.join("log")).unwrap_or_default();
            let console = std::fs::read_to_string(work.join("console")).unwrap_or_default();
            let told = if log.is_empty() { console } else { log };
            let from = told.lines().count().saturating_sub(12);
            let end: Vec<&str> = told.lines().skip(from).collect();
            format!("the story {story} ended with {:?}:\n{}", status.trim(), end.join("\n"))
        })
    }

    /// Starts a story; the guest is killed if it is dropped.
    pub(crate) fn boot(&self, story: &str, work: &Path) -> Result<Guest> {
        for stale in ["status", "log", "console"] {
            let _ = std::fs::remove_file(work.join(stale));
        }
        let console = std::fs::File::create(work.join("console"))?;
        let word = |name: &str, path: &Path| format!("{name}={}", path.display());
        let mut command = Command::new("linux.uml");
        command
            .args(["rootfstype=hostfs", "rootflags=/", "ro", "con=null", "con0=null", MEMORY])
            .arg(word("init", &self.guest.join("init")))
            .arg(word("work", work))
            .arg(word("guest", &self.guest))
            .arg(word("modules", &self.modules))
            .arg(format!("story={story}"))
            .stdin(Stdio::null())
            .stdout(console.try_clone()?)
            .stderr(console)
            // It is several processes; they are killed as one.
            .process_group(0);
        let process =
            command.spawn().map_err(|error| Failure::new(format!("linux.uml: {error}")))?;
        Ok(Guest { process, story: story.to_owned(), work: work.to_owned() })
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
        let Some(status) = self.process.try_wait()? else { return Ok(()) };
        let console = std::fs::read_to_string(self.work.join("console")).unwrap_or_default();
        let says = self.work.join("status").exists() || console.contains("panic");
        if says && status.signal().is_none() {
            return Ok(());
        }
        let story = &self.story;
        Err(Failure::of_guest(format!("the guest of {story} died by itself: {status}")))
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
