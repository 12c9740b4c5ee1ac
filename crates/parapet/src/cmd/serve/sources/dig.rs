//! Arrays, and arrays made of them, from the innermost outwards.
//!
//! ```text
//!    left0 left1 ──▶ left ──┐            a round: sort by array all disks and all arrays that
//!    right0 right1 ▶ right ─┴▶ tank      were started; start what is new and is complete
//! ```
//!
//! Owns what it has started until it gives it away. Invariant: an array that says it is a member of
//! another one is never given to anybody who did not name it, whether the other one starts or not.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::rc::Rc;

use super::{Group, LeftOut, Sources, sorted, start, start_quietly};
use crate::daemon::{Daemon, Served};
use crate::disks::Opened;
use crate::engine::{AssemblyFlags, RunFlags};
use crate::failure::{Failure, Result};

/// See the module.
pub(super) struct Digger<'a> {
    sources: &'a Sources<'a>,
    assembly: &'a AssemblyFlags,
    run: &'a RunFlags,
    daemon: &'a Rc<Daemon>,
    started: Vec<Rc<Served>>,
    /// By UUID.
    failed: BTreeMap<String, Failed>,
    /// Arrays that are members of one that was found, started or not.
    inner: Vec<PathBuf>,
    /// UUIDs of arrays that have the name that is wanted.
    meant: BTreeSet<String>,
    /// By the path of each array that was started, those of its members.
    pub(super) made_of: BTreeMap<PathBuf, Vec<PathBuf>>,
    left_out: &'a [LeftOut],
    /// True if nobody is to hear of the arrays that are started.
    quiet: bool,
}

/// An array that could not be started.
struct Failed {
    /// How many members were there, and why that did not do.
    there: usize,
    why: Failure,
}

impl<'a> Digger<'a> {
    pub(super) fn new(
        sources: &'a Sources<'a>,
        assembly: &'a AssemblyFlags,
        run: &'a RunFlags,
        daemon: &'a Rc<Daemon>,
        left_out: &'a [LeftOut],
    ) -> Digger<'a> {
        Digger {
            sources,
            assembly,
            run,
            daemon,
            started: Vec::new(),
            failed: BTreeMap::new(),
            inner: Vec::new(),
            meant: BTreeSet::new(),
            made_of: BTreeMap::new(),
            left_out,
            quiet: false,
        }
    }

    /// Without notes on the arrays that are started: for a look.
    pub(super) fn quietly(self) -> Digger<'a> {
        Digger { quiet: true, ..self }
    }

    /// Starts what can be, until the array that is wanted is there. With `spare_it` that one is not
    /// started: the paths of its members are given.
    pub(super) async fn dig(
        &mut self,
        disks: &[&Opened],
        spare_it: bool,
    ) -> Result<Option<Vec<PathBuf>>> {
        loop {
            let arrays: Vec<Opened> = self.opened(&self.started);
            let all: Vec<&Opened> = disks.iter().copied().chain(&arrays).collect();
            let mut groups = sorted(&all).await;
            self.note_inner(&groups, &arrays);
            let meant = groups.iter().filter(|group| self.sources.is_wanted(group));
            self.meant.extend(meant.map(|group| group.uuid.clone()));
            groups.retain(|group| self.started.iter().all(|known| known.uuid() != group.uuid));
            // What has all its members goes first, what is wanted last, so that nothing is started
            // without a member that is still to come up.
            groups.sort_by_key(|group| (!group.is_full(), self.sources.is_wanted(group)));
            let mut news = false;
            for group in groups {
                let there = group.disks.len();
                if self.failed.get(&group.uuid).is_some_and(|before| before.there >= there) {
                    continue;
                }
                let wanted = self.sources.is_wanted(&group);
                if wanted && spare_it {
                    return Ok(Some(group.disks.iter().map(|disk| disk.path.clone()).collect()));
                }
                news = self.try_start(&group).await;
                if wanted && news {
                    return Ok(None);
                }
                if news {
                    break;
                }
            }
            if !news {
                return Ok(None);
            }
        }
    }

    /// True if it was started.
    async fn try_start(&mut self, group: &Group<'_>) -> bool {
        let uuid = Some(group.uuid.as_str());
        // Arrays inside the one that is meant stay as they are.
        let wanted = self.sources.is_wanted(group);
        let consistency = self.assembly.consistency.filter(|_| wanted);
        let checksums = self.assembly.checksums.filter(|_| wanted);
        let assembly = AssemblyFlags { consistency, checksums, journal: None, ..*self.assembly };
        let flags = (&assembly, self.run);
        let started = match self.quiet {
            true => start_quietly(uuid, &group.disks, flags, self.daemon).await,
            false => start(uuid, &group.disks, flags, self.left_out, self.daemon).await,
        };
        match started {
            Ok(served) => {
                let own = Opened::array(&served.array, self.daemon.spawner()).path;
                let paths = group.disks.iter().map(|disk| disk.path.clone()).collect();
                self.made_of.insert(own, paths);
                for inner in &self.started {
                    let path = Opened::array(&inner.array, self.daemon.spawner()).path;
                    if group.disks.iter().any(|member| member.path == path) {
                        inner.put_inside(&served);
                    }
                }
                self.failed.remove(&group.uuid);
                self.started.push(served);
                true
            }
            Err(mut why) => {
                if !why.message.contains(&group.name) {
                    why.message = format!("{}: {}", group.name, why.message);
                }
                let failed = Failed { there: group.disks.len(), why };
                self.failed.insert(group.uuid.clone(), failed);
                false
            }
        }
    }

    fn opened(&self, arrays: &[Rc<Served>]) -> Vec<Opened> {
        arrays.iter().map(|served| Opened::array(&served.array, self.daemon.spawner())).collect()
    }

    fn note_inner(&mut self, groups: &[Group<'_>], arrays: &[Opened]) {
        let members = groups.iter().flat_map(|group| &group.disks);
        let paths = members.map(|member| &member.path);
        let found = paths.filter(|path| arrays.iter().any(|array| array.path == **path));
        self.inner.extend(found.cloned());
    }

    /// Arrays that were started and are in no other.
    pub(super) fn tops(&self) -> Vec<Rc<Served>> {
        self.started.iter().filter(|served| served.inside().is_none()).cloned().collect()
    }

    /// What there is to give: the array that is wanted, or all that are not inside others.
    /// In the folder there were members of these arrays.
    pub(super) async fn outcome(mut self, seen: &BTreeSet<String>) -> Result<Vec<Rc<Served>>> {
        let sources = self.sources;
        let keep = |served: &Rc<Served>| match sources.name {
            Some(_) => self.meant.contains(served.uuid()),
            None => {
                let path = Opened::array(&served.array, self.daemon.spawner()).path;
                !self.inner.contains(&path)
            }
        };
        let found: Vec<Rc<Served>> = self.tops().into_iter().filter(keep).collect();
        if found.is_empty() {
            let is_meant = |(uuid, _): &(&String, &Failed)| {
                sources.name.is_none() || self.meant.contains(*uuid)
            };
            let failure = self.failed.iter().find(is_meant).map(|(_, failed)| failed.why.clone());
            return Err(match failure {
                Some(failure) => failure,
                None => sources.nothing(seen),
            });
        }
        if sources.name.is_none() {
            for failed in self.failed.values() {
                self.daemon.lack_another();
                tracing::error!("not started: {}", failed.why);
            }
        }
        let given = self.opened(&found);
        self.release(&given).await;
        Ok(found)
    }

    /// Stops what was started and is neither one of these nor inside one.
    pub(super) async fn release(&mut self, keep: &[Opened]) {
        for top in self.tops() {
            let path = Opened::array(&top.array, self.daemon.spawner()).path;
            if keep.iter().any(|kept| kept.path == path) {
                continue;
            }
            if self.sources.name.is_none() {
                self.daemon.lack_another();
                let name = top.name();
                tracing::error!(
                    "not served: {name} is a member of an array that was not started; to serve it \
                     alone, name it"
                );
            }
            if let Err(failure) = self.daemon.give_up(&top).await {
                tracing::error!("{failure}");
            }
        }
    }
}
