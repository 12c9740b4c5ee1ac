//! Stand-in for `crate::cmd::serve::page`: shows no page.

use std::convert::Infallible;

use os::Address;
use policy::config::Loaded;

use crate::failure::Result;

/// No flags: the command line refuses `--page`.
#[derive(clap::Args)]
pub(crate) struct PageFlags {}

impl PageFlags {
    pub(crate) fn configured(_: &Loaded) -> Result<PageFlags> {
        Ok(PageFlags {})
    }

    pub(crate) fn start(&self, _: &[Address]) -> Result<Option<(Infallible, String)>> {
        Ok(None)
    }
}
