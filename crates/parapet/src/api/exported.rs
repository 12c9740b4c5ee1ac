//! The AoE export and the local disk of an array, in its status.

use serde::{Deserialize, Serialize};

/// An AoE export of an array.
#[derive(Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct AoeView {
    /// Shelf and slot, `1.0`; null if it has none.
    pub(crate) address: Option<String>,
    /// Network interfaces.
    pub(crate) interfaces: Vec<String>,
    /// True if it is served.
    pub(crate) online: bool,
    /// The config string.
    pub(crate) config: String,
    /// The only clients that it answers; empty for all.
    pub(crate) masks: Vec<String>,
    /// The clients that have reserved it.
    pub(crate) reserved_by: Vec<String>,
}

impl AoeView {
    /// Describes it in one line.
    pub(super) fn sentence(&self) -> String {
        let Some(address) = &self.address else { return "no address".into() };
        let online = match self.online {
            true => format!("online on {}", self.interfaces.join(", ")),
            false => "offline".into(),
        };
        let masks = match self.masks.len() {
            0 => String::new(),
            1 => ", 1 mask".into(),
            count => format!(", {count} masks"),
        };
        let reserved = if self.reserved_by.is_empty() { "" } else { ", reserved" };
        format!("{address}, {online}{masks}{reserved}")
    }
}

/// An array that is a disk of this machine.
#[derive(Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct AttachedView {
    /// Its name, which stays the same.
    pub(crate) path: String,
    /// The block device.
    pub(crate) device: String,
    /// How the kernel reaches the server: `ublk`, `nbd` or `fuse`.
    pub(crate) how: String,
    /// Whether requests wait for a server that is restarted; otherwise they fail.
    pub(crate) survives_restart: bool,
}

impl AttachedView {
    /// Describes it in one line.
    pub(super) fn sentence(&self) -> String {
        let (path, device, how) = (&self.path, &self.device, &self.how);
        let how = if how == "ublk" { how.clone() } else { how.to_uppercase() };
        let restart = match self.survives_restart {
            true => "requests wait for a server that restarts",
            false => "requests fail if the server stops",
        };
        format!("{path} ({device}, {how}; {restart})")
    }
}
