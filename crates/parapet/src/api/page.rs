//! A web page that is ready, as a type and as text.

use serde::{Deserialize, Serialize};

use super::Report;
use crate::page::Page;

/// A web page that is ready.
#[derive(Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct PageView {
    /// Its address: `http://ADDRESS:PORT/` or `unix:PATH`.
    pub(crate) address: String,
}

impl Report for PageView {
    const SCHEMA: &'static str = "parapet/page/1";

    fn text(&self, page: &mut Page) {
        page.field("page", &self.address);
    }
}
