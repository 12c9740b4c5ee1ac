//! A scan: reads every disk of a folder, then takes only the members of the arrays asked for.
//!
//! ```text
//!    look   every file and device, read-only, without locks     which disk belongs to which array
//!    need   the arrays asked for, and those inside them         read-only, from memory
//!    take   their members, one array at a time, exclusively
//!    verify the superblocks again, under the locks              a disk that changed is left out
//! ```
//!
//! Invariant: a scan never holds a disk of an array that was not requested. So any number of
//! servers can start at once. Two servers that want the same array take its members in the same
//! order: the first one gets all, the other one none.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::rc::Rc;

use os::{Options, Spawner};

use super::{Digger, Group, Sources, sorted, survey_of};
use crate::daemon::Daemon;
use crate::disks::{self, Opened};
use crate::engine::{AssemblyFlags, RunFlags};
use crate::failure::{Failure, Id, Result};
use crate::remote::is_remote;

/// Neither writes nor locks: other users of the disk are not affected.
pub(crate) const LOOK: Options =
    Options { direct: os::Direct::Auto, read_only: true, create_bytes: None, lock: false };

/// The disks that a command works with.
#[derive(Default)]
pub(crate) struct Taken {
    /// Open, and locked if the command may write.
    pub(crate) disks: Vec<Opened>,
    /// Disks that could not be opened or used.
    pub(crate) left_out: Vec<LeftOut>,
    /// Named disks on other machines that did not answer: they may come back.
    pub(crate) unreachable: Vec<PathBuf>,
    /// The names of all arrays with a member in the scan.
    pub(super) seen: BTreeSet<String>,
}

/// A disk that could not be opened or used.
#[derive(Clone, Debug)]
pub(crate) struct LeftOut {
    /// Its array, and its role there; none if it could not be read.
    member: Option<(String, String)>,
    why: Failure,
}

impl LeftOut {
    fn is_of(&self, uuid: &str) -> bool {
        self.member.as_ref().is_some_and(|(array, _)| array == uuid)
    }

    fn sentence(&self) -> String {
        match &self.member {
            Some((_, role)) => format!("{role}: {}", self.why.message),
            None => format!("not examined: {}", self.why.message),
        }
    }
}

/// Adds the disks that a failed array lacks to the error, with the causes.
pub(super) fn explain(mut failure: Failure, uuid: &str, left_out: &[LeftOut]) -> Failure {
    let own: Vec<&LeftOut> = left_out.iter().filter(|disk| disk.is_of(uuid)).collect();
    let unknown = left_out.iter().filter(|disk| disk.member.is_none());
    let sentences: Vec<String> =
        own.iter().copied().chain(unknown).map(LeftOut::sentence).collect();
    if sentences.is_empty() {
        return failure;
    }
    failure.message = format!("{}; {}", sentences.join("; "), failure.message);
    if !own.is_empty() {
        failure.action = actions(own);
    }
    failure
}

/// Warns of the disks missing from a started array.
pub(super) fn warn(array: &str, uuid: &str, left_out: &[LeftOut]) {
    for disk in left_out.iter().filter(|disk| disk.is_of(uuid)) {
        tracing::warn!("{array}: left out: {}", disk.sentence());
    }
}

/// Lists the remedies for these disks, each once.
fn actions<'a>(disks: impl IntoIterator<Item = &'a LeftOut>) -> String {
    let actions: BTreeSet<&str> =
        disks.into_iter().map(|disk| disk.why.action.as_str()).filter(|a| !a.is_empty()).collect();
    actions.into_iter().collect::<Vec<_>>().join("; ")
}

/// A member found by the look.
struct Sighted {
    path: PathBuf,
    role: String,
}

/// An array found by the look.
struct Array {
    uuid: String,
    name: String,
    members: Vec<Sighted>,
}

impl Sources<'_> {
    /// Opens the named disks, or the members that a scan found of the requested arrays.
    ///
    /// If a named disk cannot be opened; if the requested array is in use, or none of its members
    /// can be opened. A named disk that does not exist is only left out.
    pub(crate) async fn take(&self, read_only: bool, daemon: &Rc<Daemon>) -> Result<Taken> {
        let on = daemon.spawner();
        let Some(folder) = self.scan else { return self.take_named(read_only, on).await };
        let mut taken = Taken::default();
        let mut seen = Vec::new();
        for path in disks::scan(folder, on).await? {
            match disks::open_one(&path, &LOOK, on).await {
                Ok(opened) => seen.push(opened),
                Err(why) => taken.left_out.push(LeftOut { member: None, why }),
            }
        }
        let arrays = self.needed(&seen, &mut taken, daemon).await?;
        // Close the disks of the look before taking the members.
        drop(seen);
        let mut failures = Vec::new();
        for array in &arrays {
            match take_array(array, read_only, &mut taken, on).await {
                Ok(()) => {}
                Err(why) if self.name.is_some() => return Err(self.named_inside(why, array)),
                Err(why) => failures.push(why),
            }
        }
        verify(&arrays, &mut taken).await;
        match (taken.disks.is_empty(), failures.pop()) {
            (true, Some(why)) => Err(why),
            (_, why) => {
                for why in failures.into_iter().chain(why) {
                    daemon.lack_another();
                    tracing::info!("not started: {why}");
                }
                Ok(taken)
            }
        }
    }

    /// Opens the named disks. One on another machine that cannot be reached is left out, as a file
    /// that does not exist.
    async fn take_named(&self, read_only: bool, on: &Spawner) -> Result<Taken> {
        let (there, missing) = self.present()?;
        disks::refuse_same(&there)?;
        let options = Options { read_only, ..Options::default() };
        let mut taken = Taken::default();
        let lost = |why| LeftOut { member: None, why };
        taken.left_out = missing.into_iter().map(lost).collect();
        for path in &there {
            match disks::open_retrying(path, &options, on).await.map_err(Failure::from) {
                Ok(opened) => taken.disks.push(opened),
                Err(why) if is_remote(path) && why.id == Id::Missing => {
                    tracing::warn!("{why}");
                    taken.unreachable.push(path.clone());
                    taken.left_out.push(lost(why));
                }
                Err(why) => return Err(self.named(why)),
            }
        }
        match (taken.disks.is_empty(), taken.left_out.first()) {
            (true, Some(first)) => Err(first.why.clone()),
            _ => Ok(taken),
        }
    }

    /// Names both arrays if one inside the requested array is in the way.
    fn named_inside(&self, mut why: Failure, array: &Array) -> Failure {
        let wanted = self.name.unwrap_or_default();
        if !self.is_called([&array.name, &array.name], &array.uuid) && array.uuid != wanted {
            why.message = format!("{wanted} is in use; {}", why.message);
            why.action = why.action.replace(&array.name, wanted);
        }
        why
    }

    /// Returns the arrays whose members the command takes.
    async fn needed(
        &self,
        seen: &[Opened],
        taken: &mut Taken,
        daemon: &Rc<Daemon>,
    ) -> Result<Vec<Array>> {
        let all: Vec<&Opened> = seen.iter().collect();
        let (groups, damaged) = survey_of(&all).await;
        for (disk, why) in damaged {
            tracing::warn!("{disk}: left out: {why}");
        }
        taken.seen = groups.iter().map(|group| group.name.clone()).collect();
        let arrays = |wanted: &dyn Fn(&Group<'_>) -> bool| {
            groups.iter().filter(|group| wanted(group)).map(Array::of).collect::<Vec<_>>()
        };
        if self.name.is_none() {
            return Ok(arrays(&|_| true));
        }
        let own: Vec<&Group<'_>> = groups.iter().filter(|group| self.is_wanted(group)).collect();
        self.refuse_several(&own)?;
        let complete = own.first().is_some_and(|own| own.is_full());
        if complete || groups.len() == own.len() {
            return Ok(arrays(&|group| self.is_wanted(group)));
        }
        let inside = self.inside(&all, daemon).await?;
        let is_inside = |group: &Group<'_>| {
            group.disks.iter().any(|disk| inside.contains(&disk.path)) || self.is_wanted(group)
        };
        Ok(arrays(&is_inside))
    }

    /// Returns the paths of the requested array's members, down to those of inner arrays. To find
    /// them, it starts the inner arrays read-only on unlocked disks.
    async fn inside(&self, all: &[&Opened], daemon: &Rc<Daemon>) -> Result<BTreeSet<PathBuf>> {
        let (assembly, run) = (
            AssemblyFlags { degraded: true, read_only: true, ..AssemblyFlags::default() },
            RunFlags::default(),
        );
        let mut digger = Digger::new(self, &assembly, &run, daemon, &[]).quietly();
        let found = digger.open_nested(all, true).await;
        let made_of = std::mem::take(&mut digger.made_of);
        digger.release(&[]).await;
        Ok(closure(found?.unwrap_or_default(), &made_of))
    }
}

/// Returns these paths, and those of the members of arrays among them.
fn closure(from: Vec<PathBuf>, made_of: &BTreeMap<PathBuf, Vec<PathBuf>>) -> BTreeSet<PathBuf> {
    let mut all = BTreeSet::new();
    let mut next = from;
    while let Some(path) = next.pop() {
        next.extend(made_of.get(&path).into_iter().flatten().cloned());
        all.insert(path);
    }
    all
}

impl Array {
    fn of(group: &Group<'_>) -> Array {
        let sighted = |(disk, role): (&&Opened, &String)| Sighted {
            path: disk.path.clone(),
            role: role.clone(),
        };
        let members = group.disks.iter().zip(&group.roles).map(sighted).collect();
        Array { uuid: group.uuid.clone(), name: group.name.clone(), members }
    }
}

/// Takes the members of one array, in the order of their paths.
///
/// # Errors
/// If a server uses a member: then none is taken. If no member can be opened at all.
async fn take_array(array: &Array, read_only: bool, taken: &mut Taken, on: &Spawner) -> Result<()> {
    let options = Options { read_only, ..Options::default() };
    let (mut disks, mut refused) = (Vec::new(), Vec::new());
    for member in &array.members {
        let why = match disks::open_retrying(&member.path, &options, on).await {
            Ok(opened) => {
                disks.push(opened);
                continue;
            }
            Err(why) => why,
        };
        let is_served = why.is_served;
        let why = Failure::from(why);
        if is_served {
            let message = format!("{} is in use; {}", array.name, why.message);
            return Err(Failure::new(Id::Busy, message, why.action.replace("NAME", &array.name)));
        }
        let known = Some((array.uuid.clone(), member.role.clone()));
        refused.push(LeftOut { member: known, why });
    }
    if let (true, Some(first)) = (disks.is_empty(), refused.first()) {
        let sentences: Vec<String> = refused.iter().map(LeftOut::sentence).collect();
        let message = format!("{}: no member can be opened; {}", array.name, sentences.join("; "));
        return Err(Failure::new(first.why.id, message, actions(&refused)));
    }
    taken.disks.extend(disks);
    taken.left_out.extend(refused);
    Ok(())
}

/// Reads the superblocks again under the locks. Releases a disk that is no longer a member of the
/// expected array.
async fn verify(arrays: &[Array], taken: &mut Taken) {
    let all: Vec<&Opened> = taken.disks.iter().collect();
    let now: BTreeMap<PathBuf, String> = sorted(&all)
        .await
        .iter()
        .flat_map(|group| group.disks.iter().map(|disk| (disk.path.clone(), group.uuid.clone())))
        .collect();
    let (disks, left_out) = (&mut taken.disks, &mut taken.left_out);
    for array in arrays {
        for member in &array.members {
            if now.get(&member.path) == Some(&array.uuid) {
                continue;
            }
            let Some(at) = disks.iter().position(|disk| disk.path == member.path) else { continue };
            disks.remove(at);
            let message = format!("{}: changed while it was being opened", member.path.display());
            let why = Failure::new(Id::Busy, message, "run it again");
            let known = Some((array.uuid.clone(), member.role.clone()));
            left_out.push(LeftOut { member: known, why });
        }
    }
}
