//! Programs of the administrator, run as mdadm runs its PROGRAM: `PROGRAM EVENT ARRAY [MEMBER]`.
//!
//! `PARAPET_*` variables have the rest. A folder stands for all programs in it, in the order of
//! their names; one that fails stops no other.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use policy::alerts::{Notice, Severity};

use super::{Undelivered, text};

/// How long a program may take.
const PATIENCE: Duration = Duration::from_secs(60);
/// How often a running program is looked at.
const INTERVAL: Duration = Duration::from_millis(20);

/// The program, or those in the folder.
///
/// # Errors
/// There is no such path, or it cannot be read.
pub(super) fn programs(path: &Path) -> std::io::Result<Vec<PathBuf>> {
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

/// Runs the program, or those in the folder, one after the other.
///
/// # Errors
/// Those that failed.
pub(super) fn run_all(path: &Path, notice: &Notice) -> Result<(), Undelivered> {
    let programs = programs(path).map_err(|error| Undelivered::yet(error.to_string()))?;
    if programs.is_empty() {
        return Err(Undelivered::yet("no program that can be run"));
    }
    let result = |program: &PathBuf| Some((program.display().to_string(), run(program, notice)?));
    let failed = programs.iter().filter_map(result);
    let failed: Vec<String> = failed.map(|(program, why)| format!("{program}: {why}")).collect();
    if failed.is_empty() { Ok(()) } else { Err(Undelivered::yet(failed.join("; "))) }
}

/// Runs a program to its end; returns why it failed.
fn run(program: &Path, notice: &Notice) -> Option<String> {
    let event = &notice.event;
    let mut command = Command::new(program);
    command.arg(&event.word).arg(&event.array).args(&event.member);
    // Standard output is the server's report; errors go to its log.
    command.stdin(Stdio::null()).stdout(Stdio::null());
    let severity = match event.severity {
        Severity::Info => "info",
        Severity::Warning => "warning",
        Severity::Error => "error",
    };
    command.env("PARAPET_ARRAY", &event.array).env("PARAPET_UUID", &event.uuid);
    command.env("PARAPET_EVENT", &event.word).env("PARAPET_SEVERITY", severity);
    command.env("PARAPET_MEMBER", event.member.as_deref().unwrap_or_default());
    command
        .env("PARAPET_MESSAGE", text::message(notice))
        .env("PARAPET_TIME", event.time.to_string());
    let ended = command.spawn().and_then(|mut child| wait(&mut child));
    match ended {
        Err(error) => Some(error.to_string()),
        Ok(None) => Some(format!("stopped: it took more than {} s", PATIENCE.as_secs())),
        Ok(Some(status)) => (!status.success()).then(|| status.to_string()),
    }
}

/// Waits for a program; none if it had to be killed.
fn wait(child: &mut Child) -> std::io::Result<Option<ExitStatus>> {
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
