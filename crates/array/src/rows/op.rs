//! The context in which a worker carries out one unit.
//!
//! ```text
//!   worker ─▶ RowOp { engine, work, opts } ── gate entered ──▶ RowOp { …, inside } ─▶ steps
//! ```
//!
//! Each step of a read, a write, a scrub or a rebuild is a method here. What concerns one epoch
//! takes its view as an argument: a step must say which epoch its decision belongs to.

use io::broken::{Broken, broken};
use layout::Family;
use metadata::{Error, ErrorKind, Result};

use crate::member::batch::{Failure, IoOptions};
use crate::member::view::View;
use crate::rows::Scratch;
use crate::rows::barrier::Inside;
use crate::rows::engine::Engine;
use crate::shard::message::ToKeeper;

/// One unit at work, or one step of it under other options.
pub(crate) struct RowOp<'a> {
    pub(crate) engine: &'a Engine,
    pub(crate) work: &'a mut Scratch,
    pub(crate) opts: IoOptions,
    /// Its presence behind the barrier: `None` before it has entered.
    inside: Option<&'a Inside<'a>>,
}

impl<'a> RowOp<'a> {
    /// A unit that has not entered the gate.
    pub(crate) fn new(engine: &'a Engine, work: &'a mut Scratch, opts: IoOptions) -> RowOp<'a> {
        RowOp { engine, work, opts, inside: None }
    }

    /// The same unit, inside the gate.
    pub(crate) fn inside<'b>(&'b mut self, inside: &'b Inside<'b>) -> RowOp<'b> {
        RowOp { engine: self.engine, work: self.work, opts: self.opts, inside: Some(inside) }
    }

    /// The same unit, with other options for its I/O.
    pub(crate) fn with(&mut self, opts: IoOptions) -> RowOp<'_> {
        RowOp { engine: self.engine, work: self.work, opts, inside: self.inside }
    }

    /// The same step, with other memory: `work` keeps what it holds.
    pub(crate) fn beside<'b>(&self, other: &'b mut Scratch) -> RowOp<'b>
    where
        'a: 'b,
    {
        RowOp { engine: self.engine, work: other, opts: self.opts, inside: self.inside }
    }

    /// The guard of the gate.
    ///
    /// # Panics
    /// If the unit has not entered.
    pub(crate) fn guard(&self) -> &'a Inside<'a> {
        self.inside.expect("steps that change members run inside the gate")
    }

    /// Reports members that failed, and parks until the membership has changed.
    ///
    /// # Errors
    /// If the array has no redundancy, or is broken without these members.
    pub(crate) async fn lose(&mut self, view: &View) -> Result<()> {
        let (mut reported, mut fatal) = (Vec::new(), Ok(()));
        for Failure { member, slot, error } in self.work.failures.drain(..) {
            let plain = self.engine.setup.geometry.family() == Family::Plain;
            // A copy can be done without, and must not take the slot.
            if plain && (!view.is_replacement(slot, member.id) || broken(Broken::FailedCopyKept)) {
                let kind = ErrorKind::DataLost;
                let what = format!("{} failed, and the level has no redundancy", member.name);
                fatal = Err(Error::new(kind, what).in_slot(slot).because(error));
            } else if view.has(member.id) && !reported.contains(&member.id) {
                reported.push(member.id);
                self.engine.post.to_keeper(ToKeeper::Lost { member: member.id, why: error });
            }
        }
        fatal?;
        self.guard().park(|| self.engine.view.borrow().epoch > view.epoch).await;
        Ok(())
    }
}
