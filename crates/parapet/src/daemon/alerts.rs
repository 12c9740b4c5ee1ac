//! Telling somebody: a program of the administrator runs for each event of an array.
//!
//! It is called as mdadm calls its PROGRAM: `PROGRAM EVENT ARRAY [MEMBER]`, so that scripts for
//! `mdadm --monitor` keep working. `PARAPET_*` variables have the rest. A folder stands for all
//! programs in it, in the order of their names.
//!
//! A thread runs them, one after the other, each for a limited time: no array waits for them.

use std::cell::RefCell;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use super::{Daemon, Served};
use crate::api::{HistoryEntry, Severity};
use crate::failure::{Failure, Id, Result, of_path};

/// Events that wait for the programs; further ones are dropped, and the log says so.
const MAX_WAITING: usize = 1000;
/// How long a program may take.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long the programs may take for the last events, when the server stops.
const LAST_PATIENCE: Duration = Duration::from_secs(5);
/// How often a running program is looked at.
const INTERVAL: Duration = Duration::from_millis(20);

/// See the module.
#[derive(Default)]
pub(super) struct Alerts(RefCell<Option<Caller>>);

/// The thread that runs the programs.
struct Caller {
    waiting: mpsc::SyncSender<Alert>,
    /// Ends when the last program has ended.
    ended: mpsc::Receiver<()>,
}

/// An event, and the array that has it.
struct Alert {
    array: String,
    uuid: String,
    entry: HistoryEntry,
}

impl Daemon {
    /// Runs the program at this path, or those in this folder, for each event.
    ///
    /// # Errors
    /// If there is none.
    pub(crate) fn notify(&self, path: &Path) -> Result<()> {
        self.alerts.start(path)
    }

    /// Makes an event that somebody should be told of.
    pub(super) fn test_alerts(&self, served: &Served) -> Result<String> {
        let name = served.name();
        if !self.alerts.is_used() {
            let message = format!("{name}: nobody is told of events");
            let action = "restart the server with --notify PROGRAM";
            return Err(Failure::new(Id::WrongState, message, action));
        }
        served.history.note(("TestMessage", Severity::Info), None, "test, by command");
        Ok(format!("{name}: TestMessage is sent"))
    }
}

impl Alerts {
    /// Runs the program at this path, or those in this folder, from now on.
    ///
    /// # Errors
    /// If there is nothing that can be run.
    fn start(&self, path: &Path) -> Result<()> {
        let path = crate::places::absolute(path);
        if programs(&path).map_err(|error| of_path(&path, &error))?.is_empty() {
            let message = format!("{}: no program that can be run", path.display());
            let action = format!("chmod +x {}", crate::places::quoted(&path.to_string_lossy()));
            return Err(Failure::new(Id::Input, message, action));
        }
        let ((waiting, alerts), (ending, ended)) =
            (mpsc::sync_channel(MAX_WAITING), mpsc::channel());
        let thread = std::thread::Builder::new().name("parapet-alerts".into());
        let started = thread.spawn(move || {
            alerts.iter().for_each(|alert| call_all(&path, &alert));
            drop(ending);
        });
        started.map_err(|error| {
            let message = format!("no thread for the programs: {error}");
            Failure::new(Id::Failed, message, "raise the limit of processes (ulimit -u)")
        })?;
        self.0.replace(Some(Caller { waiting, ended }));
        Ok(())
    }

    /// True if somebody is told.
    fn is_used(&self) -> bool {
        self.0.borrow().is_some()
    }

    /// Tells of an event.
    pub(super) fn tell(&self, array: &str, uuid: &str, entry: &HistoryEntry) {
        let caller = self.0.borrow();
        let Some(caller) = &*caller else { return };
        let alert = Alert { array: array.into(), uuid: uuid.into(), entry: entry.clone() };
        if caller.waiting.try_send(alert).is_err() {
            tracing::warn!("{array}: {}: nobody is told: too many events wait", entry.event);
        }
    }

    /// Waits for the programs of the last events, for a while: nothing follows.
    pub(super) fn close(&self) {
        let Some(Caller { waiting, ended }) = self.0.take() else { return };
        drop(waiting);
        if ended.recv_timeout(LAST_PATIENCE) == Err(mpsc::RecvTimeoutError::Timeout) {
            tracing::warn!("programs of --notify still run, and are left behind");
        }
    }
}

/// The program, or those in the folder.
fn programs(path: &Path) -> std::io::Result<Vec<PathBuf>> {
    let is_program = |path: &PathBuf| {
        let status = fs::metadata(path);
        status.is_ok_and(|it| it.is_file() && it.permissions().mode() & 0o111 != 0)
    };
    let mut found = match fs::metadata(path)?.is_dir() {
        false => vec![path.to_owned()],
        true => fs::read_dir(path)?.map(|it| Ok(it?.path())).collect::<std::io::Result<_>>()?,
    };
    found.retain(is_program);
    found.sort();
    Ok(found)
}

fn call_all(path: &Path, alert: &Alert) {
    let array = &alert.array;
    match programs(path) {
        Err(error) => tracing::error!("{array}: {}: nobody is told: {error}", path.display()),
        Ok(programs) => {
            for program in programs {
                if let Err(why) = call(&program, alert) {
                    let event = &alert.entry.event;
                    tracing::error!("{array}: {event}: {}: {why}", program.display());
                }
            }
        }
    }
}

/// Runs a program to its end.
fn call(program: &Path, Alert { array, uuid, entry }: &Alert) -> std::result::Result<(), String> {
    let mut command = Command::new(program);
    command.arg(&entry.event).arg(array).args(&entry.member);
    // Standard output is the server's report; errors go to its log.
    command.stdin(Stdio::null()).stdout(Stdio::null());
    command.env("PARAPET_ARRAY", array).env("PARAPET_UUID", uuid);
    command.env("PARAPET_EVENT", &entry.event).env("PARAPET_SEVERITY", entry.severity.word());
    command.env("PARAPET_MEMBER", entry.member.as_deref().unwrap_or_default());
    command.env("PARAPET_MESSAGE", &entry.message).env("PARAPET_TIME", entry.time.to_string());
    let mut child = command.spawn().map_err(|error| error.to_string())?;
    let ended = wait(&mut child).map_err(|error| error.to_string())?;
    match ended {
        None => Err(format!("stopped: it took more than {} s", PATIENCE.as_secs())),
        Some(status) if status.success() => Ok(()),
        Some(status) => Err(status.to_string()),
    }
}

/// Waits for a program; none if it had to be killed.
fn wait(child: &mut Child) -> std::io::Result<Option<std::process::ExitStatus>> {
    let limit = Instant::now() + PATIENCE;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if Instant::now() >= limit {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        std::thread::sleep(INTERVAL);
    }
}
