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

/// The array wanted, and the disks that may be its members.
type Group<'a> = (Option<String>, Vec<&'a Opened>);

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
        let mut layer = Vec::new();
        let inside = match self.name {
            Some(name) => !is_among(&disks, name).await && self.is_inside(&disks).await,
            None => false,
        };
        let groups = match inside {
            false => self.group(&disks).await?,
            true => every_group(&disks).await,
        };
        for (name, disks) in groups {
            layer.push(start(name.as_deref(), &disks, assembly, run, daemon).await?);
        }
        if !inside {
            return Ok(layer);
        }
        for _ in 0..DEPTH {
            let wanted = |served: &&Rc<Served>| self.is_wanted(served.uuid(), served.array.name());
            if let Some(found) = layer.iter().find(wanted) {
                return Ok(vec![Rc::clone(found)]);
            }
            let disks: Vec<Opened> =
                layer.iter().map(|inner| Opened::array(&inner.array)).collect();
            let mut outer = Vec::new();
            for (name, members) in every_group(&disks).await {
                let served = start(name.as_deref(), &members, assembly, run, daemon).await?;
                for inner in &layer {
                    let path = Opened::array(&inner.array).path;
                    if members.iter().any(|member| member.path == path) {
                        inner.put_inside(&served);
                    }
                }
                outer.push(served);
            }
            if outer.is_empty() {
                break;
            }
            layer = outer;
        }
        let message = format!("no member of an array called {} was found", self.name.unwrap_or(""));
        Err(Failure::new(Id::NoArray, message, "parapet examine shows what each disk says"))
    }

    fn is_wanted(&self, uuid: &str, name: &str) -> bool {
        let same = |wanted: &str| Uuid::parse(wanted).is_some_and(|u| u.to_string() == uuid);
        self.name.is_some_and(|wanted| wanted == name || same(wanted))
    }

    /// True if there are arrays among these disks at all, and the wanted one may be made of them.
    async fn is_inside(&self, disks: &[Opened]) -> bool {
        let survey = survey(engine::candidates(disks)).await;
        survey.arrays.len() > 1
    }

    /// Sorts the disks by array: one group if they were named, else one for each array that is
    /// wanted.
    ///
    /// # Errors
    /// If a scan found none, or several where one was meant.
    pub(crate) async fn group<'a>(&self, disks: &'a [Opened]) -> Result<Vec<Group<'a>>> {
        if self.scan.is_none() {
            return Ok(vec![(self.name.map(str::to_owned), disks.iter().collect())]);
        }
        let survey = survey(engine::candidates(disks)).await;
        let uuid = self.name.and_then(Uuid::parse);
        let mut groups = Vec::new();
        for (identity, group) in survey.arrays {
            if self.name.is_some_and(|name| uuid != Some(identity) && group.name != name) {
                continue;
            }
            let named = |opened: &&Opened| {
                let path = opened.path.display().to_string();
                group.candidates.iter().any(|candidate| candidate.name == path)
            };
            groups.push((Some(identity.to_string()), disks.iter().filter(named).collect()));
        }
        match (groups.len(), self.name) {
            (0, Some(name)) => {
                let message = format!("no member of an array called {name} was found");
                Err(Failure::new(Id::NoArray, message, "parapet examine shows what each disk says"))
            }
            (0, None) => {
                let message = "no member of an array was found";
                Err(Failure::new(Id::NoArray, message, "parapet create makes one"))
            }
            (2.., Some(name)) if uuid.is_none() => {
                let message = format!("there are {} arrays called {name}", groups.len());
                Err(Failure::new(Id::Foreign, message, "name the UUID; parapet examine shows it"))
            }
            _ => Ok(groups),
        }
    }
}

/// True if a disk says it is a member of this array.
async fn is_among(disks: &[Opened], wanted: &str) -> bool {
    let survey = survey(engine::candidates(disks)).await;
    let uuid = Uuid::parse(wanted);
    survey.arrays.iter().any(|(found, group)| uuid == Some(*found) || group.name == wanted)
}

/// The members of each array among these disks.
async fn every_group(disks: &[Opened]) -> Vec<Group<'_>> {
    let survey = survey(engine::candidates(disks)).await;
    let members = |candidates: &[array::assemble::Candidate]| {
        let named = |opened: &&Opened| {
            let path = opened.path.display().to_string();
            candidates.iter().any(|candidate| candidate.name == path)
        };
        disks.iter().filter(named).collect()
    };
    let groups = survey.arrays.into_iter();
    groups.map(|(uuid, group)| (Some(uuid.to_string()), members(&group.candidates))).collect()
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
    let found = engine::assemble(disks, &assembly.options(name), on).await?;
    engine::tell_notes(&found);
    let served = engine::start(found, disks, &run.host(on)).await;
    run.limit(&served.array);
    Ok(daemon.take_in(served))
}
