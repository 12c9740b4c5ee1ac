//! One of the two dies while it writes, the other takes over.
//!
//! ```text
//!   kernel writes ──power cut──▶ Parapet: old or new in each block, unwritten blocks unchanged
//!   Parapet writes ──kill──────▶ kernel:  the same, after a resync by the bitmap
//! ```

use crate::failure::{Result, ensure};
use crate::parapet::Server;
use crate::stories::{BLOCK, MEMBER_BYTES, Stage, Story};

const fn story(name: &'static str, run: fn(&Stage<'_>) -> Result) -> Story {
    Story { name, run }
}

const BITMAP: &str = "--bitmap=internal --bitmap-chunk=64K --delay=1";
const PPL: &str = "--consistency-policy=ppl";

pub(super) const STORIES: &[Story] = &[
    story("kernel dies, raid1", |stage| kernel_dies(stage, "1", BITMAP, 2)),
    story("kernel dies, raid10", |stage| kernel_dies(stage, "10", BITMAP, 4)),
    story("kernel dies, raid5", |stage| kernel_dies(stage, "5", BITMAP, 4)),
    story("kernel dies, raid6", |stage| kernel_dies(stage, "6", BITMAP, 5)),
    story("kernel dies, raid5 without bitmap", |stage| kernel_dies(stage, "5", "--bitmap=none", 4)),
    story("kernel dies, raid5 with ppl", |stage| kernel_dies(stage, "5", PPL, 4)),
    story("parapet dies, raid1", |stage| parapet_dies(stage, "1", "bitmap", 2)),
    story("parapet dies, raid10", |stage| parapet_dies(stage, "10", "bitmap", 4)),
    story("parapet dies, raid4", |stage| parapet_dies(stage, "4", "intent", 4)),
    story("parapet dies, raid5", |stage| parapet_dies(stage, "5", "intent", 4)),
    story("parapet dies, raid6", |stage| parapet_dies(stage, "6", "intent", 5)),
    story("parapet dies, raid6 with journal", |stage| parapet_dies(stage, "6", "journal", 5)),
    story("parapet dies, raid5 without bitmap", |stage| parapet_dies(stage, "5", "resync", 4)),
    story("parapet dies, raid5 with ppl", |stage| parapet_dies(stage, "5", "ppl", 4)),
    story("parapet dies degraded, raid4", |stage| dies_degraded(stage, "4", "intent", 4)),
    story("parapet dies degraded, raid5", |stage| dies_degraded(stage, "5", "intent", 4)),
    story("parapet dies degraded, raid6", |stage| dies_degraded(stage, "6", "intent", 5)),
    story("parapet dies degraded, raid6 with journal", |stage| {
        dies_degraded(stage, "6", "journal", 5)
    }),
];

pub(super) const NAMES: [&str; 5] = ["m0", "m1", "m2", "m3", "m4"];

fn kernel_dies(stage: &Stage<'_>, level: &str, record: &str, members: usize) -> Result {
    let names = &NAMES[..members];
    stage.files(names, MEMBER_BYTES)?;
    let chunk = if level == "1" { "" } else { "--chunk=64" };
    stage.set(&[
        ("files", &names.join(" ")),
        ("metadata", "1.2"),
        ("level", level),
        ("flags", &format!("{record} {chunk}")),
        ("members", &members.to_string()),
        ("pattern", "pattern"),
        ("lost", ""),
    ])?;
    let mut guest = stage.kernel.boot("crash", &stage.parapet.folder)?;
    let writing = stage.path("writing");
    guest.until("a hundred writes", |_| {
        Ok(std::fs::metadata(&writing).is_ok_and(|file| file.len() > 200))
    })?;
    guest.kill();
    let blocks = stage.read("before")?.len() / BLOCK;
    let may_change = |block| block % 4 != 3 && block < blocks / 2;
    let server = stage.parapet.serve(names, &["--speed-min", "4K", "--speed-max", "4K"])?;
    let status = server.order(&["status", "tank"])?;
    let (unsynced, all) = (&status["unsynced_bytes"], &status["capacity_bytes"]);
    let few = unsynced.as_u64() <= all.as_u64().map(|all| all / 2 + (1 << 20));
    ensure(few || record != BITMAP, || format!("{unsynced} of {all} bytes are to be synced"))?;
    server.dump("content")?;
    let new = stage.allowed(may_change)?;
    ensure(new > 0, || "nothing of what was written is there".into())?;
    server.order(&["speed", "tank", "--speed-max", "off"])?;
    server.wait_until_idle(true)?;
    server.scrub()?;
    server.dump("content")?;
    ensure(stage.allowed(may_change)? == new, || "what was read has changed since".into())?;
    server.stop()
}

/// Parapet creates an array, and fills it with `before`; `after` has other content.
pub(super) fn full<'a>(
    stage: &'a Stage<'_>,
    how: (&str, &str),
    names: &[&str],
) -> Result<Server<'a>> {
    full_of(stage, "1.2", how, names)
}

/// As [`full`], of this version of the superblock.
pub(super) fn full_of<'a>(
    stage: &'a Stage<'_>,
    metadata: &str,
    (level, policy): (&str, &str),
    names: &[&str],
) -> Result<Server<'a>> {
    stage.files(names, MEMBER_BYTES)?;
    let mut words = vec!["create", "tank", "--yes", "--level", level, "--consistency", policy];
    words.extend(["--metadata", metadata]);
    if level != "1" {
        words.extend(["--chunk", "64K"]);
    }
    stage.parapet.run(&[&words, names].concat())?;
    let server = stage.parapet.serve(names, &[])?;
    let capacity = server.order(&["status", "tank"])?["capacity_bytes"].as_u64();
    let mut before = stage.read("pattern")?;
    before.truncate(capacity.unwrap_or_default() as usize);
    std::fs::write(stage.path("before"), &before)?;
    before.iter_mut().for_each(|byte| *byte ^= 0x80);
    std::fs::write(stage.path("after"), &before)?;
    server.fill("before")?;
    server.wait_until_idle(true)?;
    Ok(server)
}

/// Parapet creates an array, fills it, and crashes during a rewrite; without a member, if
/// requested.
fn dies_writing(
    stage: &Stage<'_>,
    how: (&str, &str),
    names: &[&str],
    lost: Option<&str>,
) -> Result {
    let server = full(stage, how, names)?;
    if let Some(lost) = lost {
        server.order(&["fail", "tank", lost])?;
        server.order(&["remove", "tank", lost])?;
    }
    server.die_writing("after")
}

/// Only Parapet's log has the interrupted writes of a degraded array: the kernel must refuse it
/// before Parapet has replayed them, and accept it then.
fn dies_degraded(stage: &Stage<'_>, level: &str, policy: &str, members: usize) -> Result {
    let names = &NAMES[..members];
    dies_writing(stage, (level, policy), names, Some(names[1]))?;
    let left: Vec<&str> = names.iter().copied().filter(|name| *name != names[1]).collect();
    stage.set(&[("files", &left.join(" "))])?;
    let taken = stage.kernel.run("take", &stage.parapet.folder);
    ensure(taken.is_err(), || "the kernel takes a dirty degraded array".into())?;
    let kernel_log = stage.text("told")?;
    ensure(kernel_log.contains("cannot start dirty degraded array"), || kernel_log)?;
    stage.parapet.run(&[&["assemble", "tank"], &left[..]].concat())?;
    stage.kernel.run("take", &stage.parapet.folder)?;
    stage.allowed(|_| true).map(drop)
}

fn parapet_dies(stage: &Stage<'_>, level: &str, policy: &str, members: usize) -> Result {
    let names = &NAMES[..members];
    dies_writing(stage, (level, policy), names, None)?;
    stage.set(&[("files", &names.join(" "))])?;
    stage.kernel.run("take", &stage.parapet.folder)?;
    let new = stage.allowed(|_| true)?;
    let server = stage.parapet.serve(names, &[])?;
    server.wait_until_idle(true)?;
    server.dump("content")?;
    ensure(stage.allowed(|_| true)? == new, || "what the kernel read has changed".into())?;
    server.scrub()?;
    server.stop()
}
