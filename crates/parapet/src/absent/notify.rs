//! Stand-in for `crate::notify`: tells nobody.

use policy::alerts::{Channel, Heartbeat};

use crate::api::{ChannelState, HistoryEntry};
use crate::failure::Result;

/// No flags: the command line refuses `--notify`.
#[derive(clap::Args, Default)]
pub(crate) struct NotifyFlags {}

impl NotifyFlags {
    pub(crate) fn channels(&self) -> Result<&[Channel]> {
        Ok(&[])
    }
}

/// No channels: `absent::check` refuses their sections.
#[derive(Default)]
pub(crate) struct Handle;

impl Handle {
    pub(crate) fn reload(&self, _: &[Channel], _: Option<&Heartbeat>) {}

    pub(crate) fn is_used(&self) -> bool {
        false
    }

    pub(crate) fn tell(&self, _: &str, _: &str, _: &HistoryEntry) {}

    pub(crate) fn beat(&self) {}

    pub(crate) fn states(&self) -> Vec<ChannelState> {
        Vec::new()
    }

    pub(crate) fn close(&self) {}
}
