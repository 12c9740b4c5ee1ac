//! Writes the superblocks of a candidate to the disks.
//!
//! The steps of `create`: start the array from memory, show the plan, ask for confirmation, copy
//! the blocks to be overwritten, write. Invariant: the bytes written are exactly those of the
//! overlay.

use std::rc::Rc;

use metadata::recover::Guess;

use super::NAME;
use super::members::{self, Member};
use crate::api::{Plan, PlannedDisk};
use crate::cmd::create::give_back;
use crate::daemon::Daemon;
use crate::failure::{Failure, Id, Result};
use crate::flags::Consent;
use crate::terminal::{Answer, Terminal};
use crate::{probe, undo};

/// Writes the superblocks of the overlays to these disks.
///
/// # Errors
/// A partition of an image, an array that does not start, no consent, or a failed copy: then
/// nothing is written. After a disk failure, the copies are restored.
pub(super) async fn write(
    guess: &Guess,
    members: &[Member],
    consent: &Consent,
    daemon: &Rc<Daemon>,
    terminal: &Terminal,
) -> Result<()> {
    refuse_partitions(members)?;
    if let Some(objection) = members.iter().find_map(|member| member.objection.clone()) {
        let action = "look at it with --nbd, and copy what is needed from there";
        return Err(Failure::new(Id::WrongState, objection, action));
    }
    let mut changes = Vec::new();
    for member in members {
        changes.push(Change { member, pieces: member.changes().await? });
    }
    let mut plan = plan(guess, members, daemon).await?;
    // Omit the UUID from the plan: it differs in each run until it is written.
    let uuid = plan.uuid.take();
    if consent.dry_run {
        terminal.report(&plan);
        return Ok(());
    }
    if !consent.yes {
        terminal.preview(&plan);
    }
    let destructive = members.iter().any(|member| !member.replaces.is_empty());
    let answer = if destructive { Answer::Name(NAME) } else { Answer::Yes };
    terminal.confirm(consent.yes, "Write these superblocks?", &answer)?;
    let target: Vec<undo::OverwriteTarget<'_>> = changes.iter().map(Change::target).collect();
    let kept = undo::keep("recover", NAME, &target).await?;
    plan.undo = kept.folder.as_ref().map(|folder| folder.display().to_string());
    for change in &changes {
        if let Err(failure) = change.carry_out().await {
            let disks = members.iter().map(|member| &member.disk);
            return Err(give_back(failure, &kept, disks).await);
        }
    }
    (plan.done, plan.uuid) = (true, uuid);
    terminal.report(&plan);
    Ok(())
}

/// The plan for a disk.
struct Change<'a> {
    member: &'a Member,
    /// Offsets, and the bytes to write there.
    pieces: Vec<(u64, Vec<u8>)>,
}

impl Change<'_> {
    fn target(&self) -> undo::OverwriteTarget<'_> {
        let written = |(at, bytes): &(u64, Vec<u8>)| *at..at + bytes.len() as u64;
        let written = self.pieces.iter().map(written).collect();
        undo::OverwriteTarget {
            written,
            ..undo::OverwriteTarget::new(&self.member.disk, &self.member.replaces)
        }
    }

    async fn carry_out(&self) -> Result<()> {
        for (at, bytes) in &self.pieces {
            undo::put(&self.member.disk, *at, bytes).await?;
        }
        Ok(())
    }
}

/// Refuses partitions of an image: the copies record a file name, which cannot restore them.
fn refuse_partitions(members: &[Member]) -> Result<()> {
    let Some(member) = members.iter().find(|member| member.disk.file.is_none()) else {
        return Ok(());
    };
    let path = member.disk.path.display();
    let message = format!("{path} is a partition: nothing is written there by this name");
    let action = "name the partition's own device (of an image: losetup -fP IMAGE makes them); or \
                  say --whole, if the partitions came later";
    Err(Failure::new(Id::WrongState, message, action))
}

/// Describes the plan, if the array starts.
async fn plan(guess: &Guess, members: &[Member], daemon: &Rc<Daemon>) -> Result<Plan> {
    let served = members::start(members, daemon).await?;
    let redundancy = served.array.status().redundancy_left;
    let uuid = served.uuid().to_owned();
    daemon.give_up(&served).await?;
    let disk = |member: &Member| PlannedDisk {
        path: member.disk.path.display().to_string(),
        serial: member.disk.serial.clone(),
        bytes: member.disk.bytes(),
        role: format!("slot {}", member.slot),
        overwrites: member.replaces.clone(),
        new: false,
    };
    let mut warnings = Vec::new();
    for member in members {
        let found = probe::signatures(&member.disk).await?;
        if found.iter().any(|signature| matches!(signature.name.as_str(), "gpt" | "dos")) {
            let path = member.disk.path.display();
            warnings.push(format!(
                "{path} keeps a partition table: a program that repairs it writes over the array"
            ));
        }
    }
    let missing = guess.order.len() - members.len();
    if missing > 0 {
        warnings.push(format!("{missing} of {} members are missing", guess.order.len()));
    }
    Ok(Plan {
        done: false,
        verb: "recover".into(),
        name: NAME.into(),
        uuid: Some(uuid),
        level: guess.layout.level().to_string(),
        layout: guess.layout.to_string(),
        chunk_bytes: guess.chunk_bytes,
        capacity_bytes: guess.capacity,
        raw_bytes: members.iter().map(|member| member.disk.bytes()).sum(),
        redundancy,
        consistency: None,
        checksums: false,
        disks: members.iter().map(disk).collect(),
        warnings,
        undo: None,
    })
}
