//! The body of a control request.
//!
//! Depends on nothing else in the program: the fuzzer compiles this file by itself.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The body of a control command.
#[derive(Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Order {
    /// Slot, serial number, UUID or path of a member.
    pub(crate) member: Option<String>,
    /// The member that takes over its slot.
    pub(crate) with: Option<String>,
    /// The action: `check`, `repair`, `stop` or `resume`.
    pub(crate) scrub: Option<String>,
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
}

/// Limits of background work, in bytes of each member per second.
#[derive(Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Speed {
    /// Minimum rate, even under client load.
    pub(crate) min: u64,
    /// Maximum rate; null for no limit.
    pub(crate) max: Option<u64>,
}
