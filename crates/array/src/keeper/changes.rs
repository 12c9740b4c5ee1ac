//! Changes of the membership: losses, commands, and their consequences.

use io::Turn;
use io::broken::{Broken, broken};
use layout::{
    Configuration, Epoch, Family, MemberId, Mode, RangeSet, Slot, SlotAssignment, SlotSet,
};
use metadata::{Error, ErrorKind, Result, Undecided};

use crate::keeper::{Command, Keeper};
use crate::shard::message::ToShard;
use crate::status::{EventKind, FULL};

impl Keeper {
    /// Carries out losses and commands, one after the other.
    pub(super) async fn run_changes(&self) {
        loop {
            let losses: Vec<_> = self.inbox.lost.borrow_mut().drain(..).collect();
            if !losses.is_empty() {
                self.lose(losses).await;
                continue;
            }
            if self.record.overtaken.replace(false) {
                self.note(EventKind::Broken, None, "another host has taken over this array");
                self.change(|next| next.mode = Mode::Broken).await;
                continue;
            }
            let command = self.inbox.commands.borrow_mut().pop_front();
            if let Some((command, ticket)) = command {
                let result = self.execute(command).await;
                self.answers.finish(ticket, result);
                continue;
            }
            self.changed.wait().await;
        }
    }

    /// Removes lost members.
    async fn lose(&self, losses: Vec<(MemberId, io::Error)>) {
        self.note_losses(&self.configuration(), &losses);
        self.losing.borrow_mut().extend(losses.iter().map(|(id, _)| *id));
        self.change(|next| self.take_out_all(next, &losses)).await;
    }

    /// Notes each loss once, if it affects this configuration.
    pub(super) fn note_losses(&self, now: &Configuration, losses: &[(MemberId, io::Error)]) {
        let mut noted = Vec::new();
        let full = self.fills_up(now, losses);
        if full {
            self.note_full(now, losses);
        }
        for (id, why) in losses {
            if full && why.kind() == io::ErrorKind::NoSpace {
                continue;
            }
            if !noted.contains(id) && self.note_loss(now, *id, why) {
                self.note_unverified(*id);
                noted.push(*id);
            }
        }
    }

    /// Notes a loss, if it affects this configuration.
    fn note_loss(&self, now: &Configuration, id: MemberId, why: &io::Error) -> bool {
        if now.journal == Some(id) {
            let text = format!("{why}; the intent log is on the members from now on");
            self.note(EventKind::JournalLost, Some(id), text);
            return false;
        }
        let assigned = now.slot_of(id).is_some();
        if assigned {
            if why.kind() == io::ErrorKind::Truncated {
                self.metadata.void_bits();
            }
            self.note(EventKind::Fail, Some(id), why.to_string());
        }
        assigned
    }

    /// Notes that the disk of a member is gone, or bytes of it for good.
    fn note_gone(&self, id: MemberId, truncated: bool) {
        if truncated {
            self.metadata.void_bits();
        }
        let why = if truncated { "its bytes are gone" } else { "its disk is gone" };
        self.note(EventKind::Fail, Some(id), why);
    }

    /// Warns that data of a lost member cannot be recovered where a crash may have left parity
    /// wrong.
    fn note_unverified(&self, id: MemberId) {
        let bytes = self.unsynced_bytes();
        if self.crash.unverified && bytes > 0 && self.geometry.family() == Family::Parity {
            let text = format!(
                "lost before {bytes} bytes of the array were in sync after a crash: its blocks \
                 there are errors until they are rewritten. --force-dirty-degraded at the next \
                 start accepts the data that parity gives, which may be wrong"
            );
            self.note(EventKind::BadBlock, Some(id), text);
        }
    }

    /// Closes the barrier, makes the configuration that `edit` derives from the current one
    /// durable, and opens the barrier. Members that fail to be written meanwhile are removed, too.
    pub(super) async fn change(&self, edit: impl FnOnce(&mut Configuration)) {
        let _turn = self.begin_change().await;
        self.change_now(edit).await;
    }

    /// Waits for the turn to change the membership.
    async fn begin_change(&self) -> Option<Turn<'_>> {
        loop {
            let turn = Turn::take(&self.changing, &self.changed);
            if turn.is_some() || broken(Broken::TwoChangesAtOnce) {
                return turn;
            }
            self.changed.wait().await;
        }
    }

    async fn change_now(&self, edit: impl FnOnce(&mut Configuration)) {
        self.inbox.quiesced_shards.borrow_mut().clear();
        self.home.engine.post.to_all(|| ToShard::Close);
        while self.inbox.quiesced_shards.borrow().len() < self.shards() {
            self.changed.wait().await;
        }
        let mut next = self.configuration();
        edit(&mut next);
        // Losses reported while the shards were quiescing belong to the same change.
        let more: Vec<_> = self.inbox.lost.borrow_mut().drain(..).collect();
        self.losing.borrow_mut().extend(more.iter().map(|(id, _)| *id));
        self.note_losses(&next, &more);
        self.take_out_all(&mut next, &more);
        next.epoch = Epoch(next.epoch.0 + 1);
        let turn = self.take_turn().await;
        if !broken(Broken::ChangeUnrecorded) {
            self.make_durable(&mut next).await;
        }
        if next.mode == Mode::Broken && self.configuration.borrow().mode != Mode::Broken {
            let text = "more members are lost than the level tolerates; writes are refused";
            self.note(EventKind::Broken, None, text);
        }
        let final_mode = next.mode.is_final();
        self.losing.borrow_mut().retain(|id| !final_mode && next.slot_of(*id).is_some());
        self.publish(next);
        drop(turn);
    }

    /// Makes a configuration durable. Removes members that cannot be written.
    pub(super) async fn make_durable(&self, next: &mut Configuration) {
        let expected = self.configuration.borrow().epoch;
        assert!(next.epoch > expected, "a change of membership is a new epoch");
        while !next.mode.is_final() {
            self.give_up_lost_journal(next);
            match self.decisions.decide(expected, &self.decision(next.clone())).await {
                Ok(()) => return,
                Err(Undecided::Members(failed)) => {
                    self.note_losses(next, &failed);
                    self.take_out_all(next, &failed);
                }
                Err(Undecided::Overtaken) => {
                    self.note(EventKind::Broken, None, "another host has taken over this array");
                    next.mode = Mode::Broken;
                }
            }
        }
    }

    /// Gives up the journal device before the first configuration without it becomes durable. The
    /// same commit makes its logged rows durable on the members. The exception is rows interrupted
    /// by a member loss: they are written again later.
    fn give_up_lost_journal(&self, next: &Configuration) {
        let now = self.configuration.borrow();
        if now.journal.is_none() || next.journal.is_some() {
            return;
        }
        self.metadata.give_up_journal();
        let lost = now.in_sync().difference(next.in_sync());
        if !lost.is_empty() && !broken(Broken::JournalLossUndoubted) {
            self.record.unlogged.set(true);
        }
    }

    /// Removes a member from its place. If the array cannot work without it, its mode becomes
    /// broken.
    pub(super) fn take_out(&self, next: &mut Configuration, id: MemberId) {
        if next.journal == Some(id) {
            next.journal = None;
            return;
        }
        next.spares.retain(|&spare| spare != id);
        let Some((slot, as_replacement)) = next.slot_of(id) else { return };
        let assignment = &mut next.slots[slot.index()];
        if as_replacement {
            assignment.replacement = None;
            return;
        }
        // An unfinished replacement becomes a partly rebuilt member of the slot.
        *assignment = match assignment.replacement {
            Some((replacement, copied)) if assignment.recovered.is_none() => SlotAssignment {
                member: Some(replacement),
                recovered: Some(copied),
                replacement: None,
            },
            _ => SlotAssignment::default(),
        };
        assert!(next.slot_of(id).is_none(), "a member that is lost would be written to");
        if !self.geometry.survives(Keeper::not_in_sync(next)) {
            next.mode = Mode::Broken;
        }
    }

    /// Carries out a command. Its preconditions must hold until it is done.
    async fn execute(&self, command: Command) -> Result<()> {
        let _turn = self.begin_change().await;
        self.execute_now(command).await
    }

    async fn execute_now(&self, command: Command) -> Result<()> {
        if let Err(refusal) = self.permit(&command) {
            if let Command::AddSpare(id) | Command::Readd(id, ..) = command {
                self.close_unused(id);
            }
            return Err(refusal);
        }
        match command {
            Command::Fail(id) => {
                self.note(EventKind::TakenOut, Some(id), "taken out of service as ordered");
                self.metadata.leaves(id);
                self.change_now(|next| self.take_out(next, id)).await;
            }
            Command::Lose(id) | Command::LoseTruncated(id) => {
                self.note_gone(id, matches!(command, Command::LoseTruncated(_)));
                self.note_unverified(id);
                self.change_now(|next| self.take_out(next, id)).await;
            }
            Command::AddSpare(id) => {
                self.note(EventKind::SpareAdded, Some(id), "added as a spare");
                self.change_now(|next| next.spares.push(id)).await;
            }
            Command::Readd(id, slot, ranges) => {
                self.note(EventKind::Readded, Some(id), format!("back in slot {slot}"));
                self.change_now(|next| {
                    // All units are quiesced: ranges written since the member was examined have
                    // bits.
                    let ranges: RangeSet =
                        ranges.iter().chain(self.metadata.dirty_ranges().iter()).collect();
                    let ranges = Some(ranges).filter(|_| !broken(Broken::ReaddCopiesNothing));
                    let ranges = ranges.unwrap_or_default();
                    let first =
                        ranges.next(0).map_or(self.geometry.capacity(), |range| range.start);
                    assert!(next.slots[slot.index()].member.is_none(), "slot {slot} has a member");
                    self.sync.partial.borrow_mut().insert(id, ranges);
                    next.slots[slot.index()] = SlotAssignment {
                        member: Some(id),
                        recovered: Some(first),
                        replacement: None,
                    };
                    self.reassigned();
                })
                .await;
            }
            Command::Remove(id) => {
                // First, so that every thread has closed the disk when the command is answered.
                self.forget(id);
                self.metadata.leaves(id);
                self.change_now(|next| next.spares.retain(|&spare| spare != id)).await;
                self.metadata.expel(id);
                self.note(EventKind::Removed, Some(id), "removed");
            }
            Command::Replace(slot, id) => {
                let old = self.configuration.borrow().slots[slot.index()].member;
                self.fit(id, old).await?;
                self.note(EventKind::ReplaceStarted, Some(id), format!("takes over slot {slot}"));
                self.change_now(|next| {
                    next.spares.retain(|&spare| spare != id);
                    next.slots[slot.index()].replacement = Some((id, 0));
                    self.reassigned();
                })
                .await;
            }
            Command::SetMode(mode) => self.change_now(|next| next.mode = mode).await,
        }
        Ok(())
    }

    /// Closes the disk of a new member that got neither a slot nor a place as a spare.
    fn close_unused(&self, id: MemberId) {
        let now = self.configuration.borrow();
        if now.slot_of(id).is_none() && !now.spares.contains(&id) {
            self.metadata.expel(id);
            self.forget(id);
        }
    }

    /// Makes all shards close a member's disk. Operations in flight may keep it open for a while
    /// longer.
    fn forget(&self, id: MemberId) {
        if let Some(known) = self.known(id) {
            self.home.engine.post.to_all(|| ToShard::Forget(known.clone()));
        }
    }

    /// On levels with members of different sizes, gives a spare the exact size of the member it
    /// replaces.
    async fn fit(&self, spare: MemberId, old: Option<MemberId>) -> Result<()> {
        let Some(old) = old.filter(|_| self.geometry.family() == Family::Plain) else {
            return Ok(());
        };
        // Not during a commit, which would record these superblocks as the last ones written.
        let _turn = self.take_turn().await;
        self.metadata.fit(spare, old)
    }

    /// Refuses commands that would lose data or do not apply now.
    fn permit(&self, command: &Command) -> Result<()> {
        let now = self.configuration.borrow();
        let refuse = |what: String| Err(Error::refused(what));
        match now.mode {
            Mode::Full => return Err(Error::new(ErrorKind::NoSpace, FULL)),
            Mode::Broken => {
                let what = "the array is broken: stop it, repair the cause, and assemble it again";
                return Err(Error::new(ErrorKind::DataLost, what));
            }
            Mode::ReadWrite | Mode::ReadOnly => {}
        }
        match command {
            Command::SetMode(Mode::ReadWrite) if let Some(why) = self.metadata.sealed() => {
                refuse(format!("nothing is written to this array's members: {why}"))
            }
            Command::Fail(id) | Command::Lose(id) | Command::LoseTruncated(id) => {
                let name = self.name_of(*id);
                let Some((slot, as_replacement)) = now.slot_of(*id) else {
                    return if now.spares.contains(id) {
                        Ok(())
                    } else {
                        refuse(format!(
                            "{name} is in no slot; it has failed already or was removed"
                        ))
                    };
                };
                let wanted = matches!(command, Command::Fail(_)) && !as_replacement;
                if wanted && now.in_sync().contains(slot) && !self.has_parity() {
                    let why = if self.computes_parity() {
                        let bytes = self.unsynced_bytes();
                        format!("parity of {bytes} bytes of the array is not in sync yet")
                    } else {
                        "the array was started without parity".to_string()
                    };
                    return refuse(format!("failing {name} (slot {slot}) would lose data: {why}"));
                }
                let lost = Keeper::not_in_sync(&now).union(SlotSet::only(slot));
                if !as_replacement && !self.geometry.survives(lost) {
                    return refuse(format!(
                        "failing {name} (slot {slot}) would lose data: the array tolerates no \
                         further failure"
                    ));
                }
                Ok(())
            }
            Command::Remove(id) if now.slot_of(*id).is_some() => {
                refuse(format!("{} is in use; fail it first", self.name_of(*id)))
            }
            Command::Readd(_, slot, _) if now.slots[slot.index()].member.is_some() => {
                refuse(format!("slot {slot} has a member; there is nothing to re-add"))
            }
            Command::Replace(slot, id) => {
                let assignment = now.slots[slot.index()];
                if assignment.member.is_none() || assignment.recovered.is_some() {
                    refuse(format!("slot {slot} is not whole; add a spare and let it rebuild"))
                } else if assignment.replacement.is_some() {
                    refuse(format!("slot {slot} is being replaced already"))
                } else if !now.spares.contains(id) {
                    refuse(format!("{} is no spare", self.name_of(*id)))
                } else {
                    Ok(())
                }
            }
            _ => Ok(()),
        }
    }

    /// Assigns an empty slot to a spare, if there are both. True if it did.
    pub(super) async fn assign_spare(&self) -> bool {
        let found = {
            let now = self.configuration.borrow();
            let empty = now.slots.iter().position(|assignment| assignment.member.is_none());
            let able = now.mode == Mode::ReadWrite && self.geometry.redundancy() > 0;
            empty.filter(|_| able).zip(now.spares.first().copied())
        };
        let Some((slot, spare)) = found else { return false };
        self.note(EventKind::RebuildStarted, Some(spare), format!("takes slot {slot}"));
        self.change(|next| {
            let still_empty = next.slots[slot].member.is_none();
            if still_empty && next.spares.contains(&spare) {
                next.spares.retain(|&other| other != spare);
                next.slots[slot] =
                    SlotAssignment { member: Some(spare), recovered: Some(0), replacement: None };
                self.reassigned();
            }
        })
        .await;
        true
    }

    /// Counts an assignment of a member to a slot.
    fn reassigned(&self) {
        self.assignments.set(self.assignments.get() + 1);
    }

    /// Marks the member of a slot as in sync, unless a member was assigned since the walk began.
    pub(super) async fn rebuilt(&self, slot: Slot, id: MemberId, assignments: u64) {
        self.change(|next| {
            let assignment = &mut next.slots[slot.index()];
            if assignment.member == Some(id) && self.assignments.get() == assignments {
                assignment.recovered = None;
            }
        })
        .await;
    }

    /// Gives the slot to its replacement, unless the copy is incomplete or from an earlier
    /// assignment. The old member is released.
    pub(super) async fn replaced(&self, slot: Slot, id: MemberId) {
        let mut old = self.configuration.borrow().slots[slot.index()].member;
        if self.fit(id, old.take()).await.is_err() {
            return;
        }
        self.change(|next| {
            let assignment = &mut next.slots[slot.index()];
            // A change may have reverted the last part of the copy, which was not recorded as done.
            let is_whole = |at| at >= self.geometry.capacity() || broken(Broken::CopyTakenUnasked);
            if assignment
                .replacement
                .is_some_and(|(replacement, at)| replacement == id && is_whole(at))
            {
                old = assignment.member;
                *assignment =
                    SlotAssignment { member: Some(id), recovered: None, replacement: None };
            }
        })
        .await;
        if let Some(old) = old {
            self.note(EventKind::Removed, Some(old), format!("slot {slot} was taken over"));
        }
    }
}
