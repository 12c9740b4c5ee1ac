//! On a machine with md's udev rules, unused members immediately belong to the kernel. Parapet then
//! names the kernel's array, and how to keep the members. All of it happens in the guest.

use crate::failure::Result;
use crate::pattern;
use crate::stories::{Stage, Story};

pub(super) const STORIES: &[Story] = &[Story { name: "udev takes members", run: taken }];

const MEMBERS: [&str; 3] = ["m0", "m1", "m2"];
const MEMBER_BYTES: u64 = 16 << 20;
/// Less than the array holds.
const PATTERN_BYTES: u64 = 24 << 20;

fn taken(stage: &Stage<'_>) -> Result {
    for name in MEMBERS {
        std::fs::File::create(stage.path(name))?.set_len(MEMBER_BYTES)?;
    }
    std::fs::write(stage.path("pattern"), pattern::bytes(PATTERN_BYTES))?;
    stage.set(&[("parapet", &stage.parapet.program.display().to_string())])?;
    stage.newer.get()?.run("udev/taken", &stage.parapet.folder)
}
