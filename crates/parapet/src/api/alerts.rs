//! The alert channels of a server, as a type and as text.

use serde::{Deserialize, Serialize};

use super::Array;
use crate::page::{Page, Style};

/// A channel of a server that tells somebody of events.
#[derive(Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct ChannelState {
    /// Its name.
    pub(crate) channel: String,
    /// Why its last message was not delivered; null if it was.
    pub(crate) trouble: Option<String>,
    /// Messages that wait.
    pub(crate) waiting: u64,
    /// Events that were not delivered, and of which no later message has told yet.
    pub(crate) lost: u64,
}

impl Array {
    /// Warns if nobody is told of events, or cannot be told.
    pub(super) fn show_alerts(&self, page: &mut Page) {
        if self.alerts.is_empty() {
            let advice = match cfg!(feature = "notify") {
                true => "nobody is told of events (parapet notify --help)",
                false => "alerts are off (built without the feature `notify`)",
            };
            page.field_in(Style::Warning, "alerts", advice);
        }
        for state in &self.alerts {
            let Some(trouble) = &state.trouble else { continue };
            let (channel, waiting) = (&state.channel, state.waiting);
            let sentence = format!("{channel}: not delivered: {trouble}; {waiting} waiting");
            page.field_in(Style::Warning, "alerts", sentence);
        }
    }
}
