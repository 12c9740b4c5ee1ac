//! How units end: who is told, when, and by whom.

use io::Ticket;
use io::broken::{Broken, broken};
use metadata::Result;

use crate::rows::flush::CacheMode;
use crate::shard::Shard;
use crate::shard::message::ToShard;
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
