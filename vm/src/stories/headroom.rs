//! mdadm takes room beside the data of an array of ours, or gives some back: our private area lies
//! there, and mdadm takes that for free.
//!
//! ```text
//!   ours     | superblock | bitmap | bad blocks | PPL | private area      | data …
//!   mdadm    |            | ± bitmap   ± bad blocks anywhere      ◀── data … (a reshape)
//! ```
//!
//! After each change Parapet writes, and stops cleanly; writes again, is killed, and replays. Only
//! data of the kernel's array may have changed.

use super::handover::{NAMES, full, full_of};
use crate::failure::{Result, ensure};
use crate::stories::{Stage, Story};

const fn story(name: &'static str, run: fn(&Stage<'_>) -> Result) -> Story {
    Story { name, run }
}

/// The effect on our private area.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Area {
    /// It is where it was: policy and checksums are as they were.
    Stays,
    /// It would be elsewhere, so it is dropped: its content is lost.
    Moves,
}

use Area::{Moves, Stays};

pub(super) const STORIES: &[Story] = &[
    story("mdadm takes the bitmap out", |stage| {
        changed(stage, ("intent", Stays), &[("grow", "--bitmap=none"), ("policy", "resync")])
    }),
    story("mdadm puts a bitmap in", |stage| {
        changed(stage, ("resync", Stays), &[("grow", "--bitmap=internal"), ("policy", "bitmap")])
    }),
    story("mdadm puts another bitmap in", |stage| {
        let grow = ("grow", "--bitmap=internal --bitmap-chunk=4K");
        changed(stage, ("intent", Stays), &[("updates", "no-bitmap"), grow, ("policy", "bitmap")])
    }),
    story("mdadm takes the bad-block log out", |stage| {
        let change = [("updates", "no-bbl"), ("policy", "bitmap"), ("bad", "")];
        changed(stage, ("intent", Moves), &change)
    }),
    story("mdadm puts a bad-block log in", |stage| {
        changed(stage, ("intent", Moves), &[("updates", "no-bbl bbl"), ("policy", "bitmap")])
    }),
    story("mdadm puts a bad-block log in, without bitmap", |stage| {
        changed(stage, ("resync", Moves), &[("updates", "no-bbl bbl"), ("policy", "resync")])
    }),
    story("mdadm takes the bitmap out, 1.0", |stage| {
        let change = [("grow", "--bitmap=none"), ("policy", "resync")];
        changed_of(stage, "1.0", ("intent", Stays), &change)
    }),
    story("mdadm puts a bitmap in, 1.0", |stage| {
        let change = [("grow", "--bitmap=internal"), ("policy", "bitmap")];
        changed_of(stage, "1.0", ("resync", Stays), &change)
    }),
    story("mdadm puts a bad-block log in, 1.0", |stage| {
        let change = [("updates", "no-bbl bbl"), ("policy", "bitmap")];
        changed_of(stage, "1.0", ("intent", Stays), &change)
    }),
    story("mdadm moves the data", |stage| moved(stage, "resync", "resync")),
    story("mdadm moves the data, with a bitmap", |stage| moved(stage, "intent", "bitmap")),
];

const MEMBERS: &[&str] = NAMES.first_chunk::<4>().expect("there are five");
/// Sector of `m1`'s data, and sectors: in the half of the array that is not written.
const BAD: (u64, u64) = (14_000, 8);

/// mdadm changes the space beside the data, as the guest's script says.
fn changed(stage: &Stage<'_>, how: (&str, Area), change: &[(&str, &str)]) -> Result {
    changed_of(stage, "1.2", how, change)
}

fn changed_of(
    stage: &Stage<'_>,
    metadata: &str,
    (policy, area): (&str, Area),
    change: &[(&str, &str)],
) -> Result {
    full_of(stage, metadata, ("5", policy), MEMBERS)?.stop()?;
    let bad = format!("{} {}", BAD.0, BAD.1);
    // The last option wins.
    let settings = [("updates", ""), ("grow", ""), ("bad", &*bad), ("check", "yes")];
    let settings = [&settings, change].concat();
    stage.kernel_takes("changes", MEMBERS, &settings)?;
    let first = stage.superblock("m1")?;
    let server = stage.parapet.serve(MEMBERS, &[])?;
    server.holds("before")?;
    server.write("before", &[(4096, 65_536, 0x11), (1_000_000, 300_000, 0x22)])?;
    let checksums = !server.wait_until_idle(true)?["unsummed_bytes"].is_null();
    ensure(checksums == (area == Stays), || format!("checksums are kept: {checksums}"))?;
    server.stop()?;
    // Invalid checksums are recomputed, and listed blocks repaired then.
    let listed = !checksums && !settings.contains(&("bad", ""));
    let left = format!("{} {}", first.data_offset + BAD.0, BAD.1);
    let left = if listed { &*left } else { "" };
    stage.kernel_takes("as_left", MEMBERS, &[&settings[..], &[("left", left)]].concat())?;
    // The kernel has made it good now.
    session(stage, MEMBERS)?;
    stage.kernel_takes("as_left", MEMBERS, &[&settings[..], &[("left", "")]].concat())?;
    let last = stage.superblock("m1")?;
    let same = (first.bitmap_offset, first.bblog.offset) == (last.bitmap_offset, last.bblog.offset);
    ensure(same, || format!("bitmap or bad-block log are elsewhere: {first:?}, {last:?}"))
}

/// A reshape moves the beginning of the data into our former area.
fn moved(stage: &Stage<'_>, policy: &str, kept: &str) -> Result {
    let names = &MEMBERS[..3];
    stage.files(&["spare"], crate::stories::MEMBER_BYTES)?;
    full(stage, ("5", policy), names)?.stop()?;
    let before = stage.superblock("m0")?.data_offset;
    stage.kernel_takes("reshaped", names, &[("pattern", "pattern"), ("grow", "4")])?;
    let after = stage.superblock("m0")?.data_offset;
    ensure(after < before, || format!("the data begins at sector {after}, and did at {before}"))?;
    let all = [names, &["spare"]].concat();
    session(stage, &all)?;
    stage.kernel_takes("as_left", &all, &[("left", ""), ("policy", kept), ("check", "yes")])
}

/// Parapet writes, crashes, replays, and stops cleanly.
fn session(stage: &Stage<'_>, names: &[&str]) -> Result {
    let server = stage.parapet.serve(names, &[])?;
    server.holds("before")?;
    let mut after = stage.read("before")?;
    after.iter_mut().for_each(|byte| *byte ^= 0x80);
    std::fs::write(stage.path("after"), after)?;
    server.die_writing("after")?;
    let server = stage.parapet.serve(names, &[])?;
    server.wait_until_idle(true)?;
    server.scrub()?;
    server.dump("content")?;
    ensure(stage.allowed(|_| true)? > 0, || "nothing was written".into())?;
    std::fs::rename(stage.path("content"), stage.path("before"))?;
    server.stop()
}
