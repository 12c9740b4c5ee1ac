//! Disks of this machine and their health, as types and as text: `parapet disk`.

use serde::{Deserialize, Serialize};

use super::{DiskHealth, HealthLevel, Report, SmartAttribute};
use crate::page::{Page, Style};

/// The disks of this machine.
#[derive(Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct DiskList {
    /// Sorted by name.
    pub(crate) disks: Vec<DiskView>,
}

/// A whole disk.
#[derive(Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct DiskView {
    /// Its path, such as `/dev/sda`.
    pub(crate) path: String,
    /// Model; null if unknown.
    pub(crate) model: Option<String>,
    /// Serial number; null if unknown.
    pub(crate) serial: Option<String>,
    /// Its size.
    pub(crate) bytes: u64,
    /// True for a disk that rotates; null if unknown.
    pub(crate) rotational: Option<bool>,
    /// The members on it, of arrays that are served.
    pub(crate) members: Vec<DiskUse>,
    /// Its health, by the server of these arrays; null if no server watches it.
    pub(crate) health: Option<DiskHealth>,
}

/// A member on a disk.
#[derive(Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct DiskUse {
    /// Name of the array.
    pub(crate) array: String,
    /// UUID of the array.
    pub(crate) uuid: String,
    /// Its slot; null for a spare or a faulty member.
    pub(crate) slot: Option<usize>,
    /// Path of the member.
    pub(crate) name: String,
}

/// The SMART data of a disk.
#[derive(Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct SmartView {
    /// Its path.
    pub(crate) path: String,
    /// True if the disk sleeps: there is no data then.
    pub(crate) asleep: bool,
    /// Model; null if unknown.
    pub(crate) model: Option<String>,
    /// Serial number; null if unknown.
    pub(crate) serial: Option<String>,
    /// `ATA`, `NVMe` or `SCSI`; null if unknown.
    pub(crate) protocol: Option<String>,
    /// True if the disk passed its own check; null if it does not say.
    pub(crate) passed: Option<bool>,
    /// Time in service; null if unknown.
    pub(crate) power_on_hours: Option<u64>,
    /// Percent of a running self-test that remain; null if none runs.
    pub(crate) self_test_remaining_percent: Option<u64>,
    /// Its health by this one reading: growth shows only to a server that watches the disk.
    pub(crate) health: DiskHealth,
    /// Its health by the server that watches it; null if none does.
    pub(crate) watched: Option<DiskHealth>,
}

impl HealthLevel {
    /// What it says of a disk.
    pub(crate) fn words(self) -> &'static str {
        match self {
            HealthLevel::Ok => "its disk is well",
            HealthLevel::Watch => "its disk is to be watched",
            HealthLevel::Suspect => "its disk may fail",
            HealthLevel::Replace => "its disk should be replaced",
            HealthLevel::Fail => "its disk has failed",
        }
    }

    fn word(self) -> &'static str {
        match self {
            HealthLevel::Ok => "ok",
            HealthLevel::Watch => "watch",
            HealthLevel::Suspect => "suspect",
            HealthLevel::Replace => "replace",
            HealthLevel::Fail => "fail",
        }
    }

    fn style(self) -> Style {
        match self {
            HealthLevel::Ok => Style::Good,
            HealthLevel::Watch => Style::Plain,
            HealthLevel::Suspect => Style::Warning,
            HealthLevel::Replace | HealthLevel::Fail => Style::Bad,
        }
    }
}

impl DiskHealth {
    /// The level, why, and what is done about it.
    pub(crate) fn sentence(&self) -> String {
        let why = match self.reasons.is_empty() {
            true => String::new(),
            false => format!(": {}", self.reasons.join(", ")),
        };
        let step = self.step.as_ref().map_or(String::new(), |step| format!("; {step}"));
        format!("{}{why}{step}", self.level.words())
    }

    fn show(&self, label: &str, page: &mut Page) {
        page.field_in(self.level.style(), label, self.level.word());
        self.reasons.iter().for_each(|reason| page.field("because of", reason));
        self.step.iter().for_each(|step| page.field("step", step));
    }
}

impl Report for DiskList {
    const SCHEMA: &'static str = "parapet/disks/1";

    fn text(&self, page: &mut Page) {
        if self.disks.is_empty() {
            page.line("this machine shows no disks");
            return;
        }
        let heading = ["DISK", "SIZE", "MODEL", "SERIAL", "MEMBER OF", "HEALTH"];
        let mut rows = vec![(Style::Plain, heading.map(String::from).to_vec())];
        let none = || String::from("-");
        rows.extend(self.disks.iter().map(|disk| {
            let uses: Vec<String> = disk.members.iter().map(DiskUse::sentence).collect();
            let health = disk.health.as_ref();
            let style = health.map_or(Style::Plain, |health| health.level.style());
            let row = vec![
                disk.path.clone(),
                page.size(disk.bytes),
                disk.model.clone().unwrap_or_else(none),
                disk.serial.clone().unwrap_or_else(none),
                if uses.is_empty() { none() } else { uses.join(", ") },
                health.map_or_else(none, |health| health.level.word().into()),
            ];
            (style, row)
        }));
        page.table(&rows);
    }
}

impl DiskUse {
    fn sentence(&self) -> String {
        match self.slot {
            Some(slot) => format!("{} slot {slot}", self.array),
            None => format!("{} (no slot)", self.array),
        }
    }
}

impl Report for SmartView {
    const SCHEMA: &'static str = "parapet/smart/1";

    fn text(&self, page: &mut Page) {
        page.field_in(Style::Strong, "disk", &self.path);
        if self.asleep {
            page.field("state", "asleep: SMART data was not read, so as not to wake it");
            self.watched.iter().for_each(|health| health.show("health", page));
            return;
        }
        self.model.iter().for_each(|model| page.field("model", model));
        self.serial.iter().for_each(|serial| page.field("serial", serial));
        self.watched.as_ref().unwrap_or(&self.health).show("health", page);
        match self.passed {
            Some(true) => page.field("own check", "passed"),
            Some(false) => page.field_in(Style::Bad, "own check", "failed"),
            None => {}
        }
        if let Some(celsius) = self.health.temperature_celsius {
            page.field("temperature", format!("{celsius} °C"));
        }
        if let Some(hours) = self.power_on_hours {
            page.field("in service", format!("{hours} h ({} days)", hours / 24));
        }
        if let Some(percent) = self.self_test_remaining_percent {
            page.field("self-test", format!("running, {percent} % remain"));
        }
        let heading = ["ID", "ATTRIBUTE", "RAW VALUE"];
        let mut rows = vec![(Style::Plain, heading.map(String::from).to_vec())];
        rows.extend(self.health.attributes.iter().map(|SmartAttribute { id, name, raw }| {
            (Style::Plain, vec![id.clone(), name.clone(), raw.to_string()])
        }));
        page.line("");
        page.table(&rows);
    }
}
