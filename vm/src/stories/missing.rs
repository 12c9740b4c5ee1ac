//! Every member, and every pair of members if the level tolerates two losses, is missing once: both
//! sides read the same bytes from the rest, whoever created the array.

use super::handover::{NAMES, full};
use crate::failure::Result;
use crate::stories::{Stage, Story};

const fn story(name: &'static str, run: fn(&Stage<'_>) -> Result) -> Story {
    Story { name, run }
}

pub(super) const STORIES: &[Story] = &[
    story("each one missing, raid5", |stage| each(stage, ("5", "intent", 4), 1)),
    story("each one missing, raid10", |stage| each(stage, ("10", "bitmap", 4), 1)),
    story("each pair missing, raid6", |stage| each(stage, ("6", "intent", 5), 2)),
    story("each one missing, kernel's raid5", |stage| kernels(stage, "5", "--chunk=64", 4, 1)),
    story("each one missing, kernel's raid10", |stage| {
        kernels(stage, "10", "--chunk=64 --layout=f2", 4, 1)
    }),
    story("each pair missing, kernel's raid6", |stage| {
        kernels(stage, "6", "--chunk=64 --layout=rs", 5, 2)
    }),
];

fn each(stage: &Stage<'_>, (level, policy, members): (&str, &str, usize), lost: usize) -> Result {
    full(stage, (level, policy), &NAMES[..members])?.stop()?;
    both_read(stage, &NAMES[..members], lost)
}

fn kernels(stage: &Stage<'_>, level: &str, flags: &str, members: usize, lost: usize) -> Result {
    stage.kernel_makes("filled", (level, flags), &NAMES[..members], &[])?;
    both_read(stage, &NAMES[..members], lost)
}

/// With each set of this many members missing.
fn both_read(stage: &Stage<'_>, names: &[&str], lost: usize) -> Result {
    let sets: Vec<Vec<&str>> = (0_u32..1 << names.len())
        .filter(|set| set.count_ones() as usize == names.len() - lost)
        .map(|set| {
            let is_in = |(index, _): &(usize, &&str)| set >> index & 1 == 1;
            names.iter().enumerate().filter(is_in).map(|(_, name)| *name).collect()
        })
        .collect();
    for set in &sets {
        let server = stage.parapet.serve(set, &["--read-only", "--degraded"])?;
        server.holds("before")?;
        server.stop()?;
    }
    let sets: Vec<String> = sets.iter().map(|set| set.join(",")).collect();
    stage.set(&[("sets", &sets.join(" "))])?;
    stage.kernel.run("without", &stage.parapet.folder)
}
