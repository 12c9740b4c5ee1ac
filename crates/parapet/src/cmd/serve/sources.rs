//! The sources of members: paths, or a folder to search.
//!
//! Opens disks, and groups those that a scan finds by array. Never decides whether an array can
//! start.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use layout::md::Uuid;
use metadata::assemble::survey;
use os::Options;

mod dig;
mod take;

use dig::Digger;
pub(crate) use take::LOOK;
pub(crate) use take::{LeftOut, Taken};

use crate::api::{Resting, RestingMember};
use crate::daemon::{Daemon, Served};
use crate::disks::{self, Opened};
use crate::engine::{self, AssemblyFlags, RunFlags};
use crate::failure::{Failure, Id, Result, of_path};
use crate::places;

/// The sources that the user named.
pub(crate) struct Sources<'a> {
    /// The array, by name or UUID.
    pub(crate) name: Option<&'a str>,
    /// Its members.
    pub(crate) members: &'a [PathBuf],
    /// The folder to search instead.
    pub(crate) scan: Option<&'a Path>,
}

/// An array, and the disks with its superblocks.
pub(crate) struct Group<'a> {
    pub(crate) uuid: String,
    pub(crate) name: String,
    /// The name, with the host in front where the superblock has one.
    full_name: String,
    level: String,
    pub(crate) slots: usize,
    pub(crate) disks: Vec<&'a Opened>,
    /// The role of each disk in the array: `slot 3`, `spare`.
    pub(crate) roles: Vec<String>,
}

impl Group<'_> {
    /// Returns true if a further search may find nothing more. Spares count, too: this is a guess,
    /// good enough to decide which array to try first.
    fn is_full(&self) -> bool {
        self.disks.len() >= self.slots
    }

    fn at_rest(self) -> Resting {
        let member = |(disk, role): (&Opened, String)| RestingMember {
            path: disk.path.display().to_string(),
            role,
        };
        Resting {
            uuid: self.uuid,
            name: self.full_name,
            level: self.level,
            slots: self.slots,
            members: self.disks.into_iter().zip(self.roles).map(member).collect(),
        }
    }
}

impl Sources<'_> {
    /// Builds a hint with the array's name, if known.
    fn named(&self, mut failure: Failure) -> Failure {
        if let Some(name) = self.name {
            failure.action = failure.action.replace("NAME", name);
        }
        failure
    }

    /// Returns the existing paths, and the errors of the others.
    fn present(&self) -> Result<(Vec<PathBuf>, Vec<Failure>)> {
        if self.members.is_empty() {
            let action = "name its members, or --scan a folder for them";
            return Err(Failure::new(Id::Usage, "no member is named", action));
        }
        let (there, missing): (Vec<_>, Vec<_>) =
            self.members.iter().cloned().partition(|path| disks::is_there(path));
        if there.is_empty() {
            return Err(of_path(&missing[0], &std::io::ErrorKind::NotFound.into()));
        }
        for path in &missing {
            tracing::warn!("{}: there is no such file or device", path.display());
        }
        let why = |path: &PathBuf| of_path(path, &std::io::ErrorKind::NotFound.into());
        let why = missing.iter().map(why).collect();
        Ok((there, why))
    }

    /// Starts the requested arrays, inner ones first, and returns the requested ones. Without a
    /// name it starts all arrays found and returns the outermost ones. It only reports those that
    /// cannot start.
    ///
    /// # Errors
    /// If a named array cannot start, or none can.
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
        let taken = self.take(assembly.read_only, daemon).await?;
        let Taken { mut disks, left_out, unreachable, seen } = taken;
        if let Some(path) = &assembly.journal
            && disks.iter().all(|opened| opened.path != *path)
        {
            disks.push(disks::open_one(path, &Options::default(), daemon.spawner()).await?);
        }
        let journal = disks.iter().find(|opened| Some(&opened.path) == assembly.journal.as_ref());
        let all: Vec<&Opened> = disks.iter().collect();
        let groups = sorted(&all).await;
        self.refuse_foreign(&groups)?;
        let own = groups.iter().find(|group| self.is_wanted(group));
        // An array with all its members, and no further candidates, starts at once.
        if self.scan.is_none() && (own.is_some() || groups.len() < 2)
            || own.is_some_and(|own| own.is_full())
        {
            // Search by UUID: the name of a version 0.90 array is not in its superblock.
            let name = own.map(|own| own.uuid.as_str()).or(self.name);
            let mut chosen = match (own, self.scan) {
                (Some(own), Some(_)) => own.disks.clone(),
                _ => all,
            };
            chosen.extend(journal.filter(|journal| chosen.iter().all(|d| d.path != journal.path)));
            let started = start(name, &chosen, (assembly, run), &left_out, daemon).await;
            let served = started.map_err(|why| self.stranger(why, &groups))?;
            served.await_members(&unreachable);
            return Ok(vec![served]);
        }
        let mut digger = Digger::new(self, assembly, run, daemon, &left_out);
        digger.open_nested(&all, false).await?;
        let found = digger.outcome(&seen).await?;
        // Which of the arrays a disk belongs to is known when it answers.
        let has_empty_slot = |served: &&Rc<Served>| {
            served.array.status().slots.iter().any(|slot| slot.member.is_none())
        };
        let arrays = daemon.arrays();
        arrays.iter().filter(has_empty_slot).for_each(|it| it.await_members(&unreachable));
        Ok(found)
    }

    /// Explains that no named disk is a member of the named array, and which arrays the disks
    /// belong to.
    fn stranger(&self, mut why: Failure, groups: &[Group<'_>]) -> Failure {
        let is_known = groups.iter().any(|group| self.name.is_none() || self.is_wanted(group));
        if is_known || why.id != Id::Foreign {
            return why;
        }
        why.id = Id::NoArray;
        for group in groups {
            let paths: Vec<String> =
                group.disks.iter().map(|disk| disk.path.display().to_string()).collect();
            let verb = if paths.len() == 1 { "is a member" } else { "are members" };
            why.message += &format!("; {} {verb} of {}", paths.join(", "), group.full_name);
        }
        why
    }

    /// Starts the requested arrays on these disks and their inner arrays, as [`Sources::gather`]
    /// does after a scan.
    ///
    /// # Errors
    /// If a named array cannot start, or none can.
    pub(crate) async fn gather_from(
        &self,
        disks: &[&Opened],
        assembly: &AssemblyFlags,
        run: &RunFlags,
        daemon: &Rc<Daemon>,
    ) -> Result<Vec<Rc<Served>>> {
        let mut digger = Digger::new(self, assembly, run, daemon, &[]);
        digger.open_nested(disks, false).await?;
        digger.outcome(&BTreeSet::new()).await
    }

    /// Starts all arrays found, inner ones included. In read-only mode it does not hold their
    /// disks: the process must be able to open them again afterwards.
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
        let taken = self.take(assembly.read_only, daemon).await?;
        let Taken { mut disks, left_out, seen, .. } = taken;
        if assembly.read_only {
            // The scan left out disks in use by others; release our own here.
            let paths: Vec<PathBuf> = disks.drain(..).map(|opened| opened.path).collect();
            for path in &paths {
                disks.push(disks::open_one(path, &LOOK, on).await?);
            }
        }
        let all: Vec<&Opened> = disks.iter().collect();
        let mut digger = Digger::new(self, assembly, run, daemon, &left_out);
        digger.open_nested(&all, false).await?;
        match daemon.arrays() {
            none if none.is_empty() => digger.outcome(&seen).await,
            arrays => Ok(arrays),
        }
    }

    /// Starts the inner arrays of the requested array, but not that array itself. Returns its
    /// members among these disks, and the inner arrays.
    ///
    /// # Errors
    /// If no such array is found.
    pub(crate) async fn members_of_wanted<'a>(
        &self,
        taken: &'a Taken,
        daemon: &Rc<Daemon>,
    ) -> Result<(Vec<&'a Opened>, Vec<Opened>)> {
        let all: Vec<&Opened> = taken.disks.iter().collect();
        if self.scan.is_none() {
            // The user named each of these disks, so all of them count.
            return Ok((all, Vec::new()));
        }
        let groups = sorted(&all).await;
        let own = groups.iter().find(|group| self.is_wanted(group));
        if let Some(own) = own.filter(|own| own.is_full() || groups.len() < 2) {
            return Ok((own.disks.clone(), Vec::new()));
        }
        let (assembly, run) =
            (AssemblyFlags { degraded: true, ..Default::default() }, RunFlags::default());
        let mut digger = Digger::new(self, &assembly, &run, daemon, &taken.left_out);
        let paths = digger.open_nested(&all, true).await?;
        let Some(paths) = paths else {
            digger.release(&[]).await;
            return Err(self.nothing(&taken.seen));
        };
        let files = all.into_iter().filter(|disk| paths.contains(&disk.path)).collect();
        let arrays =
            digger.tops().into_iter().map(|top| Opened::array(&top.array, daemon.spawner()));
        let inner: Vec<Opened> = arrays.filter(|array| paths.contains(&array.path)).collect();
        digger.release(&inner).await;
        Ok((files, inner))
    }

    /// Refuses disks of other arrays: the user named each disk, so each must belong to the array.
    fn refuse_foreign(&self, groups: &[Group<'_>]) -> Result<()> {
        let own = groups.iter().position(|group| self.is_wanted(group));
        let (Some(own), None) = (own, self.scan) else { return Ok(()) };
        let others = groups.iter().enumerate().filter(|(index, _)| *index != own);
        // Several arrays may have one name.
        let called = |group: &Group<'_>| {
            let namesakes = groups.iter().filter(|other| other.name == group.name).count();
            match namesakes {
                1 => group.name.clone(),
                _ => format!("{} ({})", group.name, group.uuid),
            }
        };
        let listed: Vec<String> = others
            .flat_map(|(_, group)| {
                let name = called(group);
                group
                    .disks
                    .iter()
                    .map(move |disk| format!("{} is a member of {name}", disk.path.display()))
            })
            .collect();
        if listed.is_empty() {
            return Ok(());
        }
        let message = format!("{}, not of {}", listed.join(", "), called(&groups[own]));
        Err(Failure::new(
            Id::Foreign,
            message,
            "leave them out; parapet examine DISK shows what is on a disk",
        ))
    }

    fn is_wanted(&self, group: &Group<'_>) -> bool {
        self.is_called([&group.name, &group.full_name], &group.uuid)
    }

    /// Returns true if the user requested one of these names, or this UUID.
    fn is_called(&self, names: [&str; 2], uuid: &str) -> bool {
        self.name.is_some_and(|wanted| {
            names.contains(&wanted) || Uuid::parse(wanted).is_some_and(|u| u.to_string() == uuid)
        })
    }

    /// Refuses if several arrays have the name.
    fn refuse_several(&self, own: &[&Group<'_>]) -> Result<()> {
        let (Some(name), [_, _, ..]) = (self.name, own) else { return Ok(()) };
        let listed: Vec<String> = own
            .iter()
            .map(|group| {
                let paths = group.disks.iter().map(|disk| disk.path.display().to_string());
                format!("{} ({})", group.uuid, paths.collect::<Vec<_>>().join(" "))
            })
            .collect();
        let message = format!("{} arrays are called {name}: {}", own.len(), listed.join(", "));
        Err(Failure::new(Id::Foreign, message, "say the UUID in place of the name"))
    }

    /// Explains that nothing was found, in a folder with members of these arrays.
    fn nothing(&self, seen: &BTreeSet<String>) -> Failure {
        let place = match self.scan {
            Some(folder) => format!(" in {} (folders below are not searched)", folder.display()),
            None => String::new(),
        };
        let others = match seen.iter().map(String::as_str).collect::<Vec<_>>() {
            names if names.is_empty() => String::new(),
            names => format!("; arrays there: {}", names.join(", ")),
        };
        let message = match self.name {
            Some(name) => format!("no member of an array called {name} was found{place}{others}"),
            None => format!("no member of an array was found{place}{others}"),
        };
        Failure::new(Id::NoArray, message, "parapet examine DISK shows what is on a disk")
    }
}

/// Returns the paths of those disks that are members of some array.
pub(crate) async fn members_among(disks: &[&Opened]) -> Vec<PathBuf> {
    let groups = sorted(disks).await;
    groups.iter().flat_map(|group| &group.disks).map(|disk| disk.path.clone()).collect()
}

/// Returns the arrays with members in this folder, by name. Reads only, including disks in use.
///
/// # Errors
/// If the folder cannot be read.
pub(crate) async fn resting(folder: &Path, on: &os::Spawner) -> Result<Vec<Resting>> {
    let mut seen = Vec::new();
    for path in disks::scan(folder, on).await? {
        seen.extend(disks::open_one(&path, &LOOK, on).await.ok());
    }
    let all: Vec<&Opened> = seen.iter().collect();
    let (groups, damaged) = survey_of(&all).await;
    for (disk, why) in damaged {
        tracing::warn!("{disk}: left out: {why}");
    }
    let mut found: Vec<Resting> = groups.into_iter().map(Group::at_rest).collect();
    found.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(found)
}

/// Groups these disks by array.
async fn sorted<'a>(disks: &[&'a Opened]) -> Vec<Group<'a>> {
    survey_of(disks).await.0
}

/// Groups these disks by array; also returns the disks with a damaged superblock, with the cause.
pub(crate) async fn survey_of<'a>(disks: &[&'a Opened]) -> (Vec<Group<'a>>, Vec<(String, String)>) {
    let Some(any) = disks.first() else { return Default::default() };
    let survey = survey(engine::candidates(disks.iter().copied()), &any.clock).await;
    let damaged = survey.damaged.into_iter().map(|(disk, why)| (disk.name, why)).collect();
    let disk_of = |candidate: &metadata::assemble::Candidate| {
        let is_it = |opened: &&&'a Opened| opened.name() == candidate.name;
        disks.iter().find(is_it).copied()
    };
    let groups = survey.arrays.into_iter().map(|(uuid, found)| {
        let uuid = uuid.to_string();
        let name = places::array_name(&found.name, &uuid);
        let full_name = places::array_name(&found.full_name, &uuid);
        let known = found.candidates.iter().zip(&found.roles);
        let known = known.filter_map(|(candidate, &role)| Some((disk_of(candidate)?, role)));
        let mut known: Vec<(&Opened, String)> =
            known.map(|(disk, role)| (disk, engine::role_word(role))).collect();
        known.sort_by(|(a, _), (b, _)| a.path.cmp(&b.path));
        let (disks, roles) = known.into_iter().unzip();
        let level = found.level.map_or(String::new(), |level| level.to_string());
        Group { uuid, name, full_name, level, slots: found.slots as usize, disks, roles }
    });
    (groups.collect(), damaged)
}

/// Assembles and starts one array.
///
/// # Errors
/// If it cannot start.
pub(crate) async fn start(
    name: Option<&str>,
    disks: &[&Opened],
    (assembly, run): (&AssemblyFlags, &RunFlags),
    left_out: &[LeftOut],
    daemon: &Rc<Daemon>,
) -> Result<Rc<Served>> {
    let on = daemon.spawner();
    let uuid = name.unwrap_or_default();
    let found = engine::assemble(disks, &assembly.options(name, run), on).await;
    let found = found.map_err(|why| take::explain(why, uuid, left_out))?;
    take::warn(&found.facts().name, uuid, left_out);
    if !daemon.reports_notes() {
        engine::log_notes(&found);
    }
    let served = engine::start(found, disks, run.host(on), daemon).await?;
    run.limit(&served.array);
    Ok(daemon.take_in(served))
}

/// As [`start`], without log lines: for a look at inner arrays.
async fn start_quietly(
    name: Option<&str>,
    disks: &[&Opened],
    (assembly, run): (&AssemblyFlags, &RunFlags),
    daemon: &Rc<Daemon>,
) -> Result<Rc<Served>> {
    let on = daemon.spawner();
    let found = engine::assemble(disks, &assembly.options(name, run), on).await?;
    Ok(daemon.take_in(engine::start(found, disks, run.host(on), daemon).await?))
}
