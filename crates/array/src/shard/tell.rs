//! Who is told what: clients how their units end, the keeper of bytes that were repaired, lost,
//! good again, or refused to a client.

use std::rc::Rc;
use std::time::Duration;

use io::Ticket;
use io::broken::{Broken, broken};
use metadata::{Error, ErrorKind, Result};

use crate::member::Member;
use crate::rows::engine::{Engine, RowOp};
use crate::rows::flush::CacheMode;
use crate::shard::Shard;
use crate::shard::message::{ToKeeper, ToShard};
use crate::shard::queue::{Action, Ended, Gain, Merged, Unit};

impl Shard {
    /// Tells who asked for a unit how it ended, once it is as durable as they were promised.
    pub(super) async fn finish_durably(&self, unit: Unit, gain: Gain, mut result: Result<()>) {
        if result.is_ok() && self.owes_flush() && self.writes(&unit) && !unit.fua {
            result = self.engine.make_durable().await;
        }
        self.finish(unit, gain, result);
    }

    /// True if a write is acknowledged when it is durable: as its clients were told, though a
    /// member has joined since that has a cache.
    fn owes_flush(&self) -> bool {
        let promised = !self.engine.setup.volatile && !broken(Broken::JoinedCacheUnflushed);
        self.engine.setup.cache == CacheMode::Sync || (promised && self.engine.is_volatile())
    }

    /// Tells who asked for a unit how it ended.
    pub(crate) fn finish(&self, mut unit: Unit, gain: Gain, result: Result<()>) {
        if let Err(error) = &result {
            self.tell_failure(&unit, error);
        }
        match unit.action {
            Action::Write(list) => self.keep_list(list),
            Action::WriteOut(write_out) => return self.wrote_out(write_out, result),
            Action::ReadAhead(_) => return,
            _ => {}
        }
        for Merged { from: to, .. } in unit.merged.drain(..) {
            self.answer(Ended { to, gain: Gain::Nothing, result: result.clone() });
        }
        if unit.merged.capacity() > 0 {
            self.queue.borrow_mut().keep(unit.merged);
        }
        self.answer(Ended { to: unit.from, gain, result });
    }

    fn answer(&self, ended: Ended) {
        // The keeper hears of lost blocks before a checkpoint says that all up to here is there.
        let reported = matches!(ended.gain, Gain::RangeJob(_)) && !broken(Broken::AnswerOvertakes);
        if ended.to.shard == self.engine.index && !reported {
            self.end(ended);
        } else {
            self.engine.post.to_shard(ended.to.shard, ToShard::Ended(ended));
        }
    }

    /// A unit of something that began here has ended.
    pub(super) fn end(&self, ended: Ended) {
        let Gain::RangeJob(job) = ended.gain else {
            self.requests.end(ended, &self.engine.setup.name);
            if self.quiescing.get() && self.requests.is_empty() {
                self.emptied.raise();
            }
            return;
        };
        let (slot, generation) = (u64::from(ended.to.request), u64::from(ended.to.part));
        let ticket = Ticket::from_bits(generation << 32 | slot);
        self.jobs.finish(ticket, (ended.result, job.report));
    }
}

/// Errors to clients are told so far apart.
const TELLING: Duration = Duration::from_secs(1);

impl Engine {
    /// Tells the keeper that bytes of a member were rewritten after a read error.
    pub(crate) fn repaired(&self, member: &Member, at: u64, bytes: u64) {
        member.counters().repaired_bytes.add(bytes);
        let (member, offset) = (member.id, member.data_offset + at);
        self.post.to_keeper(ToKeeper::Repaired { member, offset, bytes });
    }

    /// Notes that these bytes of a slot's members could not be recovered.
    pub(crate) fn unrecoverable(
        &self,
        members: impl Iterator<Item = Rc<Member>>,
        start: u64,
        len: u64,
    ) {
        self.put_on_lists(members, (start, len), false);
    }

    /// Puts bytes of members on their lists of bad blocks; as [`ToKeeper::Bad`] if `filling`.
    pub(crate) fn put_on_lists(
        &self,
        members: impl Iterator<Item = Rc<Member>>,
        (start, len): (u64, u64),
        filling: bool,
    ) {
        for member in members {
            member.bad.borrow_mut().insert(start..start + len);
            self.post.to_keeper(ToKeeper::Bad { member: member.id, start, len, filling });
        }
    }

    /// These bytes of a member have been written: none of them is on its list of bad blocks any
    /// more. True if one was.
    pub(crate) fn heal(&self, member: &Member, start: u64, len: u64) -> bool {
        let listed = !member.is_good(start, len);
        if listed {
            member.bad.borrow_mut().remove(start..start + len);
            self.post.to_keeper(ToKeeper::Good { member: member.id, start, len });
        }
        listed
    }

    /// Completes when all that this shard has told the keeper is on record, or nothing can be
    /// recorded any more. Not to be waited for inside the gate, which the keeper may have to close.
    pub(crate) async fn on_record(&self) {
        let (ticket, recorded) = self.records.start();
        let (shard, ticket) = (self.index, ticket.to_bits());
        self.post.to_keeper(ToKeeper::Record { shard, ticket });
        recorded.await;
    }

    /// Refuses to read what is lost. To be asked inside the gate: what is lost is known once it is
    /// open.
    pub(crate) fn check_bad(&self, (offset, len): (u64, u64)) -> Result<()> {
        let bad = self.bad.borrow();
        if bad.is_empty() || !bad.overlaps(offset..offset + len) {
            return Ok(());
        }
        let first = bad.next(offset).map_or(offset, |range| range.start.max(offset));
        let what = "these bytes are lost: a crash cut a write to them, or redundancy could not \
                    make them good; write them anew to clear the error";
        Err(Error::new(ErrorKind::DataLost, what).at(first))
    }
}

impl Shard {
    /// Tells the keeper that a client is answered with an error: one a second, the others counted.
    pub(super) fn tell_failure(&self, unit: &Unit, error: &Error) {
        let what = match unit.action {
            Action::Read(_) => "a read",
            Action::Write(_) | Action::WriteOut(_) => "a write",
            Action::Zero { .. } | Action::Discard => "a zeroing",
            Action::Flush { .. } => "a flush",
            Action::Extents(_) | Action::ReadAhead(_) | Action::RangeJob(_) => return,
        };
        // Who asks for what is refused anyway has a mistake of its own.
        if error.kind() != ErrorKind::DataLost {
            return;
        }
        let (now, (last, unreported)) = (self.engine.setup.clock.now(), self.reported.get());
        if last.is_some_and(|last| now - last < TELLING) {
            return self.reported.set((last, unreported + 1));
        }
        self.reported.set((Some(now), 0));
        let before =
            if unreported > 0 { format!("; {unreported} before it") } else { String::new() };
        let Unit { offset, len, .. } = unit;
        let text =
            format!("{what} of {len} bytes at array offset {offset} failed: {error}{before}");
        self.engine.post.to_keeper(ToKeeper::Refused { text });
    }
}

impl RowOp<'_> {
    /// What was written is not bad any more, neither of the array nor of members, and that is on
    /// record before it is acknowledged: a crash would make it an error again.
    pub(crate) async fn mend_bad(&mut self, (offset, len): (u64, u64)) {
        let lost = self.engine.bad.borrow().overlaps(offset..offset + len);
        if lost {
            self.engine.bad.borrow_mut().remove(offset..offset + len);
            self.engine.post.to_keeper(ToKeeper::Mended { offset, len });
        }
        let healed = std::mem::take(&mut self.work.healed) && !broken(Broken::HealedUnrecorded);
        if lost || healed {
            self.engine.on_record().await;
        }
    }
}
