//! Asks smartctl about a disk.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use policy::health::{Answer, Level, Reading, Verdict, read};

use super::tool;
use crate::api::{DiskHealth, HealthLevel, SmartAttribute};

/// How long smartctl may take for a disk. A disk in trouble may try a command for half a minute.
const PATIENCE: Duration = Duration::from_secs(60);

/// Reads the SMART data of a disk, unless it sleeps.
///
/// # Errors
/// smartctl cannot be run.
pub(crate) fn ask(
    smartctl: &str,
    disk: &Path,
    is_stopped: &dyn Fn() -> bool,
) -> Result<Answer, String> {
    let mut command = Command::new(smartctl);
    command.args(["--json=c", "-n", "standby", "-a"]).arg(disk);
    tool::run(command, PATIENCE, is_stopped).map(|ended| read(&ended.out))
}

/// Runs another command of smartctl on a disk, such as `-t short`; returns its messages.
///
/// # Errors
/// It cannot be run, or fails; with its messages.
pub(crate) fn command(arguments: &[&str], disk: &Path) -> Result<(), String> {
    let mut command = Command::new("smartctl");
    command.arg("--json=c").args(arguments).arg(disk);
    let ended = tool::run(command, PATIENCE, &|| false)?;
    // Bits 0 to 2: wrong command line, no such device, the disk refused the command.
    if ended.code.is_some_and(|code| code & 0b111 == 0) {
        return Ok(());
    }
    let document: serde_json::Value = serde_json::from_slice(&ended.out).unwrap_or_default();
    let messages = document["smartctl"]["messages"].as_array().into_iter().flatten();
    let texts: Vec<&str> = messages.filter_map(|it| it["string"].as_str()).collect();
    match texts.is_empty() {
        true => Err("the disk refuses it".into()),
        false => Err(texts.join("; ")),
    }
}

/// A level, as the API shows it.
pub(super) fn level_of(level: Level) -> HealthLevel {
    match level {
        Level::Ok => HealthLevel::Ok,
        Level::Watch => HealthLevel::Watch,
        Level::Suspect => HealthLevel::Suspect,
        Level::Replace => HealthLevel::Replace,
        Level::Fail => HealthLevel::Fail,
    }
}

/// A verdict on a disk and its latest SMART data, as the API shows them.
pub(crate) fn health_of(verdict: &Verdict, reading: Option<&Reading>) -> DiskHealth {
    let attributes = reading.into_iter().flat_map(|reading| &reading.attributes);
    let attribute = |it: &policy::health::Attribute| SmartAttribute {
        id: it.id.clone(),
        name: it.name.clone(),
        raw: it.raw,
    };
    DiskHealth {
        level: level_of(verdict.level),
        reasons: verdict.reasons.clone(),
        step: None,
        temperature_celsius: reading.and_then(|reading| reading.temperature_celsius),
        attributes: attributes.map(attribute).collect(),
    }
}
