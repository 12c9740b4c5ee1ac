//! A server that is ready, as a type and as text.

use serde::{Deserialize, Serialize};

use super::{Array, Report};
use crate::page::Page;

/// A server that is ready.
#[derive(Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Serving {
    /// Its process id.
    pub(crate) pid: u32,
    /// Its arrays.
    pub(crate) arrays: Vec<Array>,
    /// Where NBD clients connect: `unix:PATH`, `tcp:ADDRESS:PORT`.
    pub(crate) nbd: Vec<String>,
    /// AoE exports: `aoe:SHELF.SLOT`.
    #[serde(default)]
    pub(crate) aoe: Vec<String>,
    /// Addresses of the control sockets.
    pub(crate) control: Vec<String>,
    /// Whether TLS is required.
    pub(crate) tls: bool,
    /// Address of the web page: `http://ADDRESS:PORT/` or `unix:PATH`; null without one.
    #[serde(default)]
    pub(crate) page: Option<String>,
}

impl Report for Serving {
    const SCHEMA: &'static str = "parapet/serve/1";

    fn text(&self, page: &mut Page) {
        for array in &self.arrays {
            let size = page.size(array.capacity_bytes);
            let line = format!("{}: {}, {size}, {}", array.name, array.level, array.state.word());
            page.field_in(array.state.style(), "serving", line);
        }
        for address in &self.nbd {
            page.field("nbd", format!("{address}{}", if self.tls { " (TLS)" } else { "" }));
        }
        for address in &self.aoe {
            page.field("aoe", address.trim_start_matches("aoe:"));
        }
        for address in &self.control {
            page.field("control", address);
        }
        self.page.iter().for_each(|address| page.field("page", address));
    }
}
