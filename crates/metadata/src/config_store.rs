//! The store of an array's configuration.
//!
//! The keeper proposes the next configuration; [`Decisions`] accepts it unless another host was
//! faster. On one host the members' superblocks are the store ([`Local`]). For an array that
//! several hosts share it will be a store with compare-and-set. The engine uses both in the same
//! way.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;

use layout::{Epoch, MemberId};

use crate::commit::{Decision, MetadataWriter};

/// The reason why a decision was not accepted.
#[derive(Debug)]
pub enum Undecided {
    /// These members could not be written; the others were. Decide again without them.
    Members(Vec<(MemberId, io::Error)>),
    /// The array's configuration is not the expected one: another host has changed it.
    Overtaken,
}

/// Compare-and-set of the configuration.
pub trait Decisions {
    /// Makes `next` durable as the array's configuration, if that is still at `expected`. A
    /// checkpoint passes its own epoch as `expected`.
    ///
    /// # Errors
    /// [`Undecided`] gives the reason.
    fn decide<'a>(&'a self, expected: Epoch, next: &'a Decision) -> Verdict<'a>;
}

/// The pending result.
pub type Verdict<'a> = Pin<Box<dyn Future<Output = Result<(), Undecided>> + 'a>>;

/// The superblocks are the store: only this process has the members open.
pub struct Local(pub Rc<MetadataWriter>);

impl Decisions for Local {
    fn decide<'a>(&'a self, _: Epoch, next: &'a Decision) -> Verdict<'a> {
        Box::pin(async move { self.0.commit(next).await.map_err(Undecided::Members) })
    }
}
