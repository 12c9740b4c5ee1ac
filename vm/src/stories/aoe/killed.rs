//! A client that loses its power while it writes, and the next one.

use super::{Tap, array, boot_with, end};
use crate::failure::Result;
use crate::pattern;
use crate::stories::Stage;
use crate::stories::clients::work_on;

/// So many files are durable when the power is cut, at the least.
const DURABLE_FILES: u32 = 20;

pub(super) fn killed(stage: &Stage<'_>) -> Result {
    let sizes = (9000, 8192);
    let mut taps = [Tap::new(stage, sizes.0)?];
    let server = array(stage, "6", &taps)?;
    std::fs::write(stage.path("pattern"), pattern::bytes(1 << 20))?;
    let mut guest = boot_with(stage, &taps, sizes, "aoe/killed", "60")?;
    work_on(stage, &mut guest)?;
    guest.until("durable files", |guest| {
        guest.runs()?;
        let durable = stage.text("durable").unwrap_or_default();
        Ok(durable.trim().parse::<u32>().is_ok_and(|durable| durable >= DURABLE_FILES))
    })?;
    guest.kill();
    // The last client's work has left redundancy that agrees.
    server.scrub()?;
    let guest = boot_with(stage, &taps, sizes, "aoe/revived", "60")?;
    end(stage, guest, &server)?;
    server.stop()?;
    taps.iter_mut().try_for_each(Tap::verify)
}
