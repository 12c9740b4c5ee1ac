//! Images of small arrays that the real kernel has made, for machines that cannot run it.
//!
//! `cargo xtask interop --golden FOLDER` recreates them. The repository's copies are in
//! `crates/parapet/tests/golden`, each member compressed; `program/golden.rs` reads them. Each 4
//! KiB of such an array is its own number, from 1, repeated.

use std::path::Path;

use crate::failure::{Failure, Result, ensure};
use crate::jobs::{Shop, again};
use crate::outcome::Outcome;
use crate::parapet::Parapet;
use crate::pattern;
use crate::stories::Stage;

/// Enough for mdadm's superblock, bitmap and headroom, and little data.
const MEMBER_BYTES: u64 = 2560 << 10;
const NAMES: [&str; 5] = ["m0", "m1", "m2", "m3", "m4"];

/// One array.
struct Golden {
    name: &'static str,
    level: &'static str,
    metadata: &'static str,
    members: usize,
    flags: &'static str,
    /// `whole`, `degraded`, `dirty`; or `unequal`: whole, of members of different sizes.
    state: &'static str,
}

const fn golden(
    name: &'static str,
    (level, metadata, members): (&'static str, &'static str, usize),
    flags: &'static str,
    state: &'static str,
) -> Golden {
    Golden { name, level, metadata, members, flags, state }
}

const ALL: &[Golden] = &[
    golden("linear", ("linear", "1.2", 3), "", "unequal"),
    golden("raid0", ("0", "1.2", 3), "--chunk=16", "unequal"),
    golden("raid1-1.0", ("1", "1.0", 2), "--bitmap=internal", "whole"),
    golden("raid1-0.90", ("1", "0.90", 2), "", "whole"),
    golden("raid4", ("4", "1.2", 3), "--chunk=32 --bitmap=none", "whole"),
    golden("raid5", ("5", "1.2", 4), "--chunk=64 --bitmap=internal", "whole"),
    golden("raid5-1.1", ("5", "1.1", 3), "--chunk=16 --layout=ra --bitmap=none", "whole"),
    golden("raid5-0.90", ("5", "0.90", 3), "--chunk=64", "whole"),
    golden("raid5-ppl", ("5", "1.2", 3), "--chunk=64 --consistency-policy=ppl", "whole"),
    golden("raid5-degraded", ("5", "1.2", 4), "--chunk=8 --bitmap=internal", "degraded"),
    golden("raid5-dirty", ("5", "1.2", 3), "--chunk=64 --bitmap=internal", "dirty"),
    golden("raid6", ("6", "1.2", 5), "--chunk=16 --bitmap=internal", "whole"),
    golden("raid6-ddf", ("6", "1.2", 4), "--chunk=64 --layout=ddf-N-continue", "whole"),
    golden("raid6-degraded", ("6", "1.0", 4), "--chunk=64 --layout=rs", "degraded"),
    golden("raid10-near", ("10", "1.2", 4), "--chunk=64 --layout=n2", "whole"),
    golden("raid10-0.90", ("10", "0.90", 2), "--chunk=64 --layout=n2", "whole"),
    golden("raid10-far", ("10", "1.2", 4), "--chunk=16 --layout=f2", "whole"),
    golden("raid10-offset", ("10", "1.2", 3), "--chunk=64 --layout=o2", "whole"),
];

/// Recreates all of them, in a folder each.
pub(crate) fn make(shop: &Shop<'_>, folder: &Path) -> Vec<Outcome> {
    shop.work(ALL.iter(), |golden| {
        let work = shop.state.join(golden.name);
        let parapet = Parapet { program: shop.program, folder: work };
        let stage = Stage { kernel: shop.kernel, newer: shop.newer, parapet };
        let failure = again(golden.name, || golden.make(&stage, &folder.join(golden.name))).err();
        vec![Outcome {
            name: golden.name.into(),
            is_skip: false,
            failure: failure.map(|why| why.to_string()),
        }]
    })
}

impl Golden {
    fn make(&self, stage: &Stage<'_>, into: &Path) -> Result {
        stage.begin()?;
        let names = &NAMES[..self.members];
        for (index, name) in (0..).zip(names) {
            let more = if self.state == "unequal" { index * (192 << 10) } else { 0 };
            std::fs::File::create(stage.path(name))?.set_len(MEMBER_BYTES + more)?;
        }
        std::fs::write(stage.path("pattern"), pattern::numbers(self.members * 1024))?;
        stage.set(&[
            ("files", &names.join(" ")),
            ("uuid", &uuid(self.name)),
            ("metadata", self.metadata),
            ("level", self.level),
            ("flags", self.flags),
            ("members", &self.members.to_string()),
            ("state", self.state),
        ])?;
        if self.state == "dirty" {
            let mut guest = stage.kernel.boot("golden", &stage.parapet.folder)?;
            let written = stage.path("written");
            guest.until("the kernel's write", |_| Ok(written.exists()))?;
            guest.kill();
        } else {
            stage.kernel.run("golden", &stage.parapet.folder)?;
        }
        let _ = std::fs::remove_dir_all(into);
        std::fs::create_dir_all(into)?;
        for name in names {
            // No name and no time in it: the same image is the same file.
            stage.parapet.tool(&["gzip", "-9", "--no-name", "--force", name])?;
            std::fs::copy(stage.path(&format!("{name}.gz")), into.join(format!("{name}.gz")))?;
        }
        let bytes = stage.read("expected")?.len();
        ensure(bytes > 0, || "an array without a byte".into())?;
        let saved = std::fs::write(into.join("bytes"), format!("{bytes}\n"));
        saved.map_err(|error| Failure::new(format!("{}: {error}", into.display())))
    }
}

/// An identity of its own for each, the same each time.
fn uuid(name: &str) -> String {
    let checksum = |salt: u64| {
        let step =
            |checksum: u64, byte: u8| (checksum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        name.bytes().fold(0xcbf2_9ce4_8422_2325 ^ salt, step)
    };
    let digits = format!("{:016x}{:016x}", checksum(0), checksum(1));
    [&digits[..8], &digits[8..16], &digits[16..24], &digits[24..]].join(":")
}
