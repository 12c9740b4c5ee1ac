//! Where the members of arrays come from: paths, or a folder to look through.
//!
//! Opens disks, and sorts what a scan finds by array. Never decides whether an array can start.

use std::path::{Path, PathBuf};

use array::assemble::survey;
use os::{Options, Spawner};

use crate::disks::{self, Opened};
use crate::engine;
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

/// The array wanted, and the disks that may be its members.
type Group<'a> = (Option<String>, Vec<&'a Opened>);

impl Sources<'_> {
    /// Opens the disks.
    ///
    /// # Errors
    /// If one of those named cannot be opened. That one is missing is only said: whether the array can
    /// do without it is seen later.
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

    /// Sorts the disks by array: one group if they were named, else one for each array that is wanted.
    ///
    /// # Errors
    /// If a scan found none, or several where one was meant.
    pub(crate) async fn group<'a>(&self, disks: &'a [Opened]) -> Result<Vec<Group<'a>>> {
        if self.scan.is_none() {
            return Ok(vec![(self.name.map(str::to_owned), disks.iter().collect())]);
        }
        let survey = survey(engine::candidates(disks)).await;
        let uuid = self.name.and_then(layout::md::Uuid::parse);
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
