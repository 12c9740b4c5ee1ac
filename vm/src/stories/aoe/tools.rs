//! The tools of an administrator: Debian's aoetools, and fio with checksums.

use super::{MEMBERS, Tap, array, boot_with, has_made, serve_with};
use crate::failure::Result;
use crate::stories::Stage;

pub(super) fn tools(stage: &Stage<'_>) -> Result {
    let sizes = (9000, 8192);
    let mut taps = [Tap::new(stage, sizes.0)?];
    let server = array(stage, "5", &taps)?;
    let status = server.order(&["status", "tank"])?;
    let uuid = status["uuid"].as_str().unwrap_or_default();
    std::fs::write(stage.path("uuid"), format!("{uuid}\n"))?;
    let mut guest = boot_with(stage, &taps, sizes, "aoe/tools", "60")?;
    has_made(stage, &mut guest, "refused")?;
    server.order(&["fail", "tank", MEMBERS[1]])?;
    server.terminate()?;
    let server = serve_with(stage, &taps, &["--aoe-remote-control"])?;
    std::fs::write(stage.path("allowed"), "")?;
    guest.finish()?;
    server.stop()?;
    taps.iter_mut().try_for_each(Tap::verify)
}
