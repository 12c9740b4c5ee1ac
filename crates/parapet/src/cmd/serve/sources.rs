//! Where the members of arrays come from: paths, or a folder to look through.
//!
//! Opens disks, and sorts what a scan finds by array. Never decides whether an array can start.

use std::path::{Path, PathBuf};
use std::rc::Rc;

use array::assemble::survey;
use layout::md::Uuid;
use os::{Options, Spawner};

mod dig;

use dig::Digger;

use crate::daemon::{Daemon, Served};
use crate::disks::{self, Opened};
use crate::engine::{self, AssemblyFlags, RunFlags};
use crate::failure::{Failure, Id, Result, of_path};
use crate::places;

/// What the user named.
pub(crate) struct Sources<'a> {
    /// The array, by name or UUID.
    pub(crate) name: Option<&'a str>,
    /// Its members.
    pub(crate) members: &'a [PathBuf],
    /// The folder to look through instead.
    pub(crate) scan: Option<&'a Path>,
}

/// An array, and the disks that say they are its members.
struct Group<'a> {
    uuid: String,
    name: String,
    slots: usize,
    disks: Vec<&'a Opened>,
}

impl Group<'_> {
    /// True if there may be nothing more to find. Spares count, too: a guess, good enough to decide
    /// what is tried first.
    fn is_full(&self) -> bool {
        self.disks.len() >= self.slots
    }
}

impl Sources<'_> {
    /// Opens the disks.
    ///
    /// # Errors
    /// If one of those named cannot be opened. That one is missing is only said: whether the array
    /// can do without it is seen later.
    pub(crate) fn open(&self, read_only: bool, on: &Spawner) -> Result<Vec<Opened>> {
        let Some(folder) = self.scan else {
            let opened = disks::open(&self.present()?, read_only, on);
            return opened.map_err(|failure| self.named(failure));
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

    /// A hint with the array's name, where it is known.
    fn named(&self, mut failure: Failure) -> Failure {
        if let Some(name) = self.name {
            failure.action = failure.action.replace("NAME", name);
        }
        failure
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

    /// Starts the arrays that are wanted, and first those inside them; gives the ones wanted. All
    /// that are found, if none is named: then those inside others are not among what is given, and
    /// one that cannot be started is only told of.
    ///
    /// # Errors
    /// If one that is named cannot be started, or none can.
    pub(crate) async fn gather(
        &self,
        assembly: &AssemblyFlags,
        run: &RunFlags,
        daemon: &Rc<Daemon>,
    ) -> Result<Vec<Rc<Served>>> {
        let changes = assembly.consistency.is_some() || assembly.checksums.is_some();
        let changes = changes || assembly.journal.is_some();
        if changes && self.name.is_none() && self.scan.is_some() {
            let message =
                "a consistency policy, checksums, or a journal are for one array; none is named";
            return Err(Failure::new(Id::Usage, message, "say which: NAME before --scan"));
        }
        let mut disks = self.open(assembly.read_only, daemon.spawner())?;
        if let Some(path) = &assembly.journal
            && disks.iter().all(|opened| opened.path != *path)
        {
            disks.push(disks::open_one(path, &Options::default(), daemon.spawner())?);
        }
        let journal = disks.iter().find(|opened| Some(&opened.path) == assembly.journal.as_ref());
        let all: Vec<&Opened> = disks.iter().collect();
        let groups = sorted(&all).await;
        self.refuse_foreign(&groups)?;
        let own = groups.iter().find(|group| self.is_wanted(group));
        // What has all its members, or nothing that might be one besides, is started at once.
        if self.scan.is_none() && (own.is_some() || groups.len() < 2)
            || own.is_some_and(|own| own.is_full())
        {
            let mut arrays = Vec::new();
            // By its identity: one of version 0.90 is called what it does not know itself.
            let uuid = own.map(|own| own.uuid.as_str());
            for (name, mut disks) in self.group(&disks, daemon.spawner()).await? {
                let name = uuid.or(name.as_deref());
                disks
                    .extend(journal.filter(|journal| disks.iter().all(|d| d.path != journal.path)));
                arrays.push(start(name, &disks, assembly, run, daemon).await?);
            }
            return Ok(arrays);
        }
        self.gather_from(&all, assembly, run, daemon).await
    }

    /// Starts the arrays that are wanted among these disks, as [`Sources::gather`] does after a
    /// scan; also those inside them.
    ///
    /// # Errors
    /// If one that is named cannot be started, or none can.
    pub(crate) async fn gather_from(
        &self,
        disks: &[&Opened],
        assembly: &AssemblyFlags,
        run: &RunFlags,
        daemon: &Rc<Daemon>,
    ) -> Result<Vec<Rc<Served>>> {
        let mut digger = Digger::new(self, assembly, run, daemon);
        digger.dig(disks, false).await?;
        digger.outcome().await
    }

    /// Starts all arrays that are found, those inside others too. Read-only, their disks are not
    /// held: somebody who only looks must not be in the way of himself afterwards.
    ///
    /// # Errors
    /// If there is none.
    pub(crate) async fn everything(
        &self,
        assembly: &AssemblyFlags,
        run: &RunFlags,
        daemon: &Rc<Daemon>,
    ) -> Result<Vec<Rc<Served>>> {
        let on = daemon.spawner();
        let mut disks = self.open(assembly.read_only, on)?;
        if assembly.read_only {
            // What others hold was left out; ours are let go of.
            let paths: Vec<PathBuf> = disks.drain(..).map(|opened| opened.path).collect();
            let look = Options { read_only: true, lock: false, ..Options::default() };
            let opened = paths.iter().map(|path| disks::open_one(path, &look, on));
            disks = opened.collect::<Result<_>>()?;
        }
        let all: Vec<&Opened> = disks.iter().collect();
        let mut digger = Digger::new(self, assembly, run, daemon);
        digger.dig(&all, false).await?;
        match daemon.arrays() {
            none if none.is_empty() => digger.outcome().await,
            arrays => Ok(arrays),
        }
    }

    /// Starts the arrays that the one that is wanted is made of, but not itself; gives its members
    /// among these disks, and these arrays.
    ///
    /// # Errors
    /// If it is not found.
    pub(crate) async fn members_of_wanted<'a>(
        &self,
        disks: &'a [Opened],
        daemon: &Rc<Daemon>,
    ) -> Result<(Vec<&'a Opened>, Vec<Opened>)> {
        let all: Vec<&Opened> = disks.iter().collect();
        let groups = sorted(&all).await;
        let own = groups.iter().find(|group| self.is_wanted(group));
        // Disks that were named one by one are all meant.
        let named = self.scan.is_none() && own.is_some();
        if named || own.is_some_and(Group::is_full) || groups.len() < 2 {
            let mut chosen = match self.group(disks, daemon.spawner()).await {
                Err(failure) if failure.id == Id::NoArray => {
                    return Err(self.nothing_inside(disks, daemon).await);
                }
                chosen => chosen?,
            };
            return Ok((chosen.pop().map(|(_, disks)| disks).unwrap_or_default(), Vec::new()));
        }
        let (assembly, run) =
            (AssemblyFlags { degraded: true, ..Default::default() }, RunFlags::default());
        let mut digger = Digger::new(self, &assembly, &run, daemon);
        let paths = digger.dig(&all, true).await?;
        let Some(paths) = paths else {
            digger.release(&[]).await;
            return Err(self.nothing_inside(disks, daemon).await);
        };
        let files = all.into_iter().filter(|disk| paths.contains(&disk.path)).collect();
        let arrays =
            digger.tops().into_iter().map(|top| Opened::array(&top.array, daemon.spawner()));
        let inner: Vec<Opened> = arrays.filter(|array| paths.contains(&array.path)).collect();
        digger.release(&inner).await;
        Ok((files, inner))
    }

    /// Disks that were named one by one all mean something.
    fn refuse_foreign(&self, groups: &[Group<'_>]) -> Result<()> {
        let own = groups.iter().position(|group| self.is_wanted(group));
        let (Some(own), None) = (own, self.scan) else { return Ok(()) };
        let others = groups.iter().enumerate().filter(|(index, _)| *index != own);
        let told: Vec<String> = others
            .flat_map(|(_, group)| {
                let name = &group.name;
                group
                    .disks
                    .iter()
                    .map(move |disk| format!("{} is a member of {name}", disk.path.display()))
            })
            .collect();
        if told.is_empty() {
            return Ok(());
        }
        let message = format!("{}, not of {}", told.join(", "), groups[own].name);
        Err(Failure::new(Id::Foreign, message, "leave it out; parapet examine shows what it is"))
    }

    fn is_wanted(&self, group: &Group<'_>) -> bool {
        self.is_called(&group.name, &group.uuid)
    }

    fn is_called(&self, name: &str, uuid: &str) -> bool {
        self.name.is_some_and(|wanted| {
            name == wanted || Uuid::parse(wanted).is_some_and(|found| found.to_string() == uuid)
        })
    }

    /// That nothing was found: because somebody has it, if so.
    async fn nothing(&self, on: &Spawner) -> Failure {
        if let Some(busy) = self.busy(on).await {
            return busy;
        }
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

    /// Who has the array that is wanted, or some array where none is named: found by looking at
    /// disks that cannot be had.
    async fn busy(&self, on: &Spawner) -> Option<Failure> {
        let paths = disks::scan(self.scan?).ok()?;
        for path in paths {
            let refused =
                disks::open_one(&path, &Options { read_only: true, ..Options::default() }, on);
            let Some(failure) = refused.err().filter(|failure| failure.id == Id::Busy) else {
                continue;
            };
            let look = Options { read_only: true, lock: false, ..Options::default() };
            let Ok(opened) = disks::open_one(&path, &look, on) else { continue };
            let groups = sorted(&[&opened]).await;
            let Some(group) = groups.first() else { continue };
            if self.name.is_none() || self.is_wanted(group) {
                let message = format!("{} is in use; {}", group.name, failure.message);
                let action = failure.action.replace("NAME", &group.name);
                return Some(Failure::new(Id::Busy, message, action));
            }
        }
        None
    }

    /// That nothing was found; or that the array that is wanted is in use, if it is made of arrays:
    /// that is found by looking into these, without writing anything. `ours` are open already.
    async fn nothing_inside(&self, ours: &[Opened], daemon: &Rc<Daemon>) -> Failure {
        let on = daemon.spawner();
        let nothing = self.nothing(on).await;
        if nothing.id == Id::Busy {
            return nothing;
        }
        self.held_inside(ours, daemon).await.unwrap_or(nothing)
    }

    async fn held_inside(&self, ours: &[Opened], daemon: &Rc<Daemon>) -> Option<Failure> {
        let (name, on) = (self.name?, daemon.spawner());
        let paths = disks::scan(self.scan?).ok()?;
        let look = Options { read_only: true, lock: false, ..Options::default() };
        let seen = |path: &PathBuf| disks::open_one(path, &look, on).ok();
        let disks: Vec<Opened> = paths.iter().filter_map(seen).collect();
        let all: Vec<&Opened> = disks.iter().collect();
        let assembly =
            AssemblyFlags { degraded: true, read_only: true, ..AssemblyFlags::default() };
        let run = RunFlags::default();
        let mut digger = Digger::new(self, &assembly, &run, daemon);
        let found = digger.dig(&all, true).await;
        digger.release(&[]).await;
        found.ok()??;
        // Somebody else has what was not to be had.
        let locked = Options { lock: true, ..look };
        let groups = sorted(&all).await;
        let members = groups.iter().flat_map(|group| &group.disks);
        let others = members.filter(|disk| ours.iter().all(|our| our.path != disk.path));
        let refusals = others.filter_map(|disk| disks::open_one(&disk.path, &locked, on).err());
        let busy = refusals.into_iter().find(|failure| failure.id == Id::Busy)?;
        let message = format!("{name} is in use; {}", busy.message);
        Some(Failure::new(Id::Busy, message, busy.action.replace("NAME", name)))
    }

    /// Sorts the disks by array: one group if they were named, else one for each array that is
    /// wanted.
    ///
    /// # Errors
    /// If a scan found none, or several where one was meant.
    pub(crate) async fn group<'a>(
        &self,
        disks: &'a [Opened],
        on: &Spawner,
    ) -> Result<Vec<(Option<String>, Vec<&'a Opened>)>> {
        if self.scan.is_none() {
            return Ok(vec![(self.name.map(str::to_owned), disks.iter().collect())]);
        }
        let all: Vec<&Opened> = disks.iter().collect();
        let mut groups = sorted(&all).await;
        groups.retain(|group| self.name.is_none() || self.is_wanted(group));
        match (groups.len(), self.name) {
            (0, _) => Err(self.nothing(on).await),
            (2.., Some(name)) => {
                let message = format!("there are {} arrays called {name}", groups.len());
                Err(Failure::new(Id::Foreign, message, "name the UUID; parapet examine shows it"))
            }
            _ => Ok(groups.into_iter().map(|group| (Some(group.uuid), group.disks)).collect()),
        }
    }
}

/// The paths of those among these disks that are members of some array.
pub(crate) async fn members_among(disks: &[&Opened]) -> Vec<PathBuf> {
    let groups = sorted(disks).await;
    groups.iter().flat_map(|group| &group.disks).map(|disk| disk.path.clone()).collect()
}

/// The members of each array among these disks.
async fn sorted<'a>(disks: &[&'a Opened]) -> Vec<Group<'a>> {
    let Some(any) = disks.first() else { return Vec::new() };
    let survey = survey(engine::candidates(disks.iter().copied()), &any.clock).await;
    for (disk, why) in &survey.damaged {
        tracing::warn!(disk = disk.name, "left out: {why}");
    }
    let members = |candidates: &[array::assemble::Candidate]| {
        let named = |opened: &&&'a Opened| {
            let path = opened.path.display().to_string();
            candidates.iter().any(|candidate| candidate.name == path)
        };
        disks.iter().filter(named).copied().collect()
    };
    let groups = survey.arrays.into_iter();
    groups
        .map(|(uuid, found)| {
            let (uuid, disks) = (uuid.to_string(), members(&found.candidates));
            let name = places::array_name(&found.name, &uuid);
            Group { uuid, name, slots: found.slots as usize, disks }
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
    let served = engine::start(found, disks, run.host(on), daemon).await?;
    run.limit(&served.array);
    Ok(daemon.take_in(served))
}
