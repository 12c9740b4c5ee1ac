//! Switches the locate LED of a disk's bay, with ledctl.

use std::process::Command;
use std::time::Duration;

use super::tool;
use super::whole::WholeDisk;
use crate::failure::{Failure, Id, Result};

/// How long ledctl may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// Turns the LED on or off; returns a sentence about it. Blocks.
///
/// # Errors
/// If ledctl cannot be run, or no LED controller is in charge of the disk.
pub(crate) fn switch(disk: &WholeDisk, is_off: bool) -> Result<String> {
    let path = disk.path();
    let failed = |why: String| {
        let message = format!("{}: its locate LED was not switched: {why}", path.display());
        let action = match disk.serial() {
            Some(serial) => format!("look for the serial number {serial} on the disk's label"),
            None => "needs ledctl (package ledmon), root, and an enclosure with LEDs".into(),
        };
        Failure::new(Id::Input, message, action)
    };
    let mut command = Command::new("ledctl");
    let pattern = if is_off { "locate_off" } else { "locate" };
    // Only this disk: without it, ledctl sets the LEDs of all others to normal.
    command.arg("--listed-only").arg(format!("{pattern}={}", path.display()));
    let ended =
        tool::run(command, PATIENCE, &|| false).map_err(|why| failed(format!("ledctl: {why}")))?;
    if ended.code != Some(0) {
        let errors = String::from_utf8_lossy(&ended.errors);
        let why = errors.lines().find(|line| !line.trim().is_empty());
        let why = why.unwrap_or("no LED controller is in charge of it").trim().to_owned();
        return Err(failed(format!("ledctl: {why}")));
    }
    let state = if is_off { "off" } else { "on" };
    Ok(format!("{}: its locate LED is {state}", path.display()))
}
