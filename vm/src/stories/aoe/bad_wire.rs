//! A client at the other end of a bad wire, on which somebody sends malformed requests, too.

use std::time::Duration;

use super::relay::{Deeds, Fate, Malformed};
use super::{Tap, array, boot, end};
use crate::failure::{Result, ensure};
use crate::stories::Stage;
use crate::stories::clients::work_on;

/// So much of everything has happened at the least.
const LEAST: u64 = 10;
/// Malformed requests of each kind, at the least.
const LEAST_OF_KIND: u64 = 3;

/// Far less than 2 s: as long as a frame may be under way (docs/decisions/0016-aoe-target.md).
const LONGEST: Duration = Duration::from_millis(200);

pub(super) fn used(stage: &Stage<'_>, level: &str, sizes: (u32, u32), seed: u64) -> Result {
    // The same work takes more frames if they are small, and each loss costs Linux a tenth of a
    // second or more.
    let frames = 8192 / sizes.1 as usize;
    let (lost, delayed) = (500 * frames, 150 * frames);
    let fate = Fate { seed, lost, repeated: 50, delayed, malformed: 30, longest: LONGEST };
    let mut taps = [Tap::new(stage, sizes.0)?.with_relay(fate)?];
    let server = array(stage, level, &taps)?;
    let mut guest = boot(stage, &taps, sizes)?;
    for _ in 0..2 {
        work_on(stage, &mut guest)?;
    }
    end(stage, guest, &server)?;
    let deeds = taps[0].end_relay()?;
    check(&deeds)?;
    server.stop()?;
    taps.iter_mut().try_for_each(Tap::verify)
}

/// The wire was bad in every way.
fn check(deeds: &Deeds) -> Result {
    let Deeds { lost, repeated, delayed, malformed } = deeds;
    let least = *lost.min(repeated).min(delayed);
    ensure(least >= LEAST, || format!("the wire was not bad: {deeds:?}"))?;
    let has_all = Malformed::ALL.iter().all(|kind| malformed.get(kind) >= Some(&LEAST_OF_KIND));
    ensure(has_all, || format!("some kinds were not sent: {malformed:?}"))
}
