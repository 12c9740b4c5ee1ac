//! A member of a RAID 6 has silently turned a block into garbage: which engine repairs it, and how?
//!
//! ```text
//!            d0     d1     d2     P      Q
//!   before   a      b      c      p      q
//!   rot      a      x      c      p      q       two redundancies identify the wrong block
//!   md       a      x      c      p′     q′      `repair` computes parity from x: b is lost
//!   Parapet  a      b      c      p      q       `scrub repair` finds d1, and recomputes it
//! ```

use std::os::unix::fs::FileExt;

use super::handover::{NAMES, full};
use crate::failure::{Result, ensure};
use crate::stories::{BLOCK, Stage, Story};

pub(super) const STORIES: &[Story] =
    &[Story { name: "repair finds the wrong member of a raid6, md's does not", run }];

/// In the middle of the members' data.
const AT: u64 = 6 << 20;
const CHUNK: u64 = 64 << 10;

fn run(stage: &Stage<'_>) -> Result {
    let server = full(stage, ("6", "resync"), &NAMES)?;
    server.stop()?;
    let members = |to: &str, from: &str| -> Result {
        for name in NAMES {
            std::fs::copy(
                stage.path(&format!("{name}{from}")),
                stage.path(&format!("{name}{to}")),
            )?;
        }
        Ok(())
    };
    let rotten = std::fs::File::options().write(true).open(stage.path("m1"))?;
    // In five stripes: in three of them it has data.
    for stripe in 0..5 {
        rotten.write_all_at(&[0x77; BLOCK], AT + stripe * CHUNK)?;
    }
    members(".rotten", "")?;
    // By the kernel.
    stage.set(&[("files", &NAMES.join(" "))])?;
    stage.kernel.run("repair", &stage.parapet.folder)?;
    let spoilt = stage.read("content")? != stage.read("before")?;
    ensure(spoilt, || "md has repaired it rightly: this story shows nothing".into())?;
    // By Parapet; without checksums, which would detect it.
    members("", ".rotten")?;
    let server = stage.parapet.serve(&NAMES, &["--checksums", "off"])?;
    server.order(&["scrub", "tank", "repair"])?;
    let status = server.wait_until_idle(false)?;
    let found = &status["last_scrub"];
    let findings = found["findings"].as_array().into_iter().flatten();
    let named = findings.filter(|finding| finding["slot"] == 1).count();
    let rightly = named == 5 && found["mismatches"] == 5 && found["guessed_bytes"] == 0;
    ensure(rightly, || format!("our scrub: {found}"))?;
    server.holds("before")?;
    server.stop()?;
    stage.kernel.run("take", &stage.parapet.folder)?;
    ensure(stage.read("content")? == stage.read("before")?, || "the kernel reads other data".into())
}
