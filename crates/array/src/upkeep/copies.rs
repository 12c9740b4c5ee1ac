//! Rebuild, copy, resync and scrub of the mirror levels.

use io::Buf;
use layout::{Place, Places, Slot};

use crate::batch::Manner;
use crate::error::{ErrorKind, Result};
use crate::gate::Inside;
use crate::rows::Outgoing;
use crate::shard::{Scratch, Shard};
use crate::upkeep::{Finding, Report, Task};

impl Shard {
    /// Does one task to an array range.
    pub(crate) async fn upkeep_copies(
        &self,
        work: &mut Scratch,
        manner: Manner,
        (offset, len): (u64, u64),
        task: Task,
        report: &mut Report,
    ) -> Result<()> {
        // Memory is waited for outside the gate: those who have it may be waiting to get in.
        let needs =
            self.stretches(offset, len).map(|(_, part, places)| part * places.count() as u64);
        let _memory = self.scratch.take(needs.max().unwrap_or(0)).await;
        let inside = self.gate.enter().await;
        for (at, part, places) in self.stretches(offset, len) {
            match task {
                Task::Rebuild(_) | Task::Copy(_) => {
                    let stretch = (at, part);
                    self.restore_copy(work, manner, &inside, stretch, &places, task, report)
                        .await?;
                }
                Task::Resync | Task::Check | Task::Repair => {
                    let stretch = (at, part);
                    self.compare_copies(work, manner, &inside, stretch, &places, task, report)
                        .await?;
                }
            }
        }
        Ok(())
    }

    #[expect(clippy::too_many_arguments, reason = "one stretch with all that it needs")]
    async fn restore_copy(
        &self,
        work: &mut Scratch,
        manner: Manner,
        inside: &Inside<'_>,
        (at, part): (u64, u64),
        places: &Places,
        task: Task,
        report: &mut Report,
    ) -> Result<()> {
        let is_target = |slot: Slot| match task {
            Task::Rebuild(slots) => slots.contains(slot),
            Task::Copy(from) => slot == from,
            _ => false,
        };
        if !places.copies().any(|place| is_target(place.slot)) {
            return Ok(());
        }
        let read = self.read_stretch(work, manner, (at, part), places, inside).await;
        let bytes = match read {
            Ok((bytes, _)) => bytes.freeze(),
            Err(error) if error.kind() == ErrorKind::DataLost => {
                report.lost.push((at, part));
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        report.bytes += 2 * part;
        let view = self.view();
        work.outgoing.clear();
        for place in places.copies().filter(|place| is_target(place.slot)) {
            let (slot, at, bytes) = (place.slot, place.member_offset, bytes.clone());
            work.outgoing.push(Outgoing { slot, at, bytes });
        }
        let result = match task {
            Task::Copy(slot) => self.send_to_twin(work, manner, inside, &view, slot).await,
            _ => self.send(work, manner, inside, view).await,
        };
        work.outgoing.clear();
        result
    }

    #[expect(clippy::too_many_arguments, reason = "one stretch with all that it needs")]
    async fn compare_copies(
        &self,
        work: &mut Scratch,
        manner: Manner,
        inside: &Inside<'_>,
        (at, part): (u64, u64),
        places: &Places,
        task: Task,
        report: &mut Report,
    ) -> Result<()> {
        let view = self.view();
        let readable =
            |place: &Place| view.is_readable(place.slot, at + part, place.member_offset, part);
        let copies: Vec<Place> = places.copies().filter(readable).collect();
        if copies.len() < 2 {
            return Ok(());
        }
        for (tag, place) in copies.iter().enumerate() {
            let member = view.member(place.slot).expect("what is readable has a member");
            let buf = self.pool.take(part as usize);
            let at = place.member_offset;
            work.batch.read(member, place.slot, at, buf, tag as u32, manner.op_bytes);
        }
        self.run(&mut work.batch, manner).await;
        let mut bytes: Vec<Option<Buf>> = copies.iter().map(|_| None).collect();
        let take = |tag: u32, buf: Option<Buf>, ok| bytes[tag as usize] = buf.filter(|_| ok);
        work.batch.drain(take, |_, _, _| {}, &mut work.failures);
        work.failures.retain(|f| !matches!(f.error.kind(), io::ErrorKind::Medium { .. }));
        if !work.failures.is_empty() {
            return self.lose(inside, &view, &mut work.failures).await;
        }
        report.bytes += copies.len() as u64 * part;
        // Where reads have gone to the first copy so far, the others follow it.
        let settled = task != Task::Resync && !self.is_unsynced(at, part);
        let Some(right) = right_copy(&bytes, settled) else {
            report.lost.push((at, part));
            return Ok(());
        };
        let source = bytes[right.copy].take().expect("the right copy was read").freeze();
        work.outgoing.clear();
        for (copy, place) in copies.iter().enumerate().filter(|&(copy, _)| copy != right.copy) {
            let unreadable = bytes[copy].is_none();
            if bytes[copy].as_ref().is_some_and(|buf| buf[..] == source[..]) {
                continue;
            }
            if !unreadable && task != Task::Resync {
                report.findings.push(Finding {
                    array_offset: at,
                    member_offset: place.member_offset,
                    len: part,
                    culprit: right.by_majority.then_some(place.slot),
                });
            }
            let (slot, at, bytes) = (place.slot, place.member_offset, source.clone());
            work.outgoing.push(Outgoing { slot, at, bytes });
        }
        if task == Task::Check || work.outgoing.is_empty() {
            work.outgoing.clear();
            return Ok(());
        }
        report.repaired_bytes += work.outgoing.len() as u64 * part;
        self.rewrite(work, manner, inside, view).await
    }
}

/// Which copy the others should be like.
struct Right {
    copy: usize,
    by_majority: bool,
}

/// The copy that most others equal, where the majority counts; else the first that could be read.
fn right_copy(copies: &[Option<Buf>], by_majority: bool) -> Option<Right> {
    let read = copies.iter().flatten().count();
    let alike = |copy: &Buf| copies.iter().flatten().filter(|other| other[..] == copy[..]).count();
    let majority = copies
        .iter()
        .enumerate()
        .find(|(_, copy)| copy.as_ref().is_some_and(|copy| 2 * alike(copy) > read))
        .filter(|_| by_majority);
    match majority {
        Some((copy, _)) => Some(Right { copy, by_majority: read > 2 }),
        None => {
            let copy = copies.iter().position(Option::is_some)?;
            Some(Right { copy, by_majority: false })
        }
    }
}
