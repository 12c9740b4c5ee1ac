//! Assembles one of several arrays by everything users know of it, with as few members as it
//! tolerates, and never with fewer: by mdadm, and by Parapet. (mdadm's 03r0assem and 03r5assem.)

use crate::failure::{Result, ensure};
use crate::stories::{MEMBER_BYTES, Stage, Story};

pub(super) const STORIES: &[Story] = &[
    Story { name: "assembled by what is known, raid0", run: |stage| known(stage, "0", 0) },
    Story { name: "assembled by what is known, raid5", run: |stage| known(stage, "5", 1) },
];

const MEMBERS: [&str; 3] = ["m0", "m1", "m2"];
const OTHERS: [&str; 2] = ["o0", "o1"];

/// A disk of another array; a missing member without permission; too many missing.
const FOREIGN: &str = "PPT-3005";
const DEGRADED: &str = "--degraded";
const TOO_FEW: &str = "PPT-3007";

fn known(stage: &Stage<'_>, level: &str, lost: usize) -> Result {
    for name in OTHERS {
        std::fs::File::create(stage.path(name))?.set_len(MEMBER_BYTES)?;
    }
    let lost_members = lost.to_string();
    stage.kernel_makes("assembled", (level, "--chunk=64"), &MEMBERS, &[("lost", &lost_members)])?;
    let uuid = stage.superblock(MEMBERS[0])?.set_uuid.to_string();
    let folder = stage.parapet.folder.display().to_string();
    let [m0, m1, m2] = MEMBERS;
    works(stage, "tank", &[m2, m0, m1], &[])?;
    works(stage, &uuid, &[], &["--scan", &folder])?;
    works(stage, "tank", &[], &["--scan", &folder])?;
    // Named disks are meant: another array's disk is a mistake.
    refused(stage, &[m0, m1, m2, OTHERS[0]], &[], FOREIGN)?;
    if lost == 1 {
        refused(stage, &[m0, m1], &[], DEGRADED)?;
        works(stage, "tank", &[m0, m1], &["--degraded"])?;
        refused(stage, &[m0], &["--degraded"], TOO_FEW)
    } else {
        refused(stage, &[m0, m1], &["--degraded"], TOO_FEW)
    }
}

/// Served so, it is the array.
fn works(stage: &Stage<'_>, name: &str, disks: &[&str], more: &[&str]) -> Result {
    let server = stage.parapet.serve_called(name, disks, &[more, &["--read-only"]].concat())?;
    server.holds("before")?;
    server.stop()
}

/// It is not served so, for this reason.
fn refused(stage: &Stage<'_>, disks: &[&str], more: &[&str], why: &str) -> Result {
    let served = stage.parapet.serve(disks, &[more, &["--read-only"]].concat());
    let error = served.err().map_or_else(|| "it is served".into(), |failure| failure.to_string());
    ensure(error.contains(why), || format!("{disks:?} {more:?}, not {why}: {error}"))
}
