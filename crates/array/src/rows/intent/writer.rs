//! The writer of the log: gathers what units hand over into batches, one after the other.

use std::rc::Rc;

use io::Class;
use io::broken::{Broken, broken};
use layout::Slot;
use layout::md::ppl::HEADER_BYTES;
use log::LogSetup;
use log::batch::{Gathering, Lane, Numbers};
use log::ring::Placed;
use log::space::Space;

use crate::member::Member;
use crate::member::batch::{Batch, Failure, IoOptions};
use crate::member::view::View;
use crate::rows::engine::Engine;
use crate::rows::intent::Log;
use crate::shard::message::ToKeeper;

/// What the writer keeps between batches.
#[derive(Default)]
struct Desk {
    batch: Batch,
    failures: Vec<Failure>,
    /// The last batch's lists, to be used again.
    spare: Gathering,
}

impl Log {
    /// True if a batch is to be written now, while the gate is `closed` or not.
    fn is_due(&self, closed: bool) -> bool {
        match &*self.space.borrow() {
            Space::Ring(ring) => {
                let makes_room = self.waiting.get() > 0 && ring.has_retired();
                !self.next.borrow().units.is_empty() || makes_room
            }
            Space::Round(round) => round.is_due(closed),
        }
    }

    /// Who failed to take a batch may get another one before it is out, and take that: it must not
    /// name the failed one, or who reads it takes the log for damaged.
    fn forget_failed(&self, failures: &[Failure]) {
        if matches!(self.setup, LogSetup::Zone { .. }) && !broken(Broken::FailedBatchNamed) {
            let members = failures.iter().map(|failure| &failure.member);
            members.for_each(|member| member.logged.set(member.logged_before.get()));
        }
    }
}

impl Engine {
    /// Writes batches while the shard runs.
    pub(crate) async fn write_log(self: Rc<Self>) {
        let Some(log) = &self.log else { return };
        let spare = Gathering::new(self.setup.geometry.slots());
        let mut desk = Desk { spare, ..Desk::default() };
        while !self.is_stopping() {
            if log.is_due(self.gate.is_closed()) {
                self.write_batch(log, &mut desk).await;
                log.look_again();
            } else {
                log.stirred.wait().await;
            }
        }
    }

    async fn write_batch(&self, log: &Log, desk: &mut Desk) {
        let view = self.view();
        let mut gathered = log.next.replace(std::mem::take(&mut desk.spare));
        if view.journal.is_some() {
            gathered.join();
        }
        let placed = {
            let (mut space, mut touched) = (log.space.borrow_mut(), log.touched.borrow_mut());
            gathered.place(log.form, &mut space, &mut touched)
        };
        self.send_batch(log, desk, &mut gathered, placed, &view);
        let opts = IoOptions {
            fua: !broken(Broken::LogVolatile),
            class: Class::Foreground,
            op_bytes: 0,
            deadline: self.setup.bounds.deadline,
        };
        // No gate waits for a batch without units.
        let alone = gathered.units.is_empty() && !broken(Broken::BatchOvertaken);
        let members = view.members().filter(|_| alone);
        let ungated: Vec<Rc<Member>> = members.map(|(_, member)| Rc::clone(member)).collect();
        ungated.iter().for_each(|member| member.counters().late_writes.add(1));
        self.run(&mut desk.batch, opts).await;
        desk.batch.drain(|_, _, _| {}, |_, _, _| {}, &mut desk.failures);
        log.forget_failed(&desk.failures);
        let answer = match desk.failures.is_empty() || broken(Broken::LogErrorIgnored) {
            true => Ok(placed.sequence),
            false => {
                let failed = desk.failures.drain(..);
                Err(Rc::new(failed.map(|f| (f.member, f.slot, f.error)).collect::<Vec<_>>()))
            }
        };
        desk.failures.clear();
        if let Err(failed) = &answer
            && gathered.units.is_empty()
        {
            // Nobody waits for it who could report them.
            for (member, _, why) in failed.iter().filter(|(member, ..)| view.has(member.id)) {
                let (member, why) = (member.id, why.clone());
                self.post.to_keeper(ToKeeper::Lost { member, why });
            }
        }
        // Only now: who comes back must not be told that it has failed before.
        ungated.iter().for_each(|member| member.counters().late_writes.sub(1));
        log.space.borrow_mut().written(placed.sequence, answer.is_err());
        for ticket in gathered.units.drain(..) {
            log.answers.finish(ticket, answer.clone());
        }
        desk.spare = gathered;
    }

    /// Adds the writes of a batch, one for each member that has a part in it; all of them if it
    /// only records what does not matter any more. Where there is a journal device it has all.
    fn send_batch(
        &self,
        log: &Log,
        desk: &mut Desk,
        gathered: &mut Gathering,
        placed: Placed,
        view: &View,
    ) {
        let add = |(slot, member): (Slot, &Rc<Member>), lane: &Lane, batch: &mut Batch| {
            let place = member.log.expect("every member of an array with a log has one");
            let payload = lane.payload.iter().cloned();
            let zone_bytes = match log.setup {
                LogSetup::Zone { zone_bytes, .. } => zone_bytes,
                LogSetup::Ppl { signature, .. } => {
                    let (mark, log) = ((signature, placed.sequence), (place, member.logged.get()));
                    let geometry = &self.setup.geometry;
                    let (header, at, end) = log::ppl::unit(lane, mark, geometry, slot, log);
                    member.logged.set(end);
                    let mut head = self.pool.take(HEADER_BYTES as usize);
                    head.copy_from_slice(&header.print(parity::crc32c));
                    let parts = std::iter::once(head.freeze()).chain(payload);
                    return batch.log(member, slot, place.offset + at, parts);
                }
            };
            let numbers = Numbers {
                session: place.session,
                previous: member.logged.get(),
                zone: self.index as u32,
            };
            let head = lane.head(log.form, placed, numbers, &self.pool);
            let at = place.offset + self.index as u64 * zone_bytes + placed.start;
            let padding = log.zeros.slice(0..lane.padding(log.form) as usize);
            let padding = Some(padding).filter(|padding| !padding.is_empty());
            batch.log(member, slot, at, std::iter::once(head).chain(payload).chain(padding));
            member.logged_before.set(member.logged.replace(placed.sequence));
        };
        let batch = &mut desk.batch;
        if let Some(journal) = &view.journal {
            add((Slot::new(0), journal), &gathered.lanes[0], batch);
        } else if gathered.units.is_empty() {
            let empty = Lane::default();
            let all =
                view.present.iter().flat_map(|slot| view.targets(slot).map(move |m| (slot, m)));
            all.for_each(|place| add(place, &empty, batch));
        } else {
            for slot in gathered.slots_in_use() {
                let lane = &gathered.lanes[slot.index()];
                view.targets(slot).for_each(|member| add((slot, member), lane, batch));
            }
        }
        gathered.clear();
    }
}
