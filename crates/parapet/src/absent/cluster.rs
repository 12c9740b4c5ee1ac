//! Stand-in for `crate::cluster`: refuses the demonstration of a cluster.

use os::{Signals, Spawner};

use super::refusal;
use crate::failure::{Exit, Result};
use crate::terminal::Terminal;

/// Refuses `quickstart --cluster`.
///
/// # Errors
/// Always.
pub(crate) async fn demonstrate(_: &Spawner, _: &Signals, _: &Terminal) -> Result<Exit> {
    Err(refusal("--cluster", "cluster"))
}
