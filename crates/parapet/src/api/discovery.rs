//! The AoE targets on a wire: `parapet aoe discover`.

use serde::{Deserialize, Serialize};

use super::Report;
use crate::page::{Page, Style};

/// The AoE targets that answered.
#[derive(Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Discovery {
    /// The interfaces that were searched.
    pub(crate) interfaces: Vec<String>,
    /// Sorted by shelf and slot.
    pub(crate) targets: Vec<AoeTarget>,
}

/// An AoE target.
#[derive(Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct AoeTarget {
    /// Its address as a member: `aoe:1.0@eth1,eth2`.
    pub(crate) address: String,
    /// Shelf ("major").
    pub(crate) shelf: u16,
    /// Slot ("minor").
    pub(crate) slot: u8,
    /// Its size; null if it does not identify itself.
    pub(crate) bytes: Option<u64>,
    /// Its serial number; null if it does not identify itself.
    pub(crate) serial: Option<String>,
    /// Its model; null if it does not identify itself.
    pub(crate) model: Option<String>,
    /// Its config string; empty if it has none.
    pub(crate) config: String,
    /// True if this machine itself serves it.
    pub(crate) own: bool,
    /// The ways to it.
    pub(crate) paths: Vec<AoePath>,
}

/// A way to an AoE target: an interface of this machine, and a port of the target.
#[derive(Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct AoePath {
    /// The interface of this machine.
    pub(crate) interface: String,
    /// The hardware address of the target's port.
    pub(crate) mac: String,
    /// The most sectors of 512 bytes in a frame; 0 if the target does not say.
    pub(crate) sectors: u8,
    /// The number of requests that the target queues.
    pub(crate) buffers: u16,
}

impl Report for Discovery {
    const SCHEMA: &'static str = "parapet/discovery/1";

    fn text(&self, page: &mut Page) {
        if self.targets.is_empty() {
            let interfaces = match &self.interfaces[..] {
                [] => "no interface has a carrier".into(),
                names => format!("searched: {}", names.join(", ")),
            };
            page.line(format!("no AoE target answers ({interfaces})"));
            return;
        }
        let heading = ["ADDRESS", "SIZE", "SERIAL", "MODEL", "PORTS"];
        let mut rows = vec![(Style::Plain, heading.map(String::from).to_vec())];
        for target in &self.targets {
            let or_dash = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".into());
            let size = target.bytes.map_or_else(|| "-".into(), |bytes| page.size(bytes));
            let ports: Vec<&str> = target.paths.iter().map(|path| path.mac.as_str()).collect();
            let own = if target.own { " (this machine)" } else { "" };
            rows.push((
                Style::Plain,
                vec![
                    format!("{}{own}", target.address),
                    size,
                    or_dash(&target.serial),
                    or_dash(&target.model),
                    ports.join(" "),
                ],
            ));
        }
        page.table(&rows);
    }
}
