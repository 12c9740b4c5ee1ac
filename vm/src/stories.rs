//! Scenarios besides reading and writing, each as a story between host and guest.
//!
//! Owns the list of stories, and their common parts.

mod aoe;
mod assembly;
mod between;
mod clients;
mod cluster;
mod handover;
mod headroom;
mod local;
mod missing;
mod ppl;
mod refusals;
mod repair;
mod states;
mod udev;

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use layout::md::{Superblock, Version};

use crate::failure::{Failure, Result, ensure};
use crate::jobs::{Shop, again};
use crate::kernel::{self, Kernel, Newer};
use crate::outcome::Outcome;
use crate::parapet::Parapet;
use crate::pattern;

/// The unit in which a crash leaves old or new.
pub(crate) const BLOCK: usize = 4096;
/// Where a superblock of version 1.2 lies.
pub(crate) const SUPERBLOCK_AT: u64 = 4096;

/// Folders of the project with few enough files for an emulated processor.
const TREE: [&str; 2] = ["docs", "crates/layout"];

/// Members are of this size.
pub(crate) const MEMBER_BYTES: u64 = 12 << 20;

/// One story.
#[derive(Clone, Copy)]
pub(crate) struct Story {
    pub(crate) name: &'static str,
    run: fn(&Stage<'_>) -> Result,
}

/// All of them.
pub(crate) fn all() -> Vec<Story> {
    [cluster::LONG_STORIES, aoe::LONG_STORIES, &usual()].concat()
}

/// Those that print figures; they run only if they are named.
pub(crate) fn figures() -> Vec<Story> {
    local::FIGURES.to_vec()
}

/// Those of which a slice has some.
fn usual() -> Vec<Story> {
    [
        // The longest first, so that no worker runs alone at the end.
        clients::STORIES,
        aoe::STORIES,
        local::STORIES,
        udev::STORIES,
        handover::STORIES,
        ppl::STORIES,
        between::STORIES,
        states::STORIES,
        refusals::STORIES,
        headroom::STORIES,
        missing::STORIES,
        assembly::STORIES,
        repair::STORIES,
    ]
    .concat()
}

/// One of each kind, and of many kinds another variant: a name is its kind, a comma, its variant.
pub(crate) fn slice() -> Vec<Story> {
    let mut kinds: Vec<Vec<Story>> = Vec::new();
    for story in usual() {
        let kind = |story: &Story| story.name.split(',').next();
        match kinds.iter_mut().find(|known| kind(&known[0]) == kind(&story)) {
            Some(known) => known.push(story),
            None => kinds.push(vec![story]),
        }
    }
    kinds.iter().enumerate().map(|(turn, kind)| kind[turn * 7 % kind.len()]).collect()
}

/// Where a story takes place.
pub(crate) struct Stage<'a> {
    pub(crate) kernel: &'a Kernel,
    pub(crate) newer: &'a Newer,
    pub(crate) parapet: Parapet<'a>,
}

/// Runs these.
pub(crate) fn run(stories: &[Story], shop: &Shop<'_>) -> Vec<Outcome> {
    shop.work(stories.iter(), |Story { name, run }| {
        let folder = shop.state.join(name.replace(' ', "-"));
        let parapet = Parapet { program: shop.program, folder: folder.clone() };
        let stage = Stage { kernel: shop.kernel, newer: shop.newer, parapet };
        let failure = again(name, || stage.begin().and_then(|()| run(&stage))).err();
        if failure.is_none() {
            let _ = std::fs::remove_dir_all(&folder);
        }
        let is_skip = failure.as_ref().is_some_and(Failure::is_skip);
        let failure = failure.map(|why| format!("{why}\n  in {}", folder.display()));
        vec![Outcome { name: (*name).to_owned(), failure, is_skip }]
    })
}

impl Stage<'_> {
    /// An empty folder.
    pub(crate) fn begin(&self) -> Result {
        let _ = std::fs::remove_dir_all(&self.parapet.folder);
        Ok(std::fs::create_dir_all(&self.parapet.folder)?)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.parapet.folder.join(name)
    }

    /// New files of this size, and a pattern that is longer than their array.
    pub(crate) fn files(&self, names: &[&str], bytes: u64) -> Result {
        for name in names {
            std::fs::File::create(self.path(name))?.set_len(bytes)?;
        }
        Ok(std::fs::write(self.path("pattern"), pattern::bytes(bytes * names.len() as u64))?)
    }

    /// A file `tree.tar` of about a hundred small files, for a file system of a guest.
    pub(crate) fn tree(&self) -> Result {
        let project = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let mut tar = Command::new("tar");
        tar.arg("-cf").arg(self.path("tree.tar")).arg("-C").arg(project).args(TREE);
        ensure(tar.status()?.success(), || "tar fails".into())
    }

    /// The file that the guest's script reads first.
    pub(crate) fn set(&self, variables: &[(&str, &str)]) -> Result {
        kernel::set(&self.parapet.folder, variables)
    }

    /// The kernel creates an array of new files by this guest script, which begins with `create`:
    /// the level, mdadm's options, and the script's other parameters.
    pub(crate) fn kernel_makes(
        &self,
        script: &str,
        (level, flags): (&str, &str),
        names: &[&str],
        more: &[(&str, &str)],
    ) -> Result {
        self.files(names, MEMBER_BYTES)?;
        let files = names.join(" ");
        let members = names.len().to_string();
        let own = [
            ("files", files.as_str()),
            ("metadata", "1.2"),
            ("level", level),
            ("flags", flags),
            ("members", &members),
            ("pattern", "pattern"),
        ];
        self.set(&[&own, more].concat())?;
        self.kernel.run(script, &self.parapet.folder)
    }

    /// The kernel runs a script on the array.
    pub(crate) fn kernel_takes(
        &self,
        script: &str,
        names: &[&str],
        more: &[(&str, &str)],
    ) -> Result {
        let files = names.join(" ");
        self.set(&[&[("files", files.as_str())], more].concat())?;
        self.kernel.run(script, &self.parapet.folder)
    }

    /// The superblock of a member, of version 1, wherever it lies.
    pub(crate) fn superblock(&self, name: &str) -> Result<Superblock> {
        let file = std::fs::File::open(self.path(name))?;
        let bytes = file.metadata()?.len();
        let found = Version::ALL.iter().find_map(|&version| {
            let at = layout::md::position(version, bytes)?;
            let mut bytes = vec![0; 4096];
            file.read_exact_at(&mut bytes, at).ok()?;
            Superblock::parse(&bytes, at / 512).ok()
        });
        found.ok_or_else(|| Failure::new(format!("{name} has no superblock")))
    }

    pub(crate) fn read(&self, name: &str) -> Result<Vec<u8>> {
        std::fs::read(self.path(name)).map_err(|error| Failure::new(format!("{name}: {error}")))
    }

    pub(crate) fn text(&self, name: &str) -> Result<String> {
        Ok(String::from_utf8_lossy(&self.read(name)?).into_owned())
    }

    /// Checks that each block of `content` is that of `before` or `after`, and of `before` if it
    /// was not written. Returns the number of blocks as in `after`.
    pub(crate) fn allowed(&self, may_change: impl Fn(usize) -> bool) -> Result<usize> {
        let [content, before, after] =
            [self.read("content")?, self.read("before")?, self.read("after")?];
        ensure(content.len() == before.len(), || {
            format!("the array has {} bytes, it had {}", content.len(), before.len())
        })?;
        let mut new = 0;
        let blocks = content.chunks(BLOCK).zip(before.chunks(BLOCK)).zip(after.chunks(BLOCK));
        for (number, ((found, before), after)) in blocks.enumerate() {
            new += usize::from(found == after);
            let good = found == before || found == after && may_change(number);
            ensure(good, || format!("block {number} is neither as before nor as after"))?;
        }
        Ok(new)
    }
}
