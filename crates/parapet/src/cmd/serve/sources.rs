//! Where the members of arrays come from: paths, or a folder to look through.
//!
//! Opens disks, and sorts what a scan finds by array. Never decides whether an array can start.

use std::path::{Path, PathBuf};
use std::rc::Rc;

use array::assemble::survey;
use layout::md::Uuid;
use os::{Options, Spawner};

use crate::daemon::{Daemon, Served};
use crate::disks::{self, Opened};
use crate::engine::{self, AssemblyFlags, RunFlags};
use crate::failure::{Failure, Id, Result, of_path};

/// What the user named.
pub(crate) struct Sources<'a> {
    /// The array, by name or UUID.
    pub(crate) name: Option<&'a str>,
    /// Its members.
    pub(crate) members: &'a [PathBuf],
    /// The folder to look through instead.
    pub(crate) scan: Option<&'a Path>,
}

/// Arrays of arrays of arrays: more is a mistake.
const DEPTH: usize = 4;

/// An array, and the disks that say they are its members.
struct Group<'a> {
    uuid: String,
    name: String,
    disks: Vec<&'a Opened>,
}

impl Sources<'_> {
    /// Opens the disks.
    ///
    /// # Errors
    /// If one of those named cannot be opened. That one is missing is only said: whether the array
    /// can do without it is seen later.
    pub(crate) fn open(&self, read_only: bool, on: &Spawner) -> Result<Vec<Opened>> {
        let Some(folder) = self.scan else {
            return disks::open(&self.present()?, read_only, on);
        };
        let options = Options { read_only, ..Options::default() };
        let mut disks = Vec::new();
        for path in disks::scan(folder)? {
            match disks::open_one(&path, &options, on) {
                Ok(opened) => disks.push(opened),
                Err(failure) => tracing::info!("{failure}"),
            }
        }
        Ok(disks)
    }

    fn present(&self) -> Result<Vec<PathBuf>> {
        if self.members.is_empty() {
            let action = "name its members, or --scan a folder for them";
            return Err(Failure::new(Id::Usage, "no member is named", action));
        }
        let (there, missing): (Vec<_>, Vec<_>) =
            self.members.iter().cloned().partition(|path| path.symlink_metadata().is_ok());
        if there.is_empty() {
            return Err(of_path(&missing[0], &std::io::ErrorKind::NotFound.into()));
        }
        for path in &missing {
            tracing::warn!(path = %path.display(), "there is no such file or device");
        }
        Ok(there)
    }

    /// Starts the arrays that are wanted, and first those inside them; gives the ones wanted.
    ///
    /// An array that is made of arrays is only found by its name: what lies inside an array may as
    /// well belong to whoever uses it.
    ///
    /// # Errors
    /// If one cannot be started.
    pub(crate) async fn gather(
        &self,
        assembly: &AssemblyFlags,
        run: &RunFlags,
        daemon: &Rc<Daemon>,
    ) -> Result<Vec<Rc<Served>>> {
        let disks = self.open(assembly.read_only, daemon.spawner())?;
        let groups = sorted(&disks).await;
        let direct = self.name.is_none() || groups.iter().any(|group| self.is_wanted(group));
        // With one array or none there is nothing that another one could be made of.
        if direct || groups.len() < 2 {
            let mut arrays = Vec::new();
            for (name, disks) in self.group(&disks).await? {
                let name = name.as_deref();
                arrays.push(start(name, &disks, assembly, run, daemon).await?);
            }
            return Ok(arrays);
        }
        self.dig(groups, assembly, run, daemon).await
    }

    /// Starts arrays, and arrays made of them, until the one that is wanted appears.
    async fn dig(
        &self,
        groups: Vec<Group<'_>>,
        assembly: &AssemblyFlags,
        run: &RunFlags,
        daemon: &Rc<Daemon>,
    ) -> Result<Vec<Rc<Served>>> {
        let mut layer = Vec::new();
        for group in groups {
            let uuid = Some(group.uuid.as_str());
            layer.push(start(uuid, &group.disks, assembly, run, daemon).await?);
        }
        for _ in 0..DEPTH {
            let disks: Vec<Opened> =
                layer.iter().map(|inner| Opened::array(&inner.array, daemon.spawner())).collect();
            let mut outer = Vec::new();
            for group in sorted(&disks).await {
                let uuid = Some(group.uuid.as_str());
                let served = start(uuid, &group.disks, assembly, run, daemon).await?;
                for inner in &layer {
                    let path = Opened::array(&inner.array, daemon.spawner()).path;
                    if group.disks.iter().any(|member| member.path == path) {
                        inner.put_inside(&served);
                    }
                }
                if self.is_wanted(&group) {
                    return Ok(vec![served]);
                }
                outer.push(served);
            }
            layer = outer;
        }
        Err(self.nothing())
    }

    fn is_wanted(&self, group: &Group<'_>) -> bool {
        self.name.is_some_and(|wanted| {
            group.name == wanted || Uuid::parse(wanted).is_some_and(|u| u.to_string() == group.uuid)
        })
    }

    fn nothing(&self) -> Failure {
        match self.name {
            Some(name) => {
                let message = format!("no member of an array called {name} was found");
                Failure::new(Id::NoArray, message, "parapet examine shows what each disk says")
            }
            None => {
                let message = "no member of an array was found";
                Failure::new(Id::NoArray, message, "parapet create makes one")
            }
        }
    }

    /// Sorts the disks by array: one group if they were named, else one for each array that is
    /// wanted.
    ///
    /// # Errors
    /// If a scan found none, or several where one was meant.
    pub(crate) async fn group<'a>(
        &self,
        disks: &'a [Opened],
    ) -> Result<Vec<(Option<String>, Vec<&'a Opened>)>> {
        if self.scan.is_none() {
            return Ok(vec![(self.name.map(str::to_owned), disks.iter().collect())]);
        }
        let mut groups = sorted(disks).await;
        groups.retain(|group| self.name.is_none() || self.is_wanted(group));
        match (groups.len(), self.name) {
            (0, _) => Err(self.nothing()),
            (2.., Some(name)) => {
                let message = format!("there are {} arrays called {name}", groups.len());
                Err(Failure::new(Id::Foreign, message, "name the UUID; parapet examine shows it"))
            }
            _ => Ok(groups.into_iter().map(|group| (Some(group.uuid), group.disks)).collect()),
        }
    }
}

/// The members of each array among these disks.
async fn sorted(disks: &[Opened]) -> Vec<Group<'_>> {
    let Some(any) = disks.first() else { return Vec::new() };
    let survey = survey(engine::candidates(disks), &any.clock).await;
    for (disk, why) in &survey.damaged {
        tracing::warn!(disk = disk.name, "left out: {why}");
    }
    let members = |candidates: &[array::assemble::Candidate]| {
        let named = |opened: &&Opened| {
            let path = opened.path.display().to_string();
            candidates.iter().any(|candidate| candidate.name == path)
        };
        disks.iter().filter(named).collect()
    };
    let groups = survey.arrays.into_iter();
    groups
        .map(|(uuid, found)| {
            let (uuid, disks) = (uuid.to_string(), members(&found.candidates));
            Group { uuid, name: found.name, disks }
        })
        .collect()
}

/// Assembles and starts one array.
async fn start(
    name: Option<&str>,
    disks: &[&Opened],
    assembly: &AssemblyFlags,
    run: &RunFlags,
    daemon: &Rc<Daemon>,
) -> Result<Rc<Served>> {
    let on = daemon.spawner();
    let found = engine::assemble(disks, &assembly.options(name, run), on).await?;
    engine::tell_notes(&found);
    let served = engine::start(found, disks, run.host(on), daemon).await;
    run.limit(&served.array);
    Ok(daemon.take_in(served))
}
