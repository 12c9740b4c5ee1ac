//! Alerts: whom to tell of which event, and when to repeat it.

use serde::{Deserialize, Serialize};

/// A section `[[notify]]`: whom to tell, and how.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Channel {}
