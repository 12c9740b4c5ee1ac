//! The MTU of a link changes while a file system is used.
//!
//! A request in flight keeps its size: Linux repeats a read until the answer fits, which it never
//! does on a link that has become too small. So the payload gets smaller before the server's MTU.

use super::{Tap, array, boot_on, end};
use crate::failure::{Result, ensure};
use crate::kernel::{Guest, Kernel};
use crate::stories::Stage;
use crate::stories::clients::work_on;

/// The MTU of the server's port and of the guest's, and the payload that both agree on then.
type Sizes = (u32, u32, u32);

/// The server's alone, which announces it: larger and larger. Then the guest's, and only then the
/// server's, down again. The port of user-mode Linux does not become larger again.
const UP_AND_DOWN: [Sizes; 6] = [
    (4200, 9000, 4096),
    (9000, 9000, 8192),
    (9000, 1500, 1024),
    (4200, 1500, 1024),
    (1500, 1500, 1024),
    (9000, 1500, 1024),
];

/// Of a newer kernel, whose port can have any MTU, down and up again.
const DOWN_AND_UP: [Sizes; 6] = [
    (9000, 4200, 4096),
    (4200, 4200, 4096),
    (4200, 1500, 1024),
    (1500, 1500, 1024),
    (4200, 4200, 4096),
    (9000, 9000, 8192),
];

pub(super) fn grown_and_shrunk(stage: &Stage<'_>) -> Result {
    follow(stage, stage.kernel, (1500, 1024), &UP_AND_DOWN)
}

pub(super) fn on_newer(stage: &Stage<'_>) -> Result {
    follow(stage, &*stage.newer.get()?, (9000, 8192), &DOWN_AND_UP)
}

/// A kernel follows these changes; first the server's MTU and the payload are as given.
fn follow(
    stage: &Stage<'_>,
    kernel: &Kernel,
    (served, payload): (u32, u32),
    changes: &[Sizes],
) -> Result {
    let mut taps = [Tap::new(stage, 9000)?];
    taps[0].set_mtu(served)?;
    let server = array(stage, "5", &taps)?;
    let mut guest = start(stage, kernel, &taps, payload)?;
    let mut announced = 1;
    let mut before = served;
    for &sizes in changes {
        resize(stage, &mut guest, &taps[0], sizes)?;
        announced += usize::from(sizes.0 != before);
        before = sizes.0;
        work_on(stage, &mut guest)?;
    }
    end(stage, guest, &server)?;
    server.stop()?;
    // Linux asks by itself once in a minute: that it has followed does not prove this.
    let found = taps[0].announcements()?;
    ensure(found >= announced, || format!("{found} announcements, not {announced}"))
}

/// Requests may wait here for the MTU that they were made for; they must not fail.
pub(super) fn shrunk_first(stage: &Stage<'_>) -> Result {
    let mut taps = [Tap::new(stage, 9000)?];
    let server = array(stage, "5", &taps)?;
    let mut guest = start(stage, stage.kernel, &taps, 8192)?;
    for (mtu, payload) in [(1500, 1024), (4200, 4096), (1500, 1024)] {
        resize(stage, &mut guest, &taps[0], (mtu, 9000, payload))?;
        resize(stage, &mut guest, &taps[0], (9000, 9000, 8192))?;
        work_on(stage, &mut guest)?;
    }
    end(stage, guest, &server)?;
    server.stop()?;
    taps.iter_mut().try_for_each(Tap::verify)
}

/// Boots a guest that uses the array and follows the MTU; its own is large.
fn start(stage: &Stage<'_>, kernel: &Kernel, taps: &[Tap], payload: u32) -> Result<Guest> {
    ask(stage, 9000, payload)?;
    let mut guest = boot_on(kernel, stage, taps, (9000, payload), ("aoe/resized", "60"))?;
    work_on(stage, &mut guest)?;
    Ok(guest)
}

/// Changes both ports, until the driver has agreed on the payload.
fn resize(
    stage: &Stage<'_>,
    guest: &mut Guest,
    tap: &Tap,
    (served, port, payload): Sizes,
) -> Result {
    tap.set_mtu(served)?;
    let asked = ask(stage, port, payload)?;
    guest.until(&format!("a payload of {payload}"), |guest| {
        guest.runs()?;
        Ok(stage.text("followed").is_ok_and(|followed| followed == asked))
    })
}

/// Tells the guest which MTU its port shall have, and what must come of it.
fn ask(stage: &Stage<'_>, port: u32, payload: u32) -> Result<String> {
    let asked = format!("{port} {payload}\n");
    let draft = stage.path("asked.new");
    std::fs::write(&draft, &asked)?;
    std::fs::rename(draft, stage.path("asked"))?;
    Ok(asked)
}
