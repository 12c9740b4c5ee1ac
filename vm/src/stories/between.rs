//! The kernel runs the array between two Parapet sessions: Parapet's log is obsolete.
//!
//! Parapet crashes with a row in its journal, the kernel rewrites that row and stops cleanly, and
//! Parapet must not overwrite it with old data. A tag in the superblock's time detects that; the
//! event count proves nothing, because both may end on the same one.

use std::os::unix::fs::FileExt;

use layout::md::Superblock;

use super::handover::{NAMES, full};
use crate::failure::{Result, ensure};
use crate::stories::{SUPERBLOCK_AT, Stage, Story};

/// How the kernel's session ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    InOrder,
    /// Cleanly, on the event count of our last superblock.
    OnOurNumber,
    /// By a power cut.
    Dies,
}

pub(super) const STORIES: &[Story] = &[
    Story { name: "kernel's session between ours", run: |stage| run(stage, End::InOrder) },
    Story {
        name: "kernel's session between ours, same event number",
        run: |stage| run(stage, End::OnOurNumber),
    },
    Story { name: "kernel's session between ours, it dies", run: |stage| run(stage, End::Dies) },
];

const MEMBERS: usize = 4;
const AT: u64 = 1 << 20;

fn run(stage: &Stage<'_>, end: End) -> Result {
    let names = &NAMES[..MEMBERS];
    let server = full(stage, ("5", "journal"), names)?;
    std::fs::copy(stage.path("before"), stage.path("after"))?;
    server.write_unflushed("after", &[(AT, 8192, 0x11)])?;
    server.kill()?;
    let ours = stage.superblock(names[0])?;
    ensure(ours.utime.micros() != 0, || "our superblock has no tag".into())?;
    // The same place, by the kernel.
    std::fs::write(stage.path("theirs"), vec![0x22; 8192])?;
    let expected = std::fs::File::options().write(true).open(stage.path("after"))?;
    expected.write_all_at(&[0x22; 8192], AT)?;
    stage.set(&[
        ("files", &names.join(" ")),
        ("at", &(AT / 4096).to_string()),
        ("dies", if end == End::Dies { "yes" } else { "" }),
    ])?;
    session(stage, end)?;
    for name in names {
        let theirs = stage.superblock(name)?;
        ensure(theirs.utime.micros() == 0, || format!("{name} has our tag still"))?;
        ensure(theirs.is_clean() != (end == End::Dies), || format!("{name}: the other end"))?;
        if end == End::OnOurNumber {
            end_on(stage, name, theirs, ours.events)?;
        }
    }
    let server = stage.parapet.serve(names, &[])?;
    let status = server.order(&["status", "tank"])?;
    ensure(status["replay"].is_null(), || format!("our log is replayed: {status}"))?;
    let why = status["log_unusable"].as_str().unwrap_or_default();
    let seen = why.contains("another system") || end != End::Dies;
    ensure(seen, || format!("the reason does not name another system: {status}"))?;
    server.holds("after")?;
    server.wait_until_idle(true)?;
    server.scrub()?;
    server.holds("after")?;
    server.stop()
}

/// The kernel has its turn.
fn session(stage: &Stage<'_>, end: End) -> Result {
    if end != End::Dies {
        return stage.kernel.run("session", &stage.parapet.folder);
    }
    let mut guest = stage.kernel.boot("session", &stage.parapet.folder)?;
    let written = stage.path("written");
    guest.until("the kernel's write", |_| Ok(written.exists()))?;
    guest.kill();
    Ok(())
}

/// As if the kernel's session had ended on this event number.
fn end_on(stage: &Stage<'_>, name: &str, mut superblock: Superblock, events: u64) -> Result {
    superblock.events = events;
    let file = std::fs::File::options().write(true).open(stage.path(name))?;
    file.write_all_at(&superblock.print(), SUPERBLOCK_AT)?;
    let bitmap = SUPERBLOCK_AT as i64 + i64::from(superblock.bitmap_offset) * 512;
    // Its header says at which event it was written, and when it was last cleared.
    for field in [24, 32] {
        file.write_all_at(&events.to_le_bytes(), bitmap as u64 + field)?;
    }
    Ok(())
}
