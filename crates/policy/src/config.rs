//! The configuration file: policy only. Geometry is on the members.

use serde::{Deserialize, Serialize};

use crate::{alerts, health};

/// The configuration of a machine.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Disk health.
    pub health: health::Settings,
    /// Whom to tell of events.
    pub notify: Vec<alerts::Channel>,
}
