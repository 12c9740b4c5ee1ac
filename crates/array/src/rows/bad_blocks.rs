//! Bad blocks: blocks that were repaired or rewritten, and blocks that redundancy cannot recover.
//!
//! ```text
//!   read error  ──▶ recovered ──▶ rewritten                    [`Engine::repaired`]
//!               └─▶ not recoverable ──▶ bad-block list         [`Engine::unrecoverable`]
//!   write       ──▶ off the list, recorded, acknowledged       [`RowOp::repair_bad`]
//! ```
//!
//! Owns the steps that put blocks on the lists of members and take them off. The keeper records the
//! lists; a block is an error until the record says otherwise.

use std::rc::Rc;

use io::broken::{Broken, broken};
use metadata::{Error, ErrorKind, Result};

use crate::member::Member;
use crate::rows::engine::{Engine, RowOp};
use crate::shard::message::ToKeeper;

impl Engine {
    /// Reports to the keeper that bytes of a member were rewritten after a read error.
    pub(crate) fn repaired(&self, member: &Member, at: u64, bytes: u64) {
        member.counters().repaired_bytes.add(bytes);
        let (member, offset) = (member.id, member.data_offset + at);
        self.post.to_keeper(ToKeeper::Repaired { member, offset, bytes });
    }

    /// Records that these bytes of a slot's members could not be recovered.
    pub(crate) fn unrecoverable(
        &self,
        members: impl Iterator<Item = Rc<Member>>,
        start: u64,
        len: u64,
    ) {
        self.put_on_lists(members, (start, len), false);
    }

    /// Adds bytes to the bad-block lists of members. `filling` is passed on in [`ToKeeper::Bad`].
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

    /// Takes bytes of a member that were written off its list of bad blocks. True if one was on it.
    pub(crate) fn clear_bad(&self, member: &Member, start: u64, len: u64) -> bool {
        let listed = !member.is_good(start, len);
        if listed {
            member.bad.borrow_mut().remove(start..start + len);
            self.post.to_keeper(ToKeeper::Good { member: member.id, start, len });
        }
        listed
    }

    /// Completes when the keeper has recorded all earlier reports of this shard, or can record
    /// nothing any more. Never await it inside the barrier: the keeper may have to close that.
    pub(crate) async fn on_record(&self) {
        let (ticket, recorded) = self.records.start();
        let (shard, ticket) = (self.index, ticket.to_bits());
        self.post.to_keeper(ToKeeper::Record { shard, ticket });
        recorded.await;
    }

    /// Refuses to read lost blocks. To be called inside the barrier: lost blocks are known once it
    /// is open.
    pub(crate) fn check_bad(&self, (offset, len): (u64, u64)) -> Result<()> {
        let bad = self.bad.borrow();
        if bad.is_empty() || !bad.overlaps(offset..offset + len) {
            return Ok(());
        }
        let first = bad.next(offset).map_or(offset, |range| range.start.max(offset));
        let what = "these bytes are lost: a crash interrupted a write to them, or redundancy \
                    could not recover them; rewrite them to clear the error";
        Err(Error::new(ErrorKind::DataLost, what).at(first))
    }
}

impl RowOp<'_> {
    /// Takes a written range off the lists of lost and bad blocks, and waits until that is on
    /// record: after a crash an unrecorded block would be an error again.
    pub(crate) async fn repair_bad(&mut self, (offset, len): (u64, u64)) {
        let lost = self.engine.bad.borrow().overlaps(offset..offset + len);
        if lost {
            self.engine.bad.borrow_mut().remove(offset..offset + len);
            self.engine.post.to_keeper(ToKeeper::Mended { offset, len });
        }
        let cleared_bad =
            std::mem::take(&mut self.work.cleared_bad) && !broken(Broken::HealedUnrecorded);
        if lost || cleared_bad {
            self.engine.on_record().await;
        }
    }
}
