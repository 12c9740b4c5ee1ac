//! Starts nested arrays, from the innermost outwards.
//!
//! ```text
//!    left0 left1 ──▶ left ──┐            a round: sort by array all disks and all arrays that
//!    right0 right1 ▶ right ─┴▶ tank      were started; start what is new and is complete
//! ```
//!
//! Owns the started arrays until it returns them. Invariant: an inner array is never returned to a
//! caller that did not name it, whether the outer array starts or not.

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
    /// Inner arrays of the arrays found, started or not.
    inner: Vec<PathBuf>,
    /// UUIDs of arrays with the requested name.
    meant: BTreeSet<String>,
    /// The member paths of each started array, by the array's path.
    pub(super) made_of: BTreeMap<PathBuf, Vec<PathBuf>>,
    left_out: &'a [LeftOut],
    /// True if the starts are not to be logged.
    quiet: bool,
}

/// An array that could not be started.
struct Failed {
    /// The number of members present, and the cause of the failure.
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

    /// Turns off the notes about started arrays: for a look.
    pub(super) fn quietly(self) -> Digger<'a> {
        Digger { quiet: true, ..self }
    }

    /// Starts arrays until the requested one runs. With `spare_it` it does not start that one, but
    /// returns the paths of its members.
    pub(super) async fn open_nested(
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
            // Complete arrays go first, the requested one last. So no array starts without a member
            // that a later round would start.
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

    /// Returns true if the array was started.
    async fn try_start(&mut self, group: &Group<'_>) -> bool {
        let uuid = Some(group.uuid.as_str());
        // Inner arrays of the requested one stay as they are.
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

    /// Returns the started arrays that are in no other array.
    pub(super) fn tops(&self) -> Vec<Rc<Served>> {
        self.started.iter().filter(|served| served.inside().is_none()).cloned().collect()
    }

    /// Returns the requested array, or all outermost ones. `seen` names the arrays with members in
    /// the folder.
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

    /// Stops the started arrays that are neither in `keep` nor inside one of those.
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
