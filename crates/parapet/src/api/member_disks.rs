//! The disks of a member, with their SMART data and its history.

use jiff::Timestamp;
use jiff::civil::Date;
use serde::{Deserialize, Serialize};

use super::{HealthLevel, Report, SmartAttribute};
use crate::page::{Page, Style};

/// The disks of a member.
#[derive(Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct MemberDisks {
    /// Name of the array.
    pub(crate) array: String,
    /// UUID of the array.
    pub(crate) uuid: String,
    /// Path of the member, with its slot.
    pub(crate) member: String,
    /// The whole disks of this machine that hold it; none for a file, or a member on another
    /// machine.
    pub(crate) disks: Vec<DiskRecord>,
}

/// A disk, and what is known of it if a server of this machine watches it.
#[derive(Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct DiskRecord {
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
    /// When its SMART data was read; null if it never was, and the rest is unknown.
    pub(crate) read_at: Option<Timestamp>,
    /// `ATA`, `NVMe` or `SCSI`.
    pub(crate) protocol: Option<String>,
    /// True if the disk passed its own check; null if it does not say.
    pub(crate) passed: Option<bool>,
    /// Time in service.
    pub(crate) power_on_hours: Option<u64>,
    /// Temperature in degrees Celsius.
    pub(crate) temperature_celsius: Option<i64>,
    /// Its SMART values.
    pub(crate) attributes: Vec<AttributeRecord>,
    /// The self-tests that the disk remembers, the latest first.
    pub(crate) self_tests: Vec<SelfTestRecord>,
    /// The first reading of each day, for two years, the oldest first.
    pub(crate) days: Vec<SmartDay>,
}

/// A SMART value.
#[derive(Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct AttributeRecord {
    #[serde(flatten)]
    pub(crate) attribute: SmartAttribute,
    /// ATA's normalized value: the higher, the better.
    pub(crate) value: Option<u64>,
    /// The lowest normalized value so far.
    pub(crate) worst: Option<u64>,
    /// The disk counts the attribute as failed at this normalized value.
    pub(crate) threshold: Option<u64>,
}

/// A self-test of a disk.
#[derive(Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct SelfTestRecord {
    /// Such as `Short offline`.
    pub(crate) kind: String,
    /// Such as `Completed without error`.
    pub(crate) result: String,
    /// True if the disk passed; null if it does not say, or the test was aborted.
    pub(crate) passed: Option<bool>,
    /// The time in service at which it ended.
    pub(crate) power_on_hours: Option<u64>,
}

/// SMART values of one day.
#[derive(Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct SmartDay {
    /// The day, in UTC.
    pub(crate) day: Date,
    /// How bad the disk was.
    pub(crate) level: HealthLevel,
    /// Temperature in degrees Celsius.
    pub(crate) temperature_celsius: Option<i64>,
    /// Time in service.
    pub(crate) power_on_hours: Option<u64>,
    /// Raw values.
    pub(crate) values: Vec<DayValue>,
}

/// A raw SMART value of a day.
#[derive(Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct DayValue {
    /// As in [`SmartAttribute`].
    pub(crate) id: String,
    /// Raw value.
    pub(crate) raw: u64,
}

impl Report for MemberDisks {
    const SCHEMA: &'static str = "parapet/member-disks/1";

    fn text(&self, page: &mut Page) {
        for disk in &self.disks {
            page.field_in(Style::Strong, "disk", &disk.path);
            disk.days.iter().for_each(|day| page.field(&day.day.to_string(), day.sentence()));
        }
    }
}

impl SmartDay {
    fn sentence(&self) -> String {
        let celsius = self.temperature_celsius.map(|celsius| format!("{celsius} °C"));
        let values = self.values.iter().map(|value| format!("{}: {}", value.id, value.raw));
        celsius.into_iter().chain(values).collect::<Vec<_>>().join(", ")
    }
}
