//! Disk health: what to do about a disk, from its SMART document and its own errors.

use serde::{Deserialize, Serialize};

/// The section `[health]`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {}
