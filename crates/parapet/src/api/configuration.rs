//! The configuration of the daemon, as a type and as text.

use serde::{Deserialize, Serialize};

use super::Report;
use crate::page::{Page, Style};

/// The configuration in force.
#[derive(Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Configuration {
    /// Sorted by key.
    pub(crate) settings: Vec<ConfigurationSetting>,
    /// The text shows the origins.
    #[serde(skip)]
    pub(crate) origins: bool,
}

/// A setting in force.
#[derive(Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct ConfigurationSetting {
    /// Its key: `scrub.every`.
    pub(crate) key: String,
    /// Its value, as TOML.
    pub(crate) value: String,
    /// File and line: `/etc/parapet/parapet.toml:7`; null for a default.
    pub(crate) origin: Option<String>,
}

impl Report for Configuration {
    const SCHEMA: &'static str = "parapet/config/1";

    fn text(&self, page: &mut Page) {
        let row = |setting: &ConfigurationSetting| {
            let mut cells = vec![format!("{} = {}", setting.key, setting.value)];
            if self.origins {
                cells.push(format!("# {}", setting.origin.as_deref().unwrap_or("default")));
            }
            (Style::Plain, cells)
        };
        let rows: Vec<_> = self.settings.iter().map(row).collect();
        page.table(&rows);
    }
}
