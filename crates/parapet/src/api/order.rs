//! The body of a control request.
//!
//! Depends on nothing else in the program: the fuzzer compiles this file by itself.

use serde::{Deserialize, Serialize};

/// The body of a control command.
#[derive(Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Order {
    /// Slot, serial number, UUID or path of a member.
    pub(crate) member: Option<String>,
    /// The member that takes over its slot.
    pub(crate) with: Option<String>,
    /// The action: `check`, `repair`, `stop` or `resume`.
    pub(crate) scrub: Option<String>,
    /// The part of the array that `check` and `repair` compare; null for all of it.
    pub(crate) part: Option<Part>,
    /// New limits of background work.
    pub(crate) speed: Option<Speed>,
    /// Signatures that may be overwritten on a disk that is added: `ext4@0x438`.
    pub(crate) overwrite: Vec<String>,
    /// An AoE address, with interfaces where they are meant: `1.0@eth1`.
    pub(crate) aoe: Option<String>,
    /// Masks of an AoE export to add or remove: `+02:00:00:00:00:01`.
    pub(crate) masks: Vec<String>,
    /// The way to a local disk: `ublk`, `nbd` or `fuse`; null for the best that the kernel offers.
    pub(crate) how: Option<String>,
    /// End the reservation.
    pub(crate) clear: bool,
    /// Turn the locate LED off.
    pub(crate) off: bool,
    /// What is known of the disk of the member.
    pub(crate) health: Option<DiskHealth>,
}

/// A part of the array.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Part {
    /// Its first byte.
    pub(crate) array_offset: u64,
    /// Its length.
    pub(crate) bytes: u64,
}

/// Health of the disk that a member is on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub(crate) struct DiskHealth {
    /// How bad it is.
    pub(crate) level: HealthLevel,
    /// Why, the worst first; empty if the disk is well.
    pub(crate) reasons: Vec<String>,
    /// What is done about it, or why nothing is; null if nothing has to be done.
    pub(crate) step: Option<String>,
    /// Temperature in degrees Celsius; null if unknown.
    pub(crate) temperature_celsius: Option<i64>,
    /// Raw SMART values.
    pub(crate) attributes: Vec<SmartAttribute>,
}

/// How bad a disk is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub(crate) enum HealthLevel {
    /// Nothing is known against it.
    #[default]
    Ok,
    /// Worth a look.
    Watch,
    /// It may fail.
    Suspect,
    /// It should be replaced while it still serves.
    Replace,
    /// It has failed in an array.
    Fail,
}

/// A raw SMART value.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub(crate) struct SmartAttribute {
    /// ATA's number, or the name that NVMe or SCSI has.
    pub(crate) id: String,
    /// Name for people.
    pub(crate) name: String,
    /// Raw value; packed counters are unpacked.
    pub(crate) raw: u64,
}

/// Limits of background work, in bytes of each member per second.
#[derive(Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Speed {
    /// Minimum rate, even under client load.
    pub(crate) min: u64,
    /// Maximum rate; null for no limit.
    pub(crate) max: Option<u64>,
}
